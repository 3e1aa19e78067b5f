//! When the messages of a stream came, and how many bytes they are: at points, not for each message.
//!
//! Replicated. Points stand so far apart that a stream of any size has a bounded number of them: when they become too
//! many, every second one goes, and from then on new ones stand twice as far apart. What is asked of a place between two
//! points is answered with the earlier one: a reader begins too early rather than too late, and what is thrown away is
//! a little less than might be.

use std::collections::VecDeque;

use crate::encoding::{Corrupt, Reader, put_u32, put_u64};
use crate::limits::{STREAM_POINTS_MAX, STREAM_STRIDE_BYTES, STREAM_STRIDE_MS};

/// The messages from one point to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stride {
    first_seq: u64,
    /// When the first of them came, and the last: ms since 1970.
    first_ms: u64,
    last_ms: u64,
    /// Bytes of all messages of the stream before them, of those that are gone, too.
    bytes_before: u64,
}

/// The points of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timeline {
    strides: VecDeque<Stride>,
    /// How far apart points stand, as long as none is thinned out: this many times the least.
    factor: u64,
    /// Bytes of all messages that ever came.
    bytes: u64,
    /// The first message of the run that came last.
    last_run: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { strides: VecDeque::new(), factor: 1, bytes: 0, last_run: 1 }
    }
}

impl Timeline {
    /// A run came in.
    pub(crate) fn add(&mut self, first_seq: u64, bytes: u64, time_ms: u64) {
        let is_over = |last: &Stride| {
            self.bytes - last.bytes_before >= STREAM_STRIDE_BYTES.saturating_mul(self.factor)
                || time_ms.saturating_sub(last.first_ms)
                    >= STREAM_STRIDE_MS.saturating_mul(self.factor)
        };
        if self.strides.back().is_none_or(is_over) {
            let (first_ms, last_ms, bytes_before) = (time_ms, time_ms, self.bytes);
            self.strides.push_back(Stride { first_seq, first_ms, last_ms, bytes_before });
            if self.strides.len() > STREAM_POINTS_MAX {
                self.thin_out();
            }
        }
        if let Some(last) = self.strides.back_mut() {
            last.last_ms = time_ms;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.last_run = first_seq;
    }

    /// Every second point goes: its stride becomes part of the one before it.
    fn thin_out(&mut self) {
        let strides = std::mem::take(&mut self.strides);
        for (nth, stride) in strides.into_iter().enumerate() {
            match self.strides.back_mut().filter(|_| nth % 2 == 1) {
                Some(before) => before.last_ms = stride.last_ms,
                None => self.strides.push_back(stride),
            }
        }
        self.factor = self.factor.saturating_mul(2);
    }

    /// Messages below `kept_from` are gone.
    pub(crate) fn forget_below(&mut self, kept_from: u64) {
        while self.strides.get(1).is_some_and(|second| second.first_seq <= kept_from) {
            self.strides.pop_front();
        }
    }

    /// Below which message all may go that came before `time_ms`. None: no message is known to be older.
    pub(crate) fn older_than(&self, time_ms: u64, end: u64) -> Option<u64> {
        let old = self.strides.partition_point(|stride| stride.last_ms < time_ms);
        let below = old + usize::from(planted::is("stream_ages_too_soon"));
        let below = self.strides.get(below).map_or(end, |stride| stride.first_seq);
        (old > 0).then_some(below)
    }

    /// Below which message all may go so that no less than `bytes` are left. None: there are no more. The newest
    /// stride always stays.
    pub(crate) fn beyond(&self, bytes: u64) -> Option<u64> {
        let first_left = self.bytes.saturating_sub(bytes);
        let nth = self.strides.partition_point(|stride| stride.bytes_before <= first_left);
        let first = self.strides.get(nth.checked_sub(1)?)?;
        let beyond = self.strides.get(nth).filter(|_| planted::is("stream_trims_too_much"));
        let first = beyond.unwrap_or(first);
        (nth > 1).then_some(first.first_seq)
    }

    /// When the last message of the first stride came: ms since 1970.
    pub(crate) fn first_stride_ms(&self) -> Option<u64> {
        self.strides.front().map(|stride| stride.last_ms)
    }

    /// The first message that may have come at `time_ms` or later.
    pub(crate) fn since(&self, time_ms: u64, end: u64) -> u64 {
        let before = self.strides.partition_point(|stride| stride.last_ms < time_ms);
        self.strides.get(before).map_or(end, |stride| stride.first_seq)
    }

    /// The first message of the run that came last.
    pub(crate) fn last_run(&self) -> u64 {
        self.last_run
    }

    /// Bytes of what is kept, up to one stride more.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.strides.front().map_or(0, |first| self.bytes - first.bytes_before)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self { strides, factor, bytes, last_run } = self;
        for number in [factor, bytes, last_run] {
            put_u64(out, *number);
        }
        put_u32(out, strides.len() as u32);
        for Stride { first_seq, first_ms, last_ms, bytes_before } in strides {
            for number in [first_seq, first_ms, last_ms, bytes_before] {
                put_u64(out, *number);
            }
        }
    }

