//! py-amqp, kombu and rabbitpy: the integration tests of their source distributions, run by pytest.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::suite::{Case, Installer, Judge, Pace, Suite, Target, Verdict, record, whole};
use crate::Outcome;
use crate::apt::apt_install;
use crate::brokers::TLS_BELOW;
use crate::process::{command, run_logged, tools};

pub(super) const PY_AMQP: Suite = Suite {
    name: "py-amqp",
    version: "5.4.2",
    is_installed: || is_installed("amqp-5.4.2"),
    install: |log| install("amqp", "5.4.2", log),
    installer: Installer::Pip,
    run: |target| {
        // They name their certificates by paths in their sources.
        let place = tools().join("src/amqp-5.4.2/t/certs");
        let _ = std::fs::remove_file(&place);
        std::os::unix::fs::symlink(target.folder.join("certs"), &place)
            .map_err(|error| format!("{}: {error}", place.display()))?;
        pytest(target, "amqp-5.4.2", &["t/integration"])
    },
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(5),
    wants_port_5672: false,
};

pub(super) const KOMBU: Suite = Suite {
    name: "kombu",
    version: "5.7.0",
    is_installed: || is_installed("kombu-5.7.0"),
    install: |log| install("kombu", "5.7.0", log),
    installer: Installer::Pip,
    run: |target| pytest(target, "kombu-5.7.0", &["t/integration/test_py_amqp.py"]),
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(40),
    wants_port_5672: false,
};

pub(super) const RABBITPY: Suite = Suite {
    name: "rabbitpy",
    version: "3.0.2",
    is_installed: || is_installed("rabbitpy-3.0.2"),
    install: |log| install("rabbitpy", "3.0.2", log),
    installer: Installer::Pip,
    run: |target| {
        pytest(target, "rabbitpy-3.0.2", &["tests/test_integration.py", "tests/integration"])
    },
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(10),
    wants_port_5672: false,
};

/// What the tests import beside the client.
const TEST_PACKAGES: &[&str] = &[
    "pytest",
    "pytest-timeout",
    "pytest-rerunfailures",
    "pytest-freezer",
    "hypothesis",
    "python-dotenv",
];

pub(super) fn python() -> PathBuf {
    tools().join("venv/bin/python")
}

fn is_installed(source: &str) -> bool {
    tools().join("src").join(source).join(".ready").exists()
}

/// pika is no suite: the trials use it as a client that is not ours.
pub(crate) fn has_pika() -> bool {
    has_module("pika")
}

pub(crate) fn install_pika(log: &Path) -> Outcome {
    install_packages(&["pika==1.4.4"], log)
}

/// moto is no suite: its server is the SQS of the worker's trials.
pub(crate) fn has_moto() -> bool {
    tools().join("venv/bin/moto_server").exists()
}

pub(crate) fn install_moto(log: &Path) -> Outcome {
    install_packages(&["moto[server]==5.2.5"], log)
}

