//! Connections of the node that is asked, their channels and consumers.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use broker::ConnectionId;
use broker::io::describe::{ListedConnection, NotDescribed};
use broker::limits;
use broker::session::describe::{
    ChannelLine, ConnectionLine, ConnectionState, ConsumerDescription, PublishMode,
};
use machine::Catalog;
use serde::{Deserialize, Serialize};

use crate::control::running::Running;
use crate::table::{age, bytes, limit, pairs, rows, shown, shown_or_dash};

/// What `millrace describe connections --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConnectionList {
    /// All that are open.
    pub(crate) count: usize,
    pub(crate) connections: Vec<Connection>,
    /// What `--after` takes, if more follow.
    pub(crate) next: Option<String>,
}

/// A connection, without its channels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connection {
    pub(crate) id: String,
    pub(crate) peer: String,
    /// Milliseconds since 1970.
    since_ms: u64,
    age_s: u64,
    pub(crate) doing: Option<Doing>,
    /// Why it does not say what it is doing.
    problem: Option<String>,
}

/// What a connection is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Doing {
    /// `opening`, `running`, `blocked` or `closing`.
    pub(crate) state: String,
    pub(crate) user: String,
    pub(crate) vhost: String,
    /// What the client calls itself.
    client: String,
    pub(crate) channels: usize,
    pub(crate) consumers: u64,
    in_flight_bytes: u64,
    outbound_bytes: u64,
}

/// What `millrace describe connection --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConnectionDetail {
    pub(crate) connection: Connection,
    frame_bytes_max: u32,
    channel_max: u16,
    heartbeat_s: u64,
    /// Those with the lowest numbers.
    pub(crate) channels: Vec<Channel>,
}

/// A channel, without its consumers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Channel {
    pub(crate) number: u16,
    /// `plain`, `confirm` or `transaction`.
    mode: String,
    /// Publishes without an answer, of a channel with confirms.
    pub(crate) unconfirmed: Option<u64>,
    /// What the open transaction holds.
    transaction_publish_bytes: Option<usize>,
    transaction_settles: Option<usize>,
    /// 0 is no limit.
    prefetch: u32,
    prefetch_global: u32,
    pub(crate) unacked: u32,
    pub(crate) consumers: usize,
}

/// What `millrace describe channel --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChannelDetail {
    connection: String,
    channel: Channel,
    /// Those with the first tags.
    pub(crate) consumers: Vec<Consumer>,
}

/// A consumer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Consumer {
    pub(crate) tag: String,
    /// As `millrace describe queue` shows it.
    number: u64,
    /// `None`: it was deleted a moment ago.
    pub(crate) queue: Option<String>,
    no_ack: bool,
    /// 0 is no limit.
    pub(crate) prefetch: u32,
    pub(crate) held: u32,
    pub(crate) credit: u32,
    single_active: bool,
}

/// What `millrace describe consumer --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConsumerDetail {
    connection: String,
    channel: u16,
    pub(crate) consumer: Consumer,
}

/// Why a connection says nothing.
fn problem(why: NotDescribed, id: ConnectionId, running: &Running) -> String {
    match why {
        NotDescribed::NoConnection if id.node != running.cluster.node() => {
            format!("Connection {id} belongs to node {}: run the command there", id.node.0)
        }
        NotDescribed::NoConnection => {
            format!("There is no connection {id}. See millrace describe connections")
        }
        NotDescribed::NoChannel => {
            format!("Connection {id} has no such channel. See millrace describe connection {id}")
        }
        NotDescribed::NoConsumer => {
            format!(
                "Connection {id} has no such consumer. See millrace describe channel {id} NUMBER"
            )
        }
        NotDescribed::Late => format!("Connection {id} did not answer in time. Repeat the command"),
        NotDescribed::Busy => {
            format!(
                "Connection {id} has not answered earlier commands yet. Repeat the command later"
            )
        }
    }
}

impl ConnectionList {
    pub(super) async fn of(running: &Running, after: Option<ConnectionId>, limit: usize) -> Self {
        let page = running.broker.connections().list(after, limit.min(super::LINES_MAX)).await;
        let connections = page.connections.into_iter();
        Self {
            count: page.count,
            connections: connections.map(|listed| Connection::listed(listed, running)).collect(),
            next: page.next.map(|id| id.to_string()),
        }
    }
}

impl Connection {
    fn listed(listed: ListedConnection, running: &Running) -> Self {
        let ListedConnection { id, peer, since_ms, line, .. } = listed;
        let (doing, problem) = match line {
            Ok(line) => (Some(Doing::of(line)), None),
            Err(why) => (None, Some(problem(why, id, running))),
        };
        let (id, peer) = (id.to_string(), peer.to_string());
        Self { id, peer, since_ms, age_s: age_of(since_ms), doing, problem }
    }

