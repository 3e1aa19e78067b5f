//! PerfTest, RabbitMQ's load generator: many short runs, each of which must move messages.
//!
//! The runs are in `conformance/perftest.txt`: a name, the least rate, PerfTest's options. Two go at a
//! time: it is not rates that are looked for.

use std::path::{Path, PathBuf};

use super::suite::{Case, Installer, Judge, Pace, Suite, Target, Verdict, record, whole};
use crate::Outcome;
use crate::apt::apt_install;
use crate::lanes::in_lanes;
use crate::process::{command, has, root, run_logged, tools};

const VERSION: &str = "2.22.1";

pub(super) const PERFTEST: Suite = Suite {
    name: "perftest",
    version: VERSION,
    is_installed: || folder().join(".ready").exists(),
    install,
    installer: Installer::Maven,
    run,
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Alone,
    wants_port_5672: false,
};

/// Runs at a time.
const LANES: usize = 2;

fn folder() -> PathBuf {
    tools().join(format!("perftest-{VERSION}"))
}

/// PerfTest with everything that it needs, but for its options.
pub(crate) fn java() -> Vec<String> {
    let jars = folder().join("lib/*").to_string_lossy().into_owned();
    ["java", "-Xmx512m", "-cp", &jars, "com.rabbitmq.perf.PerfTest"].map(String::from).to_vec()
}

fn install(log: &Path) -> Outcome {
    if !has("java") {
        apt_install("default-jre-headless", log)?;
    }
    if !has("mvn") {
        apt_install("maven", log)?;
    }
    let pom = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>millrace</groupId><artifactId>tools</artifactId><version>1</version><dependencies>\
         <dependency><groupId>com.rabbitmq</groupId><artifactId>perf-test</artifactId>\
         <version>{VERSION}</version></dependency></dependencies></project>\n"
    );
    let write =
        |path: PathBuf, text: &str| std::fs::write(path, text).map_err(|error| error.to_string());
    std::fs::create_dir_all(folder()).map_err(|error| error.to_string())?;
    write(folder().join("pom.xml"), &pom)?;
    let mut maven = command("mvn", &["-q", "-B", "dependency:copy-dependencies"]);
    run_logged(maven.arg("-DoutputDirectory=lib").current_dir(folder()), log)?;
    write(folder().join(".ready"), "")
}

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let text = std::fs::read_to_string(root().join("conformance/perftest.txt"))
        .map_err(|error| format!("conformance/perftest.txt: {error}"))?;
    let mut cases = Vec::new();
    for told in in_lanes(&groups(&text), LANES, |lines| run_group(lines, target)) {
        for (name, verdict, note) in told? {
            record(&mut cases, &name, verdict, &note);
        }
    }
    Ok(cases)
}

/// Lines that belong together: an indented one needs what the one above it left.
fn groups(text: &str) -> Vec<Vec<&str>> {
    let mut groups: Vec<Vec<&str>> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match groups.last_mut().filter(|_| line.starts_with(' ')) {
            Some(group) => group.push(line),
            None => groups.push(vec![line]),
        }
    }
    groups
}

/// One run after the other: a name, the verdict and the reason of each that is not skipped.
fn run_group(lines: &Vec<&str>, target: &Target) -> Result<Vec<(String, Verdict, String)>, String> {
    let mut told = Vec::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let least = words.next().and_then(|word| word.parse().ok());
        let least: u64 = least.ok_or_else(|| format!("perftest.txt: no least rate in {line}"))?;
        if target.skips.iter().any(|skip| skip == name) {
            continue;
        }
        let log = target.folder.join(format!("{name}.txt"));
        let java = java();
        let mut perftest = target.command(60, &java[0]);
        perftest.args(&java[1..]).arg("--uri").arg(target.url()).args(["-z", "3"]).args(words);
        let outcome = run_logged(&mut perftest, &log);
        let said = std::fs::read(&log).map_err(|error| error.to_string())?;
        let (verdict, note) = judge(outcome, &String::from_utf8_lossy(&said), least);
        told.push((name.to_string(), verdict, note));
    }
    Ok(told)
}

fn judge(outcome: Outcome, said: &str, least: u64) -> (Verdict, String) {
    if let Err(message) = outcome {
        return (Verdict::Failed, message);
    }
    let signs = ["Main thread caught", "reply-code=4", "reply-code=5"];
    if let Some(line) = said.lines().find(|line| signs.iter().any(|sign| line.contains(sign))) {
        return (Verdict::Failed, line.to_string());
    }
    let rate = rate(said, "receiving rate avg: ").or_else(|| rate(said, "sending rate avg: "));
    match rate {
        Some(rate) if rate >= least => (Verdict::Passed, format!("{rate} msg/s")),
        Some(rate) => (Verdict::Failed, format!("{rate} msg/s")),
        None => (Verdict::Failed, "no rate".into()),
    }
}

/// The last figure behind these words.
pub(crate) fn rate(said: &str, words: &str) -> Option<u64> {
    let (_, after) = said.rsplit_once(words)?;
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_indented_run_goes_behind_the_one_above_it() {
        let text = "# Why.\n\na 1 -x 1\nb 1 -y 1\n  c 1 -z 1\nd 0\n";
        let expected = [vec!["a 1 -x 1"], vec!["b 1 -y 1", "  c 1 -z 1"], vec!["d 0"]];
        assert_eq!(groups(text), expected);
    }

    #[test]
    fn a_run_that_moved_nothing_or_met_an_error_has_failed() {
        let verdict = |said: &str| judge(Ok(()), said, 1).0;
        assert_eq!(
            verdict("id: x, sending rate avg: 5 msg/s\nreceiving rate avg: 7 msg/s"),
            Verdict::Passed
        );
        assert_eq!(
            verdict("id: x, sending rate avg: 5 msg/s\nreceiving rate avg: 0 msg/s"),
            Verdict::Failed
        );
        assert_eq!(verdict("reply-code=406\nreceiving rate avg: 7 msg/s"), Verdict::Failed);
    }
}
