//! Q1 and Q3 after a rescue (decision 14): what a queue may lose whose group went on with one replica, and no more.
//!
//! A log ends somewhere, so what is lost is its end: of what one channel published to the queue, nothing
//! that was lost is older than anything that came afterwards.

use std::collections::BTreeMap;

use super::facts::{Delivery, Facts, Publish};
use super::{Promise, Report};
use crate::history::{MessageId, Nanos};

/// Whether a rescue may have lost the message.
pub(super) fn may_lose(facts: &Facts, queue: u32, publish: &Publish) -> bool {
    let Some(rescue) = facts.queues.get(&queue).and_then(|queue| queue.rescue) else {
        return false;
    };
    let confirmed = publish.outcomes.iter().filter(|(_, _, confirmed)| *confirmed);
    let mut times = confirmed.map(|(_, t, _)| *t);
    // Confirmed again afterwards it is there again.
    times.all(|t| t <= rescue.done && (rescue.empty || t >= rescue.since))
}

/// Whether the mark of a delivery may have gone with the others' logs.
pub(super) fn is_forgotten(facts: &Facts, queue: u32, delivery: &Delivery) -> bool {
    let rescue = facts.queues.get(&queue).and_then(|queue| queue.rescue);
    rescue.is_some_and(|rescue| {
        let from = if rescue.empty { 0 } else { rescue.since };
        (from..=rescue.done).contains(&delivery.t)
    })
}

/// Counts what was lost, and holds it to be the end of each log.
pub(super) fn judge(facts: &Facts, report: &mut Report) {
    // The first that was lost and the last that came afterwards, for each queue and channel.
    let mut lost: BTreeMap<(u32, u32), MessageId> = BTreeMap::new();
    for (id, publish) in facts.publishes.iter().filter(|(_, publish)| publish.is_confirmed()) {
        for queue in &publish.queues {
            let is_there = facts.is_delivered(*queue, *id);
            if is_there || !may_lose(facts, *queue, publish) {
                continue;
            }
            report.counts.lost_by_rescue += 1;
            // A retry has its place in the log elsewhere.
            if publish.attempts.len() == 1 {
                lost.entry((*queue, id.channel)).or_insert(*id);
            }
        }
    }
    for ((queue, id), taken) in &facts.taken {
        let Some(rescue) = facts.queues.get(queue).and_then(|queue| queue.rescue) else { continue };
        let Some(publish) = facts.publishes.get(id).filter(|it| it.attempts.len() == 1) else {
            continue;
        };
        let is_before = |t: &Nanos| *t <= rescue.done;
        let came_after = taken.deliveries.iter().any(|delivery| !is_before(&delivery.t));
        if !came_after || !publish.attempts.values().all(is_before) {
            continue;
        }
        let name = || facts.names.name(*queue);
        if rescue.empty {
            let case = format!(
                "{} came back to {}, of which no surviving node had anything",
                facts.names.text(*id),
                name()
            );
            report.violate(Promise::Unexpected, case);
        } else if let Some(gone) = lost.get(&(*queue, id.channel)).filter(|gone| gone.seq < id.seq)
        {
            let (gone, later) = (facts.names.text(*gone), facts.names.text(*id));
            let case =
                format!("{gone} on {}: a rescue dropped it and kept the later {later}", name());
            report.violate(Promise::Lost, case);
        }
    }
}

#[cfg(test)]
mod tests;
