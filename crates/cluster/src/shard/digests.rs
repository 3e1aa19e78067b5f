//! Replicas compare what they have done: the leader says its digest, followers answer with theirs.

use machine::{Batch, GroupId, NodeId, Version};

use super::Shard;
use crate::digests::{Comparison, Digest, Verdict};
use crate::exchange::{Now, Output};
use crate::peer::message::Message;

impl Shard {
    /// A difference between replicas is not only told of: the group confirms nothing while there is one.
    pub fn stop_at_differences(&mut self) {
        self.stops_at_differences = true;
    }

    /// Each leader has its group keep a chain, and says to the other replicas what it is.
    pub(super) fn say_digests(&mut self, now: Now, outputs: &mut Vec<Output>) {
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            let agreed = self.members.agreed;
            let Some(found) = self.groups.get_mut(&group) else { continue };
            if !found.group.can_log() || agreed < Version::CHAINED {
                continue;
            }
            found.begin_chain(now);
            let members = found.group.replica.log().members();
            let others = members.voters.iter().chain(&members.voters_outgoing);
            let mut others: Vec<NodeId> =
                others.chain(&members.learners).map(|node| NodeId(*node)).collect();
            others.sort_unstable();
            others.dedup();
            others.retain(|node| *node != self.me.node);
            found.digests.keep(|node| others.contains(&node));
            if others.is_empty() {
                continue;
            }
            let Some((index, chain)) = found.digests.say(now.mono_ms) else { continue };
            for node in others {
                if self.may_hear(node, Version::CHAINED) {
                    let message = Message::Digest { group, index, chain, is_answer: false };
                    self.send(node, message, outputs);
                }
            }
        }
    }

    /// A leader's digest, or the answer of a follower.
    pub(super) fn hears_digest(
        &mut self,
        from: NodeId,
        group: GroupId,
        digest: Digest,
        is_answer: bool,
    ) {
        let stops = self.stops_at_differences;
        let Some(found) = self.groups.get_mut(&group) else { return };
        match is_answer {
            true if found.group.replica.is_leader() => {
                tell(group, found.digests.heard(from, digest), stops);
            }
            // It leads no longer.
            true => {}
            false => found.digests.hear(from, digest),
        }
    }

    /// Answers a leader that has asked, once what it has asked about is applied.
    pub(super) fn answer_digest(&mut self, group: GroupId, outputs: &mut Vec<Output>) {
        let Some(found) = self.groups.get_mut(&group) else { return };
        let Some((leader, (index, chain), verdict)) = found.digests.answer() else { return };
        tell(group, verdict, self.stops_at_differences);
        if self.may_hear(leader, Version::CHAINED) {
            let message = Message::Digest { group, index, chain, is_answer: true };
            self.send(leader, message, outputs);
        }
    }

    /// Whether the group is to confirm nothing, because its replicas differ.
    pub(super) fn is_stopped(&self, group: GroupId) -> bool {
        self.stops_at_differences
            && self.groups.get(&group).is_some_and(|found| found.digests.differs())
    }
}

impl crate::group::queues::QueueGroup {
    /// Has the log say that a chain is kept, if it does not yet.
    fn begin_chain(&mut self, now: Now) {
        let term = self.group.replica.term();
        if self.queues.machine().chain().is_some() || self.chain_begun == term {
            return;
        }
        let mut batch = Batch::new();
        batch.keep_chain();
        if self.group.replica.propose(batch.stamp(self.time.at(now)).into()).is_ok() {
            self.chain_begun = term;
        }
    }
}

fn tell(group: GroupId, verdict: Verdict, stops: bool) {
    let group = group.0;
    match verdict {
        Verdict::Known => {}
        Verdict::Differs(Comparison { node, index, ours, theirs }) => {
            let node = node.0;
            let stop = match stops {
                true => " The group confirms nothing while they differ (reconcile_stop).",
                false => "",
            };
            tracing::error!(
                group,
                node,
                index,
                "replicas differ: at entry {index} of group {group} the digest is {ours:016x} on this node and \
                 {theirs:016x} on node {node}. One of the two replicas has applied an entry wrongly, or has lost \
                 something.{stop} `millrace reconcile` shows which replica is alone with its digest; see \
                 docs/operating/reconcile.md"
            );
        }
        Verdict::Mended(Comparison { node, index, ours, .. }) => {
            let node = node.0;
            tracing::info!(
                group,
                node,
                index,
                "replicas agree again: at entry {index} of group {group} the digest is {ours:016x} on this node and \
                 on node {node}"
            );
        }
    }
}
