//! Subscriptions: each gets every message of its stream in order, from memory or from the disk, and settles for itself.

use std::collections::{BTreeMap, BTreeSet};

use machine::{
    Arguments, CatalogCommand, Features, QueueHome, QueueSettings, QueueSpec, QueueType, Retention,
    StreamOffset, Subscription, Version,
};

use super::*;

const EVE: SessionId = SessionId(3);

pub(super) type Place = (QueueId, GroupId);

pub(super) fn change(node: &mut Node, command: CatalogCommand) -> Vec<Answer> {
    node.submit(ANN, Request::Catalog { ticket: Ticket(5), command });
    node.run_to_quiet();
    node.told(ANN)
}

pub(super) fn create(
    node: &mut Node,
    name: &str,
    queue_type: QueueType,
    features: Features,
) -> Place {
    create_with(node, name, queue_type, features, 1)
}

pub(super) fn create_with(
    node: &mut Node,
    name: &str,
    queue_type: QueueType,
    features: Features,
    partitions: u16,
) -> Place {
    let spec = QueueSpec {
        queue_type,
        settings: QueueSettings {
            is_durable: true,
            features: Some(Box::new(features)),
            ..QueueSettings::default()
        },
        dead_letter: None,
        consumer_timeout_ms: None,
        members: None,
        partitions,
    };
    let command = CatalogCommand::CreateQueue {
        vhost: "/".to_owned(),
        name: name.to_owned(),
        home: QueueHome::Group,
        spec: Box::new(spec),
        arguments: Arguments::new(),
    };
    match &change(node, command)[..] {
        [Answer::Catalog { reply: CatalogReply::QueueDeclared { queue, group, .. }, .. }] => {
            (*queue, *group)
        }
        other => panic!("not declared: {other:?}"),
    }
}

pub(super) fn stream(node: &mut Node, retention: Retention) -> Place {
    change(node, CatalogCommand::RaiseVersion { to: Version::STREAMS });
    let features = Features { stream: Some(retention), ..Features::default() };
    create(node, "events", QueueType::Stream, features)
}

fn subscription(node: &mut Node, name: &str, stream: Place, start: StreamOffset) -> Place {
    let reads = Subscription { stream: stream.0, start, skips: false, seeks: 0 };
    let features = Features { subscription: Some(reads), ..Features::default() };
    let place = create(node, name, QueueType::Subscription, features);
    assert_eq!(place.1, stream.1, "it lives with its stream");
    place
}

pub(super) fn seek(node: &mut Node, name: &str, to: StreamOffset) {
    let (vhost, name) = ("/".to_owned(), name.to_owned());
    change(node, CatalogCommand::SeekQueue { vhost, name, to });
}

/// So many messages of 300 bytes, which begin with their numbers.
fn publish(node: &mut Node, place: Place, range: std::ops::Range<u64>) {
    let bodies: Vec<String> = range.map(|number| format!("{number} {}", ".".repeat(300))).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    node.publish(ANN, place, &bodies);
}

/// The numbers of what a session was sent.
pub(super) fn numbers(node: &mut Node, session: SessionId) -> Vec<u64> {
    let got = node.got(session);
    let number = |body: &str| body.split(' ').next().unwrap().parse().unwrap();
    got.iter().map(|got| number(&got.body)).collect()
}

pub(super) fn settle(node: &mut Node, consumer: ConsumerId, (queue, group): Place, seqs: &[u64]) {
    let ranges: Ranges = seqs.iter().map(|seq| *seq..seq + 1).collect();
    let (outcome, credit) = (Outcome::Done, seqs.len() as u32);
    let session = consumer.session;
    node.ask(session, Request::Settle { group, queue, consumer, ranges, outcome, credit });
    node.run_to_quiet();
}

#[test]
fn subscriptions_read_memory_log_and_segments_each_at_its_own_pace() {
    let mut node = Node::new(1);
    let events = stream(&mut node, Retention::default());
    let fast = subscription(&mut node, "fast", events, StreamOffset::First);
    let slow = subscription(&mut node, "slow", events, StreamOffset::First);
    publish(&mut node, events, 1..40);
    let bob = node.attach(BOB, fast, credit(100));
    node.run_to_quiet();
    assert_eq!(numbers(&mut node, BOB), Vec::from_iter(1..40));
    settle(&mut node, bob, fast, &Vec::from_iter(1..40));
    node.want_checkpoint(events.1);
    node.checkpoint();
    publish(&mut node, events, 40..60);
    let mut node = node.power_cut(1, 1);
    publish(&mut node, events, 60..70);
    let eve = node.attach(EVE, slow, credit(7));
    let mut got = Vec::new();
    while got.len() < 69 {
        node.run_to_quiet();
        let new = numbers(&mut node, EVE);
        assert!(!new.is_empty() && new.len() <= 7, "{new:?} after {}", got.len());
        settle(&mut node, eve, slow, &new);
        got.extend(new);
    }
    assert_eq!(got, Vec::from_iter(1..70));
    node.attach(BOB, fast, credit(100));
    node.run_to_quiet();
    assert_eq!(numbers(&mut node, BOB), Vec::from_iter(40..70), "what it settled is settled");
    node.shard.check();
}

