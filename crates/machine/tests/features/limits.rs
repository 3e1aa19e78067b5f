//! Lengths, what they drop, and room that is kept.

use super::*;

#[test]
fn the_first_messages_go_when_there_are_too_many() {
    let mut group = Group::new(Features { max_length: Some(2), ..Features::default() });
    group.publish(5);
    assert_eq!((group.ready(), group.live()), (2, 2));
    assert_eq!(group.get(), Some((Q, 4)));
}

#[test]
fn bytes_of_bodies_are_counted_and_bounded() {
    let mut group = Group::new(Features { max_length_bytes: Some(10), ..Features::default() });
    for bytes in [4, 4, 4] {
        group.publish_with(Q, Attributes::default(), &vec![0; bytes]);
    }
    assert_eq!(group.ready(), 2);
    group.fail_over();
    group.publish_with(Q, Attributes::default(), &[0; 9]);
    assert_eq!(group.get(), Some((Q, 4)));
    group.publish_with(Q, Attributes::default(), &[0; 11]);
    assert_eq!(group.live(), 0);
}

#[test]
fn what_is_out_does_not_count_for_the_limit() {
    let mut group = Group::new(Features { max_length: Some(1), ..Features::default() });
    group.attach(1, credit(2)).expect("it is there");
    group.publish(3);
    assert_eq!((group.ready(), group.live()), (1, 3));
    // What comes back is at the front, and the front is what goes.
    group.settle(Q, 1, 1..2, Outcome::Requeue);
    assert_eq!((group.ready(), group.live()), (1, 2));
}

#[test]
fn room_is_kept_for_what_was_admitted() {
    let overflow = Overflow::RejectPublish;
    let mut group = Group::new(Features { max_length: Some(3), overflow, ..Features::default() });
    assert_eq!(group.leader.admit(Q, &[1, 1]), []);
    assert_eq!(group.leader.admit(Q, &[1, 1]), [1]);
    group.publish(3);
    assert_eq!(group.ready(), 3);
    assert_eq!(group.leader.admit(Q, &[1]), [0]);
    assert_eq!(group.get(), Some((Q, 1)));
    assert_eq!(group.leader.admit(Q, &[1]), []);
}

#[test]
fn room_that_was_kept_for_a_duplicate_is_given_back() {
    let dedup = Some(Dedup { window_ms: 1_000, entries_max: 100 });
    let overflow = Overflow::RejectPublish;
    let mut group =
        Group::new(Features { max_length: Some(3), overflow, dedup, ..Features::default() });
    let with_key = Attributes { key: Some(1), ..Attributes::default() };
    for _ in 0..10 {
        assert_eq!(group.leader.admit(Q, &[4]), []);
        group.publish_with(Q, with_key, b"body");
    }
    assert_eq!(group.ready(), 1);
}

#[test]
fn who_has_credit_takes_what_there_is_no_room_for() {
    let overflow = Overflow::RejectPublish;
    let mut group = Group::new(Features { max_length: Some(1), overflow, ..Features::default() });
    group.attach(1, credit(2)).expect("it is there");
    assert_eq!(group.leader.admit(Q, &[1, 1, 1, 1]), [3]);
    group.publish(3);
    assert_eq!((group.delivered(), group.ready()), (vec![(1, 1..3)], 1));
    assert_eq!(group.leader.admit(Q, &[1]), [0]);
    let none = Features { max_length: Some(0), overflow, ..Features::default() };
    let mut group = Group::new(none);
    group.attach(1, credit(2)).expect("it is there");
    assert_eq!(group.leader.admit(Q, &[1]), [0], "as in RabbitMQ");
}

#[test]
fn what_may_not_wait_takes_up_no_room() {
    let features = Features { max_length: Some(1), dead_letters: true, ..Features::default() };
    let mut group = Group::new(features);
    let mut batch = Batch::new();
    (0..3).for_each(|_| batch.enqueue_with(&[Q], &ttl(0), &[], b""));
    group.apply(batch);
    group.log();
    assert_eq!(group.left(), [(Q, 1..4, Outcome::Expired)]);
}

#[test]
fn credit_does_not_wait_for_what_overflowed() {
    let mut group = Group::new(Features { max_length: Some(1), ..Features::default() });
    group.attach(1, credit(1)).expect("it is there");
    group.publish(2);
    group.effects.clear();
    let (ranges, what) = (Ranges::from(1..2), (Outcome::Requeue, 1));
    group.leader.settle_for_credit(Q, who(1), &ranges, what, &mut group.effects);
    assert_eq!(group.delivered(), [(1, 2..3)], "the first went, because there is room for one");
}
