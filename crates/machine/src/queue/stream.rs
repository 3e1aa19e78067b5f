//! A queue that is a stream: reading it takes nothing away, and what is too old or too much goes.
//!
//! What is kept is, as in every queue, what its reader has not settled. Here nobody is given anything by that reader:
//! the leader lets it throw away from the front what retention does not keep, and the log hears of that as of any other
//! messages that expire or are crowded out. It stops where a subscription is. Who else reads a stream, and how far, is
//! not known here (`cluster::tails`).

use super::context::Context;
use super::level::Level;
use super::subscription::Subscribers;
use super::{Effect, StreamOffset};
use crate::command::Outcome;
use crate::limits::STREAM_AGE_MS;
use crate::ranges::Ranges;
use crate::settings::Retention;

/// Throws away what retention does not keep at `now_ms`: leader only. `aged_ms`: when it was looked last for what is too
/// old.
pub(super) fn retain(
    level: &mut Level,
    retention: Retention,
    subscribers: &mut Subscribers,
    aged_ms: &mut u64,
    now_ms: u64,
) {
    let Some(timeline) = &level.store.timeline else { return };
    let too_much = retention.max_bytes.and_then(|bytes| timeline.beyond(bytes));
    let mut too_old = None;
    if let Some(age_ms) = retention.max_age_ms
        && now_ms >= aged_ms.saturating_add(STREAM_AGE_MS)
    {
        *aged_ms = now_ms;
        too_old = timeline.older_than(now_ms.saturating_sub(age_ms), level.store.next_seq);
    }
    for (below, reason) in [(too_much, Outcome::Overflowed), (too_old, Outcome::Expired)] {
        let Some(below) = below.map(|below| subscribers.limit(below)) else { continue };
        while let Some(first) = level.waiting().first().filter(|first| *first < below) {
            if level.reading().drop_front(below - first, reason) == 0 {
                break;
            }
        }
    }
}

/// When the oldest messages are too old.
pub(super) fn next_too_old(level: &Level, retention: Retention, aged_ms: u64) -> Option<u64> {
    let age_ms = retention.max_age_ms?;
    let first_ms = level.store.timeline.as_ref()?.first_stride_ms()?;
    if level.waiting().is_empty() {
        return None;
    }
    let too_old_ms = first_ms.saturating_add(age_ms).saturating_add(1);
    Some(too_old_ms.max(aged_ms.saturating_add(STREAM_AGE_MS)))
}

/// A settle from the log: what retention did not keep goes, and nothing else ever does.
pub(super) fn apply_trim(
    level: &mut Level,
    outcome: Outcome,
    ranges: &Ranges,
    cx: Context<'_>,
    effects: &mut Vec<Effect>,
) {
    let is_retention = matches!(outcome, Outcome::Expired | Outcome::Overflowed);
    if !is_retention && !planted::is("stream_settle_trims") {
        return;
    }
    level.end_run(cx, effects);
    level.reading().settle(outcome, ranges, cx, effects);
    let kept_from = kept_from(level);
    if let Some(timeline) = &mut level.store.timeline {
        timeline.forget_below(kept_from);
    }
}

/// The oldest message that is kept, or the next one that comes.
fn kept_from(level: &Level) -> u64 {
    level.kept().first().unwrap_or(level.store.next_seq)
}

/// The message at which somebody begins to read: it is kept, or comes yet. None: this is no stream.
pub(super) fn seq_at(level: &Level, offset: StreamOffset, now_ms: u64) -> Option<u64> {
    let timeline = level.store.timeline.as_ref()?;
    let end = level.store.next_seq;
    let seq = match offset {
        StreamOffset::First => 0,
        StreamOffset::Last => timeline.last_run(),
        StreamOffset::Next => end + u64::from(planted::is("stream_next_beyond")),
        StreamOffset::At(seq) => seq,
        StreamOffset::Since(time_ms) => timeline.since(time_ms, end),
        StreamOffset::Ago(ms) => timeline.since(now_ms.saturating_sub(ms), end),
    };
    Some(seq.max(kept_from(level)))
}
