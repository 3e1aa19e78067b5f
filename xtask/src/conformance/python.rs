//! py-amqp, kombu and rabbitpy: the integration tests of their source distributions, run by pytest.

use std::path::{Path, PathBuf};

use super::suite::{Case, Suite, Target, Verdict, record};
use crate::Outcome;
use crate::process::{command, run, run_logged, tools};
use crate::setup::apt_install;

pub(super) const PY_AMQP: Suite = Suite {
    name: "py-amqp",
    version: "5.4.2",
    is_installed: || is_installed("amqp-5.4.2"),
    install: |log| install("amqp", "5.4.2", log),
    run: |target| pytest(target, "amqp-5.4.2", &["t/integration"]),
    wants_port_5672: false,
};

pub(super) const KOMBU: Suite = Suite {
    name: "kombu",
    version: "5.7.0",
    is_installed: || is_installed("kombu-5.7.0"),
    install: |log| install("kombu", "5.7.0", log),
    run: |target| pytest(target, "kombu-5.7.0", &["t/integration/test_py_amqp.py"]),
    wants_port_5672: false,
};

pub(super) const RABBITPY: Suite = Suite {
    name: "rabbitpy",
    version: "3.0.2",
    is_installed: || is_installed("rabbitpy-3.0.2"),
    install: |log| install("rabbitpy", "3.0.2", log),
    run: |target| {
        pytest(target, "rabbitpy-3.0.2", &["tests/test_integration.py", "tests/integration"])
    },
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

fn python() -> PathBuf {
    tools().join("venv/bin/python")
}

fn is_installed(source: &str) -> bool {
    tools().join("src").join(source).join(".ready").exists()
}

fn install(package: &str, version: &str, log: &Path) -> Outcome {
    if !python().exists() {
        if run(&mut command("python3", &["-c", "import ensurepip, venv"])).is_err() {
            apt_install("python3-venv", log)?;
        }
        run_logged(command("python3", &["-m", "venv"]).arg(tools().join("venv")), log)?;
    }
    let pinned = format!("{package}=={version}");
    let pip = |args: &[&str]| {
        let mut pip = command(python(), &["-m", "pip", "--disable-pip-version-check", "-q"]);
        pip.args(args);
        pip
    };
    run_logged(pip(&["install", &pinned]).args(TEST_PACKAGES), log)?;
    let sources = tools().join("src");
    std::fs::create_dir_all(&sources).map_err(|error| error.to_string())?;
    let mut download = pip(&["download", "--no-deps", "--no-binary", ":all:", &pinned, "-d"]);
    run_logged(download.arg(&sources), log)?;
    let name = format!("{package}-{version}");
    let archive = sources.join(format!("{name}.tar.gz"));
    run_logged(command("tar", &["xzf"]).arg(archive).arg("-C").arg(&sources), log)?;
    std::fs::write(sources.join(name).join(".ready"), "").map_err(|error| error.to_string())
}

fn pytest(target: &Target, source: &str, files: &[&str]) -> Result<Vec<Case>, String> {
    let report = target.folder.join("junit.xml");
    let mut pytest = target.command(600, python());
    pytest.current_dir(tools().join("src").join(source));
    pytest.args(["-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider", "--timeout", "60"]);
    pytest.args(["-o", "junit_family=xunit1", "--junitxml"]).arg(&report).args(files);
    for skip in &target.skips {
        pytest.args(["--deselect", skip]);
    }
    pytest.env("PYTHONDONTWRITEBYTECODE", "1");
    pytest.env("RABBITMQ_HOST", &target.host).env("RABBITMQ_5672_TCP", target.port.to_string());
    pytest.env("RABBITMQ_URL", target.url());
    // pytest's status says whether a test failed, which the report says better.
    let _ = run_logged(&mut pytest, &target.log());
    let text = std::fs::read_to_string(&report)
        .map_err(|error| format!("pytest left no report ({error}): {}", target.log().display()))?;
    Ok(cases(&text))
}

/// Reads a JUnit report of pytest's old family, which alone names the files.
fn cases(report: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for part in report.split("<testcase ").skip(1) {
        let attributes = &part[..part.find('>').unwrap_or(part.len())];
        let file = attribute(attributes, "file");
        let module = file.trim_end_matches(".py").replace('/', ".");
        let class = attribute(attributes, "classname");
        let class = class.strip_prefix(&module).unwrap_or("").replace('.', "::");
        let name = format!("{file}{class}::{}", attribute(attributes, "name"));
        let bad = part.find("<failure").or_else(|| part.find("<error"));
        match bad {
            Some(at) => {
                record(&mut cases, &name, Verdict::Failed, &attribute(&part[at..], "message"))
            }
            None if part.contains("<skipped") => record(&mut cases, &name, Verdict::Skipped, ""),
            None => record(&mut cases, &name, Verdict::Passed, ""),
        }
    }
    cases
}

fn attribute(text: &str, name: &str) -> String {
    let opening = format!("{name}=\"");
    // `name` is also the end of `classname`, so what stands before it counts.
    let at = text
        .match_indices(&opening)
        .find(|(at, _)| text[..*at].chars().next_back().is_none_or(char::is_whitespace));
    let Some((at, _)) = at else { return String::new() };
    let value = text[at + opening.len()..].split('"').next().unwrap_or("");
    let value = value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    value.replace("&#10;", " ").replace("&#x27;", "'").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_with_classes_and_worst_verdicts() {
        let report = r#"<testsuite><testcase classname="t.a.test_b.TestC" name="test_d" file="t/a/test_b.py" line="3" time="1"></testcase>
            <testcase classname="t.a.test_b" name="test_e[x&gt;1]" file="t/a/test_b.py"><failure message="no &quot;x&quot;">z</failure></testcase>
            <testcase classname="t.a.test_b.TestC" name="test_d" file="t/a/test_b.py"><error message="late"/></testcase></testsuite>"#;
        let read: Vec<_> = cases(report).into_iter().map(|c| (c.name, c.verdict, c.note)).collect();
        let failed = |name: &str, note: &str| (name.to_string(), Verdict::Failed, note.to_string());
        let first = failed("t/a/test_b.py::TestC::test_d", "late");
        assert_eq!(read, [first, failed("t/a/test_b.py::test_e[x>1]", "no \"x\"")]);
    }
}
