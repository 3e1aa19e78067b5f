//! `bare`: `setup` on a machine that has nothing yet, twice in a row.
//!
//! A developer's machine has gathered what a newcomer's has not. This makes a Debian of the host's release with
//! debootstrap, and gives it what the first page asks for (git, a C compiler, curl, Rust), a clone of what is
//! committed, and the host's way to the package registries (apt's sources, proxies, certificates). `setup` then must
//! get everything, and the second time it must find everything.
//!
//! Each command runs in mount and process namespaces of its own: however this ends, nothing stays mounted and nothing
//! runs on.

use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::apt::apt_install;
use crate::process::{command, has, output, root, run, run_logged, target, tools};
use crate::{Outcome, setup};

const USAGE: &str = "usage: cargo xtask bare [DIR]";

/// What a newcomer has: the smallest Debian, and these. The C library's headers come with gcc by recommendation.
const PACKAGES: &str = "git,gcc,libc6-dev,curl,ca-certificates";

/// Where things lie in the bare machine.
const RUST: &str = "opt/rust";
const CHECKOUT: &str = "root/millrace";
const PATH: &str = "/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Folders that say where apt's packages come from and whom to trust.
const FOLDERS: &[&str] = &["etc/apt", "usr/share/keyrings", "usr/local/share/ca-certificates"];
/// Files that say how the network and the registries are reached: of the machine, and of the user.
const FILES: &[&str] = &["etc/resolv.conf", "etc/hosts", "etc/pip.conf"];
const HOME_FILES: &[&str] = &[
    ".cargo/config.toml",
    ".cargo/config",
    ".config/go/env",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    ".m2/settings.xml",
];

/// Variables that say the same: what their names hold, and how they begin.
const VARIABLE_PARTS: &[&str] = &["PROXY", "CERT", "SSL", "CA_BUNDLE", "CAINFO"];
const VARIABLE_OPENINGS: &[&str] = &[
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTR",
    "CARGO_SOURCE_",
    "PIP_",
    "GOFLAGS",
    "GOINSECURE",
    "GONOSUMDB",
    "GOPRIVATE",
    "GOSUMDB",
    "MAVEN_",
];

/// Run by `sh` in namespaces of its own: the machine's root, the host's Rust, a folder, and a command's words. The root
/// is mounted on itself, because only what is mounted somewhere can have namespaces below it.
const ENTER: &str = "machine=$1 rust=$2 folder=$3; shift 3
mount --bind \"$machine\" \"$machine\"
mount --rbind /dev \"$machine/dev\"
mount -t proc proc \"$machine/proc\"
mount --bind -o ro \"$rust\" \"$machine/opt/rust\"
exec chroot \"$machine\" env --chdir=\"$folder\" \"$@\"";

/// `cargo xtask bare [DIR]`
pub(crate) fn run_twice(words: &[String]) -> Outcome {
    let machine = match words {
        [] => Machine::temporary(),
        [folder] if !folder.starts_with('-') => Machine::kept(folder),
        _ => return Err(USAGE.into()),
    }?;
    find_tools()?;
    println!("== a Debian in {}", machine.folder.display());
    let begin = Instant::now();
    machine.make()?;
    println!("== made in {:.0} s\n", begin.elapsed().as_secs_f64());
    let names = setup::names();
    let mut faults = Vec::new();
    for (turn, allowed) in [("first", &["found", "installed"][..]), ("second", &["found"])] {
        println!("== the {turn} setup");
        let begin = Instant::now();
        let said = watch(machine.command(CHECKOUT, &["cargo", "xtask", "setup"]))?;
        println!("== the {turn} setup: {:.0} s\n", begin.elapsed().as_secs_f64());
        let told = said.faults(&names, allowed);
        faults.extend(told.into_iter().map(|fault| format!("the {turn} setup: {fault}")));
    }
    println!("the machine has {} MiB", machine.mebibytes()?);
    if faults.is_empty() {
        println!("PASSED: the first setup got everything, and the second found it");
        return Ok(());
    }
    let logs = machine.keep_logs()?;
    faults.iter().for_each(|fault| println!("{fault}"));
    Err(format!("FAILED with {} faults; what setup logged is in {}", faults.len(), logs.display()))
}

