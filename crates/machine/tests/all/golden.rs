//! Bytes that outlive a process: what a version wrote, every later one reads.
//!
//! `tests/golden/*.hex` hold one value per file. `UPDATE=1` writes files that are missing; it never
//! changes one, because a log out there may hold the same bytes.

#![allow(clippy::disallowed_methods, reason = "this test reads and writes its golden files")]

use std::fmt::Write;
use std::path::PathBuf;

use crate::world::World;
use machine::{
    Actor, Applied, AppliesTo, Arguments, Attributes, Batch, BindingChange, Catalog,
    CatalogCommand, CatalogReply, Command, ConsumerId, ConsumerSpec, DeadLetter, Dedup,
    Destination, Effect, EntryReader, Event, ExchangeKind, ExchangeSpec, Features, GroupId, HashBy,
    HashProperty, LimitChange, LockCommand, LockHolder, LockReply, LockValue, LockView, NoHeaders,
    NodeId, Outcome, Overflow, PolicyKind, PolicyRules, PolicySpec, ProducerId, PurgeId, QueueHome,
    QueueId, QueueMachine, QueueSettings, QueueSpec, QueueType, Ranges, Rate, Rates, Retention,
    Retry, SessionId, SessionOwner, StreamOffset, UserLimits, Value, Version, VhostLimitsChange,
    VhostMetadata, Withholding, check_commands,
};

pub(crate) fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/golden", name].iter().collect();
    if std::env::var_os("UPDATE").is_some() && !path.exists() {
        let mut text = String::new();
        for line in bytes.chunks(32) {
            for byte in line {
                write!(text, "{byte:02x}").expect("writing to a string");
            }
            text.push('\n');
        }
        std::fs::write(&path, text).expect("writing a golden file");
    }
    let read = golden_of_before(name);
    assert_eq!(read, bytes, "{name}: what is written now differs from what was written");
    read
}

/// What an earlier version wrote, and this one only reads.
fn golden_of_before(name: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/golden", name].iter().collect();
    let text = std::fs::read_to_string(&path).expect("UPDATE=1 writes what is missing");
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}

fn every_value() -> Arguments {
    Arguments::new()
        .with("void", Value::Void)
        .with("bool", Value::Bool(true))
        .with("i8", Value::I8(-1))
        .with("u8", Value::U8(255))
        .with("i16", Value::I16(-2))
        .with("u16", Value::U16(65_535))
        .with("i32", Value::I32(-3))
        .with("u32", Value::U32(u32::MAX))
        .with("i64", Value::I64(i64::MIN))
        .with("f32", Value::F32(1.5f32.to_bits()))
        .with("f64", Value::F64((-2.5f64).to_bits()))
        .with("decimal", Value::Decimal { scale: 2, value: 314 })
        .with("timestamp", Value::Timestamp(1_700_000_000))
        .with("longstr", Value::LongStr(b"text".to_vec()))
        .with("bytes", Value::Bytes(vec![0, 255]))
        .with("array", Value::Array(vec![Value::I8(1), Value::Array(vec![]), Value::Void]))
        .with("table", Value::Table(Arguments::new().with("inner", Value::Bool(false))))
        .with("void", Value::I8(2))
}

fn catalog_commands() -> Vec<CatalogCommand> {
    let vhost = || "/".to_owned();
    let by = SessionOwner { node: NodeId(3), session: SessionId(12) };
    let source = || "amq.topic".to_owned();
    vec![
        CatalogCommand::DeclareExchange {
            vhost: vhost(),
            name: "x".into(),
            kind: ExchangeKind::Headers,
            durable: true,
            auto_delete: false,
            internal: true,
            arguments: every_value(),
            by,
        },
        CatalogCommand::DeleteExchange { vhost: vhost(), name: "x".into(), if_unused: true },
        CatalogCommand::DeclareQueue {
            vhost: vhost(),
            name: "q\u{e9}".into(),
            durable: false,
            auto_delete: true,
            exclusive: true,
            server_named: false,
            arguments: Arguments::new(),
            by,
        },
        CatalogCommand::DeleteQueue {
            vhost: vhost(),
            name: "q".into(),
            queue: Some(QueueId(7)),
            by: None,
        },
        CatalogCommand::Bind(BindingChange {
            vhost: vhost(),
            source: source(),
            destination: Destination::Queue("q".into()),
            key: "a.*.#".into(),
            arguments: every_value(),
            by: Some(by),
        }),
        CatalogCommand::Unbind(BindingChange {
            vhost: vhost(),
            source: source(),
            destination: Destination::Exchange("x".into()),
            key: String::new(),
            arguments: Arguments::new(),
            by: None,
        }),
        CatalogCommand::SessionEnded { node: NodeId(1), session: SessionId(2) },
        CatalogCommand::NodeStarted { node: NodeId(1) },
        CatalogCommand::CreateVhost { name: "v".into() },
        CatalogCommand::DeleteVhost { name: "v".into() },
        CatalogCommand::PutUser {
            name: "ann".into(),
            password_hash: "hash".into(),
            tags: vec!["monitoring".into(), "management".into()],
        },
        CatalogCommand::DeleteUser { name: "ann".into() },
        World::permissions("ann", "/", ["^a", "", ".*"]),
        CatalogCommand::ClearPermissions { user: "ann".into(), vhost: vhost() },
    ]
}

fn ranges() -> Ranges {
    [1..2, 5..300, 1 << 40..(1 << 40) + 1].into_iter().collect()
}

#[test]
fn entries_of_version_1_are_read() {
    let durable = QueueSettings { is_durable: true, ..Default::default() };
    let auto_delete = QueueSettings { is_auto_delete: true, ..Default::default() };
    let mut batch = Batch::new();
    batch.create_queue(QueueId(1), &durable);
    batch.create_queue(QueueId(2), &auto_delete);
    batch.enqueue(&[QueueId(1), QueueId(2)], &[b"he", b"ad"], b"body");
    batch.enqueue(&[QueueId(u64::MAX - 1)], &[], b"");
    let outcomes =
        [Outcome::Done, Outcome::Rejected, Outcome::Purged, Outcome::Requeue, Outcome::Undelivered];
    for outcome in outcomes {
        batch.settle(QueueId(1), outcome, &ranges());
    }
    batch.drop_queue(QueueId(2));
    let entry = golden("entry-v1.hex", &batch.stamp(1_700_000_000_123));
    let reader = EntryReader::new(&entry).expect("a golden entry");
    assert_eq!(reader.time_ms(), 1_700_000_000_123);
    let commands: Vec<_> = reader.map(|command| command.expect("a golden command").1).collect();
    assert_eq!(commands.len(), 10);
    assert_eq!(commands[0], Command::CreateQueue { queue: QueueId(1), settings: durable });
    assert_eq!(commands[1], Command::CreateQueue { queue: QueueId(2), settings: auto_delete });
    let Command::Enqueue(message) = commands[2] else { panic!("{:?}", commands[2]) };
    assert_eq!(message.queues.iter().collect::<Vec<_>>(), [QueueId(1), QueueId(2)]);
    assert_eq!((message.head, message.body), (&b"head"[..], &b"body"[..]));
    for (command, outcome) in commands[4..9].iter().zip(outcomes) {
        let expected = Command::Settle { queue: QueueId(1), outcome, ranges: ranges() };
        assert_eq!(*command, expected);
    }
    assert_eq!(commands[9], Command::DropQueue { queue: QueueId(2) });
}

