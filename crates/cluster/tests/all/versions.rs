//! A cluster that is upgraded node by node, driven by hand: when its version is raised, and who stops.

use std::collections::BTreeSet;

use crate::cores::{self, Cluster};
use cluster::exchange::{Input, Now};
use cluster::shard::Shard;
use cluster::{Answer, Request, Ticket, Voting};
use machine::{
    Batch, CatalogCommand, CatalogReply, ConsumerId, ConsumerSpec, NodeId, Value, Version,
};

/// What the nodes' catalogs have agreed on.
fn agreed(cluster: &Cluster) -> Vec<Version> {
    let catalog = |core: &cores::Core| core.shards[0].catalog().unwrap().agreed();
    cluster.cores.iter().map(catalog).collect()
}

/// Starts a node again with the newest program.
fn upgrade(cluster: &mut Cluster, node: NodeId) {
    cluster.speaks.insert(node, Version::NEWEST);
    cluster.restart(node);
    cluster.run(3000);
}

#[test]
fn the_version_is_raised_when_all_nodes_can_read_the_next_and_not_before() {
    let mut cluster = Cluster::at(3, 2, Version::FIRST);
    for nth in [1, 2, 3] {
        assert_eq!(agreed(&cluster), [Version::FIRST; 3]);
        upgrade(&mut cluster, NodeId(nth));
    }
    assert_eq!(agreed(&cluster), [Version::NEWEST; 3]);
    // It is in the log and in snapshots: a node that comes back knows it.
    cluster.restart(NodeId(1));
    cluster.run(1000);
    assert_eq!(agreed(&cluster), [Version::NEWEST; 3]);
}

#[test]
fn a_node_that_is_alone_serves_once_it_has_agreed_on_all_that_it_reads() {
    for shards in [1, 2] {
        let mut cluster = Cluster::new(1, shards);
        assert_eq!(cluster.cores[0].agreed_when_ready, Some(Version::NEWEST));
        cluster.restart(NodeId(1));
        cluster.run(1000);
        assert_eq!(cluster.cores[0].agreed_when_ready, Some(Version::NEWEST));
    }
}

#[test]
fn a_node_that_cannot_be_reached_holds_the_version_back() {
    let mut cluster = Cluster::at(3, 1, Version::FIRST);
    upgrade(&mut cluster, NodeId(1));
    upgrade(&mut cluster, NodeId(2));
    cluster.cut(NodeId(1), NodeId(3));
    cluster.cut(NodeId(2), NodeId(3));
    cluster.run(10_000);
    assert_eq!(agreed(&cluster), [Version::FIRST; 3], "nobody knows what node 3 reads");
}

#[test]
fn a_removed_node_on_which_a_group_of_another_shard_counts_holds_the_version_back() {
    let mut cluster = Cluster::at(3, 2, Version::FIRST);
    upgrade(&mut cluster, NodeId(1));
    upgrade(&mut cluster, NodeId(2));
    let members = [1, 2, 3].map(NodeId);
    let says = |cluster: &mut Cluster, counted: &[NodeId]| {
        let ms = cluster.ms;
        for core in &mut cluster.cores {
            let nodes = BTreeSet::from_iter(counted.iter().copied());
            let voting = Voting { nodes, is_partial: false };
            let mut inputs = vec![Input::Counted { shard: 1, voting }];
            let now = Now { mono_ms: ms, wall_ms: ms };
            core.shards[0].step(now, &mut inputs, &mut Vec::new());
        }
    };
    cluster.speaks.insert(NodeId(3), Version::NEWEST);
    cluster.restart(NodeId(3));
    for _ in 0..300 {
        // In place of what the shard says itself, whenever it hears anew from leaders.
        says(&mut cluster, &[1, 2, 3, 4].map(NodeId));
        cluster.run(10);
    }
    assert_eq!(agreed(&cluster), [Version::FIRST; 3], "nobody knows what node 4 reads");
    says(&mut cluster, &members);
    cluster.run(3000);
    assert_eq!(agreed(&cluster), [Version::NEWEST; 3]);
}

