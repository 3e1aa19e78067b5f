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
    /// Of the items, and of those that were taken without a release.
    weight: usize,
    /// Of the items.
    weight_here: usize,
    waiting: bool,
    closed: bool,
}

impl<T> Mailbox<T> {
    /// A mailbox that holds items until their weights reach `weight_max`.
    pub(crate) fn new(weight_max: usize) -> Arc<Self> {
        let state =
            State { items: Vec::new(), weight: 0, weight_here: 0, waiting: false, closed: false };
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
                    state.weight_here += weight;
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

    /// Swaps everything that waits into `items` (empty before), waiting `timeout` for the first; with
    /// none until it is closed. A reader that is patient is woken by the closing once. Without
    /// `release`, those who wait for room go on waiting.
    pub(crate) fn take(&self, items: &mut Vec<T>, timeout: Option<Duration>, release: bool) {
        let mut state = self.lock();
        if release && state.weight > state.weight_here {
            // Before waiting: whoever is to send the next item may be waiting for this.
            let was_full = state.weight >= self.weight_max;
            state.weight = state.weight_here;
            if was_full {
                self.drained.notify_waiters();
            }
        }
        let was_closed = state.closed && timeout.is_some();
        if state.items.is_empty() && state.closed == was_closed {
            state.waiting = true;
            let must_wait =
                |state: &mut State<T>| state.items.is_empty() && state.closed == was_closed;
            state = match timeout {
                Some(timeout) => {
                    let waited = self.filled.wait_timeout_while(state, timeout, must_wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.filled.wait_while(state, must_wait);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
            state.waiting = false;
        }
        std::mem::swap(&mut state.items, items);
        state.weight_here = 0;
        let was_full = state.weight >= self.weight_max;
        if release {
            state.weight = 0;
        }
        drop(state);
        if was_full && release {
            self.drained.notify_waiters();
        }
    }

    /// Adds to `items` what has come since they were taken, and does not wait. Only where everything weighs nothing.
    pub(crate) fn take_more(&self, items: &mut Vec<T>) {
        items.append(&mut self.lock().items);
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

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Answers<T>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll(future: &mut std::pin::Pin<Box<impl Future<Output = bool>>>) -> Poll<bool> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn take(mailbox: &Mailbox<u32>, release: bool) -> Vec<u32> {
        let mut items = Vec::new();
        mailbox.take(&mut items, Some(Duration::ZERO), release);
        items
    }

    #[test]
    fn who_waits_for_room_is_woken_before_the_reader_waits_for_the_next_item() {
        let mailbox = Mailbox::new(10);
        assert_eq!(poll(&mut Box::pin(mailbox.send(1, 10))), Poll::Ready(true));
        let mut second = Box::pin(mailbox.send(2, 10));
        assert_eq!(poll(&mut second), Poll::Pending);
        assert_eq!(take(&mailbox, false), [1]);
        assert_eq!(poll(&mut second), Poll::Pending, "the first is not done with yet");
        // Nothing is in the mailbox now, so this waits for an item; the room is given first.
        assert_eq!(take(&mailbox, true), []);
        assert_eq!(poll(&mut second), Poll::Ready(true));
        assert_eq!(take(&mailbox, true), [2]);
    }

    #[test]
    fn what_is_taken_without_a_release_goes_on_weighing_and_later_items_too() {
        let mailbox = Mailbox::new(10);
        assert_eq!(poll(&mut Box::pin(mailbox.send(1, 6))), Poll::Ready(true));
        assert_eq!(take(&mailbox, false), [1]);
        assert_eq!(poll(&mut Box::pin(mailbox.send(2, 6))), Poll::Ready(true));
        let mut third = Box::pin(mailbox.send(3, 6));
        assert_eq!(poll(&mut third), Poll::Pending);
        assert_eq!(take(&mailbox, true), [2]);
        assert_eq!(poll(&mut third), Poll::Ready(true));
    }

    #[test]
    fn a_closed_mailbox_takes_no_requests_and_lets_go_of_those_who_wait() {
        let mailbox = Mailbox::new(1);
        assert_eq!(poll(&mut Box::pin(mailbox.send(1, 1))), Poll::Ready(true));
        let mut second = Box::pin(mailbox.send(2, 1));
        assert_eq!(poll(&mut second), Poll::Pending);
        mailbox.close();
        assert_eq!(poll(&mut second), Poll::Ready(false));
        // What the node tells itself still comes through.
        mailbox.push(3);
        assert_eq!(take(&mailbox, true), [1, 3]);
    }

    #[test]
    fn answers_are_never_lost_to_a_receiver_that_stopped_waiting_in_between() {
        let answers = AnswerBox::new();
        let mut into = Vec::new();
        {
            let mut dropped = Box::pin(answers.recv(&mut into));
            assert_eq!(poll(&mut dropped), Poll::Pending);
            answers.push(&mut vec![1]);
        }
        assert_eq!(poll(&mut Box::pin(answers.recv(&mut into))), Poll::Ready(true));
        answers.push(&mut vec![2]);
        answers.close();
        assert_eq!(poll(&mut Box::pin(answers.recv(&mut into))), Poll::Ready(true));
        assert_eq!(into, [1, 2]);
        assert_eq!(poll(&mut Box::pin(answers.recv(&mut into))), Poll::Ready(false));
        assert!(!answers.push(&mut vec![3]));
    }
}
