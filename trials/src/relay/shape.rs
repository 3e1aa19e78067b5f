//! What a relay is asked to do, and the command line that says it.

use std::path::PathBuf;

use super::checker::{Order, Rules};
use super::plan::BODY_BYTES_MAX;
use super::planted::Bug;
use super::taker::Place;
use super::truth::Source;

/// What a relay is asked to do.
#[derive(Clone, Debug)]
pub struct Shape {
    pub source: Source,
    pub order: Asked,
    pub on_success: Mark,
    /// More of the command line.
    pub words: Vec<String>,
    /// A relay with a bug instead: the binary of the trials, and which.
    pub planted: Option<(PathBuf, Bug)>,
    /// See [`Shape::in_any_order`].
    pub has_lost_order: bool,
}

/// `--order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Asked {
    None,
    Key,
    Strict,
}

/// `--on-success`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mark {
    Update,
    Delete,
    Archive,
}

impl Shape {
    pub fn poll(order: Asked) -> Self {
        Self {
            source: Source::Poll,
            order,
            on_success: Mark::Update,
            words: Vec::new(),
            planted: None,
            has_lost_order: false,
        }
    }

    pub fn wal(order: Asked) -> Self {
        Self { source: Source::Wal, ..Self::poll(order) }
    }

    pub fn on_success(self, on_success: Mark) -> Self {
        Self { on_success, ..self }
    }

    pub fn with(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    pub fn messages() -> Self {
        Self { source: Source::Messages, ..Self::poll(Asked::None) }
    }

    /// Rows may come in any order: a slot was lost in between.
    pub fn in_any_order(self) -> Self {
        Self { has_lost_order: true, ..self }
    }

    pub(super) fn rules(&self) -> Rules {
        let is_poll = self.source == Source::Poll;
        let order = match (self.source, self.order) {
            _ if self.has_lost_order => Order::None,
            (Source::Poll, Asked::None) => Order::None,
            (_, Asked::Key) => Order::Key,
            // Logical replication tells commits in their order. A poll is strict about its column, which
            // is the order of commits where all rows are of one key.
            (Source::Poll, Asked::Strict) => Order::Key,
            (_, Asked::None | Asked::Strict) => Order::Commits,
        };
        Rules { order, blocks: self.order != Asked::None, marks: is_poll }
    }

    /// The command line of any of the relay's commands.
    pub(super) fn words_of(
        &self,
        command: &str,
        database: &str,
        place: &Place,
        slot: &str,
    ) -> Vec<String> {
        let mut words: Vec<String> = ["relay", command].map(str::to_owned).to_vec();
        let mut add = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
        add("--database", database);
        add("--url", &format!("amqp://guest:guest@{}/%2f", place.broker));
        add("--table", "outbox_messages");
        add("--exchange", &place.exchange);
        add("--routing-key", "{type}");
        add("--key-column", "aggregate");
        add("--headers-column", "headers");
        add("--order-by", "seq");
        add("--body-bytes-max", &BODY_BYTES_MAX.to_string());
        let order = match self.order {
            Asked::None => "none",
            Asked::Key => "key",
            Asked::Strict => "strict",
        };
        add("--order", order);
        let on_success = match self.on_success {
            Mark::Update => "update",
            Mark::Delete => "delete",
            Mark::Archive => "archive",
        };
        match self.source {
            Source::Poll => add("--on-success", on_success),
            Source::Wal => add("--source", "wal"),
            Source::Messages => add("--source", "messages"),
        }
        if self.source != Source::Poll {
            // Slots are of the whole cluster: every run has its own.
            add("--slot", slot);
        }
        words.extend(self.words.iter().cloned());
        words
    }
}

/// The command line of a planted relay.
pub(super) fn words_of_planted(bug: Bug, database: &str, place: &Place) -> Vec<String> {
    let bug = clap::ValueEnum::to_possible_value(&bug);
    let bug = bug.map_or(String::new(), |value| value.get_name().to_owned());
    let (database, broker) = (database.to_owned(), place.broker.to_string());
    let exchange = place.exchange.clone();
    let pairs =
        [("--bug", bug), ("--database", database), ("--broker", broker), ("--exchange", exchange)];
    let words = pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    std::iter::once("planted-relay".to_owned()).chain(words).collect()
}