    fn of(id: ConnectionId, line: ConnectionLine) -> Self {
        let (peer, since_ms) = (line.peer.to_string(), line.since_ms);
        let (id, doing) = (id.to_string(), Some(Doing::of(line)));
        Self { id, peer, since_ms, age_s: age_of(since_ms), doing, problem: None }
    }
}

pub(super) fn age_of(since_ms: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs().saturating_sub(since_ms / 1000)
}

impl Doing {
    fn of(line: ConnectionLine) -> Self {
        let state = match line.state {
            ConnectionState::Opening => "opening",
            ConnectionState::Running => "running",
            ConnectionState::Blocked => "blocked",
            ConnectionState::Closing => "closing",
        };
        Self {
            state: state.to_owned(),
            user: line.user,
            vhost: line.vhost,
            client: line.client,
            channels: line.channel_count,
            consumers: line.consumer_count,
            in_flight_bytes: line.in_flight_bytes,
            outbound_bytes: line.outbound_bytes,
        }
    }
}

impl ConnectionDetail {
    pub(super) async fn of(running: &Running, id: ConnectionId) -> Result<Self, String> {
        let described = running.broker.connections().describe(id).await;
        let described = described.map_err(|why| problem(why, id, running))?;
        Ok(Self {
            connection: Connection::of(id, described.line),
            frame_bytes_max: described.frame_bytes_max,
            channel_max: described.channel_max,
            heartbeat_s: described.heartbeat_seconds,
            channels: described.channels.iter().map(Channel::of).collect(),
        })
    }
}

impl Channel {
    fn of(line: &ChannelLine) -> Self {
        let (mode, unconfirmed, transaction) = match line.publishes {
            PublishMode::Plain => ("plain", None, None),
            PublishMode::Confirm { unconfirmed } => ("confirm", Some(unconfirmed), None),
            PublishMode::Tx { publish_bytes, settles } => {
                ("transaction", None, Some((publish_bytes, settles)))
            }
        };
        Self {
            number: line.number,
            mode: mode.to_owned(),
            unconfirmed,
            transaction_publish_bytes: transaction.map(|(bytes, _)| bytes),
            transaction_settles: transaction.map(|(_, settles)| settles),
            prefetch: line.prefetch,
            prefetch_global: line.prefetch_global,
            unacked: line.unacked,
            consumers: line.consumer_count,
        }
    }

    /// How its publishes are answered, for people.
    fn publishes(&self) -> String {
        match (self.unconfirmed, self.transaction_publish_bytes, self.transaction_settles) {
            (Some(count), _, _) => format!("{}, {count} open", self.mode),
            (None, Some(held), Some(settles)) => {
                format!("{}, {} and {settles} acks", self.mode, bytes(held as u64))
            }
            (None, _, _) => self.mode.clone(),
        }
    }

    fn cells(&self) -> [String; 6] {
        [
            self.number.to_string(),
            self.publishes(),
            self.unacked.to_string(),
            limit(self.prefetch.into()),
            limit(self.prefetch_global.into()),
            self.consumers.to_string(),
        ]
    }
}

const CHANNEL_HEADS: [&str; 6] =
    ["Channel", "Publishes", "Unacked", "Prefetch", "Together", "Consumers"];

impl ChannelDetail {
    pub(super) async fn of(
        running: &Running,
        id: ConnectionId,
        number: u16,
    ) -> Result<Self, String> {
        let described = running.broker.connections().channel(id, number).await;
        let described = described.map_err(|why| problem(why, id, running))?;
        let catalog = running.cluster.catalog();
        let consumer = |consumer| Consumer::of(&catalog, consumer);
        Ok(Self {
            connection: id.to_string(),
            channel: Channel::of(&described.line),
            consumers: described.consumers.into_iter().map(consumer).collect(),
        })
    }
}

impl Consumer {
    fn of(catalog: &Catalog, described: ConsumerDescription) -> Self {
        Self {
            tag: described.tag,
            number: described.number,
            queue: catalog.queue_by_id(described.queue).map(|queue| queue.name.clone()),
            no_ack: described.no_ack,
            prefetch: described.prefetch,
            held: described.held,
            credit: described.credit,
            single_active: described.is_single_active,
        }
    }

    fn cells(&self) -> [String; 7] {
        [
            shown(&self.tag),
            self.number.to_string(),
            shown(self.queue.as_deref().unwrap_or("(deleted)")),
            if self.no_ack { "automatic" } else { "by the client" }.to_owned(),
            limit(self.prefetch.into()),
            self.held.to_string(),
            self.credit.to_string(),
        ]
    }
}

