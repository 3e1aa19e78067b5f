//! Messages that stand in lines, by their sequence numbers.
//!
//! They come in order and go nearly so, from a window that is much smaller than the numbers: entries lie in a row, what
//! is gone from the middle is marked, and a number is looked for where it would be if none were missing.

use std::collections::VecDeque;
use std::ops::Range;

/// Below so many entries what is gone from the middle stays, and no room is given back.
const SWEPT_FROM: usize = 64;

/// A message's place in the line of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) key: u64,
    /// Who stands behind it.
    pub(super) next: Option<u64>,
    /// It was settled before it was the first. Its place is passed over.
    pub(super) is_over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    seq: u64,
    standing: Standing,
    is_gone: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Standings {
    /// By rising `seq`. The first is not gone, and no more than half are, unless there are few.
    entries: VecDeque<Entry>,
    gone: usize,
}

impl Standings {
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.gone
    }

    /// The lowest number.
    pub(super) fn first(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.seq)
    }

    /// Where a number lies, or where it would.
    fn place(&self, seq: u64) -> Result<usize, usize> {
        let Some(first) = self.first() else { return Err(0) };
        let Some(ahead) = seq.checked_sub(first) else { return Err(0) };
        if self.entries.back().is_some_and(|last| last.seq < seq) {
            return Err(self.entries.len());
        }
        let guess = usize::try_from(ahead).unwrap_or(usize::MAX);
        match self.entries.get(guess) {
            Some(entry) if entry.seq == seq => Ok(guess),
            _ => self.entries.binary_search_by_key(&seq, |entry| entry.seq),
        }
    }

    /// The message is new here.
    pub(super) fn insert(&mut self, seq: u64, key: u64) {
        let standing = Standing { key, next: None, is_over: false };
        let entry = Entry { seq, standing, is_gone: false };
        match self.place(seq) {
            Err(place) => self.entries.insert(place, entry),
            Ok(place) if self.entries[place].is_gone => {
                self.entries[place] = entry;
                self.gone -= 1;
            }
            Ok(_) => unreachable!("a message is asked for its key once"),
        }
    }

    pub(super) fn find(&self, seq: u64) -> Option<&Standing> {
        let entry = &self.entries[self.place(seq).ok()?];
        (!entry.is_gone).then_some(&entry.standing)
    }

    pub(super) fn find_mut(&mut self, seq: u64) -> Option<&mut Standing> {
        let place = self.place(seq).ok()?;
        let entry = &mut self.entries[place];
        (!entry.is_gone).then_some(&mut entry.standing)
    }

    /// The first of a range, and its number.
    pub(super) fn first_of(&mut self, range: Range<u64>) -> Option<(u64, &mut Standing)> {
        let from = self.place(range.start).unwrap_or_else(|place| place);
        let some = self.entries.range_mut(from..).take_while(|entry| entry.seq < range.end);
        let mut there = some.filter(|entry| !entry.is_gone);
        there.next().map(|entry| (entry.seq, &mut entry.standing))
    }

    /// Those of a range, with their numbers.
    pub(super) fn all_of(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Standing)> {
        let from = self.place(range.start).unwrap_or_else(|place| place);
        let some = self.entries.range(from..).take_while(move |entry| entry.seq < range.end);
        some.filter(|entry| !entry.is_gone).map(|entry| (entry.seq, &entry.standing))
    }

    pub(super) fn remove(&mut self, seq: u64) {
        let Ok(place) = self.place(seq) else { return };
        let entry = &mut self.entries[place];
        if entry.is_gone {
            return;
        }
        entry.is_gone = true;
        self.gone += 1;
        while self.entries.front().is_some_and(|entry| entry.is_gone) {
            self.entries.pop_front();
            self.gone -= 1;
        }
        if self.entries.len() >= SWEPT_FROM && self.gone > self.entries.len() / 2 {
            self.entries.retain(|entry| !entry.is_gone);
            self.gone = 0;
        }
        // What many took for a while is given back.
        let few = self.entries.len().max(SWEPT_FROM);
        if self.entries.capacity() > 4 * few {
            self.entries.shrink_to(2 * few);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Beside an ordered map, with numbers in and out of order, with holes, and far apart.
    #[test]
    fn it_holds_what_an_ordered_map_would() {
        let mut chance = 7u64;
        let mut draw = |below: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (chance >> 33) % below
        };
        for far in [1, 3, 1 << 40] {
            let (mut standings, mut map) = (Standings::default(), BTreeMap::new());
            let mut last = 0;
            for step in 0..20_000 {
                match draw(5) {
                    0..=1 => {
                        last += 1 + draw(3) * far;
                        standings.insert(last, step);
                        map.insert(last, step);
                    }
                    2 => {
                        // One in between that is not there.
                        let seq = last.saturating_sub(draw(200));
                        map.entry(seq).or_insert_with(|| {
                            standings.insert(seq, step);
                            step
                        });
                    }
                    3 => {
                        let oldest = map.keys().nth(draw(4) as usize).copied();
                        let seq = oldest.unwrap_or(last);
                        standings.remove(seq);
                        map.remove(&seq);
                    }
                    _ => {
                        let seq = last.saturating_sub(draw(300));
                        standings.remove(seq);
                        map.remove(&seq);
                    }
                }
                assert_eq!(
                    (standings.len(), standings.first()),
                    (map.len(), map.keys().next().copied())
                );
                let seq = last.saturating_sub(draw(300));
                assert_eq!(standings.find(seq).map(|it| it.key), map.get(&seq).copied());
                let end = seq + draw(100);
                let of = |(seq, it): (u64, &Standing)| (seq, it.key);
                let all: Vec<_> = standings.all_of(seq..end).map(of).collect();
                assert_eq!(
                    all,
                    map.range(seq..end).map(|(seq, key)| (*seq, *key)).collect::<Vec<_>>()
                );
                let first = standings.first_of(seq..end).map(|(seq, it)| (seq, it.key));
                assert_eq!(first, all.first().copied());
                assert!(
                    standings.gone <= standings.entries.len() / 2
                        || standings.entries.len() < SWEPT_FROM
                );
            }
        }
    }

    #[test]
    fn what_many_took_is_given_back() {
        let mut standings = Standings::default();
        (0..60_000).for_each(|seq| standings.insert(seq, seq));
        (0..59_990).for_each(|seq| standings.remove(seq));
        assert_eq!(standings.len(), 10);
        assert!(standings.entries.capacity() <= 8 * SWEPT_FROM, "{}", standings.entries.capacity());
    }
}
