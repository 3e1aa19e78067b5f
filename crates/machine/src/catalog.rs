//! The catalog: vhosts, users, permissions, exchanges, bindings and queues of the whole cluster.
//!
//! The machine of group 0. Every node applies the same commands and routes by its own copy, so any
//! node serves any exchange. `check` says whether a command would be refused, before it is proposed;
//! `apply` checks again, because other commands came first.
//!
//! It knows that a queue exists and in which group, not what is in it: whether a queue is empty or
//! used is asked of its group (`QueueMachine::close_queue`).

mod audit;
mod before8;
mod binding;
mod bindings;
mod command;
mod destination;
mod encoding;
mod exchanges;
mod explain;
mod history_names;
mod limits;
mod nodes;
mod placement;
mod policies;
mod queues;
mod refusal;
mod route;
mod routing;
mod snapshot;
mod target;
mod users;
mod vhosts;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use audit::{Actor, AuditRecord, Event, Happened};
pub use binding::{Binding, BindingChange};
pub use command::CatalogCommand;
pub use destination::Destination;
pub use exchanges::{Exchange, ExchangeKind, ExchangeSpec, HashBy};
pub use explain::{Explanation, Hop, HopBinding, explain};
pub use limits::{LimitChange, UserLimits, UserLimitsChange, VhostLimits, VhostLimitsChange};
pub use nodes::NodeInfo;
pub use placement::{Goal, NodeStatus};
pub use policies::{
    AppliesTo, Foreseen, Governed, Policy, PolicyChange, PolicyKind, PolicyRules, PolicySpec,
};
pub use queues::{DeadLetter, Partition, Queue, QueueHome, QueuePause, QueueSpec, QueueType};
pub use refusal::{Kind, MembershipProblem, Refusal, RouteError};
pub use route::PublishedBy;
pub use routing::hash::of as key_hash;
pub use target::Target;
pub use users::{Pattern, Permissions, TopicPermissions, User};
pub use vhosts::{Vhost, VhostMetadata};

use audit::Audit;
use nodes::{Membership, WIDE_SINCE};
use queues::NewQueue;

use crate::ids::{Applied, GroupId, NodeId, ProducerId, QueueId, SessionOwner};
use crate::limits::{
    BINDINGS_PER_SOURCE_MAX, CATALOG_ARGUMENTS_BYTES_MAX, GROUPS_MAX, NAME_BYTES_MAX, QUEUES_MAX,
    VHOST_ARGUMENTS_BYTES_MAX,
};
use crate::producers::Producers;
use crate::settings::QueueSettings;
use crate::version::Version;

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogReply {
    Done,
    ExchangeDeclared {
        /// False: one of its name was there already.
        created: bool,
    },
    QueueDeclared {
        queue: QueueId,
        group: GroupId,
        /// False: one of its name was there already.
        created: bool,
    },
    QueueDeleted {
        queue: QueueId,
        group: GroupId,
    },
    /// Nothing was changed.
    Refused(Refusal),
}

/// What a change means for the groups of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogEffect {
    QueueCreated {
        queue: QueueId,
        group: GroupId,
        /// Of a queue in a local group: the node whose memory it lives in.
        node: Option<NodeId>,
        settings: QueueSettings,
    },
    QueueDeleted {
        queue: QueueId,
        group: GroupId,
        node: Option<NodeId>,
    },
    /// It is to behave like this from here on.
    QueueChanged {
        queue: QueueId,
        group: GroupId,
        settings: QueueSettings,
        /// The version of the catalog: a later change has a greater one.
        revision: u64,
    },
}

