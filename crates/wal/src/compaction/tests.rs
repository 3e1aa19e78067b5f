use bytes::Bytes;

use super::*;
use crate::segments::{Extent, Sharing};
use crate::sim::{Random, SimDisk};
use crate::{Checkpoint, CommitBatch, Config, Identity, Item, Wal};

const IDENTITY: Identity = Identity { cluster: 5, node: 1, incarnation: 1 };

fn meta(number: u64, first_seq: u64, count: u64) -> SegmentMeta {
    let extent =
        Extent { queue: 1, first_seq, last_seq: first_seq + count - 1, count, bytes: count * 1000 };
    SegmentMeta { number, bytes: extent.record_bytes() + 300, checksum: 0, extents: vec![extent] }
}

fn numbers(steps: &[Step]) -> Vec<(char, Vec<u64>)> {
    let step = |step: &Step| match step {
        Step::Keep(meta) => ('k', vec![meta.number]),
        Step::Drop(meta) => ('d', vec![meta.number]),
        Step::Merge(metas) => ('m', metas.iter().map(|meta| meta.number).collect()),
    };
    steps.iter().map(step).collect()
}

#[test]
fn a_dead_segment_is_dropped_and_a_live_one_kept() {
    let live = Live::from([(1, std::iter::once(100..200).collect())]);
    let steps = plan(vec![meta(1, 0, 100), meta(2, 100, 100)], &live);
    assert_eq!(numbers(&steps), [('d', vec![1]), ('k', vec![2])]);
}

#[test]
fn a_mostly_dead_segment_is_merged_with_its_smaller_neighbour() {
    let live = Live::from([(1, vec![0..200, 230..240, 300..350])]);
    let steps = plan(vec![meta(1, 0, 200), meta(2, 200, 100), meta(3, 300, 50)], &live);
    assert_eq!(numbers(&steps), [('k', vec![1]), ('m', vec![2, 3])]);
}

#[test]
fn a_lonely_mostly_dead_segment_is_rewritten() {
    let live = Live::from([(1, std::iter::once(3..4).collect())]);
    assert_eq!(numbers(&plan(vec![meta(1, 0, 100)], &live)), [('m', vec![1])]);
}

#[test]
fn many_segments_of_like_size_are_joined() {
    let live = Live::from([(1, std::iter::once(0..1000).collect())]);
    let segments = (0..4).map(|number| meta(number, number * 10, 10)).collect();
    assert_eq!(numbers(&plan(segments, &live)), [('m', vec![0, 1, 2, 3])]);
}

/// A group with one queue per number, on a simulated disk.
struct Bench {
    disk: SimDisk,
    keeper: Keeper<SimDisk>,
    metas: Vec<SegmentMeta>,
    index: u64,
    _wal: Wal<SimDisk>,
}

impl Bench {
    fn new() -> Self {
        let disk = SimDisk::new(1);
        let config = Config { file_bytes: 16 << 10, ballast_bytes: 0, ..Config::new(IDENTITY) };
        let (mut wal, _) = Wal::open(disk.clone(), config).unwrap();
        let mut batch = CommitBatch::new();
        batch.add(1, Item::Entry { index: 1, term: 1, data: Bytes::new() });
        wal.commit(vec![batch]).unwrap();
        let keeper = wal.keeper();
        Self { disk, keeper, metas: Vec::new(), index: 0, _wal: wal }
    }

    fn write(&mut self, messages: &[(u64, u64, Vec<u8>)]) {
        let mut writer = self.keeper.segment(1).unwrap();
        for (queue, seq, message) in messages {
            writer.add(*queue, *seq, message).unwrap();
        }
        self.metas.push(writer.finish().unwrap());
    }

    fn install(&mut self) {
        self.index += 1;
        let (index, segments) = (self.index, self.metas.clone());
        let state = Bytes::new();
        self.keeper.install(Checkpoint { group: 1, index, term: 1, state, segments }).unwrap();
    }

    fn segment_bytes(&self) -> u64 {
        let segments = self.disk.paths().into_iter().filter(|path| path.contains("seg-"));
        segments.map(|path| self.disk.contents(&path).unwrap().len() as u64).sum()
    }

    fn read_all(&self) -> Vec<(u64, u64, Bytes)> {
        let mut all = Vec::new();
        for meta in &self.metas {
            let reader = self.keeper.open_segment(1, meta).unwrap();
            for extent in &meta.extents {
                let found = reader.read(extent.queue, 0, u64::MAX / 4).unwrap();
                all.extend(found.into_iter().map(|(seq, message)| (extent.queue, seq, message)));
            }
        }
        all.sort();
        all
    }
}

