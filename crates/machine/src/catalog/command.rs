//! Changes of the catalog, and their encoding: a number, then the fields in order.
//!
//! Numbers are never reused. A field added later makes a new number.

use super::audit::{Actor, Event};
use super::binding::BindingChange;
use super::encoding::{
    put_node, put_nodes, put_owner, put_owner_option, read_node, read_nodes, read_owner,
    read_owner_option, read_texts, read_version,
};
use super::exchanges::{ExchangeKind, ExchangeSpec};
use super::limits::{UserLimitsChange, VhostLimitsChange};
use super::nodes::WIDE_SINCE;
use super::policies::{PolicyKind, PolicySpec};
use super::queues::{QueueHome, QueueSpec};
use super::vhosts::VhostMetadata;
use crate::encoding::{Corrupt, Reader, put_bool, put_text, put_u32, put_u64};
use crate::ids::{GroupId, NodeId, QueueId, SessionId, SessionOwner};
use crate::queue::StreamOffset;
use crate::value::Arguments;
use crate::version::Version;

/// The numbers of those that say who changes something.
const ADMINISTERED: u8 = 33;
const NOTE: u8 = 34;
/// Kept for trials: no other command ever gets this number.
const REMARK: u8 = 255;

/// One change of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogCommand {
    /// What `CreateExchange` was before version 8.
    DeclareExchange {
        vhost: String,
        name: String,
        kind: ExchangeKind,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Arguments,
        /// A transient exchange goes when this node starts again.
        by: SessionOwner,
    },
    /// A missing exchange is success.
    DeleteExchange {
        vhost: String,
        name: String,
        if_unused: bool,
    },
    /// What `CreateQueue` was before version 8.
    DeclareQueue {
        vhost: String,
        name: String,
        durable: bool,
        auto_delete: bool,
        /// It belongs to `by` and goes with that session.
        exclusive: bool,
        /// The broker made the name up, so it may begin with `amq.`.
        server_named: bool,
        arguments: Arguments,
        /// A transient queue lives in this node's memory.
        by: SessionOwner,
    },
    /// A missing queue is success. Consumers and messages are not looked at: see
    /// `QueueMachine::close_queue`.
    DeleteQueue {
        vhost: String,
        name: String,
        /// Only if it is still this one.
        queue: Option<QueueId>,
        /// None: an operator or the cluster, whom no exclusive queue stops.
        by: Option<SessionOwner>,
    },
    /// What `CreateBinding` was before version 8: refused where the exchange cannot route by it.
    Bind(BindingChange),
    /// A missing binding is success.
    Unbind(BindingChange),
    /// The session's exclusive queues go.
    SessionEnded {
        node: NodeId,
        session: SessionId,
    },
    /// What only lived in this node's memory went with its last process.
    NodeStarted {
        node: NodeId,
    },
    /// An existing vhost is success.
    CreateVhost {
        name: String,
    },
    /// With everything in it. A missing vhost is success.
    DeleteVhost {
        name: String,
    },
    /// Makes a user or changes one.
    PutUser {
        name: String,
        /// See `password`; empty: no login by password.
        password_hash: String,
        tags: Vec<String>,
    },
    /// A missing user is success.
    DeleteUser {
        name: String,
    },
    /// Regular expressions on names, anchored only by their own `^` and `$`; empty: nothing.
    SetPermissions {
        user: String,
        vhost: String,
        configure: String,
        write: String,
        read: String,
    },
    ClearPermissions {
        user: String,
        vhost: String,
    },
    /// A node joins, has moved, or tells its incarnation for the first time.
    AddNode {
        node: NodeId,
        address: String,
        incarnation: u64,
    },
    /// With what lives in its memory. A missing node is success.
    RemoveNode {
        node: NodeId,
    },
    /// Who is to keep a group, and who is to lead it: the first.
    SetVoters {
        group: GroupId,
        voters: Vec<NodeId>,
    },
    /// What lives in this node's memory is out of reach: it is taken for gone.
    NodeGone {
        node: NodeId,
    },
    /// All members can read what this version brings: from here on it may be written. Never goes back.
    RaiseVersion {
        to: Version,
    },
    /// Of each node so many groups are to have `limits::REPLICAS_MAX` voters, and the others `limits::REPLICAS`.
    SetWideGroups {
        /// 0: none; as many as each node brings with it, or more: all.
        per_node: u32,
    },
    /// Makes a queue. If there is one of this name, nothing changes: who asked compares it with what was asked for.
    CreateQueue {
        vhost: String,
        name: String,
        home: QueueHome,
        spec: Box<QueueSpec>,
        /// As the client gave them.
        arguments: Arguments,
    },
    /// Makes an exchange. If there is one of this name, nothing changes: who asked compares it with what was asked for.
    CreateExchange {
        vhost: String,
        name: String,
        auto_delete: bool,
        internal: bool,
        /// Of a transient one: it goes when this node starts again.
        node: Option<NodeId>,
        spec: Box<ExchangeSpec>,
        /// As the client gave them.
        arguments: Arguments,
    },
    /// As `Bind`, whatever key and arguments: the broker has judged them.
    CreateBinding(BindingChange),
    /// The queue is like this from here on, as far as that can change: see `QueueSettings::changed_to`. Its arguments
    /// stay, so a client that declares it as before finds it.
    ChangeQueue {
        vhost: String,
        name: String,
        /// Only if it is still this one: another is success, and nothing changes.
        queue: QueueId,
        spec: Box<QueueSpec>,
    },
    /// Makes a policy or changes one; what it matches is like that from here on.
    PutPolicy {
        vhost: String,
        name: String,
        kind: PolicyKind,
        spec: Box<PolicySpec>,
    },
    DeletePolicy {
        vhost: String,
        name: String,
        kind: PolicyKind,
    },
    /// What a user may publish to a topic exchange, and bind to it, by routing keys: see `TopicPermissions`. The exchange
    /// need not be there yet.
    SetTopicPermissions {
        user: String,
        vhost: String,
        exchange: String,
        write: String,
        read: String,
    },
    ClearTopicPermissions {
        user: String,
        vhost: String,
        /// None: of all exchanges.
        exchange: Option<String>,
    },
    SetUserLimits {
        user: String,
        change: UserLimitsChange,
    },
    SetVhostLimits {
        vhost: String,
        change: VhostLimitsChange,
    },
    SetVhostMetadata {
        vhost: String,
        metadata: VhostMetadata,
    },
    /// What operators call the cluster. Empty: it has no name of its own.
    SetClusterName {
        name: String,
    },
    /// Nobody is given messages of the queue from here on, or those who wait are again.
    PauseQueue {
        vhost: String,
        name: String,
        /// The user that pauses it. None: it goes on.
        by: Option<String>,
    },
    /// The subscription goes on there from here on, whatever it has settled.
    SeekQueue {
        vhost: String,
        name: String,
        to: StreamOffset,
    },
    /// What an operator changes: who it was is remembered with it. See `audit`.
    Administered {
        by: Actor,
        /// Neither this nor `Note`.
        command: Box<CatalogCommand>,
    },
    /// What an operator has done that is no change of the catalog: remembered, too.
    Note {
        by: Actor,
        event: Box<Event>,
    },
    /// Stands for a command of the version to come, `Version::TRIAL`, in trials of upgrades. Nobody reads its text.
    Remark {
        text: String,
    },
}