const CONSUMER_HEADS: [&str; 7] = ["Tag", "Number", "Queue", "Acks", "Prefetch", "Held", "Credit"];

impl ConsumerDetail {
    pub(super) async fn of(
        running: &Running,
        id: ConnectionId,
        channel: u16,
        tag: &str,
    ) -> Result<Self, String> {
        let described = running.broker.connections().consumer(id, channel, tag).await;
        let described = described.map_err(|why| problem(why, id, running))?;
        let consumer = Consumer::of(&running.cluster.catalog(), described);
        Ok(Self { connection: id.to_string(), channel, consumer })
    }
}

impl fmt::Display for ConnectionList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} of {} connection(s)\n", self.connections.len(), self.count)?;
        let cells = |connection: &Connection| {
            let Connection { id, peer, age_s, doing, .. } = connection;
            let known = |value: fn(&Doing) -> String| doing.as_ref().map_or("-".to_owned(), value);
            [
                id.clone(),
                peer.clone(),
                known(|doing| shown_or_dash(&doing.user)),
                known(|doing| shown_or_dash(&doing.vhost)),
                doing.as_ref().map_or("no answer".to_owned(), |doing| doing.state.clone()),
                age(*age_s),
                known(|doing| doing.channels.to_string()),
                known(|doing| doing.consumers.to_string()),
                known(|doing| bytes(doing.in_flight_bytes)),
                known(|doing| bytes(doing.outbound_bytes)),
                known(|doing| shown_or_dash(&doing.client)),
            ]
        };
        let heads = [
            "Connection",
            "Peer",
            "User",
            "Vhost",
            "State",
            "Age",
            "Channels",
            "Consumers",
            "In flight",
            "Outbound",
            "Client",
        ];
        rows(out, heads, &self.connections.iter().map(cells).collect::<Vec<_>>())?;
        match &self.next {
            Some(next) => writeln!(out, "\nMore follow: --after {next}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ConnectionDetail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, frame_bytes_max, channel_max, heartbeat_s, channels } = self;
        let mut lines = vec![
            ("Connection", format!("{} from {}", connection.id, connection.peer)),
            ("Age", age(connection.age_s)),
        ];
        if let Some(doing) = &connection.doing {
            lines.extend([
                ("State", doing.state.clone()),
                ("User", shown_or_dash(&doing.user)),
                ("Vhost", shown_or_dash(&doing.vhost)),
                ("Client", shown_or_dash(&doing.client)),
                (
                    "In flight",
                    format!(
                        "{} from its publishers, not committed yet",
                        bytes(doing.in_flight_bytes)
                    ),
                ),
                (
                    "Outbound",
                    format!(
                        "{} on the way to it, not taken by its socket yet",
                        bytes(doing.outbound_bytes)
                    ),
                ),
                ("Consumers", doing.consumers.to_string()),
            ]);
        }
        let heartbeat = match heartbeat_s {
            0 => "none".to_owned(),
            seconds => format!("every {seconds} s"),
        };
        lines.push(("Heartbeat", heartbeat));
        lines.push(("Largest frame", bytes((*frame_bytes_max).into())));
        let open = connection.doing.as_ref().map_or(channels.len(), |doing| doing.channels);
        lines.push(("Channels", format!("{open}, at most {channel_max}")));
        pairs(out, &lines)?;
        if !channels.is_empty() {
            writeln!(out)?;
            let cells: Vec<_> = channels.iter().map(Channel::cells).collect();
            rows(out, CHANNEL_HEADS, &cells)?;
        }
        if open > channels.len() {
            let described = limits::DESCRIBED_CHANNELS_MAX;
            writeln!(out, "\nThe first {described}. For others: millrace describe channel")?;
        }
        Ok(())
    }
}

impl fmt::Display for ChannelDetail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, channel, consumers } = self;
        writeln!(out, "Channel {} of connection {connection}\n", channel.number)?;
        rows(out, CHANNEL_HEADS, &[channel.cells()])?;
        if !consumers.is_empty() {
            writeln!(out)?;
            let cells: Vec<_> = consumers.iter().map(Consumer::cells).collect();
            rows(out, CONSUMER_HEADS, &cells)?;
        }
        if channel.consumers > consumers.len() {
            let described = limits::DESCRIBED_CONSUMERS_MAX;
            writeln!(out, "\nThe first {described}. For others: millrace describe consumer")?;
        }
        Ok(())
    }
}

impl fmt::Display for ConsumerDetail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, channel, consumer } = self;
        writeln!(out, "Consumer of channel {channel} of connection {connection}\n")?;
        rows(out, CONSUMER_HEADS, &[consumer.cells()])
    }
}
