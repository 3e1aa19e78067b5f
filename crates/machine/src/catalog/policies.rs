//! Policies: what operators say of queues and exchanges, by patterns on their names.
//!
//! Of those that match, the one with the highest priority counts, and beside it one of the operator's own kind, whose
//! limits nobody exceeds. What a policy says is typed: which words RabbitMQ has for it is the broker's to know
//! (`broker::policy`). What follows for a queue is not stored: it is looked up again when a policy or a queue comes.

mod foreseen;
mod rules;

use std::collections::BTreeMap;

use super::history_names::exchange_of;
use super::queues::kind::QueueType;
use super::queues::spec::QueueSpec;
use super::users::Pattern;
use crate::encoding::{Corrupt, Reader, put_text};
use crate::value::Arguments;
pub use foreseen::{Foreseen, PolicyChange};
pub use rules::PolicyRules;

/// What a policy is, apart from its name and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySpec {
    /// A regular expression on names, anchored only by its own `^` and `$`.
    pub pattern: String,
    pub applies_to: AppliesTo,
    pub priority: i32,
    pub rules: PolicyRules,
    /// As the operator gave it.
    pub definition: Arguments,
}

/// What a policy is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliesTo {
    All,
    Queues,
    Exchanges,
    ClassicQueues,
    QuorumQueues,
    Streams,
}

/// Whose policy it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyKind {
    /// Of who administrates the vhost.
    User,
    /// Of who runs the cluster: its limits count beside all others.
    Operator,
}

/// What a policy may match.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject {
    Queue(QueueType),
    Exchange,
}

/// One policy.
#[derive(Clone, Debug)]
pub struct Policy {
    pub name: String,
    pub spec: PolicySpec,
    matches: Pattern,
}

/// The policies of a vhost.
#[derive(Clone, Debug, Default)]
pub(super) struct Policies {
    user: BTreeMap<String, Policy>,
    operator: BTreeMap<String, Policy>,
}

/// What policies make of a queue or exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Governed {
    /// The names of the policies that count.
    pub policy: Option<String>,
    pub operator_policy: Option<String>,
    /// What both say together.
    pub rules: PolicyRules,
}

impl AppliesTo {
    pub const EACH: [Self; 6] = [
        Self::All,
        Self::Queues,
        Self::Exchanges,
        Self::ClassicQueues,
        Self::QuorumQueues,
        Self::Streams,
    ];

    /// RabbitMQ's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Queues => "queues",
            Self::Exchanges => "exchanges",
            Self::ClassicQueues => "classic_queues",
            Self::QuorumQueues => "quorum_queues",
            Self::Streams => "streams",
        }
    }

    fn is_about(self, subject: Subject) -> bool {
        match (self, subject) {
            (Self::All, _) => true,
            (Self::Queues, Subject::Queue(_)) => true,
            (Self::Exchanges, Subject::Exchange) => true,
            (Self::ClassicQueues, Subject::Queue(kind)) => kind == QueueType::Classic,
            (Self::QuorumQueues, Subject::Queue(kind)) => kind == QueueType::Quorum,
            (Self::Streams, Subject::Queue(kind)) => kind == QueueType::Stream,
            (Self::Queues, Subject::Exchange)
            | (Self::Exchanges, Subject::Queue(_))
            | (Self::ClassicQueues | Self::QuorumQueues | Self::Streams, Subject::Exchange) => {
                false
            }
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::All => 0,
            Self::Queues => 1,
            Self::Exchanges => 2,
            Self::ClassicQueues => 3,
            Self::QuorumQueues => 4,
            Self::Streams => 5,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::EACH.into_iter().find(|it| it.number() == number)
    }
}

impl PolicyKind {
    pub(super) fn is_operator(self) -> bool {
        self == Self::Operator
    }

    pub(super) fn of(is_operator: bool) -> Self {
        if is_operator { Self::Operator } else { Self::User }
    }
}

