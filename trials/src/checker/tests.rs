//! Every promise broken once, and histories that look odd but are legal.

use super::*;
use crate::history::{Books, Event, Stage, What};

const MS: Nanos = 1_000_000;

fn at(t: Nanos, what: What) -> Event {
    Event { t, p: "test".into(), what }
}

fn publish(t: Nanos, k: Stage, m: &str, n: u32) -> Event {
    let inv = k == Stage::Inv;
    let q = if inv { vec!["q".into()] } else { vec![] };
    at(t, What::Pub { k, m: m.into(), n, q, h: inv.then_some(7), returned: false })
}

fn deliver(t: Nanos, m: &str, red: bool, ep: &str) -> Event {
    at(t, What::Dlv { q: "q".into(), m: m.into(), tag: 1, red, h: 7, ep: ep.into() })
}

fn ack(t: Nanos, m: &str, ep: &str) -> Event {
    at(t, What::Ack { q: "q".into(), m: m.into(), ep: ep.into() })
}

fn nack(t: Nanos, m: &str, ep: &str) -> Event {
    at(t, What::Nack { q: "q".into(), m: m.into(), ep: ep.into() })
}

fn open(t: Nanos, ep: &str) -> Event {
    at(t, What::Open { q: "q".into(), ep: ep.into() })
}

fn fault(kind: &str, t0: Nanos, t1: Nanos) -> Event {
    at(t1, What::Fault { kind: kind.into(), node: 1, t0, t1, sectors: 0 })
}

/// Ten messages, published, confirmed, delivered and acked 10 ms apart, a fault long after, a heal
/// with one more message, and a drain.
fn good() -> Vec<Event> {
    let mut events = vec![
        at(0, What::Queue { q: "q".into(), single: true, dead: None }),
        at(0, What::Load { on: true }),
        open(1, "c1"),
    ];
    for index in 0..10 {
        let (t, m) = (index * 10 * MS + 2, format!("a:{index}"));
        events.push(publish(t, Stage::Inv, &m, 0));
        events.push(publish(t + MS, Stage::Ok, &m, 0));
        events.push(deliver(t + 2 * MS, &m, false, "c1"));
        events.push(ack(t + 3 * MS, &m, "c1"));
    }
    events.push(fault("kill", 20_000 * MS, 20_100 * MS));
    events.push(open(20_150 * MS, "c2"));
    events.push(at(20_200 * MS, What::Heal));
    events.push(publish(20_300 * MS, Stage::Inv, "b:0", 0));
    events.push(publish(20_301 * MS, Stage::Ok, "b:0", 0));
    events.push(deliver(20_302 * MS, "b:0", false, "c2"));
    events.push(ack(20_303 * MS, "b:0", "c2"));
    events.push(at(20_400 * MS, What::Load { on: false }));
    events.push(at(30_000 * MS, What::Drained { q: "q".into(), node: 1, left: 0 }));
    events
}

fn rules() -> Rules {
    Rules { confirmed_min: 5, ..Rules::default() }
}

fn judge(events: Vec<Event>) -> Report {
    check(&History::of(events), &rules())
}

fn with(extra: impl IntoIterator<Item = Event>) -> Report {
    let mut events = good();
    events.extend(extra);
    judge(events)
}

fn without(unwanted: impl Fn(&Event) -> bool) -> Report {
    judge(good().into_iter().filter(|event| !unwanted(event)).collect())
}

fn is_delivery_of(event: &Event, id: &str) -> bool {
    matches!(&event.what, What::Dlv { m, .. } if m == id)
}

#[track_caller]
fn assert_breaks(report: &Report, promise: Promise) {
    assert_eq!(report.verdict(), Verdict::Invalid, "{report}");
    let broken: Vec<Promise> = report.violations().map(|(promise, _)| promise).collect();
    assert_eq!(broken, [promise], "{report}");
}

#[test]
fn a_good_history_is_valid() {
    let report = judge(good());
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert_eq!(report.counts.confirmed, 11);
    assert_eq!(report.counts.delivered, 11);
    assert!(report.counts.settled_for_good >= 10);
}

