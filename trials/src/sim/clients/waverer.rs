//! Somebody who purges queues of the load and thinks better of it, each time: nothing may be lost by that. In the end all
//! is brought back.

use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::{Answer, NotWithheld, Request, Ticket, WithheldCount, WithholdStep};

use super::{Home, Outside, Plan};
use crate::history::What;
use crate::sim::Diary;
use crate::sim::agenda::Micros;
use crate::workload::Chance;

/// Queues that it purges: one that nobody consumes before the drain, and one that several do, which get what came since
/// before what is brought back.
const QUEUES: [&str; 2] = ["cold", SHARED];
pub(in crate::sim) const SHARED: &str = "work";
/// Longer than any run.
const UNDO_MS: u32 = 600_000;
/// How long messages are withheld, from and to: some for a moment, some over a change of leader.
const MOMENT: (Micros, Micros) = (1_000, 300_000);
const WHILE: (Micros, Micros) = (300_000, 3_000_000);
/// What takes longer is given up with its connection.
const TIMEOUT: Micros = 6_000_000;
/// A purge that was given up may be done so much later.
const LATE: Micros = 7_000_000;

pub(super) struct Waverer {
    plans: Rc<[Plan]>,
    chance: Chance,
    pub(super) home: Option<Home>,
    ticket: u64,
    asked: Option<Asked>,
    /// What it has purged, by the place of the plan, and until when it stays so.
    withheld: BTreeMap<usize, Micros>,
    /// The answer to something was lost, then: what it may have withheld is brought back again and again.
    unsure: BTreeMap<usize, Micros>,
    /// Messages that were brought back.
    pub(super) brought_back: u64,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    queue: usize,
    is_undo: bool,
    at: Micros,
}

impl Waverer {
    pub(super) fn new(seed: u64, plans: &Rc<[Plan]>) -> Self {
        Self {
            plans: Rc::clone(plans),
            chance: Chance::named(seed, "waverer"),
            home: None,
            ticket: 0,
            asked: None,
            withheld: BTreeMap::new(),
            unsure: BTreeMap::new(),
            brought_back: 0,
        }
    }

    /// Whether nothing is withheld, as far as it knows.
    pub(super) fn is_quiet(&self) -> bool {
        self.asked.is_none() && self.withheld.is_empty() && self.unsure.is_empty()
    }

    pub(super) fn act(&mut self, may_purge: bool, outside: &mut Outside<'_>) {
        let Some(home) = self.home else {
            self.home = outside.connect();
            return;
        };
        if let Some(asked) = self.asked {
            if outside.now - asked.at > TIMEOUT {
                self.end(outside.now);
                outside.leave(home);
            }
            return;
        }
        let Some((queue, is_undo)) = self.next(may_purge, outside.now) else { return };
        let Some((id, group)) = outside.queue(home, self.plans[queue].name) else { return };
        self.ticket += 1;
        self.asked = Some(Asked { queue, is_undo, at: outside.now });
        let step =
            if is_undo { WithholdStep::Undo } else { WithholdStep::Purge { undo_ms: UNDO_MS } };
        let ticket = Ticket(self.ticket);
        outside.ask(home, vec![Request::Withhold { ticket, group, queue: id, step }]);
    }

    fn next(&mut self, may_purge: bool, now: Micros) -> Option<(usize, bool)> {
        let is_due = |until: &Micros| !may_purge || *until <= now;
        if let Some((queue, _)) = self.withheld.iter().find(|(_, until)| is_due(until)) {
            return Some((*queue, true));
        }
        self.unsure.retain(|_, since| now - *since < LATE);
        if let Some(queue) = self.unsure.keys().next() {
            return Some((*queue, true));
        }
        if !may_purge || !self.chance.percent(20) {
            return None;
        }
        let name = QUEUES[self.chance.within(0, QUEUES.len() as u64) as usize];
        let queue = self.plans.iter().position(|plan| plan.name == name)?;
        // Another purge would let go of what the one before has withheld.
        (!self.withheld.contains_key(&queue)).then_some((queue, false))
    }

    pub(super) fn answered(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        let Some(Asked { queue, is_undo, .. }) = self.asked.take() else {
            let text = format!("the waverer asked nothing, and was told {answer:?}");
            return outside.diary.saw("waverer", What::Protocol { text });
        };
        match answer {
            Answer::Withheld { result: Ok(WithheldCount { count, .. }), .. } => {
                if is_undo {
                    self.brought_back += count;
                    self.withheld.remove(&queue);
                } else if count > 0 {
                    let (from, to) = if self.chance.percent(50) { MOMENT } else { WHILE };
                    let until = outside.now + self.chance.within(from, to);
                    self.withheld.insert(queue, until);
                }
            }
            // An older cluster does not do it.
            Answer::Withheld { result: Err(NotWithheld::NotYet { .. }), .. } => {}
            Answer::AppendFailed { .. } => {
                self.unsure.insert(queue, outside.now);
            }
            other => {
                let text = format!("the waverer was told {other:?}");
                outside.diary.saw("waverer", What::Protocol { text });
            }
        }
    }

    pub(super) fn disconnected(&mut self, node: usize, now: Micros) {
        if self.home.is_some_and(|home| home.node == node) {
            self.end(now);
        }
    }

    fn end(&mut self, now: Micros) {
        self.home = None;
        if let Some(Asked { queue, .. }) = self.asked.take() {
            self.unsure.insert(queue, now);
        }
    }

    /// At the end: an answer that never came.
    pub(super) fn complain(&self, diary: &mut Diary) {
        if !self.is_quiet() {
            let text = format!(
                "the waverer waits for {:?}; {:?} are withheld, and perhaps {:?}",
                self.asked, self.withheld, self.unsure
            );
            diary.saw("waverer", What::Protocol { text });
        }
    }
}
