//! Every promise of queues with arguments broken once, and what looks alike and is legal.

use super::*;
use crate::checker::check;
use crate::history::{Books, Event, History, Stage, What};

fn at(ms: u64, what: What) -> Event {
    Event { t: ms * MS, p: "test".into(), what }
}

fn queue(traits: Traits, dead: Option<&str>) -> Vec<Event> {
    let (q, dead) = ("q".to_owned(), dead.map(str::to_owned));
    vec![
        at(0, What::Queue { q: q.clone(), single: false, dead }),
        at(0, What::Traits { q, traits }),
    ]
}

/// Sent at `ms`, confirmed a millisecond later.
fn sent(ms: u64, m: &str, marks: Marks) -> Vec<Event> {
    let publish = |k, q, h| What::Pub { k, m: m.into(), n: 0, q, h, returned: false };
    vec![
        at(ms, What::Marks { m: m.into(), marks }),
        at(ms, publish(Stage::Inv, vec!["q".into()], Some(7))),
        at(ms + 1, publish(Stage::Ok, vec![], None)),
    ]
}

fn got(ms: u64, q: &str, m: &str) -> Event {
    let (q, m, ep) = (q.into(), m.into(), "c".into());
    at(ms, What::Dlv { q, m, tag: 1, red: false, h: 7, ep })
}

fn died(ms: u64, m: &str, why: Why) -> Event {
    at(ms, What::Died { q: "q".into(), m: m.into(), why })
}

fn drained(q: &str) -> Event {
    at(90_000, What::Drained { q: q.into(), node: 1, left: 0 })
}

fn judged(parts: Vec<Vec<Event>>) -> Report {
    let rules = Rules { confirmed_min: 0, ..Rules::default() };
    check(&History::of(parts.concat()), &rules)
}

fn breaks(promise: Promise, parts: Vec<Vec<Event>>) -> bool {
    !judged(parts).broken(promise).is_empty()
}

fn ttl(ms: u64) -> Traits {
    Traits { ttl_ms: Some(ms), ..Traits::default() }
}

#[test]
fn what_expired_may_be_gone_where_nobody_wants_dead_letters() {
    let parts = |traits, dead: Option<&str>| {
        let mut end = vec![drained("q")];
        end.extend(dead.map(drained));
        vec![queue(traits, dead), sent(10, "a:1", Marks::default()), end]
    };
    assert!(!breaks(Promise::Lost, parts(ttl(100), None)));
    assert!(breaks(Promise::Lost, parts(Traits::default(), None)), "nothing expires there");
    assert!(breaks(Promise::Lost, parts(ttl(100), Some("d"))), "it should be in the other queue");
}

#[test]
fn a_dead_letter_that_is_found_is_not_lost() {
    let parts = vec![
        queue(ttl(100), Some("d")),
        sent(10, "a:1", Marks::default()),
        vec![died(110, "a:1", Why::Expired), got(120, "d", "a:1"), drained("q"), drained("d")],
    ];
    let report = judged(parts);
    assert!(report.violations().all(|(promise, _)| promise == Promise::Stuck), "{report}");
    assert_eq!(report.counts.died, 1);
}

#[test]
fn a_message_that_expires_long_before_its_time_is_killed() {
    let parts = |ms, traits| {
        let marks = Marks { ttl_ms: Some(1_000), ..Marks::default() };
        vec![queue(traits, Some("d")), sent(10, "a:1", marks), vec![died(ms, "a:1", Why::Expired)]]
    };
    assert!(breaks(Promise::Killed, parts(500, Traits::default())));
    assert!(!breaks(Promise::Killed, parts(1_011, Traits::default())));
    assert!(!breaks(Promise::Killed, parts(500, ttl(300))), "the queue's time is shorter");
}

