//! `setup`: finds what tests need, or installs it, and says what is missing and what that skips.
//!
//! Debian packages come from apt, everything else goes into `.tools/`. Safe to repeat: what is there
//! stays. A thing that cannot be had is no failure of `setup` by hand: the table and the last lines say what is
//! not run without it. With `CI=true` it is a failure: nobody reads tables there.
//! What different installers get comes at the same time: each of them mostly waits for its registry.

use std::collections::BTreeSet;
use std::path::Path;

use crate::apt::{apt_extract, apt_install};
use crate::conformance::{Installer, SUITES, Suite, case_count, python};
use crate::lanes::in_lanes;
use crate::process::{has, tools};
use crate::{Outcome, is_ci, namespace};

/// A Debian package, the file that shows it is there, and what its absence skips.
struct Package {
    name: &'static str,
    file: &'static str,
    skips: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { name: "make", file: "/usr/bin/make", skips: "everything: it builds the allocator" },
    Package { name: "openssl", file: "/usr/bin/openssl", skips: "py-amqp's cases of TLS" },
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
    Package {
        name: "systemd",
        file: "/usr/bin/systemd-sysusers",
        skips: "the trial of the Debian package",
    },
    Package { name: "chromium", file: "/usr/bin/chromium", skips: "the console in a browser" },
    Package { name: "nodejs", file: "/usr/bin/node", skips: "the console's own tests" },
    Package { name: "npm", file: "/usr/bin/npm", skips: "the console's own tests" },
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
        name: "mariadb-server",
        file: "/usr/sbin/mariadbd",
        skips: "tests of the relay with MariaDB",
    },
    Package {
        name: "postgresql",
        file: "/usr/lib/postgresql/15/bin/initdb",
        skips: "every test of the relay with a database, bench relay",
    },
];

/// What the table says of a thing.
pub(crate) const STATES: &[&str] = &["found", "installed", "missing"];

const PROMTOOL: &str = "promtool";
const PROMTOOL_SKIPS: &str = "Prometheus' own look at metrics and alerts";
const NAMESPACES: &str = "namespaces";
const NAMESPACES_SKIP: &str = "conformance, chaos, bench";
const PIKA_SKIPS: &str = "a lane of the trials";
const MOTO_SKIPS: &str = "work_sources (SQS)";

/// `make`, which builds the allocator: before anything is compiled.
pub(crate) fn builders() -> Outcome {
    if has("make") {
        return Ok(());
    }
    std::fs::create_dir_all(tools()).map_err(|error| format!(".tools: {error}"))?;
    apt_install("make", &tools().join("make.log"))
}

/// `cargo xtask setup`
pub(crate) fn run(_: &[String]) -> Outcome {
    // Installers work beside each other: none may be the one that makes the folder for the others.
    std::fs::create_dir_all(tools().join("src")).map_err(|error| format!(".tools/src: {error}"))?;
    let log = tools().join("setup.log");
    println!("{:<22} {:<10} note", "what", "state");
    for package in PACKAGES {
        let install = || apt_install(package.name, &log);
        line(package.name, package.skips, || Path::new(package.file).exists(), install);
    }
    line(PROMTOOL, PROMTOOL_SKIPS, has_promtool, || {
        // The package brings a server and its pages: 96 MB.
        apt_extract("prometheus", "usr/bin/promtool", &tools().join(PROMTOOL), &log)
    });
    let no_install = || Err(namespace::refusal().unwrap_or_default());
    line(NAMESPACES, NAMESPACES_SKIP, namespace::works, no_install);
    let installers: BTreeSet<Installer> = SUITES.iter().map(|suite| suite.installer).collect();
    let installers = Vec::from_iter(installers);
    in_lanes(&installers, installers.len(), |installer| install_with(*installer, &log));
    let missing = missing();
    print!("{}", told(&missing));
    verdict(&missing, is_ci())
}

/// By hand nothing that is missing is a failure.
fn verdict(missing: &[Missing], is_ci: bool) -> Outcome {
    match missing.is_empty() || !is_ci {
        true => Ok(()),
        false => Err("with CI=true nothing may be missing".into()),
    }
}

