//! The replicated half of a group's queues to bytes and back.

use super::QueueMachine;
use crate::encoding::{Corrupt, Reader, digest, put_u32, put_u64};
use crate::producers::Producers;
use crate::queue::{Counters, Queue};

/// 2 knows producers of numbered batches, 3 what arguments ask of a queue, 4 what was delivered, 5 that deliveries
/// wait for that, 6 changed settings, 7 streams and rates.
const VERSION: u8 = 7;

impl QueueMachine {
    /// The replicated half, versioned.
    ///
    /// There is a queue that needs format 5 only where the cluster has agreed on version 7, one that needs 6 only where
    /// it has agreed on 8, and a stream or a queue with rates only where it has agreed on 10. Before that an older program may have to read
    /// it.
    pub fn snapshot(&self) -> Vec<u8> {
        let queues = || self.slots.iter().flatten();
        let is_new = |queue: &Queue| queue.settings.is_stream() || queue.settings.has_rates();
        let version = if queues().any(is_new) {
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
            machine.insert(queue);
        }
        reader.end()?;
        Ok(machine)
    }

    /// One number for the replicated half: equal on all replicas at equal index.
    pub fn digest(&self) -> u64 {
        digest(&self.snapshot())
    }
}
