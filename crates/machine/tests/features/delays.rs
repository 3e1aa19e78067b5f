//! Delayed messages, and keys that are remembered.

use super::*;

#[test]
fn a_delayed_message_comes_when_it_is_due_and_not_before() {
    let mut group = Group::new(Features::default());
    group.attach(1, credit(10)).expect("it is there");
    group.publish_with(Q, delay(100), b"");
    group.publish(1);
    assert_eq!(group.delivered(), [(1, 2..3)]);
    assert_eq!(group.leader.status(Q).expect("it is there").delayed, 1);
    group.pass(99);
    assert_eq!(group.delivered(), []);
    group.fail_over();
    group.attach(1, credit(10)).expect("it is there");
    // What was out is out again; what is delayed stays so.
    assert_eq!(group.delivered(), [(1, 2..3)]);
    group.pass(1);
    assert_eq!(group.delivered(), [(1, 1..2)]);
}

#[test]
fn the_time_to_live_of_a_delayed_message_begins_when_it_is_due() {
    let mut group = Group::new(Features::default());
    let both = Attributes { ttl_ms: Some(50), delay_ms: Some(100), key: None };
    group.publish_with(Q, both, b"");
    group.pass(149);
    assert_eq!(group.ready(), 1);
    group.pass(1);
    assert_eq!(group.live(), 0);
}

#[test]
fn a_delayed_message_is_cancelled_by_its_key_while_it_waits() {
    let mut group = Group::new(Features::default());
    for key in [7, 7, 8] {
        let with_key = Attributes { delay_ms: Some(100), key: Some(key), ttl_ms: None };
        group.publish_with(Q, with_key, b"");
    }
    let cancel = |group: &mut Group, key| {
        let mut batch = Batch::new();
        batch.cancel_delayed(&[Q], key);
        group.apply(batch);
    };
    cancel(&mut group, 7);
    assert_eq!(group.live(), 1);
    group.pass(100);
    cancel(&mut group, 8);
    assert_eq!(group.get(), Some((Q, 3)), "what is due is not cancelled");
}

#[test]
fn a_delayed_message_is_cancelled_by_the_entry_that_brings_it() {
    let mut group = Group::new(Features { max_priority: 2, ..Features::default() });
    let with_key = Attributes { delay_ms: Some(100), key: Some(7), ttl_ms: None };
    let mut batch = Batch::new();
    batch.enqueue_with(&[Q.level(1)], &with_key, &[], b"before");
    batch.cancel_delayed(&[Q, Q.level(1), Q.level(2)], 7);
    batch.enqueue_with(&[Q.level(1)], &with_key, &[], b"after");
    group.apply(batch);
    assert_eq!(group.live(), 1);
    group.pass(100);
    assert_eq!(group.get(), Some((Q.level(1), 2)));
}

#[test]
fn a_second_message_with_a_key_is_left_out_within_the_window() {
    let dedup = Some(Dedup { window_ms: 1_000, entries_max: 100 });
    let mut group = Group::new(Features { dedup, ..Features::default() });
    let with_key = |key| Attributes { key: Some(key), ..Attributes::default() };
    let mut batch = Batch::new();
    for key in [1, 2, 1, 3, 1] {
        batch.enqueue_with(&[Q], &with_key(key), &[], &[key as u8]);
    }
    group.apply(batch);
    let counters = group.leader.status(Q).expect("it is there").counters;
    assert_eq!((counters.enqueued, counters.duplicates), (3, 2));
    group.fail_over();
    group.publish_with(Q, with_key(2), b"");
    assert_eq!(group.live(), 3);
    group.pass(1_000);
    group.publish_with(Q, with_key(2), b"");
    assert_eq!(group.live(), 4);
}

#[test]
fn runs_around_a_duplicate_do_not_reach_over_its_bytes() {
    let dedup = Some(Dedup { window_ms: 1_000, entries_max: 100 });
    let mut group = Group::new(Features { dedup, ..Features::default() });
    let mut batch = Batch::new();
    for key in [1u128, 2, 1, 3] {
        let with_key = Attributes { key: Some(key), ..Attributes::default() };
        batch.enqueue_with(&[Q], &with_key, &[], &[key as u8]);
    }
    let entry = batch.clone().stamp(0);
    group.apply(batch);
    let mut bodies = Vec::new();
    for effect in group.effects.drain(..) {
        if let Effect::Enqueued { queue, count, bytes, .. } = effect {
            let messages: Vec<_> = machine::Messages::of(queue, &entry[bytes]).collect();
            assert_eq!(messages.len(), count as usize);
            bodies.extend(messages.iter().map(|(_, body)| body[0]));
        }
    }
    assert_eq!(bodies, [1, 2, 3]);
}

#[test]
fn a_delayed_message_that_may_not_wait_goes_to_who_does() {
    let mut group = Group::new(Features::default());
    group.attach(1, credit(1)).expect("it is there");
    let both = Attributes { ttl_ms: Some(0), delay_ms: Some(100), key: None };
    group.publish_with(Q, both, b"");
    group.publish_with(Q, both, b"");
    group.pass(105);
    assert_eq!(group.delivered(), [(1, 1..2)]);
    assert_eq!(group.live(), 1);
}

#[test]
fn what_expired_before_a_delayed_message_was_due_goes_to_nobody() {
    let mut group = Group::new(Features::default());
    group.publish_with(Q, ttl(50), b"");
    group.publish_with(Q, delay(100), b"");
    group.now += 101;
    group.fail_over();
    group.attach(1, credit(2)).expect("it is there");
    assert_eq!(group.delivered(), [(1, 2..3)]);
    group.publish_with(Q, ttl(50), b"");
    group.publish_with(Q, delay(100), b"");
    assert_eq!(group.delivered(), [(1, 3..4)]);
    group.publish_with(Q, ttl(50), b"");
    group.now += 101;
    group.leader.set_now(group.now);
    group.leader.credit(Q, who(1), 2, &mut group.effects);
    assert_eq!(group.delivered(), [(1, 4..5)], "5 had expired when 4 was due");
}

#[test]
fn what_was_due_where_the_old_leader_gave_it_out_is_not_given_out_again() {
    let mut group = Group::new(Features::default());
    group.attach(1, credit(10)).expect("it is there");
    group.publish_with(Q, delay(100), b"");
    group.publish_with(Q, delay(200), b"");
    group.pass(100);
    assert_eq!(group.delivered(), [(1, 1..2)]);
    let told = group.leader.attachments();
    // The next leader's clock is a little behind: the log says nothing of the time that passed.
    group.now -= 10;
    let mut next = QueueMachine::restore(&group.follower.snapshot()).expect("our own snapshot");
    next.set_now(group.now);
    next.lead();
    next.join(|_| true, &told, &mut group.effects);
    next.start_dispatch(&mut group.effects);
    group.leader = next;
    group.pass(10);
    assert_eq!(group.delivered(), [], "session 1 holds it");
    // Given back it is ready, and waits no more.
    group.settle(Q, 1, 1..2, Outcome::Requeue);
    assert_eq!(group.delivered(), [(1, 1..2)]);
    group.settle(Q, 1, 1..2, Outcome::Done);
    group.pass(100);
    assert_eq!(group.delivered(), [(1, 2..3)]);
}
