//! Publisher confirms of one channel: which publishes are logged, and what the client is told of them.
//!
//! Publishes are kept as runs, not one by one. A run is over when every append that carries a part
//! of it has been answered; finished runs at the front become one `basic.ack` with `multiple`. Runs
//! that finish behind an unfinished one wait a little for it and are then told singly.

use std::collections::VecDeque;

/// Confirms of one channel.
#[derive(Debug)]
pub(crate) struct Confirms {
    /// The publish seq of the next publish: they count from 1.
    next_seq: u64,
    runs: VecDeque<Run>,
    /// The number of the first of `runs`; runs are numbered from 0 on.
    first_run: u64,
    /// Runs that are over and that the client was not told of.
    finished: usize,
    /// Publishes that the client was told of.
    told: u64,
    /// Those of them that are logged.
    acked: u64,
}

/// Publishes in a row that wait for the same appends.
#[derive(Debug)]
struct Run {
    first: u64,
    last: u64,
    /// The appends it waits for, as places of `appends` in that round.
    slots: u64,
    round: u64,
    unanswered: u32,
    failed: bool,
    told: bool,
}

impl Run {
    /// How many they are.
    fn publishes(&self) -> u64 {
        self.last - self.first + 1
    }
}

/// What the client is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ack { seq: u64, multiple: bool },
    Nack { seq: u64, multiple: bool },
}

impl Default for Confirms {
    fn default() -> Self {
        Self { next_seq: 1, runs: VecDeque::new(), first_run: 0, finished: 0, told: 0, acked: 0 }
    }
}

impl Confirms {
    /// Counts a publish that waits for the appends in `slots` of this `round`; none: it is done.
    /// Gives the run's number if a new run begins, which those appends must remember.
    #[inline]
    pub(crate) fn expect(&mut self, slots: u64, round: u64) -> Option<u64> {
        let seq = self.next_seq;
        self.next_seq += 1;
        if let Some(last) = self.runs.back_mut()
            && last.slots == slots
            && last.round == round
            && !last.told
            && !last.failed
            && (slots == 0) == (last.unanswered == 0)
        {
            last.last = seq;
            return None;
        }
        self.finished += usize::from(slots == 0);
        Some(self.begin(seq, slots, round, slots.count_ones()))
    }

    /// Counts a publish that waits for `appends` of several rounds. Gives its run's number.
    pub(crate) fn expect_wide(&mut self, appends: u32) -> u64 {
        assert!(appends > 0, "a wide publish waits for something");
        let seq = self.next_seq;
        self.next_seq += 1;
        self.begin(seq, 0, 0, appends)
    }

    /// Begins a run. Gives its number.
    fn begin(&mut self, seq: u64, slots: u64, round: u64, unanswered: u32) -> u64 {
        let is_next = self.runs.back().is_none_or(|before| before.last + 1 == seq);
        assert!(is_next, "a run begins where the one before it ends: `multiple` covers both");
        let number = self.first_run + self.runs.len() as u64;
        let (failed, told) = (false, false);
        self.runs.push_back(Run { first: seq, last: seq, slots, round, unanswered, failed, told });
        number
    }

    /// One of the appends that `run` waits for was answered.
    pub(crate) fn answered(&mut self, run: u64, logged: bool) {
        let Some(place) = run.checked_sub(self.first_run) else { return };
        let Some(run) = usize::try_from(place).ok().and_then(|at| self.runs.get_mut(at)) else {
            return;
        };
        assert!(run.unanswered > 0, "an append was answered twice");
        run.unanswered -= 1;
        run.failed |= !logged;
        self.finished += usize::from(run.unanswered == 0);
    }

    /// The number of the last run, if it is not over: the last publish is in it.
    pub(crate) fn last_open(&self) -> Option<u64> {
        let last = self.runs.back().filter(|run| run.unanswered > 0)?;
        assert_eq!(last.last + 1, self.next_seq, "the last run ends with the last publish");
        Some(self.first_run + self.runs.len() as u64 - 1)
    }

    /// Whether all of a run is logged, if it is over and the client was not told of it.
    pub(crate) fn outcome(&self, run: u64) -> Option<bool> {
        let place = usize::try_from(run.checked_sub(self.first_run)?).ok()?;
        let run = self.runs.get(place).filter(|run| run.unanswered == 0)?;
        Some(!run.failed)
    }

    /// Takes the finished runs off the front and says what the client is told of them.
    pub(crate) fn tell(&mut self, mut say: impl FnMut(Verdict)) {
        let mut alike: Option<Alike> = None;
        while let Some(run) = self.runs.front()
            && run.unanswered == 0
        {
            if !run.told {
                assert!(self.finished > 0, "a run that is over was counted");
                self.finished -= 1;
                self.told += run.publishes();
                self.acked += if run.failed { 0 } else { run.publishes() };
                match &mut alike {
                    Some(alike) if alike.failed == run.failed => alike.last = run.last,
                    other => {
                        let Run { first, last, failed, .. } = *run;
                        if let Some(before) = other.replace(Alike { first, last, failed }) {
                            say(before.verdict());
                        }
                    }
                }
            }
            self.runs.pop_front();
            self.first_run += 1;
        }
        if let Some(alike) = alike {
            say(alike.verdict());
        }
        assert!(self.told < self.next_seq, "the client is told of what it has published");
    }

    /// Whether something finished waits behind something that did not.
    pub(crate) fn is_held_up(&self) -> bool {
        self.finished > 0
    }

