//! `x-partition`: the only partition of a stream or a subscription that is meant.

use amqp::TableRef;
use machine::{Partition, Queue, QueueType};

use super::caller::Caller;
use crate::errors::{Failure, invalid_argument};

/// The argument of `basic.consume`, and of a passive `queue.declare`.
pub(super) const NAME: &str = "x-partition";

/// The partition that the arguments name, and its number. None: they name none, or the queue has no partitions to name.
///
/// # Errors
/// There is no such partition.
pub(super) fn named(
    caller: &Caller<'_, '_>,
    queue: &Queue,
    arguments: TableRef<'_>,
) -> Result<Option<(Partition, u16)>, Failure> {
    let Some(value) = arguments.find(NAME) else { return Ok(None) };
    if !matches!(queue.queue_type(), QueueType::Stream | QueueType::Subscription) {
        return Ok(None);
    }
    let wanted = value.integer().and_then(|number| u16::try_from(number).ok());
    let found = queue.partitions().zip(0u16..).find(|(_, index)| Some(*index) == wanted);
    found.map(Some).ok_or_else(|| {
        let problem = format!(": it has the partitions 0 to {}", queue.partition_count() - 1);
        invalid_argument(&caller.client.vhost, &queue.name, NAME, &problem)
    })
}
