//! Filters of subscriptions: asked on the leader, of messages whose bytes are here, ahead of those who consume.
//!
//! The machine says of which messages (`machine::queue::sieve`), and what becomes of those that do not match. A client
//! that fetches waits here until something matches or nothing is left.

use std::collections::BTreeMap;
use std::ops::Range;

use machine::{
    ConsumerId, GroupId, Matcher, Messages, QueueId, QueueMachine, QueueSettings, Ranges, SessionId,
};

use super::{GroupEffect, Queues};
use crate::bodies::{Run, Sift};
use crate::request::{Request, Ticket};

/// A client that fetches one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetching {
    pub(super) queue: QueueId,
    pub(super) consumer: ConsumerId,
    pub(super) no_ack: bool,
    pub(super) ticket: Ticket,
}

#[derive(Debug, Default)]
pub(super) struct Sifting {
    /// By subscription. Those without a filter are not here.
    filters: BTreeMap<QueueId, Matcher>,
    /// In the order in which they asked. Each channel fetches one message at a time.
    fetching: Vec<Fetching>,
    /// A filter said something since they were looked at.
    is_due: bool,
}

impl Sifting {
    pub(super) fn new(machine: &QueueMachine) -> Self {
        let mut sifting = Self::default();
        for (queue, _) in machine.subscriptions() {
            sifting.created(queue, machine.settings(queue));
        }
        sifting
    }

    pub(super) fn created(&mut self, queue: QueueId, settings: Option<&QueueSettings>) {
        let features = settings.and_then(|settings| settings.features.as_deref());
        if let Some(filter) = features.and_then(|features| features.filter.as_deref()) {
            self.filters.insert(queue.base(), Matcher::new(filter));
        }
    }

    /// A queue is gone. Who fetches from it gets nothing.
    pub(super) fn dropped(&mut self, queue: QueueId) -> impl Iterator<Item = Fetching> + '_ {
        self.filters.remove(&queue.base());
        self.fetching.extract_if(.., move |fetching| fetching.queue.base() == queue.base())
    }

    pub(super) fn wait(&mut self, fetching: Fetching) {
        self.fetching.push(fetching);
    }

    pub(super) fn forget(&mut self, session: SessionId, ticket: Ticket) {
        self.fetching.retain(|it| it.consumer.session != session || it.ticket != ticket);
    }

    pub(super) fn end_sessions(&mut self, is_over: impl Fn(SessionId) -> bool) {
        self.fetching.retain(|fetching| !is_over(fetching.consumer.session));
    }

    /// This node leads no longer: what those who fetch, of the sessions that `is_ours`, ask the next leader.
    pub(super) fn follow(
        &mut self,
        group: GroupId,
        is_ours: impl Fn(SessionId) -> bool,
    ) -> impl Iterator<Item = (SessionId, Request)> {
        let fetching = std::mem::take(&mut self.fetching).into_iter();
        let ours = fetching.filter(move |fetching| is_ours(fetching.consumer.session));
        ours.map(move |Fetching { queue, consumer, no_ack, ticket }| {
            (consumer.session, Request::Get { ticket, group, queue, consumer, no_ack, at: None })
        })
    }

    /// Which of a run's messages the filter of a subscription matches, and which not.
    fn judge(&mut self, queue: QueueId, store: QueueId, run: &Run) -> (Ranges, Ranges) {
        let (mut wanted, mut unwanted) = (Ranges::new(), Ranges::new());
        let Some(matcher) = self.filters.get_mut(&queue.base()) else {
            return (Ranges::from(run.span()), unwanted);
        };
        let mut before = (run.first_seq, true);
        for (at, (head, _)) in (run.first_seq..).zip(Messages::of(store, &run.bytes)) {
            let is_wanted = matcher.matches(head);
            if is_wanted != before.1 {
                let into = if before.1 { &mut wanted } else { &mut unwanted };
                into.insert(before.0..at);
                before = (at, is_wanted);
            }
        }
        let into = if before.1 { &mut wanted } else { &mut unwanted };
        into.insert(before.0..run.span().end);
        (wanted, unwanted)
    }
}

impl Queues {
    /// Has filters asked that are to be, and those served who waited for that. True: something is to be done.
    pub(super) fn ask_filters(&mut self, group_effects: &mut Vec<GroupEffect>) -> bool {
        if std::mem::take(&mut self.sifting.is_due) && !self.sifting.fetching.is_empty() {
            self.serve_fetching(group_effects);
        }
        while let Some((level, span)) = self.machine.sift_next() {
            self.bodies.sift(level, span);
            self.touched.push(level);
        }
        !self.touched.is_empty()
    }

    /// Who waited for a filter gets a message that it matches, or hears that there is none.
    fn serve_fetching(&mut self, group_effects: &mut Vec<GroupEffect>) {
        for fetching in std::mem::take(&mut self.sifting.fetching) {
            let Fetching { queue, consumer, no_ack, ticket } = fetching;
            if !self.get_now(queue, consumer, (no_ack, None), ticket, group_effects) {
                self.sifting.fetching.push(fetching);
            }
        }
    }

    /// A filter is asked of what has its bytes here.
    pub(super) fn sift(&mut self, level: QueueId, sift: Sift) {
        self.sifting.is_due = true;
        let (span, mut unwanted) = match sift {
            Sift::Settled(span) => (span, Ranges::new()),
            Sift::Read { run, is_own } => {
                let store = self.bodies.store_of(level);
                let (wanted, unwanted) = self.sifting.judge(level, store, &run);
                let span = run.span();
                self.bodies.sifted(level, run, is_own, &wanted);
                (span, unwanted)
            }
        };
        if planted::is("filter_settles_matching") && unwanted.len() > 1 {
            unwanted = whole(&unwanted);
        }
        if !unwanted.is_empty() {
            self.gather(unwanted.len());
        }
        self.machine.sifted(level, span, &unwanted, &mut self.effects);
    }
}

/// From the first to the last of them.
fn whole(ranges: &Ranges) -> Ranges {
    let span: Option<Range<u64>> = ranges.first().zip(ranges.last()).map(|(a, b)| a..b + 1);
    span.map(Ranges::from).unwrap_or_default()
}
