//! Three nodes with real threads, files and connections: one that was away too long, or whose disk
//! lost something, is again what the others are.
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
use std::time::{Duration, Instant};

use cluster::{
    Answer, ClusterHandle, Config, Delivery, Failure, NotDescribed, PeerConfig, Request, Ticket,
    launch,
};
use machine::{
    Attributes, Batch, ConsumerId, ConsumerSpec, GroupId, Messages, NodeId, Outcome, QueueId,
    Ranges, Value, Version,
};
use session::{Session, TIMEOUT, run};
use wal::{Boot, FileDisk, Member};

/// Three nodes, some of which run.
struct Cluster {
    root: PathBuf,
    peers: Vec<(NodeId, String)>,
    nodes: [Option<ClusterHandle>; 3],
    /// What the nodes read.
    version: Version,
}

impl Cluster {
    fn new(name: &str) -> Self {
        Self::at(name, Version::NEWEST)
    }

    fn at(name: &str, version: Version) -> Self {
        let root = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let peers = (1..).map(NodeId).zip(addresses::free_addresses(3)).collect();
        let mut cluster = Self { root, peers, nodes: [None, None, None], version };
        (1..=3).for_each(|node| cluster.start(node));
        cluster.nodes.iter().flatten().for_each(ClusterHandle::wait_ready);
        cluster
    }

    fn directory(&self, node: usize) -> PathBuf {
        self.root.join(format!("{node}"))
    }

    fn start(&mut self, node: usize) {
        let peers = PeerConfig {
            node: Some(NodeId(node as u64)),
            peers: self.peers.clone(),
            bulk_bytes_per_second: 1 << 30,
            ..PeerConfig::default()
        };
        let config = Config {
            data_dir: self.directory(node),
            groups: 1,
            shards: 2,
            wal_file_bytes: 1 << 20,
            commit_delay_us: 300,
            memory_limit: u64::MAX,
            disk_free_limit: 0,
            new_cluster: 7,
            version_max: self.version,
            reconcile_stop: false,
            peers: Some(peers),
        };
        let handle = launch(&config, &Failure::new(|_, why| panic!("{why}"))).unwrap();
        self.nodes[node - 1] = Some(handle);
    }

    fn node(&self, node: usize) -> &ClusterHandle {
        self.nodes[node - 1].as_ref().expect("it runs")
    }

    fn stop(&mut self, node: usize) {
        self.nodes[node - 1].take().expect("it runs").stop();
    }

