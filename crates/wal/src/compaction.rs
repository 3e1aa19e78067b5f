//! Rewriting segments of which too little is alive.
//!
//! What is alive the caller says: per queue, ranges of sequence numbers. A segment in which
//! nothing lives is dropped. One under half alive is rewritten together with a neighbour, so that
//! the disk holds at most about twice what lives. Neighbours of like size are joined even when
//! all of them live, so that a slow queue does not leave thousands of small files. The files that
//! were merged stay until a checkpoint without them is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::disk::Disk;
use crate::error::Error;
use crate::keeper::Keeper;
use crate::limits::{LIKE_SIZED_MAX, MERGED_BYTES_MAX};
use crate::segments::format::ROW_BYTES;
use crate::segments::{Merged, Reader, SegmentMeta};

/// Sequence numbers that are alive, by queue: sorted ranges that do not touch.
pub type Live = BTreeMap<u64, Vec<Range<u64>>>;

/// Which segments to rewrite into which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Stays as it is.
    Keep(SegmentMeta),
    /// Nothing in it is alive.
    Drop(SegmentMeta),
    /// Neighbours that become one.
    Merge(Vec<SegmentMeta>),
}

/// Decides what is to be done with a group's segments, which are given oldest first.
pub fn plan(segments: Vec<SegmentMeta>, live: &Live) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut left = Vec::new();
    for meta in segments {
        match live_bytes(&meta, live) {
            0 => steps.push(Step::Drop(meta)),
            bytes => left.push((meta, bytes)),
        }
    }
    let mut marks: Vec<bool> = left.iter().map(|(meta, bytes)| bytes * 2 < meta.bytes).collect();
    mark_neighbours(&left, &mut marks);
    mark_like_sized(&left, &mut marks);
    let mut run: Vec<SegmentMeta> = Vec::new();
    let mut run_bytes = 0;
    for ((meta, bytes), is_marked) in left.into_iter().zip(marks) {
        if !is_marked || run_bytes + bytes > MERGED_BYTES_MAX {
            steps.extend(close_run(&mut run));
            run_bytes = 0;
        }
        match is_marked {
            true => {
                run_bytes += bytes;
                run.push(meta);
            }
            false => steps.push(Step::Keep(meta)),
        }
    }
    steps.extend(close_run(&mut run));
    steps
}

/// A single segment is worth rewriting only for the space it gives back; its marks say so.
fn close_run(run: &mut Vec<SegmentMeta>) -> Option<Step> {
    let run = std::mem::take(run);
    (!run.is_empty()).then_some(Step::Merge(run))
}

/// A segment to be rewritten takes its smaller neighbour along.
fn mark_neighbours(left: &[(SegmentMeta, u64)], marks: &mut [bool]) {
    let sparse: Vec<usize> = (0..left.len()).filter(|at| marks[*at]).collect();
    for at in sparse {
        let before = at.checked_sub(1);
        let after = Some(at + 1).filter(|after| *after < left.len());
        if before.is_some_and(|at| marks[at]) || after.is_some_and(|at| marks[at]) {
            continue;
        }
        let smaller = before.into_iter().chain(after).min_by_key(|neighbour| left[*neighbour].1);
        if let Some(neighbour) = smaller
            && left[at].1 + left[neighbour].1 <= MERGED_BYTES_MAX
        {
            marks[neighbour] = true;
        }
    }
}

/// Neighbours whose sizes are within the same power of four are joined when they are many.
fn mark_like_sized(left: &[(SegmentMeta, u64)], marks: &mut [bool]) {
    let tier = |bytes: u64| bytes.max(1).ilog2() / 2;
    let mut start = 0;
    while start < left.len() {
        let same = |(_, bytes): &&(SegmentMeta, u64)| tier(*bytes) == tier(left[start].1);
        let count = left[start..].iter().take_while(same).count();
        let bytes: u64 = left[start..start + count].iter().map(|(_, bytes)| bytes).sum();
        if count >= LIKE_SIZED_MAX && bytes <= MERGED_BYTES_MAX {
            marks[start..start + count].fill(true);
        }
        start += count;
    }
}

