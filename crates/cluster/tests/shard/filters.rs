//! Filters of subscriptions: asked of the bytes of messages, wherever these lie.

use std::collections::BTreeSet;

use machine::{Features, Filter, QueueType, Retention, StreamOffset, Subscription};

use super::subscriptions::{Chance, Place, create, numbers, stream};
use super::*;

const EVE: SessionId = SessionId(3);

fn filtered(node: &mut Node, name: &str, stream: Place, filter: Filter) -> Place {
    let start = StreamOffset::First;
    let reads = Subscription { stream: stream.0, start, skips: false, seeks: 0 };
    let filter = Some(Box::new(filter));
    let features = Features { subscription: Some(reads), filter, ..Features::default() };
    create(node, name, QueueType::Subscription, features)
}

fn keys(keys: &[&str]) -> Filter {
    Filter::Keys(keys.iter().map(|key| (*key).to_owned()).collect())
}

/// The key of each message: one of three kinds, and one of two places.
pub(super) fn key(number: u64) -> String {
    let place = if number.is_multiple_of(2) { "eu" } else { "us" };
    format!("{}.{place}", ["order", "refund", "audit"][number as usize % 3])
}

/// What the filters of these tests match, said without topics.
fn is_match(filter: usize, number: u64) -> bool {
    match filter {
        0 => number.is_multiple_of(2),
        1 => number % 3 == 1,
        2 => number.is_multiple_of(2) || number % 3 == 2,
        3 => true,
        _ => false,
    }
}

fn filter(which: usize) -> Filter {
    match which {
        0 => keys(&["*.eu"]),
        1 => keys(&["refund.#"]),
        2 => keys(&["#.eu", "audit.*"]),
        3 => keys(&["#"]),
        _ => keys(&["none", "order"]),
    }
}

/// So many messages, with their keys and headers.
pub(super) fn publish(node: &mut Node, (queue, group): Place, range: std::ops::Range<u64>) {
    let mut batch = Batch::new();
    for number in range {
        let (key, kind) = (key(number), number % 3);
        let mut head = vec![0, key.len() as u8];
        head.extend_from_slice(key.as_bytes());
        // Properties with one header: `kind`, a text.
        head.extend_from_slice(&0x2000_u16.to_be_bytes());
        head.extend_from_slice(&[0, 0, 0, 11, 4, b'k', b'i', b'n', b'd', b'S', 0, 0, 0, 1]);
        head.push(b'0' + kind as u8);
        batch.enqueue(&[queue], &[&head], format!("{number} {}", ".".repeat(200)).as_bytes());
    }
    let (ticket, settles) = (Ticket(0), Vec::new());
    node.ask(ANN, Request::Append { group, ticket, batch, settles });
    node.sync(usize::MAX);
    assert!(!appended(&node.told(ANN)).is_empty(), "not confirmed");
    node.run_to_quiet();
}

fn settle(node: &mut Node, consumer: ConsumerId, (queue, group): Place, seqs: &[u64], add: u32) {
    let ranges: Ranges = seqs.iter().map(|seq| *seq..seq + 1).collect();
    let (outcome, credit) = (Outcome::Done, add);
    let session = consumer.session;
    node.ask(session, Request::Settle { group, queue, consumer, ranges, outcome, credit });
    node.run_to_quiet();
}

fn matching(filter: usize, range: std::ops::Range<u64>) -> Vec<u64> {
    range.filter(|number| is_match(filter, *number)).collect()
}

#[test]
fn filters_read_memory_log_and_segments_and_give_out_what_they_match_in_order() {
    for which in 0..5 {
        let mut node = Node::new(1);
        let events = stream(&mut node, Retention::default());
        let place = filtered(&mut node, "some", events, filter(which));
        publish(&mut node, events, 1..60);
        node.want_checkpoint(events.1);
        node.checkpoint();
        publish(&mut node, events, 60..90);
        let mut node = node.power_cut(1, 1);
        publish(&mut node, events, 90..120);
        let eve = node.attach(EVE, place, credit(7));
        let mut got = Vec::new();
        loop {
            node.run_to_quiet();
            let new = numbers(&mut node, EVE);
            assert!(new.len() <= 7, "{new:?} after {}", got.len());
            if new.is_empty() {
                break;
            }
            settle(&mut node, eve, place, &new, new.len() as u32);
            got.extend(new);
        }
        assert_eq!(got, matching(which, 1..120), "filter {which}");
        publish(&mut node, events, 120..150);
        let new = numbers(&mut node, EVE);
        let expected = matching(which, 120..150);
        assert_eq!(new, expected[..expected.len().min(7)], "filter {which}: what comes");
        node.shard.check();
    }
}

