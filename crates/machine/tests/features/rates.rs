//! How fast messages go out and come in.

use machine::{Rate, Rates};

use super::*;

fn rate(count: u64, per_ms: u64) -> Option<Rate> {
    Some(Rate::new(count, per_ms).expect("a rate"))
}

fn rated(dequeue: Option<Rate>, burst: u64) -> Features {
    let rates = Rates { dequeue, dequeue_burst: Some(burst), ..Rates::default() };
    Features { rates, ..Features::default() }
}

pub(super) fn per_second(count: u64, burst: u64) -> Features {
    rated(rate(count, 1_000), burst)
}

/// How many messages went out in which millisecond.
#[derive(Default)]
pub(super) struct Seen(Vec<(u64, u64)>);

impl Seen {
    /// What the first consumer holds now.
    fn note(&self, group: &Group, held: &mut Vec<Range<u64>>) {
        held.extend(group.effects.iter().filter_map(|effect| match effect {
            Effect::Deliver { consumer, first_seq, count, .. } if *consumer == who(1) => {
                Some(range_of(*first_seq, *count))
            }
            _ => None,
        }));
    }

    pub(super) fn see(&mut self, group: &mut Group) {
        let went: u64 =
            group.delivered().into_iter().map(|(_, range)| range.end - range.start).sum();
        if went > 0 {
            self.0.push((group.now, went));
        }
    }

    pub(super) fn all(&self) -> u64 {
        self.0.iter().map(|(_, went)| went).sum()
    }

    /// In no time, however it is chosen, more went than the rate brings in it, and one burst.
    pub(super) fn is_within(&self, rate: Rate, burst: u64) {
        for (place, (from_ms, _)) in self.0.iter().enumerate() {
            let mut went = 0;
            for (at_ms, count) in &self.0[place..] {
                went += count;
                let most = rate.count() * (at_ms - from_ms) + burst * rate.per_ms();
                assert!(
                    went * rate.per_ms() <= most,
                    "{went} messages went from {from_ms} to {at_ms}, at {rate:?} and {burst} at once"
                );
            }
        }
    }
}

/// Numbers that look like chance.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn a_burst_goes_at_once_and_then_the_rate() {
    let mut group = Group::new(per_second(100, 5));
    group.attach(1, credit(1_000)).expect("it is there");
    group.publish(200);
    assert_eq!(group.delivered(), [(1, 1..6)]);
    assert_eq!((group.ready(), group.leader.status(Q).unwrap().unsettled), (195, 5));
    let mut seen = Seen::default();
    for _ in 0..100 {
        group.pass(10);
        seen.see(&mut group);
    }
    assert_eq!(seen.all(), 100, "a second's worth");
    seen.is_within(Rate::new(100, 1_000).unwrap(), 5);
}

#[test]
fn a_queue_that_waits_is_looked_at_once_for_a_portion_and_never_when_it_waits_for_nothing() {
    let mut group = Group::new(per_second(10_000, 1_000));
    group.publish(100_000);
    assert_eq!(group.leader.deadline(), None, "nobody takes them");
    group.attach(1, credit(100_000)).expect("it is there");
    let mut looks = 0;
    let end = group.now + 1_000;
    while let Some(due) = group.leader.deadline().filter(|due| *due <= end) {
        assert!(due > group.now, "time goes on between two looks");
        group.pass(due - group.now);
        looks += 1;
    }
    let went: u64 = group.delivered().iter().map(|(_, range)| range.end - range.start).sum();
    assert_eq!((went, looks), (11_000, 100));
    // Who has no credit waits for no token.
    let mut group = Group::new(per_second(10, 1));
    group.publish(5);
    group.attach(1, credit(1)).expect("it is there");
    assert_eq!((group.delivered().len(), group.leader.deadline()), (1, None));
}

#[test]
fn what_is_held_back_is_said_with_its_wait() {
    let mut group = Group::new(per_second(2, 1));
    group.publish(4);
    assert_eq!(group.leader.status(Q).unwrap().held_back, Default::default());
    group.attach(1, credit(10)).expect("it is there");
    let held = group.leader.status(Q).unwrap().held_back;
    assert_eq!((held.messages, held.wait_ms, held.publishes), (3, 500, 0));
    group.pass(300);
    let held = group.leader.status(Q).unwrap().held_back;
    assert_eq!((held.messages, held.wait_ms), (3, 200));
    let described = group.leader.describe(Q).unwrap();
    let mut bytes = Vec::new();
    described.encode(&mut bytes);
    assert_eq!(machine::QueueDescription::decode(&bytes), Ok(described));
}

