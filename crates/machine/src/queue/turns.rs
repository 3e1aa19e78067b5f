//! Order by key, at the leader: of messages with the same key one is out at a time.
//!
//! ```text
//!  key a:  11 ── 14 ── 15        14 and 15 wait for 11, wherever that is: ready, held, or delayed after it came back
//!  key b:  12
//!          13                    it has no key, and waits for nothing
//! ```
//!
//! A message stands in the line of its key from when its key is known until it is settled for good. Only the first of a
//! line may go out. A message that comes back is still the first, so others of its key wait for it, and those of other
//! keys do not. Keys are known by their hashes: two keys with the same hash share a line, which costs them time alone.
//!
//! Leader-local. Where the keys come from, `sieve` says.

use std::collections::btree_map::{Entry, OccupiedEntry};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::key_pace::KeyPace;
use super::seqs::Seqs;
use super::standing::{Standing, Standings};
use crate::limits::BEHIND_KEYS_MAX;
use crate::ranges::Ranges;
use crate::settings::Rate;

/// Whose turn it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    /// Messages that stand in lines.
    standing: Standings,
    /// By the hash of the key.
    lines: BTreeMap<u64, Line>,
    /// The firsts of lines, and messages without a key, that were ready when they were put here: what may go out.
    free: Ranges,
    /// How fast the messages of each key may go. None: as they like.
    pace: Option<Box<KeyPace>>,
    /// Keys whose first message waits for its time.
    late: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    first: u64,
    last: u64,
}

impl Turns {
    /// Nobody stands in any line. What went out was charged.
    pub(super) fn begin_again(self) -> Self {
        Self { pace: self.pace, ..Self::default() }
    }

    /// The key of a message is known, or that it has none. `is_ready`: nobody holds it.
    pub(crate) fn stand(&mut self, seq: u64, key: Option<u64>, is_ready: bool) {
        let Some(key) = key else {
            if is_ready {
                self.free.insert(seq..seq + 1);
            }
            return;
        };
        self.standing.insert(seq, key);
        match self.lines.entry(key) {
            Entry::Occupied(line) => {
                let last = std::mem::replace(&mut line.into_mut().last, seq);
                let last = self.standing.find_mut(last).expect("the last of a line stands in it");
                last.next = Some(seq);
            }
            Entry::Vacant(line) => {
                line.insert(Line { first: seq, last: seq });
                if is_ready {
                    self.free.insert(seq..seq + 1);
                }
            }
        }
    }

    /// Whether it stands in a line.
    pub(crate) fn stands(&self, seq: u64) -> bool {
        self.standing.find(seq).is_some()
    }

    /// It is ready again. False: it stands in no line.
    pub(crate) fn come_back(&mut self, seq: u64) -> bool {
        let Some(standing) = self.standing.find(seq) else { return false };
        if self.lines.get(&standing.key).is_some_and(|line| line.first == seq) {
            self.free.insert(seq..seq + 1);
        }
        true
    }

    /// These are settled for good: it is the turn of those behind them.
    pub(crate) fn settled(&mut self, range: Range<u64>) {
        if !self.free.is_empty() {
            self.free.remove(range.clone());
        }
        // What a consumer has settled is told of twice: when it does, and when the log has it.
        if self.standing.first().is_none_or(|first| first >= range.end) {
            return;
        }
        let mut from = range.start;
        while let Some((seq, standing)) = self.standing.first_of(from..range.end) {
            from = seq + 1;
            let Standing { key, next, .. } = *standing;
            match self.lines.entry(key) {
                Entry::Occupied(line) if line.get().first == seq => {
                    self.standing.remove(seq);
                    advance(&mut self.standing, line, next, &mut self.free);
                }
                Entry::Occupied(_) | Entry::Vacant(_) => standing.is_over = true,
            }
        }
    }

    /// Somebody has them, or they are not ready any more.
    pub(crate) fn take(&mut self, range: Range<u64>) {
        self.free.remove(range);
    }

