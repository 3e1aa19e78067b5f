//! Group 0: the catalog and its consensus.

use bytes::Bytes;
use machine::{
    Applied, Catalog, CatalogCommand, CatalogEffect, CatalogReply, Command, Corrupt, EntryReader,
    GroupId, Happened, ProducerId, Version,
};
use raft::eraftpb::{Entry, EntryType};

use super::Group;
use crate::checkpoint::Job;
use crate::exchange::{Input, Output, Then, WantedQueue};
use crate::inbox::{Taken, Verdict};
use crate::numbered_batches::NumberedBatches;
use crate::replica::Replica;
use crate::request::Answer;
use crate::waiter::Waiter;

/// The catalog on this node.
pub struct CatalogGroup {
    pub(crate) group: Group,
    catalog: Catalog,
    /// The newest version that this node reads.
    speaks: Version,
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
    pub(crate) fn new(replica: Replica, catalog: Catalog, applied: u64, speaks: Version) -> Self {
        Self {
            group: Group::new(GroupId::CATALOG, replica, applied),
            catalog,
            speaks,
            start: Start::Waiting,
        }
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// A snapshot at `index` took the place of everything.
    pub(crate) fn restore(
        &mut self,
        index: u64,
        term: u64,
        members: raft::eraftpb::ConfState,
        catalog: Catalog,
    ) {
        self.group.restore(index, term, members);
        self.catalog = catalog;
    }

    /// Begins or ceases to lead, if that is due. Says whether anything changed.
    pub(crate) fn review_leadership(&mut self) -> bool {
        if self.group.ceases_to_lead() {
            self.group.follow();
            return true;
        }
        let begins = self.group.begins_to_lead();
        if begins {
            // It delivers nothing, so there is nobody to wait for.
            self.group.lead(None);
        }
        begins
    }

    /// Takes a numbered batch into the log.
    pub(crate) fn take(
        &mut self,
        wall_ms: u64,
        numbered: Taken,
        commands: &Bytes,
        entry: Option<Bytes>,
    ) -> Result<Verdict, Taken> {
        let is_over = self.catalog.is_over(numbered.producer);
        let last = (!is_over).then(|| self.catalog.last_numbered(numbered.producer));
        self.group.take(numbered, last, wall_ms, commands, entry)
    }

    /// Applies a committed entry, unless this program is too old for it. Inputs for other groups go to `inputs`, and
    /// answers that wait until sessions route by the entry go to `told`. Returns where the catalog stands if the
    /// entry has catalog commands.
    pub(crate) fn commit(
        &mut self,
        entry: &Entry,
        batches: &mut NumberedBatches,
        inputs: &mut Vec<(GroupId, Input)>,
        told: &mut Vec<Output>,
    ) -> Result<Option<Applied>, Corrupt> {
        self.group.apply_next(entry.index);
        if entry.get_entry_type() != EntryType::EntryNormal {
            self.group.replica.apply_members(entry);
        }
        self.group.replica.applied(entry.index);
        if entry.data.is_empty() || entry.get_entry_type() != EntryType::EntryNormal {
            return Ok(None);
        }
        let (at, results) = apply(&mut self.catalog, self.speaks, entry.index, &entry.data)?;
        let local = GroupId::local(batches.producer().node);
        for Applications { numbered, results } in results {
            let ours = numbered.filter(|(producer, _)| *producer == batches.producer());
            let waiters = ours.map_or_else(Vec::new, |(_, seq)| batches.committed(seq));
            let mut waiters = waiters.into_iter();
            for (reply, mut effects, started) in results {
                if started && ours.is_some() && self.start == Start::Waiting {
                    self.start = Start::Applied;
                }
                if self.start == Start::Waiting {
                    // What an earlier life of this node had in its memory went with it.
                    effects.retain(|effect| !is_created_in(effect, local));
                }
                let waiter = waiters.next().unwrap_or(Waiter::Nobody);
                answer(waiter, self.catalog.agreed(), reply, effects, inputs, told);
            }
        }
        Ok(Some(at))
    }

    pub(crate) fn is_started(&self) -> bool {
        self.start == Start::Applied
    }

    /// Every queue of the catalog, once.
    pub(crate) fn take_reconciliation(&mut self) -> Option<Vec<WantedQueue>> {
        if self.start != Start::Applied {
            return None;
        }
        self.start = Start::HandedOut;
        let queues = self.catalog.queues().flat_map(|queue| {
            queue.partitions().map(|partition| WantedQueue {
                group: partition.group,
                queue: partition.queue,
                settings: queue.settings_of(partition),
                revision: queue.revision,
            })
        });
        Some(queues.collect())
    }

    /// The catalog jumped: what it has now is handed out again, once this node's start is in it.
    pub(crate) fn reconcile_again(&mut self, has_started: bool) {
        if self.start == Start::HandedOut || has_started {
            self.start = Start::Applied;
        }
    }

    /// What is to be written so that the log below is not needed, if that is due.
    pub(crate) fn due_checkpoint(&mut self) -> Option<Job> {
        self.group.begins_checkpoint().then(|| self.job())
    }

    /// The catalog as it is now, for a checkpoint or a snapshot.
    pub(crate) fn job(&self) -> Job {
        Job::new(
            GroupId::CATALOG,
            self.group.applied(),
            &self.group.replica,
            &self.catalog.snapshot(),
        )
    }
}

/// Hands on what a command means. Who waits is told once the queue's group has it, too.
fn answer(
    waiter: Waiter,
    agreed: Version,
    reply: CatalogReply,
    effects: Vec<CatalogEffect>,
    inputs: &mut Vec<(GroupId, Input)>,
    outputs: &mut Vec<Output>,
) {
    let mut answer = match waiter {
        Waiter::Catalog { session, ticket } => Some(Then { session, ticket, reply }),
        other => {
            outputs.extend(other.committed());
            None
        }
    };
    for effect in effects {
        match effect {
            CatalogEffect::QueueCreated { queue, group, settings, .. } => {
                let then = answer.take();
                let input = Input::CreateQueue { group, queue, settings, agreed, then };
                inputs.push((group, input));
            }
            CatalogEffect::QueueChanged { queue, group, settings, revision } => {
                let then = answer.take();
                let wanted = WantedQueue { group, queue, settings, revision };
                inputs.push((group, Input::ChangeQueue { wanted, then }));
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

fn is_created_in(effect: &CatalogEffect, of: GroupId) -> bool {
    match effect {
        CatalogEffect::QueueCreated { group, .. } => *group == of,
        CatalogEffect::QueueDeleted { .. } | CatalogEffect::QueueChanged { .. } => false,
    }
}

/// What became of the commands of one numbered batch, in their order: replies, effects, and whether it was a
/// node's start.
pub(crate) struct Applications {
    numbered: Option<(ProducerId, u64)>,
    results: Vec<(CatalogReply, Vec<CatalogEffect>, bool)>,
}

impl Applications {
    /// Whether a node has started.
    pub(crate) fn has_start(&self) -> bool {
        self.results.iter().any(|(_, _, started)| *started)
    }
}

/// Applies an entry of the catalog's log. Sessions' copies are kept by the same function. Fails where a newer
/// version than `speaks` is needed to read it.
pub(crate) fn apply(
    catalog: &mut Catalog,
    speaks: Version,
    index: u64,
    entry: &Bytes,
) -> Result<(Applied, Vec<Applications>), Corrupt> {
    apply_and_tell(catalog, speaks, index, entry, &mut Vec::new())
}

/// The same, and what happened by it is told, if anybody listens.
pub(crate) fn apply_and_tell(
    catalog: &mut Catalog,
    speaks: Version,
    index: u64,
    entry: &Bytes,
    told: &mut Vec<Happened>,
) -> Result<(Applied, Vec<Applications>), Corrupt> {
    let reader = EntryReader::new(entry)?;
    let at = Applied { index, time_ms: reader.time_ms() };
    let mut all = vec![Applications { numbered: None, results: Vec::new() }];
    let mut is_skipped = false;
    for command in reader {
        match command?.1 {
            Command::Numbered { producer, seq } => {
                is_skipped = !catalog.begin_numbered(producer, seq);
                if !is_skipped {
                    let numbered = Some((producer, seq));
                    all.push(Applications { numbered, results: Vec::new() });
                }
            }
            Command::Catalog(command) if command.since() > speaks => {
                return Err(Corrupt::newer("a catalog command"));
            }
            Command::Catalog(_) if is_skipped => {}
            Command::Catalog(command) => {
                let started = matches!(*command, CatalogCommand::NodeStarted { .. });
                let mut effects = Vec::new();
                let reply = catalog.apply_and_tell(at, *command, &mut effects, told);
                all.last_mut().expect("it began with one").results.push((reply, effects, started));
            }
            Command::Enqueue(_)
            | Command::Settle { .. }
            | Command::CreateQueue { .. }
            | Command::DropQueue { .. }
            | Command::Cancel { .. }
            | Command::MarkDelivered { .. }
            | Command::KeepMarks { .. }
            | Command::Lock(_)
            | Command::SetSettings { .. }
            | Command::Withhold { .. }
            | Command::KeepChain => {
                return Err(Corrupt::new("a command of a group of queues in the catalog"));
            }
        }
    }
    Ok((at, all))
}
