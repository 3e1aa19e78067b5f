//! What is to be done for a request, once it is decided.

use std::collections::BTreeSet;

use broker::dead_letter::retry::Plan;
use bytes::Bytes;
use client::{ExchangeSpec, QueueSpec};
use cluster::orders::Order;
use cluster::{LockSpec, PeekSpec, WithholdStep};
use machine::{CatalogCommand, GroupId, NodeId, QueueId, StreamOffset};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::access::Sight;
use crate::companions::Wish;
use crate::history::Window;
use crate::history::samples::Ranges;
use crate::import::Import;
use crate::page::Shape;
use crate::reply::{Problem, Reply};

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Work {
    /// Nothing: this is the answer.
    Answer(Reply),
    /// These changes of the catalog, in this order. The first that is refused is the answer.
    Change { commands: Vec<CatalogCommand>, reply: Reply },
    /// A user whose password is to be hashed first: that takes long.
    PutUser {
        name: String,
        password: String,
        tags: Vec<String>,
        /// What else is said of the user.
        then: Option<CatalogCommand>,
        reply: Reply,
    },
    /// The leaders of these queues are asked how they stand.
    Queues(Queues),
    /// The messages of the queues that the user sees are added up, and what all nodes have. `None`: nobody
    /// wants to know.
    Overview {
        seen: Option<Vec<(GroupId, QueueId)>>,
        body: Value,
        ranges: Ranges,
        /// Who asks sees all queues.
        sees_all: bool,
    },
    /// All nodes are asked how they stand. `Some`: this one is wanted.
    Nodes { shape: Shape, one: Option<NodeId>, ranges: Ranges },
    /// All nodes are asked how something stood.
    History(History),
    /// Something was deployed: it becomes a mark in the history.
    Mark { text: String },
    /// Clients of all nodes are asked what they are doing.
    Connections(Connections),
    /// Exchanges, or one, to which is added what was published there.
    Exchanges { items: Vec<Value>, shape: Shape, is_one: bool },
    /// The leaders of a stream's partitions are asked where this is.
    Places { partitions: Vec<(GroupId, QueueId)>, to: StreamOffset },
    /// Relays and workers beside the nodes are asked how they stand.
    Companions { shape: Shape },
    /// One of them, or a part of one, rests or goes on.
    Companion(Wish),
    /// A session of the user in this vhost does this.
    Client { vhost: String, step: Step, reply: Reply },
    /// The leader of a queue shows messages, and they stay as they are.
    Peek(Peek),
    /// The leaders of a queue's partitions purge it so that it can be undone, or undo that.
    Withhold(Withhold),
    /// The cluster moves groups, or tells what it would move.
    Order(Orders),
    /// All nodes are asked how far the replicas of their groups are.
    Groups { shape: Shape },
    /// A node is asked what its data directory takes.
    Disk(NodeId),
    /// The leader of a lock's group is asked.
    Lock(Lock),
    /// The leaders of all these groups are asked for the locks of a vhost.
    Locks { vhost: String, groups: Vec<GroupId>, shape: Shape },
    /// A vhost is deleted, and its locks in these groups go with it.
    DeleteVhost { name: String, groups: Vec<GroupId> },
    /// Messages of a queue are counted by where they died, and why.
    Deaths(Deaths),
    /// The same of several queues, in one list. `is_cut`: of more than these.
    DeathsEverywhere { queues: Vec<Deaths>, is_cut: bool },
    /// Dead letters are sent on.
    Retry(Box<Plan>),
    /// Retries of all nodes in these vhosts are shown, or one is stopped.
    Retries { what: Retries, vhosts: BTreeSet<String>, shape: Shape },
    /// The leaders of these queues are asked how they stand, and that is added to the answer.
    Explain { queues: Vec<(GroupId, QueueId)>, body: Value, kept: Kept },
    /// The leaders of a queue's partitions are asked whom they serve.
    Assignment(QueueId),
    /// A step of a backup.
    Backup(Backup),
    /// Definitions are brought in.
    Import(Box<Import>),
    /// What happens is told from now on.
    Live,
    /// All nodes are asked what is wrong, for who sees so much.
    Problems(Sight),
    /// All nodes are asked for the books of a vhost's queues, or of all and the digests of replicas.
    Books { vhost: Option<String> },
    /// Whether a node has an alarm.
    Alarms,
    /// Whether a majority of some group would be lost with this node.
    QuorumCheck,
}

/// What an operator orders.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) order: Order,
    /// The node that it is about; empty: it is about all.
    pub(crate) node: String,
    /// It is told what would be done.
    pub(crate) is_dry: bool,
}

/// Queues that are listed.
#[derive(Debug)]
pub(crate) struct Queues {
    /// Those of the page, or all that are wanted.
    pub(crate) queues: Vec<(GroupId, QueueId)>,
    pub(crate) shape: Shape,
    pub(crate) listed: Listed,
    pub(crate) ranges: Ranges,
}

/// What of the past is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) window: Window,
    /// Marks are wanted up to this time, in milliseconds since 1970.
    pub(crate) until_ms: u64,
    pub(crate) of: Past,
}

/// Whose past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// Of all nodes together.
    All,
    Node(NodeId),
    Queue(QueueId),
}

/// What is said of a queue once its leader has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// What it would do with the message.
    Message,
    /// How it stands.
    Queue,
}

/// How queues are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// The one that was asked for, with its consumers.
    One,
    /// All that are wanted, and how many there are.
    All { total_count: usize },
    /// All that are wanted, of which the page is cut out once they are in order.
    Sorted { total_count: usize },
    /// Those of a page.
    Page { filtered_count: usize, total_count: usize },
}

