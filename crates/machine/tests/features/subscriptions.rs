//! Subscriptions: queues that read a stream, each for itself.

use machine::{Retention, StreamOffset, Subscription};

use super::*;

const S: QueueId = QueueId(2);
const T: QueueId = QueueId(3);

fn reading(start: StreamOffset) -> Subscription {
    Subscription { stream: Q, start, skips: false, seeks: 0 }
}

fn settings(subscription: Subscription, features: Features) -> QueueSettings {
    let features = Features { subscription: Some(subscription), ..features };
    QueueSettings { is_durable: true, features: Some(Box::new(features)), ..Default::default() }
}

/// A stream with these bounds, and so many messages in it.
fn stream(retention: Retention, count: u64) -> Group {
    let mut group = Group::new(Features { stream: Some(retention), ..Features::default() });
    group.publish(count);
    group
}

fn subscribe(group: &mut Group, queue: QueueId, subscription: Subscription, features: Features) {
    let mut batch = Batch::new();
    batch.create_queue(queue, &settings(subscription, features));
    batch.keep_marks(queue);
    group.apply(batch);
    group.log();
}

fn attach(group: &mut Group, queue: QueueId, number: u64, count: u32) {
    group.leader.attach(queue, who(number), credit(count), &mut group.effects).expect("attached");
    group.log();
}

/// Messages of a queue that went out: the level, which, and whether flagged.
fn given(group: &mut Group, queue: QueueId) -> Vec<(u8, Range<u64>, bool)> {
    let all = group.effects.drain(..);
    all.filter_map(|effect| match effect {
        Effect::Deliver { queue: level, first_seq, count, redelivered, .. }
            if level.base() == queue =>
        {
            Some((level.priority(), range_of(first_seq, count), redelivered))
        }
        _ => None,
    })
    .collect()
}

fn seek(group: &mut Group, queue: QueueId, to: StreamOffset, seeks: u32) {
    let mut batch = Batch::new();
    let subscription = Subscription { start: to, seeks, ..reading(to) };
    batch.set_settings(queue, u64::from(seeks), &settings(subscription, Features::default()));
    group.apply(batch);
    group.log();
}

fn ready(group: &Group, queue: QueueId) -> u64 {
    group.leader.status(queue).expect("the queue exists").ready
}

fn kept_from(group: &Group) -> u64 {
    group.leader.seq_at(Q, StreamOffset::First).expect("a stream")
}

fn bounded(max_bytes: u64) -> Retention {
    Retention { max_bytes: Some(max_bytes), max_age_ms: None }
}

#[test]
fn each_subscription_reads_all_of_the_stream_from_its_beginning_and_takes_nothing_out_of_it() {
    let mut group = stream(Retention::default(), 10);
    subscribe(&mut group, S, reading(StreamOffset::First), Features::default());
    subscribe(&mut group, T, reading(StreamOffset::Next), Features::default());
    assert_eq!((ready(&group, S), ready(&group, T)), (10, 0));
    group.publish(5);
    assert_eq!((ready(&group, S), ready(&group, T)), (15, 5));
    attach(&mut group, S, 1, 100);
    assert_eq!(given(&mut group, S), [(0, 1..16, false)]);
    group.settle(S, 1, 1..16, Outcome::Done);
    attach(&mut group, T, 2, 100);
    assert_eq!(given(&mut group, T), [(0, 11..16, false)]);
    assert_eq!(group.live(), 15, "all is in the stream still");
    let counters = |queue| group.leader.status(queue).expect("it is there").counters;
    assert_eq!((counters(S).enqueued, counters(S).settled), (15, 15));
    assert_eq!((counters(T).enqueued, counters(T).settled), (5, 0));
    group.publish(1);
    assert_eq!(given(&mut group, S), [(0, 16..17, false)], "what comes is given to who waits");
    group.leader.check();
}