#[test]
fn a_confirmed_message_that_never_comes_is_lost() {
    assert_breaks(&without(|event| is_delivery_of(event, "a:4")), Promise::Lost);
}

#[test]
fn a_confirmed_message_missing_on_one_of_two_queues_is_lost() {
    let both = vec!["q".to_owned(), "r".to_owned()];
    let what =
        What::Pub { k: Stage::Inv, m: "f:0".into(), n: 0, q: both, h: Some(7), returned: false };
    let report = with([
        at(0, What::Queue { q: "r".into(), single: false, dead: None }),
        at(20_500 * MS, what),
        publish(20_501 * MS, Stage::Ok, "f:0", 0),
        deliver(20_502 * MS, "f:0", false, "c2"),
        at(30_001 * MS, What::Drained { q: "r".into(), node: 1, left: 0 }),
    ]);
    assert_eq!(report.broken(Promise::Lost).len(), 1, "{report}");
}

#[test]
fn a_message_nobody_published_is_unexpected() {
    assert_breaks(&with([deliver(500 * MS, "zz:1", false, "c1")]), Promise::Unexpected);
}

#[test]
fn a_message_on_a_queue_it_was_not_sent_to_is_unexpected() {
    let stray =
        What::Dlv { q: "r".into(), m: "a:1".into(), tag: 1, red: false, h: 7, ep: "c9".into() };
    assert_breaks(&with([at(500 * MS, stray)]), Promise::Unexpected);
}

#[test]
fn other_bytes_are_corrupt() {
    let mut events = good();
    for event in &mut events {
        match &mut event.what {
            What::Dlv { m, h, .. } if m == "a:3" => *h = 8,
            _ => {}
        }
    }
    assert_breaks(&judge(events), Promise::Corrupt);
}

#[test]
fn a_second_delivery_without_the_flag_is_a_violation() {
    let report = with([
        fault("kill", 32 * MS, 33 * MS),
        nack(42 * MS + 2 * MS + 5, "a:4", "c1"),
        deliver(42 * MS + 2 * MS + 9, "a:4", false, "c1"),
    ]);
    assert_eq!(report.broken(Promise::Unflagged).len(), 1, "{report}");
}

#[test]
fn an_unflagged_delivery_after_a_flagged_one_is_a_violation() {
    let report = with([
        publish(20_310 * MS, Stage::Inv, "b:1", 0),
        publish(20_311 * MS, Stage::Ok, "b:1", 0),
        deliver(20_312 * MS, "b:1", true, "c2"),
        nack(20_313 * MS, "b:1", "c2"),
        deliver(20_314 * MS, "b:1", false, "c2"),
    ]);
    assert_breaks(&report, Promise::Unflagged);
}

#[test]
fn a_late_note_of_a_consumer_whose_connection_went_is_legal() {
    let report = with([
        publish(20_010 * MS, Stage::Inv, "c:1", 0),
        publish(20_011 * MS, Stage::Ok, "c:1", 0),
        deliver(20_152 * MS, "c:1", true, "c2"),
        // It left the broker before the kill, and its consumer was slow to write it down.
        deliver(20_153 * MS, "c:1", false, "c1"),
        ack(20_154 * MS, "c:1", "c2"),
    ]);
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
}

#[test]
fn a_retried_publish_may_come_twice_without_a_flag() {
    let report = with([
        publish(20_010 * MS, Stage::Inv, "c:1", 0),
        publish(20_020 * MS, Stage::Info, "c:1", 0),
        publish(20_160 * MS, Stage::Inv, "c:1", 1),
        publish(20_161 * MS, Stage::Ok, "c:1", 1),
        deliver(20_162 * MS, "c:1", false, "c2"),
        deliver(20_163 * MS, "c:1", false, "c2"),
    ]);
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
}

#[test]
fn a_message_that_comes_back_long_after_its_ack_is_resurrected() {
    let report = with([deliver(20_200 * MS, "a:4", true, "c2")]);
    assert_breaks(&report, Promise::Resurrected);
}