    /// They go out.
    pub(crate) fn go(&mut self, range: Range<u64>) {
        if let Some(pace) = &mut self.pace {
            let going = self.standing.all_of(range.clone());
            going.for_each(|(_, standing)| pace.take(standing.key));
        }
        self.free.remove(range);
    }

    /// How fast the messages of each key may go from here on.
    pub(crate) fn set_pace(&mut self, pace: Option<KeyPace>) {
        self.pace = pace.map(Box::new);
        self.release(u64::MAX);
    }

    /// The rate of each key is another one from here on.
    pub(crate) fn change_rate(&mut self, rate: Option<Rate>, now_ms: u64) {
        match (&mut self.pace, rate) {
            (Some(pace), Some(rate)) => pace.change(rate, now_ms),
            (None, Some(rate)) => self.pace = Some(Box::new(KeyPace::empty(rate, now_ms))),
            (_, None) => self.pace = None,
        }
        self.release(u64::MAX);
    }

    /// The keys that waited up to `now_ms` may go on.
    fn release(&mut self, now_ms: u64) {
        while let Some(&(due_ms, key)) = self.late.first().filter(|(due_ms, _)| *due_ms <= now_ms) {
            self.late.remove(&(due_ms, key));
            if let Some(line) = self.lines.get(&key) {
                self.free.insert(line.first..line.first + 1);
            }
        }
    }

    /// When a key may go on that waits for nothing but its rate.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.late.first().map(|(due_ms, _)| *due_ms)
    }

    /// What of a run may go by the rate of each key, counted from its start. `None`: the first may not, and waits.
    fn paced(&mut self, run: Range<u64>, now_ms: u64) -> Option<Range<u64>> {
        let Some(pace) = &mut self.pace else { return Some(run) };
        for (seq, standing) in self.standing.all_of(run.clone()) {
            let Err(due_ms) = pace.has(standing.key, now_ms) else { continue };
            if seq > run.start {
                return Some(run.start..seq);
            }
            self.free.remove(seq..seq + 1);
            self.late.insert((due_ms, standing.key));
            return None;
        }
        Some(run)
    }

    /// The first messages whose turn it is, as far as they lie together, of those that are `waiting`.
    pub(crate) fn next(&mut self, waiting: Seqs<'_>, now_ms: u64) -> Option<Range<u64>> {
        self.release(now_ms);
        loop {
            let free = self.free.first_range()?;
            let (end, is_waiting) = waiting.uniform(&free);
            if is_waiting {
                match self.paced(free.start..end, now_ms) {
                    Some(run) => return Some(run),
                    None => continue,
                }
            }
            // Others took them from where they lay, or they are to be settled: if they come back, they are told of.
            self.free.remove(free.start..end);
        }
    }

    /// Whether nothing is known that may go out.
    pub(crate) fn is_dry(&self) -> bool {
        self.free.is_empty()
    }

    /// Whether so many wait behind others of their keys, or for the rate of their keys, that no more are looked at.
    pub(crate) fn is_full(&self) -> bool {
        self.behind() + self.late.len() >= BEHIND_KEYS_MAX
    }

    /// How many wait behind others of their keys.
    pub(crate) fn behind(&self) -> usize {
        self.standing.len() - self.lines.len()
    }

    /// What must be true between calls. For tests: it looks at everything.
    pub(crate) fn check(&self) {
        let mut stood = 0;
        for (key, line) in &self.lines {
            let mut at = Some(line.first);
            let mut last = line.first;
            let of = |seq| self.standing.find(seq).expect("who is in a line stands");
            assert!(!of(line.first).is_over, "the first of a line is not settled");
            while let Some(seq) = at {
                let standing = of(seq);
                assert_eq!(standing.key, *key, "who stands in a line has its key");
                (last, at) = (seq, standing.next);
                stood += 1;
            }
            assert_eq!(last, line.last, "a line ends with its last");
        }
        assert_eq!(stood, self.standing.len(), "who stands, stands in a line");
        for seq in self.free.iter() {
            if let Some(standing) = self.standing.find(seq) {
                assert_eq!(self.lines[&standing.key].first, seq, "only the first may go out");
            }
        }
    }
}

