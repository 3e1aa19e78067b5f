//! Nodes come and go under load, with real threads, files and connections: publishers see no error,
//! and everything that was confirmed is there on those who stay.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the shell: it starts nodes in directories of its own"
)]

#[path = "common/addresses.rs"]
mod addresses;
#[path = "common/session.rs"]
mod session;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::{
    Admission, Answer, ClusterHandle, Config, Failure, PeerConfig, Request, Ticket, kept_secret,
    launch,
};
use machine::{
    Batch, CatalogCommand, CatalogReply, ConsumerId, ConsumerSpec, Goal, GroupId, Messages, NodeId,
    NodeInfo, NodeStatus, QueueId,
};
use session::{Session, TIMEOUT, run};

fn start(root: &Path, node: u64, peers: PeerConfig) -> ClusterHandle {
    launch(&config(root, node, peers), &Failure::new(|_, why| panic!("{why}"))).unwrap()
}

fn config(root: &Path, node: u64, peers: PeerConfig) -> Config {
    Config {
        data_dir: root.join(format!("{node}")),
        groups: 2,
        shards: 2,
        wal_file_bytes: 1 << 20,
        commit_delay_us: 300,
        memory_limit: u64::MAX,
        disk_free_limit: 0,
        new_cluster: 7,
        version_max: machine::Version::NEWEST,
        reconcile_stop: false,
        peers: Some(PeerConfig {
            node: Some(NodeId(node)),
            bulk_bytes_per_second: 1 << 30,
            ..peers
        }),
    }
}

impl Session {
    async fn publish(&mut self, (queue, group): (QueueId, GroupId), number: u64) {
        let (mut batch, settles) = (Batch::new(), Vec::new());
        batch.enqueue(&[queue], &[], format!("{number}").as_bytes());
        let append = Request::Append { group, ticket: Ticket(2), batch, settles };
        self.ask(append).await;
        let answer = self.next().await;
        assert!(matches!(answer, Answer::Appended { .. }), "{answer:?}");
    }

    async fn consume(&mut self, (queue, group): (QueueId, GroupId), count: u64) -> BTreeSet<u64> {
        let consumer = ConsumerId { session: self.id, number: queue.0 };
        let spec = ConsumerSpec { credit: u32::MAX, ..ConsumerSpec::default() };
        let attach = Request::Attach { ticket: Ticket(3), group, queue, consumer, spec };
        self.ask(attach).await;
        let mut answer = self.next().await;
        let mut numbers = BTreeSet::new();
        while (numbers.len() as u64) < count {
            if let Answer::Delivered(delivery) = answer {
                let bodies = Messages::of(queue, &delivery.bytes);
                numbers.extend(
                    bodies.map(|(_, body)| {
                        std::str::from_utf8(body).unwrap().parse::<u64>().unwrap()
                    }),
                );
            }
            if (numbers.len() as u64) < count {
                answer = self.next().await;
            } else {
                break;
            }
        }
        numbers
    }
}

/// Takes nodes in for as long as the node runs.
fn admit(member: &ClusterHandle) {
    let member = member.clone();
    let mut admissions = member.admissions().unwrap();
    std::thread::spawn(move || {
        run(async {
            while let Some(Admission { node: joiner, reply }) = admissions.recv().await {
                let NodeInfo { node, address, incarnation } = joiner;
                let command = CatalogCommand::AddNode { node, address, incarnation };
                let taken = Session::open(&member).change(command).await;
                assert_eq!(taken, CatalogReply::Done);
                let _ = reply.send(Ok(member.catalog().nodes().cloned().collect()));
            }
        });
    });
}

