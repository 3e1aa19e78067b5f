//! What APNs's answer means: the error table.

use std::time::Duration;

use serde::Deserialize;

use crate::feedback::Certainty;

/// Longest reason that is repeated in an error.
const REASON_BYTES_MAX: usize = 64;

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// The device token is refused: APNs's own word for why, and since when (milliseconds since 1970).
    TokenDead {
        reason: String,
        certainty: Certainty,
        since_ms: Option<u64>,
    },
    /// It may work later.
    Retry {
        reason: String,
        after: Option<Duration>,
    },
    /// It was not done, and may work at once over another connection.
    OtherConnection {
        reason: String,
    },
    /// This push can never work.
    Reject {
        reason: String,
    },
    /// The provider token is too old: with a new one the push may work at once.
    TokenExpired,
    /// Provider tokens were made too often: an old one may still be good.
    TokenTooNew,
    /// The credentials or the settings are wrong.
    Config {
        reason: String,
    },
}

/// The body of an answer that is not 200.
#[derive(Deserialize, Default)]
struct Body {
    #[serde(default)]
    reason: String,
    timestamp: Option<u64>,
}

/// Judges an answer.
pub fn judge(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Verdict {
    if status == 200 {
        return Verdict::Accepted;
    }
    let body: Body = serde_json::from_slice(body).unwrap_or_default();
    let reason = words(status, &body.reason);
    match (status, body.reason.as_str()) {
        (410, _) | (_, "Unregistered" | "ExpiredToken") => {
            let reason = word(&body.reason).unwrap_or("Unregistered").to_owned();
            Verdict::TokenDead { reason, certainty: Certainty::Certain, since_ms: body.timestamp }
        }
        // A wrong environment or topic gives them, too.
        (_, "BadDeviceToken" | "DeviceTokenNotForTopic") => Verdict::TokenDead {
            reason: body.reason,
            certainty: Certainty::Candidate,
            since_ms: None,
        },
        (_, "IdleTimeout") => Verdict::OtherConnection { reason },
        (_, "ExpiredProviderToken") => Verdict::TokenExpired,
        (_, "TooManyProviderTokenUpdates") => Verdict::TokenTooNew,
        // 403 is about who we are: InvalidProviderToken, MissingProviderToken, BadCertificate,
        // BadCertificateEnvironment, Forbidden, and what comes to be.
        (401 | 403, _) => Verdict::Config { reason },
        // The topic is the app's: no job of this app can work.
        (_, "BadCertificate" | "BadCertificateEnvironment") => Verdict::Config { reason },
        // TooManyRequests is about one device; the backoff is the job's own.
        (429 | 408 | 500.., _) => Verdict::Retry { reason, after: retry_after },
        // Bad…, MissingTopic, PayloadEmpty, TopicDisallowed, InvalidPushType, DuplicateHeaders; 404 BadPath;
        // 405 MethodNotAllowed; 413 PayloadTooLarge.
        (400..500, _) => Verdict::Reject { reason },
        // 1xx to 3xx are no answers of APNs.
        (0..400, _) => Verdict::Retry { reason, after: None },
    }
}

/// The status and the reason, if that is a plain word: nothing else that a server says gets into logs.
fn words(status: u16, reason: &str) -> String {
    match word(reason) {
        Some(reason) => format!("APNs answered {status} {reason}"),
        None => format!("APNs answered {status}"),
    }
}

/// The reason, if it is a plain word, and no device token, which is plain, too.
fn word(reason: &str) -> Option<&str> {
    let is_plain = !reason.is_empty()
        && reason.len() <= REASON_BYTES_MAX
        && reason.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && !reason.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then_some(reason)
}

/// The least wait that `Retry-After` asks for, where it is a number of seconds.
pub fn retry_after(value: Option<&http::HeaderValue>) -> Option<Duration> {
    let seconds = value?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(crate::limits::DELAY_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, reason: &str) -> Verdict {
        judge(status, None, format!(r#"{{"reason":"{reason}","timestamp":17}}"#).as_bytes())
    }

    #[test]
    fn every_row_of_the_table_has_its_verdict() {
        assert_eq!(judge(200, None, b""), Verdict::Accepted);
        for reason in ["BadDeviceToken", "DeviceTokenNotForTopic"] {
            let verdict = Verdict::TokenDead {
                reason: reason.to_owned(),
                certainty: Certainty::Candidate,
                since_ms: None,
            };
            assert_eq!(judged(400, reason), verdict);
        }
        let rejects = [
            (400, "BadCollapseId"),
            (400, "BadExpirationDate"),
            (400, "BadMessageId"),
            (400, "BadPriority"),
            (400, "BadTopic"),
            (400, "DuplicateHeaders"),
            (400, "InvalidPushType"),
            (400, "MissingDeviceToken"),
            (400, "MissingTopic"),
            (400, "PayloadEmpty"),
            (400, "TopicDisallowed"),
            (404, "BadPath"),
            (405, "MethodNotAllowed"),
            (413, "PayloadTooLarge"),
        ];
        for (status, reason) in rejects {
            let verdict = judged(status, reason);
            assert!(matches!(verdict, Verdict::Reject { .. }), "{reason}: {verdict:?}");
        }
        assert!(matches!(judged(400, "IdleTimeout"), Verdict::OtherConnection { .. }));
        assert_eq!(judged(403, "ExpiredProviderToken"), Verdict::TokenExpired);
        let configs = [
            "InvalidProviderToken",
            "MissingProviderToken",
            "BadCertificate",
            "BadCertificateEnvironment",
            "Forbidden",
            "SomethingNew",
        ];
        for reason in configs {
            assert!(matches!(judged(403, reason), Verdict::Config { .. }), "{reason}");
        }
        for reason in ["Unregistered", "ExpiredToken", ""] {
            let verdict = judged(410, reason);
            assert!(
                matches!(
                    verdict,
                    Verdict::TokenDead { certainty: Certainty::Certain, since_ms: Some(17), .. }
                ),
                "{reason}: {verdict:?}"
            );
        }
        let retries = [
            (429, "TooManyRequests"),
            (500, "InternalServerError"),
            (503, "ServiceUnavailable"),
            (503, "Shutdown"),
            (502, ""),
        ];
        for (status, reason) in retries {
            assert!(matches!(judged(status, reason), Verdict::Retry { .. }), "{reason}");
        }
        assert_eq!(judged(429, "TooManyProviderTokenUpdates"), Verdict::TokenTooNew);
    }

    #[test]
    fn retry_after_is_passed_on() {
        let after = retry_after(Some(&http::HeaderValue::from_static("30")));
        assert_eq!(after, Some(Duration::from_secs(30)));
        assert!(matches!(judge(503, after, b""), Verdict::Retry { after: Some(_), .. }));
        assert_eq!(retry_after(Some(&http::HeaderValue::from_static("soon"))), None);
    }

    #[test]
    fn what_a_server_says_beyond_a_plain_word_is_not_repeated() {
        for reason in ["a b", "aabbccdd00112233", "<html>", "x".repeat(65).as_str()] {
            let body = format!(r#"{{"reason":"{reason}"}}"#);
            let verdict = judge(400, None, body.as_bytes());
            assert_eq!(verdict, Verdict::Reject { reason: "APNs answered 400".to_owned() });
        }
        assert!(matches!(judge(500, None, b"<html>"), Verdict::Retry { .. }));
    }
}
