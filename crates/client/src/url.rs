//! AMQP URLs: `amqp://user:password@host:port/vhost?heartbeat=30`.
//!
//! As RabbitMQ's URI specification has it, with one kindness: an empty path segment means the
//! virtual host `/` and not the one with the empty name. Everything is judged here, once.

use std::fmt;
use std::str::FromStr;

use crate::limits::{CHANNEL_MAX, FRAME_BYTES_MIN, SHORT_STRING_BYTES_MAX, URL_BYTES_MAX};

const PORT: u16 = 5672;

/// Where and as whom to connect. `Display` and `Debug` leave the password out.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// Name or address, an IPv6 address without its brackets.
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub vhost: String,
    /// Seconds between heartbeats; 0 turns them off.
    pub heartbeat: Option<u16>,
    /// Milliseconds for the connect with its handshake.
    pub connection_timeout: Option<u64>,
    pub channel_max: Option<u16>,
    /// Largest frame to agree on, in bytes.
    pub frame_max: Option<u32>,
}

/// Why a text is not a URL that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrl(String);

impl fmt::Display for BadUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} (an AMQP URL reads amqp://user:password@host:5672/vhost)", self.0)
    }
}

impl std::error::Error for BadUrl {}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        let vhost = self.vhost.replace('%', "%25").replace('/', "%2F");
        write!(out, "amqp://{}@{open}{}{close}:{}/{vhost}", self.user, self.host, self.port)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        if text.len() > URL_BYTES_MAX {
            return Err(BadUrl(format!("the URL is longer than {URL_BYTES_MAX} bytes")));
        }
        let rest = after_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = host_and_port(place)?;
        let mut url = Url {
            host,
            port,
            user: decoded("user", user)?,
            password: decoded("password", password)?,
            vhost: decoded("virtual host", path)?,
            heartbeat: None,
            connection_timeout: None,
            channel_max: None,
            frame_max: None,
        };
        if login.is_empty() {
            (url.user, url.password) = ("guest".into(), "guest".into());
        }
        if path.contains('/') {
            return Err(BadUrl(format!(
                "the virtual host `{path}` has a bare slash: write it as %2F"
            )));
        }
        if url.vhost.is_empty() {
            url.vhost = "/".into();
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            url.take_option(pair)?;
        }
        Ok(url)
    }
}

impl Url {
    fn take_option(&mut self, pair: &str) -> Result<(), BadUrl> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "heartbeat" => self.heartbeat = Some(number(key, value, "seconds, 0 to 65535")?),
            "connection_timeout" => {
                self.connection_timeout = Some(number(key, value, "milliseconds")?);
            }
            "channel_max" => {
                let what = format!("a number from 1 to {CHANNEL_MAX}");
                let max = number(key, value, &what)?;
                if !(1..=CHANNEL_MAX).contains(&max) {
                    return Err(bad_option(key, value, &what));
                }
                self.channel_max = Some(max);
            }
            "frame_max" => {
                let what = format!("bytes, at least {FRAME_BYTES_MIN}");
                let max = number(key, value, &what)?;
                if max < FRAME_BYTES_MIN {
                    return Err(bad_option(key, value, &what));
                }
                self.frame_max = Some(max);
            }
            _ => {
                return Err(BadUrl(format!(
                    "`{key}` is not an option; there are heartbeat, connection_timeout, \
                     channel_max and frame_max"
                )));
            }
        }
        Ok(())
    }
}

fn after_scheme(text: &str) -> Result<&str, BadUrl> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(BadUrl(format!("`{text}` does not begin with amqp://")));
    };
    match scheme.to_ascii_lowercase().as_str() {
        "amqp" => Ok(rest),
        "amqps" => Err(BadUrl("amqps:// needs TLS, which this client does not speak yet".into())),
        _ => Err(BadUrl(format!("`{scheme}://` is not amqp://"))),
    }
}

fn host_and_port(place: &str) -> Result<(String, u16), BadUrl> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest
                .split_once(']')
                .ok_or_else(|| BadUrl(format!("the address in `{place}` lacks its `]`")))?;
            let port = match after.strip_prefix(':') {
                Some(port) => Some(port),
                None if after.is_empty() => None,
                None => return Err(BadUrl(format!("`{after}` follows the address in brackets"))),
            };
            (host, port)
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let host = decoded("host", host)?;
    let port = match port {
        None | Some("") => PORT,
        Some(text) => match text.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(BadUrl(format!("`{text}` is not a port (1 to 65535)"))),
        },
    };
    Ok((if host.is_empty() { "localhost".into() } else { host }, port))
}

