//! Q1 to Q7: what holds for every single message.

use std::collections::BTreeMap;

use super::facts::{Delivery, Facts, Outcome, Publish, Settle, Taken};
use super::{Promise, Report, Rules, features, rescues};
use crate::history::{MessageId, Nanos, Traits};

pub(super) fn judge(facts: &Facts, rules: &Rules, report: &mut Report) {
    let mut open = 0;
    for (id, publish) in &facts.publishes {
        count(facts, *id, publish, report);
        lost(facts, *id, publish, report);
        confirms(facts, *id, publish, report);
        open += u64::from(is_open(publish));
    }
    if open > 0 {
        report.doubts.push(format!("{open} publishes have no outcome, not even unknown"));
    }
    for ((queue, id), taken) in &facts.taken {
        let attempts = expected(facts, *queue, *id, taken, report);
        unflagged(facts, *queue, *id, taken, attempts, report);
        resurrected(facts, rules, *queue, *id, taken, attempts, report);
    }
    for (queue, deliveries) in &facts.sequence {
        order(facts, rules, *queue, deliveries, report);
    }
    for text in &facts.protocol {
        report.violate(Promise::Protocol, text.clone());
    }
}

fn count(facts: &Facts, id: MessageId, publish: &Publish, report: &mut Report) {
    let counts = &mut report.counts;
    counts.attempted += u64::from(!publish.attempts.is_empty());
    if publish.is_confirmed() {
        counts.confirmed += 1;
    } else if publish.is_unknown {
        counts.unknown += 1;
        let was_seen = publish.queues.iter().any(|queue| facts.is_delivered(*queue, id));
        counts.recovered += u64::from(was_seen);
    } else if !publish.outcomes.is_empty() {
        counts.refused += 1;
    }
}

/// Q1. Where the drain did not end, what is missing may still be there: the run is unknown then.
fn lost(facts: &Facts, id: MessageId, publish: &Publish, report: &mut Report) {
    if !publish.is_confirmed() || publish.was_returned {
        return;
    }
    for queue in &publish.queues {
        if features::may_be_gone(facts, *queue, id) || rescues::may_lose(facts, *queue, publish) {
            continue;
        }
        let drained = |queue: &u32| facts.queues.get(queue).is_some_and(|q| q.left == Some(0));
        if !facts.is_delivered(*queue, id) && facts.closure(*queue, id).iter().all(drained) {
            let (name, text) = (facts.names.name(*queue), facts.names.text(id));
            report.violate(Promise::Lost, format!("{text} confirmed for {name}, never delivered"));
        }
    }
}

/// Q7, as far as one message can tell.
fn confirms(facts: &Facts, id: MessageId, publish: &Publish, report: &mut Report) {
    let text = || facts.names.text(id);
    let mut answered = BTreeMap::new();
    for (attempt, t, confirmed) in &publish.outcomes {
        if answered.insert(*attempt, *t).is_some() {
            report.violate(Promise::Confirm, format!("{} was answered more than once", text()));
        }
        let Some(begun) = publish.attempts.get(attempt) else {
            report.violate(Promise::Confirm, format!("{} was answered, never asked", text()));
            continue;
        };
        let silent = |(from, to): &(Nanos, Nanos)| begun >= from && t <= to;
        if *confirmed && facts.silences.iter().any(silent) {
            let case = format!("{} was begun and confirmed after a failure", text());
            report.violate(Promise::Silence, case);
        }
        // A retry goes over another channel than the one in the message's name.
        if *attempt == 0 && facts.closed.get(&id.channel).is_some_and(|closed| t > closed) {
            let case = format!("{} was answered after its channel closed", text());
            report.violate(Promise::Confirm, case);
        }
    }
}

/// Its publisher was ended before it could say anything.
fn is_open(publish: &Publish) -> bool {
    !publish.is_unknown && publish.outcomes.len() < publish.attempts.len()
}

