//! The order of rows of one key.
//!
//! One connection keeps the order of what it publishes, so rows of one key are pipelined once its first row is
//! confirmed. From the moment when the answer of a row says that it failed, no later row of its key is published. The key
//! is held once all rows before the failed one have their answers. Rows that were in flight behind the failed one are
//! settled in their order as their answers come:
//!
//! ```text
//!   in flight   1  2  3  4      waiting  5  6
//!   answers     ✓  ✗  ✓  –
//!               │  │  │  └ no answer yet: 4, 5 and 6 stay until it comes
//!               │  │  └ stored behind 2: withheld and published again behind it (repeat), or confirmed (report)
//!               │  └ failed: holds the key
//!               └ confirmed
//! ```

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::{Row, RowSeq, Settled};
use crate::config::Pipeline;

/// What is known of a row that was ready.
#[derive(Debug)]
pub(super) enum Answer {
    Confirmed,
    /// What is told of it, unless a row before it holds the key. `holds`: it keeps later rows of its key back.
    Failed {
        settled: Settled,
        holds: bool,
    },
    /// It was not published, because a row before it failed.
    Unsent,
}

#[derive(Debug)]
struct UnderWay {
    row: Row,
    answer: Option<Answer>,
}

/// A key with rows that are not settled, or that is held.
#[derive(Debug, Default)]
struct Key {
    /// Rows that are ready, in flight or answered behind such a row, in their order.
    under_way: VecDeque<UnderWay>,
    /// Rows for which there is no room yet.
    waiting: VecDeque<Row>,
    is_held: bool,
    /// The first row under way whose answer says that it failed and keeps later rows back. None: the key is held, or no
    /// row under way has failed.
    failed: Option<RowSeq>,
    /// Its last row was confirmed: where that went, more may follow at once.
    is_proven: bool,
    /// Rows that hold the key or were withheld, and that the source has not stored yet.
    leaving: u32,
}

