//! Readers of streams: each gets every message in order, from memory or from the disk, and takes nothing away.

use machine::{
    Arguments, CatalogCommand, ConsumerChange, Features, QueueHome, QueueSettings, QueueSpec,
    QueueType, Retention, StreamOffset, Version,
};

use super::*;

/// It publishes nothing: whoever does takes what its session is told.
const EVE: SessionId = SessionId(3);

type Place = (QueueId, GroupId);

fn stream(node: &mut Node, retention: Retention) -> Place {
    let to = Version::STREAMS;
    node.submit(ANN, change(CatalogCommand::RaiseVersion { to }));
    node.run_to_quiet();
    node.told(ANN);
    let features = Features { stream: Some(retention), ..Features::default() };
    let spec = QueueSpec {
        queue_type: QueueType::Stream,
        settings: QueueSettings {
            is_durable: true,
            features: Some(Box::new(features)),
            ..QueueSettings::default()
        },
        dead_letter: None,
        consumer_timeout_ms: None,
        members: None,
        partitions: 1,
    };
    node.submit(
        ANN,
        change(CatalogCommand::CreateQueue {
            vhost: "/".to_owned(),
            name: "events".to_owned(),
            home: QueueHome::Group,
            spec: Box::new(spec),
            arguments: Arguments::new(),
        }),
    );
    node.run_to_quiet();
    match &node.told(ANN)[..] {
        [Answer::Catalog { reply: CatalogReply::QueueDeclared { queue, group, .. }, .. }] => {
            (*queue, *group)
        }
        other => panic!("not declared: {other:?}"),
    }
}

fn change(command: CatalogCommand) -> Request {
    Request::Catalog { ticket: Ticket(5), command }
}

fn from(start: StreamOffset, credit: u32) -> ConsumerSpec {
    ConsumerSpec { credit, start: Some(start), ..ConsumerSpec::default() }
}

fn more(node: &mut Node, consumer: ConsumerId, (queue, group): Place, add: u32) {
    let (ranges, outcome) = (Ranges::from(1..1 + u64::from(add)), Outcome::Done);
    let session = consumer.session;
    node.ask(session, Request::Settle { group, queue, consumer, ranges, outcome, credit: add });
    node.run_to_quiet();
}

