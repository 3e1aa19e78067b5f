//! Queues: what they are, who may use them, and which declarations are refused.

mod arguments;
mod kind;
mod spec;
mod store;

use super::compare::plain;
use super::refusal::{Difference, Kind, Property, Refusal};
use super::routing::Target;
use super::{Catalog, CatalogCommand, check_name, check_not_reserved};
use crate::ids::{GroupId, NodeId, QueueId, SessionOwner};
use crate::settings::{Features, QueueSettings};
use crate::value::{Arguments, Value};
pub use kind::QueueType;
pub(super) use spec::QueueSpec;
pub(super) use store::NewQueue;

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
    /// What the arguments mean.
    pub(super) spec: QueueSpec,
    /// What who publishes to it must know.
    pub(super) target: Target,
}

impl Queue {
    pub fn queue_type(&self) -> QueueType {
        self.spec.queue_type
    }

    /// What its group has to know.
    pub fn settings(&self) -> &QueueSettings {
        &self.spec.settings
    }

    /// What its arguments ask for beyond a plain queue. None: nothing.
    pub fn features(&self) -> Option<&Features> {
        self.spec.settings.features.as_deref()
    }

    /// Where its dead letters go; the empty name is the default exchange. None: they are dropped.
    pub fn dead_letter_exchange(&self) -> Option<&str> {
        self.spec.dead_letter.as_ref().map(|dead_letter| dead_letter.exchange.as_str())
    }

    /// None: they keep their keys.
    pub fn dead_letter_key(&self) -> Option<&str> {
        self.spec.dead_letter.as_ref()?.key.as_deref()
    }

    /// How long a consumer may hold a message. None: it is not said.
    pub fn consumer_timeout_ms(&self) -> Option<u64> {
        self.spec.consumer_timeout_ms
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
        let queue_type = arguments::type_of(arguments);
        if *server_named && queue_type != QueueType::Classic {
            return Err(Refusal::ServerNamed { queue_type });
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
            let value = queue_type.name().to_owned();
            return Err(Refusal::NotImplemented { argument: arguments::TYPE, value });
        }
        self.check_arguments(vhost, arguments)?;
        self.check_queue_count()
    }

    /// Whether there may be one more.
    pub(super) fn check_queue_count(&self) -> Result<(), Refusal> {
        let max = self.bounds.queues;
        if self.queue_names.len() >= max {
            return Err(Refusal::LimitReached { kind: Kind::Queue, max });
        }
        Ok(())
    }
}
