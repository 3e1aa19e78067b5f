//! A node on one thread and a simulated disk, driven by hand: nothing is written, read or moved until
//! the test says so.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::{BTreeMap, VecDeque};

use cluster::checkpoint::{Job, Stored};
use cluster::exchange::{Fetch, Input, Now, Output, Peek, SegmentExtent};
use cluster::limits::Sizes;
use cluster::reading::{OpenSegments, StoreReader};
use cluster::recovery::{Genesis, Groups};
use cluster::shard::{Member, Shard};
use cluster::{Answer, Delivery, Leaving, Request, Ticket, copying};
use machine::{
    Arguments, Attributes, Batch, CatalogCommand, CatalogReply, ConsumerId, ConsumerSpec, GroupId,
    Messages, NodeId, Outcome, QueueId, QueueStatus, Ranges, SessionId, SessionOwner, Value,
};
use wal::segments::SegmentMeta;
use wal::sim::SimDisk;
use wal::{Boot, Checkpoint, CommitBatch, Config, Identity, Keeper, Wal};

pub(crate) const FILE_BYTES: u64 = 64 << 10;
const NODE: NodeId = NodeId(1);
/// Of this node.
const DEAD_LETTER_WORKER: SessionId = SessionId(1 << 48);

/// One shard with its disk.
pub(crate) struct Node {
    pub(crate) disk: SimDisk,
    pub(crate) shard: Shard,
    pub(crate) ms: u64,
    pub(crate) inputs: Vec<Input>,
    pub(crate) appends: VecDeque<(u64, CommitBatch, usize)>,
    pub(crate) fetches: VecDeque<Fetch>,
    pub(crate) peeks: VecDeque<Peek>,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) answers: Vec<(SessionId, Answer)>,
    pub(crate) is_reconciled: bool,
    /// Fetches asked for so far.
    pub(crate) fetch_count: u64,
    wal: Wal<SimDisk>,
    reader: StoreReader<SimDisk>,
    pub(crate) keeper: Keeper<SimDisk>,
    segments: OpenSegments<SimDisk>,
    pub(crate) metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
}

/// A message as a consumer got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) seq: u64,
    pub(crate) again: bool,
    pub(crate) body: String,
}

impl Node {
    pub(crate) fn new(groups: u32) -> Self {
        Self::start(&SimDisk::new(3), groups)
    }

    /// Recovers what the disk has, and runs until the groups serve.
    pub(crate) fn start(disk: &SimDisk, groups: u32) -> Self {
        Self::start_at(0, disk, groups)
    }

    /// At this time.
    pub(crate) fn start_at(ms: u64, disk: &SimDisk, groups: u32) -> Self {
        let mut node = Self::recover_at(ms, disk, groups);
        node.run_to_quiet();
        assert!(node.is_reconciled);
        node
    }

    /// Recovers what the disk has, and takes the first step.
    pub(crate) fn recover(disk: &SimDisk, groups: u32) -> Self {
        Self::recover_at(0, disk, groups)
    }

