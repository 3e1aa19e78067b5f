//! Chains: what `x-job-then` asks to publish after a job has succeeded.
//!
//! The header is a JSON list of jobs, each of which may have a `then` of its own. It is judged before the job
//! runs, so that a job whose successors cannot be published is dead at once and not after its work is done. The
//! ids of successors are made from the id of the job and their place, so a chain that is published twice (after a
//! crash) has the same ids both times.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::job::{Extras, Header, Message};
use crate::limits::{
    CHAIN_BYTES_MAX, CHAIN_DEPTH_MAX, CHAIN_JOBS_MAX, DELAY_MAX, HEADERS_MAX, NAME_BYTES_MAX,
};
use crate::settlement::Publish;

/// A job to publish, as it stands in `x-job-then` and as the completion of a batch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Next {
    /// The queue (Redis: the stream or list) that it goes to. Instead of `exchange` and `routing_key`.
    queue: Option<String>,
    exchange: Option<String>,
    routing_key: Option<String>,
    #[serde(rename = "type", default)]
    kind: String,
    /// The order key.
    key: Option<String>,
    /// A string is the body as it is, anything else goes as JSON. None: the body of the job before it.
    body: Option<Box<RawValue>>,
    content_type: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Not before so many milliseconds have passed.
    delay_ms: Option<u64>,
    /// What follows it: a list like the one it stands in.
    then: Option<Box<RawValue>>,
    /// The batch that it belongs to.
    batch: Option<Box<RawValue>>,
}

/// Reads a list of jobs, and judges it with everything that follows.
///
/// # Errors
/// It is no such list, it is too large or too deep; in words.
pub fn parse(text: &str) -> Result<Vec<Next>, String> {
    if text.len() > CHAIN_BYTES_MAX {
        let bytes = text.len();
        return Err(format!("a chain of {bytes} bytes; at most {CHAIN_BYTES_MAX} are allowed"));
    }
    let first = list(text)?;
    let mut level = first.clone();
    let mut jobs = 0;
    for _ in 0..CHAIN_DEPTH_MAX {
        jobs += level.len();
        if jobs > CHAIN_JOBS_MAX {
            return Err(format!("a chain has more than {CHAIN_JOBS_MAX} jobs"));
        }
        let mut below = Vec::new();
        for next in &level {
            next.check()?;
            if let Some(then) = &next.then {
                below.extend(list(then.get())?);
            }
            if let Some(batch) = &next.batch {
                below.push(crate::batches::Batch::shape(batch.get())?.completion()?);
            }
        }
        if below.is_empty() {
            return Ok(first);
        }
        level = below;
    }
    Err(format!("a chain is deeper than {CHAIN_DEPTH_MAX} jobs"))
}

fn list(text: &str) -> Result<Vec<Next>, String> {
    serde_json::from_str(text).map_err(|error| format!("a chain is no list of jobs: {error}"))
}

/// What a chain publishes after `before` has succeeded.
pub fn publishes(next: &[Next], before: &Message) -> Vec<Publish> {
    let id = |place: usize| derived_id(&format!("{}>{place}", before.id));
    next.iter().enumerate().map(|(place, next)| next.publish(id(place), before)).collect()
}

impl Next {
    /// Whether it can be published, on its own.
    ///
    /// # Errors
    /// In words, what is wrong.
    pub fn check(&self) -> Result<(), String> {
        match (&self.queue, &self.exchange, &self.routing_key) {
            (Some(_), None, None) | (None, _, Some(_)) => (),
            (Some(_), _, _) => return Err("a next job has `queue` beside an exchange".into()),
            (None, _, None) => {
                return Err("a next job says neither `queue` nor `routing_key`".into());
            }
        }
        let names = [&self.queue, &self.exchange, &self.routing_key, &self.content_type, &self.key];
        let names = names.into_iter().flatten().chain([&self.kind]).chain(self.headers.keys());
        if let Some(long) = names.into_iter().find(|name| name.len() > NAME_BYTES_MAX) {
            let start: String = long.chars().take(20).collect();
            return Err(format!("a name is longer than {NAME_BYTES_MAX} bytes: {start}…"));
        }
        if self.routing().is_empty() && self.exchange.as_deref().unwrap_or_default().is_empty() {
            return Err("a next job goes to a queue without a name".into());
        }
        if self.headers.len() > HEADERS_MAX {
            return Err(format!("a next job has more than {HEADERS_MAX} headers"));
        }
        if self.delay_ms.is_some_and(|ms| Duration::from_millis(ms) > DELAY_MAX) {
            return Err(format!("a delay is longer than {} s", DELAY_MAX.as_secs()));
        }
        Ok(())
    }

    /// As a message with this id; `before` gives the body where there is none of its own.
    pub fn publish(&self, id: String, before: &Message) -> Publish {
        let (body, content_type) = self.content(before);
        let text = |raw: &RawValue| raw.get().to_owned();
        let (then, batch) = (self.then.as_deref().map(text), self.batch.as_deref().map(text));
        let extras = (then.is_some() || batch.is_some())
            .then(|| Box::new(Extras { then, batch, ..Extras::default() }));
        let headers = self.headers.iter();
        let headers =
            headers.map(|(name, value)| Header { name: name.clone(), value: value.clone() });
        Publish {
            exchange: self.exchange.clone().unwrap_or_default(),
            routing_key: self.routing().to_owned(),
            message: Message {
                id,
                kind: self.kind.clone(),
                content_type,
                headers: headers.collect(),
                body,
                attempt: 1,
                extras,
            },
            key: self.key.clone(),
            delay: self.delay_ms.map(Duration::from_millis),
        }
    }

    fn routing(&self) -> &str {
        self.queue.as_deref().or(self.routing_key.as_deref()).unwrap_or_default()
    }

    fn content(&self, before: &Message) -> (Bytes, Option<String>) {
        let Some(raw) = &self.body else {
            let content_type = self.content_type.clone().or_else(|| before.content_type.clone());
            return (before.body.clone(), content_type);
        };
        match serde_json::from_str::<String>(raw.get()) {
            Ok(text) => (text.into(), self.content_type.clone()),
            Err(_) => {
                let json = || "application/json".to_owned();
                let content_type = self.content_type.clone().unwrap_or_else(json);
                (raw.get().to_owned().into(), Some(content_type))
            }
        }
    }
}

/// An id made from other ids: as it is where AMQP can carry it, else its hash.
pub fn derived_id(words: &str) -> String {
    if words.len() <= NAME_BYTES_MAX {
        return words.to_owned();
    }
    Sha256::digest(words.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