/// The next in line that is not settled is the first, and free. Nobody: the line is gone.
fn advance(
    standing: &mut Standings,
    mut line: OccupiedEntry<'_, u64, Line>,
    mut next: Option<u64>,
    free: &mut Ranges,
) {
    while let Some(seq) = next {
        let behind = *standing.find(seq).expect("who is in a line stands");
        if !behind.is_over {
            line.get_mut().first = seq;
            free.insert(seq..seq + 1);
            return;
        }
        standing.remove(seq);
        next = behind.next;
    }
    line.remove();
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<u64> = Some(1);
    const B: Option<u64> = Some(2);

    fn all() -> Ranges {
        Ranges::from(1..100)
    }

    fn of(keys: &[Option<u64>]) -> Turns {
        let mut turns = Turns::default();
        (1..).zip(keys).for_each(|(seq, key)| turns.stand(seq, *key, true));
        turns.check();
        turns
    }

    #[test]
    fn the_first_of_each_key_and_what_has_none_may_go_out() {
        let mut turns = of(&[A, B, None, A, A, B]);
        assert_eq!(turns.next((&all()).into(), 0), Some(1..4));
        assert_eq!(turns.behind(), 3);
        turns.take(1..4);
        assert!(turns.is_dry());
        turns.settled(1..2);
        assert_eq!(turns.next((&all()).into(), 0), Some(4..5), "the next of its key");
        turns.check();
    }

    #[test]
    fn what_comes_back_is_still_the_first() {
        let mut turns = of(&[A, A]);
        turns.take(1..2);
        assert!(turns.come_back(1));
        assert_eq!(turns.next((&all()).into(), 0), Some(1..2));
        assert!(turns.come_back(2), "it stands, and it is not its turn");
        assert!(!turns.come_back(3));
        assert_eq!(turns.next((&all()).into(), 0), Some(1..2));
    }

    #[test]
    fn what_is_settled_within_a_line_is_passed_over() {
        let mut turns = of(&[A, A, A, A]);
        turns.take(1..2);
        turns.settled(2..4);
        turns.check();
        assert!(turns.is_dry());
        turns.settled(1..2);
        turns.check();
        assert_eq!(turns.next((&all()).into(), 0), Some(4..5));
        turns.settled(4..5);
        turns.check();
        assert!(turns.is_dry() && turns.behind() == 0 && turns.lines.is_empty());
    }

    #[test]
    fn so_many_keys_wait_for_their_rate_and_no_more_are_looked_at() {
        let mut turns = Turns::default();
        let hourly = Rate::new(1, 3_600_000).unwrap();
        turns.set_pace(Some(KeyPace::empty(hourly, 0)));
        let keys = BEHIND_KEYS_MAX as u64;
        (1..keys).for_each(|seq| turns.stand(seq, Some(seq), true));
        let waiting = Ranges::from(1..keys + 1);
        assert_eq!(turns.next((&waiting).into(), 0), None);
        assert!(turns.is_dry() && !turns.is_full());
        turns.stand(keys, Some(keys), true);
        assert_eq!(turns.next((&waiting).into(), 0), None);
        assert!(turns.is_full());
        assert_eq!(turns.due_ms(), Some(3_600_000));
        assert_eq!(turns.next((&waiting).into(), 3_600_000), Some(1..keys + 1));
    }

    #[test]
    fn what_does_not_wait_any_more_does_not_go_out() {
        let mut turns = of(&[A, B, None]);
        let waiting = Ranges::from(2..4);
        assert_eq!(turns.next((&waiting).into(), 0), Some(2..4));
    }
}