impl Key {
    /// What its first row under way comes to.
    fn settle(&mut self, row: RowSeq, answer: Answer, pipeline: Pipeline) -> Settled {
        let is_behind = self.is_held;
        let overtook = is_behind
            && matches!(answer, Answer::Confirmed)
            && !planted::is("relay_overtaking_untold");
        match answer {
            Answer::Confirmed if !is_behind || pipeline == Pipeline::Report => {
                self.is_proven = !is_behind;
                Settled::Confirmed { row, overtook }
            }
            Answer::Failed { settled, holds } if !is_behind => {
                self.is_proven = false;
                if holds {
                    self.is_held = !planted::is("relay_key_not_held");
                    self.leaving += 1;
                }
                settled
            }
            // What is wrong with a row itself is found again when it is its turn.
            Answer::Confirmed | Answer::Failed { .. } | Answer::Unsent => {
                self.leaving += 1;
                Settled::Withheld { row, was_stored: overtook }
            }
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Keys {
    pipeline: Pipeline,
    window: usize,
    keys: BTreeMap<Bytes, Key>,
    held: usize,
    /// Keys with a failed row under way.
    failed: usize,
}

impl Keys {
    pub(super) fn new(pipeline: Pipeline, window: usize) -> Self {
        Self { pipeline, window, keys: BTreeMap::new(), held: 0, failed: 0 }
    }

    pub(super) fn held_count(&self) -> usize {
        self.held
    }

    pub(super) fn held(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.iter().filter(|(_, key)| key.is_held).map(|(name, _)| name)
    }

    /// Whether a row must not be published, because a row of its key before it failed.
    pub(super) fn is_barred(&self, name: &Bytes, seq: RowSeq) -> bool {
        if self.held == 0 && self.failed == 0 {
            return false;
        }
        let Some(key) = self.keys.get(name) else { return false };
        key.is_held || key.failed.is_some_and(|failed| failed < seq)
    }

    /// Rows of the key are withheld from now on.
    pub(super) fn hold(&mut self, name: &Bytes) {
        let mut key = self.keys.remove(name).unwrap_or_default();
        self.held += usize::from(!key.is_held);
        self.failed -= usize::from(key.failed.take().is_some());
        key.is_held = true;
        // Under a copy of its name, which is a part of a whole row: that must not stay in memory.
        self.keys.insert(Bytes::copy_from_slice(name), key);
    }

    pub(super) fn add(
        &mut self,
        row: Row,
        ready: &mut VecDeque<Row>,
        settled: &mut VecDeque<Settled>,
    ) {
        let Some(name) = row.key.clone() else { return };
        let key = self.keys.entry(name.clone()).or_default();
        if key.is_held && key.under_way.is_empty() {
            key.leaving += 1;
            return settled.push_back(Settled::Withheld { row: row.seq, was_stored: false });
        }
        key.waiting.push_back(row);
        self.admit(&name, ready);
    }

    /// The row has its answer.
    pub(super) fn answer(
        &mut self,
        name: &Bytes,
        seq: RowSeq,
        answer: Answer,
        ready: &mut VecDeque<Row>,
        settled: &mut VecDeque<Settled>,
    ) {
        let key = self.keys.get_mut(name).expect("the key of a row under way is here");
        let at = key.under_way.binary_search_by_key(&seq, |it| it.row.seq);
        let at = at.expect("only rows under way have answers");
        if let Answer::Failed { holds: true, .. } = answer
            && !key.is_held
            && !planted::is("relay_failed_not_barred")
        {
            self.failed += usize::from(key.failed.is_none());
            key.failed = Some(key.failed.map_or(seq, |failed| failed.min(seq)));
        }
        key.under_way[at].answer = Some(answer);
        while let Some(answer) = key.under_way.front_mut().and_then(|first| first.answer.take()) {
            let Some(UnderWay { row, .. }) = key.under_way.pop_front() else { break };
            let was_held = key.is_held;
            settled.push_back(key.settle(row.seq, answer, self.pipeline));
            self.held += usize::from(key.is_held && !was_held);
            if key.failed.is_some_and(|failed| failed <= row.seq) {
                key.failed = None;
                self.failed -= 1;
            }
        }
        if key.is_held && key.under_way.is_empty() {
            key.leaving += key.waiting.len() as u32;
            let withheld = key.waiting.drain(..);
            settled
                .extend(withheld.map(|row| Settled::Withheld { row: row.seq, was_stored: false }));
            // Under a copy of its name.
            return self.hold(name);
        }
        self.admit(name, ready);
    }

    /// The source has stored a row that holds the key or was withheld.
    pub(super) fn stored(&mut self, name: &Bytes) {
        let key = self.keys.get_mut(name).expect("the key of a row that leaves is here");
        key.leaving -= 1;
    }

    /// Nothing that was stored keeps the key's rows back.
    pub(super) fn free(&mut self, name: &Bytes, ready: &mut VecDeque<Row>) {
        let Some(key) = self.keys.get_mut(name).filter(|key| key.is_held && key.leaving == 0)
        else {
            return;
        };
        // What is still in flight behind the failure has no order before that is known.
        if key.under_way.is_empty() {
            key.is_held = false;
            self.held -= 1;
            self.admit(name, ready);
        }
    }

    /// The rows lost their connection. Where rows are repeated to keep their order, those that were confirmed behind one
    /// without an answer are added: it may come behind them.
    pub(super) fn publish_again(&mut self, rows: &mut Vec<Row>) {
        // The first of each key: whatever was confirmed behind another is behind that one, too.
        let mut firsts: BTreeMap<Bytes, RowSeq> = BTreeMap::new();
        for row in &*rows {
            if let Some(name) = &row.key {
                let first = firsts.entry(name.clone()).or_insert(row.seq);
                *first = row.seq.min(*first);
            }
        }
        for (name, first) in firsts {
            let Some(key) = self.keys.get_mut(&name) else { continue };
            key.is_proven = false;
            if self.pipeline != Pipeline::Repeat
                || key.is_held
                || planted::is("relay_repeat_forgotten")
            {
                continue;
            }
            let first = key.under_way.partition_point(|it| it.row.seq <= first);
            for behind in key.under_way.range_mut(first..) {
                if let Some(Answer::Confirmed) = behind.answer {
                    behind.answer = None;
                    rows.push(behind.row.clone());
                }
            }
        }
    }

    /// Forgets all rows and keys. With [`Pipeline::Report`], rows that the broker has taken are settled.
    pub(super) fn release(&mut self, settled: &mut VecDeque<Settled>) {
        let keys = std::mem::take(&mut self.keys);
        (self.held, self.failed) = (0, 0);
        if self.pipeline != Pipeline::Report || planted::is("relay_release_forgets_stored") {
            return;
        }
        for mut key in keys.into_values() {
            let mut overtook = key.is_held;
            for UnderWay { row, answer } in key.under_way.drain(..) {
                match answer {
                    Some(Answer::Confirmed) => {
                        settled.push_back(Settled::Confirmed { row: row.seq, overtook });
                    }
                    Some(Answer::Failed { holds, .. }) => overtook |= holds,
                    Some(Answer::Unsent) | None => (),
                }
            }
        }
    }

    /// Makes rows ready for which there is room, and forgets a key that nothing is known of.
    fn admit(&mut self, name: &Bytes, ready: &mut VecDeque<Row>) {
        let Some(key) = self.keys.get_mut(name) else { return };
        let is_pipelined = self.pipeline != Pipeline::Wait && key.is_proven;
        let is_ignored = planted::is("relay_order_window_ignored");
        let window = if is_pipelined || is_ignored { self.window } else { 1 };
        let window = if is_ignored { window + 1 } else { window };
        while !key.is_held
            && key.failed.is_none()
            && key.under_way.len() < window
            && let Some(row) = key.waiting.pop_front()
        {
            key.under_way.push_back(UnderWay { row: row.clone(), answer: None });
            ready.push_back(row);
        }
        if key.under_way.is_empty() && key.waiting.is_empty() && !key.is_held && key.leaving == 0 {
            self.keys.remove(name);
        }
    }
}
