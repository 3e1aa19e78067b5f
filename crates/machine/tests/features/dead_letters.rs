//! Messages that die, until they are stored elsewhere.

use super::*;

#[test]
fn a_dead_message_leaves_before_it_is_gone() {
    let mut group = Group::new(Features { dead_letters: true, ..Features::default() });
    group.attach(1, credit(10)).expect("it is there");
    group.publish(2);
    group.settle(Q, 1, 1..2, Outcome::Rejected);
    assert_eq!(group.left(), [(Q, 1..2, Outcome::Rejected)]);
    assert_eq!(group.live(), 2);
    // Consumers have no say in it any more.
    group.settle(Q, 1, 1..2, Outcome::Done);
    assert_eq!(group.live(), 2);
    group.fail_over();
    assert_eq!(group.left(), [(Q, 1..2, Outcome::Rejected)], "a new leader begins again");
    assert_eq!(group.ready(), 1);
    group.settle(Q, 77, 1..2, Outcome::DeadLettered);
    let counters = group.leader.status(Q).expect("it is there").counters;
    assert_eq!((group.live(), counters.dead_lettered, counters.dropped), (1, 1, 0));
}

#[test]
fn what_expires_and_what_overflows_leaves_with_its_reason() {
    let mut group = Group::new(Features {
        dead_letters: true,
        message_ttl_ms: Some(10),
        max_length: Some(2),
        ..Features::default()
    });
    group.publish(3);
    assert_eq!(group.left(), [(Q, 1..2, Outcome::Overflowed)]);
    group.pass(10);
    assert_eq!(group.left(), [(Q, 2..4, Outcome::Expired)]);
    assert_eq!(group.leader.status(Q).expect("it is there").leaving, 3);
}

#[test]
fn only_so_many_are_out_with_the_dead_letter_worker_and_all_come_again_when_it_does() {
    let mut group = Group::new(Features {
        dead_letters: true,
        message_ttl_ms: Some(10),
        ..Features::default()
    });
    let max = machine::limits::LEAVING_OUT_MAX;
    group.publish(max + 10);
    group.pass(10);
    let out = group.left();
    assert_eq!(out.iter().map(|(_, run, _)| run.end - run.start).sum::<u64>(), max);
    group.leader.leave_again(&mut group.effects);
    assert_eq!(group.left(), out);
    group.settle(Q, 77, 1..max + 1, Outcome::DeadLettered);
    assert_eq!(group.left(), [(Q, max + 1..max + 11, Outcome::Expired)]);
}

#[test]
fn a_deleted_queue_stays_until_its_dead_messages_are_stored() {
    let mut group = Group::new(Features { dead_letters: true, ..Features::default() });
    group.attach(1, credit(1)).expect("it is there");
    group.publish(3);
    group.settle(Q, 1, 1..2, Outcome::Rejected);
    let mut batch = Batch::new();
    batch.drop_queue(Q);
    group.apply(batch.clone());
    assert!(group.effects.contains(&Effect::Cancelled { queue: Q, consumer: who(1) }));
    assert_eq!((group.live(), group.leader.status(Q)), (1, None));
    assert_eq!(group.leader.queues().count(), 0);
    assert_eq!(group.attach(2, credit(1)), Err(AttachError::NoQueue));
    group.publish(1);
    assert_eq!((group.live(), group.leader.ignored()), (1, 1));
    group.effects.clear();
    group.fail_over();
    group.apply(batch);
    assert_eq!(group.left(), [(Q, 1..2, Outcome::Rejected)]);
    group.settle(Q, 77, 1..2, Outcome::DeadLettered);
    assert!(group.effects.contains(&Effect::Dropped { queue: Q }));
    assert_eq!(group.leader.stores().count(), 0);
    let retired = group.leader.retired();
    assert_eq!((retired.enqueued, retired.dead_lettered, retired.dropped), (3, 1, 2));
}
