//! What happened becomes messages at the exchange of events, as RabbitMQ's plugin makes them. Routing key: the event's
//! name. Headers: what it says. No body.

use amqp::{FieldTable, FieldValue, Properties, TableRef};
use bytes::{Bytes, BytesMut};
use machine::{Exchange, Happened};

use crate::own::Own;
use crate::values::field_table;

/// The vhost that has the exchange.
const VHOST: &str = "/";
const PERSISTENT: u8 = 2;

/// The message that tells of an event. `None`: what it says cannot be written.
pub(crate) fn message(event: &Happened) -> Option<Own> {
    let headers = headers(event).to_bytes();
    let properties = Properties {
        headers: Some(TableRef::validate(&headers).ok()?),
        delivery_mode: Some(PERSISTENT),
        timestamp: Some(event.at_ms / 1000),
        ..Properties::default()
    };
    let mut raw = BytesMut::new();
    properties.encode(&mut raw);
    Some(Own {
        vhost: VHOST.to_owned(),
        exchange: Exchange::EVENTS,
        key: event.event.name.clone(),
        properties: raw,
        body: Bytes::new(),
    })
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
    use cluster::{Answer, Request};
    use machine::{
        Actor, Applied, Arguments, Batch, BindingChange, Catalog, CatalogCommand, Destination,
        EntryReader, Event, NodeId, Value, Version,
    };

    use super::*;
    use crate::own::OwnPublisher;

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
        let mut publisher = OwnPublisher::new(NodeId(1), [7; 32]);
        publisher.publish(&catalog, message(&happened("queue.deleted")), &mut out);
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
        let mut publisher = OwnPublisher::new(NodeId(1), [7; 32]);
        let events = [happened("user.created"), happened("user.deleted")];
        publisher.publish(&catalog, events.iter().filter_map(message), &mut out);
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