/// Everything but messages.
#[derive(Clone, Debug)]
pub struct Catalog {
    // Replicated, in snapshots.
    version: u64,
    applied_index: u64,
    /// Groups of queues: 1 to this.
    group_count: u32,
    /// What all members have agreed to write.
    agreed: Version,
    /// What operators call the cluster.
    name: String,
    membership: Membership,
    next_queue: u64,
    vhosts: BTreeMap<String, Vhost>,
    users: BTreeMap<String, User>,
    /// What operators changed.
    audit: Audit,
    /// Which numbered batches were applied.
    producers: Producers,
    // Derived from the above.
    /// The version of the last change of nodes, groups, voters or what they agree on, or of the start.
    membership_version: u64,
    /// Vhost and name of every queue, by its own number and by those of its partitions.
    queue_names: BTreeMap<QueueId, (String, String)>,
    /// Partitions behind the first, and the queues that they are of.
    partitions: BTreeMap<QueueId, QueueId>,
    /// Exclusive queues, by owner.
    exclusive: BTreeSet<(SessionOwner, QueueId)>,
    /// Queues in the memory of a node.
    local: BTreeSet<(NodeId, QueueId)>,
    /// Queues per group, from group 1.
    group_queues: Vec<u32>,
    /// Vhosts that are traced.
    traced: usize,
    // Neither replicated nor derived.
    /// Deleted queues whose dead letters may still be on their way, the latest last.
    departed: VecDeque<Queue>,
    /// Queues that went while a command is applied, the first ones. `None`: nobody wants to know.
    gone: Option<Vec<Event>>,
    bounds: Bounds,
}

/// How much there may be: the same on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Queues of the cluster.
    pub queues: usize,
    /// Bindings of one source exchange.
    pub bindings_per_source: usize,
    /// Bytes of all arguments of a vhost.
    pub vhost_arguments_bytes: usize,
    /// Bytes of all arguments.
    pub arguments_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            queues: QUEUES_MAX,
            bindings_per_source: BINDINGS_PER_SOURCE_MAX,
            vhost_arguments_bytes: VHOST_ARGUMENTS_BYTES_MAX,
            arguments_bytes: CATALOG_ARGUMENTS_BYTES_MAX,
        }
    }
}

impl Catalog {
    /// The catalog of a first start of node 1 alone: see `genesis`.
    pub fn new(group_count: u32) -> Self {
        let alone = NodeInfo { node: NodeId(1), address: String::new(), incarnation: 0 };
        Self::genesis(&[alone], group_count)
    }

    /// The catalog of a first start: vhost `/`, and user `guest` with password `guest`, administrator,
    /// all permissions. Durable queues are spread over `groups_per_node` groups for every node (in all
    /// at least 1, at most `limits::GROUPS_MAX`). All nodes of a cluster must begin with the same
    /// nodes, of which there must be one, and the same count.
    pub fn genesis(nodes: &[NodeInfo], groups_per_node: u32) -> Self {
        assert!(!nodes.is_empty(), "a cluster begins with a node");
        let groups_per_node = groups_per_node.clamp(1, GROUPS_MAX);
        let group_count = groups_per_node.saturating_mul(nodes.len() as u32).min(GROUPS_MAX);
        let membership = Membership::genesis(nodes, group_count, groups_per_node);
        let mut catalog = Self::empty(group_count, membership);
        catalog.vhosts.insert("/".to_owned(), Vhost::new("/"));
        catalog.users.insert(users::GUEST.to_owned(), User::guest());
        catalog
    }

    fn empty(group_count: u32, membership: Membership) -> Self {
        Self {
            version: 1,
            applied_index: 0,
            group_count,
            agreed: Version::FIRST,
            name: String::new(),
            membership,
            membership_version: 1,
            next_queue: 1,
            vhosts: BTreeMap::new(),
            users: BTreeMap::new(),
            audit: Audit::default(),
            producers: Producers::default(),
            queue_names: BTreeMap::new(),
            partitions: BTreeMap::new(),
            exclusive: BTreeSet::new(),
            departed: VecDeque::new(),
            gone: None,
            bounds: Bounds::default(),
            local: BTreeSet::new(),
            group_queues: vec![0; group_count as usize],
            traced: 0,
        }
    }

    /// The same with other bounds: those of a cluster take long to reach.
    #[must_use]
    pub fn with_bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// A numbered batch begins in an entry: whether the commands behind it, up to the next, are to be applied.
    /// If not, they were applied before, or come again.
    pub fn begin_numbered(&mut self, producer: ProducerId, seq: u64) -> bool {
        self.producers.begin(producer, seq)
    }

