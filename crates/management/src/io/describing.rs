//! Queues as their leaders describe them.

use std::time::Instant;

use cluster::limits::DESCRIBED_QUEUES_MAX;
use cluster::{DescribedQueue, NotDescribed};
use machine::{GroupId, QueueId};

use super::api::Api;
use crate::limits::DESCRIBE_WAIT;

/// In their order. Those whose turn does not come in [`DESCRIBE_WAIT`] are late.
pub(super) async fn describe_each(
    api: &Api,
    queues: &[(GroupId, QueueId)],
) -> Vec<Result<Box<DescribedQueue>, NotDescribed>> {
    let deadline = Instant::now() + DESCRIBE_WAIT;
    let mut described = Vec::with_capacity(queues.len());
    for some in queues.chunks(DESCRIBED_QUEUES_MAX) {
        // A group without a leader makes each of its queues wait.
        match Instant::now() < deadline {
            true => described.append(&mut api.0.cluster.describe(some).await),
            false => described.extend(some.iter().map(|_| Err(NotDescribed::Late))),
        }
    }
    described
}
