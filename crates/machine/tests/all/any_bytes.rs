//! Whatever the bytes: a value or `Corrupt`, never a panic; and what is taken is taken alike.

use machine::{
    Actor, Applied, AppliesTo, Arguments, Attributes, Batch, BindingChange, Catalog,
    CatalogCommand, ConsumerId, ConsumerSpec, Dedup, EntryReader, Event, Features, Goal, GroupId,
    LockCommand, Messages, NoHeaders, NodeId, NodeStatus, Outcome, PolicyKind, PolicyRules,
    PolicySpec, ProducerId, PublishedBy, PurgeId, QueueId, QueueMachine, QueueSettings, QueueType,
    Ranges, Retry, SessionId, UserLimits, Value, Version, VhostMetadata, Withholding,
    check_commands,
};
use proptest::prelude::*;

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

fn some_entry() -> Vec<u8> {
    let mut batch = Batch::new();
    batch.create_queue(QueueId(1), &QueueSettings::default());
    batch.create_queue(
        QueueId(2),
        &QueueSettings { is_durable: true, is_auto_delete: true, features: None, is_paused: false },
    );
    for number in 0..5u8 {
        batch.enqueue(&[QueueId(1), QueueId(2), QueueId(1)], &[b"head"], &[number]);
    }
    batch.settle(QueueId(1), Outcome::Done, &[1..2, 4..6].into_iter().collect());
    let features = Features {
        message_ttl_ms: Some(3),
        max_length: Some(4),
        max_length_bytes: Some(9),
        dead_letters: true,
        max_priority: 2,
        delivery_limit: Some(1),
        counts_returns: true,
        retry: Some(Retry { failed: true, returned: true, min_ms: 1, max_ms: 9 }),
        dedup: Some(Dedup { window_ms: 9, entries_max: 3 }),
        ..Features::default()
    };
    let features = Some(Box::new(features));
    let settings =
        QueueSettings { is_durable: true, is_auto_delete: false, features, is_paused: false };
    batch.create_queue(QueueId(3), &settings);
    batch.keep_marks(QueueId(3));
    batch.keep_chain();
    batch.mark_delivered(QueueId(3).level(1), 2);
    for number in 0..6u8 {
        let some = |bit: u8| (number & bit != 0).then_some(u64::from(number));
        let key = some(1).map(u128::from);
        let attributes = Attributes { ttl_ms: some(2), delay_ms: some(4), key };
        batch.enqueue_with(&[QueueId(3).level(number % 3)], &attributes, &[], &[number; 2]);
    }
    batch.settle(QueueId(3), Outcome::Requeue, &Ranges::from(1..3));
    batch.settle(QueueId(3), Outcome::Expired, &Ranges::from(1..2));
    batch.cancel_delayed(&[QueueId(3)], 5);
    let by = PurgeId { session: SessionId(1), number: 2 };
    batch.withhold(QueueId(3), Withholding::Begin { by, until_ms: 9 }, &Ranges::from(1..3));
    batch.withhold(QueueId(3), Withholding::Restore, &Ranges::from(1..2));
    let vhost = || "/".to_owned();
    let (name, owner, lease_ms) = ("job".to_owned(), "ann".to_owned(), 1_000);
    batch.lock(&LockCommand::BeginTerm { term: 1, heard: None });
    batch.lock(&LockCommand::Acquire { vhost: vhost(), name: name.clone(), owner, lease_ms });
    let (by, expected, token, value) = (7, Some(0), None, Some(b"value"[..].into()));
    batch.lock(&LockCommand::Put { vhost: vhost(), name, by, expected, token, value });
    batch.begin_numbered(ProducerId { node: NodeId(1), boot: 1 }, 1);
    batch.enqueue(&[QueueId(1)], &[], b"once");
    batch.begin_numbered(ProducerId { node: NodeId(1), boot: 1 }, 3);
    batch.drop_queue(QueueId(2));
    batch.stamp(5)
}

/// Bytes of ours with some of them changed, cut or doubled: further in than chance alone comes.
fn damaged(bytes: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (changes, any::<prop::sample::Index>(), 0u8..4).prop_map(move |(changes, at, how)| {
        let mut bytes = bytes.clone();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        match how {
            0 => bytes.truncate(at.index(bytes.len())),
            1 => bytes.extend_from_within(at.index(bytes.len())..),
            _ => {}
        }
        bytes
    })
}

fn apply_all(machine: &mut QueueMachine, entry: &[u8]) -> bool {
    let at = Applied { index: machine.applied_index() + 1, time_ms: 0 };
    machine.apply(at, entry, &mut Vec::new()).is_ok()
}

