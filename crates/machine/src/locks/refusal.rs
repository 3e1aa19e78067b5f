//! Why a command about a lock is refused.

use std::fmt;

use crate::limits::{
    LOCK_BYTES_PER_VHOST_MAX, LOCK_LEASE_MS_MAX, LOCK_LEASE_MS_MIN, LOCK_VALUE_BYTES_MAX,
    LOCKS_PER_VHOST_MAX, NAME_BYTES_MAX,
};

/// Why a command is refused, however the lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRefusal {
    /// A name or an owner is empty, too long or has a NUL.
    Name,
    /// The lease is too short or too long.
    Lease,
    /// The value is too long.
    Value,
    /// The vhost has as many locks in this group as it may have, or all vhosts have.
    TooMany,
    /// The same of their bytes.
    NoRoom,
}

impl LockRefusal {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Name => 1,
            Self::Lease => 2,
            Self::Value => 3,
            Self::TooMany => 4,
            Self::NoRoom => 5,
        }
    }

    pub(super) fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Name,
            2 => Self::Lease,
            3 => Self::Value,
            4 => Self::TooMany,
            5 => Self::NoRoom,
            _ => return None,
        })
    }
}

impl fmt::Display for LockRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => {
                write!(f, "names and owners of locks have 1 to {NAME_BYTES_MAX} bytes, and no NUL")
            }
            Self::Lease => {
                write!(f, "a lease lasts {LOCK_LEASE_MS_MIN} to {LOCK_LEASE_MS_MAX} milliseconds")
            }
            Self::Value => {
                write!(f, "the value of a lock has at most {LOCK_VALUE_BYTES_MAX} bytes")
            }
            Self::TooMany => write!(
                f,
                "the group that this name belongs to has no room for one more lock: at most {LOCKS_PER_VHOST_MAX} of \
                 a vhost. Release locks, or delete values"
            ),
            Self::NoRoom => write!(
                f,
                "the group that this name belongs to has no room for so many bytes: at most \
                 {LOCK_BYTES_PER_VHOST_MAX} of a vhost. Release locks, or delete values"
            ),
        }
    }
}
