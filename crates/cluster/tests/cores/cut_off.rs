//! Links that are cut: who is served all the same, and who is refused, and when.

use super::*;

#[test]
fn publishers_at_both_ends_of_a_cut_link_go_on_where_a_third_node_reaches_both() {
    for cut in [(1, 2), (1, 3), (2, 3)] {
        let mut cluster = Cluster::new(3, 2);
        let homes = [1, 2, 3].map(NodeId).map(session);
        let places: Vec<_> = (0..12)
            .map(|nth| cluster.declare(homes[0], &format!("queue{nth}"), (true, false)))
            .collect();
        cluster.run(6000);
        let before: Vec<NodeId> = places.iter().map(|place| cluster.leader(place.1)).collect();
        let (a, b) = (NodeId(cut.0), NodeId(cut.1));
        assert!(before.contains(&a) && before.contains(&b), "both lead something");
        cluster.cut(a, b);
        cluster.run(4000);
        let mut moves = places.iter().map(|place| cluster.leader(place.1)).collect::<Vec<_>>();
        for _ in 0..5 {
            for home in homes {
                for (ticket, place) in places.iter().enumerate() {
                    cluster.ask(home, append(ticket as u64, *place, b"a"));
                }
            }
            cluster.run(1000);
            for home in homes {
                let mut told = appended(&cluster.told(home));
                told.sort_unstable();
                assert_eq!(told, (0..12).collect::<Vec<_>>(), "{cut:?}: of {home:?}");
            }
            let now: Vec<NodeId> = places.iter().map(|place| cluster.leader(place.1)).collect();
            assert_eq!(now, moves, "leaders stay where everybody reaches them");
            moves = now;
        }
        cluster.heal(a, b);
        cluster.run(10_000);
        let after: Vec<NodeId> = places.iter().map(|place| cluster.leader(place.1)).collect();
        assert_eq!(after, before, "they go back once all reach all");
    }
}

#[test]
fn a_node_that_keeps_no_replica_is_served_though_its_link_to_the_leader_is_cut() {
    let mut cluster = Cluster::new(5, 1);
    let homes = [1, 2, 3, 4, 5].map(NodeId).map(session);
    let place = cluster.declare(homes[0], "queue", (true, false));
    for other in 1..=4 {
        cluster.run(6000);
        let leader = cluster.leader(place.1);
        let node = NodeId((leader.0 + other - 1) % 5 + 1);
        cluster.cut(leader, node);
        cluster.run(4000);
        for home in homes {
            cluster.ask(home, append(other, place, b"a"));
            cluster.run(500);
            assert_eq!(appended(&cluster.told(home)), [other], "{home:?}, cut {leader:?} {node:?}");
        }
        cluster.heal(leader, node);
    }
}

#[test]
fn a_node_that_reaches_nobody_but_the_leader_is_served() {
    let mut cluster = Cluster::new(5, 1);
    let place = cluster.declare(session(NodeId(1)), "queue", (true, false));
    cluster.run(6000);
    let leader = cluster.leader(place.1);
    for node in (1..=5).map(NodeId).filter(|node| *node != leader) {
        let others = (1..=5).map(NodeId).filter(|other| ![node, leader].contains(other));
        others.clone().for_each(|other| cluster.cut(node, other));
        cluster.run(4000);
        assert_eq!(cluster.leader(place.1), leader);
        cluster.ask(session(node), append(node.0, place, b"a"));
        cluster.run(200);
        assert_eq!(appended(&cluster.told(session(node))), [node.0], "{node:?}");
        others.for_each(|other| cluster.heal(node, other));
        cluster.run(6000);
    }
}

#[test]
fn a_publisher_is_refused_soon_whose_leader_has_no_majority_any_more() {
    let nodes = || (1..=5).map(NodeId);
    let mut refused = 0;
    for far in 0..4 {
        let mut cluster = Cluster::new(5, 1);
        let place = cluster.declare(session(NodeId(1)), "queue", (true, false));
        cluster.run(6000);
        let leader = cluster.leader(place.1);
        let node = NodeId((leader.0 + far) % 5 + 1);
        let pair = [node, leader];
        for (one, other) in nodes().flat_map(|one| nodes().map(move |other| (one, other))) {
            if one < other && !(pair.contains(&one) && pair.contains(&other)) {
                cluster.cut(one, other);
            }
        }
        cluster.ask(session(node), append(1, place, b"a"));
        cluster.run(4000);
        // The two are a majority where both have a replica.
        match cluster.told(session(node))[..] {
            [Answer::Appended { .. }] => {}
            [Answer::AppendFailed { .. }] => refused += 1,
            ref other => panic!("{node:?} is not answered: {other:?}"),
        }
    }
    assert_eq!(refused, 2, "of four nodes two have no replica");
}

