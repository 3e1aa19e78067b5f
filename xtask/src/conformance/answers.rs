//! answers: what the broker says on the wire, conversation by conversation, as RabbitMQ says it.
//!
//! The conversations are in `conformance/answers/*.txt`, with RabbitMQ's answers; `play.py` beside them
//! plays them. No client library would send most of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::suite::{Case, Installer, Judge, Pace, Suite, Target, Verdict, record};
use crate::apt::apt_install;
use crate::process::{has, output, root};

pub(super) const ANSWERS: Suite = Suite {
    name: "answers",
    version: "1",
    is_installed: || has("python3"),
    install: |log| apt_install("python3", log),
    installer: Installer::Apt,
    run,
    parts,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(65),
    wants_port_5672: false,
};

fn folder() -> PathBuf {
    root().join("conformance/answers")
}

/// The files of conversations, in the order of their names.
fn files() -> std::io::Result<BTreeSet<PathBuf>> {
    let entries = std::fs::read_dir(folder())?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let is_text = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "txt");
    paths.filter(|path| path.as_ref().map_or(true, is_text)).collect()
}

/// The files' names: each is a part.
fn parts() -> Result<Vec<String>, String> {
    let files = files().map_err(|error| format!("conformance/answers: {error}"))?;
    let stem = |file: &PathBuf| Some(file.file_stem()?.to_string_lossy().into_owned());
    Ok(files.iter().filter_map(stem).collect())
}

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let fail = |error: std::io::Error| format!("conformance/answers: {error}");
    let name = format!("{}.txt", target.part);
    let file = folder().join(&name);
    let mut play = target.command(600, "python3");
    play.env("PYTHONDONTWRITEBYTECODE", "1").arg(folder().join("play.py"));
    play.args([&target.host, &target.port.to_string()]).arg(&file);
    let said = output(&mut play)?;
    std::fs::write(target.folder.join(&name), &said).map_err(fail)?;
    if target.is_bless {
        std::fs::write(&file, &said).map_err(fail)?;
    }
    let expected = std::fs::read_to_string(&file).map_err(fail)?;
    let mut cases = Vec::new();
    compare(&said, &expected, &target.skips, &mut cases);
    Ok(cases)
}

/// A case for each conversation that is not skipped.
fn compare(said: &str, expected: &str, skips: &[String], cases: &mut Vec<Case>) {
    let said = conversations(said);
    for (name, expected) in conversations(expected) {
        if skips.iter().any(|skip| skip == name) {
            continue;
        }
        let said = said.get(name).map_or(&[][..], Vec::as_slice);
        let difference =
            (0..expected.len().max(said.len())).find(|i| expected.get(*i) != said.get(*i));
        let (verdict, note) = match difference {
            None => (Verdict::Passed, String::new()),
            Some(index) => {
                let line = |lines: &[&str]| {
                    lines.get(index).map_or("nothing", |line| line.trim()).to_string()
                };
                (Verdict::Failed, format!("{} instead of {}", line(said), line(&expected)))
            }
        };
        record(cases, name, verdict, &note);
    }
}

/// Each conversation's lines by its name, which stands at the left margin.
fn conversations(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut conversations: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut name = "";
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with(' ') {
            conversations.entry(name).or_default().push(line);
        } else {
            name = line;
        }
    }
    conversations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_ends_where_the_next_name_stands() {
        let read = conversations("# Why.\n\na b\n  > 1\n  < 2\n\nc\n  > 3\n");
        assert_eq!(read["a b"], ["  > 1", "  < 2"]);
        assert_eq!(read["c"], ["  > 3"]);
    }

    #[test]
    fn a_conversation_that_went_otherwise_fails_unless_it_is_skipped() {
        let expected = "a\n  > 1\n  < 2\nb\n  > 1\n  < 2\nc\n  > 1\n";
        let said = "a\n  > 1\n  < 2\nb\n  > 1\n  < 3\n";
        let mut cases = Vec::new();
        compare(said, expected, &["c".to_string()], &mut cases);
        let read: Vec<_> = cases.iter().map(|case| (&case.name[..], &case.note[..])).collect();
        assert_eq!(read, [("a", ""), ("b", "< 3 instead of < 2")]);
    }
}
