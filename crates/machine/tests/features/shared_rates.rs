//! A rate that counts for several partitions together.

use machine::{Ask, GroupId, Loan, Rate, Rates, TokenHome};

use super::rates::{Dice, Seen, per_second};
use super::*;

/// What is on its way between two leaders.
enum Letter {
    Ask(Ask),
    Answer(u64, Loan),
}

/// Partitions of one queue, each led by a node of its own. The first lends.
struct Partitions {
    groups: Vec<Group>,
    /// When each letter comes, and from or to which partition.
    letters: Vec<(u64, usize, Letter)>,
    seen: Seen,
    /// Longest time that a letter takes, ms.
    slow_ms: u64,
    dice: Dice,
}

impl Partitions {
    fn new(count: usize, features: &Features) -> Self {
        let tokens_of = Some(TokenHome { group: GroupId(1), queue: Q });
        let group = |_| Group::new(Features { tokens_of, ..features.clone() });
        let groups = (0..count).map(group).collect();
        Self { groups, letters: Vec::new(), seen: Seen::default(), slow_ms: 1, dice: Dice(1) }
    }

    fn now(&self) -> u64 {
        self.groups[0].now
    }

    fn send(&mut self, partition: usize, letter: Letter) {
        let at_ms = self.now() + self.dice.below(self.slow_ms);
        self.letters.push((at_ms, partition, letter));
    }

