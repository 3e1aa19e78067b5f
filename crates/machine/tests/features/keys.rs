//! Order by key: one message of each key is out at a time, in their order, whoever comes, goes, dies and leads.

use std::collections::BTreeMap;

use machine::{Attached, KeySource, PurgeId, Sifted, Withheld};

use super::*;

/// A queue with order by key, and several consumers.
struct Ordered {
    group: Group,
    key: fn(u64) -> Option<u64>,
    /// How many messages are looked at together, at most.
    step: u64,
    /// Whether all is looked at after each step.
    is_checked: bool,
    given: Vec<(u64, u64)>,
}

fn thirds(seq: u64) -> Option<u64> {
    Some(seq % 3)
}

fn ordered(features: Features) -> Features {
    Features { order: Some(Box::new(KeySource::RoutingKey)), ..features }
}

impl Ordered {
    fn new(features: Features, key: fn(u64) -> Option<u64>) -> Self {
        Self {
            group: Group::new(ordered(features)),
            key,
            step: 7,
            is_checked: true,
            given: Vec::new(),
        }
    }

    /// Says the keys as long as anybody wants to know them, and logs what follows.
    fn sift(&mut self) {
        loop {
            self.group.log();
            let Some((level, span)) = self.group.leader.sift_next() else { break };
            let span = span.start..span.end.min(span.start + self.step);
            let keys = span.clone().map(self.key).collect();
            let sifted = Sifted { span, unwanted: Ranges::new(), keys };
            self.group.leader.sifted(level, &sifted, &mut self.group.effects);
        }
        for (consumer, run) in self.group.delivered() {
            self.given.extend(run.map(|seq| (consumer, seq)));
        }
        if self.is_checked {
            self.group.leader.check();
        }
    }

    fn publish(&mut self, count: u64) {
        self.group.publish(count);
        self.sift();
    }

    fn attach(&mut self, number: u64, spec: ConsumerSpec) {
        self.group.attach(number, spec).expect("attached");
        self.sift();
    }

    fn settle(&mut self, number: u64, seq: u64, outcome: Outcome) {
        let (group, ranges) = (&mut self.group, Ranges::from(seq..seq + 1));
        group.leader.settle_for_credit(Q, who(number), &ranges, (outcome, 1), &mut group.effects);
        self.sift();
    }

    /// Purges so that it can be undone, or undoes that.
    fn purge(&mut self, is_undone: bool) {
        let by = PurgeId { session: SessionId(7), number: u64::from(is_undone) };
        let leader = &mut self.group.leader;
        let reply =
            if is_undone { leader.bring_back(Q, by) } else { leader.withhold(Q, by, 60_000) };
        assert_eq!(reply, Withheld::NotYet);
        self.sift();
    }

    fn end(&mut self, number: u64) {
        self.group.leader.end_session(SessionId(number), &mut self.group.effects);
        self.sift();
    }

    fn pass(&mut self, ms: u64) {
        self.group.pass(ms);
        self.sift();
    }

    /// Another node leads. Those who are attached go on there with what they hold.
    fn fail_over(&mut self, attached: &[Attached]) {
        let group = &mut self.group;
        group.leader = QueueMachine::restore(&group.follower.snapshot()).expect("our own snapshot");
        group.effects.clear();
        group.leader.set_now(group.now);
        group.leader.lead();
        group.leader.join(|_| true, attached, &mut group.effects);
        group.leader.start_dispatch(&mut group.effects);
        self.sift();
    }

    fn numbers(&mut self) -> Vec<u64> {
        self.given.drain(..).map(|(_, seq)| seq).collect()
    }
}

#[test]
fn one_message_of_each_key_is_out_and_the_next_follows_when_that_is_settled() {
    let mut of = Ordered::new(Features::default(), thirds);
    of.attach(1, credit(100));
    of.attach(2, credit(100));
    of.publish(9);
    assert_eq!(of.numbers(), [1, 2, 3]);
    of.settle(1, 2, Outcome::Done);
    of.settle(2, 2, Outcome::Done);
    assert_eq!(of.numbers(), [5], "one of both had it");
    for seq in [1, 3, 5] {
        of.settle(1, seq, Outcome::Done);
        of.settle(2, seq, Outcome::Done);
    }
    assert_eq!(of.numbers(), [4, 6, 8]);
}