fn leader() -> QueueMachine {
    let mut machine = QueueMachine::new();
    machine.lead();
    machine.start_dispatch(&mut Vec::new());
    apply_all(&mut machine, &some_entry());
    let consumer = ConsumerId { session: SessionId(1), number: 1 };
    let spec = ConsumerSpec { credit: 3, ..Default::default() };
    machine.attach(QueueId(1), consumer, spec, &mut Vec::new()).expect("the queue exists");
    machine.attach(QueueId(3), consumer, spec, &mut Vec::new()).expect("the queue exists");
    machine
}

fn read_everything(bytes: &[u8]) {
    let mut machine = leader();
    let mut follower = QueueMachine::restore(&machine.snapshot()).expect("our own snapshot");
    assert_eq!(apply_all(&mut machine, bytes), apply_all(&mut follower, bytes));
    assert_eq!(machine.digest(), follower.digest());
    machine.end_session(SessionId(1), &mut Vec::new());
    machine.tick(u64::MAX, &mut Vec::new());
    assert!(apply_all(&mut machine, &some_entry()));
    if let Ok(reader) = EntryReader::new(bytes) {
        assert!(reader.take(bytes.len() + 1).count() <= bytes.len());
    }
    assert!(Messages::of(QueueId(1), bytes).take(bytes.len() + 1).count() <= bytes.len());
    for (is_catalog, head) in [(false, 0), (false, 16), (true, 0)] {
        let commands = bytes.get(head..).unwrap_or_default();
        if check_commands(commands, is_catalog, Version::NEWEST).is_err() {
            continue;
        }
        let mut batch = Batch::new();
        batch.append_numbered(ProducerId { node: NodeId(7), boot: 1 }, 1, commands);
        assert!(
            is_catalog || apply_all(&mut leader(), &batch.stamp(0)),
            "what was checked applies"
        );
    }
    if let Ok((ranges, rest)) = Ranges::decode(bytes) {
        let mut again = Vec::new();
        ranges.encode(&mut again);
        assert_eq!(Ranges::decode(&again).map(|(ranges, _)| ranges), Ok(ranges));
        assert!(rest.len() < bytes.len());
    }
    if let Ok(command) = CatalogCommand::decode(bytes) {
        let at = Applied { index: 1, time_ms: 0 };
        Catalog::new(2).apply(at, command, &mut Vec::new());
    }
    if let Ok(arguments) = Arguments::decode(bytes) {
        let mut again = Vec::new();
        arguments.encode(&mut again);
        assert_eq!(Arguments::decode(&again), Ok(arguments));
    }
    if let Ok(mut machine) = QueueMachine::restore(bytes) {
        machine.lead();
        machine.start_dispatch(&mut Vec::new());
        assert!(apply_all(&mut machine, &some_entry()));
    }
    if let Ok(mut catalog) = Catalog::restore(bytes) {
        assert_eq!(
            Catalog::restore(&catalog.snapshot()).map(|it| it.digest()),
            Ok(catalog.digest())
        );
        use_queues(&mut catalog);
        let changes = catalog.placement_changes(|_| NodeStatus::Serving, Goal::Balance);
        let join =
            CatalogCommand::AddNode { node: NodeId(9), address: "node-9:1".into(), incarnation: 1 };
        for command in changes.into_iter().chain([join]) {
            let at = Applied { index: 1, time_ms: 0 };
            catalog.apply(at, command, &mut Vec::new());
        }
    }
}

/// Routes to all that is there and takes it away.
fn use_queues(catalog: &mut Catalog) {
    let mut targets = Vec::new();
    let mut commands = Vec::new();
    for vhost in catalog.vhosts() {
        for exchange in vhost.exchanges() {
            let _ = catalog.route_keys(
                PublishedBy::Broker,
                vhost.name(),
                &exchange.name,
                &["10", "#", ""],
                &NoHeaders,
                &mut targets,
            );
            assert!(targets.iter().all(|target| catalog.queue_by_id(target.queue).is_some()));
            commands.push(CatalogCommand::DeleteExchange {
                vhost: vhost.name().into(),
                name: exchange.name.clone(),
                if_unused: false,
            });
        }
    }
    for queue in catalog.queues() {
        let _ = (queue.settings(), queue.dead_letter_exchange(), queue.dead_letter_key());
    }
    for command in commands {
        catalog.apply(Applied { index: 1, time_ms: 0 }, command, &mut Vec::new());
    }
}

