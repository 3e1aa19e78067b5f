//! Nodes join and leave; groups get voters and leaders; what lived in a node's memory goes with it.

use std::collections::BTreeMap;

use crate::world::World;
use machine::{
    Catalog, CatalogCommand, CatalogEffect, CatalogReply, ExchangeKind, Goal, GroupId,
    MembershipProblem, NodeId, NodeInfo, NodeStatus, Refusal, Value, Version,
};
use proptest::prelude::*;

fn node(number: u64) -> NodeInfo {
    NodeInfo { node: NodeId(number), address: format!("node-{number}:5680"), incarnation: 1 }
}

fn add(number: u64) -> CatalogCommand {
    let NodeInfo { node, address, incarnation } = node(number);
    CatalogCommand::AddNode { node, address, incarnation }
}

fn remove(number: u64) -> CatalogCommand {
    CatalogCommand::RemoveNode { node: NodeId(number) }
}

fn set_voters(group: u32, voters: &[u64]) -> CatalogCommand {
    let voters = voters.iter().copied().map(NodeId).collect();
    CatalogCommand::SetVoters { group: GroupId(group), voters }
}

fn cluster(count: u64, groups_per_node: u32) -> World {
    let nodes: Vec<NodeInfo> = (1..=count).map(node).collect();
    let mut world = World::new();
    world.catalog = Catalog::genesis(&nodes, groups_per_node);
    world
}

fn voters(catalog: &Catalog, group: u32) -> Vec<u64> {
    catalog.voters(GroupId(group)).iter().map(|node| node.0).collect()
}

/// Replicas and leaders-to-be of every node, groups of queues only.
fn loads(catalog: &Catalog) -> BTreeMap<u64, (u32, u32)> {
    let mut loads: BTreeMap<u64, (u32, u32)> =
        catalog.nodes().map(|it| (it.node.0, (0, 0))).collect();
    for group in 1..=catalog.group_count() {
        for (index, node) in voters(catalog, group).into_iter().enumerate() {
            let (replicas, leads) = loads.entry(node).or_default();
            *replicas += 1;
            *leads += u32::from(index == 0);
        }
    }
    loads
}

fn problem(reply: CatalogReply) -> MembershipProblem {
    let CatalogReply::Refused(Refusal::Membership(problem)) = reply else { panic!("{reply:?}") };
    assert!(problem.to_string().len() > 10);
    problem
}

#[test]
fn a_cluster_begins_with_as_many_replicas_and_leaders_on_every_node() {
    for count in 1..=9 {
        let world = cluster(count, 8);
        let replicas = 8 * count.min(3) as u32;
        assert!(loads(&world.catalog).values().all(|load| *load == (replicas, 8)));
        assert_eq!(voters(&world.catalog, 0), (1..=count).collect::<Vec<_>>());
        assert_eq!(world.catalog.group_count(), 8 * count as u32);
        assert_eq!(world.catalog.preferred_leader(GroupId(2)), Some(NodeId(count.min(2))));
        let status = |_| NodeStatus::Serving;
        assert_eq!(world.catalog.placement_changes(status, Goal::Balance), []);
    }
    let alone = Catalog::new(8);
    assert_eq!((voters(&alone, 8), voters(&alone, 9)), (vec![1], vec![]));
    assert_eq!(alone.voters(GroupId::local(NodeId(1))), []);
    assert_eq!(alone.preferred_leader(GroupId(9)), None);
}

#[test]
fn a_node_that_joins_brings_groups_and_leads_them() {
    let mut world = cluster(1, 2);
    let before = world.catalog.membership_version();
    for number in 2..=5 {
        assert_eq!(world.apply(add(number)), CatalogReply::Done);
        assert_eq!(world.catalog.group_count(), 2 * number as u32);
        let leads: Vec<u32> = loads(&world.catalog).values().map(|(_, leads)| *leads).collect();
        assert_eq!(leads, vec![2; number as usize]);
    }
    assert!(world.catalog.membership_version() > before);
    // Old groups got the voters they lacked and stay where they are.
    assert_eq!(
        (voters(&world.catalog, 1), voters(&world.catalog, 6)),
        (vec![1, 2, 3], vec![3, 1, 2])
    );
    assert_eq!(voters(&world.catalog, 0), [1, 2, 3, 4, 5]);
    let status = |_| NodeStatus::Serving;
    for change in world.catalog.placement_changes(status, Goal::Balance) {
        assert_eq!(world.apply(change), CatalogReply::Done);
    }
    assert!(loads(&world.catalog).values().all(|load| *load == (6, 2)));
    let version = world.catalog.version();
    world.apply(add(3));
    assert_eq!(world.catalog.version(), version, "nothing new");
}

