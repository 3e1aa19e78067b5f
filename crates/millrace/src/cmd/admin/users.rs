//! `millrace users`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::api::Ask;
use super::column::{table, text, words};
use super::deed::{Care, Deed, Target, told};
use super::failure::Failure;
use super::list::{self, Listed, Listing};
use super::path::Path;
use super::resource::Global;
use super::secret::NewPassword;
use super::session::Session;
use crate::table::shown;

pub(crate) const EXAMPLES: &str = "\
Add a user that may use the vhost shop; the password is asked for:
  millrace users add ann
  millrace permissions set ann '.*' '.*' '.*' -p shop
In a script, the password comes from a file, a variable, or standard input:
  millrace users add ann --tags monitoring --new-password-file /run/secrets/ann
  printf '%s' \"$PASSWORD\" | millrace users set-password ann
Tags let a user use the HTTP API: management, policymaker, monitoring, administrator, peek (sees messages), and
read-only beside them:
  millrace users set-tags ann monitoring
  millrace users set-tags ann                 none: clients only";

/// Connections that are counted before a user is deleted.
const COUNTED_MAX: usize = 10_000;

const LISTING: Listing = Listing {
    name: "users",
    has_names: true,
    columns: &[text("name", "Name"), words("tags", "Tags"), table("limits", "Limits").seldom()],
};

/// What can be done with users.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List users; so does `millrace users` alone
    List(Listed),
    /// Add a user
    Add {
        /// Name of the user
        name: String,
        #[command(flatten)]
        password: NewPassword,
        /// Tags, parted by commas: management, policymaker, monitoring, administrator, peek, read-only
        #[arg(long, value_name = "TAGS", value_delimiter = ',')]
        tags: Vec<String>,
    },
    /// Change the password of a user
    SetPassword {
        /// Name of the user
        name: String,
        #[command(flatten)]
        password: NewPassword,
    },
    /// Take the password of a user away: it cannot log in with one until it gets another
    ClearPassword {
        /// Name of the user
        name: String,
        #[command(flatten)]
        care: Care,
    },
    /// Set the tags of a user; those that it had are gone
    SetTags {
        /// Name of the user
        name: String,
        /// Tags: management, policymaker, monitoring, administrator, peek, read-only
        #[arg(value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Delete users. Their connections are closed
    Delete {
        /// Names of the users
        #[arg(value_name = "USER", required = true)]
        names: Vec<String>,
        #[command(flatten)]
        care: Care,
    },
}

pub(crate) async fn run(session: &mut Session, args: Global<Command>) -> Result<(), Failure> {
    let Global { list, command, .. } = args;
    let subcommand = match command {
        Some(Command::List(listed)) => {
            let options = listed.options(list)?;
            return list::show(session, &LISTING, Path::of(&["users"]), &options).await;
        }
        None => return list::show(session, &LISTING, Path::of(&["users"]), &list).await,
        Some(subcommand) => subcommand,
    };
    list.none_before("the subcommand")?;
    match subcommand {
        Command::List(_) => Ok(()),
        Command::Add { name, password, tags } => add(session, &name, password, &tags).await,
        Command::SetPassword { name, password } => {
            let before = session.api.get(path(&name), &label(&name)).await?;
            let password = password.read(&name)?;
            let body = json!({ "password": password.expose(), "tags": before["tags"] });
            put(session, &name, body).await?;
            let facts = json!({ "kind": "user", "name": name });
            told(session, "set-password", "changed the password of", &label(&name), facts)
        }
        Command::ClearPassword { name, care } => clear_password(session, &name, care).await,
        Command::SetTags { name, tags } => {
            let before = session.api.get(path(&name), &label(&name)).await?;
            let mut body = json!({ "tags": tags });
            // A user without a password keeps having none.
            if before["password_hash"].as_str().is_some_and(|hash| !hash.is_empty()) {
                body["password_hash"] = before["password_hash"].clone();
            }
            put(session, &name, body).await?;
            let facts = json!({ "kind": "user", "name": name, "tags": tags });
            told(session, "set-tags", "set the tags of", &label(&name), facts)
        }
        Command::Delete { names, care } => delete(session, &names, care).await,
    }
}

fn path(name: &str) -> Path {
    Path::of(&["users", name])
}

fn label(name: &str) -> String {
    format!("user {}", shown(name))
}

async fn put(session: &mut Session, name: &str, body: Value) -> Result<(), Failure> {
    session.api.done(&Ask::put(path(name), body, label(name))).await.map(|_| ())
}

async fn add(
    session: &mut Session,
    name: &str,
    password: NewPassword,
    tags: &[String],
) -> Result<(), Failure> {
    // The API would change a user that is there.
    if session.api.find(path(name), &label(name)).await?.is_some() {
        return Err(Failure::Refused(format!(
            "{} is there already: `millrace users set-password` and `set-tags` change it",
            label(name)
        )));
    }
    let password = password.read(name)?;
    put(session, name, json!({ "password": password.expose(), "tags": tags })).await?;
    let facts = json!({ "kind": "user", "name": name, "tags": tags, "created": true });
    told(session, "add", "added", &label(name), facts)
}

async fn clear_password(session: &mut Session, name: &str, care: Care) -> Result<(), Failure> {
    let before = session.api.get(path(name), &label(name)).await?;
    // Neither a password nor a hash: no login by password.
    let body = json!({ "tags": before["tags"] });
    let target = Target {
        ask: Ask::put(path(name), body, label(name)),
        label: format!("the password of {}", label(name)),
        loss: String::new(),
        facts: json!({ "name": name }),
    };
    let deed = Deed {
        action: "clear-password",
        words: ("take away", "took away"),
        kind: ("password", "passwords"),
        is_found: false,
    };
    deed.run(session, vec![target], care).await
}

async fn delete(session: &mut Session, names: &[String], care: Care) -> Result<(), Failure> {
    let connections = Path::of(&["connections"]).with("columns", "user");
    let connections = list::fetch(session, "connections", &connections, COUNTED_MAX).await?;
    let mut targets = Vec::with_capacity(names.len());
    for name in names {
        let rights = Path::of(&["users", name, "permissions"]);
        let rights = list::fetch(session, &label(name), &rights, COUNTED_MAX).await?.len();
        let open = connections.iter().filter(|connection| connection["user"] == **name).count();
        targets.push(Target {
            ask: Ask::delete(path(name), label(name)),
            label: label(name),
            loss: format!("permissions in {rights} vhosts, {open} connections"),
            facts: json!({ "name": name, "permissions": rights, "connections": open }),
        });
    }
    let deed = Deed {
        action: "delete",
        words: ("delete", "deleted"),
        kind: ("user", "users"),
        is_found: false,
    };
    deed.run(session, targets, care).await
}