/// Q2; also how many copies of the message there may be on this queue.
fn expected(
    facts: &Facts,
    queue: u32,
    id: MessageId,
    taken: &Taken,
    report: &mut Report,
) -> Option<usize> {
    let (name, text) = (facts.names.name(queue), facts.names.text(id));
    if taken.deliveries.is_empty() {
        return None;
    }
    report.counts.delivered += 1;
    let publish = facts.publishes.get(&id).filter(|publish| !publish.attempts.is_empty());
    let Some(publish) = publish else {
        report.violate(Promise::Unexpected, format!("{text} on {name} was never published"));
        return None;
    };
    if !publish.queues.iter().any(|origin| facts.closure(*origin, id).contains(&queue)) {
        report.violate(Promise::Unexpected, format!("{text} was not meant for {name}"));
    }
    if taken.deliveries.iter().any(|delivery| Some(delivery.checksum) != publish.checksum) {
        report.violate(Promise::Corrupt, format!("{text} on {name} has other bytes"));
    }
    let attempts = publish.attempts.len();
    report.counts.duplicates += taken.deliveries.len().saturating_sub(attempts) as u64;
    // At-least-once dead-lettering may put several copies there, each of them new to its queue; so may who sends dead
    // letters on.
    let takes_dead = facts.queues.get(&queue).is_some_and(|queue| queue.takes_dead);
    (!takes_dead && !facts.came_again.contains(&id)).then_some(attempts)
}

/// Q3.
fn unflagged(
    facts: &Facts,
    queue: u32,
    id: MessageId,
    taken: &Taken,
    attempts: Option<usize>,
    report: &mut Report,
) {
    let Some(attempts) = attempts else { return };
    let known = |delivery: &&Delivery| !rescues::is_forgotten(facts, queue, delivery);
    let deliveries: Vec<Delivery> = taken.deliveries.iter().filter(known).copied().collect();
    let unflagged = deliveries.iter().filter(|delivery| !delivery.redelivered).count();
    let first_was_flagged = attempts == 1
        && deliveries.iter().enumerate().any(|(index, late)| {
            let earlier = &deliveries[..index];
            !late.redelivered && earlier.iter().any(|seen| came_before(facts, taken, seen, late))
        });
    if unflagged > attempts || first_was_flagged {
        let (name, text) = (facts.names.name(queue), facts.names.text(id));
        let flags: Vec<bool> = taken.deliveries.iter().map(|d| d.redelivered).collect();
        let case = format!("{text} on {name}: {attempts} attempts, redelivered flags {flags:?}");
        report.violate(Promise::Unflagged, case);
    }
}

/// Whether `seen`, written down first, also left the broker first. A consumer whose connection is
/// gone may write down late what it had in its buffers, while another already has it again.
fn came_before(facts: &Facts, taken: &Taken, seen: &Delivery, late: &Delivery) -> bool {
    let start = facts.sessions.get(&late.session).map_or(0, |session| session.start);
    if seen.session == late.session || start > seen.t {
        return true;
    }
    let given_back = taken.settles.iter().any(|settle| {
        settle.session == late.session && settle.outcome == Outcome::Requeued && settle.t < seen.t
    });
    !given_back && !facts.harmed_within(start, seen.t)
}

/// Q5. A new leader waits a second, and no longer, for what other nodes know of settles (`cluster::limits`). On a machine
/// that stands still for seconds, elections come by themselves, and the second may be too short.
fn resurrected(
    facts: &Facts,
    rules: &Rules,
    queue: u32,
    id: MessageId,
    taken: &Taken,
    attempts: Option<usize>,
    report: &mut Report,
) {
    let is_for_good = |it: &&Settle| it.outcome != Outcome::Requeued && !facts.is_undecided(id, it);
    let done = taken.settles.iter().find(is_for_good);
    let Some(done) = done.filter(|_| attempts == Some(1)) else { return };
    let (from, to) = (done.t.saturating_sub(rules.settle_horizon), done.t + rules.settle_logged);
    if facts.harmed_within(from, to) || facts.elected_within(queue, from, to) {
        return;
    }
    report.counts.settled_for_good += 1;
    if let Some(back) = taken.deliveries.iter().find(|delivery| delivery.t > done.t) {
        let (name, text) = (facts.names.name(queue), facts.names.text(id));
        let later_ms = (back.t - done.t) / 1_000_000;
        let case = format!("{text} on {name} came back {later_ms} ms after its settle");
        report.violate(Promise::Resurrected, case);
    }
}

