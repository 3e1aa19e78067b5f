//! A log, a broker, the failures and relays that die, all in memory and driven by one seed.
//!
//! After every run, once everything is well again: no committed row is missing (B1), nothing else was published (B2),
//! the first deliveries of each key are in commit order (B3), and each row has one message-id (B4). And of what was
//! written down as done, nothing came again, whatever the server remembers of the slot.

#![allow(clippy::disallowed_methods, reason = "a test has a clock")]

mod world;

use world::{Options, World};

use client::{PublishSeq, Verdict};

use super::*;
use crate::config::{OnDead, Pipeline};
use crate::fields::Fields;
use crate::publisher::Rows as _;

/// What happens to the broker.
#[derive(Clone, Debug)]
enum Told {
    BrokerReady,
    BrokerLost,
    BrokerSilent,
    BrokerRefused { code: u16, text: String },
    Published(PublishSeq),
    Unfit(Fault),
    Verdict(Verdict),
}

impl Stream {
    fn tell(&mut self, now: Instant, told: Told, out: &mut Vec<Output>) {
        let (publisher, rows) = self.publishing();
        match told {
            Told::BrokerReady => publisher.connected(),
            Told::BrokerLost => publisher.lost(now, rows),
            Told::BrokerSilent => publisher.silent(now),
            Told::BrokerRefused { code, text } => publisher.closed(now, code, &text),
            Told::Published(seq) => publisher.published(now, seq),
            Told::Unfit(fault) => publisher.unfit(fault),
            Told::Verdict(verdict) => publisher.verdict(now, verdict),
        }
        self.step(now, Input::Time, out);
    }

    /// The columns of the next row to publish.
    fn offer(&mut self, now: Instant, fields: &mut Fields, out: &mut Vec<Output>) -> bool {
        let offered = loop {
            let Some(seq) = self.publisher.offer(now, &mut self.rows) else { break false };
            match self.rows.read(seq) {
                Ok(read) => fields.clone_from(read),
                Err(fault) => {
                    self.publisher.unfit(fault);
                    continue;
                }
            }
            break true;
        };
        self.step(now, Input::Time, out);
        offered
    }
}

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
    for pipeline in [Pipeline::Repeat, Pipeline::Report] {
        let options =
            Options { order: Order::Key, pipeline, order_window: 3, ..Options::default() };
        run(options, 0..SEEDS).expect("all promises hold");
    }
}

#[test]
fn the_check_finds_a_relay_that_confirms_what_it_has_only_read() {
    let options = Options { confirms_early: true, ..Options::default() };
    let found = run(options, 0..SEEDS).expect_err("rows are lost when the relay dies");
    assert!(found.contains("was never delivered"), "{found}");
}

#[test]
fn the_check_finds_a_relay_that_trusts_a_record_of_another_server() {
    let options = Options { trusts_any_record: true, ..Options::default() };
    let found = run(options, 0..SEEDS).expect_err("rows are left out after a fail-over");
    assert!(found.contains("was never delivered"), "{found}");
}

#[test]
fn the_check_finds_a_relay_that_goes_by_what_the_server_remembers() {
    let options = Options { trusts_no_record: true, ..Options::default() };
    let found = run(options, 0..SEEDS).expect_err("rows come again after a crash");
    assert!(found.contains("came again"), "{found}");
}

#[test]
fn the_check_finds_a_relay_that_takes_a_transaction_under_way_for_done() {
    let options = Options { skips_too_far: true, ..Options::default() };
    let found = run(options, 0..SEEDS).expect_err("the rest of it is left out");
    assert!(found.contains("was never delivered"), "{found}");
}

#[test]
fn the_check_finds_a_relay_that_lets_a_key_overtake_its_failure() {
    // Orders are not kept, but checked as if they were.
    let options = Options { order: Order::None, checks: Order::Key, ..Options::default() };
    let found = run(options, 0..SEEDS).expect_err("rows overtake one that failed");
    assert!(found.contains("before") || found.contains("passed a dead row"), "{found}");
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
    stream.tell(later, Told::BrokerReady, &mut out);
    assert_eq!(out, [Output::FetchDue]);
    stream.step(later, Input::Stop, &mut out);
    let end = later + Duration::from_secs(30);
    assert!(stream.deadline(end) > end);
}