    /// Of a stream whose next message is `end`.
    pub(crate) fn read(reader: &mut Reader<'_>, end: u64) -> Result<Self, Corrupt> {
        let mut timeline = Self {
            strides: VecDeque::new(),
            factor: reader.u64()?,
            bytes: reader.u64()?,
            last_run: reader.u64()?,
        };
        let count = reader.u32()? as usize;
        let is_sound = timeline.factor > 0 && timeline.last_run <= end;
        if !is_sound || count > STREAM_POINTS_MAX {
            return Err(reader.corrupt());
        }
        for _ in 0..count {
            let stride = Stride {
                first_seq: reader.u64()?,
                first_ms: reader.u64()?,
                last_ms: reader.u64()?,
                bytes_before: reader.u64()?,
            };
            let goes_on = timeline.strides.back().is_none_or(|before| {
                before.first_seq < stride.first_seq
                    && before.last_ms <= stride.first_ms
                    && before.bytes_before <= stride.bytes_before
            });
            let is_sound = stride.first_ms <= stride.last_ms
                && stride.first_seq < end
                && stride.bytes_before <= timeline.bytes;
            if !goes_on || !is_sound {
                return Err(reader.corrupt());
            }
            timeline.strides.push_back(stride);
        }
        Ok(timeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One message of `bytes` each `every_ms`.
    fn filled(count: u64, bytes: u64, every_ms: u64) -> Timeline {
        let mut timeline = Timeline::default();
        (1..=count).for_each(|seq| timeline.add(seq, bytes, seq * every_ms));
        timeline
    }

    #[test]
    fn a_reader_from_a_time_begins_at_the_first_message_of_then_or_a_little_before_it() {
        let timeline = filled(100_000, 100, 10);
        let mut worst = 0;
        for seq in (1..=100_000).step_by(97) {
            let first = timeline.since(seq * 10, 100_001);
            assert!(first <= seq, "message {seq} is not left out");
            worst = worst.max(seq - first);
        }
        assert!(worst <= 2 * STREAM_STRIDE_MS / 10, "{worst} messages too early");
        assert_eq!(timeline.since(0, 100_001), 1);
        assert_eq!(timeline.since(1_000_001, 100_001), 100_001, "later than all");
    }

    #[test]
    fn messages_that_came_apart_are_told_apart() {
        let mut timeline = Timeline::default();
        timeline.add(1, 10, 1_000);
        timeline.add(2, 10, 3_000);
        assert_eq!((timeline.since(1_000, 3), timeline.since(1_001, 3)), (1, 2));
        assert_eq!((timeline.older_than(1_000, 3), timeline.older_than(1_001, 3)), (None, Some(2)));
        assert_eq!(timeline.older_than(3_001, 3), Some(3), "all of it");
    }

    #[test]
    fn no_more_goes_than_leaves_the_bytes_that_are_to_be_kept() {
        let timeline = filled(100_000, 100, 0);
        for keep in [0, 1, 99_999, 1_000_000, 9_900_000] {
            let below = timeline.beyond(keep).expect("there are ten million");
            let left = (100_001 - below) * 100;
            assert!(left >= keep, "{left} of {keep}");
            assert!(left <= keep + 2 * STREAM_STRIDE_BYTES, "{left} of {keep}");
        }
        for keep in [9_999_999, 10_000_000] {
            assert_eq!(timeline.beyond(keep), None, "a stride goes as a whole");
        }
        assert_eq!(filled(3, 10, 0).beyond(0), None, "the newest stride stays");
    }

    #[test]
    fn a_stream_of_any_size_has_no_more_points_than_may_be() {
        let mut timeline = filled(100 * STREAM_POINTS_MAX as u64, STREAM_STRIDE_BYTES, 0);
        assert!(timeline.strides.len() <= STREAM_POINTS_MAX);
        assert!(timeline.strides.len() >= STREAM_POINTS_MAX / 4, "and not too few");
        timeline.forget_below(100 * STREAM_POINTS_MAX as u64);
        assert_eq!(timeline.strides.len(), 1, "what is gone needs none");
    }

    #[test]
    fn it_is_the_same_after_a_snapshot() {
        let timeline = filled(50_000, 700, 3);
        let mut bytes = Vec::new();
        timeline.encode(&mut bytes);
        let mut reader = Reader::new(&bytes, "a timeline");
        assert_eq!(Timeline::read(&mut reader, 50_001), Ok(timeline));
        reader.end().expect("all was read");
        for cut in 0..bytes.len() {
            let mut reader = Reader::new(&bytes[..cut], "a timeline");
            assert!(Timeline::read(&mut reader, 50_001).is_err(), "cut at {cut}");
            if cut > 100 {
                break;
            }
        }
    }
}
