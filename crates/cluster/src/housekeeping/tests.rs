use machine::QueueMachine;
use wal::sim::SimDisk;
use wal::{CommitBatch, Config, Identity, Item, Wal};

use super::*;
use crate::snapshot::{Sender, Source};

const GROUP: GroupId = GroupId(3);
const LEADER: NodeId = NodeId(1);

fn state() -> Bytes {
    let mut state = vec![1, 1, 0];
    state.extend_from_slice(&7u64.to_le_bytes());
    state.extend_from_slice(&QueueMachine::new().snapshot());
    state.into()
}

fn job(index: u64) -> Task {
    let (messages, live) = (Vec::new(), Vec::new());
    Task::Checkpoint(Job { group: GROUP, index, term: 1, state: state(), messages, live })
}

/// Of a node whose log has more files than it should, all of one group.
struct House {
    house: Housekeeping<SimDisk>,
    disk: SimDisk,
    _wal: Wal<SimDisk>,
}

impl House {
    fn new() -> Self {
        Self::bounded(wal::limits::CHECKPOINT_BYTES_MAX)
    }

    /// Checkpoints have at most so many bytes.
    fn bounded(checkpoint_bytes_max: u64) -> Self {
        let mut config = Config::new(Identity { cluster: 1, node: 2, incarnation: 1 });
        config.checkpoint_bytes_max = checkpoint_bytes_max;
        let disk = SimDisk::new(2);
        config.file_bytes = 64 << 10;
        config.ballast_bytes = 0;
        let (mut wal, _) = Wal::open(disk.clone(), config).unwrap();
        for index in 1..=3 * LOG_FILES_KEPT as u64 {
            let mut commit = CommitBatch::new();
            commit.add(GROUP.0, Item::Entry { index, term: 1, data: vec![0; 40 << 10].into() });
            wal.commit(vec![commit]).unwrap();
        }
        let (keeper, reader) = (wal.keeper(), wal.reader());
        let house = Housekeeping::new(keeper, reader, BTreeMap::new(), &mut Vec::new()).unwrap();
        Self { house, disk, _wal: wal }
    }

    /// Whether a turn at this time asks the group for a checkpoint.
    fn asks(&mut self, now_ms: u64) -> bool {
        let mut effects = Vec::new();
        self.house.keep(now_ms, &mut effects).unwrap();
        effects.iter().any(|it| matches!(it, Effect::Tell(_, Input::WantCheckpoint { .. })))
    }

    fn perform(&mut self, now_ms: u64, task: Task) -> Vec<Effect<SimDisk>> {
        let mut effects = Vec::new();
        self.house.perform(now_ms, task, &mut effects).unwrap();
        effects
    }

    /// A snapshot at `index` begins to come, and its sender says nothing more.
    fn hears_offer(&mut self, now_ms: u64, index: u64) {
        let (state, segments) = (state(), Vec::new());
        let checkpoint = Checkpoint { group: GROUP.0, index, term: 1, state, segments };
        let source: Source<SimDisk> = Source { checkpoint, segments: Vec::new() };
        let chunk = Sender::new(source, 1).unwrap().offer();
        assert!(!self.perform(now_ms, Task::Chunk { from: LEADER, chunk }).is_empty());
    }
}

fn is_made(effects: &[Effect<SimDisk>]) -> bool {
    let is_failed = |it: &Effect<_>| matches!(it, Effect::Tell(_, Input::CheckpointFailed { .. }));
    let is_made = |it: &Effect<_>| matches!(it, Effect::Tell(_, Input::Checkpointed { .. }));
    assert_ne!(effects.iter().any(is_failed), effects.iter().any(is_made), "one of both is told");
    effects.iter().any(is_made)
}

#[test]
fn a_group_is_asked_once_however_long_its_checkpoint_waits_for_its_turn() {
    let mut house = House::new();
    assert!(house.asks(0));
    for now_ms in [1_000, 10_000, 100_000] {
        assert!(!house.asks(now_ms), "it was asked, and a second checkpoint would be of no use");
    }
    assert!(is_made(&house.perform(100_000, job(1))));
    assert!(house.asks(101_000), "its entries above that are still in the oldest file");
}

