//! Queues that another node leads, or keeps in its memory: declared, published to, consumed and confirmed.

use machine::Version;

use super::*;

#[test]
fn a_publish_to_a_queue_led_elsewhere_is_confirmed_and_counted() {
    let mut cluster = Cluster::new(3, 2);
    let ann = session(NodeId(1));
    for nth in 0..6 {
        let place = cluster.declare(ann, &format!("queue {nth}"), (true, false));
        cluster.ask(ann, append(1, place, b"a"));
        cluster.run(50);
        assert_eq!(appended(&cluster.told(ann)), [1]);
        assert_eq!(ready(&mut cluster, ann, place), 1);
    }
}

#[test]
fn what_comes_early_in_bulk_does_not_begin_an_append_within_another() {
    let mut cluster = Cluster::new(3, 1);
    let ann = session(NodeId(1));
    let places: Vec<_> =
        (0..3).map(|nth| cluster.declare(ann, &format!("queue {nth}"), (true, false))).collect();
    let body = vec![b'x'; 100 << 10];
    for at in &places {
        // Leaders die while much is on its way to them: what comes next is led early.
        let leader = cluster.leader(at.1);
        let home = cluster.cores.iter().map(|core| core.id).find(|id| *id != leader).unwrap();
        let by = session(home);
        for ticket in 0..60 {
            cluster.ask(by, append(ticket, *at, &body));
        }
        cluster.restart(leader);
        cluster.run(5000);
        let mut confirmed = appended(&cluster.told(by));
        confirmed.sort_unstable();
        assert_eq!(confirmed, (0..60).collect::<Vec<_>>());
        assert_eq!(ready(&mut cluster, by, *at), 60);
    }
}

#[test]
fn a_queue_in_a_nodes_memory_is_published_to_from_elsewhere_after_that_node_started_again() {
    let mut cluster = Cluster::new(3, 2);
    let (ann, bob) = (session(NodeId(1)), session(NodeId(2)));
    let place = cluster.declare(bob, "before", (false, false));
    for ticket in 0..3 {
        cluster.ask(ann, append(ticket, place, b"a"));
        cluster.run(20);
    }
    assert_eq!(appended(&cluster.told(ann)), [0, 1, 2]);
    cluster.restart(NodeId(2));
    cluster.run(5000);
    let place = cluster.declare(bob, "after", (false, false));
    cluster.ask(ann, append(3, place, b"a"));
    cluster.run(100);
    assert_eq!(appended(&cluster.told(ann)), [3]);
    assert_eq!(ready(&mut cluster, ann, place), 1);
}

#[test]
fn what_lay_in_the_memory_of_a_node_is_gone_though_nobody_who_leads_has_seen_it_go() {
    let mut cluster = Cluster::new(3, 1);
    let (ann, bob) = (session(NodeId(1)), session(NodeId(2)));
    cluster.declare(bob, "memory", (false, false));
    for other in [1, 3].map(NodeId) {
        cluster.cut(NodeId(2), other);
        // It starts without having met node 2.
        cluster.restart_alone(other);
    }
    cluster.heal(NodeId(1), NodeId(3));
    cluster.run(12_000);
    cluster.told(ann);
    // Refused while there is one of that name that is not durable.
    cluster.declare(ann, "memory", (true, false));
}

#[test]
fn the_last_consumer_of_an_auto_delete_queue_led_elsewhere_is_told_that_it_is_detached() {
    let mut cluster = Cluster::new(3, 2);
    let ann = session(NodeId(1));
    for nth in 0..6 {
        let (queue, group) = cluster.declare(ann, &format!("queue {nth}"), (true, true));
        let consumer = ConsumerId { session: ann, number: nth };
        let spec = ConsumerSpec { credit: 10, ..ConsumerSpec::default() };
        cluster.ask(ann, Request::Attach { ticket: Ticket(1), group, queue, consumer, spec });
        cluster.run(50);
        assert!(matches!(cluster.told(ann)[..], [Answer::Attached { result: Ok(()), .. }]));
        cluster.ask(
            ann,
            Request::Detach { ticket: Ticket(2), group, queue, consumer, takes_back: true },
        );
        cluster.run(500);
        let told = cluster.told(ann);
        assert!(matches!(told[..], [Answer::Detached { ticket: Ticket(2) }]), "{told:?}");
        cluster.ask(ann, Request::Status { ticket: Ticket(3), group, queue });
        cluster.run(50);
        let told = cluster.told(ann);
        assert!(matches!(told[..], [Answer::Status { status: None, .. }]), "{told:?}");
    }
}

