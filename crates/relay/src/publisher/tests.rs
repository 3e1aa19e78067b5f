//! Rows of one key, step by step. What holds whatever happens is simulated: `cargo xtask sim relay`.

#![allow(clippy::disallowed_methods, reason = "a test has a clock")]

use client::{Backoff, Run, Verdict};
use service::Jitter;

use super::*;

struct Table(Fields);

impl Rows for Table {
    fn read(&mut self, _: RowSeq) -> Result<&Fields, Fault> {
        Ok(&self.0)
    }

    fn name(&mut self, row: RowSeq) -> Vec<u8> {
        row.0.to_be_bytes().to_vec()
    }
}

struct Bench {
    core: Publisher,
    now: Instant,
    /// Rows of the messages of this connection.
    sent: Vec<u64>,
}

impl Bench {
    /// With `count` rows of one key.
    fn new(pipeline: Pipeline, count: u64) -> Self {
        Self::with(pipeline, count, |_| ())
    }

    fn with(pipeline: Pipeline, count: u64, change: impl FnOnce(&mut Options)) -> Self {
        let second = Duration::from_secs(1);
        let backoff = Backoff { first: second, longest: second };
        let mut options = Options {
            window: 100,
            pipeline,
            order_window: 4,
            attempts: Attempts { max: 3, backoff, jitter: Jitter::Half },
            on_dead: OnDead::Block,
            silence: 30 * second,
            silence_max: 240 * second,
            seed: 1,
        };
        change(&mut options);
        let now = Instant::now();
        let mut core = Publisher::new(&options, now);
        core.connected();
        for seq in (1..=count).map(RowSeq) {
            core.add(Row { seq, key: Some(key()), attempts: 0, bytes: 1 });
        }
        Self { core, now, sent: Vec::new() }
    }

    /// Publishes all that is offered.
    fn publish(&mut self) -> Vec<u64> {
        let before = self.sent.len();
        while let Some(row) = self.core.offer(self.now, &mut Table(Fields::default())) {
            self.sent.push(row.0);
            self.core.published(self.now, PublishSeq(self.sent.len() as u64));
        }
        self.sent[before..].to_vec()
    }

    fn run(&self, row: u64) -> Run {
        let at = self.sent.iter().rposition(|sent| *sent == row).expect("it was published");
        let seq = PublishSeq(at as u64 + 1);
        Run { first: seq, last: seq }
    }

    fn confirm(&mut self, row: u64) -> Vec<Told> {
        let run = self.run(row);
        self.core.verdict(self.now, Verdict::Confirmed(run));
        self.told()
    }

    fn give_back(&mut self, row: u64) -> Vec<Told> {
        let Run { first: seq, .. } = self.run(row);
        let verdict = Verdict::Returned { seq, code: 312, text: "NO_ROUTE".into() };
        self.core.verdict(self.now, verdict);
        self.told()
    }

