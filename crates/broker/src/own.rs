//! The node as a publisher of its own: of events, and of what passes through a vhost that is traced.
//!
//! A core: a driver gives it messages and the cluster's answers. It publishes some at a time and takes none meanwhile, so
//! what waits is bounded where messages wait. A message is published once at most: what the cluster does not take is
//! counted and not repeated.

use std::collections::BTreeMap;

use amqp::Properties;
use bytes::{Bytes, BytesMut};
use cluster::{Answer, Request, Ticket};
use machine::{Attributes, Batch, Catalog, GroupId, NodeId, PublishedBy, QueueId};

use crate::attributes::Asked;
use crate::connection::names::Chance;
use crate::partitions;
use crate::route_cache::Route;
use crate::stored::put_destination;
use crate::values::Observed;

/// A message of the node's own.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) vhost: String,
    pub(crate) exchange: &'static str,
    pub(crate) key: String,
    /// Flags and values, as on the wire.
    pub(crate) properties: BytesMut,
    pub(crate) body: Bytes,
}

/// Publishes the messages of one node.
#[derive(Debug)]
pub(crate) struct OwnPublisher {
    node: NodeId,
    chance: Chance,
    tickets: u64,
    asked: BTreeMap<Ticket, Waiting>,
    /// Not taken by the cluster, and not told yet.
    dropped: u64,
}

/// What an answer is about.
#[derive(Debug)]
enum Waiting {
    /// So many messages are logged, or not.
    Append(u64),
    /// Which of these a queue takes.
    Admit { group: GroupId, queue: QueueId, messages: Vec<Guarded> },
}

/// A message for a queue that may refuse it.
#[derive(Debug)]
struct Guarded {
    attributes: Attributes,
    head: BytesMut,
    body: Bytes,
}

impl OwnPublisher {
    pub(crate) fn new(node: NodeId, seed: [u8; 32]) -> Self {
        Self { node, chance: Chance::new(seed), tickets: 0, asked: BTreeMap::new(), dropped: 0 }
    }

    /// Whether everything that was published is answered: more may be given to it.
    pub(crate) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    /// Messages that the cluster did not take since this was asked last.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Publishes these, by this copy of the catalog.
    pub(crate) fn publish(
        &mut self,
        catalog: &Catalog,
        messages: impl IntoIterator<Item = Own>,
        out: &mut Vec<Request>,
    ) {
        let mut batches: BTreeMap<GroupId, (Batch, u64)> = BTreeMap::new();
        let mut guarded: BTreeMap<(GroupId, QueueId), Vec<Guarded>> = BTreeMap::new();
        let (mut targets, mut levels) = (Vec::new(), Vec::new());
        for Own { vhost, exchange, key, properties: raw, body } in messages {
            let Ok(properties) = Properties::decode(&raw) else {
                self.dropped += 1;
                continue;
            };
            let observed = Observed::new(properties, self.chance.draw(), self.node);
            let (by, keys) = (PublishedBy::Broker, [key.as_str()]);
            let routed = catalog.route_keys(by, &vhost, exchange, &keys, &observed, &mut targets);
            if routed.is_err() {
                // Nobody listens any more, or routing costs too much.
                continue;
            }
            let turn = self.chance.draw() as usize;
            partitions::place(catalog, &mut targets, &key, &raw, turn);
            let mut head = BytesMut::new();
            put_destination(exchange, &key, &mut head);
            head.extend_from_slice(&raw);
            let (route, asked) = (Route::of(&targets), Asked::default());
            route.parts(&asked, &mut levels, |group, attributes, queues| {
                let (batch, count) = batches.entry(group).or_default();
                batch.enqueue_with(queues, attributes, &[&head], &body);
                *count += 1;
            });
            for target in route.guarded() {
                let (attributes, head) = (asked.attributes(target.dedups), head.clone());
                let queue = (target.group, asked.level(target));
                let body = body.clone();
                guarded.entry(queue).or_default().push(Guarded { attributes, head, body });
            }
        }
        for (group, (batch, count)) in batches {
            self.append(group, batch, count, out);
        }
        for ((group, queue), messages) in guarded {
            let ticket = self.ticket();
            let sizes = messages
                .iter()
                .map(|message| u32::try_from(message.body.len()).unwrap_or(u32::MAX))
                .collect();
            out.push(Request::Admit { ticket, group, queue, sizes });
            self.asked.insert(ticket, Waiting::Admit { group, queue, messages });
        }
    }

    /// Takes an answer of the cluster.
    pub(crate) fn answered(&mut self, answer: &Answer, out: &mut Vec<Request>) {
        match answer {
            Answer::Appended { ticket } => {
                self.asked.remove(ticket);
            }
            Answer::AppendFailed { ticket } => {
                if let Some(Waiting::Append(count)) = self.asked.remove(ticket) {
                    self.dropped += count;
                }
            }
            Answer::Admitted { ticket, refused } => {
                if let Some(Waiting::Admit { group, queue, messages }) = self.asked.remove(ticket) {
                    self.admitted(group, queue, &messages, refused, out);
                }
            }
            // All sessions hear of alarms; nothing else was asked.
            _ => {}
        }
    }

    fn admitted(
        &mut self,
        group: GroupId,
        queue: QueueId,
        messages: &[Guarded],
        refused: &[u32],
        out: &mut Vec<Request>,
    ) {
        let (mut batch, mut count) = (Batch::new(), 0);
        for (place, Guarded { attributes, head, body }) in messages.iter().enumerate() {
            if refused.iter().any(|refused| *refused as usize == place) {
                self.dropped += 1;
                continue;
            }
            batch.enqueue_with(&[queue], attributes, &[head], body);
            count += 1;
        }
        if count > 0 {
            self.append(group, batch, count, out);
        }
    }

    fn append(&mut self, group: GroupId, batch: Batch, count: u64, out: &mut Vec<Request>) {
        let ticket = self.ticket();
        out.push(Request::Append { group, ticket, batch, settles: Vec::new() });
        self.asked.insert(ticket, Waiting::Append(count));
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}
