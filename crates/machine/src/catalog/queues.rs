//! Queues: declaring, comparing, deleting, and the group each lives in.

mod arguments;

use std::collections::BTreeMap;

use super::exchanges::plain;
use super::refusal::{Difference, Kind, Property, Refusal};
use super::routing::{Dest, Target};
use super::{
    Catalog, CatalogCommand, CatalogEffect, CatalogReply, Destination, check_name,
    check_not_reserved,
};
use crate::ids::{GroupId, NodeId, QueueId, SessionOwner};
use crate::limits::QUEUES_MAX;
use crate::settings::QueueSettings;
use crate::value::{Arguments, Value};

/// What a declaration asks for. Classic and quorum queues are kept in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueType {
    Classic,
    Quorum,
    /// Known, and not made.
    Stream,
}

impl QueueType {
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Quorum => "quorum",
            Self::Stream => "stream",
        }
    }
}

/// One queue.
#[derive(Clone, Debug)]
pub struct Queue {
    pub id: QueueId,
    pub group: GroupId,
    pub vhost: String,
    pub name: String,
    pub durable: bool,
    pub auto_delete: bool,
    /// The session that alone may use it, and with which it goes.
    pub exclusive: Option<SessionOwner>,
    /// Of a queue in a local group: the node whose memory it lives in.
    pub node: Option<NodeId>,
    pub arguments: Arguments,
    /// What who publishes to it must know.
    pub(super) target: Target,
}

impl Queue {
    pub fn queue_type(&self) -> QueueType {
        arguments::type_of(&self.arguments)
    }

    /// What its group has to know.
    pub fn settings(&self) -> QueueSettings {
        QueueSettings {
            is_durable: self.durable,
            is_auto_delete: self.auto_delete,
            features: arguments::features(&self.arguments),
        }
    }

    /// Where its dead letters go; the empty name is the default exchange. None: they are dropped.
    pub fn dead_letter_exchange(&self) -> Option<&str> {
        self.arguments.find(arguments::DEAD_LETTER_EXCHANGE).and_then(Value::text)
    }

    /// None: they keep their keys.
    pub fn dead_letter_key(&self) -> Option<&str> {
        self.arguments.find(arguments::DEAD_LETTER_KEY).and_then(Value::text)
    }

    /// How long a consumer may hold a message. None: it is not said.
    pub fn consumer_timeout_ms(&self) -> Option<u64> {
        let value = self.arguments.find(arguments::CONSUMER_TIMEOUT)?;
        u64::try_from(value.integer()?).ok()
    }