#[test]
fn a_node_that_leaves_takes_its_memory_along_and_no_group() {
    let mut world = cluster(3, 2);
    let durable = world.queue("durable");
    let mut transient = world.with_flags(world.declare("transient"), false, false, false);
    let mut exchange = world.exchange("x", ExchangeKind::Direct, false);
    for command in [&mut transient, &mut exchange] {
        let (CatalogCommand::DeclareQueue { by, .. } | CatalogCommand::DeclareExchange { by, .. }) =
            command
        else {
            panic!()
        };
        by.node = NodeId(2);
    }
    let all = [transient, exchange];
    let gone = CatalogCommand::NodeGone { node: NodeId(2) };
    for command in [gone, remove(2)] {
        all.iter().for_each(|command| {
            assert!(!matches!(world.apply(command.clone()), CatalogReply::Refused(_)))
        });
        let queue = world.catalog.queue("/", "transient").unwrap().id;
        world.effects.clear();
        assert_eq!(world.apply(command), CatalogReply::Done);
        let (group, node) = (GroupId::local(NodeId(2)), Some(NodeId(2)));
        assert_eq!(world.effects, [CatalogEffect::QueueDeleted { queue, group, node }]);
        assert!(world.catalog.exchange("/", "x").is_none());
    }
    assert!(world.catalog.queue_by_id(durable).is_some());
    assert_eq!(world.catalog.group_count(), 6);
    assert_eq!(loads(&world.catalog), BTreeMap::from([(1, (6, 3)), (3, (6, 3))]));
    assert_eq!(voters(&world.catalog, 0), [1, 3]);
    // Who takes its place brings no more groups.
    world.apply(add(4));
    assert_eq!(world.catalog.group_count(), 6);
    assert_eq!(loads(&world.catalog)[&4].0, 6);
    assert_eq!(world.apply(remove(2)), CatalogReply::Done, "a missing node is success");
    world.apply(remove(1));
    world.apply(remove(3));
    assert_eq!(problem(world.apply(remove(4))), MembershipProblem::LastNode { node: NodeId(4) });
}

#[test]
fn a_number_or_address_in_use_is_refused() {
    let mut world = cluster(2, 1);
    let add = |number, address: &str, incarnation| CatalogCommand::AddNode {
        node: NodeId(number),
        address: address.into(),
        incarnation,
    };
    let again = problem(world.apply(add(2, "elsewhere:1", 2)));
    assert_eq!(again, MembershipProblem::OtherIncarnation { node: NodeId(2), known: 1 });
    let address = "node-1:5680".to_owned();
    let taken = problem(world.apply(add(3, &address, 1)));
    assert_eq!(taken, MembershipProblem::AddressInUse { address, by: NodeId(1) });
    assert!(matches!(
        problem(world.apply(add(3, "", 1))),
        MembershipProblem::InvalidAddress { .. }
    ));
    // The same life may move.
    world.apply(add(2, "elsewhere:1", 1));
    assert_eq!(world.catalog.node(NodeId(2)).unwrap().address, "elsewhere:1");
    // A number that was removed never comes back, and its address may.
    world.apply(remove(2));
    let retired = problem(world.apply(add(2, "node-2:5680", 9)));
    assert_eq!(retired, MembershipProblem::Retired { node: NodeId(2) });
    assert_eq!(world.apply(add(3, "node-2:5680", 9)), CatalogReply::Done);
}

#[test]
fn a_node_alone_tells_its_address_when_it_is_no_longer() {
    let mut world = World::new();
    assert_eq!(world.catalog.nodes().next().unwrap().incarnation, 0);
    assert_eq!(world.apply(add(1)), CatalogReply::Done);
    assert_eq!(world.catalog.node(NodeId(1)), Some(&node(1)));
    assert_eq!(world.catalog.group_count(), 4);
}

