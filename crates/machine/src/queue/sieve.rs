//! A subscription with a filter, at its leader: only what the filter matches goes to consumers.
//!
//! The filter is asked of messages in the order of the stream, ahead of those who consume, by whoever has their bytes
//! (`cluster::queues`). What lies behind the place that it has come to is ready and not given out yet. What it does not
//! match is settled as passed over: it was never with anybody, and took up nobody's credit.
//!
//! ```text
//!  ready ──asked──> matches ──> goes to consumers as from any queue, and may come back
//!                      └──> passed over, gathered for the log
//! ```
//!
//! Leader-local. A new leader asks again of all that is open: what was passed over and logged is not.

use std::ops::Range;

use super::{Effect, Queue};
use crate::command::Outcome;
use crate::limits::SIFTED_MESSAGES_MAX;
use crate::ranges::Ranges;

/// How far a filter was asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Sieve {
    /// It was asked of everything below.
    to: u64,
    /// Somebody is about to say what it matches of these.
    asked: Option<Range<u64>>,
    /// Somebody wants the next message that it matches, and does not stand in line for it: a client that fetches, or a
    /// stream that waits for this subscription.
    is_sought: bool,
}

impl Sieve {
    /// It was asked of everything below: that may be given out.
    pub(super) fn to(&self) -> u64 {
        self.to
    }
}

impl Queue {
    /// Whether something that may match is wanted, and nobody looks yet.
    #[inline]
    pub(super) fn wants_sifting(&self) -> bool {
        self.sieve.as_ref().is_some_and(|sieve| {
            let is_wanted =
                sieve.is_sought || (self.consumers.waiting() > 0 && !self.settings.is_paused);
            is_wanted && sieve.asked.is_none() && !self.is_gone && self.has_unsifted(sieve)
        })
    }

    /// Whether nothing is ready that the filter matches, and something that it may.
    fn has_unsifted(&self, sieve: &Sieve) -> bool {
        let waiting = self.main.waiting();
        waiting.first().is_some_and(|first| first >= sieve.to)
    }

    /// Who fetches has found nothing that the filter matches. True: there may be something.
    pub(super) fn seek_match(&mut self) -> bool {
        let Some(sieve) = &self.sieve else { return false };
        let has_more = self.has_unsifted(sieve);
        if let Some(sieve) = &mut self.sieve {
            sieve.is_sought = has_more;
        }
        has_more
    }

    /// The messages of which the filter is to be asked next: they are wanted, and nobody looks.
    pub(super) fn sift(&mut self) -> Option<Range<u64>> {
        if !self.wants_sifting() {
            return None;
        }
        let front = self.main.waiting().first_range()?;
        let end = front.end.min(front.start.saturating_add(SIFTED_MESSAGES_MAX));
        let sieve = self.sieve.as_mut()?;
        sieve.asked = Some(front.start..end);
        sieve.asked.clone()
    }

    /// The filter was asked of `span`, the first of what it was to be asked of or all of that, and does not match `unwanted`.
    pub(super) fn sifted(
        &mut self,
        span: Range<u64>,
        unwanted: &Ranges,
        now_ms: u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(sieve) = &mut self.sieve else { return };
        if sieve.asked.take().is_none_or(|asked| asked.start != span.start) {
            return;
        }
        sieve.to = sieve.to.max(span.end);
        let mut passed = Ranges::new();
        for range in unwanted.within(span).ranges() {
            self.main.reading().take_waiting(range, &mut passed);
        }
        self.main.reader.ready.forget(&passed);
        self.main.reader.gathered.of(Outcome::PassedOver).insert_all(&passed);
        self.serve(now_ms, effects);
        let has_more = self.sieve.as_ref().is_some_and(|sieve| self.has_unsifted(sieve));
        if let Some(sieve) = &mut self.sieve {
            // Whoever seeks one finds one now, or there is none.
            sieve.is_sought &= has_more;
        }
    }

    pub(super) fn is_sought(&self) -> bool {
        self.sieve.as_ref().is_some_and(|sieve| sieve.is_sought)
    }

    /// Nobody looks any more at what the filter was to be asked of.
    pub(super) fn sift_again(&mut self) {
        if let Some(sieve) = &mut self.sieve {
            **sieve = Sieve::default();
        }
    }
}