    /// Applies one committed command: on every replica, in order of the log.
    pub fn apply(
        &mut self,
        at: Applied,
        command: CatalogCommand,
        effects: &mut Vec<CatalogEffect>,
    ) -> CatalogReply {
        self.apply_and_tell(at, command, effects, &mut Vec::new())
    }

    /// The same, and what happened by it is told, if a queue is bound to the exchange of events.
    pub fn apply_and_tell(
        &mut self,
        at: Applied,
        command: CatalogCommand,
        effects: &mut Vec<CatalogEffect>,
        told: &mut Vec<Happened>,
    ) -> CatalogReply {
        self.applied_index = self.applied_index.max(at.index);
        if let Err(refusal) = self.check(&command) {
            return CatalogReply::Refused(refusal);
        }
        let (by, command) = match command {
            CatalogCommand::Administered { by, command } => (Some(by), *command),
            CatalogCommand::Note { by, event } => {
                if self.has_listeners() {
                    let (by, event) = (Some(by.clone()), (*event).clone());
                    told.push(Happened { at_ms: at.time_ms, by, event });
                }
                self.audit.add(at.time_ms, by, *event);
                return CatalogReply::Done;
            }
            other => (None, other),
        };
        let listens = self.has_listeners();
        let event = (listens || by.is_some()).then(|| audit::event(self, &command)).flatten();
        // A queue that is deleted by its name is that event itself.
        let is_deletion = matches!(command, CatalogCommand::DeleteQueue { .. });
        self.gone = (listens && !is_deletion).then(Vec::new);
        let (reply, has_changed) = self.change(at.time_ms, command, effects);
        let gone = self.gone.take();
        if !has_changed {
            return reply;
        }
        self.version += 1;
        if listens {
            let event = event.iter().cloned().map(|event| (by.clone(), event));
            let gone = gone.into_iter().flatten().map(|event| (None, event));
            let all = event.chain(gone);
            told.extend(all.map(|(by, event)| Happened { at_ms: at.time_ms, by, event }));
        }
        if let (Some(by), Some(event)) = (by, event) {
            self.audit.add(at.time_ms, by, event);
        }
        reply
    }

