//! Jobs to several tokens, several jobs in one request, and one outcome for each job.
//!
//! A job's body, for Huawei, Xiaomi and Getui:
//!
//! ```json
//! { "token": "…", "message": { … } }
//! { "tokens": ["…", "…"], "message": { … } }
//! ```
//!
//! `message` is the provider's own, without tokens. A job has 1 to [`TOKENS_MAX`] tokens. Where a part of its tokens
//! is done, the next attempt has the others only: [`Outcome::Retry`] with `rest`.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::outcome::{Outcome, Scope};
use crate::settlement::Publish;
use crate::target::push::{Verdict, hash};

/// Tokens of one job.
pub const TOKENS_MAX: usize = 1000;
/// Bytes of one token.
const TOKEN_BYTES_MAX: usize = 1024;

/// A job's body.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tokens: Vec<String>,
    /// Huawei v3: the header `push-type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_type: Option<u8>,
    pub message: Box<RawValue>,
}

impl Body {
    /// Reads a job's body.
    ///
    /// # Errors
    /// What is wrong with it, in words without its values: they may be secrets.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut body: Self = serde_json::from_slice(bytes).map_err(|error| {
            format!("the body is no push job at line {} column {}: it needs token or tokens, and message", error.line(), error.column())
        })?;
        body.tokens.extend(body.token.take());
        if body.tokens.is_empty() || body.tokens.len() > TOKENS_MAX {
            return Err(format!("the job has {} tokens: 1 to {TOKENS_MAX}", body.tokens.len()));
        }
        let is_token = |token: &String| {
            !token.is_empty()
                && token.len() <= TOKEN_BYTES_MAX
                && token.chars().all(|c| !c.is_control() && c != ',' && c != ' ')
        };
        if !body.tokens.iter().all(is_token) {
            return Err(format!(
                "a token is empty, longer than {TOKEN_BYTES_MAX} bytes, or has a blank or a comma"
            ));
        }
        if !body.message.get().starts_with('{') {
            return Err("message is no JSON object".to_owned());
        }
        Ok(body)
    }

    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// Equal for jobs that may share a request: everything but the tokens.
    pub fn group(&self) -> u64 {
        let kind = self.push_type.map(|kind| kind.to_string()).unwrap_or_default();
        hash(&[&kind, "\0", self.message.get()]) as u64
    }

    fn is_like(&self, other: &Self) -> bool {
        self.push_type == other.push_type && self.message.get() == other.message.get()
    }

    /// The same job with these of its tokens.
    fn rest(&self, left: &[usize]) -> Bytes {
        let body = Self {
            token: None,
            tokens: left.iter().map(|&index| self.tokens[index].clone()).collect(),
            push_type: self.push_type,
            message: self.message.clone(),
        };
        serde_json::to_vec(&body).expect("it came from JSON").into()
    }
}

/// A token of a job of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub job: usize,
    pub token: usize,
}

/// How requests may be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// One message for all tokens of a request.
    SameMessage { tokens_max: usize },
    /// A message for each token.
    OwnMessages { tokens_max: usize },
}

impl Fill {
    fn tokens_max(self) -> usize {
        match self {
            Self::SameMessage { tokens_max } | Self::OwnMessages { tokens_max } => tokens_max,
        }
    }

    fn may_share(self, one: &Body, other: &Body) -> bool {
        match self {
            Self::SameMessage { .. } => one.is_like(other),
            Self::OwnMessages { .. } => true,
        }
    }
}

/// Which tokens go together. No request has a token twice: its answer could not tell which is meant.
pub fn plan(bodies: &[Option<Body>], fill: Fill) -> Vec<Vec<Part>> {
    assert!(fill.tokens_max() > 0, "a request has room for a token");
    let mut chunks: Vec<Vec<Part>> = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut first: Option<&Body> = None;
    for (job, body) in bodies.iter().enumerate() {
        let Some(body) = body else { continue };
        for (token, text) in body.tokens.iter().enumerate() {
            let has_room = seen.len() < fill.tokens_max() && !seen.contains(text.as_str());
            let fits = first.is_some_and(|first| fill.may_share(first, body));
            if !(has_room && fits) {
                chunks.push(Vec::new());
                seen.clear();
                first = Some(body);
            }
            seen.insert(text);
            chunks.last_mut().expect("one was just begun").push(Part { job, token });
        }
    }
    chunks
}

