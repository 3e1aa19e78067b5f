//! What was measured, to read and to keep.

use std::fmt;

use super::scenario::{Beside, Dead, Death, Delays, Figures, Queues};
use crate::bench::report::machine;
use crate::brokers::Kind;
use crate::json::quote;

/// All runs of a load on one kind of queue.
pub(super) struct QueueRow {
    kind: Kind,
    queues: Queues,
    bytes: usize,
    pub(super) runs: Vec<Figures>,
}

pub(super) struct DelayRow {
    pub(super) kind: Kind,
    pub(super) beside: Beside,
    pub(super) messages: u64,
    pub(super) delays: Delays,
}

pub(super) struct DeadRow {
    pub(super) kind: Kind,
    pub(super) death: Death,
    pub(super) messages: u64,
    pub(super) dead: Dead,
}

pub(super) struct Tables {
    seconds: u32,
    runs: usize,
    pub(super) queues: Vec<QueueRow>,
    pub(super) delays: Vec<DelayRow>,
    pub(super) dead: Vec<DeadRow>,
    failures: Vec<String>,
}

impl QueueRow {
    pub(super) fn new(kind: Kind, queues: Queues, bytes: usize) -> Self {
        Self { kind, queues, bytes, runs: Vec::new() }
    }

    fn median(&self, figure: fn(&Figures) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.runs.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or(0.0)
    }
}

impl Tables {
    pub(super) fn new(seconds: u32, runs: usize) -> Self {
        let (queues, delays, dead) = (Vec::new(), Vec::new(), Vec::new());
        Self { seconds, runs, queues, delays, dead, failures: Vec::new() }
    }

    /// A run came to nothing.
    pub(super) fn failed(&mut self, why: String) {
        println!("FAILED: {why}");
        self.failures.push(why);
    }

    /// What failed, if anything did.
    pub(super) fn complaint(&self) -> Option<String> {
        (!self.failures.is_empty()).then(|| self.failures.join("\n"))
    }

    /// The plain queue of the same run.
    fn plain(&self, row: &QueueRow) -> Option<&QueueRow> {
        let is_same = |one: &&QueueRow| one.kind == row.kind && one.bytes == row.bytes;
        self.queues.iter().filter(is_same).find(|one| one.queues == Queues::Plain)
    }

    /// How much dearer a message is, and how much slower the queue, than in a plain one.
    fn against_plain(&self, row: &QueueRow) -> (f64, f64) {
        let Some(plain) = self.plain(row) else { return (0.0, 0.0) };
        let ratio =
            |dividend: f64, divisor: f64| if divisor > 0.0 { dividend / divisor } else { 0.0 };
        let (cpu, rate) =
            (|figures: &Figures| figures.cpu_us, |figures: &Figures| figures.consumed_per_s);
        (ratio(row.median(cpu), plain.median(cpu)), ratio(plain.median(rate), row.median(rate)))
    }

    pub(super) fn to_json(&self) -> String {
        let mut rows = Vec::new();
        for row in &self.queues {
            for run in &row.runs {
                rows.push(format!(
                    "{{\"queue\": {}, \"broker\": {}, \"bytes\": {}, \"confirmed_per_s\": {:.1}, \
                     \"consumed_per_s\": {:.1}, \"cpu_us\": {:.4}, \"confirm_p99_ms\": {:.3}, \"rss_bytes\": {}}}",
                    quote(row.queues.word()),
                    quote(row.kind.name()),
                    row.bytes,
                    run.confirmed_per_s,
                    run.consumed_per_s,
                    run.cpu_us,
                    run.confirm_p99_ms,
                    run.rss_bytes,
                ));
            }
        }
        for DelayRow { kind, beside, messages, delays } in &self.delays {
            rows.push(format!(
                "{{\"delayed\": {messages}, \"broker\": {}, \"beside\": {}, \"late_p50_ms\": {:.3}, \
                 \"late_p99_ms\": {:.3}, \"late_max_ms\": {:.3}, \"early\": {}, \"rss_before\": {}, \
                 \"rss_max\": {}, \"published_per_s\": {:.1}}}",
                quote(kind.name()),
                quote(beside.name()),
                delays.late_p50_ms,
                delays.late_p99_ms,
                delays.late_max_ms,
                delays.early,
                delays.rss_before,
                delays.rss_max,
                delays.published_per_s,
            ));
        }
        for DeadRow { kind, death, messages, dead } in &self.dead {
            rows.push(format!(
                "{{\"dead_lettered\": {messages}, \"broker\": {}, \"how\": {}, \"per_s\": {:.1}, \
                 \"cpu_us\": {:.4}, \"rss_max\": {}}}",
                quote(kind.name()),
                quote(death.word()),
                dead.per_s,
                dead.cpu_us,
                dead.rss_max,
            ));
        }
        format!(
            "{{\"machine\": {}, \"seconds\": {}, \"runs\": {}, \"results\": [\n{}\n]}}\n",
            quote(&machine()),
            self.seconds,
            self.runs,
            rows.join(",\n")
        )
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, runs, .. } = self;
        writeln!(f, "{}; queues: medians of {runs} runs of {seconds} s.", machine())?;
        if !self.queues.is_empty() {
            writeln!(
                f,
                "\n| queue | body | broker | confirmed/s | consumed/s | broker CPU per message | CPU, times plain \
                 | slower than plain | RSS |\n| --- | --: | --- | --: | --: | --: | --: | --: | --: |"
            )?;
        }
        for row in &self.queues {
            let (dearer, slower) = self.against_plain(row);
            writeln!(
                f,
                "| {} | {} B | {} | {:.0} | {:.0} | {:.2} us | {dearer:.2} | {slower:.2} | {:.0} MB |",
                row.queues.name(),
                row.bytes,
                row.kind.name(),
                row.median(|run| run.confirmed_per_s),
                row.median(|run| run.consumed_per_s),
                row.median(|run| run.cpu_us),
                row.median(|run| run.rss_bytes) / 1e6,
            )?;
        }
        if !self.delays.is_empty() {
            writeln!(
                f,
                "\n| delayed messages | broker | beside | published/s | RSS before / most | bytes per message \
                 | late p50 / p99 / max | early |\n| --: | --- | --- | --: | --: | --: | --: | --: |"
            )?;
        }
        for DelayRow { kind, beside, messages, delays } in &self.delays {
            writeln!(
                f,
                "| {messages} | {} | {} | {:.0} | {:.0} / {:.0} MB | {:.0} | {:.1} / {:.1} / {:.1} ms | {} |",
                kind.name(),
                beside.name(),
                delays.published_per_s,
                delays.rss_before / 1e6,
                delays.rss_max / 1e6,
                (delays.rss_max - delays.rss_before) / *messages as f64,
                delays.late_p50_ms,
                delays.late_p99_ms,
                delays.late_max_ms,
                delays.early,
            )?;
        }
        if !self.dead.is_empty() {
            writeln!(
                f,
                "\n| dead letters | why | broker | per second | broker CPU per message | RSS |\n\
                 | --: | --- | --- | --: | --: | --: |"
            )?;
        }
        for DeadRow { kind, death, messages, dead } in &self.dead {
            writeln!(
                f,
                "| {messages} | {} | {} | {:.0} | {:.2} us | {:.0} MB |",
                death.word(),
                kind.name(),
                dead.per_s,
                dead.cpu_us,
                dead.rss_max / 1e6,
            )?;
        }
        Ok(())
    }
}
