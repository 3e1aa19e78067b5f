//! The publisher of events: what happened becomes messages at the exchange of events, as RabbitMQ's plugin makes them.
//! Routing key: the event's name. Headers: what it says. No body.
//!
//! A core: `io::events` gives it events and the cluster's answers. It publishes some at a time and takes none meanwhile,
//! so what waits is bounded where events wait (`cluster::io::events`). An event is published once at most: what the
//! cluster does not take is counted and not repeated.

use std::collections::BTreeMap;

use amqp::{FieldTable, FieldValue, Properties, TableRef};
use bytes::BytesMut;
use cluster::{Answer, Request, Ticket};
use machine::{
    Attributes, Batch, Catalog, Exchange, GroupId, Happened, NodeId, PublishedBy, QueueId,
};

use crate::attributes::Asked;
use crate::connection::names::Chance;
use crate::route_cache::Route;
use crate::stored::write_head;
use crate::values::{Observed, field_table};

/// The vhost that has the exchange.
const VHOST: &str = "/";
const PERSISTENT: u8 = 2;

/// Publishes the events of one node.
#[derive(Debug)]
pub(crate) struct Publisher {
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
    Admit { group: GroupId, queue: QueueId, messages: Vec<Message> },
}

/// A message for a queue that may refuse it.
#[derive(Debug)]
struct Message {
    attributes: Attributes,
    head: BytesMut,
}

impl Publisher {
    pub(crate) fn new(node: NodeId, seed: [u8; 32]) -> Self {
        Self { node, chance: Chance::new(seed), tickets: 0, asked: BTreeMap::new(), dropped: 0 }
    }