    fn recover_at(ms: u64, disk: &SimDisk, groups: u32) -> Self {
        let fresh = Identity { cluster: 7, node: NODE.0, incarnation: 1 };
        let mut config = Config::new(Identity::load(disk).unwrap().unwrap_or(fresh));
        config.file_bytes = FILE_BYTES;
        config.ballast_bytes = 0;
        let (mut wal, recovered) = Wal::open(disk.clone(), config).unwrap();
        let metas = recovered.groups.iter().filter_map(|(group, found)| {
            Some((GroupId(*group), found.checkpoint.as_ref()?.segments.clone()))
        });
        let metas: BTreeMap<GroupId, Vec<SegmentMeta>> = metas.collect();
        let (reader, keeper) = (wal.reader(), wal.keeper());
        let boot = Boot::next(disk).unwrap();
        let me = Member { node: NODE, boot, seed: 1, speaks: machine::Version::NEWEST };
        let genesis = Genesis::alone(NODE, groups);
        let groups = Groups::recover(me, &genesis, &reader, recovered).unwrap();
        let shard = groups.into_shards(me, 1, Sizes::of(FILE_BYTES)).remove(0);
        let mut segments = OpenSegments::default();
        let reader = StoreReader::new(reader);
        for (group, metas) in &metas {
            for meta in metas {
                let reader = keeper.open_segment(group.0, meta).unwrap();
                segments.add(*group, meta.number, reader);
            }
        }
        let mut node = Self {
            disk: disk.clone(),
            shard,
            ms,
            inputs: Vec::new(),
            appends: VecDeque::new(),
            fetches: VecDeque::new(),
            peeks: VecDeque::new(),
            jobs: VecDeque::new(),
            answers: Vec::new(),
            is_reconciled: false,
            fetch_count: 0,
            wal,
            reader,
            keeper,
            segments,
            metas,
        };
        let mut outputs = Vec::new();
        node.shard.start(node.now(), &mut outputs);
        node.perform(outputs);
        node
    }

    /// The power goes; `seed` decides what of the unsynced survives. And comes back.
    pub(crate) fn power_cut(self, seed: u64, groups: u32) -> Self {
        let (disk, ms) = (self.disk.clone(), self.ms);
        drop(self);
        disk.power_cut(seed);
        Self::start_at(ms, &disk, groups)
    }

    pub(crate) fn now(&self) -> Now {
        Now { mono_ms: self.ms, wall_ms: 1_700_000_000_000 + self.ms }
    }

    pub(crate) fn submit(&mut self, session: SessionId, request: Request) {
        self.inputs.push(Input::Requests { session, requests: vec![request] });
    }

    /// The shard takes what waits.
    pub(crate) fn step(&mut self) {
        let mut outputs = Vec::new();
        let now = self.now();
        self.shard.step(now, &mut self.inputs, &mut outputs);
        self.perform(outputs);
        self.shard.check();
    }

    pub(crate) fn ask(&mut self, session: SessionId, request: Request) {
        self.submit(session, request);
        self.step();
    }

