//! How a full disk affects writes beside the log: they pause, they do not fail, and the log says so seldom.
//!
//! Nothing is lost while it lasts: the log keeps what could not be moved. It is tried again when
//! something was freed, and now and then, because less is needed when messages were consumed.

use crate::limits::{FULL_PAUSE_MS, FULL_TOLD_MS, ROOM_GROWN_BYTES};

/// Whether there was room the last time.
#[derive(Debug, Default)]
pub(crate) struct Room {
    refused: Option<Refused>,
    told_ms: Option<u64>,
}

#[derive(Debug)]
struct Refused {
    at_ms: u64,
    free_bytes: u64,
}

impl Room {
    /// A write found no room, with `free_bytes` free on the disk. Returns whether the log should say so now.
    pub(crate) fn refuse(&mut self, now_ms: u64, free_bytes: u64) -> bool {
        self.refused = Some(Refused { at_ms: now_ms, free_bytes });
        let is_due = self.told_ms.is_none_or(|told| now_ms >= told + FULL_TOLD_MS);
        if is_due {
            self.told_ms = Some(now_ms);
        }
        is_due
    }

    /// There was room, or none is needed. Says whether there had been none.
    pub(crate) fn found(&mut self) -> bool {
        self.refused.take().is_some()
    }

    /// Whether it is worth a try.
    pub(crate) fn may_try(&self, now_ms: u64, free_bytes: u64) -> bool {
        self.refused.as_ref().is_none_or(|refused| {
            now_ms >= refused.at_ms + FULL_PAUSE_MS
                || free_bytes >= refused.free_bytes.saturating_add(ROOM_GROWN_BYTES)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_refusal_it_is_tried_again_when_something_was_freed_or_some_seconds_later() {
        let mut room = Room::default();
        assert!(room.may_try(0, 0), "nothing was tried yet");
        room.refuse(100, 5000);
        assert!(!room.may_try(100, 5000));
        assert!(!room.may_try(100 + FULL_PAUSE_MS - 1, 5000));
        assert!(room.may_try(100 + FULL_PAUSE_MS, 5000));
        assert!(room.may_try(101, 5000 + ROOM_GROWN_BYTES));
        assert!(room.found() && !room.found());
        assert!(room.may_try(101, 0));
    }

    #[test]
    fn a_full_disk_is_told_of_once_a_minute_however_often_it_is_tried() {
        let mut room = Room::default();
        let mut told = 0;
        for second in 0..180 {
            told += u32::from(room.refuse(second * 1000, 0));
            // That a try in between found room does not make it another story.
            room.found();
        }
        assert_eq!(told, 3);
    }
}