fn number<T: FromStr>(key: &str, value: &str, what: &str) -> Result<T, BadUrl> {
    value.parse().map_err(|_| bad_option(key, value, what))
}

fn bad_option(key: &str, value: &str, what: &str) -> BadUrl {
    BadUrl(format!("`{key}={value}`: {key} is {what}"))
}

/// Percent-decoded; at most as long as AMQP can carry.
fn decoded(part: &str, text: &str) -> Result<String, BadUrl> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let value = hex
            .filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok())
            .ok_or_else(|| {
                BadUrl(format!("a % in the {part} is not followed by two hex digits"))
            })?;
        bytes.push(value);
        rest = &after[2..];
    }
    let decoded = String::from_utf8(bytes)
        .map_err(|_| BadUrl(format!("the {part} is not UTF-8 once it is percent-decoded")))?;
    if decoded.len() > SHORT_STRING_BYTES_MAX {
        return Err(BadUrl(format!("the {part} is longer than {SHORT_STRING_BYTES_MAX} bytes")));
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap_or_else(|bad| panic!("{text}: {bad}"))
    }

    #[test]
    fn every_part_of_a_full_url_is_read() {
        let url = url("amqp://ann:s%40cret@example.org:5673/my%2Fhost?heartbeat=30&frame_max=8192");
        assert_eq!((url.user.as_str(), url.password.as_str()), ("ann", "s@cret"));
        assert_eq!((url.host.as_str(), url.port), ("example.org", 5673));
        assert_eq!(url.vhost, "my/host");
        assert_eq!((url.heartbeat, url.frame_max), (Some(30), Some(8192)));
    }

    #[test]
    fn what_is_left_out_is_guest_on_the_default_port_and_virtual_host() {
        for text in ["amqp://localhost", "amqp://localhost/", "amqp://", "AMQP://:5672/%2f"] {
            let url = url(text);
            assert_eq!((url.user.as_str(), url.password.as_str()), ("guest", "guest"), "{text}");
            assert_eq!((url.host.as_str(), url.port), ("localhost", 5672), "{text}");
            assert_eq!(url.vhost, "/", "{text}");
        }
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        assert_eq!(
            (url("amqp://[::1]:5680/x").host, url("amqp://[::1]/x").port),
            ("::1".into(), 5672)
        );
        assert_eq!(url("amqp://[::1]:5680/x").to_string(), "amqp://guest@[::1]:5680/x");
    }

    #[test]
    fn the_password_is_never_shown() {
        let shown = format!("{0} {0:?}", url("amqp://ann:hunter2@h/%2F"));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.starts_with("amqp://ann@h:5672/%2F"), "{shown}");
    }

    #[test]
    fn a_bad_url_says_what_is_wrong_with_it() {
        let cases = [
            ("localhost:5672", "does not begin with amqp://"),
            ("amqps://h", "TLS"),
            ("http://h", "is not amqp://"),
            ("amqp://h:0", "is not a port"),
            ("amqp://h:70000", "is not a port"),
            ("amqp://h:x/", "is not a port"),
            ("amqp://[::1/", "lacks its `]`"),
            ("amqp://[::1]x/", "follows the address"),
            ("amqp://h/a/b", "bare slash"),
            ("amqp://h/%2", "two hex digits"),
            ("amqp://h/%+1", "two hex digits"),
            ("amqp://h/%FF", "not UTF-8"),
            ("amqp://h/?heartbeat=soon", "seconds"),
            ("amqp://h/?heartbeat=70000", "seconds"),
            ("amqp://h/?frame_max=4095", "at least 4096"),
            ("amqp://h/?channel_max=0", "from 1 to"),
            ("amqp://h/?prefetch=3", "is not an option"),
        ];
        for (text, part) in cases {
            let bad = text.parse::<Url>().expect_err(text).to_string();
            assert!(bad.contains(part), "{text}: {bad}");
        }
    }

    #[test]
    fn a_name_longer_than_amqp_can_carry_is_refused() {
        let long = "v".repeat(256);
        assert!(format!("amqp://h/{long}").parse::<Url>().is_err());
        assert!(format!("amqp://h/{}", "v".repeat(5000)).parse::<Url>().is_err());
    }
}
