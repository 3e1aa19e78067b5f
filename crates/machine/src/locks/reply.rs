//! What a command about a lock came to, and how a lock stands: what a leader tells who asked.

use super::refusal::LockRefusal;
use crate::encoding::{Corrupt, Reader, put_blob, put_bool, put_text, put_u32, put_u64};
use crate::limits::LOCKS_LISTED_MAX;

/// What a command came to, or the answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockReply {
    /// The lock is the asker's. The lease began when the entry was made, so whoever counts from before it asked counts
    /// less than the group does.
    Acquired {
        token: u64,
        /// At least what was asked for: a lease never becomes shorter.
        lease_ms: u64,
        /// False: it was the asker's already, under this token.
        is_new: bool,
    },
    /// Another has it, or others wait for it.
    Held(LockView),
    /// It is not held under that token (any more).
    NotHeld(LockView),
    /// Released, or forgotten.
    Done,
    /// The value is written: its version. 0: it is gone.
    Put {
        version: u64,
    },
    /// The value has another version than was expected.
    Conflict(LockView),
    Refused(LockRefusal),
    /// How a lock stands.
    Is(LockView),
    /// Some locks of a vhost, and whether there are more behind them.
    List {
        locks: Vec<LockView>,
        has_more: bool,
    },
}

/// How a lock stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView {
    pub name: String,
    pub holder: Option<LockHolder>,
    pub value: Option<LockValue>,
}

/// Who has a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    pub owner: String,
    pub token: u64,
    /// What is left of the lease, by the group's time.
    pub left_ms: u64,
}

/// A value beside a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockValue {
    pub version: u64,
    pub bytes: Vec<u8>,
}

const ACQUIRED: u8 = 1;
const HELD: u8 = 2;
const NOT_HELD: u8 = 3;
const DONE: u8 = 4;
const PUT: u8 = 5;
const CONFLICT: u8 = 6;
const REFUSED: u8 = 7;
const IS: u8 = 8;
const LIST: u8 = 9;

impl LockReply {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Acquired { token, lease_ms, is_new } => {
                out.push(ACQUIRED);
                put_u64(out, *token);
                put_u64(out, *lease_ms);
                put_bool(out, *is_new);
            }
            Self::Held(view) => view.encode(HELD, out),
            Self::NotHeld(view) => view.encode(NOT_HELD, out),
            Self::Done => out.push(DONE),
            Self::Put { version } => {
                out.push(PUT);
                put_u64(out, *version);
            }
            Self::Conflict(view) => view.encode(CONFLICT, out),
            Self::Refused(refusal) => out.extend([REFUSED, refusal.number()]),
            Self::Is(view) => view.encode(IS, out),
            Self::List { locks, has_more } => {
                assert!(locks.len() <= LOCKS_LISTED_MAX, "a list is bounded");
                out.push(LIST);
                put_bool(out, *has_more);
                put_u32(out, locks.len() as u32);
                locks.iter().for_each(|view| view.put(out));
            }
        }
    }

    /// # Errors
    /// The bytes are not what [`Self::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes, "the answer to a question about a lock");
        let reply = match reader.u8()? {
            ACQUIRED => Self::Acquired {
                token: reader.u64()?,
                lease_ms: reader.u64()?,
                is_new: reader.bool()?,
            },
            HELD => Self::Held(LockView::read(&mut reader)?),
            NOT_HELD => Self::NotHeld(LockView::read(&mut reader)?),
            DONE => Self::Done,
            PUT => Self::Put { version: reader.u64()? },
            CONFLICT => Self::Conflict(LockView::read(&mut reader)?),
            REFUSED => {
                let refusal = LockRefusal::from_number(reader.u8()?);
                Self::Refused(refusal.ok_or(reader.corrupt())?)
            }
            IS => Self::Is(LockView::read(&mut reader)?),
            LIST => {
                let (has_more, count) = (reader.bool()?, reader.u32()? as usize);
                if count > LOCKS_LISTED_MAX {
                    return Err(reader.corrupt());
                }
                let locks: Result<_, _> = (0..count).map(|_| LockView::read(&mut reader)).collect();
                Self::List { locks: locks?, has_more }
            }
            _ => return Err(Corrupt::newer("the answer to a question about a lock")),
        };
        reader.end()?;
        Ok(reply)
    }
}

impl LockView {
    fn encode(&self, kind: u8, out: &mut Vec<u8>) {
        out.push(kind);
        self.put(out);
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, &self.name);
        put_bool(out, self.holder.is_some());
        if let Some(LockHolder { owner, token, left_ms }) = &self.holder {
            put_text(out, owner);
            put_u64(out, *token);
            put_u64(out, *left_ms);
        }
        put_bool(out, self.value.is_some());
        if let Some(LockValue { version, bytes }) = &self.value {
            put_u64(out, *version);
            put_blob(out, bytes);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let name = reader.string()?;
        let holder = match reader.bool()? {
            false => None,
            true => Some(LockHolder {
                owner: reader.string()?,
                token: reader.u64()?,
                left_ms: reader.u64()?,
            }),
        };
        let value = match reader.bool()? {
            false => None,
            true => Some(LockValue { version: reader.u64()?, bytes: reader.blob()?.to_vec() }),
        };
        Ok(Self { name, holder, value })
    }
}
