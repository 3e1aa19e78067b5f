//! The time of a group: its entries are stamped with it, and what falls due does so by it.
//!
//! A node's clock may be wrong, and may be set while the node runs. So a group's time begins with the
//! clock of whoever leads first, goes on with what the leader counts by itself (`Now::mono_ms`), and is
//! taken over by the next leader: leaders tell the others now and then what time it is. Such a word may be late: a
//! process that was stopped hears it when it goes on.

use crate::exchange::Now;

/// Clocks that differ by less than this are not worth stamping entries anew.
const SAME_MS: u64 = 1000;

// What a new leader may be ahead is what leases get more.
const _: () = assert!(SAME_MS <= machine::limits::LOCK_TERM_MS);

/// A word that is later by more than this is ignored. What is less may be two clocks that do not run at quite
/// the same speed.
const LATE_MS: i64 = 500;

/// A group's time as one node knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupTime {
    /// How far the group's time is ahead of this node's `Now::mono_ms`. `None`: no leader has announced it yet.
    ahead_ms: Option<i64>,
    /// The term of the leader that announced `ahead_ms`.
    term: u64,
}

impl GroupTime {
    /// Whether it has begun.
    pub(crate) fn is_known(&self) -> bool {
        self.ahead_ms.is_some()
    }

    /// This node goes on with the time, as the leader of `term`. Gives the term of the leader whose time it goes on with,
    /// and is ahead of by less than `SAME_MS`. `None`: it may be ahead by anything, because no leader has told it the
    /// time, or the group was further already than it was told.
    pub(crate) fn lead_in(&mut self, term: u64, now: Now, last_ms: u64) -> Option<u64> {
        let heard = self.ahead_ms.map(|ahead_ms| (self.term, ahead_ms));
        self.lead(now, last_ms);
        self.term = term;
        let ahead_ms = self.ahead_ms?;
        let goes_on = |heard_ms: i64| ahead_ms < heard_ms.saturating_add_unsigned(SAME_MS);
        heard.filter(|(_, heard_ms)| goes_on(*heard_ms)).map(|(heard_in, _)| heard_in)
    }

    /// The group's leader in `term` says what time it is. Within a term its time goes on evenly: what puts it back
    /// was under way for long.
    pub(crate) fn heard(&mut self, now: Now, term: u64, time_ms: u64) {
        let said = ahead(time_ms, now);
        let is_late = self.ahead_ms.is_some_and(|known| said < known.saturating_sub(LATE_MS));
        if term != self.term || !is_late {
            (self.term, self.ahead_ms) = (term, Some(said));
        }
    }

    /// This node goes on with the time. `last_ms`: the group has been there already.
    pub(crate) fn lead(&mut self, now: Now, last_ms: u64) {
        let wall = ahead(now.wall_ms, now);
        if planted::is("leader_clock") {
            self.ahead_ms = Some(wall);
            return;
        }
        let heard = self.ahead_ms.filter(|heard| heard.abs_diff(wall) >= SAME_MS).unwrap_or(wall);
        let last = ahead(last_ms, now);
        let is_behind = last > heard && last.abs_diff(heard) >= SAME_MS;
        self.ahead_ms = Some(if is_behind { last } else { heard });
    }

    pub(crate) fn at(&self, now: Now) -> u64 {
        match self.ahead_ms {
            Some(ahead) => now.mono_ms.saturating_add_signed(ahead),
            None => now.wall_ms,
        }
    }

    /// When it will be `time_ms`, in `Now::mono_ms`.
    pub(crate) fn when(&self, now: Now, time_ms: u64) -> u64 {
        now.mono_ms.saturating_add(time_ms.saturating_sub(self.at(now)))
    }
}

