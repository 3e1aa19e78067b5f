//! What writers write: transactions that a seed decides, and the messages that have to come of them.

use std::ops::Range;

use super::history::{Id, Kind, Row};
use crate::workload::{Chance, crc32};

/// Types that the queue is bound to.
pub const TYPES: [&str; 3] = ["order.placed", "order.paid", "order.shipped"];
/// The type that nothing is bound to.
pub const UNWANTED: &str = "order.forgotten";
/// Bodies above this many bytes are too large: the relay is told so.
pub const BODY_BYTES_MAX: usize = 16 << 10;
/// Keys from here on have rows that cannot be published, where those are kept apart.
const POISON_KEYS: u32 = 10_000;

/// A load.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub writers: u32,
    /// Of each writer.
    pub transactions: u32,
    pub keys: u32,
    /// Rows of a transaction.
    pub rows: Range<u64>,
    /// Bytes of a row's body, about.
    pub bytes: Range<u64>,
    pub rollback_percent: u64,
    /// Transactions that stay open while others commit.
    pub long_percent: u64,
    /// Rows that cannot be published, of these kinds ...
    pub poison: Vec<Kind>,
    pub poison_percent: u64,
    /// ... have keys of their own.
    pub poison_apart: bool,
}

impl Plan {
    /// Eight writers, twenty keys, a tenth rolled back, some long; nothing that cannot be published.
    pub fn usual(seed: u64) -> Self {
        Self {
            seed,
            writers: 8,
            transactions: 60,
            keys: 20,
            rows: 1..6,
            bytes: 0..600,
            rollback_percent: 10,
            long_percent: 8,
            poison: Vec::new(),
            poison_percent: 0,
            poison_apart: true,
        }
    }

    /// The same, with rows of every kind that cannot be published.
    pub fn with_poison(self, percent: u64) -> Self {
        let poison = vec![Kind::Unroutable, Kind::TooLarge, Kind::BadHeaders];
        Self { poison, poison_percent: percent, ..self }
    }

    /// Transaction `number` of a writer.
    pub fn transaction(&self, writer: u32, number: u32) -> Planned {
        let mut chance = Chance::named(self.seed, &format!("{writer}/{number}"));
        let is_rolled_back = chance.percent(self.rollback_percent);
        let is_long = chance.percent(self.long_percent);
        let count = chance.within(self.rows.start, self.rows.end);
        let mut rows: Vec<PlannedRow> = (0..count).map(|_| self.row(&mut chance)).collect();
        // Locks are taken in one order by everybody.
        rows.sort_by_key(|row| row.key);
        Planned { rows, is_rolled_back, is_long }
    }

    fn row(&self, chance: &mut Chance) -> PlannedRow {
        let mut key = chance.within(0, u64::from(self.keys)) as u32;
        let mut kind = Kind::Fine;
        if !self.poison.is_empty() && chance.percent(self.poison_percent) {
            kind = self.poison[chance.within(0, self.poison.len() as u64) as usize];
            key += if self.poison_apart { POISON_KEYS } else { 0 };
        }
        let bytes = match kind {
            Kind::TooLarge => BODY_BYTES_MAX as u64 + chance.within(1, 5000),
            Kind::Fine | Kind::Unroutable | Kind::BadHeaders => {
                chance.within(self.bytes.start, self.bytes.end)
            }
        };
        PlannedRow { key, kind, bytes: bytes as usize }
    }

    /// All keys that may come.
    pub fn all_keys(&self) -> impl Iterator<Item = u32> {
        let apart = POISON_KEYS..POISON_KEYS + self.keys;
        (0..self.keys).chain(apart)
    }
}

/// A transaction to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub rows: Vec<PlannedRow>,
    pub is_rolled_back: bool,
    pub is_long: bool,
}

/// A row to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRow {
    pub key: u32,
    pub kind: Kind,
    pub bytes: usize,
}

/// The columns of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    pub id: String,
    pub message_type: &'static str,
    /// As PostgreSQL writes jsonb: what is inserted is what has to arrive.
    pub content: String,
    pub headers: String,
}

/// Row `number` as it is inserted, and as it is remembered.
pub fn write(seed: u64, number: usize, planned: PlannedRow) -> (Columns, Row) {
    let mut chance = Chance::named(seed, &format!("row {number}"));
    let id = Id(u128::from(chance.number()) << 64 | u128::from(chance.number()));
    let PlannedRow { key, kind, bytes } = planned;
    let message_type = match kind {
        Kind::Unroutable => UNWANTED,
        Kind::Fine | Kind::TooLarge | Kind::BadHeaders => TYPES[number % TYPES.len()],
    };
    let content = content(number, key, bytes);
    let headers = match kind {
        Kind::BadHeaders => "[1, 2]".to_owned(),
        Kind::Fine | Kind::Unroutable | Kind::TooLarge => format!("{{\"row\": {number}}}"),
    };
    let body = crc32(content.as_bytes());
    let dress = dress(message_type, message_type, true, Some(number as i64));
    let columns = Columns { id: id.to_string(), message_type, content, headers };
    (columns, Row { id, key, kind, body, dress })
}

/// The row's number comes first, so that a delivery tells which row it is whatever its message-id says.
fn content(number: usize, key: u32, bytes: usize) -> String {
    let pad: String = (0..bytes).map(|at| char::from(b'a' + ((number + at) % 26) as u8)).collect();
    format!("{{\"n\": {number}, \"key\": {key}, \"pad\": \"{pad}\"}}")
}

/// The number of the row that a body is of.
pub fn row_of(body: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(body).ok()?;
    text.strip_prefix("{\"n\": ")?.split_once(',')?.0.parse().ok()
}

/// What a message has beside its id and its body, in one number.
pub fn dress(routing_key: &str, kind: &str, is_persistent: bool, header: Option<i64>) -> u32 {
    crc32(format!("{routing_key}\n{kind}\n{is_persistent}\n{header:?}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_the_same_every_time_and_has_all_that_was_asked_for() {
        let plan = Plan::usual(7).with_poison(20);
        let all = |plan: &Plan| -> Vec<Planned> {
            (0..100).map(|number| plan.transaction(3, number)).collect()
        };
        let planned = all(&plan);
        assert_eq!(planned, all(&plan));
        assert!(
            planned.iter().any(|one| one.is_rolled_back) && planned.iter().any(|one| one.is_long)
        );
        for kind in [Kind::Fine, Kind::Unroutable, Kind::TooLarge, Kind::BadHeaders] {
            assert!(
                planned.iter().flat_map(|one| &one.rows).any(|row| row.kind == kind),
                "{kind:?}"
            );
        }
        let is_apart = |row: &PlannedRow| (row.kind == Kind::Fine) == (row.key < POISON_KEYS);
        assert!(planned.iter().flat_map(|one| &one.rows).all(is_apart));
    }

    #[test]
    fn a_body_tells_its_row() {
        let planned = PlannedRow { key: 3, kind: Kind::Fine, bytes: 10 };
        let (columns, row) = write(1, 4711, planned);
        assert_eq!(row_of(columns.content.as_bytes()), Some(4711));
        assert_eq!(row.body, crc32(columns.content.as_bytes()));
        assert_eq!(row_of(b"{}"), None);
    }
}