fn numbers(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

fn publish(node: &mut Node, place: Place, range: std::ops::Range<u64>) {
    numbers(range).iter().for_each(|number| node.publish(ANN, place, &[number]));
}

#[test]
fn each_reader_gets_every_message_from_where_it_begins_and_an_ack_is_credit() {
    let mut node = Node::new(1);
    let place = stream(&mut node, Retention::default());
    publish(&mut node, place, 1..6);
    let bob = node.attach(BOB, place, from(StreamOffset::First, 3));
    let eve = node.attach(EVE, place, from(StreamOffset::Next, 10));
    assert!(matches!(node.told(EVE)[..], [Answer::Attached { at: Some(6), .. }]));
    assert_eq!(bodies(&node.got(BOB)), ["1", "2", "3"], "as many as it has credit for");
    publish(&mut node, place, 6..8);
    assert_eq!(bodies(&node.got(EVE)), ["6", "7"]);
    assert!(node.got(BOB).is_empty());
    more(&mut node, bob, place, 3);
    assert_eq!(bodies(&node.got(BOB)), ["4", "5", "6"]);
    more(&mut node, bob, place, 3);
    let got = node.got(BOB);
    assert!(bodies(&got) == ["7"] && !got[0].again);
    let status = node.status(place).unwrap();
    assert_eq!((status.ready, status.unsettled, status.consumers), (7, 0, 2));
    let (queue, group) = place;
    node.ask(
        EVE,
        Request::Detach { ticket: Ticket(2), group, queue, consumer: eve, takes_back: false },
    );
    assert!(matches!(node.told(EVE)[..], [Answer::Detached { ticket: Ticket(2) }]));
    publish(&mut node, place, 8..9);
    assert!(node.got(EVE).is_empty());
    assert_eq!(bodies(&node.got(BOB)), ["8"]);
    node.inputs.push(Input::SessionGone { session: BOB });
    node.run_to_quiet();
    assert_eq!(node.status(place).unwrap().consumers, 0);
    node.attach(BOB, place, from(StreamOffset::First, 100));
    assert_eq!(bodies(&node.got(BOB)), numbers(1..9), "whoever read it, it is all there");
}

#[test]
fn readers_of_what_is_on_the_disk_get_it_in_order_and_share_what_is_read() {
    let mut node = Node::new(1);
    let place = stream(&mut node, Retention::default());
    publish(&mut node, place, 1..40);
    node.want_checkpoint(place.1);
    node.checkpoint();
    publish(&mut node, place, 40..60);
    // Of these some lie in a segment and some in the log, and none in memory.
    let mut node = node.power_cut(1, 1);
    publish(&mut node, place, 60..70);
    for session in [ANN, BOB] {
        node.attach(session, place, from(StreamOffset::At(3), 1_000));
    }
    node.run_to_quiet();
    for session in [ANN, BOB] {
        assert_eq!(bodies(&node.got(session)), numbers(3..70));
    }
    assert!(node.fetch_count <= 4, "{} fetches", node.fetch_count);
}

#[test]
fn a_slow_reader_of_the_disk_goes_on_across_checkpoints() {
    let mut node = Node::new(1);
    let place = stream(&mut node, Retention::default());
    publish(&mut node, place, 1..30);
    let mut node = node.power_cut(1, 1);
    let bob = node.attach(BOB, place, from(StreamOffset::First, 1));
    node.run_to_quiet();
    let mut got = node.got(BOB);
    for round in 0..60 {
        if round % 10 == 0 {
            node.want_checkpoint(place.1);
            node.checkpoint();
            publish(&mut node, place, 30 + round / 10..31 + round / 10);
        }
        more(&mut node, bob, place, 1);
        got.extend(node.got(BOB));
    }
    assert_eq!(bodies(&got), numbers(1..36));
}

#[test]
fn who_reads_what_is_thrown_away_meanwhile_goes_on_with_the_oldest_that_is_kept() {
    let mut node = Node::new(1);
    let retention = Retention { max_bytes: Some(300_000), max_age_ms: None };
    let place = stream(&mut node, retention);
    let body = "x".repeat(10_000);
    node.publish(ANN, place, &[&body]);
    let bob = node.attach(BOB, place, from(StreamOffset::First, 1));
    assert_eq!(node.got(BOB).len(), 1);
    for _ in 0..100 {
        node.publish(ANN, place, &[&body]);
        node.run_to_quiet();
    }
    more(&mut node, bob, place, 1_000);
    let got = node.got(BOB);
    assert!((30..=45).contains(&got.len()), "{} messages", got.len());
    assert!(got.windows(2).all(|two| two[0].seq + 1 == two[1].seq), "without a gap behind that");
    assert_eq!(got.last().unwrap().seq, 101);
}

#[test]
fn who_reads_a_stream_that_is_deleted_is_told() {
    let mut node = Node::new(1);
    let place = stream(&mut node, Retention::default());
    publish(&mut node, place, 1..3);
    let consumer = node.attach(BOB, place, from(StreamOffset::First, 1));
    node.told(BOB);
    let (vhost, name) = ("/".to_owned(), "events".to_owned());
    node.submit(ANN, change(CatalogCommand::DeleteQueue { vhost, name, queue: None, by: None }));
    node.run_to_quiet();
    let told = node.told(BOB);
    let is_told =
        |it: &Answer| matches!(it, Answer::Cancelled { consumer: of, .. } if *of == consumer);
    assert!(told.iter().any(is_told), "{told:?}");
}

#[test]
fn a_reader_that_is_paused_waits_and_others_go_on() {
    let mut node = Node::new(1);
    let place = stream(&mut node, Retention::default());
    let (queue, group) = place;
    let bob = node.attach(BOB, place, from(StreamOffset::First, 10));
    node.attach(EVE, place, from(StreamOffset::First, 10));
    let pause = |node: &mut Node, is_paused| {
        node.ask(
            BOB,
            Request::ChangeConsumer {
                group,
                queue,
                consumer: bob,
                change: ConsumerChange::Pause(is_paused),
            },
        );
        node.run_to_quiet();
    };
    pause(&mut node, true);
    publish(&mut node, place, 1..4);
    node.run_to_quiet();
    assert_eq!(bodies(&node.got(BOB)), Vec::<&str>::new());
    assert_eq!(bodies(&node.got(EVE)), numbers(1..4));
    pause(&mut node, false);
    assert_eq!(bodies(&node.got(BOB)), numbers(1..4));
}

#[test]
fn who_reads_a_paused_stream_waits_and_goes_on_where_it_was() {
    let mut node = Node::new(1);
    let place = stream(&mut node, Retention::default());
    publish(&mut node, place, 1..3);
    node.attach(BOB, place, from(StreamOffset::First, 100));
    assert_eq!(bodies(&node.got(BOB)), ["1", "2"]);
    for (by, seen) in [(Some("guest".to_owned()), 3..3), (None, 3..5)] {
        let (vhost, name) = ("/".to_owned(), "events".to_owned());
        node.submit(ANN, change(CatalogCommand::PauseQueue { vhost, name, by }));
        node.run_to_quiet();
        node.told(ANN);
        if seen.is_empty() {
            publish(&mut node, place, 3..5);
        }
        assert_eq!(bodies(&node.got(BOB)), numbers(seen), "also without a publish");
    }
}
