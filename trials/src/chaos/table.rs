//! What a trial prints: one line of numbers, and under it what went wrong.

use std::fmt;
use std::time::Duration;

use crate::checker::{Promise, Report, Verdict};

/// How one trial ended.
#[derive(Debug)]
pub struct Outcome {
    pub trial: String,
    pub seed: u64,
    pub report: Report,
    /// Broken promises that clients cannot see: an exit code, a missing name in a log.
    pub broken: Vec<String>,
    /// What happened and is no violation.
    pub notes: Vec<String>,
    pub restarts: Vec<Duration>,
    /// Kept where it did not pass.
    pub dir: std::path::PathBuf,
}

impl Outcome {
    pub fn passed(&self) -> bool {
        self.broken.is_empty() && self.report.verdict() == Verdict::Valid
    }

    /// What the run was caught at, in words.
    pub fn caught(&self) -> String {
        let broken = self.report.violations().map(|(promise, cases)| {
            let count = cases.len();
            format!("{promise} x{count}")
        });
        let said = self.broken.iter().map(|text| {
            let first = text.lines().next().unwrap_or_default();
            let last = text.lines().last().filter(|last| *last != first).unwrap_or_default();
            format!("{first} {last}").trim().to_owned()
        });
        broken.chain(said).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.report.counts;
        let broken = |promise| self.report.broken(promise).len().to_string();
        let cells = [
            ("trial", self.trial.clone()),
            ("seed", self.seed.to_string()),
            ("faults", counts.faults.to_string()),
            ("confirmed", counts.confirmed.to_string()),
            ("delivered", counts.delivered.to_string()),
            ("lost", broken(Promise::Lost)),
            ("unexpected", broken(Promise::Unexpected)),
            ("unflagged", broken(Promise::Unflagged)),
            ("reordered", broken(Promise::Reordered)),
            ("longest gap", milliseconds(Duration::from_nanos(counts.gap_in_fault))),
            ("restart max", milliseconds(self.restarts.iter().max().copied().unwrap_or_default())),
            ("sectors lost", counts.sectors.to_string()),
            ("verdict", if self.passed() { "valid".to_owned() } else { "FAILED".to_owned() }),
        ];
        let width = |(name, value): &(&str, String)| name.len().max(value.len());
        for cell in &cells {
            write!(f, "{:>width$}  ", cell.0, width = width(cell))?;
        }
        writeln!(f)?;
        for cell in &cells {
            write!(f, "{:>width$}  ", cell.1, width = width(cell))?;
        }
        writeln!(f)?;
        write!(f, "{}", self.report)?;
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        for broken in &self.broken {
            writeln!(f, "  {broken}")?;
        }
        if !self.passed() {
            writeln!(f, "  kept: {}", self.dir.display())?;
        }
        Ok(())
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