#[test]
fn a_new_leader_goes_on_where_the_log_says_and_flags_only_what_may_have_been_seen() {
    let mut group = stream(Retention::default(), 100);
    subscribe(&mut group, S, reading(StreamOffset::At(11)), Features::default());
    attach(&mut group, S, 1, 20);
    assert_eq!(given(&mut group, S), [(0, 11..31, false)]);
    group.settle(S, 1, 11..21, Outcome::Done);
    group.fail_over();
    group.effects.clear();
    attach(&mut group, S, 2, 1_000);
    let all = given(&mut group, S);
    assert_eq!(all.first().map(|(_, range, _)| range.start), Some(21), "{all:?}");
    let flagged = all.iter().filter(|(_, _, flagged)| *flagged).map(|(_, it, _)| it.end).max();
    assert!((31..61).contains(&flagged.expect("some were out")), "{all:?}");
    group.leader.check();
}

#[test]
fn what_comes_back_or_dies_is_the_matter_of_one_subscription() {
    let mut group = stream(Retention::default(), 4);
    let features = Features {
        counts_returns: true,
        delivery_limit: Some(1),
        dead_letters: true,
        ..Features::default()
    };
    subscribe(&mut group, S, reading(StreamOffset::First), features);
    subscribe(&mut group, T, reading(StreamOffset::First), Features::default());
    attach(&mut group, S, 1, 1);
    for _ in 0..2 {
        group.settle(S, 1, 1..2, Outcome::Requeue);
        group.leader.credit(S, who(1), 1, &mut group.effects);
        group.log();
    }
    assert_eq!(group.left(), [(S, 1..2, Outcome::Exhausted)]);
    let other = group.leader.status(T).expect("it is there");
    assert_eq!((other.ready, other.leaving), (4, 0));
    group.fail_over();
    assert_eq!(group.left(), [(S, 1..2, Outcome::Exhausted)], "the next leader knows of it");
    group.settle(S, 9, 1..2, Outcome::DeadLettered);
    let status = group.leader.status(S).expect("it is there");
    assert_eq!((status.leaving, status.counters.dead_lettered, group.live()), (0, 1, 4));
}

#[test]
fn retention_stops_at_the_slowest_subscription_and_goes_on_behind_it() {
    let mut group = stream(bounded(2_000), 0);
    subscribe(&mut group, S, reading(StreamOffset::First), Features::default());
    subscribe(&mut group, T, reading(StreamOffset::First), Features::default());
    for _ in 0..100 {
        group.publish(10);
        group.pass(1_000);
    }
    assert_eq!(kept_from(&group), 1, "nobody has read anything");
    attach(&mut group, S, 1, 1_000);
    group.settle(S, 1, 1..1_001, Outcome::Done);
    group.pass(1_000);
    assert_eq!(kept_from(&group), 1, "one has read nothing");
    attach(&mut group, T, 2, 1_000);
    group.settle(T, 2, 5..1_001, Outcome::Done);
    group.pass(1_000);
    assert_eq!(kept_from(&group), 1, "four are out with somebody");
    group.fail_over();
    group.pass(1_000);
    assert_eq!(kept_from(&group), 1, "also for the next leader");
    attach(&mut group, T, 3, 1_000);
    group.settle(T, 3, 1..5, Outcome::Done);
    group.pass(1_000);
    assert!(kept_from(&group) > 500, "all is read: {}", kept_from(&group));
    group.leader.check();
}

#[test]
fn who_would_rather_have_a_gap_holds_nothing_and_its_books_say_what_it_missed() {
    let mut group = stream(bounded(2_000), 0);
    let skips = Subscription { skips: true, ..reading(StreamOffset::First) };
    subscribe(&mut group, S, skips, Features::default());
    attach(&mut group, S, 1, 3);
    for _ in 0..100 {
        group.publish(10);
        group.pass(1_000);
    }
    let from = kept_from(&group);
    assert!(from > 500, "{from}");
    let status = group.leader.status(S).expect("it is there");
    assert_eq!(status.counters.dropped, from - 1, "three that were out with it among them");
    assert_eq!(status.ready, 1_000 - (from - 1));
    group.settle(S, 1, 1..4, Outcome::Done);
    assert_eq!(group.leader.status(S).expect("it is there").counters.settled, 0);
    group.leader.check();
}