    /// Whether everything that was published is answered: more may be given to it.
    pub(crate) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    /// Events that the cluster did not take since this was asked last.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Publishes these, by this copy of the catalog.
    pub(crate) fn publish(
        &mut self,
        catalog: &Catalog,
        events: &[Happened],
        out: &mut Vec<Request>,
    ) {
        let mut batches: BTreeMap<GroupId, (Batch, u64)> = BTreeMap::new();
        let mut guarded: BTreeMap<(GroupId, QueueId), Vec<Message>> = BTreeMap::new();
        let (mut targets, mut levels) = (Vec::new(), Vec::new());
        for event in events {
            let headers = headers(event).to_bytes();
            let Ok(headers) = TableRef::validate(&headers) else {
                self.dropped += 1;
                continue;
            };
            let properties = Properties {
                headers: Some(headers),
                delivery_mode: Some(PERSISTENT),
                timestamp: Some(event.at_ms / 1000),
                ..Properties::default()
            };
            let key = event.event.name.as_str();
            let observed = Observed::new(properties, self.chance.draw(), self.node);
            let by = PublishedBy::Broker;
            let exchange = Exchange::EVENTS;
            let routed = catalog.route_keys(by, VHOST, exchange, &[key], &observed, &mut targets);
            if routed.is_err() {
                // Nobody listens any more, or routing costs too much.
                continue;
            }
            let mut head = BytesMut::new();
            write_head(exchange, key, &properties, &mut head);
            let (route, asked) = (Route::of(&targets), Asked::default());
            route.parts(&asked, &mut levels, |group, attributes, queues| {
                let (batch, count) = batches.entry(group).or_default();
                batch.enqueue_with(queues, attributes, &[&head], &[]);
                *count += 1;
            });
            for target in route.guarded() {
                let (attributes, head) = (asked.attributes(target.dedups), head.clone());
                let queue = (target.group, asked.level(target));
                guarded.entry(queue).or_default().push(Message { attributes, head });
            }
        }
        for (group, (batch, count)) in batches {
            self.append(group, batch, count, out);
        }
        for ((group, queue), messages) in guarded {
            let (ticket, sizes) = (self.ticket(), vec![0; messages.len()]);
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
        messages: &[Message],
        refused: &[u32],
        out: &mut Vec<Request>,
    ) {
        let (mut batch, mut count) = (Batch::new(), 0);
        for (place, Message { attributes, head }) in messages.iter().enumerate() {
            if refused.iter().any(|refused| *refused as usize == place) {
                self.dropped += 1;
                continue;
            }
            batch.enqueue_with(&[queue], attributes, &[head], &[]);
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

/// What an event says, with RabbitMQ's names of headers.
fn headers(happened: &Happened) -> FieldTable {
    let Happened { at_ms, by, event } = happened;
    let text = |text: &str| FieldValue::LongStr(text.as_bytes().to_vec());
    let mut fields = field_table(&event.details).0;
    let mut put = |name: &str, value: FieldValue| {
        if !fields.iter().any(|(known, _)| known == name) {
            fields.push((name.to_owned(), value));
        }
    };
    if !event.object.is_empty() {
        put("name", text(&event.object));
    }
    if !event.vhost.is_empty() {
        put("vhost", text(&event.vhost));
    }
    if let Some(by) = by {
        put("user_who_performed_action", text(&by.user));
    }
    put("timestamp_in_ms", FieldValue::I64(i64::try_from(*at_ms).unwrap_or(i64::MAX)));
    FieldTable(fields)
}

#[cfg(test)]
mod tests {
    use machine::{
        Actor, Applied, Arguments, BindingChange, CatalogCommand, Destination, EntryReader, Event,
        Value, Version,
    };

    use super::*;

    /// A catalog in which queue `all` is bound to all events, and `full` to those of users, which it may refuse.
    fn listened() -> Catalog {
        let mut catalog = Catalog::new(1);
        let queue = |name: &str, arguments| CatalogCommand::DeclareQueue {
            vhost: VHOST.to_owned(),
            name: name.to_owned(),
            durable: true,
            auto_delete: false,
            exclusive: false,
            server_named: false,
            arguments,
            by: crate::operator::owner(NodeId(1)),
        };
        let bind = |name: &str, key: &str| {
            CatalogCommand::Bind(BindingChange {
                vhost: VHOST.to_owned(),
                source: Exchange::EVENTS.to_owned(),
                destination: Destination::Queue(name.to_owned()),
                key: key.to_owned(),
                arguments: Arguments::new(),
                by: None,
            })
        };
        let rejects = Arguments::new()
            .with("x-max-length", Value::I32(1))
            .with("x-overflow", Value::LongStr(b"reject-publish".to_vec()));
        for (index, command) in [
            CatalogCommand::RaiseVersion { to: Version::EVENTS },
            queue("all", Arguments::new()),
            queue("full", rejects),
            bind("all", "#"),
            bind("full", "user.#"),
        ]
        .into_iter()
        .enumerate()
        {
            let at = Applied { index: index as u64, time_ms: 0 };
            let reply = catalog.apply(at, command, &mut Vec::new());
            assert!(!matches!(reply, machine::CatalogReply::Refused(_)), "{reply:?}");
        }
        catalog
    }

    fn happened(name: &str) -> Happened {
        let details = Arguments::new().with("tags", Value::Array(Vec::new()));
        let event = Event::new(name, "", "ann").with(details);
        Happened { at_ms: 1_700_000_000_123, by: Some(Actor::new("bob", "[::1]:7")), event }
    }

    fn heads(batch: &Batch) -> Vec<Vec<u8>> {
        let entry = batch.clone().stamp(0);
        let commands = EntryReader::new(&entry).unwrap();
        let heads = commands.map(|command| match command.unwrap().1 {
            machine::Command::Enqueue(enqueue) => {
                assert!(enqueue.body.is_empty(), "an event has no body");
                enqueue.head.to_vec()
            }
            other => panic!("{other:?}"),
        });
        heads.collect()
    }

    #[test]
    fn an_event_is_a_message_with_its_name_as_key_and_what_it_says_as_headers() {
        let (catalog, mut out) = (listened(), Vec::new());
        let mut publisher = Publisher::new(NodeId(1), [7; 32]);
        publisher.publish(&catalog, &[happened("queue.deleted")], &mut out);
        let [Request::Append { batch, ticket, .. }] = &out[..] else { panic!("{out:?}") };
        let (ticket, head) = (*ticket, heads(batch).remove(0));
        let (destination, raw) = crate::stored::split_head(&head).unwrap();
        let texts = crate::stored::destination_texts(destination);
        assert_eq!(texts, ("amq.rabbitmq.event", "queue.deleted"));
        let properties = Properties::decode(raw).unwrap();
        assert_eq!(
            (properties.delivery_mode, properties.timestamp),
            (Some(2), Some(1_700_000_000))
        );
        let table = properties.headers.unwrap().to_table();
        let names: Vec<&str> = table.0.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["tags", "name", "user_who_performed_action", "timestamp_in_ms"]);
        assert!(!publisher.is_idle());
        publisher.answered(&Answer::Appended { ticket }, &mut out);
        assert!(publisher.is_idle() && publisher.take_dropped() == 0);
    }

    #[test]
    fn a_queue_that_may_refuse_is_asked_first_and_what_is_refused_is_dropped_and_counted() {
        let (catalog, mut out) = (listened(), Vec::new());
        let mut publisher = Publisher::new(NodeId(1), [7; 32]);
        let events = [happened("user.created"), happened("user.deleted")];
        publisher.publish(&catalog, &events, &mut out);
        let [Request::Append { ticket, .. }, Request::Admit { ticket: admit, sizes, .. }] =
            &out[..]
        else {
            panic!("{out:?}")
        };
        assert_eq!(sizes.len(), 2);
        let (append, admit) = (*ticket, *admit);
        out.clear();
        publisher.answered(&Answer::AppendFailed { ticket: append }, &mut out);
        assert_eq!(publisher.take_dropped(), 2);
        publisher.answered(&Answer::Admitted { ticket: admit, refused: vec![1] }, &mut out);
        let [Request::Append { ticket, batch, .. }] = &out[..] else { panic!("{out:?}") };
        assert_eq!((heads(batch).len(), publisher.take_dropped()), (1, 1));
        let ticket = *ticket;
        publisher.answered(&Answer::Appended { ticket }, &mut out);
        assert!(publisher.is_idle());
    }
}
