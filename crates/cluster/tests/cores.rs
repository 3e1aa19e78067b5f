//! Three nodes, driven by hand: what a session is promised though leaders are elsewhere, move or die.
#![allow(clippy::unwrap_used, reason = "this is test code")]

#[path = "common/cores.rs"]
mod cores;

use std::collections::{BTreeMap, BTreeSet};

use cluster::peer::message::Message;
use cluster::shard::{GroupReport, Input, Now, Output, Shard};
use cluster::{Answer, Request, Ticket};
use cores::Cluster;
use machine::{
    Attributes, Batch, ConsumerId, ConsumerSpec, GroupId, NodeId, Outcome, QueueId, Ranges,
    SessionId, Value,
};

fn session(node: NodeId) -> SessionId {
    Shard::first_session(node)
}

fn append(ticket: u64, (queue, group): (QueueId, GroupId), body: &[u8]) -> Request {
    let mut batch = Batch::new();
    batch.enqueue(&[queue], &[], body);
    Request::Append { group, ticket: Ticket(ticket), batch, settles: Vec::new() }
}

fn ready(cluster: &mut Cluster, by: SessionId, (queue, group): (QueueId, GroupId)) -> u64 {
    cluster.ask(by, Request::Status { ticket: Ticket(77), group, queue });
    cluster.run(50);
    match cluster.told(by).pop() {
        Some(Answer::Status { status: Some(status), .. }) => status.ready,
        other => panic!("no status: {other:?}"),
    }
}

fn appended(answers: &[Answer]) -> Vec<u64> {
    let ticket = |answer: &Answer| match answer {
        Answer::Appended { ticket } => Some(ticket.0),
        _ => None,
    };
    answers.iter().filter_map(ticket).collect()
}

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
        cluster.ask(ann, Request::Detach { ticket: Ticket(2), group, queue, consumer });
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

/// What `session` was delivered since the last time: lane, number and how often it came back.
fn delivered(cluster: &mut Cluster, session: SessionId) -> Vec<(QueueId, u64, u32)> {
    let told = cluster.told(session).into_iter();
    told.filter_map(|answer| match answer {
        Answer::Delivered(it) => Some(it),
        _ => None,
    })
    .flat_map(|it| {
        let seqs = it.first_seq..it.first_seq + u64::from(it.count);
        seqs.map(move |seq| (it.queue, seq, it.returns))
    })
    .collect()
}

fn attach(
    cluster: &mut Cluster,
    session: SessionId,
    (queue, group): (QueueId, GroupId),
    credit: u32,
) {
    let consumer = ConsumerId { session, number: 1 };
    let spec = ConsumerSpec { credit, ..ConsumerSpec::default() };
    cluster.ask(session, Request::Attach { ticket: Ticket(8), group, queue, consumer, spec });
    cluster.run(50);
}

/// The leader of `group` stops answering anybody, and another takes over.
fn depose(cluster: &mut Cluster, group: GroupId) -> NodeId {
    let leader = cluster.leader(group);
    for other in (1..=3).map(NodeId).filter(|node| *node != leader) {
        cluster.cut(leader, other);
    }
    cluster.run(1500);
    leader
}

/// Somebody who is not on the node that leads `group`.
fn outsider(cluster: &mut Cluster, group: GroupId) -> SessionId {
    let leader = cluster.leader(group);
    session(NodeId(leader.0 % 3 + 1))
}

#[test]
fn a_node_that_started_with_a_wrong_clock_does_not_lead_by_it() {
    let mut cluster = Cluster::new(3, 1);
    let ann = session(NodeId(1));
    let place = cluster.declare(ann, "later", (true, false));
    let leader = cluster.leader(place.1);
    for other in (1..=3).map(NodeId).filter(|node| *node != leader) {
        cluster.wall_errors.insert(other, 3_600_000);
        cluster.restart(other);
        cluster.run(3000);
    }
    let by = session(leader);
    let mut batch = Batch::new();
    let delayed = Attributes { delay_ms: Some(60_000), ..Attributes::default() };
    batch.enqueue_with(&[place.0], &delayed, &[], b"delayed");
    let mortal = Attributes { ttl_ms: Some(60_000), ..Attributes::default() };
    (0..2).for_each(|_| batch.enqueue_with(&[place.0], &mortal, &[], b"mortal"));
    let (ticket, group, settles) = (Ticket(1), place.1, Vec::new());
    cluster.ask(by, Request::Append { group, ticket, batch, settles });
    cluster.run(100);
    assert_eq!(appended(&cluster.told(by)), [1]);
    depose(&mut cluster, place.1);
    let heir = cluster.leader(place.1);
    assert_ne!(heir, leader);
    assert_eq!(ready(&mut cluster, session(heir), place), 2, "none expired, and one waits");
}