/// Bytes of the file that are alive: those of live messages, counted as average ones, and what each
/// queue takes besides as long as it has any. Of a segment in which all lives that is nearly all, even
/// if each of many queues has one short message or a reference.
pub fn live_bytes(meta: &SegmentMeta, live: &Live) -> u64 {
    let of_extent = |extent: &crate::segments::Extent| {
        let ranges = live.get(&extent.queue).map_or(&[][..], Vec::as_slice);
        let alive = count_within(ranges, extent.first_seq..extent.last_seq.saturating_add(1));
        if alive == 0 {
            return 0;
        }
        let bytes = u128::from(extent.record_bytes()) * u128::from(alive.min(extent.count))
            / u128::from(extent.count.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(ROW_BYTES as u64)
    };
    meta.extents.iter().map(of_extent).sum()
}

fn count_within(ranges: &[Range<u64>], window: Range<u64>) -> u64 {
    let first = ranges.partition_point(|range| range.end <= window.start);
    let inside = ranges[first..].iter().take_while(|range| range.start < window.end);
    inside.map(|range| range.end.min(window.end) - range.start.max(window.start)).sum()
}

fn is_alive(ranges: &[Range<u64>], seq: u64) -> bool {
    let at = ranges.partition_point(|range| range.end <= seq);
    ranges.get(at).is_some_and(|range| range.contains(&seq))
}

impl<D: Disk> Keeper<D> {
    /// Does what [`plan`] says; gives the segments that the group's next checkpoint is to name.
    /// Nothing is removed before that checkpoint is installed. If the disk is full, or anything
    /// else fails, the old segments are as good as before.
    pub fn compact(
        &mut self,
        group: u32,
        segments: Vec<SegmentMeta>,
        live: &Live,
    ) -> Result<Vec<SegmentMeta>, Error> {
        let mut compacted = Vec::new();
        for step in plan(segments, live) {
            match step {
                Step::Keep(meta) => compacted.push(meta),
                Step::Drop(_) => {}
                Step::Merge(metas) => {
                    for run in self.bounded(group, metas, live, MERGED_BYTES_MAX) {
                        match self.with_ballast(|keeper| keeper.merge(group, &run, live)) {
                            // What is whole in them can be read as before, and better than not at all.
                            Err(Error::Damaged { .. }) => compacted.extend(run),
                            merged => compacted.extend(merged?),
                        }
                    }
                }
            }
        }
        Ok(compacted)
    }

    /// Divides neighbours that would become too large together. The plan counts a message that queues
    /// share for the one that stores it; if that queue is empty and others are not, it counts too little.
    fn bounded(
        &self,
        group: u32,
        metas: Vec<SegmentMeta>,
        live: &Live,
        bytes_max: u64,
    ) -> Vec<Vec<SegmentMeta>> {
        let mut runs: Vec<Vec<SegmentMeta>> = Vec::new();
        let mut run_bytes = 0;
        for meta in metas {
            let opened = self.open_segment(group, &meta);
            let is_shared = opened.is_ok_and(|segment| segment.has_references());
            let bytes = if is_shared { meta.bytes } else { live_bytes(&meta, live) };
            match runs.last_mut() {
                Some(run) if run_bytes + bytes <= bytes_max => run.push(meta),
                Some(_) | None => {
                    runs.push(vec![meta]);
                    run_bytes = 0;
                }
            }
            run_bytes += bytes;
        }
        runs
    }

    /// Writes what is alive in some segments to a new one, in order. `None`: nothing is.
    pub fn merge(
        &mut self,
        group: u32,
        segments: &[SegmentMeta],
        live: &Live,
    ) -> Result<Option<SegmentMeta>, Error> {
        let open = |meta| self.open_segment(group, meta);
        let sources = segments.iter().map(open).collect::<Result<Vec<Reader<D>>, Error>>()?;
        let extents = segments.iter().flat_map(|meta| &meta.extents);
        let queues: BTreeSet<u64> = extents.map(|extent| extent.queue).collect();
        let mut writer = self.segment(group)?;
        for queue in queues {
            let Some(ranges) = live.get(&queue) else { continue };
            let mut merged = Merged::new(&sources, queue, 0);
            while let Some((found, sharing)) = merged.next_found()? {
                if !is_alive(ranges, found.seq) {
                    continue;
                }
                match sharing {
                    Some(sharing) => {
                        writer.add_shared(queue, found.seq, sharing, &found.message)?
                    }
                    None => writer.add(queue, found.seq, &found.message)?,
                }
            }
        }
        if writer.is_empty() { Ok(None) } else { writer.finish().map(Some) }
    }
}

#[cfg(test)]
mod tests;
