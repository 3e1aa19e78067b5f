//! Filters of subscriptions: nobody is given what does not match, and it is nobody's business any more.

use machine::{Filter, Retention, Sifted, StreamOffset, Subscription};

use super::*;

const S: QueueId = QueueId(2);

/// A stream, and a subscription that wants what `wants` says of a number.
struct Filtered {
    group: Group,
    wants: fn(u64) -> bool,
    /// How many messages are looked at together, at most.
    step: u64,
    given: Vec<(u64, Range<u64>, bool)>,
}

fn even(seq: u64) -> bool {
    seq.is_multiple_of(2)
}

fn settings(skips: bool, seeks: u32, start: StreamOffset, features: Features) -> QueueSettings {
    let subscription = Some(Subscription { stream: Q, start, skips, seeks });
    // What it says is asked outside of the machine.
    let filter = Some(Box::new(Filter::Keys(vec!["even.#".into()])));
    let features = Some(Box::new(Features { subscription, filter, ..features }));
    QueueSettings { is_durable: true, features, ..Default::default() }
}

impl Filtered {
    fn new(retention: Retention, skips: bool, features: Features, wants: fn(u64) -> bool) -> Self {
        let mut group = Group::new(Features { stream: Some(retention), ..Features::default() });
        let mut batch = Batch::new();
        batch.create_queue(S, &settings(skips, 0, StreamOffset::First, features));
        batch.keep_marks(S);
        group.apply(batch);
        group.log();
        Self { group, wants, step: 7, given: Vec::new() }
    }

    /// Asks the filter as long as anybody wants that, and logs what it passes over.
    fn sift(&mut self) {
        while let Some((level, span)) = self.group.leader.sift_next() {
            let span = span.start..span.end.min(span.start + self.step);
            let unwanted = span.clone().filter(|seq| !(self.wants)(*seq));
            let unwanted: Ranges = unwanted.map(|seq| seq..seq + 1).collect();
            let sifted = Sifted { span, unwanted, keys: Vec::new() };
            self.group.leader.sifted(level, &sifted, &mut self.group.effects);
        }
        self.group.log();
        for effect in self.group.effects.drain(..) {
            if let Effect::Deliver { consumer, first_seq, count, redelivered, .. } = effect {
                let run = range_of(first_seq, count);
                assert!(run.clone().all(self.wants), "{run:?} does not match");
                self.given.push((consumer.session.0, run, redelivered));
            }
        }
        self.group.leader.check();
    }

    fn publish(&mut self, count: u64) {
        self.group.publish(count);
        self.sift();
    }

    fn attach(&mut self, number: u64, spec: ConsumerSpec) {
        let group = &mut self.group;
        group.leader.attach(S, who(number), spec, &mut group.effects).expect("attached");
        self.sift();
    }

    fn settle(&mut self, number: u64, seqs: &[u64], outcome: Outcome) {
        let ranges: Ranges = seqs.iter().map(|seq| *seq..seq + 1).collect();
        let (group, what) = (&mut self.group, (outcome, seqs.len() as u32));
        group.leader.settle_for_credit(S, who(number), &ranges, what, &mut group.effects);
        group.log();
        self.sift();
    }

    fn numbers(&mut self) -> Vec<u64> {
        self.given.drain(..).flat_map(|(_, run, _)| run).collect()
    }

    fn counters(&self) -> machine::Counters {
        self.group.leader.status(S).expect("it is there").counters
    }
}

#[test]
fn a_consumer_is_given_what_matches_and_has_credit_for_that_alone() {
    let mut of = Filtered::new(Retention::default(), false, Features::default(), even);
    of.publish(20);
    assert_eq!(of.counters().passed_over, 0, "nobody asks");
    of.attach(1, credit(3));
    assert_eq!(of.numbers(), [2, 4, 6]);
    of.settle(1, &[2, 4], Outcome::Done);
    assert_eq!(of.numbers(), [8, 10]);
    of.settle(1, &[6, 8, 10], Outcome::Done);
    of.settle(1, &[12, 14, 16], Outcome::Done);
    assert_eq!(of.numbers(), [12, 14, 16, 18, 20]);
    of.publish(5);
    assert_eq!(of.numbers(), [22], "there was credit for one");
    let counters = of.counters();
    assert_eq!((counters.settled, counters.dead_lettered, counters.dropped), (8, 0, 0));
    assert!((12..=13).contains(&counters.passed_over), "{counters:?}");
    let balance = of.group.leader.balance(S).expect("it has books");
    assert!(balance.is_right() && balance.passed_over == counters.passed_over, "{balance:?}");
}

