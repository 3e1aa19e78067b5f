use std::collections::BTreeMap;

use bytes::Bytes;
use machine::{
    Applied, Batch, Effect, GroupId, Messages, NodeId, Outcome, QueueId, QueueMachine,
    QueueSettings, Ranges,
};
use wal::segments::{Merged, SegmentMeta};
use wal::sim::{Fault, Random, SimDisk};
use wal::{Checkpoint, Config, Disk, Error, Identity, Keeper, Live, Wal};

use super::*;
use crate::checkpoint::State;

pub(super) const GROUP: GroupId = GroupId(3);
const LEADER: NodeId = NodeId(1);

type Everything = BTreeMap<(u64, u64), Bytes>;

fn open(disk: &SimDisk, node: u64) -> (Wal<SimDisk>, Keeper<SimDisk>, Option<Checkpoint>) {
    open_bounded(disk, node, wal::limits::CHECKPOINT_BYTES_MAX)
}

/// Checkpoints have at most so many bytes.
fn open_bounded(
    disk: &SimDisk,
    node: u64,
    checkpoint_bytes_max: u64,
) -> (Wal<SimDisk>, Keeper<SimDisk>, Option<Checkpoint>) {
    let mut config = Config::new(Identity { cluster: 1, node, incarnation: 1 });
    config.checkpoint_bytes_max = checkpoint_bytes_max;
    config.file_bytes = 64 << 10;
    config.ballast_bytes = 0;
    let (mut wal, mut recovered) = Wal::open(disk.clone(), config).unwrap();
    let keeper = wal.keeper();
    let found = recovered.groups.remove(&GROUP.0).unwrap_or_default();
    assert_eq!(found.damage, None);
    (wal, keeper, found.checkpoint)
}

/// As `State` is encoded where only voters are known.
fn state(machine: &QueueMachine) -> Bytes {
    let mut state = vec![1, 1, 0];
    state.extend_from_slice(&7u64.to_le_bytes());
    state.extend_from_slice(&machine.snapshot());
    state.into()
}

fn machine_of(checkpoint: &Checkpoint) -> QueueMachine {
    let state = State::decode(&checkpoint.state).unwrap();
    QueueMachine::restore(&state.machine).unwrap()
}

/// All live messages that a checkpoint's segments hold.
fn read(keeper: &Keeper<SimDisk>, checkpoint: &Checkpoint) -> Everything {
    let open = |meta: &SegmentMeta| keeper.open_segment(GROUP.0, meta).unwrap();
    let segments: Vec<_> = checkpoint.segments.iter().map(open).collect();
    let machine = machine_of(checkpoint);
    let mut all = Everything::new();
    for queue in machine.queues() {
        let live = machine.kept(queue).unwrap();
        let mut messages = Merged::new(&segments, queue.0, 0);
        while let Some((seq, message)) = messages.next().unwrap() {
            if live.contains(seq) {
                all.insert((queue.0, seq), message);
            }
        }
    }
    all
}

/// A leader that makes messages, settles some and makes checkpoints.
pub(super) struct Leader {
    keeper: Keeper<SimDisk>,
    machine: QueueMachine,
    index: u64,
    /// Bytes of everything that was ever published.
    published: Everything,
    random: Random,
    _wal: Wal<SimDisk>,
}

impl Leader {
    pub(super) fn new(seed: u64) -> Self {
        let (wal, keeper, _) = open(&SimDisk::new(seed), LEADER.0);
        let (machine, random) = (QueueMachine::new(), Random::new(seed));
        let mut leader =
            Self { keeper, machine, index: 0, published: Everything::new(), random, _wal: wal };
        let mut batch = Batch::new();
        for queue in 1..=5 {
            batch.create_queue(QueueId(queue), &QueueSettings::default());
        }
        leader.apply(batch);
        leader
    }