fn some_catalog() -> Vec<u8> {
    let mut catalog = Catalog::new(2);
    let at = Applied { index: 1, time_ms: 0 };
    let by = machine::SessionOwner { node: NodeId(1), session: SessionId(1) };
    for (name, durable) in [("a", true), ("b", false)] {
        let command = CatalogCommand::DeclareQueue {
            vhost: "/".into(),
            name: name.into(),
            durable,
            auto_delete: false,
            exclusive: !durable,
            server_named: false,
            arguments: Arguments::new()
                .with("x", Value::Array(vec![Value::I8(1)]))
                .with("x-max-priority", Value::U8(9))
                .with("x-dead-letter-exchange", Value::LongStr(b"late".to_vec())),
            by,
        };
        catalog.apply(at, command, &mut Vec::new());
        let command = CatalogCommand::Bind(BindingChange {
            vhost: "/".into(),
            source: "amq.topic".into(),
            destination: machine::Destination::Queue(name.into()),
            key: "#.a.*".into(),
            arguments: Arguments::new(),
            by: None,
        });
        catalog.apply(at, command, &mut Vec::new());
    }
    for (name, kind) in [
        ("hash", machine::ExchangeKind::ConsistentHash),
        ("late", machine::ExchangeKind::DelayedMessage),
        ("chance", machine::ExchangeKind::Random),
        ("recent", machine::ExchangeKind::RecentHistory),
    ] {
        let inner = Value::LongStr(b"x-modulus-hash".to_vec());
        let command = CatalogCommand::DeclareExchange {
            vhost: "/".into(),
            name: name.into(),
            kind,
            durable: name != "recent",
            auto_delete: name == "chance",
            internal: false,
            arguments: Arguments::new().with("x-delayed-type", inner),
            by,
        };
        catalog.apply(at, command, &mut Vec::new());
        let command = CatalogCommand::Bind(BindingChange {
            vhost: "/".into(),
            source: name.into(),
            destination: machine::Destination::Queue("a".into()),
            key: "10".into(),
            arguments: Arguments::new(),
            by: None,
        });
        catalog.apply(at, command, &mut Vec::new());
    }
    for number in 1..=4 {
        let (node, address) = (NodeId(number), format!("node-{number}:1"));
        let command = CatalogCommand::AddNode { node, address, incarnation: number };
        catalog.apply(at, command, &mut Vec::new());
    }
    catalog.begin_numbered(ProducerId { node: NodeId(2), boot: 1 }, 1);
    catalog.snapshot()
}

/// The same in the format of another version.
fn some_catalog_of(to: Version) -> Vec<u8> {
    let mut catalog = Catalog::restore(&some_catalog()).expect("our own snapshot");
    let at = Applied { index: 1, time_ms: 0 };
    let raise = CatalogCommand::RaiseVersion { to };
    for command in [raise, CatalogCommand::SetWideGroups { per_node: 1 }] {
        catalog.apply(at, command, &mut Vec::new());
    }
    catalog.snapshot()
}

fn some_catalog_with_wide_groups() -> Vec<u8> {
    some_catalog_of(Version::WIDE_GROUPS)
}

fn some_catalog_with_specs() -> Vec<u8> {
    some_catalog_of(Version::SPECS)
}

fn some_catalog_with_policies() -> Vec<u8> {
    let mut catalog =
        Catalog::restore(&some_catalog_of(Version::POLICIES)).expect("our own snapshot");
    let put = CatalogCommand::decode(&some_policy()).expect("our own command");
    catalog.apply(Applied { index: 2, time_ms: 0 }, put, &mut Vec::new());
    for bytes in some_restrictions() {
        let command = CatalogCommand::decode(&bytes).expect("our own command");
        catalog.apply(Applied { index: 3, time_ms: 0 }, command, &mut Vec::new());
    }
    catalog.snapshot()
}

fn some_restrictions() -> Vec<Vec<u8>> {
    let commands = [
        CatalogCommand::SetTopicPermissions {
            user: "guest".into(),
            vhost: "/".into(),
            exchange: "amq.topic".into(),
            write: "^{username}".into(),
            read: ".*".into(),
        },
        CatalogCommand::SetUserLimits {
            user: "guest".into(),
            change: UserLimits { max_connections: Some(5), max_channels: None }.into(),
        },
        CatalogCommand::SetVhostMetadata {
            vhost: "/".into(),
            metadata: VhostMetadata {
                description: "a shop".into(),
                tags: vec!["live".into()],
                default_queue_type: Some(QueueType::Quorum),
                is_traced: true,
            },
        },
        CatalogCommand::SetClusterName { name: "east".into() },
        CatalogCommand::PauseQueue {
            vhost: "/".into(),
            name: "one".into(),
            by: Some("ann".into()),
        },
        CatalogCommand::SetClusterName { name: "west".into() }.by(Actor::new("ann", "[::1]:9")),
        CatalogCommand::Note {
            by: Actor::new("ann", ""),
            event: Box::new(Event::new("queue.purged", "/", "q")),
        },
    ];
    let bytes = |command: &CatalogCommand| {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        bytes
    };
    commands.iter().map(bytes).collect()
}

