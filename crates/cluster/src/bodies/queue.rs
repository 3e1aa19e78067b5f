//! The bytes of one queue: what waits for them, what has them, and what is read next.

use std::ops::Range;

use machine::{QueueId, Ranges, Seqs};

use super::extents::Extents;
use super::gathering::Gathering;
use super::leaves::Leaves;
use super::outbox::Outbox;
use super::plan::Plan;
use super::store::StoreView;
use super::window::Window;
use super::{Readers, Run, Step};
use crate::limits::{FETCHES_FRUITLESS_MAX, READ_AHEAD_BYTES, READ_AHEAD_RUNS};

#[derive(Debug, Default)]
pub(super) struct QueueBodies {
    pub(super) extents: Extents,
    pub(super) window: Window,
    /// What belongs at the end of the window when the entry is applied.
    pub(super) gathering: Option<Gathering>,
    pub(super) outbox: Outbox,
    /// Subscriptions read this stream, or did.
    pub(super) is_read: bool,
    pub(super) leaves: Leaves,
    /// What is to be asked before it goes out.
    pub(super) sifting: Option<Range<u64>>,
    /// One fetch at a time, for both. Each brings at least some of what it asks for first.
    pub(super) fetching: bool,
    is_turn_of_leaves: bool,
    /// The dead-letter worker has not too much already.
    pub(super) may_leave: bool,
    /// Something in the outbox had to wait since it was empty.
    pub(super) has_waited: bool,
    /// Deliveries that wait for the log leave below this. What an earlier leader here was told is still true.
    pub(super) marked_to: u64,
    /// Everything below was sent at least once.
    pub(super) sent_to: u64,
    /// The last fetch brought nothing: reading ahead waits until something else happens.
    pub(super) is_dry: bool,
    /// Fetches in a row that did not bring what is waited for.
    pub(super) fruitless: u32,
}

impl QueueBodies {
    /// What it has in memory.
    pub(super) fn hot_bytes(&self) -> usize {
        self.window.bytes() + self.leaves.window.bytes()
    }

    /// Whether anything waits for bytes.
    pub(super) fn is_waiting(&self) -> bool {
        !self.outbox.is_empty() || !self.leaves.is_empty() || self.sifting.is_some()
    }

    /// Whether the delivery that is next here has its bytes and need not wait for the log.
    pub(super) fn may_deliver(&self, stream: Option<StoreView<'_>>) -> bool {
        self.outbox.due(self.marked_to).is_some_and(|(first, _)| self.holds(first, stream))
    }

    /// Whether a message is in memory: here, or in the stream that this reads.
    fn holds(&self, seq: u64, stream: Option<StoreView<'_>>) -> bool {
        self.window.holds(seq) || stream.is_some_and(|stream| stream.window.holds(seq))
    }

    /// What of `span` is not.
    fn missing(
        &self,
        span: Range<u64>,
        stream: Option<StoreView<'_>>,
    ) -> impl Iterator<Item = Range<u64>> {
        let missing = self.window.missing(span).into_iter();
        missing.flat_map(move |span| match stream {
            Some(stream) => stream.window.missing(span),
            None => vec![span],
        })
    }