/// What this command itself cannot do without.
fn find_tools() -> Outcome {
    if output(&mut command("id", &["-u"]))?.trim() != "0" {
        return Err("it needs root: it mounts, and makes another root directory".into());
    }
    if !has("debootstrap") {
        std::fs::create_dir_all(tools()).map_err(|error| format!(".tools: {error}"))?;
        apt_install("debootstrap", &tools().join("bare.log"))
            .map_err(|why| format!("it needs debootstrap ({why})"))?;
    }
    let words = ["--mount", "--pid", "--fork", "mount", "-t", "proc", "proc", "/proc"];
    let mut tried = command("unshare", &words);
    let tried =
        tried.output().map_err(|error| format!("it needs unshare (util-linux): {error}"))?;
    match tried.status.success() {
        true => Ok(()),
        false => Err(format!(
            "this machine refuses mounts of one's own ({}): a container needs --privileged",
            String::from_utf8_lossy(&tried.stderr).trim()
        )),
    }
}

/// A root directory.
struct Machine {
    folder: PathBuf,
    is_temporary: bool,
    /// The host's.
    rust: PathBuf,
}

impl Machine {
    /// Not in `/tmp`, which may be memory, and may not hold devices.
    fn temporary() -> Result<Machine, String> {
        let folder = format!("/var/tmp/millrace-bare-{}", std::process::id());
        Ok(Machine { folder: folder.into(), is_temporary: true, rust: host_rust()? })
    }

    fn kept(folder: &str) -> Result<Machine, String> {
        let folder = std::path::absolute(folder).map_err(|error| format!("{folder}: {error}"))?;
        let is_used = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
        match is_used {
            true => Err(format!("{} is not empty", folder.display())),
            false => Ok(Machine { folder, is_temporary: false, rust: host_rust()? }),
        }
    }

    fn make(&self) -> Outcome {
        self.debootstrap()?;
        self.copy_ways_out()?;
        self.make_folder(RUST)?;
        let mut trust = self.command("", &["update-ca-certificates"]);
        run_logged(&mut trust, &logs().join("certificates.log"))
            .map_err(|_| format!("update-ca-certificates failed (see {})", logs().display()))?;
        let dirty = output(&mut command("git", &["status", "--porcelain"]))?;
        if !dirty.is_empty() {
            println!("what is not committed is not tested:\n{dirty}");
        }
        let mut clone = command("git", &["clone", "--quiet", "--no-hardlinks"]);
        run(clone.arg(root()).arg(self.folder.join(CHECKOUT)))
    }

    fn debootstrap(&self) -> Outcome {
        let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let release = release(&text).ok_or("/etc/os-release does not say which Debian this is")?;
        let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
        let targets = output(
            command("apt-get", &["indextargets", "Created-By: Packages", "--format"]).arg(format),
        )?;
        let mirror = mirror(&targets, release)
            .ok_or_else(|| format!("apt has no source for {release} main"))?;
        self.make_folder("")?;
        // debootstrap mounts, too.
        let mut debootstrap = command("unshare", &["--mount", "debootstrap", "--variant=minbase"]);
        debootstrap.args([&format!("--include={PACKAGES}"), release]).arg(&self.folder).arg(mirror);
        // It asks no other files of apt's configuration for the proxy.
        let proxy = output(&mut command(
            "apt-config",
            &["dump", "--format", "%v", "Acquire::http::Proxy"],
        ))?;
        if !proxy.is_empty() {
            debootstrap.env("http_proxy", proxy);
        }
        let logs = logs();
        std::fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
        run_logged(&mut debootstrap, &logs.join("debootstrap.log"))
    }