#[test]
fn what_is_given_back_or_lost_holds_up_its_key_alone() {
    let mut of = Ordered::new(Features::default(), thirds);
    of.publish(9);
    of.attach(1, credit(100));
    assert_eq!(of.numbers(), [1, 2, 3]);
    of.settle(1, 1, Outcome::Requeue);
    assert_eq!(of.numbers(), [1], "it is the first of its key still");
    of.settle(1, 2, Outcome::Done);
    assert_eq!(of.numbers(), [5]);
    of.attach(2, credit(100));
    of.end(1);
    assert_eq!(of.numbers(), [1, 3, 5], "and so are those of a consumer that is gone");
}

#[test]
fn a_retry_that_waits_holds_up_its_key_alone_also_under_the_next_leader() {
    let retry = Some(Retry { failed: true, returned: true, min_ms: 1_000, max_ms: 1_000 });
    let features = Features { counts_returns: true, retry, ..Features::default() };
    let mut of = Ordered::new(features, thirds);
    of.publish(6);
    of.attach(1, credit(100));
    assert_eq!(of.numbers(), [1, 2, 3]);
    of.settle(1, 1, Outcome::Requeue);
    of.settle(1, 2, Outcome::Done);
    assert_eq!(of.numbers(), [5]);
    of.fail_over(&[]);
    of.attach(2, credit(100));
    assert_eq!(of.numbers(), [3, 5], "4 waits for 1, which waits for its time");
    of.pass(1_000);
    assert_eq!(of.numbers(), [1]);
    of.settle(2, 1, Outcome::Rejected);
    assert_eq!(of.numbers(), [4], "what is thrown away waits for nobody");
}

#[test]
fn a_new_leader_gives_out_nothing_of_a_key_of_which_a_consumer_holds_a_message() {
    let mut of = Ordered::new(Features::default(), thirds);
    of.publish(9);
    of.attach(1, credit(1));
    assert_eq!(of.numbers(), [1]);
    let attached = of.group.leader.attachments();
    of.fail_over(&attached);
    of.attach(2, credit(100));
    assert_eq!(of.numbers(), [2, 3], "4 and 7 wait for 1");
    of.settle(1, 1, Outcome::Done);
    assert_eq!(of.numbers(), [4]);
}

#[test]
fn messages_without_a_key_wait_for_nothing() {
    let mut of = Ordered::new(Features::default(), |seq| (seq < 3).then_some(0));
    of.publish(6);
    of.attach(1, credit(100));
    assert_eq!(of.numbers(), [1, 3, 4, 5, 6]);
    of.settle(1, 4, Outcome::Requeue);
    assert_eq!(of.numbers(), [4]);
}

#[test]
fn what_settles_as_it_goes_out_goes_in_order_to_anybody() {
    let mut of = Ordered::new(Features::default(), |_| Some(0));
    of.attach(1, ConsumerSpec { no_ack: true, ..credit(1_000_000) });
    of.publish(20);
    assert_eq!(of.numbers(), (1..=20).collect::<Vec<_>>());
}

#[test]
fn what_expires_or_is_purged_or_crowded_out_waits_for_nobody() {
    let mut of = Ordered::new(Features::default(), |_| Some(0));
    of.attach(1, credit(10));
    of.publish(1);
    of.group.publish_with(Q, ttl(10), b"short");
    of.publish(1);
    assert_eq!(of.numbers(), [1]);
    of.pass(20);
    of.settle(1, 1, Outcome::Done);
    assert_eq!(of.numbers(), [3], "2 has expired");
    of.publish(3);
    assert_eq!(of.group.leader.purge(Q), Some(3));
    of.publish(1);
    of.settle(1, 3, Outcome::Done);
    assert_eq!(of.numbers(), [7]);

    let mut of = Ordered::new(Features { max_length: Some(2), ..Features::default() }, |_| Some(0));
    of.attach(1, credit(10));
    of.publish(1);
    of.publish(4);
    assert_eq!(of.numbers(), [1]);
    of.settle(1, 1, Outcome::Done);
    assert_eq!(of.numbers(), [4], "2 and 3 were too much");
}

#[test]
fn a_delayed_message_joins_the_line_of_its_key_when_it_is_due() {
    let mut of = Ordered::new(Features::default(), |_| Some(0));
    of.attach(1, credit(10));
    of.group.publish_with(Q, delay(1_000), b"later");
    of.publish(2);
    assert_eq!(of.numbers(), [2]);
    of.pass(1_000);
    of.settle(1, 2, Outcome::Done);
    of.settle(1, 3, Outcome::Done);
    assert_eq!(of.numbers(), [3, 1]);
}

