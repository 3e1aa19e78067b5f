//! D1, D2: where nothing happens meanwhile, each dead letter comes once to where it goes, and those of one queue
//! come in the order in which they died. A fault or another leader may bring them again.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::{Promise, Report, Rules};
use crate::history::{MessageId, Nanos};

pub(super) fn judge(facts: &Facts, rules: &Rules, report: &mut Report) {
    // Who leads is not told by trials of real processes: there this cannot be judged.
    if facts.leaders.is_empty() {
        return;
    }
    let dead_queues = facts.queues.iter().filter(|(_, queue)| queue.takes_dead);
    for target in dead_queues.map(|(number, _)| *number) {
        let letters = letters(facts, target);
        for letter in letters.values() {
            twice(facts, rules, target, letter, report);
        }
        order(facts, rules, target, &letters, report);
    }
}

/// A message that died into a queue.
struct Letter {
    id: MessageId,
    /// From which queue, and when it was first said to be dead.
    from: u32,
    died: Nanos,
    /// Queues from which it came.
    sources: usize,
}

fn letters(facts: &Facts, target: u32) -> BTreeMap<MessageId, Letter> {
    let mut letters: BTreeMap<MessageId, Letter> = BTreeMap::new();
    for ((from, id), deaths) in &facts.deaths {
        let goes_there = facts.queues.get(from).is_some_and(|queue| queue.dead == Some(target));
        let attempts = facts.publishes.get(id).map_or(0, |publish| publish.attempts.len());
        let is_one = attempts == 1
            && !facts.came_again.contains(id)
            && !came_again(facts, *from, *id)
            && !facts.may_go_elsewhere(*id);
        let Some((died, _)) = deaths.first().filter(|_| goes_there && is_one) else {
            continue;
        };
        let letter = Letter { id: *id, from: *from, died: *died, sources: 0 };
        let letter = letters.entry(*id).or_insert(letter);
        letter.sources += 1;
        letter.died = letter.died.min(*died);
    }
    letters
}

/// Whether a message was said to be dead more than once where it came from: then it may be in `queue` more than once,
/// and each of these dies. Whether it might come again is judged there.
fn came_again(facts: &Facts, queue: u32, id: MessageId) -> bool {
    let before = facts.queues.iter().filter(|(_, from)| from.dead == Some(queue));
    let mut deaths = before.filter_map(|(from, _)| facts.deaths.get(&(*from, id)));
    deaths.any(|deaths| deaths.len() > 1)
}

/// Whether nothing happened that may bring letters again or out of order.
fn is_calm(facts: &Facts, rules: &Rules, from: Nanos, to: Nanos) -> bool {
    let from = from.saturating_sub(rules.settle_horizon);
    !facts.harmed_within(from, to) && !facts.leaders.iter().any(|at| (from..=to).contains(at))
}

/// D1.
fn twice(facts: &Facts, rules: &Rules, target: u32, letter: &Letter, report: &mut Report) {
    let Some(taken) = facts.taken.get(&(target, letter.id)) else { return };
    let fresh = || taken.deliveries.iter().filter(|delivery| !delivery.redelivered);
    let Some(last) = fresh().next_back() else { return };
    if !is_calm(facts, rules, letter.died, last.t) {
        return;
    }
    report.counts.letters += 1;
    let publish = facts.publishes.get(&letter.id);
    let was_sent_here = publish.is_some_and(|publish| publish.queues.contains(&target));
    let (count, most) = (fresh().count(), letter.sources + usize::from(was_sent_here));
    if count > most {
        let (name, text) = (facts.names.name(target), facts.names.text(letter.id));
        report.violate(
            Promise::DeadTwice,
            format!("{text} on {name}: {count} times, {most} at most"),
        );
    }
}