#[test]
fn who_fetches_takes_a_token_and_does_not_wait_for_one() {
    let mut group = Group::new(per_second(10, 1));
    group.publish(3);
    assert_eq!(group.get(), Some((Q, 1)));
    assert_eq!(group.get(), None, "its token comes");
    assert_eq!(group.leader.deadline(), None, "nobody waits for it");
    group.pass(99);
    assert_eq!(group.get(), None);
    group.pass(1);
    assert_eq!(group.get(), Some((Q, 2)));
}

#[test]
fn a_message_that_comes_back_takes_a_token_again() {
    let mut group = Group::new(per_second(10, 2));
    group.attach(1, credit(100)).expect("it is there");
    group.publish(1);
    let mut seen = Seen::default();
    seen.see(&mut group);
    for _ in 0..50 {
        group.settle(Q, 1, 1..2, Outcome::Requeue);
        group.pass(20);
        seen.see(&mut group);
    }
    assert!((10..=12).contains(&seen.all()), "{} in a second", seen.all());
    seen.is_within(Rate::new(10, 1_000).unwrap(), 2);
}

#[test]
fn a_new_leader_begins_without_tokens_and_later_than_the_one_before_may_have_ended() {
    let mut group = Group::new(per_second(100, 50));
    group.attach(1, credit(1_000)).expect("it is there");
    group.publish(500);
    assert_eq!(group.delivered(), [(1, 1..51)]);
    group.fail_over();
    group.attach(1, credit(1_000)).expect("it is there");
    assert_eq!(group.delivered(), []);
    group.pass(10);
    assert_eq!(group.delivered(), [(1, 1..2)], "flagged, from the front");
    group.leader = QueueMachine::restore(&group.follower.snapshot()).expect("our own snapshot");
    group.leader.set_now(group.now);
    group.leader.lead();
    group.leader.succeed(2_000);
    group.leader.start_dispatch(&mut group.effects);
    group.attach(1, credit(1_000)).expect("it is there");
    group.pass(2_000);
    assert_eq!(group.delivered(), []);
    group.pass(10);
    assert_eq!(group.delivered(), [(1, 1..2)]);
}

#[test]
fn bytes_are_counted_by_themselves_and_a_large_message_is_paid_for_later() {
    let rates = Rates { dequeue_bytes: rate(1_000, 1_000), ..Rates::default() };
    let mut group = Group::new(Features { rates, ..Features::default() });
    group.attach(1, credit(1_000)).expect("it is there");
    // A burst is a tenth of a second's: 100 bytes.
    for bytes in [60, 40, 30, 500, 1] {
        group.publish_with(Q, Attributes::default(), &vec![0; bytes]);
    }
    assert_eq!(group.delivered(), [(1, 1..2), (1, 2..3)]);
    group.pass(29);
    assert_eq!(group.delivered(), []);
    group.pass(1);
    assert_eq!(group.delivered(), [(1, 3..4)]);
    group.pass(99);
    assert_eq!(group.delivered(), []);
    group.pass(1);
    assert_eq!(group.delivered(), [(1, 4..5)], "from a full bucket");
    group.pass(400);
    assert_eq!(group.delivered(), []);
    group.pass(10);
    assert_eq!(group.delivered(), [(1, 5..6)]);
    // Another leader knows the sizes, too.
    group.fail_over();
    group.attach(1, credit(1_000)).expect("it is there");
    group.pass(60);
    assert_eq!(group.delivered(), [(1, 1..2)]);
}

#[test]
fn a_higher_priority_waits_in_front_of_a_lower_one() {
    let mut group = Group::new(Features { max_priority: 1, ..per_second(10, 1) });
    group.attach(1, credit(100)).expect("it is there");
    group.publish(3);
    group.publish_with(Q.level(1), Attributes::default(), b"");
    assert_eq!(group.delivered(), [(1, 1..2)]);
    let levels: Vec<QueueId> = {
        group.pass(100);
        group.pass(100);
        let went = group.effects.drain(..).filter_map(|effect| match effect {
            Effect::Deliver { queue, .. } => Some(queue),
            _ => None,
        });
        went.collect()
    };
    assert_eq!(levels, [Q.level(1), Q]);
}

#[test]
fn room_is_kept_for_what_waits_for_a_token() {
    let overflow = Overflow::RejectPublish;
    let features = Features { max_length: Some(1), overflow, ..per_second(10, 1) };
    let mut group = Group::new(features);
    group.attach(1, credit(100)).expect("it is there");
    assert_eq!(group.leader.admit(Q, &[1, 1, 1]), [2]);
    group.publish(2);
    assert_eq!((group.delivered(), group.ready()), (vec![(1, 1..2)], 1));
    assert_eq!(group.leader.admit(Q, &[1]), [0], "credit alone takes nothing");
}