#[test]
fn who_fetches_gets_what_may_go_out_and_nothing_else() {
    let mut of = Ordered::new(Features::default(), thirds);
    of.publish(4);
    let fetch = |of: &mut Ordered| {
        let reply = of.group.leader.get(Q, who(5), false, &mut of.group.effects);
        of.sift();
        (reply, of.numbers())
    };
    assert_eq!(fetch(&mut of), (GetReply::NotYet, vec![]), "their keys are not known yet");
    for seq in 1..4 {
        assert!(matches!(fetch(&mut of), (GetReply::Delivered { .. }, got) if got == [seq]));
    }
    assert_eq!(fetch(&mut of), (GetReply::Empty, vec![]), "4 waits for 1");
    of.settle(5, 1, Outcome::Done);
    assert!(matches!(fetch(&mut of), (GetReply::Delivered { ready: 0 }, got) if got == [4]));
}

#[test]
fn no_more_wait_behind_their_keys_than_are_looked_at() {
    let mut of = Ordered::new(Features::default(), |seq| Some(u64::from(seq > 80_000)));
    (of.step, of.is_checked) = (4_096, false);
    of.attach(1, credit(100));
    of.publish(80_000);
    of.publish(10);
    assert_eq!(of.numbers(), [1], "what is behind so many of one key waits, too");
    for seq in 1..=20_000 {
        of.settle(1, seq, Outcome::Done);
    }
    let got = of.numbers();
    assert!(got.contains(&80_001), "the other key is in sight: {:?}", got.last());
}

#[test]
fn a_rate_lets_out_what_has_its_turn() {
    let dequeue = machine::Rate::new(10, 1_000);
    let rates = machine::Rates { dequeue, dequeue_burst: Some(1), ..Default::default() };
    let mut of = Ordered::new(Features { rates, ..Features::default() }, thirds);
    of.attach(1, credit(100));
    of.publish(6);
    (0..10).for_each(|_| of.pass(100));
    assert_eq!(of.numbers(), [1, 2, 3]);
    of.settle(1, 2, Outcome::Done);
    assert_eq!(of.numbers(), [5], "a token was left");
    of.settle(1, 1, Outcome::Done);
    assert_eq!(of.numbers(), [], "none is left");
    of.pass(100);
    assert_eq!(of.numbers(), [4]);
}

#[test]
fn each_key_has_a_rate_of_its_own_and_waits_without_holding_up_others() {
    let dequeue_per_key = machine::Rate::new(10, 1_000);
    let rates = machine::Rates { dequeue_per_key, ..Default::default() };
    let mut of = Ordered::new(Features { rates, ..Features::default() }, |seq| Some(seq % 2));
    of.attach(1, ConsumerSpec { no_ack: true, ..credit(100) });
    of.publish(4);
    assert_eq!(of.numbers(), [1, 2]);
    of.pass(99);
    assert_eq!(of.numbers(), []);
    of.pass(1);
    assert_eq!(of.numbers(), [3, 4]);
    of.fail_over(&[]);
    of.attach(2, ConsumerSpec { no_ack: true, ..credit(100) });
    of.publish(1);
    assert_eq!(of.numbers(), [], "a new leader has no tokens");
    of.pass(100);
    assert_eq!(of.numbers(), [5]);
    for _ in 0..20 {
        of.publish(1);
    }
    // The other key had a token.
    let mut count = of.numbers().len();
    assert_eq!(count, 1);
    for _ in 0..30 {
        of.pass(100);
        let now = of.numbers();
        assert!(now.len() <= 2, "one of each key in a tenth of a second: {now:?}");
        count += now.len();
    }
    assert_eq!(count, 20);
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

/// What is known of who has what.
#[derive(Default)]
struct World {
    /// Who is there, and how much more it takes.
    credit: BTreeMap<u64, u32>,
    held: BTreeMap<u64, u64>,
    /// Nobody waits for these any more.
    over: Ranges,
    seen: Ranges,
}

impl World {
    fn attached(&self) -> Vec<Attached> {
        let all = self.credit.iter().map(|(session, left)| Attached {
            queue: Q,
            consumer: who(*session),
            spec: credit(*left),
            is_attached: true,
            held: self.held_by(*session).map(|seq| seq..seq + 1).collect(),
        });
        all.collect()
    }

    fn held_by(&self, session: u64) -> impl Iterator<Item = u64> + '_ {
        self.held.iter().filter(move |(_, by)| **by == session).map(|(seq, _)| *seq)
    }
}

