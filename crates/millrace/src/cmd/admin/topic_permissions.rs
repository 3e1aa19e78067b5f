//! `millrace topic-permissions`: by which routing keys users may publish to, and bind from, topic exchanges.

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
  millrace topic-permissions set ann orders '^eu\\.' '^(eu|us)\\.' -p shop
  millrace topic-permissions list --user ann
  millrace topic-permissions delete ann -p shop --dry-run
Without topic permissions for an exchange a user may use any routing key there.";

/// Topic permissions that are counted before they are deleted.
const COUNTED_MAX: usize = 10_000;

const LISTING: Listing = Listing {
    name: "topic_permissions",
    has_names: false,
    columns: &[
        text("vhost", "Vhost"),
        text("user", "User"),
        text("exchange", "Exchange"),
        text("write", "Write"),
        text("read", "Read"),
    ],
};

/// What can be done with topic permissions.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List topic permissions; so does `millrace topic-permissions` alone
    List {
        #[command(flatten)]
        listed: Listed,
        /// Only those of this user
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
    },
    /// Set which routing keys a user may use at a topic exchange
    Set {
        /// The user
        user: String,
        /// The topic exchange
        exchange: String,
        /// Regular expression for routing keys that it may publish with
        write: String,
        /// Regular expression for routing keys that it may bind by
        read: String,
    },
    /// Delete all topic permissions of a user in a vhost
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
        Some(Command::Set { user, exchange, write, read }) => {
            list.none_before("set")?;
            let label = label(&user, vhost.name());
            let body = json!({ "exchange": exchange, "write": write, "read": read });
            let path = Path::of(&["topic-permissions", vhost.name(), &user]);
            session.api.done(&Ask::put(path, body, &label)).await?;
            let facts = json!({
                "kind": "topic permissions",
                "vhost": vhost.name(),
                "user": user,
                "exchange": exchange,
            });
            return told(session, "set", "set the", &label, facts);
        }
        Some(Command::Delete { user, care }) => {
            list.none_before("delete")?;
            return delete(session, vhost.name(), &user, care).await;
        }
    };
    let path = match (&user, &vhost.vhost) {
        (Some(user), Some(vhost)) => Path::of(&["topic-permissions", vhost, user]),
        (Some(user), None) => Path::of(&["users", user, "topic-permissions"]),
        (None, Some(vhost)) => Path::of(&["vhosts", vhost, "topic-permissions"]),
        (None, None) => Path::of(&["topic-permissions"]),
    };
    list::show(session, &LISTING, path, &options).await
}

fn label(user: &str, vhost: &str) -> String {
    format!("topic permissions of user {} in vhost {}", shown(user), shown(vhost))
}

async fn delete(session: &mut Session, vhost: &str, user: &str, care: Care) -> Result<(), Failure> {
    let label = label(user, vhost);
    let path = Path::of(&["topic-permissions", vhost, user]);
    let count = list::fetch(session, &label, &path, COUNTED_MAX).await?.len();
    let target = Target {
        ask: Ask::delete(path, &label),
        label,
        loss: format!("at {count} exchanges"),
        facts: json!({ "vhost": vhost, "user": user, "exchanges": count }),
    };
    let deed = Deed {
        action: "delete",
        words: ("delete the", "deleted the"),
        kind: ("topic permissions", "topic permissions"),
        is_found: false,
    };
    deed.run(session, vec![target], care).await
}
