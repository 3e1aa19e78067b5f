use std::collections::BTreeMap;

use super::format::{Contents, Reference};
use super::*;
use crate::disk::Disk;
use crate::error::Error;
use crate::identity::Identity;
use crate::sim::{Random, SimDisk};

const IDENTITY: Identity = Identity { cluster: 9, node: 1, incarnation: 1 };

fn disk() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir("groups").unwrap();
    disk.create_dir("groups/1").unwrap();
    disk
}

/// Messages of all sizes, from nothing to more than a stride of the index.
fn messages(random: &mut Random) -> BTreeMap<(u64, u64), Vec<u8>> {
    let mut messages = BTreeMap::new();
    for queue in 0..3 {
        let mut seq = random.below(5);
        for _ in 0..random.below(400) {
            let bytes = match random.below(60) {
                0 => 70_000 + random.below(100_000),
                1..10 => 0,
                _ => random.below(3000),
            };
            messages.insert((queue * 10, seq), vec![random.number() as u8; bytes as usize]);
            seq += 1 + if random.chance(20) { random.below(50) } else { 0 };
        }
    }
    messages
}

/// Segment 5 of group 1, with these messages in it.
fn write(disk: &SimDisk, messages: &BTreeMap<(u64, u64), Vec<u8>>) -> SegmentMeta {
    let mut writer = Writer::create(disk, IDENTITY, 1, 5).unwrap();
    for ((queue, seq), message) in messages {
        writer.add(*queue, *seq, message).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_read_gives_the_messages_from_its_sequence_number_on() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let disk = disk();
        let messages = messages(&mut random);
        let meta = write(&disk, &messages);
        assert_eq!(meta.count(), messages.len() as u64);
        let reader = Reader::open(&disk, &IDENTITY, 1, &meta).unwrap();
        reader.verify().unwrap();
        for _ in 0..300 {
            let queue = random.below(4) * 10;
            let last = meta.extent(queue).map_or(0, |extent| extent.last_seq);
            let from = random.below(last + 3);
            let bytes_max = random.below(200_000);
            let reads = disk.calls().reads;
            let found = reader.read(queue, from, bytes_max).unwrap();
            assert!(disk.calls().reads <= reads + 4, "a read is a few calls");
            let wanted = messages.range((queue, from)..=(queue, u64::MAX));
            assert_eq!(found.is_empty(), wanted.clone().next().is_none());
            for ((seq, message), ((_, expected_seq), expected)) in found.iter().zip(wanted) {
                assert_eq!((seq, &message[..]), (expected_seq, &expected[..]));
            }
            let before_last: usize = found.iter().rev().skip(1).map(|(_, m)| m.len()).sum();
            assert!(before_last as u64 <= bytes_max, "no more is read than was asked for");
        }
    }
}

#[test]
fn messages_that_lie_scattered_are_read_without_those_between_them() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let disk = disk();
        let messages = messages(&mut random);
        let meta = write(&disk, &messages);
        let reader = Reader::open(&disk, &IDENTITY, 1, &meta).unwrap();
        for _ in 0..50 {
            let queue = random.below(3) * 10;
            let spans: Vec<_> = (0..8)
                .map(|_| (random.below(600), 1 + random.below(12)))
                .map(|(first, count)| first..first + count)
                .collect();
            let reads = disk.calls().reads;
            let (found, bytes) = reader.read_spans(queue, &spans, u64::MAX / 4).unwrap();
            assert!(disk.calls().reads <= reads + 1 + 3 * 8, "the index is read once");
            let of_span = |span: &std::ops::Range<u64>| {
                messages
                    .range((queue, span.start)..(queue, span.end))
                    .map(|((_, seq), it)| (*seq, it))
            };
            let wanted: Vec<_> = spans.iter().flat_map(of_span).collect();
            let found: Vec<_> = found.iter().map(|(seq, it)| (*seq, &it[..])).collect();
            let wanted: Vec<_> = wanted.into_iter().map(|(seq, it)| (seq, &it[..])).collect();
            assert_eq!(found, wanted);
            assert_eq!(bytes, wanted.iter().map(|(_, it)| it.len() as u64).sum::<u64>());
        }
    }
}

#[test]
fn one_message_of_a_large_segment_costs_a_stride_of_it() {
    let disk = disk();
    let mut writer = Writer::create(&disk, IDENTITY, 1, 5).unwrap();
    for seq in 0..10_000 {
        writer.add(1, seq, &[1; 1000]).unwrap();
    }
    let meta = writer.finish().unwrap();
    let reader = Reader::open(&disk, &IDENTITY, 1, &meta).unwrap();
    let reads = disk.calls().reads;
    let spans: Vec<_> = (0..100).map(|nth| nth * 97..nth * 97 + 1).collect();
    let (found, _) = reader.read_spans(1, &spans, 1 << 20).unwrap();
    assert_eq!(found.len(), 100);
    assert_eq!(disk.calls().reads, reads + 101, "the index, and one for each");
}

#[test]
fn opening_a_large_segment_reads_only_its_footer() {
    let disk = disk();
    let mut writer = Writer::create(&disk, IDENTITY, 1, 5).unwrap();
    for seq in 0..10_000 {
        writer.add(1, seq, &[1; 1000]).unwrap();
    }
    let meta = writer.finish().unwrap();
    let reads = disk.calls().reads;
    let reader = Reader::open(&disk, &IDENTITY, 1, &meta).unwrap();
    assert_eq!(disk.calls().reads, reads + 2, "trailer and footer");
    let found = reader.read(1, 5_000, 64 << 10).unwrap();
    assert_eq!(disk.calls().reads, reads + 4, "index and records");
    assert_eq!((found[0].0, found.len()), (5_000, 66));
    // Kept in memory: one row per queue, whatever the number of messages.
    assert_eq!(reader.extents().count(), 1);
}