    fn apply(&mut self, batch: Batch) {
        self.index += 1;
        let entry = Bytes::from(batch.stamp(0));
        let mut effects = Vec::new();
        let at = Applied { index: self.index, time_ms: 0 };
        self.machine.apply(at, &entry, &mut effects).unwrap();
        for effect in effects {
            if let Effect::Enqueued { queue, first_seq, bytes, .. } = effect {
                let part = entry.slice(bytes);
                let spans = Messages::of(queue, &part).spans();
                for (seq, span) in (first_seq..).zip(spans) {
                    self.published.insert((queue.0, seq), part.slice(span));
                }
            }
        }
    }

    pub(super) fn publish(&mut self, count: u64, bytes_max: u64) {
        for _ in 0..count {
            let mut batch = Batch::new();
            let body = vec![self.random.number() as u8; self.random.below(bytes_max) as usize];
            let queues = [QueueId(1 + self.random.below(4)), QueueId(5)];
            batch.enqueue(&queues, &[], &body);
            self.apply(batch);
        }
    }

    /// So many in a hundred of what lives are handled.
    fn settle(&mut self, percent: u64) {
        let queues: Vec<QueueId> = self.machine.queues().collect();
        for queue in queues {
            let mut done = Ranges::new();
            for seq in self.machine.kept(queue).unwrap().iter() {
                if self.random.chance(percent) {
                    done.insert(seq..seq + 1);
                }
            }
            let mut batch = Batch::new();
            batch.settle(queue, Outcome::Done, &done);
            self.apply(batch);
        }
    }

    fn live(&self) -> Everything {
        let mut live = self.published.clone();
        live.retain(|(queue, seq), _| {
            self.machine.kept(QueueId(*queue)).is_some_and(|live| live.contains(*seq))
        });
        live
    }

    pub(super) fn checkpoint(&mut self) {
        let before = self.keeper.checkpoint(GROUP.0).cloned();
        let stored = before.as_ref().map(|c| c.segments.clone()).unwrap_or_default();
        let above: BTreeMap<u64, u64> =
            stored.iter().flat_map(|meta| &meta.extents).map(|e| (e.queue, e.last_seq)).collect();
        let ranges = |queue: QueueId| {
            (queue.0, self.machine.kept(queue).unwrap().ranges().collect::<Vec<_>>())
        };
        let live: Live = self.machine.queues().map(ranges).collect();
        let mut segments = self.keeper.compact(GROUP.0, stored, &live).unwrap();
        let mut writer = self.keeper.segment(GROUP.0).unwrap();
        for ((queue, seq), message) in self.live() {
            if above.get(&queue).is_none_or(|last| seq > *last) {
                writer.add(queue, seq, &message).unwrap();
            }
        }
        if !writer.is_empty() {
            segments.push(writer.finish().unwrap());
        }
        let (index, state) = (self.index, state(&self.machine));
        let checkpoint = Checkpoint { group: GROUP.0, index, term: 4, state, segments };
        self.keeper.install(checkpoint).unwrap();
    }

    /// The newest checkpoint.
    pub(super) fn source(&self) -> Source<SimDisk> {
        let checkpoint = self.keeper.checkpoint(GROUP.0).unwrap().clone();
        let open = |meta: &SegmentMeta| self.keeper.open_segment(GROUP.0, meta).unwrap();
        let segments = checkpoint.segments.iter().map(open).collect();
        Source { checkpoint, segments }
    }

    fn sender(&self, number: u64) -> Sender<SimDisk> {
        Sender::new(self.source(), number).unwrap()
    }
}

/// What the follower made of what it was sent.
#[derive(Debug, Default)]
struct Outcomes {
    arrived: Option<u64>,
    done: Option<bool>,
    taken: u64,
}

struct Follower {
    disk: SimDisk,
    keeper: Keeper<SimDisk>,
    incoming: Incoming<SimDisk>,
    _wal: Wal<SimDisk>,
}

impl Follower {
    fn new(disk: &SimDisk) -> Self {
        let (wal, keeper, _) = open(disk, 2);
        Self { disk: disk.clone(), keeper, incoming: Incoming::default(), _wal: wal }
    }

    fn take(
        &mut self,
        chunk: &Bytes,
        sender: &mut Sender<SimDisk>,
        outcomes: &mut Outcomes,
    ) -> Result<(), Error> {
        let mut events = Vec::new();
        self.incoming.chunk(0, &mut self.keeper, LEADER, chunk, &mut events)?;
        note(events, sender, outcomes);
        Ok(())
    }

