//! What is asked of messages ahead of those who consume, at the leader: whether a subscription's filter matches them, and
//! which key they have, where messages of one key keep their order.
//!
//! Both stand in the messages, so whoever has their bytes answers (`cluster::queues`): in the order of the stream or
//! queue, and only of what is about to go out. What lies behind the place that has been come to is ready and not given
//! out yet. What a filter does not match is settled as passed over: it was never with anybody, and took up nobody's
//! credit. What has a key waits for its turn (`turns`).
//!
//! ```text
//!  ready ──asked──> matches ──> goes to consumers as from any queue, when it is its turn, and may come back
//!                      └──> passed over, gathered for the log
//! ```
//!
//! Leader-local. A new leader asks again of all that is open: what was passed over and logged is not. It asks first of
//! what consumers hold: others of the same keys wait for that.

use std::ops::Range;

use super::seqs::Seqs;
use super::turns::Turns;
use super::{Effect, Queue};
use crate::command::Outcome;
use crate::limits::SIFTED_MESSAGES_MAX;
use crate::ranges::Ranges;
use crate::settings::Features;

/// How far messages were asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sieve {
    /// Everything below that waited was asked.
    to: u64,
    asked: Option<Asked>,
    /// Somebody wants the next message that may go out, and does not stand in line for it: a client that fetches, or a
    /// stream that waits for this subscription.
    is_sought: bool,
    /// Messages whose key is to be known before anything else goes out: somebody holds them, or they wait for their time
    /// after they came back; or they were not ready when those around them were asked.
    unknown: Ranges,
    /// None: what matches may go out.
    turns: Option<Turns>,
}

/// Somebody is about to answer for these.
#[derive(Clone, Debug)]
struct Asked {
    span: Range<u64>,
    /// They are of the unknown ones.
    is_unknown: bool,
}

/// What was found in the first messages of those that were to be asked.
#[derive(Clone, Debug)]
pub struct Sifted {
    pub span: Range<u64>,
    /// The filter does not match these.
    pub unwanted: Ranges,
    /// The hash of the key of each of `span`, where it has one. Empty: none of them is there any more, or nobody needs it.
    pub keys: Vec<Option<u64>>,
}

impl Sieve {
    /// Of a queue like this, if it has one.
    pub(super) fn of(features: Option<&Features>) -> Option<Box<Self>> {
        let features = features?;
        let turns = features.order.is_some().then(Turns::default);
        let is_one = features.filter.is_some() || turns.is_some();
        is_one.then(|| Box::new(Self { turns, ..Self::default() }))
    }

    /// Nothing was asked.
    pub(super) fn begin_again(&mut self) {
        let turns = self.turns.take().map(Turns::begin_again);
        *self = Self { turns, ..Self::default() };
    }

    /// Everything below was asked: as far as that goes it may be given out.
    pub(super) fn to(&self) -> u64 {
        self.to
    }

    pub(super) fn turns(&self) -> Option<&Turns> {
        self.turns.as_ref()
    }

    pub(super) fn turns_mut(&mut self) -> Option<&mut Turns> {
        self.turns.as_mut()
    }

    /// Whether of those that are `waiting` none may go out as far as is known, and some may for all that is known.
    fn has_unasked(&self, waiting: Seqs<'_>) -> bool {
        match &self.turns {
            None => waiting.first().is_some_and(|first| first >= self.to),
            Some(turns) => {
                let has_room = turns.is_dry() && !turns.is_full();
                !self.unknown.is_empty() || has_room && waiting.range_from(self.to).is_some()
            }
        }
    }

    /// The messages that are to be asked next.
    fn ask(&mut self, waiting: Seqs<'_>) -> Option<Range<u64>> {
        let unknown = self.unknown.first_range();
        let is_unknown = unknown.is_some();
        let front = unknown.or_else(|| waiting.range_from(self.to))?;
        let span = front.start..front.end.min(front.start.saturating_add(SIFTED_MESSAGES_MAX));
        self.asked = Some(Asked { span: span.clone(), is_unknown });
        Some(span)
    }

    /// Takes note of an answer. False: nobody asked.
    fn answered(&mut self, span: &Range<u64>) -> bool {
        let asked = self.asked.take().filter(|asked| asked.span.start == span.start);
        if asked.as_ref().is_some_and(|asked| !asked.is_unknown) {
            self.to = self.to.max(span.end);
        }
        asked.is_some()
    }

