//! What a queue's machine has to know about the queue, as its group's log keeps it.

use crate::encoding::{Corrupt, Reader};

const VERSION: u8 = 1;
const DURABLE: u8 = 1;
const AUTO_DELETE: u8 = 2;

/// How a queue behaves. Encoded with a version of its own, so that bounds, expiry and priorities can
/// join it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// Whether it outlives its node's process.
    pub is_durable: bool,
    /// Whether it goes when its last consumer does: asks for `Effect::Unused`.
    pub is_auto_delete: bool,
}

impl QueueSettings {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        if self.is_durable {
            flags |= DURABLE;
        }
        if self.is_auto_delete {
            flags |= AUTO_DELETE;
        }
        out.extend_from_slice(&[VERSION, flags]);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        if reader.u8()? != VERSION {
            return Err(Corrupt { what: "queue settings of another version" });
        }
        let flags = reader.u8()?;
        if flags & !(DURABLE | AUTO_DELETE) != 0 {
            return Err(Corrupt { what: "queue settings of another version" });
        }
        Ok(Self { is_durable: flags & DURABLE != 0, is_auto_delete: flags & AUTO_DELETE != 0 })
    }
}