    /// Everything that `sender` has, with `tamper` in between; then the core accepts it.
    fn receive(
        &mut self,
        sender: &mut Sender<SimDisk>,
        mut tamper: impl FnMut(usize, Bytes) -> Vec<Bytes>,
    ) -> Result<(Outcomes, Option<Installed>), Error> {
        let mut outcomes = Outcomes::default();
        self.take(&sender.offer(), sender, &mut outcomes)?;
        let mut nth = 0;
        while let Some(chunk) = sender.next_chunk().unwrap() {
            for chunk in tamper(nth, chunk) {
                self.take(&chunk, sender, &mut outcomes)?;
            }
            nth += 1;
        }
        let Some(index) = outcomes.arrived else { return Ok((outcomes, None)) };
        let mut events = Vec::new();
        self.incoming.decide(GROUP, index, true, &mut events);
        let installed = self.incoming.install(&mut self.keeper, &mut events)?;
        note(events, sender, &mut outcomes);
        Ok((outcomes, installed))
    }

    fn segment_files(&self) -> Vec<String> {
        self.disk.paths().into_iter().filter(|path| path.contains("/seg-")).collect()
    }
}

fn note(events: Vec<Event>, sender: &mut Sender<SimDisk>, outcomes: &mut Outcomes) {
    for event in events {
        match event {
            Event::Tell { to, message } => {
                assert_eq!(to, LEADER);
                match message {
                    Message::Snapshot { chunk, .. } => match sender.answer(&chunk) {
                        Answer::Wants => {}
                        Answer::Done { installed } => outcomes.done = Some(installed),
                        Answer::Stale => panic!("an answer is not understood"),
                    },
                    Message::SnapshotTaken { bytes, .. } => outcomes.taken = bytes,
                    other => panic!("{other:?}"),
                }
            }
            Event::Arrived { index, .. } => outcomes.arrived = Some(index),
        }
    }
}

fn pass(_: usize, chunk: Bytes) -> Vec<Bytes> {
    vec![chunk]
}

/// What the follower has after a power cut is what the leader had at its checkpoint.
fn assert_same(leader: &Leader, expected: &Everything, disk: &SimDisk) {
    disk.power_cut(77);
    let (_wal, keeper, checkpoint) = open(disk, 2);
    let checkpoint = checkpoint.expect("a checkpoint");
    let original = leader.keeper.checkpoint(GROUP.0).unwrap();
    assert_eq!((checkpoint.index, checkpoint.term), (original.index, original.term));
    assert_eq!(machine_of(&checkpoint).digest(), machine_of(original).digest());
    assert!(read(&keeper, &checkpoint) == *expected, "every live message, byte by byte");
}

#[test]
fn a_follower_without_anything_gets_everything() {
    for seed in 0..5 {
        let mut leader = Leader::new(seed);
        leader.publish(400, 8000);
        leader.settle(50);
        leader.checkpoint();
        leader.publish(400, 3000);
        leader.settle(20);
        leader.checkpoint();
        let disk = SimDisk::new(seed);
        let mut follower = Follower::new(&disk);
        let mut sender = leader.sender(1);
        let (outcomes, installed) = follower.receive(&mut sender, pass).unwrap();
        assert_eq!(outcomes.done, Some(true));
        assert_eq!(outcomes.taken, sender.offset());
        let installed = installed.unwrap();
        assert_eq!(installed.index, leader.index);
        assert_eq!(installed.stored.len(), 5, "one stretch for each queue");
        drop(follower);
        assert_same(&leader, &leader.live(), &disk);
    }
}