#[test]
fn a_checkpoint_that_a_snapshot_holds_back_is_asked_for_again() {
    let mut house = House::new();
    house.hears_offer(0, 50);
    assert!(house.asks(0));
    assert!(!is_made(&house.perform(1_000, job(12))), "the snapshot brings more");
    assert!(!house.asks(1_000 + ASK_AGAIN_MS - 1));
    assert!(house.asks(1_000 + ASK_AGAIN_MS));
    // Under another leader the group comes further than the snapshot.
    assert!(is_made(&house.perform(8_000, job(50))));
}

#[test]
fn a_snapshot_whose_sender_died_holds_nothing_back_for_ever() {
    let mut house = House::new();
    house.hears_offer(0, 50);
    assert!(house.asks(0));
    assert!(!is_made(&house.perform(1_000, job(12))));
    let later_ms = 100_000;
    assert!(house.asks(later_ms));
    assert!(is_made(&house.perform(later_ms, job(12))));
}

/// A small message of a hundred queues: the log holds it once, a segment names each of them.
fn fan_out() -> Job {
    let place = wal::Place { file: 1, offset: 4096, bytes: 840, checksum: 0 };
    let of_queue = |queue| LiveMessages {
        queue: QueueId(queue),
        first_seq: 1,
        count: 1,
        place,
        range: 0..840,
        live: machine::Ranges::from(1..2),
    };
    let messages = (1..=100).map(of_queue).collect();
    Job { group: GROUP, index: 1, term: 1, state: state(), messages, live: Vec::new() }
}

#[test]
fn a_checkpoint_that_would_leave_too_little_free_is_held_back_and_publishers_wait() {
    let mut house = House::new();
    let (growth, free) = (fan_out().growth_bytes(), house.house.free_bytes());
    assert!(growth > 0);
    house.house.disk_free_limit = free - growth;
    assert!(house.house.has_room(0, &fan_out(), &mut Vec::new()), "just as much is left");
    house.house.disk_free_limit += 1;
    let effects = house.perform(0, Task::Checkpoint(fan_out()));
    assert!(!is_made(&effects));
    assert!(effects.iter().any(|it| matches!(it, Effect::Short(true))), "publishers wait");
    assert_eq!(house.house.free_bytes(), free, "nothing was written");
    // What takes no more room than it had in the log is made all the same.
    assert!(is_made(&house.perform(100_000, job(1))));
}

#[test]
fn a_node_that_stops_waits_for_no_checkpoint() {
    let mut house = House::new();
    house.house.stop();
    assert!(!house.asks(0), "nothing is asked for");
    assert!(!is_made(&house.perform(0, job(1))), "nor is what was asked for before begun");
    assert!(house.house.newest(GROUP).is_none());
}

#[test]
fn a_checkpoint_that_is_too_large_is_refused_and_the_node_goes_on_with_its_log() {
    const BYTES_MAX: usize = 1 << 20;
    let mut house = House::bounded(BYTES_MAX as u64);
    assert!(is_made(&house.perform(0, job(1))));
    let free = house.house.free_bytes();
    // The second has room for its state, and not for what comes around it.
    for (now_ms, bytes) in [(0, BYTES_MAX + 1), (10_000, BYTES_MAX - 40)] {
        if bytes < BYTES_MAX {
            // What was copied for it.
            let mut segment = house.house.keeper.segment(GROUP.0).unwrap();
            segment.add(1, 1, b"message").unwrap();
            segment.finish().unwrap();
        }
        let (state, messages, live) = (vec![0; bytes].into(), Vec::new(), Vec::new());
        let job = Job { group: GROUP, index: 5, term: 1, state, messages, live };
        let effects = house.perform(now_ms, Task::Checkpoint(job));
        assert!(!is_made(&effects));
        let is_any = |is: fn(&Effect<SimDisk>) -> bool| effects.iter().any(is);
        assert!(is_any(|it| matches!(it, Effect::TooLarge)), "it is counted");
        assert!(is_any(|it| matches!(it, Effect::Short(true))), "publishers wait");
        assert_eq!(house.house.newest(GROUP).unwrap().index, 1, "the log stays");
        assert_eq!(house.house.free_bytes(), free, "nothing is left of the attempt");
        let is_segment = |path: &String| path.contains("/seg-");
        assert_eq!(house.disk.paths().into_iter().find(is_segment), None);
    }
    assert!(!house.asks(11_000), "not at once");
    assert!(house.asks(20_000), "it is tried again");
    assert!(is_made(&house.perform(20_000, job(5))), "the state has become smaller");
}
