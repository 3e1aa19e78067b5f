//! What happened: who wrote what, what PostgreSQL kept of it, what the broker delivered, what the relay gave up.

use std::fmt;

/// What is with a row, beyond its being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Fine,
    /// Of a type that no queue wants.
    Unroutable,
    /// Above what the relay was told to publish.
    TooLarge,
    /// Its headers are no JSON object.
    BadHeaders,
}

impl Kind {
    /// The reason that the relay has to give, where it is right not to publish.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Fine => None,
            Self::Unroutable => Some("unroutable"),
            Self::TooLarge => Some("too_large"),
            Self::BadHeaders => Some("broken"),
        }
    }
}

/// A row's id, which the message-id has to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub u128);

impl Id {
    /// None if it is no UUID in its usual form.
    pub fn read(text: &str) -> Option<Self> {
        let is_usual = text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        u128::from_str_radix(&digits, 16).ok().filter(|_| is_usual).map(Self)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        f.write_str(&parts.join("-"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A row as its writer wrote it. Its number is its place in [`History::rows`], and is in its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: Id,
    /// The aggregate, whose lock its writer held.
    pub key: u32,
    pub kind: Kind,
    /// CRC-32 of the body that has to arrive.
    pub body: u32,
    /// CRC-32 of the properties that it has to have.
    pub dress: u32,
}

/// How a transaction ended, as far as its writer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Committed,
    RolledBack,
    /// The connection was lost: PostgreSQL knows.
    Unknown,
}

/// A transaction and the numbers of its rows, in the order they were inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub rows: Vec<usize>,
    pub ending: Ending,
}

/// A message from the broker, in the order of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The row's number, from the body. None: no body of ours.
    pub row: Option<usize>,
    /// The message-id, if it is one.
    pub id: Option<Id>,
    /// CRC-32 of the body.
    pub body: u32,
    /// CRC-32 of its routing key and properties, as [`dress`](super::plan::dress) makes it.
    pub dress: u32,
}

/// A row in `millrace.relay_failures`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub id: Id,
    pub reason: String,
    pub attempts: u32,
    pub is_dead: bool,
}

/// Everything that the checker is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub rows: Vec<Row>,
    pub transactions: Vec<Transaction>,
    /// Transactions by their place in [`History::transactions`], in the order that PostgreSQL committed them.
    pub commits: Vec<usize>,
    pub deliveries: Vec<Delivery>,
    pub failed: Vec<Failed>,
    /// Rows that are in the outbox when all is over and are not marked.
    pub unmarked: Vec<Id>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written_and_nothing_else_is_one() {
        let id = Id(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(id.to_string(), "01234567-89ab-cdef-0011-223344556677");
        assert_eq!(Id::read(&id.to_string()), Some(id));
        assert_eq!(Id::read("0123456789abcdef0011223344556677"), None);
        assert_eq!(Id::read(""), None);
    }
}
