//! P2: while a queue is paused, nobody is given a message of it.
//!
//! What was on its way when the pause came may arrive. So a consumer that came after the pause was known to be applied is
//! to get nothing at all, and one that was there before only what comes soon. A leader that is cut off does not hear of
//! the pause: where there may be one, nothing is judged.

use super::facts::{Facts, Fault};
use super::{Promise, Report, Rules, SECOND};
use crate::history::{Nanos, Stage};

/// A change whose answer is lost is made by then, or never.
const SETTLES: Nanos = 3 * SECOND;

/// What was asked of one queue, in the order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    all: Vec<Pause>,
    /// When the answer to something was lost that may be done later, and whether the queue has gone on since.
    lost: Option<Nanos>,
    goes_on: bool,
}

/// A pause whose answer came.
#[derive(Clone, Copy, Debug)]
struct Pause {
    asked: Nanos,
    known: Option<Nanos>,
    /// When its end was asked for.
    over: Nanos,
    /// When the last answer before it was lost.
    lost: Option<Nanos>,
}

impl Pauses {
    pub(super) fn note(&mut self, t: Nanos, stage: Stage, on: bool) {
        match (stage, on) {
            (Stage::Inv, true) => {
                let (lost, goes_on) = (self.lost, self.goes_on);
                // Whoever asks does not know how the queue stands: the pause may be an older one.
                let over = if lost.is_some() && !goes_on { t } else { Nanos::MAX };
                self.all.push(Pause { asked: t, known: None, over, lost });
            }
            (Stage::Ok, true) => self.last(|pause| pause.known = Some(t)),
            (Stage::Inv, false) => self.end(t),
            (Stage::Ok, false) => self.goes_on = true,
            (Stage::Info, _) => {
                self.end(t);
                (self.lost, self.goes_on) = (Some(t), false);
            }
            (Stage::Fail, _) => self.end(t),
        }
    }

    /// From when on the queue gives messages away: after the last pause that has any part in `from..=to`.
    pub(super) fn over_by(&self, from: Nanos, to: Nanos) -> Nanos {
        let within = self.all.iter().filter(|pause| pause.asked <= to && pause.over >= from);
        within.map(|pause| pause.over).fold(from, Nanos::max)
    }

    fn last(&mut self, change: impl FnOnce(&mut Pause)) {
        if let Some(pause) = self.all.last_mut() {
            change(pause);
        }
    }

    fn end(&mut self, t: Nanos) {
        self.last(|pause| pause.over = pause.over.min(t));
    }
}

pub(super) fn judge(facts: &Facts, rules: &Rules, report: &mut Report) {
    for (number, queue) in &facts.queues {
        for pause in &queue.pauses.all {
            let Some(known) = pause.known.filter(|known| *known < pause.over) else { continue };
            if !is_certain(facts, rules, pause) {
                continue;
            }
            report.counts.pauses += 1;
            given(facts, rules, *number, (known, pause.over), report);
        }
    }
}

/// Whether nothing that was asked before it can have come after it.
fn is_certain(facts: &Facts, rules: &Rules, pause: &Pause) -> bool {
    pause.lost.is_none_or(|lost| {
        pause.asked > lost + SETTLES && !is_parted(facts, rules, lost, pause.asked)
    })
}

/// What consumers got between these times, and were not to.
fn given(
    facts: &Facts,
    rules: &Rules,
    queue: u32,
    (known, over): (Nanos, Nanos),
    report: &mut Report,
) {
    let deliveries = facts.sequence.get(&queue).map_or(&[][..], Vec::as_slice);
    let first = deliveries.partition_point(|(_, delivery)| delivery.t <= known);
    for (id, delivery) in &deliveries[first..] {
        if delivery.t >= over {
            break;
        }
        let since = facts.sessions.get(&delivery.session).map_or(0, |session| session.start);
        let is_younger = since > known;
        let from = if is_younger { since } else { known };
        let is_late = is_younger || delivery.t > known + rules.late;
        if is_late && !is_parted(facts, rules, from, delivery.t) {
            let (name, text) = (facts.names.name(queue), facts.names.text(*id));
            let ms = (delivery.t - known) / 1_000_000;
            let case = format!("{text} of {name}, {ms} ms after it was paused");
            report.violate(Promise::Paused, case);
        }
    }
}

