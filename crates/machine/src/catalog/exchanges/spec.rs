//! What an exchange is, apart from its name, its flags and its place.
//!
//! A declaration of version 8 and later holds it, and a snapshot, too. Before that they held a kind and a client's
//! arguments: `before8` says what those mean.

use super::kind::ExchangeKind;
use crate::encoding::{Corrupt, Reader, put_text, put_u64};
use crate::value::HashProperty;

/// What an exchange is, apart from its name, its flags and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeSpec {
    pub kind: ExchangeKind,
    /// Of a delayed one the kind inside, which is never the delayed kind; else the same.
    pub routing: ExchangeKind,
    /// Where a message goes that the exchange has no destination for.
    pub alternate: Option<String>,
    /// What it hashes, if it routes by a consistent hash.
    pub hash_by: HashBy,
    /// How many messages it keeps. None: it is not one of recent history.
    pub history_length: Option<u64>,
}

/// What a consistent hash exchange hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashBy {
    Key,
    Header(String),
    Property(HashProperty),
}

// Which optional parts follow, in this order: one bit each.
const ALTERNATE: u8 = 1;
const HASH_HEADER: u8 = 1 << 1;
const HASH_PROPERTY: u8 = 1 << 2;
const HISTORY: u8 = 1 << 3;
const BITS: u8 = (1 << 4) - 1;

impl ExchangeSpec {
    /// An exchange that asks for nothing beyond its kind.
    pub fn plain(kind: ExchangeKind) -> Self {
        Self { kind, routing: kind, alternate: None, hash_by: HashBy::Key, history_length: None }
    }

    /// Whether the parts fit together.
    pub(super) fn is_sound(&self) -> bool {
        let is_delayed = self.kind == ExchangeKind::DelayedMessage;
        let has_inner = self.routing != ExchangeKind::DelayedMessage;
        let keeps = self.routing == ExchangeKind::RecentHistory;
        has_inner
            && (is_delayed || self.routing == self.kind)
            && self.history_length.is_some() == keeps
    }

    /// The numbers of both kinds, bits, then the parts that the bits announce.
    pub(in crate::catalog) fn encode(&self, out: &mut Vec<u8>) {
        let Self { kind, routing, alternate, hash_by, history_length } = self;
        out.extend([kind.number(), routing.number()]);
        let bits = [
            (alternate.is_some(), ALTERNATE),
            (matches!(hash_by, HashBy::Header(_)), HASH_HEADER),
            (matches!(hash_by, HashBy::Property(_)), HASH_PROPERTY),
            (history_length.is_some(), HISTORY),
        ];
        out.push(bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum());
        if let Some(alternate) = alternate {
            put_text(out, alternate);
        }
        match hash_by {
            HashBy::Key => {}
            HashBy::Header(header) => put_text(out, header),
            HashBy::Property(property) => out.push(property.number()),
        }
        if let Some(length) = history_length {
            put_u64(out, *length);
        }
    }

    pub(in crate::catalog) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        const OTHER: Corrupt = Corrupt::newer("an exchange with a spec of another version");
        let kind = ExchangeKind::from_number(reader.u8()?).ok_or(OTHER)?;
        let routing = ExchangeKind::from_number(reader.u8()?).ok_or(OTHER)?;
        let bits = reader.u8()?;
        let has = |bit| bits & bit != 0;
        if bits & !BITS != 0 {
            return Err(OTHER);
        }
        let alternate = if has(ALTERNATE) { Some(reader.string()?) } else { None };
        let hash_by = match (has(HASH_HEADER), has(HASH_PROPERTY)) {
            (false, false) => HashBy::Key,
            (true, false) => HashBy::Header(reader.string()?),
            (false, true) => {
                HashBy::Property(HashProperty::from_number(reader.u8()?).ok_or(OTHER)?)
            }
            (true, true) => return Err(reader.corrupt()),
        };
        let history_length = if has(HISTORY) { Some(reader.u64()?) } else { None };
        let spec = Self { kind, routing, alternate, hash_by, history_length };
        if spec.is_sound() { Ok(spec) } else { Err(reader.corrupt()) }
    }
}
