//! A catalog to give commands to, and short ways to say them.

use machine::{
    Applied, Arguments, BindingChange, Catalog, CatalogCommand, CatalogEffect, CatalogReply,
    Destination, ExchangeKind, NodeId, QueueId, SessionId, SessionOwner, Value,
};

/// All kinds of exchanges that every version has.
pub(crate) const KINDS: [ExchangeKind; 9] = [
    ExchangeKind::Direct,
    ExchangeKind::Fanout,
    ExchangeKind::Topic,
    ExchangeKind::Headers,
    ExchangeKind::DelayedMessage,
    ExchangeKind::ConsistentHash,
    ExchangeKind::Random,
    ExchangeKind::ModulusHash,
    ExchangeKind::RecentHistory,
];

pub(crate) struct World {
    pub(crate) catalog: Catalog,
    pub(crate) effects: Vec<CatalogEffect>,
    index: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { catalog: Catalog::new(4), effects: Vec::new(), index: 0 }
    }

    /// After every change a snapshot must give the same catalog.
    pub(crate) fn apply(&mut self, command: CatalogCommand) -> CatalogReply {
        let reply = self.apply_unchecked(command);
        let restored = Catalog::restore(&self.catalog.snapshot()).expect("our own snapshot");
        assert_eq!(restored.digest(), self.catalog.digest());
        self.catalog = restored;
        reply
    }

    pub(crate) fn apply_unchecked(&mut self, command: CatalogCommand) -> CatalogReply {
        self.index += 1;
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        assert_eq!(CatalogCommand::decode(&bytes).as_ref(), Ok(&command));
        let is_refused = self.catalog.check(&command).is_err();
        let at = Applied { index: self.index, time_ms: 0 };
        let reply = self.catalog.apply(at, command, &mut self.effects);
        assert_eq!(matches!(reply, CatalogReply::Refused(_)), is_refused);
        reply
    }

    pub(crate) fn owner(session: u64) -> SessionOwner {
        SessionOwner { node: NodeId(1), session: SessionId(session) }
    }

    /// A plain durable queue.
    pub(crate) fn declare(&self, name: &str) -> CatalogCommand {
        CatalogCommand::DeclareQueue {
            vhost: "/".into(),
            name: name.into(),
            durable: true,
            auto_delete: false,
            exclusive: false,
            server_named: false,
            arguments: Arguments::new(),
            by: Self::owner(1),
        }
    }

    pub(crate) fn queue(&mut self, name: &str) -> QueueId {
        let reply = self.apply_unchecked(self.declare(name));
        let CatalogReply::QueueDeclared { queue, created: true, .. } = reply else {
            panic!("{reply:?}");
        };
        queue
    }

    pub(crate) fn with_flags(
        &self,
        mut command: CatalogCommand,
        is_durable: bool,
        is_auto_delete: bool,
        is_exclusive: bool,
    ) -> CatalogCommand {
        if let CatalogCommand::DeclareQueue { durable, auto_delete, exclusive, .. } = &mut command {
            (*durable, *auto_delete, *exclusive) = (is_durable, is_auto_delete, is_exclusive);
        }
        command
    }

    pub(crate) fn with_argument(
        &self,
        mut command: CatalogCommand,
        name: &str,
        value: Value,
    ) -> CatalogCommand {
        match &mut command {
            CatalogCommand::DeclareQueue { arguments, .. }
            | CatalogCommand::DeclareExchange { arguments, .. } => {
                arguments.0.push((name.into(), value));
            }
            other => panic!("{other:?}"),
        }
        command
    }

    pub(crate) fn by(&self, mut command: CatalogCommand, session: u64) -> CatalogCommand {
        match &mut command {
            CatalogCommand::DeclareQueue { by, .. }
            | CatalogCommand::DeclareExchange { by, .. } => *by = Self::owner(session),
            other => panic!("{other:?}"),
        }
        command
    }

    pub(crate) fn delete(&self, name: &str) -> CatalogCommand {
        CatalogCommand::DeleteQueue { vhost: "/".into(), name: name.into(), queue: None, by: None }
    }

    pub(crate) fn exchange(&self, name: &str, kind: ExchangeKind, durable: bool) -> CatalogCommand {
        CatalogCommand::DeclareExchange {
            vhost: "/".into(),
            name: name.into(),
            kind,
            durable,
            auto_delete: false,
            internal: false,
            arguments: Arguments::new(),
            by: Self::owner(1),
        }
    }

    pub(crate) fn auto_delete_exchange(&self, name: &str) -> CatalogCommand {
        let mut command = self.exchange(name, ExchangeKind::Fanout, true);
        if let CatalogCommand::DeclareExchange { auto_delete, .. } = &mut command {
            *auto_delete = true;
        }
        command
    }

    pub(crate) fn delete_exchange(name: &str, if_unused: bool) -> CatalogCommand {
        CatalogCommand::DeleteExchange { vhost: "/".into(), name: name.into(), if_unused }
    }

    pub(crate) fn bind(source: &str, destination: Destination, key: &str) -> CatalogCommand {
        Self::binding(true, source, destination, key, Arguments::new(), None)
    }

    pub(crate) fn unbind(source: &str, destination: Destination, key: &str) -> CatalogCommand {
        Self::binding(false, source, destination, key, Arguments::new(), None)
    }

    pub(crate) fn binding(
        is_bind: bool,
        source: &str,
        destination: Destination,
        key: &str,
        arguments: Arguments,
        by: Option<SessionOwner>,
    ) -> CatalogCommand {
        let (vhost, source, key) = ("/".into(), source.into(), key.into());
        if is_bind {
            CatalogCommand::Bind(BindingChange { vhost, source, destination, key, arguments, by })
        } else {
            CatalogCommand::Unbind(BindingChange { vhost, source, destination, key, arguments, by })
        }
    }

    pub(crate) fn permissions(user: &str, vhost: &str, texts: [&str; 3]) -> CatalogCommand {
        let [configure, write, read] = texts.map(str::to_owned);
        let (user, vhost) = (user.into(), vhost.into());
        CatalogCommand::SetPermissions { user, vhost, configure, write, read }
    }
}
