//! Filters of subscriptions, and keys of messages: asked on the leader, of messages whose bytes are here, ahead of those
//! who consume.
//!
//! The machine says of which messages (`machine::queue::sieve`), and what becomes of those that do not match or whose
//! turn it is not. A client that fetches waits here until something may go out or nothing is left, also while its queue
//! borrows tokens.

use std::collections::BTreeMap;

use machine::{
    ConsumerId, GroupId, KeySource, Matcher, Messages, QueueId, QueueMachine, QueueSettings,
    Ranges, SessionId, Sifted,
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

/// What is asked of the messages of a queue.
#[derive(Debug)]
struct Question {
    filter: Option<Matcher>,
    key: Option<KeySource>,
}

#[derive(Debug, Default)]
pub(super) struct Sifting {
    /// By queue. Those that ask nothing are not here.
    questions: BTreeMap<QueueId, Question>,
    /// In the order in which they asked. Each channel fetches one message at a time.
    fetching: Vec<Fetching>,
    /// Something was found since they were looked at.
    is_due: bool,
}

impl Sifting {
    pub(super) fn new(machine: &QueueMachine) -> Self {
        let mut sifting = Self::default();
        for queue in machine.queues() {
            sifting.created(queue, machine.settings(queue));
        }
        sifting
    }

    pub(super) fn created(&mut self, queue: QueueId, settings: Option<&QueueSettings>) {
        let features = settings.and_then(|settings| settings.features.as_deref());
        let filter = features.and_then(|it| it.filter.as_deref()).map(Matcher::new);
        let key = features.and_then(|it| it.order.as_deref()).cloned();
        if filter.is_some() || key.is_some() {
            self.questions.insert(queue.base(), Question { filter, key });
        }
    }

    /// A queue is gone. Who fetches from it gets nothing.
    pub(super) fn dropped(&mut self, queue: QueueId) -> impl Iterator<Item = Fetching> + '_ {
        self.questions.remove(&queue.base());
        self.fetching.extract_if(.., move |fetching| fetching.queue.base() == queue.base())
    }

    /// Something may go out that could not: who fetches is looked at.
    pub(super) fn look_again(&mut self) {
        self.is_due = true;
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

    /// What is found in a run's messages.
    fn judge(&mut self, queue: QueueId, store: QueueId, run: &Run) -> Sifted {
        let mut sifted = Sifted { span: run.span(), unwanted: Ranges::new(), keys: Vec::new() };
        let Some(Question { filter, key }) = self.questions.get_mut(&queue.base()) else {
            return sifted;
        };
        if key.is_some() {
            sifted.keys.reserve_exact(run.count as usize);
        }
        // Where those began that do not match, one behind the other.
        let mut unwanted_from = None;
        for (at, (head, _)) in (run.first_seq..).zip(Messages::of(store, &run.bytes)) {
            let is_wanted = filter.as_mut().is_none_or(|filter| filter.matches(head));
            if !is_wanted {
                unwanted_from.get_or_insert(at);
            } else if let Some(from) = unwanted_from.take() {
                sifted.unwanted.insert(from..at);
            }
            if let Some(key) = key {
                sifted.keys.push(key.of_head(head));
            }
        }
        if let Some(from) = unwanted_from {
            sifted.unwanted.insert(from..run.span().end);
        }
        sifted
    }
}

impl Queues {
    /// Has messages asked that are to be, and those served who waited for that. True: something is to be done.
    pub(super) fn sift_more(&mut self, group_effects: &mut Vec<GroupEffect>) -> bool {
        if std::mem::take(&mut self.sifting.is_due) && !self.sifting.fetching.is_empty() {
            self.serve_fetching(group_effects);
        }
        while let Some((level, span)) = self.machine.sift_next() {
            self.bodies.sift(level, span);
            self.touched.push(level);
        }
        !self.touched.is_empty()
    }

    /// Who waited gets a message that may go out, or hears that there is none.
    fn serve_fetching(&mut self, group_effects: &mut Vec<GroupEffect>) {
        for fetching in std::mem::take(&mut self.sifting.fetching) {
            let Fetching { queue, consumer, no_ack, ticket } = fetching;
            if !self.get_now(queue, consumer, (no_ack, None), ticket, group_effects) {
                self.sifting.fetching.push(fetching);
            }
        }
    }

    /// What has its bytes here is asked.
    pub(super) fn sift(&mut self, level: QueueId, sift: Sift) {
        self.sifting.is_due = true;
        let sifted = match sift {
            Sift::Settled(span) => Sifted { span, unwanted: Ranges::new(), keys: Vec::new() },
            Sift::Read { run, is_own } => {
                let store = self.bodies.store_of(level);
                let mut sifted = self.sifting.judge(level, store, &run);
                self.bodies.sifted(level, run, is_own, &sifted.unwanted);
                if planted::is("filter_settles_matching")
                    && let Some(first) = sifted.unwanted.first()
                {
                    sifted.unwanted.insert(first..sifted.span.end);
                }
                sifted
            }
        };
        if !sifted.unwanted.is_empty() {
            self.gather(sifted.unwanted.len());
        }
        self.machine.sifted(level, &sifted, &mut self.effects);
    }
}