    /// Copies how the host reaches package registries.
    fn copy_ways_out(&self) -> Outcome {
        let host = Path::new("/");
        for folder in FOLDERS.iter().filter(|folder| host.join(folder).is_dir()) {
            let copy = self.folder.join(folder);
            let _ = std::fs::remove_dir_all(&copy);
            self.make_folder(folder)?;
            run(command("cp", &["--archive", "-T"]).arg(host.join(folder)).arg(copy))?;
        }
        for file in FILES {
            self.copy(&host.join(file), file)?;
        }
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or("/root".into()));
        for file in HOME_FILES {
            self.copy(&home.join(file), &format!("root/{file}"))?;
        }
        // Variables may name certificates that lie elsewhere.
        for (_, value) in variables() {
            if let Some(file) =
                value.strip_prefix('/').filter(|file| !self.folder.join(file).exists())
            {
                self.copy(&host.join(file), file)?;
            }
        }
        Ok(())
    }

    /// Copies a file of the host, if it is there.
    fn copy(&self, from: &Path, to: &str) -> Outcome {
        if !from.is_file() {
            return Ok(());
        }
        let to = self.folder.join(to);
        let fail = |error: std::io::Error| format!("{}: {error}", to.display());
        std::fs::create_dir_all(to.parent().unwrap_or(&self.folder)).map_err(fail)?;
        std::fs::copy(from, &to).map(drop).map_err(fail)
    }

    fn make_folder(&self, folder: &str) -> Outcome {
        let folder = self.folder.join(folder);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))
    }

    /// A command that runs in the machine, as nobody's choice of variables but those that the registries need.
    fn command(&self, folder: &str, words: &[&str]) -> Command {
        let mut enter = command("unshare", &["--mount", "--propagation", "private", "--pid"]);
        enter.args(["--fork", "--kill-child", "sh", "-ec", ENTER, "sh"]);
        enter.arg(&self.folder).arg(&self.rust).arg(format!("/{folder}")).args(words);
        enter.env_clear().envs(variables());
        enter.envs([("PATH", PATH), ("HOME", "/root"), ("LANG", "C.UTF-8"), ("CI", "true")]);
        enter
    }

    fn mebibytes(&self) -> Result<String, String> {
        let said = output(command("du", &["-sxm"]).arg(&self.folder))?;
        Ok(said.split_whitespace().next().unwrap_or("?").to_string())
    }

    /// Copies what installers said to a place that stays.
    fn keep_logs(&self) -> Result<PathBuf, String> {
        let from = self.folder.join(CHECKOUT).join(".tools");
        let script = "cp \"$1\"/*.log \"$1\"/src/*.build \"$2\" 2>/dev/null || true";
        run(command("sh", &["-c", script, "sh"]).arg(from).arg(logs()))?;
        Ok(logs())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn logs() -> PathBuf {
    target().join("bare")
}

/// The toolchain that runs this: nothing else of the host's comes with it.
fn host_rust() -> Result<PathBuf, String> {
    let rust = PathBuf::from(output(&mut command("rustc", &["--print", "sysroot"]))?.trim());
    match rust.join("bin/cargo").is_file() && rust != Path::new("/usr") {
        true => Ok(rust),
        false => Err(format!(
            "it needs a Rust in a folder of its own, as rustup installs it: {}",
            rust.display()
        )),
    }
}

/// The host's variables that say how registries are reached.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars().filter(|(name, _)| is_way_out(name))
}

fn is_way_out(variable: &str) -> bool {
    let name = variable.to_uppercase();
    VARIABLE_PARTS.iter().any(|part| name.contains(part))
        || VARIABLE_OPENINGS.iter().any(|opening| name.starts_with(opening))
}

/// The release's name, from `/etc/os-release`.
fn release(text: &str) -> Option<&str> {
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(name.trim_matches('"')).filter(|name| !name.is_empty())
}

/// Where apt has the release from: `address release component` in each line.
fn mirror<'a>(targets: &'a str, release: &str) -> Option<&'a str> {
    targets.lines().find_map(|line| match Vec::from_iter(line.split(' '))[..] {
        [address, name, "main"] if name == release => Some(address),
        _ => None,
    })
}

/// What a run of `setup` said, and whether it ended well.
struct Said {
    text: String,
    is_success: bool,
}

/// Runs a command to its end, shows what it says, and takes it.
fn watch(mut command: Command) -> Result<Said, String> {
    let fail = |error: &dyn Display| format!("setup could not be run: {error}");
    let (reader, writer) = std::io::pipe().map_err(|error| fail(&error))?;
    let same = writer.try_clone().map_err(|error| fail(&error))?;
    command.stdin(Stdio::null()).stdout(writer).stderr(same);
    let mut child = command.spawn().map_err(|error| fail(&error))?;
    // It holds our side of the pipe, which else would never end.
    drop(command);
    let mut text = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(|error| fail(&error))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        text.push_str(&line);
        text.push('\n');
    }
    let status = child.wait().map_err(|error| fail(&error))?;
    Ok(Said { text, is_success: status.success() })
}

