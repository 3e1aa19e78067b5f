//! The lists beside the code: cases that are not run yet, each with its reason, and cases that
//! RabbitMQ passes.
//!
//! `conformance/skips/<client>.txt` has a reason in brackets and the cases below it;
//! `conformance/expected/<client>.txt` has one case per line. Lines that begin with `#` are comments.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::Outcome;
use crate::process::root;

fn path(kind: &str, client: &str) -> PathBuf {
    root().join("conformance").join(kind).join(format!("{client}.txt"))
}

/// Cases that are not run, and why.
pub(super) fn skips(client: &str) -> Result<BTreeMap<String, String>, String> {
    let path = path("skips", client);
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut skips = BTreeMap::new();
    let mut reason = "";
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(words) => reason = words,
            None if reason.is_empty() => return Err(format!("{line} stands below no reason")),
            None => {
                skips.insert(line.to_string(), reason.to_string());
            }
        }
    }
    Ok(skips)
}

/// Cases that RabbitMQ passes: what Millrace has to pass, but for the skipped ones.
pub(super) fn expected(client: &str) -> Result<BTreeSet<String>, String> {
    let path = path("expected", client);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(text.lines().filter(|line| !line.starts_with('#')).map(String::from).collect())
}

/// Writes what RabbitMQ has just passed.
pub(super) fn write_expected<'a>(
    client: &str,
    broker: &str,
    names: impl Iterator<Item = &'a str>,
) -> Outcome {
    let names: BTreeSet<&str> = names.collect();
    let mut text = format!(
        "# Cases that {broker} passes. Written by: cargo xtask conformance {client} --reference --bless\n"
    );
    for name in names {
        text.push_str(name);
        text.push('\n');
    }
    let path = path("expected", client);
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_skipped_for_the_reason_above_it() {
        let skips = parse("# Why.\n\n[streams]\na::b\n[needs TLS]\nc\n").unwrap();
        let pairs: Vec<_> = skips.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(pairs, [("a::b", "streams"), ("c", "needs TLS")]);
    }

    #[test]
    fn a_case_without_a_reason_is_refused() {
        assert!(parse("a::b\n").is_err());
    }
}
