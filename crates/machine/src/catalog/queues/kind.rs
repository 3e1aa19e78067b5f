//! The types of queues, as RabbitMQ names them.

/// What a declaration asks for. Classic and quorum queues are kept in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueType {
    Classic,
    Quorum,
    /// Known, and not made.
    Stream,
}

impl QueueType {
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Quorum => "quorum",
            Self::Stream => "stream",
        }
    }
}
