//! Exchanges: what they are.

mod kind;
mod spec;

use super::policies::Governed;
use super::routing::Routes;
use super::target::Target;
use crate::ids::NodeId;
use crate::value::{Arguments, Headers, ValueView};

pub use kind::ExchangeKind;
pub use spec::{ExchangeSpec, HashBy};

/// A message with this header, true, is not kept.
const NO_STORE: &str = "x-recent-history-no-store";

/// One exchange.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub name: String,
    pub durable: bool,
    pub auto_delete: bool,
    pub internal: bool,
    /// As the client gave them.
    pub arguments: Arguments,
    /// Its kind, and what the arguments mean.
    pub(super) spec: ExchangeSpec,
    /// What policies say of it.
    pub(super) governed: Option<Box<Governed>>,
    /// Of a transient one: the node that declared it.
    pub node: Option<NodeId>,
    /// Of one of recent history: the queue that has its last messages.
    pub(super) history: Option<Target>,
    pub(super) routes: Routes,
}

impl Exchange {
    /// The name of the exchange of events, which RabbitMQ's plugin gives it.
    pub const EVENTS: &str = "amq.rabbitmq.event";
    /// The name of every vhost's exchange of traces.
    pub const TRACES: &str = "amq.rabbitmq.trace";

    /// Durable, without flags.
    pub(super) fn new(name: String, spec: ExchangeSpec, arguments: Arguments) -> Self {
        Self {
            name,
            durable: true,
            auto_delete: false,
            internal: false,
            node: None,
            governed: None,
            history: None,
            routes: Routes::new(&spec),
            spec,
            arguments,
        }
    }

    pub(super) fn with_flags(mut self, durable: bool, auto_delete: bool, internal: bool) -> Self {
        self.durable = durable;
        self.auto_delete = auto_delete;
        self.internal = internal;
        self
    }

    pub(super) fn of_node(mut self, node: Option<NodeId>) -> Self {
        self.node = node;
        self
    }

    /// What it is, apart from its name, its flags and its place.
    pub fn spec(&self) -> &ExchangeSpec {
        &self.spec
    }

    pub fn kind(&self) -> ExchangeKind {
        self.spec.kind
    }

    /// How it routes: of a delayed exchange, the kind inside.
    pub fn routing(&self) -> ExchangeKind {
        self.spec.routing
    }

    /// Where a message goes that this exchange has no destination for.
    pub fn alternate(&self) -> Option<&str> {
        let governed = || self.governed.as_ref()?.rules.alternate.as_deref();
        self.spec.alternate.as_deref().or_else(governed)
    }

    /// What policies say of it. `None`: nothing.
    pub fn governed(&self) -> Option<&Governed> {
        self.governed.as_deref()
    }

    /// Whether messages that say when they are due are meant to wait.
    pub fn delays(&self) -> bool {
        self.spec.kind == ExchangeKind::DelayedMessage
    }

    /// The queue with the last messages, which is to be copied to a queue that is bound newly.
    pub fn history(&self) -> Option<Target> {
        self.history
    }

    /// The queue, if it is to have this message.
    pub(super) fn history_for(&self, headers: &dyn Headers) -> Option<Target> {
        self.history.filter(|_| headers.find(NO_STORE) != Some(ValueView::Bool(true)))
    }

    /// Where events are published, in the vhost that every cluster begins with, from `Version::EVENTS` on.
    pub(super) fn of_events() -> Self {
        let spec = ExchangeSpec::plain(ExchangeKind::Topic);
        Self::new(Self::EVENTS.to_owned(), spec, Arguments::new()).with_flags(true, false, true)
    }

    /// What every vhost has.
    pub(super) fn predeclared() -> impl Iterator<Item = Self> {
        use ExchangeKind as K;
        [
            ("", K::Direct),
            ("amq.direct", K::Direct),
            ("amq.fanout", K::Fanout),
            ("amq.headers", K::Headers),
            ("amq.match", K::Headers),
            (Self::TRACES, K::Topic),
            ("amq.topic", K::Topic),
        ]
        .into_iter()
        .map(|(name, kind)| {
            let internal = name == Self::TRACES;
            Self::new(name.to_owned(), ExchangeSpec::plain(kind), Arguments::new())
                .with_flags(true, false, internal)
        })
    }
}
