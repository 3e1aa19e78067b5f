//! `setup`: finds what tests need, or installs it, and says what is missing and what that skips.
//!
//! Debian packages come from apt, everything else goes into `.tools/`. Safe to repeat: what is there
//! stays. A thing that cannot be had is no failure of `setup`; the table says what will be skipped.
//! What different installers get comes at the same time: each of them mostly waits for its registry.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::conformance::{Installer, SUITES, python};
use crate::lanes::in_lanes;
use crate::process::{command, has, output, run_logged, tools};
use crate::{Outcome, namespace};

/// Keeps a freshly installed service from starting: tests start their own, in a namespace.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// A Debian package, the file that shows it is there, and what its absence skips.
struct Package {
    name: &'static str,
    file: &'static str,
    skips: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { name: "iproute2", file: "/sbin/ip", skips: "conformance, chaos, bench" },
    Package { name: "util-linux", file: "/usr/bin/unshare", skips: "conformance, chaos, bench" },
    Package { name: "fuse3", file: "/usr/bin/fusermount3", skips: "disks that fail in chaos" },
    Package {
        name: "iptables",
        file: "/usr/sbin/iptables-legacy",
        skips: "chaos with three nodes, bench cluster",
    },
    Package {
        name: "libfaketime",
        file: "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
        skips: "clocks that jump in chaos",
    },
    Package { name: "strace", file: "/usr/bin/strace", skips: "the test that sees every sync" },
    Package {
        name: "rabbitmq-server",
        file: "/usr/lib/rabbitmq/bin/rabbitmq-server",
        skips: "conformance --reference, the peer's half of bench",
    },
    Package {
        name: "redis-server",
        file: "/usr/bin/redis-server",
        skips: "tests of the worker with Redis",
    },
    Package {
        name: "postgresql",
        file: "/usr/lib/postgresql/15/bin/initdb",
        skips: "every test of the relay with a database, bench relay",
    },
];

/// Says that a fresh PostgreSQL makes no cluster of its own: tests make theirs, and one on the usual
/// port would come up with the machine.
const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/millrace.conf";

/// `cargo xtask setup`
pub(crate) fn run(_: &[String]) -> Outcome {
    std::fs::create_dir_all(tools()).map_err(|error| format!(".tools: {error}"))?;
    let log = tools().join("setup.log");
    println!("{:<22} {:<10} note", "what", "state");
    for package in PACKAGES {
        let install = || apt_install(package.name, &log);
        line(package.name, package.skips, || Path::new(package.file).exists(), install);
    }
    let no_install = || Err("the kernel refuses; run as root".to_string());
    line("namespaces", "conformance, chaos, bench", namespace::works, no_install);
    let installers: BTreeSet<Installer> = SUITES.iter().map(|suite| suite.installer).collect();
    let installers = Vec::from_iter(installers);
    in_lanes(&installers, installers.len(), |installer| install_with(*installer, &log));
    Ok(())
}

/// What one installer gets, one after the other: none of them likes company.
fn install_with(installer: Installer, log: &Path) {
    if installer == Installer::Pip {
        line("pika", "a lane of the trials", python::has_pika, || python::install_pika(log));
        line("moto", "work_sqs", python::has_moto, || python::install_moto(log));
    }
    for suite in SUITES.iter().filter(|suite| suite.installer == installer) {
        let name = format!("{} {}", suite.name, suite.version);
        let skips = format!("conformance {}", suite.name);
        line(&name, &skips, suite.is_installed, || (suite.install)(log));
    }
}

fn line(name: &str, skips: &str, is_there: impl Fn() -> bool, install: impl FnOnce() -> Outcome) {
    let (state, note) = if is_there() {
        ("found", String::new())
    } else {
        match install() {
            Ok(()) if is_there() => ("installed", String::new()),
            Ok(()) => ("missing", format!("skips {skips}")),
            Err(message) => ("missing", format!("skips {skips}: {message}")),
        }
    };
    println!("{name:<22} {state:<10} {note}");
}

/// Installs a Debian package without starting any service that it brings. Other installers need some,
/// too: they take turns.
pub(crate) fn apt_install(package: &str, log: &Path) -> Outcome {
    static UPDATED: OnceLock<Outcome> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if !has("apt-get") {
        return Err("no apt-get here: install it by hand".into());
    }
    if output(&mut command("id", &["-u"]))?.trim() != "0" {
        return Err(format!("not root: apt-get install {package}"));
    }
    UPDATED.get_or_init(|| run_logged(&mut command("apt-get", &["-q", "update"]), log)).clone()?;
    let is_ours = !Path::new(POLICY).exists();
    if is_ours {
        std::fs::write(POLICY, "#!/bin/sh\nexit 101\n").map_err(|error| error.to_string())?;
        run_logged(&mut command("chmod", &["755", POLICY]), log)?;
    }
    let is_database = package == "postgresql";
    if is_database {
        no_cluster().map_err(|error| format!("{NO_CLUSTER}: {error}"))?;
    }
    let mut install = command("apt-get", &["-qy", "install", "--no-install-recommends", package]);
    let outcome = run_logged(install.env("DEBIAN_FRONTEND", "noninteractive"), log);
    if is_database {
        std::fs::remove_file(NO_CLUSTER).map_err(|error| error.to_string())?;
    }
    if is_ours {
        std::fs::remove_file(POLICY).map_err(|error| error.to_string())?;
    }
    outcome
}

fn no_cluster() -> std::io::Result<()> {
    let folder = Path::new(NO_CLUSTER).parent().expect("it is in a folder");
    std::fs::create_dir_all(folder)?;
    std::fs::write(NO_CLUSTER, "create_main_cluster = false\n")
}
