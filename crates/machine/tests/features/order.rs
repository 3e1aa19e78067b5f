//! Priorities, and one consumer at a time.

use super::*;

#[test]
fn higher_priorities_go_first_and_each_keeps_its_order() {
    let mut group = Group::new(Features { max_priority: 5, ..Features::default() });
    for priority in [0, 3, 5, 3, 0] {
        group.publish_with(Q.level(priority), Attributes::default(), b"");
    }
    assert_eq!(group.ready(), 5);
    let order: Vec<_> = std::iter::from_fn(|| group.get()).collect();
    let expected =
        [(5, 1), (3, 1), (3, 2), (0, 1), (0, 2)].map(|(level, seq)| (Q.level(level), seq));
    assert_eq!(order, expected);
}

#[test]
fn a_message_that_comes_back_has_its_priority_still() {
    let mut group = Group::new(Features { max_priority: 2, ..Features::default() });
    group.attach(1, credit(1)).expect("it is there");
    group.publish_with(Q.level(2), Attributes::default(), b"");
    group.publish_with(Q.level(1), Attributes::default(), b"");
    group.settle(Q.level(2), 1, 1..2, Outcome::Requeue);
    assert_eq!(group.get(), Some((Q.level(2), 1)));
    assert_eq!(group.get(), Some((Q.level(1), 1)));
}

#[test]
fn priorities_survive_a_change_of_leader() {
    let mut group = Group::new(Features { max_priority: 9, ..Features::default() });
    for priority in 0..10 {
        group.publish_with(Q.level(priority), Attributes::default(), b"");
    }
    group.fail_over();
    let order: Vec<_> = std::iter::from_fn(|| group.get()).map(|(level, _)| level).collect();
    assert_eq!(order, (0..10).rev().map(|level| Q.level(level)).collect::<Vec<_>>());
}

#[test]
fn one_consumer_at_a_time_is_served_of_a_single_active() {
    let mut group = Group::new(Features { single_active: true, ..Features::default() });
    let exclusive = ConsumerSpec { exclusive: true, ..credit(1) };
    assert_eq!(group.attach(9, exclusive), Err(AttachError::ExclusiveUse));
    group.attach(2, credit(2)).expect("it is there");
    group.attach(1, credit(10)).expect("it is there");
    group.publish(3);
    assert_eq!(group.delivered(), [(2, 1..3)]);
    group.leader.detach(Q, who(2), &mut group.effects);
    assert_eq!(group.delivered(), [(1, 3..4)]);
    group.settle(Q, 2, 1..3, Outcome::Requeue);
    assert_eq!(group.delivered(), [(1, 1..3)]);
}

#[test]
fn a_message_for_a_level_that_is_not_there_is_ignored_and_counted() {
    let mut group = Group::new(Features { max_priority: 2, ..Features::default() });
    group.publish_with(Q.level(3), Attributes::default(), b"");
    assert_eq!((group.live(), group.leader.ignored()), (0, 1));
}

#[test]
fn the_first_to_come_is_the_active_one_whatever_its_priority() {
    let mut group = Group::new(Features { single_active: true, ..Features::default() });
    group.attach(2, credit(9)).expect("it is there");
    group.attach(1, ConsumerSpec { priority: 10, ..credit(9) }).expect("it is there");
    group.publish(1);
    assert_eq!(group.delivered(), [(2, 1..2)]);
}
