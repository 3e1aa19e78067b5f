//! Group 0: the catalog and its consensus.

use bytes::Bytes;
use machine::{
    Applied, Batch, Catalog, CatalogCommand, CatalogEffect, CatalogReply, Command, EntryReader,
    GroupId, QueueId, QueueSettings,
};
use raft::eraftpb::Entry;

use crate::checkpoint::Job;
use crate::proposals::{Proposals, Waiter};
use crate::replica::Replica;
use crate::request::Answer;
use crate::shard::{Input, Output, Then};

/// The catalog on this node.
pub struct CatalogGroup {
    pub(crate) replica: Replica,
    catalog: Catalog,
    proposals: Proposals,
    applied: u64,
    checkpointing: bool,
    start: Start,
}

/// How far the node's start got in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Waiting,
    Applied,
    HandedOut,
}

impl CatalogGroup {
    /// The catalog as recovered up to `applied`.
    pub(crate) fn new(replica: Replica, catalog: Catalog, applied: u64) -> Self {
        Self {
            replica,
            catalog,
            proposals: Proposals::default(),
            applied,
            checkpointing: false,
            start: Start::Waiting,
        }
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(crate) fn propose(&mut self, wall_ms: u64, command: CatalogCommand, waiter: Waiter) {
        let mut batch = Batch::new();
        batch.catalog(&command);
        // The catalog's entries are small; what is refused here is refused again by `flush`.
        let refused = self.proposals.add(&mut self.replica, wall_ms, batch, waiter);
        assert!(refused.is_empty() || !self.replica.is_leader(), "a leader refused a proposal");
    }

    /// Deletes the auto-delete queue `queue`. If it is not there any more, the waiter is handed back.
    pub(crate) fn delete_unused(
        &mut self,
        wall_ms: u64,
        queue: QueueId,
        waiter: Waiter,
    ) -> Option<Waiter> {
        let Some(found) = self.catalog.queue_by_id(queue) else { return Some(waiter) };
        let (vhost, name) = (found.vhost.clone(), found.name.clone());
        let command = CatalogCommand::DeleteQueue { vhost, name, queue: Some(queue), by: None };
        self.propose(wall_ms, command, waiter);
        None
    }

    pub(crate) fn flush(&mut self, wall_ms: u64) -> Vec<Waiter> {
        self.proposals.propose(&mut self.replica, wall_ms)
    }

    /// Applies a committed entry; what it means for other groups goes to `inputs`.
    pub(crate) fn commit(
        &mut self,
        entry: &Entry,
        inputs: &mut Vec<(GroupId, Input)>,
        outputs: &mut Vec<Output>,
    ) {
        self.applied = entry.index;
        self.replica.applied(entry.index);
        if entry.data.is_empty() {
            return;
        }
        let waiters = self.proposals.committed(entry.index);
        let (at, results) = apply(&mut self.catalog, entry.index, &entry.data);
        outputs.push(Output::CatalogApplied { at, entry: entry.data.clone() });
        let mut waiters = waiters.into_iter();
        for (reply, effects, started) in results {
            if started && self.start == Start::Waiting {
                self.start = Start::Applied;
            }
            let waiter = waiters.next().unwrap_or(Waiter::Nobody);
            self.answer(waiter, reply, effects, inputs, outputs);
        }
    }

    fn answer(
        &mut self,
        waiter: Waiter,
        reply: CatalogReply,
        effects: Vec<CatalogEffect>,
        inputs: &mut Vec<(GroupId, Input)>,
        outputs: &mut Vec<Output>,
    ) {
        let mut answer = match waiter {
            Waiter::Catalog { session, ticket } => Some(Then { session, ticket, reply }),
            other => {
                crate::shard::tell(other, outputs);
                None
            }
        };
        for effect in effects {
            match effect {
                CatalogEffect::QueueCreated { queue, group, settings, .. } => {
                    let then = answer.take();
                    inputs.push((group, Input::CreateQueue { group, queue, settings, then }));
                }
                CatalogEffect::QueueDeleted { queue, group, .. } => {
                    inputs.push((group, Input::DropQueue { group, queue }));
                }
            }
        }
        if let Some(Then { session, ticket, reply }) = answer {
            outputs.push(Output::Answer { session, answer: Answer::Catalog { ticket, reply } });
        }
    }

    pub(crate) fn is_started(&self) -> bool {
        self.start == Start::Applied
    }

    /// Every queue of the catalog, once.
    pub(crate) fn take_reconciliation(&mut self) -> Option<Vec<(GroupId, QueueId, QueueSettings)>> {
        if self.start != Start::Applied {
            return None;
        }
        self.start = Start::HandedOut;
        let queues = self.catalog.queues();
        Some(queues.map(|queue| (queue.group, queue.id, queue.settings())).collect())
    }

    /// What is to be written so that the log below is not needed; `None` while one is under way.
    pub(crate) fn checkpoint(&mut self) -> Option<Job> {
        let (compacted, _) = self.replica.log().compacted();
        if self.checkpointing || self.applied <= compacted {
            return None;
        }
        self.checkpointing = true;
        Some(Job::new(GroupId::CATALOG, self.applied, &self.replica, &self.catalog.snapshot()))
    }

    pub(crate) fn checkpointed(&mut self, index: u64) {
        self.checkpointing = false;
        self.replica.compact(index);
    }
}

/// Replies, effects, and whether the command was a node's start, in the order of the commands.
type Results = Vec<(CatalogReply, Vec<CatalogEffect>, bool)>;

/// Applies an entry of the catalog's log. Sessions' copies are kept by the same function.
pub(crate) fn apply(catalog: &mut Catalog, index: u64, entry: &Bytes) -> (Applied, Results) {
    let reader = EntryReader::new(entry).expect("a synced entry that passed its checksum");
    let at = Applied { index, time_ms: reader.time_ms() };
    let mut results = Vec::new();
    for command in reader {
        let Ok((_, Command::Catalog(command))) = command else { continue };
        let started = matches!(*command, CatalogCommand::NodeStarted { .. });
        let mut effects = Vec::new();
        let reply = catalog.apply(at, *command, &mut effects);
        results.push((reply, effects, started));
    }
    (at, results)
}
