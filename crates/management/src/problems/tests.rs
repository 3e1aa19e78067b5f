use cluster::{Alarms, Resources};
use machine::{
    Applied, Arguments, CatalogCommand, CatalogReply, Features, NodeInfo, QueueHome, QueueId,
    QueueSettings, QueueSpec, QueueType, Retention, SessionId, SessionOwner, StreamOffset,
    Subscription,
};
use serde_json::json;

use super::*;
use crate::access::Sight;
use crate::looks::tests::status;
use crate::node::tests::facts;

pub(crate) fn node(id: u64) -> NodeInfo {
    NodeInfo { node: NodeId(id), address: format!("node{id}:1"), incarnation: 1 }
}

fn peer(id: u64, is_up: bool) -> PeerStatus {
    let trouble = (!is_up).then(|| "connection refused".to_owned());
    let speaks = is_up.then_some(Version::NEWEST);
    let address = String::new();
    PeerStatus { node: NodeId(id), address, boot: 0, is_up, speaks, trouble, queued_bytes: 0 }
}

pub(crate) fn group(number: u32, leader: Option<u64>, matched: &[(u64, u64)]) -> GroupReport {
    GroupReport {
        group: GroupId(number),
        leader: leader.map(NodeId),
        term: 1,
        committed: 50_000,
        applied: 50_000,
        persisted: 50_000,
        voters: vec![NodeId(1), NodeId(2), NodeId(3)],
        counted: None,
        outgoing: Vec::new(),
        learners: Vec::new(),
        matched: matched.iter().map(|(node, at)| (NodeId(*node), *at)).collect(),
        digest: 0,
        compared: cluster::Compared::default(),
        leader_changes: Vec::new(),
    }
}

/// A node of three that serves clients.
fn well() -> Facts {
    Facts { amqp: Some(([127, 0, 0, 1], 5672).into()), ..facts() }
}

fn look(
    watch: &mut Watch,
    now_s: u64,
    facts: &Facts,
    groups: &[GroupReport],
    peers: &[PeerStatus],
    looks: &Looks,
) -> Vec<Problem> {
    let catalog = Catalog::genesis(&[node(1), node(2), node(3)], 1);
    let reads = catalog.agreed();
    watch.look(now_s, &Around { facts, catalog: &catalog, groups, peers, reads }, looks);
    watch.problems.clone()
}

fn words(told: Vec<(NodeId, Problem)>, sight: &Sight) -> Vec<(String, String)> {
    let catalog = Catalog::genesis(&[node(1), node(2), node(3)], 1);
    let Listed { problems, .. } = listed(&catalog, sight, 1_000_000, told);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    problems.iter().map(|it| (text(&it["kind"]), text(&it["what"]))).collect()
}

#[test]
fn a_node_that_is_well_has_no_problems() {
    let peers = [peer(2, true), peer(3, true)];
    let groups = [group(1, Some(2), &[]), group(2, Some(1), &[(2, 49_000)])];
    let found = look(&mut Watch::default(), 100, &well(), &groups, &peers, &Looks::default());
    assert_eq!(found, []);
}

#[test]
fn what_lasts_is_told_with_its_beginning_and_what_is_over_is_forgotten() {
    let mut watch = Watch::default();
    let looks = Looks::default();
    let (up, down) = ([peer(2, true), peer(3, true)], [peer(2, false), peer(3, true)]);
    let led_by_2 = [group(1, Some(2), &[])];
    let mut at = |now_s, peers: &[PeerStatus]| {
        let found = look(&mut watch, now_s, &well(), &led_by_2, peers, &looks);
        found.into_iter().map(|it| (it.what.key(NodeId(1)).0, it.since_s)).collect::<Vec<_>>()
    };
    assert_eq!(at(100, &up), []);
    // Its leader is gone, and so is the majority without this node; an election may be under way.
    assert_eq!(at(110, &down), [(5, 110), (8, 110)]);
    assert_eq!(at(120, &down), [(5, 110), (7, 110), (8, 110)]);
    assert_eq!(at(130, &up), []);
    assert_eq!(at(140, &down), [(5, 140), (8, 140)], "it is another time");
}

