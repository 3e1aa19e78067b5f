//! T1 to T6: what queues with arguments promise, and messages that say more of themselves than where
//! they go. What such a queue may let go for a reason is not lost; without a reason it is.

use std::collections::BTreeMap;

use super::facts::{Delivery, Facts, Outcome, Publish, Purge, Settle};
use super::{Promise, Report, Rules};
use crate::history::{Marks, MessageId, Nanos, Traits, Why};

pub(super) fn judge(facts: &Facts, rules: &Rules, report: &mut Report) {
    deaths(facts, rules, report);
    early(facts, rules, report);
    duplicates(facts, rules, report);
    for (queue, deliveries) in &facts.sequence {
        let highest = facts.traits(*queue).map_or(0, |traits| traits.max_priority);
        if highest > 0 {
            priorities(facts, *queue, highest, deliveries, report);
        }
        if let Some(rate) = facts.traits(*queue).and_then(|traits| traits.rate) {
            hurried(facts, *queue, rate, deliveries, report);
        }
    }
    books(facts, report);
}

const MS: Nanos = 1_000_000;

/// What may have been on its way while the first message came.
const LATE: Nanos = 1_000 * MS;

/// T6: from the first delivery on a queue gives out a burst, and then what its rate brings. When messages were sent is not
/// known, but none came before that.
fn hurried(
    facts: &Facts,
    queue: u32,
    rate: u64,
    deliveries: &[(MessageId, Delivery)],
    report: &mut Report,
) {
    let Some((_, first)) = deliveries.first() else { return };
    if facts.has_clock_faults || facts.has_set_clocks {
        return;
    }
    for (count, (_, delivery)) in (1u64..).zip(deliveries) {
        let passed = u128::from(delivery.t - first.t + LATE);
        let brought = passed * u128::from(rate) / (1_000 * u128::from(MS));
        let allowed = u64::try_from(brought).unwrap_or(u64::MAX).saturating_add(rate / 10 + 1);
        if count > allowed {
            let name = facts.names.name(queue);
            let case = format!("{name} gave out {count} messages where {rate}/s brings {allowed}");
            return report.violate(Promise::Hurried, case);
        }
    }
}

/// Whether a confirmed message that nobody ever got may be gone for a reason: its queue, or one that it
/// may have come to when it was dead, lets messages go.
pub(super) fn may_be_gone(facts: &Facts, queue: u32, id: MessageId) -> bool {
    let no_marks = Marks::default();
    let marks = facts.marks.get(&id).unwrap_or(&no_marks);
    facts.closure(queue, id).into_iter().any(|at| {
        let Some(found) = facts.queues.get(&at) else { return false };
        let no_traits = Traits::default();
        let traits = found.traits.as_ref().unwrap_or(&no_traits);
        // A dead letter has lost its own time to live.
        let may_expire = traits.ttl_ms.is_some()
            || (at == queue && marks.ttl_ms.is_some())
            || facts.policies(at, id).any(|policy| policy.traits.ttl_ms.is_some());
        // A queue that was declared to refuse does so whatever policies say.
        let drops = |traits: &Traits| traits.max_length.is_some() && !traits.refuses;
        let may_overflow = drops(traits)
            || (!traits.refuses && facts.policies(at, id).any(|policy| drops(&policy.traits)));
        let is_dropped = found.dead.is_none() && (may_expire || may_overflow);
        is_dropped
            || may_purge(facts, at, id)
            || (at == queue && may_be_double(facts, at, traits, id))
    })
}

/// Whether a purge of `queue` may have taken the message: it began before the purge was over.
fn may_purge(facts: &Facts, queue: u32, id: MessageId) -> bool {
    let Some(found) = facts.queues.get(&queue) else { return false };
    let begun = facts.publishes.get(&id).and_then(|publish| publish.attempts.values().min());
    let is_before = |purge: &Purge| purge.done.is_none_or(|(t, _)| begun.is_none_or(|at| *at <= t));
    found.purges.iter().any(is_before)
}

/// When a message may have come into its queue: after it was sent, and before its answer.
fn came_within(publish: &Publish) -> Option<(Nanos, Nanos)> {
    let begun = publish.attempts.values().min()?;
    let confirmed = publish.outcomes.iter().filter(|(_, _, confirmed)| *confirmed);
    Some((*begun, confirmed.map(|(_, t, _)| *t).min().unwrap_or(Nanos::MAX)))
}