    /// `stream`: what this reads, if it is a subscription.
    pub(super) fn next<'a>(
        &mut self,
        queue: QueueId,
        readers: impl Fn() -> Readers<'a>,
        stream: Option<StoreView<'_>>,
        (is_tight, is_its_turn): (bool, bool),
    ) -> Option<Step> {
        let store = stream.map_or(queue, |stream| stream.queue);
        if self.may_leave
            && let Some(step) = self.leave(store, stream)
        {
            return Some(step);
        }
        if is_its_turn && let Some(step) = self.deliver(store, stream, &readers) {
            return Some(step);
        }
        if let Some(sift) = self.sift(store, stream, &readers) {
            return Some(Step::Sift(sift));
        }
        self.has_waited = !self.outbox.is_empty();
        if self.fetching {
            return None;
        }
        if !self.is_waiting() {
            let end = stream.map_or(&self.extents, |stream| stream.extents).end();
            let is_all_sent = end.is_none_or(|end| end <= self.sent_to);
            let is_idle = is_tight || is_all_sent || self.is_dry;
            return if is_idle { None } else { self.read_ahead(readers(), stream) };
        }
        self.is_turn_of_leaves = !self.is_turn_of_leaves;
        let is_unmarked = self.outbox.is_unmarked(self.marked_to);
        let may_deliver = is_its_turn && !is_unmarked;
        let parts = self.plan(readers(), stream, is_tight || !may_deliver).into_parts();
        let is_held_up =
            (!may_deliver || (self.outbox.is_empty() && !self.may_leave)) && self.sifting.is_none();
        if parts.is_empty() && is_held_up {
            return None;
        }
        let firsts = || (self.outbox.front(), self.leaves.front());
        assert!(!parts.is_empty(), "messages of {queue:?} go out and lie nowhere: {:?}", firsts());
        assert!(
            self.fruitless < FETCHES_FRUITLESS_MAX,
            "messages {:?} of {queue:?} are not where they should be: {parts:?}",
            firsts()
        );
        self.fetching = true;
        Some(Step::Fetch { parts })
    }

    fn leave(&mut self, store: QueueId, stream: Option<StoreView<'_>>) -> Option<Step> {
        let (first, count) = self.leaves.front()?;
        let read = self.leaves.window.take(store, first, count);
        // What has just expired is still about to be delivered.
        let run = read.or_else(|| self.window.copy(store, first, count));
        let run = run.or_else(|| stream?.window.copy(store, first, count))?;
        self.fruitless = 0;
        let leave = self.leaves.sent(run.count);
        Some(Step::Leave { leave, bytes: run.bytes })
    }

    fn deliver<'a>(
        &mut self,
        store: QueueId,
        stream: Option<StoreView<'_>>,
        readers: &impl Fn() -> Readers<'a>,
    ) -> Option<Step> {
        let (first, count) = self.outbox.due(self.marked_to)?;
        let run = self.window.take(store, first, count);
        // What lies in the stream stays there for others.
        let run = run.or_else(|| stream?.window.copy(store, first, count))?;
        self.fruitless = 0;
        self.sent_to = self.sent_to.max(run.end());
        let outgoing = self.outbox.sent(run.count);
        if self.has_waited {
            // If it was settled while it waited, its places were kept for this.
            self.forget_dead(run.span(), readers().kept);
        }
        Some(Step::Deliver { outgoing, bytes: run.bytes })
    }

    /// What waits and, unless memory `is_tight`, what is ready.
    fn plan<'b>(
        &'b self,
        readers: Readers<'_>,
        stream: Option<StoreView<'b>>,
        is_tight: bool,
    ) -> Plan<'b> {
        let mut plan = Plan::new(stream.map_or(&self.extents, |stream| stream.extents));
        let share = if self.outbox.is_empty() || self.leaves.is_empty() { 1 } else { 2 };
        if self.is_turn_of_leaves {
            self.plan_leaves(&mut plan, stream, share);
            self.plan_outbox(&mut plan, stream, 1);
        } else {
            self.plan_outbox(&mut plan, stream, share);
            self.plan_leaves(&mut plan, stream, 1);
        }
        for span in self.sifting.iter().flat_map(|span| self.missing(span.clone(), stream)) {
            plan.add(span, 1);
        }
        if !is_tight && !self.outbox.is_empty() {
            self.plan_ready(&mut plan, readers, stream, 0);
        }
        plan
    }

    fn plan_leaves(&self, plan: &mut Plan<'_>, stream: Option<StoreView<'_>>, share: usize) {
        if !self.may_leave {
            return;
        }
        for span in self.leaves.spans() {
            if plan.is_full(share) {
                return;
            }
            let unread = self.leaves.window.missing(span);
            for missing in unread.into_iter().flat_map(|span| self.missing(span, stream)) {
                plan.add(missing, share);
            }
        }
    }

    fn plan_outbox(&self, plan: &mut Plan<'_>, stream: Option<StoreView<'_>>, share: usize) {
        // What cannot leave yet is not read far ahead: it would fill the memory.
        if self.outbox.is_unmarked(self.marked_to)
            && self.outbox.front().is_some_and(|(first, _)| self.holds(first, stream))
        {
            return;
        }
        for span in self.outbox.spans() {
            if plan.is_full(share) {
                return;
            }
            for missing in self.missing(span, stream) {
                plan.add(missing, share);
            }
        }
    }

    fn plan_ready(
        &self,
        plan: &mut Plan<'_>,
        readers: Readers<'_>,
        stream: Option<StoreView<'_>>,
        from_seq: u64,
    ) {
        let Some(ready) = readers.ready else { return };
        for range in ready.ranges().skip_while(|range| range.end <= from_seq) {
            for missing in self.missing(range.start.max(from_seq)..range.end, stream) {
                if plan.is_full(1) {
                    return;
                }
                plan.add(missing, 1);
            }
        }
    }

    pub(super) fn fetched(
        &mut self,
        store: QueueId,
        runs: Vec<Run>,
        stream: Option<StoreView<'_>>,
        readers: Readers<'_>,
    ) {
        self.fetching = false;
        self.is_dry = true;
        for run in runs {
            if self.leaves.wants(&run.span()) {
                self.leaves.window.fill(store, run.clone());
            }
            // Settled or taken by others meanwhile: nobody will ask for it.
            let is_sifted = self.sifting.as_ref().is_some_and(|it| overlap(it, &run.span()));
            if (self.outbox.wants(run.span()) || is_sifted || readers.want(run.span()))
                && self.window.fill(store, run)
            {
                self.is_dry = false;
            }
        }
        let lacks = |first: u64| !self.holds(first, stream);
        let leaves = self.leaves.front().filter(|_| self.may_leave);
        let is_stuck = self.outbox.front().is_some_and(|(first, _)| lacks(first))
            || self.sifting.as_ref().is_some_and(|span| lacks(span.start))
            || leaves.is_some_and(|(first, _)| lacks(first) && !self.leaves.window.holds(first));
        if is_stuck {
            self.fruitless += 1;
        }
    }

    /// Messages are settled. `wanted`: what of them waits for whoever reads them as a stream. True: what waits may go on
    /// without them.
    pub(super) fn settled(
        &mut self,
        settled: &Ranges,
        kept: Option<Seqs<'_>>,
        wanted: &Ranges,
    ) -> bool {
        let goes_on = !self.leaves.is_empty() && self.leaves.forget(settled);
        for range in settled.ranges() {
            self.forget_dead_but(range, kept, wanted);
        }
        let wanted = self.outbox.first();
        let is_done = |span: Range<u64>| {
            span.end <= wanted && !kept.is_some_and(|kept| kept.intersects(span))
        };
        // What was purged or settled without being delivered leaves the window too.
        self.window.forget_front(is_done);
        goes_on
    }

    /// These do not wait any more: places of what is settled among them were kept only for that.
    pub(super) fn wait_no_more(
        &mut self,
        spans: impl Iterator<Item = Range<u64>>,
        kept: Option<Seqs<'_>>,
    ) {
        for span in spans {
            self.forget_dead(span, kept);
        }
    }

    /// Forgets extents that hold messages of `span`, but nothing that lives or waits.
    fn forget_dead(&mut self, span: Range<u64>, kept: Option<Seqs<'_>>) {
        self.forget_dead_but(span, kept, &Ranges::new());
    }

    /// The same, and nothing of `wanted`.
    pub(super) fn forget_dead_but(
        &mut self,
        span: Range<u64>,
        kept: Option<Seqs<'_>>,
        wanted: &Ranges,
    ) {
        let outbox = &self.outbox;
        self.extents.forget(span, |span| {
            !kept.is_some_and(|kept| kept.intersects(span.clone()))
                && !wanted.intersects(span.clone())
                && !outbox.wants(span)
        });
    }

    /// Forgets the bytes of one run: of one that nobody is about to get, or of the last. False: there
    /// is none.
    pub(super) fn forget_one(&mut self, readers: Readers<'_>) -> bool {
        let is_idle = |span: Range<u64>| !readers.want(span.clone()) && !self.outbox.wants(span);
        if self.window.front().is_some_and(is_idle) {
            self.window.forget_first()
        } else {
            self.window.forget_back()
        }
    }

    /// While somebody consumes a backlog, the bytes that will be delivered next are fetched early.
    /// Those of requeued messages alone are not: they are due at once, or nobody wants them.
    fn read_ahead(&mut self, readers: Readers<'_>, stream: Option<StoreView<'_>>) -> Option<Step> {
        let ready = readers.ready?;
        if readers.consumers == 0 {
            return None;
        }
        let mut runs = self.window.runs().take(READ_AHEAD_RUNS).peekable();
        let (mut ahead, mut at) = (0, 0);
        let mut missing = None;
        'ready: for range in ready.ranges() {
            at = range.start.max(at);
            while at < range.end {
                while runs.next_if(|(span, _)| span.end <= at).is_some() {}
                let Some((span, bytes)) = runs.next_if(|(span, _)| span.start <= at) else {
                    missing = Some(at);
                    break 'ready;
                };
                ahead += bytes;
                if ahead >= READ_AHEAD_BYTES {
                    return None;
                }
                at = span.end;
            }
        }
        drop(runs);
        // Else more runs are ahead than were looked at.
        let from_seq = missing.filter(|&seq| !self.holds(seq, stream))?;
        let mut plan = Plan::new(stream.map_or(&self.extents, |stream| stream.extents));
        self.plan_ready(&mut plan, readers, stream, from_seq);
        let parts = plan.into_parts();
        if parts.is_empty() {
            return None;
        }
        self.fetching = true;
        Some(Step::Fetch { parts })
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
