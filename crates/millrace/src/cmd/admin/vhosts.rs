//! `millrace vhosts`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::api::Ask;
use super::column::{flag, text};
use super::deed::{Care, Deed, Target, told};
use super::failure::Failure;
use super::list::{self, Listed, Listing};
use super::path::Path;
use super::resource::{Global, Vhost};
use super::session::Session;
use crate::table::shown;

pub(crate) const EXAMPLES: &str = "\
  millrace vhosts add shop
  millrace vhosts delete shop --dry-run       what would be lost
  millrace vhosts delete shop
  millrace vhosts trace-on -p shop            what passes is published at amq.rabbitmq.trace, too
Whoever adds a vhost gets all permissions in it; others get theirs by `millrace permissions set`.";

/// Queues that are counted before a vhost is deleted.
const COUNTED_MAX: usize = 10_000;

const LISTING: Listing = Listing {
    name: "vhosts",
    has_names: true,
    columns: &[
        text("name", "Name"),
        text("description", "Description"),
        text("default_queue_type", "Default type"),
        flag("tracing", "Traced"),
    ],
};

/// What can be done with vhosts.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List vhosts; so does `millrace vhosts` alone
    List(Listed),
    /// Add a vhost
    Add {
        /// Name of the vhost
        name: String,
    },
    /// Delete vhosts with everything in them: queues, messages, exchanges, permissions
    Delete {
        /// Names of the vhosts
        #[arg(value_name = "VHOST", required = true)]
        names: Vec<String>,
        #[command(flatten)]
        care: Care,
    },
    /// Publish what passes through a vhost at its exchange amq.rabbitmq.trace, too
    TraceOn(Vhost),
    /// Publish it no more
    TraceOff(Vhost),
}

pub(crate) async fn run(session: &mut Session, args: Global<Command>) -> Result<(), Failure> {
    let Global { list, command, .. } = args;
    let options = match command {
        None => list,
        Some(Command::List(listed)) => listed.options(list)?,
        Some(Command::Add { name }) => {
            list.none_before("add")?;
            return add(session, &name).await;
        }
        Some(Command::Delete { names, care }) => {
            list.none_before("delete")?;
            return delete(session, &names, care).await;
        }
        Some(Command::TraceOn(vhost)) => {
            list.none_before("trace-on")?;
            return trace(session, vhost.name(), true).await;
        }
        Some(Command::TraceOff(vhost)) => {
            list.none_before("trace-off")?;
            return trace(session, vhost.name(), false).await;
        }
    };
    list::show(session, &LISTING, Path::of(&["vhosts"]), &options).await
}

async fn add(session: &mut Session, name: &str) -> Result<(), Failure> {
    let label = format!("vhost {}", shown(name));
    let ask = Ask::put(Path::of(&["vhosts", name]), json!({}), &label);
    let created = session.api.done(&ask).await?.status == http::StatusCode::CREATED;
    let past = if created { "added" } else { "it was there:" };
    told(session, "add", past, &label, json!({ "kind": "vhost", "name": name, "created": created }))
}

async fn trace(session: &mut Session, name: &str, on: bool) -> Result<(), Failure> {
    let label = format!("vhost {}", shown(name));
    // Whoever puts a vhost that is not there makes it: that is not what was asked.
    session.api.get(Path::of(&["vhosts", name]), &label).await?;
    let ask = Ask::put(Path::of(&["vhosts", name]), json!({ "tracing": on }), &label);
    session.api.done(&ask).await?;
    let past = if on { "traced:" } else { "traced no more:" };
    told(session, "trace", past, &label, json!({ "kind": "vhost", "name": name, "tracing": on }))
}

async fn delete(session: &mut Session, names: &[String], care: Care) -> Result<(), Failure> {
    let mut targets = Vec::with_capacity(names.len());
    for name in names {
        let label = format!("vhost {}", shown(name));
        let queues = Path::of(&["queues", name]).with("columns", "name,messages");
        let queues = list::fetch(session, &label, &queues, COUNTED_MAX).await?;
        let messages: u64 = queues.iter().filter_map(|queue| queue["messages"].as_u64()).sum();
        let is_known =
            queues.len() < COUNTED_MAX && queues.iter().all(|queue| queue["messages"].is_u64());
        let least = if is_known { "" } else { "at least " };
        let loss = format!("{least}{} queues with {messages} messages", queues.len());
        let facts: Value = json!({ "name": name, "queues": queues.len(), "messages": messages });
        let ask = Ask::delete(Path::of(&["vhosts", name]), &label);
        targets.push(Target { ask, label, loss, facts });
    }
    let deed = Deed {
        action: "delete",
        words: ("delete", "deleted"),
        kind: ("vhost", "vhosts"),
        is_found: false,
    };
    deed.run(session, targets, care).await
}
