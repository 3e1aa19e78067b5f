//! amqp091-go: the integration tests of the published module.

use std::path::{Path, PathBuf};

use super::suite::{Case, Installer, Judge, Pace, Suite, Target, Verdict, record, whole};
use crate::Outcome;
use crate::process::{command, output, run_logged, tools};

const VERSION: &str = "1.16.0";

pub(super) const AMQP091_GO: Suite = Suite {
    name: "amqp091-go",
    version: VERSION,
    is_installed: || binary().exists(),
    install,
    installer: Installer::Go,
    run,
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(40),
    wants_port_5672: true,
};

fn source() -> PathBuf {
    tools().join("src").join(format!("amqp091-go-{VERSION}"))
}

fn binary() -> PathBuf {
    source().join("amqp.test")
}

fn install(log: &Path) -> Outcome {
    let module = format!("github.com/rabbitmq/amqp091-go@v{VERSION}");
    // Outside of any module, so that nothing but the module itself is asked for.
    let mut download = command("go", &["mod", "download", "-json", &module]);
    let answer = output(download.current_dir(std::env::temp_dir()))?;
    let folder = answer.split("\"Dir\": \"").nth(1).and_then(|rest| rest.split('"').next());
    let folder = folder.ok_or("go mod download names no folder")?;
    let _ = std::fs::remove_dir_all(source());
    std::fs::create_dir_all(tools().join("src")).map_err(|error| error.to_string())?;
    run_logged(command("cp", &["-r", folder]).arg(source()), log)?;
    run_logged(command("chmod", &["-R", "u+w"]).arg(source()), log)?;
    let mut build = command("go", &["test", "-tags", "integration", "-c", "-o", "amqp.test", "."]);
    run_logged(build.current_dir(source()), log)
}

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let mut test = target.command(900, binary());
    test.current_dir(source()).args(["-test.v", "-test.timeout", "840s"]);
    if !target.skips.is_empty() {
        let names: Vec<String> = target.skips.iter().map(|name| format!("^{name}$")).collect();
        test.args(["-test.skip", &names.join("|")]);
    }
    test.env("AMQP_URL", target.url());
    if !target.control.is_empty() {
        test.env("RABBITMQ_RABBITMQCTL_PATH", "/usr/lib/rabbitmq/bin/rabbitmqctl");
        test.envs(target.control.iter().cloned());
    }
    // The status says whether a test failed, which the log says better.
    let _ = run_logged(&mut test, &target.log());
    let text = std::fs::read(target.log()).map_err(|error| error.to_string())?;
    Ok(cases(&String::from_utf8_lossy(&text)))
}

/// Reads `-test.v`. A test that was started and never judged (a panic, the timeout) has failed.
fn cases(log: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut started = Vec::new();
    let mut said = String::new();
    for line in log.lines() {
        if let Some(name) = line.strip_prefix("=== RUN ") {
            started.push(name.trim());
            said.clear();
        } else if let Some((verdict, name)) = verdict(line) {
            record(&mut cases, name, verdict, &said);
        } else if said.len() < 300 {
            said.push_str(line.trim());
            said.push(' ');
        }
    }
    for name in started {
        if !cases.iter().any(|case| case.name == name) {
            record(&mut cases, name, Verdict::Failed, "did not end");
        }
    }
    cases
}

fn verdict(line: &str) -> Option<(Verdict, &str)> {
    let (verdict, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
    let verdict = match verdict {
        "PASS" => Verdict::Passed,
        "FAIL" => Verdict::Failed,
        "SKIP" => Verdict::Skipped,
        _ => return None,
    };
    Some((verdict, rest.split(' ').next().unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_without_a_verdict_has_failed() {
        let log = "=== RUN   TestA\n    a_test.go:3: oh\n--- FAIL: TestA (0.1s)\n=== RUN   TestB\n\
                   === RUN   TestB/c\n    --- PASS: TestB/c (0.00s)\npanic: x\n";
        let read: Vec<_> = cases(log).into_iter().map(|c| (c.name, c.verdict)).collect();
        let case = |name: &str, verdict| (name.to_string(), verdict);
        let (a, c) = (case("TestA", Verdict::Failed), case("TestB/c", Verdict::Passed));
        assert_eq!(read, [a, c, case("TestB", Verdict::Failed)]);
    }
}
