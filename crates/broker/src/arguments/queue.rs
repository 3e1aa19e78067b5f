//! A declaration of a queue: whether RabbitMQ takes it.
//!
//! The order of the checks is RabbitMQ's, because a client is told only the first thing that is wrong.

mod checks;
mod known;
mod spec;
#[cfg(test)]
mod tests;

use machine::{
    Arguments, Catalog, CatalogCommand, Kind, Queue, QueueHome, QueueType, Refusal, SessionOwner,
    Value, Version,
};

use super::error::{DeclareError, Difference, Property};
use super::{compare, names};

/// What a client declares.
#[derive(Clone, Debug)]
pub struct Declaration {
    pub vhost: String,
    pub name: String,
    pub durable: bool,
    pub auto_delete: bool,
    pub exclusive: bool,
    /// The client did not choose the name, so it may begin with `amq.`.
    pub server_named: bool,
    pub arguments: Arguments,
    pub by: SessionOwner,
}

impl Declaration {
    /// With the type that its vhost gives to queues that name none, where such a queue can be of that type. One that is
    /// there with another type is meant as it is: its clients come back after the vhost's type was changed.
    #[must_use]
    pub(crate) fn with_default_type(mut self, catalog: &Catalog) -> Self {
        let vhost = catalog.vhost(&self.vhost);
        let default = vhost.and_then(|vhost| vhost.metadata.default_queue_type);
        let is_kept = self.durable && !self.exclusive && !self.auto_delete;
        let is_kept = is_kept && !self.name.starts_with("amq.");
        let has_type = self.arguments.find(known::TYPE).is_some();
        let existing = catalog.queue(&self.vhost, &self.name).map(Queue::queue_type);
        let default = default.filter(|default| existing.is_none_or(|it| it == *default));
        if let (Some(queue_type), true, false) = (default, is_kept, has_type) {
            let name = Value::LongStr(queue_type.name().as_bytes().to_vec());
            self.arguments = self.arguments.with(known::TYPE, name);
        }
        self
    }

    /// Whether RabbitMQ would take it, as far as this node's copy of the catalog knows. Whether there is room, and
    /// whether there is such a vhost, is the catalog's to say.
    pub(crate) fn judge(&self, catalog: &Catalog) -> Result<(), DeclareError> {
        if catalog.vhost(&self.vhost).is_none() {
            return Ok(());
        }
        if !self.server_named {
            names::check_not_reserved(Kind::Queue, &self.name)?;
        }
        if !self.arguments.is_within_limits() {
            return Err(Refusal::ArgumentsTooLarge.into());
        }
        match catalog.queue(&self.vhost, &self.name) {
            Some(existing) => self.judge_again(existing),
            None => self.judge_new(catalog),
        }
    }

    /// Whether it means the queue that there is.
    pub(crate) fn judge_again(&self, existing: &Queue) -> Result<(), DeclareError> {
        let (name, vhost) = (self.name.clone(), self.vhost.clone());
        if existing.exclusive != self.exclusive.then_some(self.by) {
            return Err(Refusal::Locked { name, vhost }.into());
        }
        self.compare(existing).map_err(|difference| DeclareError::Inequivalent {
            kind: Kind::Queue,
            name,
            vhost,
            difference: Box::new(difference),
        })
    }

    fn compare(&self, existing: &Queue) -> Result<(), Difference> {
        // An exclusive queue is not durable, whatever was asked for.
        let is_exclusive = existing.exclusive.is_some();
        let [durable, current] =
            [self.durable, existing.durable].map(|is_so| is_so && !is_exclusive);
        compare::property("durable", Value::Bool(durable), Value::Bool(current))?;
        let (received, current) = (self.auto_delete, existing.auto_delete);
        compare::property("auto_delete", Value::Bool(received), Value::Bool(current))?;
        known::compare(&self.arguments, &existing.arguments)
    }

    /// The stream that it is to read, if it is a subscription.
    pub(crate) fn reads(&self) -> Option<&str> {
        let is_one = known::type_of(&self.arguments) == QueueType::Subscription;
        self.arguments.find(known::READS).filter(|_| is_one)?.text()
    }

    fn stream<'c>(&self, catalog: &'c Catalog) -> Option<&'c Queue> {
        let stream = catalog.queue(&self.vhost, self.reads()?);
        stream.filter(|queue| queue.settings().is_stream())
    }

    fn judge_new(&self, catalog: &Catalog) -> Result<(), DeclareError> {
        let agreed = catalog.agreed();
        let queue_type = known::type_of(&self.arguments);
        if self.server_named && queue_type != QueueType::Classic {
            return Err(DeclareError::ServerNamed { queue_type });
        }
        names::check_possible(Kind::Queue, &self.name)?;
        known::validate(&self.vhost, &self.name, &self.arguments)?;
        if let Some((argument, value)) = known::not_there(&self.arguments, agreed) {
            return Err(DeclareError::NotImplemented { argument, value });
        }
        match queue_type {
            QueueType::Classic => Ok(()),
            QueueType::Quorum => self.check_properties(),
            QueueType::Stream | QueueType::Subscription => {
                self.check_properties()?;
                if queue_type == QueueType::Subscription && self.stream(catalog).is_none() {
                    let name = self.reads().unwrap_or_default().to_owned();
                    let (kind, vhost) = (Kind::Queue, self.vhost.clone());
                    return Err(Refusal::NotFound { kind, name, vhost }.into());
                }
                if agreed >= Version::STREAMS {
                    return Ok(());
                }
                // Some node of the cluster is too old for it.
                let value = queue_type.name().to_owned();
                Err(DeclareError::NotImplemented { argument: known::TYPE, value })
            }
        }
    }

    /// What is kept by several nodes is durable, shared and stays.
    fn check_properties(&self) -> Result<(), DeclareError> {
        for (is_so, property) in [
            (self.auto_delete, Property::AutoDelete),
            (self.exclusive, Property::Exclusive),
            (!self.durable, Property::NonDurable),
        ] {
            if is_so {
                let (name, vhost) = (self.name.clone(), self.vhost.clone());
                return Err(DeclareError::InvalidProperty { name, vhost, property });
            }
        }
        Ok(())
    }

    /// Where it is to live.
    fn home(&self) -> QueueHome {
        match (self.exclusive, self.durable) {
            (true, _) => QueueHome::Session(self.by),
            (false, true) => QueueHome::Group,
            (false, false) => QueueHome::Node(self.by.node),
        }
    }

    /// What the catalog is asked for, if it is like this.
    pub fn into_command_for(self, catalog: &Catalog) -> CatalogCommand {
        let reads = self.stream(catalog);
        self.into_command_that_reads(catalog.agreed(), reads)
    }

    /// The same of no subscription, in a cluster that has agreed on this version.
    pub fn into_command(self, agreed: Version) -> CatalogCommand {
        self.into_command_that_reads(agreed, None)
    }

    fn into_command_that_reads(self, agreed: Version, reads: Option<&Queue>) -> CatalogCommand {
        if agreed >= Version::SPECS {
            let home = self.home();
            let spec = Box::new(spec::of(home, self.auto_delete, &self.arguments, reads));
            let Self { vhost, name, arguments, .. } = self;
            return CatalogCommand::CreateQueue { vhost, name, home, spec, arguments };
        }
        let Self { vhost, name, durable, auto_delete, exclusive, server_named, arguments, by } =
            self;
        CatalogCommand::DeclareQueue {
            vhost,
            name,
            durable,
            auto_delete,
            exclusive,
            server_named,
            arguments,
            by,
        }
    }
}
