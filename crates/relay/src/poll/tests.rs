//! What a worker does, step by step, without a database or a broker.

#![allow(clippy::disallowed_methods, reason = "a test has a clock")]

use client::{PublishSeq, Run, Verdict};

use super::*;
use crate::attempts::Fault;
use crate::mapping::{Mapping, Preset};

/// What a worker does, with what it publishes: rows by their place in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Publish(usize),
    Fetch,
    Commit,
    Rollback,
    Stopped,
}

struct Bench {
    worker: Worker,
    now: Instant,
    /// Messages of the connection, by their rows.
    sent: Vec<RowSeq>,
    /// No message can be made of these rows of the batch.
    broken: Vec<usize>,
    /// Of the first row of a batch.
    first_id: usize,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut mapping = Mapping::preset(Preset::OutboxMessages);
        mapping.key = Some("type".into());
        let broker = "amqp://localhost".parse().expect("it is a URL");
        let mut config = Config::new("postgres://x", broker, mapping);
        change(&mut config);
        let now = Instant::now();
        let worker = Worker::new(&config, 1, now);
        let mut bench = Self { worker, now, sent: Vec::new(), broken: Vec::new(), first_id: 0 };
        assert_eq!(bench.step(Input::Time), []);
        assert_eq!(bench.connected(), [Fetch]);
        bench
    }

    fn step(&mut self, input: Input) -> Vec<Did> {
        let mut did = Vec::new();
        self.step_once(input, &mut did);
        if did.is_empty() {
            self.step_once(Input::Time, &mut did);
        }
        self.publish(&mut did);
        did
    }

    fn step_once(&mut self, input: Input, did: &mut Vec<Did>) {
        let mut out = Vec::new();
        self.worker.step(self.now, input, &mut out);
        did.extend(out.into_iter().map(|output| match output {
            Output::Fetch => Fetch,
            Output::Commit => Commit,
            Output::Rollback => Rollback,
            Output::Stopped => Stopped,
        }));
    }

    fn publish(&mut self, did: &mut Vec<Did>) {
        let now = self.now;
        let (publisher, rows) = self.worker.publishing();
        while let Some(seq) = publisher.offer(now, rows) {
            let row = rows.place(seq).expect("it is of the batch");
            if self.broken.contains(&row) {
                publisher.unfit(Fault { reason: Reason::TooLarge, text: "no".into() });
                continue;
            }
            self.sent.push(seq);
            publisher.published(now, PublishSeq(self.sent.len() as u64));
            did.push(Publish(row));
        }
        self.step_once(Input::Time, did);
    }

    fn connected(&mut self) -> Vec<Did> {
        self.sent.clear();
        self.worker.publishing().0.connected();
        self.step(Input::Time)
    }

    fn lost(&mut self) -> Vec<Did> {
        let now = self.now;
        let (publisher, rows) = self.worker.publishing();
        publisher.lost(now, rows);
        self.step(Input::Time)
    }

    fn refused(&mut self) -> Vec<Did> {
        self.worker.publishing().0.closed(self.now, 404, "no exchange");
        self.step(Input::Time)
    }

    fn fetched(&mut self, keys: &[&str], is_full: bool) -> Vec<Did> {
        let ids = self.first_id..;
        let rows = ids.zip(keys).map(|(id, key)| row(id, key)).collect();
        self.looked(rows, is_full, Duration::ZERO)
    }

    fn looked(&mut self, rows: Vec<OutboxRow>, is_full: bool, took: Duration) -> Vec<Did> {
        self.step(Input::Fetched { rows, is_full, took, confirmed: Vec::new(), has_marked: true })
    }

    fn ended(&mut self) -> Vec<Did> {
        self.step(Input::Ended { is_parked: true })
    }

    /// A new connection, and these rows at the head once more.
    fn again(&mut self, keys: &[&str]) -> Vec<Did> {
        self.ended();
        self.connected();
        self.pass(Duration::from_secs(1));
        self.fetched(keys, false)
    }

    fn run_of(&self, row: usize) -> Run {
        let seq = self.worker.batch().seq(row);
        let at = self.sent.iter().rposition(|sent| *sent == seq).expect("it was published");
        let seq = PublishSeq(at as u64 + 1);
        Run { first: seq, last: seq }
    }

    fn confirmed(&mut self, row: usize) -> Vec<Did> {
        let run = self.run_of(row);
        self.answered(Verdict::Confirmed(run))
    }

    fn nacked(&mut self, row: usize) -> Vec<Did> {
        let run = self.run_of(row);
        self.answered(Verdict::Refused(run))
    }

    fn answered(&mut self, verdict: Verdict) -> Vec<Did> {
        self.worker.publishing().0.verdict(self.now, verdict);
        self.step(Input::Time)
    }

    fn pass(&mut self, time: Duration) -> Vec<Did> {
        self.now += time;
        self.step(Input::Time)
    }

    fn reasons(&self) -> Vec<(usize, Reason)> {
        let failed = self.worker.batch().failed().iter();
        failed.map(|failed| (failed.row, failed.fault.reason)).collect()
    }
}