/// A stream of one connected broker, that has `reached` something before.
fn begun(reached: Reached) -> Stream {
    let broker = "amqp://localhost".parse().expect("it is a URL");
    let mapping = crate::mapping::Mapping::preset(crate::mapping::Preset::OutboxMessages);
    let config = Config::new("postgres://x", broker, mapping);
    let start = Start { reached, ..Start::default() };
    let now = Instant::now();
    let mut stream = Stream::new(&config, &config.mapping.table, start, now);
    stream.tell(now, Told::BrokerReady, &mut Vec::new());
    stream
}

/// The transaction that commits at 90, with rows written at `lsns`; as far as it has come.
fn large(stream: &mut Stream, lsns: &[u64]) {
    let (now, mut out) = (Instant::now(), Vec::new());
    stream.step(now, Input::Begin { commit: Lsn(90), at: None }, &mut out);
    for lsn in lsns {
        let id = lsn.to_string();
        let values = [Some(id.as_bytes()), Some(b"{}"), Some(b"t"), None];
        let data = crate::pgoutput::encode_row(values);
        stream.step(now, Input::Change { lsn: Lsn(*lsn), data }, &mut out);
    }
}

/// Publishes so many rows, of which all are confirmed; gives their ids.
fn confirmed(stream: &mut Stream, count: u64) -> Vec<String> {
    let (now, mut out, mut fields) = (Instant::now(), Vec::new(), Fields::default());
    let mut ids = Vec::new();
    for seq in (1..=count).map(PublishSeq) {
        assert!(stream.offer(now, &mut fields, &mut out), "there is another row");
        ids.push(fields.text(0).expect("a row has its id").to_owned());
        stream.tell(now, Told::Published(seq), &mut out);
        let run = client::Run { first: seq, last: seq };
        stream.tell(now, Told::Verdict(Verdict::Confirmed(run)), &mut out);
    }
    ids
}

#[test]
fn of_a_transaction_that_was_done_in_part_only_the_rest_is_published() {
    let mut first = begun(Reached::default());
    large(&mut first, &[10, 20, 30, 40, 50]);
    assert_eq!(confirmed(&mut first, 3), ["10", "20", "30"]);
    first.step(Instant::now(), Input::Stop, &mut Vec::new());
    let reached = first.reached();
    assert_eq!(reached.partial, Some(Partial { commit: Lsn(90), below: Lsn(40) }));
    let mut second = begun(reached);
    assert_eq!(second.reached(), reached, "nothing has come yet");
    large(&mut second, &[10, 20]);
    assert_eq!(second.reached(), reached, "what comes again takes nothing back");
    let mut third = begun(second.reached());
    large(&mut third, &[10, 20, 30, 40, 50]);
    third.step(Instant::now(), Input::Commit { end: Lsn(91), at: None }, &mut Vec::new());
    assert_eq!(confirmed(&mut third, 2), ["40", "50"]);
    assert_eq!(third.reached(), Reached { confirmed: Lsn(91), ..Reached::default() });
}

#[test]
fn rows_that_were_written_at_one_place_are_done_together_or_not_at_all() {
    let mut first = begun(Reached::default());
    large(&mut first, &[10, 20, 20, 20]);
    confirmed(&mut first, 2);
    let half = first.reached();
    assert_eq!(half.partial, Some(Partial { commit: Lsn(90), below: Lsn(20) }));
    // More of them may follow those that have come.
    confirmed(&mut first, 2);
    assert_eq!(first.reached(), half);
    let mut second = begun(half);
    large(&mut second, &[10, 20, 20, 20, 20]);
    assert_eq!(confirmed(&mut second, 4).len(), 4);
}

#[test]
fn rows_without_an_id_are_told_apart_where_they_were_written_at_one_place() {
    let mut stream = begun(Reached::default());
    let (now, mut out, mut fields) = (Instant::now(), Vec::new(), Fields::default());
    stream.step(now, Input::Begin { commit: Lsn(90), at: None }, &mut out);
    for _ in 0..3 {
        let data = crate::pgoutput::encode_row([None, Some(&b"{}"[..]), Some(b"t"), None]);
        stream.step(now, Input::Change { lsn: Lsn(0x20), data }, &mut out);
    }
    out.clear();
    for _ in 0..3 {
        assert!(stream.offer(now, &mut fields, &mut out));
        let fault = Fault { reason: Reason::Broken, text: "it has no id".into() };
        stream.tell(now, Told::Unfit(fault), &mut out);
    }
    let stored = out.iter().filter_map(|output| match output {
        Output::Store(failure) => Some(failure.row_id.as_str()),
        _ => None,
    });
    let stored: Vec<&str> = stored.collect();
    assert_eq!(stored, ["log:0/20", "log:0/20+1", "log:0/20+2"]);
}

