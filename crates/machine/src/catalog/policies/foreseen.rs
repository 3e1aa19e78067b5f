//! What a policy would change, before it is there.

use super::{Governed, Policy, PolicyKind, PolicySpec, Subject};
use crate::catalog::queues::Queue;
use crate::catalog::vhosts::Vhost;

/// What a policy would be about.
#[derive(Debug)]
pub struct Foreseen<'a> {
    /// Queues that it matches.
    pub matches: usize,
    /// Queues that others would govern, or that would be governed otherwise, by name.
    pub changes: Vec<PolicyChange<'a>>,
}

/// A queue, and the policies that count for it now and then.
#[derive(Debug)]
pub struct PolicyChange<'a> {
    pub queue: &'a Queue,
    pub before: Option<&'a Governed>,
    pub after: Option<Box<Governed>>,
}

impl<'a> Foreseen<'a> {
    /// What `PutPolicy` would do to the queues of its vhost, if it is not refused. Nothing is changed.
    pub fn of(vhost: &'a Vhost, name: &str, kind: PolicyKind, spec: &PolicySpec) -> Self {
        let policy = Policy::accepted(name.to_owned(), spec.clone());
        let mut policies = vhost.policies.clone();
        policies.insert(kind, policy.clone());
        let (mut matches, mut changes) = (0, Vec::new());
        for queue in vhost.queues() {
            let subject = Subject::Queue(queue.queue_type());
            matches += usize::from(policy.is_about(subject, &queue.name));
            let after = policies.govern_queue(queue.queue_type(), &queue.name);
            if after.as_deref() != queue.governed() {
                changes.push(PolicyChange { queue, before: queue.governed(), after });
            }
        }
        Self { matches, changes }
    }
}