    /// Does what is to be done in this millisecond.
    fn settle_down(&mut self) {
        loop {
            for partition in 0..self.groups.len() {
                let asks: Vec<Ask> = self.groups[partition]
                    .effects
                    .iter()
                    .filter_map(|effect| match effect {
                        Effect::Borrow { ask, .. } => Some(*ask),
                        _ => None,
                    })
                    .collect();
                self.seen.see(&mut self.groups[partition]);
                self.groups[partition].effects.clear();
                asks.into_iter().for_each(|ask| self.send(partition, Letter::Ask(ask)));
            }
            let now = self.now();
            let Some(due) = self.letters.iter().position(|(at_ms, ..)| *at_ms <= now) else {
                return;
            };
            match self.letters.remove(due) {
                (_, partition, Letter::Ask(ask)) => {
                    if let Some(loan) = self.groups[0].leader.lend(Q, &ask) {
                        self.send(partition, Letter::Answer(ask.number, loan));
                    }
                }
                (_, partition, Letter::Answer(number, loan)) => {
                    let Group { leader, effects, .. } = &mut self.groups[partition];
                    leader.lent(Q, number, loan, effects);
                    leader.check();
                }
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.groups.iter_mut().for_each(|group| group.pass(1));
            self.settle_down();
        }
    }

    fn attach(&mut self, partition: usize) {
        self.groups[partition].attach(1, credit(100_000)).expect("it is there");
    }
}

#[test]
fn one_partition_that_is_busy_has_the_rate_of_all() {
    for busy in [0, 3] {
        let mut all = Partitions::new(4, &per_second(1_000, 100));
        (0..4).for_each(|partition| all.attach(partition));
        all.pass(100);
        all.groups[busy].publish(30_000);
        all.pass(20_000);
        assert!((19_900..=20_100).contains(&all.seen.all()), "{} in 20 s", all.seen.all());
        all.seen.is_within(Rate::new(1_000, 1_000).unwrap(), 100);
    }
}

#[test]
fn partitions_that_are_all_busy_have_equal_shares() {
    let mut all = Partitions::new(4, &per_second(1_000, 100));
    all.slow_ms = 3;
    for partition in 0..4 {
        all.attach(partition);
        all.groups[partition].publish(10_000);
    }
    all.pass(10_000);
    for group in &all.groups {
        let went = 10_000 - group.ready();
        assert!((2_300..=2_700).contains(&went), "{went} of 10,000 in 10 s");
    }
    assert!((9_900..=10_100).contains(&all.seen.all()), "{}", all.seen.all());
    all.seen.is_within(Rate::new(1_000, 1_000).unwrap(), 100);
}

#[test]
fn what_trickles_in_elsewhere_costs_a_busy_partition_no_more_than_its_tokens() {
    let mut all = Partitions::new(4, &per_second(1_000, 100));
    (0..4).for_each(|partition| all.attach(partition));
    all.groups[1].publish(30_000);
    for _ in 0..200 {
        all.groups[2].publish(1);
        all.groups[3].publish(1);
        all.pass(50);
    }
    assert!((9_800..=10_200).contains(&all.seen.all()), "{} in 10 s", all.seen.all());
    assert_eq!((all.groups[2].ready(), all.groups[3].ready()), (0, 0));
}

#[test]
fn a_slow_rate_of_several_partitions_is_kept_to_the_message() {
    let mut all = Partitions::new(3, &per_second(2, 1));
    for partition in 0..3 {
        all.attach(partition);
        all.groups[partition].publish(100);
    }
    all.pass(30_000);
    assert!((58..=61).contains(&all.seen.all()), "{} in 30 s", all.seen.all());
}

#[test]
fn bytes_of_all_partitions_keep_to_their_rate_however_large_messages_are() {
    let rates = Rates { dequeue_bytes: Rate::new(100_000, 1_000), ..Rates::default() };
    let mut all = Partitions::new(3, &Features { rates, ..Features::default() });
    (0..3).for_each(|partition| all.attach(partition));
    let (mut dice, began) = (Dice(5), all.now());
    let mut sizes = [const { Vec::new() }; 3];
    for _ in 0..2_000 {
        // Some are larger than a burst, and many are nothing.
        let bytes = [0, 10, 700, 20_000][dice.below(4) as usize] * (1 + dice.below(2)) as usize;
        let body = vec![0; bytes];
        let one = dice.below(3) as usize;
        all.groups[one].publish_with(Q, Attributes::default(), &body);
        sizes[one].push(bytes as u64);
        all.pass(dice.below(3));
    }
    all.pass(10_000);
    let gone = |(group, sizes): (&Group, &Vec<u64>)| {
        assert!(group.ready() > 0, "it is more than the rate brings");
        sizes[..sizes.len() - group.ready() as usize].iter().sum::<u64>()
    };
    let went: u64 = all.groups.iter().zip(&sizes).map(gone).sum();
    let due = (all.now() - began) * 100;
    // A large message goes from a full bucket, and is paid for later.
    assert!(went <= due + 10_000 + 3 * 40_000, "{went} bytes went where {due} were due");
    assert!(went * 100 >= due * 95, "{went} bytes went where {due} were due");
}

#[test]
fn who_fetches_from_a_partition_waits_for_the_answer_and_for_no_token() {
    let mut all = Partitions::new(2, &per_second(10, 1));
    all.groups[1].publish(5);
    all.pass(1);
    let fetch = |all: &mut Partitions| {
        let Group { leader, effects, .. } = &mut all.groups[1];
        leader.get(Q, who(9), true, effects)
    };
    assert_eq!(fetch(&mut all), GetReply::NotYet, "the first partition is asked");
    assert!(all.groups[1].leader.is_borrowing(Q));
    all.settle_down();
    assert_eq!(fetch(&mut all), GetReply::Delivered { ready: 4 });
    assert_eq!(fetch(&mut all), GetReply::NotYet);
    all.settle_down();
    assert!(!all.groups[1].leader.is_borrowing(Q));
    assert_eq!(fetch(&mut all), GetReply::Empty, "there is no token, and nobody waits for one");
    all.pass(100);
    assert_eq!(fetch(&mut all), GetReply::NotYet);
    all.settle_down();
    assert_eq!(fetch(&mut all), GetReply::Delivered { ready: 3 });
}

#[test]
fn nothing_goes_out_while_nobody_lends_and_it_goes_on_by_itself() {
    let mut all = Partitions::new(2, &per_second(1_000, 100));
    all.attach(1);
    all.groups[0].leader.follow();
    all.groups[1].publish(1_000);
    all.pass(2_000);
    assert_eq!(all.seen.all(), 0);
    all.groups[0].fail_over();
    all.pass(1_000);
    assert!((850..=1_000).contains(&all.seen.all()), "{}", all.seen.all());
}

#[test]
fn whatever_happens_all_partitions_together_keep_to_the_rate_and_one_burst() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let count = [200, 1_000, 5_000][seed as usize % 3];
        // No shorter than what may be lent and not used.
        let burst = count / 10 + dice.below(count / 10);
        let mut all = Partitions::new(2 + dice.below(4) as usize, &per_second(count, burst));
        // Some answers come too late.
        (all.slow_ms, all.dice) = (1 + dice.below(60), Dice(seed));
        let partitions = all.groups.len() as u64;
        (0..all.groups.len()).for_each(|partition| all.attach(partition));
        let mut led_since = all.now();
        for _ in 0..400 {
            let one = dice.below(partitions) as usize;
            match dice.below(8) {
                0 => all.groups[one].publish(1 + dice.below(5)),
                1 => all.groups[one].publish(dice.below(500)),
                2 if dice.below(4) == 0 => {
                    // What its leader was lent is lost. Who follows the lender has heard nothing of what that lent.
                    all.groups[one].fail_over();
                    if one == 0 {
                        let Group { leader, follower, effects, now, .. } = &mut all.groups[0];
                        *leader = QueueMachine::restore(&follower.snapshot()).expect("our own");
                        leader.set_now(*now);
                        leader.lead();
                        leader.succeed(1);
                        leader.start_dispatch(effects);
                        led_since = *now;
                    }
                    all.attach(one);
                }
                3 => {
                    let Group { leader, effects, .. } = &mut all.groups[one];
                    leader.get(Q, who(99), true, effects);
                }
                _ => all.pass(dice.below(60)),
            }
            all.settle_down();
        }
        assert!(all.now() > led_since && all.seen.all() > 100, "it goes on");
        all.seen.is_within(Rate::new(count, 1_000).unwrap(), burst);
    }
}