#[test]
fn what_waits_longest_is_told_by_its_commit_and_not_by_the_last_that_was_published() {
    let mut stream = begun(Reached::default());
    let (now, mut out) = (Instant::now(), Vec::new());
    let mut transaction =
        |stream: &mut Stream, place: u64, at: Option<i64>, occurred: Option<&str>| {
            let at = at.map(CommitTime);
            stream.step(now, Input::Begin { commit: Lsn(place), at }, &mut out);
            let occurred = occurred.map(str::as_bytes);
            let values = [Some(&b"1"[..]), Some(b"{}"), Some(b"t"), occurred];
            let data = crate::pgoutput::encode_row(values);
            stream.step(now, Input::Change { lsn: Lsn(place), data }, &mut out);
            stream.step(now, Input::Commit { end: Lsn(place + 1), at }, &mut out);
        };
    assert_eq!(stream.waiting_since(), None);
    transaction(&mut stream, 10, Some(1_000_000), None);
    transaction(&mut stream, 20, Some(9_000_000), None);
    assert_eq!(stream.waiting_since(), Some(CommitTime(1_000_000)), "nothing was published yet");
    assert_eq!(confirmed(&mut stream, 1).len(), 1);
    assert_eq!(stream.waiting_since(), Some(CommitTime(9_000_000)));
    assert_eq!(confirmed(&mut stream, 1).len(), 1);
    assert_eq!(stream.waiting_since(), None);
    // Of the table nobody knows the commit: the row says when it was.
    transaction(&mut stream, 0, None, Some("2000-01-01 00:00:07+00"));
    assert_eq!(stream.waiting_since(), Some(CommitTime(7_000_000)));
}

/// What was stored: names of rows and of their keys.
fn stored(out: &[Output]) -> Vec<(&str, Option<&str>)> {
    let stored = out.iter().filter_map(|output| match output {
        Output::Store(failure) => Some((failure.row_id.as_str(), failure.key.as_deref())),
        _ => None,
    });
    stored.collect()
}

