//! Replicas compare what they have done, driven by hand.

use crate::cores::Cluster;
use cluster::exchange::Input;
use cluster::peer::message::Message;
use cluster::shard::Shard;
use cluster::{Answer, Compared, Comparison, Request, Ticket};
use machine::{Batch, GroupId, NodeId, QueueId, SessionId, Version};

fn compared(cluster: &mut Cluster, node: NodeId, group: GroupId) -> Compared {
    let shards = &cluster.core(node).shards;
    let reports = shards.iter().flat_map(|shard| shard.report_groups(false));
    let report = reports.into_iter().find(|report| report.group == group);
    report.expect("a replica of the group").compared
}

/// Whether all that a node's replica was compared with is like it, and with whom.
fn alike(cluster: &mut Cluster, node: NodeId, group: GroupId) -> Vec<u64> {
    let compared = compared(cluster, node, group);
    assert!(!compared.with.iter().any(Comparison::differs), "{compared:?}");
    assert_eq!(compared.differed, 0);
    compared.with.iter().map(|it| it.node.0).collect()
}

fn publish(cluster: &mut Cluster, by: SessionId, (queue, group): (QueueId, GroupId), ticket: u64) {
    let mut batch = Batch::new();
    (0..3).for_each(|_| batch.enqueue(&[queue], &[b"head"], b"body"));
    let ticket = Ticket(ticket);
    cluster.ask(by, Request::Append { group, ticket, batch, settles: Vec::new() });
}

fn followers(leader: NodeId) -> Vec<u64> {
    (1..=3).filter(|node| *node != leader.0).collect()
}

#[test]
fn a_leader_and_its_followers_find_that_they_have_done_the_same() {
    let mut cluster = Cluster::new(3, 2);
    let ann = Shard::first_session(NodeId(1));
    let place = cluster.declare(ann, "orders", (true, false));
    let leader = cluster.leader(place.1);
    for ticket in 1..5 {
        publish(&mut cluster, ann, place, ticket);
        cluster.run(2500);
    }
    let first = compared(&mut cluster, leader, place.1);
    let (last, _) = first.last.expect("a chain is kept");
    assert!(first.with.iter().all(|it| it.index == last), "{first:?}: up to the last entry");
    assert_eq!(alike(&mut cluster, leader, place.1), followers(leader));
    for node in followers(leader) {
        assert_eq!(alike(&mut cluster, NodeId(node), place.1), [leader.0]);
    }
    cluster.run(20_000);
    let idle = compared(&mut cluster, leader, place.1);
    assert_eq!(idle.count, first.count, "without traffic nobody asks");
}

#[test]
fn a_replica_that_was_away_and_a_new_leader_go_on_comparing() {
    let mut cluster = Cluster::new(3, 1);
    let ann = Shard::first_session(NodeId(1));
    let place = cluster.declare(ann, "orders", (true, false));
    let leader = cluster.leader(place.1);
    let away = NodeId(followers(leader)[0]);
    publish(&mut cluster, ann, place, 1);
    cluster.run(3000);
    cluster.restart(away);
    for ticket in 2..5 {
        publish(&mut cluster, ann, place, ticket);
        cluster.run(2500);
    }
    assert_eq!(alike(&mut cluster, leader, place.1), followers(leader));
    // The leader dies and comes back as a follower, or as a leader again.
    cluster.restart(leader);
    cluster.run(5000);
    let ben = Shard::first_session(away);
    publish(&mut cluster, ben, place, 5);
    cluster.run(5000);
    let leader = cluster.leader(place.1);
    assert_eq!(alike(&mut cluster, leader, place.1), followers(leader));
}

#[test]
fn nothing_is_compared_before_all_nodes_can_read_that() {
    let mut cluster = Cluster::at(3, 1, Version(Version::CHAINED.0 - 1));
    let ann = Shard::first_session(NodeId(3));
    let place = cluster.declare(ann, "orders", (true, false));
    for node in [1, 2].map(NodeId) {
        publish(&mut cluster, ann, place, node.0);
        cluster.speaks.insert(node, Version::NEWEST);
        cluster.restart(node);
        cluster.run(5000);
        for node in [1, 2, 3].map(NodeId) {
            assert_eq!(compared(&mut cluster, node, place.1), Compared::default());
        }
    }
    cluster.speaks.insert(NodeId(3), Version::NEWEST);
    cluster.restart(NodeId(3));
    cluster.run(5000);
    let ann = Shard::first_session(NodeId(3));
    publish(&mut cluster, ann, place, 3);
    cluster.run(5000);
    let leader = cluster.leader(place.1);
    assert_eq!(alike(&mut cluster, leader, place.1), followers(leader));
}

/// The follower that claims to have done something else: never node 1, at which clients are.
fn claimant(leader: NodeId) -> NodeId {
    NodeId(followers(leader)[1])
}

/// It claims so.
fn claim(cluster: &mut Cluster, leader: NodeId, group: GroupId) {
    let (index, chain) = compared(cluster, leader, group).last.expect("a chain is kept");
    let message = Message::Digest { group, index, chain: !chain, is_answer: true };
    let from = claimant(leader);
    cluster.core(leader).inboxes[0].push(Input::Peers { from, messages: vec![message] });
    cluster.run(1);
    assert!(compared(cluster, leader, group).with.iter().any(Comparison::differs));
}

#[test]
fn a_difference_is_known_until_the_replicas_are_alike_again() {
    let mut cluster = Cluster::new(3, 1);
    let ann = Shard::first_session(NodeId(1));
    let place = cluster.declare(ann, "orders", (true, false));
    publish(&mut cluster, ann, place, 1);
    cluster.run(5000);
    cluster.told(ann);
    let leader = cluster.leader(place.1);
    claim(&mut cluster, leader, place.1);
    publish(&mut cluster, ann, place, 2);
    cluster.run(100);
    let told = cluster.told(ann);
    assert!(
        matches!(told[..], [Answer::Appended { ticket: Ticket(2) }]),
        "{told:?}: only an alarm"
    );
    cluster.run(5000);
    let compared = compared(&mut cluster, leader, place.1);
    assert!(!compared.with.iter().any(Comparison::differs), "{compared:?}");
    assert_eq!(compared.differed, 1);
}

#[test]
fn a_group_that_is_told_to_confirms_nothing_while_its_replicas_differ() {
    let mut cluster = Cluster::new(3, 1);
    let ann = Shard::first_session(NodeId(1));
    let place = cluster.declare(ann, "orders", (true, false));
    cluster.cores.iter_mut().for_each(|core| core.shards[0].stop_at_differences());
    publish(&mut cluster, ann, place, 1);
    cluster.run(5000);
    let told = cluster.told(ann);
    assert!(matches!(told[..], [Answer::Appended { ticket: Ticket(1) }]), "{told:?}");
    let leader = cluster.leader(place.1);
    // It does not answer for itself, and the other two are a majority.
    cluster.asleep.insert(claimant(leader));
    claim(&mut cluster, leader, place.1);
    publish(&mut cluster, ann, place, 2);
    cluster.run(1000);
    assert!(cluster.told(ann).is_empty(), "it is on all disks, and the replicas differ");
    cluster.asleep.clear();
    cluster.run(5000);
    let told = cluster.told(ann);
    assert!(matches!(told[..], [Answer::Appended { ticket: Ticket(2) }]), "{told:?}");
}