#[test]
fn voters_are_set_among_nodes_and_the_catalog_has_all() {
    let mut world = cluster(4, 1);
    assert_eq!(world.apply(set_voters(1, &[4, 3])), CatalogReply::Done);
    assert_eq!(voters(&world.catalog, 1), [4, 3]);
    for wrong in [&[][..], &[1, 1], &[1, 9], &[1, 2, 3, 4]] {
        let group = GroupId(1);
        let expected = MembershipProblem::InvalidVoters { group };
        assert_eq!(problem(world.apply(set_voters(1, wrong))), expected);
    }
    for unknown in [5, GroupId::local(NodeId(1)).0] {
        let expected = MembershipProblem::NoGroup { group: GroupId(unknown) };
        assert_eq!(problem(world.apply(set_voters(unknown, &[1]))), expected);
    }
    assert_eq!(world.apply(set_voters(0, &[2, 1, 4, 3])), CatalogReply::Done);
    assert_eq!(world.catalog.preferred_leader(GroupId::CATALOG), Some(NodeId(2)));
    let expected = MembershipProblem::InvalidVoters { group: GroupId::CATALOG };
    assert_eq!(problem(world.apply(set_voters(0, &[1, 2, 3]))), expected);
}

#[test]
fn a_draining_node_hands_on_what_it_leads_and_what_it_keeps() {
    let mut world = cluster(4, 2);
    let draining =
        |node| if node == NodeId(1) { NodeStatus::Draining } else { NodeStatus::Serving };
    for change in world.catalog.placement_changes(draining, Goal::Repair) {
        world.apply(change);
    }
    assert_eq!(loads(&world.catalog)[&1], (0, 0));
    assert_eq!(voters(&world.catalog, 0), [2, 1, 3, 4]);
    assert_eq!(world.catalog.placement_changes(draining, Goal::Repair), []);
}

#[test]
fn an_operator_may_have_five_replicas_and_keeps_them_while_there_are_nodes() {
    let mut world = cluster(5, 2);
    let serving = |_| NodeStatus::Serving;
    let changes = world.catalog.replica_changes(serving, 5);
    assert_eq!(changes.len(), 10);
    for change in changes {
        assert_eq!(world.apply(change), CatalogReply::Done);
    }
    let most = |world: &World| -> Vec<usize> {
        (1..=world.catalog.group_count()).map(|group| voters(&world.catalog, group).len()).collect()
    };
    assert_eq!(most(&world), [5; 10]);
    assert_eq!(world.catalog.placement_changes(serving, Goal::Balance), []);
    world.apply(remove(5));
    assert_eq!(most(&world), [4; 10], "as many as there are nodes");
    world.apply(add(6));
    assert_eq!(most(&world), [5; 10], "there are five again");
    world.apply(add(7));
    assert_eq!(most(&world), [5; 12], "groups that are new have as many");
    for change in world.catalog.replica_changes(serving, 3) {
        assert_eq!(world.apply(change), CatalogReply::Done);
    }
    assert_eq!(most(&world), [3; 12]);
    assert_eq!(world.catalog.placement_changes(serving, Goal::Repair), []);
}

/// The same, of a cluster that has agreed on the version since which there are wide groups.
fn agreed_cluster(count: u64, groups_per_node: u32) -> World {
    let mut world = cluster(count, groups_per_node);
    assert_eq!(world.apply(CatalogCommand::RaiseVersion { to: Version(6) }), CatalogReply::Done);
    world
}

/// So many groups of each node are wide, and all groups get their voters.
fn set_wide_groups(world: &mut World, per_node: u32) {
    world.apply(CatalogCommand::SetWideGroups { per_node });
    for change in world.catalog.placement_changes(|_| NodeStatus::Serving, Goal::Balance) {
        assert_eq!(world.apply(change), CatalogReply::Done);
    }
    assert_eq!(world.catalog.placement_changes(|_| NodeStatus::Serving, Goal::Balance), []);
}

/// The groups that are to have five voters. Every group has as many as it is to have, or as there are nodes.
fn wide_groups(catalog: &Catalog) -> Vec<u32> {
    let groups = 1..=catalog.group_count();
    for group in groups.clone() {
        let wanted = catalog.replicas(GroupId(group)).min(catalog.nodes().count());
        assert_eq!(voters(catalog, group).len(), wanted, "of group {group}");
    }
    groups.filter(|group| catalog.replicas(GroupId(*group)) == 5).collect()
}

