//! The package as a user meets it: installed by dpkg on a machine that is thrown away, started as its unit says, used,
//! removed, purged.
//!
//! In `check` the machine has no systemd that runs: not every place where tests run lets one boot. This plays its part
//! then: it starts the unit's command as the unit's user, and hears on `NOTIFY_SOCKET` how far the node is. With
//! `--try` a systemd runs there, and the unit is what it is for users, with all that it forbids.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::machine::Machine;
use super::{Care, build, read};
use crate::brokers::Build;
use crate::process::{command, has, output, root, run as run_command, target};
use crate::tally::Tally;
use crate::{Outcome, is_ci, namespace};

/// The words for the process that runs inside, on a machine without and with systemd.
pub(super) const INSIDE: &str = "--inside";
pub(super) const INSIDE_BOOTED: &str = "--inside-booted";

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Where the package lies there.
const PACKAGE: &str = "/root/millrace.deb";
const USER: &str = "millrace";
const UNIT: &str = "/usr/lib/systemd/system/millrace.service";
const WANTED: &str = "/etc/systemd/system/multi-user.target.wants/millrace.service";
const PROGRAM: &str = "/usr/bin/millrace";
const CONFIG: &str = "/etc/millrace/millrace.toml";
const DATA: &str = "/var/lib/millrace";
/// A file that every used data directory has.
const USED: &str = "/var/lib/millrace/IDENTITY";
/// Where the node tells how far it is.
const NOTIFIED: &str = "/run/notify";
/// What a cluster of containers sets for a service of this name. It is no setting.
const FOREIGN: (&str, &str) = ("MILLRACE_PORT", "tcp://10.0.0.1:5672");

/// The program that the tests have built, in a package that is tried.
pub(crate) fn try_tested() -> Result<Tally, String> {
    if let Some(why) = refusal() {
        return skipped(&why);
    }
    let package = build(&Build::Tested.millrace(), &target().join("package/tried"), Care::Tried)?;
    run(&package, INSIDE)
}

/// Tries a package.
pub(super) fn run(package: &Path, word: &str) -> Result<Tally, String> {
    if let Some(why) = refusal() {
        return skipped(&why);
    }
    namespace::run_inside(&["package", word, &package.to_string_lossy()])?;
    Ok(Tally { passed: 1, ..Tally::default() })
}

/// What this machine lacks.
fn refusal() -> Option<String> {
    if !has("dpkg-deb") || !has("debconf-set-selections") {
        return Some("it needs a Debian".into());
    }
    if !has("systemd-sysusers") {
        return Some("it needs systemd-sysusers: cargo xtask setup".into());
    }
    let id = output(&mut command("id", &["-u"]));
    if id.is_ok_and(|id| id.trim() != "0") {
        return Some("it needs root, which makes users and mounts file systems".into());
    }
    namespace::refusal()
}

fn skipped(why: &str) -> Result<Tally, String> {
    println!("the package was not tried: {why}");
    if is_ci() { Err(why.into()) } else { Ok(Tally { skipped: 1, ..Tally::default() }) }
}