#[test]
fn disk_use_is_bounded_by_what_lives() {
    let mut random = Random::new(3);
    let mut bench = Bench::new();
    let mut alive: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
    let mut next = [0; 4];
    let mut segments_max = 0;
    for round in 0..300 {
        let mut fresh = Vec::new();
        for (queue, next) in next.iter_mut().enumerate() {
            for _ in 0..random.below(40) {
                let message = vec![round as u8; random.below(400) as usize];
                fresh.push((queue as u64, *next, message.clone()));
                alive.insert((queue as u64, *next), message);
                *next += 1;
            }
        }
        bench.write(&fresh);
        // Most leave soon, in any order; one queue is slower than the others.
        alive.retain(|(queue, _), _| random.below(100) >= if *queue == 0 { 2 } else { 45 });
        let mut live = Live::new();
        for (queue, seq) in alive.keys() {
            live.entry(*queue).or_default().push(*seq..*seq + 1);
        }
        bench.metas = bench.keeper.compact(1, bench.metas.clone(), &live).unwrap();
        bench.install();
        segments_max = segments_max.max(bench.metas.len());
        let live_bytes: u64 = alive.values().map(|message| message.len() as u64 + 24).sum();
        // Twice what lives; by extents' averages, so a little more; and a footer per segment.
        let bound = live_bytes * 5 / 2 + bench.metas.len() as u64 * 400 + 4096;
        assert!(bench.segment_bytes() <= bound, "{} of {bound}", bench.segment_bytes());
    }
    assert!(segments_max < 30, "the number of files is bounded too: {segments_max}");
    let found = bench.read_all();
    let found: BTreeMap<(u64, u64), Bytes> =
        found.into_iter().map(|(queue, seq, message)| ((queue, seq), message)).collect();
    for (key, message) in &alive {
        assert_eq!(found.get(key).map(|found| &found[..]), Some(&message[..]), "{key:?}");
    }
}

#[test]
fn segments_that_interleave_are_merged_in_order() {
    let mut bench = Bench::new();
    let message = |seq: u64| vec![seq as u8; 10];
    bench.write(&[(7, 1, message(1)), (7, 9, message(9)), (8, 3, message(3))]);
    bench.write(&[(7, 4, message(4)), (7, 5, message(5)), (7, 9, message(9))]);
    let live = Live::from([(7, vec![0..2, 4..20]), (8, std::iter::once(0..9).collect())]);
    let merged = bench.keeper.merge(1, &bench.metas.clone(), &live).unwrap().unwrap();
    bench.metas = vec![merged];
    bench.install();
    let keys: Vec<(u64, u64)> = bench.read_all().iter().map(|m| (m.0, m.1)).collect();
    assert_eq!(keys, [(7, 1), (7, 4), (7, 5), (7, 9), (8, 3)]);
    let segments = bench.disk.paths().into_iter().filter(|path| path.contains("seg-"));
    assert_eq!(segments.collect::<Vec<_>>(), ["groups/1/seg-3"], "the old files are gone");
}

/// Messages of 1,000 bytes, each in every one of these queues; `seqs` tells them apart too.
fn write_shared(bench: &mut Bench, queues: &[u64], seqs: std::ops::Range<u64>) {
    let mut writer = bench.keeper.segment(1).unwrap();
    for queue in queues {
        for seq in seqs.clone() {
            let sharing = Sharing { origin: (1, seq), queue_at: 0 };
            writer.add_shared(*queue, seq, sharing, &shared(*queue, seq)).unwrap();
        }
    }
    bench.metas.push(writer.finish().unwrap());
}

fn shared(queue: u64, seq: u64) -> Vec<u8> {
    [&queue.to_le_bytes()[..], &[seq as u8; 1000]].concat()
}

#[test]
fn queues_that_are_emptied_one_after_the_other_take_nothing_from_the_rest() {
    let mut bench = Bench::new();
    let queues: Vec<u64> = (1..=10).collect();
    write_shared(&mut bench, &queues, 0..50);
    write_shared(&mut bench, &queues, 50..100);
    // The first queue has the bytes, the others refer to them; then the next one gets them.
    for emptied in 1..=10 {
        let left = &queues[emptied..];
        let live: Live =
            left.iter().map(|queue| (*queue, std::iter::once(0..100).collect())).collect();
        bench.metas = bench.keeper.compact(1, bench.metas.clone(), &live).unwrap();
        bench.install();
        let expected = left
            .iter()
            .flat_map(|queue| (0..100).map(|seq| (*queue, seq, Bytes::from(shared(*queue, seq)))));
        let found: Vec<_> =
            bench.read_all().into_iter().filter(|it| left.contains(&it.0)).collect();
        assert_eq!(found, expected.collect::<Vec<_>>());
        let bound = 100 * (1032 + 400) + 4096;
        assert!(bench.segment_bytes() <= bound, "{} of {bound}", bench.segment_bytes());
    }
    assert_eq!(bench.segment_bytes(), 0);
}

#[test]
fn a_segment_in_which_all_lives_is_not_rewritten_however_little_each_queue_has() {
    let mut bench = Bench::new();
    let queues: Vec<u64> = (1..=1000).collect();
    write_shared(&mut bench, &queues, 0..1);
    let live: Live = queues.iter().map(|queue| (*queue, std::iter::once(0..1).collect())).collect();
    assert_eq!(plan(bench.metas.clone(), &live), [Step::Keep(bench.metas[0].clone())]);
}

#[test]
fn segments_whose_bytes_belong_to_an_emptied_queue_are_not_joined_without_bound() {
    let mut bench = Bench::new();
    for first in [0, 50, 100] {
        write_shared(&mut bench, &[1, 2], first..first + 50);
    }
    let live = Live::from([(2, std::iter::once(0..150).collect())]);
    // By their extents little of them lives; in truth all.
    assert!(bench.metas.iter().all(|meta| live_bytes(meta, &live) < 3000));
    let of_runs = |bytes_max| {
        let runs = bench.keeper.bounded(1, bench.metas.clone(), &live, bytes_max);
        runs.iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(of_runs(MERGED_BYTES_MAX), [3]);
    assert_eq!(of_runs(120_000), [2, 1]);
    assert_eq!(of_runs(60_000), [1, 1, 1]);
}
