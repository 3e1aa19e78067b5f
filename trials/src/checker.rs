//! Judges a history by what the broker promises. Knows nothing of the broker, and never asks it.
//!
//! A violation makes a run invalid. A run that proves nothing (too little was confirmed, the fault
//! did not bite, a queue was not drained) is unknown, and unknown fails like invalid: only `valid`
//! passes. How many nodes there were makes no difference here; faults name theirs.

mod changes;
mod dead_letters;
mod ending;
mod facts;
mod features;
mod pauses;
mod policies;
mod promises;
mod rescues;
mod retries;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{History, Nanos};
use facts::Facts;

const SECOND: Nanos = 1_000_000_000;

/// What a run must show before it counts, and how much time its rules allow.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Fewer confirmed publishes prove nothing.
    pub confirmed_min: u64,
    /// Fewer faults (other than lost connections) prove nothing.
    pub faults_min: u64,
    /// Fewer sectors lost to power cuts prove nothing.
    pub sectors_min: u64,
    /// A settle this close to a fault may be undone by it (Q5): so long after one, so long before one.
    pub settle_horizon: Nanos,
    pub settle_logged: Nanos,
    /// After the heal, every queue must confirm and deliver within this time (Q9).
    pub stuck_after: Nanos,
    /// What was on its way to a consumer has come by then, and no leader that was cut off takes itself to lead (P2).
    pub late: Nanos,
    /// Times of the broker may differ from ours by so much (T1, T2).
    pub clock_slack: Nanos,
    /// On queues with a single consumer, first deliveries that are flagged must be in order too:
    /// true where a message that comes back takes its old place (Q6).
    pub order_of_flagged: bool,
    /// Queues of several consumers where the first deliveries to each need not be in order (Q6). The order among several
    /// consumers is not promised: what was on its way to a consumer that ended comes back without a flag, behind what
    /// another has got already. Other shared queues are held to the order all the same.
    pub unordered: &'static [&'static str],
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            confirmed_min: 1000,
            faults_min: 1,
            sectors_min: 0,
            settle_horizon: 5 * SECOND,
            settle_logged: 5 * SECOND,
            stuck_after: 20 * SECOND,
            late: 3 * SECOND,
            clock_slack: SECOND / 50,
            order_of_flagged: true,
            unordered: &[],
        }
    }
}

/// The promises, by the names used in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// Q1: confirmed, and never seen again.
    Lost,
    /// Q2: delivered, and never published there.
    Unexpected,
    /// Q2: not the bytes that were published.
    Corrupt,
    /// Q3: delivered again without the flag.
    Unflagged,
    /// Q5: settled long before any fault, and back again.
    Resurrected,
    /// Q6: out of the order of its publisher's channel.
    Reordered,
    /// Q7: more than one confirm, or one on a channel that was closed.
    Confirm,
    /// Q8: messages left after the drain.
    NotEmpty,
    /// Q9: a queue that confirms or delivers nothing after the heal.
    Stuck,
    /// T1: delivered before its delay was over.
    Early,
    /// T2: dead, and its queue or it itself gave no reason for that.
    Killed,
    /// T3: the same key twice within the window.
    Duplicate,
    /// T4: one of lower priority before one of higher.
    Priority,
    /// T6: more messages than the queue's rate allows.
    Hurried,
    /// D1: a dead letter that came more than once to where it goes, and nothing had happened.
    DeadTwice,
    /// D2: dead letters of one queue out of the order in which they died.
    DeadOrder,
    /// T5: what came in is not what went out and what is left.
    Books,
    /// P1: confirmed before a purge that was carried out, and delivered after it.
    Purged,
    /// P2: given to a consumer while its queue was paused.
    Paused,
    /// R1: sent on from where it lay dead, and never come to where it was sent.
    Retried,
    /// X1: acknowledged in a transaction that was committed, and back again.
    Undone,
    /// X2: acknowledged by a transaction, and what it published with that never came.
    Half,
    /// S1: a connection to a node that was not harmed broke off.
    Spared,
    /// F8: confirmed by a broker whose disk had failed.
    Silence,
    /// What the protocol does not allow.
    Protocol,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "Q1 lost",
            Self::Unexpected => "Q2 unexpected",
            Self::Corrupt => "Q2 corrupt",
            Self::Unflagged => "Q3 unflagged redelivery",
            Self::Resurrected => "Q5 resurrected",
            Self::Reordered => "Q6 reordered",
            Self::Confirm => "Q7 confirm",
            Self::NotEmpty => "Q8 not empty",
            Self::Stuck => "Q9 stuck",
            Self::Early => "T1 delivered early",
            Self::Killed => "T2 dead without a reason",
            Self::Duplicate => "T3 duplicate",
            Self::Priority => "T4 out of priority",
            Self::Hurried => "T6 faster than the rate",
            Self::DeadTwice => "D1 dead letter repeated",
            Self::DeadOrder => "D2 dead letters reordered",
            Self::Books => "T5 books",
            Self::Purged => "P1 purged and delivered",
            Self::Paused => "P2 given while paused",
            Self::Retried => "R1 sent on and gone",
            Self::Undone => "X1 a commit undone",
            Self::Half => "X2 half a transaction",
            Self::Spared => "S1 error at a survivor",
            Self::Silence => "F8 confirmed after a failure",
            Self::Protocol => "protocol",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Valid,
    Invalid,
    Unknown,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub attempted: u64,
    pub confirmed: u64,
    /// Publishes refused with `basic.nack`.
    pub refused: u64,
    /// Publishes whose outcome nobody knows.
    pub unknown: u64,
    /// Messages (per queue) that were delivered at least once.
    pub delivered: u64,
    /// Deliveries beyond the number of attempts: legal where flagged.
    pub duplicates: u64,
    /// Q4: outcome unknown, and delivered: legal.
    pub recovered: u64,
    /// Settles far enough from every fault for Q5 to judge.
    pub settled_for_good: u64,
    /// Messages that died and went elsewhere, and those that are gone for a reason.
    pub died: u64,
    pub gone: u64,
    /// Delays, keys and priorities that were judged.
    pub delays: u64,
    pub keys: u64,
    pub priorities: u64,
    /// Dead letters that were judged for repeats and order.
    pub letters: u64,
    /// Messages that a purge was to take, and transactions, that were judged.
    pub purged: u64,
    pub transactions: u64,
    /// Pauses of queues, and dead letters that were sent on, that were judged.
    pub pauses: u64,
    pub retried: u64,
    /// Confirmed, and lost where a rescue may lose it.
    pub lost_by_rescue: u64,
    /// Connections of clients that broke off.
    pub broke: u64,
    pub faults: u64,
    pub sectors: u64,
    /// A1: longest time without any confirm for one queue, around a fault and away from all.
    pub gap_in_fault: Nanos,
    pub gap_in_quiet: Nanos,
    /// The same for each kind of fault.
    pub gaps: BTreeMap<String, Nanos>,
}