#[test]
fn a_node_says_what_is_short_and_who_is_behind() {
    let resources = Resources {
        memory_bytes: Some(2_000_000),
        memory_limit_bytes: 1_000_000,
        disk_free_bytes: Some(3_000),
        disk_free_limit_bytes: 2_000,
    };
    let alarms = Alarms { memory: true, disk: false };
    let certificate_expires_s = Some(1_000_000 + 2 * DAY_S);
    let facts = Facts { resources, alarms, certificate_expires_s, amqp: None, ..facts() };
    let groups = [group(1, Some(1), &[(2, 10), (3, 49_999)])];
    let peers = [peer(2, true), peer(3, true)];
    let mut watch = Watch::default();
    look(&mut watch, 999_000, &facts, &groups, &peers, &Looks::default());
    let found = look(&mut watch, 999_030, &facts, &groups, &peers, &Looks::default());
    let told: Vec<_> = found.into_iter().map(|problem| (NodeId(1), problem)).collect();
    let all = words(told.clone(), &Sight::All);
    let kinds: Vec<&str> = all.iter().map(|(kind, _)| kind.as_str()).collect();
    let critical = ["node_not_serving", "memory_alarm", "certificate_expires"];
    assert_eq!(kinds, [&critical[..], &["disk_low", "node_behind"]].concat());
    let memory = "memory alarm on millrace@1: 1953 KiB of 976 KiB; publishers are held back";
    assert_eq!(all[1].1, memory);
    let few = words(told, &Sight::Vhosts(Default::default()));
    assert_eq!(few.len(), critical.len(), "who sees no nodes is told what health checks tell");
}

#[test]
fn queues_are_named_if_it_lasts_and_only_so_many() {
    let mut looks = Looks::default();
    let mut watch = Watch::default();
    let count = PROBLEMS_OF_A_KIND_MAX as u64 + 5;
    let left = |id: u64| (QueueId(id), status(UNCONSUMED_MIN + id, 0, UNCONSUMED_MIN + id, 0));
    let mut found = Vec::new();
    for now_s in [100, 110, 120] {
        let few = [(QueueId(9_000), status(UNCONSUMED_MIN - 1, 0, UNCONSUMED_MIN - 1, 0))];
        looks.look(now_s, (0..count).map(left).chain(few).collect());
        found = look(&mut watch, now_s, &well(), &[], &[peer(2, true), peer(3, true)], &looks);
        assert_eq!(found.is_empty(), now_s < 120, "at {now_s}");
    }
    assert_eq!(found.len(), PROBLEMS_OF_A_KIND_MAX);
    let what = What::Queue { queue: 104, is: OfQueue::Unconsumed, count: UNCONSUMED_MIN + 104 };
    assert_eq!(found[0], Problem { what, since_s: 100 });
    let told = watch.told(7);
    assert_eq!((told.left_out, told.now_ms), (5, 7));
    let text = r#"{"what":{"Queue":{"queue":104,"is":"Unconsumed","count":1104}},"since_s":100}"#;
    assert_eq!(told.problems[0], serde_json::from_str::<Value>(text).unwrap());
}

#[test]
fn a_problem_that_several_nodes_see_is_one() {
    let what = |trouble: &str| What::Unreachable { node: 3, trouble: Some(trouble.to_owned()) };
    let told = [(1, 50), (2, 40)]
        .map(|(by, since_s)| (NodeId(by), Problem { what: what("refused"), since_s }));
    let catalog = Catalog::genesis(&[node(1), node(2), node(3)], 1);
    let Listed { verdict, problems } = listed(&catalog, &Sight::All, 100, told);
    assert_eq!((verdict, problems.len()), ("warning", 1));
    assert_eq!(problems[0]["seen_by"], json!(["millrace@1", "millrace@2"]));
    assert_eq!(problems[0]["since"], json!(40_000));
    assert_eq!(problems[0]["object"], json!({ "node": "millrace@3" }));
}

#[test]
fn a_version_that_nobody_raises_is_named_with_who_holds_it_back() {
    let catalog = Catalog::genesis(&[node(1), node(2), node(3)], 1);
    let mut old = peer(2, true);
    old.speaks = Some(catalog.agreed());
    let mut watch = Watch::default();
    let reads = Version(catalog.agreed().0 + 1);
    let (facts, looks) = (well(), Looks::default());
    let mut newer = peer(3, true);
    newer.speaks = Some(reads);
    let peers = [old, newer];
    for now_s in [100, 200] {
        let around = Around { facts: &facts, catalog: &catalog, groups: &[], peers: &peers, reads };
        watch.look(now_s, &around, &looks);
    }
    let (agreed, reads) = (catalog.agreed().0, reads.0);
    let what = What::VersionBehind { agreed, reads, held_by: vec![2] };
    assert_eq!(watch.problems, [Problem { what, since_s: 100 }]);
}

