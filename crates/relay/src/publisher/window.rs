//! Messages in flight: published, and without an answer.

use std::collections::VecDeque;
use std::time::Instant;

use client::{PublishSeq, Run};

use super::{Row, RowSeq};

/// Messages without an answer, in the order they were published.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// None: it has its answer, one before it has not.
    messages: VecDeque<Option<Message>>,
    /// Number of the first.
    first: u64,
    count: usize,
    live: usize,
    bytes: usize,
    /// Since when the first is the oldest.
    oldest_since: Option<Instant>,
}

/// A message without an answer.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) row: Row,
    pub(super) at: Instant,
    /// Its row went back to the source.
    pub(super) is_released: bool,
}

impl Window {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Those whose rows were not released.
    pub(super) fn live_count(&self) -> usize {
        self.live
    }

    /// Bytes of their rows.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Since when the oldest is waited for: since it was published, or since the one before it had its answer.
    pub(super) fn oldest_since(&self) -> Option<Instant> {
        self.oldest_since
    }

    /// When the oldest whose row was not released was published.
    pub(super) fn oldest_live(&self) -> Option<Instant> {
        self.messages.iter().flatten().find(|it| !it.is_released).map(|it| it.at)
    }

    /// A message was published; numbers follow each other on a connection.
    pub(super) fn push(&mut self, seq: PublishSeq, row: Row, at: Instant) {
        if self.messages.is_empty() {
            self.first = seq.0;
            self.oldest_since = Some(at);
        }
        assert_eq!(
            self.first + self.messages.len() as u64,
            seq.0,
            "messages are numbered in order"
        );
        self.bytes += row.bytes;
        self.count += 1;
        self.live += 1;
        self.messages.push_back(Some(Message { row, at, is_released: false }));
    }

    pub(super) fn row(&self, seq: PublishSeq) -> Option<RowSeq> {
        let index = seq.0.checked_sub(self.first)?;
        let message = self.messages.get(index as usize)?.as_ref()?;
        (!message.is_released).then_some(message.row.seq)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = RowSeq> {
        self.messages.iter().flatten().filter(|it| !it.is_released).map(|it| it.row.seq)
    }

    /// Takes those of a run that have no answer yet.
    pub(super) fn take(&mut self, run: Run, now: Instant, out: &mut Vec<Message>) {
        let end = self.first + self.messages.len() as u64;
        for seq in run.first.0.max(self.first)..(run.last.0 + 1).min(end) {
            let index = (seq - self.first) as usize;
            let Some(message) = self.messages[index].take() else { continue };
            self.count -= 1;
            self.live -= usize::from(!message.is_released);
            self.bytes -= message.row.bytes;
            out.push(message);
        }
        let was_first = self.first;
        while let Some(None) = self.messages.front() {
            self.messages.pop_front();
            self.first += 1;
        }
        if self.first != was_first {
            self.oldest_since = (self.count > 0).then_some(now);
        }
    }

    /// The connection is gone: all that had no answer and was not released, in order.
    pub(super) fn take_all(&mut self) -> Vec<Message> {
        (self.count, self.live, self.bytes, self.oldest_since) = (0, 0, 0, None);
        self.messages.drain(..).flatten().filter(|it| !it.is_released).collect()
    }

    /// Copies of those whose rows were not released; they are from now on.
    pub(super) fn release(&mut self) -> Vec<Message> {
        self.live = 0;
        let live = self.messages.iter_mut().flatten().filter(|it| !it.is_released);
        live.map(|it| {
            let message = it.clone();
            it.is_released = true;
            message
        })
        .collect()
    }

    /// The only one, if there is exactly one and its row was not released.
    pub(super) fn sole(&self) -> Option<RowSeq> {
        (self.count == 1 && self.live == 1).then(|| self.rows().next())?
    }
}
