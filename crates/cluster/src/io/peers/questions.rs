//! Operators' questions from node to node, and their answers: opaque here, and bounded.
//!
//! A question is one frame. Its answer comes in parts, each of which waits until little is before it on its way to the
//! other node, so that elections do not wait behind answers.
//!
//! ```text
//!   waiting ──a part──> waiting ──the last part──> answered
//!      ├──refused──> refused
//!      └──the connection is lost, or nothing came in time──> not told
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use machine::{NodeId, Version};
use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::member::Member;
use crate::limits::{
    ANSWER_BYTES_MAX, ANSWER_PART_BYTES, QUESTION_BYTES_MAX, QUESTIONS_UNREAD_MAX,
    QUESTIONS_WAITING_MAX,
};
use crate::peer::message::{Message, Part};

/// Bytes that may be before a part of an answer.
const BEFORE_A_PART: usize = 512 << 10;

/// A question of another node, and the way back.
#[derive(Debug)]
pub struct Question {
    pub from: NodeId,
    pub body: Bytes,
    pub reply: Reply,
}

/// Where an answer goes. Dropping it refuses the question.
pub struct Reply {
    to: Arc<Member>,
    number: u64,
    /// The connection that brought the question. Over a later one the number may be that of another question: a node
    /// that starts again counts anew.
    connection: Option<u64>,
    is_done: bool,
}

/// Why another node has told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTold {
    /// There is no connection to it, or it was lost.
    Unreachable,
    /// Its program does not know such questions.
    TooOld,
    /// It has too much to answer, or its answer is too long.
    Refused,
    Late,
}

impl std::fmt::Display for NotTold {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Unreachable => "the node cannot be reached",
            Self::TooOld => "the node runs an older program, which cannot be asked: upgrade it",
            Self::Refused => "the node has too many questions to answer, or its answer is too long",
            Self::Late => "the node did not answer in time",
        })
    }
}

/// Questions of this node that wait, and those of others that nobody has taken yet.
#[derive(Debug)]
pub(super) struct Questions {
    waiting: Mutex<Waiting>,
    asked: mpsc::Sender<Question>,
    /// Until somebody takes them.
    unread: Mutex<Option<mpsc::Receiver<Question>>>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    of: NodeId,
    bytes: Vec<u8>,
    told: oneshot::Sender<Result<Vec<u8>, NotTold>>,
}

impl Default for Questions {
    fn default() -> Self {
        let (asked, unread) = mpsc::channel(QUESTIONS_UNREAD_MAX);
        Self { waiting: Mutex::default(), asked, unread: Mutex::new(Some(unread)) }
    }
}

impl Questions {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where questions of other nodes come in. Can be taken once.
    pub(super) fn take(&self) -> Option<mpsc::Receiver<Question>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A part of an answer has come. One that nobody waits for any more is forgotten.
    pub(super) fn told(&self, from: NodeId, number: u64, part: &Part) {
        let mut waiting = self.lock();
        let Some(open) = waiting.open.get_mut(&number).filter(|open| open.of == from) else {
            return;
        };
        let outcome = match part {
            Part::Refused => Err(NotTold::Refused),
            Part::More(bytes) | Part::Last(bytes)
                if open.bytes.len() + bytes.len() > ANSWER_BYTES_MAX =>
            {
                Err(NotTold::Refused)
            }
            Part::More(bytes) => {
                open.bytes.extend_from_slice(bytes);
                return;
            }
            Part::Last(bytes) => {
                open.bytes.extend_from_slice(bytes);
                Ok(std::mem::take(&mut open.bytes))
            }
        };
        if let Some(open) = waiting.open.remove(&number) {
            let _ = open.told.send(outcome);
        }
    }

    #[cfg(test)]
    pub(super) fn open_count(&self) -> usize {
        self.lock().open.len()
    }

    /// The connection to a node is gone, and with it what it was asked.
    pub(super) fn lost(&self, node: NodeId) {
        self.lock().open.retain(|_, open| open.of != node);
    }
}

impl Shared {
    /// A question of another node. One for which there is no room is refused.
    pub(super) fn asked(&self, from: NodeId, number: u64, body: Bytes) {
        let Some(to) = self.members().get(&from).cloned() else { return };
        let connection = to.connection();
        let reply = Reply { to, number, connection, is_done: false };
        // Too long a question is refused, too: by dropping its reply.
        if body.len() > QUESTION_BYTES_MAX {
            return;
        }
        // Where it does not go, dropping it refuses.
        let _ = self.questions.asked.try_send(Question { from, body, reply });
    }

    /// Asks a node, and waits for its whole answer.
    pub(super) async fn ask(
        &self,
        node: NodeId,
        body: Bytes,
        wait: Duration,
    ) -> Result<Vec<u8>, NotTold> {
        let member = self.members().get(&node).cloned();
        let member = member.filter(|member| member.is_up()).ok_or(NotTold::Unreachable)?;
        if member.speaks().is_none_or(|speaks| speaks < Version::QUESTIONS) {
            return Err(NotTold::TooOld);
        }
        if body.len() > QUESTION_BYTES_MAX {
            return Err(NotTold::Refused);
        }
        let (told, answer) = oneshot::channel();
        let number = {
            let mut waiting = self.questions.lock();
            if waiting.open.len() >= QUESTIONS_WAITING_MAX {
                return Err(NotTold::Refused);
            }
            waiting.next += 1;
            let number = waiting.next;
            waiting.open.insert(number, Open { of: node, bytes: Vec::new(), told });
            number
        };
        // However this ends: nobody waits then.
        let _waits = Waits { questions: &self.questions, number };
        if member.outbox.push(vec![Message::Question { number, body }]) > 0 {
            return Err(NotTold::Unreachable);
        }
        match tokio::time::timeout(wait, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(NotTold::Unreachable),
            Err(_) => Err(NotTold::Late),
        }
    }
}

/// A question that waits, until this is dropped.
struct Waits<'a> {
    questions: &'a Questions,
    number: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.questions.lock().open.remove(&self.number);
    }
}

impl Reply {
    /// Sends the answer, part by part. One that is too long is refused. Ends early if the connection does.
    pub async fn send(mut self, answer: Vec<u8>) {
        if answer.len() > ANSWER_BYTES_MAX {
            return;
        }
        self.is_done = true;
        let mut rest = Bytes::from(answer);
        loop {
            let bytes = rest.split_to(rest.len().min(ANSWER_PART_BYTES));
            let is_last = rest.is_empty();
            let part = if is_last { Part::Last(bytes) } else { Part::More(bytes) };
            self.to.outbox.room(BEFORE_A_PART).await;
            if !self.tell(part) || is_last {
                return;
            }
        }
    }

    /// False: the connection that brought the question is gone, and nobody waits any more.
    fn tell(&self, part: Part) -> bool {
        let message = Message::Told { number: self.number, part };
        self.connection == self.to.connection() && self.to.outbox.push(vec![message]) == 0
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        self.tell(Part::Refused);
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Reply to question {} of node {}", self.number, self.to.node.0)
    }
}
