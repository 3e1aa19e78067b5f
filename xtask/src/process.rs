//! Runs other programs: prints or logs what they say, and tells which one failed and how.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Outcome;

/// The root of the repository: the folder above this package.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("xtask lies in the repository").to_path_buf()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
    root().join(target)
}

/// Where `setup` puts what tests need.
pub(crate) fn tools() -> PathBuf {
    root().join(".tools")
}

/// A command that runs in the root of the repository.
pub(crate) fn command<S: AsRef<OsStr>>(program: S, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// The cargo that started us.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut cargo = command(std::env::var_os("CARGO").unwrap_or("cargo".into()), args);
    if BUILDS_ONCE.load(Ordering::Relaxed) {
        cargo.env("CARGO_INCREMENTAL", "0");
        // As `cargo clippy` does it, only that the driver compiles, too.
        cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
        cargo.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    }
    cargo
}

/// Whether everything is compiled once, and judged by clippy as it is compiled.
static BUILDS_ONCE: AtomicBool = AtomicBool::new(false);

/// From here on, what is compiled is not prepared for being compiled again, which would cost gigabytes and time, and
/// what clippy refuses does not compile: a check of its own would take half as long as the compiling does.
pub(crate) fn build_once() {
    BUILDS_ONCE.store(true, Ordering::Relaxed);
}

/// Whether a program of this name can be started.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs a command to its end, its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| format!("{}: {error}", show(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", show(command))) }
}

/// Runs a command to its end, its output going to the end of the file `log`.
pub(crate) fn run_logged(command: &mut Command, log: &Path) -> Outcome {
    let fail = |error: std::io::Error| format!("{}: {error}", log.display());
    let mut file = File::options().create(true).append(true).open(log).map_err(fail)?;
    writeln!(file, "$ {}", show(command)).map_err(fail)?;
    let error_file = file.try_clone().map_err(fail)?;
    command.stdin(Stdio::null()).stdout(file).stderr(error_file);
    run(command).map_err(|message| format!("{message} (see {})", log.display()))
}

/// Runs a command to its end and takes its standard output as text.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{}: {error}", show(command)))?;
    if !output.status.success() {
        return Err(format!("{}: {}", show(command), output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as one would type it.
fn show(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}
