//! A node that ends with the process that started it: one of `millrace dev`.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Has the kernel kill this process when its parent ends, however that is; what is confirmed is on disk.
///
/// # Errors
/// The process with this number is not the parent, or not any more.
pub(super) fn end_with(parent: i32) -> Result<(), String> {
    let set = set_parent_process_death_signal(Some(Signal::KILL));
    set.map_err(|error| format!("--end-with {parent}: {error}"))?;
    // The parent may have ended before that.
    match getppid() == Pid::from_raw(parent) {
        true => Ok(()),
        false => {
            Err(format!("--end-with {parent}: that process has not started this one, or has ended"))
        }
    }
}