#[test]
fn a_queue_is_stuck_only_once_it_goes_on_and_somebody_sends_to_it() {
    // Healed at 20.2 s; until the end of the load nothing came of `q` and nobody sent to `special`.
    let late = |more: Vec<Event>| {
        let is_late = |event: &Event| event.t > 20_200 * MS && event.t < 20_400 * MS;
        let mut events: Vec<Event> = good().into_iter().filter(|it| !is_late(it)).collect();
        events.push(publish(20_300 * MS, Stage::Inv, "b:0", 0));
        events.push(publish(20_301 * MS, Stage::Ok, "b:0", 0));
        events.push(deliver(50_000 * MS, "b:0", false, "c2"));
        events.push(ack(50_001 * MS, "b:0", "c2"));
        events.extend(more);
        judge(events)
    };
    let pause = |t, k, on| at(t * MS, What::Pause { k, q: "q".into(), on });
    let paused = |over| {
        let asked = [pause(20_100, Stage::Inv, true), pause(20_101, Stage::Ok, true)];
        let end = [pause(over, Stage::Inv, false), pause(over + 1, Stage::Ok, false)];
        asked.into_iter().chain(end).collect()
    };
    assert_breaks(&late(Vec::new()), Promise::Stuck);
    assert_breaks(&late(paused(21_000)), Promise::Stuck);
    assert!(late(paused(40_000)).broken(Promise::Stuck).is_empty());
}

#[test]
fn a_message_that_comes_back_by_an_election_of_its_own_queue_is_a_duplicate() {
    let back = |election| with([election, deliver(20_200 * MS, "a:4", true, "c2")]);
    let election = |q: &str, t0, t1| {
        at(t1 * MS, What::Election { q: vec![q.into()], t0: t0 * MS, t1: t1 * MS })
    };
    let report = back(election("q", 1_000, 2_000));
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert_breaks(&back(election("other", 1_000, 2_000)), Promise::Resurrected);
    assert_breaks(&back(election("q", 15_000, 16_000)), Promise::Resurrected);
}

#[test]
fn a_message_that_comes_back_when_its_ack_was_near_a_fault_is_a_duplicate() {
    let report = with([fault("kill", 200 * MS, 300 * MS), deliver(400 * MS, "a:4", true, "c1")]);
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert_eq!(report.counts.duplicates, 1);
}

#[test]
fn first_deliveries_out_of_order_are_a_violation() {
    let mut events = good();
    for event in &mut events {
        match &event.what {
            What::Dlv { m, .. } if m == "a:3" => event.t = 55 * MS,
            What::Ack { m, .. } if m == "a:3" => event.t = 56 * MS,
            _ => {}
        }
    }
    assert_breaks(&judge(events), Promise::Reordered);
}

#[test]
fn one_consumer_of_a_shared_queue_may_get_messages_out_of_order_only_where_the_rules_say_so() {
    const QUEUES: [&str; 2] = ["shared", "loose"];
    let mut events = good();
    for (queue, channel) in QUEUES.iter().zip(["s", "l"]) {
        let q = (*queue).to_owned();
        events.push(at(0, What::Queue { q: q.clone(), single: false, dead: None }));
        for (nth, seq) in [(0, 1), (1, 0)] {
            let (t, m) = ((20_310 + nth) * MS, format!("{channel}:{seq}"));
            let (k, q) = (Stage::Inv, vec![q.clone()]);
            let what = What::Pub { k, m: m.clone(), n: 0, q, h: Some(7), returned: false };
            events.push(at(t, what));
            events.push(publish(t + 1, Stage::Ok, &m, 0));
            let (q, ep) = ((*queue).to_owned(), format!("{queue}-1"));
            events.push(at(t + 2, What::Dlv { q, m, tag: 1, red: false, h: 7, ep }));
        }
        events.push(at(30_000 * MS, What::Drained { q, node: 1, left: 0 }));
    }
    let reordered = |unordered| {
        let report = check(&History::of(events.clone()), &Rules { unordered, ..rules() });
        report.broken(Promise::Reordered).to_vec()
    };
    assert_eq!(reordered(&[]).len(), QUEUES.len());
    let found = reordered(&["loose"]);
    assert!(found.len() == 1 && found[0].contains("on shared"), "{found:?}");
}