#[test]
fn catalog_commands_of_version_1_are_read() {
    let mut batch = Batch::new();
    for command in catalog_commands() {
        batch.catalog(&command);
    }
    let entry = golden("catalog-entry-v1.hex", &batch.stamp(0));
    let read = EntryReader::new(&entry).expect("a golden entry").map(|command| match command {
        Ok((_, Command::Catalog(command))) => *command,
        other => panic!("{other:?}"),
    });
    assert_eq!(read.collect::<Vec<_>>(), catalog_commands());
}

#[test]
fn numbered_batches_in_entries_of_version_1_are_read() {
    let producer = ProducerId { node: NodeId(3), boot: 12 };
    let mut batch = Batch::new();
    batch.settle(QueueId(1), Outcome::Done, &ranges());
    batch.begin_numbered(producer, 1 << 33);
    batch.enqueue(&[QueueId(1)], &[b"head"], b"body");
    let entry = golden("numbered-batch-entry-v1.hex", &batch.stamp(1));
    let reader = EntryReader::new(&entry).expect("a golden entry");
    let commands: Vec<_> = reader.map(|command| command.expect("a golden command").1).collect();
    assert_eq!(commands[1], Command::Numbered { producer, seq: 1 << 33 });
    assert!(matches!(commands[2], Command::Enqueue(_)));
}

/// Five live messages of ten, in one of two queues.
fn queues(is_numbered: bool) -> QueueMachine {
    let mut machine = QueueMachine::new();
    machine.lead();
    let mut batch = Batch::new();
    for queue in [1, 5, 9] {
        let is_auto_delete = queue == 5;
        batch.create_queue(
            QueueId(queue),
            &QueueSettings { is_durable: true, is_auto_delete, features: None, is_paused: false },
        );
    }
    for _ in 0..10 {
        batch.enqueue(&[QueueId(1), QueueId(5)], &[b"head"], b"body");
    }
    batch.settle(QueueId(1), Outcome::Done, &[1..3, 6..7].into_iter().collect());
    batch.settle(QueueId(1), Outcome::Rejected, &Ranges::from(7..8));
    batch.settle(QueueId(5), Outcome::Purged, &Ranges::from(1..11));
    batch.drop_queue(QueueId(9));
    batch.enqueue(&[QueueId(9)], &[], b"late");
    if is_numbered {
        for (node, seq) in [(1, 1), (1, 2), (1, 2), (2, 1), (2, 3)] {
            batch.begin_numbered(ProducerId { node: NodeId(node), boot: 9 }, seq);
        }
    }
    let at = Applied { index: 77, time_ms: 1_700_000_000_000 };
    machine.apply(at, &batch.stamp(at.time_ms), &mut Vec::new()).expect("our own entry");
    machine
}

fn check_queues(mut restored: QueueMachine) {
    assert_eq!(restored.applied_index(), 77);
    assert_eq!(restored.ignored(), 1);
    restored.lead();
    restored.start_dispatch(&mut Vec::new());
    let status = restored.status(QueueId(1)).expect("a golden queue");
    assert_eq!((status.ready, status.counters.settled, status.counters.dropped), (6, 3, 1));
    let consumer = ConsumerId { session: SessionId(1), number: 1 };
    let spec = ConsumerSpec { credit: 100, ..ConsumerSpec::default() };
    let mut effects = Vec::new();
    restored.attach(QueueId(1), consumer, spec, &mut effects).expect("a golden queue");
    assert_eq!(effects.len(), 2);
}

#[test]
fn snapshots_of_queues_of_version_1_are_read() {
    let bytes = golden_of_before("queues-v1.hex");
    let restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), queues(false).digest());
    check_queues(restored);
}

#[test]
fn snapshots_of_queues_of_version_2_are_read() {
    let bytes = golden_of_before("queues-v2.hex");
    check_queues(QueueMachine::restore(&bytes).expect("a golden snapshot"));
}

#[test]
fn snapshots_of_queues_of_version_3_are_read() {
    let bytes = golden_of_before("queues-v3.hex");
    let restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), queues(true).digest());
    assert_eq!(restored.last_numbered(ProducerId { node: NodeId(1), boot: 9 }), 2);
    assert_eq!(restored.last_numbered(ProducerId { node: NodeId(2), boot: 9 }), 1);
    assert_eq!(restored.skipped_batches(), (1, 1));
    check_queues(restored);
}

/// What a queue is told that keeps which of its messages were delivered, and one that does not.
fn delivered_batch() -> Batch {
    let features = Features { max_priority: 2, ..Features::default() };
    let settings = QueueSettings { features: Some(Box::new(features)), ..Default::default() };
    let mut batch = Batch::new();
    batch.create_queue(QueueId(1), &settings);
    batch.mark_delivered(QueueId(1), 1);
    batch.create_queue(QueueId(2), &QueueSettings::default());
    let level = QueueId(1).level(2);
    for queue in [QueueId(1), level, level, QueueId(2)] {
        batch.enqueue(&[queue], &[b"head"], b"body");
    }
    batch.mark_delivered(level, 2);
    batch
}

#[test]
fn marks_of_what_was_delivered_are_read() {
    let entry = golden("delivered-entry-v1.hex", &delivered_batch().stamp(7));
    let mut commands = EntryReader::new(&entry).expect("a golden entry");
    let last = commands.by_ref().last().expect("a command").expect("a golden command").1;
    assert_eq!(last, Command::MarkDelivered { queue: QueueId(1).level(2), to: 2 });
}

#[test]
fn snapshots_of_queues_of_version_4_are_read() {
    let mut machine = QueueMachine::new();
    let at = Applied { index: 1, time_ms: 1_700_000_000_000 };
    let entry = delivered_batch().stamp(at.time_ms);
    machine.apply(at, &entry, &mut Vec::new()).expect("our own entry");
    let bytes = golden("queues-v4.hex", &machine.snapshot());
    let mut restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), machine.digest());
    restored.lead();
    restored.start_dispatch(&mut Vec::new());
    let consumer = ConsumerId { session: SessionId(1), number: 1 };
    let mut effects = Vec::new();
    let flag = |queue, restored: &mut QueueMachine, effects: &mut Vec<Effect>| {
        effects.clear();
        restored.get(queue, consumer, false, effects);
        let [Effect::Deliver { redelivered, .. }] = effects[..] else { return None };
        Some(redelivered)
    };
    // The first may have been delivered, the second was not, and goes out when that is logged.
    assert_eq!(flag(QueueId(1), &mut restored, &mut effects), Some(true));
    assert_eq!(flag(QueueId(1), &mut restored, &mut effects), None);
    assert_eq!(flag(QueueId(2), &mut restored, &mut effects), Some(true));
}

