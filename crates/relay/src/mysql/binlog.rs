//! MariaDB's binlog as a source: its events become what the [`stream`](crate::stream) is told. No waiting here.
//!
//! A transaction is published when it has arrived as a whole, for a group of events may still end in `ROLLBACK`, or go
//! back to a savepoint. Only a transaction that is larger than [`HELD_BYTES_MAX`] is handed on while it arrives.
//!
//! ```text
//! GTID -> rows -> XID or COMMIT ------> Begin, Row..., Commit
//!            \--> ROLLBACK -----------> nothing but the place behind it
//! ```

pub(crate) mod event;
pub(crate) mod gtid;
pub(crate) mod place;
pub mod server;
pub(crate) mod start;
pub(crate) mod table;

use std::collections::VecDeque;

use bytes::Bytes;

use crate::error::Error;
use crate::lsn::Lsn;
use crate::mapping::TableName;
use crate::progress::CommitTime;
use crate::stream::Input;
use event::{Event, What};
use gtid::{Gtid, State};
use place::Place;

/// Bytes of a transaction's rows that are kept until its end.
pub(crate) const HELD_BYTES_MAX: usize = 64 << 20;
/// Savepoints of a transaction that are remembered.
const SAVEPOINTS_MAX: usize = 10_000;
/// Of a statement that cannot be read, this much is shown.
const SHOWN_CHARS: usize = 120;

/// Puts events together to transactions.
#[derive(Debug)]
pub(crate) struct Assembler {
    table: TableName,
    /// Where the log is read: behind the last event.
    place: Place,
    group: Option<Group>,
    state: State,
    ready: VecDeque<Input>,
}

/// The transaction that arrives.
#[derive(Debug, Default)]
struct Group {
    begin: Lsn,
    at: Option<CommitTime>,
    gtid: Option<Gtid>,
    /// What it is stands alone: a statement that changes a table.
    is_standalone: bool,
    rows: VecDeque<(Lsn, Bytes)>,
    bytes: usize,
    /// Names, and how many rows there were.
    savepoints: Vec<(String, usize)>,
    /// It was too large to be kept: this is on its way already.
    is_handed_on: bool,
}

impl Assembler {
    /// Reads on from `place`, before which `state` is done.
    pub(crate) fn new(table: &TableName, place: Place, state: State) -> Self {
        Self { table: table.clone(), place, group: None, state, ready: VecDeque::new() }
    }

    /// What is ready, in its order.
    pub(crate) fn take(&mut self) -> Option<Input> {
        self.ready.pop_front()
    }

    /// Where the log is read.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The ids of what is done, now that everything before `confirmed` is.
    pub(crate) fn state(&mut self, confirmed: Lsn) -> String {
        self.state.advance(confirmed);
        self.state.to_string()
    }

    /// Takes an event.
    ///
    /// # Errors
    /// Rows of the outbox may be in it that cannot be read: what to do is said.
    pub(crate) fn event(&mut self, event: Event) -> Result<(), Error> {
        let Event { place, at, what } = event;
        let mut start = self.place.at;
        if let Some((begin, end)) = place {
            let file = start.0 >> 32 << 32;
            let before = start;
            start = Lsn(file | u64::from(begin));
            self.place.at = Lsn(file | u64::from(end));
            if self.place.at < before {
                return Err(self.too_long());
            }
        }
        match what {
            What::Begin { gtid, is_standalone } => {
                // A server that was killed may have left a beginning without an end: it was never committed.
                self.drop_group()?;
                let group =
                    Group { begin: start, at, gtid: Some(gtid), is_standalone, ..Group::default() };
                self.group = Some(group);
            }
            What::Rows(rows) => self.rows(start, rows)?,
            What::Commit => self.commit(at),
            What::Prepared => self.prepared(at)?,
            What::Query(text) => self.query(&text, at)?,
            What::Rotate { file, offset } => {
                // Only a killed server leaves a transaction open at the end of a file.
                self.drop_group()?;
                self.place = Place::of(&file, offset).map_err(Error::setup)?;
                self.pass();
            }
            What::Compressed => {
                return Err(Error::setup(
                    "the binlog has compressed rows of the outbox or others, which the relay does not read: SET GLOBAL \
                     log_bin_compress = OFF (and in the server's file), then `millrace relay resync --source wal`",
                ));
            }
            What::Incident => {
                return Err(Error::SlotLost {
                    text: format!(
                        "the binlog tells of an incident at {}: the server says that changes are missing there. \
                         `millrace relay resync --source wal` reads the table again",
                        self.place.words()
                    ),
                });
            }
            What::Other => self.pass(),
        }
        Ok(())
    }