#[test]
fn the_old_place_of_a_returned_message_is_not_a_reordering() {
    let report = with([
        fault("kill", 100 * MS, 101 * MS),
        open(102 * MS, "c3"),
        deliver(103 * MS, "a:8", true, "c3"),
        deliver(104 * MS, "a:9", true, "c3"),
    ]);
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
}

#[test]
fn a_second_confirm_is_a_violation() {
    assert_breaks(&with([publish(600 * MS, Stage::Ok, "a:4", 0)]), Promise::Confirm);
    assert_breaks(&with([publish(600 * MS, Stage::Fail, "a:4", 0)]), Promise::Confirm);
}

#[test]
fn a_confirm_after_the_channel_closed_is_a_violation() {
    let report = with([at(20_300 * MS + 1, What::Closed { ch: "b".into() })]);
    assert_breaks(&report, Promise::Confirm);
}

#[test]
fn what_begins_and_is_confirmed_after_a_failed_sync_is_a_violation() {
    let silent = |t0, t1| at(t1, What::Silent { t0, t1 });
    assert_breaks(&with([silent(20_299 * MS, 20_400 * MS)]), Promise::Silence);
    // Begun before the failure: its sync may have been the one before.
    assert_eq!(with([silent(20_300 * MS + 1, 20_400 * MS)]).verdict(), Verdict::Valid);
}

#[test]
fn what_is_left_after_the_drain_is_a_violation() {
    let left = What::Drained { q: "q".into(), node: 1, left: 3 };
    assert_breaks(&with([at(31_000 * MS, left)]), Promise::NotEmpty);
}

#[test]
fn a_queue_silent_after_the_heal_is_stuck() {
    let report = without(
        |event| matches!(&event.what, What::Pub { m, .. } | What::Dlv { m, .. } | What::Ack { m, .. } if m == "b:0"),
    );
    assert_breaks(&report, Promise::Stuck);
    assert_eq!(report.broken(Promise::Stuck).len(), 2);
}

#[test]
fn what_the_protocol_forbids_is_a_violation() {
    let report = with([at(1, What::Protocol { text: "a confirm for tag 9".into() })]);
    assert_breaks(&report, Promise::Protocol);
}

#[test]
fn an_unknown_outcome_that_is_never_seen_is_legal() {
    let report =
        with([publish(900 * MS, Stage::Inv, "c:0", 0), publish(950 * MS, Stage::Info, "c:0", 0)]);
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert_eq!((report.counts.unknown, report.counts.recovered), (1, 0));
}

#[test]
fn an_unknown_outcome_that_is_delivered_was_recovered() {
    let report = with([
        publish(900 * MS, Stage::Inv, "c:0", 0),
        publish(950 * MS, Stage::Info, "c:0", 0),
        deliver(990 * MS, "c:0", false, "c1"),
    ]);
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert_eq!((report.counts.unknown, report.counts.recovered), (1, 1));
}

#[test]
fn a_refused_publish_may_be_absent() {
    let report =
        with([publish(900 * MS, Stage::Inv, "c:0", 0), publish(950 * MS, Stage::Fail, "c:0", 0)]);
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert_eq!(report.counts.refused, 1);
}

#[test]
fn a_dead_lettered_message_is_not_lost() {
    let dead =
        What::Dlv { q: "dlq".into(), m: "d:0".into(), tag: 1, red: false, h: 7, ep: "c5".into() };
    let report = with([
        at(0, What::Queue { q: "dlq".into(), single: false, dead: None }),
        at(0, What::Queue { q: "q".into(), single: true, dead: Some("dlq".into()) }),
        publish(20_310 * MS, Stage::Inv, "d:0", 0),
        publish(20_311 * MS, Stage::Ok, "d:0", 0),
        at(20_312 * MS, dead),
        at(30_001 * MS, What::Drained { q: "dlq".into(), node: 1, left: 0 }),
    ]);
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
}

#[test]
fn a_run_without_faults_heal_or_drain_proves_nothing() {
    for report in [
        without(|event| matches!(event.what, What::Fault { .. })),
        without(|event| matches!(event.what, What::Drained { .. })),
        without(|event| matches!(event.what, What::Heal)),
        check(&History::of(good()), &Rules::default()),
        check(&History::of(good()), &Rules { sectors_min: 1, ..rules() }),
    ] {
        assert_eq!(report.verdict(), Verdict::Unknown, "{report}");
    }
}

