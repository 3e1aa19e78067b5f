//! Partitions: a stream in several parts, each in a group of its own, and the subscriptions that read it.
//!
//! To clients a stream is one queue. Each of its partitions is a queue of its own for its group, with a number of its
//! own. The first has the number and the group of the queue, so that a stream of one partition is like any queue.

use crate::encoding::{Corrupt, Reader, put_u32, put_u64};
use crate::ids::{GroupId, QueueId};

/// One part of a stream or of a subscription, as its group knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    pub queue: QueueId,
    pub group: GroupId,
    /// Of a subscription: the partition of its stream that this one reads.
    pub(in crate::catalog) reads: Option<QueueId>,
}

impl Partition {
    /// Of a stream.
    pub fn plain(queue: QueueId, group: GroupId) -> Self {
        Self { queue, group, reads: None }
    }

    pub(in crate::catalog) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.queue.0);
        put_u32(out, self.group.0);
        put_u64(out, self.reads.map_or(0, |stream| stream.0));
    }

    pub(in crate::catalog) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let (queue, group) = (QueueId(reader.u64()?), GroupId(reader.u32()?));
        let reads = match reader.u64()? {
            0 => None,
            stream => Some(QueueId(stream)),
        };
        Ok(Self { queue, group, reads })
    }
}
