//! What a stream must be, held against what its readers see and what its replicas keep.
//!
//! | What is judged | When |
//! | --- | --- |
//! | S1: a reader gets one message after the other, each once; only to what is not kept any more is it not sent | at each delivery |
//! | S2: at an offset lies one message for ever, as it was published, and that message lies nowhere else | at each delivery |
//! | S3: what was confirmed is read by who begins with the first, in the order of each connection that published | when all is read |
//! | S4: retention takes nothing that it keeps, and in the end the rest goes | at each look, and when all is quiet |
//! | S5: who begins with the next, or from a time on, gets all that is published after that | when all is read |

use std::collections::BTreeMap;
use std::ops::Range;

use super::{At, Plan, StreamCounts};
use crate::sim::agenda::Micros;

/// A replica's clock and ours differ by so much where none has jumped, in milliseconds.
const SLACK_MS: u64 = 20;
/// What is too old is gone so long after that: a stride, a look, and a leader that comes late.
const GOES_WITHIN_MS: u64 = 6_000;
/// What is kept beside what should be: the strides at both ends.
const BESIDE_BYTES: u64 = 3 * 64 * 1024;
/// One bug shows in many places.
const VIOLATIONS_MAX: usize = 20;

/// A message that somebody published.
#[derive(Clone, Debug)]
pub(super) struct Published {
    /// Who published it over which connection, and as which of those.
    pub(super) channel: String,
    pub(super) number: u64,
    pub(super) at: Micros,
    /// Of its body.
    pub(super) crc: u32,
    /// Of head and body.
    pub(super) bytes: u64,
}

/// Where somebody wants to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    First,
    Last,
    Next,
    At(u64),
    Since(Micros),
}

/// What is known of a message.
struct Known {
    published: Published,
    is_confirmed: bool,
    /// Where it was read.
    seq: Option<u64>,
}

/// Somebody who is to get everything that was published at `since` or later begins here.
struct Promised {
    reader: String,
    at: u64,
    since: Micros,
    /// Only as long as clocks are right.
    is_by_time: bool,
}

pub(super) struct Shelf {
    pub(super) name: &'static str,
    /// Which one of its partitions.
    pub(super) partition: usize,
    max_bytes: Option<u64>,
    max_age_ms: Option<u64>,
    pub(super) place: Option<At>,
    messages: BTreeMap<String, Known>,
    places: BTreeMap<u64, String>,
    promised: Vec<Promised>,
    /// Where readers went on, though no replica was known that keeps nothing before that.
    jumps: Vec<(String, u64)>,
    /// The oldest message that some replica keeps where the others keep no older one, and behind the newest that any
    /// has.
    first: u64,
    end: u64,
    last_sent: Micros,
    largest: u64,
    smallest: u64,
    pub(super) counts: StreamCounts,
    violations: Vec<String>,
}