#[test]
fn what_the_follower_has_is_not_sent_again() {
    for seed in 0..5 {
        let mut leader = Leader::new(seed);
        leader.publish(600, 8000);
        leader.checkpoint();
        let disk = SimDisk::new(seed);
        let mut follower = Follower::new(&disk);
        let mut first = leader.sender(1);
        follower.receive(&mut first, pass).unwrap();
        leader.settle(10);
        leader.publish(30, 8000);
        leader.checkpoint();
        leader.settle(10);
        leader.checkpoint();
        let mut second = leader.sender(2);
        let (outcomes, installed) = follower.receive(&mut second, pass).unwrap();
        assert_eq!(outcomes.done, Some(true));
        assert!(second.offset() * 5 < first.offset(), "{} {}", second.offset(), first.offset());
        let installed = installed.unwrap();
        assert!(installed.segments.len() > 1, "its own and the new ones");
        drop(follower);
        assert_same(&leader, &leader.live(), &disk);
    }
}

#[test]
fn a_state_that_could_not_be_installed_is_refused_before_it_comes() {
    let mut leader = Leader::new(1);
    leader.publish(10, 100);
    leader.checkpoint();
    let bytes = leader.keeper.checkpoint(GROUP.0).unwrap().state.len() as u64;
    for (checkpoint_bytes_max, done) in [(bytes - 1, false), (bytes + 10_000, true)] {
        let disk = SimDisk::new(1);
        let (wal, keeper, _) = open_bounded(&disk, 2, checkpoint_bytes_max);
        let incoming = Incoming::default();
        let mut follower = Follower { disk, keeper, incoming, _wal: wal };
        let (outcomes, _) = follower.receive(&mut leader.sender(1), pass).unwrap();
        assert_eq!(outcomes.done, Some(done));
    }
}

#[test]
fn messages_and_states_may_be_larger_than_a_chunk() {
    let mut leader = Leader::new(1);
    leader.publish(4, 3 * DATA_BYTES as u64);
    let mut batch = Batch::new();
    for queue in 100..20_000 {
        batch.create_queue(QueueId(queue), &QueueSettings::default());
    }
    leader.apply(batch);
    leader.checkpoint();
    let disk = SimDisk::new(1);
    let mut follower = Follower::new(&disk);
    let mut sender = leader.sender(1);
    follower
        .receive(&mut sender, |_, chunk| {
            assert!(chunk.len() <= DATA_BYTES + 64);
            vec![chunk]
        })
        .unwrap();
    drop(follower);
    assert_same(&leader, &leader.live(), &disk);
}

#[test]
fn a_checkpoint_made_meanwhile_takes_nothing_away() {
    let mut leader = Leader::new(3);
    leader.publish(800, 4000);
    leader.checkpoint();
    let (expected, index) = (leader.live(), leader.index);
    let disk = SimDisk::new(3);
    let mut follower = Follower::new(&disk);
    let mut sender = leader.sender(1);
    let mut is_first = true;
    let (outcomes, installed) = follower
        .receive(&mut sender, |_, chunk| {
            if std::mem::take(&mut is_first) {
                leader.settle(90);
                leader.checkpoint();
                leader.settle(100);
                leader.checkpoint();
            }
            vec![chunk]
        })
        .unwrap();
    assert_eq!((outcomes.done, installed.unwrap().index), (Some(true), index));
    drop(follower);
    disk.power_cut(1);
    let (_wal, keeper, checkpoint) = open(&disk, 2);
    assert!(read(&keeper, &checkpoint.unwrap()) == expected);
}

#[test]
fn a_stream_that_is_not_what_was_sent_is_refused_and_leaves_nothing() {
    let mut leader = Leader::new(4);
    leader.publish(500, 8000);
    leader.checkpoint();
    let chunks = {
        let (mut sender, mut chunks) = (leader.sender(1), 0);
        while sender.next_chunk().unwrap().is_some() {
            chunks += 1;
        }
        chunks
    };
    assert!(chunks > 5);
    for nth in 0..chunks {
        for harm in 0..4 {
            let disk = SimDisk::new(1);
            let mut follower = Follower::new(&disk);
            let mut held = None;
            let tamper = |at: usize, chunk: Bytes| {
                if let Some(before) = held.take() {
                    return vec![chunk, before];
                }
                if at != nth {
                    return vec![chunk];
                }
                match harm {
                    0 => Vec::new(),
                    1 => vec![chunk.clone(), chunk],
                    2 => {
                        held = Some(chunk);
                        Vec::new()
                    }
                    _ => {
                        let mut other = chunk.to_vec();
                        let middle = other.len() / 2;
                        other[middle] ^= 4;
                        vec![other.into()]
                    }
                }
            };
            let (outcomes, installed) = follower.receive(&mut leader.sender(9), tamper).unwrap();
            // The end may come twice: it is over by then.
            let is_harmless = harm == 1 && nth + 1 == chunks;
            assert_eq!(installed.is_some(), is_harmless, "{nth} {harm}");
            assert!(is_harmless || outcomes.done != Some(true));
            if !is_harmless {
                // The next attempt begins anew.
                let (outcomes, _) = follower.receive(&mut leader.sender(10), pass).unwrap();
                assert_eq!(outcomes.done, Some(true));
            }
            assert_eq!(follower.segment_files().len(), 1);
        }
    }
}

