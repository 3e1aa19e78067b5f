//! Some groups have five voters, and the others three: what two lost nodes stop, and what they do not.

use crate::cores::Cluster;
use cluster::shard::Shard;
use cluster::{Answer, Request, Ticket};
use machine::{
    Batch, CatalogCommand, CatalogReply, Goal, GroupId, NodeId, NodeStatus, QueueId, Value,
};

const ONE: NodeId = NodeId(1);

fn change(cluster: &mut Cluster, command: CatalogCommand) {
    let ann = Shard::first_session(ONE);
    cluster.ask(ann, Request::Catalog { ticket: Ticket(1), command });
    cluster.run(100);
    let told = cluster.told(ann);
    assert!(matches!(told[..], [Answer::Catalog { reply: CatalogReply::Done, .. }]), "{told:?}");
}

fn declare(cluster: &mut Cluster, name: &str, members: i32) -> (QueueId, GroupId) {
    let arguments = [
        ("x-queue-type", Value::LongStr(b"quorum".to_vec())),
        ("x-quorum-initial-group-size", Value::I32(members)),
    ];
    cluster.declare_with(Shard::first_session(ONE), name, (true, false), &arguments)
}

/// Publishes to all queues on node 1, and waits for `ms`. Who was confirmed, by place.
fn confirmed(cluster: &mut Cluster, places: &[(QueueId, GroupId)], ms: u64) -> Vec<usize> {
    let ann = Shard::first_session(ONE);
    for (nth, (queue, group)) in places.iter().enumerate() {
        let mut batch = Batch::new();
        batch.enqueue(&[*queue], &[], b"a");
        let (group, ticket, settles) = (*group, Ticket(nth as u64), Vec::new());
        cluster.ask(ann, Request::Append { group, ticket, batch, settles });
    }
    cluster.run(ms);
    let place = |answer| match answer {
        Answer::Appended { ticket } => Some(ticket.0 as usize),
        Answer::AppendFailed { .. } => None,
        other => panic!("{other:?}"),
    };
    let mut confirmed: Vec<usize> = cluster.told(ann).into_iter().filter_map(place).collect();
    confirmed.sort_unstable();
    confirmed
}

#[test]
fn a_queue_that_asked_for_five_members_goes_on_without_two_nodes() {
    let mut cluster = Cluster::new(5, 1);
    change(&mut cluster, CatalogCommand::SetWideGroups { per_node: 1 });
    let catalog = cluster.core(ONE).shards[0].catalog().unwrap();
    let changes = catalog.placement_changes(|_| NodeStatus::Serving, Goal::Balance);
    for command in changes {
        change(&mut cluster, command);
    }
    let five: Vec<_> = (0..5).map(|nth| declare(&mut cluster, &format!("five-{nth}"), 5)).collect();
    let three: Vec<_> = (0..5).map(|nth| declare(&mut cluster, &format!("q-{nth}"), 3)).collect();
    cluster.run(10_000);
    let voters = |cluster: &Cluster, group: GroupId| {
        let reports = cluster.cores.iter().flat_map(|core| core.shards[0].report_groups(false));
        let leads = reports.filter(|report| report.group == group && !report.matched.is_empty());
        leads.map(|report| report.voters.len()).max().unwrap()
    };
    assert!(five.iter().all(|(_, group)| voters(&cluster, *group) == 5));
    assert!(three.iter().all(|(_, group)| voters(&cluster, *group) == 3));

    for lost in [4, 5].map(NodeId) {
        for other in (1..=5).map(NodeId).filter(|other| *other != lost) {
            if cluster.is_up(lost, other) {
                cluster.cut(lost, other);
            }
        }
    }
    cluster.run(5000);
    assert_eq!(confirmed(&mut cluster, &five, 1000), [0, 1, 2, 3, 4]);
    let with_majority = |group: &GroupId| {
        let catalog = cluster.cores[0].shards[0].catalog().unwrap();
        catalog.voters(*group).iter().filter(|node| node.0 <= 3).count() >= 2
    };
    let expected: Vec<usize> =
        (0..three.len()).filter(|nth| with_majority(&three[*nth].1)).collect();
    assert!(expected.len() < three.len(), "some have two of their three voters there");
    assert_eq!(confirmed(&mut cluster, &three, 20_000), expected);
}