/// A queue whose deliveries wait for its marks, and one whose messages do.
fn kept_marks_batch() -> Batch {
    let features = Features { max_length: Some(9), max_priority: 1, ..Features::default() };
    let settings = QueueSettings { features: Some(Box::new(features)), ..Default::default() };
    let mut batch = Batch::new();
    batch.create_queue(QueueId(1), &settings);
    batch.keep_marks(QueueId(1));
    batch.create_queue(QueueId(2), &QueueSettings::default());
    batch.mark_delivered(QueueId(2), 1);
    for queue in [QueueId(1), QueueId(1), QueueId(1).level(1), QueueId(2)] {
        batch.enqueue(&[queue], &[b"head"], b"body");
    }
    batch.mark_delivered(QueueId(1), 2);
    batch
}

#[test]
fn that_deliveries_wait_for_marks_is_read() {
    let entry = golden("kept-marks-entry-v1.hex", &kept_marks_batch().stamp(7));
    let mut commands = EntryReader::new(&entry).expect("a golden entry");
    let second = commands.nth(1).expect("a command").expect("a golden command").1;
    assert_eq!(second, Command::KeepMarks { queue: QueueId(1) });
}

#[test]
fn that_a_queue_gets_other_settings_is_read() {
    let features = Features {
        max_length: Some(9),
        overflow: Overflow::RejectPublish,
        dead_letters: true,
        ..Features::default()
    };
    let settings = QueueSettings { features: Some(Box::new(features)), ..Default::default() };
    let mut batch = Batch::new();
    batch.set_settings(QueueId(1), 77, &settings);
    let entry = golden("settings-entry-v1.hex", &batch.stamp(7));
    let mut commands = EntryReader::new(&entry).expect("a golden entry");
    let command = commands.next().expect("a command").expect("a golden command").1;
    assert_eq!(command, Command::SetSettings { queue: QueueId(1), revision: 77, settings });
}

#[test]
fn snapshots_of_queues_of_version_5_are_read() {
    let mut machine = QueueMachine::new();
    let at = Applied { index: 1, time_ms: 1_700_000_000_000 };
    let entry = kept_marks_batch().stamp(at.time_ms);
    machine.apply(at, &entry, &mut Vec::new()).expect("our own entry");
    let bytes = golden("queues-v5.hex", &machine.snapshot());
    let mut restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), machine.digest());
    restored.lead();
    restored.start_dispatch(&mut Vec::new());
    let consumer = ConsumerId { session: SessionId(1), number: 1 };
    let mut flags = Vec::new();
    for queue in [1, 1, 1, 2].map(QueueId) {
        let mut effects = Vec::new();
        restored.get(queue, consumer, false, &mut effects);
        flags.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Deliver { redelivered, waits, .. } => Some((redelivered, waits)),
            _ => None,
        }));
    }
    // By priority. Of the first queue's lowest level one may have been delivered; the other queue's message waits.
    assert_eq!(flags, [(false, true), (true, false), (false, true)]);
}

#[test]
fn snapshots_of_queues_of_version_6_are_read() {
    let mut machine = QueueMachine::new().reading(Version::CHANGED_SETTINGS);
    let at = Applied { index: 1, time_ms: 1_700_000_000_000 };
    let mut batch = kept_marks_batch();
    let features = Features { message_ttl_ms: Some(5), ..Features::default() };
    let settings = QueueSettings { features: Some(Box::new(features)), ..Default::default() };
    batch.set_settings(QueueId(2), 77, &settings);
    machine.apply(at, &batch.stamp(at.time_ms), &mut Vec::new()).expect("our own entry");
    let bytes = golden("queues-v6.hex", &machine.snapshot());
    let restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), machine.digest());
    let revisions = [1, 2].map(|queue| restored.revision(QueueId(queue)));
    assert_eq!((revisions, restored.settings(QueueId(2))), ([Some(0), Some(77)], Some(&settings)));
}

#[test]
fn snapshots_of_queues_of_version_7_are_read() {
    let mut machine = QueueMachine::new().reading(Version::STREAMS);
    let (stream, max_age_ms) = (QueueId(3), Some(60_000));
    let retention = Retention { max_age_ms, max_bytes: Some(1_000_000) };
    let features = Features { stream: Some(retention), ..Features::default() };
    let settings = QueueSettings {
        is_durable: true,
        features: Some(Box::new(features)),
        ..QueueSettings::default()
    };
    let mut batch = kept_marks_batch();
    batch.create_queue(stream, &settings);
    let mut apply = |index, batch: Batch| {
        let at = Applied { index, time_ms: 1_700_000_000_000 + index * 1_500 };
        machine.apply(at, &batch.stamp(at.time_ms), &mut Vec::new()).expect("our own entry");
    };
    apply(1, batch);
    for index in 2..6 {
        let mut batch = Batch::new();
        (0..index).for_each(|_| batch.enqueue(&[stream], &[b"head"], b"body"));
        apply(index, batch);
    }
    let mut batch = Batch::new();
    batch.settle(stream, Outcome::Expired, &Ranges::from(1..3));
    apply(6, batch);
    let bytes = golden("queues-v7.hex", &machine.snapshot());
    let restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), machine.digest());
    assert_eq!(restored.settings(stream), Some(&settings));
    for (offset, seq) in [
        (StreamOffset::First, 3),
        (StreamOffset::Last, 10),
        (StreamOffset::Since(1_700_000_000_000 + 4 * 1_500), 6),
        (StreamOffset::Next, 15),
    ] {
        assert_eq!(restored.seq_at(stream, offset), Some(seq), "{offset:?}");
    }
}

#[test]
fn locks_in_snapshots_of_queues_are_read() {
    let mut machine = QueueMachine::new();
    let at = Applied { index: 7, time_ms: 1_700_000_000_000 };
    assert_eq!(machine.snapshot()[0], 4, "an older program reads it while there is no lock");
    machine.apply(at, &lock_batch().stamp(at.time_ms), &mut Vec::new()).expect("our own entry");
    let bytes = golden("queues-locks-v7.hex", &machine.snapshot());
    let restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), machine.digest());
    let lock = restored.locks().view("/", "job", at.time_ms);
    let holder = LockHolder { owner: "ann".into(), token: (7 << 16) + 1, left_ms: 30_001 };
    let value = LockValue { version: (7 << 16) + 2, bytes: b"value".to_vec() };
    assert_eq!((lock.holder, lock.value), (Some(holder), Some(value)));
}

