//! lapin and amqprs: the tests of their published crates.

use std::path::{Path, PathBuf};

use super::own_copy::place;
use super::suite::{Case, Installer, Judge, Pace, Suite, Target, Verdict, record, whole};
use crate::Outcome;
use crate::process::{cargo, command, output, run_logged, tools};

pub(super) const LAPIN: Suite = Suite {
    name: "lapin",
    version: "4.12.3",
    is_installed: || binaries("lapin").is_ok(),
    install: |log| install("lapin", "4.12.3", &["--tests"], log),
    installer: Installer::Cargo,
    run: |target| run("lapin", target),
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(10),
    wants_port_5672: false,
};

pub(super) const AMQPRS: Suite = Suite {
    name: "amqprs",
    version: "2.1.5",
    is_installed: || binaries("amqprs").is_ok(),
    install: |log| install("amqprs", "2.1.5", &["--lib", "--tests"], log),
    installer: Installer::Cargo,
    run: |target| run("amqprs", target),
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(90),
    wants_port_5672: true,
};

/// Where the list of a crate's built test binaries lies.
fn list(name: &str) -> PathBuf {
    tools().join("src").join(format!("{name}.tests"))
}

/// The built test binaries, if all of them are there.
fn binaries(name: &str) -> Result<Vec<PathBuf>, String> {
    let text = std::fs::read_to_string(list(name)).map_err(|error| error.to_string())?;
    let paths: Vec<PathBuf> = text.lines().map(PathBuf::from).collect();
    match paths.iter().find(|path| !path.exists()) {
        Some(path) => Err(format!("{} is gone: cargo xtask setup", path.display())),
        None => Ok(paths),
    }
}

fn install(name: &str, version: &str, what: &[&str], log: &Path) -> Outcome {
    let source = fetch(name, version, log)?;
    let mut build = cargo(&["test", "--no-run"]);
    build.args(what).current_dir(&source);
    // The lints that we hold ourselves to are not that crate's.
    build.env_remove("RUSTC_WORKSPACE_WRAPPER").env_remove("CLIPPY_ARGS");
    build.env("CARGO_TARGET_DIR", tools().join("target"));
    build.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_PROFILE_TEST_DEBUG", "0");
    let build_log = tools().join("src").join(format!("{name}.build"));
    let _ = std::fs::remove_file(&build_log);
    run_logged(&mut build, &build_log)?;
    let said = std::fs::read_to_string(&build_log).map_err(|error| error.to_string())?;
    // "  Executable tests/tokio.rs (/…/deps/tokio-0123456789abcdef)"
    let mut paths = String::new();
    for line in said.lines().filter(|line| line.trim_start().starts_with("Executable ")) {
        if let Some((_, path)) = line.trim_end_matches(')').rsplit_once('(') {
            paths.push_str(&source.join(path).to_string_lossy());
            paths.push('\n');
        }
    }
    std::fs::write(list(name), paths).map_err(|error| error.to_string())
}

