//! answers: what the broker says on the wire, conversation by conversation, as RabbitMQ says it.
//!
//! The conversations are in `conformance/answers.txt`, with RabbitMQ's answers; `answers.py` plays them.
//! No client library would send most of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::suite::{Case, Suite, Target, Verdict, record};
use crate::process::{has, output, root};
use crate::setup::apt_install;

pub(super) const ANSWERS: Suite = Suite {
    name: "answers",
    version: "1",
    is_installed: || has("python3"),
    install: |log| apt_install("python3", log),
    run,
    wants_port_5672: false,
};

fn file(name: &str) -> PathBuf {
    root().join("conformance").join(name)
}

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let mut play = target.command(300, "python3");
    play.arg(file("answers.py")).args([&target.host, &target.port.to_string()]);
    let said = output(&mut play)?;
    std::fs::write(target.log(), &said).map_err(|error| error.to_string())?;
    if target.is_bless {
        std::fs::write(file("answers.txt"), &said).map_err(|error| error.to_string())?;
    }
    let expected =
        std::fs::read_to_string(file("answers.txt")).map_err(|error| error.to_string())?;
    let said = conversations(&said);
    let mut cases = Vec::new();
    for (name, expected) in conversations(&expected) {
        if target.skips.iter().any(|skip| skip == name) {
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
        record(&mut cases, name, verdict, &note);
    }
    Ok(cases)
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
}