/// Waits until every group that `node` has a replica of has the voters that the catalog wants.
fn wait_for_voters(node: &ClusterHandle) {
    let started = Instant::now();
    loop {
        let groups = node.status().map(|status| status.groups).unwrap_or_default();
        let is_as_wanted = |group: GroupId, voters: &[NodeId]| {
            let wanted: BTreeSet<NodeId> = node.catalog().voters(group).iter().copied().collect();
            wanted == voters.iter().copied().collect()
        };
        let is_settled = |found: &cluster::shard::GroupReport| {
            is_as_wanted(found.group, &found.voters) && found.learners.is_empty()
        };
        if !groups.is_empty() && groups.iter().all(is_settled) {
            return;
        }
        assert!(started.elapsed() < TIMEOUT, "{groups:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_node_comes_and_another_goes_and_publishers_see_no_error() {
    let name = format!("millrace-membership-{}", std::process::id());
    let root: PathBuf = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&root);
    let addresses = addresses::free_addresses(4);
    let peers: Vec<_> = (1..=3).map(NodeId).zip(addresses.iter().cloned()).collect();
    let of_list = || PeerConfig { peers: peers.clone(), ..PeerConfig::default() };
    let first: Vec<_> = (1..=3).map(|node| start(&root, node, of_list())).collect();
    first.iter().for_each(ClusterHandle::wait_ready);
    admit(&first[1]);
    let places: Vec<_> = run(async {
        let mut session = Session::open(&first[0]);
        let mut places = Vec::new();
        for name in ["a", "b", "c", "d", "e", "f"] {
            places.push(session.declare(name).await);
        }
        places
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let publisher = {
        let (node, places, is_over) = (first[1].clone(), places.clone(), Arc::clone(&is_over));
        std::thread::spawn(move || {
            run(async {
                let mut session = Session::open(&node);
                let mut rounds = 0;
                while !is_over.load(Ordering::Relaxed) {
                    for place in &places {
                        session.publish(*place, rounds).await;
                    }
                    rounds += 1;
                }
                rounds
            })
        })
    };
    let join = Some(addresses[1].clone());
    let listen = Some(addresses[3].clone());
    let joining = PeerConfig { join, listen, ..PeerConfig::default() };
    let without =
        launch(&config(&root, 4, joining.clone()), &Failure::new(|_, why| panic!("{why}")));
    assert!(without.unwrap_err().to_string().contains("`millrace cluster token`"));
    // Nodes of one machine found their cluster under a secret that one of them made.
    let secret = kept_secret(&root.join("2")).unwrap();
    assert_eq!(kept_secret(&root.join("3")).unwrap(), secret);
    let fourth = start(&root, 4, PeerConfig { secret: Some(secret.clone()), ..joining });
    assert_eq!(kept_secret(&root.join("4")).unwrap(), secret);
    fourth.wait_ready();
    run(async {
        let mut session = Session::open(&first[1]);
        let changes = first[1].catalog().placement_changes(|_| NodeStatus::Serving, Goal::Balance);
        assert!(!changes.is_empty(), "the new node gets its share");
        for change in changes {
            assert_eq!(session.change(change).await, CatalogReply::Done);
        }
    });
    first.iter().chain([&fourth]).for_each(wait_for_voters);
    assert!(fourth.status().unwrap().groups.len() > 3);
    // It goes while it leads and serves.
    run(async {
        let remove = CatalogCommand::RemoveNode { node: NodeId(1) };
        let removed = Session::open(&first[1]).change(remove).await;
        assert_eq!(removed, CatalogReply::Done);
    });
    [&first[1], &first[2], &fourth].into_iter().for_each(wait_for_voters);
    is_over.store(true, Ordering::Relaxed);
    let rounds = publisher.join().unwrap();
    assert!(rounds > 10, "{rounds} rounds");
    // Those who stay do not need it.
    first[0].stop();
    run(async {
        let mut session = Session::open(&fourth);
        for place in &places {
            let found = session.consume(*place, rounds).await;
            assert_eq!(found, (0..rounds).collect());
        }
        // Its number is never given again.
        let again = CatalogCommand::AddNode {
            node: NodeId(1),
            address: addresses[0].clone(),
            incarnation: 99,
        };
        assert!(matches!(session.change(again).await, CatalogReply::Refused(_)));
    });
    [&first[1], &first[2], &fourth].into_iter().for_each(ClusterHandle::stop);
    let _ = std::fs::remove_dir_all(&root);
}