impl CatalogCommand {
    /// Whether a client asks for something that may not have been there.
    pub fn adds(&self) -> bool {
        match self {
            Self::DeclareExchange { .. }
            | Self::DeclareQueue { .. }
            | Self::Bind(_)
            | Self::CreateQueue { .. }
            | Self::CreateExchange { .. }
            | Self::CreateBinding(_) => true,
            // An operator makes room rather than uses it.
            Self::Administered { .. } | Self::Note { .. } => false,
            Self::DeleteExchange { .. }
            | Self::DeleteQueue { .. }
            | Self::Unbind(_)
            | Self::SessionEnded { .. }
            | Self::NodeStarted { .. }
            | Self::NodeGone { .. }
            | Self::CreateVhost { .. }
            | Self::DeleteVhost { .. }
            | Self::PutUser { .. }
            | Self::DeleteUser { .. }
            | Self::SetPermissions { .. }
            | Self::ClearPermissions { .. }
            | Self::AddNode { .. }
            | Self::RemoveNode { .. }
            | Self::SetVoters { .. }
            | Self::RaiseVersion { .. }
            | Self::SetWideGroups { .. }
            | Self::ChangeQueue { .. }
            | Self::PutPolicy { .. }
            | Self::DeletePolicy { .. }
            | Self::SetTopicPermissions { .. }
            | Self::ClearTopicPermissions { .. }
            | Self::SetUserLimits { .. }
            | Self::SetVhostLimits { .. }
            | Self::SetVhostMetadata { .. }
            | Self::SetClusterName { .. }
            | Self::PauseQueue { .. }
            | Self::SeekQueue { .. }
            | Self::Remark { .. } => false,
        }
    }