#[test]
fn rows_of_the_table_without_an_id_are_told_apart_from_one_portion_to_the_next() {
    let mut stream = begun(Reached::default());
    let (now, mut out, mut fields) = (Instant::now(), Vec::new(), Fields::default());
    for body in ["{}", "{}", "[]"] {
        stream.step(now, Input::Begin { commit: Lsn(0), at: None }, &mut out);
        let values = [None, Some(body.as_bytes()), Some(&b"t"[..]), None];
        stream.step(now, Input::Scanned(crate::pgoutput::encode_row(values)), &mut out);
        stream.step(now, Input::Commit { end: Lsn(0), at: None }, &mut out);
        assert!(stream.offer(now, &mut fields, &mut out));
        let fault = Fault { reason: Reason::Broken, text: "it has no id".into() };
        stream.tell(now, Told::Unfit(fault), &mut out);
    }
    let names: BTreeSet<&str> = stored(&out).into_iter().map(|(id, _)| id).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn a_key_or_an_id_that_the_database_does_not_take_has_another_name_there_and_keeps_its_order() {
    let long = "x".repeat(5000);
    for name in ["a\0b", long.as_str()] {
        let mut mapping = crate::mapping::Mapping::preset(crate::mapping::Preset::OutboxMessages);
        mapping.key = Some("type".into());
        let broker = "amqp://localhost".parse().expect("it is a URL");
        let mut config = Config::new("postgres://x", broker, mapping);
        config.order = Order::Key;
        let now = Instant::now();
        let mut stream = Stream::new(&config, &config.mapping.table, Start::default(), now);
        let (mut out, mut fields) = (Vec::new(), Fields::default());
        stream.tell(now, Told::BrokerReady, &mut out);
        stream.step(now, Input::Begin { commit: Lsn(90), at: None }, &mut out);
        let arrive = |stream: &mut Stream, id: &str, out: &mut Vec<Output>| {
            let values = [Some(id.as_bytes()), Some(b"{}"), Some(name.as_bytes()), None];
            let data = crate::pgoutput::encode_row(values);
            stream.step(now, Input::Change { lsn: Lsn(10), data }, out);
        };
        let ids = ["1", "2"].map(|end| format!("{name}{end}"));
        arrive(&mut stream, &ids[0], &mut out);
        assert!(stream.offer(now, &mut fields, &mut out));
        let fault = Fault { reason: Reason::Unroutable, text: "no queue".into() };
        stream.tell(now, Told::Unfit(fault), &mut out);
        // It waits for the first.
        arrive(&mut stream, &ids[1], &mut out);
        let [(first, Some(key)), (second, Some(same))] = stored(&out)[..] else {
            panic!("both are stored: {out:?}");
        };
        assert!(first != second && key == same);
        for text in [first, second, key] {
            assert!(!text.contains('\0') && text.len() < 2500, "{text}");
        }
        let key = key.to_owned();
        stream.step(now, Input::Stored(2), &mut out);
        stream.step(now, Input::Free(vec![key]), &mut out);
        arrive(&mut stream, "3", &mut out);
        assert!(stream.offer(now, &mut fields, &mut out), "its key is free again");
    }
}

/// A stream with these rows in its log, all of one transaction. One attempt is all they have.
fn with_rows(ids: &[&str], window: u32) -> Stream {
    let broker = "amqp://localhost".parse().expect("it is a URL");
    let mapping = crate::mapping::Mapping::preset(crate::mapping::Preset::OutboxMessages);
    let mut config = Config::new("postgres://x", broker, mapping);
    config.window = window;
    config.attempts.max = 1;
    let (now, mut out) = (Instant::now(), Vec::new());
    let mut stream = Stream::new(&config, &config.mapping.table, Start::default(), now);
    stream.tell(now, Told::BrokerReady, &mut out);
    stream.step(now, Input::Begin { commit: Lsn(8), at: None }, &mut out);
    for id in ids {
        let row = crate::pgoutput::encode_row([Some(id.as_bytes()), Some(b"{}"), Some(b"t"), None]);
        stream.step(now, Input::Scanned(row), &mut out);
    }
    stream.step(now, Input::Commit { end: Lsn(9), at: None }, &mut out);
    stream
}

/// Publishes all that may be: their numbers, from `first` on, and ids.
fn published(stream: &mut Stream, now: Instant, first: u64) -> Vec<(PublishSeq, String)> {
    let (mut out, mut fields, mut all) = (Vec::new(), Fields::default(), Vec::new());
    while stream.offer(now, &mut fields, &mut out) {
        let seq = PublishSeq(first + all.len() as u64);
        all.push((seq, fields.text(0).expect("a row has its id").to_owned()));
        stream.tell(now, Told::Published(seq), &mut out);
    }
    all
}

fn confirm(stream: &mut Stream, now: Instant, seq: PublishSeq) {
    let run = client::Run { first: seq, last: seq };
    stream.tell(now, Told::Verdict(Verdict::Confirmed(run)), &mut Vec::new());
}

/// A row among the failures whose time has come, `age` after it failed first.
fn due(row_id: &str, age: Duration) -> Due {
    let stored_row = format!(r#"{{"id":"{row_id}","content":"{{}}","type":"t"}}"#);
    Due { row_id: row_id.into(), key: None, attempts: 0, age, stored_row }
}

/// What failed: the row, its reason, its attempts, and whether it is dead.
fn failed(out: &[Output]) -> Vec<(&str, Option<Reason>, u32, bool)> {
    let failed = out.iter().filter_map(|output| match output {
        Output::Store(it) | Output::Retry(it) => {
            Some((it.row_id.as_str(), it.reason, it.attempts, it.next == NextAttempt::Never))
        }
        _ => None,
    });
    failed.collect()
}

const UNANSWERED: Option<Reason> = Some(Reason::Unanswered);

#[test]
fn messages_that_are_never_confirmed_make_way_together_for_those_behind_them() {
    let mut stream = with_rows(&["a", "b", "c", "d"], 3);
    let mut now = Instant::now();
    let sent = published(&mut stream, now, 1);
    assert_eq!(sent.len(), 3);
    now += Duration::from_secs(1);
    confirm(&mut stream, now, PublishSeq(2));
    // This one has not had its time.
    now += Duration::from_secs(25);
    assert_eq!(published(&mut stream, now, 4), [(PublishSeq(4), "d".to_owned())]);
    now += Duration::from_secs(5);
    let mut out = Vec::new();
    stream.tell(now, Told::BrokerSilent, &mut out);
    assert_eq!(failed(&out), [("a", UNANSWERED, 0, false), ("c", UNANSWERED, 0, false)]);
    stream.step(now, Input::Stored(2), &mut out);
    stream.tell(now, Told::BrokerReady, &mut out);
    now += Duration::from_secs(3);
    assert_eq!(published(&mut stream, now, 1), [(PublishSeq(1), "d".to_owned())]);
    confirm(&mut stream, now, PublishSeq(1));
    assert_eq!(stream.confirmed(), Lsn(9));
}

#[test]
fn a_window_that_nobody_answers_makes_way_when_it_was_tried_often_enough() {
    let mut stream = with_rows(&["a", "b", "c"], 2);
    let mut now = Instant::now();
    let mut out = Vec::new();
    for silence in 1..=3 {
        assert!(failed(&out).is_empty(), "it may be the broker, the {silence}th time");
        assert_eq!(published(&mut stream, now, 1).len(), 2);
        now += Duration::from_secs(240);
        stream.tell(now, Told::BrokerSilent, &mut out);
        stream.tell(now, Told::BrokerReady, &mut out);
        now += Duration::from_secs(3);
    }
    assert_eq!(failed(&out), [("a", UNANSWERED, 0, false), ("b", UNANSWERED, 0, false)]);
    assert_eq!(published(&mut stream, now, 1), [(PublishSeq(1), "c".to_owned())]);
}

#[test]
fn what_nobody_answers_is_tried_later_and_later() {
    let mut waits = Vec::new();
    for age in [1, 100, 100_000].map(Duration::from_secs) {
        let mut stream = with_rows(&[], 2);
        let mut now = Instant::now();
        let mut out = Vec::new();
        stream.step(now, Input::Due { rows: vec![due("a", age)], is_full: false }, &mut out);
        for _ in 0..3 {
            assert_eq!(published(&mut stream, now, 1).len(), 1);
            now += Duration::from_secs(300);
            stream.tell(now, Told::BrokerSilent, &mut out);
            stream.tell(now, Told::BrokerReady, &mut out);
            now += Duration::from_secs(3);
        }
        waits.extend(out.iter().find_map(|output| match output {
            Output::Retry(failure) => Some(failure.next),
            _ => None,
        }));
    }
    let NextAttempt::After(first) = waits[0] else { panic!("it never dies of this") };
    assert!(first <= Duration::from_secs(2));
    assert_eq!(waits[1..], [100, 600].map(|wait| NextAttempt::After(Duration::from_secs(wait))));
}

#[test]
fn a_row_at_which_the_connection_is_lost_is_found_and_charged_and_the_others_pass() {
    let ids: Vec<String> = (0..20).map(|id| format!("row-{id:02}")).collect();
    let mut stream = with_rows(&ids.iter().map(String::as_str).collect::<Vec<_>>(), 4);
    let mut now = Instant::now();
    let (mut out, mut passed) = (Vec::new(), Vec::new());
    let mut told = 0;
    for _ in 0..200 {
        now += Duration::from_secs(3);
        for (seq, id) in published(&mut stream, now, 1) {
            if id == "row-05" {
                stream.tell(now, Told::BrokerLost, &mut out);
                stream.tell(now, Told::BrokerReady, &mut out);
                break;
            }
            confirm(&mut stream, now, seq);
            passed.push(id);
        }
        let failed = failed(&out);
        if failed.last().is_some_and(|(_, reason, ..)| *reason != UNANSWERED) {
            break;
        } else if failed.len() > told {
            // It steps aside; some time later it is its turn again, and others pass before it.
            if told == 0 {
                stream.step(now, Input::Stored(1), &mut Vec::new());
            }
            told = failed.len();
            let rows = vec![due("another", Duration::ZERO), due("row-05", Duration::ZERO)];
            stream.step(now, Input::Due { rows, is_full: false }, &mut out);
        }
    }
    let failed = failed(&out);
    assert_eq!(failed.first(), Some(&("row-05", UNANSWERED, 0, false)), "nobody has passed it yet");
    assert_eq!(failed.last(), Some(&("row-05", Some(Reason::Refused), 1, true)), "others have");
    assert!(failed.iter().all(|(id, ..)| *id == "row-05"), "{failed:?}");
    passed.retain(|id| id != "another");
    let others: Vec<&String> = ids.iter().filter(|id| *id != "row-05").collect();
    assert_eq!(passed.iter().collect::<Vec<_>>(), others, "all others passed, in their order");
}

#[test]
fn a_row_that_is_isolated_and_that_nobody_answers_makes_way_at_once() {
    let mut stream = with_rows(&["a", "b"], 2);
    let mut now = Instant::now();
    let mut out = Vec::new();
    for _ in 0..2 {
        assert_eq!(published(&mut stream, now, 1).len(), 2);
        stream.tell(now, Told::BrokerLost, &mut out);
        stream.tell(now, Told::BrokerReady, &mut out);
        now += Duration::from_secs(3);
    }
    assert_eq!(published(&mut stream, now, 1), [(PublishSeq(1), "a".to_owned())]);
    now += Duration::from_secs(31);
    stream.tell(now, Told::BrokerSilent, &mut out);
    assert_eq!(failed(&out), [("a", UNANSWERED, 0, false)]);
    stream.tell(now, Told::BrokerReady, &mut out);
    now += Duration::from_secs(3);
    assert_eq!(published(&mut stream, now, 1), [(PublishSeq(1), "b".to_owned())]);
    // Tried again, it may be under way with others.
    stream.step(now, Input::Stored(1), &mut out);
    confirm(&mut stream, now, PublishSeq(1));
    let rows = vec![due("a", Duration::ZERO), due("c", Duration::ZERO)];
    stream.step(now, Input::Due { rows, is_full: false }, &mut out);
    assert_eq!(published(&mut stream, now, 2).len(), 2);
}

#[test]
fn a_connection_that_is_lost_again_and_again_is_nobody_s_fault_while_nothing_passes() {
    let mut stream = with_rows(&["a", "b", "c"], 4);
    let mut now = Instant::now();
    let mut out = Vec::new();
    for _ in 0..100 {
        now += Duration::from_secs(3);
        published(&mut stream, now, 1);
        stream.tell(now, Told::BrokerLost, &mut out);
        stream.tell(now, Told::BrokerReady, &mut out);
    }
    assert!(failed(&out).iter().all(|(_, _, attempts, is_dead)| *attempts == 0 && !is_dead));
}

#[test]
fn a_message_that_is_never_confirmed_makes_way_for_those_behind_it() {
    let broker = "amqp://localhost".parse().expect("it is a URL");
    let mapping = crate::mapping::Mapping::preset(crate::mapping::Preset::OutboxMessages);
    let config = Config::new("postgres://x", broker, mapping);
    let mut now = Instant::now();
    let mut stream = Stream::new(&config, &config.mapping.table, Start::default(), now);
    let (mut out, mut fields) = (Vec::new(), Fields::default());
    stream.tell(now, Told::BrokerReady, &mut out);
    stream.step(now, Input::Begin { commit: Lsn(8), at: None }, &mut out);
    for id in ["a", "b"] {
        let row = crate::pgoutput::encode_row([Some(id.as_bytes()), Some(b"{}"), Some(b"t"), None]);
        stream.step(now, Input::Scanned(row), &mut out);
    }
    stream.step(now, Input::Commit { end: Lsn(9), at: None }, &mut out);
    for seq in 1..=2 {
        assert!(stream.offer(now, &mut fields, &mut out));
        stream.tell(now, Told::Published(PublishSeq(seq)), &mut out);
    }
    now += Duration::from_secs(1);
    let second = client::Run { first: PublishSeq(2), last: PublishSeq(2) };
    stream.tell(now, Told::Verdict(Verdict::Confirmed(second)), &mut out);
    assert_eq!(stream.confirmed(), Lsn(0));
    out.clear();
    now += Duration::from_secs(40);
    stream.tell(now, Told::BrokerSilent, &mut out);
    let stored = out.iter().find_map(|output| match output {
        Output::Store(failure) => Some((failure.row_id.as_str(), failure.attempts)),
        _ => None,
    });
    assert_eq!(stored, Some(("a", 0)));
    stream.step(now, Input::Stored(1), &mut out);
    assert_eq!(stream.confirmed(), Lsn(9));
}