impl Said {
    /// What is wrong, if each of these things may only be in these states.
    fn faults(&self, names: &[String], allowed: &[&str]) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.is_success {
            faults.push("it failed".into());
        }
        if self.text.contains("Traceback (most recent call last)") {
            faults.push("it shows a traceback instead of a sentence".into());
        }
        for name in names {
            match self.state(name) {
                None => faults.push(format!("it says nothing of {name}")),
                Some(state) if !allowed.contains(&state) => {
                    faults.push(format!("{name} is {state}"))
                }
                Some(_) => {}
            }
        }
        faults
    }

    /// The word behind a name in the table.
    fn state(&self, name: &str) -> Option<&str> {
        self.text.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?.strip_prefix(' ')?;
            rest.split_whitespace().next().filter(|word| setup::STATES.contains(word))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &[&str] = &["found", "installed"];

    fn faults(text: &str, is_success: bool, allowed: &[&str]) -> Vec<String> {
        let names = ["strace", "lapin 4.12.3"].map(String::from);
        Said { text: text.into(), is_success }.faults(&names, allowed)
    }

    #[test]
    fn the_first_run_may_install_and_the_second_may_not() {
        let text = "what                   state      note\n\
                    strace                 found      \n\
                    lapin 4.12.3           installed  \n";
        assert_eq!(faults(text, true, FIRST), [""; 0]);
        assert_eq!(faults(text, true, &["found"]), ["lapin 4.12.3 is installed"]);
    }

    #[test]
    fn what_is_missing_and_what_is_not_named_are_faults_however_setup_ended() {
        let text = "lapin 4.12.3           missing    skips conformance lapin: no network\n";
        assert_eq!(
            faults(text, true, FIRST),
            ["it says nothing of strace", "lapin 4.12.3 is missing"]
        );
    }

    #[test]
    fn a_name_in_another_line_is_no_row() {
        let text = "strace found its way into a warning\nstrace\nlapin 4.12.3 (48 cases)\n";
        let strace_alone = ["it says nothing of lapin 4.12.3"];
        assert_eq!(faults(text, true, FIRST), strace_alone);
        let text = "strace: installed\nstraces found\nlapin 4.12.3  found\n";
        assert_eq!(faults(text, true, FIRST), ["it says nothing of strace"]);
    }

    #[test]
    fn a_failure_and_a_traceback_are_faults_though_everything_is_there() {
        let text = "Traceback (most recent call last):\nstrace found\nlapin 4.12.3 found\n";
        let expected = ["it failed", "it shows a traceback instead of a sentence"];
        assert_eq!(faults(text, false, FIRST), expected);
    }

    #[test]
    fn the_release_comes_from_where_apt_has_its_main_part_from() {
        let text = "NAME=\"Debian\"\nVERSION_CODENAME=bookworm\n";
        assert_eq!(release(text), Some("bookworm"));
        assert_eq!(release("VERSION_CODENAME=\n"), None);
        let targets = "http://tools.example/ stable main\n\
                       http://debian.example/ bookworm-updates main\n\
                       http://debian.example/ bookworm contrib\n\
                       http://debian.example/debian bookworm main\n";
        assert_eq!(mirror(targets, "bookworm"), Some("http://debian.example/debian"));
        assert_eq!(mirror(targets, "trixie"), None);
    }

    #[test]
    fn variables_that_lead_to_registries_come_along_and_no_others() {
        let kept = ["https_proxy", "GOPROXY", "PIP_INDEX_URL", "CARGO_REGISTRIES_MINE_INDEX"];
        assert!(kept.iter().all(|name| is_way_out(name)));
        let left = ["HOME", "PATH", "CARGO_TARGET_DIR", "RUSTUP_TOOLCHAIN", "JAVA_HOME", "GOROOT"];
        assert!(!left.iter().any(|name| is_way_out(name)));
    }
}
