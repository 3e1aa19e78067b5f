//! One consumer is paused: it keeps what it has and is given nothing, and others go on.

use machine::ConsumerChange;

use super::*;

fn pause(group: &mut Group, number: u64, is_paused: bool) {
    let change = ConsumerChange::Pause(is_paused);
    group.leader.change_consumer(Q, who(number), change, &mut group.effects);
    group.leader.check();
    group.log();
}

fn plain() -> Group {
    Group::new(Features::default())
}

#[test]
fn a_paused_consumer_is_given_nothing_and_others_get_its_share() {
    let mut group = plain();
    group.attach(1, credit(10)).unwrap();
    group.attach(2, credit(4)).unwrap();
    pause(&mut group, 1, true);
    group.publish(6);
    assert_eq!(group.delivered(), [(2, 1..5)]);
    assert_eq!(group.ready(), 2);
    pause(&mut group, 1, false);
    assert_eq!(group.delivered(), [(1, 5..7)]);
}

#[test]
fn what_it_holds_and_its_credit_stay() {
    let mut group = plain();
    group.attach(1, credit(2)).unwrap();
    group.publish(5);
    assert_eq!(group.delivered(), [(1, 1..3)]);
    pause(&mut group, 1, true);
    // What it settles gives it room, which it does not use.
    group.settle(Q, 1, 1..2, Outcome::Done);
    group.leader.credit(Q, who(1), 1, &mut group.effects);
    group.settle(Q, 1, 2..3, Outcome::Requeue);
    group.leader.credit(Q, who(1), 1, &mut group.effects);
    assert_eq!((group.delivered(), group.ready()), (Vec::new(), 4));
    pause(&mut group, 1, true);
    pause(&mut group, 1, false);
    assert_eq!(group.delivered(), [(1, 2..3), (1, 3..4)]);
}

#[test]
fn the_next_leader_knows_that_it_is_paused() {
    let mut group = plain();
    group.attach(1, credit(5)).unwrap();
    pause(&mut group, 1, true);
    let attached = group.leader.attachments();
    group.leader = QueueMachine::restore(&group.follower.snapshot()).expect("our own snapshot");
    group.leader.set_now(group.now);
    group.leader.lead();
    group.leader.join(|_| true, &attached, &mut group.effects);
    group.leader.start_dispatch(&mut group.effects);
    group.publish(2);
    assert_eq!((group.delivered(), group.ready()), (Vec::new(), 2));
    pause(&mut group, 1, false);
    assert_eq!(group.delivered(), [(1, 1..3)]);
}

#[test]
fn the_one_active_consumer_that_is_paused_is_not_passed_over() {
    let mut group = Group::new(Features { single_active: true, ..Features::default() });
    group.attach(1, credit(5)).unwrap();
    group.attach(2, credit(5)).unwrap();
    pause(&mut group, 1, true);
    group.publish(2);
    assert_eq!(group.delivered(), []);
    group.leader.end_session(SessionId(1), &mut group.effects);
    assert_eq!(group.delivered(), [(2, 1..3)], "the pause ends with the consumer");
}

#[test]
fn a_queue_that_is_full_has_no_room_for_what_a_paused_consumer_would_take() {
    let full =
        Features { max_length: Some(1), overflow: Overflow::RejectPublish, ..Features::default() };
    for single_active in [false, true] {
        let mut group = Group::new(Features { single_active, ..full.clone() });
        group.attach(1, credit(5)).unwrap();
        group.publish(1);
        pause(&mut group, 1, true);
        assert_eq!(group.leader.admit(Q, &[1, 1, 1]), [1, 2]);
    }
}
