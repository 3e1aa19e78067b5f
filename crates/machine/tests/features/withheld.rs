//! A purge that can be undone: what is withheld, comes back, and is gone for good.

use machine::limits::UNDO_MS_MAX;
use machine::{
    Balance, MessageState, PeekFilter, Position, PurgeId, QueueDescription, Retention, Withheld,
    Withholding,
};

use super::*;

const UNDO_MS: u64 = 60_000;

fn id(number: u64) -> PurgeId {
    PurgeId { session: SessionId(7), number }
}

/// Asks until it is answered, as a leader does, and logs what follows.
fn asked(group: &mut Group, ask: impl Fn(&mut QueueMachine) -> Withheld) -> Withheld {
    loop {
        let reply = ask(&mut group.leader);
        group.leader.check();
        if reply != Withheld::NotYet {
            return reply;
        }
        assert!(group.leader.take_awaited(), "somebody waits for the log");
        group.log();
        group.leader.check();
    }
}

fn withhold(group: &mut Group, number: u64) -> Withheld {
    asked(group, |leader| leader.withhold(Q, id(number), UNDO_MS))
}

fn bring_back(group: &mut Group, number: u64) -> u64 {
    let reply = asked(group, |leader| leader.bring_back(Q, id(number)));
    let Withheld::Done { count, .. } = reply else { panic!("{reply:?}") };
    count
}

fn purged(group: &mut Group, number: u64) -> u64 {
    let until_ms = group.now + UNDO_MS;
    match withhold(group, number) {
        Withheld::Done { count, until_ms: until } if until == until_ms => count,
        other => panic!("{other:?}, not until {until_ms}"),
    }
}

/// The messages that went out, and whether flagged.
fn given(group: &mut Group) -> Vec<(u64, bool)> {
    let all = group.effects.drain(..).filter_map(|effect| match effect {
        Effect::Deliver { first_seq, count, redelivered, .. } => {
            Some(range_of(first_seq, count).map(move |seq| (seq, redelivered)))
        }
        _ => None,
    });
    all.flatten().collect()
}

fn balance(group: &Group) -> Balance {
    let balance = group.leader.balance(Q).expect("the queue exists");
    assert!(balance.is_right(), "{balance:?}");
    balance
}

fn plain() -> Group {
    Group::new(Features::default())
}

#[test]
fn what_is_purged_comes_back_to_its_place_flagged_as_it_was() {
    let mut group = plain();
    group.publish(5);
    group.attach(1, credit(2)).unwrap();
    group.settle(Q, 1, 2..3, Outcome::Requeue);
    assert_eq!(given(&mut group), [(1, false), (2, false)]);
    assert_eq!(purged(&mut group, 1), 4, "what is out stays out");
    assert_eq!((group.ready(), group.live(), balance(&group).open), (0, 5, 5));
    assert_eq!(group.leader.withheld(Q), Some((4, group.now + UNDO_MS)));
    group.publish(2);
    assert_eq!(bring_back(&mut group, 2), 4);
    assert_eq!((group.ready(), group.leader.withheld(Q)), (6, None));
    group.leader.credit(Q, who(1), 10, &mut group.effects);
    let expected = [(2, true), (3, false), (4, false), (5, false), (6, false), (7, false)];
    assert_eq!(given(&mut group), expected, "before what came since");
    assert_eq!(bring_back(&mut group, 3), 0, "once");
    group.settle(Q, 1, 1..8, Outcome::Done);
    assert_eq!((balance(&group).done, balance(&group).purged), (7, 0));
}

