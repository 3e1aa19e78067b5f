//! The lines that long-lived programs speak: one JSON object each, requests on stdin, answers on stdout.
//!
//! ```text
//! {"id":"j1","type":"mail","attempt":1,"timeout_ms":60000,"headers":{},"content_type":"text/plain","body":"hi"}
//! {"id":"j1","outcome":"done"}
//! {"id":"j2","outcome":"retry","after_ms":5000,"why":"the mailbox is full"}
//! ```
//!
//! A body that is no UTF-8 comes as `body_base64`. Outcomes are `done`, `retry`, `throttle` (with `scope`, `key` or
//! `target`, and `after_ms`), `reject`, `token_dead` and `config`. `publishes` may follow `done` and `retry`.
//! Whatever else is to be said belongs on stderr.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::job::{Header, Message};
use crate::limits::{DELAY_MAX, WHY_BYTES_MAX};
use crate::outcome::{Outcome, Scope};
use crate::settlement::Publish;

/// Messages that may follow one job.
const PUBLISHES_MAX: usize = 1000;
/// For how long a throttle without a time holds.
const THROTTLE: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Request<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    attempt: u32,
    timeout_ms: u64,
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

/// The line for a job, with its end of line.
pub fn request(job: &Message, left: Duration) -> Vec<u8> {
    let text = std::str::from_utf8(&job.body).ok();
    let request = Request {
        id: &job.id,
        kind: &job.kind,
        attempt: job.attempt,
        timeout_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        headers: job.headers.iter().map(|h| (h.name.as_str(), h.value.as_str())).collect(),
        content_type: job.content_type.as_deref(),
        body: text,
        body_base64: text.is_none().then(|| STANDARD.encode(&job.body)),
    };
    let mut line = serde_json::to_vec(&request).expect("texts and numbers are JSON");
    line.push(b'\n');
    line
}

#[derive(Deserialize)]
struct Answer {
    id: String,
    outcome: Word,
    after_ms: Option<u64>,
    #[serde(default)]
    why: String,
    scope: Option<ScopeWord>,
    #[serde(default)]
    publishes: Vec<Follow>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Done,
    Retry,
    Throttle,
    TokenDead,
    Reject,
    Config,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScopeWord {
    Key,
    Target,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Follow {
    #[serde(default)]
    exchange: String,
    routing_key: String,
    id: Option<String>,
    #[serde(default, rename = "type")]
    kind: String,
    content_type: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    body_base64: Option<String>,
    key: Option<String>,
    delay_ms: Option<u64>,
}

/// Reads an answer: the job's id, and its outcome.
///
/// # Errors
/// In words, why the line is none.
pub fn answer(line: &[u8]) -> Result<(String, Outcome), String> {
    let answer: Answer = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if answer.publishes.len() > PUBLISHES_MAX {
        return Err(format!("more than {PUBLISHES_MAX} publishes"));
    }
    let follow = |(at, follow)| publish(&answer.id, at, follow);
    let publishes =
        answer.publishes.into_iter().enumerate().map(follow).collect::<Result<Vec<_>, _>>()?;
    let after = answer.after_ms.map(|ms| Duration::from_millis(ms).min(DELAY_MAX));
    let why = cut(answer.why);
    let outcome = match answer.outcome {
        Word::Done => Outcome::Done { publishes },
        Word::Retry => Outcome::Retry { after, why, rest: None, publishes },
        Word::Throttle => Outcome::Throttle {
            scope: match answer.scope {
                Some(ScopeWord::Key) => Scope::Key,
                Some(ScopeWord::Target) | None => Scope::Target,
            },
            until: after.unwrap_or(THROTTLE),
            why,
        },
        Word::TokenDead => Outcome::TokenDead { why, publishes },
        Word::Reject => Outcome::Reject { why },
        Word::Config => Outcome::Config { why },
    };
    Ok((answer.id, outcome))
}

/// The same answer gives the same ids, so that what is published twice can be told.
fn publish(job: &str, at: usize, follow: Follow) -> Result<Publish, String> {
    let body = match (follow.body, follow.body_base64) {
        (Some(_), Some(_)) => return Err("a publish has body and body_base64".into()),
        (Some(text), None) => Bytes::from(text),
        (None, Some(text)) => {
            STANDARD.decode(text).map_err(|error| format!("body_base64: {error}"))?.into()
        }
        (None, None) => Bytes::new(),
    };
    let message = Message {
        id: follow.id.unwrap_or_else(|| format!("{job}-{at}")),
        kind: follow.kind,
        content_type: follow.content_type,
        headers: follow.headers.into_iter().map(|(name, value)| Header { name, value }).collect(),
        body,
        attempt: 1,
        extras: None,
    };
    Ok(Publish {
        exchange: follow.exchange,
        routing_key: follow.routing_key,
        message,
        key: follow.key,
        delay: follow.delay_ms.map(|ms| Duration::from_millis(ms).min(DELAY_MAX)),
    })
}

fn cut(mut text: String) -> String {
    let mut end = text.len().min(WHY_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
