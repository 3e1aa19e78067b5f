//! examples: the programs in README and in the pages about queues, streams, subscriptions, partitions, rates and locks,
//! run as a reader would run them.
//!
//! Each is a case, with the lines that all of its page assume before it. It must end well, and what it
//! prints must be what stands as a comment behind its `print`.

use std::process::Stdio;

use super::python::{has_module, install_packages, python};
use super::suite::{Case, Installer, Judge, Pace, Suite, Target, Verdict, record, whole};
use crate::brokers::HTTP_ABOVE;
use crate::process::root;

pub(super) const EXAMPLES: Suite = Suite {
    name: "examples",
    version: "1",
    is_installed: || has_module("pika"),
    install: |log| install_packages(&["pika==1.4.4"], log),
    installer: Installer::Pip,
    run,
    parts: whole,
    judge: Judge::Ourselves,
    pace: Pace::Seconds(12),
    wants_port_5672: false,
};

/// Each with how many examples it has at least: fewer were not found, but overlooked.
const PAGES: &[(&str, usize)] = &[
    ("docs/queues.md", 8),
    ("docs/streams.md", 5),
    ("docs/subscriptions.md", 2),
    ("docs/partitions.md", 3),
    ("docs/order-by-key.md", 1),
    ("docs/locks.md", 3),
    ("docs/rate-limits.md", 2),
    ("README.md", 1),
];
/// Where the examples think that the broker is.
const ADDRESS: &str = "amqp://guest:guest@127.0.0.1:5672";
/// And its HTTP API.
const API: &str = "http://127.0.0.1:15672";

/// An example, below the heading that it stands under.
#[derive(Debug, PartialEq, Eq)]
struct Example<'t> {
    heading: &'t str,
    lines: Vec<&'t str>,
}

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for (page, least) in PAGES {
        run_page(target, page, *least, &mut cases)?;
    }
    Ok(cases)
}

/// The examples of one page, in their order: one may use what those before it left.
fn run_page(
    target: &Target,
    page: &str,
    least: usize,
    cases: &mut Vec<Case>,
) -> Result<(), String> {
    let document = page;
    let text = std::fs::read_to_string(root().join(document))
        .map_err(|error| format!("{document}: {error}"))?;
    let page = page.trim_start_matches("docs/").trim_end_matches(".md");
    let all = examples(&text);
    let (assumed, all) = all.split_first().ok_or_else(|| format!("{document} has no examples"))?;
    if all.len() < least {
        return Err(format!("{document} has only {} examples", all.len()));
    }
    for (nth, example) in all.iter().enumerate() {
        let name = format!("{page} {}: {}", nth + 1, example.heading);
        let program = [&assumed.lines[..], &example.lines].concat().join("\n");
        let http = u32::from(target.port) + u32::from(HTTP_ABOVE);
        let program = program
            .replace(ADDRESS, &target.url())
            .replace(API, &format!("http://{}:{http}", target.host));
        let path = target.folder.join(format!("{page}-{}.py", nth + 1));
        std::fs::write(&path, program).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut python = target.command(30, python());
        python.arg(&path).stdin(Stdio::null());
        let ended = python.output().map_err(|error| format!("python: {error}"))?;
        let said = String::from_utf8_lossy(&ended.stdout);
        let wanted = wanted(&example.lines);
        if !ended.status.success() {
            let why = String::from_utf8_lossy(&ended.stderr);
            record(cases, &name, Verdict::Failed, why.lines().last().unwrap_or("it failed"));
        } else if said.lines().eq(wanted.iter().copied()) {
            record(cases, &name, Verdict::Passed, "");
        } else {
            let note = format!("it printed {:?} instead of {wanted:?}", said.trim());
            record(cases, &name, Verdict::Failed, &note);
        }
    }
    Ok(())
}

/// The blocks of Python in a document, in their order.
fn examples(text: &str) -> Vec<Example<'_>> {
    let mut examples = Vec::new();
    let mut heading = "";
    let mut open: Option<Vec<&str>> = None;
    for line in text.lines() {
        match &mut open {
            Some(_) if line.starts_with("```") => {
                let lines = open.take().unwrap_or_default();
                examples.push(Example { heading, lines });
            }
            Some(lines) => lines.push(line),
            None if line == "```python" => open = Some(Vec::new()),
            None if line.starts_with('#') => heading = line.trim_start_matches('#').trim(),
            None => {}
        }
    }
    examples
}

/// What an example says that it prints, whenever it is run.
fn wanted<'t>(lines: &[&'t str]) -> Vec<&'t str> {
    let prints = lines.iter().filter(|line| line.starts_with("print("));
    prints.filter_map(|line| line.rsplit_once("  # ")).map(|(_, said)| said.trim()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_found_below_its_heading_with_what_it_prints() {
        let text = "# All\n```python\nimport x\n```\n## One\n```\nshell\n```\n\
                    ```python\na = 1\nprint(a)      # 1\n    print(b)  # never\n```\n";
        let found = examples(text);
        let example = |heading, lines: &[&'static str]| Example { heading, lines: lines.to_vec() };
        let lines = ["a = 1", "print(a)      # 1", "    print(b)  # never"];
        assert_eq!(found, [example("All", &["import x"]), example("One", &lines)]);
        assert_eq!(wanted(&found[1].lines), ["1"]);
    }
}
