//! Whose processes and files a cluster's are: PostgreSQL does not run as root.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use super::Error;

/// The user that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    user: u32,
    group: u32,
}

/// The account of Debian's package if we are root, none if we are anybody else.
pub(super) fn needed() -> Result<Option<Account>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some("postgres");
        let numbers = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        is_it.then_some(Account { user: numbers.0, group: numbers.1 })
    });
    let missing = || Error::Missing("there is no user `postgres`, and root must not run it".into());
    found.map(Some).ok_or_else(missing)
}

/// A program about to run under that account, in a directory that it can enter.
pub(super) fn command(program: &Path, account: Option<Account>) -> Command {
    let mut command = Command::new(program);
    // A group of its own: what interrupts the tests at a terminal must not stop it before them.
    command.current_dir("/").process_group(0);
    if let Some(account) = account {
        command.uid(account.user).gid(account.group);
    }
    command
}

/// Gives a directory with everything in it to the account.
pub(super) fn give(path: &Path, account: Option<Account>) -> Result<(), Error> {
    let Some(account) = account else { return Ok(()) };
    std::os::unix::fs::lchown(path, Some(account.user), Some(account.group))?;
    if path.is_dir() && !path.is_symlink() {
        for entry in std::fs::read_dir(path)? {
            give(&entry?.path(), Some(account))?;
        }
    }
    Ok(())
}
