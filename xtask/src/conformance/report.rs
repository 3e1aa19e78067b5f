//! What the suites told: as a table to read, as JSON to keep.

use std::fmt::Write;
use std::path::Path;

use crate::Outcome;
use crate::json::quote;
use crate::tally::Tally;

/// How many failed cases of a suite the table names.
const FAILED_SHOWN_COUNT: usize = 100;

/// One suite's cases. Pairs are a name and what was said about it.
pub(super) struct Row {
    client: &'static str,
    version: &'static str,
    pub(super) passed: Vec<String>,
    pub(super) failed: Vec<(String, String)>,
    pub(super) skipped: Vec<(String, String)>,
    /// Why there are no cases at all.
    pub(super) trouble: Option<String>,
}

impl Row {
    pub(super) fn new(client: &'static str, version: &'static str) -> Row {
        let (passed, failed, skipped) = Default::default();
        Row { client, version, passed, failed, skipped, trouble: None }
    }

    /// Reasons for skips, each with how often it is given.
    fn reasons(&self) -> Vec<(usize, &str)> {
        let mut reasons: Vec<(usize, &str)> = Vec::new();
        for (_, reason) in &self.skipped {
            match reasons.iter_mut().find(|(_, known)| known == reason) {
                Some((count, _)) => *count += 1,
                None => reasons.push((1, reason)),
            }
        }
        reasons.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        reasons
    }
}

/// A suite that could not run at all counts as one failure.
pub(super) fn tally(rows: &[Row]) -> Tally {
    let mut tally = Tally::default();
    for row in rows {
        tally.add(Tally {
            passed: row.passed.len() as u64,
            failed: row.failed.len() as u64 + u64::from(row.trouble.is_some()),
            skipped: row.skipped.len() as u64,
        });
    }
    tally
}

pub(super) fn table(broker: &str, rows: &[Row]) -> String {
    let mut text = format!("| client on {broker} | passed | failed | skipped, and why |\n");
    text.push_str("| --- | --: | --: | --- |\n");
    for row in rows {
        let reasons: Vec<String> =
            row.reasons().iter().map(|(count, reason)| format!("{count} {reason}")).collect();
        let note = row.trouble.clone().unwrap_or(reasons.join("; "));
        let (passed, failed) = (row.passed.len(), row.failed.len());
        let client = format!("{} {}", row.client, row.version);
        let _ = writeln!(text, "| {client} | {passed} | {failed} | {note} |");
    }
    for row in rows {
        for (name, note) in row.failed.iter().take(FAILED_SHOWN_COUNT) {
            let note: String = note.chars().take(200).collect();
            let _ = writeln!(text, "failed: {} {name}: {note}", row.client);
        }
    }
    text
}

/// Writes `conformance.json` beside the suites' logs.
pub(super) fn write(folder: &Path, broker: &str, rows: &[Row]) -> Outcome {
    let pairs = |pairs: &[(String, String)]| {
        let pairs: Vec<String> =
            pairs.iter().map(|(name, note)| format!("{}: {}", quote(name), quote(note))).collect();
        format!("{{{}}}", pairs.join(", "))
    };
    let mut suites = Vec::new();
    for row in rows {
        let passed: Vec<String> = row.passed.iter().map(|name| quote(name)).collect();
        suites.push(format!(
            "{{\"client\": {}, \"version\": {}, \"trouble\": {}, \"passed\": [{}], \"failed\": {}, \"skipped\": {}}}",
            quote(row.client),
            quote(row.version),
            row.trouble.as_deref().map_or("null".into(), quote),
            passed.join(", "),
            pairs(&row.failed),
            pairs(&row.skipped),
        ));
    }
    let text =
        format!("{{\"broker\": {}, \"suites\": [\n{}\n]}}\n", quote(broker), suites.join(",\n"));
    let path = folder.join("conformance.json");
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}