#[test]
fn a_power_cut_leaves_the_old_checkpoint_or_the_new_one() {
    let mut leader = Leader::new(5);
    leader.publish(60, 8000);
    leader.checkpoint();
    let early = leader.live();
    let base = SimDisk::new(5);
    let mut follower = Follower::new(&base);
    follower.receive(&mut leader.sender(1), pass).unwrap();
    let early_index = leader.index;
    leader.settle(40);
    leader.publish(60, 8000);
    leader.checkpoint();
    drop(follower);
    base.kill();
    let mut seen = [0, 0];
    for cut in 1.. {
        let disk = copy(&base);
        let mut follower = Follower::new(&disk);
        disk.fail_at(cut, Fault::PowerOff);
        let done = follower.receive(&mut leader.sender(2), pass);
        let was_cut = disk.has_failed();
        assert!(done.is_ok() || was_cut);
        drop(follower);
        disk.power_cut(cut);
        let (_wal, keeper, checkpoint) = open(&disk, 2);
        let checkpoint = checkpoint.expect("one of them is there");
        let is_new = checkpoint.index != early_index;
        seen[usize::from(is_new)] += 1;
        let expected = if is_new { leader.live() } else { early.clone() };
        assert!(read(&keeper, &checkpoint) == expected, "cut at {cut}");
        assert!(done.is_err() || is_new);
        if !was_cut {
            break;
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

fn copy(disk: &SimDisk) -> SimDisk {
    let copy = SimDisk::new(1);
    for dir in ["wal", "groups", &format!("groups/{}", GROUP.0)] {
        copy.create_dir(dir).unwrap();
    }
    for dir in ["", "wal", "groups"] {
        copy.sync_dir(dir).unwrap();
    }
    for path in disk.paths() {
        copy.plant_file(&path, &disk.contents(&path).unwrap());
    }
    copy
}

#[test]
fn a_full_disk_ends_the_transfer_and_the_next_one_succeeds() {
    let mut leader = Leader::new(6);
    leader.publish(500, 8000);
    leader.checkpoint();
    let disk = SimDisk::new(6);
    let mut follower = Follower::new(&disk);
    let used: usize = disk.paths().iter().map(|path| disk.contents(path).unwrap().len()).sum();
    disk.set_capacity(used as u64 + (1 << 20));
    let (outcomes, installed) = follower.receive(&mut leader.sender(1), pass).unwrap();
    assert_eq!((outcomes.done, installed.is_some()), (Some(false), false));
    assert!(follower.segment_files().is_empty());
    disk.set_capacity(u64::MAX);
    let (outcomes, _) = follower.receive(&mut leader.sender(2), pass).unwrap();
    assert_eq!(outcomes.done, Some(true));
    drop(follower);
    assert_same(&leader, &leader.live(), &disk);
}

#[test]
fn only_the_newest_attempt_counts_and_an_older_checkpoint_is_refused() {
    let mut leader = Leader::new(7);
    leader.publish(100, 8000);
    leader.checkpoint();
    let disk = SimDisk::new(7);
    let mut follower = Follower::new(&disk);
    let (mut old, mut new) = (leader.sender(1), leader.sender(2));
    let mut outcomes = Outcomes::default();
    follower.take(&old.offer(), &mut old, &mut outcomes).unwrap();
    let (offer, stray) = (new.offer(), old.next_chunk().unwrap().unwrap());
    follower.take(&offer, &mut new, &mut outcomes).unwrap();
    follower.take(&stray, &mut new, &mut outcomes).unwrap();
    assert_eq!((outcomes.taken, outcomes.done), (0, None), "it is as if it never came");
    while let Some(chunk) = new.next_chunk().unwrap() {
        follower.take(&chunk, &mut new, &mut outcomes).unwrap();
    }
    let mut events = Vec::new();
    follower.incoming.decide(GROUP, outcomes.arrived.unwrap(), false, &mut events);
    note(events, &mut new, &mut outcomes);
    assert_eq!(outcomes.done, Some(false), "the core did not want it");
    assert!(!follower.incoming.holds_back(GROUP, 0, &mut Vec::new()));
    let (outcomes, _) = follower.receive(&mut leader.sender(3), pass).unwrap();
    assert_eq!(outcomes.done, Some(true));
    let mut again = leader.sender(4);
    let mut outcomes = Outcomes::default();
    follower.take(&again.offer(), &mut again, &mut outcomes).unwrap();
    assert_eq!(outcomes.done, Some(false), "it has that already");
}

#[test]
fn a_sender_whose_transfer_gives_way_to_another_nodes_hears_of_it() {
    let mut leader = Leader::new(1);
    let (mut follower, mut sender) = left_alone(&mut leader);
    let mut events = Vec::new();
    let offer = leader.sender(2).offer();
    follower.incoming.chunk(0, &mut follower.keeper, NodeId(3), &offer, &mut events).unwrap();
    let of_sender = |event: &Event| matches!(event, Event::Tell { to, .. } if *to == LEADER);
    let (told, others): (Vec<_>, Vec<_>) = events.into_iter().partition(of_sender);
    assert_eq!(others.len(), 1, "the other is asked for its chunks");
    let mut outcomes = Outcomes::default();
    note(told, &mut sender, &mut outcomes);
    assert_eq!(outcomes.done, Some(false));
}

/// A transfer whose sender died after its first part.
fn left_alone(leader: &mut Leader) -> (Follower, Sender<SimDisk>) {
    leader.publish(400, 8000);
    leader.checkpoint();
    let mut follower = Follower::new(&SimDisk::new(1));
    let mut sender = leader.sender(1);
    let mut outcomes = Outcomes::default();
    follower.take(&sender.offer(), &mut sender, &mut outcomes).unwrap();
    let first = sender.next_chunk().unwrap().unwrap();
    follower.take(&first, &mut sender, &mut outcomes).unwrap();
    (follower, sender)
}

#[test]
fn a_transfer_that_nobody_ends_holds_no_checkpoints_back_for_ever() {
    let mut leader = Leader::new(1);
    let (mut follower, _sender) = left_alone(&mut leader);
    let mut events = Vec::new();
    assert!(follower.incoming.holds_back(GROUP, 0, &mut events));
    follower.incoming.forget_stale(STALE_MS - 1);
    assert!(follower.incoming.holds_back(GROUP, 0, &mut events));
    follower.incoming.forget_stale(STALE_MS);
    assert!(!follower.incoming.holds_back(GROUP, 0, &mut events));
}

#[test]
fn a_group_that_has_come_as_far_by_itself_lets_go_of_a_snapshot_and_its_sender_hears_of_it() {
    let mut leader = Leader::new(1);
    let (mut follower, mut sender) = left_alone(&mut leader);
    let mut events = Vec::new();
    assert!(follower.incoming.holds_back(GROUP, leader.index - 1, &mut events));
    assert!(events.is_empty());
    assert!(!follower.incoming.holds_back(GROUP, leader.index, &mut events));
    let mut outcomes = Outcomes::default();
    note(events, &mut sender, &mut outcomes);
    assert_eq!(outcomes.done, Some(false));
    // What is on its way all the same is of no use.
    let late = sender.next_chunk().unwrap().unwrap();
    follower.take(&late, &mut sender, &mut Outcomes::default()).unwrap();
    assert!(!follower.incoming.holds_back(GROUP, 0, &mut Vec::new()));
}
