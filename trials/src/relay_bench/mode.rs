//! The modes of `millrace relay run` that are measured.

use crate::ladder::queue;

/// Where rows come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The table, by queries.
    Poll,
    /// The table, by its log.
    Wal,
    /// Messages in the log, and no table.
    Messages,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(super) struct Mode {
    pub(super) name: String,
    pub(super) source: Source,
    /// System 1's table has no column to keep an order by: it gets one, defined as this.
    pub(super) key: Option<&'static str>,
    /// This part of the backlog is enough: one message after the other is slow.
    part: u64,
    words: &'static [&'static str],
}

impl Mode {
    pub(super) fn rows(&self, backlog: u64) -> u64 {
        backlog / self.part
    }

    /// What `millrace relay run` is told beyond where the database and the broker are.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = ["--exchange", queue::NAME].map(String::from).into();
        words.extend(self.words.iter().map(ToString::to_string));
        if self.key.is_some() {
            words.extend(["--key-column", KEY].map(String::from));
        }
        words
    }
}

/// The column that such a table gets.
pub(super) const KEY: &str = "customer";
/// Its values: 10,007 of them, or one that all rows have.
const MANY: Option<&str> =
    Some("text NOT NULL GENERATED ALWAYS AS (content->>'customerId') STORED");
const HOT: Option<&str> = Some("text NOT NULL DEFAULT '7'");
/// The prefix of messages without a table.
pub(super) const PREFIX: &str = "outbox";

pub(super) fn all() -> Vec<Mode> {
    let mode = |name: &str, source, key, words| Mode {
        name: format!("relay, {name}"),
        source,
        key,
        part: 1,
        words,
    };
    vec![
        mode("poll, update", Source::Poll, None, &["--on-success", "update"]),
        mode("poll, delete", Source::Poll, None, &["--on-success", "delete"]),
        mode("poll, archive", Source::Poll, None, &["--on-success", "archive"]),
        mode(
            "poll, delete, order by key",
            Source::Poll,
            MANY,
            &["--on-success", "delete", "--order", "key"],
        ),
        Mode {
            part: 20,
            ..mode(
                "poll, delete, strict order",
                Source::Poll,
                None,
                &["--on-success", "delete", "--order", "strict"],
            )
        },
        mode(
            "poll, delete, strict order, window 1000",
            Source::Poll,
            None,
            &["--on-success", "delete", "--order", "strict", "--order-window", "1000"],
        ),
        Mode {
            part: 20,
            ..mode(
                "poll, delete, one hot key",
                Source::Poll,
                HOT,
                &["--on-success", "delete", "--order", "key"],
            )
        },
        mode(
            "poll, delete, one hot key, pipelined",
            Source::Poll,
            HOT,
            &["--on-success", "delete", "--order", "key", "--order-pipeline", "repeat"],
        ),
        mode(
            "wal, one hot key, pipelined",
            Source::Wal,
            HOT,
            &["--source", "wal", "--order", "key", "--order-pipeline", "repeat"],
        ),
        mode("wal", Source::Wal, None, &["--source", "wal"]),
        mode(
            "wal, emit_message",
            Source::Messages,
            None,
            &["--source", "messages", "--prefix", PREFIX],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<String> =
            all().into_iter().map(|mode| mode.name).collect();
        assert_eq!(names.len(), all().len());
    }

    #[test]
    fn only_an_order_by_key_needs_a_column_for_it() {
        for mode in all() {
            assert_eq!(mode.key.is_some(), mode.words().contains(&KEY.to_owned()), "{}", mode.name);
            assert_eq!(mode.key.is_some(), mode.name.contains("key"), "{}", mode.name);
        }
    }
}