#[test]
fn who_dies_needs_a_reason() {
    let parts = |why, traits| {
        let death = vec![died(500, "a:1", why)];
        vec![queue(traits, Some("d")), sent(10, "a:1", Marks::default()), death]
    };
    let short = Traits { max_length: Some(3), ..Traits::default() };
    assert!(breaks(Promise::Killed, parts(Why::Overflowed, Traits::default())));
    assert!(!breaks(Promise::Killed, parts(Why::Overflowed, short.clone())));
    assert!(breaks(Promise::Killed, parts(Why::Rejected, short.clone())), "nobody refused it");
    assert!(breaks(Promise::Killed, parts(Why::Exhausted, short)));
    let limited = Traits { delivery_limit: Some(1), ..Traits::default() };
    assert!(!breaks(Promise::Killed, parts(Why::Exhausted, limited)));
}

#[test]
fn a_delayed_message_does_not_come_early() {
    let parts = |ms| {
        let marks = Marks { delay_ms: Some(1_000), ..Marks::default() };
        vec![queue(Traits::default(), None), sent(10, "a:1", marks), vec![got(ms, "q", "a:1")]]
    };
    assert!(breaks(Promise::Early, parts(900)));
    assert!(!breaks(Promise::Early, parts(1_010)));
    assert_eq!(judged(parts(1_010)).counts.delays, 1);
    let clock = || at(1, What::Clock { node: 1, by_ms: 5_000_000 });
    let leap = |ms| at(ms, What::Leap { group: 1 });
    let with = |parts: Vec<Vec<Event>>, more: Vec<Event>| [parts, vec![more]].concat();
    let late = |ms| {
        let marks = Marks { delay_ms: Some(9_000), ..Marks::default() };
        vec![queue(Traits::default(), None), sent(10, "a:1", marks), vec![got(ms, "q", "a:1")]]
    };
    assert!(
        breaks(Promise::Early, with(late(900), vec![clock()])),
        "the group goes by its own time"
    );
    assert!(breaks(Promise::Early, with(late(900), vec![leap(2), clock()])), "that was before");
    assert!(!breaks(Promise::Early, with(late(900), vec![clock(), leap(500)])));
    assert!(!breaks(Promise::Early, with(late(7_900), vec![clock()])), "clocks are a little off");
    let fault = What::Fault { kind: "clock".into(), node: 1, t0: 1, t1: 2, sectors: 0 };
    assert!(!breaks(Promise::Early, with(late(900), vec![at(1, fault)])), "nobody knows the time");
}

#[test]
fn a_key_comes_once_within_its_window() {
    let parts = |ms, other_key, window| {
        let marks = |key| Marks { key: Some(key), ..Marks::default() };
        let traits = Traits { dedup_ms: Some(window), ..Traits::default() };
        let gets = vec![got(2_000, "q", "a:1"), got(2_001, "q", "a:2")];
        vec![
            queue(traits, None),
            sent(10, "a:1", marks(1)),
            sent(ms, "a:2", marks(other_key)),
            gets,
        ]
    };
    assert!(breaks(Promise::Duplicate, parts(500, 1, 1_000)));
    assert!(!breaks(Promise::Duplicate, parts(500, 2, 1_000)), "it is another key");
    assert!(!breaks(Promise::Duplicate, parts(1_500, 1, 1_000)), "the window was over");
}

#[test]
fn a_double_may_be_gone_and_a_first_may_not() {
    let parts = |seen: &str| {
        let marks = Marks { key: Some(1), ..Marks::default() };
        let traits = Traits { dedup_ms: Some(5_000), ..Traits::default() };
        let end = vec![got(2_000, "q", seen), drained("q")];
        vec![queue(traits, None), sent(10, "a:1", marks.clone()), sent(500, "a:2", marks), end]
    };
    assert!(!breaks(Promise::Lost, parts("a:1")));
    assert!(breaks(Promise::Lost, parts("a:2")));
}

