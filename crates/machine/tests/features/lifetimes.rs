//! What expires, and when; clocks.

use super::*;

#[test]
fn a_message_goes_when_its_queues_time_to_live_is_over() {
    let mut group = Group::new(Features { message_ttl_ms: Some(100), ..Features::default() });
    group.publish(3);
    group.pass(99);
    assert_eq!(group.ready(), 3);
    group.pass(1);
    assert_eq!((group.ready(), group.live()), (0, 0));
    assert_eq!(group.leader.status(Q).expect("it is there").counters.dropped, 3);
}

#[test]
fn the_shorter_of_two_times_to_live_counts() {
    let mut group = Group::new(Features { message_ttl_ms: Some(100), ..Features::default() });
    group.publish_with(Q, ttl(10), b"");
    group.publish_with(Q, ttl(1_000), b"");
    group.pass(10);
    assert_eq!(group.ready(), 1);
    group.pass(90);
    assert_eq!(group.ready(), 0);
}

#[test]
fn what_expired_behind_a_live_message_is_counted_until_that_is_gone() {
    let mut group = Group::new(Features::default());
    group.publish(1);
    group.publish_with(Q, ttl(10), b"");
    group.pass(1_000);
    assert_eq!(group.ready(), 2);
    assert_eq!(group.get(), Some((Q, 1)));
    group.pass(0);
    assert_eq!(group.ready(), 0);
    assert_eq!(group.get(), None);
}

#[test]
fn what_the_log_settles_at_the_front_of_a_plain_queue_holds_up_no_expiry_behind_it() {
    const PLAIN: QueueId = QueueId(2);
    let mut group = Group::new(Features::default());
    let mut batch = Batch::new();
    let settings =
        QueueSettings { is_durable: true, is_auto_delete: false, features: None, is_paused: false };
    batch.create_queue(PLAIN, &settings);
    batch.enqueue(&[PLAIN], &[], b"");
    group.apply(batch);
    group.publish_with(PLAIN, ttl(10), b"");
    let mut batch = Batch::new();
    // An earlier leader was told that the first is done with.
    batch.settle(PLAIN, Outcome::Done, &Ranges::from(1..2));
    group.apply(batch);
    group.pass(10);
    assert_eq!(group.live(), 0);
}

#[test]
fn a_message_without_time_to_live_goes_to_who_waits_or_nowhere() {
    let mut group = Group::new(Features::default());
    group.attach(1, credit(1)).expect("it is there");
    group.publish_with(Q, ttl(0), b"");
    group.publish_with(Q, ttl(0), b"");
    assert_eq!(group.delivered(), [(1, 1..2)]);
    group.pass(0);
    assert_eq!(group.ready(), 0);
}

#[test]
fn a_held_message_does_not_expire_before_it_comes_back() {
    let mut group = Group::new(Features { message_ttl_ms: Some(10), ..Features::default() });
    group.attach(1, credit(1)).expect("it is there");
    group.publish(1);
    group.pass(1_000);
    assert_eq!(group.live(), 1);
    group.settle(Q, 1, 1..2, Outcome::Requeue);
    assert_eq!(group.live(), 0);
}

#[test]
fn a_new_leader_knows_when_messages_expire() {
    let mut group = Group::new(Features { message_ttl_ms: Some(100), ..Features::default() });
    group.publish(2);
    group.pass(50);
    group.fail_over();
    group.pass(49);
    assert_eq!(group.ready(), 2);
    group.pass(1);
    assert_eq!(group.ready(), 0);
}

#[test]
fn a_queue_that_nobody_uses_is_over() {
    let mut group = Group::new(Features { expires_ms: Some(100), ..Features::default() });
    group.publish(1);
    group.pass(60);
    group.leader.touch(Q);
    group.pass(60);
    group.attach(1, credit(0)).expect("it is there");
    group.pass(1_000);
    assert!(!group.effects.contains(&Effect::Unused { queue: Q }));
    group.leader.end_session(SessionId(1), &mut group.effects);
    group.pass(99);
    assert!(!group.effects.contains(&Effect::Unused { queue: Q }));
    group.pass(1);
    assert!(group.effects.contains(&Effect::Unused { queue: Q }));
    assert_eq!(group.attach(2, credit(0)), Err(AttachError::NoQueue));
}

#[test]
fn a_clock_that_goes_back_changes_nothing() {
    let mut group = Group::new(Features { message_ttl_ms: Some(100), ..Features::default() });
    group.publish(1);
    group.now -= 500;
    group.publish(1);
    group.now += 599;
    group.pass(0);
    assert_eq!(group.ready(), 2);
    group.pass(1);
    assert_eq!(group.ready(), 0);
}

#[test]
fn what_expired_behind_a_live_message_goes_as_it_comes_to_the_front() {
    let mut group = Group::new(Features::default());
    for attributes in [Attributes::default(), ttl(0), Attributes::default(), ttl(0)] {
        group.publish_with(Q, attributes, b"");
    }
    assert_eq!(group.ready(), 4);
    group.attach(1, credit(1)).expect("it is there");
    assert_eq!((group.delivered(), group.ready()), (vec![(1, 1..2)], 2));
    group.leader.credit(Q, who(1), 5, &mut group.effects);
    group.log();
    assert_eq!((group.delivered(), group.live()), (vec![(1, 3..4)], 2));
}

#[test]
fn a_fetch_leaves_no_expired_message_at_the_front() {
    let mut group = Group::new(Features::default());
    group.publish(1);
    group.publish_with(Q, ttl(0), b"");
    assert_eq!(group.get(), Some((Q, 1)));
    assert_eq!(group.live(), 0);
}