/// Whether the tests' Python can import it.
pub(super) fn has_module(name: &str) -> bool {
    command(python(), &["-c", &format!("import {name}")])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Installs packages into the tests' Python.
pub(super) fn install_packages(packages: &[&str], log: &Path) -> Outcome {
    make_venv(log)?;
    run_logged(pip(&["install"]).args(packages), log)
}

fn make_venv(log: &Path) -> Outcome {
    if !python().exists() {
        if !can_make_venv() {
            apt_install("python3-venv", log)?;
        }
        run_logged(command("python3", &["-m", "venv"]).arg(tools().join("venv")), log)?;
    }
    Ok(())
}

/// Debian's Python comes without what makes environments. What it says of that is no news.
fn can_make_venv() -> bool {
    let mut asked = command("python3", &["-c", "import ensurepip, venv"]);
    asked.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn pip(args: &[&str]) -> Command {
    let mut pip = command(python(), &["-m", "pip", "--disable-pip-version-check", "-q"]);
    pip.args(args);
    pip
}

fn install(package: &str, version: &str, log: &Path) -> Outcome {
    make_venv(log)?;
    let pinned = format!("{package}=={version}");
    run_logged(pip(&["install", &pinned]).args(TEST_PACKAGES), log)?;
    let sources = tools().join("src");
    std::fs::create_dir_all(&sources).map_err(|error| error.to_string())?;
    // Of this package alone: else pip also builds all that it is built with, from sources.
    let mut download = pip(&["download", "--no-deps", "--no-binary", package, &pinned, "-d"]);
    run_logged(download.arg(&sources), log)?;
    let name = format!("{package}-{version}");
    let archive = sources.join(format!("{name}.tar.gz"));
    run_logged(command("tar", &["xzf"]).arg(archive).arg("-C").arg(&sources), log)?;
    std::fs::write(sources.join(name).join(".ready"), "").map_err(|error| error.to_string())
}

fn pytest(target: &Target, source: &str, files: &[&str]) -> Result<Vec<Case>, String> {
    let mut pytest = target.command(600, python());
    pytest.current_dir(tools().join("src").join(source));
    pytest.args(["-m", "pytest", "-v", "-rfE", "--tb=short", "-p", "no:cacheprovider"]);
    pytest.args(["--timeout", "60"]).args(files);
    for skip in &target.skips {
        pytest.args(["--deselect", skip]);
    }
    pytest.env("PYTHONDONTWRITEBYTECODE", "1");
    pytest.env("RABBITMQ_HOST", &target.host).env("RABBITMQ_5672_TCP", target.port.to_string());
    pytest.env("RABBITMQ_5671_TCP", (target.port - TLS_BELOW).to_string());
    pytest.env("RABBITMQ_URL", target.url());
    // pytest's status says whether a test failed, which the log says better.
    let _ = run_logged(&mut pytest, &target.log());
    let text = std::fs::read(target.log()).map_err(|error| error.to_string())?;
    Ok(cases(&String::from_utf8_lossy(&text)))
}

const VERDICTS: &[(&str, Verdict)] = &[
    (" PASSED ", Verdict::Passed),
    (" FAILED ", Verdict::Failed),
    (" ERROR ", Verdict::Failed),
    (" SKIPPED ", Verdict::Skipped),
    (" XFAIL ", Verdict::Skipped),
];

/// Reads `-v`: `path::Class::name PASSED [ 10%]` for each test, and at the end, from `-rfE`,
/// `FAILED path::Class::name - what it said`.
fn cases(log: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for line in log.lines().filter(|line| line.contains("::")) {
        for (word, verdict) in VERDICTS {
            if let Some((name, _)) = line.split_once(word) {
                record(&mut cases, name, *verdict, note(log, name));
            }
        }
    }
    cases
}

/// What the summary says about a failed test.
fn note<'a>(log: &'a str, name: &str) -> &'a str {
    let openings = [format!("FAILED {name} - "), format!("ERROR {name} - ")];
    let mut lines = log.lines();
    lines
        .find_map(|line| openings.iter().find_map(|opening| line.strip_prefix(opening)))
        .unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_of_two_verdicts_counts_and_parameters_may_hold_anything() {
        let log = "t/a.py::TestB::test_c[x - 1] PASSED          [ 50%]\n\
                   t/a.py::test_d SKIPPED (no x [y])      [100%]\n\
                   t/a.py::TestB::test_c[x - 1] ERROR           [100%]\n\
                   ERROR t/a.py::TestB::test_c[x - 1] - OSError: late\n";
        let read: Vec<_> = cases(log).into_iter().map(|c| (c.name, c.verdict, c.note)).collect();
        let name = "t/a.py::TestB::test_c[x - 1]".to_string();
        let worse = (name, Verdict::Failed, "OSError: late".to_string());
        assert_eq!(read, [worse, ("t/a.py::test_d".to_string(), Verdict::Skipped, String::new())]);
    }
}