fn ahead(time_ms: u64, now: Now) -> i64 {
    let signed = |ms| i64::try_from(ms).unwrap_or(i64::MAX);
    signed(time_ms).saturating_sub(signed(now.mono_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;
    const WALL: u64 = 1_700_000_000_000;

    fn now(mono_ms: u64, wall_ms: u64) -> Now {
        Now { mono_ms, wall_ms }
    }

    #[test]
    fn a_new_leader_goes_on_from_the_old_one_whatever_its_own_clock_says() {
        for theirs in [WALL - HOUR, WALL, WALL + HOUR] {
            let mut time = GroupTime::default();
            time.heard(now(500, WALL), 1, theirs);
            time.lead(now(2500, WALL + 2000), theirs + 1900);
            assert_eq!(time.at(now(2500, WALL + 2000)), theirs + 2000);
            assert_eq!(time.when(now(2500, WALL + 2000), theirs + 2750), 3250);
        }
    }

    #[test]
    fn a_word_that_was_long_under_way_does_not_put_the_time_back() {
        let mut time = GroupTime::default();
        time.heard(now(100, 0), 1, WALL + 100);
        // The process stood still for 2.5 seconds, and hears then what was said at 600.
        time.heard(now(3100, 0), 1, WALL + 600);
        assert_eq!(time.at(now(3100, 0)), WALL + 3100);
        // Its clock runs a little faster than the leader's.
        time.heard(now(5100, 0), 1, WALL + 5090);
        assert_eq!(time.at(now(5100, 0)), WALL + 5090);
        // What another leader says counts, whatever it is.
        time.heard(now(6100, 0), 2, WALL - HOUR);
        assert_eq!(time.at(now(6100, 0)), WALL - HOUR);
    }

    #[test]
    fn a_new_leader_knows_whose_time_it_goes_on_with() {
        // Nobody has told it the time.
        let mut time = GroupTime::default();
        assert_eq!(time.lead_in(2, now(0, WALL), 0), None);
        // It leads again, and nobody else did.
        assert_eq!(time.lead_in(4, now(10, WALL), WALL + 5), Some(2));
        for (theirs, last, known) in [
            (WALL, WALL, Some(5)),
            (WALL - 999, WALL - 999, Some(5)),
            (WALL - HOUR, WALL - HOUR, Some(5)),
            (WALL + HOUR, WALL + HOUR, Some(5)),
            // A leader that it did not hear of was far ahead.
            (WALL, WALL + HOUR, None),
        ] {
            let mut time = GroupTime::default();
            time.heard(now(0, WALL), 5, theirs);
            assert_eq!(time.lead_in(6, now(0, WALL), last), known, "{theirs} {last}");
        }
    }

    #[test]
    fn a_clock_that_is_set_changes_nothing() {
        let mut time = GroupTime::default();
        time.lead(now(0, WALL), 0);
        assert_eq!(time.at(now(10, WALL + HOUR)), WALL + 10);
        assert_eq!(time.at(now(20, WALL - HOUR)), WALL + 20);
    }

    #[test]
    fn time_does_not_go_back_behind_the_last_entry_and_does_not_stand_still_there() {
        let mut time = GroupTime::default();
        time.lead(now(0, WALL - HOUR), WALL);
        assert_eq!(time.at(now(7, WALL - HOUR + 7)), WALL + 7);
    }

    #[test]
    fn clocks_that_hardly_differ_are_the_same() {
        let mut time = GroupTime::default();
        time.heard(now(0, WALL), 1, WALL + 900);
        time.lead(now(5, WALL + 5), WALL + 900);
        assert_eq!(time.at(now(5, WALL + 5)), WALL + 5);
    }

    #[test]
    fn no_number_is_too_large() {
        let mut time = GroupTime::default();
        time.heard(now(u64::MAX, 0), 1, u64::MAX);
        time.heard(now(0, 0), 2, u64::MAX);
        time.heard(now(u64::MAX, 0), 2, 0);
        time.lead(now(u64::MAX, u64::MAX), u64::MAX);
        time.at(now(u64::MAX, 0));
        time.when(now(u64::MAX, 0), u64::MAX);
    }
}
