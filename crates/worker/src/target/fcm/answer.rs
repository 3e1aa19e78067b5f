//! What FCM's answers mean: the error table.

use std::time::Duration;

use serde::Deserialize;

use crate::feedback::Certainty;
use crate::outcome::Scope;
use crate::target::push::Verdict;

/// The wait for a quota to come back, where FCM names none.
const QUOTA_WAIT: Duration = Duration::from_secs(60);
/// The least wait after a failure of FCM's, where it names none.
const FAILURE_WAIT: Duration = Duration::from_secs(10);
/// Longest word of FCM's that is repeated in an error.
const WORD_BYTES_MAX: usize = 64;

/// The field whose violation means that the device token is wrong, and not the message.
const TOKEN_FIELD: &str = "message.token";

#[derive(Deserialize, Default)]
struct Body {
    #[serde(default)]
    error: Failure,
}

#[derive(Deserialize, Default)]
struct Failure {
    #[serde(default)]
    status: String,
    #[serde(default)]
    details: Vec<Detail>,
}

#[derive(Deserialize)]
struct Detail {
    #[serde(rename = "@type", default)]
    kind: String,
    #[serde(rename = "errorCode", default)]
    error_code: Option<String>,
    #[serde(rename = "fieldViolations", default)]
    violations: Vec<Violation>,
}

#[derive(Deserialize)]
struct Violation {
    #[serde(default)]
    field: String,
}

impl Failure {
    /// FCM's own word, or the general one of Google's services.
    fn code(&self) -> &str {
        let code = self.details.iter().find_map(|detail| detail.error_code.as_deref());
        code.unwrap_or(&self.status)
    }

    fn is_fcm_error(&self) -> bool {
        self.details.iter().any(|detail| detail.kind.ends_with("google.firebase.fcm.v1.FcmError"))
    }

    /// INVALID_ARGUMENT has two shapes: violated fields mean a wrong message, FCM's word alone a wrong token.
    fn is_about_token(&self) -> bool {
        let mut requests =
            self.details.iter().filter(|detail| detail.kind.ends_with("google.rpc.BadRequest"));
        let names_token = |detail: &Detail| {
            !detail.violations.is_empty()
                && detail.violations.iter().all(|violation| violation.field == TOKEN_FIELD)
        };
        match requests.next() {
            Some(first) => names_token(first) && requests.all(names_token),
            None => self.is_fcm_error(),
        }
    }
}

