//! What `millrace describe` asks a node, and what it is told: one bounded answer to one question. Lists go on where the
//! last page ended.
//!
//! Whatever a client has named is shown with its control characters escaped: a name does not write to a terminal.

mod connections;
mod node;
mod queues;

use std::fmt;

use clap::Subcommand;
use serde::{Deserialize, Serialize};

use self::connections::{ChannelDetail, ConnectionDetail, ConnectionList, ConsumerDetail};
use self::node::Node;
use self::queues::{QueueDetail, QueueList};
use super::running::Running;

/// Lines of a list, if nobody says how many.
const LINES: usize = 50;

/// Lines of a list at most: of queues and of connections.
pub(super) const LINES_MAX: usize = 100;

const _: () = assert!(LINES_MAX <= broker::limits::LISTED_CONNECTIONS_MAX);
const _: () = assert!(LINES_MAX <= cluster::limits::DESCRIBED_QUEUES_MAX);

/// What is to be described: the subcommands of `millrace describe`, and what is asked on the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum What {
    /// Describe the node: version, addresses, connections, memory, disk, alarms, the groups it leads
    Node,
    /// List the queues of a vhost by name: messages, consumers, leader
    Queues {
        /// The vhost
        #[arg(long, value_name = "VHOST", default_value = "/")]
        vhost: String,
        /// List the queues whose names come after this one
        #[arg(long, value_name = "NAME")]
        after: Option<String>,
        /// Lines at most: 1 to 100
        #[arg(long, value_name = "COUNT", default_value_t = LINES, value_parser = lines)]
        limit: usize,
    },
    /// Describe a queue: messages, settings, where it is kept, who consumes from it
    Queue {
        /// The vhost
        #[arg(long, value_name = "VHOST", default_value = "/")]
        vhost: String,
        /// Name of the queue
        name: String,
    },
    /// List the node's AMQP connections, the oldest first
    Connections {
        /// List the connections that came after this one, for example 1-17
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// Lines at most: 1 to 100
        #[arg(long, value_name = "COUNT", default_value_t = LINES, value_parser = lines)]
        limit: usize,
    },
    /// Describe a connection and its channels
    Connection {
        /// The connection, for example 1-17
        id: String,
    },
    /// Describe a channel and its consumers
    Channel {
        /// The connection, for example 1-17
        id: String,
        /// Number of the channel
        number: u16,
    },
    /// Describe a consumer
    Consumer {
        /// The connection, for example 1-17
        id: String,
        /// Number of the channel
        channel: u16,
        /// The consumer tag
        tag: String,
    },
}

fn lines(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=LINES_MAX).contains(count));
    count.ok_or_else(|| format!("give a number from 1 to {LINES_MAX}"))
}

/// The description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Described {
    Node(Node),
    Queues(QueueList),
    Queue(Box<QueueDetail>),
    Connections(ConnectionList),
    Connection(Box<ConnectionDetail>),
    Channel(ChannelDetail),
    Consumer(ConsumerDetail),
}

impl Described {
    /// # Errors
    /// A sentence that says why there is nothing to describe.
    pub(super) async fn of(what: What, running: &Running) -> Result<Self, String> {
        Ok(match what {
            What::Node => Self::Node(Node::of(running).await?),
            What::Queues { vhost, after, limit } => {
                Self::Queues(QueueList::of(running, vhost, after, limit).await?)
            }
            What::Queue { vhost, name } => {
                Self::Queue(Box::new(QueueDetail::of(running, &vhost, &name).await?))
            }
            What::Connections { after, limit } => {
                let after = after.map(|after| after.parse()).transpose()?;
                Self::Connections(ConnectionList::of(running, after, limit).await)
            }
            What::Connection { id } => {
                Self::Connection(Box::new(ConnectionDetail::of(running, id.parse()?).await?))
            }
            What::Channel { id, number } => {
                Self::Channel(ChannelDetail::of(running, id.parse()?, number).await?)
            }
            What::Consumer { id, channel, tag } => {
                Self::Consumer(ConsumerDetail::of(running, id.parse()?, channel, &tag).await?)
            }
        })
    }

    /// One line of JSON, without saying what it is.
    pub(crate) fn json(&self) -> Result<String, String> {
        let text = match self {
            Self::Node(node) => serde_json::to_string(node),
            Self::Queues(queues) => serde_json::to_string(queues),
            Self::Queue(queue) => serde_json::to_string(queue),
            Self::Connections(connections) => serde_json::to_string(connections),
            Self::Connection(connection) => serde_json::to_string(connection),
            Self::Channel(channel) => serde_json::to_string(channel),
            Self::Consumer(consumer) => serde_json::to_string(consumer),
        };
        text.map_err(|error| error.to_string())
    }
}

impl fmt::Display for Described {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(out),
            Self::Queues(queues) => queues.fmt(out),
            Self::Queue(queue) => queue.fmt(out),
            Self::Connections(connections) => connections.fmt(out),
            Self::Connection(connection) => connection.fmt(out),
            Self::Channel(channel) => channel.fmt(out),
            Self::Consumer(consumer) => consumer.fmt(out),
        }
    }
}