fn row(index: usize, key: &str) -> OutboxRow {
    let id = index.to_string();
    let fields: Fields =
        [Some(id.as_bytes()), Some(b"{}"), Some(key.as_bytes()), None].into_iter().collect();
    OutboxRow { place: index as u64, fields }
}

use Did::{Commit, Fetch, Publish, Rollback, Stopped};

#[test]
fn a_full_batch_is_followed_by_the_next_at_once() {
    let mut bench = Bench::new(|_| ());
    assert_eq!(bench.fetched(&["a", "b"], true), [Publish(0), Publish(1)]);
    assert_eq!(bench.confirmed(0), []);
    assert_eq!(bench.confirmed(1), [Commit]);
    assert_eq!(bench.ended(), [Fetch]);
}

#[test]
fn an_empty_table_is_asked_less_and_less_often_until_somebody_nudges() {
    let mut bench = Bench::new(|_| ());
    let mut waits = Vec::new();
    for _ in 0..8 {
        assert_eq!(bench.fetched(&[], false), [Rollback]);
        assert_eq!(bench.ended(), []);
        let wait = bench.worker.deadline().expect("it waits") - bench.now;
        waits.push(wait.as_millis());
        assert_eq!(bench.pass(wait), [Fetch]);
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 500, 500]);
    bench.fetched(&[], false);
    bench.ended();
    assert_eq!(bench.step(Input::Nudge), [Fetch]);
}

#[test]
fn nothing_is_fetched_while_the_broker_is_away_or_blocks() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&[], false);
    bench.lost();
    bench.ended();
    assert_eq!(bench.pass(Duration::from_secs(60)), []);
    assert_eq!(bench.worker.deadline(), None);
    assert_eq!(bench.connected(), [Fetch]);
    bench.fetched(&[], false);
    bench.ended();
    bench.step(Input::BrokerBlocked(true));
    assert_eq!(bench.pass(Duration::from_secs(60)), []);
    assert_eq!(bench.step(Input::BrokerBlocked(false)), [Fetch]);
}

#[test]
fn a_lost_broker_gives_the_batch_back_but_what_it_confirmed_is_marked() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a", "b"], false);
    assert_eq!(bench.lost(), [Rollback]);
    assert!(bench.worker.batch().failed().is_empty());
    bench.ended();
    bench.connected();
    bench.pass(Duration::from_secs(2));
    bench.fetched(&["a", "b"], false);
    bench.confirmed(0);
    assert_eq!(bench.lost(), [Commit]);
    assert_eq!(bench.worker.batch().confirmed(), [0]);
    assert!(bench.worker.batch().failed().is_empty());
}

#[test]
fn a_batch_that_takes_too_long_is_given_back_and_charges_nobody() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a"], false);
    assert_eq!(bench.pass(Duration::from_millis(4999)), []);
    assert_eq!(bench.pass(Duration::from_millis(1)), [Rollback]);
    assert!(bench.worker.batch().failed().is_empty());
    // A verdict that comes now is too late to mean anything.
    assert_eq!(bench.confirmed(0), []);
    assert!(bench.worker.batch().confirmed().is_empty());
    assert_eq!(
        bench.worker.take_late(),
        [(0, "0".to_owned())],
        "but it need not be published again"
    );
}

#[test]
fn a_row_that_is_never_answered_waits_uncharged_and_the_others_of_its_batch_are_marked() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a", "b"], false);
    bench.confirmed(0);
    assert_eq!(bench.pass(Duration::from_secs(5)), [Commit]);
    assert_eq!(bench.reasons(), [(1, Reason::Unanswered)]);
}

