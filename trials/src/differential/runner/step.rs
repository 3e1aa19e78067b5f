//! What happened between two operations, gathered by kind, so that a trace does not depend on the
//! order in which independent things arrive.

use std::collections::{BTreeMap, BTreeSet};

use super::super::leeway;
use super::super::wire::{self, Message};

#[derive(Default)]
pub(super) struct Step {
    pub(super) replies: Vec<String>,
    /// By channel and consumer.
    pub(super) deliveries: BTreeMap<(u16, String), Vec<Message>>,
    pub(super) gots: Vec<String>,
    pub(super) returns: BTreeMap<u16, Vec<String>>,
    pub(super) acked: BTreeSet<String>,
    pub(super) nacked: BTreeSet<String>,
    pub(super) cancelled: BTreeSet<String>,
    pub(super) closes: Vec<String>,
    /// Counts of queues that changed, as they are now.
    pub(super) counts: BTreeMap<String, String>,
}

impl Step {
    /// The lines of the trace, without the names' prefix. The step is empty then.
    pub(super) fn take(&mut self, prefix: &str) -> Vec<String> {
        let step = std::mem::take(self);
        let mut lines = step.replies;
        for ((channel, consumer), messages) in &step.deliveries {
            let shown = messages.iter().map(|message| {
                format!("@{channel} {consumer} < {}", wire::show(&leeway::message(message)))
            });
            lines.extend(shown);
        }
        lines.extend(step.gots);
        for (channel, returns) in &step.returns {
            lines.extend(returns.iter().map(|text| format!("@{channel} returned {text}")));
        }
        lines.extend(list("confirmed", &step.acked));
        lines.extend(list("refused", &step.nacked));
        lines.extend(list("cancelled", &step.cancelled));
        lines.extend(step.closes);
        lines.extend(step.counts.iter().map(|(queue, counts)| format!("{queue}: {counts}")));
        lines.into_iter().map(|line| leeway::line(&line.replace(prefix, ""))).collect()
    }
}

fn list(what: &str, names: &BTreeSet<String>) -> Option<String> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| format!("{what} {}", names.join(" ")))
}