    /// What was read is nothing of ours.
    fn pass(&mut self) {
        if self.group.is_none() {
            self.ready.push_back(Input::KeepAlive { wal_end: self.place.at });
        }
    }

    fn rows(&mut self, start: Lsn, rows: Vec<Bytes>) -> Result<(), Error> {
        let Some(group) = &mut self.group else {
            return Err(Error::setup(format!(
                "the binlog has rows outside of a transaction at {}: the relay reads MariaDB's binlog, with its ids",
                self.place.words()
            )));
        };
        group.bytes += rows.iter().map(Bytes::len).sum::<usize>();
        group.rows.extend(rows.into_iter().map(|row| (start, row)));
        if group.bytes > HELD_BYTES_MAX {
            Self::hand_on(group, &mut self.ready);
        }
        Ok(())
    }

    fn hand_on(group: &mut Group, ready: &mut VecDeque<Input>) {
        if !group.is_handed_on {
            group.is_handed_on = true;
            ready.push_back(Input::Begin { commit: group.begin, at: group.at });
        }
        ready.extend(group.rows.drain(..).map(|(lsn, data)| Input::Row { lsn, data }));
        group.bytes = 0;
        group.savepoints.clear();
    }

    fn commit(&mut self, at: Option<CommitTime>) {
        let Some(mut group) = self.group.take() else { return self.pass() };
        Self::hand_on(&mut group, &mut self.ready);
        self.end(&group, at);
    }

    fn end(&mut self, group: &Group, at: Option<CommitTime>) {
        let end = self.place.at;
        if let Some(gtid) = group.gtid {
            self.state.arrived(end, gtid);
        }
        match group.is_handed_on {
            true => self.ready.push_back(Input::Commit { end, at: at.or(group.at) }),
            false => {
                self.ready.push_back(Input::Begin { commit: group.begin, at: group.at });
                self.ready.push_back(Input::Commit { end, at: None });
            }
        }
    }

    /// `XA PREPARE`: it may be committed or rolled back later, even by another server.
    fn prepared(&mut self, at: Option<CommitTime>) -> Result<(), Error> {
        let has_rows = self.group.as_ref().is_some_and(|it| it.is_handed_on || !it.rows.is_empty());
        if has_rows {
            return Err(Error::setup(format!(
                "an XA transaction has written rows of the outbox at {}: whether it is committed is told elsewhere, so the \
                 relay cannot read it from the log. Use --source poll, or write the outbox without XA",
                self.place.words()
            )));
        }
        self.commit(at);
        Ok(())
    }