#[test]
fn rows_at_the_head_that_nobody_answers_do_not_stand_in_the_way_for_ever() {
    let mut bench = Bench::new(|_| ());
    for _ in 0..2 {
        bench.fetched(&["a", "b"], true);
        assert_eq!(bench.pass(Duration::from_secs(5)), [Rollback]);
        bench.ended();
        // Nobody knows what became of them: they are not fetched again on this connection.
        assert_eq!(bench.pass(Duration::from_secs(1)), []);
        bench.lost();
        assert_eq!(bench.connected(), []);
        assert_eq!(bench.pass(Duration::from_secs(1)), [Fetch]);
    }
    bench.fetched(&["a", "b"], true);
    assert_eq!(bench.pass(Duration::from_secs(5)), [Commit], "they are parked, and others pass");
    assert_eq!(bench.reasons(), [(0, Reason::Unanswered), (1, Reason::Unanswered)]);
}

#[test]
fn a_slow_broker_ends_a_batch_early_and_leaves_nothing_without_a_verdict() {
    let mut bench = Bench::new(|config| config.order = Order::Strict);
    assert_eq!(bench.fetched(&["a", "b", "c"], true), [Publish(0)]);
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.confirmed(0), [Publish(1)]);
    bench.pass(Duration::from_millis(1500));
    assert_eq!(bench.confirmed(1), [Commit], "the third would have no time");
    assert!(bench.worker.batch().failed().is_empty());
    assert_eq!(bench.ended(), [Fetch], "the rest follows at once");
}

#[test]
fn a_worker_that_was_frozen_past_its_deadline_publishes_nothing_more() {
    let mut bench = Bench::new(|config| config.order = Order::Key);
    assert_eq!(bench.fetched(&["a", "a"], false), [Publish(0)]);
    bench.now += Duration::from_secs(20);
    assert_eq!(bench.confirmed(0), [Commit]);
    assert_eq!(bench.worker.batch().confirmed(), [0]);
}

#[test]
fn a_broker_that_refuses_everything_is_an_outage_and_one_row_it_refuses_is_not() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a", "b"], false);
    bench.nacked(0);
    assert_eq!(bench.nacked(1), [Rollback]);
    assert_eq!(bench.ended(), []);
    assert_eq!(bench.pass(Duration::from_millis(50)), [Fetch]);
    bench.fetched(&["a", "b"], false);
    bench.nacked(0);
    assert_eq!(bench.confirmed(1), [Commit]);
    assert_eq!(bench.reasons(), [(0, Reason::Refused)]);
    assert!(bench.worker.batch().failed()[0].is_charged);
}

#[test]
fn a_broker_that_refuses_everything_charges_nobody_beside_a_row_that_is_dead() {
    let mut bench = Bench::new(|_| ());
    bench.broken = vec![0];
    assert_eq!(bench.fetched(&["a", "b"], false), [Publish(1)]);
    assert_eq!(bench.nacked(1), [Commit], "the dead one is written down");
    assert_eq!(bench.reasons(), [(0, Reason::TooLarge)], "the other is given back");
    assert_eq!(bench.ended(), []);
    assert!(bench.worker.deadline().is_some_and(|at| at > bench.now), "the broker gets a rest");
}

#[test]
fn a_row_that_makes_the_broker_close_the_channel_is_found_and_the_others_go_on() {
    let mut bench = Bench::new(|_| ());
    bench.fetched(&["a", "b", "c"], false);
    assert_eq!(bench.refused(), [Rollback]);
    bench.ended();
    bench.connected();
    assert_eq!(bench.pass(Duration::from_secs(1)), [Fetch]);
    assert_eq!(bench.fetched(&["a", "b", "c"], false), [Publish(0)]);
    assert_eq!(bench.confirmed(0), [Publish(1)]);
    assert_eq!(bench.refused(), [Commit]);
    assert_eq!(bench.reasons(), [(1, Reason::Unroutable)]);
    assert_eq!(bench.worker.batch().confirmed(), [0]);
    bench.ended();
    bench.connected();
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.fetched(&["c"], false), [Publish(0)]);
    assert_eq!(bench.confirmed(0), [Commit]);
    assert!(!bench.worker.publishing().0.is_isolating(), "the batch that was refused is behind it");
}

