//! The thread that writes the log.
//!
//! The first failed write or sync ends the process: it is never retried, and nothing after it is
//! confirmed.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wal::{CommitBatch, FileDisk, Wal};

use super::failure::Failure;
use super::handle::{Node, Short};
use super::store::{Append, Store};
use crate::commit_delay::CommitDelay;
use crate::housekeeping::LogRoom;
use crate::shard::Input;

/// Scheduling priority of the thread that writes the log; others run at 0.
const LOG_NICENESS: i32 = -10;

/// How often is looked whether a full disk has room.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// How late the kernel may wake this thread, ns: without it sleeps are 50 us longer.
const TIMER_SLACK_NS: u64 = 1_000;

/// Writes the log until the shards are gone: everything that waits is one write and one sync.
pub(crate) fn run(
    mut wal: Wal<FileDisk>,
    mut delay: CommitDelay,
    node: &Node,
    store: &Store,
    failure: &Failure,
) {
    // Everything waits for this thread, and it does little but wait for the disk. Where raising it is
    // not permitted it runs as the others do.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), LOG_NICENESS);
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
    let mut appends = Vec::new();
    let mut rollovers = 0;
    let (mut room, started) = (LogRoom::default(), Instant::now());
    loop {
        store.appends().take(&mut appends, None, true);
        if appends.is_empty() {
            break;
        }
        gather(&mut delay, started, &mut appends, store);
        let (mut batches, mut owners) = (Vec::new(), Vec::new());
        for Append { shard, number, batch, entries } in appends.drain(..) {
            batches.push(batch);
            owners.push((shard, number, entries));
        }
        let mut places = Vec::new();
        while !batches.is_empty() {
            // All of them, unless they are more than a file holds.
            let count = wait_for_room(&mut room, started, &mut wal, &batches, node);
            let later = batches.split_off(count);
            match wal.commit(batches) {
                Ok(synced) if places.is_empty() => places = synced.into_places(),
                Ok(synced) => places.extend(synced.into_places()),
                Err(error) => failure.tell(&error),
            }
            batches = later;
        }
        let stats = wal.stats();
        let counters = &node.counters;
        counters.syncs.store(stats.syncs, Ordering::Relaxed);
        counters.log_bytes.store(stats.bytes, Ordering::Relaxed);
        counters.entries.store(stats.entries, Ordering::Relaxed);
        counters.sync_micros.store(stats.sync_us, Ordering::Relaxed);
        let mut places = places.into_iter();
        for (shard, number, entries) in owners {
            let places = places.by_ref().take(entries).collect();
            node.shards[shard].push(Input::Synced { number, places });
        }
        if stats.rollovers != rollovers {
            rollovers = stats.rollovers;
            store.rolled_over();
        }
    }
    if let Err(error) = wal.close() {
        failure.tell(&error);
    }
}

/// Lets more come to what is to be written, if that is worth while.
fn gather(delay: &mut CommitDelay, started: Instant, appends: &mut Vec<Append>, store: &Store) {
    let now_us = || started.elapsed().as_micros() as u64;
    let bytes = |appends: &[Append]| appends.iter().map(|append| append.batch.bytes()).sum();
    let mut pause_us = delay.first(now_us(), appends.len(), bytes(appends));
    while let Some(us) = pause_us {
        std::thread::sleep(Duration::from_micros(us));
        let before = appends.len();
        store.appends().take_more(appends);
        pause_us = delay.next(now_us(), appends.len() - before, bytes(appends));
    }
}

/// Waits until the log has room for the first of `batches`, and says for how many: a full disk holds
/// everything back.
fn wait_for_room(
    room: &mut LogRoom,
    started: Instant,
    wal: &mut Wal<FileDisk>,
    batches: &[CommitBatch],
    node: &Node,
) -> usize {
    let now_ms = || started.elapsed().as_millis() as u64;
    if let Some(count) = room.find(now_ms(), wal, batches) {
        return count;
    }
    node.set_short(Short::Log, true);
    loop {
        std::thread::sleep(FULL_PAUSE);
        if let Some(count) = room.find(now_ms(), wal, batches) {
            node.set_short(Short::Log, false);
            return count;
        }
    }
}