fn some_policy() -> Vec<u8> {
    let rules = PolicyRules {
        max_length: Some(3),
        dead_letter_exchange: Some("dead".into()),
        ..PolicyRules::default()
    };
    let (applies_to, priority) = (AppliesTo::All, 7);
    let definition = Arguments::new().with("max-length", Value::I64(3));
    let spec = PolicySpec { pattern: ".*".into(), applies_to, priority, rules, definition };
    let (vhost, name, spec) = ("/".to_owned(), "short".to_owned(), Box::new(spec));
    let mut bytes = Vec::new();
    CatalogCommand::PutPolicy { vhost, name, kind: PolicyKind::User, spec }.encode(&mut bytes);
    bytes
}

fn some_command() -> Vec<u8> {
    let mut bytes = Vec::new();
    CatalogCommand::SetPermissions {
        user: "guest".into(),
        vhost: "/".into(),
        configure: "^(a|b)*$".into(),
        write: ".*".into(),
        read: String::new(),
    }
    .encode(&mut bytes);
    bytes
}

fn some_membership() -> Vec<u8> {
    let mut bytes = Vec::new();
    let voters = vec![NodeId(1), NodeId(2)];
    CatalogCommand::SetVoters { group: GroupId(1), voters }.encode(&mut bytes);
    bytes
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn bytes_of_chance_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_everything(&bytes);
        let mut entry = vec![0; 16];
        entry[0] = 1;
        entry.extend_from_slice(&bytes);
        read_everything(&entry);
    }

    #[test]
    fn damaged_entries_are_answered(bytes in damaged(some_entry())) {
        read_everything(&bytes);
    }

    #[test]
    fn damaged_snapshots_are_answered(
        queues in damaged(leader().snapshot()),
        catalog in damaged(some_catalog()),
        wide in damaged(some_catalog_with_wide_groups()),
        specs in damaged(some_catalog_with_specs()),
        policies in damaged(some_catalog_with_policies()),
        policy in damaged(some_policy()),
        topic in damaged(some_restrictions().remove(0)),
        metadata in damaged(some_restrictions().remove(2)),
        command in damaged(some_command()),
        membership in damaged(some_membership()),
    ) {
        read_everything(&queues);
        read_everything(&catalog);
        read_everything(&wide);
        read_everything(&specs);
        read_everything(&policies);
        read_everything(&policy);
        read_everything(&topic);
        read_everything(&metadata);
        read_everything(&command);
        read_everything(&membership);
    }

    #[test]
    fn ranges_are_sets(
        ops in proptest::collection::vec((0u8..5, 0u64..60, 0u64..12), 0..60),
    ) {
        let mut ranges = Ranges::new();
        let mut set = std::collections::BTreeSet::new();
        for (op, start, count) in ops {
            let range = start..start + count;
            match op {
                0 | 1 => {
                    let added = range.clone().filter(|seq| set.insert(*seq)).count() as u64;
                    prop_assert_eq!(ranges.insert(range), added);
                }
                2 => {
                    let removed = range.clone().filter(|seq| set.remove(seq)).count() as u64;
                    prop_assert_eq!(ranges.remove(range), removed);
                }
                3 => {
                    let popped = ranges.pop_front(count);
                    for seq in popped.clone().into_iter().flatten() {
                        prop_assert_eq!(set.pop_first(), Some(seq));
                    }
                    prop_assert_eq!(popped.is_none(), count == 0 || set.is_empty() && popped.is_none());
                }
                _ => {
                    let mut other = Ranges::from(range.clone());
                    other.insert(start + 20..start + 20 + count);
                    let both: Vec<u64> = other.iter().filter(|seq| set.contains(seq)).collect();
                    prop_assert_eq!(ranges.intersect(&other).iter().collect::<Vec<_>>(), both);
                    let inside: Vec<u64> = range.clone().filter(|seq| set.contains(seq)).collect();
                    prop_assert_eq!(ranges.intersects(range.clone()), !inside.is_empty());
                    prop_assert_eq!(ranges.within(range).iter().collect::<Vec<_>>(), inside);
                }
            }
            prop_assert_eq!(ranges.iter().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(ranges.len(), set.len() as u64);
            prop_assert_eq!((ranges.first(), ranges.last()), (set.first().copied(), set.last().copied()));
            // Ranges that touch are one.
            let all: Vec<_> = ranges.ranges().collect();
            prop_assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start));
            let mut bytes = Vec::new();
            ranges.encode(&mut bytes);
            prop_assert_eq!(Ranges::decode(&bytes), Ok((ranges.clone(), &[][..])));
        }
        let mut rest = ranges.clone();
        let front = rest.split_front(2);
        prop_assert_eq!(front.len() + rest.len(), ranges.len());
        prop_assert!(front.range_count() <= 2 && (front.range_count() == 2 || rest.is_empty()));
    }
}
