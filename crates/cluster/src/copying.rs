//! Copies what lives in a group's log entries to segments, sorted by queue.
//!
//! Entries lie in the log in their order, and many queues share each. A few queues are copied one
//! after the other, straight from the log. Many queues are gathered in memory, entry by entry, and
//! written when that is enough for a segment: so no entry is read once per queue. A message that went to
//! several queues is in a segment once, unless it is small; the other queues refer to it. The list of
//! its queues stays behind: it may be longer than the message.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use machine::{GroupId, Messages, QUEUE_AT, QueueId, for_queue_alone, queue_count};
use wal::segments::{SegmentMeta, Sharing, Writer};
use wal::{Disk, Error, Keeper, Place, Reader};

use crate::checkpoint::LiveMessages;
use crate::limits::{GATHERED_BYTES, GATHERED_MESSAGE_BYTES, QUEUES_STREAMED, SHARED_BYTES_MIN};

/// Writes `messages`, which are sorted by queue and sequence number, to as few segments as memory
/// allows. Those of one queue follow each other: none begins below the end of the one before.
pub fn copy<D: Disk>(
    keeper: &mut Keeper<D>,
    reader: &Reader<D>,
    group: GroupId,
    messages: &[LiveMessages],
) -> Result<Vec<SegmentMeta>, Error> {
    let queues = messages.chunk_by(|one, next| one.queue == next.queue).count();
    if queues <= QUEUES_STREAMED {
        stream(keeper, reader, group, messages)
    } else {
        gather(keeper, reader, group, messages, GATHERED_BYTES)
    }
}

fn stream<D: Disk>(
    keeper: &mut Keeper<D>,
    reader: &Reader<D>,
    group: GroupId,
    messages: &[LiveMessages],
) -> Result<Vec<SegmentMeta>, Error> {
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let mut writer = keeper.segment(group.0)?;
    let mut entries = Entries { reader, last: None };
    let mut alone = Vec::new();
    for run in messages {
        let bytes = entries.part(run)?;
        for (seq, span) in live(run, &bytes) {
            let sharing = sharing(run, &bytes, &span);
            alone.clear();
            for_queue_alone(run.queue, &bytes[span], &mut alone);
            add(&mut writer, run.queue, seq, sharing, &alone)?;
        }
    }
    Ok(vec![writer.finish()?])
}

fn gather<D: Disk>(
    keeper: &mut Keeper<D>,
    reader: &Reader<D>,
    group: GroupId,
    messages: &[LiveMessages],
    gathered_bytes: usize,
) -> Result<Vec<SegmentMeta>, Error> {
    let mut runs: Vec<&LiveMessages> = messages.iter().collect();
    runs.sort_by_key(|run| (run.place.file, run.place.offset, run.queue, run.first_seq));
    let mut entries = Entries { reader, last: None };
    let mut metas = Vec::new();
    let mut gathered = Gathered::default();
    for run in runs {
        let bytes = entries.part(run)?;
        for (seq, span) in live(run, &bytes) {
            gathered.add(run.queue, seq, sharing(run, &bytes, &span), &bytes[span]);
        }
        if gathered.weight() >= gathered_bytes {
            metas.push(gathered.write(keeper, group)?);
        }
    }
    if !gathered.messages.is_empty() {
        metas.push(gathered.write(keeper, group)?);
    }
    Ok(metas)
}

/// What the queues of the message at `span` of a run's `bytes` have in common, if it is worth it. Its
/// origin is where it lies in the log: the same for all of them.
fn sharing(run: &LiveMessages, bytes: &[u8], span: &Range<usize>) -> Option<Sharing> {
    let queues = queue_count(&bytes[span.clone()]);
    let bytes_alone = span.len() - size_of::<QueueId>() * queues.saturating_sub(1);
    let start = u64::from(run.range.start) + span.start as u64;
    let origin = (run.place.file, run.place.offset + start);
    (queues > 1 && bytes_alone >= SHARED_BYTES_MIN)
        .then_some(Sharing { origin, queue_at: QUEUE_AT })
}

fn add<D: Disk>(
    writer: &mut Writer<D>,
    queue: QueueId,
    seq: u64,
    sharing: Option<Sharing>,
    alone: &[u8],
) -> Result<(), Error> {
    match sharing {
        Some(sharing) => writer.add_shared(queue.0, seq, sharing, alone),
        None => writer.add(queue.0, seq, alone),
    }
}

/// The live messages of `run` in its `bytes`.
fn live<'a>(
    run: &'a LiveMessages,
    bytes: &'a [u8],
) -> impl Iterator<Item = (u64, Range<usize>)> + 'a {
    let all = (run.first_seq..).zip(Messages::of(run.queue, bytes).spans());
    all.filter(|(seq, _)| run.live.contains(*seq))
}

/// Reads entries; the last one is kept, because runs of one entry come together.
struct Entries<'a, D: Disk> {
    reader: &'a Reader<D>,
    last: Option<(Place, Bytes)>,
}

