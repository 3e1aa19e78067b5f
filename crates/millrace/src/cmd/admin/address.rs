//! Where the HTTP API of a node is: `https://ann@mill.example:15671`.
//!
//! Nothing that is wrong with a URL repeats it: it may hold a password.

use std::fmt;
use std::str::FromStr;

use super::secret::Secret;

/// Where RabbitMQ's API is, if nobody says another port.
const PORT: u16 = 15672;
/// The same under TLS.
const TLS_PORT: u16 = 15671;
/// Bytes of a URL.
const URL_BYTES_MAX: usize = 4096;

/// Where the API is, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) is_tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
}

impl Address {
    /// Host and port, as an HTTP request and people have them.
    pub(crate) fn place(&self) -> String {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        format!("{open}{}{close}:{}", self.host, self.port)
    }
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        let user = self.user.as_ref().map(|user| format!("{}@", super::path::quoted(user)));
        write!(out, "{scheme}://{}{}", user.unwrap_or_default(), self.place())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > URL_BYTES_MAX {
            return Err(format!("the URL is longer than {URL_BYTES_MAX} bytes"));
        }
        let (scheme, rest) = text.split_once("://").ok_or(
            "the URL must begin with http:// or https://, for example http://ann@host:15672",
        )?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            "amqp" | "amqps" => {
                return Err("the URL is one for AMQP; the HTTP API has one with http:// or https://, most often at \
                            port 15672"
                    .to_owned());
            }
            _ => return Err("the URL must begin with http:// or https://".to_owned()),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = path.trim_end_matches('/');
        if path.contains('@') {
            return Err("an @ follows a bare /: write the / of a password as %2F".to_owned());
        }
        if !["", "api"].contains(&path) || authority.contains(['?', '#']) {
            return Err("the URL ends after the port: paths and queries are not taken".to_owned());
        }
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            Some((user, password)) => (decoded(user)?, decoded(password)?),
            None => (String::new(), String::new()),
        };
        if user.contains(':') {
            return Err("the user's name has a colon: HTTP's logins cannot carry it".to_owned());
        }
        let (host, port) = host_and_port(place)?;
        Ok(Self {
            is_tls,
            host,
            port: port.unwrap_or(if is_tls { TLS_PORT } else { PORT }),
            user: (!user.is_empty()).then_some(user),
            password: (!password.is_empty()).then(|| Secret::new(password)),
        })
    }
}

fn host_and_port(place: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) =
                rest.split_once(']').ok_or("the address of the URL lacks its `]`")?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err("something follows the address in brackets".to_owned()),
            }
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    if host.is_empty() || host.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        return Err("the URL has no host".to_owned());
    }
    let port = port.filter(|port| !port.is_empty()).map(|port| {
        let port = port.parse::<u16>().ok().filter(|port| *port > 0);
        port.ok_or("what follows the host is not a port (1 to 65535)".to_owned())
    });
    Ok((host.to_owned(), port.transpose()?))
}

fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(value.ok_or("a % of the login is not followed by two hex digits")?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| "the login of the URL is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_who() {
        let address: Address = "https://ann%40shop:p%2Fw@mill.example".parse().unwrap();
        assert_eq!(
            (address.is_tls, address.port, &*address.host),
            (true, TLS_PORT, "mill.example")
        );
        assert_eq!(address.user.as_deref(), Some("ann@shop"));
        assert_eq!(address.password.as_ref().map(Secret::expose), Some("p/w"));
        assert_eq!(format!("{address:?}"), "https://ann%40shop@mill.example:15671");
        let bare: Address = "http://[::1]:1234/api/".parse().unwrap();
        assert_eq!((bare.place(), bare.user), ("[::1]:1234".to_owned(), None));
        assert_eq!("http://host".parse::<Address>().unwrap().port, PORT);
    }

    #[test]
    fn a_wrong_url_is_told_without_itself() {
        for wrong in [
            "host:15672",
            "amqp://ann:hunter2@host",
            "http://ann:hunter2@host:port",
            "http://ann:hunter2@",
            "http://ann:hunt/er2@host",
            "http://ann:hunter2@host/path",
            "http://ann:hunter2@host?x=1",
            "http://ann:hunter2%zz@host",
            "http://a%3Ab:hunter2@host",
            "http://ann:hunter2@[::1",
            &format!("http://{}", "h".repeat(5000)),
        ] {
            let told = wrong.parse::<Address>().unwrap_err();
            assert!(!told.contains("hunt") && !told.contains("ann:"), "{wrong}: {told}");
        }
    }
}