/// What is not there, and what is not run without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    name: String,
    skips: String,
    /// Cases of conformance.
    cases: usize,
}

/// The names of all that `setup` gets, as they stand in the table.
pub(crate) fn names() -> Vec<String> {
    let packages = PACKAGES.iter().map(|package| package.name.to_string());
    let others = [PROMTOOL, NAMESPACES, "pika", "moto"].map(String::from);
    packages.chain(others).chain(SUITES.iter().map(name)).collect()
}

/// A suite's name in the table.
fn name(suite: &Suite) -> String {
    format!("{} {}", suite.name, suite.version)
}

/// Looks at all that `setup` gets.
pub(crate) fn missing() -> Vec<Missing> {
    let part = |name: &str, skips: &str, is_there: bool| {
        (!is_there).then(|| Missing { name: name.into(), skips: skips.into(), cases: 0 })
    };
    let packages =
        PACKAGES.iter().map(|one| part(one.name, one.skips, Path::new(one.file).exists()));
    let others = [
        part(PROMTOOL, PROMTOOL_SKIPS, has_promtool()),
        part(NAMESPACES, NAMESPACES_SKIP, namespace::works()),
        part("pika", PIKA_SKIPS, python::has_pika()),
        part("moto", MOTO_SKIPS, python::has_moto()),
    ];
    let suites = SUITES.iter().filter(|suite| !(suite.is_installed)()).map(|suite| {
        Some(Missing {
            name: name(suite),
            skips: format!("conformance {}", suite.name),
            cases: case_count(suite),
        })
    });
    packages.chain(others).chain(suites).flatten().collect()
}

/// Lines that nobody overlooks; none if nothing is missing.
pub(crate) fn told(missing: &[Missing]) -> String {
    if missing.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n!!! NOT RUN on this machine, because something is missing:\n");
    for Missing { name, skips, cases } in missing {
        let count = if *cases > 0 { format!(" ({cases} cases)") } else { String::new() };
        text += &format!("!!!   {name}: {skips}{count}\n");
    }
    let cases: usize = missing.iter().map(|one| one.cases).sum();
    text += &format!(
        "!!! {cases} cases of clients' own tests were not run. `cargo xtask setup` says why.\n"
    );
    text
}

fn has_promtool() -> bool {
    tools().join(PROMTOOL).exists()
}

/// What one installer gets, one after the other: none of them likes company.
fn install_with(installer: Installer, log: &Path) {
    if installer == Installer::Pip {
        line("pika", PIKA_SKIPS, python::has_pika, || python::install_pika(log));
        line("moto", MOTO_SKIPS, python::has_moto, || python::install_moto(log));
    }
    for suite in SUITES.iter().filter(|suite| suite.installer == installer) {
        let skips = format!("conformance {}", suite.name);
        line(&name(suite), &skips, suite.is_installed, || (suite.install)(log));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(name: &str, cases: usize) -> Missing {
        Missing { name: name.into(), skips: "conformance".into(), cases }
    }

    #[test]
    fn what_is_missing_is_red_on_a_machine_for_tests_alone() {
        let [some, none] = [vec![missing("lapin 4.12.3", 34)], Vec::new()];
        let verdicts = [(&some, true), (&some, false), (&none, true), (&none, false)]
            .map(|(missing, is_ci)| verdict(missing, is_ci).is_ok());
        assert_eq!(verdicts, [false, true, true, true]);
    }

    #[test]
    fn what_is_missing_is_told_with_the_count_of_cases_that_are_not_run() {
        let text =
            told(&[missing("lapin 4.12.3", 34), missing("amqprs 2.1.5", 47), missing("strace", 0)]);
        assert!(text.contains("!!!   lapin 4.12.3: conformance (34 cases)\n"), "{text}");
        assert!(text.contains("!!!   strace: conformance\n"), "{text}");
        assert!(text.contains("!!! 81 cases of clients' own tests were not run"), "{text}");
        assert_eq!(told(&[]), "");
    }
}