#[test]
fn higher_priorities_come_first() {
    let parts = |ms, order: [&str; 2]| {
        let marks = |priority| Marks { priority, ..Marks::default() };
        let traits = Traits { max_priority: 5, ..Traits::default() };
        let open = at(ms, What::Open { q: "q".into(), ep: "c".into() });
        let gets = vec![open, got(2_000, "q", order[0]), got(2_001, "q", order[1])];
        vec![queue(traits, None), sent(10, "a:1", marks(1)), sent(20, "a:2", marks(9)), gets]
    };
    assert!(breaks(Promise::Priority, parts(1_000, ["a:1", "a:2"])));
    assert!(!breaks(Promise::Priority, parts(1_000, ["a:2", "a:1"])));
    assert!(!breaks(Promise::Priority, parts(15, ["a:1", "a:2"])), "the other came later");
}

#[test]
fn the_books_hold_what_went_and_all_that_is_gone() {
    let parts = |books, gone: bool| {
        let mut end = vec![at(90_000, What::Books { q: "q".into(), books }), drained("q")];
        if !gone {
            end.push(got(50, "q", "a:1"));
        }
        vec![queue(ttl(100), None), sent(10, "a:1", Marks::default()), end]
    };
    let dropped = Books { enqueued: 1, dropped: 1, ..Books::default() };
    let settled = Books { enqueued: 1, settled: 1, ..Books::default() };
    assert!(!breaks(Promise::Books, parts(dropped, true)));
    assert!(breaks(Promise::Books, parts(settled, true)), "it is gone and nobody dropped it");
    assert!(!breaks(Promise::Books, parts(settled, false)));
    let wrong = Books { enqueued: 2, settled: 1, ..Books::default() };
    assert!(breaks(Promise::Books, parts(wrong, false)));
}

#[test]
fn messages_of_one_key_come_in_order_whoever_gets_them() {
    let keyed = |in_turn| queue(Traits { keyed: true, in_turn, ..Traits::default() }, None);
    let of = |key| Marks { key: Some(key), ..Marks::default() };
    let settle = |ms, m: &str, is_done: bool| {
        let (q, m, ep) = ("q".into(), m.into(), "c".into());
        at(ms, if is_done { What::Ack { q, m, ep } } else { What::Nack { q, m, ep } })
    };
    let judged = |in_turn, first, second, deliveries| {
        let sends = [sent(10, "a:1", first), sent(20, "a:2", second)].concat();
        breaks(Promise::Reordered, vec![keyed(in_turn), sends, deliveries, vec![drained("q")]])
    };
    let reordered = |first, second, deliveries| judged(true, first, second, deliveries);
    let in_turn =
        |is_done| vec![got(30, "q", "a:1"), settle(35, "a:1", is_done), got(40, "q", "a:2")];
    assert!(!reordered(of(1), of(1), in_turn(true)));
    assert!(reordered(of(1), of(1), in_turn(false)), "what comes back holds up its key");
    assert!(!reordered(of(1), of(2), in_turn(false)), "its key alone");
    assert!(!judged(false, of(1), of(1), in_turn(false)), "a consumer may hold several of a key");
    let backwards = || vec![got(30, "q", "a:2"), settle(35, "a:2", true), got(40, "q", "a:1")];
    assert!(reordered(of(1), of(1), backwards()));
    assert!(!reordered(of(1), of(2), backwards()), "other keys do not wait");
    assert!(!reordered(Marks::default(), Marks::default(), backwards()), "nor what has no key");
    // Another consumer may have had it before.
    let mut again = backwards();
    if let What::Dlv { red, .. } = &mut again[2].what {
        *red = true;
    }
    assert!(!reordered(of(1), of(1), again));
}

#[test]
fn a_queue_with_a_rate_gives_out_no_more_than_that() {
    let count = 400;
    let hurries = |gap_ms: u64| {
        let rated = queue(Traits { rate: Some(100), ..Traits::default() }, None);
        let all = 1..=count;
        let sends = all.clone().flat_map(|n| sent(n, &format!("a:{n}"), Marks::default()));
        let comes = all.map(|n| got(1_000 + n * gap_ms, "q", &format!("a:{n}")));
        breaks(Promise::Hurried, vec![rated, sends.collect(), comes.collect()])
    };
    assert!(!hurries(10));
    assert!(!hurries(9), "a second's worth may have been on its way");
    assert!(hurries(5));
}
