//! Somebody who purges a queue now and then.

use std::rc::Rc;

use cluster::{Answer, Request, Ticket};

use super::{Home, Outside, Plan};
use crate::history::{Stage, What};
use crate::sim::Diary;
use crate::sim::agenda::Micros;

/// A purge that takes longer is given up with its connection.
const TIMEOUT: Micros = 6_000_000;

pub(super) struct Sweeper {
    plans: Rc<[Plan]>,
    queue: usize,
    /// It purges more often, and asks again at once where it was refused, as it does in hunts of planted bugs.
    insists: bool,
    was_refused: bool,
    pub(super) home: Option<Home>,
    ticket: u64,
    /// A purge without an answer, and since when.
    asked: Option<Micros>,
    /// Purges that were answered.
    pub(super) finished: u64,
}

impl Sweeper {
    pub(super) fn new(plans: &Rc<[Plan]>, queue: usize, insists: bool) -> Self {
        Self {
            plans: Rc::clone(plans),
            queue,
            insists,
            was_refused: false,
            home: None,
            ticket: 0,
            asked: None,
            finished: 0,
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.asked.is_none()
    }

    pub(super) fn act(&mut self, may_purge: bool, outside: &mut Outside<'_>) {
        let Some(home) = self.home else {
            self.home = outside.connect();
            return;
        };
        let rarely = if self.insists { 3 } else { 20 };
        let is_late = |at: Micros| outside.now - at > TIMEOUT;
        match self.asked {
            Some(at) if is_late(at) => {
                self.end(outside.diary);
                outside.leave(home);
            }
            Some(_) => {}
            None if may_purge && (self.was_refused || outside.chance.within(0, rarely) == 0) => {
                self.was_refused = false;
                self.purge(home, outside);
            }
            None => {}
        }
    }

    fn purge(&mut self, home: Home, outside: &mut Outside<'_>) {
        let Some((queue, group)) = outside.queue(home, self.plans[self.queue].name) else { return };
        self.ticket += 1;
        self.asked = Some(outside.now);
        self.tell(Stage::Inv, 0, outside.diary);
        outside.ask(home, vec![Request::Purge { ticket: Ticket(self.ticket), group, queue }]);
    }

    pub(super) fn answered(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        match answer {
            Answer::Purged { ticket, count } if ticket.0 == self.ticket && self.asked.is_some() => {
                self.asked = None;
                self.finished += 1;
                self.tell(Stage::Ok, count, outside.diary);
            }
            Answer::AppendFailed { .. } => {
                self.was_refused = self.insists;
                self.fail(outside.diary);
            }
            other => {
                let text = format!("{} was told {other:?}", self.name());
                outside.diary.saw(&self.name(), What::Protocol { text });
            }
        }
    }

    pub(super) fn disconnected(&mut self, node: usize, diary: &mut Diary) {
        if self.home.is_some_and(|home| home.node == node) {
            self.end(diary);
        }
    }

    fn end(&mut self, diary: &mut Diary) {
        self.home = None;
        self.fail(diary);
    }

    /// What was asked has no answer, or none that says what happened.
    fn fail(&mut self, diary: &mut Diary) {
        if self.asked.take().is_some() {
            self.tell(Stage::Info, 0, diary);
        }
    }

    fn name(&self) -> String {
        format!("sweeper-{}", self.plans[self.queue].name)
    }

    fn tell(&self, k: Stage, n: u64, diary: &mut Diary) {
        let q = self.plans[self.queue].name.to_owned();
        diary.saw(&self.name(), What::Purge { k, q, n });
    }
}
