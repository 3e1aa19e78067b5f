//! Who leads: leaders go home, and every node knows who leads and votes.

use super::*;

#[test]
fn leaders_go_back_to_a_node_that_starts_again_while_there_is_load() {
    let mut cluster = Cluster::new(3, 1);
    let homes = [1, 2, 3].map(NodeId).map(session);
    let place = cluster.declare(homes[0], "queue", (true, false));
    cluster.run(6000);
    let before = cluster.leader(place.1);
    cluster.restart(before);
    for turn in 0..5000 {
        // A sync takes its time, so there is always much on its way to everybody.
        cluster.stalled = if turn % 4 == 0 { [].into() } else { [1, 2, 3].map(NodeId).into() };
        homes.iter().for_each(|home| cluster.ask(*home, append(turn, place, b"a")));
        cluster.run(1);
        homes.iter().for_each(|home| drop(cluster.told(*home)));
    }
    assert_eq!(cluster.leader(place.1), before);
}

#[test]
fn every_node_is_told_who_votes_in_the_groups_that_it_does_not_keep() {
    let mut cluster = Cluster::new(5, 1);
    cluster.run(6000);
    let mut told = 0;
    for core in &cluster.cores {
        for group in core.shards.iter().flat_map(Shard::report_elsewhere) {
            assert_eq!(group.counted.as_ref().map(Vec::len), Some(3), "{group:?}");
            told += 1;
        }
    }
    assert!(told > 0, "each node keeps every group");
}

/// Who leads which group, as one node knows it: of its own groups and of those that are kept elsewhere.
fn leaders_known_to(core: &cores::Core) -> BTreeMap<GroupId, Option<NodeId>> {
    let mut known = BTreeMap::new();
    for report in core.shards.iter().map(Shard::report) {
        let here = report.groups.iter().map(|it| (it.group, it.leader));
        let elsewhere = report.elsewhere.iter().map(|it| (it.group, it.leader));
        for (group, leader) in here.chain(elsewhere) {
            assert_eq!(known.insert(group, leader), None, "{group:?} is told of once");
        }
    }
    known
}

#[test]
fn every_node_knows_who_leads_groups_that_are_kept_elsewhere() {
    let mut cluster = Cluster::new(5, 2);
    cluster.run(6000);
    let check = |cluster: &mut Cluster, but: Option<NodeId>, when: &str| {
        let cores = cluster.cores.iter();
        let known: BTreeMap<NodeId, _> = cores
            .filter(|core| Some(core.id) != but)
            .map(|core| (core.id, leaders_known_to(core)))
            .collect();
        let groups: BTreeSet<GroupId> = known.values().flatten().map(|(group, _)| *group).collect();
        assert_eq!(groups.len(), 11, "the catalog and two groups of each node");
        let leads: BTreeMap<_, _> =
            groups.into_iter().map(|group| (group, Some(cluster.leader(group)))).collect();
        for (node, known) in known {
            assert_eq!(known, leads, "as {node:?} knows it, {when}");
        }
    };
    let elsewhere = |core: &cores::Core| {
        core.shards.iter().map(|shard| shard.report_elsewhere().len()).sum::<usize>()
    };
    assert!(cluster.cores.iter().all(|core| elsewhere(core) > 0), "a node keeps all");
    check(&mut cluster, None, "at first");
    for node in (1..=5).map(NodeId) {
        cluster.restart_alone(node);
        cluster.run(4000);
        check(&mut cluster, Some(node), &format!("while {node:?} is away"));
        (1..=5).map(NodeId).filter(|it| *it != node).for_each(|other| cluster.heal(node, other));
        cluster.run(6000);
        check(&mut cluster, None, &format!("after {node:?} has started again"));
    }
}

#[test]
fn who_is_told_of_a_later_leader_than_its_replica_follows_joins_that_one() {
    let mut cluster = Cluster::new(3, 1);
    cluster.run(3000);
    let reports = |cluster: &Cluster| cluster.cores[0].shards[0].report().groups;
    let is_led_elsewhere = |report: &GroupReport| {
        report.group != GroupId::CATALOG && report.leader.is_some_and(|leader| leader != NodeId(1))
    };
    let found = reports(&cluster).into_iter().find(is_led_elsewhere).expect("a group of another");
    let other = if found.leader == Some(NodeId(2)) { NodeId(3) } else { NodeId(2) };

    let (group, term) = (found.group, found.term + 1);
    let leads = Message::Leads { group, term, time_ms: 1 };
    let mut inputs = vec![Input::Peers { from: other, messages: vec![leads] }];
    let now = Now { mono_ms: cluster.ms, wall_ms: cluster.ms };
    let mut outputs = Vec::new();
    cluster.cores[0].shards[0].step(now, &mut inputs, &mut outputs);
    let joins = |output: &Output| {
        matches!(output, Output::Send { to, message: Message::Join { group: of, .. } }
            if (*to, *of) == (other, group))
    };
    assert!(outputs.iter().any(joins), "{outputs:?}");
}
