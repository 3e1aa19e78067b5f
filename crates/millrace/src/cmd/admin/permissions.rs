//! `millrace permissions`: what users may do in vhosts.

use clap::Subcommand;
use serde_json::json;

use super::api::Ask;
use super::column::text;
use super::deed::{Care, Deed, Target, told};
use super::failure::Failure;
use super::list::{self, Listed, Listing};
use super::path::Path;
use super::resource::InVhost;
use super::session::Session;
use crate::table::shown;

pub(crate) const EXAMPLES: &str = "\
Everything in the vhost shop:
  millrace permissions set ann '.*' '.*' '.*' -p shop
Only read from queues that begin with reports.:
  millrace permissions set bob '^$' '^$' '^reports\\.' -p shop
  millrace permissions list --user bob
  millrace permissions delete bob -p shop
The three expressions are for the names of queues and exchanges: configure (declare, delete), write (publish, bind
to), read (consume, bind from). '.*' is all, '^$' nothing.";

const LISTING: Listing = Listing {
    name: "permissions",
    has_names: false,
    columns: &[
        text("vhost", "Vhost"),
        text("user", "User"),
        text("configure", "Configure"),
        text("write", "Write"),
        text("read", "Read"),
    ],
};

/// What can be done with permissions.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List permissions; so does `millrace permissions` alone
    List {
        #[command(flatten)]
        listed: Listed,
        /// Only those of this user
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
    },
    /// Set what a user may do in a vhost
    Set {
        /// The user
        user: String,
        /// Regular expression for names that it may declare and delete
        configure: String,
        /// Regular expression for names that it may publish to
        write: String,
        /// Regular expression for names that it may consume from
        read: String,
    },
    /// Take all permissions in a vhost away from a user
    Delete {
        /// The user
        user: String,
        #[command(flatten)]
        care: Care,
    },
}

pub(crate) async fn run(session: &mut Session, args: InVhost<Command>) -> Result<(), Failure> {
    let InVhost { vhost, list, command, .. } = args;
    let (options, user) = match command {
        None => (list, None),
        Some(Command::List { listed, user }) => (listed.options(list)?, user),
        Some(Command::Set { user, configure, write, read }) => {
            list.none_before("set")?;
            let rights = json!({ "configure": configure, "write": write, "read": read });
            return set(session, vhost.name(), &user, rights).await;
        }
        Some(Command::Delete { user, care }) => {
            list.none_before("delete")?;
            return delete(session, vhost.name(), &user, care).await;
        }
    };
    let path = match (&user, &vhost.vhost) {
        (Some(_), Some(_)) => {
            let why = "give --user or --vhost: one of them is enough to see all of its permissions";
            return Err(Failure::Usage(why.to_owned()));
        }
        (Some(user), None) => Path::of(&["users", user, "permissions"]),
        (None, Some(vhost)) => Path::of(&["vhosts", vhost, "permissions"]),
        (None, None) => Path::of(&["permissions"]),
    };
    list::show(session, &LISTING, path, &options).await
}

fn label(user: &str, vhost: &str) -> String {
    format!("permissions of user {} in vhost {}", shown(user), shown(vhost))
}

async fn set(
    session: &mut Session,
    vhost: &str,
    user: &str,
    rights: serde_json::Value,
) -> Result<(), Failure> {
    let label = label(user, vhost);
    let path = Path::of(&["permissions", vhost, user]);
    let answer = session.api.done(&Ask::put(path, rights, &label)).await?;
    let created = answer.status == http::StatusCode::CREATED;
    let facts = json!({ "kind": "permissions", "vhost": vhost, "user": user, "created": created });
    told(session, "set", "set the", &label, facts)
}

async fn delete(session: &mut Session, vhost: &str, user: &str, care: Care) -> Result<(), Failure> {
    let label = label(user, vhost);
    let path = Path::of(&["permissions", vhost, user]);
    let before = session.api.get(path.clone(), &label).await?;
    let text = |field: &str| shown(before[field].as_str().unwrap_or_default());
    let loss =
        format!("configure {}, write {}, read {}", text("configure"), text("write"), text("read"));
    let facts = json!({
        "vhost": vhost,
        "user": user,
        "configure": before["configure"],
        "write": before["write"],
        "read": before["read"],
    });
    let target = Target { ask: Ask::delete(path, &label), label, loss, facts };
    let deed = Deed {
        action: "delete",
        words: ("delete the", "deleted the"),
        kind: ("permissions", "permissions"),
        is_found: false,
    };
    deed.run(session, vec![target], care).await
}
