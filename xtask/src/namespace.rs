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
    refusal().is_none()
}

/// Why this machine does not let us have namespaces, and what to do; none if it does.
pub(crate) fn refusal() -> Option<String> {
    let is_root = matches!(is_root(), Ok(true));
    let tried = unshare().and_then(|mut command| {
        command
            .arg("true")
            .output()
            .map_err(|error| format!("unshare (util-linux) cannot be started: {error}"))
    });
    match tried {
        Ok(tried) if tried.status.success() => None,
        Ok(tried) => Some(words(is_root, String::from_utf8_lossy(&tried.stderr).trim())),
        Err(why) => Some(why),
    }
}

fn words(is_root: bool, said: &str) -> String {
    // Only what is mounted somewhere can be the root of a namespace of its own.
    if said.contains("root filesystem propagation") {
        return format!(
            "the root directory here is a plain chroot ({said}): before chroot, mount it on itself: \
             mount --bind DIR DIR"
        );
    }
    match is_root {
        true => format!(
            "this machine refuses them to root, too ({said}): a container needs --privileged, or CAP_SYS_ADMIN and \
             a seccomp profile that allows unshare"
        ),
        false => format!("this machine refuses them to users ({said}): run as root"),
    }
}

fn is_root() -> Result<bool, String> {
    Ok(output(&mut command("id", &["-u"]))?.trim() == "0")
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
    if !is_root()? {
        args.push("--map-root-user");
    }
    Ok(command("unshare", &args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_become_root() {
        assert!(!words(true, "unshare failed").contains("run as root"));
        assert!(words(false, "unshare failed").contains("run as root"));
    }

    #[test]
    fn in_a_plain_chroot_nobody_is_told_to_change_a_container() {
        let said = "unshare: cannot change root filesystem propagation: Invalid argument";
        let words = words(true, said);
        assert!(words.contains("mount --bind") && !words.contains("--privileged"), "{words}");
    }
}