#[test]
fn an_auto_delete_queue_outlives_a_link_that_breaks_while_its_consumer_is_attached() {
    let mut cluster = Cluster::new(3, 1);
    let ann = session(NodeId(1));
    let place = (0..6)
        .map(|nth| cluster.declare(ann, &format!("queue {nth}"), (true, true)))
        .collect::<Vec<_>>()
        .into_iter()
        .find(|place| cluster.leader(place.1) != NodeId(1))
        .unwrap();
    let leader = cluster.leader(place.1);
    cluster.ask(ann, append(1, place, b"a"));
    cluster.run(50);
    assert_eq!(appended(&cluster.told(ann)), [1]);
    let (queue, group) = place;
    let consumer = ConsumerId { session: ann, number: 1 };
    let spec = ConsumerSpec { credit: 10, ..ConsumerSpec::default() };
    cluster.ask(ann, Request::Attach { ticket: Ticket(2), group, queue, consumer, spec });
    let mut told = Vec::new();
    let is_consumer = |it: &machine::Attached| it.consumer == consumer;
    for _ in 0..1000 {
        cluster.run(1);
        told.append(&mut cluster.told(ann));
        let shards = &cluster.core(leader).shards;
        if shards.iter().any(|shard| shard.attachments().iter().any(is_consumer)) {
            break;
        }
    }
    assert!(told.is_empty(), "the answer is on its way");
    cluster.cut(NodeId(1), leader);
    cluster.heal(NodeId(1), leader);
    cluster.run(1000);
    told.append(&mut cluster.told(ann));
    assert!(
        matches!(&told[..], [Answer::Attached { result: Ok(()), .. }, Answer::Delivered(_)]),
        "{told:?}"
    );
}

#[test]
fn a_confirm_that_is_lost_with_its_link_before_a_slow_leader_applied_is_said_again() {
    let mut cluster = Cluster::new(3, 1);
    let ann = session(NodeId(1));
    let place = (0..6)
        .map(|nth| cluster.declare(ann, &format!("queue {nth}"), (true, false)))
        .collect::<Vec<_>>()
        .into_iter()
        .find(|place| cluster.leader(place.1) != NodeId(1))
        .unwrap();
    let leader = cluster.leader(place.1);
    cluster.stalled.insert(leader);
    cluster.ask(ann, append(1, place, b"a"));
    for _ in 0..20 {
        cluster.turn();
        // The leader's link breaks while the confirm is on its way, and comes back.
        if appended(&cluster.told(ann)).is_empty() {
            cluster.cut(NodeId(1), leader);
            cluster.heal(NodeId(1), leader);
        }
    }
    cluster.run(500);
    cluster.stalled.clear();
    cluster.run(5000);
    cluster.ask(ann, append(2, place, b"b"));
    cluster.run(100);
    assert_eq!(ready(&mut cluster, ann, place), 2);
}

#[test]
fn who_asks_about_a_queue_in_the_memory_of_a_node_that_is_removed_is_told_that_it_is_gone() {
    let mut cluster = Cluster::new(3, 2);
    let home = cluster.leader(GroupId::CATALOG);
    let owner = (1..=3).map(NodeId).find(|node| *node != home).unwrap();
    let (ann, bob) = (session(home), session(owner));
    let (queue, group) = cluster.declare(bob, "memory", (false, false));
    cluster.ask(bob, append(1, (queue, group), b"a"));
    cluster.run(100);
    let spec = ConsumerSpec { credit: 10, ..ConsumerSpec::default() };
    let ask = |cluster: &mut Cluster, ticket: u64| {
        let consumer = ConsumerId { session: ann, number: ticket };
        let attach = Request::Attach { ticket: Ticket(ticket), group, queue, consumer, spec };
        let (ticket, no_ack) = (Ticket(ticket + 1), false);
        cluster.ask(ann, attach);
        cluster.ask(ann, Request::Get { ticket, group, queue, consumer, no_ack, at: None });
    };
    let is_told = |told: &[Answer], ticket: u64| {
        let no_queue = |it: &Answer| matches!(it, Answer::Attached { ticket: to, result: Err(AttachError::NoQueue), .. } if to.0 == ticket);
        let nothing = |it: &Answer| matches!(it, Answer::Got { ticket: to, delivery: None, .. } if to.0 == ticket + 1);
        assert!(told.iter().any(no_queue) && told.iter().any(nothing), "{told:?}");
    };
    // It stands still, and knows neither of what it is asked nor that it is removed.
    cluster.asleep.insert(owner);
    ask(&mut cluster, 10);
    cluster.run(20);
    let command = CatalogCommand::RemoveNode { node: owner };
    cluster.ask(ann, Request::Catalog { ticket: Ticket(1), command });
    cluster.run(200);
    is_told(&cluster.told(ann), 10);
    // A session that has not heard of it.
    ask(&mut cluster, 20);
    cluster.run(20);
    is_told(&cluster.told(ann), 20);
    cluster.asleep.clear();
    cluster.run(2000);
    let told = cluster.told(ann);
    assert!(told.is_empty(), "the node that was removed is heard: {told:?}");
}