#[test]
fn a_node_that_is_too_old_for_the_log_stops_with_words_and_goes_on_with_a_newer_program() {
    let mut cluster = Cluster::at(3, 2, Version::FIRST);
    upgrade(&mut cluster, NodeId(1));
    upgrade(&mut cluster, NodeId(2));
    // As an operator does who does not wait.
    let ann = Shard::first_session(NodeId(1));
    let command = CatalogCommand::RaiseVersion { to: Version::NEWEST };
    cluster.ask(ann, Request::Catalog { ticket: Ticket(1), command });
    cluster.run(8000);
    let told = cluster.told(ann);
    assert!(matches!(&told[..], [Answer::Catalog { reply: CatalogReply::Done, .. }]), "{told:?}");
    let old = cluster.cores.iter_mut().find(|core| core.id == NodeId(3)).unwrap();
    let why = old.outdated.take().unwrap();
    // Which group's log it is that says so first, nobody knows.
    assert!(why.contains("of group ") && why.contains("upgrade this node"), "{why}");
    assert_eq!(agreed(&cluster)[2], Version::FIRST, "it has not applied what it cannot read");

    upgrade(&mut cluster, NodeId(3));
    cluster.run(2000);
    assert_eq!(agreed(&cluster), [Version::NEWEST; 3]);
    let (queue, group) = cluster.declare(ann, "orders", (true, false));
    let mut batch = Batch::new();
    batch.enqueue(&[queue], &[], b"a");
    cluster.ask(ann, Request::Append { group, ticket: Ticket(2), batch, settles: Vec::new() });
    cluster.run(100);
    let told = cluster.told(ann);
    assert!(matches!(told[..], [Answer::Appended { ticket: Ticket(2) }]), "{told:?}");
}

#[test]
fn a_node_that_is_too_old_for_a_command_of_a_queue_stops_with_words() {
    let mut cluster = Cluster::at(3, 1, Version(6));
    upgrade(&mut cluster, NodeId(1));
    upgrade(&mut cluster, NodeId(2));
    let ann = Shard::first_session(NodeId(1));
    let (queue, group) = cluster.declare(ann, "orders", (true, false));
    // What nobody proposes before all can read it.
    let mut batch = Batch::new();
    batch.keep_marks(queue);
    cluster.ask(ann, Request::Append { group, ticket: Ticket(1), batch, settles: Vec::new() });
    cluster.run(1000);
    let told = cluster.told(ann);
    assert!(matches!(told[..], [Answer::Appended { ticket: Ticket(1) }]), "{told:?}");
    let old = cluster.cores.iter_mut().find(|core| core.id == NodeId(3)).unwrap();
    let why = old.outdated.take().unwrap();
    assert!(why.contains(&format!("of group {}", group.0)), "{why}");
    assert!(why.contains("upgrade this node"), "{why}");

    upgrade(&mut cluster, NodeId(3));
    assert_eq!(agreed(&cluster), [Version::NEWEST; 3]);
}

#[test]
fn marks_are_kept_for_queues_with_limits_once_the_cluster_has_agreed_on_that() {
    for version in [Version(6), Version::KEPT_MARKS] {
        let mut cluster = Cluster::at(1, 1, version);
        cluster.run(3000);
        assert_eq!(agreed(&cluster), [version]);
        let ann = Shard::first_session(NodeId(1));
        let arguments = [("x-max-length", Value::I32(9))];
        let (queue, group) = cluster.declare_with(ann, "orders", (true, false), &arguments);
        let mut batch = Batch::new();
        (0..3).for_each(|_| batch.enqueue(&[queue], &[], b"a"));
        cluster.ask(ann, Request::Append { group, ticket: Ticket(1), batch, settles: Vec::new() });
        cluster.run(100);
        cluster.restart(NodeId(1));
        cluster.run(3000);
        let ann = Shard::first_session(NodeId(1));
        let consumer = ConsumerId { session: ann, number: 1 };
        let spec = ConsumerSpec { credit: 9, ..ConsumerSpec::default() };
        cluster.ask(ann, Request::Attach { ticket: Ticket(2), group, queue, consumer, spec });
        cluster.run(100);
        let flags = cluster.told(ann).into_iter().filter_map(|answer| match answer {
            Answer::Delivered(delivery) => Some((delivery.count, delivery.redelivered)),
            _ => None,
        });
        let is_flagged = version < Version::KEPT_MARKS;
        assert_eq!(flags.collect::<Vec<_>>(), [(3, is_flagged)], "at version {version}");
    }
}