/// A copy of a published crate that can be written to: cargo keeps its tests with it.
fn fetch(name: &str, version: &str, log: &Path) -> Result<PathBuf, String> {
    let source = tools().join("src").join(format!("{name}-{version}"));
    if source.exists() {
        return Ok(source);
    }
    let asking = tools().join(format!("fetch-{name}"));
    std::fs::create_dir_all(asking.join("src")).map_err(|error| error.to_string())?;
    let manifest = format!(
        "[package]\nname = \"fetch\"\nedition = \"2024\"\n[dependencies]\n{name} = \"={version}\"\n[workspace]\n"
    );
    let write = |path: &str, text: &str| {
        std::fs::write(asking.join(path), text).map_err(|error| error.to_string())
    };
    write("Cargo.toml", &manifest)?;
    write("src/lib.rs", "")?;
    run_logged(cargo(&["fetch"]).current_dir(&asking), log)?;
    let answer =
        output(cargo(&["metadata", "--format-version", "1", "--offline"]).current_dir(&asking))?;
    let manifest = format!("/{name}-{version}/Cargo.toml\"");
    let end = answer.find(&manifest).ok_or_else(|| format!("cargo did not fetch {name}"))?;
    let begin = answer[..end].rfind('"').map_or(0, |at| at + 1);
    let folder = &answer[begin..end + manifest.len() - "/Cargo.toml\"".len()];
    place(Path::new(folder), &source, log)?;
    // amqprs' tests log in as the user that its own CI has.
    run_logged(
        command("sh", &["-c", "grep -rl bitnami . | xargs -r sed -i 's/\"user\", *\"bitnami\"/\"guest\", \"guest\"/g'"])
            .current_dir(&source),
        log,
    )?;
    // Else cargo takes the copy for a forgotten member of this repository's workspace.
    let manifest = source.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).map_err(|error| error.to_string())?;
    let text = format!("{text}\n[workspace]\n");
    std::fs::write(manifest, text).map_err(|error| error.to_string())?;
    Ok(source)
}

fn run(name: &str, target: &Target) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for binary in binaries(name)? {
        let file = binary.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let short = file.rsplit_once('-').map_or(file.as_str(), |(short, _)| short);
        let log = target.folder.join(format!("{short}.txt"));
        let mut test = target.command(300, &binary);
        test.current_dir(&target.folder).args(["--test-threads=1", "--exact"]);
        let mine = format!("{short}::");
        for skip in target.skips.iter().filter_map(|skip| skip.strip_prefix(&mine)) {
            test.args(["--skip", skip]);
        }
        test.env("AMQP_ADDR", target.url());
        // The status says whether a test failed, which the log says better.
        let _ = run_logged(&mut test, &log);
        let text = std::fs::read(&log).map_err(|error| error.to_string())?;
        read_log(short, &String::from_utf8_lossy(&text), &mut cases);
    }
    Ok(cases)
}

/// Reads libtest's lines. What a test prints may stand between its name and its verdict; a test
/// without a verdict has failed.
fn read_log(binary: &str, log: &str, cases: &mut Vec<Case>) {
    let mut running: Option<&str> = None;
    for line in log.lines() {
        let rest = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "));
        if let Some((name, _)) = rest {
            running = Some(name.split(" - ").next().unwrap_or(name));
        }
        let Some(name) = running else { continue };
        let verdict = match line.rsplit(' ').next() {
            Some("ok") => Verdict::Passed,
            Some("FAILED") => Verdict::Failed,
            _ if line.contains("... ignored") => Verdict::Skipped,
            _ => continue,
        };
        record(cases, &format!("{binary}::{name}"), verdict, panic_message(log, name));
        running = None;
    }
    if let Some(name) = running {
        record(cases, &format!("{binary}::{name}"), Verdict::Failed, "did not end");
    }
}

/// The line below `thread 'name' (1) panicked at …`, which stands at the end of the log.
fn panic_message<'a>(log: &'a str, name: &str) -> &'a str {
    let opening = format!("thread '{name}' ");
    let mut lines = log.lines().skip_while(|line| !line.starts_with(&opening));
    lines.nth(1).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_between_a_name_and_its_verdict_does_not_hide_it() {
        let log = "running 3 tests\ntest a ... ok\ntest b::c ... noise\nmore noise\nok\n\
                   test d - should panic ... FAILED\ntest e ... ";
        let mut cases = Vec::new();
        read_log("tokio", log, &mut cases);
        let read: Vec<_> = cases.into_iter().map(|c| (c.name, c.verdict)).collect();
        let case = |name: &str, verdict| (name.to_string(), verdict);
        let (a, b) = (case("tokio::a", Verdict::Passed), case("tokio::b::c", Verdict::Passed));
        let (d, e) = (case("tokio::d", Verdict::Failed), case("tokio::e", Verdict::Failed));
        assert_eq!(read, [a, b, d, e]);
    }
}
