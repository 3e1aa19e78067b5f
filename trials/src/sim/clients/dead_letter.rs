//! A node's dead-letter worker: the broker's own, given what its node's shards tell it.

use std::time::Duration;

use broker::dead_letter::{DeadLetterWorker as Core, Input, Outputs};
use cluster::shard::Shard;
use cluster::{Answer, Leaving};
use machine::{Messages, Outcome, QueueId};

use super::plans::Plan;
use super::{Home, Outside, id_of};
use crate::history::{What, Why};

/// Of one append: well below what a group takes at once, whose log has small files here.
const APPEND_BYTES: usize = 4 << 10;

/// Of one node. What it has in hand goes with the node's process, and comes again.
#[derive(Default)]
pub(super) struct DeadLetterWorker {
    /// Of the process that runs.
    core: Option<Core>,
    /// What left queues that the node's catalog does not know yet, and is to be written down once it does.
    unnamed: Vec<(QueueId, Why, Vec<String>)>,
}

impl DeadLetterWorker {
    /// Does what is due.
    pub(super) fn act(&mut self, home: Home, plans: &[Plan], outside: &mut Outside<'_>) {
        let now = Duration::from_micros(outside.now);
        let is_due = |core: &Core| core.deadline().is_some_and(|at| at <= now);
        if self.core.as_ref().is_some_and(is_due) {
            self.step(home, Input::DeadlinePassed, plans, outside);
        }
    }

    pub(super) fn answered(
        &mut self,
        answer: Answer,
        home: Home,
        plans: &[Plan],
        outside: &mut Outside<'_>,
    ) {
        if let Answer::Leaving(leaving) = &answer {
            self.note(leaving);
        }
        self.step(home, Input::Answered(&mut vec![answer]), plans, outside);
    }

    fn step(&mut self, home: Home, input: Input<'_>, plans: &[Plan], outside: &mut Outside<'_>) {
        self.write_down(home, plans, outside);
        let Some(life) = &outside.nodes[home.node].life else { return };
        let now = Duration::from_micros(outside.now);
        let core = self.core.get_or_insert_with(|| {
            Core::new(home.session, outside.nodes[home.node].id, outside.now, APPEND_BYTES)
        });
        let mut out = Outputs::default();
        core.step(now, &life.catalog, input, &mut out);
        if !out.requests.is_empty() {
            outside.ask(home, out.requests);
        }
    }

    fn note(&mut self, leaving: &Leaving) {
        let why = match leaving.reason {
            Outcome::Expired => Why::Expired,
            Outcome::Overflowed => Why::Overflowed,
            Outcome::Exhausted => Why::Exhausted,
            Outcome::Rejected => Why::Rejected,
            Outcome::Done
            | Outcome::Purged
            | Outcome::Requeue
            | Outcome::Undelivered
            | Outcome::PassedOver
            | Outcome::DeadLettered
            | Outcome::Returned => unreachable!("nothing is dead for that reason"),
        };
        let messages = Messages::of(leaving.queue, &leaving.bytes);
        let ids = messages.map(|(head, _)| id_of(head)).collect();
        self.unnamed.push((leaving.queue.base(), why, ids));
    }

    /// Who died in which queue, before any of it can arrive elsewhere: the dead-letter worker waits for the
    /// catalog, too.
    fn write_down(&mut self, home: Home, plans: &[Plan], outside: &mut Outside<'_>) {
        for (queue, why, ids) in std::mem::take(&mut self.unnamed) {
            let Some(name) = outside.queue_name(home, queue) else {
                self.unnamed.push((queue, why, ids));
                continue;
            };
            let has_letters = plans.iter().any(|plan| plan.name == name && plan.dead().is_some())
                || outside.diary.has_letters(&name);
            if !has_letters {
                let text = format!(
                    "the dead-letter worker was given messages of {name}, which has no letters"
                );
                outside.diary.saw("dead-letter worker", What::Protocol { text });
            }
            for m in ids {
                outside.diary.saw("dead-letter worker", What::Died { q: name.clone(), m, why });
            }
        }
    }

    /// Its node is gone.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}

/// The dead-letter worker's session on a node.
pub(super) fn home(node: usize, outside: &Outside<'_>) -> Home {
    let found = &outside.nodes[node];
    Home { node, life: found.lives, session: Shard::dead_letter_worker(found.id) }
}
