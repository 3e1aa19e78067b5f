//! The node: shards, the mailboxes between them, and the store under them.

use std::collections::BTreeMap;

use cluster::limits::Sizes;
use cluster::recovery::Groups;
use cluster::shard::{Input, Now, Output, Shard};
use cluster::{Answer, Request};
use machine::{GroupId, NodeId, SessionId};
use wal::sim::SimDisk;
use wal::{Config, Error, Identity, Wal};

use super::store::{Append, Fetch, Store};
use crate::workload::Chance;

/// Data groups.
const GROUPS: u32 = 3;
/// Small log files, so that they are recycled all the time.
const FILE_BYTES: u64 = 48 << 10;
/// The wall clock when the simulation begins.
const WALL_MS: u64 = 1_700_000_000_000;
/// Appends written with one sync.
const COMMIT_COUNT: u64 = 6;

pub(super) struct Node {
    shards: Vec<Shard>,
    inboxes: Vec<Vec<Input>>,
    answers: Vec<(SessionId, Answer)>,
    store: Store,
    started_ms: u64,
}

impl Node {
    /// Recovers what the disk has, and runs until its groups serve.
    pub(super) fn start(disk: &SimDisk, shards: usize, ms: u64) -> Result<Self, Error> {
        let fresh = Identity { cluster: 7, node: 1, incarnation: 1 };
        let identity = Identity::load(disk)?.unwrap_or(fresh);
        let mut config = Config::new(identity);
        config.file_bytes = FILE_BYTES;
        config.ballast_bytes = 0;
        let (wal, recovered) = Wal::open(disk.clone(), config)?;
        let metas = recovered.groups.iter().filter_map(|(group, found)| {
            Some((GroupId(*group), found.checkpoint.as_ref()?.segments.clone()))
        });
        let metas: BTreeMap<_, _> = metas.collect();
        let id = NodeId(identity.node);
        let groups = Groups::recover(id, &wal.reader(), recovered, GROUPS)?;
        let shards = groups.into_shards(id, shards, Sizes::of(FILE_BYTES));
        let mut node = Self {
            inboxes: shards.iter().map(|_| Vec::new()).collect(),
            shards,
            answers: Vec::new(),
            store: Store::new(wal, metas)?,
            started_ms: ms,
        };
        node.serve(ms)?;
        Ok(node)
    }

    /// Until every shard's groups agree with the catalog.
    fn serve(&mut self, ms: u64) -> Result<(), Error> {
        let mut reconciled = 0;
        for number in 0..self.shards.len() {
            let mut outputs = Vec::new();
            let now = self.now(ms);
            self.shards[number].start(now, &mut outputs);
            reconciled += self.perform(number, outputs);
        }
        for _ in 0..STARTS_MAX {
            if reconciled == self.shards.len() {
                return Ok(());
            }
            self.commit(usize::MAX)?;
            for number in 0..self.shards.len() {
                reconciled += self.step_shard(number, ms);
            }
        }
        panic!("the node's groups do not agree with the catalog");
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    fn now(&self, ms: u64) -> Now {
        Now { mono_ms: ms - self.started_ms, wall_ms: WALL_MS + ms }
    }

    /// Hands requests over as the node's handle does: each to its shard, ends to all.
    pub(super) fn submit(&mut self, session: SessionId, requests: Vec<Request>) {
        let count = self.shards.len();
        let mut parts: Vec<Vec<Request>> = (0..count).map(|_| Vec::new()).collect();
        for request in requests {
            if matches!(request, Request::EndSession { .. }) {
                for inbox in &mut self.inboxes {
                    inbox.push(Input::SessionGone { session });
                }
            }
            parts[group_of(&request).map_or(0, |group| Shard::of(group, count))].push(request);
        }
        for (inbox, requests) in self.inboxes.iter_mut().zip(parts) {
            if !requests.is_empty() {
                inbox.push(Input::Requests { session, requests });
            }
        }
    }

    pub(super) fn take_answers(&mut self) -> impl Iterator<Item = (SessionId, Answer)> + use<> {
        std::mem::take(&mut self.answers).into_iter()
    }

    /// One thread of the node does one thing. True if that was a checkpoint. An error is the
    /// disk's: the process would end.
    pub(super) fn step(&mut self, chance: &mut Chance, ms: u64) -> Result<bool, Error> {
        match chance.within(0, 100) {
            0..30 => {
                let count = chance.within(1, COMMIT_COUNT + 1);
                self.commit(usize::try_from(count).expect("a few"))?;
            }
            30..45 => {
                if let Some((group, input)) = self.store.fetch()? {
                    self.push(group, input);
                }
            }
            45..50 => {
                if let Some((group, input)) = self.store.checkpoint()? {
                    self.push(group, input);
                    return Ok(true);
                }
            }
            50..58 => {
                for (group, input) in self.store.keep()? {
                    self.push(group, input);
                }
            }
            _ => {
                let number = chance.within(0, self.shards.len() as u64) as usize;
                self.step_shard(number, ms);
            }
        }
        Ok(false)
    }

    fn commit(&mut self, count: usize) -> Result<(), Error> {
        if !self.store.appends.is_empty() {
            for (shard, input) in self.store.commit(count)? {
                self.inboxes[shard].push(input);
            }
        }
        Ok(())
    }

    fn push(&mut self, group: GroupId, input: Input) {
        self.inboxes[Shard::of(group, self.shards.len())].push(input);
    }

    fn step_shard(&mut self, number: usize, ms: u64) -> usize {
        let now = self.now(ms);
        let mut outputs = Vec::new();
        self.shards[number].step(now, &mut self.inboxes[number], &mut outputs);
        self.perform(number, outputs)
    }

    /// Does what a shard wants. Counts the shards that came to agree with the catalog.
    fn perform(&mut self, shard: usize, outputs: Vec<Output>) -> usize {
        let mut reconciled = 0;
        for output in outputs {
            match output {
                Output::Append { number, batch, entries } => {
                    self.store.appends.push_back(Append { shard, number, batch, entries });
                }
                Output::Answer { session, answer } => self.answers.push((session, answer)),
                Output::Fetch { group, queue, from_seq, parts } => {
                    self.store.fetches.push_back(Fetch { group, queue, from_seq, parts });
                }
                Output::Forward { shard, input } => self.inboxes[shard].push(input),
                // Sessions route by a copy of the catalog; these clients know their queues.
                Output::CatalogApplied { .. } => {}
                Output::Checkpoint(job) => self.store.jobs.push_back(job),
                Output::Reconciled => reconciled += 1,
                Output::Send { .. } | Output::ReadEntries { .. } => {}
            }
        }
        reconciled
    }
}

/// Rounds that a start may take.
const STARTS_MAX: u32 = 1_000;

fn group_of(request: &Request) -> Option<GroupId> {
    match request {
        Request::Append { group, .. }
        | Request::Attach { group, .. }
        | Request::Detach { group, .. }
        | Request::Credit { group, .. }
        | Request::Settle { group, .. }
        | Request::Get { group, .. }
        | Request::Purge { group, .. }
        | Request::Status { group, .. }
        | Request::CloseQueue { group, .. } => Some(*group),
        Request::Catalog { .. } | Request::EndSession { .. } => None,
    }
}