    fn perform(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Append { number, batch, entries } => {
                    self.appends.push_back((number, batch, entries));
                }
                Output::Answer { session, answer } => self.answers.push((session, answer)),
                Output::Fetch(fetch) => {
                    self.fetch_count += 1;
                    self.fetches.push_back(fetch);
                }
                Output::Peek(peek) => self.peeks.push_back(*peek),
                Output::Forward { .. } => panic!("there is one shard"),
                Output::CatalogApplied { forwards, .. } => {
                    assert!(forwards.is_empty(), "there is one shard");
                }
                Output::Checkpoint(job) => self.jobs.push_back(job),
                Output::Cut { .. } => panic!("nobody makes a backup"),
                Output::Outdated { why } => panic!("{why}"),
                Output::Reconciled => self.is_reconciled = true,
                Output::CountsOn { .. } => {}
                Output::CatalogReplaced { .. }
                | Output::SendSnapshot { .. }
                | Output::InstallSnapshot { .. }
                | Output::Send { .. }
                | Output::ReadEntries { .. } => panic!("there is one node"),
            }
        }
    }

    /// One write and one sync of the first `count` appends; the shard is told and takes a step.
    pub(crate) fn sync(&mut self, count: usize) {
        let waiting: Vec<_> = self.appends.drain(..count.min(self.appends.len())).collect();
        if waiting.is_empty() {
            return;
        }
        let batches = waiting.iter().map(|(_, batch, _)| batch.clone()).collect();
        let mut places = self.wal.commit(batches).unwrap().into_places().into_iter();
        for (number, _, entries) in waiting {
            let places = places.by_ref().take(entries).collect();
            self.inputs.push(Input::Synced { number, places });
        }
        self.step();
    }

    /// Carries out the first fetch that waits.
    pub(crate) fn fetch(&mut self) {
        let Some(fetch) = self.fetches.pop_front() else { return };
        let runs = self.reader.fetch(&self.segments, &fetch).unwrap();
        let Fetch { group, queue, reader, .. } = fetch;
        self.inputs.push(Input::Fetched { group, queue, reader, runs });
        self.step();
    }

    /// Reads for the first who looks at messages.
    pub(crate) fn look(&mut self) {
        let Some(peek) = self.peeks.pop_front() else { return };
        let result = Ok(Box::new(self.reader.peek(&self.segments, &peek).unwrap()));
        let Peek { group, session, ticket, .. } = peek;
        self.inputs.push(Input::Peeked { group, session, ticket, result });
        self.step();
    }

    pub(crate) fn want_checkpoint(&mut self, group: GroupId) {
        self.inputs.push(Input::WantCheckpoint { group });
        self.step();
    }

    /// Carries out the first checkpoint that waits.
    pub(crate) fn checkpoint(&mut self) {
        let Some(job) = self.jobs.pop_front() else { return };
        let Job { group, index, term, state, messages, live } = job;
        let before = self.metas.remove(&group).unwrap_or_default();
        let old: Vec<u64> = before.iter().map(|meta| meta.number).collect();
        let live = live.into_iter().map(|(queue, live)| (queue.0, live.ranges().collect()));
        let mut metas = self.keeper.compact(group.0, before, &live.collect()).unwrap();
        metas.extend(copying::copy(&mut self.keeper, self.reader.log(), group, &messages).unwrap());
        let segments = metas.clone();
        self.keeper.install(Checkpoint { group: group.0, index, term, state, segments }).unwrap();
        old.into_iter().for_each(|number| self.segments.remove(group, number));
        let mut stored = Vec::new();
        for meta in &metas {
            let reader = self.keeper.open_segment(group.0, meta).unwrap();
            self.segments.add(group, meta.number, reader);
            stored.extend(meta.extents.iter().map(|extent| Stored {
                queue: QueueId(extent.queue),
                first_seq: extent.first_seq,
                last_seq: extent.last_seq,
                segment: meta.number,
            }));
        }
        self.metas.insert(group, metas);
        self.inputs.push(Input::Checkpointed { group, index, stored });
        self.step();
    }

    /// What the segments hold, as the flusher tells it.
    pub(crate) fn review(&mut self, group: GroupId) {
        let extents = self.metas.get(&group).into_iter().flatten().flat_map(|meta| &meta.extents);
        let held = extents.map(|extent| SegmentExtent {
            queue: QueueId(extent.queue),
            first_seq: extent.first_seq,
            last_seq: extent.last_seq,
            count: extent.count,
        });
        let held = held.collect();
        self.inputs.push(Input::ReviewSegments { group, held });
        self.step();
    }

    /// Recycles log files that nothing needs, so that places in them are gone.
    pub(crate) fn recycle(&mut self) {
        while !self.keeper.preparer().prepare_next(u64::MAX).unwrap() {}
        self.keeper.preparer().remove_spare().unwrap();
    }

    /// Everything is written, read and settled.
    pub(crate) fn run_to_quiet(&mut self) {
        for _ in 0..100_000 {
            self.ms += 1;
            self.step();
            let is_quiet = self.appends.is_empty() && self.fetches.is_empty();
            self.sync(usize::MAX);
            self.fetch();
            if is_quiet && self.shard.is_idle(self.now()) {
                return;
            }
        }
        panic!("the node never comes to rest");
    }

    /// What `session` was told since the last time.
    pub(crate) fn told(&mut self, session: SessionId) -> Vec<Answer> {
        let mut told = Vec::new();
        let mut others = Vec::new();
        for (to, answer) in self.answers.drain(..) {
            match to == session {
                true => told.push(answer),
                false => others.push((to, answer)),
            }
        }
        self.answers = others;
        told
    }

    /// The messages that `session` was sent; other answers to it are dropped.
    pub(crate) fn got(&mut self, session: SessionId) -> Vec<Got> {
        let mut got = Vec::new();
        for answer in self.told(session) {
            if let Answer::Delivered(delivery) | Answer::Got { delivery: Some(delivery), .. } =
                answer
            {
                got.extend(opened(&delivery));
            }
        }
        got
    }

    pub(crate) fn declare(
        &mut self,
        session: SessionId,
        name: &str,
        kind: Kind,
    ) -> (QueueId, GroupId) {
        self.submit(session, declare(session, name, kind));
        self.run_to_quiet();
        let told = self.told(session);
        match &told[..] {
            [Answer::Catalog { reply: CatalogReply::QueueDeclared { queue, group, .. }, .. }] => {
                (*queue, *group)
            }
            other => panic!("not declared: {other:?}"),
        }
    }

    /// Declares a queue with arguments.
    pub(crate) fn declare_with(
        &mut self,
        session: SessionId,
        name: &str,
        kind: Kind,
        arguments: &[(&str, Value)],
    ) -> (QueueId, GroupId) {
        let mut request = declare(session, name, kind);
        if let Request::Catalog { command, .. } = &mut request
            && let CatalogCommand::DeclareQueue { arguments: asked, .. } = command
        {
            asked.0 = arguments.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect();
        }
        self.submit(session, request);
        self.run_to_quiet();
        match &self.told(session)[..] {
            [Answer::Catalog { reply: CatalogReply::QueueDeclared { queue, group, .. }, .. }] => {
                (*queue, *group)
            }
            other => panic!("not declared: {other:?}"),
        }
    }

    /// Publishes one message and waits for the confirm.
    pub(crate) fn publish_with(
        &mut self,
        session: SessionId,
        (queue, group): (QueueId, GroupId),
        attributes: &Attributes,
        body: &str,
    ) {
        let mut batch = Batch::new();
        batch.enqueue_with(&[queue], attributes, &[], body.as_bytes());
        let (ticket, settles) = (Ticket(0), Vec::new());
        self.ask(session, Request::Append { group, ticket, batch, settles });
        self.sync(usize::MAX);
        let told = self.told(session);
        let is_confirmed = |it: &Answer| matches!(it, Answer::Appended { ticket: Ticket(0) });
        assert!(told.iter().any(is_confirmed), "not confirmed: {told:?}");
    }

    /// There is a dead-letter worker from now on.
    pub(crate) fn open_dead_letter_worker(&mut self) {
        self.inputs.push(Input::DeadLetterWorkerOpened);
        self.step();
    }

    /// What the dead-letter worker was given: reason, level, and the messages.
    pub(crate) fn left(&mut self) -> Vec<(Outcome, QueueId, Vec<Got>)> {
        let mut left = Vec::new();
        for answer in self.told(DEAD_LETTER_WORKER) {
            let Answer::Leaving(leaving) = answer else {
                panic!("not the dead-letter worker's: {answer:?}")
            };
            let Leaving { group, queue, store, reason, first_seq, count, bytes, time_ms } = leaving;
            assert!(time_ms.abs_diff(self.now().wall_ms) < 1000);
            let consumer = ConsumerId { session: DEAD_LETTER_WORKER, number: 0 };
            let (redelivered, returns) = (false, 0);
            let as_delivery = Delivery {
                group,
                queue,
                store,
                consumer,
                first_seq,
                count,
                redelivered,
                returns,
                bytes,
            };
            left.push((reason, queue, opened(&as_delivery)));
        }
        left
    }

    /// The dead-letter worker has stored these.
    pub(crate) fn dead_lettered(&mut self, place: (QueueId, GroupId), seqs: std::ops::Range<u64>) {
        let consumer = ConsumerId { session: DEAD_LETTER_WORKER, number: 0 };
        self.settle(consumer, place, seqs, Outcome::DeadLettered);
    }

    /// Time passes, a millisecond after the other; everything is written and read at once.
    pub(crate) fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.ms += 1;
            self.step();
            while !self.appends.is_empty() || !self.fetches.is_empty() {
                self.sync(usize::MAX);
                self.fetch();
            }
        }
    }

    /// Publishes and waits for the confirm.
    pub(crate) fn publish(
        &mut self,
        session: SessionId,
        (queue, group): (QueueId, GroupId),
        bodies: &[&str],
    ) {
        self.submit(session, append(Ticket(0), group, queue, bodies));
        self.step();
        self.sync(usize::MAX);
        let told = self.told(session);
        assert!(
            told.iter().any(|answer| matches!(answer, Answer::Appended { ticket: Ticket(0) })),
            "not confirmed: {told:?}"
        );
    }

    pub(crate) fn attach(
        &mut self,
        session: SessionId,
        (queue, group): (QueueId, GroupId),
        spec: ConsumerSpec,
    ) -> ConsumerId {
        let consumer = ConsumerId { session, number: 1 };
        let ticket = Ticket(9);
        self.ask(session, Request::Attach { ticket, group, queue, consumer, spec });
        // What it may be given is logged.
        self.sync(usize::MAX);
        consumer
    }

    pub(crate) fn settle(
        &mut self,
        consumer: ConsumerId,
        (queue, group): (QueueId, GroupId),
        seqs: std::ops::Range<u64>,
        outcome: Outcome,
    ) {
        let ranges = Ranges::from(seqs);
        let credit = ranges.len() as u32;
        self.ask(
            consumer.session,
            Request::Settle { group, queue, consumer, ranges, outcome, credit },
        );
    }

    pub(crate) fn status(&mut self, (queue, group): (QueueId, GroupId)) -> Option<QueueStatus> {
        let asker = SessionId((1 << 48) - 1);
        self.ask(asker, Request::Status { ticket: Ticket(1), group, queue });
        let mut told = self.told(asker);
        if told.is_empty() {
            // What comes back to the queue is on its way through the log.
            self.run_to_quiet();
            told = self.told(asker);
        }
        match told.pop() {
            Some(Answer::Status { status, .. }) => status,
            other => panic!("no status: {other:?}"),
        }
    }
}

