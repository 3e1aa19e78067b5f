//! A node's porter: it stores dead letters where they are to go, and only then lets their queue know.

use std::collections::BTreeMap;

use cluster::shard::Shard;
use cluster::{Answer, Leaving, Request, Ticket};
use machine::{Batch, ConsumerId, GroupId, Messages, Outcome, QueueId, Ranges};

use super::plans::Plan;
use super::{Home, Outside};
use crate::history::{What, Why};

/// Letters of one batch: fewer bytes than a group takes at once.
const LETTERS: usize = 16;

/// Of one node. What it has in hand goes with the node's process, and comes again.
#[derive(Default)]
pub(super) struct Porter {
    ticket: u64,
    asked: BTreeMap<Ticket, Errand>,
    /// To be asked once more.
    failed: Vec<Errand>,
    /// Of queues that its node does not know yet: its catalog is behind.
    unknown: Vec<Leaving>,
}

/// A run of dead messages on its way.
struct Errand {
    group: GroupId,
    lane: QueueId,
    ranges: Ranges,
    target: &'static str,
    /// Head and body.
    letters: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Porter {
    pub(super) fn act(&mut self, home: Home, plans: &[Plan], outside: &mut Outside<'_>) {
        for leaving in std::mem::take(&mut self.unknown) {
            self.take(leaving, home, plans, outside);
        }
        for errand in std::mem::take(&mut self.failed) {
            self.go(errand, home, outside);
        }
    }

    pub(super) fn answered(
        &mut self,
        answer: Answer,
        home: Home,
        plans: &[Plan],
        outside: &mut Outside<'_>,
    ) {
        match answer {
            Answer::Leaving(leaving) => self.take(leaving, home, plans, outside),
            Answer::Appended { ticket } => match self.asked.remove(&ticket) {
                Some(errand) => settle(&errand, home, outside),
                None => complain(format!("{ticket:?} was answered twice"), outside),
            },
            Answer::AppendFailed { ticket } => self.failed.extend(self.asked.remove(&ticket)),
            other => complain(format!("was told {other:?}"), outside),
        }
    }

    fn take(&mut self, leaving: Leaving, home: Home, plans: &[Plan], outside: &mut Outside<'_>) {
        let Leaving { group, queue: lane, reason, first_seq, count, .. } = leaving;
        let found = outside.queue_name(home, lane.base());
        let Some(plan) = plans.iter().find(|plan| Some(plan.name) == found.as_deref()) else {
            return self.unknown.push(leaving);
        };
        let letters: Vec<(Vec<u8>, Vec<u8>)> = Messages::of(lane, &leaving.bytes)
            .map(|(head, body)| (head.to_vec(), body.to_vec()))
            .collect();
        let Some(target) = plan.dead().filter(|_| letters.len() == count as usize) else {
            return complain(format!("{leaving:?} should not leave"), outside);
        };
        let why = match reason {
            Outcome::Expired => Why::Expired,
            Outcome::Overflowed => Why::Overflowed,
            Outcome::Exhausted => Why::Exhausted,
            _ => Why::Rejected,
        };
        for (head, _) in &letters {
            let m = String::from_utf8_lossy(head).into_owned();
            outside.diary.saw("porter", What::Died { q: plan.name.to_owned(), m, why });
        }
        // No more at a time than a batch has room for.
        for (first_seq, letters) in (first_seq..).step_by(LETTERS).zip(letters.chunks(LETTERS)) {
            let ranges = (first_seq..first_seq + letters.len() as u64).into();
            let letters = letters.to_vec();
            let errand = Errand { group, lane, ranges, target, letters };
            if cfg!(bug_dead_letter_settled_first) {
                settle(&errand, home, outside);
            }
            self.go(errand, home, outside);
        }
    }

    fn go(&mut self, errand: Errand, home: Home, outside: &mut Outside<'_>) {
        let Some((queue, group)) = outside.queue(home, errand.target) else {
            // Its node does not know it yet.
            return self.failed.push(errand);
        };
        let mut batch = Batch::new();
        for (head, body) in &errand.letters {
            batch.enqueue(&[queue], &[head], body);
        }
        self.ticket += 1;
        let ticket = Ticket(self.ticket);
        self.asked.insert(ticket, errand);
        let append = Request::Append { group, ticket, batch, settles: Vec::new() };
        outside.ask(home, vec![append]);
    }

    /// Its node is gone.
    pub(super) fn end(&mut self) {
        self.asked.clear();
        self.failed.clear();
        self.unknown.clear();
    }
}

fn settle(errand: &Errand, home: Home, outside: &mut Outside<'_>) {
    let settle = Request::Settle {
        group: errand.group,
        queue: errand.lane,
        consumer: ConsumerId { session: home.session, number: 0 },
        ranges: errand.ranges.clone(),
        outcome: Outcome::DeadLettered,
        credit: 0,
    };
    outside.ask(home, vec![settle]);
}

fn complain(text: String, outside: &mut Outside<'_>) {
    outside.diary.saw("porter", What::Protocol { text: format!("the porter {text}") });
}

/// The porter's session on a node.
pub(super) fn home(node: usize, outside: &Outside<'_>) -> Home {
    let found = &outside.nodes[node];
    Home { node, life: found.lives, session: Shard::porter(found.id) }
}
