//! Answers to those who wait: sessions of this node, and those of others by way of their nodes.

use machine::{GroupId, SessionId};

use super::Shard;
use crate::exchange::Output;
use crate::peer::message::Message;
use crate::request::{Answer, Ticket};

fn ticket_of(answer: &Answer) -> Option<Ticket> {
    match answer {
        Answer::Appended { ticket }
        | Answer::AppendFailed { ticket }
        | Answer::Catalog { ticket, .. }
        | Answer::Attached { ticket, .. }
        | Answer::Detached { ticket }
        | Answer::Got { ticket, .. }
        | Answer::Purged { ticket, .. }
        | Answer::Withheld { ticket, .. }
        | Answer::Status { ticket, .. }
        | Answer::Described { ticket, .. }
        | Answer::Peeked { ticket, .. }
        | Answer::Locked { ticket, .. }
        | Answer::Closed { ticket, .. }
        | Answer::Admitted { ticket, .. }
        | Answer::SessionEnded { ticket } => Some(*ticket),
        Answer::Delivered(_)
        | Answer::Leaving(_)
        | Answer::Cancelled { .. }
        | Answer::Elected { .. }
        | Answer::Alarms(_)
        | Answer::Stopping => None,
    }
}

impl Shard {
    /// Answers a session, wherever it is, about `group`.
    pub(super) fn answer(
        &mut self,
        group: GroupId,
        session: SessionId,
        answer: Answer,
        outputs: &mut Vec<Output>,
    ) {
        if Self::is_ours(self.me.node, session) {
            outputs.push(Output::Answer { session, answer });
        } else if let Some((to, message)) = self.abroad(Some(group), session, answer) {
            send_answer(to, message, outputs);
        }
    }

    /// Answers of this step to sessions of other nodes, that were not known to be that.
    pub(super) fn answer_others(&mut self, outputs: &mut Vec<Output>) {
        if self.peers.is_empty() {
            return;
        }
        let me = self.me.node;
        let is_foreign = |output: &Output| matches!(output, Output::Answer { session, .. } if !Self::is_ours(me, *session));
        if !outputs.iter().any(is_foreign) {
            return;
        }
        let mut all = Vec::with_capacity(outputs.len());
        for output in outputs.drain(..) {
            match output {
                Output::Answer { session, answer } if !Self::is_ours(me, session) => {
                    if let Some((to, message)) = self.abroad(None, session, answer) {
                        send_answer(to, message, &mut all);
                    }
                }
                other => all.push(other),
            }
        }
        *outputs = all;
    }

    fn abroad(
        &mut self,
        group: Option<GroupId>,
        session: SessionId,
        answer: Answer,
    ) -> Option<(machine::NodeId, Message)> {
        let node = Self::node_of(session)?;
        let group = match ticket_of(&answer) {
            Some(ticket) => self.answered(session, ticket)?,
            None => group?,
        };
        let epoch = self.joined(group, node)?;
        (self.peers.is_up(node) && self.may_hear(node, answer.since()))
            .then_some((node, Message::Answers { group, epoch, answers: vec![(session, answer)] }))
    }

    /// A session of another node gets its answer: of which group. None: it does not wait for one here. It may have asked
    /// this leader again after a change of term, and the answer may be that of its first question: then the second
    /// must not be done. A purge would take what was published since.
    fn answered(&mut self, session: SessionId, ticket: Ticket) -> Option<GroupId> {
        let group = self.peers.asked.remove(&(session, ticket))?;
        if let Some(found) = self.groups.get_mut(&group) {
            found.forget_asked(session, ticket);
        }
        Some(group)
    }

    /// Under which epoch `node` has joined this leader of `group`.
    pub(super) fn joined(&self, group: GroupId, node: machine::NodeId) -> Option<u64> {
        if group.is_local() {
            return self.local.as_ref()?.joined.get(&node).copied();
        }
        self.groups.get(&group)?.joined.get(&node).copied()
    }
}

/// Answers to one node about one group that follow each other are one message.
fn send_answer(to: machine::NodeId, message: Message, outputs: &mut Vec<Output>) {
    if let Message::Answers { group, epoch, answers } = &message
        && let Some(Output::Send { to: last_to, message: last }) = outputs.last_mut()
        && *last_to == to
        && let Message::Answers { group: last_group, epoch: last_epoch, answers: before } = last
        && (*last_group, *last_epoch) == (*group, *epoch)
        && before.len() < ANSWERS_PER_MESSAGE
        && !answers.is_empty()
    {
        let Message::Answers { answers, .. } = message else { return };
        before.extend(answers);
        return;
    }
    outputs.push(Output::Send { to, message });
}

/// Answers that one message to another node holds.
const ANSWERS_PER_MESSAGE: usize = 256;