    /// The version that the cluster must have agreed on before this is proposed. A new version is proposed once
    /// all members can read it.
    pub fn since(&self) -> Version {
        self.kind().1
    }

    /// The same, changed by an operator.
    #[must_use]
    pub fn by(self, by: Actor) -> Self {
        assert!(!self.is_wrapped(), "a command has one actor");
        Self::Administered { by, command: Box::new(self) }
    }

    /// Whether it says itself who changes something: then it is inside no other.
    pub(super) fn is_wrapped(&self) -> bool {
        matches!(self, Self::Administered { .. } | Self::Note { .. })
    }

    /// The number that its encoding begins with, and the version since which there is one.
    fn kind(&self) -> (u8, Version) {
        match self {
            Self::DeclareExchange { kind, .. } => (1, kind.since()),
            Self::DeleteExchange { .. } => (2, Version::FIRST),
            Self::DeclareQueue { .. } => (3, Version::FIRST),
            Self::DeleteQueue { .. } => (4, Version::FIRST),
            Self::Bind(_) => (5, Version::FIRST),
            Self::Unbind(_) => (6, Version::FIRST),
            Self::SessionEnded { .. } => (7, Version::FIRST),
            Self::NodeStarted { .. } => (8, Version::FIRST),
            Self::CreateVhost { .. } => (9, Version::FIRST),
            Self::DeleteVhost { .. } => (10, Version::FIRST),
            Self::PutUser { .. } => (11, Version::FIRST),
            Self::DeleteUser { .. } => (12, Version::FIRST),
            Self::SetPermissions { .. } => (13, Version::FIRST),
            Self::ClearPermissions { .. } => (14, Version::FIRST),
            Self::AddNode { .. } => (15, Version::FIRST),
            Self::RemoveNode { .. } => (16, Version::FIRST),
            Self::SetVoters { .. } => (17, Version::FIRST),
            Self::NodeGone { .. } => (18, Version::FIRST),
            Self::RaiseVersion { to } => (19, *to),
            Self::SetWideGroups { .. } => (20, WIDE_SINCE),
            Self::CreateQueue { spec, .. } => (21, Version::SPECS.max(spec.settings.since())),
            Self::CreateExchange { spec, .. } => (22, Version::SPECS.max(spec.routing.since())),
            Self::CreateBinding(_) => (23, Version::SPECS),
            Self::ChangeQueue { spec, .. } => {
                (24, Version::CHANGED_SETTINGS.max(spec.settings.since()))
            }
            Self::PutPolicy { spec, .. } if spec.rules.max_age_ms.is_some() => {
                (25, Version::STREAMS)
            }
            Self::PutPolicy { spec, .. } if !spec.rules.rates.is_none() => (25, Version::RATES),
            Self::PutPolicy { .. } => (25, Version::POLICIES),
            Self::DeletePolicy { .. } => (26, Version::POLICIES),
            Self::SetTopicPermissions { .. } => (27, Version::POLICIES),
            Self::ClearTopicPermissions { .. } => (28, Version::POLICIES),
            Self::SetUserLimits { .. } => (29, Version::POLICIES),
            Self::SetVhostLimits { .. } => (30, Version::POLICIES),
            Self::SetVhostMetadata { .. } => (31, Version::POLICIES),
            Self::SetClusterName { .. } => (32, Version::POLICIES),
            Self::PauseQueue { .. } => (35, Version::PAUSES),
            Self::SeekQueue { .. } => (36, Version::STREAMS),
            Self::Administered { command, .. } => {
                (ADMINISTERED, command.since().max(Version::AUDITED))
            }
            Self::Note { .. } => (NOTE, Version::AUDITED),
            Self::Remark { .. } => (REMARK, Version::TRIAL),
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind().0);
        match self {
            Self::DeclareExchange {
                vhost,
                name,
                kind,
                durable,
                auto_delete,
                internal,
                arguments,
                by,
            } => {
                put_texts(out, &[vhost, name]);
                out.push(kind.number());
                put_bools(out, &[*durable, *auto_delete, *internal]);
                arguments.encode(out);
                put_owner(out, *by);
            }
            Self::DeleteExchange { vhost, name, if_unused } => {
                put_texts(out, &[vhost, name]);
                put_bool(out, *if_unused);
            }
            Self::DeclareQueue {
                vhost,
                name,
                durable,
                auto_delete,
                exclusive,
                server_named,
                arguments,
                by,
            } => {
                put_texts(out, &[vhost, name]);
                put_bools(out, &[*durable, *auto_delete, *exclusive, *server_named]);
                arguments.encode(out);
                put_owner(out, *by);
            }
            Self::DeleteQueue { vhost, name, queue, by } => {
                put_texts(out, &[vhost, name]);
                put_bool(out, queue.is_some());
                if let Some(queue) = queue {
                    put_u64(out, queue.0);
                }
                put_owner_option(out, *by);
            }
            Self::Bind(change) | Self::CreateBinding(change) | Self::Unbind(change) => {
                change.encode(out);
            }
            Self::SessionEnded { node, session } => {
                put_owner(out, SessionOwner { node: *node, session: *session });
            }
            Self::NodeStarted { node } => {
                put_u64(out, node.0);
            }
            Self::CreateVhost { name } => {
                put_text(out, name);
            }
            Self::DeleteVhost { name } => {
                put_text(out, name);
            }
            Self::PutUser { name, password_hash, tags } => {
                put_texts(out, &[name, password_hash]);
                put_u32(out, tags.len() as u32);
                for tag in tags {
                    put_text(out, tag);
                }
            }
            Self::DeleteUser { name } => {
                put_text(out, name);
            }
            Self::SetPermissions { user, vhost, configure, write, read } => {
                put_texts(out, &[user, vhost, configure, write, read]);
            }
            Self::ClearPermissions { user, vhost } => {
                put_texts(out, &[user, vhost]);
            }
            Self::AddNode { node, address, incarnation } => {
                put_u64(out, node.0);
                put_text(out, address);
                put_u64(out, *incarnation);
            }
            Self::RemoveNode { node } => {
                put_u64(out, node.0);
            }
            Self::SetVoters { group, voters } => {
                put_u32(out, group.0);
                put_nodes(out, voters);
            }
            Self::NodeGone { node } => {
                put_u64(out, node.0);
            }
            Self::RaiseVersion { to } => {
                put_u32(out, u32::from(to.0));
            }
            Self::SetWideGroups { per_node } => {
                put_u32(out, *per_node);
            }
            Self::CreateQueue { vhost, name, home, spec, arguments } => {
                put_texts(out, &[vhost, name]);
                home.encode(out);
                spec.encode(out);
                arguments.encode(out);
            }
            Self::CreateExchange { vhost, name, auto_delete, internal, node, spec, arguments } => {
                put_texts(out, &[vhost, name]);
                put_bools(out, &[*auto_delete, *internal]);
                put_node(out, *node);
                spec.encode(out);
                arguments.encode(out);
            }
            Self::ChangeQueue { vhost, name, queue, spec } => {
                put_texts(out, &[vhost, name]);
                put_u64(out, queue.0);
                spec.encode(out);
            }
            Self::PutPolicy { vhost, name, kind, spec } => {
                put_texts(out, &[vhost, name]);
                put_bool(out, kind.is_operator());
                spec.encode(out);
            }
            Self::DeletePolicy { vhost, name, kind } => {
                put_texts(out, &[vhost, name]);
                put_bool(out, kind.is_operator());
            }
            Self::SetTopicPermissions { user, vhost, exchange, write, read } => {
                put_texts(out, &[user, vhost, exchange, write, read]);
            }
            Self::ClearTopicPermissions { user, vhost, exchange } => {
                put_texts(out, &[user, vhost]);
                put_bool(out, exchange.is_some());
                if let Some(exchange) = exchange {
                    put_text(out, exchange);
                }
            }
            Self::SetUserLimits { user, change } => {
                put_text(out, user);
                change.encode(out);
            }
            Self::SetVhostLimits { vhost, change } => {
                put_text(out, vhost);
                change.encode(out);
            }
            Self::SetVhostMetadata { vhost, metadata } => {
                put_text(out, vhost);
                metadata.encode(out);
            }
            Self::SetClusterName { name } => {
                put_text(out, name);
            }
            Self::PauseQueue { vhost, name, by } => {
                put_texts(out, &[vhost, name]);
                put_bool(out, by.is_some());
                if let Some(by) = by {
                    put_text(out, by);
                }
            }
            Self::SeekQueue { vhost, name, to } => {
                put_texts(out, &[vhost, name]);
                let (kind, number) = to.to_parts();
                out.push(kind);
                put_u64(out, number);
            }
            Self::Administered { by, command } => {
                assert!(!command.is_wrapped(), "a command has one actor");
                by.encode(out);
                command.encode(out);
            }
            Self::Note { by, event } => {
                by.encode(out);
                event.encode(out);
            }
            Self::Remark { text } => {
                put_text(out, text);
            }
        }
    }

