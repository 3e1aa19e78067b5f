//! Purges that can be undone: by whoever asks whichever node, though leaders die in between.

use cluster::{NotWithheld, WithheldCount, WithholdStep};
use machine::Version;

use super::*;

const PURGE: WithholdStep = WithholdStep::Purge { undo_ms: 60_000 };
const UNDO: WithholdStep = WithholdStep::Undo;

fn ask(
    cluster: &mut Cluster,
    by: SessionId,
    ticket: u64,
    (queue, group): (QueueId, GroupId),
    step: WithholdStep,
) {
    cluster.ask(by, Request::Withhold { ticket: Ticket(ticket), group, queue, step });
}

fn answers(cluster: &mut Cluster, by: SessionId) -> Vec<(u64, Result<u64, NotWithheld>)> {
    let told = cluster.told(by).into_iter();
    told.filter_map(|answer| match answer {
        Answer::Withheld { ticket, result } => {
            Some((ticket.0, result.map(|WithheldCount { count, .. }| count)))
        }
        _ => None,
    })
    .collect()
}

fn numbers(cluster: &mut Cluster, by: SessionId, place: (QueueId, GroupId)) -> Vec<u64> {
    attach(cluster, by, place, 100);
    cluster.run(200);
    delivered(cluster, by).into_iter().map(|(_, seq, _)| seq).collect()
}

/// A durable queue with so many messages, and a session of a node that does not lead it.
fn queue_elsewhere(cluster: &mut Cluster, count: u64) -> ((QueueId, GroupId), SessionId) {
    let place = cluster.declare(session(NodeId(1)), "orders", (true, false));
    let by = outsider(cluster, place.1);
    publish(cluster, by, place, count);
    cluster.told(by);
    (place, by)
}

#[test]
fn a_purge_is_undone_by_the_next_leader() {
    let mut cluster = Cluster::new(3, 1);
    let (place, _) = queue_elsewhere(&mut cluster, 3);
    let leader = cluster.leader(place.1);
    let by = session(NodeId(leader.0 % 3 + 1));
    ask(&mut cluster, by, 1, place, PURGE);
    cluster.run(100);
    assert_eq!(answers(&mut cluster, by), [(1, Ok(3))]);
    depose(&mut cluster, place.1);
    publish(&mut cluster, by, place, 2);
    assert_eq!(ready(&mut cluster, by, place), 2);
    ask(&mut cluster, by, 2, place, UNDO);
    cluster.run(100);
    assert_eq!(answers(&mut cluster, by), [(2, Ok(3))]);
    assert_eq!(numbers(&mut cluster, by, place), [1, 2, 3, 4, 5]);
}

#[test]
fn a_purge_whose_leader_dies_before_it_answers_is_done_once() {
    // The leader is cut off at another moment each time.
    for ms in 0..12 {
        let mut cluster = Cluster::new(3, 1);
        let (place, by) = queue_elsewhere(&mut cluster, 3);
        ask(&mut cluster, by, 1, place, PURGE);
        cluster.run(ms);
        let told = answers(&mut cluster, by);
        depose(&mut cluster, place.1);
        let told = [told, answers(&mut cluster, by)].concat();
        assert_eq!(told, [(1, Ok(3))], "cut off after {ms} ms");
        publish(&mut cluster, by, place, 2);
        heal_all(&mut cluster);
        assert_eq!(ready(&mut cluster, by, place), 2, "cut off after {ms} ms");
        ask(&mut cluster, by, 2, place, UNDO);
        cluster.run(100);
        assert_eq!(answers(&mut cluster, by), [(2, Ok(3))]);
        assert_eq!(numbers(&mut cluster, by, place), [1, 2, 3, 4, 5]);
    }
}

#[test]
fn an_undo_whose_leader_dies_before_it_answers_brings_all_back_once() {
    for ms in 0..12 {
        let mut cluster = Cluster::new(3, 1);
        let (place, by) = queue_elsewhere(&mut cluster, 3);
        ask(&mut cluster, by, 1, place, PURGE);
        cluster.run(100);
        ask(&mut cluster, by, 2, place, UNDO);
        cluster.run(ms);
        depose(&mut cluster, place.1);
        cluster.run(500);
        let told = answers(&mut cluster, by);
        // The next leader may find it done already.
        assert!(matches!(told[..], [(1, Ok(3)), (2, Ok(0 | 3))]), "after {ms} ms: {told:?}");
        assert_eq!(numbers(&mut cluster, by, place), [1, 2, 3], "after {ms} ms");
    }
}

#[test]
fn no_purge_can_be_undone_before_the_cluster_has_agreed_on_that() {
    let before = Version(Version::UNDO.0 - 1);
    let mut cluster = Cluster::at(3, 1, before);
    let (place, elsewhere) = queue_elsewhere(&mut cluster, 3);
    let here = session(cluster.leader(place.1));
    for by in [elsewhere, here] {
        for step in [PURGE, UNDO] {
            ask(&mut cluster, by, 1, place, step);
            cluster.run(100);
            let not_yet = NotWithheld::NotYet { since: Version::UNDO };
            assert_eq!(answers(&mut cluster, by), [(1, Err(not_yet))]);
        }
    }
    assert_eq!(ready(&mut cluster, here, place), 3, "nothing is taken");
}

#[test]
fn a_purge_in_a_cluster_that_is_cut_to_pieces_is_refused_and_takes_nothing() {
    let mut cluster = Cluster::new(3, 1);
    let (place, _) = queue_elsewhere(&mut cluster, 3);
    let by = session(cluster.leader(place.1));
    for (one, other) in [(1, 2), (2, 3), (3, 1)] {
        cluster.cut(NodeId(one), NodeId(other));
    }
    ask(&mut cluster, by, 1, place, PURGE);
    cluster.run(3_000);
    let told = cluster.told(by);
    assert!(
        told.iter().any(|it| matches!(it, Answer::AppendFailed { ticket: Ticket(1) })),
        "{told:?}"
    );
    heal_all(&mut cluster);
    cluster.run(3_000);
    assert_eq!(ready(&mut cluster, by, place), 3);
}
