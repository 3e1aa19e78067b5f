//! What is done to locks, as it stands in the log.
//!
//! ```text
//! kind u8, then
//! 1  term u64, whether the time was heard u8, of which term u64
//! 2  vhost, name, owner, lease u64 ms
//! 3  vhost, name, token u64, lease u64 ms
//! 4  vhost, name, token u64
//! 5  vhost, name, question u128, mask u8, expected version u64, token u64, value
//! 6  vhost
//! 7  nothing
//! ```
//!
//! The mask says which of the three behind it are meant: 1 the version, 2 the token, 4 the value.

use super::refusal::LockRefusal;
use crate::encoding::{Corrupt, Reader, put_blob, put_bool, put_text, put_u64};
use crate::limits::{LOCK_LEASE_MS_MAX, LOCK_LEASE_MS_MIN, LOCK_VALUE_BYTES_MAX, NAME_BYTES_MAX};

const BEGIN_TERM: u8 = 1;
const ACQUIRE: u8 = 2;
const RENEW: u8 = 3;
const RELEASE: u8 = 4;
const PUT: u8 = 5;
const FORGET: u8 = 6;
const EXPIRE: u8 = 7;

const EXPECTED: u8 = 1;
const TOKEN: u8 = 1 << 1;
const VALUE: u8 = 1 << 2;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockCommand {
    /// A leader's first of its term. Leases are made longer by what its time may be ahead of the last leader's.
    BeginTerm {
        term: u64,
        /// The term of the leader that the new one has the time from. `None`: it goes by its own clock.
        heard: Option<u64>,
    },
    /// Takes a lock that is free, or renews it for the owner that has it.
    Acquire { vhost: String, name: String, owner: String, lease_ms: u64 },
    /// Makes the lease of whoever holds this token last so long from now on. It never becomes shorter.
    Renew { vhost: String, name: String, token: u64, lease_ms: u64 },
    /// Frees a lock, if this is the token of its holder.
    Release { vhost: String, name: String, token: u64 },
    /// Writes a value, or takes it away.
    Put {
        vhost: String,
        name: String,
        /// A number that no other question has: a question may be asked twice when leaders change, and is done once.
        by: u128,
        /// Only if the value has this version; 0: only if there is none.
        expected: Option<u64>,
        /// Only while the lock is held under this token.
        token: Option<u64>,
        value: Option<Box<[u8]>>,
    },
    /// The vhost was deleted.
    Forget { vhost: String },
    /// Leases that are over free their locks, as before every other command. A leader says so when nobody says anything
    /// else for a while.
    Expire,
}

impl LockCommand {
    /// Whether it is within the bounds that do not depend on how locks stand.
    ///
    /// # Errors
    /// It is not: which bound.
    pub fn check(&self) -> Result<(), LockRefusal> {
        if let Some((vhost, name)) = self.of() {
            check_name(vhost)?;
            check_name(name)?;
        }
        match self {
            Self::Acquire { owner, lease_ms, .. } => {
                check_name(owner)?;
                check_lease(*lease_ms)
            }
            Self::Renew { lease_ms, .. } => check_lease(*lease_ms),
            Self::Put { value: Some(value), .. } if value.len() > LOCK_VALUE_BYTES_MAX => {
                Err(LockRefusal::Value)
            }
            Self::BeginTerm { .. }
            | Self::Release { .. }
            | Self::Put { .. }
            | Self::Forget { .. }
            | Self::Expire => Ok(()),
        }
    }

    /// Whether leaders alone say it, of themselves.
    pub fn is_of_leader(&self) -> bool {
        matches!(self, Self::BeginTerm { .. } | Self::Expire)
    }

