//! Where a binding leads.

use crate::encoding::{Corrupt, Reader, put_text};

/// Where a binding leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    Queue(String),
    Exchange(String),
}

impl Destination {
    pub fn name(&self) -> &str {
        match self {
            Self::Queue(name) | Self::Exchange(name) => name,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Queue(_) => 1,
            Self::Exchange(_) => 2,
        });
        put_text(out, self.name());
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        match reader.u8()? {
            1 => Ok(Self::Queue(reader.string()?)),
            2 => Ok(Self::Exchange(reader.string()?)),
            _ => Err(reader.corrupt()),
        }
    }
}
