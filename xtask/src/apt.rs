//! Debian packages: installs one without starting any service that it brings.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Outcome;
use crate::process::{command, has, output, run_logged};

/// Keeps a freshly installed service from starting: tests start their own, in a namespace.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Says that a fresh PostgreSQL makes no cluster of its own: tests make theirs, and one on the usual
/// port would come up with the machine.
const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/millrace.conf";

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