fn features(number: u64) -> Features {
    let retry = Some(Retry { failed: true, returned: false, min_ms: 50, max_ms: 100 });
    match number {
        0 => Features::default(),
        1 => Features { counts_returns: true, ..Features::default() },
        2 => Features { counts_returns: true, retry, ..Features::default() },
        3 => Features {
            counts_returns: true,
            delivery_limit: Some(1),
            dead_letters: true,
            ..Features::default()
        },
        _ => Features { message_ttl_ms: Some(200), ..Features::default() },
    }
}

fn play(seed: u64) {
    let mut chance = Chance(seed);
    let keys: [fn(u64) -> Option<u64>; 4] = [
        thirds,
        |seq| Some(seq * seq % 11),
        |_| Some(1),
        |seq| (!seq.is_multiple_of(4)).then_some(seq / 5 % 4),
    ];
    let key = keys[chance.below(4) as usize];
    let kind = chance.below(5);
    let mut of = Ordered::new(features(kind), key);
    of.step = chance.below(12) + 1;
    let mut world = World::default();
    let (mut next, mut session) = (1, 1);
    for _ in 0..150 {
        match chance.below(10) {
            0..=2 => {
                let count = chance.below(15) + 1;
                of.publish(count);
                next += count;
            }
            3 if world.credit.len() < 4 => {
                let credit = chance.below(6) as u32 + 1;
                world.credit.insert(session, credit);
                of.attach(session, self::credit(credit));
                session += 1;
            }
            4..=6 => {
                let at = chance.below(4) as usize;
                let found = world.held.iter().nth(at).map(|(seq, by)| (*seq, *by));
                let outcome = [Outcome::Done, Outcome::Done, Outcome::Requeue, Outcome::Rejected];
                let outcome = outcome[chance.below(4) as usize];
                if let Some((seq, by)) = found {
                    world.held.remove(&seq);
                    *world.credit.entry(by).or_default() += 1;
                    if outcome != Outcome::Requeue {
                        world.over.insert(seq..seq + 1);
                    }
                    of.settle(by, seq, outcome);
                }
            }
            7 => {
                if let Some(gone) = world.credit.keys().next().copied() {
                    world.credit.remove(&gone);
                    world.held.retain(|_, by| *by != gone);
                    of.end(gone);
                }
            }
            8 => of.pass(chance.below(60)),
            _ => {
                // Some are gone with the leader.
                let gone = chance.below(3);
                world.credit.retain(|session, _| session % 3 != gone);
                world.held.retain(|_, by| *by % 3 != gone);
                of.fail_over(&world.attached());
            }
        }
        look(seed, &mut of, &mut world);
        if kind == 0 || kind == 1 {
            progresses(seed, &of, &world, next);
        }
    }
    world.credit.keys().copied().collect::<Vec<_>>().iter().for_each(|gone| of.end(*gone));
    (world.credit, world.held) = Default::default();
    // While one after the other went, the others were given something.
    of.given.drain(..).for_each(|(_, seq)| _ = world.seen.insert(seq..seq + 1));
    of.attach(session, credit(100_000));
    world.credit.insert(session, 100_000);
    look(seed, &mut of, &mut world);
    for _ in 0..next * 4 {
        let Some((seq, by)) = world.held.pop_first() else {
            of.pass(100);
            look(seed, &mut of, &mut world);
            continue;
        };
        world.over.insert(seq..seq + 1);
        of.settle(by, seq, Outcome::Done);
        look(seed, &mut of, &mut world);
    }
    let kept = of.group.leader.kept(Q).expect("it is there").len();
    let leaving = of.group.leader.status(Q).expect("it is there").leaving;
    assert_eq!(kept, leaving, "seed {seed}: everything came");
}

