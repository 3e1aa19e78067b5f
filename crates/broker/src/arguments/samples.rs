//! A catalog to declare things in, for the tests of these rules.

use machine::{
    Applied, Catalog, CatalogCommand, CatalogReply, NodeId, SessionId, SessionOwner, Value, Version,
};

pub(super) struct Node {
    pub(super) catalog: Catalog,
    index: u64,
}

impl Node {
    /// Of a cluster that has agreed on specs.
    pub(super) fn new() -> Self {
        let mut node = Self::before8();
        node.apply(CatalogCommand::RaiseVersion { to: Version::SPECS });
        node
    }

    pub(super) fn before8() -> Self {
        Self { catalog: Catalog::new(4), index: 0 }
    }

    pub(super) fn agreed(&self) -> Version {
        self.catalog.agreed()
    }

    pub(super) fn apply(&mut self, command: CatalogCommand) {
        let reply = self.try_apply(command);
        assert!(!matches!(reply, CatalogReply::Refused(_)), "{reply:?}");
    }

    pub(super) fn try_apply(&mut self, command: CatalogCommand) -> CatalogReply {
        self.index += 1;
        let at = Applied { index: self.index, time_ms: 0 };
        self.catalog.apply(at, command, &mut Vec::new())
    }

    pub(super) fn owner(session: u64) -> SessionOwner {
        SessionOwner { node: NodeId(1), session: SessionId(session) }
    }
}

pub(super) fn text(text: &str) -> Value {
    Value::LongStr(text.into())
}