/// Whether, at some time of these, a leader may not have known that it led no more.
fn is_parted(facts: &Facts, rules: &Rules, from: Nanos, to: Nanos) -> bool {
    let from = from.saturating_sub(rules.late);
    facts.harms_within(from, to).any(|fault| parts(facts, fault))
}

/// Whether a fault leaves somebody who may take himself to lead. Who dies does not.
fn parts(facts: &Facts, fault: &Fault) -> bool {
    let kind = facts.names.name(fault.kind);
    let is_death = ["kill", "power", "quiet kill"]
        .iter()
        .any(|word| kind.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word)));
    !is_death && kind != "connection breaks"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::{Rules, check};
    use crate::history::{Event, History, What};

    const MS: Nanos = 1_000_000;

    fn at(ms: u64, what: What) -> Event {
        Event { t: ms * MS, p: "test".into(), what }
    }

    fn pause(ms: u64, k: Stage, on: bool) -> Event {
        at(ms, What::Pause { k, q: "q".into(), on })
    }

    fn opens(ms: u64, ep: &str) -> Event {
        at(ms, What::Open { q: "q".into(), ep: ep.into() })
    }

    fn got(ms: u64, ep: &str) -> Event {
        let (q, m, ep) = ("q".into(), "a:1".into(), ep.into());
        at(ms, What::Dlv { q, m, tag: 1, red: false, h: 1, ep })
    }

    fn fault(kind: &str, from: u64, to: u64) -> Event {
        let (kind, t0, t1) = (kind.into(), from * MS, to * MS);
        at(to, What::Fault { kind, node: 1, t0, t1, sectors: 0 })
    }

    /// With a pause from 10 s to 20 s, a consumer of before it and one that comes after it.
    fn is_broken(more: Vec<Event>) -> bool {
        let mut events = vec![
            opens(1_000, "old"),
            pause(9_990, Stage::Inv, true),
            pause(10_000, Stage::Ok, true),
            opens(10_100, "new"),
            pause(20_000, Stage::Inv, false),
            pause(20_010, Stage::Ok, false),
        ];
        events.extend(more);
        events.sort_by_key(|event| event.t);
        let report = check(&History::of(events), &Rules::default());
        !report.broken(Promise::Paused).is_empty()
    }

    #[test]
    fn who_comes_while_a_queue_is_paused_gets_nothing() {
        assert!(is_broken(vec![got(10_200, "new")]));
        assert!(is_broken(vec![got(19_900, "new")]));
        assert!(!is_broken(vec![got(20_005, "new")]), "it was about to go on");
    }

    #[test]
    fn who_was_there_before_gets_what_was_on_its_way() {
        assert!(!is_broken(vec![got(10_500, "old")]));
        assert!(is_broken(vec![got(13_500, "old")]));
    }

    #[test]
    fn a_death_excuses_nothing_and_a_leader_that_is_cut_off_does() {
        let with = |kind| is_broken(vec![fault(kind, 12_000, 14_000), got(14_500, "new")]);
        assert!(with("Kill") && with("PowerCut") && with("kill-leader"));
        assert!(!with("isolated") && !with("stopped"));
    }

    #[test]
    fn a_change_whose_answer_is_lost_may_be_made_late() {
        let lost = |ms| vec![pause(ms - 5, Stage::Inv, false), pause(ms, Stage::Info, false)];
        let goes_on = |ms| vec![pause(ms - 5, Stage::Inv, false), pause(ms, Stage::Ok, false)];
        let long_ago = [lost(2_000), goes_on(2_500), vec![got(10_200, "new")]].concat();
        assert!(is_broken(long_ago));
        let lately = [lost(9_000), goes_on(9_500), vec![got(10_200, "new")]].concat();
        assert!(!is_broken(lately), "it may end the pause");
        let unknown = [lost(2_000), vec![got(10_200, "new")]].concat();
        assert!(
            !is_broken(unknown),
            "it may be paused by another pause, whose leader is not asked"
        );
    }
}