    /// The keys of messages are known, of which some are `waiting`.
    fn line_up(&mut self, Sifted { span, unwanted, keys }: &Sifted, waiting: Seqs<'_>) {
        let Some(turns) = &mut self.turns else { return };
        let (end, is_waiting) = waiting.uniform(span);
        let all_wait = is_waiting && end == span.end && self.unknown.is_empty();
        for (seq, key) in span.clone().zip(keys) {
            let is_ready = all_wait || waiting.contains(seq);
            // What was settled meanwhile is neither. What came back meanwhile may stand already.
            let is_there = is_ready || self.unknown.contains(seq);
            if is_there && !turns.stands(seq) && !unwanted.contains(seq) {
                turns.stand(seq, *key, is_ready);
            }
        }
        self.unknown.remove(span.clone());
    }

    /// These are ready again.
    pub(super) fn come_back(&mut self, ranges: &Ranges) {
        let Some(turns) = &mut self.turns else { return };
        if planted::is("key_freed_by_nack") {
            ranges.ranges().for_each(|range| turns.settled(range));
            return ranges.iter().for_each(|seq| turns.stand(seq, None, true));
        }
        for seq in ranges.iter() {
            if !turns.come_back(seq) && seq < self.to {
                self.unknown.insert(seq..seq + 1);
            }
        }
    }

    /// Somebody has these, which were given out by another leader; or they wait for their time since they came back.
    pub(super) fn hold(&mut self, ranges: &Ranges) {
        let Some(turns) = &mut self.turns else { return };
        ranges.ranges().for_each(|range| turns.take(range));
        for seq in ranges.iter().filter(|seq| !turns.stands(*seq)) {
            self.unknown.insert(seq..seq + 1);
        }
    }

    /// These are settled for good.
    pub(super) fn settled(&mut self, range: Range<u64>) {
        let Some(turns) = &mut self.turns else { return };
        if !self.unknown.is_empty() {
            self.unknown.remove(range.clone());
        }
        turns.settled(range);
    }
}

impl Queue {
    /// Whether something that may go out is wanted, and nobody looks yet.
    #[inline]
    pub(super) fn wants_sifting(&self) -> bool {
        let Some(sieve) = &self.main.reader.sieve else { return false };
        let is_wanted =
            sieve.is_sought || (self.consumers.waiting() > 0 && !self.settings.is_paused);
        is_wanted && sieve.asked.is_none() && !self.is_gone && self.has_unasked()
    }

    fn has_unasked(&self) -> bool {
        let sieve = self.main.reader.sieve.as_ref();
        sieve.is_some_and(|sieve| sieve.has_unasked(self.main.waiting()))
    }

    /// Who fetches has found nothing that may go out. True: there may be something.
    pub(super) fn seek_match(&mut self) -> bool {
        let has_more = self.has_unasked();
        if let Some(sieve) = &mut self.main.reader.sieve {
            sieve.is_sought = has_more;
        }
        has_more
    }

    /// The messages that are to be asked next: they are wanted, and nobody looks.
    pub(super) fn sift(&mut self) -> Option<Range<u64>> {
        if !self.wants_sifting() {
            return None;
        }
        let end = self.main.store.end();
        let reader = &mut self.main.reader;
        let (sieve, waiting) = (reader.sieve.as_mut()?, reader.ready.waiting(end));
        sieve.ask(waiting)
    }

    /// What was found in messages that were to be asked.
    pub(super) fn sifted(&mut self, sifted: &Sifted, now_ms: u64, effects: &mut Vec<Effect>) {
        let end = self.main.store.end();
        let sieve = self.main.reader.sieve.as_mut();
        if !sieve.is_some_and(|sieve| sieve.answered(&sifted.span)) {
            return;
        }
        let mut passed = Ranges::new();
        for range in sifted.unwanted.within(sifted.span.clone()).ranges() {
            self.main.reading().take_waiting(range, &mut passed);
        }
        let reader = &mut self.main.reader;
        reader.ready.forget(&passed);
        reader.gathered.of(Outcome::PassedOver).insert_all(&passed);
        if let Some(sieve) = &mut reader.sieve {
            sieve.line_up(sifted, reader.ready.waiting(end));
        }
        self.serve(now_ms, effects);
        let has_more = self.has_unasked();
        if let Some(sieve) = &mut self.main.reader.sieve {
            // Whoever seeks one finds one now, or there is none.
            sieve.is_sought &= has_more;
        }
    }

    pub(super) fn turns(&self) -> Option<&Turns> {
        self.main.reader.sieve.as_ref()?.turns()
    }

    pub(super) fn turns_mut(&mut self) -> Option<&mut Turns> {
        self.main.reader.sieve.as_mut()?.turns_mut()
    }

    /// Whether something may go out now that had to wait for another message of its key.
    pub(super) fn has_free_keys(&self) -> bool {
        self.turns().is_some_and(|turns| !turns.is_dry())
    }

    pub(super) fn is_sought(&self) -> bool {
        self.main.reader.sieve.as_ref().is_some_and(|sieve| sieve.is_sought)
    }
}