#[test]
fn some_groups_may_have_five_voters_and_keep_them() {
    let mut world = agreed_cluster(5, 4);
    assert_eq!(wide_groups(&world.catalog), []);
    set_wide_groups(&mut world, 1);
    let first = wide_groups(&world.catalog);
    let leaders = |world: &World, groups: &[u32]| -> Vec<u64> {
        groups.iter().map(|group| voters(&world.catalog, *group)[0]).collect()
    };
    assert_eq!(leaders(&world, &first), [1, 2, 3, 4, 5], "one of each node");

    world.apply(remove(5));
    world.apply(remove(4));
    assert_eq!(wide_groups(&world.catalog), first, "with as many voters as there are nodes");
    world.apply(add(6));
    world.apply(add(7));
    assert_eq!(wide_groups(&world.catalog), first, "there are five again");
    world.apply(add(8));
    let mut grown = first.clone();
    grown.push(21);
    assert_eq!(wide_groups(&world.catalog), grown, "a node that brings groups brings its share");
    set_wide_groups(&mut world, 1);
    assert_eq!(wide_groups(&world.catalog), grown, "saying it again changes nothing");

    set_wide_groups(&mut world, 2);
    let more = wide_groups(&world.catalog);
    assert_eq!(more.len(), 12);
    assert!(grown.iter().all(|group| more.contains(group)), "who had five keeps them");
    set_wide_groups(&mut world, 9);
    assert_eq!(wide_groups(&world.catalog), (1..=24).collect::<Vec<_>>(), "more than all are all");
    world.apply(add(9));
    assert_eq!(wide_groups(&world.catalog).len(), 28, "and all new ones");
    set_wide_groups(&mut world, 0);
    assert_eq!(wide_groups(&world.catalog), []);
    world.apply(add(10));
    assert_eq!(wide_groups(&world.catalog), []);
}

#[test]
fn a_group_has_no_more_voters_than_it_is_to_have() {
    let mut world = agreed_cluster(5, 1);
    set_wide_groups(&mut world, 1);
    assert_eq!(world.apply(set_voters(2, &[1, 2, 3, 4])), CatalogReply::Done);
    world.apply(CatalogCommand::SetWideGroups { per_node: 0 });
    for too_many in [&[1, 2, 3, 4][..], &[1, 2, 3, 4, 5]] {
        let expected = MembershipProblem::InvalidVoters { group: GroupId(2) };
        assert_eq!(problem(world.apply(set_voters(2, too_many))), expected);
    }
    assert_eq!(world.apply(set_voters(2, &[5, 1, 4])), CatalogReply::Done);
}

#[test]
fn wide_groups_wait_for_the_version_that_knows_them() {
    let mut world = cluster(5, 2);
    let wide = CatalogCommand::SetWideGroups { per_node: 1 };
    for to in [Version::FIRST, Version(5)] {
        world.apply(CatalogCommand::RaiseVersion { to });
        let refusal = Refusal::NotYet { since: Version(6), agreed: to };
        assert_eq!(world.apply(wide.clone()), CatalogReply::Refused(refusal));
    }
    let format = world.catalog.snapshot()[0];
    world.apply(CatalogCommand::RaiseVersion { to: Version(6) });
    assert_eq!((format, world.catalog.snapshot()[0]), (3, 4));
    assert_eq!(world.apply(wide), CatalogReply::Done);
    assert_eq!((1..=10).filter(|group| world.catalog.replicas(GroupId(*group)) == 5).count(), 5);
}

#[test]
fn five_replicas_of_all_groups_outlive_the_change_of_the_version() {
    let mut world = cluster(5, 2);
    for change in world.catalog.replica_changes(|_| NodeStatus::Serving, 5) {
        world.apply(change);
    }
    world.apply(CatalogCommand::RaiseVersion { to: Version(6) });
    assert_eq!(wide_groups(&world.catalog).len(), 10);
    for number in 2..=5 {
        world.apply(remove(number));
    }
    for number in 6..=10 {
        world.apply(add(number));
    }
    assert_eq!(wide_groups(&world.catalog).len(), 12, "also after one node alone, and new ones");
}

