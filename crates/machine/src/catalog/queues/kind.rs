//! The types of queues, as RabbitMQ names them.

/// What a declaration asks for. Classic and quorum queues are kept in the same way. Subscriptions are Millrace's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueType {
    Classic,
    Quorum,
    /// It keeps what it is given.
    Stream,
    /// It reads a stream.
    Subscription,
}

/// Number in commands and snapshots, which never changes, and name.
const ALL: &[(QueueType, u8, &str)] = &[
    (QueueType::Classic, 1, "classic"),
    (QueueType::Quorum, 2, "quorum"),
    (QueueType::Stream, 3, "stream"),
    (QueueType::Subscription, 4, "subscription"),
];

impl QueueType {
    pub fn name(self) -> &'static str {
        self.entry().2
    }

    pub(in crate::catalog) fn number(self) -> u8 {
        self.entry().1
    }

    pub(in crate::catalog) fn from_number(number: u8) -> Option<Self> {
        ALL.iter().find(|(_, known, _)| *known == number).map(|(queue_type, _, _)| *queue_type)
    }

    fn entry(self) -> (Self, u8, &'static str) {
        *ALL.iter().find(|(known, _, _)| *known == self).expect("every type is in the table")
    }
}