/// Whether another message with the same key may have come to the same queue within its window.
fn may_be_double(facts: &Facts, queue: u32, traits: &Traits, id: MessageId) -> bool {
    let key = facts.marks.get(&id).and_then(|marks| marks.key);
    let (Some(window_ms), Some(key)) = (traits.dedup_ms, key) else { return false };
    let Some((_, until)) = facts.publishes.get(&id).and_then(came_within) else { return false };
    facts.marks.iter().any(|(other, marks)| {
        let publish = facts.publishes.get(other).filter(|_| *other != id && marks.key == Some(key));
        let Some(publish) = publish.filter(|publish| publish.queues.contains(&queue)) else {
            return false;
        };
        let Some((from, confirmed)) = came_within(publish) else { return false };
        let is_before = from < until;
        // With clocks that are set nobody knows how long the window was.
        let has_set = facts.has_clock_faults || facts.has_set_clocks;
        is_before && (has_set || confirmed.saturating_add((window_ms + 1) * MS) >= from)
    })
}

/// T2.
fn deaths(facts: &Facts, rules: &Rules, report: &mut Report) {
    for ((queue, id), deaths) in &facts.deaths {
        report.counts.died += 1;
        let no_traits = Traits::default();
        let traits = facts.traits(*queue).unwrap_or(&no_traits);
        let taken = facts.taken.get(&(*queue, *id));
        for (t, why) in deaths {
            let is_reason = match why {
                Why::Expired => is_over(facts, rules, *queue, *id, traits, *t),
                Why::Overflowed => {
                    traits.max_length.is_some()
                        || facts.is_under(*queue, *id, *t, |traits| traits.max_length.is_some())
                }
                Why::Rejected => {
                    let is_reject = |it: &Settle| it.outcome == Outcome::Rejected && it.t < *t;
                    taken.is_some_and(|taken| taken.settles.iter().any(is_reject))
                        || facts.may_be_sent_on(*queue, *id, *t)
                }
                Why::Exhausted => {
                    traits.delivery_limit.is_some()
                        || facts.is_under(*queue, *id, *t, |traits| traits.delivery_limit.is_some())
                }
            };
            if !is_reason {
                let (name, text) = (facts.names.name(*queue), facts.names.text(*id));
                report.violate(Promise::Killed, format!("{text} on {name}: {why:?}"));
            }
        }
    }
}

/// Whether the time of a message in this queue may be over at `t`.
fn is_over(
    facts: &Facts,
    rules: &Rules,
    queue: u32,
    id: MessageId,
    traits: &Traits,
    t: Nanos,
) -> bool {
    let publish = facts.publishes.get(&id);
    let was_sent_here = publish.is_some_and(|publish| publish.queues.contains(&queue));
    let own = facts.marks.get(&id).and_then(|marks| marks.ttl_ms).filter(|_| was_sent_here);
    let policies = facts.policies(queue, id).filter_map(|policy| policy.traits.ttl_ms);
    let Some(ttl_ms) = own.into_iter().chain(traits.ttl_ms).chain(policies).min() else {
        return false;
    };
    let sent = publish.and_then(came_within).map_or(0, |(from, _)| from);
    // To a queue of dead letters it came later still.
    !facts.is_time_known(sent, t)
        || t.saturating_add(facts.clock_slack(rules)) >= sent.saturating_add(ttl_ms * MS)
}

/// T1: the first delivery from the queue that it was sent to.
fn early(facts: &Facts, rules: &Rules, report: &mut Report) {
    let slack = facts.clock_slack(rules);
    for (id, marks) in &facts.marks {
        let (Some(delay_ms), Some(publish)) = (marks.delay_ms, facts.publishes.get(id)) else {
            continue;
        };
        let Some((sent, _)) = came_within(publish) else { continue };
        for queue in &publish.queues {
            let taken = facts.taken.get(&(*queue, *id));
            let Some(first) = taken.and_then(|taken| taken.deliveries.first()) else { continue };
            // One that is sent on does not wait again, and may be what came first.
            if !facts.is_time_known(sent, first.t) || facts.came_again.contains(id) {
                continue;
            }
            report.counts.delays += 1;
            if first.t.saturating_add(slack) < sent.saturating_add(delay_ms * MS) {
                let (name, text) = (facts.names.name(*queue), facts.names.text(*id));
                let after = first.t.saturating_sub(sent) / MS;
                let case = format!("{text} on {name}: {delay_ms} ms, came after {after}");
                report.violate(Promise::Early, case);
            }
        }
    }
}

/// A message, and between which times it came.
type Within = (Nanos, Nanos, MessageId);