/// Judges the answer to a message.
pub fn judge(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Verdict {
    if status == 200 {
        return Verdict::Done;
    }
    let Body { error } = serde_json::from_slice(body).unwrap_or_default();
    let code = error.code();
    let why = words("fcm answered", status, code);
    let dead = |certainty| Verdict::Dead { reason: code.to_owned(), certainty, since_ms: None };
    match (status, code) {
        (_, "UNREGISTERED") => dead(Certainty::Certain),
        // A token of another project: a wrong service account gives it, too.
        (_, "SENDER_ID_MISMATCH") => dead(Certainty::Candidate),
        (_, "INVALID_ARGUMENT") if error.is_about_token() => dead(Certainty::Candidate),
        (_, "INVALID_ARGUMENT") => Verdict::Reject { why },
        (_, "THIRD_PARTY_AUTH_ERROR") => Verdict::Config {
            why: format!("{why}: check the project's APNs key or web push key at Firebase"),
        },
        (429, _) | (_, "QUOTA_EXCEEDED") => Verdict::Throttle {
            scope: Scope::Target,
            until: retry_after.unwrap_or(QUOTA_WAIT),
            why,
        },
        (500.., _) => Verdict::Retry { after: Some(retry_after.unwrap_or(FAILURE_WAIT)), why },
        (401, _) => Verdict::Auth { why },
        (403 | 404, _) => Verdict::Config {
            why: format!("{why}: check project_id and the service account's rights"),
        },
        (408, _) => Verdict::Retry { after: retry_after, why },
        (400..500, _) => Verdict::Reject { why },
        (0..400, _) => Verdict::Retry { after: None, why },
    }
}

#[derive(Deserialize)]
struct Access {
    access_token: String,
    expires_in: u64,
}

#[derive(Deserialize, Default)]
struct Refusal {
    #[serde(default)]
    error: String,
}

/// Judges the answer of the token server.
///
/// # Errors
/// There is no access token.
pub fn access_token(
    status: u16,
    retry_after: Option<Duration>,
    body: &[u8],
) -> Result<(String, Duration), Verdict> {
    if status == 200 {
        let access: Access = serde_json::from_slice(body).map_err(|_| Verdict::Retry {
            after: None,
            why: "fcm: the token server's answer holds no access token".to_owned(),
        })?;
        return Ok((access.access_token, Duration::from_secs(access.expires_in)));
    }
    let Refusal { error } = serde_json::from_slice(body).unwrap_or_default();
    let why = words("fcm: the token server answered", status, &error);
    Err(match status {
        429 | 408 | 500.. => Verdict::Retry { after: retry_after, why },
        400..500 => Verdict::Config {
            why: format!("{why}: check the service account's key and this machine's clock"),
        },
        0..400 => Verdict::Retry { after: None, why },
    })
}

/// The status and a plain word: nothing else that a server says gets into logs.
fn words(who: &str, status: u16, word: &str) -> String {
    let is_plain = !word.is_empty()
        && word.len() <= WORD_BYTES_MAX
        && word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if is_plain { format!("{who} {status} {word}") } else { format!("{who} {status}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FCM_ERROR: &str = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
    const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

    fn judged(status: u16, code: &str) -> Verdict {
        let body = format!(
            r#"{{"error":{{"code":{status},"message":"m","status":"X","details":[{{"@type":"{FCM_ERROR}","errorCode":"{code}"}}]}}}}"#
        );
        judge(status, None, body.as_bytes())
    }

    fn invalid(details: &str) -> Verdict {
        let body = format!(
            r#"{{"error":{{"code":400,"status":"INVALID_ARGUMENT","details":[{details}]}}}}"#
        );
        judge(400, None, body.as_bytes())
    }

    #[test]
    fn every_row_of_the_table_has_its_verdict() {
        assert_eq!(judge(200, None, b"{}"), Verdict::Done);
        assert!(matches!(
            judged(404, "UNREGISTERED"),
            Verdict::Dead { certainty: Certainty::Certain, .. }
        ));
        assert!(matches!(
            judged(403, "SENDER_ID_MISMATCH"),
            Verdict::Dead { certainty: Certainty::Candidate, .. }
        ));
        assert!(matches!(judged(401, "THIRD_PARTY_AUTH_ERROR"), Verdict::Config { .. }));
        assert!(matches!(
            judged(429, "QUOTA_EXCEEDED"),
            Verdict::Throttle { scope: Scope::Target, until: QUOTA_WAIT, .. }
        ));
        for (status, code) in [(500, "INTERNAL"), (503, "UNAVAILABLE"), (502, "")] {
            let verdict = judged(status, code);
            assert!(matches!(verdict, Verdict::Retry { after: Some(FAILURE_WAIT), .. }), "{code}");
        }
        assert!(matches!(judged(401, "UNAUTHENTICATED"), Verdict::Auth { .. }));
        assert!(matches!(judged(403, "PERMISSION_DENIED"), Verdict::Config { .. }));
        assert!(matches!(judge(404, None, b"<html>"), Verdict::Config { .. }));
        assert!(matches!(judged(413, ""), Verdict::Reject { .. }));
    }

    #[test]
    fn an_invalid_argument_is_a_wrong_message_or_a_wrong_token() {
        let code = format!(r#"{{"@type":"{FCM_ERROR}","errorCode":"INVALID_ARGUMENT"}}"#);
        let field = |name: &str| {
            format!(r#"{{"@type":"{BAD_REQUEST}","fieldViolations":[{{"field":"{name}"}}]}}"#)
        };
        let is_dead = |verdict: Verdict| {
            matches!(verdict, Verdict::Dead { certainty: Certainty::Candidate, .. })
        };
        assert!(is_dead(invalid(&code)));
        assert!(is_dead(invalid(&format!("{code},{}", field("message.token")))));
        let wrong_field = field("message.android.ttl");
        for details in [wrong_field.clone(), format!("{code},{wrong_field}"), String::new()] {
            let verdict = invalid(&details);
            assert!(matches!(verdict, Verdict::Reject { .. }), "{details}: {verdict:?}");
        }
    }

    #[test]
    fn retry_after_is_obeyed() {
        let after = Some(Duration::from_secs(7));
        let quota = judge(429, after, b"");
        assert!(matches!(quota, Verdict::Throttle { until, .. } if Some(until) == after));
        assert!(
            matches!(judge(503, after, b""), Verdict::Retry { after: told, .. } if told == after)
        );
    }

    #[test]
    fn the_token_servers_refusals_are_told_apart() {
        let good = access_token(200, None, br#"{"access_token":"a","expires_in":3599}"#);
        assert_eq!(good, Ok(("a".to_owned(), Duration::from_secs(3599))));
        let refused = access_token(400, None, br#"{"error":"invalid_grant"}"#);
        assert!(matches!(refused, Err(Verdict::Config { why }) if why.contains("invalid_grant")));
        assert!(matches!(access_token(503, None, b""), Err(Verdict::Retry { .. })));
        assert!(matches!(access_token(200, None, b"{}"), Err(Verdict::Retry { .. })));
    }

    #[test]
    fn what_a_server_says_beyond_a_plain_word_is_not_repeated() {
        let verdict = judged(400, "token abc:123");
        assert!(matches!(verdict, Verdict::Reject { why } if why == "fcm answered 400"));
    }
}
