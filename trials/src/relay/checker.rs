//! Judges a history by what the relay promises:
//!
//! - **B1** every committed row is delivered, or it is parked with the right reason and deserves that;
//! - **B2** no row that was rolled back is delivered, nor anything that nobody wrote;
//! - **B3** first deliveries are in the order that was asked for;
//! - **B4** every delivery of a row has the same message-id and the same body;
//! - **B5** what was delivered is marked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::history::{Ending, Failed, History, Id, Kind};

/// Which rows must not overtake which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    None,
    /// Rows of one key, in the order of their commits.
    Key,
    /// All rows, in the order of their commits.
    Commits,
}

/// What the relay was asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub order: Order,
    /// A row that cannot be published stops those behind it of its key.
    pub blocks: bool,
    /// The outbox says which rows are done.
    pub marks: bool,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// `B1` to `B5`; `harness` where the trial contradicts itself.
    pub promise: &'static str,
    pub what: String,
}

/// What was seen, in numbers, and what was wrong.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub committed: usize,
    pub rolled_back: usize,
    /// Committed rows that have to arrive.
    pub due: usize,
    pub delivered: usize,
    pub duplicates: usize,
    /// Rows that the relay has given up or will try again.
    pub parked: usize,
    /// Fine rows to which the relay has counted a failed attempt.
    pub charged: usize,
    pub violations: Vec<Violation>,
    /// What the relays said last.
    pub log: String,
}

impl Report {
    pub fn is_valid(&self) -> bool {
        self.violations.is_empty()
    }

    /// Whether a promise was found broken.
    pub fn breaks(&self, promise: &str) -> bool {
        self.violations.iter().any(|violation| violation.promise == promise)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Of each promise.
        const SHOWN: usize = 5;
        write!(
            f,
            "{} rows committed, {} rolled back; {} of {} delivered, {} again; {} parked, {} charged",
            self.committed,
            self.rolled_back,
            self.delivered,
            self.due,
            self.duplicates,
            self.parked,
            self.charged
        )?;
        for found in self.violations.chunk_by(|one, next| one.promise == next.promise) {
            for violation in found.iter().take(SHOWN) {
                write!(f, "\n{}: {}", violation.promise, violation.what)?;
            }
            if found.len() > SHOWN {
                write!(f, "\n{}: {} more", found[0].promise, found.len() - SHOWN)?;
            }
        }
        if self.log.is_empty() { Ok(()) } else { write!(f, "\n{}", self.log) }
    }
}

/// Judges.
pub fn check(history: &History, rules: Rules) -> Report {
    let mut check = Check {
        committed: history.commits.iter().flat_map(|at| rows(history, *at)).copied().collect(),
        place: BTreeMap::new(),
        failed: history.failed.iter().map(|failed| (failed.id, failed)).collect(),
        history,
        rules,
        report: Report::default(),
    };
    check.place = (0..).zip(&check.committed).map(|(place, row)| (*row, place)).collect();
    check.endings();
    let behind = check.behind_poison();
    let first = check.deliveries(&behind);
    check.outcomes(&behind, &first);
    if rules.order != Order::None {
        check.order(&first);
    }
    check.report.violations.sort();
    check.report
}

fn rows(history: &History, at: usize) -> &[usize] {
    history.transactions.get(at).map_or(&[], |transaction| &transaction.rows)
}

struct Check<'a> {
    history: &'a History,
    rules: Rules,
    /// Rows by number, in the order of their commits.
    committed: Vec<usize>,
    /// Each committed row's place in that order.
    place: BTreeMap<usize, usize>,
    failed: BTreeMap<Id, &'a Failed>,
    report: Report,
}