    fn query(&mut self, text: &str, at: Option<CommitTime>) -> Result<(), Error> {
        let statement = Statement::of(text);
        match statement {
            Statement::Begin => (),
            Statement::Commit => self.commit(at),
            Statement::Rollback => {
                if self.group.as_ref().is_some_and(|group| group.is_handed_on) {
                    return Err(self.undone());
                }
                if let Some(mut group) = self.group.take() {
                    group.rows.clear();
                    self.end(&group, at);
                }
            }
            Statement::Savepoint(name) => {
                if let Some(group) = &mut self.group {
                    if group.savepoints.len() >= SAVEPOINTS_MAX {
                        group.savepoints.remove(0);
                    }
                    group.savepoints.push((name, group.rows.len()));
                }
            }
            Statement::RollbackTo(name) => {
                let Some(group) = &mut self.group else { return Ok(()) };
                let at = group.savepoints.iter().rposition(|(has, _)| *has == name);
                match at {
                    Some(at) => {
                        group.rows.truncate(group.savepoints[at].1);
                        group.savepoints.truncate(at + 1);
                    }
                    // It was forgotten with what was handed on, or was never told: nothing can be taken back for sure.
                    None if group.is_handed_on || !group.rows.is_empty() => {
                        return Err(self.undone());
                    }
                    None => (),
                }
            }
            Statement::EndOfXa | Statement::Other => {
                if self.is_about_rows(text) {
                    let shown: String = text.chars().take(SHOWN_CHARS).collect();
                    return Err(Error::setup(format!(
                        "a session wrote to the outbox as a statement, not as rows, at {}: {shown}. Its rows are nowhere in \
                         the log. Set binlog_format = ROW for every session, then `millrace relay resync --source wal`",
                        self.place.words()
                    )));
                }
                match self
                    .group
                    .take_if(|group| group.is_standalone || statement == Statement::EndOfXa)
                {
                    Some(group) => self.end(&group, at),
                    None => self.pass(),
                }
            }
        }
        Ok(())
    }

    /// Whether a statement may have put rows into the table.
    fn is_about_rows(&self, text: &str) -> bool {
        let word = first_word(text);
        let writes = ["insert", "replace", "load", "with", "call", "execute"];
        let text = text.to_lowercase();
        writes.contains(&word.as_str()) && text.contains(&self.table.name.to_lowercase())
    }

    /// A transaction that has no end is none.
    fn drop_group(&mut self) -> Result<(), Error> {
        match self.group.take() {
            Some(group) if group.is_handed_on => Err(self.undone()),
            Some(_) | None => Ok(()),
        }
    }

    fn undone(&self) -> Error {
        Error::setup(format!(
            "a transaction with more than {} MiB of the outbox was undone at {}: its rows were on their way already. \
             `millrace relay resync --source wal` goes on behind it",
            HELD_BYTES_MAX >> 20,
            self.place.words()
        ))
    }

    fn too_long(&self) -> Error {
        Error::setup(format!(
            "the binlog's file {} is longer than 4 GB, and places in it are told with 32 bits: make transactions \
             smaller, then `millrace relay resync --source wal`",
            self.place.file_of(self.place.at)
        ))
    }
}

/// What a statement of the binlog means for the transaction that arrives.
#[derive(Debug, PartialEq, Eq)]
enum Statement {
    Begin,
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    /// The second half of a commit by XA, or its undoing.
    EndOfXa,
    Other,
}

impl Statement {
    fn of(text: &str) -> Self {
        let (first, rest) = split_word(text.trim());
        let (second, behind) = split_word(rest);
        match (first.to_lowercase().as_str(), second.to_lowercase().as_str()) {
            ("begin", "") => Self::Begin,
            ("commit", "") => Self::Commit,
            ("rollback", "") => Self::Rollback,
            // The server writes the whole name, in its quotes, and nothing behind it.
            ("savepoint", _) => Self::Savepoint(rest.to_lowercase()),
            ("rollback", "to") => Self::RollbackTo(behind.to_lowercase()),
            ("xa", "commit" | "rollback") => Self::EndOfXa,
            _ => Self::Other,
        }
    }
}

fn split_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// The first word of a statement, behind its comments.
fn first_word(text: &str) -> String {
    let mut text = text.trim_start();
    while let Some(rest) = text.strip_prefix("/*").filter(|rest| !rest.starts_with('!')) {
        text = rest.split_once("*/").map_or("", |(_, rest)| rest).trim_start();
    }
    let word = text.split(|c: char| !c.is_alphanumeric()).next();
    word.unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests;