/// T3: where both were delivered, and came within the window for certain.
fn duplicates(facts: &Facts, rules: &Rules, report: &mut Report) {
    let slack = facts.clock_slack(rules) - rules.clock_slack;
    let mut of_key: BTreeMap<(u32, u64), Vec<Within>> = BTreeMap::new();
    for (id, marks) in &facts.marks {
        let (Some(key), Some(publish)) = (marks.key, facts.publishes.get(id)) else { continue };
        let Some((from, until)) = came_within(publish) else { continue };
        for queue in &publish.queues {
            let is_judged = facts.traits(*queue).is_some_and(|traits| traits.dedup_ms.is_some());
            let taken = facts.taken.get(&(*queue, *id));
            let first = taken.and_then(|taken| taken.deliveries.first());
            if let (true, Some(first)) = (is_judged, first) {
                // What was delivered had come.
                let until = until.min(first.t);
                of_key.entry((*queue, key)).or_default().push((from, until, *id));
            }
        }
    }
    for ((queue, key), mut all) in of_key {
        all.sort_unstable();
        let window_ms = facts.traits(queue).and_then(|traits| traits.dedup_ms).unwrap_or(0);
        for pair in all.windows(2) {
            let [(from, until, one), (other_from, other_until, other)] = pair else { continue };
            let (first, last) = ((*from).min(*other_from), (*until).max(*other_until));
            if !facts.is_time_known(first, last) {
                continue;
            }
            report.counts.keys += 1;
            let apart = last.saturating_sub(first).saturating_add(slack);
            if apart < window_ms.saturating_sub(1) * MS {
                let name = facts.names.name(queue);
                let (one, other) = (facts.names.text(*one), facts.names.text(*other));
                let case = format!("{one} and {other} on {name}, key {key}, {} ms", apart / MS);
                report.violate(Promise::Duplicate, case);
            }
        }
    }
}

/// T4: what the first consumer gets of what was there before it, and of which nothing came back. With
/// another consumer beside it, what that one never saw may come back unflagged.
fn priorities(
    facts: &Facts,
    queue: u32,
    highest: u8,
    deliveries: &[(MessageId, Delivery)],
    report: &mut Report,
) {
    let mut starts: Vec<(Nanos, u32)> = facts
        .sessions
        .iter()
        .filter(|(_, session)| session.queue == queue)
        .map(|(number, session)| (session.start, *number))
        .collect();
    starts.sort_unstable();
    let Some((start, first)) = starts.first().copied() else { return };
    let end = starts.get(1).map_or(Nanos::MAX, |(other, _)| *other);
    let mut lowest: Option<(u8, MessageId)> = None;
    for (id, delivery) in deliveries {
        let publish = facts.publishes.get(id);
        let was_there = publish.and_then(came_within).is_some_and(|(_, until)| until < start);
        let marks = facts.marks.get(id);
        let is_plain =
            marks.is_none_or(|marks| marks.delay_ms.is_none()) && !facts.came_again.contains(id);
        let is_first = delivery.session == first && delivery.t < end;
        if !was_there || !is_plain || delivery.redelivered || !is_first {
            continue;
        }
        report.counts.priorities += 1;
        let priority = marks.map_or(0, |marks| marks.priority).min(highest);
        if let Some((lower, before)) = lowest.filter(|(lower, _)| *lower < priority) {
            let (text, before) = (facts.names.text(*id), facts.names.text(before));
            let name = facts.names.name(queue);
            let case = format!("{text} ({priority}) on {name} after {before} ({lower})");
            report.violate(Promise::Priority, case);
        }
        lowest = Some((priority, *id));
    }
}

/// T5, where queues could be asked what they counted.
fn books(facts: &Facts, report: &mut Report) {
    let (mut gone, mut counted) = (0, 0);
    for (number, queue) in &facts.queues {
        let Some(books) = queue.books else { continue };
        let out = books.settled + books.purged + books.dropped + books.dead_lettered;
        if books.enqueued != out + books.live {
            let name = facts.names.name(*number);
            report.violate(Promise::Books, format!("{name}: {books:?}"));
        }
        counted += books.purged + books.dropped + books.duplicates;
    }
    for (id, publish) in facts.publishes.iter().filter(|(_, publish)| publish.is_confirmed()) {
        let is_gone = |queue: &&u32| {
            let may_go =
                facts.traits(**queue).is_some() || facts.policies(**queue, *id).next().is_some();
            may_go && !facts.is_delivered(**queue, *id)
        };
        gone += publish.queues.iter().filter(is_gone).count() as u64;
    }
    report.counts.gone = gone;
    let has_books = facts.queues.values().any(|queue| queue.books.is_some());
    if has_books && gone > counted {
        let case = format!("{gone} messages are gone; the queues counted {counted} dropped");
        report.violate(Promise::Books, case);
    }
}

#[cfg(test)]
mod tests;