    fn told(&mut self) -> Vec<Told> {
        let settled = std::iter::from_fn(|| self.core.next_settled());
        settled
            .map(|settled| match settled {
                Settled::Confirmed { row, overtook: false } => Told::Confirmed(row.0),
                Settled::Confirmed { row, overtook: true } => Told::Overtook(row.0),
                Settled::Failed { row, .. } => Told::Failed(row.0),
                Settled::Withheld { row, was_stored: false } => Told::Withheld(row.0),
                Settled::Withheld { row, was_stored: true } => Told::Repeats(row.0),
                Settled::Late { row } => Told::Late(row.0),
            })
            .collect()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Confirmed(u64),
    Overtook(u64),
    Failed(u64),
    Withheld(u64),
    Repeats(u64),
    Late(u64),
}

use Told::{Confirmed, Failed, Late, Overtook, Repeats, Withheld};

fn key() -> Bytes {
    Bytes::from_static(b"a")
}

#[test]
fn without_a_pipeline_each_row_waits_for_the_confirm_of_the_one_before() {
    let mut bench = Bench::new(Pipeline::Wait, 3);
    for row in 1..=3 {
        assert_eq!(bench.publish(), [row]);
        assert_eq!(bench.confirm(row), [Confirmed(row)]);
    }
    assert!(bench.core.is_idle(bench.now));
}

#[test]
fn the_first_row_of_a_key_goes_alone_and_its_followers_together_up_to_the_order_window() {
    let mut bench = Bench::new(Pipeline::Repeat, 8);
    assert_eq!(bench.publish(), [1]);
    bench.confirm(1);
    assert_eq!(bench.publish(), [2, 3, 4, 5]);
    assert_eq!(bench.confirm(3), [], "it is settled behind the one before it");
    assert_eq!(bench.confirm(2), [Confirmed(2), Confirmed(3)]);
    assert_eq!(bench.publish(), [6, 7]);
}

#[test]
fn a_queue_that_is_missing_lets_nothing_overtake() {
    let mut bench = Bench::new(Pipeline::Report, 4);
    assert_eq!(bench.publish(), [1]);
    assert_eq!(bench.give_back(1), [Failed(1), Withheld(2), Withheld(3), Withheld(4)]);
    assert!(bench.publish().is_empty());
}

#[test]
fn what_was_stored_behind_a_failed_row_is_repeated_behind_it_or_reported() {
    for (pipeline, stored) in [(Pipeline::Repeat, Repeats(4)), (Pipeline::Report, Overtook(4))] {
        let mut bench = Bench::new(pipeline, 7);
        bench.publish();
        bench.confirm(1);
        assert_eq!(bench.publish(), [2, 3, 4, 5]);
        assert_eq!(bench.confirm(4), []);
        assert_eq!(bench.give_back(2), [Failed(2)], "those behind it are still in flight");
        assert!(bench.publish().is_empty(), "nothing more of the key is published");
        assert_eq!(bench.give_back(3), [Withheld(3), stored]);
        let stored = match pipeline {
            Pipeline::Report => Overtook(5),
            Pipeline::Wait | Pipeline::Repeat => Repeats(5),
        };
        assert_eq!(bench.confirm(5), [stored, Withheld(6), Withheld(7)]);
    }
}

#[test]
fn nothing_is_sent_behind_a_failed_row_while_one_before_it_has_no_answer() {
    for pipeline in [Pipeline::Repeat, Pipeline::Report] {
        let mut bench = Bench::new(pipeline, 8);
        bench.publish();
        bench.confirm(1);
        assert_eq!(bench.publish(), [2, 3, 4, 5]);
        bench.confirm(2);
        assert_eq!(bench.give_back(4), [], "3 has no answer");
        assert!(bench.publish().is_empty(), "6 was ready, and comes behind 4");
        assert_eq!(bench.confirm(3), [Confirmed(3), Failed(4)]);
        let last = [Withheld(5), Withheld(6), Withheld(7), Withheld(8)];
        assert_eq!(bench.give_back(5), last);
    }
}

#[test]
fn what_is_lost_before_a_failed_row_is_published_again_and_nothing_behind_it() {
    let mut bench = Bench::new(Pipeline::Repeat, 5);
    bench.publish();
    bench.confirm(1);
    assert_eq!(bench.publish(), [2, 3, 4, 5]);
    assert_eq!(bench.give_back(3), []);
    bench.core.lost(bench.now, &mut Table(Fields::default()));
    bench.core.connected();
    bench.sent.clear();
    bench.now += Duration::from_secs(1);
    assert_eq!(bench.publish(), [2]);
    assert_eq!(bench.confirm(2), [Confirmed(2), Failed(3), Withheld(4), Withheld(5)]);
}

#[test]
fn a_row_that_is_dead_at_once_and_skipped_keeps_nothing_back() {
    let mut bench = Bench::with(Pipeline::Repeat, 4, |options| options.on_dead = OnDead::Skip);
    bench.publish();
    bench.confirm(1);
    let offered = |bench: &mut Bench| bench.core.offer(bench.now, &mut Table(Fields::default()));
    assert_eq!(offered(&mut bench), Some(RowSeq(2)));
    bench.sent.push(2);
    bench.core.published(bench.now, PublishSeq(2));
    assert_eq!(offered(&mut bench), Some(RowSeq(3)));
    bench.core.unfit(Fault { reason: Reason::TooLarge, text: "no".into() });
    assert_eq!(bench.publish(), [4]);
    assert_eq!(bench.confirm(4), []);
    assert_eq!(bench.confirm(2), [Confirmed(2), Failed(3), Confirmed(4)]);
}

#[test]
fn a_key_goes_on_once_all_that_failed_is_stored_and_done_and_its_first_row_goes_alone_again() {
    let mut bench = Bench::new(Pipeline::Repeat, 2);
    bench.publish();
    assert_eq!(bench.give_back(1), [Failed(1), Withheld(2)]);
    let add = |bench: &mut Bench, row| {
        let seq = RowSeq(row);
        bench.core.add(Row { seq, key: Some(key()), attempts: 0, bytes: 1 });
        bench.told()
    };
    assert_eq!(add(&mut bench, 3), [Withheld(3)]);
    bench.core.free(&key());
    assert_eq!(bench.core.held_count(), 1, "three of them are not stored yet");
    (0..3).for_each(|_| bench.core.stored(&key()));
    bench.core.free(&key());
    assert_eq!(bench.core.held_count(), 0);
    for row in 4..=6 {
        assert_eq!(add(&mut bench, row), []);
    }
    assert_eq!(bench.publish(), [4]);
}

#[test]
fn what_was_confirmed_behind_a_lost_row_is_published_again_only_where_the_order_is_repeated() {
    for (pipeline, again) in [(Pipeline::Repeat, vec![2, 3, 4]), (Pipeline::Report, vec![2, 4])] {
        let mut bench = Bench::new(pipeline, 4);
        bench.publish();
        bench.confirm(1);
        assert_eq!(bench.publish(), [2, 3, 4]);
        assert_eq!(bench.confirm(3), []);
        bench.core.lost(bench.now, &mut Table(Fields::default()));
        bench.core.connected();
        bench.sent.clear();
        assert!(bench.publish().is_empty(), "the broker gets a rest");
        bench.now += Duration::from_secs(1);
        assert_eq!(bench.publish(), again);
    }
}

#[test]
fn a_lost_connection_of_one_key_with_a_full_window_costs_no_more_than_its_rows() {
    // Each second row is confirmed: looking behind each lost one would take 2^31 steps.
    let count = 1 << 16;
    let mut bench = Bench::with(Pipeline::Repeat, count + 1, |options| {
        (options.window, options.order_window) = (count as usize, count as usize);
    });
    bench.publish();
    bench.confirm(1);
    assert_eq!(bench.publish().len() as u64, count);
    for seq in (1..=count / 2).map(|half| PublishSeq(2 * half + 1)) {
        bench.core.verdict(bench.now, Verdict::Confirmed(Run { first: seq, last: seq }));
    }
    let started = Instant::now();
    bench.core.lost(bench.now, &mut Table(Fields::default()));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    bench.core.connected();
    bench.now += Duration::from_secs(1);
    bench.sent.clear();
    assert_eq!(bench.publish().len() as u64, count);
}

#[test]
fn what_is_stored_behind_a_row_without_an_answer_is_settled_at_a_release_only_where_it_may_stay() {
    for (pipeline, told) in
        [(Pipeline::Repeat, vec![]), (Pipeline::Report, vec![Confirmed(3), Overtook(5)])]
    {
        let mut bench = Bench::new(pipeline, 5);
        bench.publish();
        bench.confirm(1);
        assert_eq!(bench.publish(), [2, 3, 4, 5]);
        assert_eq!(bench.confirm(3), []);
        assert_eq!(bench.give_back(4), []);
        assert_eq!(bench.confirm(5), []);
        bench.core.release();
        assert_eq!(bench.told(), told);
    }
}

#[test]
fn a_released_row_is_told_as_late_and_nothing_else_is() {
    let mut bench = Bench::new(Pipeline::Wait, 2);
    bench.publish();
    bench.core.release();
    assert_eq!(bench.confirm(1), [Late(1)]);
    assert!(bench.publish().is_empty());
}

#[test]
fn a_refusal_beside_confirms_is_the_row_s_own_and_one_of_everything_is_nobody_s() {
    let mut bench = Bench::new(Pipeline::Wait, 1);
    bench.publish();
    let run = bench.run(1);
    for _ in 0..2 {
        bench.core.verdict(bench.now, Verdict::Refused(run));
        assert_eq!(bench.told(), []);
        bench.now += Duration::from_secs(2);
        bench.sent.clear();
        assert_eq!(bench.publish(), [1], "it is published again after a pause");
    }
    bench.core.verdict(bench.now, Verdict::Refused(run));
    let Some(Settled::Failed { fault, is_charged, .. }) = bench.core.next_settled() else {
        panic!("it makes way for others");
    };
    assert_eq!((fault.reason, is_charged), (Reason::Refused, false));
}

#[test]
fn a_row_that_was_published_after_the_last_confirm_is_not_charged_for_the_outage_that_begins() {
    let mut bench = Bench::new(Pipeline::Wait, 2);
    bench.publish();
    assert_eq!(bench.confirm(1), [Confirmed(1)]);
    bench.now += Duration::from_millis(1);
    assert_eq!(bench.publish(), [2]);
    let refused = Verdict::Refused(bench.run(2));
    bench.core.verdict(bench.now, refused);
    assert_eq!(bench.told(), [], "it is tried again: nothing was confirmed since");
}

#[test]
fn a_refused_row_beside_one_that_nobody_answers_does_not_stop_the_others() {
    let mut bench = Bench::new(Pipeline::Wait, 0);
    for seq in (1..=4).map(RowSeq) {
        bench.core.add(Row { seq, key: None, attempts: 0, bytes: 1 });
        if seq.0 == 2 {
            assert_eq!(bench.publish(), [1, 2]);
            let refused = Verdict::Refused(bench.run(1));
            bench.core.verdict(bench.now, refused);
        }
    }
    assert!(bench.publish().is_empty(), "the broker may refuse everything");
    let at = bench.core.resumes_at(bench.now).expect("somebody must look again");
    bench.now = at;
    assert_eq!(bench.publish(), [3], "one row shows whether it does");
    assert!(bench.core.resumes_at(bench.now).is_some_and(|next| next - at > at - bench.now));
    assert_eq!(bench.confirm(3), [Confirmed(3), Failed(1)]);
    assert_eq!(bench.publish(), [4], "and 2 still has no answer");
}

#[test]
fn a_row_of_a_refused_key_does_not_show_whether_the_broker_takes_others() {
    let mut bench = Bench::new(Pipeline::Repeat, 3);
    bench.core.add(Row { seq: RowSeq(9), key: None, attempts: 0, bytes: 1 });
    assert_eq!(bench.publish(), [1, 9]);
    let refused = Verdict::Refused(bench.run(1));
    bench.core.verdict(bench.now, refused);
    bench.core.add(Row { seq: RowSeq(4), key: Some(key()), attempts: 0, bytes: 1 });
    bench.now += Duration::from_secs(5);
    assert!(bench.publish().is_empty());
    assert!(bench.core.resumes_at(bench.now).is_none(), "nothing could go");
}

#[test]
fn no_more_bytes_are_in_flight_than_the_bound_and_one_row() {
    let mut bench = Bench::new(Pipeline::Wait, 0);
    for seq in (1..=100).map(RowSeq) {
        bench.core.add(Row { seq, key: None, attempts: 0, bytes: IN_FLIGHT_BYTES_MAX / 4 });
    }
    assert_eq!(bench.publish(), [1, 2, 3, 4]);
    bench.confirm(1);
    assert_eq!(bench.publish(), [5]);
}
