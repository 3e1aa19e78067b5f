//! amqp091-go: the integration tests of the published module, and a Go that can build them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::own_copy::place;
use super::suite::{Case, Installer, Judge, Pace, Suite, Target, Verdict, record, whole};
use crate::Outcome;
use crate::apt::apt_install;
use crate::process::{command, has, output, run_logged, tools};

const VERSION: &str = "1.16.0";
/// The oldest Go that builds all suites in Go: KEDA's scaler needs `slices`.
const GO_MINOR_MIN: u32 = 21;
/// The Go that is fetched where there is none, or an older one: Debian 12 has 1.19.
const GO: &str = "go1.22.12";

pub(super) const AMQP091_GO: Suite = Suite {
    name: "amqp091-go",
    version: VERSION,
    is_installed: || binary().exists(),
    install,
    installer: Installer::Go,
    run,
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(140),
    wants_port_5672: true,
};

fn source() -> PathBuf {
    tools().join("src").join(format!("amqp091-go-{VERSION}"))
}

fn binary() -> PathBuf {
    source().join("amqp.test")
}

/// The Go that was fetched.
fn own_go() -> PathBuf {
    tools().join(GO).join("bin/go")
}

/// A Go that is new enough.
fn find_go() -> Option<PathBuf> {
    [PathBuf::from("go"), own_go()].into_iter().find(|go| {
        let said = command(go, &["env", "GOVERSION"]).stderr(Stdio::null()).output();
        said.is_ok_and(|said| minor(&String::from_utf8_lossy(&said.stdout)) >= Some(GO_MINOR_MIN))
    })
}

/// The second number of `go1.22.12`.
fn minor(version: &str) -> Option<u32> {
    let digits = version.trim().strip_prefix("go1.")?;
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// Gets a Go that is new enough: Debian's, and if that is too old, with its help one that is published as a module.
pub(super) fn fetch_go(log: &Path) -> Result<PathBuf, String> {
    if let Some(go) = find_go() {
        return Ok(go);
    }
    if !has("go") {
        apt_install("golang-go", log)
            .map_err(|why| format!("it needs Go 1.{GO_MINOR_MIN} or newer on the PATH ({why})"))?;
    }
    if let Some(go) = find_go() {
        return Ok(go);
    }
    let system = match std::env::consts::ARCH {
        "aarch64" => "linux-arm64",
        _ => "linux-amd64",
    };
    let folder =
        download(Path::new("go"), &format!("golang.org/toolchain@v0.0.1-{GO}.{system}"))
            .map_err(|why| format!("it needs Go 1.{GO_MINOR_MIN} or newer on the PATH ({why})"))?;
    let home = tools().join(GO);
    let _ = std::fs::remove_dir_all(&home);
    place(Path::new(&folder), &home, log)?;
    // Modules have no programs.
    let programs = [home.join("bin"), home.join("pkg/tool")];
    run_logged(command("chmod", &["-R", "+x"]).args(programs), log)?;
    find_go().ok_or(format!(
        "{} was fetched and does not run (see {})",
        own_go().display(),
        log.display()
    ))
}

/// Downloads a module, and says where it lies.
pub(super) fn download(go: &Path, module: &str) -> Result<String, String> {
    let mut download = command(go, &["mod", "download", "-json", module]);
    // Outside of any module, so that nothing but the module itself is asked for.
    let answer = output(download.current_dir(std::env::temp_dir()))?;
    field(&answer, "Dir").ok_or_else(|| "go mod download names no folder".into())
}

/// Downloads a module that a newer Go is needed to build, and says where its archive lies.
pub(super) fn download_archive(go: &Path, module: &str) -> Result<String, String> {
    let mut download = command(go, &["mod", "download", "-json", module]);
    // This Go then says that it is too old, when it has the archive. Else it would fetch the newer one.
    download.current_dir(std::env::temp_dir()).env("GOTOOLCHAIN", "local");
    let said = download.output().map_err(|error| format!("go mod download: {error}"))?;
    let answer = String::from_utf8_lossy(&said.stdout);
    field(&answer, "Zip").ok_or_else(|| format!("go mod download {module}: {answer}"))
}

/// A text of what `go mod download -json` answers.
fn field(answer: &str, name: &str) -> Option<String> {
    let rest = answer.split(&format!("\"{name}\": \"")).nth(1)?;
    rest.split('"').next().map(String::from)
}

fn install(log: &Path) -> Outcome {
    let go = fetch_go(log)?;
    let folder = download(&go, &format!("github.com/rabbitmq/amqp091-go@v{VERSION}"))?;
    let _ = std::fs::remove_dir_all(source());
    place(Path::new(&folder), &source(), log)?;
    let mut build = command(&go, &["test", "-tags", "integration", "-c", "-o", "amqp.test", "."]);
    // The one that is here, not one that it would fetch for itself.
    run_logged(build.current_dir(source()).env("GOTOOLCHAIN", "local"), log)
}

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let mut test = target.command(450, binary());
    test.current_dir(source()).args(["-test.v", "-test.timeout", "420s"]);
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
    fn a_version_of_go_is_compared_by_its_second_number() {
        let minors = ["go1.19.8", "go1.20", "go1.26rc1\n", "devel go1.27", ""].map(minor);
        assert_eq!(minors, [Some(19), Some(20), Some(26), None, None]);
    }

    #[test]
    fn where_a_download_lies_is_read_also_beside_an_error() {
        let answer =
            "{\n\t\"Path\": \"a/b\",\n\t\"Error\": \"too old\",\n\t\"Zip\": \"/c/d.zip\"\n}";
        assert_eq!(field(answer, "Zip").as_deref(), Some("/c/d.zip"));
        assert_eq!(field(answer, "Dir"), None);
    }

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