#[test]
fn nobody_gets_or_sees_what_is_withheld() {
    let mut group = plain();
    group.publish(3);
    purged(&mut group, 1);
    group.attach(1, credit(10)).unwrap();
    assert_eq!((group.get(), given(&mut group)), (None, Vec::new()));
    let seen = group.leader.peek(Q, Position::FIRST, PeekFilter::All, 10).expect("a queue");
    assert_eq!(seen.messages, []);
    let at = Position { priority: 0, seq: 2 };
    assert_eq!(group.leader.take(Q, who(9), at, &mut group.effects), GetReply::Empty);
    // Consumers get what comes back at once.
    assert_eq!(bring_back(&mut group, 2), 3);
    assert_eq!(given(&mut group), [(1, false), (2, false), (3, false)]);
    let seen = group.leader.peek(Q, Position::FIRST, PeekFilter::All, 10).expect("a queue");
    assert!(seen.messages.iter().all(|it| matches!(it.state, MessageState::Held { .. })));
}

#[test]
fn when_its_time_is_over_it_is_gone_for_good() {
    let mut group = plain();
    group.publish(3);
    purged(&mut group, 1);
    group.publish(1);
    group.pass(UNDO_MS - 1);
    assert_eq!(group.live(), 4);
    group.effects.clear();
    group.pass(1);
    let settled = Effect::Settled { queue: Q, ranges: Ranges::from(1..4) };
    assert_eq!(group.effects, [settled], "its bytes are given back");
    assert_eq!((group.live(), balance(&group).purged), (1, 3));
    assert_eq!(bring_back(&mut group, 2), 0);
    assert_eq!((group.ready(), group.leader.deadline()), (1, None));
}

#[test]
fn another_purge_lets_go_of_what_the_one_before_has_withheld() {
    for can_be_undone in [true, false] {
        let mut group = plain();
        group.publish(3);
        purged(&mut group, 1);
        group.publish(2);
        group.pass(10);
        if can_be_undone {
            assert_eq!(purged(&mut group, 2), 2);
            assert_eq!((group.live(), balance(&group).purged), (2, 3));
            assert_eq!((bring_back(&mut group, 3), group.ready()), (2, 2));
        } else {
            assert_eq!(group.leader.purge(Q), Some(2), "as many as were ready");
            group.log();
            assert_eq!((group.live(), balance(&group).purged), (0, 5));
            assert_eq!(bring_back(&mut group, 3), 0);
        }
    }
}

#[test]
fn a_purge_that_finds_nothing_leaves_what_can_be_brought_back() {
    let mut group = plain();
    group.publish(3);
    purged(&mut group, 1);
    group.pass(10);
    assert_eq!(purged(&mut group, 2), 0);
    assert_eq!(bring_back(&mut group, 3), 3);
}

#[test]
fn the_same_purge_asked_again_is_done_once() {
    let mut group = plain();
    group.publish(3);
    purged(&mut group, 1);
    // The answer is lost with the leader.
    group.fail_over();
    group.publish(2);
    assert_eq!(purged(&mut group, 1), 3);
    assert_eq!((group.ready(), bring_back(&mut group, 2)), (2, 3));
}

#[test]
fn two_purges_at_once_come_one_after_the_other() {
    let mut group = plain();
    group.publish(3);
    assert_eq!(group.leader.withhold(Q, id(1), UNDO_MS), Withheld::NotYet);
    assert_eq!(group.leader.withhold(Q, id(2), UNDO_MS), Withheld::NotYet);
    assert_eq!(group.leader.bring_back(Q, id(3)), Withheld::NotYet);
    group.log();
    assert_eq!((purged(&mut group, 1), purged(&mut group, 2)), (3, 0));
    assert_eq!(bring_back(&mut group, 3), 3);
}

#[test]
fn the_next_leader_can_undo_it_and_lets_go_of_it_in_time() {
    for is_undone in [true, false] {
        let mut group = Group::new(Features { max_priority: 2, ..Features::default() });
        for priority in [0, 2, 1, 2] {
            group.publish_with(Q.level(priority), Attributes::default(), b"body");
        }
        assert_eq!(purged(&mut group, 1), 4);
        group.fail_over();
        group.leader.check();
        assert_eq!((group.ready(), group.get(), group.live()), (0, None, 4));
        if is_undone {
            assert_eq!(bring_back(&mut group, 2), 4);
            group.fail_over();
            let order: Vec<_> = std::iter::from_fn(|| group.get()).collect();
            assert_eq!(order, [(Q.level(2), 1), (Q.level(2), 2), (Q.level(1), 1), (Q, 1)]);
        } else {
            group.pass(UNDO_MS);
            assert_eq!((group.live(), balance(&group).purged), (0, 4));
        }
    }
}