    /// Reads what `encode` wrote. Total on any bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes, "a catalog command");
        let command = Self::read(&mut reader)?;
        reader.end()?;
        Ok(command)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let number = reader.u8()?;
        if number != ADMINISTERED {
            return Self::read_of(number, reader);
        }
        let by = Actor::read(reader)?;
        let command = match reader.u8()? {
            ADMINISTERED | NOTE => return Err(reader.corrupt()),
            inner => Box::new(Self::read_of(inner, reader)?),
        };
        Ok(Self::Administered { by, command })
    }

    /// One that has no other inside.
    fn read_of(number: u8, reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(match number {
            1 => Self::DeclareExchange {
                vhost: reader.string()?,
                name: reader.string()?,
                kind: ExchangeKind::from_number(reader.u8()?).ok_or(reader.corrupt())?,
                durable: reader.bool()?,
                auto_delete: reader.bool()?,
                internal: reader.bool()?,
                arguments: Arguments::read(reader)?,
                by: read_owner(reader)?,
            },
            2 => Self::DeleteExchange {
                vhost: reader.string()?,
                name: reader.string()?,
                if_unused: reader.bool()?,
            },
            3 => Self::DeclareQueue {
                vhost: reader.string()?,
                name: reader.string()?,
                durable: reader.bool()?,
                auto_delete: reader.bool()?,
                exclusive: reader.bool()?,
                server_named: reader.bool()?,
                arguments: Arguments::read(reader)?,
                by: read_owner(reader)?,
            },
            4 => Self::DeleteQueue {
                vhost: reader.string()?,
                name: reader.string()?,
                queue: if reader.bool()? { Some(QueueId(reader.u64()?)) } else { None },
                by: read_owner_option(reader)?,
            },
            5 => Self::Bind(BindingChange::read(reader)?),
            6 => Self::Unbind(BindingChange::read(reader)?),
            7 => {
                let SessionOwner { node, session } = read_owner(reader)?;
                Self::SessionEnded { node, session }
            }
            8 => Self::NodeStarted { node: NodeId(reader.u64()?) },
            9 => Self::CreateVhost { name: reader.string()? },
            10 => Self::DeleteVhost { name: reader.string()? },
            11 => Self::PutUser {
                name: reader.string()?,
                password_hash: reader.string()?,
                tags: read_texts(reader)?,
            },
            12 => Self::DeleteUser { name: reader.string()? },
            13 => Self::SetPermissions {
                user: reader.string()?,
                vhost: reader.string()?,
                configure: reader.string()?,
                write: reader.string()?,
                read: reader.string()?,
            },
            14 => Self::ClearPermissions { user: reader.string()?, vhost: reader.string()? },
            15 => Self::AddNode {
                node: NodeId(reader.u64()?),
                address: reader.string()?,
                incarnation: reader.u64()?,
            },
            16 => Self::RemoveNode { node: NodeId(reader.u64()?) },
            17 => Self::SetVoters { group: GroupId(reader.u32()?), voters: read_nodes(reader)? },
            18 => Self::NodeGone { node: NodeId(reader.u64()?) },
            19 => Self::RaiseVersion { to: read_version(reader)? },
            20 => Self::SetWideGroups { per_node: reader.u32()? },
            21 => {
                let (vhost, name) = (reader.string()?, reader.string()?);
                let home = QueueHome::read(reader)?;
                let spec = Box::new(QueueSpec::read_for(home, reader)?);
                let arguments = Arguments::read(reader)?;
                Self::CreateQueue { vhost, name, home, spec, arguments }
            }
            22 => Self::CreateExchange {
                vhost: reader.string()?,
                name: reader.string()?,
                auto_delete: reader.bool()?,
                internal: reader.bool()?,
                node: read_node(reader)?,
                spec: Box::new(ExchangeSpec::read(reader)?),
                arguments: Arguments::read(reader)?,
            },
            23 => Self::CreateBinding(BindingChange::read(reader)?),
            24 => Self::ChangeQueue {
                vhost: reader.string()?,
                name: reader.string()?,
                queue: QueueId(reader.u64()?),
                spec: Box::new(QueueSpec::read(reader)?),
            },
            25 => Self::PutPolicy {
                vhost: reader.string()?,
                name: reader.string()?,
                kind: PolicyKind::of(reader.bool()?),
                spec: Box::new(PolicySpec::read(reader)?),
            },
            26 => Self::DeletePolicy {
                vhost: reader.string()?,
                name: reader.string()?,
                kind: PolicyKind::of(reader.bool()?),
            },
            27 => Self::SetTopicPermissions {
                user: reader.string()?,
                vhost: reader.string()?,
                exchange: reader.string()?,
                write: reader.string()?,
                read: reader.string()?,
            },
            28 => Self::ClearTopicPermissions {
                user: reader.string()?,
                vhost: reader.string()?,
                exchange: if reader.bool()? { Some(reader.string()?) } else { None },
            },
            29 => {
                let user = reader.string()?;
                Self::SetUserLimits { user, change: UserLimitsChange::read(reader)? }
            }
            30 => {
                let vhost = reader.string()?;
                Self::SetVhostLimits { vhost, change: VhostLimitsChange::read(reader)? }
            }
            31 => {
                let vhost = reader.string()?;
                Self::SetVhostMetadata { vhost, metadata: VhostMetadata::read(reader)? }
            }
            32 => Self::SetClusterName { name: reader.string()? },
            35 => Self::PauseQueue {
                vhost: reader.string()?,
                name: reader.string()?,
                by: if reader.bool()? { Some(reader.string()?) } else { None },
            },
            36 => {
                let (vhost, name) = (reader.string()?, reader.string()?);
                let (kind, number) = (reader.u8()?, reader.u64()?);
                let to = StreamOffset::from_parts(kind, number).ok_or_else(|| reader.corrupt())?;
                Self::SeekQueue { vhost, name, to }
            }
            NOTE => {
                let by = Actor::read(reader)?;
                Self::Note { by, event: Box::new(Event::read(reader)?) }
            }
            REMARK => Self::Remark { text: reader.string()? },
            _ => return Err(Corrupt::newer("a catalog command of an unknown kind")),
        })
    }
}

fn put_texts(out: &mut Vec<u8>, texts: &[&str]) {
    for text in texts {
        put_text(out, text);
    }
}

fn put_bools(out: &mut Vec<u8>, values: &[bool]) {
    for value in values {
        put_bool(out, *value);
    }
}
