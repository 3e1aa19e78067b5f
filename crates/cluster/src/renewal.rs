//! Stamps of the data directory: a running node raises its stamp, so that a copy of the directory that was made
//! before counts as an old one.
//!
//! The node writes a newer stamp to its directory from time to time. As soon as that is durable it tells its
//! peers, and they refuse a later start of the node whose directory has an older stamp. A core: it is handed
//! the time, and says what is to be written and told.

use machine::Version;

use crate::limits::{FULL_TOLD_MS, RENEWAL_MS};
use crate::peer::message::Message;

/// The version from which on peers may hear of a stamp: they store it in a form that an older program cannot read.
const SINCE: Version = Version::STAMPS_RENEWED;

/// When a node renews its stamp.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// This start of the node.
    boot: u64,
    /// The newest that is durable.
    stamp: u64,
    due_ms: u64,
    told_ms: Option<u64>,
}

impl Renewal {
    /// Of a start whose number has just been written down.
    pub(crate) fn new(boot: u64, now_ms: u64) -> Self {
        Self { boot, stamp: boot, due_ms: now_ms + RENEWAL_MS, told_ms: None }
    }

    /// Milliseconds until a stamp is due. A stamp that is due and was not written waits until the cluster's version
    /// allows it; the change of version wakes the thread, so a look every `RENEWAL_MS` is often enough.
    pub(crate) fn wait_ms(&self, now_ms: u64) -> u64 {
        match self.due_ms.saturating_sub(now_ms) {
            0 => RENEWAL_MS,
            left => left,
        }
    }

    /// What is to be written now, if it is time and the cluster has `agreed` to know of it.
    pub(crate) fn due(&self, now_ms: u64, wall_ms: u64, agreed: Version) -> Option<u64> {
        let is_due = now_ms >= self.due_ms && agreed >= SINCE;
        is_due.then(|| wall_ms.max(self.stamp + 1))
    }

    /// `stamp` is durable: all peers are told the [`word`](Self::word) now.
    pub(crate) fn written(&mut self, now_ms: u64, stamp: u64) {
        assert!(stamp > self.stamp, "stamps grow: {stamp} after {}", self.stamp);
        (self.stamp, self.due_ms) = (stamp, now_ms + RENEWAL_MS);
    }

    /// The disk had no room for the stamp: the write is tried again later. Returns whether the log should say so now.
    pub(crate) fn refused(&mut self, now_ms: u64) -> bool {
        self.due_ms = now_ms + RENEWAL_MS;
        let is_news = self.told_ms.is_none_or(|told| now_ms >= told + FULL_TOLD_MS);
        if is_news {
            self.told_ms = Some(now_ms);
        }
        is_news
    }

    /// What peers are told of the newest stamp that is durable.
    pub(crate) fn word(&self) -> Message {
        Message::Renewed { boot: self.boot, stamp: self.stamp }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: u64 = 1_000_000;

    fn told(renewal: &Renewal) -> (u64, u64) {
        match renewal.word() {
            Message::Renewed { boot, stamp } => (boot, stamp),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stamp_is_told_once_it_is_written_and_grows_whatever_the_clock_says() {
        let mut renewal = Renewal::new(BOOT, 0);
        assert_eq!(renewal.due(RENEWAL_MS - 1, BOOT + 9_999, SINCE), None);
        assert_eq!(renewal.due(RENEWAL_MS, BOOT + 10_000, SINCE), Some(BOOT + 10_000));
        assert_eq!(told(&renewal), (BOOT, BOOT), "that is not written yet");
        renewal.written(RENEWAL_MS, BOOT + 10_000);
        assert_eq!(told(&renewal), (BOOT, BOOT + 10_000));
        assert_eq!(renewal.due(2 * RENEWAL_MS - 1, BOOT + 20_000, SINCE), None);
        assert_eq!(renewal.wait_ms(2 * RENEWAL_MS - 1), 1);
        let after = renewal.due(2 * RENEWAL_MS, 5, SINCE);
        assert_eq!(after, Some(BOOT + 10_001), "the clock went back");
    }

    #[test]
    fn a_full_disk_puts_it_off_and_is_told_of_once_a_minute() {
        let mut renewal = Renewal::new(BOOT, 0);
        let mut lines = 0;
        for turn in 1..=18 {
            let now_ms = turn * RENEWAL_MS;
            assert!(renewal.due(now_ms, BOOT + now_ms, SINCE).is_some());
            lines += u32::from(renewal.refused(now_ms));
            assert_eq!(renewal.due(now_ms, BOOT + now_ms, SINCE), None, "not at once");
        }
        assert_eq!((lines, told(&renewal)), (3, (BOOT, BOOT)));
    }

    #[test]
    fn a_cluster_of_an_earlier_version_is_told_nothing() {
        let renewal = Renewal::new(BOOT, 0);
        assert_eq!(renewal.due(5 * RENEWAL_MS, BOOT + 50_000, Version(5)), None);
        assert_eq!(renewal.word().since(), SINCE.0);
        assert_eq!(renewal.wait_ms(5 * RENEWAL_MS), RENEWAL_MS, "it is looked at again later");
    }
}
