//! What a rescue may lose, and everything that it may not.

use crate::checker::{Promise, Report, Rules, Verdict, check};
use crate::history::{Event, History, Nanos, Stage, What};

const MS: Nanos = 1_000_000;
/// All that was confirmed before is on the disk that the queue goes on with.
const SINCE: Nanos = 1_000 * MS;
const DONE: Nanos = 2_000 * MS;

fn at(t: Nanos, what: What) -> Event {
    Event { t, p: "test".into(), what }
}

fn publish(t: Nanos, m: &str) -> [Event; 2] {
    let stage = |k: Stage, t: Nanos| {
        let q = if k == Stage::Inv { vec!["q".into()] } else { vec![] };
        let h = (k == Stage::Inv).then_some(7);
        at(t, What::Pub { k, m: m.into(), n: 0, q, h, returned: false })
    };
    [stage(Stage::Inv, t), stage(Stage::Ok, t + MS)]
}

fn deliver(t: Nanos, m: &str, red: bool, ep: &str) -> [Event; 2] {
    let (q, m, ep): (String, String, String) = ("q".into(), m.into(), ep.into());
    let what = What::Dlv { q: q.clone(), m: m.clone(), tag: 1, red, h: 7, ep: ep.clone() };
    [at(t, what), at(t + MS, What::Ack { q, m, ep })]
}

fn open(t: Nanos, ep: &str) -> Event {
    at(t, What::Open { q: "q".into(), ep: ep.into() })
}

/// One message long before the rescue, one after it, and `more`.
fn judge(rescue: Option<bool>, more: &[&[Event]]) -> Report {
    let mut events = vec![at(0, What::Queue { q: "q".into(), single: true, dead: None })];
    events.extend(publish(MS, "old:0"));
    let fault = What::Fault { kind: "two-lost".into(), node: 0, t0: SINCE, t1: DONE, sectors: 0 };
    events.extend([at(DONE, fault), at(DONE, What::Heal), open(DONE + MS, "after")]);
    if let Some(empty) = rescue {
        events.push(at(DONE, What::Rescued { q: "q".into(), since: SINCE, empty }));
    }
    events.extend(publish(DONE + 10 * MS, "new:0"));
    events.extend(deliver(DONE + 12 * MS, "new:0", false, "after"));
    if rescue != Some(true) {
        events.extend(deliver(DONE + 14 * MS, "old:0", false, "after"));
    }
    more.iter().for_each(|more| events.extend_from_slice(more));
    events.push(at(DONE + 1_000 * MS, What::Drained { q: "q".into(), node: 1, left: 0 }));
    check(&History::of(events), &Rules { confirmed_min: 1, ..Rules::default() })
}

#[test]
fn the_end_of_a_log_may_be_lost_by_a_rescue_and_is_counted() {
    let (first, second) = (publish(SINCE + MS, "x:0"), publish(SINCE + 2 * MS, "x:1"));
    let kept = deliver(DONE + 20 * MS, "x:0", false, "after");
    let report = judge(Some(false), &[&first, &second, &kept]);
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert_eq!(report.counts.lost_by_rescue, 1);
    assert_eq!(judge(None, &[&first, &second, &kept]).broken(Promise::Lost).len(), 1);
}

#[test]
fn what_is_older_than_something_that_was_kept_may_not_be_lost() {
    let (first, second) = (publish(SINCE + MS, "x:0"), publish(SINCE + 2 * MS, "x:1"));
    let kept = deliver(DONE + 20 * MS, "x:1", false, "after");
    let report = judge(Some(false), &[&first, &second, &kept]);
    assert_eq!(report.broken(Promise::Lost).len(), 1, "{report}");
}

#[test]
fn what_every_replica_had_and_what_came_afterwards_may_not_be_lost() {
    for t in [SINCE - 2 * MS, DONE + 30 * MS] {
        let report = judge(Some(false), &[&publish(t, "x:0")]);
        assert_eq!(report.broken(Promise::Lost).len(), 1, "{report}");
    }
}

#[test]
fn a_queue_of_which_nobody_has_anything_is_empty_and_nothing_comes_back_to_it() {
    let report = judge(Some(true), &[]);
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert_eq!(report.counts.lost_by_rescue, 1);
    let back = deliver(DONE + 20 * MS, "old:0", false, "after");
    assert_eq!(judge(Some(true), &[&back]).broken(Promise::Unexpected).len(), 1);
    let new = publish(DONE + 30 * MS, "x:0");
    assert_eq!(judge(Some(true), &[&new]).broken(Promise::Lost).len(), 1);
}

#[test]
fn only_the_marks_of_late_deliveries_may_be_forgotten() {
    let again = deliver(DONE + 20 * MS, "x:0", false, "after");
    let unflagged = |t: Nanos| {
        let (message, first) = (publish(t, "x:0"), deliver(t + 2 * MS, "x:0", false, "before"));
        let report = judge(Some(false), &[&message, &[open(t, "before")], &first, &again]);
        report.broken(Promise::Unflagged).len()
    };
    assert_eq!(unflagged(SINCE + MS), 0);
    assert_eq!(unflagged(SINCE - 10 * MS), 1);
}
