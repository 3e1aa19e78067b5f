//! Subscriptions of a stream with several partitions, each in a group of its own: filters, other places, and one active
//! consumer for all of them.

use std::collections::BTreeMap;

use machine::{Assignment, Features, Filter, QueueType, Retention, StreamOffset, Subscription};

use super::filters::{key, publish};
use super::subscriptions::{Place, change, create_with, numbers, seek, settle};
use super::*;

const EVE: SessionId = SessionId(3);
const COUNT: usize = 3;

/// The partitions of a queue.
fn places(node: &Node, name: &str) -> Vec<Place> {
    let catalog = node.shard.catalog().expect("it has the catalog");
    let queue = catalog.queue("/", name).expect("the queue");
    queue.partitions().map(|partition| (partition.queue, partition.group)).collect()
}

/// A stream of three partitions and a subscription of it with more features.
fn subscribed(node: &mut Node, features: Features) -> (Vec<Place>, Vec<Place>) {
    change(node, machine::CatalogCommand::RaiseVersion { to: machine::Version::STREAMS });
    let kept = Features { stream: Some(Retention::default()), ..Features::default() };
    let (stream, _) = create_with(node, "events", QueueType::Stream, kept, COUNT as u16);
    let reads = Subscription { stream, start: StreamOffset::First, skips: false, seeks: 0 };
    let features = Features { subscription: Some(reads), ..features };
    create_with(node, "some", QueueType::Subscription, features, 1);
    let (stream, some) = (places(node, "events"), places(node, "some"));
    assert_eq!((stream.len(), some.len()), (COUNT, COUNT));
    (stream, some)
}

/// Attaches a consumer of each partition, with a number of its own, to all of them.
fn attach_all(node: &mut Node, session: SessionId, places: &[Place], spec: ConsumerSpec) {
    for (nth, (queue, group)) in places.iter().copied().enumerate() {
        attach(node, session, (queue, group), nth, spec);
    }
}

fn attach(
    node: &mut Node,
    session: SessionId,
    (queue, group): Place,
    nth: usize,
    spec: ConsumerSpec,
) {
    let consumer = ConsumerId { session, number: nth as u64 + 1 };
    let ticket = Ticket(9);
    node.ask(session, Request::Attach { ticket, group, queue, consumer, spec });
    node.run_to_quiet();
}

/// Publishes ten messages to each partition, with numbers that do not come again.
fn publish_all(node: &mut Node, stream: &[Place], from: u64) {
    for (place, from) in stream.iter().zip((from..).step_by(10)) {
        publish(node, *place, from..from + 10);
    }
}

#[test]
fn a_filter_counts_in_every_partition() {
    let mut node = Node::new(4);
    let filter = Some(Box::new(Filter::Keys(vec!["*.eu".into()])));
    let (stream, some) = subscribed(&mut node, Features { filter, ..Features::default() });
    publish_all(&mut node, &stream, 0);
    let mut node = node.power_cut(1, 4);
    publish_all(&mut node, &stream, 100);
    attach_all(&mut node, EVE, &some, credit(100));
    let mut got = numbers(&mut node, EVE);
    got.sort_unstable();
    let all = (0..30).chain(100..130);
    assert_eq!(got, all.filter(|number| key(*number).ends_with(".eu")).collect::<Vec<u64>>());
    // What does not match is settled: each partition has what it gave out, and no more.
    for place in &some {
        let status = node.status(*place).unwrap();
        assert_eq!((status.ready, status.unsettled, status.counters.passed_over), (0, 10, 10));
    }
}

#[test]
fn every_partition_is_set_to_another_place_and_what_was_given_out_before_settles_nothing() {
    let mut node = Node::new(4);
    let (stream, some) = subscribed(&mut node, Features::default());
    publish_all(&mut node, &stream, 0);
    attach_all(&mut node, EVE, &some, credit(1_000));
    assert_eq!(numbers(&mut node, EVE).len(), 30);
    seek(&mut node, "some", StreamOffset::First);
    node.run_to_quiet();
    let mut again = numbers(&mut node, EVE);
    again.sort_unstable();
    assert_eq!(again, Vec::from_iter(0..30));
    // Acknowledgements of the first time.
    for (nth, place) in some.iter().enumerate() {
        let consumer = ConsumerId { session: EVE, number: nth as u64 + 1 };
        settle(&mut node, consumer, *place, &Vec::from_iter(1..11));
        assert_eq!(node.status(*place).unwrap().unsettled, 10);
    }
    seek(&mut node, "some", StreamOffset::Next);
    publish_all(&mut node, &stream, 100);
    let mut new = numbers(&mut node, EVE);
    new.sort_unstable();
    assert_eq!(new, Vec::from_iter(100..130));
    // An offset is one of each partition; the place outlives a power cut.
    seek(&mut node, "some", StreamOffset::At(6));
    let mut node = node.power_cut(1, 4);
    attach_all(&mut node, EVE, &some, credit(1_000));
    let mut of: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for number in numbers(&mut node, EVE) {
        of.entry(number % 100 / 10).or_default().push(number);
    }
    for (partition, numbers) in of {
        let first = partition * 10;
        let all: Vec<u64> = (first + 5..first + 10).chain(first + 100..first + 110).collect();
        assert_eq!(numbers, all);
    }
}

/// The generations that a session was told, and the numbers that it was sent.
fn hears(node: &mut Node, session: SessionId) -> (Vec<u64>, usize) {
    let (mut told, mut sent) = (Vec::new(), 0);
    for answer in node.told(session) {
        match answer {
            Answer::Elected { generation, .. } => told.push(generation),
            Answer::Delivered(delivery) => sent += delivery.count as usize,
            _ => {}
        }
    }
    (told, sent)
}

#[test]
fn one_consumer_is_served_by_all_partitions_and_then_the_next() {
    let mut node = Node::new(4);
    let assignment = Some(Assignment { index: 0, count: 1 });
    let features = Features { assignment, single_active: true, ..Features::default() };
    let (stream, some) = subscribed(&mut node, features);
    publish_all(&mut node, &stream, 0);
    for session in [EVE, BOB] {
        attach_all(&mut node, session, &some, credit(0));
    }
    let (told, sent) = hears(&mut node, EVE);
    let [first] = told[..] else { panic!("{told:?}") };
    assert_eq!((sent, hears(&mut node, BOB)), (0, (vec![], 0)));
    let with = |generation, credit| ConsumerSpec { generation, credit, ..ConsumerSpec::default() };
    for nth in [1, 2, 0] {
        attach(&mut node, EVE, some[nth], nth, with(first, 100));
    }
    assert_eq!(hears(&mut node, EVE), (vec![], 30));
    // Whoever else has credit is not served.
    attach_all(&mut node, BOB, &some, credit(100));
    publish_all(&mut node, &stream, 100);
    assert_eq!((hears(&mut node, EVE).1, hears(&mut node, BOB)), (30, (vec![], 0)));
    node.ask(EVE, Request::EndSession { ticket: Ticket(3) });
    node.run_to_quiet();
    let (told, sent) = hears(&mut node, BOB);
    let [next] = told[..] else { panic!("{told:?}") };
    assert_eq!((next > first, sent), (true, 0));
    for nth in [1, 2, 0] {
        attach(&mut node, BOB, some[nth], nth, with(next, 100));
    }
    assert_eq!(hears(&mut node, BOB).1, 60, "also what the first one held");
}
