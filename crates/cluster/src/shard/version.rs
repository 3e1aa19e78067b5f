//! The cluster's version: raised when all members can read the next, and a node that cannot read it stops. What is too
//! new for another node is not said to it.

use std::collections::BTreeSet;

use machine::{Catalog, CatalogCommand, Corrupt, GroupId, NodeId, Version};

use super::Shard;
use crate::exchange::{Now, Output};
use crate::remote::Route;
use crate::request::{Answer, Request};
use crate::waiter::Waiter;

/// Between two attempts to raise it, in milliseconds: one takes as long as any change of the catalog.
const RAISE_PAUSE_MS: u64 = 1000;

impl Shard {
    /// The catalog's leader raises the version as soon as everybody is there and can read it.
    pub(super) fn raise_version(&mut self, now: Now, outputs: &mut Vec<Output>) {
        let Some(catalog) = self.catalog.as_ref().filter(|catalog| catalog.group.serves()) else {
            return;
        };
        let is_soon =
            self.node_wide.raised_ms.is_some_and(|last| now.mono_ms < last + RAISE_PAUSE_MS);
        let agreed = catalog.catalog().agreed();
        if is_soon || agreed >= self.me.speaks {
            return;
        }
        let Some(to) = self.common_version(catalog.catalog()).filter(|to| *to > agreed) else {
            return;
        };
        self.node_wide.raised_ms = Some(now.mono_ms);
        self.change(now, &CatalogCommand::RaiseVersion { to }, Waiter::Nobody, outputs);
    }

    /// The newest version that everybody reads. `None`: one cannot be reached, so nobody knows.
    fn common_version(&self, catalog: &Catalog) -> Option<Version> {
        let members = catalog.nodes().map(|info| info.node);
        let mut asked: BTreeSet<NodeId> = members.collect();
        // One that was removed may still vote, until its groups have let it go.
        asked.extend(self.members.counted.all()?);
        asked.remove(&self.me.node);
        let speaks = self.peers.speaks();
        let each: Option<Vec<Version>> =
            asked.iter().map(|node| speaks.get(node).copied()).collect();
        Some(each?.into_iter().chain(speaks.values().copied()).fold(self.me.speaks, Version::min))
    }

    /// Whether a node may get messages of a kind that exists since version `since`: the cluster has agreed on that
    /// version, and the node said when it connected that it reads it.
    pub(super) fn may_hear(&self, node: NodeId, since: Version) -> bool {
        let is_read = || self.peers.speaks().get(&node).is_some_and(|speaks| *speaks >= since);
        since == Version::OLDEST || (self.members.agreed >= since && is_read())
    }

    /// The request as a node can read it: one that cannot end a consumer after what it was given takes that back.
    pub(super) fn readable(&self, node: NodeId, request: Request) -> Request {
        match request {
            Request::Detach { ticket, group, queue, consumer, takes_back: false }
                if !self.may_hear(node, Version::CANCELS) =>
            {
                Request::Detach { ticket, group, queue, consumer, takes_back: true }
            }
            request => request,
        }
    }

    /// The answer to a request that would go to another node, which may not be asked that yet.
    pub(super) fn refuse_abroad(&mut self, group: GroupId, request: &Request) -> Option<Answer> {
        let since = request.since();
        if since == Version::OLDEST {
            return None;
        }
        let route = self.outbound(group).remote.route;
        match route {
            Route::There { node, .. } if !self.may_hear(node, since) => request.answer_not_yet(),
            Route::There { .. } | Route::Here | Route::Nowhere => None,
        }
    }

    /// A leader is joined: questions that it may not be asked are answered here.
    pub(super) fn refuse_asked(&mut self, group: GroupId, node: NodeId, outputs: &mut Vec<Output>) {
        let asked: Vec<_> = self.outbound(group).remote.asked().collect();
        for (session, request) in asked {
            if self.may_hear(node, request.since()) {
                continue;
            }
            let (Some(ticket), Some(answer)) = (request.ticket(), request.answer_not_yet()) else {
                continue;
            };
            self.outbound(group).remote.take_back(session, ticket);
            outputs.push(Output::Answer { session, answer });
        }
    }

    /// An entry cannot be applied, so nothing after it can.
    pub(super) fn stop_outdated(
        &mut self,
        group: GroupId,
        index: u64,
        why: Corrupt,
        outputs: &mut Vec<Output>,
    ) {
        assert!(why.is_newer, "entry {index} of group {} passed its checksum: {why}", group.0);
        self.is_outdated = true;
        let why = format!("entry {index} of group {} holds {why}", group.0);
        outputs.push(Output::Outdated { why });
    }
}
