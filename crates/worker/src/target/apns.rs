//! Apple's push service (APNs): its settings, and what of it needs no socket.
//!
//! One push is one HTTP/2 request. [`request`] reads it out of a job, [`answer`] says what APNs's answer means,
//! [`provider_token`] keeps the credentials fresh, and [`connections`] decides which request goes over which
//! connection and when one is opened or closed.

pub mod answer;
pub mod connections;
pub mod device_tokens;
pub mod provider_token;
pub mod request;

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::limits;
use crate::target::push::Feedback;
use crate::value::{Secret, Time};

/// A target that pushes to Apple devices, for one app or one team.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where APNs is: `https://HOST[:PORT]`. The sandbox is `https://api.sandbox.push.apple.com`; port 2197 works
    /// where 443 is closed. Default: production.
    #[serde(default = "production")]
    pub server: String,
    /// The signing key for token authentication: the text of the `.p8` file, `file:PATH` or `env:NAME`.
    pub key: Option<Secret>,
    /// The key's ten-character id, from the developer account.
    pub key_id: Option<String>,
    /// The team's ten-character id, from the developer account.
    pub team_id: Option<String>,
    /// Certificate authentication instead: the client certificate and its chain (PEM).
    pub certificate: Option<Secret>,
    /// The certificate's private key (PEM). Default: it is in `certificate`, too.
    pub certificate_key: Option<Secret>,
    /// The topic of jobs that name none: mostly the app's bundle id.
    pub topic: Option<String>,
    /// The push type of jobs that name none: `alert`, `background`, `voip`, ... Default: `alert`.
    #[serde(default = "alert")]
    pub push_type: String,
    /// Connections for tokens that are not known to be bad, opened as they are needed, 1 to 64. Default: 4. One
    /// more is opened for suspected tokens.
    #[serde(default = "connections")]
    pub connections: usize,
    /// Longest time to connect. Default: 10s.
    #[serde(default = "connect_timeout")]
    pub connect_timeout: Time,
    /// A connection that was silent for so long is asked whether it is there, 1s to 1h. Default: 30s.
    #[serde(default = "ping_after")]
    pub ping_after: Time,
    /// A connection that does not answer within this time is closed, 1s to 5m. Default: 10s.
    #[serde(default = "ping_timeout")]
    pub ping_timeout: Time,
    /// A connection that carried nothing for so long is closed, 10s to 7d. Default: 1h. Apple asks to keep them.
    #[serde(default = "idle_close")]
    pub idle_close: Time,
    /// Where dead device tokens are told. Default: nowhere.
    pub feedback: Option<Feedback>,
    /// A certificate authority (PEM file) instead of the machine's: for a local server.
    pub ca: Option<PathBuf>,
}

fn production() -> String {
    "https://api.push.apple.com".to_owned()
}

fn alert() -> String {
    "alert".to_owned()
}

fn connections() -> usize {
    4
}

fn connect_timeout() -> Time {
    Time(Duration::from_secs(10))
}

fn ping_after() -> Time {
    Time(Duration::from_secs(30))
}

fn ping_timeout() -> Time {
    Time(Duration::from_secs(10))
}

fn idle_close() -> Time {
    Time(Duration::from_secs(3600))
}

/// How the target shows who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// A provider token, signed with this key.
    Token { key: &'a Secret, key_id: &'a str, team_id: &'a str },
    /// A TLS client certificate; the key may be in the certificate's text.
    Certificate { certificate: &'a Secret, key: Option<&'a Secret> },
}

impl Settings {
    /// What is wrong with the settings, for their author. Empty: nothing.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(why) = self.authentication() {
            problems.push(why);
        }
        if let Err(why) = self.authority() {
            problems.push(why);
        }
        if !(1..=limits::APNS_CONNECTIONS_MAX).contains(&self.connections) {
            let most = limits::APNS_CONNECTIONS_MAX;
            problems.push(format!("connections = {} is not in 1 to {most}", self.connections));
        }
        problems.extend(self.feedback.iter().flat_map(Feedback::problems));
        let second = Duration::from_secs(1);
        let mut within = |name: &str, time: Time, least: Duration, most: Duration| {
            if time.0 < least || time.0 > most {
                problems.push(format!("{name} is not within {least:?} and {most:?}"));
            }
        };
        within("connect_timeout", self.connect_timeout, second / 10, 300 * second);
        within("ping_after", self.ping_after, second, 3600 * second);
        within("ping_timeout", self.ping_timeout, second, 300 * second);
        within("idle_close", self.idle_close, 10 * second, 7 * 86_400 * second);
        problems
    }

    /// The one way of the two to show who this is.
    ///
    /// # Errors
    /// None is given, both are, or one is given by half.
    pub fn authentication(&self) -> Result<Authentication<'_>, String> {
        match (&self.key, &self.certificate) {
            (Some(_), Some(_)) => {
                Err("give `key` or `certificate`, not both: APNs takes one of them".to_owned())
            }
            (None, None) => {
                Err("give `key`, `key_id` and `team_id` (token authentication) or `certificate`"
                    .to_owned())
            }
            (None, Some(certificate)) => {
                Ok(Authentication::Certificate { certificate, key: self.certificate_key.as_ref() })
            }
            (Some(key), None) => match (&self.key_id, &self.team_id) {
                (Some(key_id), Some(team_id)) => Ok(Authentication::Token { key, key_id, team_id }),
                (None, _) => Err("`key` needs `key_id`, the key's id at Apple".to_owned()),
                (_, None) => Err("`key` needs `team_id`, the team's id at Apple".to_owned()),
            },
        }
    }

    /// The server's name and port.
    ///
    /// # Errors
    /// `server` is no `https://HOST[:PORT]`.
    pub fn authority(&self) -> Result<http::uri::Authority, String> {
        let wrong = || format!("server = `{}` is not https://HOST[:PORT]", self.server);
        let uri: http::Uri = self.server.parse().map_err(|_| wrong())?;
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if uri.scheme_str() != Some("https") || !is_bare {
            return Err(wrong());
        }
        uri.authority().cloned().ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).expect("the settings can be read")
    }

    #[test]
    fn one_way_to_authenticate_is_asked_for() {
        let token = settings("key = 'file:a.p8'\nkey_id = 'K'\nteam_id = 'T'");
        assert_eq!(token.problems(), Vec::<String>::new());
        assert_eq!(settings("certificate = 'file:a.pem'").problems(), Vec::<String>::new());
        for bad in [
            "",
            "key = 'x'\nkey_id = 'K'",
            "key = 'x'\nteam_id = 'T'",
            "key = 'x'\ncertificate = 'y'",
        ] {
            assert_eq!(settings(bad).problems().len(), 1, "{bad}");
        }
    }

    #[test]
    fn bounds_are_checked_and_named() {
        let text = "certificate = 'x'\nconnections = 65\nping_after = '1ms'\nserver = 'http://a/b'";
        let problems = settings(text).problems().join("; ");
        for name in ["connections", "ping_after", "server"] {
            assert!(problems.contains(name), "{problems}");
        }
    }

    #[test]
    fn a_key_is_never_shown() {
        let settings = settings("key = 'CANARY'\nkey_id = 'K'\nteam_id = 'T'");
        assert!(!format!("{settings:?} {:?}", settings.authentication()).contains("CANARY"));
    }
}
