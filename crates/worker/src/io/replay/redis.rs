//! Jobs by hand, at a Redis.
//!
//! The URL may say `?kind=stream` or `?kind=list`, and for lists `?take_from=left`, where they cannot be seen from the
//! queue: an empty list is not there. A dead job leaves `QUEUE:dead` in the same step in which it is in its queue again.

use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Client, Script};

use super::send::{new_id, publish_of};
use super::{DeadJob, Replay, Replayed, SHOWN_MAX, Send};
use crate::error::Error;
use crate::io::source::redis::{Lines, entry, failure, list, number, text};
use crate::source::envelope::{self, Envelope};
use crate::source::redis::fields::{self, Field};
use crate::source::redis::{dead, operations, scripts};
use crate::unique::{self, Unique};

/// Dead jobs that are read at a time.
const PAGE: usize = 256;

/// A Redis, and what its URL says of the queue.
#[derive(Debug)]
pub(super) struct Place {
    lines: Lines,
    kind: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stream,
    /// Jobs are taken from the right.
    Right,
    Left,
}

impl Kind {
    /// As scripts are told.
    fn word(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Right => "RIGHT",
            Self::Left => "LEFT",
        }
    }
}

impl Place {
    /// Of a URL; none: it is no URL of a Redis.
    pub(super) fn of(url: &str) -> Option<Result<Self, Error>> {
        let schemes = ["redis://", "rediss://", "unix://", "redis+unix://"];
        let is_redis = schemes.iter().any(|scheme| url.starts_with(scheme));
        is_redis.then(|| Self::read(url))
    }

    fn read(url: &str) -> Result<Self, Error> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut kind = None;
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair {
                "kind=stream" => kind = Some(Kind::Stream),
                "kind=list" | "take_from=right" => kind = kind.or(Some(Kind::Right)),
                "take_from=left" => kind = Some(Kind::Left),
                other => rest.push(other),
            }
        }
        let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        // What is wrong is said without the URL: it may have a password in it.
        let wrong = |error| Error::setup(format!("the Redis URL is wrong: {error}"));
        if base.starts_with("rediss:") {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = Client::open(format!("{base}{query}")).map_err(wrong)?;
        Ok(Self { lines: Lines::new(client, 1), kind })
    }

    /// What kind of queue it is. One that is not there is what the URL says, or what its dead jobs were.
    async fn kind(&self, queue: &str, has_elements: bool) -> Result<Kind, Error> {
        let doing = format!("looking at {queue}");
        let mut command = redis::cmd("TYPE");
        command.arg(queue);
        let answer = self.lines.ask(0, &command).await;
        let found = text(answer.map_err(|error| failure(&doing, &error))?).unwrap_or_default();
        let side = match self.kind {
            Some(Kind::Left) => Kind::Left,
            Some(Kind::Right | Kind::Stream) | None => Kind::Right,
        };
        match found.as_str() {
            "stream" => Ok(Kind::Stream),
            "list" => Ok(side),
            "none" => {
                Ok(self.kind.unwrap_or(if has_elements { Kind::Right } else { Kind::Stream }))
            }
            other => Err(Error::setup(format!("{doing}: it is a {other}, no stream and no list"))),
        }
    }
}

/// See the parent.
pub(super) async fn replay(place: &Place, what: &Replay) -> Result<Replayed, Error> {
    let dead_queue = what.dead_queue.clone().unwrap_or_else(|| dead(&what.queue));
    let mut run = Run { place, what, dead_queue, kind: None, done: Replayed::default() };
    run.all().await?;
    Ok(run.done)
}

struct Run<'a> {
    place: &'a Place,
    what: &'a Replay,
    dead_queue: String,
    kind: Option<Kind>,
    done: Replayed,
}

impl Run<'_> {
    async fn all(&mut self) -> Result<(), Error> {
        // What dies after this is left for the next time.
        let Some((last, _)) = self.range("XREVRANGE", "+", "-", 1).await?.pop() else {
            return Ok(());
        };
        let start = Instant::now();
        let script = Script::new(scripts::REPLAY);
        let mut from = "-".to_owned();
        loop {
            let page = self.range("XRANGE", &from, &last, PAGE).await?;
            let Some((end, _)) = page.last() else { return Ok(()) };
            from = format!("({end}");
            for (id, fields) in page {
                if self.what.limit.is_some_and(|limit| self.done.replayed >= limit) {
                    return Ok(());
                }
                self.done.seen += 1;
                let job = Dead::of(fields);
                if !is_wanted(self.what, &job.shown) {
                    continue;
                }
                if !self.what.is_dry_run && !self.put_back(&script, &id, &job).await? {
                    continue;
                }
                self.done.replayed += 1;
                if self.done.jobs.len() < SHOWN_MAX {
                    self.done.jobs.push(job.shown);
                }
                if let Some(rate) = self.what.rate.filter(|rate| *rate > 0.0) {
                    let after = Duration::try_from_secs_f64(self.done.replayed as f64 / rate);
                    tokio::time::sleep_until((start + after.unwrap_or_default()).into()).await;
                }
            }
        }
    }

    async fn range(
        &self,
        command: &str,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<Vec<(String, Vec<Field>)>, Error> {
        let doing = format!("reading {}", self.dead_queue);
        let mut command = redis::cmd(command);
        command.arg(&self.dead_queue).arg(from).arg(to).arg("COUNT").arg(count);
        let answer = self.place.lines.ask(0, &command).await;
        let entries = list(answer.map_err(|error| failure(&doing, &error))?);
        Ok(entries.unwrap_or_default().into_iter().filter_map(entry).collect())
    }

    /// Whether it was still there.
    async fn put_back(&mut self, script: &Script, id: &str, job: &Dead) -> Result<bool, Error> {
        let doing = format!("putting a job back into {}", self.what.queue);
        let kind = match self.kind {
            Some(kind) => kind,
            None => self.place.kind(&self.what.queue, job.element.is_some()).await?,
        };
        self.kind = Some(kind);
        let mut args = vec![Bytes::copy_from_slice(id.as_bytes()), Bytes::from(kind.word())];
        args.extend(job.values(kind));
        let keys = [self.what.queue.as_str(), &self.dead_queue];
        let answer = self.place.lines.run(0, script, &keys, &args).await;
        let answer = answer.map_err(|error| failure(&doing, &error))?;
        Ok(number(&answer) == Some(1))
    }
}