/// Of a queue to be declared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    pub(crate) transient: bool,
    pub(crate) auto_delete: bool,
    pub(crate) exclusive: bool,
}

pub(crate) fn declare(session: SessionId, name: &str, kind: Kind) -> Request {
    let command = CatalogCommand::DeclareQueue {
        vhost: "/".to_owned(),
        name: name.to_owned(),
        durable: !kind.transient,
        auto_delete: kind.auto_delete,
        exclusive: kind.exclusive,
        server_named: false,
        arguments: Arguments::new(),
        by: SessionOwner { node: NODE, session },
    };
    Request::Catalog { ticket: Ticket(5), command }
}

pub(crate) fn append(ticket: Ticket, group: GroupId, queue: QueueId, bodies: &[&str]) -> Request {
    let mut batch = Batch::new();
    for body in bodies {
        batch.enqueue(&[queue], &[], body.as_bytes());
    }
    Request::Append { group, ticket, batch, settles: Vec::new() }
}

pub(crate) fn credit(credit: u32) -> ConsumerSpec {
    ConsumerSpec { credit, ..ConsumerSpec::default() }
}

pub(crate) fn opened(delivery: &cluster::Delivery) -> Vec<Got> {
    let messages: Vec<_> = Messages::of(delivery.store, &delivery.bytes).collect();
    assert_eq!(messages.len(), delivery.count as usize, "a delivery holds what it says");
    let open = |(seq, (_, body)): (u64, (_, &[u8]))| Got {
        seq,
        again: delivery.redelivered,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    (delivery.first_seq..).zip(messages).map(open).collect()
}

pub(crate) fn bodies(got: &[Got]) -> Vec<&str> {
    got.iter().map(|got| &got.body[..]).collect()
}
