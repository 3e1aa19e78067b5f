//! Why nodes, or the voters of a group, were not changed, in the words for an operator.

use std::fmt;

use crate::ids::{GroupId, NodeId};
use crate::limits::{NODE_ID_MAX, REPLICAS, REPLICAS_MAX};

/// Why nodes, or the voters of a group, were not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipProblem {
    /// The number is in use by another life of the node, or by another node.
    OtherIncarnation {
        node: NodeId,
        known: u64,
    },
    /// Another node has the address.
    AddressInUse {
        address: String,
        by: NodeId,
    },
    /// Not a number from 1 to `limits::NODE_ID_MAX`.
    InvalidNode {
        node: NodeId,
    },
    /// Empty, or longer than `limits::ADDRESS_BYTES_MAX`.
    InvalidAddress {
        address: String,
    },
    TooManyNodes {
        max: usize,
    },
    /// A node of that number was removed: what it promised must not be forgotten by another.
    Retired {
        node: NodeId,
    },
    /// A cluster has at least one.
    LastNode {
        node: NodeId,
    },
    NoGroup {
        group: GroupId,
    },
    /// None, more than the group is to have, one twice, one that is no node; or of the catalog, where all nodes vote,
    /// not all.
    InvalidVoters {
        group: GroupId,
    },
}

impl fmt::Display for MembershipProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherIncarnation { node: NodeId(node), known } => write!(
                f,
                "node {node} is known with another data directory (incarnation {known}): if its disk is lost, remove \
                 node {node} first, or use a new number"
            ),
            Self::AddressInUse { address, by: NodeId(by) } => write!(
                f,
                "address {address} belongs to node {by}: give this node another address, or remove node {by} first"
            ),
            Self::InvalidNode { node: NodeId(node) } => {
                write!(f, "{node} is not a node number: use a number from 1 to {NODE_ID_MAX}")
            }
            Self::InvalidAddress { address } => {
                write!(f, "'{address}' is not a node address: write HOST:PORT")
            }
            Self::TooManyNodes { max } => {
                write!(f, "a cluster has at most {max} nodes: remove a node first")
            }
            Self::Retired { node: NodeId(node) } => write!(
                f,
                "number {node} belonged to a node that was removed, and is never used again: use another number"
            ),
            Self::LastNode { node: NodeId(node) } => {
                write!(f, "node {node} is the last node: add another node before you remove it")
            }
            Self::NoGroup { group: GroupId(group) } => write!(f, "there is no group {group}"),
            Self::InvalidVoters { group: GroupId(0) } => {
                write!(f, "the voters of group 0, the catalog, are always all nodes")
            }
            Self::InvalidVoters { group: GroupId(group) } => write!(
                f,
                "the voters of group {group} must be different nodes, from 1 to {REPLICAS}, or to {REPLICAS_MAX} \
                 if `millrace cluster replicas` says so"
            ),
        }
    }
}
