//! Numbered batches: sent again, too early, or by a process that is dead, what they hold is applied once.

use std::collections::BTreeMap;

use machine::{
    Applied, Batch, Catalog, CatalogCommand, CatalogReply, Command, Corrupt, Effect, Enqueue,
    EntryReader, Messages, NUMBERED_HEAD_BYTES, NodeId, Outcome, ProducerId, QueueId, QueueMachine,
    QueueSettings, Ranges, Seqs, Version, check_commands,
};
use proptest::prelude::*;

const Q: QueueId = QueueId(1);
const OTHER: QueueId = QueueId(2);

fn producer(node: u64, boot: u64) -> ProducerId {
    ProducerId { node: NodeId(node), boot }
}

fn messages(queue: QueueId, bodies: &[&str]) -> Vec<u8> {
    let mut batch = Batch::new();
    for body in bodies {
        batch.enqueue(&[queue], &[], body.as_bytes());
    }
    batch.into_commands()
}

/// A machine with two queues, and what its effects say came into each.
struct World {
    machine: QueueMachine,
    index: u64,
    bodies: BTreeMap<QueueId, Vec<String>>,
}

impl World {
    fn new() -> Self {
        let mut world = Self { machine: QueueMachine::new(), index: 0, bodies: BTreeMap::new() };
        let mut batch = Batch::new();
        batch.create_queue(Q, &QueueSettings::default());
        batch.create_queue(OTHER, &QueueSettings::default());
        world.apply(batch);
        world
    }

    fn apply(&mut self, batch: Batch) -> usize {
        self.index += 1;
        let at = Applied { index: self.index, time_ms: 0 };
        let entry = batch.stamp(0);
        let mut effects = Vec::new();
        self.machine.apply(at, &entry, &mut effects).expect("our own entry");
        let mut runs = 0;
        for effect in effects {
            let Effect::Enqueued { queue, first_seq, count, bytes } = effect else { continue };
            runs += 1;
            let found = self.bodies.entry(queue).or_default();
            assert_eq!(first_seq, found.len() as u64 + 1);
            let read = Messages::of(queue, &entry[bytes]).map(|(_, body)| body);
            found.extend(read.map(|body| String::from_utf8(body.to_vec()).expect("our own text")));
            assert_eq!(found.len() as u64, first_seq - 1 + u64::from(count), "a run misleads");
        }
        runs
    }

    fn bodies(&self, queue: QueueId) -> Vec<&str> {
        self.bodies.get(&queue).into_iter().flatten().map(String::as_str).collect()
    }
}

#[test]
fn a_numbered_batch_that_comes_again_changes_nothing() {
    let mut world = World::new();
    let from = producer(1, 7);
    for _ in 0..3 {
        let mut batch = Batch::new();
        batch.append_numbered(from, 1, &messages(Q, &["a", "b"]));
        world.apply(batch);
    }
    assert_eq!(world.bodies(Q), ["a", "b"]);
    assert_eq!(world.machine.last_numbered(from), 1);
    assert_eq!(world.machine.last_numbered(producer(1, 6)), 0);
    assert_eq!(world.machine.last_numbered(producer(2, 7)), 0);
    assert_eq!(world.machine.skipped_batches(), (2, 0));
}

#[test]
fn a_numbered_batch_waits_for_the_one_before_it() {
    let mut world = World::new();
    let mut batch = Batch::new();
    batch.append_numbered(producer(1, 1), 1, &messages(Q, &["a"]));
    batch.append_numbered(producer(1, 1), 3, &messages(Q, &["c"]));
    batch.append_numbered(producer(1, 1), 2, &messages(Q, &["b"]));
    batch.append_numbered(producer(1, 1), 3, &messages(Q, &["c"]));
    world.apply(batch);
    assert_eq!(world.bodies(Q), ["a", "b", "c"]);
    assert_eq!(world.machine.skipped_batches(), (0, 1));
}

#[test]
fn what_stands_before_the_first_numbered_batch_is_always_applied() {
    let mut world = World::new();
    for round in 1..=2u64 {
        let mut batch = Batch::new();
        batch.enqueue(&[Q], &[], b"own");
        if round == 2 {
            batch.settle(Q, Outcome::Done, &Ranges::from(1..2));
        }
        batch.append_numbered(producer(1, 1), 1, &messages(Q, &["once"]));
        world.apply(batch);
    }
    assert_eq!(world.bodies(Q), ["own", "once", "own"]);
    assert_eq!(world.machine.kept(Q).map(Seqs::to_ranges), Some(Ranges::from(2..4)));
}