    /// Whether the session may use it: `by` is None for an operator, who may.
    pub fn check_access(&self, vhost: &str, by: Option<SessionOwner>) -> Result<(), Refusal> {
        match (self.exclusive, by) {
            (Some(owner), Some(by)) if owner != by => {
                Err(Refusal::Locked { name: self.name.clone(), vhost: vhost.to_owned() })
            }
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    /// Where a message for it goes, and what who publishes it must know.
    pub fn target(&self) -> Target {
        self.target
    }

    fn compare(
        &self,
        durable: bool,
        auto_delete: bool,
        declared: &Arguments,
    ) -> Result<(), Difference> {
        // An exclusive queue is not durable, whatever was asked for.
        let is_exclusive = self.exclusive.is_some();
        let [durable, current] = [durable, self.durable].map(|is_so| is_so && !is_exclusive);
        plain("durable", Value::Bool(durable), Value::Bool(current))?;
        plain("auto_delete", Value::Bool(auto_delete), Value::Bool(self.auto_delete))?;
        arguments::compare(declared, &self.arguments)
    }
}

impl Catalog {
    pub(super) fn check_declare_queue(&self, command: &CatalogCommand) -> Result<(), Refusal> {
        let CatalogCommand::DeclareQueue {
            vhost: vhost_name,
            name,
            durable,
            auto_delete,
            exclusive,
            server_named,
            arguments,
            by,
        } = command
        else {
            unreachable!("check calls this for a declaration of a queue")
        };
        let vhost = self.vhost_or_refusal(vhost_name)?;
        if !server_named {
            check_not_reserved(Kind::Queue, name)?;
        }
        if !arguments.is_within_limits() {
            return Err(Refusal::ArgumentsTooLarge);
        }
        let queue_type = arguments::type_of(arguments);
        if *server_named && queue_type != QueueType::Classic {
            return Err(Refusal::ServerNamed { queue_type });
        }
        if let Some(existing) = vhost.queues.get(name) {
            if existing.exclusive != exclusive.then_some(*by) {
                let (name, vhost) = (name.clone(), vhost_name.clone());
                return Err(Refusal::Locked { name, vhost });
            }
            return existing.compare(*durable, *auto_delete, arguments).map_err(|difference| {
                Refusal::Inequivalent {
                    kind: Kind::Queue,
                    name: name.clone(),
                    vhost: vhost_name.clone(),
                    difference: Box::new(difference),
                }
            });
        }
        check_name(Kind::Queue, name)?;
        arguments::validate(vhost_name, name, arguments)?;
        if queue_type != QueueType::Classic {
            for (is_so, property) in [
                (*auto_delete, Property::AutoDelete),
                (*exclusive, Property::Exclusive),
                (!durable, Property::NonDurable),
            ] {
                if is_so {
                    let (name, vhost) = (name.clone(), vhost_name.clone());
                    return Err(Refusal::InvalidProperty { name, vhost, property });
                }
            }
        }
        if queue_type == QueueType::Stream {
            return Err(Refusal::NotImplemented { argument: arguments::TYPE.to_owned() });
        }
        if self.queue_names.len() >= QUEUES_MAX {
            return Err(Refusal::LimitReached { kind: Kind::Queue, max: QUEUES_MAX });
        }
        Ok(())
    }

    pub(super) fn declare_queue(
        &mut self,
        command: CatalogCommand,
        effects: &mut Vec<CatalogEffect>,
    ) -> (CatalogReply, bool) {
        let CatalogCommand::DeclareQueue {
            vhost,
            name,
            durable,
            auto_delete,
            exclusive,
            server_named: _,
            arguments,
            by,
        } = command
        else {
            unreachable!("change calls this for a declaration of a queue")
        };
        if let Some(queue) = self.queue(&vhost, &name) {
            let Queue { id: queue, group, .. } = *queue;
            return (CatalogReply::QueueDeclared { queue, group, created: false }, false);
        }
        let is_local = exclusive || !durable;
        let id = QueueId(self.next_queue);
        let group = if is_local { GroupId::local(by.node) } else { self.emptiest_group() };
        let queue = Queue {
            id,
            group,
            vhost,
            name,
            durable: durable && !exclusive,
            auto_delete,
            exclusive: exclusive.then_some(by),
            node: is_local.then_some(by.node),
            arguments,
            target: Target::plain(id, group),
        };
        self.next_queue += 1;
        let (node, settings) = (queue.node, queue.settings());
        effects.push(CatalogEffect::QueueCreated { queue: id, group, node, settings });
        self.insert_queue(queue);
        (CatalogReply::QueueDeclared { queue: id, group, created: true }, true)
    }

    /// The group with the fewest queues; of several the one whose leader-to-be leads the fewest, so
    /// that a few queues use all nodes; then the first.
    fn emptiest_group(&self) -> GroupId {
        let counts = || (1..).map(GroupId).zip(self.group_queues.iter().copied());
        let mut led: BTreeMap<Option<NodeId>, u64> = BTreeMap::new();
        for (group, count) in counts() {
            *led.entry(self.preferred_leader(group)).or_default() += u64::from(count);
        }
        let emptiest = counts()
            .min_by_key(|(group, count)| (*count, led.get(&self.preferred_leader(*group)), *group));
        emptiest.map_or(GroupId(1), |(group, _)| group)
    }

    fn group_count_mut(&mut self, group: GroupId) -> Option<&mut u32> {
        self.group_queues.get_mut((group.0 as usize).checked_sub(1)?)
    }

    /// Puts it into its vhost, which must exist, and into the indexes.
    pub(super) fn insert_queue(&mut self, mut queue: Queue) {
        queue.target = Target::of(&queue);
        if let Some(count) = self.group_count_mut(queue.group) {
            *count += 1;
        }
        if let Some(owner) = queue.exclusive {
            self.exclusive.insert((owner, queue.id));
        }
        if let Some(node) = queue.node {
            self.local.insert((node, queue.id));
        }
        self.queue_names.insert(queue.id, (queue.vhost.clone(), queue.name.clone()));
        if let Some(vhost) = self.vhosts.get_mut(&queue.vhost) {
            vhost.queues.insert(queue.name.clone(), queue);
        }
    }

    /// Takes it out of the indexes.
    pub(super) fn forget_queue(&mut self, queue: &Queue, effects: &mut Vec<CatalogEffect>) {
        if let Some(count) = self.group_count_mut(queue.group) {
            *count -= 1;
        }
        if let Some(owner) = queue.exclusive {
            self.exclusive.remove(&(owner, queue.id));
        }
        if let Some(node) = queue.node {
            self.local.remove(&(node, queue.id));
        }
        self.queue_names.remove(&queue.id);
        effects.push(CatalogEffect::QueueDeleted {
            queue: queue.id,
            group: queue.group,
            node: queue.node,
        });
    }

    pub(super) fn check_delete_queue(
        &self,
        vhost_name: &str,
        name: &str,
        by: Option<SessionOwner>,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost_name)?;
        vhost.queues.get(name).map_or(Ok(()), |queue| queue.check_access(vhost_name, by))
    }

    pub(super) fn delete_queue(
        &mut self,
        vhost: &str,
        name: &str,
        only: Option<QueueId>,
        effects: &mut Vec<CatalogEffect>,
    ) -> (CatalogReply, bool) {
        let Some(queue) = self.queue(vhost, name) else { return (CatalogReply::Done, false) };
        let Queue { id: queue, group, .. } = *queue;
        if only.is_some_and(|only| only != queue) {
            return (CatalogReply::Done, false);
        }
        self.delete_queues_by_id(&[queue], effects);
        (CatalogReply::QueueDeleted { queue, group }, true)
    }

    /// With their bindings, and the auto-delete exchanges whose last binding goes with them.
    pub(super) fn delete_queues_by_id(
        &mut self,
        queues: &[QueueId],
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        for id in queues {
            let Some((vhost_name, name)) = self.queue_names.get(id).cloned() else { continue };
            let Some(vhost) = self.vhosts.get_mut(&vhost_name) else { continue };
            let Some(queue) = vhost.queues.remove(&name) else { continue };
            let dest = Dest::Queue(queue.target());
            let unused = vhost.unbind_destination(&Destination::Queue(name), &dest);
            vhost.delete_exchanges(unused);
            self.forget_queue(&queue, effects);
        }
        !queues.is_empty()
    }
}
