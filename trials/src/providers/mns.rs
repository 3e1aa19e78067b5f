//! A local Aliyun MNS: queues in memory behind the real protocol (XML, HMAC-SHA1, receipt handles that end).
//!
//! It is written from the public documentation, not from the worker's code. Faults can be ordered, and each kind of
//! call can be given a latency, so that what a real MNS costs can be measured on one machine.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a server: reads clocks, and its calls share its queues"
)]

mod calls;
pub mod command;
mod queue;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use queue::Queue;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Receive,
    Delete,
    Send,
    Visibility,
    Queue,
}

/// What goes wrong with the next call of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 503 QpsLimitExceeded: nothing is carried out.
    QpsLimitExceeded,
    /// 500 InternalError: nothing is carried out.
    InternalError,
    /// 408 TimeExpired: nothing is carried out.
    TimeExpired,
    /// 403 AccessDenied: nothing is carried out.
    AccessDenied,
    /// It is carried out, and the answer is lost: a bad gateway's page comes instead.
    LostAnswer,
    /// Of a batch of deletes, the first handle is refused with InternalError.
    Partly,
}

/// How the server behaves.
#[derive(Clone, Debug)]
pub struct Options {
    pub access_key_id: String,
    pub access_key_secret: String,
    /// What every call costs, beside what it waits for.
    pub latency: BTreeMap<Call, Duration>,
    /// Long polls at the same time; further ones are answered at once.
    pub polls_max: usize,
    /// Calls per second; further ones are refused. None: any number.
    pub qps_max: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            access_key_id: "id".into(),
            access_key_secret: "secret".into(),
            latency: BTreeMap::new(),
            polls_max: 64,
            qps_max: None,
        }
    }
}

/// What the calls share.
#[derive(Debug)]
struct Shared {
    options: Options,
    state: Mutex<State>,
    /// A message may have become visible.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    queues: BTreeMap<String, Queue>,
    faults: BTreeMap<Call, VecDeque<Fault>>,
    counts: BTreeMap<Call, u64>,
    polls: usize,
    /// The second that calls are counted in, and how many came.
    second: (u64, u32),
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct MnsServer {
    shared: Arc<Shared>,
    port: u16,
    task: JoinHandle<()>,
}

impl MnsServer {
    /// Starts it on a port; 0: any.
    ///
    /// # Errors
    /// The port is taken.
    pub async fn start(options: Options, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { options, state, arrived: Notify::new() });
        let router = Router::new().fallback(calls::answer).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            // It serves until the task is ended.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { shared, port, task })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// As clients are told.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Makes a queue.
    pub fn create(&self, name: &str, visibility: Duration) {
        self.with(|state| state.queues.insert(name.to_owned(), Queue::new(visibility)));
    }

    /// Puts a message into a queue, with this body as it is sent.
    pub fn put(&self, queue: &str, body: &str) {
        let now = now_ms();
        self.with(|state| {
            let queue = state.queues.get_mut(queue).expect("the queue was created");
            queue.send(body.to_owned(), 0, 8, now);
        });
        self.shared.arrived.notify_waiters();
    }

    /// How many messages a queue has, visible or not.
    pub fn count(&self, queue: &str) -> usize {
        self.with(|state| state.queues[queue].count())
    }

    /// The bodies of a queue's messages, as they were sent.
    pub fn bodies(&self, queue: &str) -> Vec<String> {
        self.with(|state| state.queues[queue].bodies())
    }

    /// A message is visible again, as if it had come out so often.
    pub fn deliver(&self, queue: &str, id: &str, times: u32) {
        self.with(|state| {
            let queue = state.queues.get_mut(queue).expect("the queue was created");
            queue.deliver(id, times, now_ms());
        });
        self.shared.arrived.notify_waiters();
    }

    /// The next calls of this kind go wrong, one each.
    pub fn order(&self, call: Call, faults: &[Fault]) {
        self.with(|state| state.faults.entry(call).or_default().extend(faults));
    }

    /// Whether all ordered faults have happened.
    pub fn is_harmless(&self) -> bool {
        self.with(|state| state.faults.values().all(VecDeque::is_empty))
    }

    /// How many calls of this kind came.
    pub fn calls(&self, call: Call) -> u64 {
        self.with(|state| state.counts.get(&call).copied().unwrap_or_default())
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        self.shared.with(act)
    }
}

impl Drop for MnsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
