//! What was measured: medians as a table to read, every run as JSON to keep.

use std::fmt::Write;

use super::generator::{Figures, Generator};
use super::load::Load;
use crate::Outcome;
use crate::brokers::Kind;
use crate::json::quote;
use crate::process::{command, output, target};

/// All runs of one load from one generator on one broker.
pub(super) struct Measured {
    pub(super) kind: Kind,
    pub(super) generator: Generator,
    pub(super) load: Load,
    pub(super) runs: Vec<Figures>,
}

impl Measured {
    fn median(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.runs.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or(0.0)
    }
}

pub(super) fn table(measured: &[Measured], seconds: u32, runs: usize) -> String {
    let mut text = format!("{}; medians of {runs} runs of {seconds} s.\n\n", machine());
    text.push_str(
        "| load | generator | broker | published/s | consumed/s | confirm p50 / p99 ms \
         | broker CPU per message | disk per message | RSS |\n\
         | --- | --- | --- | --: | --: | --: | --: | --: | --: |\n",
    );
    for one in measured {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.0} | {:.2} / {:.2} | {:.1} us | {:.0} B | {:.0} MB |",
            one.load.name(),
            one.generator.name(),
            one.kind.name(),
            one.median(|run| run.published_per_s),
            one.median(|run| run.consumed_per_s),
            one.median(|run| run.confirm_p50_ms),
            one.median(|run| run.confirm_p99_ms),
            one.median(|run| run.cpu_us),
            one.median(|run| run.disk_bytes),
            one.median(|run| (run.rss_bytes >> 20) as f64),
        );
    }
    text
}

/// Processor and kernel: figures from different machines are not to be compared.
pub(super) fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let kernel = output(&mut command("uname", &["-r"])).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    format!("{cpus} CPUs, {model}, Linux {}", kernel.trim())
}

/// Writes `target/bench.json`.
pub(super) fn write(measured: &[Measured], seconds: u32, runs: usize) -> Outcome {
    let mut rows = Vec::new();
    for one in measured {
        for run in &one.runs {
            rows.push(format!(
                "{{\"load\": {}, \"generator\": {}, \"broker\": {}, \"published_per_s\": {:.1}, \
                 \"consumed_per_s\": {:.1}, \"confirm_p50_ms\": {:.3}, \"confirm_p99_ms\": {:.3}, \
                 \"cpu_us\": {:.3}, \"disk_bytes\": {:.1}, \"rss_bytes\": {}}}",
                quote(&one.load.name()),
                quote(one.generator.name()),
                quote(one.kind.name()),
                run.published_per_s,
                run.consumed_per_s,
                run.confirm_p50_ms,
                run.confirm_p99_ms,
                run.cpu_us,
                run.disk_bytes,
                run.rss_bytes,
            ));
        }
    }
    let text = format!(
        "{{\"machine\": {}, \"seconds\": {seconds}, \"runs\": {runs}, \"results\": [\n{}\n]}}\n",
        quote(&machine()),
        rows.join(",\n")
    );
    let path = target().join("bench.json");
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}