#[test]
fn a_lost_connection_is_not_the_fault_that_a_run_needs() {
    let mut events = good();
    events.retain(|event| !matches!(event.what, What::Fault { .. }));
    events.push(fault("disconnect", 20_000 * MS, 20_000 * MS));
    assert_eq!(judge(events).verdict(), Verdict::Unknown);
}

#[test]
fn a_missing_message_on_a_queue_that_was_not_drained_is_unknown_not_lost() {
    let report =
        without(|event| is_delivery_of(event, "a:4") || matches!(event.what, What::Drained { .. }));
    assert_eq!(report.verdict(), Verdict::Unknown, "{report}");
}

#[test]
fn the_longest_gap_around_a_fault_and_in_quiet_are_told_apart() {
    let report = judge(good());
    assert_eq!(report.counts.gap_in_fault, 20_301 * MS - (91 * MS + 2));
    assert_eq!(report.counts.gap_in_quiet, 99 * MS);
}

#[test]
fn a_connection_to_a_node_that_was_spared_may_not_break() {
    let broke = |t: Nanos, node: u32| {
        let mut events = good();
        events.push(at(t * MS, What::Broke { node }));
        check(&History::of(events), &rules())
    };
    // Node 1 is killed from 20.0 s to 20.1 s.
    assert_eq!(broke(20_050, 2).broken(Promise::Spared).len(), 1);
    assert_eq!(broke(20_050, 1).verdict(), Verdict::Valid, "its own clients are cut off");
    assert_eq!(broke(19_000, 2).verdict(), Verdict::Valid, "nothing had happened");
    let mut several = good();
    several.push(at(20_050 * MS, What::Broke { node: 2 }));
    several.push(at(
        20_060 * MS,
        What::Fault { kind: "all".into(), node: 0, t0: 20_000 * MS, t1: 20_060 * MS, sectors: 0 },
    ));
    assert_eq!(check(&History::of(several), &rules()).verdict(), Verdict::Valid);
}

/// Message a:4 is confirmed 41 ms after the start; nobody gets it but by what is `extra`.
fn without_its_delivery(extra: impl IntoIterator<Item = Event>) -> Report {
    let is_its = |event: &Event| {
        is_delivery_of(event, "a:4") || matches!(&event.what, What::Ack { m, .. } if m == "a:4")
    };
    judge(good().into_iter().filter(|event| !is_its(event)).chain(extra).collect())
}

fn purge(t: Nanos, k: Stage) -> Event {
    at(t, What::Purge { k, q: "q".into(), n: u64::from(k == Stage::Ok) })
}

#[test]
fn what_began_before_a_purge_was_over_may_be_gone_and_what_began_later_may_not() {
    let purged = |asked, k| without_its_delivery([purge(asked, Stage::Inv), purge(asked + MS, k)]);
    let valid = |report: Report| assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    valid(purged(45 * MS, Stage::Ok));
    // It may have come in between the question and the answer.
    valid(purged(40 * MS, Stage::Ok));
    assert_breaks(&purged(30 * MS, Stage::Ok), Promise::Lost);
    // Nobody knows when it was carried out.
    valid(purged(30 * MS, Stage::Info));
}

#[test]
fn what_was_purged_does_not_come_to_a_consumer_that_began_later() {
    let late = |red, opened| {
        let events = [purge(45 * MS, Stage::Inv), purge(46 * MS, Stage::Ok), open(opened, "c3")];
        let later = [deliver(50 * MS, "a:4", red, "c3"), ack(51 * MS, "a:4", "c3")];
        without_its_delivery(events.into_iter().chain(later))
    };
    let purged = |report: &Report| report.broken(Promise::Purged).len();
    assert_eq!(purged(&late(false, 47 * MS)), 1);
    assert_eq!(purged(&late(true, 47 * MS)), 0, "somebody held it");
    assert_eq!(purged(&late(false, 44 * MS)), 0, "it was on its way");
}