/// Each command about locks. What it leaves: `job` is held by `ann` and has a value.
fn lock_batch() -> Batch {
    let (vhost, name, owner) = (|| "/".to_owned(), || "job".to_owned(), || "ann".to_owned());
    let token = (7 << 16) + 1;
    let commands = [
        LockCommand::BeginTerm { term: 3, heard: Some(2) },
        LockCommand::Acquire { vhost: vhost(), name: name(), owner: owner(), lease_ms: 10_000 },
        LockCommand::Put {
            vhost: vhost(),
            name: name(),
            by: 1 << 64,
            expected: Some(0),
            token: Some(token),
            value: Some(b"value"[..].into()),
        },
        LockCommand::Renew { vhost: vhost(), name: name(), token, lease_ms: 30_000 },
        LockCommand::Release { vhost: vhost(), name: "other".into(), token },
        LockCommand::Forget { vhost: "gone".into() },
        LockCommand::Expire,
    ];
    let mut batch = Batch::new();
    commands.iter().for_each(|command| batch.lock(command));
    batch
}

#[test]
fn commands_about_locks_are_read() {
    let bytes = golden("locks-entry-v1.hex", &lock_batch().stamp(1_700_000_000_000));
    let mut machine = QueueMachine::new();
    machine.lead();
    let mut effects = Vec::new();
    let at = Applied { index: 7, time_ms: 1_700_000_000_000 };
    machine.apply(at, &bytes, &mut effects).expect("a golden entry");
    let replies = effects.into_iter().map(|effect| match effect {
        Effect::Locked(reply) => reply,
        other => panic!("{other:?}"),
    });
    let token = (7 << 16) + 1;
    let free = LockView { name: "other".into(), holder: None, value: None };
    let expected = [
        LockReply::Done,
        LockReply::Acquired { token, lease_ms: 10_001, is_new: true },
        LockReply::Put { version: token + 1 },
        LockReply::Acquired { token, lease_ms: 30_001, is_new: false },
        LockReply::NotHeld(free),
        LockReply::Done,
        LockReply::Done,
    ];
    assert_eq!(replies.collect::<Vec<_>>(), expected);
}

#[test]
fn a_lock_belongs_to_the_same_group_in_every_version() {
    let catalog = Catalog::new(8);
    let group = |vhost: &str, name: &str| catalog.lock_group(vhost, name).0;
    let groups = [group("/", "job"), group("/", "nightly report"), group("v", "job")];
    assert_eq!(groups, LOCK_GROUPS);
    let mut used: Vec<u32> = (0..1_000).map(|nth| group("/", &nth.to_string())).collect();
    used.sort_unstable();
    let count = |group| used.iter().filter(|it| **it == group).count();
    assert!((1..=8).all(|group| (60..=200).contains(&count(group))), "they are spread");
    assert!(catalog.lock_groups().eq((1..=8).map(GroupId)));
}

/// Where three locks are kept in a cluster of eight groups a node. This never changes.
const LOCK_GROUPS: [u32; 3] = [4, 6, 6];

#[test]
fn that_a_chain_is_kept_is_read_from_entries_and_snapshots() {
    let mut batch = kept_marks_batch();
    batch.keep_chain();
    let entry = golden("chain-entry-v1.hex", &batch.stamp(7));
    let last = EntryReader::new(&entry).expect("a golden entry").last();
    assert_eq!(last.expect("a command").expect("a golden command").1, Command::KeepChain);

    let mut machine = QueueMachine::new().reading(Version::CHAINED);
    for (index, checksum) in [(1, 0x1234_5678), (2, 0x9abc_def0)] {
        machine.expect_entry(checksum);
        let at = Applied { index, time_ms: 7 };
        machine.apply(at, &entry, &mut Vec::new()).expect("a golden entry");
    }
    let bytes = golden("queues-chain-v7.hex", &machine.snapshot());
    let restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert!(machine.chain().is_some());
    assert_eq!((restored.chain(), restored.digest()), (machine.chain(), machine.digest()));
}

#[test]
fn purges_that_can_be_undone_are_read_from_entries_and_snapshots() {
    let by = PurgeId { session: SessionId(1 << 48 | 7), number: 9 };
    let until_ms = 1_700_000_060_000;
    let mut batch = kept_marks_batch();
    batch.create_queue(QueueId(3), &QueueSettings { is_durable: true, ..QueueSettings::default() });
    (0..9u8).for_each(|number| batch.enqueue(&[QueueId(3)], &[b"head"], &[number]));
    batch.withhold(QueueId(3), Withholding::Begin { by, until_ms }, &Ranges::from(1..9));
    batch.withhold(QueueId(3), Withholding::Restore, &Ranges::from(1..2));
    batch.withhold(QueueId(3), Withholding::Forget, &Ranges::from(8..9));
    let at = Applied { index: 1, time_ms: 1_700_000_000_000 };
    let entry = golden("withheld-entry-v1.hex", &batch.stamp(at.time_ms));
    let mut machine = QueueMachine::new().reading(Version::UNDO);
    machine.apply(at, &entry, &mut Vec::new()).expect("a golden entry");
    let bytes = golden("queues-withheld-v7.hex", &machine.snapshot());
    let restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), machine.digest());
    assert_eq!(restored.withheld(QueueId(3)), Some((6, until_ms)));
    let older = Version(Version::UNDO.0 - 1);
    let refused = QueueMachine::new().reading(older).apply(at, &entry, &mut Vec::new());
    assert!(refused.is_err_and(|corrupt| corrupt.is_newer));
}

/// Every rate that there is.
fn rates() -> Rates {
    Rates {
        dequeue: Rate::new(500, 1_000),
        dequeue_burst: Some(50),
        dequeue_bytes: Rate::new(2 << 20, 60_000),
        enqueue: Rate::new(10, 3_600_000),
        dequeue_per_key: None,
    }
}

#[test]
fn snapshots_of_queues_with_rates_are_read() {
    let mut machine = QueueMachine::new().reading(Version::RATES);
    let features = Features { max_length: Some(9), rates: rates(), ..Features::default() };
    let features = Some(Box::new(features));
    let settings = QueueSettings { is_durable: true, features, ..QueueSettings::default() };
    let mut batch = kept_marks_batch();
    batch.create_queue(QueueId(3), &settings);
    batch.enqueue(&[QueueId(3)], &[b"head"], b"a body whose bytes count");
    let at = Applied { index: 1, time_ms: 1_700_000_000_000 };
    machine.apply(at, &batch.stamp(at.time_ms), &mut Vec::new()).expect("our own entry");
    let bytes = golden("queues-rates-v7.hex", &machine.snapshot());
    let restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), machine.digest());
    assert_eq!(restored.settings(QueueId(3)), Some(&settings));
}

