//! What a worker does, step by step, without a database or a broker.

#![allow(clippy::disallowed_methods, reason = "a test has a clock")]

use super::*;
use crate::config::Config;
use crate::fields::Fields;
use crate::mapping::{Mapping, Preset};

struct Bench {
    worker: Worker,
    now: Instant,
    out: Vec<Output>,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut mapping = Mapping::preset(Preset::OutboxMessages);
        mapping.key = Some("type".into());
        let broker = "amqp://localhost".parse().expect("it is a URL");
        let mut config = Config::new("postgres://x", broker, mapping);
        change(&mut config);
        let now = Instant::now();
        let mut bench = Self { worker: Worker::new(&config, now), now, out: Vec::new() };
        assert_eq!(bench.step(Input::Time), []);
        assert_eq!(bench.step(Input::BrokerReady), [Output::Fetch]);
        bench
    }

    fn step(&mut self, input: Input) -> Vec<Output> {
        self.worker.step(self.now, input, &mut self.out);
        if self.out.is_empty() {
            self.worker.step(self.now, Input::Time, &mut self.out);
        }
        std::mem::take(&mut self.out)
    }

    fn fetched(&mut self, keys: &[&str], is_full: bool) -> Vec<Output> {
        let rows = keys.iter().enumerate().map(|(index, key)| row(index, key)).collect();
        self.step(Input::Fetched { rows, is_full, took: Duration::ZERO })
    }

    /// A new connection, and these rows at the head once more.
    fn again(&mut self, keys: &[&str]) -> Vec<Output> {
        self.step(Input::Ended);
        self.step(Input::BrokerReady);
        self.pass(Duration::from_secs(1));
        self.fetched(keys, false)
    }

    fn confirmed(&mut self, row: usize) -> Vec<Output> {
        self.step(Input::Verdict { row, verdict: Ok(()) })
    }

    fn failed(&mut self, row: usize, reason: Reason) -> Vec<Output> {
        let fault = Fault { reason, text: "no".into() };
        self.step(Input::Verdict { row, verdict: Err(fault) })
    }

    fn pass(&mut self, time: Duration) -> Vec<Output> {
        self.now += time;
        self.step(Input::Time)
    }
}

fn row(index: usize, key: &str) -> OutboxRow {
    let id = index.to_string();
    let fields: Fields =
        [Some(id.as_bytes()), Some(b"{}"), Some(key.as_bytes()), None].into_iter().collect();
    OutboxRow { place: index as u64, fields }
}

use Output::{Commit, Fetch, Publish, Rollback, Stopped};

#[test]
fn a_full_batch_is_followed_by_the_next_at_once() {
    let mut bench = Bench::new(|_| ());
    assert_eq!(bench.fetched(&["a", "b"], true), [Publish(0), Publish(1)]);
    assert_eq!(bench.confirmed(0), []);
    assert_eq!(bench.confirmed(1), [Commit]);
    assert_eq!(bench.step(Input::Ended), [Fetch]);
}

#[test]
fn an_empty_table_is_asked_less_and_less_often_until_somebody_nudges() {
    let mut bench = Bench::new(|_| ());
    let mut waits = Vec::new();
    for _ in 0..8 {
        assert_eq!(bench.fetched(&[], false), [Rollback]);
        assert_eq!(bench.step(Input::Ended), []);
        let wait = bench.worker.deadline().expect("it waits") - bench.now;
        waits.push(wait.as_millis());
        assert_eq!(bench.pass(wait), [Fetch]);
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 500, 500]);
    bench.fetched(&[], false);
    bench.step(Input::Ended);
    assert_eq!(bench.step(Input::Nudge), [Fetch]);
}

#[test]
fn nothing_is_fetched_while_the_broker_is_away_or_blocks() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&[], false);
    bench.step(Input::BrokerLost);
    bench.step(Input::Ended);
    assert_eq!(bench.pass(Duration::from_secs(60)), []);
    assert_eq!(bench.worker.deadline(), None);
    assert_eq!(bench.step(Input::BrokerReady), [Fetch]);
    bench.fetched(&[], false);
    bench.step(Input::Ended);
    bench.step(Input::BrokerBlocked(true));
    assert_eq!(bench.pass(Duration::from_secs(60)), []);
    assert_eq!(bench.step(Input::BrokerBlocked(false)), [Fetch]);
}

