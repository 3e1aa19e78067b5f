//! A retry against a catalog of its own and a cluster that a test plays.

use std::time::Duration;

use amqp::{FieldTable, FieldValue, Properties, TableRef, ValueRef};
use bytes::{Bytes, BytesMut};
use cluster::{Alarms, Answer, Delivery, NotPeeked, Peeked, PeekedMessage, Request, Ticket};
use machine::{
    Applied, Arguments, Batch, Catalog, CatalogCommand, CatalogReply, Command, ENTRY_HEAD_BYTES,
    EntryReader, GroupId, MessageDescription, MessageState, NodeId, Outcome, Position, QueueId,
    Ranges, SessionId, SessionOwner,
};

use super::super::limits;
use super::{Edit, Filter, Input, Plan, Retrier, State, Stays, Story, To, Which};
use crate::limits::APPEND_BYTES;
use crate::stored::{destination_texts, split_head, write_head};

const SESSION: SessionId = SessionId(9);

struct World {
    catalog: Catalog,
    retrier: Retrier,
    requests: Vec<Request>,
    now: Duration,
    /// What lies in the queue, from number 1 on.
    messages: Vec<(Bytes, &'static str)>,
    dead: QueueId,
    /// What was stored elsewhere: exchange, key, queues, body.
    stored: Vec<(String, String, Vec<QueueId>, String)>,
    settled: Vec<(Outcome, Ranges)>,
}

/// A message that died there.
fn died_in(queue: &str, exchange: &str, key: &str) -> Bytes {
    let text = |text: &str| FieldValue::LongStr(text.as_bytes().to_vec());
    let mut death = FieldTable::new();
    death.insert("count", FieldValue::I64(1));
    death.insert("queue", text(queue));
    death.insert("reason", text("rejected"));
    death.insert("exchange", text(exchange));
    death.insert("routing-keys", FieldValue::Array(vec![text(key)]));
    death.insert("time", FieldValue::Timestamp(1_700_000_000));
    let mut headers = FieldTable::new();
    headers.insert("x-death", FieldValue::Array(vec![FieldValue::Table(death)]));
    let raw = headers.to_bytes();
    let headers = Some(TableRef::validate(&raw).unwrap());
    let properties = Properties { headers, expiration: Some("5"), ..Properties::default() };
    let mut head = BytesMut::new();
    write_head("", "dead", &properties, &mut head);
    head.freeze()
}

fn plain() -> Bytes {
    let mut head = BytesMut::new();
    write_head("", "dead", &Properties::default(), &mut head);
    head.freeze()
}

fn plan(to: To, which: Which) -> Plan {
    Plan {
        vhost: "/".to_owned(),
        queue: "dead".to_owned(),
        place: (GroupId(1), QueueId(0)),
        to,
        which,
        count_max: u64::MAX,
        rate: None,
        retries_max: None,
        edit: None,
        is_dry: false,
        user: "guest".to_owned(),
        grant: None,
    }
}

fn all() -> Which {
    Which::All(Filter::default())
}

impl World {
    /// Of queues `dead`, `one` and `two`, of which the first has these messages.
    fn new(mut plan: Plan, messages: Vec<(Bytes, &'static str)>) -> Self {
        let mut catalog = Catalog::new(8);
        let mut dead = None;
        for (index, name) in (1..).zip(["dead", "one", "two"]) {
            let command = CatalogCommand::DeclareQueue {
                vhost: "/".to_owned(),
                name: name.to_owned(),
                durable: true,
                auto_delete: false,
                exclusive: false,
                server_named: false,
                arguments: Arguments::new(),
                by: SessionOwner { node: NodeId(1), session: SessionId(1) },
            };
            let at = Applied { index, time_ms: 0 };
            let reply = catalog.apply(at, command, &mut Vec::new());
            let CatalogReply::QueueDeclared { queue, group, .. } = reply else {
                panic!("{reply:?}")
            };
            dead.get_or_insert((group, queue));
        }
        plan.place = dead.unwrap();
        let (_, dead) = plan.place;
        let retrier =
            Retrier::new(SESSION, plan, 1_700_000_000_000, Alarms::default(), APPEND_BYTES);
        let (requests, stored, settled) = (Vec::new(), Vec::new(), Vec::new());
        let now = Duration::ZERO;
        let mut world = Self { catalog, retrier, requests, now, messages, dead, stored, settled };
        world.step(Input::DeadlinePassed);
        world
    }

    fn step(&mut self, input: Input<'_>) {
        self.retrier.step(self.now, &self.catalog, input, &mut self.requests);
    }

    fn answer(&mut self, answer: Answer) {
        self.step(Input::Answered(&mut vec![answer]));
    }

    /// What is asked, as the queue's leader and the targets would do it, until nothing is asked.
    fn carry(&mut self) {
        while !self.requests.is_empty() {
            for request in std::mem::take(&mut self.requests) {
                if let Some(answer) = self.play(request) {
                    self.answer(answer);
                }
            }
        }
    }

    fn play(&mut self, request: Request) -> Option<Answer> {
        Some(match request {
            Request::Peek { ticket, spec, .. } => {
                let seqs = spec.from.seq.max(1)..=self.messages.len() as u64;
                let first: Vec<u64> = seqs.take(spec.count as usize).collect();
                let messages = first.iter().map(|seq| self.peeked(*seq)).collect();
                let next = first
                    .last()
                    .map(|last| last + 1)
                    .filter(|next| *next <= self.messages.len() as u64);
                let next = next.map(|seq| Position { priority: 0, seq });
                let ends = vec![self.messages.len() as u64 + 1];
                Answer::Peeked { ticket, result: Ok(Box::new(Peeked { messages, next, ends })) }
            }
            Request::Get { ticket, at, consumer, .. } => {
                let seq = at.unwrap().seq;
                assert_eq!(consumer.session, SESSION);
                Answer::Got { ticket, delivery: Some(self.delivery(seq)), ready: 0 }
            }
            Request::Append { ticket, batch, .. } => {
                self.store(&batch);
                Answer::Appended { ticket }
            }
            Request::Settle { outcome, ranges, .. } => {
                self.settled.push((outcome, ranges));
                return None;
            }
            other => panic!("{other:?}"),
        })
    }

    fn peeked(&self, seq: u64) -> PeekedMessage {
        let (head, body) = &self.messages[seq as usize - 1];
        let is = MessageDescription {
            position: Position { priority: 0, seq },
            state: MessageState::Ready,
            expires_ms: None,
            returns: 0,
        };
        let (head, body_bytes) = (head.clone(), body.len() as u64);
        PeekedMessage { is, enqueued_ms: None, head, body: Bytes::new(), body_bytes }
    }

    fn delivery(&self, seq: u64) -> Delivery {
        let (head, body) = &self.messages[seq as usize - 1];
        let mut batch = Batch::new();
        batch.enqueue(&[self.dead], &[head], body.as_bytes());
        Delivery {
            group: GroupId(1),
            queue: self.dead,
            store: self.dead,
            consumer: machine::ConsumerId { session: SESSION, number: 0 },
            first_seq: seq,
            count: 1,
            redelivered: false,
            returns: 0,
            bytes: Bytes::from(batch.stamp(0)).slice(ENTRY_HEAD_BYTES..),
        }
    }

    fn store(&mut self, batch: &Batch) {
        let entry = batch.clone().stamp(0);
        for command in EntryReader::new(&entry).unwrap() {
            let Command::Enqueue(message) = command.unwrap().1 else { panic!("an enqueue") };
            let (destination, _) = split_head(message.head).unwrap();
            let (exchange, key) = destination_texts(destination);
            let body = String::from_utf8(message.body.to_vec()).unwrap();
            let queues = message.queues.iter().collect();
            self.stored.push((exchange.to_owned(), key.to_owned(), queues, body));
        }
    }

    fn id(&self, name: &str) -> QueueId {
        self.catalog.queue("/", name).unwrap().id
    }

    fn tickets(&self) -> Vec<Ticket> {
        self.requests
            .iter()
            .filter_map(|request| match request {
                Request::Get { ticket, .. } | Request::Append { ticket, .. } => Some(*ticket),
                _ => None,
            })
            .collect()
    }
}

#[test]
fn each_goes_back_to_where_it_died_and_what_does_not_tell_stays() {
    let messages = vec![
        (died_in("one", "in", "k"), "a"),
        (plain(), "b"),
        (died_in("two", "", "two"), "c"),
        (died_in("gone", "", "gone"), "d"),
        (died_in("dead", "", "dead"), "e"),
    ];
    let mut world = World::new(plan(To::Queue, all()), messages);
    world.carry();
    let (one, two) = (world.id("one"), world.id("two"));
    let stored = |key: &str, queue, body: &str| {
        (String::new(), key.to_owned(), vec![queue], body.to_owned())
    };
    assert_eq!(world.stored, [stored("one", one, "a"), stored("two", two, "c")]);
    let progress = world.retrier.progress().clone();
    assert!(world.retrier.is_over());
    assert_eq!((progress.state, progress.sent, progress.matched), (State::Done, 2, 5));
    let stays: Vec<_> = progress.stays.into_iter().collect();
    assert_eq!(stays, [(Stays::NoDeath, 2), (Stays::Unroutable, 1)]);
    let mut settled = [Ranges::new(), Ranges::new()];
    for (outcome, ranges) in &world.settled {
        let place = usize::from(*outcome != Outcome::Done);
        assert!(matches!(outcome, Outcome::Done | Outcome::Undelivered), "{outcome:?}");
        settled[place].insert_all(ranges);
    }
    let seqs = |ranges: &Ranges| ranges.ranges().flatten().collect::<Vec<_>>();
    assert_eq!(settled.each_ref().map(seqs), [vec![1, 3], vec![2, 4, 5]]);
}

#[test]
fn a_message_is_let_go_of_only_when_its_target_has_it() {
    let mut world = World::new(plan(To::Queue, all()), vec![(died_in("one", "", "one"), "a")]);
    let look = world.requests.remove(0);
    let found = world.play(look).unwrap();
    world.answer(found);
    let get = world.requests.remove(0);
    let got = world.play(get).unwrap();
    world.answer(got);
    let [Request::Append { ticket, .. }] = world.requests[..] else { panic!("an append") };
    world.requests.clear();
    // The group does not take it: it is sent again, and held meanwhile.
    world.answer(Answer::AppendFailed { ticket });
    assert!(world.requests.is_empty() && !world.retrier.is_over());
    assert_eq!(world.retrier.deadline(), Some(limits::RETRY));
    world.now = limits::RETRY;
    world.step(Input::DeadlinePassed);
    let [ticket] = world.tickets()[..] else { panic!("it is sent again") };
    world.requests.clear();
    assert_eq!(world.retrier.progress().sent, 0);
    world.answer(Answer::Appended { ticket });
    let [Request::Settle { outcome: Outcome::Done, .. }] = world.requests[..] else {
        panic!("{:?}", world.requests)
    };
    assert!(world.retrier.is_over());
    assert_eq!(world.retrier.progress().sent, 1);
}

#[test]
fn a_retry_is_told_like_a_refusal_and_counted() {
    let mut world = World::new(plan(To::Queue, all()), vec![(died_in("one", "", "one"), "a")]);
    let head = world.messages[0].0.clone();
    assert_eq!(world.retrier.judge(Duration::ZERO, &world.catalog, &head).unwrap().1, "one");
    let sent = world.retrier.forwarded.head.clone();
    let story = Story::of(&sent, "dead");
    assert_eq!((story.retries, story.death.unwrap().queue), (1, "one".to_owned()));
    let (_, raw) = split_head(&sent).unwrap();
    let properties = Properties::decode(raw).unwrap();
    assert_eq!(properties.expiration, None);
    let Some(ValueRef::Array(deaths)) = properties.headers.unwrap().find("x-death") else {
        panic!("no deaths")
    };
    let queues: Vec<String> = deaths
        .iter()
        .map(|death| match death {
            ValueRef::Table(death) => match death.find("queue") {
                Some(ValueRef::LongStr(queue)) => String::from_utf8(queue.to_vec()).unwrap(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(queues, ["dead", "one"], "newest first");
    // The same message again, and no more.
    world.retrier.plan.retries_max = Some(2);
    assert!(world.retrier.judge(Duration::ZERO, &world.catalog, &sent).is_ok());
    let sent = world.retrier.forwarded.head.clone();
    assert_eq!(Story::of(&sent, "dead").retries, 2);
    let refused = world.retrier.judge(Duration::ZERO, &world.catalog, &sent);
    assert_eq!(refused, Err(Stays::TooOften));
}

/// The headers of a stored message, in JSON-like words.
fn headers(head: &[u8]) -> FieldTable {
    let (_, raw) = split_head(head).unwrap();
    Properties::decode(raw).unwrap().headers.unwrap().to_table()
}

#[test]
fn one_message_is_mended_and_its_record_of_deaths_stays() {
    let text = |text: &str| FieldValue::LongStr(text.as_bytes().to_vec());
    let mut new = FieldTable::new();
    new.insert("kind", text("letter"));
    new.insert("x-death", text("never"));
    let (payload, new) = (Bytes::from_static(b"mended"), new.to_bytes().freeze());
    let edit = Some(Edit { payload: Some(payload), headers: Some(new) });
    let which = Which::At(vec![Position { priority: 0, seq: 2 }]);
    let messages = vec![(plain(), "a"), (died_in("one", "", "one"), "b")];
    let mut world = World::new(Plan { edit, ..plan(To::Queue, which) }, messages);
    world.carry();
    let bodies: Vec<&str> = world.stored.iter().map(|stored| stored.3.as_str()).collect();
    assert_eq!((bodies, world.stored[0].1.as_str()), (vec!["mended"], "one"));
    assert_eq!(world.settled.len(), 1);
    assert_eq!((world.settled[0].0, world.settled[0].1.contains(2)), (Outcome::Done, true));
    let sent = world.retrier.forwarded.head.clone();
    let names: Vec<String> = headers(&sent).0.into_iter().map(|(name, _)| name).collect();
    let first = ["x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"];
    let told = |name: &String| !first.contains(&name.as_str());
    let names: Vec<String> = names.into_iter().filter(told).collect();
    assert_eq!(names, ["kind", "x-death", "x-millrace-retries"]);
    let FieldValue::Array(deaths) =
        &headers(&sent).0.into_iter().find(|it| it.0 == "x-death").unwrap().1
    else {
        panic!("no deaths")
    };
    assert_eq!(deaths.len(), 2, "in one, and here");
}

#[test]
fn what_is_mended_does_not_say_that_its_publisher_wrote_it() {
    let properties = |user_id| Properties {
        user_id: Some(user_id),
        message_id: Some("seven"),
        ..Properties::default()
    };
    let edit = Edit { payload: Some(Bytes::from_static(b"mended")), headers: None };
    for (named, left) in [("ann", None), ("guest", Some("guest"))] {
        let mut head = BytesMut::new();
        write_head("", "dead", &properties(named), &mut head);
        let edited = edit.head(&head, "guest");
        let (destination, raw) = split_head(&edited).unwrap();
        assert_eq!(destination_texts(destination), ("", "dead"));
        let properties = Properties::decode(raw).unwrap();
        assert_eq!((properties.user_id, properties.message_id), (left, Some("seven")));
    }
}

#[test]
fn a_dry_run_takes_nothing_and_says_where_each_would_go() {
    let messages =
        vec![(died_in("one", "", "k"), "a"), (died_in("one", "", "k"), "b"), (plain(), "c")];
    let dry = Plan { is_dry: true, ..plan(To::Queue, all()) };
    let mut world = World::new(dry, messages.clone());
    world.carry();
    assert!(world.retrier.is_over() && world.stored.is_empty() && world.settled.is_empty());
    let progress = world.retrier.progress();
    assert_eq!((progress.sent, progress.stays.get(&Stays::NoDeath)), (2, Some(&1)));
    let target = (String::new(), "one".to_owned());
    assert_eq!(progress.targets.iter().next(), Some((&target, &2)));
    // To an exchange that is not there, and to the queue itself.
    let named = |exchange: &str, key: &str| To::Named {
        exchange: exchange.to_owned(),
        key: key.to_owned(),
    };
    for (to, why) in [
        (named("none", ""), Stays::NoExchange),
        (named("", "dead"), Stays::SameQueue),
        (named("amq.direct", "nobody"), Stays::Unroutable),
    ] {
        let mut world = World::new(Plan { is_dry: true, ..plan(to, all()) }, messages.clone());
        world.carry();
        assert_eq!(world.retrier.progress().stays.get(&why), Some(&3), "{why:?}");
    }
    let stranger = Plan { user: "nobody".to_owned(), is_dry: true, ..plan(To::Queue, all()) };
    let mut world = World::new(stranger, messages);
    world.carry();
    assert_eq!(world.retrier.progress().stays.get(&Stays::NotAllowed), Some(&2));
}

#[test]
fn places_filters_and_a_limit_choose_messages() {
    let messages = vec![
        (died_in("one", "", "one"), "a"),
        (died_in("two", "", "two"), "b"),
        (died_in("one", "", "one"), "c"),
        (died_in("one", "", "one"), "d"),
    ];
    let at = |seq| Position { priority: 0, seq };
    let of_one = Filter { died_in: Some("one".to_owned()), ..Filter::default() };
    let expired = Filter { reason: Some("expired".to_owned()), ..Filter::default() };
    for (which, count_max, bodies, gone) in [
        (Which::At(vec![at(4), at(2), at(9)]), u64::MAX, &["d", "b"][..], 1),
        (Which::All(of_one), 2, &["a", "c"], 0),
        (Which::All(expired), u64::MAX, &[], 0),
    ] {
        let plan = Plan { count_max, ..plan(To::Queue, which) };
        let mut world = World::new(plan, messages.clone());
        world.carry();
        let sent: Vec<&str> = world.stored.iter().map(|stored| stored.3.as_str()).collect();
        assert_eq!((sent.as_slice(), world.retrier.progress().gone), (bodies, gone));
        assert!(world.retrier.is_over());
    }
}

#[test]
fn what_comes_after_the_beginning_is_left_alone() {
    let mut world = World::new(plan(To::Queue, all()), Vec::new());
    world.messages = (0..150).map(|_| (died_in("one", "", "one"), "a")).collect();
    let look = world.requests.remove(0);
    let found = world.play(look).unwrap();
    // Each message that is sent on dies again.
    world.messages.extend((0..150).map(|_| (died_in("one", "", "one"), "again")));
    world.answer(found);
    world.carry();
    assert_eq!(world.retrier.progress().sent, 150);
    assert!(world.retrier.is_over());
}

#[test]
fn it_keeps_its_rate_its_bounds_and_the_alarms() {
    let messages: Vec<_> = (0..300).map(|_| (died_in("one", "", "one"), "a")).collect();
    let slow = Plan { rate: Some(10), ..plan(To::Queue, all()) };
    let mut world = World::new(slow, messages.clone());
    world.carry();
    assert_eq!(world.retrier.progress().sent, 1);
    for tenth in 1..=5 {
        assert_eq!(world.retrier.deadline(), Some(Duration::from_millis(100 * tenth)));
        world.now = Duration::from_millis(100 * tenth);
        world.step(Input::DeadlinePassed);
        world.carry();
        assert_eq!(world.retrier.progress().sent, 1 + tenth);
    }
    // Without answers no more is asked for than may be.
    let mut world = World::new(plan(To::Queue, all()), messages);
    let mut asked = 0;
    for _ in 0..8 {
        let mut answers = Vec::new();
        for request in std::mem::take(&mut world.requests) {
            match request {
                Request::Peek { .. } => answers.extend(world.play(request)),
                _ => asked += 1,
            }
        }
        world.step(Input::Answered(&mut answers));
    }
    assert_eq!(asked, limits::RETRY_MESSAGES_MAX);
    let full = Alarms { disk: true, ..Alarms::default() };
    let mut world = World::new(plan(To::Queue, all()), vec![(died_in("one", "", "one"), "a")]);
    world.answer(Answer::Alarms(full));
    world.carry();
    assert_eq!(world.stored.len(), 0);
    world.answer(Answer::Alarms(Alarms::default()));
    world.carry();
    assert_eq!(world.stored.len(), 1);
}

#[test]
fn one_that_is_stopped_gives_back_what_comes_and_one_without_a_queue_ends() {
    let mut world = World::new(plan(To::Queue, all()), vec![(died_in("one", "", "one"), "a")]);
    let look = world.requests.remove(0);
    let found = world.play(look).unwrap();
    world.answer(found);
    world.step(Input::Stop);
    assert!(!world.retrier.is_over(), "a message is on its way here");
    world.carry();
    assert_eq!((world.stored.len(), world.settled.len()), (0, 1));
    assert_eq!(world.settled[0].0, Outcome::Undelivered);
    assert!(world.retrier.is_over());
    assert_eq!(world.retrier.progress().state, State::Stopped);

    let mut world = World::new(plan(To::Queue, all()), Vec::new());
    let [Request::Peek { ticket, .. }] = world.requests[..] else { panic!("a look") };
    world.answer(Answer::Peeked { ticket, result: Err(NotPeeked::Busy) });
    assert_eq!(world.retrier.deadline(), Some(limits::LOOK_AGAIN));
    world.requests.clear();
    world.now = limits::LOOK_AGAIN;
    world.step(Input::DeadlinePassed);
    let [Request::Peek { ticket, .. }] = world.requests[..] else { panic!("it looks again") };
    world.answer(Answer::Peeked { ticket, result: Err(NotPeeked::NoQueue) });
    assert!(world.retrier.is_over());
    assert_eq!(world.retrier.progress().state, State::NoQueue);
}