#[test]
fn a_group_keeps_its_time_when_one_with_another_clock_takes_over() {
    const HOUR: i64 = 3_600_000;
    for error in [-HOUR, HOUR] {
        let mut cluster = Cluster::new(3, 1);
        let ann = session(NodeId(1));
        let place = cluster.declare(ann, "later", (true, false));
        let leader = cluster.leader(place.1);
        // The leader's own clock is set while it leads, and the others never had the right time.
        cluster.wall_errors = (1..=3).map(|node| (NodeId(node), error)).collect();
        cluster.wall_errors.insert(leader, error / 7);
        cluster.run(2500);
        let bob = outsider(&mut cluster, place.1);
        let mut batch = Batch::new();
        let attributes = Attributes { delay_ms: Some(6000), ..Attributes::default() };
        batch.enqueue_with(&[place.0], &attributes, &[], b"a");
        let (ticket, group, settles) = (Ticket(1), place.1, Vec::new());
        cluster.ask(bob, Request::Append { group, ticket, batch, settles });
        let published_ms = cluster.ms;
        cluster.run(100);
        assert_eq!(appended(&cluster.told(bob)), [1]);
        attach(&mut cluster, bob, place, 5);
        depose(&mut cluster, place.1);
        assert_ne!(cluster.leader(place.1), leader);
        let left_ms = published_ms + 5900 - cluster.ms;
        cluster.run(left_ms);
        assert!(delivered(&mut cluster, bob).is_empty(), "{error}: it comes early");
        cluster.run(300);
        assert_eq!(delivered(&mut cluster, bob).len(), 1, "{error}: it comes late");
    }
}

#[test]
fn a_node_that_was_stopped_and_leads_then_does_not_put_the_time_back() {
    for (sleeper, sleep_ms) in [(0, 1300), (1, 1300), (0, 1700), (1, 1700), (0, 1900), (1, 1900)] {
        let mut cluster = Cluster::new(3, 1);
        let ann = session(NodeId(1));
        let place = cluster.declare(ann, "later", (true, false));
        cluster.run(6000);
        let leader = cluster.leader(place.1);
        let others: Vec<NodeId> = (1..=3).map(NodeId).filter(|node| *node != leader).collect();
        let bob = session(others[1 - sleeper]);
        let mut batch = Batch::new();
        let attributes = Attributes { delay_ms: Some(6000), ..Attributes::default() };
        batch.enqueue_with(&[place.0], &attributes, &[], b"a");
        let (ticket, group, settles) = (Ticket(1), place.1, Vec::new());
        cluster.ask(bob, Request::Append { group, ticket, batch, settles });
        let published_ms = cluster.ms;
        attach(&mut cluster, bob, place, 5);
        cluster.asleep.insert(others[sleeper]);
        cluster.run(sleep_ms);
        cluster.asleep.clear();
        cluster.run(2);
        depose(&mut cluster, place.1);
        let left_ms = published_ms + 5900 - cluster.ms;
        cluster.run(left_ms);
        assert!(delivered(&mut cluster, bob).is_empty(), "{sleeper} {sleep_ms}: it comes early");
        cluster.run(400);
        assert_eq!(delivered(&mut cluster, bob).len(), 1, "{sleeper} {sleep_ms}: it comes late");
    }
}

#[test]
fn a_leader_that_starts_again_with_a_wrong_clock_does_not_lead_by_it() {
    for error in [-3_600_000, 3_600_000] {
        let mut cluster = Cluster::new(3, 1);
        let ann = session(NodeId(1));
        let place = cluster.declare(ann, "later", (true, false));
        cluster.run(6000);
        let leader = cluster.leader(place.1);
        let bob = outsider(&mut cluster, place.1);
        let mut batch = Batch::new();
        let delayed = Attributes { delay_ms: Some(60_000), ..Attributes::default() };
        batch.enqueue_with(&[place.0], &delayed, &[], b"delayed");
        let mortal = Attributes { ttl_ms: Some(60_000), ..Attributes::default() };
        (0..2).for_each(|_| batch.enqueue_with(&[place.0], &mortal, &[], b"mortal"));
        let (ticket, group, settles) = (Ticket(1), place.1, Vec::new());
        cluster.ask(bob, Request::Append { group, ticket, batch, settles });
        cluster.run(100);
        assert_eq!(appended(&cluster.told(bob)), [1]);
        cluster.wall_errors.insert(leader, error);
        cluster.restart(leader);
        cluster.run(5000);
        assert_eq!(ready(&mut cluster, bob, place), 2, "{error}: none expired, and one waits");
    }
}

#[test]
fn what_is_held_of_lanes_is_held_with_the_next_leader_and_credit_is_the_consumers() {
    let mut cluster = Cluster::new(3, 1);
    let ann = session(NodeId(1));
    let priority = ("x-max-priority", Value::I32(5));
    let place = cluster.declare_with(ann, "urgent", (true, false), &[priority]);
    let (queue, group) = place;
    let bob = outsider(&mut cluster, group);
    for lane in [0, 5, 5, 2] {
        cluster.ask(bob, append(1, (queue.lane(lane), group), b"a"));
    }
    cluster.run(100);
    attach(&mut cluster, bob, place, 2);
    let high = queue.lane(5);
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
    assert_eq!(delivered(&mut cluster, bob), [(queue.lane(2), 1, 0)]);
    cluster.ask(bob, settle(high, Ranges::from(2..3), 0));
    cluster.ask(bob, settle(queue.lane(2), Ranges::from(1..2), 0));
    let ticket = Ticket(9);
    cluster.ask(bob, Request::Detach { ticket, group, queue, consumer });
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

fn publish(cluster: &mut Cluster, by: SessionId, place: (QueueId, GroupId), count: u64) {
    (0..count).for_each(|ticket| cluster.ask(by, append(ticket, place, b"a")));
    cluster.run(100);
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
        cluster.ask(bob, Request::Detach { ticket, group, queue, consumer });
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

fn heal_all(cluster: &mut Cluster) {
    for a in (1..=3).map(NodeId) {
        for b in (a.0 + 1..=3).map(NodeId) {
            if !cluster.is_up(a, b) {
                cluster.heal(a, b);
            }
        }
    }
    cluster.run(500);
}

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