#[test]
fn what_settles_as_it_goes_out_and_who_fetches_get_only_what_matches() {
    let mut of = Filtered::new(Retention::default(), false, Features::default(), even);
    of.publish(9);
    let effects = &mut Vec::new();
    assert_eq!(of.group.leader.get(S, who(5), false, effects), GetReply::NotYet);
    assert!(of.group.leader.is_sifting(S));
    of.sift();
    assert!(!of.group.leader.is_sifting(S), "something matches");
    assert!(matches!(of.group.leader.get(S, who(5), false, effects), GetReply::Delivered { .. }));
    assert!(matches!(effects.last(), Some(Effect::Deliver { first_seq: 2, count: 1, .. })));
    of.attach(1, ConsumerSpec { no_ack: true, ..credit(100) });
    assert_eq!(of.numbers(), [4, 6, 8]);
    assert_eq!(of.group.leader.get(S, who(6), false, effects), GetReply::Empty);
    of.settle(5, &[2], Outcome::Done);
    let counters = of.counters();
    assert_eq!((counters.settled, counters.passed_over), (4, 5));
}

#[test]
fn what_was_passed_over_is_settled_for_the_next_leader_and_no_return_counts_it() {
    let features = Features {
        counts_returns: true,
        delivery_limit: Some(1),
        dead_letters: true,
        ..Features::default()
    };
    let mut of = Filtered::new(Retention::default(), false, features, even);
    of.publish(10);
    for session in 1..4 {
        of.attach(session, credit(100));
        of.group.leader.end_session(SessionId(session), &mut of.group.effects);
        of.sift();
    }
    let left = of.group.leader.status(S).expect("it is there").leaving;
    assert_eq!(left, 5, "those that match came back too often");
    assert_eq!(of.counters().passed_over, 5);
    of.group.fail_over();
    of.group.effects.clear();
    assert_eq!(of.counters().passed_over, 5);
    of.publish(2);
    of.given.clear();
    of.attach(9, credit(100));
    assert_eq!(of.numbers(), [12]);
    assert_eq!(of.counters().passed_over, 6);
}

#[test]
fn a_stream_that_waits_for_a_filter_goes_on_up_to_the_first_match_though_nobody_consumes() {
    let retention = Retention { max_bytes: Some(2_000), max_age_ms: None };
    let mut of = Filtered::new(retention, false, Features::default(), |seq| seq == 700);
    for _ in 0..150 {
        of.publish(10);
        of.group.pass(1_000);
        of.sift();
    }
    of.group.pass(1_000);
    let from = of.group.leader.seq_at(Q, StreamOffset::First).expect("a stream");
    assert!(from > 500 && from <= 700, "{from}");
    let passed = of.counters().passed_over;
    assert!((699..699 + of.step).contains(&passed), "it looks no further: {passed}");
    of.attach(1, credit(1));
    assert_eq!(of.numbers(), [700]);
}

#[test]
fn a_filter_is_part_of_what_a_queue_is_and_its_books_survive_a_gap_and_a_seek() {
    let retention = Retention { max_bytes: Some(2_000), max_age_ms: None };
    let mut of = Filtered::new(retention, true, Features::default(), even);
    of.attach(1, credit(2));
    for _ in 0..100 {
        of.publish(10);
        of.group.pass(1_000);
        of.sift();
    }
    assert_eq!(of.numbers()[..2], [2, 4]);
    assert!(of.counters().dropped > 400, "{:?}", of.counters());
    let mut batch = Batch::new();
    // It says nothing of a filter, and cannot take it away.
    let subscription =
        Subscription { stream: Q, start: StreamOffset::First, skips: true, seeks: 1 };
    let features = Features { subscription: Some(subscription), ..Features::default() };
    let told = QueueSettings {
        features: Some(Box::new(features)),
        ..settings(true, 1, StreamOffset::First, Features::default())
    };
    batch.set_settings(S, 1, &told);
    of.group.apply(batch);
    of.sift();
    of.given.clear();
    of.attach(2, credit(1_000));
    let got = of.numbers();
    assert!(got.iter().all(|seq| even(*seq)) && got.last() == Some(&1_000), "{got:?}");
    let now = of.counters();
    of.group.fail_over();
    assert_eq!(of.counters(), now);
}