    /// Waits until all nodes have applied the same in every group, and it is the same.
    fn agree(&self) {
        let started = Instant::now();
        loop {
            let seen: Vec<_> = self.nodes.iter().flatten().filter_map(digests).collect();
            if seen.len() == 3 && seen[0].len() == 4 && seen.iter().all(|one| *one == seen[0]) {
                return;
            }
            assert!(started.elapsed() < TIMEOUT, "they do not agree: {seen:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Group, applied index and digest.
fn digests(node: &ClusterHandle) -> Option<Vec<(GroupId, u64, u64)>> {
    let groups = node.status()?.groups;
    Some(groups.iter().map(|found| (found.group, found.applied, found.digest)).collect())
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.iter().flatten().for_each(ClusterHandle::stop);
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl Session {
    async fn attach(&mut self, (queue, group): (QueueId, GroupId), credit: u32) {
        let consumer = ConsumerId { session: self.id, number: queue.0 };
        let spec = ConsumerSpec { credit, ..ConsumerSpec::default() };
        self.ask(Request::Attach { ticket: Ticket(3), group, queue, consumer, spec }).await;
    }

    async fn settle(&mut self, delivery: &Delivery, outcome: Outcome) {
        let Delivery { group, queue, consumer, first_seq, count, .. } = *delivery;
        let ranges = Ranges::from(first_seq..first_seq + u64::from(count));
        let credit = count;
        self.ask(Request::Settle { group, queue, consumer, ranges, outcome, credit }).await;
    }

    /// The next delivery, and its only body.
    async fn deliver(&mut self) -> (Delivery, String) {
        loop {
            let Answer::Delivered(delivery) = self.next().await else { continue };
            let (_, body) = Messages::of(delivery.store, &delivery.bytes).next().unwrap();
            let body = String::from_utf8(body.to_vec()).unwrap();
            return (delivery, body);
        }
    }

    /// Publishes messages with these numbers, each of about a kilobyte, and waits for the confirms.
    async fn publish(&mut self, place: (QueueId, GroupId), numbers: std::ops::Range<u64>) {
        let (queue, group) = place;
        for number in numbers {
            let mut batch = Batch::new();
            batch.enqueue(&[queue], &[], body(queue, number).as_bytes());
            let settles = Vec::new();
            self.ask(Request::Append { group, ticket: Ticket(2), batch, settles }).await;
            if number % 100 == 99 {
                for _ in 0..100 {
                    let answer = self.next().await;
                    assert!(matches!(answer, Answer::Appended { .. }), "{answer:?}");
                }
            }
        }
    }

    /// The bodies of everything in the queue, which holds `count` messages.
    async fn consume(&mut self, place: (QueueId, GroupId), count: usize) -> BTreeSet<String> {
        let (queue, group) = place;
        let consumer = ConsumerId { session: self.id, number: queue.0 };
        let spec = ConsumerSpec { credit: u32::MAX, ..ConsumerSpec::default() };
        self.ask(Request::Attach { ticket: Ticket(3), group, queue, consumer, spec }).await;
        let mut bodies = BTreeSet::new();
        while bodies.len() < count {
            let Answer::Delivered(delivery) = self.next().await else { continue };
            for (_, body) in Messages::of(queue, &delivery.bytes) {
                bodies.insert(String::from_utf8(body.to_vec()).unwrap());
            }
        }
        bodies
    }
}

fn body(queue: QueueId, number: u64) -> String {
    format!("{}-{number}-{}", queue.0, "x".repeat(1000))
}

fn bodies(queue: QueueId, count: u64) -> BTreeSet<String> {
    (0..count).map(|number| body(queue, number)).collect()
}

fn declare(cluster: &Cluster) -> Vec<(QueueId, GroupId)> {
    run(async {
        let mut session = Session::open(cluster.node(1));
        let mut places = Vec::new();
        for name in ["a", "b", "c"] {
            places.push(session.declare(name).await);
        }
        places
    })
}

fn publish(node: &ClusterHandle, places: &[(QueueId, GroupId)], numbers: std::ops::Range<u64>) {
    run(async {
        let mut session = Session::open(node);
        for place in places {
            session.publish(*place, numbers.clone()).await;
        }
    });
}

fn assert_all_there(node: &ClusterHandle, places: &[(QueueId, GroupId)], count: u64) {
    run(async {
        let mut session = Session::open(node);
        for place in places {
            let found = session.consume(*place, count as usize).await;
            assert!(found == bodies(place.0, count));
        }
    });
}

#[test]
fn a_node_that_was_away_for_longer_than_the_log_reaches_catches_up() {
    let mut cluster = Cluster::new("away");
    let places = declare(&cluster);
    publish(cluster.node(1), &places, 0..500);
    cluster.agree();
    cluster.stop(3);
    // Many times what the log keeps.
    publish(cluster.node(1), &places, 500..6000);
    run(async {
        let mut session = Session::open(cluster.node(2));
        session.declare("declared meanwhile").await;
    });
    cluster.start(3);
    cluster.agree();
    // Everything that it now has in segments it was sent, but for what it had.
    publish(cluster.node(3), &places, 6000..6100);
    cluster.stop(1);
    assert_all_there(cluster.node(3), &places, 6100);
}

#[test]
fn a_node_whose_log_is_damaged_is_rebuilt_from_the_others() {
    let mut cluster = Cluster::new("damaged");
    let places = declare(&cluster);
    publish(cluster.node(1), &places, 0..1800);
    cluster.agree();
    // No checkpoint covers these: the log goes on to other files less often than that.
    publish(cluster.node(1), &places, 1800..2000);
    cluster.agree();
    cluster.stop(3);
    publish(cluster.node(1), &places, 2000..2200);
    let log = cluster.directory(3).join("wal");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&log).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut harmed = 0;
    for path in files.iter().rev() {
        let mut bytes = std::fs::read(path).unwrap();
        let mut at = 0;
        while let Some(found) = bytes[at..].windows(64).position(|part| part == [b'x'; 64]) {
            bytes[at + found] ^= 1;
            at += found + (2 << 10);
            harmed += 1;
            if at >= bytes.len() {
                break;
            }
        }
        std::fs::write(path, bytes).unwrap();
    }
    assert!(harmed > 10, "{harmed}");
    cluster.start(3);
    cluster.agree();
    let groups = cluster.directory(3).join("groups");
    let is_kept = |place: &(QueueId, GroupId)| {
        let names = std::fs::read_dir(groups.join(format!("{}", place.1.0))).unwrap();
        names.flatten().any(|name| name.file_name().to_string_lossy().starts_with("damaged-"))
    };
    assert!(places.iter().any(is_kept), "what was damaged is kept");
    // It may vote again: with one of the others gone, the two that are left go on.
    cluster.stop(1);
    publish(cluster.node(3), &places, 2200..2300);
    assert_all_there(cluster.node(3), &places, 2300);
}

/// Who leads `group`, as `node` sees it.
fn leader(node: &ClusterHandle, group: GroupId) -> Option<usize> {
    let groups = node.status()?.groups;
    let found = groups.iter().find(|found| found.group == group)?;
    found.leader.map(|leader| leader.0 as usize)
}

/// Declares queues until one is in a group that node 1 leads.
async fn declare_on_first(
    cluster: &Cluster,
    session: &mut Session,
    name: &str,
    arguments: &[(&str, Value)],
) -> (QueueId, GroupId) {
    let started = Instant::now();
    for nth in 0.. {
        let place = session.declare_with(&format!("{name} {nth}"), true, arguments).await;
        if leader(cluster.node(2), place.1) == Some(1) {
            return place;
        }
        assert!(started.elapsed() < TIMEOUT, "node 1 leads nothing");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    unreachable!("it looks on until it has one, or time is up")
}

#[test]
fn queues_with_arguments_keep_what_they_promise_when_the_node_that_leads_them_goes() {
    let mut cluster = Cluster::new("arguments");
    let text = |text: &str| Value::LongStr(text.as_bytes().to_vec());
    let (mut session, mut dead_letter_worker, places, published) = run(async {
        let mut session = Session::open(cluster.node(2));
        let dead_letter_worker = Session::open_dead_letter_worker(cluster.node(2));
        let tried = [("x-queue-type", text("quorum")), ("x-delivery-limit", Value::I32(1))];
        let tried = declare_on_first(&cluster, &mut session, "tried", &tried).await;
        let urgent = [("x-max-priority", Value::I32(9))];
        let urgent = declare_on_first(&cluster, &mut session, "urgent", &urgent).await;
        let short = [("x-message-ttl", Value::I32(3000)), ("x-dead-letter-exchange", text("dead"))];
        let short = declare_on_first(&cluster, &mut session, "short-lived", &short).await;
        let later = declare_on_first(&cluster, &mut session, "later", &[]).await;
        let none = Attributes::default();
        session.publish_with(tried, &none, "poison").await;
        session.attach(tried, 1).await;
        let (delivery, _) = session.deliver().await;
        session.settle(&delivery, Outcome::Requeue).await;
        let (delivery, body) = session.deliver().await;
        assert_eq!((delivery.returns, &body[..]), (1, "poison"));
        session.publish_with((urgent.0.level(9), urgent.1), &none, "high").await;
        session.publish_with(urgent, &none, "low").await;
        session.attach(urgent, 1).await;
        let (high, body) = session.deliver().await;
        assert_eq!((high.queue, &body[..]), (urgent.0.level(9), "high"));
        let published = Instant::now();
        let delayed = Attributes { delay_ms: Some(4000), ..none };
        session.publish_with(later, &delayed, "later").await;
        session.publish_with(short, &none, "short-lived").await;
        (session, dead_letter_worker, (delivery, high, short, later), published)
    });
    cluster.stop(1);
    run(async {
        let (poison, high, short, later) = places;
        // Both are held, and nobody else gets them.
        session.settle(&high, Outcome::Done).await;
        let (low, body) = session.deliver().await;
        assert_eq!((low.queue, &body[..]), (high.queue.base(), "low"));
        session.settle(&poison, Outcome::Requeue).await;
        session.attach(later, 1).await;
        assert_eq!(session.deliver().await.1, "later");
        let waited = published.elapsed();
        assert!(waited >= Duration::from_millis(3990), "it comes early: {waited:?}");
        let new = loop {
            match leader(cluster.node(2), short.1) {
                Some(node) if node != 1 => break node,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        if new != 2 {
            dead_letter_worker = Session::open_dead_letter_worker(cluster.node(new));
        }
        let mut left = Vec::new();
        while left.len() < 2 {
            let Answer::Leaving(leaving) = dead_letter_worker.next().await else { continue };
            left.push((leaving.queue, leaving.reason));
        }
        left.sort();
        let mut expected = [(poison.queue, Outcome::Exhausted), (short.0, Outcome::Expired)];
        expected.sort();
        assert_eq!(left, expected);
    });
    cluster.start(1);
    cluster.agree();
}

#[test]
fn an_old_copy_of_a_directory_is_refused_after_the_others_have_started_again() {
    let mut cluster = Cluster::new("old-copy");
    cluster.stop(3);
    let (newest, copy) = (cluster.directory(3), cluster.root.join("copy"));
    copy_directory(&newest, &copy);
    let before = cluster.node(1).catalog().latest_boot(NodeId(3));
    cluster.start(3);
    cluster.node(3).wait_ready();
    let started = Instant::now();
    let is_known = |node: usize| cluster.node(node).catalog().latest_boot(NodeId(3)) > before;
    while !(is_known(1) && is_known(2)) {
        assert!(started.elapsed() < TIMEOUT, "its start is not heard of");
        std::thread::sleep(Duration::from_millis(20));
    }
    (1..=3).for_each(|node| cluster.stop(node));
    std::fs::remove_dir_all(&newest).unwrap();
    std::fs::rename(&copy, &newest).unwrap();
    (1..=3).for_each(|node| cluster.start(node));
    refuses_node_3_as_an_old_copy(&cluster);
}

/// Nobody can tell it from an old copy: it may be one whose newest start is not in it.
#[test]
fn a_directory_whose_count_of_starts_is_gone_is_refused_as_an_old_copy() {
    let mut cluster = Cluster::new("no-boot");
    cluster.stop(3);
    std::fs::remove_file(cluster.directory(3).join("BOOT")).unwrap();
    cluster.start(3);
    refuses_node_3_as_an_old_copy(&cluster);
}

#[test]
fn a_node_stops_at_once_while_its_next_renewal_is_seconds_away() {
    let mut cluster = Cluster::new("stops");
    let node = cluster.nodes[2].take().unwrap();
    assert_eq!(node.stop_within(Duration::from_secs(2)), [""; 0], "these threads sleep on");
}

#[test]
fn a_copy_that_was_made_while_the_node_ran_is_refused_though_it_never_started_again() {
    let mut cluster = Cluster::new("running-copy");
    cluster.agree();
    let (newest, copy) = (cluster.directory(3), cluster.root.join("copy"));
    copy_directory(&newest, &copy);
    let copied = Boot::last(&FileDisk::existing(&copy).unwrap()).unwrap();
    // What the others have on their disks of it.
    let kept = |node: usize| {
        let members = Member::load(&FileDisk::existing(cluster.directory(node)).unwrap()).unwrap();
        members.into_iter().find(|member| member.node == 3).unwrap()
    };
    let started = Instant::now();
    while [1, 2].into_iter().any(|node| kept(node).stamp <= copied) {
        assert!(started.elapsed() < TIMEOUT, "it has told nothing");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!([1, 2].into_iter().all(|node| kept(node).boot <= copied), "it is the same start");
    // Who starts again meanwhile lets the running node in.
    cluster.stop(1);
    cluster.start(1);
    cluster.node(1).wait_ready();
    let is_up = |cluster: &Cluster| {
        let peers = cluster.node(1).status().map_or(Vec::new(), |status| status.peers);
        peers.iter().any(|peer| peer.node == NodeId(3) && peer.is_up)
    };
    let started = Instant::now();
    while !is_up(&cluster) {
        assert!(started.elapsed() < TIMEOUT, "node 3 is not let in");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Nobody leads while all of them start.
    (1..=3).for_each(|node| cluster.stop(node));
    let real = cluster.root.join("real");
    std::fs::rename(&newest, &real).unwrap();
    std::fs::rename(&copy, &newest).unwrap();
    (1..=3).for_each(|node| cluster.start(node));
    refuses_node_3_as_an_old_copy(&cluster);
    // The node's own directory is welcome.
    cluster.stop(3);
    std::fs::remove_dir_all(&newest).unwrap();
    std::fs::rename(&real, &newest).unwrap();
    cluster.start(3);
    cluster.node(3).wait_ready();
    cluster.agree();
}

/// Node 3 is told so and let in by nobody, and the others go on.
fn refuses_node_3_as_an_old_copy(cluster: &Cluster) {
    let old = cluster.node(3).clone();
    let why = run(async { tokio::time::timeout(TIMEOUT, old.expelled()).await }).unwrap();
    assert!(why.contains("is an old copy"), "{why}");
    [1, 2].into_iter().for_each(|node| cluster.node(node).wait_ready());
    let peers = cluster.node(1).status().unwrap().peers;
    assert!(peers.iter().all(|peer| peer.is_up == (peer.node == NodeId(2))), "{peers:?}");
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn every_node_describes_queues_that_any_leads_once_the_cluster_has_agreed_on_that() {
    for (version, is_new) in [(Version(7), false), (Version::DESCRIBED, true)] {
        let cluster = Cluster::at(&format!("described-{}", version.0), version);
        let places = declare(&cluster);
        publish(cluster.node(1), &places, 0..100);
        let started = Instant::now();
        while cluster.nodes.iter().flatten().any(|node| node.catalog().agreed() < version) {
            assert!(started.elapsed() < TIMEOUT, "they do not agree on {version}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut answered = 0;
        for asker in 1..=3 {
            let node = cluster.node(asker);
            let questions: Vec<_> = places.iter().map(|(queue, group)| (*group, *queue)).collect();
            let mut told = run(async { node.describe(&questions).await });
            // The catalog is read a moment before the shards hear of it.
            while is_new && told.iter().any(Result::is_err) {
                assert!(started.elapsed() < TIMEOUT, "{told:?}");
                std::thread::sleep(Duration::from_millis(20));
                told = run(async { node.describe(&questions).await });
            }
            assert_eq!(told.len(), places.len());
            for told in told {
                match told {
                    Ok(described) => {
                        assert_eq!(described.queue.status.ready, 100);
                        assert_eq!(described.voters.len(), 3);
                        assert!(is_new || described.leader == NodeId(asker as u64));
                        answered += 1;
                    }
                    Err(why) => {
                        assert_eq!(why, NotDescribed::NotYet { since: Version::DESCRIBED });
                        assert!(!is_new);
                    }
                }
            }
        }
        assert!(answered > 0, "leaders answer their own node at {version}");
    }
}
