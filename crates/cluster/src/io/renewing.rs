//! The thread that stores the node's own stamp, and the stamps that its peers report. Both writes wait for a sync, so
//! they must not run on a thread that elections depend on.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wal::{Boot, Disk, FileDisk};

use super::failure::Failure;
use super::handle::Node;
use super::peers::Peers;
use crate::renewal::Renewal;

/// What peers tell is written down while so much is free. A file that is written anew needs room, and on a full
/// disk nothing but the log is to need any.
const FREE_BYTES: u64 = 1 << 20;

/// Renews the stamp of the start `boot` until the node stops. Sleeps until there is something to do: a stop, news
/// of peers and a new version of the cluster wake it.
pub(crate) fn run(boot: u64, disk: &FileDisk, node: &Node, failure: &Failure) {
    let Some(peers) = &node.peers else { return };
    let started = Instant::now();
    let mut renewal = Renewal::new(boot, 0);
    peers.wake_for_news(std::thread::current());
    while !node.is_stopping() {
        let now_ms = started.elapsed().as_millis() as u64;
        renew(&mut renewal, now_ms, disk, peers, failure);
        if peers.has_news() && disk.free_bytes().is_ok_and(|free| free >= FREE_BYTES) {
            peers.keep_news();
        }
        std::thread::park_timeout(Duration::from_millis(renewal.wait_ms(now_ms)));
    }
}

fn renew(renewal: &mut Renewal, now_ms: u64, disk: &FileDisk, peers: &Peers, failure: &Failure) {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let Some(stamp) = renewal.due(now_ms, wall.as_millis() as u64, peers.agreed()) else { return };
    match Boot::renew(disk, stamp) {
        Ok(()) => {
            renewal.written(now_ms, stamp);
            peers.send_to_all(|| renewal.word());
        }
        Err(error) if error.is_full() => {
            if renewal.refused(now_ms) {
                tracing::warn!(
                    "disk full: cannot renew the stamp of the data directory, trying again every 10 seconds: {error}. \
                     Until then the other nodes cannot refuse a copy of the directory that is made from now on. Free \
                     space on the disk of the data directory"
                );
            }
        }
        Err(error) => failure.report(&error),
    }
}