#[test]
fn a_subscription_that_is_set_back_gets_all_again_and_old_answers_settle_nothing() {
    let mut group = stream(Retention::default(), 20);
    subscribe(&mut group, S, reading(StreamOffset::First), Features::default());
    attach(&mut group, S, 1, 10);
    assert_eq!(given(&mut group, S), [(0, 1..11, false)]);
    group.settle(S, 1, 1..6, Outcome::Done);
    seek(&mut group, S, StreamOffset::At(3), 1);
    assert_eq!(ready(&group, S), 18, "five are out with somebody, and ready again");
    // What it was given before is no answer for what it is to be given.
    group.settle(S, 1, 6..11, Outcome::Done);
    assert_eq!(ready(&group, S), 18);
    group.leader.credit(S, who(1), 5, &mut group.effects);
    group.log();
    assert_eq!(given(&mut group, S), [(1, 3..8, true)], "it may have seen them");
    let level = S.level(1);
    group.settle(level, 1, 3..8, Outcome::Done);
    let counters = group.leader.status(S).expect("it is there").counters;
    assert_eq!((counters.settled, counters.enqueued), (10, 23), "three were replayed");
    group.fail_over();
    assert_eq!(ready(&group, S), 13);
    group.leader.check();
}

#[test]
fn a_subscription_that_is_set_forward_passes_over_what_lies_between() {
    let mut group = stream(bounded(2_000), 0);
    subscribe(&mut group, S, reading(StreamOffset::First), Features::default());
    for _ in 0..100 {
        group.publish(10);
        group.pass(1_000);
    }
    assert_eq!(kept_from(&group), 1);
    attach(&mut group, S, 1, 2);
    seek(&mut group, S, StreamOffset::At(991), 1);
    assert_eq!(ready(&group, S), 10);
    group.pass(1_000);
    let from = kept_from(&group);
    assert!(from > 400, "nobody holds what it passed over: {from}");
    seek(&mut group, S, StreamOffset::At(1), 1);
    assert_eq!(ready(&group, S), 10, "the same change twice is one");
    seek(&mut group, S, StreamOffset::Next, 2);
    assert_eq!(ready(&group, S), 0);
    seek(&mut group, S, StreamOffset::First, 3);
    assert_eq!(ready(&group, S), 1_001 - from, "what is gone is gone");
    group.leader.check();
}

#[test]
fn what_an_old_leader_settled_before_a_seek_does_not_settle_what_is_replayed() {
    let mut group = stream(Retention::default(), 10);
    subscribe(&mut group, S, reading(StreamOffset::First), Features::default());
    attach(&mut group, S, 1, 10);
    let ranges = Ranges::from(1..11);
    group.leader.settle(S, who(1), &ranges, Outcome::Done, &mut group.effects);
    let mut late = Batch::new();
    late.settle(S, Outcome::Done, &ranges);
    seek(&mut group, S, StreamOffset::First, 1);
    group.apply(late);
    group.log();
    assert_eq!(ready(&group, S), 10);
}

#[test]
fn a_stream_that_goes_takes_its_subscriptions_along() {
    let mut group = stream(Retention::default(), 10);
    subscribe(&mut group, S, reading(StreamOffset::First), Features::default());
    subscribe(&mut group, T, reading(StreamOffset::First), Features::default());
    attach(&mut group, S, 1, 1);
    let mut batch = Batch::new();
    batch.drop_queue(T);
    group.apply(batch);
    assert_eq!(group.live(), 10, "the stream stays when a subscription goes");
    group.effects.clear();
    let mut batch = Batch::new();
    batch.drop_queue(Q);
    group.apply(batch);
    let cancelled = Effect::Cancelled { queue: S, consumer: who(1) };
    assert!(group.effects.contains(&cancelled), "{:?}", group.effects);
    assert!(group.leader.status(S).is_none() && group.leader.queues().next().is_none());
}

#[test]
fn a_subscription_of_nothing_is_none_and_takes_no_message() {
    let mut group = stream(Retention::default(), 1);
    let of_nothing = Subscription { stream: T, ..reading(StreamOffset::First) };
    subscribe(&mut group, S, of_nothing, Features::default());
    assert!(group.leader.status(S).is_none());
    subscribe(&mut group, S, reading(StreamOffset::First), Features::default());
    let mut batch = Batch::new();
    batch.enqueue(&[S], &[], b"body");
    group.apply(batch);
    assert_eq!((ready(&group, S), group.leader.ignored()), (1, 1));
}
