//! `millrace exchanges`.

use clap::Subcommand;
use serde_json::json;

use super::api::Ask;
use super::column::{flag, table, text};
use super::deed::{Care, Deed, Target, in_vhost, told};
use super::failure::Failure;
use super::list::{self, Listed, Listing};
use super::path::Path;
use super::resource::{InVhost, arguments};
use super::session::Session;

pub(crate) const EXAMPLES: &str = "\
  millrace exchanges -p shop
  millrace exchanges declare orders -p shop --type topic
  millrace exchanges declare later --type x-delayed-message --argument x-delayed-type=direct
  millrace exchanges delete orders -p shop --dry-run
Bindings are `millrace bindings`.";

/// What the default exchange is called in paths.
const DEFAULT: &str = "amq.default";
/// Bindings that are counted before an exchange is deleted.
const COUNTED_MAX: usize = 10_000;

const LISTING: Listing = Listing {
    name: "exchanges",
    has_names: true,
    columns: &[
        text("vhost", "Vhost"),
        text("name", "Name"),
        text("type", "Type"),
        flag("durable", "Durable"),
        flag("auto_delete", "Auto-delete"),
        flag("internal", "Internal"),
        text("policy", "Policy"),
        table("arguments", "Arguments"),
    ],
};

/// What can be done with exchanges.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List exchanges; so does `millrace exchanges` alone
    List(Listed),
    /// Declare an exchange. If it is there with the same properties, nothing changes; with others, it is refused
    Declare(Declare),
    /// Delete exchanges with their bindings
    Delete(Delete),
}

/// An exchange that is declared.
#[derive(clap::Args)]
pub(crate) struct Declare {
    /// Name of the exchange
    name: String,
    /// Type: direct, fanout, topic, headers, x-delayed-message, x-consistent-hash and others
    #[arg(long = "type", value_name = "TYPE", default_value = "direct")]
    kind: String,
    /// Forget the exchange when the brokers stop
    #[arg(long)]
    transient: bool,
    /// Delete the exchange when its last binding is gone
    #[arg(long)]
    auto_delete: bool,
    /// Let only other exchanges publish to it
    #[arg(long)]
    internal: bool,
    /// An argument of the declaration, such as alternate-exchange=unrouted (repeatable)
    #[arg(long = "argument", value_name = "KEY=VALUE")]
    arguments: Vec<String>,
}

/// Exchanges that are deleted.
#[derive(clap::Args)]
pub(crate) struct Delete {
    /// Names of the exchanges
    #[arg(value_name = "EXCHANGE", required = true)]
    names: Vec<String>,
    /// Delete an exchange only if nothing is bound to it
    #[arg(long)]
    if_unused: bool,
    #[command(flatten)]
    care: Care,
}

pub(crate) async fn run(session: &mut Session, args: InVhost<Command>) -> Result<(), Failure> {
    let InVhost { vhost, list, command, .. } = args;
    let options = match command {
        None => list,
        Some(Command::List(listed)) => listed.options(list)?,
        Some(Command::Declare(what)) => {
            list.none_before("declare")?;
            return declare(session, vhost.name(), what).await;
        }
        Some(Command::Delete(what)) => {
            list.none_before("delete")?;
            return delete(session, vhost.name(), what).await;
        }
    };
    let path = match &vhost.vhost {
        Some(vhost) => Path::of(&["exchanges", vhost]),
        None => Path::of(&["exchanges"]),
    };
    list::show(session, &LISTING, path, &options).await
}

/// An exchange as paths name it.
pub(crate) fn in_path(name: &str) -> &str {
    if name.is_empty() { DEFAULT } else { name }
}

async fn declare(session: &mut Session, vhost: &str, what: Declare) -> Result<(), Failure> {
    let label = in_vhost("exchange", &what.name, vhost);
    let body = json!({
        "type": what.kind,
        "durable": !what.transient,
        "auto_delete": what.auto_delete,
        "internal": what.internal,
        "arguments": arguments(&what.arguments)?,
    });
    let path = Path::of(&["exchanges", vhost, in_path(&what.name)]);
    let answer = session.api.done(&Ask::put(path, body, &label)).await?;
    let created = answer.status == http::StatusCode::CREATED;
    let past = if created { "declared" } else { "it was there as declared:" };
    let facts =
        json!({ "kind": "exchange", "vhost": vhost, "name": what.name, "created": created });
    told(session, "declare", past, &label, facts)
}

async fn delete(session: &mut Session, vhost: &str, what: Delete) -> Result<(), Failure> {
    let mut targets = Vec::with_capacity(what.names.len());
    for name in &what.names {
        let label = in_vhost("exchange", name, vhost);
        let mut bindings = 0;
        for end in ["source", "destination"] {
            let path = Path::of(&["exchanges", vhost, in_path(name), "bindings", end]);
            bindings += list::fetch(session, &label, &path, COUNTED_MAX).await?.len();
        }
        let mut path = Path::of(&["exchanges", vhost, in_path(name)]);
        if what.if_unused {
            path = path.with("if-unused", "true");
        }
        targets.push(Target {
            ask: Ask::delete(path, &label),
            label,
            loss: format!("{bindings} bindings"),
            facts: json!({ "vhost": vhost, "name": name, "bindings": bindings }),
        });
    }
    let deed = Deed {
        action: "delete",
        words: ("delete", "deleted"),
        kind: ("exchange", "exchanges"),
        is_found: false,
    };
    deed.run(session, targets, what.care).await
}
