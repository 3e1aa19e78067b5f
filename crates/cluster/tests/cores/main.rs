//! Three nodes, driven by hand: what a session is promised though leaders are elsewhere, move or die.
#![allow(clippy::unwrap_used, reason = "this is test code")]

mod clocks;
mod consumers;
#[path = "../common/cores.rs"]
mod cores;
mod cut_off;
mod described;
mod elsewhere;
mod leaders;
mod locks;
mod peeked;
mod rejoining;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};

use cluster::exchange::{Input, Now, Output};
use cluster::peer::message::Message;
use cluster::shard::{GroupReport, Shard};
use cluster::{Answer, Request, Ticket};
use cores::Cluster;
use machine::{
    AttachError, Attributes, Batch, CatalogCommand, ConsumerId, ConsumerSpec, GroupId, NodeId,
    Outcome, QueueId, Ranges, SessionId, Value,
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

/// What `session` was delivered since the last time: level, number and how often it came back.
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

fn publish(cluster: &mut Cluster, by: SessionId, place: (QueueId, GroupId), count: u64) {
    (0..count).for_each(|ticket| cluster.ask(by, append(ticket, place, b"a")));
    cluster.run(100);
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