impl<D: Disk> Entries<'_, D> {
    fn part(&mut self, run: &LiveMessages) -> Result<Bytes, Error> {
        let range = run.range.start as usize..run.range.end as usize;
        if let Some((place, entry)) = &self.last
            && *place == run.place
        {
            return Ok(entry.slice(range));
        }
        let entry = self.reader.read(run.place)?;
        let part = entry.slice(range);
        self.last = Some((run.place, entry));
        Ok(part)
    }
}

/// Messages of many queues on their way into one segment.
#[derive(Default)]
struct Gathered {
    messages: Vec<(QueueId, u64, Range<usize>, Option<Sharing>)>,
    bytes: Vec<u8>,
    /// Where messages of several queues lie in `bytes`: there, too, they are once.
    shared: BTreeMap<(u64, u64), Range<usize>>,
}

impl Gathered {
    fn weight(&self) -> usize {
        self.bytes.len() + self.messages.len() * GATHERED_MESSAGE_BYTES
    }

    fn add(&mut self, queue: QueueId, seq: u64, sharing: Option<Sharing>, message: &[u8]) {
        let known = sharing.and_then(|sharing| self.shared.get(&sharing.origin));
        let span = known.cloned().unwrap_or_else(|| {
            let start = self.bytes.len();
            for_queue_alone(queue, message, &mut self.bytes);
            start..self.bytes.len()
        });
        if let Some(sharing) = sharing {
            self.shared.insert(sharing.origin, span.clone());
        }
        self.messages.push((queue, seq, span, sharing));
    }