impl Shelf {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            name: plan.name,
            partition: plan.partition.0,
            max_bytes: plan.max_bytes,
            max_age_ms: plan.max_age_ms,
            place: None,
            messages: BTreeMap::new(),
            places: BTreeMap::new(),
            promised: Vec::new(),
            jumps: Vec::new(),
            first: 1,
            end: 1,
            last_sent: 0,
            largest: 0,
            smallest: u64::MAX,
            counts: StreamCounts::default(),
            violations: Vec::new(),
        }
    }

    pub(super) fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    pub(super) fn violated(&mut self, text: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(format!("{}: {text}", self.name));
        }
    }

    fn keeps_all(&self) -> bool {
        self.max_bytes.is_none() && self.max_age_ms.is_none()
    }

    /// Behind the newest message.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The oldest message that all replicas keep.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// How many messages are kept.
    pub(super) fn kept(&self) -> u64 {
        self.end.saturating_sub(self.first)
    }

    /// The message at this place, if anybody has seen it.
    pub(super) fn id_at(&self, seq: u64) -> Option<&str> {
        self.places.get(&seq).map(String::as_str)
    }

    /// Whether nothing is left for who has read all before `next`.
    pub(super) fn is_read(&self, next: u64) -> bool {
        next.max(self.first) >= self.end
    }

    pub(super) fn sent(&mut self, id: &str, published: Published) {
        self.last_sent = published.at;
        self.largest = self.largest.max(published.bytes);
        self.smallest = self.smallest.min(published.bytes);
        let known = Known { published, is_confirmed: false, seq: None };
        self.messages.insert(id.to_owned(), known);
    }

    pub(super) fn confirmed(&mut self, id: &str) {
        self.counts.confirmed += 1;
        if let Some(known) = self.messages.get_mut(id) {
            known.is_confirmed = true;
        }
    }

    /// A reader was told at `answered` that it begins at `at`.
    pub(super) fn attached(&mut self, reader: &str, start: Start, at: u64, answered: Micros) {
        self.counts.attached += 1;
        let promise = |since, is_by_time| {
            let reader = reader.to_owned();
            Promised { reader, at, since, is_by_time }
        };
        let wanted = match start {
            Start::First => Some(1),
            Start::At(seq) => Some(seq.max(1)),
            Start::Next => {
                self.promised.push(promise(answered, false));
                None
            }
            Start::Since(time) => {
                self.promised.push(promise(time + SLACK_MS * 1000, true));
                None
            }
            Start::Last => None,
        };
        let Some(wanted) = wanted.filter(|wanted| *wanted != at) else { return };
        if self.keeps_all() || at < wanted {
            self.violated(format!("{reader} wants to begin at {wanted}, and begins at {at}"));
        } else if at > self.first {
            self.jumps.push((reader.to_owned(), at));
        }
    }

    /// A reader that has all before `next` is sent `seq`.
    pub(super) fn goes_on(&mut self, reader: &str, next: u64, seq: u64) {
        if seq < next {
            self.violated(format!("{reader} has all before {next}, and is sent {seq} again"));
        } else if seq > next && self.keeps_all() {
            self.violated(format!("{reader} is sent {seq}, with a gap behind {next}"));
        } else if seq > next {
            self.counts.jumps += 1;
            if seq > self.first {
                self.jumps.push((reader.to_owned(), seq));
            }
        }
    }

    /// Somebody got a message.
    pub(super) fn read(&mut self, seq: u64, id: &str, crc: u32) {
        self.counts.read += 1;
        self.end = self.end.max(seq + 1);
        let place = self.places.entry(seq).or_insert_with(|| id.to_owned());
        if place != id {
            let text = format!("{place} and {id} are both at {seq}");
            return self.violated(text);
        }
        let Some(known) = self.messages.get_mut(id) else {
            return self.violated(format!("nobody published {id}, which is at {seq}"));
        };
        let before = *known.seq.get_or_insert(seq);
        let is_whole = known.published.crc == crc;
        if before != seq {
            self.violated(format!("{id} is there twice: {before} and {seq}"));
        }
        if !is_whole {
            self.violated(format!("{id} at {seq} is not as it was published"));
        }
    }

    /// A replica keeps these now.
    pub(super) fn stands(&mut self, kept: Range<u64>, now: Micros, has_jumped: bool) {
        self.end = self.end.max(kept.end);
        if kept.start > 1 && self.keeps_all() {
            let first = kept.start;
            self.violated(format!("it keeps all, and a replica has none before {first}"));
        }
        if let Some(bytes) = self.max_bytes
            && kept.start > 1
            && (kept.end - kept.start) * self.largest < bytes
        {
            let (first, end, largest) = (kept.start, kept.end, self.largest);
            self.violated(format!(
                "it keeps {first} to {end} of at most {largest} bytes each: less than {bytes} bytes"
            ));
        }
        if kept.start <= self.first {
            return;
        }
        self.first = kept.start;
        self.counts.trims += 1;
        let newest = self.places.range(..kept.start).next_back();
        let newest = newest.and_then(|(_, id)| Some((id, self.messages.get(id)?.published.at)));
        if let Some(age_ms) = self.max_age_ms.filter(|_| !has_jumped)
            && let Some((id, at)) = newest
            && (now - at) / 1000 + SLACK_MS < age_ms
        {
            let text = format!("{id} is gone {} ms after it was published", (now - at) / 1000);
            self.violated(text);
        }
    }

    /// What is kept and should be gone.
    pub(super) fn keeps_too_much(&self, now: Micros, has_jumped: bool) -> Option<String> {
        let (name, count) = (self.name, self.end.saturating_sub(self.first));
        let bytes = count * self.smallest.min(self.largest);
        if self.max_bytes.is_some_and(|max| bytes > max + BESIDE_BYTES) {
            return Some(format!("{name} still keeps {bytes} bytes"));
        }
        let age_ms = self.max_age_ms.filter(|_| !has_jumped && count > 0)?;
        let ms = (now - self.last_sent) / 1000;
        let is_old = ms > age_ms + GOES_WITHIN_MS;
        is_old.then(|| format!("{name} still keeps {count} messages of {ms} ms ago"))
    }

    /// All that there is was read by who began with the first.
    pub(super) fn read_through(&mut self, has_jumped: bool) {
        let mut found = Vec::new();
        if self.keeps_all() {
            let is_lost = |known: &&Known| known.is_confirmed && known.seq.is_none();
            let lost = self.messages.iter().filter(|(_, known)| is_lost(known));
            found.extend(lost.map(|(id, _)| format!("{id} was confirmed, and nobody can read it")));
        }
        let mut last: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (seq, id) in &self.places {
            let Some(Known { published, .. }) = self.messages.get(id) else { continue };
            let number = published.number;
            let before = last.insert(&published.channel, (number, *seq));
            if let Some((before, at)) = before.filter(|(before, _)| *before > number) {
                let channel = &published.channel;
                found
                    .push(format!("{channel}: message {before} is at {at}, and {number} at {seq}"));
            }
        }
        // Who begins with the oldest that is kept does not get what is gone.
        let (keeps_all, first) = (self.keeps_all(), self.first);
        let promised = self.promised.iter().filter(|it| keeps_all || it.at > first);
        for Promised { reader, at, since, is_by_time } in promised {
            let is_missed = |known: &&Known| {
                let is_later = known.published.at > *since;
                is_later && known.seq.is_some_and(|seq| seq < *at) && !(*is_by_time && has_jumped)
            };
            let missed = self.messages.iter().find(|(_, known)| is_missed(known));
            found.extend(missed.map(|(id, _)| {
                let ms = since / 1000;
                format!("{reader} begins at {at}: {id} is before that, and published after {ms} ms")
            }));
        }
        let jumps = std::mem::take(&mut self.jumps);
        let early = jumps.iter().filter(|(_, seq)| *seq > first);
        found.extend(early.map(|(reader, seq)| {
            format!("{reader} went on at {seq}, and what is kept begins with {first}")
        }));
        found.into_iter().for_each(|text| self.violated(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_MS: u64 = 2_000;

    fn shelf(max_bytes: Option<u64>, max_age_ms: Option<u64>) -> Shelf {
        let (body_bytes, writers, readers) = (None, 1, 1);
        let subscription = None;
        Shelf::new(&Plan {
            name: "s",
            max_bytes,
            max_age_ms,
            body_bytes,
            writers,
            readers,
            subscription,
            partition: (0, 1),
            consumers: 0,
            is_keyed: false,
        })
    }

    /// Messages 0 to 9 of one connection, published one each 100 ms and confirmed; `a:0` lies at 1.
    fn filled(mut shelf: Shelf) -> Shelf {
        for number in 0..10 {
            let (channel, at) = ("a".to_owned(), number * 100_000);
            let (id, crc, bytes) = (format!("a:{number}"), number as u32, 1_000);
            shelf.sent(&id, Published { channel, number, at, crc, bytes });
            shelf.confirmed(&id);
        }
        shelf.stands(1..11, 1_000_000, false);
        shelf
    }

    fn all_read(mut shelf: Shelf, numbers: Range<u64>) -> Shelf {
        numbers.for_each(|number| shelf.read(number + 1, &format!("a:{number}"), number as u32));
        shelf
    }

    fn is_broken(mut shelf: Shelf) -> bool {
        shelf.read_through(false);
        !shelf.take_violations().is_empty()
    }

    #[test]
    fn what_readers_get_goes_up_by_one() {
        let goes_on = |next, seq| {
            let mut shelf = all_read(filled(shelf(None, None)), 0..10);
            shelf.goes_on("r", next, seq);
            is_broken(shelf)
        };
        assert!(!goes_on(4, 4));
        assert!(goes_on(4, 5) && goes_on(4, 3));
    }

    #[test]
    fn a_reader_may_leave_out_only_what_is_not_kept() {
        let goes_on = |seq, first| {
            let mut shelf = filled(shelf(Some(1_000), None));
            shelf.goes_on("r", 2, seq);
            shelf.stands(first..11, 2_000_000, false);
            is_broken(shelf)
        };
        assert!(!goes_on(5, 5) && !goes_on(5, 7), "it may have been thrown away just now");
        assert!(goes_on(5, 4) && goes_on(1, 4));
    }

    #[test]
    fn an_offset_has_one_message_and_a_message_one_offset() {
        assert!(!is_broken(all_read(filled(shelf(None, None)), 0..10)));
        for (seq, id, crc) in [(1, "a:1", 1), (11, "a:1", 1), (1, "a:0", 7), (11, "b:0", 0)] {
            let mut shelf = all_read(filled(shelf(None, None)), 0..10);
            shelf.read(seq, id, crc);
            assert!(is_broken(shelf), "{id} at {seq}");
        }
    }

    #[test]
    fn what_was_confirmed_is_there_in_the_order_of_its_connection() {
        assert!(is_broken(all_read(filled(shelf(None, None)), 0..9)), "one is not there");
        assert!(!is_broken(all_read(filled(shelf(Some(1_000), None)), 5..10)));
        let mut swapped = all_read(filled(shelf(None, None)), 0..8);
        swapped.read(9, "a:9", 9);
        swapped.read(10, "a:8", 8);
        assert!(is_broken(swapped));
    }

    #[test]
    fn retention_keeps_what_it_should_and_nothing_else() {
        let bytes = |first: u64| {
            let mut shelf = filled(shelf(Some(4_000), None));
            shelf.stands(first..11, 1_000_000, false);
            is_broken(shelf)
        };
        assert!(!bytes(7) && bytes(8));
        let age = |first: u64, ms: u64, has_jumped| {
            let mut shelf = all_read(filled(shelf(None, Some(AGE_MS))), 0..10);
            shelf.stands(first..11, ms * 1_000, has_jumped);
            is_broken(shelf)
        };
        assert!(!age(3, 2_101, false) && age(3, 2_000, false) && !age(3, 2_000, true));
        let mut all = filled(shelf(None, None));
        all.stands(2..11, 1_000_000, false);
        assert!(is_broken(all_read(all, 0..10)));
    }

    #[test]
    fn what_retention_does_not_keep_is_gone_in_the_end() {
        let mut young = filled(shelf(None, Some(AGE_MS)));
        let at = (900 + AGE_MS + GOES_WITHIN_MS + 100) * 1_000;
        assert!(young.keeps_too_much(at, false).is_some());
        assert!(young.keeps_too_much(at, true).is_none());
        young.stands(11..11, at, false);
        assert!(young.keeps_too_much(at, false).is_none());
        let mut few = filled(shelf(Some(10_000), None));
        assert!(few.keeps_too_much(0, false).is_none());
        few.stands(1..300, 1_000_000, false);
        assert!(few.keeps_too_much(0, false).is_some());
    }

    #[test]
    fn who_begins_with_the_next_gets_all_that_is_published_after_that() {
        let begins = |start, at| {
            let mut shelf = filled(shelf(None, None));
            shelf.attached("r", start, at, 450_000);
            is_broken(all_read(shelf, 0..10))
        };
        assert!(!begins(Start::Next, 6) && !begins(Start::Next, 4) && begins(Start::Next, 7));
        assert!(!begins(Start::Since(450_000), 6) && begins(Start::Since(450_000), 7));
        assert!(!begins(Start::At(4), 4) && begins(Start::At(4), 5) && begins(Start::At(4), 3));
        assert!(!begins(Start::First, 1) && begins(Start::First, 2));
        let mut few = all_read(filled(shelf(Some(1_000), None)), 0..10);
        few.attached("r", Start::Since(450_000), 8, 450_000);
        few.stands(8..11, 1_000_000, false);
        assert!(!is_broken(few), "what is gone is gone");
    }
}