#[test]
fn a_purge_that_its_leader_could_not_log_is_as_if_nobody_had_asked() {
    let mut group = plain();
    group.publish(3);
    assert_eq!(group.leader.withhold(Q, id(1), UNDO_MS), Withheld::NotYet);
    group.fail_over();
    group.leader.check();
    assert_eq!((group.ready(), group.leader.withheld(Q)), (3, None));
    // The next one is asked again.
    assert_eq!(purged(&mut group, 1), 3);
    assert_eq!(group.leader.bring_back(Q, id(2)), Withheld::NotYet);
    group.fail_over();
    assert_eq!((group.ready(), bring_back(&mut group, 2)), (0, 3));
}

#[test]
fn limits_do_not_count_what_is_withheld_and_count_what_is_back() {
    let mut group = Group::new(Features { max_length: Some(3), ..Features::default() });
    group.publish(3);
    purged(&mut group, 1);
    group.publish(2);
    assert_eq!(group.ready(), 2);
    assert_eq!(bring_back(&mut group, 2), 3);
    group.log();
    assert_eq!((group.ready(), balance(&group).dropped), (3, 2), "the oldest are too much");
    assert_eq!(group.get(), Some((Q, 3)));

    let bytes = Features { max_length_bytes: Some(12), ..Features::default() };
    let mut group =
        Group::new(Features { overflow: Overflow::RejectPublish, max_length: Some(3), ..bytes });
    group.publish(3);
    assert_eq!(group.leader.admit(Q, &[4]), [0]);
    purged(&mut group, 1);
    assert_eq!(group.leader.admit(Q, &[4, 4]), []);
    group.publish(2);
    assert_eq!(bring_back(&mut group, 2), 3);
    group.leader.check();
    assert_eq!((group.ready(), group.leader.admit(Q, &[4])), (5, vec![0]), "nothing is lost");
}

#[test]
fn a_message_whose_time_to_live_ends_while_it_is_withheld_comes_back_to_expire() {
    let mut group = Group::new(Features { dead_letters: true, ..Features::default() });
    group.publish_with(Q, ttl(1_000), b"short");
    group.publish(1);
    purged(&mut group, 1);
    group.pass(2_000);
    assert_eq!((group.left(), group.live()), (Vec::new(), 2), "nobody hears of it meanwhile");
    assert_eq!(bring_back(&mut group, 2), 2);
    group.log();
    assert_eq!(group.left(), [(Q, 1..2, Outcome::Expired)]);
    assert_eq!(group.get(), Some((Q, 2)));
}

#[test]
fn what_waits_for_its_time_is_not_purged_and_what_was_due_is() {
    let mut group = plain();
    group.publish_with(Q, delay(100), b"soon");
    group.publish_with(Q, delay(9_000), b"late");
    group.pass(100);
    assert_eq!(purged(&mut group, 1), 1);
    group.fail_over();
    group.leader.check();
    group.pass(9_000);
    assert_eq!(group.get(), Some((Q, 2)));
    assert_eq!((bring_back(&mut group, 2), group.get()), (1, Some((Q, 1))));
}

#[test]
fn a_message_that_came_back_before_keeps_its_count() {
    let features =
        Features { counts_returns: true, delivery_limit: Some(1), ..Features::default() };
    let mut group = Group::new(features);
    group.publish(1);
    group.attach(1, credit(1)).unwrap();
    group.leader.end_session(SessionId(1), &mut group.effects);
    group.log();
    purged(&mut group, 1);
    bring_back(&mut group, 2);
    group.effects.clear();
    group.attach(2, credit(1)).unwrap();
    let returns = group.effects.iter().find_map(|effect| match effect {
        Effect::Deliver { returns, redelivered, .. } => Some((*returns, *redelivered)),
        _ => None,
    });
    assert_eq!(returns, Some((1, true)));
}