#[test]
fn a_lost_broker_gives_the_batch_back_but_what_it_confirmed_is_marked() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a", "b"], false);
    assert_eq!(bench.step(Input::BrokerLost), [Rollback]);
    assert!(bench.worker.batch().faults().is_empty());
    bench.step(Input::Ended);
    bench.step(Input::BrokerReady);
    bench.pass(Duration::from_secs(2));
    bench.fetched(&["a", "b"], false);
    bench.confirmed(0);
    assert_eq!(bench.step(Input::BrokerLost), [Commit]);
    assert_eq!(bench.worker.batch().confirmed().collect::<Vec<_>>(), [0]);
    assert!(bench.worker.batch().faults().is_empty());
}

#[test]
fn a_batch_that_takes_too_long_is_given_back_and_charges_nobody() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a"], false);
    assert_eq!(bench.pass(Duration::from_millis(4999)), []);
    assert_eq!(bench.pass(Duration::from_millis(1)), [Rollback]);
    assert!(bench.worker.batch().faults().is_empty());
    // A verdict that comes now is too late to mean anything.
    assert_eq!(bench.confirmed(0), []);
    assert_eq!(bench.worker.batch().confirmed_count(), 0);
}

#[test]
fn a_row_that_is_never_answered_waits_uncharged_and_the_others_of_its_batch_are_marked() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a", "b"], false);
    bench.confirmed(0);
    assert_eq!(bench.pass(Duration::from_secs(5)), [Commit]);
    let faults = bench.worker.batch().faults();
    assert_eq!((faults.len(), faults[0].0, faults[0].1.reason), (1, 1, Reason::Unanswered));
}

#[test]
fn rows_at_the_head_that_nobody_answers_do_not_stand_in_the_way_for_ever() {
    let mut bench = Bench::new(|_| ());
    for _ in 0..3 {
        bench.fetched(&["a", "b"], true);
        assert_eq!(bench.pass(Duration::from_secs(5)), [Rollback]);
        bench.step(Input::Ended);
        bench.pass(Duration::from_secs(1));
    }
    bench.fetched(&["a", "b"], true);
    assert_eq!(bench.pass(Duration::from_secs(5)), [Commit], "they are parked, and others pass");
    let reasons = bench.worker.batch().faults().iter().map(|(_, fault)| fault.reason);
    assert!(reasons.eq([Reason::Unanswered, Reason::Unanswered]));
}

#[test]
fn a_slow_broker_ends_a_batch_early_and_leaves_nothing_without_a_verdict() {
    let mut bench = Bench::new(|config| config.order = Order::Strict);
    assert_eq!(bench.fetched(&["a", "b", "c"], true), [Publish(0)]);
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.confirmed(0), [Publish(1)]);
    bench.pass(Duration::from_millis(1500));
    assert_eq!(bench.confirmed(1), [Commit], "the third would have no time");
    assert!(bench.worker.batch().faults().is_empty());
    assert_eq!(bench.step(Input::Ended), [Fetch], "the rest follows at once");
}

#[test]
fn a_worker_that_was_frozen_past_its_deadline_publishes_nothing_more() {
    let mut bench = Bench::new(|config| config.order = Order::Key);
    assert_eq!(bench.fetched(&["a", "a"], false), [Publish(0)]);
    bench.now += Duration::from_secs(20);
    assert_eq!(bench.confirmed(0), [Commit]);
    assert_eq!(bench.worker.batch().confirmed().collect::<Vec<_>>(), [0]);
}

