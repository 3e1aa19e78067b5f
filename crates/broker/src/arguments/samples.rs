//! A catalog to declare things in, for the tests of these rules.

use machine::{
    Applied, Catalog, CatalogCommand, CatalogReply, NodeId, Refusal, SessionId, SessionOwner, Value,
};

pub(super) struct Node {
    pub(super) catalog: Catalog,
    index: u64,
}

impl Node {
    pub(super) fn new() -> Self {
        Self { catalog: Catalog::new(4), index: 0 }
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

    /// What was judged. The catalog must judge alike: it does so again, behind these rules, and when it applies.
    pub(super) fn same(
        &self,
        judged: Result<(), Refusal>,
        command: CatalogCommand,
    ) -> Result<(), Refusal> {
        assert_eq!(self.catalog.check(&command), judged, "{command:?}");
        judged
    }

    pub(super) fn owner(session: u64) -> SessionOwner {
        SessionOwner { node: NodeId(1), session: SessionId(session) }
    }
}

pub(super) fn text(text: &str) -> Value {
    Value::LongStr(text.into())
}
