//! Q8, Q9, A1, and whether the run proves anything: what holds for the run as a whole.

use std::collections::BTreeMap;

use super::facts::{Facts, Fault};
use super::{Promise, Report, Rules, SECOND};
use crate::history::Nanos;

pub(super) fn judge(facts: &Facts, rules: &Rules, report: &mut Report) {
    report.counts.faults = facts.harm_count;
    report.counts.sectors = facts.sectors;
    empty(facts, report);
    stuck(facts, rules, report);
    gaps(facts, report);
    spared(facts, report);
    doubts(facts, rules, report);
}

/// Q8.
fn empty(facts: &Facts, report: &mut Report) {
    for (number, queue) in &facts.queues {
        let name = facts.names.name(*number);
        match queue.left {
            Some(0) => {}
            Some(left) => {
                report.violate(Promise::NotEmpty, format!("{name} reports {left} after its drain"));
            }
            None => report.doubts.push(format!("{name} was not drained")),
        }
    }
}

/// Q9. Dead-letter queues get nothing by themselves, so they only have to be empty in the end. Time begins with the heal,
/// or when somebody first sends to a queue that is left out at times, or when a pause is over.
fn stuck(facts: &Facts, rules: &Rules, report: &mut Report) {
    let Some(healed) = facts.healed else {
        report.doubts.push("the run was never healed".to_owned());
        return;
    };
    let until = |since: Nanos| since.saturating_add(rules.stuck_after);
    let in_time = |since, at: Option<&Nanos>| at.is_some_and(|at| *at <= until(since));
    for (number, queue) in facts.queues.iter().filter(|(_, queue)| !queue.takes_dead) {
        let name = facts.names.name(*number);
        // One that is full refuses; and publishers to queues with arguments may pass one over.
        let is_special = facts.traits(*number).is_some();
        let refuses = facts.traits(*number).is_some_and(|traits| traits.refuses);
        let tried = facts.tried_after_heal.get(number).copied();
        let tried = if is_special { tried } else { Some(healed) };
        let confirmed = facts.confirmed_after_heal.get(number);
        if !refuses && tried.is_some_and(|since| !in_time(since, confirmed)) {
            report.violate(Promise::Stuck, format!("no confirm for {name} after the heal"));
        }
        // From others all may go another way than to a consumer.
        let goes_on = queue.pauses.over_by(healed, until(healed));
        if !is_special && !in_time(goes_on, facts.delivered_after_heal.get(number)) {
            report.violate(Promise::Stuck, format!("no delivery from {name} after the heal"));
        }
    }
}

/// A1: the longest times without a confirm for one queue while publishers tried.
fn gaps(facts: &Facts, report: &mut Report) {
    let nothing = BTreeMap::from([(u32::MAX, Vec::new())]);
    let queues = if facts.confirms.is_empty() { &nothing } else { &facts.confirms };
    for ((start, end), (queue, confirms)) in
        facts.load.iter().flat_map(|time| queues.iter().map(move |queue| (time, queue)))
    {
        let waited = facts.queues.get(queue).is_some_and(|queue| queue.rescue.is_some());
        let which = if waited { " (queues that were rescued)" } else { "" };
        let mut before = *start;
        let within = confirms.iter().filter(|t| (*start..=*end).contains(*t));
        for t in within.chain([end]) {
            let gap = t.saturating_sub(before);
            let longest = if facts.harmed_within(before, *t) {
                &mut report.counts.gap_in_fault
            } else {
                &mut report.counts.gap_in_quiet
            };
            *longest = gap.max(*longest);
            for fault in facts.harms_within(before, *t) {
                let kind = format!("{}{which}", facts.names.name(fault.kind));
                let longest = report.counts.gaps.entry(kind).or_default();
                *longest = gap.max(*longest);
            }
            before = *t;
        }
    }
}

/// A connection may break that late for what happened before.
const AFTERMATH: Nanos = 15 * SECOND;

/// S1: where one node alone is harmed, and a whole cluster was there before, the others' clients keep
/// their connections and channels.
fn spared(facts: &Facts, report: &mut Report) {
    report.counts.broke = facts.broke.len() as u64;
    for (t, node) in &facts.broke {
        let is_over = |fault: &Fault| fault.t0 > *t || fault.t1.saturating_add(AFTERMATH) < *t;
        let is_reason = |fault: &&Fault| {
            fault.is_harm && !is_over(fault) && (fault.node == 0 || fault.node == *node)
        };
        if facts.faults.iter().any(|fault| is_reason(&fault)) {
            continue;
        }
        let elsewhere = facts.faults.iter().find(|fault| fault.is_harm && !is_over(fault));
        if let Some(fault) = elsewhere {
            let (kind, harmed) = (facts.names.name(fault.kind), fault.node);
            let case = format!("a connection to node {node} broke in {kind} of node {harmed}");
            report.violate(Promise::Spared, case);
        }
    }
}

fn doubts(facts: &Facts, rules: &Rules, report: &mut Report) {
    let mut least = |what: &str, found: u64, least: u64| {
        if found < least {
            report.doubts.push(format!("{what}: {found}, at least {least} are needed"));
        }
    };
    least("confirmed publishes", report.counts.confirmed, rules.confirmed_min);
    least("faults", facts.harm_count, rules.faults_min);
    least("sectors lost to power cuts", facts.sectors, rules.sectors_min);
    for name in &facts.cut_short {
        report.doubts.push(format!("the history of {name} was cut short"));
    }
}