#[test]
fn a_policy_with_rates_is_read() {
    let rules = PolicyRules { max_age_ms: Some(7), rates: rates(), ..PolicyRules::default() };
    let command = CatalogCommand::PutPolicy {
        vhost: "/".into(),
        name: "slow".into(),
        kind: PolicyKind::Operator,
        spec: Box::new(PolicySpec {
            pattern: "^q".into(),
            applies_to: AppliesTo::Queues,
            priority: 1,
            rules,
            definition: Arguments::new(),
        }),
    };
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    let bytes = golden("rates-policy-v1.hex", &bytes);
    assert_eq!(CatalogCommand::decode(&bytes), Ok(command));
}

/// Some of everything that a catalog of one node knows.
fn catalog() -> Catalog {
    let mut world = World::new();
    world.apply(CatalogCommand::CreateVhost { name: "v".into() });
    world.apply(World::permissions("guest", "v", ["^a", "", ".*"]));
    world.queue("one");
    world.queue("two");
    let exclusive = world.with_flags(world.declare("mine"), false, true, true);
    world.apply(exclusive);
    let exchange = world.exchange("x", ExchangeKind::Topic, false);
    let text = Value::LongStr(b"amq.fanout".to_vec());
    world.apply(world.with_argument(exchange, "alternate-exchange", text));
    world.apply(World::bind("x", Destination::Queue("one".into()), "a.#"));
    world.apply(World::bind("amq.direct", Destination::Exchange("x".into()), "a.b"));
    let queue = Destination::Queue("two".into());
    let any = every_value().with("x-match", Value::LongStr(b"any".to_vec()));
    let command = World::binding(true, "amq.headers", queue, "", any, None);
    world.apply(command);
    world.catalog
}

fn check_catalog(restored: &Catalog) {
    let mut targets = Vec::new();
    restored.route("/", "amq.direct", "a.b", &NoHeaders, &mut targets).expect("a known exchange");
    assert_eq!(targets.len(), 1);
    restored.route("/", "amq.headers", "", &every_value(), &mut targets).expect("a known exchange");
    assert_eq!(targets.len(), 1);
    assert!(restored.has_exclusive(World::owner(1)));
}

#[test]
fn catalog_commands_about_nodes_are_read() {
    let voters = vec![NodeId(3), NodeId(1), NodeId(1 << 40)];
    let commands = [
        CatalogCommand::AddNode { node: NodeId(3), address: "host:5680".into(), incarnation: 7 },
        CatalogCommand::RemoveNode { node: NodeId(3) },
        CatalogCommand::SetVoters { group: GroupId(24), voters },
        CatalogCommand::NodeGone { node: NodeId(3) },
    ];
    let mut batch = Batch::new();
    commands.iter().for_each(|command| batch.catalog(command));
    let entry = golden("node-entry-v1.hex", &batch.stamp(0));
    let read = EntryReader::new(&entry).expect("a golden entry").map(|command| match command {
        Ok((_, Command::Catalog(command))) => *command,
        other => panic!("{other:?}"),
    });
    assert_eq!(read.collect::<Vec<_>>(), commands);
}

#[test]
fn snapshots_of_the_catalog_of_version_2_are_read() {
    let mut catalog = catalog();
    let at = Applied { index: 99, time_ms: 0 };
    for node in 1..=4 {
        let (node, address, incarnation) = (NodeId(node), format!("node-{node}:5680"), node);
        let command = CatalogCommand::AddNode { node, address, incarnation };
        catalog.apply(at, command, &mut Vec::new());
    }
    // Not what the policy of the day would choose.
    for group in 1..=16 {
        let voters = vec![NodeId(1 + u64::from(group) % 4), NodeId(1 + u64::from(group + 2) % 4)];
        let command = CatalogCommand::SetVoters { group: GroupId(group), voters };
        catalog.apply(at, command, &mut Vec::new());
    }
    let producer = ProducerId { node: NodeId(2), boot: 5 };
    for seq in [1, 1, 3] {
        catalog.begin_numbered(producer, seq);
    }
    let bytes = golden("catalog-v2.hex", &catalog.snapshot());
    let restored = Catalog::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), catalog.digest());
    assert_eq!((restored.last_numbered(producer), restored.skipped_batches()), (1, (1, 1)));
    assert_eq!(restored.voters(GroupId(16)), catalog.voters(GroupId(16)));
    assert_eq!((restored.nodes().count(), restored.group_count()), (4, 16));
    check_catalog(&restored);
}

#[test]
fn the_catalog_says_its_version_once_all_members_can_read_that() {
    let mut catalog = catalog();
    let before = catalog.snapshot();
    let command = CatalogCommand::RaiseVersion { to: Version(5) };
    let mut batch = Batch::new();
    batch.catalog(&command);
    golden("raise-entry-v1.hex", &batch.stamp(0));
    let at = Applied { index: 100, time_ms: 0 };
    assert_eq!(catalog.apply(at, command.clone(), &mut Vec::new()), CatalogReply::Done);
    assert_eq!(catalog.agreed(), Version(5));
    let bytes = golden("catalog-v3.hex", &catalog.snapshot());
    assert_ne!(bytes[0], before[0], "a member of before would not know what this is");
    let restored = Catalog::restore(&bytes).expect("a golden snapshot");
    assert_eq!((restored.agreed(), restored.digest()), (Version(5), catalog.digest()));
    check_catalog(&restored);

    // It never goes back, and raising it again changes nothing.
    let version = catalog.version();
    for to in [Version::FIRST, Version(5)] {
        let again = CatalogCommand::RaiseVersion { to };
        assert_eq!(catalog.apply(at, again, &mut Vec::new()), CatalogReply::Done);
    }
    assert_eq!((catalog.agreed(), catalog.version()), (Version(5), version));
}

#[test]
fn the_catalog_says_which_groups_are_wide_once_all_members_can_read_that() {
    let mut catalog = catalog();
    let at = Applied { index: 101, time_ms: 0 };
    for node in 1..=5 {
        let (node, address, incarnation) = (NodeId(node), format!("node-{node}:5680"), node);
        let command = CatalogCommand::AddNode { node, address, incarnation };
        catalog.apply(at, command, &mut Vec::new());
    }
    let command = CatalogCommand::SetWideGroups { per_node: 2 };
    let mut batch = Batch::new();
    batch.catalog(&command);
    let entry = golden("wide-entry-v1.hex", &batch.stamp(0));
    let read = EntryReader::new(&entry).expect("a golden entry").next();
    let Some(Ok((_, Command::Catalog(read)))) = read else { panic!("{read:?}") };
    assert_eq!(*read, command);

    for to in [Version(5), Version(6)] {
        catalog.apply(at, CatalogCommand::RaiseVersion { to }, &mut Vec::new());
        assert_eq!(catalog.snapshot()[0], if to < Version(6) { 3 } else { 4 });
    }
    assert_eq!(catalog.apply(at, command, &mut Vec::new()), CatalogReply::Done);
    let bytes = golden("catalog-v4.hex", &catalog.snapshot());
    let restored = Catalog::restore(&bytes).expect("a golden snapshot");
    assert_eq!((restored.agreed(), restored.digest()), (Version(6), catalog.digest()));
    let wide = (1..=20).filter(|group| restored.replicas(GroupId(*group)) == 5);
    assert_eq!(wide.collect::<Vec<_>>(), [1, 2, 5, 6, 9, 10, 13, 14, 17, 18]);
    check_catalog(&restored);
}

