//! Two mailboxes: into a shard's thread, and back to a session's task.
//!
//! Both hand over everything that waits at once, so that a batch costs one lock and at most one
//! wake-up.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// A mailbox that a thread reads. Its bound is in weight (bytes, with a floor per item).
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    drained: Notify,
    weight_max: usize,
}

#[derive(Debug)]
struct State<T> {
    items: Vec<T>,
    weight: usize,
    waiting: bool,
    closed: bool,
}

impl<T> Mailbox<T> {
    /// A mailbox that holds items until their weights reach `weight_max`.
    pub(crate) fn new(weight_max: usize) -> Arc<Self> {
        let state = State { items: Vec::new(), weight: 0, waiting: false, closed: false };
        Arc::new(Self {
            state: Mutex::new(state),
            filled: Condvar::new(),
            drained: Notify::new(),
            weight_max,
        })
    }

    /// Puts `item` in, whatever waits there: for what is bounded by what was asked.
    pub(crate) fn push(&self, item: T) {
        let mut state = self.lock();
        state.items.push(item);
        if std::mem::take(&mut state.waiting) {
            drop(state);
            self.filled.notify_one();
        }
    }

    /// Puts `item` in, after waiting for room. `false`: nobody reads any more.
    pub(crate) async fn send(&self, item: T, weight: usize) -> bool {
        let mut item = Some(item);
        loop {
            let drained = self.drained.notified();
            tokio::pin!(drained);
            drained.as_mut().enable();
            {
                let mut state = self.lock();
                if state.closed {
                    return false;
                }
                if state.weight < self.weight_max {
                    state.weight += weight;
                    state.items.extend(item.take());
                    if std::mem::take(&mut state.waiting) {
                        drop(state);
                        self.filled.notify_one();
                    }
                    return true;
                }
            }
            drained.await;
        }
    }

    /// Swaps everything that waits into `items` (empty before), waiting `patience` for the first.
    /// Without `release`, those who wait for room go on waiting.
    pub(crate) fn take(&self, items: &mut Vec<T>, patience: Option<Duration>, release: bool) {
        let mut state = self.lock();
        if state.items.is_empty() && !state.closed {
            state.waiting = true;
            state = match patience {
                Some(patience) => {
                    let waited = self.filled.wait_timeout_while(state, patience, |state| {
                        state.items.is_empty() && !state.closed
                    });
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self
                        .filled
                        .wait_while(state, |state| state.items.is_empty() && !state.closed);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
            state.waiting = false;
        }
        std::mem::swap(&mut state.items, items);
        let was_full = state.weight >= self.weight_max;
        if release {
            state.weight = 0;
        }
        drop(state);
        if was_full && release {
            self.drained.notify_waiters();
        }
    }

    /// Wakes the reader and every writer: nothing is taken any more.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
        self.drained.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answers on their way to one session. Bounded by what the session asked and the credit it gave.
#[derive(Debug)]
pub(crate) struct AnswerBox<T> {
    answers: Mutex<Answers<T>>,
    filled: Notify,
}

#[derive(Debug)]
struct Answers<T> {
    waiting: Vec<T>,
    closed: bool,
}

impl<T> AnswerBox<T> {
    pub(crate) fn new() -> Arc<Self> {
        let answers = Mutex::new(Answers { waiting: Vec::new(), closed: false });
        Arc::new(Self { answers, filled: Notify::new() })
    }

    /// Hands over all of `answers`. `false`: the session is gone, and they are dropped.
    pub(crate) fn push(&self, answers: &mut Vec<T>) -> bool {
        let mut state = self.lock();
        if state.closed {
            answers.clear();
            return false;
        }
        let was_empty = state.waiting.is_empty();
        state.waiting.append(answers);
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
        true
    }

    /// Takes everything that waits into `into`, waiting for the first. `false`: the node is gone.
    pub(crate) async fn recv(&self, into: &mut Vec<T>) -> bool {
        loop {
            {
                let mut state = self.lock();
                if !state.waiting.is_empty() {
                    into.append(&mut state.waiting);
                    return true;
                }
                if state.closed {
                    return false;
                }
            }
            self.filled.notified().await;
        }
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Answers<T>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
