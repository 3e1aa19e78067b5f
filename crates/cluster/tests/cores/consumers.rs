//! What consumers hold and their credit, when leaders move, die or find themselves alone.

use machine::ConsumerChange;

use super::*;

#[test]
fn what_is_held_of_levels_is_held_with_the_next_leader_and_credit_is_the_consumers() {
    let mut cluster = Cluster::new(3, 1);
    let ann = session(NodeId(1));
    let priority = ("x-max-priority", Value::I32(5));
    let place = cluster.declare_with(ann, "urgent", (true, false), &[priority]);
    let (queue, group) = place;
    let bob = outsider(&mut cluster, group);
    for level in [0, 5, 5, 2] {
        cluster.ask(bob, append(1, (queue.level(level), group), b"a"));
    }
    cluster.run(100);
    attach(&mut cluster, bob, place, 2);
    let high = queue.level(5);
    assert_eq!(
        delivered(&mut cluster, bob).iter().map(|it| it.0).collect::<Vec<_>>(),
        [high, high]
    );
    let old = depose(&mut cluster, group);
    assert_ne!(Some(old), Shard::node_of(bob));
    assert!(delivered(&mut cluster, bob).is_empty(), "it holds as many as it may");
    let consumer = ConsumerId { session: bob, number: 1 };
    let settle = |queue, ranges, credit| {
        let outcome = Outcome::Done;
        Request::Settle { group, queue, consumer, ranges, outcome, credit }
    };
    cluster.ask(bob, settle(high, Ranges::from(1..2), 1));
    cluster.run(100);
    assert_eq!(delivered(&mut cluster, bob), [(queue.level(2), 1, 0)]);
    cluster.ask(bob, settle(high, Ranges::from(2..3), 0));
    cluster.ask(bob, settle(queue.level(2), Ranges::from(1..2), 0));
    let ticket = Ticket(9);
    cluster.ask(bob, Request::Detach { ticket, group, queue, consumer, takes_back: true });
    cluster.run(100);
    cluster.ask(bob, Request::Status { ticket: Ticket(77), group, queue });
    cluster.run(100);
    let told = cluster.told(bob);
    let Some(Answer::Status { status: Some(status), .. }) = told.last() else { panic!("{told:?}") };
    assert_eq!((status.ready, status.unsettled, status.counters.settled), (1, 0, 3));
}

