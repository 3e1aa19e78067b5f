//! Group 0: the catalog and its consensus.

use bytes::Bytes;
use machine::{
    Applied, Batch, Catalog, CatalogCommand, CatalogEffect, CatalogReply, Command, Corrupt,
    EntryReader, GroupId, QueueId, QueueSettings, SessionId,
};
use raft::eraftpb::Entry;

use crate::checkpoint::Job;
use crate::proposals::{Fates, Proposals, Waiter};
use crate::queue_group::Progress;
use crate::replica::Replica;
use crate::request::Answer;
use crate::shard::{Input, Output, Then, refuse};

/// The catalog on this node.
pub struct CatalogGroup {
    pub(crate) replica: Replica,
    catalog: Catalog,
    proposals: Proposals,
    applied: u64,
    checkpoint: Progress,
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
            checkpoint: Progress::default(),
            start: Start::Waiting,
        }
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Adds a command to the next entry. Says how many bytes that is.
    pub(crate) fn propose(
        &mut self,
        wall_ms: u64,
        command: CatalogCommand,
        waiter: Waiter,
        outputs: &mut Vec<Output>,
    ) -> usize {
        let mut batch = Batch::new();
        batch.catalog(&command);
        let bytes = batch.bytes();
        refuse(self.proposals.add(&mut self.replica, wall_ms, batch, waiter), outputs);
        bytes
    }

    /// Deletes the auto-delete queue `queue`. If it is not there any more, the waiter is handed back.
    pub(crate) fn delete_unused(
        &mut self,
        wall_ms: u64,
        queue: QueueId,
        waiter: Waiter,
        outputs: &mut Vec<Output>,
    ) -> Option<Waiter> {
        let Some(found) = self.catalog.queue_by_id(queue) else { return Some(waiter) };
        let (vhost, name) = (found.vhost.clone(), found.name.clone());
        let command = CatalogCommand::DeleteQueue { vhost, name, queue: Some(queue), by: None };
        self.propose(wall_ms, command, waiter, outputs);
        None
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.proposals.is_waiting()
    }

    /// Whether something that `session` asked for is not committed yet.
    pub(crate) fn is_waiting_for(&self, session: SessionId) -> bool {
        self.proposals.is_waiting_for(session)
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
        let Fates { committed, lost } = self.proposals.committed(entry.index, entry.term);
        refuse(lost, outputs);
        if entry.data.is_empty() {
            return;
        }
        let (at, results) = apply(&mut self.catalog, entry.index, &entry.data)
            .expect("an entry of our own making that passed its checksum");
        outputs.push(Output::CatalogApplied { at, entry: entry.data.clone() });
        let mut waiters = committed.into_iter();
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
                    // Answered once its consumers are told.
                    let then = answer.take();
                    inputs.push((group, Input::DropQueue { group, queue, then }));
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

    /// A checkpoint is due as soon as there is something for it.
    pub(crate) fn want_checkpoint(&mut self) {
        self.checkpoint.is_wanted = true;
    }

    /// What is to be written so that the log below is not needed, if that is due.
    pub(crate) fn due_checkpoint(&mut self) -> Option<Job> {
        let (compacted, _) = self.replica.log().compacted();
        if !self.checkpoint.begin(self.applied > compacted) {
            return None;
        }
        Some(Job::new(GroupId::CATALOG, self.applied, &self.replica, &self.catalog.snapshot()))
    }

    pub(crate) fn checkpointed(&mut self, index: u64) {
        self.checkpoint.end();
        self.replica.compact(index);
    }

    /// There was no room for the checkpoint.
    pub(crate) fn checkpoint_failed(&mut self) {
        self.checkpoint.end();
    }
}

/// Replies, effects, and whether the command was a node's start, in the order of the commands.
type Results = Vec<(CatalogReply, Vec<CatalogEffect>, bool)>;

/// Applies an entry of the catalog's log. Sessions' copies are kept by the same function.
pub(crate) fn apply(
    catalog: &mut Catalog,
    index: u64,
    entry: &Bytes,
) -> Result<(Applied, Results), Corrupt> {
    let reader = EntryReader::new(entry)?;
    let at = Applied { index, time_ms: reader.time_ms() };
    let mut results = Vec::new();
    for command in reader {
        let (_, Command::Catalog(command)) = command? else {
            return Err(Corrupt { what: "a command of a group of queues in the catalog" });
        };
        let started = matches!(*command, CatalogCommand::NodeStarted { .. });
        let mut effects = Vec::new();
        let reply = catalog.apply(at, *command, &mut effects);
        results.push((reply, effects, started));
    }
    Ok((at, results))
}
