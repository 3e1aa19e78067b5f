//! A purge that can be undone: what the log says of its messages, one step after the other.
//!
//! ```text
//!  ready ──Begin──> withheld ──Restore──> back in its place
//!                       └──Forget──> gone for good: the time is over, or another purge came
//! ```
//!
//! Only the leader that has the messages ready makes them withheld, by an entry of its own. So whoever leads later has
//! applied that before it gives out anything, and nobody holds a message that is withheld.

use crate::encoding::{Corrupt, Reader, put_u64};
use crate::ids::SessionId;

const BEGIN: u8 = 1;
const RESTORE: u8 = 2;
const FORGET: u8 = 3;

/// Which question a purge, or its undoing, answers: asked again of another leader, it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PurgeId {
    pub session: SessionId,
    /// The session's own number for the question.
    pub number: u64,
}

/// What becomes of messages that are purged, or were, and can be brought back. In the order in which the log hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Withholding {
    /// What of them is withheld is gone for good.
    Forget,
    /// What of them is withheld is back in its place.
    Restore,
    /// Nobody gets them, and they can be brought back before this time, ms since 1970.
    Begin { by: PurgeId, until_ms: u64 },
}

impl Withholding {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Begin { by: PurgeId { session, number }, until_ms } => {
                out.push(BEGIN);
                [session.0, number, until_ms].into_iter().for_each(|it| put_u64(out, it));
            }
            Self::Restore => out.push(RESTORE),
            Self::Forget => out.push(FORGET),
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(match reader.u8()? {
            BEGIN => {
                let by = PurgeId { session: SessionId(reader.u64()?), number: reader.u64()? };
                Self::Begin { by, until_ms: reader.u64()? }
            }
            RESTORE => Self::Restore,
            FORGET => Self::Forget,
            _ => return Err(reader.corrupt()),
        })
    }
}
