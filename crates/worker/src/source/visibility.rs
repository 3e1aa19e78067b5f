//! How another attempt is made at queues with a visibility timeout (SQS, MNS): the same message becomes visible later,
//! or a copy is sent and the message is deleted.
//!
//! Such a queue counts how often a message came out, and cannot change the message. So its attempt is what the message
//! says (1, unless it is a copy) plus the times that it came out before: **a worker's death and a return charge an
//! attempt, too**. Where the next attempt's number is another (a throttle charges none), or the body changes, or the
//! delay is too long, a copy is sent that says its number. So is it when a message came out half of
//! [`DELIVERIES_MAX`] times: one that comes out more often than that was never settled, and may end its worker.

use std::time::Duration;

use crate::limits::DELIVERIES_MAX;

/// Longest visibility timeout of SQS and MNS.
pub const VISIBILITY_MAX: Duration = Duration::from_secs(43_200);

/// How another attempt is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The message becomes visible after this long.
    Visible { after: Duration },
    /// A copy is sent with this delay, and the message is deleted.
    Copy { after: Duration },
}

/// What is known of a message that is to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The number of this attempt.
    pub number: u32,
    /// How often the message came out.
    pub deliveries: u32,
    /// Whether its number says what `deliveries` cannot change.
    pub is_fixed: bool,
}

/// The number of the attempt at a message that came out so often.
pub fn number(said: u32, deliveries: u32) -> u32 {
    said.saturating_add(deliveries.saturating_sub(1)).max(1)
}

/// How the attempt number `next` is made, after this long.
pub fn again(now: Attempt, next: u32, after: Duration, is_body_new: bool) -> Again {
    let is_counted = !now.is_fixed && next == now.number.saturating_add(1);
    let is_worn = now.deliveries >= DELIVERIES_MAX / 2;
    if is_counted && !is_worn && !is_body_new && after <= VISIBILITY_MAX {
        Again::Visible { after }
    } else {
        Again::Copy { after }
    }
}

/// Whole seconds, not less than asked.
pub fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn attempt(number: u32, deliveries: u32) -> Attempt {
        Attempt { number, deliveries, is_fixed: false }
    }

    #[test]
    fn a_charged_attempt_keeps_its_message() {
        assert_eq!(again(attempt(3, 3), 4, SECOND, false), Again::Visible { after: SECOND });
    }

    #[test]
    fn what_the_count_cannot_say_is_said_by_a_copy() {
        let copy = Again::Copy { after: SECOND };
        assert_eq!(again(attempt(3, 3), 3, SECOND, false), copy, "uncharged");
        assert_eq!(again(attempt(3, 3), 4, SECOND, true), copy, "another body");
        assert_eq!(again(attempt(12, DELIVERIES_MAX / 2), 13, SECOND, false), copy, "worn");
        let long = VISIBILITY_MAX + SECOND;
        assert_eq!(again(attempt(1, 1), 2, long, false), Again::Copy { after: long });
        let fixed = Attempt { is_fixed: true, ..attempt(1, 1) };
        assert_eq!(again(fixed, 2, SECOND, false), copy);
    }

    #[test]
    fn numbers_count_from_what_a_copy_says() {
        assert_eq!((number(1, 1), number(4, 1), number(4, 3), number(0, 0)), (1, 4, 6, 1));
        assert_eq!((seconds(Duration::from_millis(1)), seconds(SECOND)), (1, 1));
    }
}