/// A dead job.
struct Dead {
    /// Without what is said of its death, and without its attempt.
    fields: Vec<Field>,
    /// As it lay in a list, where it never became a job.
    element: Option<Bytes>,
    shown: DeadJob,
}

impl Dead {
    fn of(all: Vec<Field>) -> Self {
        let mut dead = Self { fields: Vec::new(), element: None, shown: DeadJob::default() };
        let mut attempt = None;
        for (name, value) in all {
            let text = || String::from_utf8_lossy(&value).into_owned();
            match &name[..] {
                b"dead_cause" => dead.shown.cause = text(),
                b"dead_why" => dead.shown.why = text(),
                b"dead_ms" => dead.shown.died_ms = text().parse().ok(),
                b"element" => dead.element = Some(value),
                b"attempt" => attempt = text().parse().ok(),
                _ => dead.fields.push((name, value)),
            }
        }
        let envelope = match &dead.element {
            Some(element) => envelope::read(element),
            None => fields::read(dead.fields.clone()),
        };
        let envelope = envelope.unwrap_or_default();
        dead.shown.attempt = attempt.unwrap_or(envelope.message.attempt);
        dead.shown.id = envelope.message.id;
        dead.shown.kind = envelope.message.kind;
        dead
    }

    /// What goes into the queue.
    fn values(&self, kind: Kind) -> Vec<Bytes> {
        let envelope = |result: Result<Envelope, String>| {
            let mut envelope = result.ok()?;
            envelope.message.attempt = 1;
            Some(envelope)
        };
        match (kind, &self.element) {
            (Kind::Stream, None) => operations::flat(self.fields.clone()),
            (Kind::Stream, Some(element)) => match envelope(envelope::read(element)) {
                Some(envelope) => operations::stream_values(&envelope),
                None => vec![Bytes::from_static(b"body"), element.clone()],
            },
            (Kind::Left | Kind::Right, Some(element)) => vec![element.clone()],
            (Kind::Left | Kind::Right, None) => match envelope(fields::read(self.fields.clone())) {
                Some(envelope) => operations::list_values(&envelope),
                None => self.body(),
            },
        }
    }

    fn body(&self) -> Vec<Bytes> {
        let body = self.fields.iter().find(|(name, _)| &name[..] == b"body");
        vec![body.map_or_else(Bytes::new, |(_, body)| body.clone())]
    }
}

fn is_wanted(what: &Replay, job: &DeadJob) -> bool {
    let is = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted == found)
    };
    is(&what.cause, &job.cause) && is(&what.kind, &job.kind) && is(&what.id, &job.id)
}

/// See the parent.
pub(super) async fn send(place: &Place, job: &Send) -> Result<String, Error> {
    let unique = match &job.unique {
        None => None,
        Some((key, Some(window))) => Some(Unique::new(key, *window).map_err(Error::setup)?),
        Some((_, None)) => {
            return Err(Error::setup("a unique job at a Redis needs a window: write one"));
        }
    };
    let id = job.id.clone().map_or_else(new_id, Ok)?;
    let publish = publish_of(&Send { unique: None, ..job.clone() }, id.clone());
    let envelope = Envelope { message: publish.message, key: publish.key, ..Envelope::default() };
    let kind = place.kind(&job.queue, false).await?;
    let values = match kind {
        Kind::Stream => operations::stream_values(&envelope),
        Kind::Left | Kind::Right => operations::list_values(&envelope),
    };
    let ms = |time: Duration| Bytes::from(time.as_millis().to_string());
    let mut args = vec![
        Bytes::from(kind.word()),
        ms(job.delay.unwrap_or_default()),
        ms(unique.as_ref().map_or(Duration::ZERO, |unique| unique.window)),
        Bytes::from(new_id()?),
    ];
    args.extend(values);
    let note = unique.map_or_else(String::new, |unique| unique::redis_key(&job.queue, &unique));
    let doing = format!("publishing to {}", job.queue);
    let keys = [job.queue.as_str(), &note];
    let answer = place.lines.run(0, &Script::new(scripts::SEND), &keys, &args).await;
    let answer = answer.map_err(|error| failure(&doing, &error))?;
    match number(&answer) {
        Some(1) => Ok(id),
        _ => Err(Error::setup(format!(
            "{doing}: a job with this unique key was published within the window; nothing was done"
        ))),
    }
}