#[test]
fn a_segment_of_another_number_is_not_taken_for_this_one() {
    let disk = disk();
    let mut writer = Writer::create(&disk, IDENTITY, 1, 5).unwrap();
    writer.add(1, 1, b"message").unwrap();
    let meta = writer.finish().unwrap();
    disk.plant_file("groups/1/seg-6", &disk.contents("groups/1/seg-5").unwrap());
    let other = SegmentMeta { number: 6, ..meta };
    let error = Reader::open(&disk, &IDENTITY, 1, &other).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[test]
fn a_writer_that_is_dropped_takes_its_file_along() {
    let disk = disk();
    let mut writer = Writer::create(&disk, IDENTITY, 1, 5).unwrap();
    writer.add(1, 1, b"message").unwrap();
    drop(writer);
    assert_eq!(disk.paths(), Vec::<String>::new());
}

/// A message as `queue` has it: its number, and what is the same for all.
fn shared(queue: u64, body: &[u8]) -> Vec<u8> {
    [b"head", &queue.to_le_bytes()[..], body].concat()
}

/// What the queues of the message of this number have in common.
fn sharing(number: u64) -> Sharing {
    Sharing { origin: (1, number), queue_at: 4 }
}

/// Segment 5 of group 1: messages of 10 KB, each in these queues.
fn write_shared(disk: &SimDisk, queues: std::ops::Range<u64>, count: u64) -> SegmentMeta {
    let mut writer = Writer::create(disk, IDENTITY, 1, 5).unwrap();
    for queue in queues {
        for seq in 0..count {
            let message = shared(queue, &vec![seq as u8; 10_000]);
            writer.add_shared(queue, seq, sharing(seq), &message).unwrap();
        }
    }
    writer.finish().unwrap()
}

#[test]
fn a_message_of_many_queues_takes_its_bytes_once_and_each_queue_reads_its_own() {
    let disk = disk();
    let meta = write_shared(&disk, 1..21, 30);
    let per_message = meta.bytes / 30;
    assert!(per_message < 11_500, "{per_message} bytes for each, in 20 queues");
    let reader = Reader::open(&disk, &IDENTITY, 1, &meta).unwrap();
    reader.verify().unwrap();
    for queue in 1..21 {
        let found = reader.read(queue, 10, 40_000).unwrap();
        assert_eq!(found.len(), 4, "messages count with their own bytes");
        for (seq, message) in found {
            assert_eq!(message, shared(queue, &vec![seq as u8; 10_000]));
        }
    }
}

#[test]
fn a_damaged_message_of_many_queues_is_told_for_each_of_them() {
    let disk = disk();
    let meta = write_shared(&disk, 1..6, 3);
    let reader = Reader::open(&disk, &IDENTITY, 1, &meta).unwrap();
    // In the body of the first message, which stands in the record of the first queue.
    disk.damage("groups/1/seg-5", 5000, b"?");
    for queue in 1..6 {
        let error = reader.read(queue, 0, 1).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
    assert!(matches!(reader.verify(), Err(Error::Damaged { .. })));
    let queues: Vec<u64> = reader.unreadable().iter().map(|(queue, ..)| *queue).collect();
    assert_eq!(queues, [1, 2, 3, 4, 5]);
}

#[test]
fn a_reference_that_leads_out_of_the_segment_or_is_too_short_is_damage() {
    for reference in [
        Reference { offset: u64::MAX, bytes: 10, checksum: 0 },
        Reference { offset: 64, bytes: u32::MAX, checksum: 0 },
        Reference { offset: 64, bytes: 11, checksum: 0 },
    ] {
        let disk = disk();
        let mut writer = Writer::create(&disk, IDENTITY, 1, 5).unwrap();
        writer.put(1, 1, &reference.encode(), (Contents::Reference, 4)).unwrap();
        writer.put(2, 1, b"no reference", (Contents::Reference, 4)).unwrap();
        let meta = writer.finish().unwrap();
        let reader = Reader::open(&disk, &IDENTITY, 1, &meta).unwrap();
        for queue in [1, 2] {
            let error = reader.read(queue, 0, 1).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
        }
    }
}

#[test]
fn only_so_many_messages_are_remembered_and_further_ones_are_stored_for_each_queue() {
    let disk = disk();
    let count = crate::limits::SHARED_MESSAGES_MAX as u64 + 10;
    let mut writer = Writer::create(&disk, IDENTITY, 1, 5).unwrap();
    for queue in [1, 2] {
        for seq in 0..count {
            let message = shared(queue, &seq.to_le_bytes());
            writer.add_shared(queue, seq, sharing(seq), &message).unwrap();
        }
    }
    let meta = writer.finish().unwrap();
    let of_second = meta.extent(2).unwrap().bytes;
    assert_eq!(of_second, (count - 10) * 16 + 10 * 20, "ten are there again");
    let reader = Reader::open(&disk, &IDENTITY, 1, &meta).unwrap();
    for seq in [0, count - 11, count - 10, count - 1] {
        let found = reader.read(2, seq, 1).unwrap();
        assert_eq!(found[0], (seq, shared(2, &seq.to_le_bytes()).into()));
    }
}
