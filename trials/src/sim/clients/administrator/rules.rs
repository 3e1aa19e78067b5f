//! What policies make of a queue, as RabbitMQ's documentation has it and written down without a look at the product: what
//! every node's catalog and every replica are held against.

use machine::{
    AppliesTo, Arguments, DeadLetter, Features, Overflow, PolicyKind, PolicyRules, PolicySpec,
    QueueSpec, QueueType,
};

/// The names that a policy is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    All,
    Beginning(&'static str),
    One(&'static str),
}

/// A policy by what it says, whether it is there or not.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) names: Names,
    pub(super) applies_to: AppliesTo,
    /// No two policies of a kind in a vhost have the same.
    pub(super) priority: i32,
    pub(super) rules: PolicyRules,
}

impl Names {
    pub(super) fn has(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Beginning(with) => name.starts_with(with),
            Self::One(one) => name == one,
        }
    }

    fn pattern(self) -> String {
        match self {
            Self::All => ".*".to_owned(),
            Self::Beginning(with) => format!("^{with}"),
            Self::One(one) => format!("^{one}$"),
        }
    }
}

impl Rule {
    pub(super) fn spec(&self) -> PolicySpec {
        PolicySpec {
            pattern: self.names.pattern(),
            applies_to: self.applies_to,
            priority: self.priority,
            rules: self.rules.clone(),
            definition: Arguments::new(),
        }
    }

    /// Whether it is about a queue of this name and type.
    pub(super) fn is_about(&self, name: &str, queue_type: QueueType) -> bool {
        let is_type = match self.applies_to {
            AppliesTo::All | AppliesTo::Queues => true,
            AppliesTo::ClassicQueues => queue_type == QueueType::Classic,
            AppliesTo::QuorumQueues => queue_type == QueueType::Quorum,
            AppliesTo::Streams => queue_type == QueueType::Stream,
            AppliesTo::Exchanges => false,
        };
        is_type && self.names.has(name)
    }
}

/// What a queue that was declared so is under these policies.
pub(super) fn governed<'a>(
    declared: &QueueSpec,
    name: &str,
    policies: impl Iterator<Item = (PolicyKind, &'a Rule)> + Clone,
) -> QueueSpec {
    let counts = |kind: PolicyKind| {
        let about = policies
            .clone()
            .filter(|(of, rule)| *of == kind && rule.is_about(name, declared.queue_type));
        let highest = about.max_by_key(|(_, rule)| rule.priority);
        highest.map(|(_, rule)| rule.rules.clone()).unwrap_or_default()
    };
    let (user, operator) = (counts(PolicyKind::User), counts(PolicyKind::Operator));
    let own = declared.settings.features.as_deref().cloned().unwrap_or_default();
    let mut spec = declared.clone();
    let mut features = own.clone();
    let least = |own: Option<u64>, of: fn(&PolicyRules) -> Option<u64>| {
        [own, of(&user), of(&operator)].into_iter().flatten().min()
    };
    features.message_ttl_ms = least(own.message_ttl_ms, |rules| rules.message_ttl_ms);
    features.expires_ms = least(own.expires_ms, |rules| rules.expires_ms);
    features.max_length = least(own.max_length, |rules| rules.max_length);
    features.max_length_bytes = least(own.max_length_bytes, |rules| rules.max_length_bytes);
    spec.consumer_timeout_ms =
        least(declared.consumer_timeout_ms, |rules| rules.consumer_timeout_ms);
    if declared.queue_type == QueueType::Quorum {
        let limits = [own.delivery_limit, user.delivery_limit, operator.delivery_limit];
        features.delivery_limit = limits.into_iter().flatten().min();
    }
    if own.overflow == Overflow::DropHead
        && let Some(overflow) = operator.overflow.or(user.overflow)
    {
        features.overflow = overflow;
    }
    // The queue's own word counts before that of policies.
    let exchange = operator.dead_letter_exchange.or(user.dead_letter_exchange);
    let key = operator.dead_letter_key.or(user.dead_letter_key);
    spec.dead_letter = match (spec.dead_letter, exchange) {
        (Some(DeadLetter { exchange, key: own }), _) => {
            Some(DeadLetter { exchange, key: own.or(key) })
        }
        (None, Some(exchange)) => Some(DeadLetter { exchange, key }),
        (None, None) => None,
    };
    features.dead_letters = spec.dead_letter.is_some();
    spec.settings.features = (features != Features::default()).then(|| Box::new(features));
    spec
}

#[cfg(test)]
mod tests {
    use machine::QueueSettings;

    use super::*;

    fn plain() -> QueueSpec {
        QueueSpec {
            queue_type: QueueType::Classic,
            settings: QueueSettings { is_durable: true, ..QueueSettings::default() },
            dead_letter: None,
            consumer_timeout_ms: None,
            members: None,
            partitions: 1,
        }
    }

    fn rule(names: Names, priority: i32, rules: PolicyRules) -> Rule {
        Rule { names, applies_to: AppliesTo::Queues, priority, rules }
    }

    #[test]
    fn of_a_kind_the_highest_counts_and_limits_of_both_kinds_do() {
        let length = |length| PolicyRules { max_length: Some(length), ..PolicyRules::default() };
        let user = [
            (PolicyKind::User, rule(Names::All, 1, length(5))),
            (PolicyKind::User, rule(Names::One("q"), 2, length(9))),
            (PolicyKind::Operator, rule(Names::Beginning("q"), 0, length(7))),
        ];
        let max = |name| {
            let policies = user.iter().map(|(kind, rule)| (*kind, rule));
            let spec = governed(&plain(), name, policies);
            spec.settings.features.and_then(|features| features.max_length)
        };
        assert_eq!((max("q"), max("q2"), max("other")), (Some(7), Some(5), Some(5)));
    }

    #[test]
    fn a_queue_without_policies_is_as_declared() {
        assert_eq!(governed(&plain(), "q", std::iter::empty()), plain());
    }
}