#[test]
fn a_queue_that_is_deleted_takes_what_is_withheld_along() {
    let mut group = plain();
    group.publish(3);
    purged(&mut group, 1);
    assert_eq!(group.leader.close_queue(Q, false, true), Ok(0), "it counts as empty");
    let mut batch = Batch::new();
    batch.drop_queue(Q);
    group.apply(batch);
    assert_eq!((group.live(), group.leader.retired().dropped), (0, 3));
    assert_eq!(group.leader.bring_back(Q, id(2)), Withheld::NoQueue);
    assert_eq!(group.leader.withhold(QueueId(9), id(3), UNDO_MS), Withheld::NoQueue);
}

#[test]
fn messages_of_a_stream_are_not_withheld() {
    let features = Features { stream: Some(Retention::default()), ..Features::default() };
    let mut group = Group::new(features);
    group.publish(3);
    assert_eq!(group.leader.withhold(Q, id(1), UNDO_MS), Withheld::NoQueue);
    // Whatever an entry says.
    let mut batch = Batch::new();
    let step = Withholding::Begin { by: id(1), until_ms: group.now + 9 };
    batch.withhold(Q, step, &Ranges::from(1..4));
    batch.withhold(Q, Withholding::Forget, &Ranges::from(1..4));
    group.apply(batch);
    assert_eq!((group.live(), group.leader.withheld(Q)), (3, None));
}

#[test]
fn an_undo_has_at_most_so_long() {
    let mut group = plain();
    group.publish(1);
    let reply = asked(&mut group, |leader| leader.withhold(Q, id(1), u64::MAX));
    assert_eq!(reply, Withheld::Done { count: 1, until_ms: group.now + UNDO_MS_MAX });
    group.pass(UNDO_MS_MAX);
    assert_eq!(group.live(), 0);
}

#[test]
fn what_was_settled_elsewhere_meanwhile_does_not_come_back() {
    let mut group = plain();
    group.publish(4);
    purged(&mut group, 1);
    // A leader of before could not log these.
    for (outcome, seq) in [(Outcome::Done, 1), (Outcome::Requeue, 2)] {
        let mut batch = Batch::new();
        batch.settle(Q, outcome, &Ranges::from(seq..seq + 1));
        group.apply(batch);
        group.leader.check();
    }
    assert_eq!((group.ready(), bring_back(&mut group, 2)), (0, 3));
    assert_eq!(group.ready(), 3);
    balance(&group);
}

#[test]
fn a_description_says_what_is_withheld() {
    let mut group = plain();
    group.publish(2);
    purged(&mut group, 1);
    let described = group.leader.describe(Q).expect("a queue");
    assert_eq!(described.withheld, Some((2, group.now + UNDO_MS)));
    assert_eq!((described.kept, described.status.ready), (2, 0));
    let mut bytes = Vec::new();
    described.encode(&mut bytes);
    assert_eq!(QueueDescription::decode(&bytes).as_ref(), Ok(&described));
    for end in 0..bytes.len() {
        assert!(QueueDescription::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
    let mut both = described.clone();
    both.add_partition(&described);
    assert_eq!(both.withheld, Some((4, group.now + UNDO_MS)));
}

#[test]
fn a_queue_is_as_plain_afterwards_as_before() {
    let mut group = plain();
    group.publish(2);
    let before = group.leader.snapshot();
    purged(&mut group, 1);
    assert!(group.leader.snapshot().len() > before.len());
    bring_back(&mut group, 2);
    // But for the index and the chain.
    assert_eq!(group.leader.snapshot().len(), before.len());
    let restored = QueueMachine::restore(&group.leader.snapshot()).expect("our own snapshot");
    assert_eq!(restored.digest(), group.leader.digest());
}
