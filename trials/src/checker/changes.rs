//! P1, X1 and X2: what purges throw away, and what transactions do at once.

use super::facts::{Delivery, Facts, Outcome, Settle, Tx};
use super::{Promise, Report, features};
use crate::history::{MessageId, Nanos};

pub(super) fn judge(facts: &Facts, report: &mut Report) {
    purged(facts, report);
    for (name, tx) in &facts.txs {
        report.counts.transactions += 1;
        undone(facts, name, tx, report);
        half(facts, name, tx, report);
    }
}

/// Whether the consumer was not there at that time: nothing was on its way to it.
fn is_younger(facts: &Facts, delivery: &Delivery, than: Nanos) -> bool {
    facts.sessions.get(&delivery.session).is_some_and(|session| session.start > than)
}

/// P1. What somebody held while the queue was purged is not gone, but it is flagged when it comes again.
fn purged(facts: &Facts, report: &mut Report) {
    for (id, publish) in facts.publishes.iter().filter(|(_, publish)| publish.is_confirmed()) {
        let confirmed = publish.outcomes.iter().filter(|(_, _, ok)| *ok).map(|(_, t, _)| *t).max();
        let is_once = publish.attempts.len() == 1 && !facts.came_again.contains(id);
        let Some(confirmed) = confirmed.filter(|_| is_once) else { continue };
        for queue in &publish.queues {
            let is_plain = facts.traits(*queue).is_none() && !facts.marks.contains_key(id);
            let Some(found) = facts.queues.get(queue).filter(|_| is_plain) else { continue };
            let last = found.purges.iter().filter(|purge| purge.asked > confirmed);
            let Some((purge, _)) = last.filter_map(|purge| purge.done).max() else { continue };
            report.counts.purged += 1;
            let first = facts.taken.get(&(*queue, *id)).and_then(|taken| taken.deliveries.first());
            let is_wrong =
                |first: &&Delivery| !first.redelivered && is_younger(facts, first, purge);
            if first.filter(is_wrong).is_some() {
                let (name, text) = (facts.names.name(*queue), facts.names.text(*id));
                report.violate(Promise::Purged, format!("{text} of {name}"));
            }
        }
    }
    for (number, queue) in &facts.queues {
        let Some(books) = queue.books else { continue };
        // One whose leader was lost is asked for again: the answer then counts the second time alone.
        let told: u64 = queue.purges.iter().filter_map(|purge| purge.done).map(|(_, n)| n).sum();
        if books.purged < told {
            let name = facts.names.name(*number);
            let case = format!("{name}: {told} were purged by answers, {} by books", books.purged);
            report.violate(Promise::Books, case);
        }
    }
}

/// X1.
fn undone(facts: &Facts, name: &str, tx: &Tx, report: &mut Report) {
    let Some(queue) = facts.sessions.get(&tx.session).map(|session| session.queue) else { return };
    let Some(committed) = tx.committed else { return };
    for id in tx.acks.iter().filter(|id| !facts.came_again.contains(id)) {
        let Some(taken) = facts.taken.get(&(queue, *id)) else { continue };
        if taken.deliveries.iter().any(|delivery| is_younger(facts, delivery, committed)) {
            let (text, queue) = (facts.names.text(*id), facts.names.name(queue));
            report.violate(Promise::Undone, format!("{text} of {queue} after {name}"));
        }
    }
}

/// X2. What nobody got after the transaction is settled by it: then all is there that it published.
fn half(facts: &Facts, name: &str, tx: &Tx, report: &mut Report) {
    let Some(queue) = facts.sessions.get(&tx.session).map(|session| session.queue) else { return };
    let drained = |queue: &u32| facts.queues.get(queue).is_some_and(|q| q.left == Some(0));
    if !tx.whole || !drained(&queue) {
        return;
    }
    let is_settled = |id: &&MessageId| {
        let Some(taken) = facts.taken.get(&(queue, **id)) else { return false };
        let is_last = taken.deliveries.last().is_some_and(|last| last.session == tx.session);
        // What somebody settled who had it before may have been logged after all.
        let is_other =
            |settle: &Settle| settle.session != tx.session && settle.outcome != Outcome::Requeued;
        // What a policy lets go need not have been settled.
        let may_be_gone = features::may_be_gone(facts, queue, **id);
        let came_again = facts.came_again.contains(id);
        is_last && !came_again && !taken.settles.iter().any(is_other) && !may_be_gone
    };
    let Some(acked) = tx.acks.iter().find(is_settled) else { return };
    for id in &tx.pubs {
        let Some(publish) = facts.publishes.get(id) else { continue };
        let is_missing = |to: &&u32| {
            drained(to)
                && !facts.is_delivered(**to, *id)
                && !features::may_be_gone(facts, **to, *id)
        };
        let missing = publish.queues.iter().find(is_missing);
        if let Some(to) = missing {
            let (acked, text) = (facts.names.text(*acked), facts.names.text(*id));
            let to = facts.names.name(*to);
            report.violate(
                Promise::Half,
                format!("{name}: {acked} is settled, {text} never came to {to}"),
            );
        }
    }
}