impl PolicySpec {
    /// Pattern, what it is about, priority, rules, definition.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.pattern);
        out.push(self.applies_to.number());
        out.extend_from_slice(&self.priority.to_be_bytes());
        self.rules.encode(out);
        self.definition.encode(out);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        const OTHER: Corrupt = Corrupt::newer("a policy of another version");
        let pattern = reader.string()?;
        let applies_to = AppliesTo::from_number(reader.u8()?).ok_or(OTHER)?;
        let mut priority = [0; 4];
        for byte in &mut priority {
            *byte = reader.u8()?;
        }
        let priority = i32::from_be_bytes(priority);
        let rules = PolicyRules::read(reader)?;
        Ok(Self { pattern, applies_to, priority, rules, definition: Arguments::read(reader)? })
    }
}

impl Policy {
    /// Of a snapshot: a pattern that this version does not take matches nothing.
    pub(super) fn accepted(name: String, spec: PolicySpec) -> Self {
        let matches = Pattern::accepted(&spec.pattern);
        Self { name, spec, matches }
    }

    /// Of several the one with the highest rank counts. Of equal priority that is the first name: the same on all nodes.
    fn rank(&self) -> (i32, std::cmp::Reverse<&str>) {
        (self.spec.priority, std::cmp::Reverse(&self.name))
    }

    pub(super) fn is_about(&self, subject: Subject, name: &str) -> bool {
        self.spec.applies_to.is_about(subject) && self.matches.allows(name)
    }
}

impl Policies {
    pub(super) fn of(&self, kind: PolicyKind) -> &BTreeMap<String, Policy> {
        match kind {
            PolicyKind::User => &self.user,
            PolicyKind::Operator => &self.operator,
        }
    }

    pub(super) fn insert(&mut self, kind: PolicyKind, policy: Policy) -> Option<Policy> {
        self.of_mut(kind).insert(policy.name.clone(), policy)
    }

    pub(super) fn of_mut(&mut self, kind: PolicyKind) -> &mut BTreeMap<String, Policy> {
        match kind {
            PolicyKind::User => &mut self.user,
            PolicyKind::Operator => &mut self.operator,
        }
    }

    /// Those of one kind that are about something: the one that counts first.
    pub(super) fn about(&self, kind: PolicyKind, subject: Subject, name: &str) -> Vec<&Policy> {
        let all = self.of(kind).values().filter(|policy| policy.is_about(subject, name));
        let mut all: Vec<&Policy> = all.collect();
        all.sort_by(|one, other| other.rank().cmp(&one.rank()));
        all
    }

    /// What they say of a queue. Of what the cluster keeps for itself they say nothing.
    pub(super) fn govern_queue(&self, kind: QueueType, name: &str) -> Option<Box<Governed>> {
        if exchange_of(name).is_some() {
            return None;
        }
        self.govern(Subject::Queue(kind), name)
    }

    /// What they say of something. `None`: nothing.
    pub(super) fn govern(&self, subject: Subject, name: &str) -> Option<Box<Governed>> {
        let best = |policies: &BTreeMap<String, Policy>| {
            let about = policies.values().filter(|policy| policy.is_about(subject, name));
            about.max_by_key(|policy| policy.rank()).map(|policy| policy.name.clone())
        };
        let (policy, operator_policy) = (best(&self.user), best(&self.operator));
        if policy.is_none() && operator_policy.is_none() {
            return None;
        }
        let rules = |kind, name: &Option<String>| {
            let found = name.as_ref().and_then(|name| self.of(kind).get(name));
            found.map(|policy| policy.spec.rules.clone()).unwrap_or_default()
        };
        let own = rules(PolicyKind::User, &policy);
        let rules = own.under(rules(PolicyKind::Operator, &operator_policy));
        Some(Box::new(Governed { policy, operator_policy, rules }))
    }
}

/// What a queue is under its policies. `None`: what it is without them.
pub(super) fn governed_spec(
    spec: &QueueSpec,
    governed: Option<&Governed>,
) -> Option<Box<QueueSpec>> {
    let governed = governed?;
    let changed = governed.rules.laid_over(spec);
    (changed != *spec).then(|| Box::new(changed))
}
