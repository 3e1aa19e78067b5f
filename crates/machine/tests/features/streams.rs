//! Streams: what is kept, for how long, and where a reader begins.

use machine::{Retention, StreamOffset};

use super::*;

fn stream(retention: Retention) -> Group {
    Group::new(Features { stream: Some(retention), ..Features::default() })
}

fn kept(group: &Group) -> Range<u64> {
    let first = group.leader.seq_at(Q, StreamOffset::First).expect("a stream");
    first..group.leader.next_seq(Q).expect("a stream")
}

fn publish(group: &mut Group, count: u64, body: &[u8]) {
    let mut batch = Batch::new();
    (0..count).for_each(|_| batch.enqueue(&[Q], &[], body));
    group.apply(batch);
    group.log();
}

#[test]
fn nothing_that_a_client_says_takes_a_message_out_of_a_stream() {
    let mut group = stream(Retention::default());
    group.publish(10);
    for outcome in [
        Outcome::Done,
        Outcome::Rejected,
        Outcome::Purged,
        Outcome::Requeue,
        Outcome::DeadLettered,
        Outcome::Exhausted,
    ] {
        // As a transaction brings it.
        let mut batch = Batch::new();
        batch.settle(Q, outcome, &Ranges::from(1..11));
        group.apply(batch);
        group.settle(Q, 1, 1..11, outcome);
    }
    assert_eq!(group.leader.purge(Q), Some(0));
    assert_eq!(group.get(), None);
    assert_eq!(group.attach(1, credit(5)), Err(AttachError::NoQueue), "it is read elsewhere");
    group.log();
    assert_eq!((kept(&group), group.live(), group.ready()), (1..11, 10, 10));
}

#[test]
fn what_a_publisher_asks_of_a_message_does_not_make_it_go() {
    let mut group = stream(Retention::default());
    group.publish_with(Q, ttl(5), b"a");
    group.publish_with(Q, delay(50), b"b");
    group.publish_with(Q, Attributes { key: Some(7), ..Attributes::default() }, b"c");
    group.pass(1_000_000);
    assert_eq!((kept(&group), group.ready()), (1..4, 3));
}

#[test]
fn the_oldest_go_when_a_stream_has_more_bytes_than_it_keeps_and_never_more_of_them() {
    let body = [7; 1_000];
    let mut group = stream(Retention { max_bytes: Some(1_000_000), max_age_ms: None });
    for _ in 0..400 {
        publish(&mut group, 10, &body);
        let left = group.live() * body.len() as u64;
        let came = (kept(&group).end - 1) * body.len() as u64;
        assert!(left >= came.min(1_000_000), "{left} bytes are left of {came}");
        assert!(left <= 1_150_000, "{left} bytes are left");
        group.leader.check();
    }
    let before = kept(&group);
    group.fail_over();
    assert_eq!(kept(&group), before);
    publish(&mut group, 100, &body);
    assert!(kept(&group).start > before.start, "it goes on under the next leader");
}

#[test]
fn messages_go_when_they_are_too_old_and_no_earlier() {
    let mut group = stream(Retention { max_age_ms: Some(60_000), max_bytes: None });
    let mut came = Vec::new();
    for _ in 0..300 {
        publish(&mut group, 1, b"body");
        came.push(group.now);
        group.pass(700);
        let first = kept(&group).start;
        let too_early = came.iter().take(first as usize - 1).find(|ms| **ms + 60_000 > group.now);
        assert_eq!(too_early, None, "at {}", group.now);
        let late = came.iter().skip(first as usize - 1).filter(|ms| **ms + 64_000 < group.now);
        assert_eq!(late.count(), 0, "older ones are there at {}", group.now);
    }
    group.pass(70_000);
    assert_eq!((group.live(), kept(&group)), (0, 301..301), "all of an idle stream, too");
    publish(&mut group, 1, b"body");
    assert_eq!(kept(&group), 301..302, "numbers go on");
}

#[test]
fn a_change_of_retention_counts_at_once_and_a_stream_stays_one() {
    let mut group = stream(Retention::default());
    publish(&mut group, 1_000, &[7; 1_000]);
    publish(&mut group, 1_000, &[7; 1_000]);
    let retention = Retention { max_bytes: Some(500_000), max_age_ms: None };
    for (revision, stream) in [(1, None), (2, Some(retention))] {
        let features = Features { stream, max_length: Some(1), ..Features::default() };
        let settings = QueueSettings {
            is_durable: true,
            features: Some(features.into()),
            ..Default::default()
        };
        let mut batch = Batch::new();
        batch.set_settings(Q, revision, &settings);
        group.apply(batch);
        group.log();
        assert!(group.leader.is_stream(Q));
        assert_eq!(group.live() == 2_000, stream.is_none());
    }
    assert_eq!(kept(&group), 1_001..2_001);
}

#[test]
fn a_reader_begins_where_it_asks_or_with_the_next_that_is_kept() {
    let mut group = stream(Retention { max_bytes: Some(200_000), max_age_ms: None });
    publish(&mut group, 100, &[7; 1_000]);
    group.pass(5_000);
    let later = group.now;
    publish(&mut group, 100, &[7; 1_000]);
    group.pass(5_000);
    publish(&mut group, 50, &[7; 1_000]);
    let at = |group: &Group, offset| group.leader.seq_at(Q, offset).expect("a stream");
    for (offset, seq) in [
        (StreamOffset::First, 1),
        (StreamOffset::Last, 201),
        (StreamOffset::Next, 251),
        (StreamOffset::At(120), 120),
        (StreamOffset::At(0), 1),
        (StreamOffset::At(9_999), 9_999),
        (StreamOffset::Since(0), 1),
        (StreamOffset::Since(later), 101),
        (StreamOffset::Since(later + 1), 201),
        (StreamOffset::Since(u64::MAX), 251),
        (StreamOffset::Ago(5_000), 101),
        (StreamOffset::Ago(4_999), 201),
        (StreamOffset::Ago(u64::MAX), 1),
    ] {
        assert_eq!(at(&group, offset), seq, "{offset:?}");
    }
    publish(&mut group, 100, &[7; 1_000]);
    group.fail_over();
    let first = kept(&group).start;
    assert!(first > 1);
    for offset in [StreamOffset::First, StreamOffset::At(1), StreamOffset::Since(0)] {
        assert_eq!(at(&group, offset), first, "{offset:?}");
    }
    assert_eq!(at(&group, StreamOffset::Since(later)), first.max(101));
    assert_eq!(group.leader.seq_at(QueueId(9), StreamOffset::First), None);
}
