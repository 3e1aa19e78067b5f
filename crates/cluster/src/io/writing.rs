//! The thread that writes the log.
//!
//! The first failed write or sync ends the process: it is never retried, and nothing after it is
//! confirmed.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wal::{FileDisk, Wal};

use super::failure::Failure;
use super::handle::{Node, Short};
use super::store::Store;
use crate::commit_delay::CommitDelay;
use crate::histogram::{Observed, TIME_BOUNDS_US};
use crate::log_writer::{Append, LogWriter};

/// Scheduling priority of the thread that writes the log; others run at 0.
const LOG_NICENESS: i32 = -10;

/// How often the thread checks a full disk for room.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// How late the kernel may wake this thread, ns: without it sleeps are 50 us longer.
const TIMER_SLACK_NS: u64 = 1_000;

/// Writes the log until the shards are gone: everything that waits is one write and one sync.
pub(crate) fn run(
    wal: Wal<FileDisk>,
    mut delay: CommitDelay,
    node: &Node,
    store: &Store,
    failure: &Failure,
) {
    // Everything waits for this thread, and it does little but wait for the disk. Where raising it is
    // not permitted it runs as the others do.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), LOG_NICENESS);
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
    let mut writer = LogWriter::new(wal);
    let (mut appends, mut synced) = (Vec::new(), Vec::new());
    let (mut rollovers, started) = (0, Instant::now());
    let (mut before, mut times) = (writer.stats(), Observed::default());
    loop {
        store.appends().take(&mut appends, None, true);
        if appends.is_empty() {
            break;
        }
        gather(&mut delay, started, &mut appends, store);
        appends.drain(..).for_each(|append| writer.add(append));
        while !writer.is_empty() {
            wait_for_room(&mut writer, started, node);
            if let Err(error) = writer.commit(&mut synced) {
                failure.report(&error);
            }
            let stats = writer.stats();
            let counters = &node.counters;
            if stats.syncs > before.syncs {
                // A commit syncs once, seldom more: the log goes on to another file.
                times.add(&TIME_BOUNDS_US, stats.sync_us - before.sync_us);
                counters.sync_times.take(&mut times);
            }
            before = stats;
            counters.syncs.store(stats.syncs, Ordering::Relaxed);
            counters.log_bytes.store(stats.bytes, Ordering::Relaxed);
            counters.entries.store(stats.entries, Ordering::Relaxed);
            counters.sync_micros.store(stats.sync_us, Ordering::Relaxed);
            for (shard, input) in synced.drain(..) {
                node.shards[shard].push(input);
            }
            if stats.rollovers != rollovers {
                rollovers = stats.rollovers;
                store.rolled_over();
            }
        }
    }
    if let Err(error) = writer.close() {
        failure.report(&error);
    }
}

/// Waits for more appends before the write, if that saves syncs.
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

/// Waits until the log has room: a full disk holds everything back.
fn wait_for_room(writer: &mut LogWriter<FileDisk>, started: Instant, node: &Node) {
    let now_ms = || started.elapsed().as_millis() as u64;
    if writer.find_room(now_ms()) {
        return;
    }
    node.set_short(Short::Log, true);
    while !writer.find_room(now_ms()) {
        std::thread::sleep(FULL_PAUSE);
    }
    node.set_short(Short::Log, false);
}