    /// The vhost and the name of the lock that it is about, if it is about one.
    pub fn of(&self) -> Option<(&str, &str)> {
        match self {
            Self::Acquire { vhost, name, .. }
            | Self::Renew { vhost, name, .. }
            | Self::Release { vhost, name, .. }
            | Self::Put { vhost, name, .. } => Some((vhost, name)),
            Self::BeginTerm { .. } | Self::Forget { .. } | Self::Expire => None,
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::BeginTerm { term, heard } => {
                out.push(BEGIN_TERM);
                put_u64(out, *term);
                put_bool(out, heard.is_some());
                put_u64(out, heard.unwrap_or_default());
            }
            Self::Acquire { vhost, name, owner, lease_ms } => {
                out.push(ACQUIRE);
                [vhost, name, owner].into_iter().for_each(|text| put_text(out, text));
                put_u64(out, *lease_ms);
            }
            Self::Renew { vhost, name, token, lease_ms } => {
                out.push(RENEW);
                [vhost, name].into_iter().for_each(|text| put_text(out, text));
                put_u64(out, *token);
                put_u64(out, *lease_ms);
            }
            Self::Release { vhost, name, token } => {
                out.push(RELEASE);
                [vhost, name].into_iter().for_each(|text| put_text(out, text));
                put_u64(out, *token);
            }
            Self::Put { vhost, name, by, expected, token, value } => {
                out.push(PUT);
                [vhost, name].into_iter().for_each(|text| put_text(out, text));
                out.extend_from_slice(&by.to_le_bytes());
                let bit = |bit: u8, is_meant: bool| if is_meant { bit } else { 0 };
                let mask = bit(EXPECTED, expected.is_some())
                    | bit(TOKEN, token.is_some())
                    | bit(VALUE, value.is_some());
                out.push(mask);
                put_u64(out, expected.unwrap_or_default());
                put_u64(out, token.unwrap_or_default());
                put_blob(out, value.as_deref().unwrap_or_default());
            }
            Self::Forget { vhost } => {
                out.push(FORGET);
                put_text(out, vhost);
            }
            Self::Expire => out.push(EXPIRE),
        }
    }

    /// # Errors
    /// The bytes are not what [`Self::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes, "a command about a lock");
        let command = Self::read(&mut reader)?;
        reader.end()?;
        Ok(command)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(match reader.u8()? {
            BEGIN_TERM => {
                let (term, is_heard, heard) = (reader.u64()?, reader.bool()?, reader.u64()?);
                Self::BeginTerm { term, heard: is_heard.then_some(heard) }
            }
            ACQUIRE => Self::Acquire {
                vhost: reader.string()?,
                name: reader.string()?,
                owner: reader.string()?,
                lease_ms: reader.u64()?,
            },
            RENEW => Self::Renew {
                vhost: reader.string()?,
                name: reader.string()?,
                token: reader.u64()?,
                lease_ms: reader.u64()?,
            },
            RELEASE => Self::Release {
                vhost: reader.string()?,
                name: reader.string()?,
                token: reader.u64()?,
            },
            PUT => {
                let (vhost, name, by) = (reader.string()?, reader.string()?, reader.u128()?);
                let mask = reader.u8()?;
                if mask & !(EXPECTED | TOKEN | VALUE) != 0 {
                    return Err(reader.corrupt());
                }
                let (expected, token, value) = (reader.u64()?, reader.u64()?, reader.blob()?);
                let is_meant = |bit: u8| mask & bit != 0;
                Self::Put {
                    vhost,
                    name,
                    by,
                    expected: is_meant(EXPECTED).then_some(expected),
                    token: is_meant(TOKEN).then_some(token),
                    value: is_meant(VALUE).then(|| value.into()),
                }
            }
            FORGET => Self::Forget { vhost: reader.string()? },
            EXPIRE => Self::Expire,
            _ => return Err(Corrupt::newer("a command about a lock of an unknown kind")),
        })
    }
}

/// Names of locks, their vhosts and owners.
fn check_name(name: &str) -> Result<(), LockRefusal> {
    let is_fit = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains('\0');
    if is_fit { Ok(()) } else { Err(LockRefusal::Name) }
}

fn check_lease(lease_ms: u64) -> Result<(), LockRefusal> {
    let is_fit = (LOCK_LEASE_MS_MIN..=LOCK_LEASE_MS_MAX).contains(&lease_ms);
    if is_fit { Ok(()) } else { Err(LockRefusal::Lease) }
}