/// Everything that specs can hold.
fn commands_with_specs() -> Vec<CatalogCommand> {
    let (vhost, arguments) = (|| "/".to_owned(), every_value);
    let features = Features { max_length: Some(9), dead_letters: true, ..Features::default() };
    let queue = |name: &str, home: QueueHome, spec: QueueSpec| CatalogCommand::CreateQueue {
        vhost: vhost(),
        name: name.to_owned(),
        home,
        spec: Box::new(spec),
        arguments: arguments(),
    };
    let plain = |queue_type, home: QueueHome| QueueSpec {
        queue_type,
        settings: QueueSettings { is_durable: home.is_durable(), ..Default::default() },
        dead_letter: None,
        consumer_timeout_ms: None,
        members: None,
        partitions: 1,
    };
    let group = QueueHome::Group;
    let full = QueueSpec {
        settings: QueueSettings {
            is_durable: true,
            is_auto_delete: true,
            features: Some(Box::new(features)),
            is_paused: false,
        },
        dead_letter: Some(DeadLetter { exchange: "x".into(), key: Some("k".into()) }),
        consumer_timeout_ms: Some(1 << 40),
        members: Some(5),
        ..plain(QueueType::Quorum, group)
    };
    let changed = QueueSpec { consumer_timeout_ms: Some(9), ..full.clone() };
    let keyless = Some(DeadLetter { exchange: String::new(), key: None });
    let node = QueueHome::Node(NodeId(3));
    let session = QueueHome::Session(World::owner(4));
    let exchange = |name: &str, node, spec| CatalogCommand::CreateExchange {
        vhost: vhost(),
        name: name.to_owned(),
        auto_delete: true,
        internal: false,
        node,
        spec: Box::new(spec),
        arguments: arguments(),
    };
    let delayed = ExchangeSpec {
        kind: ExchangeKind::DelayedMessage,
        alternate: Some("amq.fanout".into()),
        hash_by: HashBy::Header("tenant".into()),
        ..ExchangeSpec::plain(ExchangeKind::ConsistentHash)
    };
    let property = ExchangeSpec {
        hash_by: HashBy::Property(HashProperty::Timestamp),
        ..ExchangeSpec::plain(ExchangeKind::ConsistentHash)
    };
    let history = ExchangeSpec {
        history_length: Some(20),
        ..ExchangeSpec::plain(ExchangeKind::RecentHistory)
    };
    vec![
        queue("full", group, full),
        queue("node", node, QueueSpec { dead_letter: keyless, ..plain(QueueType::Classic, node) }),
        queue("session", session, plain(QueueType::Classic, session)),
        exchange("delayed", None, delayed),
        exchange("property", Some(NodeId(1)), property),
        exchange("history", None, history),
        CatalogCommand::CreateBinding(BindingChange {
            vhost: vhost(),
            source: "delayed".into(),
            destination: Destination::Queue("full".into()),
            key: "7".into(),
            arguments: arguments(),
            by: Some(World::owner(4)),
        }),
        CatalogCommand::ChangeQueue {
            vhost: vhost(),
            name: "one".into(),
            queue: QueueId(1),
            spec: Box::new(changed),
        },
    ]
}

#[test]
fn commands_with_specs_are_read() {
    let mut batch = Batch::new();
    commands_with_specs().iter().for_each(|command| batch.catalog(command));
    let entry = golden("specs-entry-v1.hex", &batch.stamp(0));
    let read = EntryReader::new(&entry).expect("a golden entry").map(|command| match command {
        Ok((_, Command::Catalog(command))) => *command,
        other => panic!("{other:?}"),
    });
    assert_eq!(read.collect::<Vec<_>>(), commands_with_specs());
}

#[test]
fn snapshots_of_the_catalog_of_version_5_are_read() {
    let mut catalog = catalog();
    let at = Applied { index: 102, time_ms: 0 };
    let raise = CatalogCommand::RaiseVersion { to: Version::SPECS };
    for command in [vec![raise], commands_with_specs()].concat() {
        let reply = catalog.apply(at, command, &mut Vec::new());
        assert!(!matches!(reply, CatalogReply::Refused(_)), "{reply:?}");
    }
    let bytes = golden("catalog-v5.hex", &catalog.snapshot());
    let restored = Catalog::restore(&bytes).expect("a golden snapshot");
    assert_eq!((restored.agreed(), restored.digest()), (Version::SPECS, catalog.digest()));
    check_catalog(&restored);
}

/// Policies of both kinds with every rule, and one that goes.
fn commands_with_policies() -> Vec<CatalogCommand> {
    let rules = PolicyRules {
        message_ttl_ms: Some(1),
        expires_ms: Some(2),
        max_length: Some(3),
        max_length_bytes: Some(4),
        consumer_timeout_ms: Some(5),
        delivery_limit: Some(6),
        overflow: Some(Overflow::RejectPublishDlx),
        dead_letter_exchange: Some("dead".into()),
        dead_letter_key: Some("key".into()),
        alternate: Some("spare".into()),
        max_age_ms: None,
        rates: Rates::default(),
    };
    let put = |name: &str, kind, applies_to, priority, rules| {
        let definition = Arguments::new().with("max-length", Value::I64(3));
        let spec = PolicySpec { pattern: "^q".into(), applies_to, priority, rules, definition };
        let (vhost, name, spec) = ("/".to_owned(), name.to_owned(), Box::new(spec));
        CatalogCommand::PutPolicy { vhost, name, kind, spec }
    };
    let (vhost, name) = ("/".to_owned(), "none".to_owned());
    vec![
        put("all", PolicyKind::User, AppliesTo::All, -7, rules),
        put("none", PolicyKind::User, AppliesTo::Streams, 0, PolicyRules::default()),
        put("limit", PolicyKind::Operator, AppliesTo::Queues, 9, PolicyRules::default()),
        CatalogCommand::DeletePolicy { vhost, name, kind: PolicyKind::User },
    ]
}

#[test]
fn commands_with_policies_are_read() {
    let mut batch = Batch::new();
    commands_with_policies().iter().for_each(|command| batch.catalog(command));
    let entry = golden("policies-entry-v1.hex", &batch.stamp(0));
    let read = EntryReader::new(&entry).expect("a golden entry").map(|command| match command {
        Ok((_, Command::Catalog(command))) => *command,
        other => panic!("{other:?}"),
    });
    assert_eq!(read.collect::<Vec<_>>(), commands_with_policies());
}