#[test]
fn a_broker_that_refuses_everything_is_an_outage_and_one_row_it_refuses_is_not() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a", "b"], false);
    bench.failed(0, Reason::Refused);
    assert_eq!(bench.failed(1, Reason::Refused), [Rollback]);
    assert_eq!(bench.step(Input::Ended), []);
    assert_eq!(bench.pass(Duration::from_millis(50)), [Fetch]);
    bench.fetched(&["a", "b"], false);
    bench.failed(0, Reason::Refused);
    assert_eq!(bench.confirmed(1), [Commit]);
    assert_eq!(bench.worker.batch().faults().len(), 1);
}

#[test]
fn a_broker_that_refuses_everything_charges_nobody_beside_a_row_that_is_dead() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a", "b"], false);
    bench.failed(0, Reason::TooLarge);
    assert_eq!(bench.failed(1, Reason::Refused), [Commit], "the dead one is written down");
    let faults = bench.worker.batch().faults();
    assert_eq!((faults.len(), faults[0].0), (1, 0), "the other is given back");
    assert_eq!(bench.step(Input::Ended), []);
    assert!(bench.worker.deadline().is_some_and(|at| at > bench.now), "the broker gets a rest");
}

#[test]
fn a_row_that_makes_the_broker_close_the_channel_is_found_and_the_others_go_on() {
    let mut bench = Bench::new(|_| ());
    let refused = || Input::BrokerRefused { code: 404, text: "no exchange".into() };
    bench.fetched(&["a", "b", "c"], false);
    assert_eq!(bench.step(refused()), [Rollback]);
    bench.step(Input::Ended);
    bench.step(Input::BrokerReady);
    assert_eq!(bench.pass(Duration::from_secs(1)), [Fetch]);
    assert_eq!(bench.fetched(&["a", "b", "c"], false), [Publish(0)]);
    assert_eq!(bench.confirmed(0), [Publish(1)]);
    assert_eq!(bench.step(refused()), [Commit]);
    let faults = bench.worker.batch().faults();
    assert_eq!((faults.len(), faults[0].0, faults[0].1.reason), (1, 1, Reason::Unroutable));
    assert_eq!(bench.worker.batch().confirmed().collect::<Vec<_>>(), [0]);
    bench.step(Input::Ended);
    bench.step(Input::BrokerReady);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.fetched(&["c"], false), [Publish(0)]);
    assert_eq!(bench.confirmed(0), [Commit]);
    assert!(!bench.worker.is_careful(), "the batch that was refused is behind it");
}

#[test]
fn a_stop_waits_for_what_is_published_and_publishes_no_more() {
    let mut bench = Bench::new(|config| config.order = Order::Key);
    assert_eq!(bench.fetched(&["a", "a", "b"], true), [Publish(0), Publish(2)]);
    assert_eq!(bench.step(Input::Stop), []);
    assert_eq!(bench.confirmed(0), []);
    assert_eq!(bench.confirmed(2), [Commit]);
    assert_eq!(bench.worker.batch().confirmed().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(bench.step(Input::Ended), [Stopped]);
}

#[test]
fn no_more_is_unconfirmed_than_the_window_allows() {
    let mut bench = Bench::new(|config| config.window = 2);
    assert_eq!(bench.fetched(&["a", "b", "c"], false), [Publish(0), Publish(1)]);
    assert_eq!(bench.confirmed(1), [Publish(2)]);
}

#[test]
fn a_lost_database_means_that_nothing_happened() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a"], false);
    assert_eq!(bench.step(Input::DatabaseLost), []);
    assert!(bench.worker.batch().rows().is_empty());
    assert_eq!(bench.confirmed(0), []);
    assert_eq!(bench.pass(Duration::from_millis(50)), [Fetch]);
}

