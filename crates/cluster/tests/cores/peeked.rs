//! Messages of a queue are shown by its leader, to sessions of any node, once every node can read the question.

use bytes::Bytes;
use cluster::{NotPeeked, PeekSpec, Peeked};
use machine::{MessageState, PeekFilter, Position, Version};

use super::*;

const BEFORE: Version = Version(Version::PEEKED.0 - 1);
const NOT_YET: Result<Peeked, NotPeeked> = Err(NotPeeked::NotYet { since: Version::PEEKED });

fn peek((queue, group): (QueueId, GroupId)) -> Request {
    let spec = PeekSpec {
        from: Position::FIRST,
        filter: PeekFilter::All,
        count: 10,
        body_bytes_max: 10,
        contains: Bytes::new(),
    };
    Request::Peek { ticket: Ticket(79), group, queue, spec: Box::new(spec) }
}

fn peeked(cluster: &mut Cluster, by: SessionId) -> Option<Result<Peeked, NotPeeked>> {
    cluster.told(by).into_iter().find_map(|answer| match answer {
        Answer::Peeked { ticket: Ticket(79), result } => Some(result.map(|peeked| *peeked)),
        _ => None,
    })
}

fn look(
    cluster: &mut Cluster,
    by: SessionId,
    place: (QueueId, GroupId),
) -> Result<Peeked, NotPeeked> {
    cluster.ask(by, peek(place));
    cluster.run(50);
    peeked(cluster, by).expect("it is answered")
}

/// A durable queue with two messages, and a session of a node that does not lead it.
fn queue_elsewhere(cluster: &mut Cluster) -> ((QueueId, GroupId), SessionId) {
    let ann = session(NodeId(1));
    let place = cluster.declare(ann, "orders", (true, false));
    cluster.ask(ann, append(1, place, b"a"));
    cluster.ask(ann, append(2, place, b"b"));
    cluster.run(50);
    let leader = cluster.leader(place.1);
    let other = cluster.cores.iter().map(|core| core.id).find(|id| *id != leader).unwrap();
    (place, session(other))
}

#[test]
fn messages_are_shown_by_their_leader_wherever_that_is() {
    let mut cluster = Cluster::new(3, 2);
    let (place, by) = queue_elsewhere(&mut cluster);
    attach(&mut cluster, by, place, 1);
    for asker in [by, session(cluster.leader(place.1))] {
        let shown = look(&mut cluster, asker, place).unwrap();
        let bodies: Vec<&[u8]> = shown.messages.iter().map(|message| &message.body[..]).collect();
        assert_eq!((bodies, shown.next), (vec![&b"a"[..], b"b"], None));
        let consumer = ConsumerId { session: by, number: 1 };
        let states: Vec<_> = shown.messages.iter().map(|message| message.is.state).collect();
        assert_eq!(states, [MessageState::Held { by: consumer }, MessageState::Ready]);
    }
    let nowhere = (QueueId(999), place.1);
    assert_eq!(look(&mut cluster, by, nowhere), Err(NotPeeked::NoQueue));
}

#[test]
fn messages_in_a_nodes_memory_are_shown_by_that_node() {
    let mut cluster = Cluster::new(2, 1);
    let place = cluster.declare(session(NodeId(1)), "memory", (false, false));
    cluster.ask(session(NodeId(1)), append(1, place, b"a"));
    cluster.run(50);
    for by in [1, 2].map(NodeId).map(session) {
        assert_eq!(look(&mut cluster, by, place).unwrap().messages.len(), 1);
    }
}

#[test]
fn no_other_node_is_asked_before_the_cluster_has_agreed_on_that() {
    for new in [&[][..], &[1, 2], &[1, 3], &[2, 3]] {
        let mut cluster = Cluster::at(3, 2, BEFORE);
        for node in new.iter().copied().map(NodeId) {
            cluster.speaks.insert(node, Version::PEEKED);
            cluster.restart(node);
            cluster.run(3000);
        }
        let (place, _) = queue_elsewhere(&mut cluster);
        let leader = cluster.leader(place.1);
        for by in [1, 2, 3].map(NodeId) {
            let told = look(&mut cluster, session(by), place);
            assert_eq!(told == NOT_YET, by != leader, "{by:?}: {told:?}");
        }
    }
}

#[test]
fn a_look_that_its_leader_did_not_answer_is_asked_again_of_the_next() {
    let mut cluster = Cluster::new(3, 2);
    let (place, by) = queue_elsewhere(&mut cluster);
    let leader = cluster.leader(place.1);
    cluster.asleep.insert(leader);
    cluster.ask(by, peek(place));
    cluster.run(20);
    for other in [1, 2, 3].map(NodeId).into_iter().filter(|other| *other != leader) {
        cluster.cut(leader, other);
    }
    cluster.run(5000);
    let shown = peeked(&mut cluster, by).expect("it is answered").unwrap();
    assert_eq!(shown.messages.len(), 2);
}