/// What of the connections is asked for.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) what: Of,
    /// `None`: those of all users.
    pub(crate) user: Option<String>,
    /// `None`: those of all vhosts.
    pub(crate) vhost: Option<String>,
    /// Of consumers those that hold messages, in the order of how long.
    pub(crate) holding: bool,
    pub(crate) shape: Shape,
}

/// What is wanted of connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Of {
    Connections,
    /// By its name.
    Connection(String),
    /// All, or those of a connection.
    Channels(Option<String>),
    Channel(String),
    Consumers,
    /// It is closed, for this reason.
    Close {
        name: String,
        reason: String,
    },
    /// A consumer of a channel is paused by somebody, or goes on (`None`).
    Pause {
        channel: String,
        tag: String,
        by: Option<String>,
    },
    /// Those of a user are closed.
    CloseAll {
        user: String,
        reason: String,
    },
}

/// What a session is to do.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    DeclareQueue(QueueSpec),
    DeclareExchange(ExchangeSpec),
    Bind(Binding),
    Unbind(Binding),
    DeleteQueue {
        name: String,
        if_empty: bool,
        if_unused: bool,
    },
    DeleteExchange {
        name: String,
        if_unused: bool,
    },
    Purge {
        name: String,
    },
    Get(Get),
    Publish(Publish),
    /// A message goes through a queue, and comes back.
    Alive,
}

/// A binding, as a session asks for it.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) source: String,
    pub(crate) destination: String,
    pub(crate) to_exchange: bool,
    pub(crate) key: String,
    pub(crate) arguments: amqp::FieldTable,
    /// It is there already.
    pub(crate) is_there: bool,
}

/// Messages that are looked at where they are.
#[derive(Clone, Debug)]
pub(crate) struct Peek {
    pub(crate) queue: (GroupId, QueueId),
    /// From where on, unless `begin` says something else.
    pub(crate) spec: PeekSpec,
    pub(crate) begin: Begin,
    /// Only messages with this header. The node judges that which was asked, and not the leader.
    pub(crate) header: Option<WantedHeader>,
    pub(crate) is_base64: bool,
}

/// Where messages are looked at from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// From the position on.
    Here,
    /// Behind that, from the first message of each priority on that came then or later.
    Since {
        time_ms: u64,
        /// The stream whose messages they are: it knows roughly when all of them came.
        stream: Option<(GroupId, QueueId)>,
    },
    /// The last messages, as many as are wanted.
    Last,
}

/// A header and its value, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedHeader {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A purge that can be undone, or its undoing.
#[derive(Clone, Debug)]
pub(crate) struct Withhold {
    pub(crate) vhost: String,
    pub(crate) name: String,
    pub(crate) partitions: Vec<(GroupId, QueueId)>,
    pub(crate) step: WithholdStep,
}

/// A question about a lock.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) group: GroupId,
    pub(crate) vhost: String,
    pub(crate) name: String,
    pub(crate) step: LockStep,
    /// Who asks may read the lock's value.
    pub(crate) sees_value: bool,
}

/// What is asked about a lock.
#[derive(Clone, Debug)]
pub(crate) enum LockStep {
    Ask(LockSpec),
    /// Whoever holds it, it is freed.
    Force,
}

/// Dead letters that are counted.
#[derive(Clone, Debug)]
pub(crate) struct Deaths {
    pub(crate) place: (GroupId, QueueId),
    /// The queue that they lie in.
    pub(crate) vhost: String,
    pub(crate) name: String,
}

/// What is wanted of retries, by their ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Retries {
    All,
    One(String),
    Stop(String),
}

/// What somebody who makes a backup asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backup {
    /// All groups are cut.
    Begin,
    /// Bytes of a group, from this one on.
    Part { backup: u64, group: u32, offset: u64 },
    /// It is over.
    End { backup: u64 },
}

/// Messages that are taken to be looked at.
#[derive(Clone, Debug)]
pub(crate) struct Get {
    pub(crate) queue: String,
    pub(crate) count: u64,
    pub(crate) then: Then,
    pub(crate) is_base64: bool,
    /// Bytes of a payload that are shown.
    pub(crate) truncate: Option<usize>,
}

/// What becomes of messages that were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// They are gone.
    Ack,
    Reject,
    /// They are back in the queue, and count as redelivered.
    Requeue,
}

/// A message that is published.
#[derive(Clone, Debug)]
pub(crate) struct Publish {
    pub(crate) exchange: String,
    pub(crate) key: String,
    /// As on the wire.
    pub(crate) properties: Bytes,
    pub(crate) payload: Bytes,
}

impl Work {
    pub(crate) fn answer(body: Value) -> Self {
        Self::Answer(Reply::of(body))
    }

    /// A list that is there as a whole.
    pub(crate) fn list(shape: &Shape, items: Vec<Value>) -> Self {
        let total_count = items.len();
        let name = |item: &Value| item.get("name").and_then(Value::as_str).map(str::to_owned);
        let wanted = |item: &Value| name(item).is_none_or(|name| shape.wants(&name));
        let items = items.into_iter().filter(wanted).collect();
        Self::Answer(shape.reply(items, total_count))
    }

    /// The answer of a check that finds nothing wrong.
    pub(crate) fn well() -> Self {
        Self::answer(json!({ "status": "ok" }))
    }

    pub(crate) fn healthy(is_healthy: bool, reason: &str) -> Result<Self, Problem> {
        if is_healthy {
            return Ok(Self::well());
        }
        Err(Problem::Failed(json!({ "status": "failed", "reason": reason })))
    }
}
