//! A log, a broker, the failures and relays that die, all in memory and driven by one seed.
//!
//! After every run, once everything is well again: no committed row is missing (B1), nothing else was published (B2),
//! the first deliveries of each key are in commit order (B3), and each row has one message-id (B4).

#![allow(clippy::disallowed_methods, reason = "a test has a clock")]

mod world;

use world::{Options, World};

use super::*;

/// Runs of each kind.
const SEEDS: u64 = 50;

fn run(options: Options, seeds: std::ops::Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let mut world = World::new(options, seed);
        for _ in 0..400 {
            world.turn();
        }
        world.heal();
        world.check().map_err(|text| format!("seed {seed}, {options:?}: {text}"))?;
    }
    Ok(())
}

#[test]
fn no_row_is_lost_whatever_dies_and_whatever_the_broker_says() {
    for order in [Order::None, Order::Key, Order::Strict] {
        for on_dead in [OnDead::Block, OnDead::Skip] {
            let options = Options { order, on_dead, ..Options::default() };
            run(options, 0..SEEDS).expect("all promises hold");
        }
    }
}

#[test]
fn a_window_of_several_rows_of_a_key_loses_nothing_either() {
    let options = Options { order: Order::Key, order_window: 3, ..Options::default() };
    run(options, 0..SEEDS).expect("all promises hold");
}

#[test]
fn the_check_finds_a_relay_that_confirms_what_it_has_only_read() {
    let options = Options { confirms_early: true, ..Options::default() };
    let found = run(options, 0..SEEDS).expect_err("rows are lost when the relay dies");
    assert!(found.contains("was never delivered"), "{found}");
}

#[test]
fn the_check_finds_a_relay_that_lets_a_key_overtake_its_failure() {
    // Orders are not kept, but checked as if they were.
    let options = Options { order: Order::None, checks: Order::Key, ..Options::default() };
    let found = run(options, 0..SEEDS).expect_err("rows overtake one that failed");
    assert!(found.contains("before"), "{found}");
}

#[test]
fn while_the_broker_is_away_nothing_is_due_at_once() {
    let broker = "amqp://localhost".parse().expect("it is a URL");
    let mapping = crate::mapping::Mapping::preset(crate::mapping::Preset::OutboxMessages);
    let config = Config::new("postgres://x", broker, mapping);
    let now = Instant::now();
    let mut stream = Stream::new(&config, &config.mapping.table, Start::default(), now);
    let mut out = Vec::new();
    let later = now + Duration::from_secs(30);
    stream.step(later, Input::Time, &mut out);
    assert!(stream.deadline(later) > later);
    stream.step(later, Input::BrokerReady, &mut out);
    assert_eq!(out, [Output::FetchDue]);
    stream.step(later, Input::Stop, &mut out);
    let end = later + Duration::from_secs(30);
    assert!(stream.deadline(end) > end);
}

#[test]
fn a_message_that_is_never_confirmed_makes_way_for_those_behind_it() {
    let broker = "amqp://localhost".parse().expect("it is a URL");
    let mapping = crate::mapping::Mapping::preset(crate::mapping::Preset::OutboxMessages);
    let config = Config::new("postgres://x", broker, mapping);
    let mut now = Instant::now();
    let mut stream = Stream::new(&config, &config.mapping.table, Start::default(), now);
    let (mut out, mut fields) = (Vec::new(), Fields::default());
    stream.step(now, Input::BrokerReady, &mut out);
    stream.step(now, Input::Begin, &mut out);
    for id in ["a", "b"] {
        let row = crate::pgoutput::encode_row([Some(id.as_bytes()), Some(b"{}"), Some(b"t"), None]);
        stream.step(now, Input::Scanned(row), &mut out);
    }
    stream.step(now, Input::Commit { end: Lsn(9), at: None }, &mut out);
    for seq in 1..=2 {
        assert!(stream.offer(now, &mut fields, &mut out));
        stream.step(now, Input::Published(PublishSeq(seq)), &mut out);
    }
    now += Duration::from_secs(1);
    let second = client::Run { first: PublishSeq(2), last: PublishSeq(2) };
    stream.step(now, Input::Verdict(Verdict::Confirmed(second)), &mut out);
    assert_eq!(stream.confirmed(), Lsn(0));
    out.clear();
    now += Duration::from_secs(40);
    stream.step(now, Input::BrokerSilent, &mut out);
    let stored = out.iter().find_map(|output| match output {
        Output::Store(failure) => Some((failure.row_id.as_str(), failure.attempts)),
        _ => None,
    });
    assert_eq!(stored, Some(("a", 0)));
    stream.step(now, Input::Stored(1), &mut out);
    assert_eq!(stream.confirmed(), Lsn(9));
}
