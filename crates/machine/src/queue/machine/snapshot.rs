//! The replicated half of a group's queues to bytes and back.

use super::QueueMachine;
use crate::encoding::{Corrupt, Reader, digest, put_u32, put_u64};
use crate::ids::QueueId;
use crate::locks::Locks;
use crate::producers::Producers;
use crate::queue::chain::Chain;
use crate::queue::reader::WithheldMessages;
use crate::queue::{Counters, Queue};

/// 2 knows producers of numbered batches, 3 what arguments ask of a queue, 4 what was delivered, 5 that deliveries
/// wait for that, 6 changed settings, 7 streams, rates, locks and the chain.
const VERSION: u8 = 7;
/// What else may stand behind the queues, from format 7 on: each part behind a byte that says what it is.
const LOCKS: u8 = 1;
const CHAIN: u8 = 2;
const WITHHELD: u8 = 3;

impl QueueMachine {
    /// The replicated half, versioned.
    ///
    /// There is a queue that needs format 5 only where the cluster has agreed on version 7, one that needs 6 only where
    /// it has agreed on 8, and a stream, a queue with rates, a lock, a chain or a withheld message only where it has agreed on 10. Before that an
    /// older program may have to read it.
    pub fn snapshot(&self) -> Vec<u8> {
        let queues = || self.slots.iter().flatten();
        let is_new = |queue: &Queue| {
            let settings = &queue.settings;
            settings.is_stream()
                || settings.has_rates()
                || queue.subscription().is_some()
                || queue.withheld().is_some()
        };
        let is_newest = self.chain.is_some() || !self.locks.is_unused() || queues().any(is_new);
        let version = if is_newest {
            VERSION
        } else if queues().any(|queue| queue.revision > 0) {
            6
        } else if queues().any(Queue::holds_deliveries) {
            5
        } else {
            4
        };
        let mut out = vec![version];
        put_u64(&mut out, self.applied_index);
        put_u64(&mut out, self.time_ms);
        put_u64(&mut out, self.ignored);
        self.retired.encode(&mut out);
        self.producers.encode(&mut out);
        put_u32(&mut out, self.places.len() as u32);
        for place in self.places.values() {
            if let Some(queue) = &self.slots[*place] {
                queue.encode(&mut out, version);
            }
        }
        if !self.locks.is_unused() {
            out.push(LOCKS);
            self.locks.encode(&mut out);
        }
        if let Some(chain) = &self.chain {
            out.push(CHAIN);
            chain.encode(&mut out);
        }
        self.encode_withheld(&mut out);
        out
    }

    /// A replica that has applied what the snapshot's had, and follows. Total on any bytes.
    pub fn restore(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes, "a snapshot of queues");
        let version = reader.u8()?;
        if !(1..=VERSION).contains(&version) {
            return Err(Corrupt::newer("a snapshot of queues of another version"));
        }
        let mut machine = Self {
            applied_index: reader.u64()?,
            time_ms: reader.u64()?,
            ignored: reader.u64()?,
            ..Self::default()
        };
        machine.retired = Counters::read(&mut reader, version < 3)?;
        if version >= 2 {
            machine.producers = Producers::read(&mut reader)?;
        }
        let mut before = None;
        for _ in 0..reader.u32()? {
            let queue = Queue::read(&mut reader, version)?;
            if before >= Some(queue.id) {
                return Err(reader.corrupt());
            }
            before = Some(queue.id);
            let place = machine.insert(queue);
            if !planted::is("subscription_not_linked") {
                machine.link(place);
            }
        }
        while version >= VERSION && !reader.rest().is_empty() {
            match reader.u8()? {
                LOCKS => machine.locks = Locks::read(&mut reader)?,
                CHAIN => machine.chain = Some(Chain::read(&mut reader)?),
                WITHHELD => machine.read_withheld(&mut reader)?,
                _ => return Err(Corrupt::newer("a part of a snapshot of queues")),
            }
        }
        reader.end()?;
        Ok(machine)
    }

    /// What is withheld of each level, if anything is.
    fn encode_withheld(&self, out: &mut Vec<u8>) {
        let queues = self.places.values().filter_map(|place| self.slots[*place].as_ref());
        let levels = queues.flat_map(Queue::levels).filter_map(|level| {
            let withheld = &level.reader.attributes.as_ref()?.withheld;
            (!withheld.is_empty()).then_some((level.id(), withheld))
        });
        let levels: Vec<_> = levels.collect();
        if levels.is_empty() {
            return;
        }
        out.push(WITHHELD);
        put_u32(out, levels.len() as u32);
        for (id, withheld) in levels {
            put_u64(out, id.0);
            withheld.encode(out);
        }
    }

    fn read_withheld(&mut self, reader: &mut Reader<'_>) -> Result<(), Corrupt> {
        for _ in 0..reader.u32()? {
            let id = QueueId(reader.u64()?);
            let withheld = WithheldMessages::read(reader)?;
            let level = self.queue_mut(id).and_then(|queue| queue.level_mut(id.priority()));
            let level = level.ok_or_else(|| reader.corrupt())?;
            if !level.withhold(withheld) {
                return Err(Corrupt::new("what is withheld of a queue"));
            }
        }
        Ok(())
    }

    /// One number for the replicated half: equal on all replicas at equal index.
    pub fn digest(&self) -> u64 {
        digest(&self.snapshot())
    }
}
