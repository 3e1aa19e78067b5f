//! A network of one's own: everything that starts brokers runs in fresh network and process namespaces.
//!
//! So a broker has 127.0.0.1:5672 to itself, which some clients' tests have written into them; nothing
//! can reach any other machine; and whatever was started ends when the command ends. Root can do this,
//! and so can others where the kernel lets users have namespaces.

use std::process::Command;

use crate::Outcome;
use crate::process::{command, output, run};

/// Set for the command that runs inside.
const INSIDE: &str = "XTASK_NAMESPACE";

/// Whether this process is the one inside.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Whether this machine lets us have namespaces.
pub(crate) fn works() -> bool {
    unshare().is_ok_and(|mut command| command.arg("true").status().is_ok_and(|s| s.success()))
}

/// Runs this program again inside, with these words.
pub(crate) fn run_inside(words: &[&str]) -> Outcome {
    let myself = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = unshare()?;
    command.arg(myself).args(words).env(INSIDE, "1");
    run(&mut command)
}

/// What the process inside does first: the loopback interface is down in a fresh network.
pub(crate) fn bring_up_loopback() -> Outcome {
    run(&mut command("ip", &["link", "set", "lo", "up"]))
}

fn unshare() -> Result<Command, String> {
    let mut args = vec!["--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
    if output(&mut command("id", &["-u"]))?.trim() != "0" {
        args.push("--map-root-user");
    }
    Ok(command("unshare", &args))
}