/// What restricts users and vhosts, and what operators call things.
fn commands_with_restrictions() -> Vec<CatalogCommand> {
    let (user, vhost) = (|| "guest".to_owned(), || "/".to_owned());
    let topic = |exchange: &str| CatalogCommand::SetTopicPermissions {
        user: user(),
        vhost: vhost(),
        exchange: exchange.into(),
        write: "^{username}".into(),
        read: String::new(),
    };
    let limits = UserLimits { max_connections: Some(1), max_channels: None };
    let max_queues = LimitChange::To(Some(70_000));
    let of_vhost = VhostLimitsChange { max_connections: LimitChange::Stays, max_queues };
    let metadata = VhostMetadata {
        description: "a shop".into(),
        tags: vec!["one".into(), "two".into()],
        default_queue_type: Some(QueueType::Quorum),
        is_traced: false,
    };
    vec![
        topic("stays"),
        topic("goes"),
        CatalogCommand::ClearTopicPermissions {
            user: user(),
            vhost: vhost(),
            exchange: Some("goes".into()),
        },
        CatalogCommand::ClearTopicPermissions {
            user: user(),
            vhost: "other".into(),
            exchange: None,
        },
        CatalogCommand::SetUserLimits { user: user(), change: limits.into() },
        CatalogCommand::SetVhostLimits { vhost: vhost(), change: of_vhost },
        CatalogCommand::SetVhostMetadata { vhost: vhost(), metadata },
        CatalogCommand::SetClusterName { name: "east".into() },
    ]
}

/// One queue that is paused, and one that goes on.
fn commands_with_pauses() -> Vec<CatalogCommand> {
    let (vhost, name) = (|| "/".to_owned(), |name: &str| name.to_owned());
    let by = || Some("ann".to_owned());
    vec![
        CatalogCommand::PauseQueue { vhost: vhost(), name: name("one"), by: by() },
        CatalogCommand::PauseQueue { vhost: vhost(), name: name("two"), by: by() },
        CatalogCommand::PauseQueue { vhost: vhost(), name: name("two"), by: None },
    ]
}

#[test]
fn commands_with_pauses_are_read() {
    let mut batch = Batch::new();
    commands_with_pauses().iter().for_each(|command| batch.catalog(command));
    let entry = golden("pauses-entry-v1.hex", &batch.stamp(0));
    let read = EntryReader::new(&entry).expect("a golden entry").map(|command| match command {
        Ok((_, Command::Catalog(command))) => *command,
        other => panic!("{other:?}"),
    });
    assert_eq!(read.collect::<Vec<_>>(), commands_with_pauses());
}

#[test]
fn that_a_queue_is_paused_is_read() {
    let settings = QueueSettings { is_paused: true, is_durable: true, ..Default::default() };
    let mut batch = Batch::new();
    batch.set_settings(QueueId(1), 77, &settings);
    let entry = golden("paused-entry-v1.hex", &batch.stamp(7));
    let mut commands = EntryReader::new(&entry).expect("a golden entry");
    let command = commands.next().expect("a command").expect("a golden command").1;
    assert_eq!(command, Command::SetSettings { queue: QueueId(1), revision: 77, settings });
}

#[test]
fn commands_with_restrictions_are_read() {
    let mut batch = Batch::new();
    commands_with_restrictions().iter().for_each(|command| batch.catalog(command));
    let entry = golden("restrictions-entry-v1.hex", &batch.stamp(0));
    let read = EntryReader::new(&entry).expect("a golden entry").map(|command| match command {
        Ok((_, Command::Catalog(command))) => *command,
        other => panic!("{other:?}"),
    });
    assert_eq!(read.collect::<Vec<_>>(), commands_with_restrictions());
}

/// What operators change and do, with who they are.
fn commands_with_actors() -> Vec<CatalogCommand> {
    let actor = || Actor::new("ann", "[::1]:50000");
    let purged = Event::new("queue.purged", "/", "one");
    let purged = purged.with(Arguments::new().with("messages", Value::I64(3)));
    vec![
        CatalogCommand::CreateVhost { name: "audited".into() }.by(actor()),
        CatalogCommand::Note { by: actor(), event: Box::new(purged) },
    ]
}

#[test]
fn commands_with_actors_are_read() {
    let mut batch = Batch::new();
    commands_with_actors().iter().for_each(|command| batch.catalog(command));
    let entry = golden("audit-entry-v1.hex", &batch.stamp(0));
    let read = EntryReader::new(&entry).expect("a golden entry").map(|command| match command {
        Ok((_, Command::Catalog(command))) => *command,
        other => panic!("{other:?}"),
    });
    assert_eq!(read.collect::<Vec<_>>(), commands_with_actors());
}

#[test]
fn snapshots_of_the_catalog_of_version_6_are_read() {
    let mut catalog = catalog();
    let at = Applied { index: 102, time_ms: 0 };
    let raise = CatalogCommand::RaiseVersion { to: Version::POLICIES };
    let commands = [
        vec![raise],
        commands_with_policies(),
        commands_with_restrictions(),
        commands_with_pauses(),
        commands_with_actors(),
    ]
    .concat();
    for command in commands {
        let reply = catalog.apply(at, command, &mut Vec::new());
        assert!(!matches!(reply, CatalogReply::Refused(_)), "{reply:?}");
    }
    let bytes = golden("catalog-v6.hex", &catalog.snapshot());
    let restored = Catalog::restore(&bytes).expect("a golden snapshot");
    assert_eq!((restored.agreed(), restored.digest()), (Version::POLICIES, catalog.digest()));
    check_catalog(&restored);
}

#[test]
fn what_only_a_newer_program_can_have_written_is_told_from_damage() {
    let mut snapshot = catalog().snapshot();
    snapshot[0] = 9;
    assert!(Catalog::restore(&snapshot).expect_err("format 9").is_newer);
    let mut raised = catalog();
    let at = Applied { index: 100, time_ms: 0 };
    let to = Version(Version::TRIAL.0 + 1);
    raised.apply(at, CatalogCommand::RaiseVersion { to }, &mut Vec::new());
    assert!(Catalog::restore(&raised.snapshot()).expect_err("a newer cluster").is_newer);
    let unknown = [vec![200], 0u32.to_le_bytes().to_vec()].concat();
    for is_catalog in [true, false] {
        assert!(
            check_commands(&unknown, is_catalog, Version::NEWEST).expect_err("kind 200").is_newer
        );
        let cut =
            check_commands(&unknown[..3], is_catalog, Version::NEWEST).expect_err("half a command");
        assert!(!cut.is_newer);
    }
    let words = CatalogCommand::decode(&[200]).expect_err("kind 200").to_string();
    assert!(words.contains("upgrade this node"), "{words}");
}

