//! Celery's messages, protocol 2: a Celery program can publish jobs for this worker.
//!
//! | Header | Means |
//! | --- | --- |
//! | `task` | the job's type |
//! | `id` | the job's id |
//! | `retries` | the attempts before this one |
//! | `eta` | not before then |
//! | `expires` | dead after then, if it did not start |
//! | `timelimit` | the first of its two numbers is the job's timeout, in seconds |
//!
//! The body goes to the target as it is: `[args, kwargs, embed]`. What `embed` asks for (callbacks, chains, chords)
//! is not done, and no result is stored: use `x-job-then` and `x-job-batch`. Times without a zone are UTC, as Celery
//! writes them.

use std::time::Duration;

use amqp::{TableRef, ValueRef};
use chrono::{DateTime, NaiveDateTime};

use super::text;

/// What Celery's headers say.
pub(super) struct Task<'a> {
    pub(super) name: &'a str,
    pub(super) id: &'a str,
    pub(super) attempt: u32,
    pub(super) eta_ms: Option<u64>,
    pub(super) expires_ms: Option<u64>,
    pub(super) timeout: Option<Duration>,
}

impl<'a> Task<'a> {
    /// None: the message is not Celery's.
    pub(super) fn find(table: TableRef<'a>) -> Result<Option<Self>, String> {
        let word = |name| match table.find(name) {
            Some(ValueRef::LongStr(bytes)) => std::str::from_utf8(bytes).ok(),
            _ => None,
        };
        let (Some(name), Some(id)) = (word("task"), word("id")) else { return Ok(None) };
        let retries = table.find("retries").and_then(text::integer);
        let retries = retries.and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        Ok(Some(Self {
            name,
            id,
            attempt: retries.saturating_add(1),
            eta_ms: time("eta", table.find("eta"))?,
            expires_ms: time("expires", table.find("expires"))?,
            timeout: timeout(table.find("timelimit")),
        }))
    }
}

fn time(name: &str, value: Option<ValueRef<'_>>) -> Result<Option<u64>, String> {
    let Some(value) = value.filter(|value| *value != ValueRef::Void) else { return Ok(None) };
    let written = text::of(value);
    let zoned = DateTime::parse_from_rfc3339(&written).map(|time| time.timestamp_millis());
    let ms = zoned.or_else(|_| {
        let plain = NaiveDateTime::parse_from_str(&written, "%Y-%m-%dT%H:%M:%S%.f");
        plain.map(|time| time.and_utc().timestamp_millis())
    });
    match ms {
        Ok(ms) => Ok(Some(u64::try_from(ms).unwrap_or(0))),
        Err(_) => Err(format!(
            "Celery's header {name} is `{written}`: it has to be a time as ISO 8601 writes it"
        )),
    }
}

/// `[hard, soft]`, each a number of seconds or nothing.
fn timeout(value: Option<ValueRef<'_>>) -> Option<Duration> {
    let Some(ValueRef::Array(limits)) = value else { return None };
    let hard = limits.iter().next()?;
    let seconds = match hard {
        ValueRef::F64(seconds) => seconds,
        ValueRef::F32(seconds) => seconds.into(),
        _ => text::integer(hard)? as f64,
    };
    Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero())
}
