//! Where a collector takes spans: its URL.

use std::fmt;

use http::Uri;

/// Where OTLP over HTTP has its traces (OTLP 1.1, "OTLP/HTTP Request").
const PATH: &str = "/v1/traces";

/// The port of OTLP over HTTP.
const PORT: u16 = 4318;

/// The port of `https`, which a URL means that names none.
const PORT_TLS: u16 = 443;

/// The URL that spans are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(crate) is_tls: bool,
    /// A name or an address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host and port as the URL has them.
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl Endpoint {
    /// What a URL says. Without a path spans go to `/v1/traces`; without a port to 4318, and to 443 under TLS.
    ///
    /// # Errors
    /// In words: it is no such URL.
    pub fn read(url: &str) -> Result<Self, String> {
        if url.contains('@') {
            return Err("a URL with a user or a password is not taken".to_owned());
        }
        let uri: Uri = url.parse().map_err(|error| format!("\"{url}\" is no URL: {error}"))?;
        let wrong = || {
            format!(
                "\"{url}\" must begin with http:// or https:// and name a host, for example http://127.0.0.1:4318"
            )
        };
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(wrong());
        }
        let path = match uri.path_and_query().map_or("/", |path| path.as_str()) {
            "/" => PATH,
            path => path,
        };
        Ok(Self {
            is_tls,
            host,
            port: uri.port_u16().unwrap_or(if is_tls { PORT_TLS } else { PORT }),
            authority: authority.as_str().to_owned(),
            path: path.to_owned(),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_tls, authority, path, .. } = self;
        write!(out, "http{}://{authority}{path}", if *is_tls { "s" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_path_or_port_means_otlps_own() {
        let of = |url: &str| {
            let Endpoint { is_tls, host, port, path, .. } = Endpoint::read(url).unwrap();
            (is_tls, host, port, path)
        };
        let plain = (false, "collector".to_owned(), 4318, "/v1/traces".to_owned());
        assert_eq!(of("http://collector:4318"), plain);
        assert_eq!(of("http://collector/"), plain);
        let sealed = (true, "::1".to_owned(), 443, "/otlp/v1/traces".to_owned());
        assert_eq!(of("https://[::1]/otlp/v1/traces"), sealed);
        let shown = Endpoint::read("http://collector:4318").unwrap().to_string();
        assert_eq!(shown, "http://collector:4318/v1/traces");
    }

    #[test]
    fn what_is_no_url_of_a_collector_is_told() {
        for wrong in ["", "collector:4318", "/v1/traces", "grpc://collector:4317", "http://"] {
            assert!(Endpoint::read(wrong).is_err(), "{wrong}");
        }
        let why = Endpoint::read("https://ann:hunter2@collector").unwrap_err();
        assert!(!why.contains("hunter2"), "{why}");
    }
}