/// The checker's answer.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub counts: Counts,
    violations: BTreeMap<Promise, Vec<String>>,
    /// Why the run proves nothing, if it does not.
    pub doubts: Vec<String>,
}

impl Report {
    /// Invalid beats unknown: a broken promise stays broken in a short run.
    pub fn verdict(&self) -> Verdict {
        if !self.violations.is_empty() {
            Verdict::Invalid
        } else if !self.doubts.is_empty() {
            Verdict::Unknown
        } else {
            Verdict::Valid
        }
    }

    pub fn broken(&self, promise: Promise) -> &[String] {
        self.violations.get(&promise).map_or(&[], Vec::as_slice)
    }

    pub fn violations(&self) -> impl Iterator<Item = (Promise, &[String])> {
        self.violations.iter().map(|(promise, cases)| (*promise, cases.as_slice()))
    }

    fn violate(&mut self, promise: Promise, case: String) {
        self.violations.entry(promise).or_default().push(case);
    }
}

/// Cases of one broken promise that a printed report shows.
const CASES_SHOWN: usize = 5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        writeln!(
            f,
            "{:?}: {} attempted, {} confirmed, {} refused, {} unknown, {} delivered, \
             {} duplicates, {} recovered, {} settles judged",
            self.verdict(),
            counts.attempted,
            counts.confirmed,
            counts.refused,
            counts.unknown,
            counts.delivered,
            counts.duplicates,
            counts.recovered,
            counts.settled_for_good,
        )?;
        if counts.died + counts.gone + counts.delays + counts.keys + counts.priorities > 0 {
            let Counts { died, gone, delays, keys, priorities, letters, .. } = counts;
            writeln!(
                f,
                "  {died} dead letters, {gone} gone for a reason, judged: {delays} delays, \
                 {keys} keys, {priorities} priorities, {letters} letters"
            )?;
        }
        if counts.purged + counts.transactions > 0 {
            let Counts { purged, transactions, .. } = counts;
            writeln!(f, "  judged: {purged} messages before a purge, {transactions} transactions")?;
        }
        if counts.pauses + counts.retried > 0 {
            let Counts { pauses, retried, .. } = counts;
            writeln!(f, "  judged: {pauses} pauses, {retried} dead letters that were sent on")?;
        }
        if counts.broke > 0 {
            writeln!(f, "  {} connections broke off", counts.broke)?;
        }
        if counts.lost_by_rescue > 0 {
            writeln!(f, "  {} confirmed and lost where a rescue may lose", counts.lost_by_rescue)?;
        }
        let gap = |(kind, gap): (&String, &Nanos)| format!("{kind} {} ms", gap / 1_000_000);
        let gaps: Vec<String> = counts.gaps.iter().map(gap).collect();
        if !gaps.is_empty() {
            writeln!(f, "  longest time without a confirm for one queue: {}", gaps.join(", "))?;
        }
        for (promise, cases) in self.violations() {
            writeln!(f, "  {promise}: {}", cases.len())?;
            for case in cases.iter().take(CASES_SHOWN) {
                writeln!(f, "    {case}")?;
            }
        }
        for doubt in &self.doubts {
            writeln!(f, "  unknown because {doubt}")?;
        }
        Ok(())
    }
}

/// Holds `history` against every promise.
pub fn check(history: &History, rules: &Rules) -> Report {
    let facts = Facts::gather(history);
    let mut report = Report::default();
    promises::judge(&facts, rules, &mut report);
    features::judge(&facts, rules, &mut report);
    dead_letters::judge(&facts, rules, &mut report);
    changes::judge(&facts, &mut report);
    pauses::judge(&facts, rules, &mut report);
    retries::judge(&facts, &mut report);
    rescues::judge(&facts, &mut report);
    ending::judge(&facts, rules, &mut report);
    report
}
