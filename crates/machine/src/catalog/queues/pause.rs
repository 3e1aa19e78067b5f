//! That nobody is given messages of a queue: who said so, and since when.

use crate::encoding::{Corrupt, Reader, put_text, put_u64};

/// Of a queue that is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePause {
    /// The user that paused it.
    pub by: String,
    /// The time of the entry that paused it, ms since 1970.
    pub since_ms: u64,
}

impl QueuePause {
    pub(in crate::catalog) fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.by);
        put_u64(out, self.since_ms);
    }

    pub(in crate::catalog) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self { by: reader.string()?, since_ms: reader.u64()? })
    }
}
