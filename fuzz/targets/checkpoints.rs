//! A group's state in a checkpoint or a snapshot: members, then the machine's snapshot or the catalog's.
#![no_main]

use bytes::Bytes;
use cluster::checkpoint::State;
use machine::{Catalog, QueueMachine};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(state) = State::decode(&Bytes::copy_from_slice(data)) else { return };
    if let Ok(machine) = QueueMachine::restore(&state.machine) {
        let again = QueueMachine::restore(&machine.snapshot()).expect("our own snapshot");
        assert_eq!(again.digest(), machine.digest(), "a snapshot says it all");
    }
    let _ = Catalog::restore(&state.machine);
});