#[test]
fn a_run_reaches_over_a_numbered_batch_but_never_over_a_skipped_one() {
    let mut world = World::new();
    let mut batch = Batch::new();
    batch.append_numbered(producer(1, 1), 1, &messages(Q, &["a"]));
    batch.append_numbered(producer(2, 1), 1, &messages(OTHER, &["x"]));
    batch.append_numbered(producer(1, 1), 2, &messages(Q, &["b"]));
    assert_eq!(world.apply(batch), 2, "one run for each queue");
    let mut batch = Batch::new();
    batch.append_numbered(producer(1, 1), 3, &messages(Q, &["c"]));
    batch.append_numbered(producer(1, 1), 2, &messages(Q, &["b"]));
    batch.append_numbered(producer(1, 1), 4, &messages(Q, &["d"]));
    assert_eq!(world.apply(batch), 2, "two runs around what is skipped");
    assert_eq!(world.bodies(Q), ["a", "b", "c", "d"]);
}

#[test]
fn a_catalog_says_whether_a_numbered_batch_counts() {
    let mut catalog = Catalog::new(1);
    let command = CatalogCommand::CreateVhost { name: "v".into() };
    let mut numbered = Batch::new();
    numbered.catalog(&command);
    let numbered = numbered.into_commands();
    check_commands(&numbered, true, Version::NEWEST).expect("a command of the catalog");
    let mut batch = Batch::new();
    for seq in [1, 1, 3, 2] {
        batch.append_numbered(producer(4, 2), seq, &numbered);
    }
    let entry = batch.stamp(0);
    let mut is_applied = true;
    let mut applied = 0;
    for command in EntryReader::new(&entry).expect("our own entry") {
        match command.expect("our own command").1 {
            Command::Numbered { producer, seq } => {
                is_applied = catalog.begin_numbered(producer, seq)
            }
            Command::Catalog(command) if is_applied => {
                let at = Applied { index: 1, time_ms: 0 };
                let reply = catalog.apply(at, *command, &mut Vec::new());
                assert_eq!(reply, CatalogReply::Done);
                applied += 1;
            }
            Command::Catalog(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((applied, catalog.skipped_batches()), (2, (1, 1)));
    let restored = Catalog::restore(&catalog.snapshot()).expect("our own snapshot");
    assert_eq!(restored.last_numbered(producer(4, 2)), 2);
}

#[test]
fn commands_of_a_version_that_a_program_does_not_read_do_not_pass() {
    let mut queues = Batch::new();
    queues.create_queue(Q, &QueueSettings::default());
    queues.keep_marks(Q);
    let mut catalog = Batch::new();
    catalog.catalog(&CatalogCommand::SetWideGroups { per_node: 1 });
    let commands = [
        (queues.into_commands(), false, Version::KEPT_MARKS),
        (catalog.into_commands(), true, Version::WIDE_GROUPS),
    ];
    for (commands, is_catalog, since) in commands {
        check_commands(&commands, is_catalog, since).expect("the first that reads it");
        let before = Version(since.0 - 1);
        let refused = check_commands(&commands, is_catalog, before).expect_err("it is newer");
        assert!(refused.is_newer, "{refused}");
    }
}

#[test]
fn a_program_stops_at_a_command_of_queues_that_is_newer_than_what_it_reads() {
    let mut batch = Batch::new();
    batch.create_queue(Q, &QueueSettings::default());
    batch.keep_marks(Q);
    let entry = batch.stamp(1);
    for (reads, is_read) in [(Version(6), false), (Version::KEPT_MARKS, true)] {
        let mut machine = QueueMachine::new().reading(reads);
        let applied = machine.apply(Applied { index: 1, time_ms: 1 }, &entry, &mut Vec::new());
        assert_eq!(applied.map_err(|corrupt| corrupt.is_newer), is_read.then_some(()).ok_or(true));
    }
}

#[test]
fn commands_of_the_wrong_kind_do_not_pass() {
    let queues = messages(Q, &["a"]);
    check_commands(&queues, false, Version::NEWEST).expect("queues get messages");
    check_commands(&[], false, Version::NEWEST).expect("nothing is wrong with nothing");
    assert!(check_commands(&queues, true, Version::NEWEST).is_err(), "a catalog gets none");
    let mut batch = Batch::new();
    batch.create_queue(Q, &QueueSettings::default());
    batch.settle(Q, Outcome::Done, &Ranges::from(1..9));
    batch.drop_queue(Q);
    check_commands(&batch.clone().into_commands(), false, Version::NEWEST)
        .expect("commands of queues");
    batch.catalog(&CatalogCommand::CreateVhost { name: "v".into() });
    assert!(
        check_commands(&batch.into_commands(), false, Version::NEWEST).is_err(),
        "a catalog's command"
    );
    let mut batch = Batch::new();
    batch.begin_numbered(producer(1, 1), 1);
    for is_catalog in [false, true] {
        assert!(
            check_commands(&batch.clone().into_commands(), is_catalog, Version::NEWEST).is_err()
        );
        assert!(
            check_commands(&[99, 0, 0, 0, 0], is_catalog, Version::NEWEST).is_err(),
            "an unknown kind"
        );
    }
    for end in 1..queues.len() {
        assert!(check_commands(&queues[..end], false, Version::NEWEST).is_err(), "cut at {end}");
    }
}

#[test]
#[should_panic(expected = "would become part of the last one")]
fn commands_of_no_numbered_batch_are_not_joined_behind_a_numbered_batch() {
    let mut batch = Batch::new();
    batch.begin_numbered(producer(1, 1), 1);
    let mut own = Batch::new();
    own.drop_queue(Q);
    batch.join(own);
}

#[test]
fn a_numbered_batch_is_filled_batch_by_batch() {
    let mut batch = Batch::new();
    batch.begin_numbered(producer(1, 1), 1);
    for body in [&b"a"[..], b"b"] {
        let mut own = Batch::new();
        own.enqueue(&[Q], &[], body);
        batch.fill(own);
    }
    let mut whole = Batch::new();
    whole.append_numbered(producer(1, 1), 1, &messages(Q, &["a", "b"]));
    assert_eq!((batch.commands(), batch.bytes()), (3, whole.bytes()));
    assert_eq!(batch.stamp(4), whole.stamp(4));
}

#[test]
fn batches_of_numbered_batches_are_joined() {
    let mut head = Batch::new();
    head.begin_numbered(producer(1, 1), 1);
    assert_eq!(head.into_commands().len(), NUMBERED_HEAD_BYTES);
    let mut batch = Batch::new();
    batch.drop_queue(QueueId(9));
    let mut numbered = Batch::new();
    numbered.append_numbered(producer(1, 1), 1, &messages(Q, &["a"]));
    batch.join(numbered.clone());
    batch.join(numbered);
    assert_eq!((batch.commands(), batch.is_empty()), (5, false));
    let entry = batch.stamp(3);
    let commands: Result<Vec<Command<'_>>, Corrupt> =
        EntryReader::new(&entry).expect("our own entry").map(|item| item.map(|it| it.1)).collect();
    let from = Command::Numbered { producer: producer(1, 1), seq: 1 };
    let commands = commands.expect("our own commands");
    assert_eq!((&commands[1], &commands[3]), (&from, &from));
    assert!(matches!(commands[2], Command::Enqueue(Enqueue { body: b"a", .. })));
    assert_eq!(commands.len(), 5);
}

/// What one node sends in one life: numbered batches of messages for one of two queues.
fn text(node: u64, boot: u64, seq: u64, number: u64) -> String {
    format!("{node}.{boot}.{seq}.{number}")
}

fn numbered(node: u64, boot: u64, seq: u64) -> (QueueId, Vec<String>) {
    let bodies = (0..(node + boot + seq * 7) % 4).map(|number| text(node, boot, seq, number));
    (if (seq + node).is_multiple_of(3) { OTHER } else { Q }, bodies.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_numbered_batches_come_each_is_applied_once_and_in_order(
        sent in proptest::collection::vec(
            proptest::collection::vec((1u64..4, 1u64..4, 0u64..6, any::<bool>()), 0..12), 0..20,
        ),
    ) {
        let mut world = World::new();
        let mut follower = World::new();
        let mut last: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut model: BTreeMap<QueueId, Vec<String>> = BTreeMap::new();
        let mut all = sent;
        // In the end every node sends all of its last life once more, in order.
        all.push((1..4).flat_map(|node| (1..6).map(move |seq| (node, 3, seq, false))).collect());
        for batches in all {
            let mut batch = Batch::new();
            for (node, boot, mut seq, is_next) in batches {
                let (last_boot, last_seq) = last.get(&node).copied().unwrap_or_default();
                if is_next && boot == last_boot {
                    seq = last_seq + 1;
                }
                let (queue, bodies) = numbered(node, boot, seq);
                let texts: Vec<&str> = bodies.iter().map(String::as_str).collect();
                batch.append_numbered(producer(node, boot), seq, &messages(queue, &texts));
                if (boot == last_boot && seq == last_seq + 1) || (boot > last_boot && seq == 1) {
                    last.insert(node, (boot, seq));
                    model.entry(queue).or_default().extend(bodies);
                }
            }
            world.apply(batch.clone());
            follower.apply(batch);
            prop_assert_eq!(world.machine.digest(), follower.machine.digest());
            for queue in [Q, OTHER] {
                let model = model.get(&queue).cloned().unwrap_or_default();
                prop_assert_eq!(world.bodies(queue), model);
            }
            for (node, (boot, seq)) in &last {
                prop_assert_eq!(world.machine.last_numbered(producer(*node, *boot)), *seq);
            }
            let snapshot = follower.machine.snapshot();
            follower.machine = QueueMachine::restore(&snapshot).expect("our own snapshot");
        }
        for node in 1..4 {
            prop_assert!(world.machine.last_numbered(producer(node, 3)) >= 5);
        }
    }
}

#[test]
fn a_queue_is_created_by_every_node_and_once() {
    let mut world = World::new();
    let mut batch = Batch::new();
    for node in 1..=3 {
        let mut numbered = Batch::new();
        numbered.create_queue(QueueId(5), &QueueSettings::default());
        numbered.enqueue(&[QueueId(5)], &[], b"m");
        batch.append_numbered(producer(node, 1), 1, &numbered.into_commands());
    }
    world.apply(batch);
    assert_eq!(world.bodies(QueueId(5)), ["m"; 3]);
}
