//! Tables of headers and arguments, as AMQP and as the machines keep them.
#![no_main]

use amqp::{ArrayRef, TableRef, ValueRef};
use machine::Arguments;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(table) = TableRef::validate(data) {
        read_table(table);
    }
    if let Ok(arguments) = Arguments::decode(data) {
        let mut again = Vec::new();
        arguments.encode(&mut again);
        assert_eq!(Arguments::decode(&again), Ok(arguments), "what we encode decodes to the same");
    }
});

/// Reads all of it: `validate` has promised that this cannot fail, and how deep it goes.
fn read_table(table: TableRef<'_>) {
    for (key, value) in table.iter() {
        assert!(key.len() <= 255, "a name is a short string");
        read_value(value);
    }
}

fn read_array(array: ArrayRef<'_>) {
    array.iter().for_each(read_value);
}

fn read_value(value: ValueRef<'_>) {
    match value {
        ValueRef::Table(table) => read_table(table),
        ValueRef::Array(array) => read_array(array),
        _ => {}
    }
}