/// It leads the queue, follows there or keeps no replica of it, and is asked as the others fall silent, in between, as
/// they count as away after a second, and later.
#[test]
fn a_node_that_is_cut_off_says_so_within_two_seconds() {
    let asked_after = [0, 400, 999, 1001, 1300, 2500];
    for far in 0..5 {
        let mut cluster = Cluster::new(5, 1);
        let place = cluster.declare(session(NodeId(1)), "queue", (true, false));
        cluster.run(6000);
        let node = NodeId((cluster.leader(place.1).0 - 1 + far) % 5 + 1);
        let others = || (1..=5).map(NodeId).filter(move |other| *other != node);
        let wires = others().flat_map(|other| [(node, other), (other, node)]);
        let silent_since = cluster.ms;
        cluster.silent = wires.map(|wire| (wire, silent_since)).collect();
        let mut refused = BTreeMap::new();
        for ms in 0..=4000 {
            if ms == 1000 {
                others().for_each(|other| cluster.cut(node, other));
            }
            if asked_after.contains(&ms) {
                cluster.ask(session(node), append(ms, place, b"a"));
            }
            cluster.run(1);
            for answer in cluster.told(session(node)) {
                let Answer::AppendFailed { ticket, .. } = answer else { panic!("{answer:?}") };
                assert_eq!(refused.insert(ticket.0, ms), None, "it is answered once");
            }
        }
        for asked in asked_after {
            let answered = *refused.get(&asked).unwrap_or(&u64::MAX);
            let limit = 2000.max(asked + 1000);
            let what = format!("{node:?}, {far} from the leader, was asked at {asked}");
            assert!(answered < limit, "{what}, and answered at {answered} ms");
        }
    }
}

#[test]
fn a_consumer_that_is_refused_is_none_where_its_node_reaches_the_leader_again() {
    // It has looked whom it reaches just before, or is about to.
    for (other, ms) in (0..4).flat_map(|other| [10, 60].map(|ms| (other, ms))) {
        let mut cluster = Cluster::new(5, 1);
        let place = cluster.declare(session(NodeId(1)), "queue", (true, false));
        let (queue, group) = place;
        cluster.run(6000);
        let leader = cluster.leader(group);
        let node = NodeId((leader.0 + other) % 5 + 1);
        (1..=5).map(NodeId).filter(|it| *it != node).for_each(|it| cluster.cut(node, it));
        cluster.run(2000);
        cluster.heal(node, leader);
        cluster.run(ms);
        let (ann, number) = (session(node), 1);
        let consumer = ConsumerId { session: ann, number };
        let spec = ConsumerSpec { credit: 10, ..ConsumerSpec::default() };
        cluster.told(ann);
        // The leader hears of it late.
        cluster.asleep.insert(leader);
        cluster.ask(ann, Request::Attach { ticket: Ticket(8), group, queue, consumer, spec });
        cluster.run(150);
        cluster.asleep.clear();
        cluster.run(500);
        let told = cluster.told(ann);
        let is_attached =
            told.iter().any(|it| matches!(it, Answer::Attached { result: Ok(()), .. }));
        let bob = session(leader);
        publish(&mut cluster, bob, place, 1);
        cluster.told(bob);
        cluster.run(100);
        let ready = ready(&mut cluster, bob, place);
        assert_eq!(ready, u64::from(!is_attached), "after {ms} ms: {told:?}");
    }
}

#[test]
fn a_purge_that_is_refused_takes_nothing_out_of_the_queue() {
    let mut refused = 0;
    // A node goes on refusing until its next tick, also when it leads again before that.
    for ms in (1000..1100).step_by(5) {
        let mut cluster = Cluster::new(3, 1);
        let place = cluster.declare(session(NodeId(1)), "orders", (true, false));
        let (queue, group) = place;
        let ann = session(cluster.leader(group));
        publish(&mut cluster, ann, place, 3);
        cluster.told(ann);
        for (one, other) in [(1, 2), (2, 3), (3, 1)] {
            cluster.cut(NodeId(one), NodeId(other));
        }
        cluster.run(ms);
        for (one, other) in [(1, 2), (2, 3), (3, 1)] {
            cluster.heal(NodeId(one), NodeId(other));
        }
        let mut purged = 0;
        for nth in 0..300 {
            cluster.ask(ann, Request::Purge { ticket: Ticket(nth), group, queue });
            cluster.run(1);
            for answer in cluster.told(ann) {
                match answer {
                    Answer::Purged { count, .. } => purged += count,
                    _ => refused += 1,
                }
            }
        }
        assert_eq!(purged, 3, "what was refused left it to the next");
    }
    assert!(refused > 0);
}

#[test]
fn a_publisher_is_refused_soon_where_most_voters_of_a_group_that_is_kept_elsewhere_are_gone() {
    let mut cluster = Cluster::new(5, 1);
    let place = cluster.declare(session(NodeId(1)), "queue", (true, false));
    let group = place.1;
    cluster.run(6000);
    let elsewhere = |core: &cores::Core| {
        let found = core.shards[0].report_elsewhere().into_iter().find(|it| it.group == group);
        found.map(|found| (core.id, found.voters))
    };
    let outsiders: Vec<_> = cluster.cores.iter().filter_map(elsewhere).collect();
    assert_eq!(outsiders.len(), 2, "of five nodes two have no replica");
    let gone = &outsiders[0].1[..2];
    for (node, other) in gone.iter().flat_map(|node| (1..=5).map(|it| (*node, NodeId(it)))) {
        if cluster.is_up(node, other) {
            cluster.cut(node, other);
        }
    }
    // Three of five nodes reach one another.
    for (node, _) in outsiders {
        cluster.ask(session(node), append(1, place, b"a"));
        cluster.run(2000);
        let told = cluster.told(session(node));
        assert!(matches!(told[..], [Answer::AppendFailed { .. }]), "{node:?}: {told:?}");
    }
}
