//! A queue is described by its leader, to sessions of any node, once every node can read the question.

use cluster::{DescribedQueue, NotDescribed};
use machine::Version;

use super::*;

/// What a session is told of a queue.
fn describe(
    cluster: &mut Cluster,
    by: SessionId,
    (queue, group): (QueueId, GroupId),
) -> Result<Box<DescribedQueue>, NotDescribed> {
    cluster.ask(by, Request::Describe { ticket: Ticket(78), group, queue });
    cluster.run(50);
    described(cluster, by).expect("it is answered")
}

fn described(
    cluster: &mut Cluster,
    by: SessionId,
) -> Option<Result<Box<DescribedQueue>, NotDescribed>> {
    cluster.told(by).into_iter().find_map(|answer| match answer {
        Answer::Described { ticket: Ticket(78), result } => Some(result),
        _ => None,
    })
}

/// A durable queue with a message, and a session of a node that does not lead it.
fn queue_elsewhere(cluster: &mut Cluster) -> ((QueueId, GroupId), SessionId) {
    let ann = session(NodeId(1));
    let place = cluster.declare(ann, "orders", (true, false));
    cluster.ask(ann, append(1, place, b"a"));
    cluster.run(50);
    let leader = cluster.leader(place.1);
    let other = cluster.cores.iter().map(|core| core.id).find(|id| *id != leader).unwrap();
    (place, session(other))
}

const NOT_YET: Result<Box<DescribedQueue>, NotDescribed> =
    Err(NotDescribed::NotYet { since: Version::DESCRIBED });

#[test]
fn a_queue_is_described_by_its_leader_wherever_that_is() {
    let mut cluster = Cluster::at(3, 2, Version::DESCRIBED);
    let (place, by) = queue_elsewhere(&mut cluster);
    let leader = cluster.leader(place.1);
    let (queue, group) = place;
    let consumer = ConsumerId { session: by, number: 4 };
    let spec = ConsumerSpec { credit: 10, ..ConsumerSpec::default() };
    cluster.ask(by, Request::Attach { ticket: Ticket(1), group, queue, consumer, spec });
    cluster.run(50);
    for asker in [by, session(leader)] {
        let described = describe(&mut cluster, asker, place).unwrap();
        assert_eq!((described.leader, described.voters.len()), (leader, 3));
        assert_eq!((described.queue.status.ready, described.queue.status.unsettled), (0, 1));
        let [holder] = described.queue.holders[..] else { panic!("{described:?}") };
        assert_eq!((holder.consumer, holder.credit, holder.held), (consumer, 9, 1));
    }
    let nowhere = (QueueId(999), place.1);
    assert_eq!(describe(&mut cluster, by, nowhere), Err(NotDescribed::NoQueue));
}

#[test]
fn a_queue_in_a_nodes_memory_is_described_by_that_node() {
    let mut cluster = Cluster::at(2, 1, Version::DESCRIBED);
    let place = cluster.declare(session(NodeId(1)), "memory", (false, false));
    for by in [1, 2].map(NodeId).map(session) {
        let described = describe(&mut cluster, by, place).unwrap();
        assert_eq!((described.leader, described.term), (NodeId(1), 0));
        assert!(described.voters.is_empty());
    }
}

#[test]
fn no_other_node_is_asked_before_the_cluster_has_agreed_on_that() {
    // No node can read the question; or two of three can, the leader and the asker among them.
    for new in [&[][..], &[1, 2], &[1, 3], &[2, 3]] {
        let mut cluster = Cluster::at(3, 2, Version(7));
        for node in new.iter().copied().map(NodeId) {
            cluster.speaks.insert(node, Version::DESCRIBED);
            cluster.restart(node);
            cluster.run(3000);
        }
        let (place, _) = queue_elsewhere(&mut cluster);
        let leader = cluster.leader(place.1);
        for by in [1, 2, 3].map(NodeId) {
            let told = describe(&mut cluster, session(by), place);
            assert_eq!(told == NOT_YET, by != leader, "{by:?}: {told:?}");
        }
    }
}

#[test]
fn every_node_may_ask_once_the_last_is_upgraded() {
    let mut cluster = Cluster::at(3, 2, Version(7));
    for node in [1, 2, 3].map(NodeId) {
        cluster.speaks.insert(node, Version::DESCRIBED);
        cluster.restart(node);
        cluster.run(4000);
    }
    let (place, by) = queue_elsewhere(&mut cluster);
    assert!(describe(&mut cluster, by, place).is_ok());
}

#[test]
fn a_question_that_its_leader_did_not_answer_is_asked_again_of_the_next() {
    let mut cluster = Cluster::at(3, 2, Version::DESCRIBED);
    let (place, by) = queue_elsewhere(&mut cluster);
    let leader = cluster.leader(place.1);
    let (queue, group) = place;
    cluster.asleep.insert(leader);
    cluster.ask(by, Request::Describe { ticket: Ticket(78), group, queue });
    cluster.run(20);
    for other in [1, 2, 3].map(NodeId).into_iter().filter(|other| *other != leader) {
        cluster.cut(leader, other);
    }
    cluster.run(5000);
    let described = described(&mut cluster, by).expect("it is answered").unwrap();
    assert_ne!(described.leader, leader);
    assert_eq!(described.queue.status.ready, 1);
}

#[test]
fn a_question_for_a_leader_that_is_not_to_be_asked_is_answered_when_it_leads() {
    // The leader is asked by its own sessions, and leads no longer before it has answered.
    let mut cluster = Cluster::at(3, 2, Version(7));
    let (place, _) = queue_elsewhere(&mut cluster);
    let leader = cluster.leader(place.1);
    let others = [1, 2, 3].map(NodeId).into_iter().filter(|other| *other != leader);
    let others: Vec<_> = others.collect();
    for other in &others {
        cluster.cut(leader, *other);
    }
    cluster.run(10);
    let (by, (queue, group)) = (session(leader), place);
    cluster.ask(by, Request::Describe { ticket: Ticket(78), group, queue });
    cluster.run(100);
    assert_eq!(described(&mut cluster, by), None, "it leads no more");
    for other in &others {
        cluster.heal(leader, *other);
    }
    cluster.run(400);
    assert_eq!(described(&mut cluster, by), Some(NOT_YET));
}
