//! One link is cut, and both its ends reach the others: publishers and consumers at both ends go on.

use crate::cores::Cluster;
use cluster::shard::Shard;
use cluster::{Answer, Request, Ticket};
use machine::{Batch, ConsumerId, ConsumerSpec, GroupId, NodeId, QueueId, SessionId};

type Place = (QueueId, GroupId);

fn session(node: NodeId) -> SessionId {
    Shard::first_session(node)
}

fn publish(cluster: &mut Cluster, by: SessionId, ticket: u64, (queue, group): Place) {
    let mut batch = Batch::new();
    batch.enqueue(&[queue], &[], b"a");
    let settles = Vec::new();
    cluster.ask(by, Request::Append { group, ticket: Ticket(ticket), batch, settles });
}

fn attach(cluster: &mut Cluster, session: SessionId, (queue, group): Place) {
    let consumer = ConsumerId { session, number: 1 };
    let spec = ConsumerSpec { credit: 1000, ..ConsumerSpec::default() };
    cluster.ask(session, Request::Attach { ticket: Ticket(8), group, queue, consumer, spec });
    cluster.run(50);
}

/// Tickets that `by` is told are confirmed; nothing that it asked for is refused.
fn confirmed(cluster: &mut Cluster, by: SessionId) -> Vec<u64> {
    let answers = cluster.told(by).into_iter();
    let ticket = |answer| match answer {
        Answer::Appended { ticket } => Some(ticket.0),
        Answer::AppendFailed { .. } => panic!("{by:?} is refused"),
        _ => None,
    };
    answers.filter_map(ticket).collect()
}

/// Publishes on each of `nodes`, and waits for the confirms for at most `ms`.
fn publish_everywhere(cluster: &mut Cluster, nodes: &[NodeId], place: Place, ms: u64) {
    nodes.iter().for_each(|node| publish(cluster, session(*node), 1, place));
    cluster.run(ms);
    for node in nodes {
        assert_eq!(confirmed(cluster, session(*node)), [1], "{node:?}");
    }
}

/// How often another node leads `group` while `ms` pass.
fn moves(cluster: &mut Cluster, group: GroupId, ms: u64) -> usize {
    let mut leader = cluster.leader(group);
    let mut count = 0;
    for _ in 0..ms / 10 {
        cluster.run(10);
        let now = cluster.leader_but(group, leader);
        if let Some(now) = now.filter(|_| cluster.leader_but(group, now.unwrap()).is_none()) {
            (leader, count) = (now, count + 1);
        }
    }
    count
}

#[test]
fn publishers_and_consumers_at_both_ends_of_a_cut_link_go_on_until_it_heals_and_after() {
    let nodes = [1, 2, 3].map(NodeId);
    let mut cluster = Cluster::new(3, 2);
    let place = cluster.declare(session(nodes[0]), "queue", (true, false));
    cluster.run(6000);
    let before = cluster.leader(place.1);
    let far = NodeId(before.0 % 3 + 1);
    let middle = NodeId(6 - before.0 - far.0);
    attach(&mut cluster, session(far), place);
    cluster.told(session(far));
    cluster.cut(before, far);
    publish_everywhere(&mut cluster, &nodes, place, 4000);
    assert_eq!(cluster.leader(place.1), middle);
    assert_eq!(moves(&mut cluster, place.1, 30_000), 0, "it stays where all reach it");
    publish_everywhere(&mut cluster, &nodes, place, 100);
    publish(&mut cluster, session(before), 2, place);
    cluster.run(100);
    let is_delivery = |answer: &Answer| matches!(answer, Answer::Delivered(_));
    assert!(cluster.told(session(far)).iter().any(is_delivery), "its consumer goes on");
    cluster.told(session(before));
    cluster.heal(before, far);
    assert_eq!(moves(&mut cluster, place.1, 30_000), 1, "it goes back once");
    assert_eq!(cluster.leader(place.1), before);
    publish_everywhere(&mut cluster, &nodes, place, 100);
}

#[test]
fn the_catalog_is_changed_from_both_ends_of_a_cut_link() {
    let nodes = [1, 2, 3].map(NodeId);
    let mut cluster = Cluster::new(3, 2);
    let before = cluster.leader(GroupId::CATALOG);
    let far = NodeId(before.0 % 3 + 1);
    cluster.cut(before, far);
    cluster.run(4000);
    for node in nodes {
        cluster.declare(session(node), &format!("of {}", node.0), (true, false));
    }
}

#[test]
fn a_leader_stays_when_a_node_is_gone_for_everybody_or_a_link_is_cut_for_a_moment() {
    let mut cluster = Cluster::new(3, 2);
    let place = cluster.declare(session(NodeId(1)), "queue", (true, false));
    cluster.run(6000);
    let leader = cluster.leader(place.1);
    let others = [1, 2, 3].map(NodeId).into_iter().filter(|node| *node != leader);
    let others: Vec<NodeId> = others.collect();
    for _ in 0..20 {
        cluster.cut(leader, others[0]);
        cluster.run(500);
        cluster.heal(leader, others[0]);
        assert_eq!(moves(&mut cluster, place.1, 500), 0);
    }
    cluster.cut(leader, others[0]);
    cluster.cut(others[0], others[1]);
    assert_eq!(moves(&mut cluster, place.1, 20_000), 0);
}

#[test]
fn a_group_goes_home_whenever_its_leader_came_back() {
    let mut cluster = Cluster::new(3, 1);
    let place = cluster.declare(session(NodeId(1)), "queue", (true, false));
    cluster.run(6000);
    let home = cluster.leader(place.1);
    // Raft and this node look around once a second each: all ways in which the two may fall together.
    for ms in (900..1900).step_by(100) {
        cluster.asleep.insert(home);
        cluster.run(ms);
        cluster.asleep.clear();
        cluster.run(12_000);
        assert_eq!(cluster.leader(place.1), home, "after {ms} ms");
    }
}

#[test]
fn a_quiet_group_is_handed_over_too() {
    let nodes = [1, 2, 3].map(NodeId);
    let mut cluster = Cluster::new(3, 2);
    let place = cluster.declare(session(nodes[0]), "queue", (true, false));
    cluster.run(6000);
    let leader = cluster.leader(place.1);
    let far = NodeId(leader.0 % 3 + 1);
    let middle = NodeId(6 - leader.0 - far.0);
    // Raft probes it from now on, for the group has nothing to send.
    cluster.cut(leader, middle);
    cluster.heal(leader, middle);
    cluster.run(6000);
    cluster.cut(leader, far);
    cluster.run(4000);
    assert_eq!(cluster.leader(place.1), middle);
    publish_everywhere(&mut cluster, &nodes, place, 100);
}

#[test]
fn a_link_that_comes_and_goes_moves_a_group_only_now_and_then() {
    const ROUNDS: usize = 10;
    let mut cluster = Cluster::new(3, 2);
    let place = cluster.declare(session(NodeId(1)), "queue", (true, false));
    cluster.run(6000);
    let leader = cluster.leader(place.1);
    let far = NodeId(leader.0 % 3 + 1);
    let mut count = 0;
    for _ in 0..ROUNDS {
        cluster.cut(leader, far);
        count += moves(&mut cluster, place.1, 2500);
        cluster.heal(leader, far);
        count += moves(&mut cluster, place.1, 2500);
    }
    assert_eq!(count, 1, "it does not go back before the link holds");
}