/// Consumer c3 gets a:4 and publishes x:0 to `r` for it.
fn moved(outcome: Stage, more: impl IntoIterator<Item = Event>) -> Report {
    let (x, pubs, acks) = ("tx".to_owned(), vec!["x:0".to_owned()], vec!["a:4".to_owned()]);
    let (ep, q) = ("c3".to_owned(), vec!["r".to_owned()]);
    let k = Stage::Inv;
    let begun = [
        at(0, What::Queue { q: "r".into(), single: false, dead: None }),
        open(40 * MS, "c3"),
        deliver(43 * MS, "a:4", false, "c3"),
        ack(50 * MS, "a:4", "c3"),
        at(50 * MS, What::Pub { k, m: "x:0".into(), n: 0, q, h: Some(7), returned: false }),
        at(50 * MS, What::Tx { k, x: x.clone(), ep, acks, pubs, whole: true }),
        publish(60 * MS, outcome, "x:0", 0),
    ];
    let (ep, acks, pubs) = (String::new(), Vec::new(), Vec::new());
    let end = at(60 * MS, What::Tx { k: outcome, x, ep, acks, pubs, whole: false });
    let drained = at(30_001 * MS, What::Drained { q: "r".into(), node: 1, left: 0 });
    without_its_delivery(begun.into_iter().chain([end, drained]).chain(more))
}

#[test]
fn what_a_transaction_without_an_answer_acknowledged_may_come_back() {
    let back = deliver(80 * MS, "a:4", true, "c2");
    let resurrected = |outcome| moved(outcome, [back.clone()]).broken(Promise::Resurrected).len();
    assert_eq!(resurrected(Stage::Info), 0, "its channel was closed before the answer");
    assert_eq!(resurrected(Stage::Ok), 1);
}

fn comes(t: Nanos) -> Event {
    at(t, What::Dlv { q: "r".into(), m: "x:0".into(), tag: 1, red: false, h: 7, ep: "c4".into() })
}

#[test]
fn a_transaction_whose_outcome_is_unknown_happened_whole_or_not_at_all() {
    let half = |report: &Report| report.broken(Promise::Half).len();
    assert_eq!(half(&moved(Stage::Info, [])), 1);
    assert_eq!(half(&moved(Stage::Info, [comes(70 * MS)])), 0, "it happened");
    assert_eq!(half(&moved(Stage::Info, [ack(44 * MS, "a:4", "c1")])), 0, "another settled it");
    let back = deliver(80 * MS, "a:4", true, "c2");
    assert_eq!(half(&moved(Stage::Info, [back])), 0, "it did not");
}

#[test]
fn what_a_committed_transaction_acknowledged_does_not_come_to_a_consumer_that_began_later() {
    let undone = |report: &Report| report.broken(Promise::Undone).len();
    let back = || deliver(90 * MS, "a:4", true, "c5");
    assert_eq!(undone(&moved(Stage::Ok, [comes(70 * MS)])), 0);
    assert_eq!(undone(&moved(Stage::Ok, [comes(70 * MS), open(80 * MS, "c5"), back()])), 1);
    assert_eq!(undone(&moved(Stage::Ok, [comes(70 * MS), open(55 * MS, "c5"), back()])), 0);
    assert_eq!(undone(&moved(Stage::Info, [open(80 * MS, "c5"), back()])), 0);
}

#[test]
fn no_more_was_purged_by_answers_than_the_queue_counted() {
    let books = |purged| Books { enqueued: 11, settled: 11 - purged, purged, ..Books::default() };
    let counted = |purged, k| {
        let books = at(30_002 * MS, What::Books { q: "q".into(), books: books(purged) });
        without_its_delivery([purge(45 * MS, Stage::Inv), purge(46 * MS, k), books])
    };
    let wrong = |report: &Report| report.broken(Promise::Books).len();
    assert_eq!(wrong(&counted(1, Stage::Ok)), 0);
    assert_eq!(wrong(&counted(2, Stage::Ok)), 0, "it was asked for twice");
    assert_eq!(wrong(&counted(0, Stage::Ok)), 1);
    assert_eq!(wrong(&counted(2, Stage::Info)), 0);
}
