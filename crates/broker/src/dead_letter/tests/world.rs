//! A catalog, a dead-letter worker, and a cluster whose answers the test gives.

use std::time::Duration;

use crate::limits::APPEND_BYTES;
use amqp::{FieldTable, Properties, TableRef};
use bytes::{Bytes, BytesMut};
use cluster::{Answer, Leaving, Request, Ticket};
use machine::{
    Applied, Arguments, Batch, BindingChange, Catalog, CatalogCommand, CatalogReply, Command,
    DeadLetter, Destination, ENTRY_HEAD_BYTES, EntryReader, ExchangeKind, GroupId, NodeId,
    NodeInfo, Outcome, QueueId, Ranges, SessionId, SessionOwner, Value, Version,
};

use super::super::{DeadLetterWorker, Input, Outputs};

pub(super) const NODE: NodeId = NodeId(1);
pub(super) const DEAD_LETTER_WORKER: SessionId = SessionId(77);
const OWNER: SessionOwner = SessionOwner { node: NODE, session: SessionId(1) };

pub(super) struct World {
    pub(super) catalog: Catalog,
    pub(super) worker: DeadLetterWorker,
    pub(super) out: Outputs,
    pub(super) now: Duration,
    index: u64,
}

/// A message that was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) group: GroupId,
    pub(super) queues: Vec<QueueId>,
    pub(super) key: Option<u128>,
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(Catalog::new(8))
    }

    pub(super) fn of_two_nodes() -> Self {
        let node = |number| NodeInfo {
            node: NodeId(number),
            address: format!("node{number}:5680"),
            incarnation: 0,
        };
        Self::with(Catalog::genesis(&[node(1), node(2)], 4))
    }

    fn with(catalog: Catalog) -> Self {
        let (worker, out) =
            (DeadLetterWorker::new(DEAD_LETTER_WORKER, NODE, 1, APPEND_BYTES), Outputs::default());
        Self { catalog, worker, out, now: Duration::ZERO, index: 0 }
    }

    pub(super) fn change(&mut self, command: CatalogCommand) -> CatalogReply {
        self.index += 1;
        let at = Applied { index: self.index, time_ms: 0 };
        let reply = self.catalog.apply(at, command, &mut Vec::new());
        assert!(!matches!(reply, CatalogReply::Refused(_)), "{reply:?}");
        reply
    }

    pub(super) fn queue(&mut self, name: &str, arguments: Arguments) -> QueueId {
        let reply = self.change(CatalogCommand::DeclareQueue {
            vhost: "/".to_owned(),
            name: name.to_owned(),
            durable: true,
            auto_delete: false,
            exclusive: false,
            server_named: false,
            arguments,
            by: OWNER,
        });
        let CatalogReply::QueueDeclared { queue, .. } = reply else { panic!("{reply:?}") };
        queue
    }

    /// A queue whose dead letters go to an exchange, with a key of their own if it is given.
    pub(super) fn source(&mut self, name: &str, exchange: &str, key: Option<&str>) -> QueueId {
        let mut arguments = Arguments::new().with("x-dead-letter-exchange", text(exchange));
        if let Some(key) = key {
            arguments = arguments.with("x-dead-letter-routing-key", text(key));
        }
        self.queue(name, arguments)
    }

    pub(super) fn exchange(&mut self, name: &str, kind: ExchangeKind, arguments: Arguments) {
        self.change(CatalogCommand::DeclareExchange {
            vhost: "/".to_owned(),
            name: name.to_owned(),
            kind,
            durable: true,
            auto_delete: false,
            internal: true,
            arguments,
            by: OWNER,
        });
    }

    pub(super) fn bind(&mut self, exchange: &str, key: &str, queue: &str, arguments: Arguments) {
        self.change(CatalogCommand::Bind(BindingChange {
            vhost: "/".to_owned(),
            source: exchange.to_owned(),
            destination: Destination::Queue(queue.to_owned()),
            key: key.to_owned(),
            arguments,
            by: None,
        }));
    }

    pub(super) fn raise_version(&mut self) {
        self.change(CatalogCommand::RaiseVersion { to: Version::CHANGED_SETTINGS });
    }

    /// Changes a queue: its dead letters go to an exchange with a key from here on.
    pub(super) fn send_dead_letters_to(&mut self, name: &str, exchange: &str, key: &str) {
        let queue = self.catalog.queue("/", name).unwrap();
        let (id, mut spec) = (queue.id, queue.spec().clone());
        spec.dead_letter =
            Some(DeadLetter { exchange: exchange.to_owned(), key: Some(key.to_owned()) });
        let (vhost, name, spec) = ("/".to_owned(), name.to_owned(), Box::new(spec));
        self.change(CatalogCommand::ChangeQueue { vhost, name, queue: id, spec });
    }

    pub(super) fn delete_queue(&mut self, name: &str) {
        self.change(CatalogCommand::DeleteQueue {
            vhost: "/".to_owned(),
            name: name.to_owned(),
            queue: None,
            by: None,
        });
    }

    pub(super) fn group(&self, queue: QueueId) -> GroupId {
        self.catalog.queue_by_id(queue).unwrap().group
    }

    pub(super) fn step(&mut self, input: Input<'_>) {
        self.worker.step(self.now, &self.catalog, input, &mut self.out);
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        self.step(Input::Answered(&mut vec![answer]));
    }

    /// Messages with these bodies are dead.
    pub(super) fn leave(&mut self, queue: QueueId, reason: Outcome, first_seq: u64, all: &[&str]) {
        let messages: Vec<_> = all.iter().map(|body| (head("", "key", None), *body)).collect();
        let leaving = self.leaving(queue, reason, first_seq, &messages);
        self.answer(Answer::Leaving(leaving));
    }

    pub(super) fn leaving(
        &self,
        queue: QueueId,
        reason: Outcome,
        first_seq: u64,
        messages: &[(BytesMut, &str)],
    ) -> Leaving {
        let mut batch = Batch::new();
        for (head, body) in messages {
            batch.enqueue(&[queue], &[head], body.as_bytes());
        }
        let bytes = Bytes::from(batch.stamp(0)).slice(ENTRY_HEAD_BYTES..);
        let (group, count) = (GroupId(1), messages.len() as u32);
        let (store, time_ms) = (queue, 1_700_000_000_123);
        Leaving { group, queue, store, reason, first_seq, count, bytes, time_ms }
    }

    pub(super) fn later(&mut self, time: Duration) {
        self.now += time;
        self.step(Input::DeadlinePassed);
    }

    /// The appends that were asked for: ticket and messages.
    pub(super) fn take_appends(&mut self) -> Vec<(Ticket, Vec<Stored>)> {
        let mut appends = Vec::new();
        self.out.requests.retain(|request| {
            let Request::Append { group, ticket, batch, .. } = request else { return true };
            appends.push((*ticket, stored(*group, batch)));
            false
        });
        appends
    }

    pub(super) fn take_settles(&mut self) -> Vec<(QueueId, Ranges)> {
        let mut settles = Vec::new();
        self.out.requests.retain(|request| {
            let Request::Settle { queue, ranges, outcome: Outcome::DeadLettered, .. } = request
            else {
                return true;
            };
            settles.push((*queue, ranges.clone()));
            false
        });
        settles
    }

    pub(super) fn take_changes(&mut self) -> Vec<(Ticket, CatalogCommand)> {
        let mut changes = Vec::new();
        self.out.requests.retain(|request| {
            let Request::Catalog { ticket, command } = request else { return true };
            changes.push((*ticket, command.clone()));
            false
        });
        changes
    }

    /// Everything that is asked is done until nothing more is: the messages, in order.
    pub(super) fn carry(&mut self) -> Vec<Stored> {
        let mut all = Vec::new();
        loop {
            let appends = self.take_appends();
            if appends.is_empty() {
                if self.worker.deadline() != Some(self.now) {
                    return all;
                }
                self.step(Input::DeadlinePassed);
            }
            for (ticket, stored) in appends {
                all.extend(stored);
                self.answer(Answer::Appended { ticket });
            }
        }
    }
}