/// What was given out, was its key's turn.
fn look(seed: u64, of: &mut Ordered, world: &mut World) {
    // What expired, or came back too often, is over too; if it is dead, it is kept until it is stored elsewhere.
    let given = std::mem::take(&mut of.given);
    let kept = of.group.leader.kept(Q).expect("it is there").to_ranges();
    for (to, seq) in given {
        let left = world.credit.get_mut(&to).expect("who is there is given something");
        assert!(*left > 0, "seed {seed}: {seq} is more than {to} wants");
        *left -= 1;
        assert_eq!(world.held.insert(seq, to), None, "seed {seed}: {seq} is with somebody");
        let Some(key) = (of.key)(seq) else { continue };
        let of_key = |other: &u64| (of.key)(*other) == Some(key);
        let held = world.held.keys().filter(|other| of_key(other)).count();
        assert_eq!(held, 1, "seed {seed}: {seq} and another of its key are out");
        if world.seen.insert(seq..seq + 1) > 0 {
            let dead = of.group.leader.status(Q).is_some_and(|status| status.leaving > 0);
            let mut before = (1..seq).filter(of_key).filter(|it| kept.contains(*it));
            let early = before.find(|it| !world.over.contains(*it));
            assert!(early.is_none() || dead, "seed {seed}: {seq} goes before {early:?}");
        }
    }
}

/// Whoever has credit is given the first of each key, if nobody has that.
fn progresses(seed: u64, of: &Ordered, world: &World, next: u64) {
    if world.credit.values().all(|left| *left == 0) {
        return;
    }
    let mut firsts = BTreeMap::new();
    for seq in (1..next).filter(|seq| !world.over.contains(*seq)) {
        match (of.key)(seq) {
            Some(key) => _ = firsts.entry(key).or_insert(seq),
            None => assert!(world.held.contains_key(&seq), "seed {seed}: {seq} has no key"),
        }
    }
    let waits = firsts.values().find(|seq| !world.held.contains_key(seq));
    assert_eq!(waits, None, "seed {seed}: somebody has credit");
}

#[test]
fn whatever_happens_each_key_keeps_its_order_and_nothing_waits_for_nothing() {
    (0..600).for_each(play);
}

#[test]
fn what_a_purge_withheld_goes_out_before_what_came_since_one_of_each_key_at_a_time() {
    let mut of = Ordered::new(Features::default(), thirds);
    of.attach(1, credit(100));
    of.publish(9);
    assert_eq!(of.numbers(), [1, 2, 3]);
    of.purge(false);
    of.publish(6);
    assert_eq!(of.numbers(), []);
    of.settle(1, 1, Outcome::Done);
    assert_eq!(of.numbers(), [10], "nothing waits for what is withheld");
    of.purge(true);
    assert_eq!(of.numbers(), []);
    of.settle(1, 10, Outcome::Done);
    of.settle(1, 2, Outcome::Done);
    assert_eq!(of.numbers(), [4, 5]);
    for seq in 3..6 {
        of.settle(1, seq, Outcome::Done);
    }
    assert_eq!(of.numbers(), [6, 7, 8]);
    for seq in 6..9 {
        of.settle(1, seq, Outcome::Done);
    }
    assert_eq!(of.numbers(), [9, 13, 11]);
}

#[test]
fn what_is_given_back_while_a_purge_is_undone_goes_out_before_others_of_its_key() {
    let returns = Features { delivery_limit: Some(5), ..Features::default() };
    let mut of = Ordered::new(returns, |_| Some(0));
    of.attach(1, credit(100));
    of.publish(3);
    assert_eq!(of.numbers(), [1]);
    of.purge(false);
    // The undo is on its way to the log, and the first message is given back behind it.
    let by = PurgeId { session: SessionId(7), number: 2 };
    assert_eq!(of.group.leader.bring_back(Q, by), Withheld::NotYet);
    let mut undo = Batch::new();
    of.group.leader.take_settled(&mut undo);
    let first = (Outcome::Requeue, 1);
    let leader = &mut of.group.leader;
    leader.settle_for_credit(Q, who(1), &Ranges::from(1..2), first, &mut of.group.effects);
    of.group.apply(undo);
    while let Some((level, span)) = of.group.leader.sift_next() {
        let keys = span.clone().map(|_| Some(0)).collect();
        let sifted = Sifted { span, unwanted: Ranges::new(), keys };
        of.group.leader.sifted(level, &sifted, &mut of.group.effects);
    }
    let mut out: Vec<u64> = of.group.delivered().into_iter().flat_map(|(_, run)| run).collect();
    of.sift();
    out.extend(of.numbers());
    assert_eq!(out, [1], "nothing of its key goes out before it");
    of.settle(1, 1, Outcome::Done);
    assert_eq!(of.numbers(), [2]);
}
