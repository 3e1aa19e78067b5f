//! The checksum of what entries did: alike where replicas did the same, and another for ever where one did not.

use machine::{
    Applied, Batch, ENTRY_HEAD_BYTES, Outcome, QueueId, QueueMachine, QueueSettings, Ranges,
    Version, check_commands,
};

const Q: QueueId = QueueId(1);

fn apply(machine: &mut QueueMachine, batch: Batch) {
    let at = Applied { index: machine.applied_index() + 1, time_ms: 1_000 };
    machine.apply(at, &batch.stamp(at.time_ms), &mut Vec::new()).expect("our own entry");
}

fn publish(count: u64) -> Batch {
    let mut batch = Batch::new();
    (0..count).for_each(|_| batch.enqueue(&[Q], &[], b"body"));
    batch
}

fn settle(range: std::ops::Range<u64>) -> Batch {
    let mut batch = Batch::new();
    batch.settle(Q, Outcome::Done, &Ranges::from(range));
    batch
}

/// A queue with ten messages, in a group that keeps a chain.
fn chained() -> QueueMachine {
    let mut machine = QueueMachine::new();
    let mut batch = Batch::new();
    batch.create_queue(Q, &QueueSettings::default());
    apply(&mut machine, batch);
    assert_eq!(machine.chain(), None, "the log does not say that one is kept");
    let mut batch = Batch::new();
    batch.keep_chain();
    apply(&mut machine, batch);
    apply(&mut machine, publish(10));
    machine
}

#[test]
fn a_replica_that_did_something_else_once_has_another_chain_from_there_on() {
    let (mut one, mut other) = (chained(), chained());
    assert!(one.chain().is_some());
    assert_eq!(one.chain(), other.chain());
    apply(&mut one, settle(1..4));
    apply(&mut other, settle(1..3));
    assert_ne!(one.chain(), other.chain(), "it settled one less");
    // Both have the same books again.
    apply(&mut one, settle(3..4));
    apply(&mut other, settle(3..4));
    assert_eq!(one.balance(Q), other.balance(Q));
    assert_ne!(one.chain(), other.chain());
}

#[test]
fn the_bytes_of_entries_are_in_the_chain() {
    let (mut one, mut other) = (chained(), chained());
    one.expect_entry(7);
    other.expect_entry(8);
    apply(&mut one, publish(1));
    apply(&mut other, publish(1));
    assert_ne!(one.chain(), other.chain());
    assert_eq!(one.balance(Q), other.balance(Q));
}

#[test]
fn a_chain_goes_on_behind_a_snapshot_and_begins_once() {
    let mut machine = chained();
    let mut restored = QueueMachine::restore(&machine.snapshot()).expect("our own snapshot");
    assert_eq!(restored.chain(), machine.chain());
    for batch in [settle(1..3), publish(5)] {
        apply(&mut machine, batch.clone());
        apply(&mut restored, batch);
        assert_eq!(restored.chain(), machine.chain());
    }
    // The command comes again, after a change of leader.
    let before = machine.chain();
    let mut batch = Batch::new();
    batch.keep_chain();
    apply(&mut machine, batch.clone());
    apply(&mut restored, batch);
    assert_ne!(machine.chain(), before, "it is an entry like others");
    assert_eq!(restored.chain(), machine.chain());
}

#[test]
fn an_older_program_does_not_read_the_command() {
    let mut batch = Batch::new();
    batch.keep_chain();
    let commands = batch.stamp(0).split_off(ENTRY_HEAD_BYTES);
    assert!(check_commands(&commands, false, Version::CHAINED).is_ok());
    assert!(check_commands(&commands, true, Version::CHAINED).is_err(), "it is not the catalog's");
    let before = Version(Version::CHAINED.0 - 1);
    let corrupt = check_commands(&commands, false, before).expect_err("it is newer");
    assert!(corrupt.is_newer);
}

#[test]
fn the_books_of_a_queue_are_right_at_every_step() {
    let mut machine = chained();
    let right = |machine: &QueueMachine, open: u64| {
        let balance = machine.balance(Q).expect("the queue");
        assert!(balance.is_right(), "{balance:?}");
        assert_eq!((balance.came, balance.open), (balance.accounted(), open));
    };
    right(&machine, 10);
    apply(&mut machine, settle(1..4));
    right(&machine, 7);
    let mut batch = Batch::new();
    batch.settle(Q, Outcome::Purged, &Ranges::from(4..6));
    batch.settle(Q, Outcome::Rejected, &Ranges::from(9..11));
    apply(&mut machine, batch);
    right(&machine, 3);
    assert_eq!(machine.balance(QueueId(9)), None);
}