/// What became of one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Done,
    Dead { why: String, publishes: Vec<Publish> },
    Retry { after: Option<Duration>, why: String },
    Throttle { scope: Scope, until: Duration, why: String },
    Reject { why: String },
    Config { why: String },
}

impl Fate {
    /// What an answer means where no token is dead.
    pub fn of(verdict: Verdict) -> Option<Self> {
        Some(match verdict {
            Verdict::Done => Self::Done,
            Verdict::Retry { after, why } => Self::Retry { after, why },
            Verdict::Throttle { scope, until, why } => Self::Throttle { scope, until, why },
            Verdict::Dead { .. } => return None,
            Verdict::Reject { why } => Self::Reject { why },
            auth @ Verdict::Auth { .. } => match auth.outcome() {
                Ok(Outcome::Config { why }) => Self::Config { why },
                other => unreachable!("an unhelped auth is a wrong setting: {other:?}"),
            },
            Verdict::Config { why } => Self::Config { why },
        })
    }
}

/// What became of all tokens of a job, in their order, as the job's outcome.
pub fn fold(body: &Body, fates: Vec<Fate>) -> Outcome {
    assert_eq!(fates.len(), body.tokens.len(), "each token has a fate");
    let mut left = Left::default();
    let (mut done, mut publishes, mut dead_why) = (0_usize, Vec::new(), None);
    for (index, fate) in fates.into_iter().enumerate() {
        match fate {
            Fate::Done => done += 1,
            Fate::Dead { why, publishes: more } => {
                publishes.extend(more);
                dead_why = Some(why);
            }
            other => left.add(index, other),
        }
    }
    if left.indexes.is_empty() {
        return match dead_why {
            Some(why) if done == 0 => Outcome::TokenDead { why, publishes },
            Some(_) | None => Outcome::Done { publishes },
        };
    }
    if left.indexes.len() == body.tokens.len() {
        return left.whole();
    }
    let (count, all) = (left.indexes.len(), body.tokens.len());
    Outcome::Retry {
        after: left.after,
        why: format!("{count} of {all} tokens are left: {}", left.why()),
        rest: Some(body.rest(&left.indexes)),
        publishes,
    }
}

/// The tokens of a job that are not over.
#[derive(Default)]
struct Left {
    indexes: Vec<usize>,
    after: Option<Duration>,
    config: Option<String>,
    throttle: Option<(Scope, Duration, String)>,
    retry: Option<String>,
    reject: Option<String>,
}

impl Left {
    fn add(&mut self, index: usize, fate: Fate) {
        self.indexes.push(index);
        match fate {
            Fate::Retry { after, why } => {
                self.after = self.after.max(after);
                self.retry.get_or_insert(why);
            }
            Fate::Throttle { scope, until, why } => {
                self.after = self.after.max(Some(until));
                if self.throttle.as_ref().is_none_or(|(_, longest, _)| *longest < until) {
                    self.throttle = Some((scope, until, why));
                }
            }
            Fate::Reject { why } => _ = self.reject.get_or_insert(why),
            Fate::Config { why } => _ = self.config.get_or_insert(why),
            Fate::Done | Fate::Dead { .. } => unreachable!("that token is over"),
        }
    }

    fn why(&self) -> &str {
        let throttle = self.throttle.as_ref().map(|(_, _, why)| why);
        let why = self.config.as_ref().or(throttle);
        why.or(self.retry.as_ref()).or(self.reject.as_ref()).map_or("", String::as_str)
    }

    /// Nothing of the job is over: the gravest decides.
    fn whole(self) -> Outcome {
        if let Some(why) = self.config {
            return Outcome::Config { why };
        }
        if let Some((scope, until, why)) = self.throttle {
            return Outcome::Throttle { scope, until, why };
        }
        match (self.retry, self.reject) {
            (Some(why), _) => {
                Outcome::Retry { after: self.after, why, rest: None, publishes: Vec::new() }
            }
            (None, Some(why)) => Outcome::Reject { why },
            (None, None) => unreachable!("a token is left for one of four reasons"),
        }
    }
}

#[cfg(test)]
mod tests;