#[test]
fn a_row_whose_connection_is_always_lost_is_found_and_charged_while_the_others_pass() {
    let mut bench = Bench::new(|_| ());
    assert_eq!(bench.fetched(&["a", "b", "c"], false), [Publish(0), Publish(1), Publish(2)]);
    assert_eq!(bench.step(Input::BrokerLost), [Rollback]);
    assert_eq!(bench.again(&["a", "b", "c"]), [Publish(0), Publish(1), Publish(2)]);
    assert_eq!(bench.step(Input::BrokerLost), [Rollback]);
    // One at a time from here on: the first is the poison.
    assert_eq!(bench.again(&["a", "b", "c"]), [Publish(0)]);
    assert_eq!(bench.step(Input::BrokerLost), [Rollback]);
    assert_eq!(bench.again(&["a", "b", "c"]), [Publish(1)], "the others have their turn first");
    assert_eq!(bench.confirmed(1), [Publish(2)]);
    assert_eq!(bench.confirmed(2), [Publish(0)]);
    assert_eq!(bench.step(Input::BrokerLost), [Commit]);
    assert!(bench.worker.batch().faults().is_empty(), "twice may be bad luck");
    // Alone it proves nothing, however often: it steps aside, uncharged.
    for _ in 0..2 {
        assert_eq!(bench.again(&["a"]), [Publish(0)]);
        assert_eq!(bench.step(Input::BrokerLost), [Rollback]);
    }
    assert_eq!(bench.again(&["a"]), [Publish(0)]);
    assert_eq!(bench.step(Input::BrokerLost), [Commit]);
    assert_eq!(bench.worker.batch().faults()[0].1.reason, Reason::Unanswered);
    assert_eq!(bench.again(&["a", "d"]), [Publish(1)]);
    assert_eq!(bench.confirmed(1), [Publish(0)]);
    assert_eq!(bench.step(Input::BrokerLost), [Commit]);
    let faults = bench.worker.batch().faults();
    assert_eq!((faults.len(), faults[0].0, faults[0].1.reason), (1, 0, Reason::Refused));
    assert!(bench.worker.batch().has_proof(), "so it is charged");
}

#[test]
fn an_outage_that_takes_every_connection_charges_nobody_however_long_it_lasts() {
    let mut bench = Bench::new(|config| config.order = Order::Key);
    bench.fetched(&["a", "b", "c"], false);
    for _ in 0..50 {
        bench.step(Input::BrokerLost);
        let faults = bench.worker.batch().faults();
        assert!(faults.iter().all(|(_, fault)| fault.reason == Reason::Unanswered), "uncharged");
        assert!(!bench.again(&["a", "b", "c"]).is_empty());
    }
    // When it is over, all of them go out, none is held back.
    let mut under_way = bench.worker.batch().all_unconfirmed().collect::<Vec<_>>();
    let mut confirmed = 0;
    while let Some(row) = under_way.pop() {
        confirmed += 1;
        for output in bench.confirmed(row) {
            match output {
                Publish(row) => under_way.push(row),
                ending => assert_eq!(ending, Commit),
            }
        }
    }
    assert_eq!(confirmed, 3);
    assert_eq!(bench.again(&["d", "e"]), [Publish(0), Publish(1)], "nobody is suspect any more");
}

#[test]
fn what_was_never_handed_over_is_not_suspected() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a", "b", "c"], false);
    for _ in 0..2 {
        bench.step(Input::Unsent(vec![1, 2]));
        assert_eq!(bench.step(Input::BrokerLost), [Rollback]);
        bench.again(&["a", "b", "c"]);
    }
    let under_way: Vec<usize> = bench.worker.batch().all_unconfirmed().collect();
    assert_eq!(under_way, [1, 2], "the first goes alone, after them");
}

#[test]
fn an_idle_worker_rests_ten_times_as_long_as_its_look_took_even_if_it_is_nudged() {
    let mut bench = Bench::new(|_| ());
    let took = Duration::from_millis(300);
    bench.step(Input::Fetched { rows: Vec::new(), is_full: false, took });
    assert_eq!(bench.step(Input::Ended), []);
    assert_eq!(bench.worker.deadline(), Some(bench.now + 10 * took));
    assert_eq!(bench.step(Input::Nudge), []);
    assert_eq!(bench.worker.deadline(), Some(bench.now + took), "somebody knows of a row");
    assert_eq!(bench.pass(took), [Fetch]);
    let took = Duration::from_secs(3600);
    bench.step(Input::Fetched { rows: Vec::new(), is_full: false, took });
    bench.step(Input::Ended);
    assert_eq!(bench.worker.deadline(), Some(bench.now + REST_MAX));
}
