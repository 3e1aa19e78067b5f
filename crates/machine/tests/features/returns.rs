//! Messages that come back: counted, bounded, later.

use super::*;

fn counting(delivery_limit: Option<u32>) -> Features {
    Features { delivery_limit, counts_returns: true, ..Features::default() }
}

#[test]
fn a_message_that_comes_back_too_often_leaves_even_without_dead_letters() {
    let mut group = Group::new(counting(Some(1)));
    group.attach(1, credit(10)).expect("it is there");
    group.publish(1);
    group.settle(Q, 1, 1..2, Outcome::Requeue);
    let again = Effect::Deliver {
        queue: Q,
        consumer: who(1),
        first_seq: 1,
        count: 1,
        redelivered: true,
        no_ack: false,
        returns: 1,
        waits: false,
    };
    assert!(group.effects.contains(&again), "{:?}", group.effects);
    group.leader.end_session(SessionId(1), &mut group.effects);
    group.log();
    assert_eq!(group.left(), [(Q, 1..2, Outcome::Exhausted)]);
    assert_eq!(group.ready(), 0);
}

#[test]
fn returns_are_counted_across_a_change_of_leader() {
    let mut group = Group::new(counting(None));
    group.attach(1, credit(10)).expect("it is there");
    group.publish(2);
    group.settle(Q, 1, 1..2, Outcome::Requeue);
    group.settle(Q, 1, 1..2, Outcome::Requeue);
    group.fail_over();
    group.effects.clear();
    group.attach(2, credit(10)).expect("it is there");
    let returns: Vec<_> = group
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Deliver { first_seq, count, returns, .. } => {
                Some((range_of(*first_seq, *count), *returns))
            }
            _ => None,
        })
        .collect();
    assert_eq!(returns, [(1..2, 2), (2..3, 0)]);
}

#[test]
fn a_requeue_in_a_transaction_is_counted_and_delivered_again_once() {
    let mut group = Group::new(counting(Some(5)));
    group.attach(1, credit(10)).expect("it is there");
    group.publish(1);
    group.effects.clear();
    let ranges = Ranges::from(1..2);
    group.leader.settle_committed(Q, who(1), &ranges, Outcome::Requeue, &mut group.effects);
    let mut batch = Batch::new();
    batch.settle(Q, Outcome::Requeue, &ranges);
    group.apply(batch);
    assert_eq!(group.delivered(), [(1, 1..2)]);
    group.settle(Q, 1, 1..2, Outcome::Done);
    assert_eq!(group.live(), 0);
}

#[test]
fn a_retry_waits_longer_each_time_up_to_a_bound() {
    let retry = Some(Retry { failed: true, returned: false, min_ms: 100, max_ms: 150 });
    let mut group = Group::new(Features { retry, ..counting(None) });
    group.attach(1, credit(10)).expect("it is there");
    group.publish(1);
    for wait in [100, 150, 150] {
        group.effects.clear();
        group.settle(Q, 1, 1..2, Outcome::Requeue);
        group.pass(wait - 1);
        assert_eq!(group.delivered(), []);
        group.pass(1);
        assert_eq!(group.delivered(), [(1, 1..2)]);
    }
    // Who went did not fail.
    group.attach(2, credit(10)).expect("it is there");
    group.leader.end_session(SessionId(1), &mut group.effects);
    group.log();
    assert_eq!(group.delivered(), [(2, 1..2)]);
}

#[test]
fn a_return_that_is_logged_late_takes_nothing_from_who_holds_the_message() {
    let retry = Retry { failed: true, returned: true, min_ms: 10, max_ms: 100 };
    let mut group = Group::new(Features { retry: Some(retry), ..counting(None) });
    group.attach(1, credit(5)).expect("it is there");
    group.publish(1);
    assert_eq!(group.delivered(), [(1, 1..2)]);
    group.attach(2, credit(5)).expect("it is there");
    // An earlier leader was told of it, and could not log it.
    let mut batch = Batch::new();
    batch.settle(Q, Outcome::Returned, &Ranges::from(1..2));
    group.apply(batch);
    group.pass(1_000);
    assert_eq!(group.delivered(), []);
    group.leader.check();
    group.settle(Q, 1, 1..2, Outcome::Done);
    assert_eq!(group.live(), 0);
}

#[test]
fn what_comes_back_goes_out_before_what_is_behind_it() {
    let mut group = Group::new(counting(Some(9)));
    group.attach(1, credit(1)).expect("it is there");
    group.publish(2);
    group.effects.clear();
    let (ranges, what) = (Ranges::from(1..2), (Outcome::Requeue, 1));
    group.leader.settle_for_credit(Q, who(1), &ranges, what, &mut group.effects);
    group.log();
    assert_eq!(group.delivered(), [(1, 1..2)]);
    let what = (Outcome::Done, 1);
    group.leader.settle_for_credit(Q, who(1), &ranges, what, &mut group.effects);
    assert_eq!(group.delivered(), [(1, 2..3)]);
}