#[test]
fn a_queue_that_waits_because_somebody_has_paused_it_says_so() {
    let mut catalog = Catalog::genesis(&[node(1)], 1);
    let mut apply =
        |index, command| catalog.apply(Applied { index, time_ms: 0 }, command, &mut Vec::new());
    let raised = apply(1, CatalogCommand::RaiseVersion { to: Version::NEWEST });
    assert_eq!(raised, CatalogReply::Done);
    let declare = CatalogCommand::DeclareQueue {
        vhost: "/".to_owned(),
        name: "jobs".to_owned(),
        durable: true,
        auto_delete: false,
        exclusive: false,
        server_named: false,
        arguments: Arguments::new(),
        by: SessionOwner { node: NodeId(1), session: SessionId(1) },
    };
    let CatalogReply::QueueDeclared { queue, .. } = apply(2, declare) else { panic!("a queue") };
    let pause = CatalogCommand::PauseQueue {
        vhost: "/".to_owned(),
        name: "jobs".to_owned(),
        by: Some("ann".to_owned()),
    };
    assert_eq!(apply(3, pause), CatalogReply::Done);
    let kinds = [OfQueue::Unconsumed, OfQueue::Growing, OfQueue::Unacked];
    let told = kinds.map(|is| {
        let what = What::Queue { queue: queue.0, is, count: 2000 };
        (NodeId(1), Problem { what, since_s: 999_990 })
    });
    let Listed { problems, .. } = listed(&catalog, &Sight::All, 1_000_000, told);
    let all: Vec<_> = problems.iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(all, ["queue_paused", "queue_paused", "messages_unacked"]);
    assert_eq!(problems[0]["what"], "ann has paused jobs of vhost /: 2000 messages wait, for 10 s");
}

#[test]
fn a_queue_of_several_partitions_has_one_problem_and_a_stream_that_nobody_reads_has_none() {
    let mut catalog = Catalog::genesis(&[node(1)], 8);
    let mut index = 0;
    let mut apply = |catalog: &mut Catalog, command| {
        index += 1;
        catalog.apply(Applied { index, time_ms: 0 }, command, &mut Vec::new())
    };
    apply(&mut catalog, CatalogCommand::RaiseVersion { to: Version::NEWEST });
    let mut make = |catalog: &mut Catalog, name: &str, queue_type, features, partitions| {
        let settings = QueueSettings {
            is_durable: true,
            is_auto_delete: false,
            features: Some(Box::new(features)),
            is_paused: false,
        };
        let spec = QueueSpec {
            queue_type,
            settings,
            dead_letter: None,
            consumer_timeout_ms: None,
            members: None,
            partitions,
        };
        let (vhost, name) = ("/".to_owned(), name.to_owned());
        let (home, spec, arguments) = (QueueHome::Group, Box::new(spec), Arguments::new());
        apply(catalog, CatalogCommand::CreateQueue { vhost, name, home, spec, arguments })
    };
    let kept = Features { stream: Some(Retention::default()), ..Features::default() };
    make(&mut catalog, "orders", QueueType::Stream, kept, 3);
    let stream = catalog.queue("/", "orders").expect("the stream").id;
    let subscription =
        Some(Subscription { stream, start: StreamOffset::First, skips: false, seeks: 0 });
    let reads = Features { subscription, ..Features::default() };
    make(&mut catalog, "bill", QueueType::Subscription, reads, 1);
    let parts = |name: &str| -> Vec<QueueId> {
        catalog.queue("/", name).expect(name).partitions().map(|part| part.queue).collect()
    };
    assert_eq!((parts("orders").len(), parts("bill").len()), (3, 3));
    let mut told = Vec::new();
    for (number, part) in (0_u64..).zip([parts("orders"), parts("bill")].concat()) {
        for is in [OfQueue::Unconsumed, OfQueue::Growing] {
            let what = What::Queue { queue: part.0, is, count: 1_000 + number };
            told.push((NodeId(1 + number % 2), Problem { what, since_s: 999_990 - number }));
        }
    }
    let Listed { problems, .. } = listed(&catalog, &Sight::All, 1_000_000, told);
    let said: Vec<_> = problems.iter().map(|it| it["what"].as_str().unwrap()).collect();
    assert_eq!(
        said,
        [
            "nobody consumes from bill of vhost /: 3012 messages wait, for 15 s",
            "bill of vhost / only grows, for 15 s: 3012 messages wait, though it has consumers",
        ]
    );
    assert_eq!(problems[0]["seen_by"], json!(["millrace@1", "millrace@2"]));
}

#[test]
fn replicas_that_differ_are_a_problem_at_once() {
    let differing = |index, theirs| {
        let mut report = group(3, Some(1), &[]);
        let node = NodeId(2);
        report.compared.with = vec![cluster::Comparison { node, index, ours: 7, theirs }];
        report
    };
    let peers = [peer(2, true), peer(3, true)];
    let mut watch = Watch::default();
    let looks = Looks::default();
    let same = look(&mut watch, 100, &well(), &[differing(9, 7)], &peers, &looks);
    assert_eq!(same, []);
    let found = look(&mut watch, 110, &well(), &[differing(19, 8)], &peers, &looks);
    let what = What::ReplicasDiffer { group: 3, node: 2, index: 19, ours: 7, theirs: 8 };
    assert_eq!(found, [Problem { what, since_s: 110 }]);
    let said = words(vec![(NodeId(1), found[0].clone())], &Sight::All);
    let text = "replicas of group 3 differ: at entry 19 the digest of millrace@1 is 0000000000000007, and that of \
                millrace@2 is 0000000000000008";
    assert_eq!(said, [("replicas_differ".to_owned(), text.to_owned())]);
}
