//! Entries of the log, commands of the catalog, snapshots: two replicas take the same bytes alike, and what was
//! checked before it is logged applies.
#![no_main]

use machine::{
    Applied, Batch, Catalog, CatalogCommand, EntryReader, NodeId, ProducerId, QueueId,
    QueueMachine, QueueSettings, Ranges, Version, check_commands,
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut machine = leader();
    let mut follower = QueueMachine::restore(&machine.snapshot()).expect("our own snapshot");
    assert_eq!(apply(&mut machine, data), apply(&mut follower, data), "replicas take it alike");
    assert_eq!(machine.digest(), follower.digest(), "replicas agree");
    if let Ok(reader) = EntryReader::new(data) {
        assert!(reader.take(data.len() + 1).count() <= data.len(), "it is read to its end");
    }
    if check_commands(data, false, Version::NEWEST).is_ok() {
        let mut batch = Batch::new();
        batch.append_numbered(ProducerId { node: NodeId(7), boot: 1 }, 1, data);
        assert!(apply(&mut leader(), &batch.stamp(0)), "what was checked applies");
    }
    if let Ok((ranges, rest)) = Ranges::decode(data) {
        let mut again = Vec::new();
        ranges.encode(&mut again);
        assert_eq!(Ranges::decode(&again).map(|(ranges, _)| ranges), Ok(ranges));
        assert!(rest.len() < data.len(), "something was read");
    }
    if let Ok(command) = CatalogCommand::decode(data) {
        Catalog::new(2).apply(Applied { index: 1, time_ms: 0 }, command, &mut Vec::new());
    }
    if let Ok(mut machine) = QueueMachine::restore(data) {
        apply(&mut machine, &entry());
    }
});

fn apply(machine: &mut QueueMachine, entry: &[u8]) -> bool {
    let at = Applied { index: machine.applied_index() + 1, time_ms: 0 };
    machine.apply(at, entry, &mut Vec::new()).is_ok()
}

fn entry() -> Vec<u8> {
    let mut batch = Batch::new();
    batch.create_queue(QueueId(1), &QueueSettings::default());
    batch.keep_marks(QueueId(1));
    batch.enqueue(&[QueueId(1)], &[b"head"], b"body");
    batch.stamp(5)
}

fn leader() -> QueueMachine {
    let mut machine = QueueMachine::new();
    machine.lead();
    machine.start_dispatch(&mut Vec::new());
    assert!(apply(&mut machine, &entry()), "our own entry");
    machine
}