#[test]
fn snapshots_of_the_catalog_of_version_1_are_read() {
    let bytes = golden_of_before("catalog-v1.hex");
    let restored = Catalog::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), catalog().digest());
    check_catalog(&restored);
}

/// An exchange of every kind that is not AMQP's own, and a queue with every argument.
fn commands_of_kinds() -> Vec<CatalogCommand> {
    let world = World::new();
    let text = |text: &str| Value::LongStr(text.into());
    let delayed = world.exchange("delayed", ExchangeKind::DelayedMessage, true);
    let hash = world.exchange("hash", ExchangeKind::ConsistentHash, true);
    let queue = [
        ("x-message-ttl", Value::I32(60_000)),
        ("x-max-length", Value::I64(1 << 40)),
        ("x-overflow", text("reject-publish-dlx")),
        ("x-dead-letter-exchange", text("")),
        ("x-max-priority", Value::U8(9)),
        ("x-single-active-consumer", Value::Bool(true)),
        ("x-message-deduplication", Value::Bool(true)),
    ];
    let with = |command, (name, value)| world.with_argument(command, name, value);
    vec![
        world.with_argument(delayed, "x-delayed-type", text("topic")),
        world.with_argument(hash, "hash-property", text("message_id")),
        world.exchange("random", ExchangeKind::Random, true),
        world.exchange("modulus", ExchangeKind::ModulusHash, true),
        queue.into_iter().fold(world.declare("q"), with),
        World::bind("delayed", Destination::Exchange("hash".into()), "a.#"),
        World::bind("hash", Destination::Exchange("modulus".into()), "10"),
        World::bind("modulus", Destination::Exchange("random".into()), ""),
        World::bind("random", Destination::Queue("q".into()), ""),
    ]
}

#[test]
fn commands_about_all_kinds_of_exchanges_are_read() {
    let mut batch = Batch::new();
    commands_of_kinds().iter().for_each(|command| batch.catalog(command));
    let entry = golden("kinds-entry-v1.hex", &batch.stamp(0));
    let read = EntryReader::new(&entry).expect("a golden entry").map(|command| match command {
        Ok((_, Command::Catalog(command))) => *command,
        other => panic!("{other:?}"),
    });
    assert_eq!(read.collect::<Vec<_>>(), commands_of_kinds());
}

#[test]
fn snapshots_of_all_kinds_of_exchanges_are_read() {
    let mut world = World::new();
    for command in commands_of_kinds() {
        world.apply_unchecked(command);
    }
    let bytes = golden("catalog-kinds-v2.hex", &world.catalog.snapshot());
    let restored = Catalog::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), world.catalog.digest());
    let mut targets = Vec::new();
    restored.route("/", "delayed", "a.b", &NoHeaders, &mut targets).expect("a known exchange");
    assert_eq!(targets, [restored.queue("/", "q").expect("a golden queue").target()]);
    assert!(targets[0].is_guarded && targets[0].dedups && targets[0].max_priority == 9);
}

/// What queues with every argument are told, and messages with every attribute.
fn features_batch() -> Batch {
    let features = Features {
        message_ttl_ms: Some(60_000),
        expires_ms: Some(1 << 33),
        max_length: Some(100),
        max_length_bytes: Some(1 << 40),
        overflow: Overflow::RejectPublishDlx,
        dead_letters: true,
        max_priority: 3,
        single_active: true,
        delivery_limit: Some(7),
        counts_returns: true,
        retry: Some(Retry { failed: true, returned: false, min_ms: 10, max_ms: 1_000 }),
        dedup: Some(Dedup { window_ms: 60_000, entries_max: 1_000 }),
        stream: None,
        subscription: None,
        assignment: None,
        tokens_of: None,
        order: None,
        filter: None,
        rates: Rates::default(),
    };
    let features = Some(Box::new(features));
    let mut batch = Batch::new();
    let settings =
        QueueSettings { is_durable: true, is_auto_delete: false, features, is_paused: false };
    batch.create_queue(QueueId(1), &settings);
    let all = Attributes { ttl_ms: Some(5_000), delay_ms: Some(1_000), key: Some(u128::MAX / 3) };
    batch.enqueue_with(&[QueueId(1)], &all, &[b"head"], b"body");
    batch.enqueue_with(&[QueueId(1)], &all, &[b"head"], b"twice");
    for (level, key) in [(0, 1), (3, 2), (3, 3), (1, 4)] {
        let attributes = Attributes { key: Some(key), ..Attributes::default() };
        batch.enqueue_with(&[QueueId(1).level(level)], &attributes, &[], b"body");
    }
    let outcomes = [Outcome::Expired, Outcome::Overflowed, Outcome::Exhausted, Outcome::Returned];
    for outcome in outcomes {
        batch.settle(QueueId(1).level(2), outcome, &Ranges::from(1..2));
    }
    batch.settle(QueueId(1).level(3), Outcome::Requeue, &Ranges::from(1..2));
    batch.settle(QueueId(1), Outcome::Rejected, &Ranges::from(2..3));
    batch.settle(QueueId(1), Outcome::DeadLettered, &Ranges::from(1..2));
    batch.cancel_delayed(&[QueueId(1)], 9);
    batch
}

#[test]
fn entries_about_arguments_and_attributes_are_read() {
    let entry = golden("features-entry-v1.hex", &features_batch().stamp(7));
    let reader = EntryReader::new(&entry).expect("a golden entry");
    let commands: Vec<_> = reader.map(|command| command.expect("a golden command").1).collect();
    let Command::Enqueue(message) = commands[1] else { panic!("{:?}", commands[1]) };
    let all = Attributes { ttl_ms: Some(5_000), delay_ms: Some(1_000), key: Some(u128::MAX / 3) };
    assert_eq!((message.attributes, message.head, message.body), (all, &b"head"[..], &b"body"[..]));
    let Some(Command::Cancel { queues, key: 9 }) = commands.last() else { panic!("no cancel") };
    assert_eq!(queues.iter().collect::<Vec<_>>(), [QueueId(1)]);
    assert_eq!(commands.len(), 15);
}

#[test]
fn snapshots_of_queues_with_arguments_are_read() {
    let mut machine = QueueMachine::new();
    let at = Applied { index: 1, time_ms: 1_700_000_000_000 };
    let entry = features_batch().stamp(at.time_ms);
    machine.apply(at, &entry, &mut Vec::new()).expect("our own entry");
    let bytes = golden_of_before("queues-features-v3.hex");
    let mut restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), machine.digest());
    restored.set_now(at.time_ms);
    restored.lead();
    restored.start_dispatch(&mut Vec::new());
    restored.check();
    let status = restored.status(QueueId(1)).expect("a golden queue");
    // One is delayed, one was rejected, one waits for its retry.
    assert_eq!((status.ready, status.delayed, status.leaving), (2, 2, 1));
    assert_eq!(status.counters.duplicates, 1);
    assert_eq!(restored.deadline(), Some(at.time_ms + 10));
}
