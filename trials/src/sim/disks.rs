//! What the threads that touch a node's disk do, and when: write, read, keep house, wait for room.

use cluster::housekeeping::Task;
use cluster::snapshot::Sending;
use machine::NodeId;

use super::agenda::{Event, Micros};
use super::network::By;
use super::node::Node;
use super::store::{Flush, Flushed};
use super::world::{Death, World};

/// How often the writer looks whether a full disk has room.
const FULL_PAUSE: Micros = 100_000;
/// Appends written with one sync.
const WRITE_COUNT: u64 = 8;
/// A read, and a checkpoint, from and to.
pub(super) const READ: (Micros, Micros) = (50, 900);
pub(super) const FLUSH: (Micros, Micros) = (2_000, 25_000);

impl World {
    pub(super) fn flush_soon(&mut self, node: usize, flush: Flush) {
        let soon = match flush {
            Flush::Task(Task::Checkpoint(_)) => self.chance.within(FLUSH.0, FLUSH.1),
            Flush::Task(Task::Chunk { .. } | Task::InstallSnapshot { .. })
            | Flush::SendSnapshot { .. } => self.chance.within(READ.0, READ.1),
        };
        let number = self.nodes[node].lives;
        let Some(life) = &mut self.nodes[node].life else { return };
        life.store.flushes.push_back(flush);
        self.agenda.after(soon, Event::Flush { node, life: number });
    }

    /// The writer takes what waits, unless it has something in hand. Some of what it writes is on
    /// disk long before anybody hears of it.
    pub(super) fn start_writing(&mut self, node: usize) {
        let Some(life) = &mut self.nodes[node].life else { return };
        if !life.store.is_writing() && !life.store.appends.is_empty() {
            life.store.take(self.chance.within(1, WRITE_COUNT + 1) as usize);
            self.begin_write(node);
        }
    }

    /// On a full disk the writer waits with what it has in hand, and looks again before long.
    pub(super) fn begin_write(&mut self, node: usize) {
        let (number, sync) = (self.nodes[node].lives, self.nodes[node].sync);
        let (now_ms, is_paused) = (self.agenda.now() / 1000, self.nodes[node].is_paused);
        let Some(life) = &mut self.nodes[node].life else { return };
        if is_paused || !life.store.has_room(now_ms) {
            return self.agenda.after(FULL_PAUSE, Event::Room { node, life: number });
        }
        let takes = self.chance.within(sync.0, sync.1);
        self.agenda.after(takes, Event::Written { node, life: number });
        if self.chance.percent(50) {
            self.write(node);
        }
    }

    pub(super) fn look_for_room(&mut self, node: usize, life: u64) {
        if self.is_live(node, life) {
            self.begin_write(node);
        }
    }

    pub(super) fn write(&mut self, node: usize) {
        let Some(life) = &mut self.nodes[node].life else { return };
        match life.store.write() {
            Ok(marks) => self.watch.synced(node, marks),
            Err(error) => self.disk_failed(node, &error),
        }
    }

    pub(super) fn written(&mut self, node: usize, number: u64) {
        if !self.is_live(node, number) {
            return;
        }
        if self.nodes[node].is_paused {
            // The call returns, and the thread hears of it when the process goes on.
            return self.agenda.after(50_000, Event::Written { node, life: number });
        }
        self.write(node);
        let Some(life) = &mut self.nodes[node].life else { return };
        for (shard, input) in life.store.written() {
            life.inboxes[shard].push(input);
        }
        self.wake(node);
        match self.nodes[node].life.as_ref().is_some_and(|life| life.store.is_writing()) {
            true => self.begin_write(node),
            false => self.start_writing(node),
        }
    }

    pub(super) fn start_reading(&mut self, node: usize) {
        let number = self.nodes[node].lives;
        let Some(life) = &mut self.nodes[node].life else { return };
        if !life.store.is_reading && !life.store.readings.is_empty() {
            life.store.is_reading = true;
            let soon = self.chance.within(READ.0, READ.1);
            self.agenda.after(soon, Event::Read { node, life: number });
        }
    }