    fn write<D: Disk>(
        &mut self,
        keeper: &mut Keeper<D>,
        group: GroupId,
    ) -> Result<SegmentMeta, Error> {
        self.messages.sort_unstable_by_key(|(queue, seq, _, _)| (*queue, *seq));
        let mut writer = keeper.segment(group.0)?;
        for (queue, seq, span, sharing) in self.messages.drain(..) {
            add(&mut writer, queue, seq, sharing, &self.bytes[span])?;
        }
        self.bytes.clear();
        self.shared.clear();
        writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use machine::{Batch, Ranges};
    use wal::sim::SimDisk;
    use wal::{CommitBatch, Config, Identity, Item, Wal};

    use super::*;

    const GROUP: GroupId = GroupId(1);

    /// A log of entries with one message for each of `queues`, all alive.
    fn log(queues: u64, entries: u64) -> (Wal<SimDisk>, Vec<LiveMessages>) {
        let disk = SimDisk::new(1);
        let mut config = Config::new(Identity { cluster: 1, node: 1, incarnation: 1 });
        config.file_bytes = 64 << 10;
        config.ballast_bytes = 0;
        let (mut wal, _) = Wal::open(disk, config).unwrap();
        let mut messages = BTreeMap::new();
        for index in 1..=entries {
            let mut batch = Batch::new();
            let mut spans = Vec::new();
            for queue in 1..=queues {
                let start = batch.bytes() as u32;
                let body = format!("{queue}-{index}");
                batch.enqueue(&[QueueId(queue)], &[], body.as_bytes());
                spans.push((queue, start..batch.bytes() as u32));
            }
            let mut commit = CommitBatch::new();
            let data = Bytes::from(batch.stamp(0));
            commit.add(GROUP.0, Item::Entry { index, term: 1, data });
            let place = wal.commit(vec![commit]).unwrap().places()[0];
            for (queue, range) in spans {
                let live = Ranges::from(index..index + 1);
                let queue = QueueId(queue);
                let run = LiveMessages { queue, first_seq: index, count: 1, place, range, live };
                messages.insert((queue, index), run);
            }
        }
        (wal, messages.into_values().collect())
    }

    fn read(keeper: &Keeper<SimDisk>, metas: &[SegmentMeta], queue: u64) -> Vec<u64> {
        let mut found = Vec::new();
        for meta in metas {
            let segment = keeper.open_segment(GROUP.0, meta).unwrap();
            for (seq, bytes) in segment.read(queue, 0, u64::MAX).unwrap() {
                let (_, body) = Messages::of(QueueId(queue), &bytes).next().unwrap();
                assert_eq!(body, format!("{queue}-{seq}").as_bytes());
                found.push(seq);
            }
        }
        found
    }

    #[test]
    fn a_few_queues_are_one_segment_and_nothing_is_missing_in_it() {
        let (mut wal, messages) = log(3, 40);
        let (mut keeper, reader) = (wal.keeper(), wal.reader());
        let metas = copy(&mut keeper, &reader, GROUP, &messages).unwrap();
        assert_eq!(metas.len(), 1);
        for queue in 1..=3 {
            assert_eq!(read(&keeper, &metas, queue), (1..=40).collect::<Vec<_>>());
        }
    }

    #[test]
    fn many_queues_are_segments_that_follow_each_other_in_every_queue() {
        let (mut wal, messages) = log(20, 40);
        let (mut keeper, reader) = (wal.keeper(), wal.reader());
        let metas = gather(&mut keeper, &reader, GROUP, &messages, 4000).unwrap();
        assert!(metas.len() > 3, "{}", metas.len());
        for queue in 1..=20 {
            assert_eq!(read(&keeper, &metas, queue), (1..=40).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_entry_is_read_once_per_queue() {
        let (mut wal, messages) = log(20, 40);
        let (mut keeper, reader) = (wal.keeper(), wal.reader());
        gather(&mut keeper, &reader, GROUP, &messages, usize::MAX).unwrap();
        let mut entries = Entries { reader: &reader, last: None };
        let mut runs: Vec<&LiveMessages> = messages.iter().collect();
        runs.sort_by_key(|run| (run.place.file, run.place.offset));
        let mut reads = 0;
        for run in runs {
            let before = entries.last.as_ref().map(|(place, _)| *place);
            entries.part(run).unwrap();
            reads += usize::from(before != entries.last.as_ref().map(|(place, _)| *place));
        }
        assert_eq!(reads, 40);
    }

    /// A log with one message for so many queues, alive in all of them as number 7.
    fn fan_out(queues: u64, body: &[u8]) -> (Wal<SimDisk>, Vec<LiveMessages>) {
        let (mut wal, _) = log(1, 0);
        let queues: Vec<QueueId> = (1..=queues).map(QueueId).collect();
        let mut batch = Batch::new();
        let start = batch.bytes() as u32;
        batch.enqueue(&queues, &[b"head"], body);
        let range = start..batch.bytes() as u32;
        let mut commit = CommitBatch::new();
        let data = Bytes::from(batch.stamp(0));
        commit.add(GROUP.0, Item::Entry { index: 1, term: 1, data });
        let place = wal.commit(vec![commit]).unwrap().places()[0];
        let run = |queue: &QueueId| {
            let (queue, range, live) = (*queue, range.clone(), Ranges::from(7..8));
            LiveMessages { queue, first_seq: 7, count: 1, place, range, live }
        };
        let messages = queues.iter().map(run).collect();
        (wal, messages)
    }

    fn each_finds_it(
        keeper: &Keeper<SimDisk>,
        meta: &SegmentMeta,
        queues: Range<u64>,
        body: &[u8],
    ) {
        let segment = keeper.open_segment(GROUP.0, meta).unwrap();
        for queue in queues {
            let found = segment.read(queue, 0, u64::MAX).unwrap();
            assert_eq!((found.len(), found[0].0), (1, 7));
            assert!(found[0].1.len() < body.len() + 40, "it names no other queue");
            let all: Vec<_> = Messages::of(QueueId(queue), &found[0].1).collect();
            assert_eq!(all, [(&b"head"[..], body)]);
        }
    }

    #[test]
    fn a_message_for_many_queues_is_stored_once_and_each_of_them_finds_it() {
        let body = vec![b'x'; 10_000];
        let (mut wal, messages) = fan_out(100, &body);
        let (mut keeper, reader) = (wal.keeper(), wal.reader());
        for count in [4, 100] {
            let of_some = &messages[..count as usize];
            let metas = copy(&mut keeper, &reader, GROUP, of_some).unwrap();
            assert!(metas[0].bytes < 10_300 + 104 * count, "{} bytes", metas[0].bytes);
            each_finds_it(&keeper, &metas[0], 1..count + 1, &body);
            // The queue that has it is empty; the others keep it, once, in the next segment.
            let live = (2..=count).map(|queue| (queue, std::iter::once(7..8).collect())).collect();
            let merged = keeper.merge(GROUP.0, &metas, &live).unwrap().unwrap();
            assert!(merged.bytes < metas[0].bytes, "{} bytes", merged.bytes);
            each_finds_it(&keeper, &merged, 2..count + 1, &body);
        }
    }

    #[test]
    fn a_message_that_is_hardly_larger_than_a_reference_is_stored_for_each_queue() {
        let alone = for_one_queue(b"");
        for (length, is_shared) in [(SHARED_BYTES_MIN - alone - 1, false), (SHARED_BYTES_MIN, true)]
        {
            let body = vec![b'x'; length];
            let (mut wal, messages) = fan_out(2, &body);
            let (mut keeper, reader) = (wal.keeper(), wal.reader());
            let metas = copy(&mut keeper, &reader, GROUP, &messages).unwrap();
            let bytes: Vec<u64> = metas[0].extents.iter().map(|extent| extent.bytes).collect();
            assert_eq!(bytes[0] != bytes[1], is_shared, "{bytes:?}");
            each_finds_it(&keeper, &metas[0], 1..3, &body);
        }
    }

    /// Bytes of a message that one queue has.
    fn for_one_queue(body: &[u8]) -> usize {
        let (_, messages) = fan_out(1, body);
        messages[0].range.len()
    }

    #[test]
    fn what_is_dead_is_left_out() {
        let (mut wal, mut messages) = log(1, 10);
        for run in &mut messages {
            if run.first_seq % 2 == 0 {
                run.live = Ranges::new();
            }
        }
        let (mut keeper, reader) = (wal.keeper(), wal.reader());
        let metas = copy(&mut keeper, &reader, GROUP, &messages).unwrap();
        assert_eq!(read(&keeper, &metas, 1), [1, 3, 5, 7, 9]);
    }
}
