//! How much one user, or one vhost, may have at a time.

use crate::encoding::{Corrupt, Reader, put_bool, put_u32};

/// Of a user, over all nodes. `None`: no limit of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLimits {
    pub max_connections: Option<u32>,
    /// Of all the user's connections together.
    pub max_channels: Option<u32>,
}

/// Of a vhost, over all nodes. `None`: no limit of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostLimits {
    pub max_connections: Option<u32>,
    pub max_queues: Option<u32>,
}

impl UserLimits {
    pub(in crate::catalog) fn encode(self, out: &mut Vec<u8>) {
        let Self { max_connections, max_channels } = self;
        put_limit(out, max_connections);
        put_limit(out, max_channels);
    }

    pub(in crate::catalog) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self { max_connections: read_limit(reader)?, max_channels: read_limit(reader)? })
    }
}

impl VhostLimits {
    pub(in crate::catalog) fn encode(self, out: &mut Vec<u8>) {
        let Self { max_connections, max_queues } = self;
        put_limit(out, max_connections);
        put_limit(out, max_queues);
    }

    pub(in crate::catalog) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self { max_connections: read_limit(reader)?, max_queues: read_limit(reader)? })
    }
}

fn put_limit(out: &mut Vec<u8>, limit: Option<u32>) {
    put_bool(out, limit.is_some());
    if let Some(limit) = limit {
        put_u32(out, limit);
    }
}

fn read_limit(reader: &mut Reader<'_>) -> Result<Option<u32>, Corrupt> {
    if reader.bool()? { reader.u32().map(Some) } else { Ok(None) }
}
