//! Exchanges, queues and bindings: declared, bound, purged and deleted.
//!
//! What RabbitMQ would refuse is refused by the rules in `arguments`; what the catalog would refuse beyond that, by
//! this node's copy of it; what it would not change is answered at once; only changes go through the log. When the
//! catalog applies a declaration, somebody else's may have been first: then it says so, and the rules compare again.

pub(crate) mod answers;
pub(crate) mod bindings;
pub(crate) mod exchanges;
mod history;
mod queues;

use std::borrow::Cow;

use amqp::{Method, TableRef, ValueRef};
use cluster::Request;
use machine::{CatalogCommand, GroupId, Partition, Queue, QueueId, QueueType};

use self::history::Replay;
use super::caller::Caller;
use crate::arguments::{exchange, queue};
use crate::errors::{Failure, locked, low_on_memory, no_previous_queue, no_queue};
use crate::refusals;

/// What a channel remembers of what it declared.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    /// The queue that a method without a queue's name means.
    last_queue: String,
}

/// What the channel waits for after a method of this kind.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A change of the catalog, and what the client is told then.
    Change {
        reply: Option<Method<'static>>,
    },
    /// A binding that brings a history with it.
    Bind {
        replay: Box<Replay>,
        reply: Option<Method<'static>>,
    },
    /// The history.
    Replay {
        replay: Box<Replay>,
        reply: Option<Method<'static>>,
    },
    DeclareExchange {
        declaration: Box<exchange::Declaration>,
        reply: Option<Method<'static>>,
    },
    DeclareQueue {
        declaration: Box<queue::Declaration>,
        no_wait: bool,
    },
    Status {
        queue: String,
        is_stream: bool,
        no_wait: bool,
        /// Ready messages and consumers so far, and partitions that are still to be asked.
        counts: (u64, u32),
        left: Vec<Partition>,
    },
    Purge {
        no_wait: bool,
        count: u64,
        left: Vec<Partition>,
    },
    /// Whether all of several partitions are empty, before a queue is deleted that has to be.
    Emptiness(Box<Deletion>),
    CloseQueue(Box<Deletion>),
    DeleteQueue {
        count: u64,
        no_wait: bool,
    },
}

/// What is waited for next. None: all is done.
pub(crate) type Next = Result<Option<Pending>, Failure>;

/// A queue that this session may use.
#[derive(Clone, Debug)]
struct Found {
    id: QueueId,
    group: GroupId,
    is_stream: bool,
    /// Its partitions behind the first, the next one last.
    more: Vec<Partition>,
}

/// A queue that is being deleted, one partition after another.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    queue: String,
    found: Found,
    if_unused: bool,
    no_wait: bool,
    /// Messages that go with it.
    count: u64,
    /// Partitions that are still to be asked.
    left: Vec<Partition>,
}

impl Topology {
    /// The name a client gave, or the channel's last declared queue for none.
    pub(crate) fn queue_name(&self, name: &str) -> Result<String, Failure> {
        match name {
            "" if self.last_queue.is_empty() => Err(no_previous_queue()),
            "" => Ok(self.last_queue.clone()),
            name => Ok(name.to_owned()),
        }
    }
}

/// Refuses a queue that is missing or another session's.
pub(crate) fn usable_queue<'s>(caller: &Caller<'_, 's>, name: &str) -> Result<&'s Queue, Failure> {
    let Some(queue) = caller.catalog().queue(&caller.client.vhost, name) else {
        return Err(no_queue(name, &caller.client.vhost));
    };
    if queue.exclusive.is_some_and(|owner| owner != caller.client.owner()) {
        return Err(locked(name, &caller.client.vhost));
    }
    Ok(queue)
}

/// The same, as far as it is stored and routed to.
fn find_queue(caller: &Caller<'_, '_>, name: &str) -> Result<Found, Failure> {
    let queue = usable_queue(caller, name)?;
    let is_stream = queue.queue_type() == QueueType::Stream;
    Ok(Found { id: queue.id, group: queue.group, is_stream, more: more_of(queue) })
}

/// The partitions of a queue behind the first, the next one last.
fn more_of(queue: &Queue) -> Vec<Partition> {
    let mut more: Vec<Partition> = queue.partitions().skip(1).collect();
    more.reverse();
    more
}

/// Puts a change to the catalog, if this node's copy would not refuse it.
fn change(caller: &mut Caller<'_, '_>, command: CatalogCommand, pending: Pending) -> Next {
    refusals::told(caller.catalog().check(&command))?;
    check_memory(caller, &command)?;
    caller.ask(|ticket| Request::Catalog { ticket, command });
    Ok(Some(pending))
}

/// What is new takes memory for good, on every node: not while there is too little here.
fn check_memory(caller: &Caller<'_, '_>, command: &CatalogCommand) -> Result<(), Failure> {
    let is_short = caller.step.view.alarms.memory;
    if !is_short || !command.adds() || caller.catalog().is_bound(command) {
        return Ok(());
    }
    Err(low_on_memory())
}

fn tell(caller: &mut Caller<'_, '_>, answer: Option<Method<'static>>) {
    if let Some(answer) = answer {
        caller.send(&answer);
    }
}

/// As RabbitMQ does: what some programs read from a line has its end with it.
fn without_line_ends(name: &str) -> Cow<'_, str> {
    match name.contains(['\r', '\n']) {
        true => Cow::Owned(name.replace(['\r', '\n'], "")),
        false => Cow::Borrowed(name),
    }
}

fn text_argument<'a>(table: TableRef<'a>, name: &str) -> Option<&'a str> {
    match table.find(name)? {
        ValueRef::LongStr(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}
