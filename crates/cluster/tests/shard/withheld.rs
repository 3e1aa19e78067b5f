//! Purges that can be undone, of a queue that is kept by one node.

use cluster::{NotWithheld, WithheldCount, WithholdStep};

use super::*;

type Place = (QueueId, GroupId);

const UNDO_MS: u64 = 60_000;
const PURGE: WithholdStep = WithholdStep::Purge { undo_ms: UNDO_MS as u32 };

fn withhold(node: &mut Node, ticket: u64, (queue, group): Place, step: WithholdStep) {
    node.ask(ANN, Request::Withhold { ticket: Ticket(ticket), group, queue, step });
}

fn answer(node: &mut Node) -> Option<(u64, Result<u64, NotWithheld>)> {
    node.told(ANN).pop().map(|answer| match answer {
        Answer::Withheld { ticket, result } => {
            (ticket.0, result.map(|WithheldCount { count, .. }| count))
        }
        other => panic!("{other:?}"),
    })
}

fn got(node: &mut Node, place: Place) -> Vec<(String, bool)> {
    node.attach(BOB, place, credit(50));
    node.run_to_quiet();
    node.got(BOB)
        .iter()
        .map(|got| (bodies(std::slice::from_ref(got))[0].into(), got.again))
        .collect()
}

#[test]
fn a_purge_is_answered_once_it_is_logged_and_undone_after_a_power_cut() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b", "c"]);
    withhold(&mut node, 4, place, PURGE);
    assert_eq!(answer(&mut node), None);
    node.sync(usize::MAX);
    assert_eq!(answer(&mut node), Some((4, Ok(3))));
    let mut node = node.power_cut(1, 1);
    node.publish(ANN, place, &["d"]);
    assert_eq!(node.status(place).unwrap().ready, 1);
    withhold(&mut node, 5, place, WithholdStep::Undo);
    assert_eq!(answer(&mut node), None);
    node.sync(usize::MAX);
    assert_eq!(answer(&mut node), Some((5, Ok(3))));
    let expected = ["a", "b", "c", "d"].map(|body| (body.to_owned(), false));
    assert_eq!(got(&mut node, place), expected);
}

#[test]
fn what_is_withheld_is_kept_by_checkpoints_until_its_time_is_over() {
    for is_undone in [true, false] {
        let mut node = Node::new(1);
        let place = node.declare(ANN, "orders", Kind::default());
        node.publish(ANN, place, &["a", "b"]);
        withhold(&mut node, 4, place, PURGE);
        node.sync(usize::MAX);
        node.want_checkpoint(place.1);
        node.checkpoint();
        let mut node = node.power_cut(1, 1);
        if is_undone {
            withhold(&mut node, 5, place, WithholdStep::Undo);
            node.run_to_quiet();
            assert_eq!(got(&mut node, place).len(), 2);
        } else {
            node.pass(UNDO_MS + 100);
            node.run_to_quiet();
            node.told(ANN);
            withhold(&mut node, 5, place, WithholdStep::Undo);
            assert_eq!(answer(&mut node), Some((5, Ok(0))));
            assert_eq!(node.status(place).unwrap().counters.purged, 2);
        }
    }
}

#[test]
fn messages_in_memory_alone_are_withheld_and_come_back() {
    let mut node = Node::new(1);
    let kind = Kind { transient: true, ..Kind::default() };
    let place = node.declare(ANN, "memory", kind);
    node.publish(ANN, place, &["a", "b"]);
    withhold(&mut node, 4, place, PURGE);
    assert_eq!(answer(&mut node), Some((4, Ok(2))));
    withhold(&mut node, 5, place, WithholdStep::Undo);
    assert_eq!(answer(&mut node), Some((5, Ok(2))));
    assert_eq!(got(&mut node, place).len(), 2);
    let nowhere = (QueueId(999), place.1);
    withhold(&mut node, 6, nowhere, PURGE);
    assert_eq!(answer(&mut node), Some((6, Err(NotWithheld::NoQueue))));
}