#[test]
fn a_stop_waits_for_what_is_published_and_publishes_no_more() {
    let mut bench = Bench::new(|config| config.order = Order::Key);
    assert_eq!(bench.fetched(&["a", "a", "b"], true), [Publish(0), Publish(2)]);
    assert_eq!(bench.step(Input::Stop), []);
    assert_eq!(bench.confirmed(0), []);
    assert_eq!(bench.confirmed(2), [Commit]);
    assert_eq!(bench.worker.batch().confirmed(), [0, 2]);
    assert_eq!(bench.ended(), [Stopped]);
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
    assert_eq!(bench.lost(), [Rollback]);
    assert_eq!(bench.again(&["a", "b", "c"]), [Publish(0), Publish(1), Publish(2)]);
    assert_eq!(bench.lost(), [Rollback]);
    // One at a time from here on: the first is the poison.
    for _ in 0..2 {
        assert_eq!(bench.again(&["a", "b", "c"]), [Publish(0)]);
        assert_eq!(bench.lost(), [Rollback], "it may be bad luck");
    }
    assert_eq!(bench.again(&["a", "b", "c"]), [Publish(0)]);
    assert_eq!(bench.lost(), [Commit], "it steps aside, and no attempt is counted");
    assert_eq!(bench.reasons(), [(0, Reason::Unanswered)]);
    assert!(!bench.worker.batch().failed()[0].is_charged);
    bench.first_id = 1;
    assert_eq!(bench.again(&["b", "c"]), [Publish(0)]);
    assert_eq!(bench.confirmed(0), [Publish(1)]);
    assert_eq!(bench.confirmed(1), [Commit]);
    bench.first_id = 0;
    assert_eq!(bench.again(&["a", "b"]), [Publish(0)], "it goes alone from now on");
    assert_eq!(bench.lost(), [Commit]);
    assert_eq!(bench.reasons(), [(0, Reason::Refused)], "others have passed where it did not");
    assert!(bench.worker.batch().failed()[0].is_charged);
}

#[test]
fn an_outage_that_takes_every_connection_charges_nobody_however_long_it_lasts() {
    let mut bench = Bench::new(|config| config.order = Order::Key);
    bench.fetched(&["a", "b", "c"], false);
    for _ in 0..50 {
        bench.lost();
        let failed = bench.worker.batch().failed();
        assert!(failed.iter().all(|failed| !failed.is_charged), "{failed:?}");
        assert!(!bench.again(&["a", "b", "c"]).is_empty());
    }
    // When it is over, all of them go out, none is held back.
    let mut under_way = vec![0];
    let mut confirmed = 0;
    while let Some(row) = under_way.pop() {
        confirmed += 1;
        for did in bench.confirmed(row) {
            match did {
                Publish(row) => under_way.push(row),
                ending => assert_eq!(ending, Commit),
            }
        }
    }
    assert_eq!(confirmed, 3);
    assert_eq!(bench.again(&["d", "e"]), [Publish(0), Publish(1)]);
}

#[test]
fn an_idle_worker_rests_ten_times_as_long_as_its_look_took_even_if_it_is_nudged() {
    let mut bench = Bench::new(|_| ());
    let took = Duration::from_millis(300);
    bench.looked(Vec::new(), false, took);
    assert_eq!(bench.ended(), []);
    assert_eq!(bench.worker.deadline(), Some(bench.now + 10 * took));
    assert_eq!(bench.step(Input::Nudge), []);
    assert_eq!(bench.worker.deadline(), Some(bench.now + took), "somebody knows of a row");
    assert_eq!(bench.pass(took), [Fetch]);
    let took = Duration::from_secs(3600);
    bench.looked(Vec::new(), false, took);
    bench.ended();
    assert_eq!(bench.worker.deadline(), Some(bench.now + REST_MAX));
}

