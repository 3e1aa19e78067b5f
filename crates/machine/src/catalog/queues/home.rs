//! Where a queue lives, and with whom it goes.

use super::super::encoding::{put_owner, read_owner};
use crate::encoding::{Corrupt, Reader, put_u64};
use crate::ids::{NodeId, SessionOwner};

/// Where a queue lives, and with whom it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueHome {
    /// In a group, on the disks of its voters: a durable queue.
    Group,
    /// In the memory of a node: it goes when that node starts again.
    Node(NodeId),
    /// In the memory of a session's node: only that session may use it, and it goes with it.
    Session(SessionOwner),
}

const GROUP: u8 = 1;
const NODE: u8 = 2;
const SESSION: u8 = 3;

impl QueueHome {
    /// Whether a queue there outlives its node's process.
    pub fn is_durable(self) -> bool {
        self == Self::Group
    }

    /// In whose memory it lives. None: in a group.
    pub fn node(self) -> Option<NodeId> {
        match self {
            Self::Group => None,
            Self::Node(node) => Some(node),
            Self::Session(owner) => Some(owner.node),
        }
    }

    /// The session that alone may use it.
    pub fn exclusive(self) -> Option<SessionOwner> {
        match self {
            Self::Group | Self::Node(_) => None,
            Self::Session(owner) => Some(owner),
        }
    }

    pub(in crate::catalog) fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Group => out.push(GROUP),
            Self::Node(node) => {
                out.push(NODE);
                put_u64(out, node.0);
            }
            Self::Session(owner) => {
                out.push(SESSION);
                put_owner(out, owner);
            }
        }
    }

    pub(in crate::catalog) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(match reader.u8()? {
            GROUP => Self::Group,
            NODE => Self::Node(NodeId(reader.u64()?)),
            SESSION => Self::Session(read_owner(reader)?),
            _ => return Err(Corrupt::newer("a queue in a place of an unknown kind")),
        })
    }
}
