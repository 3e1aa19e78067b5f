//! What all push targets share: the words of an answer, the message that tells of a dead token, and how a token is
//! shown.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::feedback::{Certainty, Rules};
use crate::job::Message;
use crate::outcome::{Outcome, Scope};
use crate::settlement::Publish;
use crate::value::Time;

/// The type of the messages that tell of dead tokens.
pub const TOKEN_DEAD: &str = "push.token_dead";

/// Where dead tokens are told: `feedback = { exchange = "push", routing_key = "tokens.dead" }`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feedback {
    /// AMQP: the exchange, empty (the default) for the default one. Other brokers: leave it empty.
    #[serde(default)]
    pub exchange: String,
    /// AMQP: the routing key. Redis: the stream or list. SQS, MNS: the queue.
    pub routing_key: String,
    /// How long a success vouches for the dead tokens after it: 1s to 1d, default 60s.
    #[serde(default = "Feedback::round")]
    pub round: Time,
    /// How long a dead token waits for a success after it: 0ms to 30s, default 2s.
    #[serde(default = "Feedback::wait")]
    pub wait: Time,
}

impl Feedback {
    fn round() -> Time {
        Time(Rules::default().round)
    }

    fn wait() -> Time {
        Time(Rules::default().wait)
    }

    /// What is wrong with it, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.exchange.is_empty() && self.routing_key.is_empty() {
            problems.push("feedback.routing_key is empty: name a queue or an exchange".to_owned());
        }
        if self.exchange.len() > 255 || self.routing_key.len() > 255 {
            problems.push("feedback: exchange and routing_key have at most 255 bytes".to_owned());
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(24 * 3600)).contains(&self.round.0) {
            problems.push("feedback.round is not between 1s and 1d".to_owned());
        }
        if self.wait.0 > Duration::from_secs(30) {
            problems.push("feedback.wait is longer than 30s".to_owned());
        }
        problems
    }

    /// How the gate is to be set.
    pub fn rules(&self) -> Rules {
        Rules { round: self.round.0, wait: self.wait.0 }
    }

    /// The message that tells of a dead token. Its id is the same however often the job is tried.
    pub fn publish(&self, dead: &TokenDead<'_>) -> Publish {
        let body = serde_json::to_vec(dead).expect("texts and numbers are always JSON");
        let message = Message {
            id: format!("dead-{:032x}", hash(&[dead.job_id, "\0", dead.token])),
            kind: TOKEN_DEAD.to_owned(),
            content_type: Some("application/json".to_owned()),
            headers: Vec::new(),
            body: Bytes::from(body),
            attempt: 1,
            extras: None,
        };
        Publish {
            exchange: self.exchange.clone(),
            routing_key: self.routing_key.clone(),
            message,
            key: None,
            delay: None,
        }
    }
}

/// A token that is not valid any more, as the feedback tells it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TokenDead<'a> {
    /// `apns`, `fcm`, `huawei`, `xiaomi`, `getui`.
    pub provider: &'a str,
    /// Which of the provider's apps (its topic, project or app id).
    pub app: &'a str,
    pub token: &'a str,
    /// The provider's own word or code.
    pub reason: &'a str,
    /// Since when, in milliseconds since 1970, where the provider says that. A token that was registered later is
    /// another one: keep it.
    pub since_ms: Option<u64>,
    pub job_id: &'a str,
}

/// What a provider's answer means for one token: the rows of the error tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    Retry {
        /// What the provider asked for.
        after: Option<Duration>,
        why: String,
    },
    Throttle {
        scope: Scope,
        until: Duration,
        why: String,
    },
    /// The token is dead, if the gate lets it pass.
    Dead {
        reason: String,
        certainty: Certainty,
        since_ms: Option<u64>,
    },
    Reject {
        why: String,
    },
    /// The access token has expired: get another one and repeat once. After that it is [`Outcome::Config`].
    Auth {
        why: String,
    },
    Config {
        why: String,
    },
}

