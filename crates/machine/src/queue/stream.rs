//! A queue that is a stream: reading it takes nothing away, and what is too old or too much goes.
//!
//! What is kept is, as in every queue, what its reader has not settled. Here nobody is given anything by that reader:
//! the leader lets it throw away from the front what retention does not keep, and the log hears of that as of any other
//! messages that expire or are crowded out. Who reads a stream, and how far, is not known here (`cluster::tails`).

use super::{Effect, Queue, StreamOffset};
use crate::command::Outcome;
use crate::limits::STREAM_AGE_MS;
use crate::queue::context::Context;
use crate::ranges::Ranges;

impl Queue {
    /// Throws away what its retention does not keep at `now_ms`: leader only.
    pub(super) fn retain(&mut self, now_ms: u64) {
        let Some(retention) = self.features().and_then(|features| features.stream) else { return };
        let Some(timeline) = &self.main.store.timeline else { return };
        let too_much = retention.max_bytes.and_then(|bytes| timeline.beyond(bytes));
        let mut too_old = None;
        if let Some(age_ms) = retention.max_age_ms
            && now_ms >= self.aged_ms.saturating_add(STREAM_AGE_MS)
        {
            self.aged_ms = now_ms;
            let end = self.main.store.next_seq;
            too_old = timeline.older_than(now_ms.saturating_sub(age_ms), end);
        }
        for (below, reason) in [(too_much, Outcome::Overflowed), (too_old, Outcome::Expired)] {
            let Some(below) = below else { continue };
            while let Some(first) = self.main.waiting().first().filter(|first| *first < below) {
                if self.main.reading().drop_front(below - first, reason) == 0 {
                    break;
                }
            }
        }
    }

    /// When its oldest messages are too old.
    pub(super) fn next_too_old(&self) -> Option<u64> {
        let age_ms = self.features()?.stream?.max_age_ms?;
        let first_ms = self.main.store.timeline.as_ref()?.first_stride_ms()?;
        if self.main.waiting().is_empty() {
            return None;
        }
        let too_old_ms = first_ms.saturating_add(age_ms).saturating_add(1);
        Some(too_old_ms.max(self.aged_ms.saturating_add(STREAM_AGE_MS)))
    }

    /// A settle from the log: what retention did not keep goes, and nothing else ever does.
    pub(super) fn apply_trim(
        &mut self,
        outcome: Outcome,
        ranges: &Ranges,
        (time_ms, is_leading): (u64, bool),
        effects: &mut Vec<Effect>,
    ) {
        let is_retention = matches!(outcome, Outcome::Expired | Outcome::Overflowed);
        if !is_retention && !planted::is("stream_settle_trims") {
            return;
        }
        let features = self.settings.features.as_deref();
        let cx = Context { features, time_ms, is_leading };
        self.main.end_run(cx, effects);
        self.main.reading().settle(outcome, ranges, cx, effects);
        let kept_from = self.kept_from();
        if let Some(timeline) = &mut self.main.store.timeline {
            timeline.forget_below(kept_from);
        }
    }

    /// The oldest message that is kept, or the next one that comes.
    fn kept_from(&self) -> u64 {
        self.main.kept().first().unwrap_or(self.main.store.next_seq)
    }

    /// The message at which somebody begins to read: it is kept, or comes yet. None: this is no stream.
    pub(super) fn seq_at(&self, offset: StreamOffset, now_ms: u64) -> Option<u64> {
        let timeline = self.main.store.timeline.as_ref()?;
        let end = self.main.store.next_seq;
        let seq = match offset {
            StreamOffset::First => 0,
            StreamOffset::Last => timeline.last_run(),
            StreamOffset::Next => end + u64::from(planted::is("stream_next_beyond")),
            StreamOffset::At(seq) => seq,
            StreamOffset::Since(time_ms) => timeline.since(time_ms, end),
            StreamOffset::Ago(ms) => timeline.since(now_ms.saturating_sub(ms), end),
        };
        Some(seq.max(self.kept_from()))
    }
}
