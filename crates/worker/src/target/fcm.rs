//! Firebase Cloud Messaging (FCM), HTTP v1: its settings, its requests, and what its answers mean.
//!
//! A job's body is FCM's own: `{"message": {"token": "…", …}}`, passed through as it is. One request has one token.

pub mod answer;

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::target::push::Feedback;
use crate::value::Secret;

/// What the access token is for.
const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
/// The grant type of RFC 7523.
pub const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// How long an assertion is good.
const ASSERTION_LIFE: Duration = Duration::from_secs(3600);

/// A target that pushes through FCM, for one project.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The service account's key: the JSON file that Google made, `file:PATH` or `env:NAME`.
    pub service_account: Secret,
    /// The Firebase project. Default: the service account's.
    pub project_id: Option<String>,
    /// Where messages are sent. Default: `https://fcm.googleapis.com`.
    #[serde(default = "push_url")]
    pub push_url: String,
    /// Where access tokens are given. Default: the service account's `token_uri`.
    pub token_url: Option<String>,
    /// FCM checks messages and delivers none. Default: false.
    #[serde(default)]
    pub validate_only: bool,
    /// Where dead device tokens are told. Default: nowhere.
    pub feedback: Option<Feedback>,
    /// A certificate authority (PEM file) instead of the machine's: for a local server.
    pub ca: Option<PathBuf>,
}

fn push_url() -> String {
    "https://fcm.googleapis.com".to_owned()
}

impl Settings {
    /// What is wrong with the settings, for their author. Empty: nothing.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut url = |name: &str, text: &str| {
            let uri: Option<http::Uri> = text.parse().ok();
            let is_url = uri.is_some_and(|uri| {
                matches!(uri.scheme_str(), Some("https" | "http")) && uri.authority().is_some()
            });
            if !is_url {
                problems.push(format!("{name} = `{text}` is no URL"));
            }
        };
        url("push_url", &self.push_url);
        if let Some(token_url) = &self.token_url {
            url("token_url", token_url);
        }
        let is_id = |id: &String| {
            !id.is_empty()
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_:.".contains(&byte))
        };
        if self.project_id.as_ref().is_some_and(|id| !is_id(id)) {
            problems.push("project_id is no id of a Firebase project".to_owned());
        }
        problems.extend(self.feedback.iter().flat_map(Feedback::problems));
        problems
    }
}

/// A service account's key file.
#[derive(Clone, Deserialize)]
pub struct ServiceAccount {
    pub project_id: String,
    pub private_key_id: Option<String>,
    pub private_key: String,
    pub client_email: String,
    pub token_uri: String,
}

impl std::fmt::Debug for ServiceAccount {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ServiceAccount({})", self.client_email)
    }
}

/// The claims of the assertion that an access token is given for.
#[derive(Debug, Serialize)]
pub struct Claims<'a> {
    iss: &'a str,
    scope: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

impl<'a> Claims<'a> {
    /// Made `now`, a time since 1970, for the token server.
    pub fn new(account: &'a ServiceAccount, token_url: &'a str, now: Duration) -> Self {
        Self {
            iss: &account.client_email,
            scope: SCOPE,
            aud: token_url,
            iat: now.as_secs(),
            exp: (now + ASSERTION_LIFE).as_secs(),
        }
    }
}

/// A message, ready to be sent.
pub struct Push {
    pub body: Bytes,
    /// None: the message goes to a topic or a condition.
    pub token: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<'a> {
    #[serde(borrow)]
    message: &'a RawValue,
    #[serde(default)]
    validate_only: bool,
}

#[derive(Deserialize)]
struct Addressed<'a> {
    #[serde(borrow)]
    token: Option<Cow<'a, str>>,
    topic: Option<serde::de::IgnoredAny>,
    condition: Option<serde::de::IgnoredAny>,
}

/// The push that a job asks for.
///
/// # Errors
/// The body is no message, in words for its publisher. They do not hold the device token.
pub fn read(body: &Bytes, validate_only: bool) -> Result<Push, String> {
    let wrong = |error: serde_json::Error| {
        format!(
            "the body is no message of FCM (line {}, column {}): it needs {{\"message\": {{\"token\": …}}}}",
            error.line(),
            error.column()
        )
    };
    let document: Document<'_> = serde_json::from_slice(body).map_err(wrong)?;
    let message: Addressed<'_> = serde_json::from_str(document.message.get()).map_err(wrong)?;
    let addresses = [message.token.is_some(), message.topic.is_some(), message.condition.is_some()];
    if addresses.iter().filter(|is_given| **is_given).count() != 1 {
        return Err("the message needs one of token, topic and condition".to_owned());
    }
    let body = if validate_only && !document.validate_only {
        let message = document.message.get();
        Bytes::from(format!("{{\"validate_only\":true,\"message\":{message}}}"))
    } else {
        body.clone()
    };
    Ok(Push { body, token: message.token.map(Cow::into_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str, validate_only: bool) -> Result<Push, String> {
        read(&Bytes::from(text.to_owned()), validate_only)
    }

    #[test]
    fn a_message_is_passed_through_as_it_is() {
        let text = r#"{ "message": {"token":"abc:1","data":{"a":"b"}} }"#;
        let Ok(push) = read_text(text, false) else { panic!("it is a message") };
        assert_eq!(push.body, text);
        assert_eq!(push.token.as_deref(), Some("abc:1"));
        assert!(
            read_text(r#"{"message":{"topic":"news"}}"#, false)
                .is_ok_and(|push| push.token.is_none())
        );
    }

    #[test]
    fn a_target_that_only_validates_says_so_in_every_request() {
        let Ok(push) = read_text(r#"{"message":{"token":"a"}}"#, true) else {
            panic!("it is a message")
        };
        assert_eq!(push.body, r#"{"validate_only":true,"message":{"token":"a"}}"#);
    }

    #[test]
    fn what_is_no_message_is_refused_without_showing_the_token() {
        let cases = [
            "",
            "{}",
            r#"{"message":{}}"#,
            r#"{"message":{"token":"CANARY","topic":"b"}}"#,
            r#"{"message":{"token":["CANARY"]}}"#,
            r#"{"mesage":{"token":"CANARY"}}"#,
        ];
        for text in cases {
            let why = read_text(text, false).err().expect("it is refused");
            assert!(!why.contains("CANARY"), "{why}");
        }
    }

    #[test]
    fn settings_are_checked_and_the_key_is_never_shown() {
        let settings: Settings =
            toml::from_str("service_account = 'CANARY'\npush_url = 'x'\nproject_id = 'a/b'")
                .expect("they can be read");
        assert_eq!(settings.problems().len(), 2, "{:?}", settings.problems());
        assert!(!format!("{settings:?}").contains("CANARY"));
        let settings: Settings = toml::from_str("service_account = 'x'").expect("they can be read");
        assert!(settings.problems().is_empty());
    }
}