/// Numbers that look like chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn play(seed: u64) {
    let mut chance = Chance(seed);
    let wants: [fn(u64) -> bool; 5] =
        [even, |_| true, |_| false, |seq| seq % 97 == 5, |seq| seq / 10 % 2 == 0];
    let wants = wants[chance.below(5) as usize];
    let features = Features { counts_returns: chance.below(2) == 0, ..Features::default() };
    let mut of = Filtered::new(Retention::default(), false, features, wants);
    of.step = chance.below(12) + 1;
    let (mut held, mut settled) = (Ranges::new(), Ranges::new());
    let mut next = 1;
    let (mut session, mut is_there, mut open) = (1, false, 0);
    for _ in 0..120 {
        match chance.below(8) {
            0..=2 => {
                let count = chance.below(15) + 1;
                of.publish(count);
                next += count;
            }
            3 if !is_there => {
                open = chance.below(6) as u32 + 1;
                of.attach(session, credit(open));
                is_there = true;
            }
            4 | 5 => {
                let seqs: Vec<u64> = held.iter().take(chance.below(4) as usize).collect();
                let outcome = [Outcome::Done, Outcome::Requeue][chance.below(2) as usize];
                for seq in &seqs {
                    held.remove(*seq..seq + 1);
                }
                if outcome == Outcome::Done {
                    seqs.iter().for_each(|seq| {
                        settled.insert(*seq..seq + 1);
                    });
                }
                if is_there {
                    of.settle(session, &seqs, outcome);
                }
            }
            6 => {
                of.group.leader.end_session(SessionId(session), &mut of.group.effects);
                of.group.log();
                of.sift();
                (held, is_there, open) = (Ranges::new(), false, 0);
                session += 1;
            }
            _ => {
                of.group.fail_over();
                of.group.effects.clear();
                (held, is_there, open) = (Ranges::new(), false, 0);
                session += 1;
            }
        }
        for (to, run, _) in of.given.drain(..) {
            assert_eq!(to, session);
            let fresh = held.insert(run.clone());
            assert_eq!(fresh, run.end - run.start, "seed {seed}: {run:?} is with somebody");
            assert!(!settled.intersects(run.clone()), "seed {seed}: {run:?} is settled");
        }
        assert!(held.len() <= u64::from(open), "seed {seed}: no more than the prefetch is out");
        let matching = (1..next).filter(|seq| wants(*seq));
        let ready: Vec<u64> =
            matching.filter(|it| !held.contains(*it) && !settled.contains(*it)).collect();
        let is_served = !is_there || held.len() == u64::from(open) || ready.is_empty();
        assert!(is_served, "seed {seed}: {ready:?} match and there is credit");
    }
    of.group.leader.end_session(SessionId(session), &mut of.group.effects);
    of.group.log();
    of.attach(99, credit(10_000));
    let rest: Ranges = of.given.drain(..).map(|(_, run, _)| run).collect();
    let all: Ranges = (1..next).filter(|seq| wants(*seq)).map(|seq| seq..seq + 1).collect();
    let mut expected = all.clone();
    expected.remove_all(&settled);
    assert_eq!(rest, expected, "seed {seed}: exactly what matches and is not settled comes");
    assert_eq!(of.counters().passed_over, next - 1 - all.len(), "seed {seed}");
}

#[test]
fn whatever_happens_what_matches_comes_until_it_is_settled_and_nothing_else_ever_does() {
    (0..400).for_each(play);
}
