//! How much one user, or one vhost, may have at a time; and changes of that, limit by limit: two operators who change
//! different limits at the same time both get what they want.

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

/// What becomes of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitChange {
    #[default]
    Stays,
    /// `None`: there is none any more.
    To(Option<u32>),
}

/// What becomes of a user's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLimitsChange {
    pub max_connections: LimitChange,
    pub max_channels: LimitChange,
}

/// What becomes of a vhost's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostLimitsChange {
    pub max_connections: LimitChange,
    pub max_queues: LimitChange,
}

impl UserLimits {
    pub(in crate::catalog) fn changed(self, change: UserLimitsChange) -> Self {
        Self {
            max_connections: change.max_connections.of(self.max_connections),
            max_channels: change.max_channels.of(self.max_channels),
        }
    }

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
    pub(in crate::catalog) fn changed(self, change: VhostLimitsChange) -> Self {
        Self {
            max_connections: change.max_connections.of(self.max_connections),
            max_queues: change.max_queues.of(self.max_queues),
        }
    }

    pub(in crate::catalog) fn encode(self, out: &mut Vec<u8>) {
        let Self { max_connections, max_queues } = self;
        put_limit(out, max_connections);
        put_limit(out, max_queues);
    }

    pub(in crate::catalog) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self { max_connections: read_limit(reader)?, max_queues: read_limit(reader)? })
    }
}

/// All of them, whatever they were.
impl From<UserLimits> for UserLimitsChange {
    fn from(UserLimits { max_connections, max_channels }: UserLimits) -> Self {
        Self {
            max_connections: LimitChange::To(max_connections),
            max_channels: LimitChange::To(max_channels),
        }
    }
}

/// All of them, whatever they were.
impl From<VhostLimits> for VhostLimitsChange {
    fn from(VhostLimits { max_connections, max_queues }: VhostLimits) -> Self {
        Self {
            max_connections: LimitChange::To(max_connections),
            max_queues: LimitChange::To(max_queues),
        }
    }
}

impl UserLimitsChange {
    pub(in crate::catalog) fn encode(self, out: &mut Vec<u8>) {
        let Self { max_connections, max_channels } = self;
        max_connections.encode(out);
        max_channels.encode(out);
    }

    pub(in crate::catalog) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self {
            max_connections: LimitChange::read(reader)?,
            max_channels: LimitChange::read(reader)?,
        })
    }
}

impl VhostLimitsChange {
    pub(in crate::catalog) fn encode(self, out: &mut Vec<u8>) {
        let Self { max_connections, max_queues } = self;
        max_connections.encode(out);
        max_queues.encode(out);
    }

    pub(in crate::catalog) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self {
            max_connections: LimitChange::read(reader)?,
            max_queues: LimitChange::read(reader)?,
        })
    }
}

impl LimitChange {
    fn of(self, before: Option<u32>) -> Option<u32> {
        match self {
            Self::Stays => before,
            Self::To(now) => now,
        }
    }

    /// Whether it changes, then to what.
    fn encode(self, out: &mut Vec<u8>) {
        put_bool(out, self != Self::Stays);
        if let Self::To(limit) = self {
            put_limit(out, limit);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        if reader.bool()? { read_limit(reader).map(Self::To) } else { Ok(Self::Stays) }
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
