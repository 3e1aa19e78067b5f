//! Group 0: the catalog and its consensus.

use bytes::Bytes;
use machine::{
    Applied, Catalog, CatalogCommand, CatalogEffect, CatalogReply, Command, Corrupt, EntryReader,
    GroupId, NodeId, Origin, QueueId, QueueSettings, Version,
};
use raft::eraftpb::{Entry, EntryType};

use crate::checkpoint::Job;
use crate::intake::{Intake, Taken, Verdict};
use crate::parcels::Parcels;
use crate::peer::message::Message;
use crate::queue_group::{Progress, stamp};
use crate::replica::{NotLeader, Replica};
use crate::request::Answer;
use crate::shard::{Input, Output, Then};
use crate::waiter::Waiter;

/// The catalog on this node.
pub struct CatalogGroup {
    pub(crate) replica: Replica,
    catalog: Catalog,
    /// The newest version that this node reads.
    speaks: Version,
    pub(crate) intake: Intake,
    applied: u64,
    checkpoint: Progress,
    start: Start,
    /// The term in which it leads, once an entry of that term is applied.
    leads: Option<u64>,
    /// What came before this leader could serve.
    pub(crate) early: Vec<(NodeId, Message)>,
    /// A snapshot takes the place of everything here before long.
    pub(crate) freeze: Option<u64>,
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
            replica,
            catalog,
            speaks,
            intake: Intake::default(),
            applied,
            checkpoint: Progress::default(),
            start: Start::Waiting,
            leads: None,
            early: Vec::new(),
            freeze: None,
        }
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Whether parcels are taken.
    pub(crate) fn serves(&self) -> bool {
        self.replica.is_leader() && self.leads == Some(self.replica.term())
    }

    /// A snapshot at `index` took the place of everything.
    pub(crate) fn restore(
        &mut self,
        index: u64,
        term: u64,
        members: raft::eraftpb::ConfState,
        catalog: Catalog,
    ) {
        self.leads = None;
        self.intake.clear();
        self.early.clear();
        self.replica.restore(index, term, members);
        self.catalog = catalog;
        self.applied = index;
    }

    pub(crate) fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_under_way()
    }

    /// Whether it waits for a snapshot to be installed.
    pub(crate) fn is_frozen(&self) -> bool {
        self.freeze.is_some()
    }

    /// Begins or ceases to lead, if that is due. Says whether anything changed.
    pub(crate) fn review_leadership(&mut self) -> bool {
        use raft::Storage;
        if self.leads.is_some() && !self.serves() {
            self.leads = None;
            self.intake.clear();
            self.early.clear();
            return true;
        }
        let term = self.replica.term();
        if self.leads.is_none()
            && self.replica.is_leader()
            && self.replica.log().term(self.applied).is_ok_and(|at| at == term)
        {
            self.leads = Some(term);
            self.intake.clear();
            return true;
        }
        false
    }

    /// Takes a parcel into the log.
    pub(crate) fn take(
        &mut self,
        wall_ms: u64,
        parcel: Taken,
        commands: &Bytes,
        entry: Option<Bytes>,
    ) -> Result<Verdict, Taken> {
        if self.catalog.is_over(parcel.origin) {
            // It would be skipped: it must not be confirmed.
            return Ok(Verdict::Ignore);
        }
        let last = self.catalog.last_parcel(parcel.origin);
        let verdict = self.intake.judge(parcel.origin, parcel.seq, last);
        if verdict != Verdict::Propose {
            return Ok(verdict);
        }
        let entry = entry.unwrap_or_else(|| stamp(wall_ms, parcel.origin, parcel.seq, commands));
        match self.replica.propose(entry) {
            Ok(index) => {
                self.intake.proposed(index, parcel);
                Ok(verdict)
            }
            Err(NotLeader) => Err(parcel),
        }
    }

    /// Applies a committed entry, unless this program is too old for it. What it means for other groups goes to
    /// `inputs`, and what is to be told once sessions route by it to `told`. Says by what they do, if by anything
    /// new.
    pub(crate) fn commit(
        &mut self,
        entry: &Entry,
        parcels: &mut Parcels,
        inputs: &mut Vec<(GroupId, Input)>,
        told: &mut Vec<Output>,
    ) -> Result<Option<Applied>, Corrupt> {
        self.applied = entry.index;
        if entry.get_entry_type() != EntryType::EntryNormal {
            self.replica.apply_members(entry);
        }
        self.replica.applied(entry.index);
        if entry.data.is_empty() || entry.get_entry_type() != EntryType::EntryNormal {
            return Ok(None);
        }
        let (at, results) = apply(&mut self.catalog, self.speaks, entry.index, &entry.data)?;
        let local = GroupId::local(parcels.origin().node);
        for Applications { parcel, results } in results {
            let ours = parcel.filter(|(origin, _)| *origin == parcels.origin());
            let waiters = ours.map_or_else(Vec::new, |(_, seq)| parcels.committed(seq));
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
                answer(waiter, reply, effects, inputs, told);
            }
        }
        Ok(Some(at))
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

    /// The catalog jumped: what it has now is handed out again, once this node's start is in it.
    pub(crate) fn reconcile_again(&mut self, has_started: bool) {
        if self.start == Start::HandedOut || has_started {
            self.start = Start::Applied;
        }
    }

    /// A checkpoint is due as soon as there is something for it.
    pub(crate) fn want_checkpoint(&mut self) {
        self.checkpoint.is_wanted = true;
    }

    /// What is to be written so that the log below is not needed, if that is due.
    pub(crate) fn due_checkpoint(&mut self) -> Option<Job> {
        let (compacted, _) = self.replica.log().checkpoint();
        if !self.checkpoint.begin(self.applied > compacted) {
            return None;
        }
        Some(self.job())
    }

    /// The catalog as it is now, for a checkpoint or a snapshot.
    pub(crate) fn job(&self) -> Job {
        Job::new(GroupId::CATALOG, self.applied, &self.replica, &self.catalog.snapshot())
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

/// Hands on what a command means. Who waits is told once the queue's group has it, too.
fn answer(
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

fn is_created_in(effect: &CatalogEffect, of: GroupId) -> bool {
    match effect {
        CatalogEffect::QueueCreated { group, .. } => *group == of,
        CatalogEffect::QueueDeleted { .. } => false,
    }
}

/// What became of the commands of one parcel, in their order: replies, effects, and whether it was a
/// node's start.
pub(crate) struct Applications {
    parcel: Option<(Origin, u64)>,
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
    let reader = EntryReader::new(entry)?;
    let at = Applied { index, time_ms: reader.time_ms() };
    let mut all = vec![Applications { parcel: None, results: Vec::new() }];
    let mut is_skipped = false;
    for command in reader {
        match command?.1 {
            Command::From { origin, seq } => {
                is_skipped = !catalog.begin_parcel(origin, seq);
                if !is_skipped {
                    let parcel = Some((origin, seq));
                    all.push(Applications { parcel, results: Vec::new() });
                }
            }
            Command::Catalog(command) if command.since() > speaks => {
                return Err(Corrupt::newer("a catalog command"));
            }
            Command::Catalog(_) if is_skipped => {}
            Command::Catalog(command) => {
                let started = matches!(*command, CatalogCommand::NodeStarted { .. });
                let mut effects = Vec::new();
                let reply = catalog.apply(at, *command, &mut effects);
                all.last_mut().expect("it began with one").results.push((reply, effects, started));
            }
            Command::Enqueue(_)
            | Command::Settle { .. }
            | Command::CreateQueue { .. }
            | Command::DropQueue { .. }
            | Command::Cancel { .. }
            | Command::MarkDelivered { .. } => {
                return Err(Corrupt::new("a command of a group of queues in the catalog"));
            }
        }
    }
    Ok((at, all))
}