    /// Whether `apply` would refuse the command now.
    pub fn check(&self, command: &CatalogCommand) -> Result<(), Refusal> {
        use CatalogCommand as C;
        let (since, agreed) = (command.since(), self.agreed);
        if since > agreed && !matches!(command, C::RaiseVersion { .. }) {
            return Err(Refusal::NotYet { since, agreed });
        }
        match command {
            C::DeclareExchange { vhost, name, kind, arguments, .. } => {
                let has_history = before8::exchange_spec(*kind, arguments).history_length.is_some();
                self.check_create_exchange(vhost, name, arguments, has_history)
            }
            C::CreateExchange { vhost, name, spec, arguments, .. } => {
                let has_history = spec.history_length.is_some();
                self.check_create_exchange(vhost, name, arguments, has_history)
            }
            C::DeleteExchange { vhost, name, if_unused } => {
                self.check_delete_exchange(vhost, name, *if_unused)
            }
            C::DeclareQueue { vhost, name, arguments, .. } => {
                self.check_create_queue(vhost, name, arguments, None, 1)
            }
            C::CreateQueue { vhost, name, arguments, spec, .. } => {
                let reads = spec.settings.subscription().map(|it| it.stream);
                self.check_create_queue(vhost, name, arguments, reads, spec.partitions)
            }
            C::DeleteQueue { vhost, name, queue: _, by } => {
                self.check_delete_queue(vhost, name, *by)
            }
            C::Bind(change) => {
                self.check_bind(change)?;
                let exchange = self.exchange(&change.vhost, &change.source);
                exchange.map_or(Ok(()), |exchange| {
                    before8::check_binding(exchange.routing(), &change.key, &change.arguments)
                })
            }
            C::CreateBinding(change) => self.check_bind(change),
            C::Unbind(change) => self.check_unbind(change),
            C::SessionEnded { .. }
            | C::NodeStarted { .. }
            | C::NodeGone { .. }
            | C::DeleteVhost { .. }
            | C::DeleteUser { .. }
            | C::ClearPermissions { .. }
            | C::ClearTopicPermissions { .. } => Ok(()),
            C::CreateVhost { name } => self.check_create_vhost(name),
            C::PutUser { name, password_hash, tags } => {
                self.check_put_user(name, password_hash, tags)
            }
            C::SetPermissions { user, vhost, configure, write, read } => {
                self.check_set_permissions(user, vhost, [configure, write, read])
            }
            C::SetTopicPermissions { user, vhost, exchange, write, read } => {
                self.check_set_topic_permissions(user, vhost, exchange, [write, read])
            }
            C::SetUserLimits { user, .. } => self.user_or_refusal(user).map(|_| ()),
            C::SetVhostLimits { vhost, .. } => self.vhost_or_refusal(vhost).map(|_| ()),
            C::SetVhostMetadata { vhost, metadata } => {
                self.check_set_vhost_metadata(vhost, metadata)
            }
            C::SetClusterName { name } if name.is_empty() => Ok(()),
            C::SetClusterName { name } => check_name(Kind::Cluster, name),
            C::AddNode { node, address, incarnation } => {
                self.check_add_node(*node, address, *incarnation)
            }
            C::RemoveNode { node } => self.check_remove_node(*node),
            C::SetVoters { group, voters } => self.check_set_voters(*group, voters),
            C::ChangeQueue { vhost, name, spec, .. } => {
                self.check_change_queue(vhost, name)?;
                self.check_more_partitions(vhost, name, spec)
            }
            C::PutPolicy { vhost, name, kind, spec } => {
                self.check_put_policy(vhost, name, *kind, spec)
            }
            C::DeletePolicy { vhost, name, kind } => self.check_delete_policy(vhost, name, *kind),
            C::PauseQueue { vhost, name, by } => self.check_pause_queue(vhost, name, by.as_deref()),
            C::SeekQueue { vhost, name, .. } => self.check_seek_queue(vhost, name),
            C::Administered { by, command } => {
                assert!(!command.is_wrapped(), "a command has one actor");
                by.check()?;
                self.check(command)
            }
            C::Note { by, event } => {
                by.check()?;
                event.check()
            }
            C::RaiseVersion { .. } | C::SetWideGroups { .. } | C::Remark { .. } => Ok(()),
        }
    }

