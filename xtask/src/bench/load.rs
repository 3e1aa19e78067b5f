//! The loads: what is published and read, how much of it may be unconfirmed.

/// Persistent, confirmed messages, each queue with a connection of its own on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) body_bytes: usize,
    pub(super) queues: usize,
    /// Whether messages are consumed and acknowledged while they are published.
    pub(super) has_consumers: bool,
    /// How many messages of one publisher may be unconfirmed.
    pub(super) window: usize,
}

impl Load {
    pub(super) fn name(&self) -> String {
        let consumers = if self.has_consumers { "consumed" } else { "kept" };
        let Load { body_bytes, queues, window, .. } = self;
        format!("{body_bytes}B-{queues}q-w{window}-{consumers}")
    }
}

pub(super) fn all() -> Vec<Load> {
    let mut loads = Vec::new();
    for body_bytes in [128, 1024] {
        for queues in [1, 4] {
            for has_consumers in [true, false] {
                for window in [1000, 100, 1] {
                    loads.push(Load { body_bytes, queues, has_consumers, window });
                }
            }
        }
    }
    loads
}