/// D2.
fn order(
    facts: &Facts,
    rules: &Rules,
    target: u32,
    letters: &BTreeMap<MessageId, Letter>,
    report: &mut Report,
) {
    let mut newest: BTreeMap<u32, (Nanos, MessageId)> = BTreeMap::new();
    for (id, delivery) in facts.sequence.get(&target).into_iter().flatten() {
        let Some(letter) = letters.get(id).filter(|letter| letter.sources == 1) else { continue };
        let was_sent_here =
            facts.publishes.get(id).is_some_and(|publish| publish.queues.contains(&target));
        if delivery.redelivered || was_sent_here {
            continue;
        }
        let before = newest.get(&letter.from).copied();
        if let Some((died, other)) = before.filter(|(died, _)| *died > letter.died) {
            if is_calm(facts, rules, letter.died, delivery.t) {
                let (text, other) = (facts.names.text(*id), facts.names.text(other));
                let (name, from) = (facts.names.name(target), facts.names.name(letter.from));
                let ms = (died - letter.died) / 1_000_000;
                let case =
                    format!("{text} on {name} after {other}, which died in {from} {ms} ms later");
                report.violate(Promise::DeadOrder, case);
            }
            continue;
        }
        newest.insert(letter.from, (letter.died, *id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::check;
    use crate::history::{Event, History, Stage, What, Why};

    const MS: Nanos = 1_000_000;

    fn at(ms: u64, what: What) -> Event {
        Event { t: ms * MS, p: "test".into(), what }
    }

    fn died(ms: u64, m: &str) -> Event {
        at(ms, What::Died { q: "q".into(), m: m.into(), why: Why::Expired })
    }

    fn got(ms: u64, m: &str) -> Event {
        let (q, m, ep) = ("d".into(), m.into(), "c".into());
        at(ms, What::Dlv { q, m, tag: ms, red: false, h: 1, ep })
    }

    fn sent(ms: u64, m: &str) -> Event {
        let (k, q, h) = (Stage::Inv, vec!["q".into()], Some(1));
        at(ms, What::Pub { k, m: m.into(), n: 0, q, h, returned: false })
    }

    fn breaks(promise: Promise, more: Vec<Event>) -> bool {
        let mut events = vec![
            at(1, What::Leads { group: 1, node: 1 }),
            at(2, What::Queue { q: "q".into(), single: false, dead: Some("d".into()) }),
            at(3, What::Queue { q: "d".into(), single: false, dead: None }),
            sent(9_000, "a:1"),
            sent(9_001, "a:2"),
            died(9_500, "a:1"),
            died(9_600, "a:2"),
        ];
        events.extend(more);
        events.sort_by_key(|event| event.t);
        !check(&History::of(events), &Rules::default()).broken(promise).is_empty()
    }

    #[test]
    fn a_dead_letter_comes_once_where_nothing_happens() {
        assert!(!breaks(Promise::DeadTwice, vec![got(9_700, "a:1"), got(9_701, "a:2")]));
        let twice = || vec![got(9_700, "a:1"), got(9_800, "a:1")];
        assert!(breaks(Promise::DeadTwice, twice()));
        let leads = at(9_750, What::Leads { group: 1, node: 2 });
        assert!(!breaks(Promise::DeadTwice, [twice(), vec![leads]].concat()));
    }

    #[test]
    fn dead_letters_come_in_the_order_in_which_they_died() {
        assert!(!breaks(Promise::DeadOrder, vec![got(9_700, "a:1"), got(9_701, "a:2")]));
        let turned = || vec![got(9_700, "a:2"), got(9_701, "a:1")];
        assert!(breaks(Promise::DeadOrder, turned()));
        let leads = at(9_650, What::Leads { group: 1, node: 2 });
        assert!(!breaks(Promise::DeadOrder, [turned(), vec![leads]].concat()));
    }

    #[test]
    fn who_came_twice_to_a_queue_may_die_there_twice() {
        let is_broken = |came: u64| {
            let queue = |q: &str, dead: Option<&str>| What::Queue {
                q: q.into(),
                single: false,
                dead: dead.map(Into::into),
            };
            let died_in = |q: &str| What::Died { q: q.into(), m: "a:1".into(), why: Why::Expired };
            let got = |tag: u64| {
                let (q, m, ep) = ("e".into(), "a:1".into(), "c".into());
                What::Dlv { q, m, tag, red: false, h: 1, ep }
            };
            let mut events = vec![
                at(1, What::Leads { group: 1, node: 1 }),
                at(2, queue("q", Some("d"))),
                at(3, queue("d", Some("e"))),
                at(4, queue("e", None)),
                sent(9_000, "a:1"),
                at(9_650, died_in("d")),
                at(9_651, died_in("d")),
                at(9_700, got(1)),
                at(9_701, got(2)),
            ];
            events.extend((0..came).map(|nth| at(9_500 + nth, died_in("q"))));
            events.sort_by_key(|event| event.t);
            let report = check(&History::of(events), &Rules::default());
            !report.broken(Promise::DeadTwice).is_empty()
        };
        assert!(is_broken(1), "it was there once");
        assert!(!is_broken(2), "whether it may come twice is judged where it died first");
    }
}