/// Q6: within one consumer session always, over all sessions where there is one consumer at a time.
fn order(
    facts: &Facts,
    rules: &Rules,
    queue: u32,
    deliveries: &[(MessageId, Delivery)],
    report: &mut Report,
) {
    let single = facts.queues.get(&queue).is_some_and(|queue| queue.single);
    let takes_dead = facts.queues.get(&queue).is_some_and(|queue| queue.takes_dead);
    if let Some(traits) = facts.traits(queue).filter(|traits| traits.keyed) {
        return order_by_key(facts, queue, traits, deliveries, report);
    }
    // Priorities, delays and what comes back later change the order; T4 knows about priorities.
    let is_promised = single || !rules.unordered.contains(&facts.names.name(queue));
    if takes_dead || facts.traits(queue).is_some() || !is_promised {
        return;
    }
    let mut highest: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for (id, delivery) in deliveries {
        let is_once = attempts_of(facts, *id) == 1 && !facts.came_again.contains(id);
        if !is_once || !is_first(facts, queue, *id, delivery.t) {
            continue;
        }
        if delivery.redelivered && !(single && rules.order_of_flagged) {
            continue;
        }
        let scope = if single { u32::MAX } else { delivery.session };
        let highest = highest.entry((scope, id.channel)).or_default();
        if id.seq < *highest {
            let (name, text) = (facts.names.name(queue), facts.names.text(*id));
            report.violate(Promise::Reordered, format!("{text} on {name} after {highest}"));
        }
        *highest = id.seq.max(*highest);
    }
}

/// Q6 of one key, over all sessions. Where one message of a key is out at a time, the next is given out once the one
/// before it is settled for good. What may have been with another consumer before is flagged, and comes again in any
/// order.
fn order_by_key(
    facts: &Facts,
    queue: u32,
    traits: &Traits,
    deliveries: &[(MessageId, Delivery)],
    report: &mut Report,
) {
    let mut last: BTreeMap<(u64, u32), MessageId> = BTreeMap::new();
    for (id, delivery) in deliveries {
        let Some(key) = facts.marks.get(id).and_then(|marks| marks.key) else { continue };
        let is_once = attempts_of(facts, *id) == 1 && !facts.came_again.contains(id);
        if !is_once || delivery.redelivered || !is_first(facts, queue, *id, delivery.t) {
            continue;
        }
        let last = last.entry((key, id.channel)).or_insert(*id);
        let case = |what: &str| {
            let [text, before] = [*id, *last].map(|id| facts.names.text(id));
            format!("{text} of key {key} on {} {what} {before}", facts.names.name(queue))
        };
        if id.seq < last.seq {
            report.violate(Promise::Reordered, case("after"));
        } else if traits.in_turn && id != last && !is_settled_by(facts, queue, *last, delivery.t) {
            report.violate(Promise::Reordered, case("given out before the end of"));
        }
        *last = (*id).max(*last);
    }
}

/// Whether a consumer had said by `t` that it is done with the message.
fn is_settled_by(facts: &Facts, queue: u32, id: MessageId, t: Nanos) -> bool {
    let is_end = |settle: &Settle| settle.outcome != Outcome::Requeued && settle.t <= t;
    facts.taken.get(&(queue, id)).is_some_and(|taken| taken.settles.iter().any(is_end))
}

fn is_first(facts: &Facts, queue: u32, id: MessageId, t: Nanos) -> bool {
    facts.taken.get(&(queue, id)).and_then(|t| t.deliveries.first()).is_some_and(|d| d.t == t)
}

fn attempts_of(facts: &Facts, id: MessageId) -> usize {
    facts.publishes.get(&id).map_or(0, |publish| publish.attempts.len())
}
