//! A rate of several partitions: their leaders borrow tokens from the leader of the first one.
//!
//! A question goes to the shard of this node that keeps the first partition's group, and from there to the group's leader.
//! It is not kept: where nobody answers, the partition asks again.

use machine::{Ask, GroupId, NodeId, QueueId, TokenHome, Version};

use super::Shard;
use crate::exchange::{Input, Output};
use crate::peer::message::Message;
use crate::remote::Route;

impl Shard {
    /// A partition that is led here would give out more than it has tokens for.
    pub(super) fn borrow(
        &mut self,
        by: (GroupId, QueueId),
        of: TokenHome,
        ask: Ask,
        outputs: &mut Vec<Output>,
    ) {
        let TokenHome { group, queue } = of;
        self.tell_own(group, Message::Borrow { group, queue, by, ask }, outputs);
    }

    /// Answers a partition, or hands its question on to who leads.
    pub(super) fn lend(
        &mut self,
        from: NodeId,
        (group, queue): (GroupId, QueueId),
        by: (GroupId, QueueId),
        ask: Ask,
        outputs: &mut Vec<Output>,
    ) {
        let serving = self.groups.get_mut(&group).filter(|found| found.group.serves());
        if let Some(found) = serving {
            let Some(loan) = found.queues.lend(queue, &ask) else { return };
            let answer = Message::Lent { group: by.0, queue: by.1, number: ask.number, loan };
            if from == self.me.node {
                self.tell_own(by.0, answer, outputs);
            } else {
                self.send(from, answer, outputs);
            }
        } else if from == self.me.node
            && let Route::There { node, .. } = self.leader_of(group)
            && self.may_hear(node, Version::RATES)
        {
            self.send(node, Message::Borrow { group, queue, by, ask }, outputs);
        }
    }

    /// Says something to the shard of this node that keeps `group`.
    fn tell_own(&mut self, group: GroupId, message: Message, outputs: &mut Vec<Output>) {
        let input = Input::Peers { from: self.me.node, messages: vec![message] };
        self.forward(Self::of(group, self.shards), input, outputs);
    }
}
