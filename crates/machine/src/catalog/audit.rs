//! The audit trail: what operators have changed lately, who it was, from where and when.
//!
//! It is in the replicated state, so every node has it, and no operator can take back what it says of him. It is bounded
//! in count and in bytes: the oldest record makes way for a new one. What the change itself is, and whether it is
//! allowed, is not its business: a change travels inside `CatalogCommand::Administered`, and what is no change of the
//! catalog (a purge, a closed connection) is told afterwards by `CatalogCommand::Note`.

mod event;

use std::collections::VecDeque;

pub(super) use event::event;

use super::refusal::{Kind, Refusal};
use crate::encoding::{Corrupt, Reader, put_text, put_u32, put_u64};
use crate::limits::{
    AUDIT_BYTES_MAX, AUDIT_RECORDS_MAX, EVENT_DETAILS_BYTES_MAX, NAME_BYTES_MAX, SEQ_MAX,
};
use crate::value::{Arguments, Value};

/// Who changes something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    pub user: String,
    /// Address and port. Empty: the node itself.
    pub address: String,
}

/// Something that happened to a thing, in RabbitMQ's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `user.created`, `policy.set`, `queue.purged`, …
    pub name: String,
    /// Empty: it belongs to no vhost.
    pub vhost: String,
    /// The name of the user, queue, policy, …
    pub object: String,
    /// What else there is to say. Never a secret.
    pub details: Arguments,
}

/// An event at a time, for those who listen at the exchange of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// Since 1970.
    pub at_ms: u64,
    /// `None`: a client, or the cluster itself.
    pub by: Option<Actor>,
    pub event: Event,
}

/// One change, and who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// From 1 on, in the order of the log.
    pub number: u64,
    /// Since 1970: the time of the log's entry.
    pub at_ms: u64,
    pub by: Actor,
    pub event: Event,
}

/// The newest records.
#[derive(Clone, Debug)]
pub(super) struct Audit {
    records: VecDeque<AuditRecord>,
    /// What they take when they are encoded.
    bytes: usize,
    /// The number of the next one.
    next: u64,
    records_max: usize,
    bytes_max: usize,
}

impl Actor {
    pub fn new(user: impl Into<String>, address: impl Into<String>) -> Self {
        Self { user: user.into(), address: address.into() }
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        [&self.user, &self.address].into_iter().try_for_each(|text| check_text(text))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.user);
        put_text(out, &self.address);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self { user: reader.string()?, address: reader.string()? })
    }
}

impl Event {
    pub fn new(name: &str, vhost: &str, object: &str) -> Self {
        let [name, vhost, object] = [name, vhost, object].map(str::to_owned);
        Self { name, vhost, object, details: Arguments::new() }
    }

    /// With details. More of them than a record may hold are counted, and left out.
    #[must_use]
    pub fn with(mut self, details: Arguments) -> Self {
        let mut bytes = Vec::new();
        if details.is_within_limits() {
            details.encode(&mut bytes);
        }
        self.details = match details.is_within_limits() && bytes.len() <= EVENT_DETAILS_BYTES_MAX {
            true => details,
            false => Arguments::new().with("details_left_out", Value::Bool(true)),
        };
        self
    }

    /// Bytes of all that it says.
    pub fn weight(&self) -> usize {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes.len()
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        let Self { name, vhost, object, details } = self;
        [name, vhost, object].into_iter().try_for_each(|text| check_text(text))?;
        if !details.is_within_limits() {
            return Err(Refusal::ArgumentsTooLarge);
        }
        let mut bytes = Vec::new();
        details.encode(&mut bytes);
        match bytes.len() <= EVENT_DETAILS_BYTES_MAX {
            true => Ok(()),
            false => Err(Refusal::ArgumentsTooLarge),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let Self { name, vhost, object, details } = self;
        [name, vhost, object].into_iter().for_each(|text| put_text(out, text));
        details.encode(out);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self {
            name: reader.string()?,
            vhost: reader.string()?,
            object: reader.string()?,
            details: Arguments::read(reader)?,
        })
    }
}

/// The object of an event may be a connection, whose name is longer than that of a user.
fn check_text(text: &str) -> Result<(), Refusal> {
    if text.len() > NAME_BYTES_MAX {
        return Err(Refusal::InvalidName { kind: Kind::User, name: text.to_owned() });
    }
    Ok(())
}

impl AuditRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.at_ms);
        self.by.encode(out);
        self.event.encode(out);
    }

    fn bytes(&self) -> usize {
        let mut out = Vec::new();
        self.encode(&mut out);
        out.len()
    }
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            records: VecDeque::new(),
            bytes: 0,
            next: 1,
            records_max: AUDIT_RECORDS_MAX,
            bytes_max: AUDIT_BYTES_MAX,
        }
    }
}

impl Audit {
    pub(super) fn add(&mut self, at_ms: u64, by: Actor, event: Event) {
        let record = AuditRecord { number: self.next, at_ms, by, event };
        self.next += 1;
        self.bytes += record.bytes();
        self.records.push_back(record);
        while self.records.len() > self.records_max || self.bytes > self.bytes_max {
            let Some(oldest) = self.records.pop_front() else { return };
            self.bytes -= oldest.bytes();
        }
    }

    /// The oldest first.
    pub(super) fn records(
        &self,
    ) -> impl DoubleEndedIterator<Item = &AuditRecord> + ExactSizeIterator {
        self.records.iter()
    }

    /// The number of the next one, then the records.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.next);
        put_u32(out, self.records.len() as u32);
        self.records.iter().for_each(|record| record.encode(out));
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let next = reader.u64()?;
        let count = u64::from(reader.u32()?);
        let Some(first) = next.checked_sub(count).filter(|first| *first > 0 && next <= SEQ_MAX)
        else {
            return Err(reader.corrupt());
        };
        let mut audit = Self { next: first, ..Self::default() };
        for _ in 0..count {
            let at_ms = reader.u64()?;
            let (by, event) = (Actor::read(reader)?, Event::read(reader)?);
            audit.add(at_ms, by, event);
        }
        // What was kept once is kept: nobody wrote more than the bounds let them.
        match audit.records.len() as u64 == count {
            true => Ok(audit),
            false => Err(reader.corrupt()),
        }
    }
}