pub(super) fn text(text: &str) -> Value {
    Value::LongStr(text.into())
}

fn stored(group: GroupId, batch: &Batch) -> Vec<Stored> {
    let entry = batch.clone().stamp(0);
    let commands = EntryReader::new(&entry).unwrap().map(|command| command.unwrap().1);
    let enqueued = commands.map(|command| {
        let Command::Enqueue(enqueue) = command else { panic!("{command:?}") };
        assert_eq!((enqueue.attributes.ttl_ms, enqueue.attributes.delay_ms), (None, None));
        Stored {
            group,
            queues: enqueue.queues.iter().collect(),
            key: enqueue.attributes.key,
            head: enqueue.head.to_vec(),
            body: enqueue.body.to_vec(),
        }
    });
    enqueued.collect()
}

/// What a session stores of a message.
pub(super) fn head(exchange: &str, key: &str, headers: Option<&FieldTable>) -> BytesMut {
    let table = headers.map(FieldTable::to_bytes);
    let headers = table.as_ref().map(|table| TableRef::validate(table).unwrap());
    head_with(exchange, key, &Properties { headers, ..Properties::default() })
}

pub(super) fn head_with(exchange: &str, key: &str, properties: &Properties<'_>) -> BytesMut {
    let mut head = BytesMut::new();
    for name in [exchange, key] {
        head.extend_from_slice(&[name.len() as u8]);
        head.extend_from_slice(name.as_bytes());
    }
    properties.encode(&mut head);
    head
}
