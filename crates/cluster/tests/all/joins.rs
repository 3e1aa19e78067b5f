//! Three nodes, driven by hand: whom a new leader waits for before it delivers.

use crate::cores::Cluster;
use cluster::shard::Shard;
use cluster::{Answer, Request, Ticket};
use machine::{
    Batch, ConsumerId, ConsumerSpec, GroupId, NodeId, Outcome, QueueId, Ranges, SessionId,
};

type Place = (QueueId, GroupId);

fn publish(cluster: &mut Cluster, by: SessionId, (queue, group): Place, count: u64) {
    for ticket in 0..count {
        let mut batch = Batch::new();
        batch.enqueue(&[queue], &[], b"a");
        let (ticket, settles) = (Ticket(ticket), Vec::new());
        cluster.ask(by, Request::Append { group, ticket, batch, settles });
    }
    cluster.run(100);
}

fn attach(cluster: &mut Cluster, session: SessionId, (queue, group): Place) {
    let consumer = ConsumerId { session, number: 1 };
    let spec = ConsumerSpec { credit: 10, ..ConsumerSpec::default() };
    cluster.ask(session, Request::Attach { ticket: Ticket(8), group, queue, consumer, spec });
    cluster.run(50);
}

/// How many messages `session` was delivered since the last time.
fn delivered(cluster: &mut Cluster, session: SessionId) -> u32 {
    let told = cluster.told(session).into_iter();
    let count = |answer| match answer {
        Answer::Delivered(it) => it.count,
        _ => 0,
    };
    told.map(count).sum()
}

/// A leader dies whose queue's messages Bob holds, and leads again by the vote of Ann's node; Bob's does not
/// reach it yet. Gives the leader, Bob, Ann and the queue.
fn leads_again_without_bob(cluster: &mut Cluster) -> (NodeId, SessionId, SessionId, Place) {
    let place = cluster.declare(Shard::first_session(NodeId(1)), "orders", (true, false));
    let leader = cluster.leader(place.1);
    let [bobs, anns] = [1, 2].map(|nth| NodeId((leader.0 - 1 + nth) % 3 + 1));
    let (bob, ann) = (Shard::first_session(bobs), Shard::first_session(anns));
    publish(cluster, bob, place, 2);
    attach(cluster, bob, place);
    // Ann's node lacks an entry, so that it does not lead itself.
    cluster.cut(leader, anns);
    publish(cluster, bob, place, 1);
    assert_eq!(delivered(cluster, bob), 3);
    cluster.cut(bobs, anns);
    cluster.restart_alone(leader);
    cluster.heal(leader, anns);
    cluster.run(400);
    assert_eq!(cluster.leader_but(place.1, bobs), Some(leader));
    attach(cluster, ann, place);
    (leader, bob, ann, place)
}

#[test]
fn a_leader_that_has_just_started_waits_for_who_has_not_reached_it_yet() {
    let mut cluster = Cluster::new(3, 1);
    let (leader, bob, ann, (queue, group)) = leads_again_without_bob(&mut cluster);
    assert_eq!(delivered(&mut cluster, ann), 0, "Bob holds them, and lives");
    let [bobs, anns] = [bob, ann].map(|session| Shard::node_of(session).unwrap());
    cluster.heal(leader, bobs);
    cluster.heal(bobs, anns);
    cluster.run(500);
    let consumer = ConsumerId { session: bob, number: 1 };
    let (ranges, outcome, credit) = (Ranges::from(1..4), Outcome::Done, 3);
    cluster.ask(bob, Request::Settle { group, queue, consumer, ranges, outcome, credit });
    cluster.run(3000);
    assert_eq!(delivered(&mut cluster, ann) + delivered(&mut cluster, bob), 0, "they are settled");
}

#[test]
fn a_leader_that_has_just_started_does_not_wait_for_ever_for_who_does_not_come() {
    let mut cluster = Cluster::new(3, 1);
    let (_, _, ann, _) = leads_again_without_bob(&mut cluster);
    cluster.run(2000);
    assert_eq!(delivered(&mut cluster, ann), 3);
}

#[test]
fn who_stood_still_does_not_hear_what_others_were_given_meanwhile() {
    let mut cluster = Cluster::new(3, 1);
    let place = cluster.declare(Shard::first_session(NodeId(1)), "orders", (true, false));
    let leader = cluster.leader(place.1);
    let [bobs, anns] = [1, 2].map(|nth| NodeId((leader.0 - 1 + nth) % 3 + 1));
    let (bob, ann) = (Shard::first_session(bobs), Shard::first_session(anns));
    attach(&mut cluster, bob, place);
    // What it is sent now waits for it, over a connection that is open.
    cluster.asleep.insert(bobs);
    publish(&mut cluster, ann, place, 2);
    attach(&mut cluster, ann, place);
    assert_eq!((delivered(&mut cluster, ann), delivered(&mut cluster, bob)), (0, 0));
    for other in [leader, anns] {
        cluster.lose_sight(other, bobs);
    }
    cluster.cut(leader, anns);
    cluster.run(500);
    cluster.heal(leader, anns);
    cluster.run(3_000);
    assert_eq!(delivered(&mut cluster, ann), 2, "whoever leads now gives them to Ann");
    cluster.asleep.remove(&bobs);
    cluster.run(100);
    assert_eq!(delivered(&mut cluster, bob), 0, "they are Ann's");
}
