//! Live streams: one rendering each second for all of them, and each at its reader's own pace.
//!
//! ```text
//!            ┌── reader is behind, or its user sees other vhosts ──┐
//!            v                                                     │
//!   open ─> begin ─> part of the snapshot ─> ... ─> complete ─> what changed, each second ─> end
//! ```
//!
//! A stream takes its next event when the connection can send it: nothing waits for a slow reader but that event. Of the
//! last turns a few are kept. Who is behind them begins again with all queues.

mod body;
mod shared;
mod ticks;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header;
use machine::QueueId;
use serde_json::json;
use tokio::sync::watch;

use self::body::Events;
pub(super) use self::shared::Live;
use self::shared::{Tick, Ticks};
pub(super) use self::ticks::tick_always;
use super::api::{Api, Caller, now_ms};
use super::sessions;
use crate::access::{self, Named, Need, Sight, Who};
use crate::limits::LIVE_STREAMS_MAX;
use crate::live::{begin, event};
use crate::metrics::Metrics;
use crate::problems::Gathered;
use crate::reply::Problem;

/// How long a stream says nothing before it says that it is still there.
const QUIET: Duration = Duration::from_secs(15);

/// One of the streams that there may be.
#[derive(Debug)]
struct Place(Api);

impl Place {
    fn take(api: &Api) -> Option<Self> {
        let open = &api.0.metrics.live_streams;
        let more = |count| (count < LIVE_STREAMS_MAX).then_some(count + 1);
        open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(api.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.metrics.live_streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream of one reader.
struct Stream {
    api: Api,
    caller: Caller,
    /// As it was when the stream was opened: another password ends it.
    password_hash: Option<String>,
    ticks: watch::Receiver<Arc<Ticks>>,
    /// Number of the last turn that was told.
    last: u64,
    /// `None`: it has not begun.
    sight: Option<Sight>,
    snapshot: Snapshot,
    /// What was told of problems last, and what that was made of.
    problems: Option<(Arc<Gathered>, Bytes)>,
    waiting: VecDeque<Bytes>,
    is_over: bool,
    _place: Place,
}

/// How far a stream is with telling of all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Snapshot {
    Behind(Option<QueueId>),
    Complete,
}

/// Opens a stream.
pub(super) fn open(api: &Api, caller: &Caller) -> Result<Response, Problem> {
    let Some(place) = Place::take(api) else {
        Metrics::count(&api.0.metrics.live_refused);
        return Err(Problem::Unavailable(format!(
            "{LIVE_STREAMS_MAX} live streams are open at this node: close one, or ask another node"
        )));
    };
    let ticks = api.0.live.listen();
    let last = ticks.borrow().newest();
    let password_hash = hash(api, caller);
    let stream = Stream {
        api: api.clone(),
        caller: caller.clone(),
        password_hash,
        ticks,
        last,
        sight: None,
        snapshot: Snapshot::Complete,
        problems: None,
        waiting: VecDeque::new(),
        is_over: false,
        _place: place,
    };
    let mut response = Response::new(Body::new(Events::new(stream)));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, http::HeaderValue::from_static(value));
    }
    Ok(response)
}

fn hash(api: &Api, caller: &Caller) -> Option<String> {
    match caller.grant {
        Some(_) => None,
        None => api.0.cluster.catalog().user(&caller.user).map(|user| user.password_hash.clone()),
    }
}

impl Stream {
    /// Its next event, once there is one. `None`: it has ended.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            let ticks = Arc::clone(&self.ticks.borrow_and_update());
            if ticks.newest() > self.last {
                self.take(&ticks);
            } else if let (Some(sight), Snapshot::Behind(behind)) = (&self.sight, self.snapshot) {
                let (part, next) = self.api.0.live.snapshot(behind, |vhost| sight.has(vhost));
                self.waiting.extend(part);
                self.snapshot = Snapshot::Behind(next);
                if next.is_none() {
                    self.snapshot = Snapshot::Complete;
                    self.waiting.push_back(event("complete", &json!({ "at": now_ms() })));
                }
            } else {
                match tokio::time::timeout(QUIET, self.ticks.changed()).await {
                    Ok(Ok(())) => {}
                    // The node stops.
                    Ok(Err(_)) => return None,
                    Err(_) => return Some(Bytes::from_static(b": still here\n\n")),
                }
            }
        }
    }

    /// Tells the next turn, or begins again.
    fn take(&mut self, ticks: &Ticks) {
        let Some(sight) = self.look() else {
            let reason = "the login, or the right to use the API, is no longer there";
            self.waiting.push_back(event("end", &json!({ "reason": reason })));
            self.is_over = true;
            return;
        };
        let next = ticks.find(self.last + 1);
        match next.filter(|_| self.sight.as_ref() == Some(&sight)) {
            Some(tick) => {
                self.last += 1;
                self.tell(&tick, &sight);
            }
            None => {
                if self.sight.as_ref() == Some(&sight) {
                    Metrics::count(&self.api.0.metrics.live_behind);
                }
                self.last = ticks.newest();
                self.problems = None;
                self.snapshot = Snapshot::Behind(None);
                self.waiting.push_back(begin(now_ms()));
                if let Some(newest) = ticks.find(self.last) {
                    self.tell_rest(&newest, &sight);
                }
            }
        }
        self.sight = Some(sight);
    }

    fn tell(&mut self, tick: &Tick, sight: &Sight) {
        let seen = tick.queues.iter().filter(|(vhost, _)| sight.has(vhost));
        self.waiting.extend(seen.map(|(_, event)| event.clone()));
        self.tell_rest(tick, sight);
    }

    fn tell_rest(&mut self, tick: &Tick, sight: &Sight) {
        self.waiting.push_back(tick.overview.clone());
        if *sight == Sight::All {
            self.waiting.push_back(tick.nodes.clone());
        }
        self.tell_problems(&tick.problems, sight);
    }

    /// Tells what is wrong, if that is something else than what was told last.
    fn tell_problems(&mut self, gathered: &Arc<Gathered>, sight: &Sight) {
        if self.problems.as_ref().is_some_and(|(last, _)| Arc::ptr_eq(last, gathered)) {
            return;
        }
        let told = event("problems", &gathered.shown(&self.api.0.cluster.catalog(), sight));
        if self.problems.as_ref().is_none_or(|(_, last)| *last != told) {
            self.waiting.push_back(told.clone());
        }
        self.problems = Some((Arc::clone(gathered), told));
    }

    /// What its user may see now. `None`: nothing any more.
    fn look(&self) -> Option<Sight> {
        let Caller { user, grant, session, .. } = &self.caller;
        if session.is_some_and(|session| !sessions::is_open(&self.api, session)) {
            return None;
        }
        if grant.as_ref().is_some_and(|grant| grant.expires_s <= now_ms() / 1000) {
            return None;
        }
        if hash(&self.api, &self.caller) != self.password_hash {
            return None;
        }
        let catalog = self.api.0.cluster.catalog();
        let who = Who::find(&catalog, user, grant.as_deref())?;
        access::allow(who, Need::User, false, Named::default()).ok()?;
        Some(Sight::of(who, &catalog))
    }
}