    /// Does what `check` has allowed. Also says whether anything is different now.
    fn change(
        &mut self,
        time_ms: u64,
        command: CatalogCommand,
        effects: &mut Vec<CatalogEffect>,
    ) -> (CatalogReply, bool) {
        use CatalogCommand as C;
        let has_changed = match command {
            C::DeclareExchange {
                vhost,
                name,
                kind,
                durable,
                auto_delete,
                internal,
                arguments,
                by,
            } => {
                let spec = before8::exchange_spec(kind, &arguments);
                let exchange = Exchange::new(name, spec, arguments)
                    .with_flags(durable, auto_delete, internal)
                    .of_node((!durable).then_some(by.node));
                return self.declare_exchange(&vhost, exchange, effects);
            }
            C::CreateExchange { vhost, name, auto_delete, internal, node, spec, arguments } => {
                let exchange = Exchange::new(name, *spec, arguments)
                    .with_flags(node.is_none(), auto_delete, internal)
                    .of_node(node);
                return self.declare_exchange(&vhost, exchange, effects);
            }
            C::DeleteExchange { vhost, name, if_unused: _ } => {
                self.delete_exchange(&vhost, name, effects)
            }
            C::DeclareQueue {
                vhost,
                name,
                durable,
                auto_delete,
                exclusive,
                server_named: _,
                arguments,
                by,
            } => {
                let home = match (exclusive, durable) {
                    (true, _) => QueueHome::Session(by),
                    (false, true) => QueueHome::Group,
                    (false, false) => QueueHome::Node(by.node),
                };
                let spec = before8::queue_spec(home.is_durable(), auto_delete, &arguments);
                let new = NewQueue { vhost, name, home, spec, arguments };
                return self.declare_queue(new, effects);
            }
            C::CreateQueue { vhost, name, home, spec, arguments } => {
                let new = NewQueue { vhost, name, home, spec: *spec, arguments };
                return self.declare_queue(new, effects);
            }
            C::DeleteQueue { vhost, name, queue, by: _ } => {
                return self.delete_queue(&vhost, &name, queue, effects);
            }
            C::Bind(change) | C::CreateBinding(change) => {
                let binding = change.binding();
                self.bind(&change.vhost, binding)
            }
            C::Unbind(change) => self.unbind(&change.vhost, &change.binding(), effects),
            C::SessionEnded { node, session } => {
                self.end_session(SessionOwner { node, session }, effects)
            }
            C::NodeStarted { node } | C::NodeGone { node } => self.start_node(node, effects),
            C::CreateVhost { name } => self.create_vhost(name),
            C::DeleteVhost { name } => self.delete_vhost(&name, effects),
            C::PutUser { name, password_hash, tags } => self.put_user(name, password_hash, tags),
            C::DeleteUser { name } => self.users.remove(&name).is_some(),
            C::SetPermissions { user, vhost, configure, write, read } => {
                self.set_permissions(&user, &vhost, [&configure, &write, &read])
            }
            C::ClearPermissions { user, vhost } => self.clear_permissions(&user, &vhost),
            C::AddNode { node, address, incarnation } => {
                let has_changed = self.add_node(NodeInfo { node, address, incarnation });
                self.note_membership(has_changed)
            }
            C::RemoveNode { node } => {
                let has_changed = self.remove_node(node, effects);
                self.note_membership(has_changed)
            }
            C::SetVoters { group, voters } => {
                let has_changed = self.set_voters(group, voters);
                self.note_membership(has_changed)
            }
            C::RaiseVersion { to } => {
                let has_changed = to > self.agreed;
                self.agreed = self.agreed.max(to);
                if self.agreed >= WIDE_SINCE {
                    self.membership.begin_wide();
                }
                self.open_events();
                self.note_membership(has_changed)
            }
            C::SetWideGroups { per_node } => {
                let has_changed = self.set_wide_groups(per_node);
                self.note_membership(has_changed)
            }
            C::ChangeQueue { vhost, name, queue, spec } => {
                let has_grown = self.add_partitions(&vhost, &name, queue, &spec, effects);
                self.change_queue(&vhost, &name, queue, Some(*spec), effects) || has_grown
            }
            C::PutPolicy { vhost, name, kind, spec } => {
                self.put_policy(&vhost, name, kind, *spec, effects)
            }
            C::DeletePolicy { vhost, name, kind } => {
                self.delete_policy(&vhost, &name, kind, effects)
            }
            C::SetTopicPermissions { user, vhost, exchange, write, read } => {
                self.set_topic_permissions(&user, &vhost, exchange, [&write, &read])
            }
            C::ClearTopicPermissions { user, vhost, exchange } => {
                self.clear_topic_permissions(&user, &vhost, exchange.as_deref())
            }
            C::SetUserLimits { user, change } => self.set_user_limits(&user, change),
            C::SetVhostLimits { vhost, change } => self.set_vhost_limits(&vhost, change),
            C::SetVhostMetadata { vhost, metadata } => self.set_vhost_metadata(&vhost, metadata),
            C::SetClusterName { name } => {
                let has_changed = self.name != name;
                self.name = name;
                has_changed
            }
            C::PauseQueue { vhost, name, by } => {
                let pause = by.map(|by| QueuePause { by, since_ms: time_ms });
                self.pause_queue(&vhost, &name, pause, effects)
            }
            C::SeekQueue { vhost, name, to } => self.seek_queue(&vhost, &name, to, effects),
            // Taken apart by `apply`.
            C::Administered { .. } | C::Note { .. } => false,
            C::Remark { .. } => true,
        };
        (CatalogReply::Done, has_changed)
    }