#[test]
fn who_consumes_from_a_queue_in_memory_that_is_gone_when_the_catalog_jumps_is_told_so() {
    let mut cluster = Cluster::new(3, 2);
    let ann = session(NodeId(1));
    let mut queues = BTreeSet::new();
    for owner in [1, 2].map(NodeId) {
        let place = cluster.declare(session(owner), &format!("of {owner:?}"), (false, false));
        let (consumer, (queue, group)) = (ConsumerId { session: ann, number: owner.0 }, place);
        let spec = ConsumerSpec { credit: 10, ..ConsumerSpec::default() };
        cluster.ask(ann, Request::Attach { ticket: Ticket(1), group, queue, consumer, spec });
        queues.insert((queue, consumer));
    }
    cluster.run(50);
    assert_eq!(cluster.told(ann).len(), 2);
    cluster.lose_queues(NodeId(1));
    cluster.run(50);
    let cancelled = |answer| match answer {
        Answer::Cancelled { queue, consumer } => (queue, consumer),
        other => panic!("{other:?}"),
    };
    assert_eq!(cluster.told(ann).into_iter().map(cancelled).collect::<BTreeSet<_>>(), queues);
}

#[test]
fn a_queue_in_the_own_memory_that_is_new_when_the_catalog_jumps_is_made() {
    let mut cluster = Cluster::new(3, 2);
    let ann = session(NodeId(1));
    let place = (QueueId(4711), GroupId::local(NodeId(1)));
    cluster.jump(NodeId(1), &[place]);
    cluster.run(50);
    cluster.ask(ann, append(1, place, b"a"));
    cluster.run(50);
    assert_eq!(appended(&cluster.told(ann)), [1]);
    assert_eq!(ready(&mut cluster, ann, place), 1);
}

/// A consumer that ends is sent first what its queue has given it, also if that is led elsewhere: as soon as the cluster
/// has agreed on a version that can say so. Before, it is taken back, and nothing is lost either way.
#[test]
fn a_cancelled_consumer_of_a_queue_led_elsewhere_is_sent_what_it_was_given() {
    for (version, sent) in [(Version(Version::CANCELS.0 - 1), 0), (Version::CANCELS, 3)] {
        let mut cluster = Cluster::at(3, 1, version);
        let ann = session(NodeId(1));
        let place = cluster.declare(ann, "orders", (true, false));
        let (queue, group) = place;
        let bob = outsider(&mut cluster, group);
        publish(&mut cluster, bob, place, 3);
        cluster.run(3000);
        cluster.told(bob);
        let consumer = ConsumerId { session: bob, number: 1 };
        let spec = ConsumerSpec { credit: 10, ..ConsumerSpec::default() };
        cluster.ask(bob, Request::Attach { ticket: Ticket(8), group, queue, consumer, spec });
        let (ticket, takes_back) = (Ticket(9), false);
        cluster.ask(bob, Request::Detach { ticket, group, queue, consumer, takes_back });
        cluster.run(500);
        let told = cluster.told(bob);
        let is_end = |answer: &Answer| matches!(answer, Answer::Detached { ticket: Ticket(9) });
        assert!(told.last().is_some_and(is_end), "version {version}: {told:?}");
        let delivered = told.iter().map(|answer| match answer {
            Answer::Delivered(delivery) => delivery.count,
            _ => 0,
        });
        assert_eq!(delivered.sum::<u32>(), sent, "version {version}");
        assert_eq!(ready(&mut cluster, ann, place), u64::from(3 - sent), "version {version}");
    }
}