    /// Tells what finished behind something that did not: one by one, for `multiple` would cover both.
    pub(crate) fn tell_held_up(&mut self, mut say: impl FnMut(Verdict)) {
        self.tell(&mut say);
        self.finished = 0;
        for run in self.runs.iter_mut().filter(|run| run.unanswered == 0 && !run.told) {
            run.told = true;
            self.told += run.publishes();
            self.acked += if run.failed { 0 } else { run.publishes() };
            for seq in run.first..=run.last {
                say(match run.failed {
                    true => Verdict::Nack { seq, multiple: false },
                    false => Verdict::Ack { seq, multiple: false },
                });
            }
        }
        assert!(self.told < self.next_seq, "the client is told of what it has published");
    }

    /// Publishes that the client was not told of.
    pub(crate) fn unconfirmed(&self) -> u64 {
        self.next_seq - 1 - self.told
    }

    /// Publishes that the client was told of with an ack.
    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }
}

/// Finished publishes in a row, with the same end.
struct Alike {
    first: u64,
    last: u64,
    failed: bool,
}

impl Alike {
    fn verdict(&self) -> Verdict {
        let (seq, multiple) = (self.last, self.first != self.last);
        match self.failed {
            true => Verdict::Nack { seq, multiple },
            false => Verdict::Ack { seq, multiple },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(confirms: &mut Confirms) -> Vec<Verdict> {
        let mut all = Vec::new();
        confirms.tell(|verdict| all.push(verdict));
        all
    }

    #[test]
    fn publishes_of_one_read_for_one_group_are_one_run_and_one_ack() {
        let mut confirms = Confirms::default();
        assert_eq!(confirms.expect(0b1, 1), Some(0));
        assert_eq!(confirms.expect(0b1, 1), None);
        assert_eq!(confirms.expect(0b1, 1), None);
        assert!(told(&mut confirms).is_empty());
        confirms.answered(0, true);
        assert_eq!(told(&mut confirms), [Verdict::Ack { seq: 3, multiple: true }]);
    }

    #[test]
    fn a_publish_to_two_groups_is_confirmed_when_both_have_it() {
        let mut confirms = Confirms::default();
        assert_eq!(confirms.last_open(), None);
        confirms.expect(0b11, 1);
        assert_eq!((confirms.last_open(), confirms.outcome(0)), (Some(0), None));
        confirms.answered(0, true);
        assert!(told(&mut confirms).is_empty());
        assert_eq!((confirms.last_open(), confirms.outcome(0)), (Some(0), None));
        confirms.answered(0, true);
        assert_eq!((confirms.last_open(), confirms.outcome(0)), (None, Some(true)));
        assert_eq!(confirms.outcome(1), None);
        assert_eq!(told(&mut confirms), [Verdict::Ack { seq: 1, multiple: false }]);
    }

    #[test]
    fn an_unroutable_publish_waits_for_nothing_but_its_turn() {
        let mut confirms = Confirms::default();
        confirms.expect(0b1, 1);
        confirms.expect(0, 1);
        assert!(told(&mut confirms).is_empty());
        assert!(confirms.is_held_up());
        confirms.answered(0, true);
        assert_eq!(told(&mut confirms), [Verdict::Ack { seq: 2, multiple: true }]);
    }

    #[test]
    fn a_run_behind_a_slow_one_is_told_singly_and_never_twice() {
        let mut confirms = Confirms::default();
        confirms.expect(0b01, 1);
        confirms.expect(0b10, 1);
        confirms.expect(0b10, 1);
        confirms.answered(1, true);
        let mut all = Vec::new();
        confirms.tell_held_up(|verdict| all.push(verdict));
        let single = |seq| Verdict::Ack { seq, multiple: false };
        assert_eq!(all, [single(2), single(3)]);
        assert!(!confirms.is_held_up());
        confirms.answered(0, true);
        assert_eq!(told(&mut confirms), [single(1)]);
        assert_eq!((confirms.told, confirms.acked()), (3, 3));
    }

    #[test]
    fn a_publish_to_more_groups_than_a_round_has_waits_for_all_of_them() {
        let mut confirms = Confirms::default();
        assert_eq!(confirms.expect_wide(2), 0);
        assert_eq!(confirms.expect(0, 0), Some(1));
        confirms.answered(0, true);
        assert!(told(&mut confirms).is_empty());
        confirms.answered(0, true);
        assert_eq!(told(&mut confirms), [Verdict::Ack { seq: 2, multiple: true }]);
    }

    #[test]
    fn a_failed_run_is_nacked_between_the_acks_around_it() {
        let mut confirms = Confirms::default();
        confirms.expect(0b001, 1);
        confirms.expect(0b010, 1);
        confirms.expect(0b100, 1);
        confirms.answered(0, true);
        confirms.answered(1, false);
        confirms.answered(2, true);
        let ack = |seq| Verdict::Ack { seq, multiple: false };
        let nack = Verdict::Nack { seq: 2, multiple: false };
        assert_eq!(told(&mut confirms), [ack(1), nack, ack(3)]);
    }

    #[test]
    fn publishes_that_failed_in_a_row_are_one_nack() {
        let mut confirms = Confirms::default();
        (0..5).for_each(|_| _ = confirms.expect_wide(1));
        (0..5).for_each(|run| confirms.answered(run, run == 4));
        let nack = Verdict::Nack { seq: 4, multiple: true };
        assert_eq!(told(&mut confirms), [nack, Verdict::Ack { seq: 5, multiple: false }]);
        assert_eq!((confirms.told, confirms.acked()), (5, 1));
    }

    #[test]
    fn the_same_slots_in_a_later_round_are_another_run() {
        let mut confirms = Confirms::default();
        assert_eq!(confirms.expect(0b1, 1), Some(0));
        assert_eq!(confirms.expect(0b1, 2), Some(1));
        confirms.answered(0, true);
        assert_eq!(told(&mut confirms), [Verdict::Ack { seq: 1, multiple: false }]);
    }
}