/// In namespaces of its own.
pub(super) fn inside(package: &Path, is_booted: bool) -> Outcome {
    namespace::bring_up_loopback()?;
    let mut machine = Machine::make(&target().join("package/machine"))?;
    if is_booted {
        machine.boot()?;
    }
    let placed = machine.path(PACKAGE);
    std::fs::copy(package, &placed).map_err(|error| format!("{}: {error}", package.display()))?;

    install(&machine)?;
    let node = Node::start(&machine)?;
    publish(&machine, "one\ntwo\n")?;
    consume(&machine, "one\n")?;
    let mut health = machine.command_as(USER, &[PROGRAM, "describe", "node"]);
    let health = said(health.env("MILLRACE_DATA_DIR", DATA))?;
    must(
        health.contains("serving"),
        &format!("the health check sees a node that serves: {health}"),
    )?;
    let [before, after] = steps_of_readme()?;
    shell(&machine, &before)?;
    let node = node.restart(&machine)?;
    let came = shell(&machine, &after)?;
    must(came.ends_with("hello\n"), &format!("a second user's message comes under TLS: {came}"))?;
    node.stop(&machine)?;
    for brought in ["node.pem", "node.key"] {
        machine.run(&["rm", &format!("/etc/millrace/{brought}")])?;
    }

    machine.run(&["dpkg", "--remove", "millrace"])?;
    for gone in [PROGRAM, UNIT] {
        must(!machine.has(gone), &format!("a removed package leaves no {gone}"))?;
    }
    for kept in [CONFIG, USED] {
        must(machine.has(kept), &format!("a removed package leaves {kept}"))?;
    }
    machine.run(&["dpkg", "--purge", "millrace"])?;
    for gone in [CONFIG, "/etc/millrace", WANTED] {
        must(!machine.has(gone), &format!("a purged package leaves no {gone}"))?;
    }
    must(machine.has(USED), "a purge that nobody answers for leaves the messages")?;

    install(&machine)?;
    let node = Node::start(&machine)?;
    // An upgrade to the same: the unit is restarted, and nobody is asked anything.
    install(&machine)?;
    consume(&machine, "two\n")?;
    node.stop(&machine)?;
    let answer = b"millrace millrace/purge-data boolean true\n";
    talk(&mut machine.command(&["debconf-set-selections"]), answer)?;
    machine.run(&["dpkg", "--purge", "millrace"])?;
    must(!machine.has(DATA), "a purge that is told to deletes the messages")
}

/// What the README has a newcomer type after the installation: before the node is started again, and then.
fn steps_of_readme() -> Result<[String; 2], String> {
    let readme = read(&root().join("README.md"))?;
    let missing = "README.md has no steps from the package to a TLS client";
    let (_, rest) = readme.split_once("**From the package").ok_or(missing)?;
    let (_, rest) = rest.split_once("```sh\n").ok_or(missing)?;
    let (steps, _) = rest.split_once("```").ok_or(missing)?;
    let (installed, steps) = steps.split_once('\n').ok_or(missing)?;
    must(installed.starts_with("sudo apt install "), "the README begins with the installation")?;
    let parts = steps.split_once("sudo systemctl restart millrace\n").ok_or(missing)?;
    Ok([parts.0, parts.1].map(|steps| steps.replace("sudo ", "")))
}

/// Has root type that there, in one folder.
fn shell(machine: &Machine, steps: &str) -> Result<String, String> {
    talk(&mut machine.command(&["sh", "-e", "-c", &format!("cd /root\n{steps}")]), b"")
}

/// Installs the package, and looks at what dpkg has made of it.
fn install(machine: &Machine) -> Outcome {
    machine.run(&["dpkg", "--install", PACKAGE])?;
    let rights = |path| said(&mut machine.command(&["stat", "--format=%U:%G %a", path]));
    for (path, wanted) in [(CONFIG, "root:millrace 640"), (DATA, "millrace:millrace 750")] {
        let rights = rights(path)?;
        must(rights.trim() == wanted, &format!("{path} is {wanted}, not {rights}"))?;
    }
    must(machine.has(WANTED), "the unit is enabled")?;
    let verified = machine.command(&["systemd-analyze", "verify", UNIT]).output();
    let verified = verified.map_err(|error| format!("systemd-analyze: {error}"))?;
    let words = String::from_utf8_lossy(&verified.stderr);
    must(
        verified.status.success() && words.trim().is_empty(),
        &format!("the unit is right: {words}"),
    )?;
    let check = [PROGRAM, "serve", "--config", CONFIG, "--check-config"];
    said(&mut machine.command_as(USER, &check)).map(drop)
}

fn publish(machine: &Machine, lines: &str) -> Outcome {
    let words = [PROGRAM, "publish", "--queue", "trial"];
    talk(&mut machine.command_as("nobody", &words), lines.as_bytes()).map(drop)
}

/// Takes as many lines, which must be these.
fn consume(machine: &Machine, lines: &str) -> Outcome {
    let count = lines.lines().count().to_string();
    let words = [PROGRAM, "consume", "--queue", "trial", "--count", &count];
    let came = said(&mut machine.command_as("nobody", &words))?;
    must(came == lines, &format!("{lines:?} comes out of the queue, not {came:?}"))
}

