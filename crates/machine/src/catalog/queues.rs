//! Queues: what they are, and who may use them.

mod home;
pub(super) mod kind;
mod partition;
mod pause;
pub(super) mod spec;

use super::history_names::exchange_of;
use super::policies::{Governed, governed_spec};
use super::refusal::Refusal;
use super::target::Target;
use crate::ids::{GroupId, NodeId, QueueId, SessionOwner};
use crate::queue::Assignment;
use crate::settings::{Features, Overflow, QueueSettings, TokenHome};
use crate::value::Arguments;
pub use home::QueueHome;
pub use kind::QueueType;
pub use partition::Partition;
pub use pause::QueuePause;
pub use spec::{DeadLetter, QueueSpec};

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
    /// As the client gave them.
    pub arguments: Arguments,
    /// Its partitions behind the first, which has its own number and group.
    pub(super) more: Vec<Partition>,
    /// What it is as declared.
    pub(super) spec: QueueSpec,
    /// What policies say of it.
    pub(super) governed: Option<Box<Governed>>,
    /// That it is paused.
    pause: Option<Box<QueuePause>>,
    /// What it is under its policies, and while it is paused, if that is something else.
    under: Option<Box<QueueSpec>>,
    /// Which version of the catalog changed it last. 0: it is as declared.
    pub revision: u64,
    /// What who publishes to it must know.
    pub(super) target: Target,
}

impl Queue {
    pub(super) fn new(id: QueueId, group: GroupId, new: NewQueue) -> Self {
        let NewQueue { vhost, name, home, spec, arguments } = new;
        let mut queue = Self {
            id,
            group,
            vhost,
            name,
            durable: home.is_durable(),
            auto_delete: spec.settings.is_auto_delete,
            exclusive: home.exclusive(),
            node: home.node(),
            arguments,
            more: Vec::new(),
            spec,
            governed: None,
            pause: None,
            under: None,
            revision: 0,
            target: Target::plain(id, group),
        };
        queue.target = queue.target_now();
        queue
    }

    /// From here on it is as declared, and as policies say.
    pub(super) fn govern(&mut self, spec: QueueSpec, governed: Option<Box<Governed>>) {
        (self.spec, self.governed) = (spec, governed);
        self.lay_over();
    }

    /// From here on it is paused, or goes on.
    pub(super) fn set_pause(&mut self, pause: Option<QueuePause>) {
        self.pause = pause.map(Box::new);
        self.lay_over();
    }

    /// What it is follows from what was declared, from its policies and from its pause.
    fn lay_over(&mut self) {
        self.under = governed_spec(&self.spec, self.governed.as_deref());
        if self.pause.is_some() {
            let under = self.under.get_or_insert_with(|| Box::new(self.spec.clone()));
            under.settings.is_paused = true;
        }
        self.target = self.target_now();
    }

    /// Itself, and its partitions behind the first.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> {
        let reads = self.settings().subscription().map(|it| it.stream);
        let first = Partition { queue: self.id, group: self.group, reads };
        std::iter::once(first).chain(self.more.iter().copied())
    }

    /// At least 1.
    pub fn partition_count(&self) -> usize {
        1 + self.more.len()
    }

    /// Which of its partitions has this number, counted from 0.
    pub fn partition_index(&self, queue: QueueId) -> Option<usize> {
        self.partitions().position(|partition| partition.queue == queue.base())
    }

    /// What the group of one of its partitions has to know.
    pub fn settings_of(&self, partition: Partition) -> QueueSettings {
        let mut settings = self.settings().clone();
        let Some(features) = settings.features.as_deref_mut() else { return settings };
        if let (Some(subscription), Some(stream)) = (&mut features.subscription, partition.reads) {
            subscription.stream = stream;
        }
        if let Some(assignment) = &mut features.assignment {
            let index = self.partition_index(partition.queue).unwrap_or(0);
            let number = |it: usize| u16::try_from(it).expect("partitions are bounded");
            let count = number(self.partition_count());
            *assignment = Assignment { index: number(index), count };
        }
        let has_several = self.partition_count() > 1;
        features.tokens_of = (has_several && features.rates.limits_deliveries())
            .then_some(TokenHome { group: self.group, queue: self.id });
        settings
    }

    /// Who paused it, and since when. `None`: it is not paused.
    pub fn pause(&self) -> Option<&QueuePause> {
        self.pause.as_deref()
    }

    /// What policies say of it. `None`: nothing.
    pub fn governed(&self) -> Option<&Governed> {
        self.governed.as_deref()
    }

    /// What who publishes to it must know, as it is now.
    pub(super) fn target_now(&self) -> Target {
        let is_history = exchange_of(&self.name).is_some();
        let plain = Target { is_history, ..Target::plain(self.id, self.group) };
        let Some(features) = self.features() else { return plain };
        let refuses = features.overflow != Overflow::DropHead && features.has_length_limit();
        let enqueue = features.rates.enqueue;
        let burst = enqueue.map_or(0, |rate| rate.default_burst());
        Target {
            max_priority: features.max_priority,
            is_guarded: refuses || enqueue.is_some(),
            asked_max: u32::try_from(burst).unwrap_or(u32::MAX),
            dedups: features.dedup.is_some(),
            has_partitions: !self.more.is_empty(),
            ..plain
        }
    }

    /// Where it lives, and with whom it goes.
    pub fn home(&self) -> QueueHome {
        match (self.exclusive, self.node) {
            (Some(owner), _) => QueueHome::Session(owner),
            (None, Some(node)) => QueueHome::Node(node),
            (None, None) => QueueHome::Group,
        }
    }

    /// What it is as declared: without what policies say.
    pub fn declared(&self) -> &QueueSpec {
        &self.spec
    }

    /// What it is now, apart from its name and its place: as declared, and as policies say.
    pub fn spec(&self) -> &QueueSpec {
        self.under.as_deref().unwrap_or(&self.spec)
    }

    pub fn queue_type(&self) -> QueueType {
        self.spec.queue_type
    }

    /// What its group has to know.
    pub fn settings(&self) -> &QueueSettings {
        &self.spec().settings
    }

    /// What its arguments ask for beyond a plain queue. None: nothing.
    pub fn features(&self) -> Option<&Features> {
        self.spec().settings.features.as_deref()
    }

    /// Where its dead letters go; the empty name is the default exchange. None: they are dropped.
    pub fn dead_letter_exchange(&self) -> Option<&str> {
        self.spec().dead_letter.as_ref().map(|dead_letter| dead_letter.exchange.as_str())
    }

    /// None: they keep their keys.
    pub fn dead_letter_key(&self) -> Option<&str> {
        self.spec().dead_letter.as_ref()?.key.as_deref()
    }

    /// How long a consumer may hold a message. None: it is not said.
    pub fn consumer_timeout_ms(&self) -> Option<u64> {
        self.spec().consumer_timeout_ms
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

    /// The same for who publishes to it by its name. None: it takes no messages.
    pub(super) fn addressed(&self) -> Option<Target> {
        self.settings().subscription().is_none().then_some(self.target)
    }

    /// Where a message for it goes, and what who publishes it must know.
    pub fn target(&self) -> Target {
        self.target
    }
}

/// A queue that is to be made. What it needs in addition the catalog has: a number and a place.
#[derive(Clone, Debug)]
pub(super) struct NewQueue {
    pub(super) vhost: String,
    pub(super) name: String,
    pub(super) home: QueueHome,
    pub(super) spec: QueueSpec,
    /// As the client gave them.
    pub(super) arguments: Arguments,
}