    pub(super) fn read(&mut self, node: usize, number: u64) {
        if !self.is_live(node, number) {
            return;
        }
        if self.nodes[node].is_paused {
            return self.agenda.after(50_000, Event::Read { node, life: number });
        }
        let Some(life) = &mut self.nodes[node].life else { return };
        life.store.is_reading = false;
        match life.store.read() {
            Ok(read) => {
                read.into_iter().for_each(|(group, input)| life.tell_group(group, input));
                self.wake(node);
                self.start_reading(node);
            }
            Err(error) => self.disk_failed(node, &error),
        }
    }

    /// The flusher does what waits, the sender of snapshots goes on, and the house is kept.
    pub(super) fn flush(&mut self, node: usize, number: u64) {
        if !self.is_live(node, number) || self.nodes[node].is_paused {
            return;
        }
        let (now, keeps, reviews) =
            (self.agenda.now(), self.chance.percent(40), self.chance.percent(20));
        let Some(life) = &mut self.nodes[node].life else { return };
        let mut sendings = Vec::new();
        let network = &self.network;
        let connection = |peer: NodeId| network.connection((node, peer.0 as usize - 1));
        let mut work = || {
            let mut flushed = life.store.flush(now / 1000)?;
            life.store.outgoing.go_on(now / 1000, connection, &mut sendings)?;
            if keeps {
                flushed.extend(life.store.keep(now / 1000, reviews)?);
            }
            Ok::<_, wal::Error>(flushed)
        };
        let flushed = match work() {
            Ok(flushed) => flushed,
            Err(error) => return self.disk_failed(node, &error),
        };
        if let Some(wait_ms) = life.store.outgoing.wait_ms() {
            // Unless something is heard before.
            let soon = if wait_ms == 0 { READ.1 } else { wait_ms * 1000 };
            self.agenda.after(soon, Event::Flush { node, life: number });
        }
        for flushed in flushed {
            match flushed {
                Flushed::Tell(group, input) => {
                    if let Some(life) = &mut self.nodes[node].life {
                        life.tell_group(group, input);
                    }
                }
                Flushed::Say(to, message) => self.say(node, to, By::Data, &message),
                Flushed::Installed { group, index } => {
                    self.line(&format!(
                        "node {} has a snapshot of group {} at {index}",
                        node + 1,
                        group.0
                    ));
                    self.snapshots += 1;
                    self.watch.installed(node, group.0, index);
                }
            }
        }
        for sending in sendings {
            match sending {
                Sending::Say(to, message) => self.say(node, to, By::Data, &message),
                Sending::Carry(to, message) => self.say(node, to, By::Bulk, &message),
                Sending::Tell(group, input) => {
                    if let Some(life) = &mut self.nodes[node].life {
                        life.tell_group(group, input);
                    }
                }
            }
        }
        self.wake(node);
    }

    /// A node stops at the first failure of its disk; the process is then gone.
    pub(super) fn disk_failed(&mut self, node: usize, error: &wal::Error) {
        self.line(&format!("node {}: {error}", node + 1));
        // A disk that nobody broke does not fail, and one that is full ends no node.
        let is_damaged = self.nemesis.damaged == Some(node);
        let failed_before = self.nemesis.failed.remove(&node);
        let is_whole = self.nemesis.is_over && !failed_before;
        if error.is_full() || !is_damaged && (is_whole || !matches!(error, wal::Error::Disk { .. }))
        {
            self.protocol(format!("node {} stops: {error}", node + 1));
        }
        let is_cut = self.chance.percent(70);
        self.crash(node, if is_cut { Death::PowerCut } else { Death::Kill });
    }

    pub(super) fn checkpoints(&self) -> u64 {
        let living = self.nodes.iter().filter_map(|node| node.life.as_ref());
        self.checkpoints + living.map(|life| life.store.checkpoints).sum::<u64>()
    }

    /// Turns that found a disk full.
    pub(super) fn refused(&self) -> u64 {
        let living = self.nodes.iter().filter_map(|node| node.life.as_ref());
        self.refused + living.map(|life| life.store.refused).sum::<u64>()
    }

    /// A node that says that its disk is full.
    pub(super) fn short(&self) -> Option<usize> {
        self.nodes.iter().position(Node::is_short)
    }
}