impl Check<'_> {
    fn found(&mut self, promise: &'static str, what: String) {
        self.report.violations.push(Violation { promise, what });
    }

    /// What PostgreSQL says must agree with what writers saw.
    fn endings(&mut self) {
        let kept: BTreeSet<usize> = self.history.commits.iter().copied().collect();
        if kept.len() != self.history.commits.len() {
            self.found("harness", "a transaction committed twice".into());
        }
        for (at, transaction) in self.history.transactions.iter().enumerate() {
            match (transaction.ending, kept.contains(&at)) {
                (Ending::Committed, false) => {
                    self.found("harness", format!("PostgreSQL lost transaction {at}"));
                }
                (Ending::RolledBack, true) => {
                    self.found("harness", format!("PostgreSQL kept transaction {at}"));
                }
                (Ending::Committed, true) | (Ending::RolledBack, false) | (Ending::Unknown, _) => {}
            }
        }
        self.report.committed = self.committed.len();
        self.report.rolled_back = self.history.rows.len() - self.committed.len();
    }

    /// Rows of one lane have an order.
    fn lane(&self, key: u32) -> u32 {
        if self.rules.order == Order::Commits { 0 } else { key }
    }

    /// Rows that have to wait for ever, as one before them of their key cannot be published.
    fn behind_poison(&self) -> BTreeSet<usize> {
        let mut behind = BTreeSet::new();
        if !self.rules.blocks || self.rules.order == Order::None {
            return behind;
        }
        let mut blocked = BTreeSet::new();
        for row in &self.committed {
            let Some(written) = self.history.rows.get(*row) else { continue };
            let lane = self.lane(written.key);
            if blocked.contains(&lane) {
                behind.insert(*row);
            } else if written.kind != Kind::Fine {
                blocked.insert(lane);
            }
        }
        behind
    }

    /// Looks at every delivery. Gives the first of each row, in order.
    fn deliveries(&mut self, behind: &BTreeSet<usize>) -> Vec<usize> {
        let mut first = BTreeSet::new();
        let mut order = Vec::new();
        for delivery in &self.history.deliveries {
            let known = delivery.row.and_then(|row| Some((row, self.history.rows.get(row)?)));
            let Some((row, written)) = known else {
                self.found("B2", format!("a message that nobody wrote: {delivery:?}"));
                continue;
            };
            if !self.place.contains_key(&row) {
                self.found("B2", format!("row {row} was never committed, and is delivered"));
            }
            if written.kind != Kind::Fine {
                self.found("B1", format!("row {row} is {:?}, and is delivered", written.kind));
            }
            if behind.contains(&row) {
                self.found("B3", format!("row {row} passed a row of its key that is parked"));
            }
            if delivery.id != Some(written.id) {
                let (id, right) = (delivery.id, written.id);
                self.found("B4", format!("row {row} has the message-id {id:?} instead of {right}"));
            }
            if delivery.body != written.body {
                self.found("B4", format!("row {row} has another body"));
            }
            if delivery.dress != written.dress {
                self.found("B4", format!("row {row} has other properties"));
            }
            if first.insert(row) {
                order.push(row);
            }
        }
        self.report.delivered = order.len();
        self.report.duplicates = self.history.deliveries.len() - order.len();
        order
    }

    fn outcomes(&mut self, behind: &BTreeSet<usize>, first: &[usize]) {
        let delivered: BTreeSet<usize> = first.iter().copied().collect();
        let unmarked: BTreeSet<Id> = self.history.unmarked.iter().copied().collect();
        let mut parked = BTreeSet::new();
        for row in self.committed.clone() {
            let Some(written) = self.history.rows.get(row).cloned() else { continue };
            let failed = self.failed.get(&written.id).copied();
            let reason = failed.map(|failed| failed.reason.as_str());
            if failed.is_some() {
                parked.insert(written.id);
            }
            match written.kind.reason() {
                None if behind.contains(&row) => (),
                None => {
                    self.report.due += 1;
                    if !delivered.contains(&row) {
                        let reason = reason.unwrap_or("and nothing says why");
                        self.found("B1", format!("row {row} is not delivered: {reason}"));
                    } else if self.rules.marks && unmarked.contains(&written.id) {
                        self.found("B5", format!("row {row} is delivered and not marked"));
                    }
                    let is_charged = failed.is_some_and(|failed| failed.attempts > 0);
                    self.report.charged += usize::from(is_charged);
                }
                Some(right) if reason == Some(right) || behind.contains(&row) => (),
                Some(right) => {
                    let what = format!("row {row} is {right}, and the relay says {reason:?}");
                    self.found("B1", what);
                }
            }
        }
        let strangers = self.history.failed.iter().filter(|failed| !parked.contains(&failed.id));
        let strangers: Vec<Id> = strangers.map(|failed| failed.id).collect();
        for id in strangers {
            self.found("B2", format!("{id} is parked, and no committed row has that id"));
        }
        self.report.parked = parked.len();
    }

    /// First deliveries against commits: of each key, or of all.
    fn order(&mut self, first: &[usize]) {
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        for row in first {
            let Some(place) = self.place.get(row).copied() else { continue };
            let lane = self.lane(self.history.rows[*row].key);
            match last.get(&lane) {
                Some(before) if *before > place => {
                    let passed = self.committed[*before];
                    self.found(
                        "B3",
                        format!("row {row} comes after row {passed}, which was committed later"),
                    );
                }
                _ => drop(last.insert(lane, place)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