#[test]
fn returns_are_counted_once_by_whoever_leads_and_what_is_exhausted_goes_to_its_dead_letter_worker()
{
    let mut cluster = Cluster::new(3, 1);
    cluster.open_dead_letter_workers();
    let ann = session(NodeId(1));
    let arguments =
        [("x-queue-type", Value::LongStr(b"quorum".to_vec())), ("x-delivery-limit", Value::I32(2))];
    let place = cluster.declare_with(ann, "tried", (true, false), &arguments);
    let (queue, group) = place;
    let bob = outsider(&mut cluster, group);
    cluster.ask(bob, append(1, place, b"poison"));
    cluster.run(100);
    attach(&mut cluster, bob, place, 1);
    let consumer = ConsumerId { session: bob, number: 1 };
    let (ranges, outcome, credit) = (Ranges::from(1..2), Outcome::Requeue, 1);
    let requeue = Request::Settle { group, queue, consumer, ranges, outcome, credit };
    assert_eq!(delivered(&mut cluster, bob), [(queue, 1, 0)]);
    cluster.ask(bob, requeue.clone());
    cluster.run(100);
    assert_eq!(delivered(&mut cluster, bob), [(queue, 1, 1)]);
    depose(&mut cluster, group);
    assert!(delivered(&mut cluster, bob).is_empty(), "it is held");
    cluster.ask(bob, requeue.clone());
    cluster.run(100);
    assert_eq!(delivered(&mut cluster, bob), [(queue, 1, 2)]);
    cluster.ask(bob, requeue);
    cluster.run(100);
    let leader = cluster.leader(group);
    let told = cluster.told(Shard::dead_letter_worker(leader));
    let [Answer::Leaving(leaving)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((leaving.reason, leaving.queue, leaving.count), (Outcome::Exhausted, queue, 1));
    // Its node hears only later that another leads: what it has stored is not stored twice for that.
    heal_all(&mut cluster);
    depose(&mut cluster, group);
    assert_ne!(cluster.leader(group), leader);
    let dead_letter_worker = Shard::dead_letter_worker(leader);
    let consumer = ConsumerId { session: dead_letter_worker, number: 0 };
    let (ranges, outcome, credit) = (Ranges::from(1..2), Outcome::DeadLettered, 0);
    cluster.ask(
        dead_letter_worker,
        Request::Settle { group, queue, consumer, ranges, outcome, credit },
    );
    heal_all(&mut cluster);
    cluster.run(2000);
    cluster.ask(bob, Request::Status { ticket: Ticket(77), group, queue });
    cluster.run(100);
    let told = cluster.told(bob);
    let Some(Answer::Status { status: Some(status), .. }) = told.last() else { panic!("{told:?}") };
    assert_eq!((status.leaving, status.ready, status.counters.dead_lettered), (0, 0, 1));
}

#[test]
fn credit_that_comes_with_a_return_is_not_lost_with_the_leader_that_was_to_log_it() {
    let mut cluster = Cluster::new(3, 1);
    let ann = session(NodeId(1));
    let arguments =
        [("x-queue-type", Value::LongStr(b"quorum".to_vec())), ("x-delivery-limit", Value::I32(9))];
    let place = cluster.declare_with(ann, "tried", (true, false), &arguments);
    let (queue, group) = place;
    let leader = cluster.leader(group);
    let bob = session(leader);
    cluster.ask(bob, append(1, place, b"a"));
    cluster.run(100);
    attach(&mut cluster, bob, place, 1);
    assert_eq!(delivered(&mut cluster, bob), [(queue, 1, 0)]);
    cluster.stalled = (1..=3).map(NodeId).filter(|node| *node != leader).collect();
    let consumer = ConsumerId { session: bob, number: 1 };
    let (ranges, outcome, credit) = (Ranges::from(1..2), Outcome::Requeue, 1);
    cluster.ask(bob, Request::Settle { group, queue, consumer, ranges, outcome, credit });
    cluster.run(50);
    assert!(delivered(&mut cluster, bob).is_empty(), "it is not logged yet");
    for other in (1..=3).map(NodeId).filter(|node| *node != leader) {
        cluster.cut(leader, other);
    }
    cluster.stalled.clear();
    cluster.run(1500);
    heal_all(&mut cluster);
    cluster.run(2000);
    let again = delivered(&mut cluster, bob);
    assert_eq!(again.len(), 1, "{again:?}");
    let (ranges, outcome) = (Ranges::from(1..2), Outcome::Requeue);
    cluster.ask(bob, Request::Settle { group, queue, consumer, ranges, outcome, credit });
    cluster.run(100);
    assert_eq!(delivered(&mut cluster, bob).len(), 1, "it has credit for one, and gets one");
}

/// A session on the node that leads the group of a queue with `count` messages, that may hold so many and
/// holds so many: it has no credit left.
fn full_hands(cluster: &mut Cluster, count: u64) -> (SessionId, (QueueId, GroupId)) {
    let place = cluster.declare(session(NodeId(1)), "orders", (true, false));
    let bob = session(cluster.leader(place.1));
    publish(cluster, bob, place, count);
    attach(cluster, bob, place, u32::try_from(count).unwrap());
    assert_eq!(delivered(cluster, bob).len() as u64, count);
    (bob, place)
}

/// Settles the first messages of a queue, and asks for as many.
fn acknowledge(
    cluster: &mut Cluster,
    session: SessionId,
    (queue, group): (QueueId, GroupId),
    credit: u32,
) {
    let consumer = ConsumerId { session, number: 1 };
    let (ranges, outcome) = (Ranges::from(1..1 + u64::from(credit)), Outcome::Done);
    cluster.ask(session, Request::Settle { group, queue, consumer, ranges, outcome, credit });
}

/// What a session is given of `count` more messages, once all is well again.
fn given_of(cluster: &mut Cluster, by: SessionId, place: (QueueId, GroupId), count: u64) -> usize {
    cluster.run(1500);
    heal_all(cluster);
    cluster.run(2000);
    // What the next leader did not know to be settled has come again.
    let again = delivered(cluster, by).len();
    if again > 0 {
        acknowledge(cluster, by, place, u32::try_from(again).unwrap());
    }
    cluster.run(100);
    publish(cluster, by, place, count);
    delivered(cluster, by).len()
}

#[test]
fn credit_that_comes_in_the_step_in_which_a_leader_finds_itself_alone_is_not_lost() {
    // A shard that comes to its inputs late finds there that it is cut off, and what its own sessions have
    // asked meanwhile.
    let mut cluster = Cluster::new(3, 1);
    let (bob, place) = full_hands(&mut cluster, 10);
    let leader = cluster.leader(place.1);
    for other in (1..=3).map(NodeId).filter(|node| *node != leader) {
        cluster.cut(leader, other);
    }
    acknowledge(&mut cluster, bob, place, 10);
    assert_eq!(given_of(&mut cluster, bob, place, 10), 10);
}

#[test]
fn what_only_a_deposed_leader_has_logged_as_settled_stays_settled_with_the_next() {
    let mut cluster = Cluster::new(3, 1);
    let (bob, place) = full_hands(&mut cluster, 10);
    let leader = cluster.leader(place.1);
    let others: Vec<NodeId> = (1..=3).map(NodeId).filter(|node| *node != leader).collect();
    // Nobody hears the leader as it proposes what its consumer has settled, and then its links break for a moment.
    let since = cluster.ms;
    cluster.silent = others.iter().map(|other| ((leader, *other), since)).collect();
    acknowledge(&mut cluster, bob, place, 10);
    cluster.run(20);
    others.iter().for_each(|other| cluster.cut(leader, *other));
    cluster.run(150);
    assert!(cluster.leader_but(place.1, leader).is_some(), "another leads");
    heal_all(&mut cluster);
    cluster.run(2000);
    assert_eq!(delivered(&mut cluster, bob), []);
    assert_eq!(ready(&mut cluster, bob, place), 0);
}

#[test]
fn what_is_held_stays_held_where_a_link_breaks_as_the_lead_goes_home() {
    for ms in 0..6 {
        let mut cluster = Cluster::new(3, 1);
        let place = cluster.declare(session(NodeId(1)), "orders", (true, false));
        cluster.run(6000);
        let home = cluster.leader(place.1);
        cluster.restart(home);
        while cluster.leader_but(place.1, home).is_none() {
            cluster.run(1);
        }
        let other = NodeId(home.0 % 3 + 1);
        let (ann, bob) = (session(other), session(home));
        cluster.run(500);
        publish(&mut cluster, bob, place, 4);
        attach(&mut cluster, ann, place, 4);
        assert_eq!(delivered(&mut cluster, ann).len(), 4);
        attach(&mut cluster, bob, place, 4);
        while cluster.leader_but(place.1, NodeId(0)) != Some(home) {
            cluster.run(1);
        }
        cluster.run(ms);
        cluster.cut(home, other);
        cluster.run(20);
        cluster.heal(home, other);
        cluster.run(1500);
        assert_eq!(delivered(&mut cluster, bob), [], "{ms} ms");
    }
}

#[test]
fn what_comes_back_in_the_step_in_which_a_leader_finds_itself_alone_is_given_out_again() {
    let mut cluster = Cluster::new(3, 1);
    let (bob, place) = full_hands(&mut cluster, 3);
    let (queue, group) = place;
    let leader = cluster.leader(group);
    for other in (1..=3).map(NodeId).filter(|node| *node != leader) {
        cluster.cut(leader, other);
    }
    let consumer = ConsumerId { session: bob, number: 1 };
    let (ranges, outcome, credit) = (Ranges::from(1..4), Outcome::Requeue, 3);
    cluster.ask(bob, Request::Settle { group, queue, consumer, ranges, outcome, credit });
    cluster.run(1500);
    heal_all(&mut cluster);
    cluster.run(2000);
    let again: Vec<u64> = delivered(&mut cluster, bob).iter().map(|(_, seq, _)| *seq).collect();
    assert_eq!(again, [1, 2, 3]);
}

#[test]
fn a_leader_that_hears_of_the_next_one_keeps_the_credit_that_came_before_it_could_hand_over() {
    let mut cluster = Cluster::new(3, 1);
    let (bob, place) = full_hands(&mut cluster, 10);
    let group = place.1;
    let leader = cluster.leader(group);
    // It stands still for less than it takes to be missed, and the others lose sight of it for a moment:
    // they elect one of them. Meanwhile its client acknowledges everything.
    cluster.asleep.insert(leader);
    let others: Vec<NodeId> = (1..=3).map(NodeId).filter(|node| *node != leader).collect();
    others.iter().for_each(|other| cluster.lose_sight(*other, leader));
    cluster.run(1);
    others.iter().for_each(|other| cluster.catch_sight(*other, leader));
    cluster.run(600);
    assert!(cluster.leader_but(group, leader).is_some(), "another leads");
    acknowledge(&mut cluster, bob, place, 10);
    cluster.asleep.clear();
    assert_eq!(given_of(&mut cluster, bob, place, 10), 10);
}

#[test]
fn a_consumer_that_is_cancelled_while_its_node_is_alone_is_not_there_when_it_comes_back() {
    for waits in [true, false] {
        let mut cluster = Cluster::new(3, 1);
        let place = cluster.declare(session(NodeId(1)), "orders", (true, false));
        let leader = cluster.leader(place.1);
        let home = (1..=3).map(NodeId).find(|node| *node != leader).unwrap();
        let (ann, bob) = (session(leader), session(home));
        attach(&mut cluster, bob, place, 10);
        for other in (1..=3).map(NodeId).filter(|node| *node != home) {
            cluster.cut(home, other);
        }
        if waits {
            // By then its node refuses whatever it asks; before that, it asks for a while.
            cluster.run(3000);
        }
        let ((queue, group), ticket) = (place, Ticket(9));
        let consumer = ConsumerId { session: bob, number: 1 };
        cluster.ask(bob, Request::Detach { ticket, group, queue, consumer, takes_back: true });
        cluster.run(3000);
        let told = cluster.told(bob);
        let is_told =
            told.iter().any(|it| matches!(it, Answer::AppendFailed { ticket: Ticket(9) }));
        assert!(is_told, "{told:?}");
        heal_all(&mut cluster);
        cluster.run(2000);
        publish(&mut cluster, ann, place, 3);
        assert_eq!(delivered(&mut cluster, bob).len(), 0, "it does not want any");
        assert_eq!(ready(&mut cluster, ann, place), 3);
    }
}

#[test]
fn what_was_confirmed_before_a_consumer_came_goes_out_by_priority_though_the_leaders_disk_is_behind()
 {
    let mut cluster = Cluster::new(3, 1);
    let ann = session(NodeId(1));
    let priority = ("x-max-priority", Value::I32(5));
    let place = cluster.declare_with(ann, "urgent", (true, false), &[priority]);
    let (queue, group) = place;
    let bob = outsider(&mut cluster, group);
    publish(&mut cluster, bob, place, 3);
    let leader = cluster.leader(group);
    cluster.stalled.insert(leader);
    let high = queue.level(5);
    cluster.ask(bob, append(7, (high, group), b"a"));
    cluster.run(50);
    assert!(appended(&cluster.told(bob)).contains(&7), "two of three have it on their disks");
    attach(&mut cluster, bob, place, 1);
    assert!(
        delivered(&mut cluster, bob).is_empty(),
        "its leader has not applied what it confirmed"
    );
    cluster.stalled.remove(&leader);
    cluster.run(50);
    assert_eq!(delivered(&mut cluster, bob), [(high, 1, 0)]);
}

#[test]
fn a_consumer_that_ends_before_its_queue_could_serve_it_is_not_there_after() {
    let mut cluster = Cluster::new(3, 1);
    let ann = session(NodeId(1));
    let priority = ("x-max-priority", Value::I32(5));
    let place = cluster.declare_with(ann, "urgent", (true, false), &[priority]);
    let (queue, group) = place;
    let bob = outsider(&mut cluster, group);
    let leader = cluster.leader(group);
    cluster.stalled.insert(leader);
    publish(&mut cluster, bob, place, 1);
    attach(&mut cluster, bob, place, 9);
    let consumer = ConsumerId { session: bob, number: 1 };
    cluster
        .ask(bob, Request::Detach { ticket: Ticket(9), group, queue, consumer, takes_back: true });
    cluster.run(50);
    cluster.stalled.remove(&leader);
    cluster.run(100);
    cluster.told(bob);
    publish(&mut cluster, bob, place, 1);
    assert!(delivered(&mut cluster, bob).is_empty(), "nobody consumes");
}

#[test]
fn a_paused_consumer_is_given_nothing_whoever_leads_until_it_goes_on() {
    let mut cluster = Cluster::new(3, 1);
    let place = cluster.declare(session(NodeId(1)), "orders", (true, false));
    let (queue, group) = place;
    // Of the node that leads at first, and of another.
    let leader = cluster.leader(group);
    let (here, elsewhere) = (session(leader), session(NodeId(leader.0 % 3 + 1)));
    for by in [here, elsewhere] {
        attach(&mut cluster, by, place, 10);
        let consumer = ConsumerId { session: by, number: 1 };
        cluster.ask(
            by,
            Request::ChangeConsumer { group, queue, consumer, change: ConsumerChange::Pause(true) },
        );
    }
    cluster.run(100);
    let by = session(NodeId((leader.0 + 1) % 3 + 1));
    publish(&mut cluster, by, place, 4);
    assert_eq!(ready(&mut cluster, by, place), 4);
    depose(&mut cluster, group);
    heal_all(&mut cluster);
    cluster.run(1_000);
    assert_eq!(ready(&mut cluster, by, place), 4, "the next leader was told");
    for by in [here, elsewhere] {
        let consumer = ConsumerId { session: by, number: 1 };
        cluster.ask(
            by,
            Request::ChangeConsumer {
                group,
                queue,
                consumer,
                change: ConsumerChange::Pause(false),
            },
        );
    }
    cluster.run(500);
    let given = [here, elsewhere].map(|by| delivered(&mut cluster, by).len());
    assert_eq!(given.iter().sum::<usize>(), 4, "{given:?}");
}

#[test]
fn a_consumer_that_is_paused_while_it_is_attached_is_paused_at_the_next_leader_as_well() {
    let mut cluster = Cluster::new(3, 1);
    let place = cluster.declare(session(NodeId(1)), "orders", (true, false));
    let (queue, group) = place;
    let leader = cluster.leader(group);
    let by = session(NodeId(leader.0 % 3 + 1));
    // Both are on their way when the leader hears of the consumer.
    let (consumer, spec) = (
        ConsumerId { session: by, number: 1 },
        ConsumerSpec { credit: 10, ..ConsumerSpec::default() },
    );
    cluster.ask(by, Request::Attach { ticket: Ticket(9), group, queue, consumer, spec });
    let change = ConsumerChange::Pause(true);
    cluster.ask(by, Request::ChangeConsumer { group, queue, consumer, change });
    cluster.run(100);
    depose(&mut cluster, group);
    heal_all(&mut cluster);
    cluster.run(1_000);
    publish(&mut cluster, by, place, 4);
    assert_eq!(ready(&mut cluster, by, place), 4);
    let change = ConsumerChange::Pause(false);
    cluster.ask(by, Request::ChangeConsumer { group, queue, consumer, change });
    cluster.run(500);
    assert_eq!(delivered(&mut cluster, by).len(), 4);
}
