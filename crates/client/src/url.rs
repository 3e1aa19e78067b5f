//! AMQP URLs: `amqp://user:password@host:port/vhost?heartbeat=30`, and `amqps://` for TLS.
//!
//! As RabbitMQ's URI specification has it, with one kindness: an empty path segment means the
//! virtual host `/` and not the one with the empty name. Everything is judged here, once. Nothing that
//! is said about a URL, a bad one included, holds its password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::limits::{CHANNEL_MAX, FRAME_BYTES_MIN, SHORT_STRING_BYTES_MAX, URL_BYTES_MAX};

const PORT: u16 = 5672;
const TLS_PORT: u16 = 5671;

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
    /// `amqps://`: what the server's certificate is held against. None: no TLS.
    pub tls: Option<Tls>,
}

/// Whom to believe and what to show under TLS. The server's certificate is always verified, chain and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM file with the authorities to believe. None: the system's.
    pub authority: Option<PathBuf>,
    /// PEM files with the client's own certificate and its key: both or none.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// The certificate is the login, too (EXTERNAL): user and password are not sent.
    pub is_login: bool,
    /// The name that the server's certificate must have. None: the URL's host.
    pub server_name: Option<String>,
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
        let scheme = if self.tls.is_some() { "amqps" } else { "amqp" };
        write!(out, "{scheme}://{}@{open}{}{close}:{}/{vhost}", self.user, self.host, self.port)
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
        let (tls, rest) = after_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        if login.is_empty() && (path.contains('@') || query.contains('@')) {
            // What stands before it may be a password: none of it is repeated.
            return Err(BadUrl(
                "an @ follows a bare / or ?: in a password write them as %2F and %3F, elsewhere \
                 the @ as %40"
                    .into(),
            ));
        }
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = host_and_port(place, if tls.is_some() { TLS_PORT } else { PORT })?;
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
            tls,
        };
        if login.is_empty() {
            (url.user, url.password) = ("guest".into(), "guest".into());
        }
        if path.contains('/') {
            return Err(BadUrl("the virtual host has a bare slash: write it as %2F".into()));
        }
        if url.vhost.is_empty() {
            url.vhost = "/".into();
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            url.take_option(pair)?;
        }
        if let Some(Tls { certificate, key, is_login, .. }) = &url.tls {
            if certificate.is_some() != key.is_some() {
                let why = "certfile and keyfile go together: one of them is missing";
                return Err(BadUrl(why.into()));
            }
            if *is_login && certificate.is_none() {
                let why = "`auth_mechanism=external` is a login with a certificate: name it with certfile and keyfile";
                return Err(BadUrl(why.into()));
            }
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
            "auth_mechanism" if value.eq_ignore_ascii_case("plain") => {}
            "cacertfile"
            | "certfile"
            | "keyfile"
            | "server_name_indication"
            | "verify"
            | "auth_mechanism" => {
                let Some(tls) = self.tls.as_mut() else {
                    return Err(BadUrl(format!("`{key}` is for TLS: say amqps:// instead")));
                };
                tls.take_option(key, percent_decoded(key, value)?)?;
            }
            _ => {
                return Err(BadUrl(format!(
                    "`{key}` is not an option; there are heartbeat, connection_timeout, \
                     channel_max and frame_max, and for amqps:// cacertfile, certfile, keyfile, \
                     server_name_indication and auth_mechanism"
                )));
            }
        }
        Ok(())
    }
}

impl Tls {
    fn take_option(&mut self, key: &str, value: String) -> Result<(), BadUrl> {
        match (key, value.as_str()) {
            ("verify", "verify_peer") => (),
            ("verify", _) | ("server_name_indication", "disable") => {
                return Err(BadUrl(format!(
                    "`{key}={value}`: the server's certificate is always verified here; name its \
                     authority with cacertfile, and its host with server_name_indication"
                )));
            }
            ("auth_mechanism", mechanism) if mechanism.eq_ignore_ascii_case("external") => {
                self.is_login = true;
            }
            ("auth_mechanism", _) => {
                return Err(BadUrl(format!("`{key}={value}`: there are plain and external")));
            }
            (_, "") => return Err(BadUrl(format!("`{key}` is empty"))),
            ("cacertfile", _) => self.authority = Some(value.into()),
            ("certfile", _) => self.certificate = Some(value.into()),
            ("keyfile", _) => self.key = Some(value.into()),
            (_, _) => self.server_name = Some(value),
        }
        Ok(())
    }
}

fn after_scheme(text: &str) -> Result<(Option<Tls>, &str), BadUrl> {
    let Some((scheme, rest)) = text.split_once("://") else {
        let shown = if text.contains('@') { "it" } else { &format!("`{text}`") };
        return Err(BadUrl(format!("{shown} does not begin with amqp:// or amqps://")));
    };
    match scheme.to_ascii_lowercase().as_str() {
        "amqp" => Ok((None, rest)),
        "amqps" => Ok((Some(Tls::default()), rest)),
        _ => Err(BadUrl(format!("`{scheme}://` is not amqp:// or amqps://"))),
    }
}

fn host_and_port(place: &str, default_port: u16) -> Result<(String, u16), BadUrl> {
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
        None | Some("") => default_port,
        Some(text) => match text.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(BadUrl("what follows the host is not a port (1 to 65535)".into())),
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
    let decoded = percent_decoded(part, text)?;
    if decoded.len() > SHORT_STRING_BYTES_MAX {
        return Err(BadUrl(format!("the {part} is longer than {SHORT_STRING_BYTES_MAX} bytes")));
    }
    Ok(decoded)
}

fn percent_decoded(part: &str, text: &str) -> Result<String, BadUrl> {
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
    String::from_utf8(bytes)
        .map_err(|_| BadUrl(format!("the {part} is not UTF-8 once it is percent-decoded")))
}

#[cfg(test)]
mod tests;
