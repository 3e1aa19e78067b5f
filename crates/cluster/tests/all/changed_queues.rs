//! The catalog changes a queue that is there: its group hears of it from every node, and from one that starts, and a
//! change that comes late changes nothing.

use crate::cores::Cluster;
use cluster::exchange::{Input, WantedQueue};
use cluster::shard::Shard;
use cluster::{Answer, Request, Ticket};
use machine::{
    Batch, CatalogCommand, CatalogReply, Features, GroupId, NodeId, QueueId, QueueSettings,
    Refusal, SessionId, Version,
};

/// A queue, and the session that uses it.
struct Used {
    session: SessionId,
    queue: QueueId,
    group: GroupId,
}

impl Used {
    /// A durable queue `q`, declared and used at the second node.
    fn of(cluster: &mut Cluster) -> Self {
        let session = Shard::first_session(NodeId(2));
        let (queue, group) = cluster.declare(session, "q", (true, false));
        Self { session, queue, group }
    }

    fn publish(&self, cluster: &mut Cluster, count: usize) {
        let Self { session, queue, group } = *self;
        let mut batch = Batch::new();
        (0..count).for_each(|_| batch.enqueue(&[queue], &[], b"body"));
        let (ticket, settles) = (Ticket(7), Vec::new());
        cluster.ask(session, Request::Append { group, ticket, batch, settles });
        cluster.run(100);
        let told = cluster.told(session);
        assert!(matches!(told[..], [Answer::Appended { .. }]), "{told:?}");
    }

    fn ready(&self, cluster: &mut Cluster) -> u64 {
        let Self { session, queue, group } = *self;
        cluster.ask(session, Request::Status { ticket: Ticket(8), group, queue });
        cluster.run(100);
        match &cluster.told(session)[..] {
            [Answer::Status { status: Some(status), .. }] => status.ready,
            other => panic!("{other:?}"),
        }
    }

    /// Asks the catalog, at a node, for a limit of the queue's length.
    fn limit(&self, cluster: &mut Cluster, node: NodeId, max_length: u64) {
        let session = Shard::first_session(node);
        let mut spec = cluster.queue(node, self.queue).spec().clone();
        spec.settings = settings(max_length);
        let command = CatalogCommand::ChangeQueue {
            vhost: "/".to_owned(),
            name: "q".to_owned(),
            queue: self.queue,
            spec: Box::new(spec),
        };
        cluster.ask(session, Request::Catalog { ticket: Ticket(9), command });
        cluster.run(100);
        let told = cluster.told(session);
        let is_done = matches!(told[..], [Answer::Catalog { reply: CatalogReply::Done, .. }]);
        assert!(is_done, "{told:?}");
    }
}

fn settings(max_length: u64) -> QueueSettings {
    let features = Features { max_length: Some(max_length), ..Features::default() };
    let features = Some(Box::new(features));
    QueueSettings { is_durable: true, is_auto_delete: false, features, is_paused: false }
}

#[test]
fn a_change_counts_at_once_and_after_restarts_of_all_nodes() {
    let mut cluster = Cluster::at(3, 2, Version::CHANGED_SETTINGS);
    let used = Used::of(&mut cluster);
    used.publish(&mut cluster, 9);
    used.limit(&mut cluster, NodeId(3), 4);
    assert_eq!(used.ready(&mut cluster), 4, "what is too much goes at once");
    used.limit(&mut cluster, NodeId(1), 6);
    used.publish(&mut cluster, 9);
    assert_eq!(used.ready(&mut cluster), 6);
    for node in [1, 2, 3].map(NodeId) {
        cluster.restart(node);
        cluster.run(3000);
    }
    used.publish(&mut cluster, 9);
    assert_eq!(used.ready(&mut cluster), 6);
}

#[test]
fn a_node_that_starts_tells_the_group_of_a_change_that_it_has_not_heard_of() {
    let mut cluster = Cluster::at(3, 2, Version::CHANGED_SETTINGS);
    let used = Used::of(&mut cluster);
    let Used { queue, group, .. } = used;
    let hears = |cluster: &mut Cluster, max_length, revision| {
        let settings = settings(max_length);
        let wanted = WantedQueue { group, queue, settings, revision };
        let (shard, agreed) = (Shard::of(group, 2), Version::CHANGED_SETTINGS);
        let leader = cluster.leader(group);
        let next_queue = 0;
        let queues = vec![wanted];
        let input = Input::Reconcile { queues, next_queue, agreed };
        cluster.core(leader).inboxes[shard].push(input);
        cluster.run(100);
    };
    hears(&mut cluster, 3, 1_000);
    used.publish(&mut cluster, 9);
    assert_eq!(used.ready(&mut cluster), 3);
    // One that is late, and the same again.
    hears(&mut cluster, 8, 999);
    hears(&mut cluster, 8, 1_000);
    used.publish(&mut cluster, 9);
    assert_eq!(used.ready(&mut cluster), 3);
    hears(&mut cluster, 5, 1_001);
    used.publish(&mut cluster, 9);
    assert_eq!(used.ready(&mut cluster), 5);
}

#[test]
fn a_queue_is_not_changed_before_all_nodes_can_read_that() {
    let mut cluster = Cluster::at(3, 1, Version(7));
    let used = Used::of(&mut cluster);
    let spec = Box::new(cluster.queue(NodeId(1), used.queue).spec().clone());
    let (vhost, name, queue) = ("/".to_owned(), "q".to_owned(), used.queue);
    let command = CatalogCommand::ChangeQueue { vhost, name, queue, spec };
    let catalog = cluster.core(NodeId(1)).shards[0].catalog().expect("the catalog's shard");
    let (since, agreed) = (Version::CHANGED_SETTINGS, Version(7));
    assert_eq!(catalog.check(&command), Err(Refusal::NotYet { since, agreed }));
}