    fn note_membership(&mut self, has_changed: bool) -> bool {
        if has_changed {
            self.membership_version = self.version + 1;
        }
        has_changed
    }

    /// What all members have agreed to write.
    pub fn agreed(&self) -> Version {
        self.agreed
    }

    /// What operators call the cluster. Empty: it has no name of its own.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Grows with every change: what was looked up at the same version is still true.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Queues from this one on do not exist yet.
    pub fn next_queue(&self) -> u64 {
        self.next_queue
    }

    /// The last entry applied.
    pub fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// The last numbered batch of a producer that was applied; 0: none of that boot.
    pub fn last_numbered(&self, producer: ProducerId) -> u64 {
        self.producers.last(producer)
    }

    /// Whether the process that this is the producer of is known to be dead: its numbered batches are skipped.
    pub fn is_over(&self, producer: ProducerId) -> bool {
        self.producers.is_over(producer)
    }

    /// The latest start of a node that the log has. 0: none.
    pub fn latest_boot(&self, node: NodeId) -> u64 {
        self.producers.boot(node)
    }

    /// Numbered batches skipped because they had been applied before, and because one before them was missing.
    pub fn skipped_batches(&self) -> (u64, u64) {
        self.producers.skipped()
    }

    /// Groups of queues are 1 to this.
    pub fn group_count(&self) -> u32 {
        self.group_count
    }

    pub fn vhost(&self, name: &str) -> Option<&Vhost> {
        self.vhosts.get(name)
    }

    pub fn vhosts(&self) -> impl Iterator<Item = &Vhost> {
        self.vhosts.values()
    }

    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// What operators changed, the oldest first; of earlier changes nothing is known any more.
    pub fn audit(&self) -> impl DoubleEndedIterator<Item = &AuditRecord> + ExactSizeIterator {
        self.audit.records()
    }

    /// None: the user may not even enter the vhost.
    pub fn permissions(&self, user: &str, vhost: &str) -> Option<&Permissions> {
        self.users.get(user)?.permissions(vhost)
    }

    pub fn exchange(&self, vhost: &str, name: &str) -> Option<&Exchange> {
        self.vhosts.get(vhost)?.exchange(name)
    }

    pub fn queue(&self, vhost: &str, name: &str) -> Option<&Queue> {
        self.vhosts.get(vhost)?.queue(name)
    }

    /// Whether the session has queues that go with it.
    pub fn has_exclusive(&self, session: SessionOwner) -> bool {
        let first = (session, QueueId(0));
        self.exclusive.range(first..).next().is_some_and(|(owner, _)| *owner == session)
    }

    /// A queue that was deleted lately and may have dead letters on their way. Only this process
    /// remembers it, so it may be unknown.
    pub fn departed(&self, queue: QueueId) -> Option<&Queue> {
        self.departed.iter().find(|departed| departed.partition_index(queue).is_some())
    }

    /// Of a queue, of one of its priority levels or of one of its partitions.
    pub fn queue_by_id(&self, queue: QueueId) -> Option<&Queue> {
        let (vhost, name) = self.queue_names.get(&queue.base())?;
        self.queue(vhost, name)
    }

    /// Partitions behind the first, and the queues that they are of.
    pub fn partitions(&self) -> &BTreeMap<QueueId, QueueId> {
        &self.partitions
    }

    /// All queues, by id.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        let named = self.queue_names.keys();
        named.filter_map(|id| self.queue_by_id(*id).filter(|queue| queue.id == *id))
    }
}

/// A name that can be given to a thing.
fn check_name(kind: Kind, name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return Err(Refusal::InvalidName { kind, name: name.to_owned() });
    }
    Ok(())
}

fn not_found(kind: Kind, name: &str, vhost: &str) -> Refusal {
    Refusal::NotFound { kind, name: name.to_owned(), vhost: vhost.to_owned() }
}
