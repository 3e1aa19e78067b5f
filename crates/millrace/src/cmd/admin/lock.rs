//! `millrace lock`: runs a command while it holds a lock; shows locks and frees them.

mod held;
mod run;

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use super::api::Ask;
use super::column::{count, flag, text};
use super::deed::{in_vhost, told};
use super::failure::Failure;
use super::list::{self, Listed, Listing};
use super::path::Path;
use super::resource::InVhost;
use super::session::{Session, say, say_json, with};
use crate::table::{clean, shown};

pub(crate) const EXAMPLES: &str = "\
Run a command on one machine at a time; where another has the lock, do nothing (exit code 75):
  millrace lock run nightly --lease 10s -- ./report.sh
Wait for it, five minutes at most:
  millrace lock run migrations --lease 30s --wait 5m -- ./migrate up
The command sees MILLRACE_LOCK and MILLRACE_FENCING_TOKEN: a number that grows each time somebody gets the lock. What the
command writes to should refuse a number that is smaller than one that it has seen.
  millrace lock run index -- sh -c 'curl -H \"X-Token: $MILLRACE_FENCING_TOKEN\" http://search.example/rebuild'
Who has which lock, and one of them:
  millrace lock list -p shop
  millrace lock show nightly
Free one whose holder is gone, as an administrator: somebody else may get it at once
  millrace lock release nightly --force
Exit codes of `run`: that of the command (128 and the signal's number, if one ended it); 75 another has the lock; 76 the
lock was lost, and the command was ended; 126 or 127 the command cannot be run; 1 to 4 as of all commands, if the lock
could not be asked for.";

const LISTING: Listing = Listing {
    name: "locks",
    has_names: true,
    columns: &[
        text("name", "Name"),
        flag("held", "Held"),
        text("owner", "Owner"),
        count("token", "Token"),
        count("left_ms", "Left ms"),
        count("version", "Version").seldom(),
        text("vhost", "Vhost").seldom(),
    ],
};

/// What can be done with locks.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock: renew the lease meanwhile, end the command when the lease is lost
    Run(run::Args),
    /// List the locks of a vhost that are held or have a value; so does `millrace lock` alone
    List(Listed),
    /// Show who holds a lock, and its value
    Show {
        /// Name of the lock
        name: String,
    },
    /// Free a lock
    Release {
        /// Name of the lock
        name: String,
        /// The fencing token of its holder
        #[arg(long, value_name = "NUMBER", required_unless_present = "force")]
        token: Option<u64>,
        /// Whoever holds it; for administrators
        #[arg(long, conflicts_with = "token")]
        force: bool,
    },
}

/// A lock's path.
fn path(vhost: &str, name: &str) -> Path {
    Path::of(&["millrace", "locks", vhost, name])
}

pub(crate) fn main(args: InVhost<Command>) -> ExitCode {
    let InVhost { login, vhost, list, command } = args;
    match command {
        Some(Command::Run(run)) => match list.none_before("run") {
            Ok(()) => run::main(&login, vhost.name(), run),
            Err(failure) => failure.end(),
        },
        command => with(&login, async |session| others(session, vhost.name(), list, command).await),
    }
}

async fn others(
    session: &mut Session,
    vhost: &str,
    list: list::Options,
    command: Option<Command>,
) -> Result<(), Failure> {
    let options = match command {
        None => list,
        Some(Command::List(listed)) => listed.options(list)?,
        Some(Command::Show { name }) => {
            list.none_before("show")?;
            let lock = session.api.get(path(vhost, &name), &in_vhost("lock", &name, vhost)).await?;
            return match session.is_json {
                true => say_json(&lock),
                false => say(&lines(&lock)),
            };
        }
        Some(Command::Release { name, token, force }) => {
            list.none_before("release")?;
            return release(session, vhost, &name, token.filter(|_| !force)).await;
        }
        Some(Command::Run(_)) => unreachable!("it has a way of its own"),
    };
    list::show(session, &LISTING, Path::of(&["millrace", "locks", vhost]), &options).await
}

async fn release(
    session: &mut Session,
    vhost: &str,
    name: &str,
    token: Option<u64>,
) -> Result<(), Failure> {
    let label = in_vhost("lock", name, vhost);
    let path = match token {
        Some(token) => path(vhost, name).with("token", &token.to_string()),
        None => path(vhost, name).with("force", "true"),
    };
    session.api.done(&Ask::delete(path, &label)).await?;
    let facts = json!({ "kind": "lock", "vhost": vhost, "name": name });
    told(session, "release", "released", &label, facts)
}

/// For people.
fn lines(lock: &Value) -> String {
    let word = |field: &str| shown(lock[field].as_str().unwrap_or("-"));
    let number = |field: &str| lock[field].as_u64().unwrap_or(0);
    let mut text = format!("lock {} of vhost {}: ", word("name"), word("vhost"));
    if lock["held"] == json!(true) {
        let left_ms = number("left_ms");
        text.push_str(&format!(
            "held by {} under token {}, for {}.{:01} s more",
            word("owner"),
            number("token"),
            left_ms / 1000,
            left_ms % 1000 / 100
        ));
    } else {
        text.push_str("free");
    }
    if number("version") > 0 {
        text.push_str(&format!("\nvalue, version {}", number("version")));
        match lock["value"].as_str() {
            Some(value) => text.push_str(&format!(" ({}): {}", word("encoding"), clean(value))),
            None => text.push_str(": you have no permission to read it"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_told_in_lines() {
        let free = json!({ "vhost": "/", "name": "job", "held": false, "version": 0 });
        assert_eq!(lines(&free), "lock job of vhost /: free");
        let held = json!({
            "vhost": "/", "name": "job", "held": true, "owner": "a\u{1b}", "token": 65_536,
            "left_ms": 2_340, "version": 9, "value": "x", "encoding": "string",
        });
        assert_eq!(
            lines(&held),
            "lock job of vhost /: held by a\\u{1b} under token 65536, for 2.3 s more\nvalue, version 9 (string): x"
        );
    }
}
