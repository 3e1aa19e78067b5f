//! What `millrace top` can show: queues or connections, with their columns.

use crate::cmd::admin::column::{Column, count, count_of, flag, rate, since, size, text, text_of};

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum View {
    Queues,
    Connections,
}

/// Those that a narrow terminal shows come first.
const QUEUES: &[Column] = &[
    text("name", "Queue"),
    count("messages_ready", "Ready"),
    count("messages_unacknowledged", "Unacked"),
    rate("publish_rate", "In", "message_stats.publish_details.rate"),
    rate("ack_rate", "Acked", "message_stats.ack_details.rate"),
    count("consumers", "Consumers"),
    text("state", "State"),
    flag("paused", "Paused"),
    text("vhost", "Vhost"),
    text_of("leader", "Leader", "node"),
];

/// The node has these in order without making the JSON of all queues.
const QUEUE_SORTS: &[&str] =
    &["messages_ready", "messages_unacknowledged", "publish_rate", "ack_rate", "consumers", "name"];

const CONNECTIONS: &[Column] = &[
    text("name", "Connection"),
    text("user", "User"),
    count("channels", "Channels"),
    count_of("consumers", "Consumers", "millrace.consumers"),
    size("send_pend", "To send"),
    text("state", "State"),
    since("connected_at", "Since"),
    text("vhost", "Vhost"),
    text_of("client", "Client", "user_provided_name"),
    text("node", "Node"),
];

const CONNECTION_SORTS: &[&str] =
    &["channels", "consumers", "send_pend", "state", "connected_at", "name", "user"];

impl View {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Queues => Self::Connections,
            Self::Connections => Self::Queues,
        }
    }

    /// What its items are called, also in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Queues => "queues",
            Self::Connections => "connections",
        }
    }

    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::Queues => QUEUES,
            Self::Connections => CONNECTIONS,
        }
    }

    /// Columns that it can be sorted by; the first if nobody says otherwise.
    pub(super) fn sorts(self) -> &'static [&'static str] {
        match self {
            Self::Queues => QUEUE_SORTS,
            Self::Connections => CONNECTION_SORTS,
        }
    }

    /// A column of [`View::sorts`].
    pub(super) fn sorted_by(self, sort: usize) -> &'static Column {
        let key = self.sorts()[sort];
        let found = self.columns().iter().find(|column| column.key == key);
        found.expect("a view is sorted by columns that it has")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sort_is_a_column() {
        for view in [View::Queues, View::Connections] {
            assert_eq!(view.other().other(), view);
            (0..view.sorts().len()).for_each(|sort| {
                view.sorted_by(sort);
            });
        }
    }
}