/// The unit as it runs: under systemd, or under us.
enum Node {
    OfSystemd,
    /// Its process, where it tells how far it is, and its log.
    Ours(Child, UnixDatagram, PathBuf),
}

impl Node {
    /// Waits until the node says that it is ready. Systemd has started it with the installation.
    fn start(machine: &Machine) -> Result<Self, String> {
        let unit = read(&machine.path(UNIT))?;
        let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key));
        must(value("User=") == Some(USER), "the unit has its own user")?;
        must(value("Type=") == Some("notify"), "the unit waits until the node is ready")?;
        if machine.is_booted() {
            let status = said(&mut machine.command(&["systemctl", "status", "millrace"]))?;
            must(status.contains("Serving AMQP"), &format!("the unit runs: {status}"))?;
            return Ok(Self::OfSystemd);
        }
        let fail = |error: std::io::Error| format!("{NOTIFIED}: {error}");
        let socket = machine.path(NOTIFIED);
        let _ = std::fs::remove_file(&socket);
        let heard = UnixDatagram::bind(&socket).map_err(fail)?;
        // As the manager's own: everybody may tell.
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&socket, mode).map_err(fail)?;
        heard.set_read_timeout(Some(TIMEOUT)).map_err(fail)?;
        let words: Vec<&str> = value("ExecStart=").unwrap_or_default().split(' ').collect();
        let path = target().join("package/node.log");
        let log = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let output = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = machine.command_as(USER, &words);
        command.env("NOTIFY_SOCKET", NOTIFIED).env(FOREIGN.0, FOREIGN.1);
        let process = command.stdin(Stdio::null()).stdout(output).stderr(log).spawn();
        let process = process.map_err(|error| format!("{}: {error}", words.join(" ")))?;
        hears(&heard, "READY=1")?;
        Ok(Self::Ours(process, heard, path))
    }

    fn restart(self, machine: &Machine) -> Result<Self, String> {
        if let Self::OfSystemd = self {
            machine.run(&["systemctl", "restart", "millrace"])?;
        } else {
            self.stop(machine)?;
        }
        Self::start(machine)
    }

    fn stop(self, machine: &Machine) -> Outcome {
        let (mut process, heard, log) = match self {
            Self::OfSystemd => return machine.run(&["systemctl", "stop", "millrace"]),
            Self::Ours(process, heard, log) => (process, heard, log),
        };
        run_command(&mut command("kill", &["-TERM", &process.id().to_string()]))?;
        hears(&heard, "STOPPING=1")?;
        let begin = Instant::now();
        while begin.elapsed() < TIMEOUT {
            if let Some(status) = process.try_wait().map_err(|error| error.to_string())? {
                must(status.success(), &format!("a node that is stopped ends with 0: {status}"))?;
                let logged = read(&log)?;
                let is_named = logged.contains(FOREIGN.0);
                return must(is_named, &format!("the node names foreign variables: {logged}"));
            }
            std::thread::sleep(POLL);
        }
        Err("the node did not stop".into())
    }
}

/// Waits until the node tells this.
fn hears(heard: &UnixDatagram, word: &str) -> Outcome {
    let mut message = [0; 1024];
    loop {
        let count = heard.recv(&mut message);
        let count = count.map_err(|error| format!("the node does not say {word}: {error}"))?;
        if String::from_utf8_lossy(&message[..count]).lines().any(|line| line == word) {
            return Ok(());
        }
    }
}

/// What the command says, if it does its work.
fn said(command: &mut Command) -> Result<String, String> {
    talk(command, b"")
}

/// The same, with something to read.
fn talk(command: &mut Command, input: &[u8]) -> Result<String, String> {
    let name = command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>();
    let name = name.join(" ");
    let fail = |error: std::io::Error| format!("{name}: {error}");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(fail)?;
    // Who ends without reading says why with its exit code.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input));
    let output = child.wait_with_output().map_err(fail)?;
    must(output.status.success(), &format!("{name}: {}", output.status))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A promise of the package.
fn must(holds: bool, promise: &str) -> Outcome {
    if holds { Ok(()) } else { Err(format!("broken: {promise}")) }
}