#[test]
fn a_header_is_compared_and_a_client_that_fetches_waits_for_a_match_or_the_end() {
    let mut node = Node::new(1);
    let events = stream(&mut node, Retention::default());
    let filter = Filter::Header { name: "kind".into(), values: vec!["2".into()] };
    let (queue, group) = filtered(&mut node, "some", events, filter);
    publish(&mut node, events, 1..30);
    node.want_checkpoint(events.1);
    node.checkpoint();
    let mut node = node.power_cut(1, 1);
    let get = |node: &mut Node, session| {
        let consumer = ConsumerId { session, number: 9 };
        let ticket = Ticket(1);
        node.ask(session, Request::Get { ticket, group, queue, consumer, no_ack: true, at: None });
        node.run_to_quiet();
        let told = node.told(session);
        assert_eq!(told.len(), 1, "one answer: {told:?}");
        match &told[0] {
            Answer::Got { delivery, .. } => delivery.as_ref().map(|it| it.first_seq),
            other => panic!("no answer to a get: {other:?}"),
        }
    };
    let got: Vec<u64> = (0..9).filter_map(|_| get(&mut node, BOB)).collect();
    assert_eq!(got, (1..28).filter(|number| number % 3 == 2).collect::<Vec<u64>>());
    assert_eq!((get(&mut node, BOB), get(&mut node, BOB)), (Some(29), None));
    publish(&mut node, events, 30..33);
    assert_eq!((get(&mut node, EVE), get(&mut node, BOB)), (Some(32), None));
    node.run_to_quiet();
    let status = node.status((queue, group)).expect("it is there");
    assert_eq!((status.ready, status.counters.settled), (0, 11));
    node.shard.check();
}

#[test]
fn who_fetches_while_the_disk_is_read_is_forgotten_with_its_session_and_answered_when_the_queue_goes()
 {
    let mut node = Node::new(1);
    let events = stream(&mut node, Retention::default());
    let (queue, group) = filtered(&mut node, "some", events, filter(4));
    publish(&mut node, events, 1..30);
    let mut node = node.power_cut(1, 1);
    for session in [BOB, EVE] {
        let consumer = ConsumerId { session, number: 9 };
        let ticket = Ticket(3);
        node.ask(session, Request::Get { ticket, group, queue, consumer, no_ack: false, at: None });
    }
    assert!(node.told(BOB).is_empty() && node.told(EVE).is_empty(), "the disk is read first");
    node.inputs.push(Input::SessionGone { session: EVE });
    node.inputs.push(Input::DropQueue { group, queue, then: None });
    node.run_to_quiet();
    assert!(matches!(node.told(BOB)[..], [Answer::Got { ticket: Ticket(3), delivery: None, .. }]));
    assert!(node.told(EVE).is_empty());
    node.shard.check();
}

/// What two subscriptions with filters get and settle, whatever happens to the node.
fn play(seed: u64) {
    let mut chance = Chance(seed);
    let mut node = Node::new(1);
    let events = stream(&mut node, Retention { max_bytes: Some(20_000), max_age_ms: None });
    let filters = [chance.below(5) as usize, chance.below(5) as usize];
    let sessions = [BOB, EVE];
    let places = [("one", 0), ("two", 1)]
        .map(|(name, which)| filtered(&mut node, name, events, filter(filters[which])));
    let mut readers: [(Option<ConsumerId>, BTreeSet<u64>, u32); 2] = Default::default();
    let mut settled: [BTreeSet<u64>; 2] = Default::default();
    let mut next = 1;
    for _ in 0..90 {
        let which = chance.below(2) as usize;
        let (place, session) = (places[which], sessions[which]);
        match chance.below(10) {
            0..=4 => {
                let count = chance.below(25) + 1;
                publish(&mut node, events, next..next + count);
                next += count;
            }
            5 | 6 => {
                let (consumer, held, _) = &mut readers[which];
                let seqs: Vec<u64> = held.iter().copied().take(3).collect();
                if let Some(consumer) = *consumer {
                    held.retain(|seq| !seqs.contains(seq));
                    settled[which].extend(&seqs);
                    settle(&mut node, consumer, place, &seqs, seqs.len() as u32);
                } else {
                    let count = chance.below(5) as u32 + 1;
                    let consumer = node.attach(session, place, credit(count));
                    readers[which] = (Some(consumer), BTreeSet::new(), count);
                }
            }
            7 => {
                node.want_checkpoint(events.1);
                node.checkpoint();
            }
            8 => {
                node.inputs.push(Input::SessionGone { session });
                node.run_to_quiet();
                node.told(session);
                readers[which] = Default::default();
            }
            _ => {
                node.run_to_quiet();
                node = node.power_cut(seed, 1);
                readers = Default::default();
            }
        }
        node.ms += chance.below(400);
        node.run_to_quiet();
        for (which, session) in sessions.into_iter().enumerate() {
            let (_, held, prefetch) = &mut readers[which];
            for number in numbers(&mut node, session) {
                assert!(is_match(filters[which], number), "seed {seed}: {number} does not match");
                assert!(held.insert(number), "seed {seed}: {number} is with it already");
            }
            assert!(held.len() <= *prefetch as usize, "seed {seed}: {held:?} of {prefetch}");
        }
    }
    for (which, (place, session)) in places.into_iter().zip(sessions).enumerate() {
        node.inputs.push(Input::SessionGone { session });
        node.run_to_quiet();
        node.told(session);
        node.attach(session, place, credit(100_000));
        node.run_to_quiet();
        let rest: BTreeSet<u64> = numbers(&mut node, session).into_iter().collect();
        for number in 1..next {
            let is_due = is_match(filters[which], number) && !settled[which].contains(&number);
            assert!(!is_due || rest.contains(&number), "seed {seed}: {number} never came");
            assert!(is_match(filters[which], number) || !rest.contains(&number), "seed {seed}");
        }
        let status = node.status(place).expect("it is there");
        assert_eq!(status.ready, 0, "seed {seed}: all that does not match is passed over");
    }
    node.shard.check();
}

#[test]
fn what_matches_comes_and_nothing_else_whatever_happens_to_the_node() {
    (1..60).for_each(play);
}
