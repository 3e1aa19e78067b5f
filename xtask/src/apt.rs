//! Debian packages: installs one without starting any service that it brings, or takes one file out of it.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Outcome;
use crate::process::{command, has, output, run_logged, tools};

/// Keeps a freshly installed service from starting: tests start their own, in a namespace.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Says that a fresh PostgreSQL makes no cluster of its own: tests make theirs, and one on the usual
/// port would come up with the machine.
const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/millrace.conf";

/// Other installers need packages, too: they take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Installs a Debian package without starting any service that it brings.
pub(crate) fn apt_install(package: &str, log: &Path) -> Outcome {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    update(package, log)?;
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

/// Takes one file out of a Debian package and puts it at `to`. Nothing is installed: this is for a tool in a package
/// that brings a service, or much else.
pub(crate) fn apt_extract(package: &str, file: &str, to: &Path, log: &Path) -> Outcome {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    update(package, log)?;
    let folder = tools().join("src").join(package);
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(told)?;
    run_logged(command("apt-get", &["-q", "download", package]).current_dir(&folder), log)?;
    let found = std::fs::read_dir(&folder).map_err(told)?.flatten().map(|entry| entry.path());
    let archive = found.into_iter().find(|path| path.extension().is_some_and(|it| it == "deb"));
    let archive = archive.ok_or_else(|| format!("apt-get brought no package {package}"))?;
    run_logged(command("dpkg-deb", &["--extract"]).arg(archive).arg(&folder), log)?;
    std::fs::copy(folder.join(file), to).map_err(told)?;
    std::fs::remove_dir_all(&folder).map_err(told)
}

/// Fetches the lists of packages, once.
fn update(package: &str, log: &Path) -> Outcome {
    static UPDATED: OnceLock<Outcome> = OnceLock::new();
    if !has("apt-get") {
        return Err("no apt-get here: install it by hand".into());
    }
    if output(&mut command("id", &["-u"]))?.trim() != "0" {
        return Err(format!("not root: apt-get install {package}"));
    }
    UPDATED.get_or_init(|| run_logged(&mut command("apt-get", &["-q", "update"]), log)).clone()
}

fn no_cluster() -> std::io::Result<()> {
    let folder = Path::new(NO_CLUSTER).parent().expect("it is in a folder");
    std::fs::create_dir_all(folder)?;
    std::fs::write(NO_CLUSTER, "create_main_cluster = false\n")
}
