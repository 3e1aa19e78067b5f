//! Which part this node plays in a group.

use std::collections::BTreeMap;

use machine::{NodeId, ProducerId};

/// Which part this node plays in a group, and until when.
///
/// ```text
///          elected, and an entry of the own        all have joined and their
///          term applied: everything before is      settles are applied, or
///          applied, too                            a second has passed
///   Follows ──────────────────────────────> Gathers ──────────────────────> Leads
///    │ ^ ^ ^└─────────── the catalog, which delivers nothing ────────────────^ │
///    │ │ │ │                                   │                               │
///    │ │ │ └── the term is over, and what ─────┴───────────────────────────────┘
///    │ │ │     sessions have is handed over
///    │ │ └──── the catalog says with which voters the group began ── Unfounded
///    v │ snapshot installed
///   Frozen
/// ```
///
/// A group can be recovered `Unfounded`: when the node's catalog was damaged and the group has no checkpoint, nothing
/// on the node says with which voters the group began. It follows once the catalog has come from other nodes.
///
/// Raft's own state moves first, within a step, and the role follows at the end of it. Between the two a replica
/// is being elected (`Group::begins_to_lead` says when that is over) or has ceased to lead
/// (`Group::ceases_to_lead`). That is not stored here, so that it cannot differ from what Raft says.
#[derive(Debug)]
pub(crate) enum Role {
    /// Another leads, nobody does, or this node was elected and has not applied an entry of its term yet.
    Follows,
    /// Leads in `term`, takes numbered batches and requests, and delivers nothing before it knows what is held.
    Gathers { term: u64, awaiting: Awaiting },
    /// Leads in `term`, and waits for nobody.
    Leads { term: u64 },
    /// Waits for a snapshot that takes the place of everything here.
    Frozen,
    /// Waits for the catalog to say with which voters the group began.
    Unfounded,
}

/// A new leader delivers nothing before it knows what is held.
#[derive(Debug)]
pub(crate) struct Awaiting {
    /// Until when each is waited for, in `Now::mono_ms`.
    pub(crate) nodes: BTreeMap<NodeId, u64>,
    pub(crate) until_ms: u64,
    /// The last entry that was taken into the log before the last of these nodes joined: entries up to it may settle
    /// messages that look live.
    pub(crate) index: u64,
    /// The last numbered batch of this node's own sessions, which may not be in the log yet: batches up to it may
    /// settle messages that look live, too.
    pub(crate) own: Option<(ProducerId, u64)>,
}

impl Role {
    /// The term in which this node leads, or has led and did not hand over yet.
    pub(crate) fn term(&self) -> Option<u64> {
        match self {
            Self::Gathers { term, .. } | Self::Leads { term } => Some(*term),
            Self::Follows | Self::Frozen | Self::Unfounded => None,
        }
    }

    pub(crate) fn awaiting(&self) -> Option<&Awaiting> {
        match self {
            Self::Gathers { awaiting, .. } => Some(awaiting),
            Self::Follows | Self::Leads { .. } | Self::Frozen | Self::Unfounded => None,
        }
    }

    pub(crate) fn awaiting_mut(&mut self) -> Option<&mut Awaiting> {
        match self {
            Self::Gathers { awaiting, .. } => Some(awaiting),
            Self::Follows | Self::Leads { .. } | Self::Frozen | Self::Unfounded => None,
        }
    }
}