#[test]
fn what_is_on_its_way_to_somebody_outlives_retention() {
    let mut node = Node::new(1);
    let retention = Retention { max_bytes: Some(1), ..Retention::default() };
    let events = stream(&mut node, retention);
    let all = subscription(&mut node, "all", events, StreamOffset::First);
    for number in 0..40 {
        publish(&mut node, events, number * 10 + 1..number * 10 + 11);
    }
    let mut node = node.power_cut(2, 1);
    // Settled as they are given out, and on the disk: retention may remove them before they are read.
    node.attach(BOB, all, ConsumerSpec { no_ack: true, ..credit(1_000) });
    for _ in 0..30 {
        // The log hears that they are settled, and later that they are gone; nothing is read meanwhile.
        node.ms += 500;
        node.step();
        node.sync(usize::MAX);
    }
    node.want_checkpoint(events.1);
    node.checkpoint();
    node.run_to_quiet();
    assert_eq!(numbers(&mut node, BOB), Vec::from_iter(1..401));
    node.run_to_quiet();
    node.shard.check();
}

/// Numbers that look like chance.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A consumer of one subscription, and what it knows.
#[derive(Default)]
struct Reader {
    consumer: Option<ConsumerId>,
    /// Level and number of what it was sent and has not settled.
    held: Vec<(QueueId, u64)>,
    /// What it has settled since the subscription was set to another place.
    settled: BTreeSet<u64>,
    /// The lowest number that it is to get.
    from: u64,
}

fn take(node: &mut Node, session: SessionId, reader: &mut Reader) {
    for answer in node.told(session) {
        if let Answer::Delivered(delivery) = answer {
            let seqs = delivery.first_seq..delivery.first_seq + u64::from(delivery.count);
            reader.held.extend(seqs.map(|seq| (delivery.queue, seq)));
        }
    }
}

fn play(seed: u64) {
    let mut chance = Chance(seed);
    let mut node = Node::new(1);
    let events = stream(&mut node, Retention { max_bytes: Some(20_000), max_age_ms: None });
    let names = ["one", "two"];
    let sessions = [BOB, EVE];
    let mut places = Vec::new();
    for name in names {
        places.push(subscription(&mut node, name, events, StreamOffset::First));
    }
    let mut readers = [Reader::default(), Reader::default()];
    let mut next = 1;
    for _ in 0..120 {
        let which = chance.below(2) as usize;
        let (place, session) = (places[which], sessions[which]);
        match chance.below(12) {
            0..=4 => {
                let count = chance.below(20) + 1;
                publish(&mut node, events, next..next + count);
                next += count;
            }
            5..=7 => {
                let count = chance.below(9) as u32 + 1;
                let reader = &mut readers[which];
                let ready: Vec<_> = reader.held.drain(..).take(count as usize).collect();
                if let Some(consumer) = reader.consumer {
                    for (level, seq) in ready {
                        let level_now = reader.held.first().map_or(level, |(level, _)| *level);
                        if level == level_now {
                            reader.settled.insert(seq);
                        }
                        settle(&mut node, consumer, (level, place.1), &[seq]);
                    }
                }
                let consumer = node.attach(session, place, credit(count));
                readers[which].consumer = Some(consumer);
            }
            8 => {
                node.want_checkpoint(events.1);
                node.checkpoint();
            }
            9 => {
                node.inputs.push(Input::SessionGone { session });
                node.run_to_quiet();
                readers[which].consumer = None;
                readers[which].held.clear();
            }
            10 => {
                let to = chance.below(next) + 1;
                seek(&mut node, names[which], StreamOffset::At(to));
                readers[which] = Reader { from: to, ..Reader::default() };
                node.inputs.push(Input::SessionGone { session });
                node.run_to_quiet();
            }
            _ => {
                node = node.power_cut(seed, 1);
                for reader in &mut readers {
                    (reader.consumer, reader.held) = (None, Vec::new());
                }
            }
        }
        node.ms += chance.below(400);
        node.run_to_quiet();
        for (session, reader) in sessions.into_iter().zip(&mut readers) {
            take(&mut node, session, reader);
        }
    }
    // In the end everybody reads what is left.
    let mut rest: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
    for (which, (place, session)) in places.iter().zip(sessions).enumerate() {
        node.inputs.push(Input::SessionGone { session });
        node.run_to_quiet();
        node.told(session);
        node.attach(session, *place, credit(100_000));
        node.run_to_quiet();
        rest.insert(which, numbers(&mut node, session).into_iter().collect());
    }
    for (which, reader) in readers.iter().enumerate() {
        let got = &rest[&which];
        let first = got.first().copied().unwrap_or(next);
        let lost: Vec<u64> = (reader.from.max(1)..next)
            .filter(|number| !got.contains(number) && !reader.settled.contains(number))
            // Retention may have removed what was passed over before it was set back.
            .filter(|number| *number >= first || reader.from == 0)
            .collect();
        assert!(lost.is_empty(), "seed {seed}: {} never got {lost:?}", names[which]);
    }
    node.shard.check();
}

#[test]
fn nobody_loses_a_message_whatever_happens_to_the_node_or_its_place_in_the_stream() {
    (1..60).for_each(play);
}