#[test]
fn a_queue_that_asks_for_five_members_lies_in_a_group_that_has_them() {
    let asking = |world: &mut World, name: &str, members| {
        let declare = world.declare(name);
        let declare =
            world.with_argument(declare, "x-queue-type", Value::LongStr(b"quorum".to_vec()));
        let declare =
            world.with_argument(declare, "x-quorum-initial-group-size", Value::I32(members));
        let reply = world.apply(declare);
        let CatalogReply::QueueDeclared { group, created: true, .. } = reply else {
            panic!("{reply:?}")
        };
        group.0
    };
    let mut world = agreed_cluster(5, 2);
    assert_eq!(asking(&mut world, "early", 5), 1, "no group has five: as if it had not asked");
    set_wide_groups(&mut world, 1);
    let wide = wide_groups(&world.catalog);
    for number in 0..20 {
        let group = asking(&mut world, &format!("five-{number}"), 4 + number % 5);
        assert!(wide.contains(&group), "group {group} has three voters");
    }
    let count = |world: &World, group| {
        world.catalog.queues().filter(|queue| queue.group == GroupId(group)).count()
    };
    assert!(wide.iter().all(|group| (4..=5).contains(&count(&world, *group))), "spread evenly");
    for number in 0..20 {
        let group = asking(&mut world, &format!("three-{number}"), 1 + number % 3);
        assert!(!wide.contains(&group), "three are enough, and these are emptier");
    }
    // With four nodes four are all that there can be.
    world.apply(remove(5));
    let group = asking(&mut world, "four", 100);
    assert!(wide.contains(&group) && voters(&world.catalog, group).len() == 4);
    world.apply(remove(4));
    let group = asking(&mut world, "all", 100);
    assert_eq!(voters(&world.catalog, group).len(), 3, "as many as there are nodes");
}

#[test]
fn members_are_asked_for_in_vain_before_the_version_that_knows_wide_groups() {
    let mut world = cluster(5, 2);
    world.apply(set_voters(10, &[1, 2, 3, 4, 5]));
    world.apply(CatalogCommand::RaiseVersion { to: Version(5) });
    let declare = world.declare("q");
    let declare = world.with_argument(declare, "x-queue-type", Value::LongStr(b"quorum".to_vec()));
    let declare = world.with_argument(declare, "x-quorum-initial-group-size", Value::I32(5));
    let reply = world.apply(declare);
    assert!(matches!(reply, CatalogReply::QueueDeclared { group: GroupId(1), .. }), "{reply:?}");
}

#[test]
fn a_few_queues_use_all_nodes() {
    let mut world = cluster(1, 2);
    world.apply(add(2));
    world.apply(add(3));
    for number in 0..6 {
        world.queue(&format!("q{number}"));
    }
    let led = |group| world.catalog.preferred_leader(group).unwrap().0;
    let leaders: Vec<u64> = world.catalog.queues().map(|queue| led(queue.group)).collect();
    assert_eq!(leaders, [1, 2, 3, 1, 2, 3]);
    let mut groups: Vec<GroupId> = world.catalog.queues().map(|queue| queue.group).collect();
    groups.sort_unstable();
    groups.dedup();
    assert_eq!(groups.len(), 6, "each went to a group that had none");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nodes_come_and_go_and_every_group_keeps_its_voters(
        ops in proptest::collection::vec((0u8..5, 1u64..9, 1u64..3), 0..30),
        count in 1u64..5,
        wide in proptest::option::of(0u32..3),
    ) {
        let mut world = cluster(count, 2);
        if let Some(per_node) = wide {
            world.apply(CatalogCommand::RaiseVersion { to: Version(6) });
            world.apply(CatalogCommand::SetWideGroups { per_node });
        }
        for (op, number, incarnation) in ops {
            let catalog = &world.catalog;
            let groups = catalog.group_count();
            let commands = match op {
                0 | 1 => {
                    let NodeInfo { node, address, .. } = node(number);
                    vec![CatalogCommand::AddNode { node, address, incarnation }]
                }
                2 => vec![remove(number)],
                3 => vec![set_voters(number as u32, &[number, incarnation])],
                _ => catalog.placement_changes(
                    |node| if node.0 == number { NodeStatus::Draining } else { NodeStatus::Serving },
                    if incarnation == 1 { Goal::Balance } else { Goal::Repair },
                ),
            };
            let is_plan = op == 4;
            for command in commands {
                let reply = world.apply(command);
                prop_assert!(!is_plan || reply == CatalogReply::Done);
            }
            let catalog = &world.catalog;
            prop_assert!(catalog.group_count() >= groups);
            prop_assert!(catalog.group_count() >= 2 * catalog.nodes().count() as u32);
            prop_assert_eq!(voters(catalog, 0).len(), catalog.nodes().count());
            for group in 1..=catalog.group_count() {
                let voters = catalog.voters(GroupId(group));
                let most = if wide.is_some() { catalog.replicas(GroupId(group)) } else { 3 };
                prop_assert!(!voters.is_empty() && voters.len() <= most);
                prop_assert!(voters.iter().all(|node| catalog.node(*node).is_some()));
            }
        }
    }
}
