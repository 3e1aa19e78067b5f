//! The sessions of this node, and the mailboxes in which their answers wait.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use machine::SessionId;

use super::mailbox::AnswerBox;
use crate::request::Answer;

/// Every open session's mailbox.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    boxes: RwLock<BTreeMap<SessionId, Arc<AnswerBox<Answer>>>>,
}

impl Sessions {
    pub(crate) fn open(&self, session: SessionId) -> Arc<AnswerBox<Answer>> {
        let answers = AnswerBox::new();
        let mut boxes = self.boxes.write().unwrap_or_else(PoisonError::into_inner);
        boxes.insert(session, Arc::clone(&answers));
        answers
    }

    pub(crate) fn find(&self, session: SessionId) -> Option<Arc<AnswerBox<Answer>>> {
        self.boxes.read().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    /// Nobody reads these answers any more. False: others have taken their place.
    pub(crate) fn close(&self, session: SessionId, answers: &Arc<AnswerBox<Answer>>) -> bool {
        answers.close();
        let mut boxes = self.boxes.write().unwrap_or_else(PoisonError::into_inner);
        match boxes.get(&session) {
            Some(found) if !Arc::ptr_eq(found, answers) => false,
            Some(_) | None => {
                boxes.remove(&session);
                true
            }
        }
    }

    /// Tells every session the same.
    pub(crate) fn send_to_all(&self, answer: impl Fn() -> Answer) {
        let boxes = self.boxes.read().unwrap_or_else(PoisonError::into_inner);
        for answers in boxes.values() {
            answers.push(&mut vec![answer()]);
        }
    }

    pub(crate) fn close_all(&self) {
        let mut boxes = self.boxes.write().unwrap_or_else(PoisonError::into_inner);
        for answers in std::mem::take(&mut *boxes).into_values() {
            answers.close();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.boxes.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