#[test]
fn a_row_that_was_stored_behind_a_failed_one_is_told_and_given_back_or_marked() {
    for (pipeline, confirmed) in [(Pipeline::Repeat, vec![0]), (Pipeline::Report, vec![0, 2])] {
        let mut bench = Bench::new(|config| {
            (config.order, config.pipeline, config.order_window) = (Order::Key, pipeline, 8);
        });
        assert_eq!(bench.fetched(&["a", "a", "a", "a"], false), [Publish(0)]);
        assert_eq!(bench.confirmed(0), [Publish(1), Publish(2), Publish(3)]);
        assert_eq!(bench.confirmed(2), []);
        assert_eq!(bench.nacked(1), []);
        assert_eq!(bench.nacked(3), [Commit]);
        assert_eq!(bench.worker.batch().confirmed(), confirmed);
        assert_eq!(bench.reasons(), [(1, Reason::Refused)], "the last waits behind it, uncounted");
        assert_eq!(bench.worker.take_overtaken(), Some((1, "a".to_owned())));
    }
}

/// What a worker does with rows of one key, of which these are known to be with the broker already.
fn with_late(pipeline: Pipeline, rows: &[&str], confirmed: Vec<usize>) -> (Bench, Vec<Did>) {
    let mut bench = Bench::new(|config| {
        (config.order, config.pipeline, config.order_window) = (Order::Key, pipeline, 8);
    });
    let rows = rows.iter().enumerate().map(|(id, key)| row(id, key)).collect();
    let took = Duration::ZERO;
    let input = Input::Fetched { rows, is_full: false, took, confirmed, has_marked: true };
    let did = bench.step(input);
    (bench, did)
}

#[test]
fn a_row_that_was_taken_late_is_published_again_behind_one_of_its_key_or_told() {
    let keys = ["a", "b", "a", "b"];
    let (mut bench, did) = with_late(Pipeline::Repeat, &keys, vec![1, 2]);
    assert_eq!(did, [Publish(0), Publish(1)]);
    assert!(bench.worker.batch().confirmed().is_empty());
    assert_eq!(bench.confirmed(0), [Publish(2)], "behind 0, as its key has it");

    let (mut bench, did) = with_late(Pipeline::Report, &keys, vec![1, 2]);
    assert_eq!(did, [Publish(0), Publish(3)]);
    assert_eq!(bench.worker.batch().confirmed(), [1, 2]);
    assert_eq!(bench.worker.take_overtaken(), Some((1, "a".to_owned())));

    let (mut bench, did) = with_late(Pipeline::Wait, &keys, vec![1, 2]);
    assert_eq!(did, [Publish(0), Publish(3)]);
    assert_eq!(bench.worker.batch().confirmed(), [1, 2]);
    assert_eq!(bench.worker.take_overtaken(), None, "row 0 was committed after it");
}

#[test]
fn a_hot_key_whose_queue_is_silent_does_not_keep_a_worker_from_other_keys() {
    for (on_dead, pipeline) in [(OnDead::Block, Pipeline::Report), (OnDead::Skip, Pipeline::Repeat)]
    {
        let mut bench = Bench::new(|config| {
            (config.order, config.pipeline, config.order_window) = (Order::Key, pipeline, 8);
            config.on_dead = on_dead;
        });
        assert_eq!(bench.fetched(&["a", "b", "a", "a"], false), [Publish(0), Publish(1)]);
        bench.confirmed(1);
        assert_eq!(bench.confirmed(0), [Publish(2), Publish(3)]);
        assert_eq!(bench.pass(Duration::from_secs(5)), [Commit]);
        assert_eq!(bench.reasons(), [(2, Reason::Unanswered)], "3 waits behind it");
        assert_eq!(bench.ended(), [Fetch], "other keys need not wait for the answers");
    }
}

#[test]
fn a_lost_connection_leaves_rows_that_are_stored_behind_a_lost_one_marked_or_has_them_repeated() {
    for (pipeline, confirmed) in [(Pipeline::Repeat, vec![0]), (Pipeline::Report, vec![0, 2])] {
        let mut bench = Bench::new(|config| {
            (config.order, config.pipeline, config.order_window) = (Order::Key, pipeline, 8);
        });
        assert_eq!(bench.fetched(&["a", "a", "a"], false), [Publish(0)]);
        assert_eq!(bench.confirmed(0), [Publish(1), Publish(2)]);
        assert_eq!(bench.confirmed(2), []);
        assert_eq!(bench.lost(), [Commit]);
        assert_eq!(bench.worker.batch().confirmed(), confirmed);
    }
}
