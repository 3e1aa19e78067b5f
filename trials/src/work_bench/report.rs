//! What was measured, as a table and as JSON.

use std::fmt;
use std::path::Path;

use serde::Serialize;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) jobs: u64,
    /// From the first job that was handled to the last.
    pub(super) elapsed_s: f64,
    pub(super) worker_cpu_s: f64,
    pub(super) server_cpu_s: f64,
    pub(super) memory_mb: f64,
}

impl Row {
    fn rate(&self) -> f64 {
        self.jobs as f64 / self.elapsed_s.max(1e-9)
    }

    fn per_cpu_s(&self) -> f64 {
        self.jobs as f64 / self.worker_cpu_s.max(0.01)
    }

    fn server_us(&self) -> f64 {
        self.server_cpu_s * 1e6 / self.jobs as f64
    }
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:<32} {:>9.0} jobs/s, {:>9.0} jobs per CPU second, server {:.1} us a job, {:.0} MB",
            self.name,
            self.rate(),
            self.per_cpu_s(),
            self.server_us(),
            self.memory_mb
        )
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Row>,
    notes: Vec<String>,
    failures: u32,
}

impl Report {
    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(super) fn skip(&mut self, name: &str, why: &str) {
        self.note(format!("{name}: skipped: {why}"));
    }

    pub(super) fn fail(&mut self, name: &str, why: &str) {
        self.failures += 1;
        self.note(format!("{name}: failed: {why}"));
    }

    fn note(&mut self, text: String) {
        println!("{text}");
        self.notes.push(text);
    }

    pub(super) fn is_right(&self) -> bool {
        self.failures == 0
    }

    pub(super) fn finish(
        &self,
        markdown: Option<&Path>,
        json: Option<&Path>,
    ) -> Result<(), std::io::Error> {
        if let Some(path) = markdown {
            std::fs::write(path, self.markdown())?;
        }
        if let Some(path) = json {
            let text = serde_json::to_string_pretty(&self.rows).map_err(std::io::Error::other)?;
            std::fs::write(path, text)?;
        }
        Ok(())
    }

    fn markdown(&self) -> String {
        let mut text = String::from(
            "| who, from where | jobs | jobs/s | jobs per CPU second | server's CPU a job | memory |\n\
             | --- | --: | --: | --: | --: | --: |\n",
        );
        for row in &self.rows {
            text += &format!(
                "| {} | {} | {:.0} | {:.0} | {:.1} us | {:.0} MB |\n",
                row.name,
                row.jobs,
                row.rate(),
                row.per_cpu_s(),
                row.server_us(),
                row.memory_mb
            );
        }
        for note in &self.notes {
            text += &format!("\n- {note}");
        }
        text
    }
}