#[test]
fn publishers_are_told_when_their_messages_may_come() {
    let rates = Rates { enqueue: rate(100, 1_000), ..Rates::default() };
    let mut group = Group::new(Features { rates, ..Features::default() });
    let now = group.now;
    assert_eq!(group.leader.let_in(Q, 10), Ok(()), "a burst");
    assert_eq!(group.leader.let_in(Q, 1), Err(now + 10));
    group.pass(10);
    assert_eq!((group.leader.let_in(Q, 1), group.leader.let_in(Q, 5)), (Ok(()), Err(now + 60)));
    // More than a burst goes from a full bucket, and those behind it wait longer.
    group.pass(100);
    assert_eq!(group.leader.let_in(Q, 30), Ok(()));
    assert_eq!(group.leader.let_in(Q, 1), Err(group.now + 210));
    assert_eq!(group.leader.let_in(QueueId(77), 1_000), Ok(()), "there is no such queue");
    // What comes out has no rate.
    group.publish(50);
    group.attach(1, credit(100)).expect("it is there");
    assert_eq!(group.delivered(), [(1, 1..51)]);
    group.fail_over();
    assert_eq!(group.leader.let_in(Q, 1), Err(group.now + 10));
}

#[test]
fn a_rate_may_change_while_it_is_at_work() {
    let mut group = Group::new(per_second(10, 2));
    let mut revision = 0;
    let mut set = |group: &mut Group, features: Option<Features>| {
        revision += 1;
        let features = features.map(Box::new);
        let settings = QueueSettings { is_durable: true, features, ..QueueSettings::default() };
        let mut batch = Batch::new();
        batch.set_settings(Q, revision, &settings);
        group.apply(batch);
    };
    group.attach(1, credit(1_000)).expect("it is there");
    group.publish(500);
    assert_eq!(group.delivered(), [(1, 1..3)]);
    set(&mut group, Some(per_second(1_000, 20)));
    assert_eq!(group.delivered(), [], "a new rate brings no tokens");
    group.pass(20);
    let went: u64 = group.delivered().iter().map(|(_, range)| range.end - range.start).sum();
    assert_eq!(went, 20);
    set(&mut group, None);
    let went: u64 = group.delivered().iter().map(|(_, range)| range.end - range.start).sum();
    assert_eq!((went, group.leader.deadline()), (478, None), "all that is left");
    group.publish(100);
    group.delivered();
    set(&mut group, Some(per_second(10, 2)));
    group.publish(5);
    assert_eq!(group.delivered(), [], "a rate that is new begins without tokens");
    group.pass(100);
    assert_eq!(group.delivered(), [(1, 601..602)]);
}

#[test]
fn whatever_happens_the_rate_and_a_burst_are_never_exceeded_and_nothing_starves() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let (count, per_ms) =
            [(50, 1_000), (7, 1_000), (3_000, 60_000), (1_000, 1_000)][seed as usize % 4];
        let (rate, burst) = (Rate::new(count, per_ms).unwrap(), 1 + dice.below(20));
        let mut group = Group::new(rated(Some(rate), burst));
        let mut seen = Seen::default();
        let mut held: Vec<Range<u64>> = Vec::new();
        group.publish(10_000);
        group.attach(1, credit(10_000)).expect("it is there");
        seen.note(&group, &mut held);
        seen.see(&mut group);
        let (began, mut worked_from) = (group.now, group.now);
        let mut worked = 0;
        for _ in 0..400 {
            match dice.below(12) {
                0 => group.publish(1 + dice.below(5)),
                1 => {
                    if let Some(range) = held.pop() {
                        group.settle(Q, 1, range, Outcome::Requeue);
                        group.leader.credit(Q, who(1), 1, &mut group.effects);
                    }
                }
                2 if dice.below(10) == 0 => {
                    worked += group.now - worked_from;
                    group.fail_over();
                    held.clear();
                    group.attach(1, credit(10_000)).expect("it is there");
                    worked_from = group.now;
                }
                3 => {
                    // Who consumes is served first.
                    group.leader.get(Q, who(99), false, &mut group.effects);
                }
                _ => (0..dice.below(40)).for_each(|_| {
                    group.pass(1);
                    seen.note(&group, &mut held);
                    seen.see(&mut group);
                }),
            }
            seen.note(&group, &mut held);
            seen.see(&mut group);
        }
        worked += group.now - worked_from;
        seen.is_within(rate, burst);
        let due = worked * count / per_ms;
        assert!(
            seen.all() * 10 >= due * 9,
            "seed {seed}: {} of {due} messages came in {} ms",
            seen.all(),
            group.now - began
        );
    }
}