impl Verdict {
    /// As tables name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry { .. } => "retry",
            Self::Throttle { .. } => "throttle",
            Self::Dead { .. } => "dead",
            Self::Reject { .. } => "reject",
            Self::Auth { .. } => "auth",
            Self::Config { .. } => "config",
        }
    }

    /// As an outcome, if no token is dead. `Auth` is taken for one that a refresh has not helped.
    ///
    /// # Errors
    /// The reason, its certainty and its time: ask the gate.
    pub fn outcome(self) -> Result<Outcome, (String, Certainty, Option<u64>)> {
        Ok(match self {
            Self::Done => Outcome::done(),
            Self::Retry { after, why } => {
                Outcome::Retry { after, why, rest: None, publishes: Vec::new() }
            }
            Self::Throttle { scope, until, why } => Outcome::Throttle { scope, until, why },
            Self::Dead { reason, certainty, since_ms } => {
                return Err((reason, certainty, since_ms));
            }
            Self::Reject { why } => Outcome::Reject { why },
            Self::Auth { why } => Outcome::Config {
                why: format!("{why}; a new access token has not helped: check the credentials"),
            },
            Self::Config { why } => Outcome::Config { why },
        })
    }
}

/// The words for a job whose token was refused, but not declared dead.
pub fn held(provider: &str, app: &str, reason: &str) -> String {
    format!(
        "{provider} refused the token of app {app} as dead ({reason}), but it accepted no token lately: the \
         environment or the credentials are likely those of another app; no token is declared dead"
    )
}

/// A token as logs and errors may show it: its beginning, and how long it is. Whoever has a whole token can push.
pub fn shown(token: &str) -> String {
    let kept: String = token.chars().take(6).collect();
    match token.len() {
        0..=12 => format!("… ({} bytes)", token.len()),
        bytes => format!("{kept}… ({bytes} bytes)"),
    }
}

/// The same number for the same parts on every machine and version.
pub fn hash(parts: &[&str]) -> u128 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    u128::from_be_bytes(digest[..16].try_into().expect("a SHA-256 has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feedback(text: &str) -> Feedback {
        toml::from_str(text).expect("it is valid")
    }

    #[test]
    fn a_dead_token_is_told_in_a_message_that_is_the_same_at_every_attempt() {
        let feedback = feedback("exchange = 'push'\nrouting_key = 'tokens.dead'");
        let dead = TokenDead {
            provider: "apns",
            app: "com.example.app",
            token: "00aa",
            reason: "Unregistered",
            since_ms: Some(1_700_000_000_000),
            job_id: "job-1",
        };
        let publish = feedback.publish(&dead);
        assert_eq!(
            (publish.exchange.as_str(), publish.routing_key.as_str()),
            ("push", "tokens.dead")
        );
        assert_eq!(publish.message.kind, "push.token_dead");
        assert_eq!(
            std::str::from_utf8(&publish.message.body),
            Ok("{\"provider\":\"apns\",\"app\":\"com.example.app\",\"token\":\"00aa\",\
                \"reason\":\"Unregistered\",\"since_ms\":1700000000000,\"job_id\":\"job-1\"}")
        );
        assert_eq!(feedback.publish(&dead), publish);
        let other = TokenDead { token: "00ab", ..dead };
        assert_ne!(feedback.publish(&other).message.id, publish.message.id);
    }

    #[test]
    fn wrong_feedback_settings_are_named() {
        assert!(feedback("routing_key = 'dead'").problems().is_empty());
        assert_eq!(feedback("routing_key = ''").problems().len(), 1);
        assert_eq!(feedback("routing_key = 'a'\nround = '0s'\nwait = '1m'").problems().len(), 2);
        assert!(toml::from_str::<Feedback>("routing_key = 'a'\nqueue = 'b'").is_err());
    }

    #[test]
    fn a_shown_token_cannot_be_used() {
        let token = "d5f8aa0123456789d5f8aa0123456789";
        assert_eq!(shown(token), "d5f8aa… (32 bytes)");
        assert_eq!(shown("short"), "… (5 bytes)");
        assert!(!shown(token).contains(&token[..8]));
    }
}
