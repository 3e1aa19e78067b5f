//! `millrace bindings`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::api::Ask;
use super::column::{table, text};
use super::deed::{Care, Deed, Target, told};
use super::exchanges::in_path;
use super::failure::Failure;
use super::list::{self, Listed, Listing};
use super::path::Path;
use super::resource::{InVhost, arguments};
use super::session::Session;
use crate::table::shown;

pub(crate) const EXAMPLES: &str = "\
  millrace bindings -p shop
What a queue gets:
  millrace bindings list --queue orders -p shop
Bind and unbind:
  millrace bindings declare orders-exchange orders --key 'eu.#' -p shop
  millrace bindings delete orders-exchange orders --key 'eu.#' -p shop";

/// Bindings between two ends.
const FOUND_MAX: usize = 10_000;

const LISTING: Listing = Listing {
    name: "bindings",
    has_names: false,
    columns: &[
        text("vhost", "Vhost"),
        text("source", "Source"),
        text("destination", "Destination"),
        text("destination_type", "To"),
        text("routing_key", "Key"),
        table("arguments", "Arguments"),
        text("properties_key", "Properties key").seldom(),
    ],
};

/// What can be done with bindings.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List bindings; so does `millrace bindings` alone
    List(ListArgs),
    /// Bind a queue, or an exchange, to an exchange
    Declare(Declare),
    /// Remove the bindings with this key between an exchange and a queue or exchange
    Delete(Delete),
}

/// Which bindings are listed.
#[derive(clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    listed: Listed,
    /// Only the bindings of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Only the bindings from this exchange
    #[arg(long, value_name = "NAME", conflicts_with = "queue")]
    exchange: Option<String>,
}

/// Where a binding leads.
#[derive(clap::Args)]
pub(crate) struct Ends {
    /// The exchange that messages come from
    source: String,
    /// The queue that messages go to
    destination: String,
    /// The destination is an exchange
    #[arg(long)]
    to_exchange: bool,
    /// Routing key, or pattern of a topic exchange
    #[arg(long, value_name = "KEY", default_value = "", hide_default_value = true)]
    key: String,
}

/// A binding that is made.
#[derive(clap::Args)]
pub(crate) struct Declare {
    #[command(flatten)]
    ends: Ends,
    /// An argument of the binding, such as x-match=any (repeatable)
    #[arg(long = "argument", value_name = "KEY=VALUE")]
    arguments: Vec<String>,
}

/// Bindings that are removed.
#[derive(clap::Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    ends: Ends,
    #[command(flatten)]
    care: Care,
}

impl Ends {
    fn path(&self, vhost: &str) -> Path {
        self.path_of(vhost, &[])
    }

    fn path_of(&self, vhost: &str, more: &[&str]) -> Path {
        let (letter, destination) = match self.to_exchange {
            true => ("e", in_path(&self.destination)),
            false => ("q", self.destination.as_str()),
        };
        let words = ["bindings", vhost, "e", in_path(&self.source), letter, destination];
        Path::of(&[&words[..], more].concat())
    }

    fn label(&self, vhost: &str) -> String {
        let kind = if self.to_exchange { "exchange" } else { "queue" };
        let (source, destination) = (shown(&self.source), shown(&self.destination));
        let key = shown(&self.key);
        format!(
            "binding from {source} to {kind} {destination} by key '{key}' in vhost {}",
            shown(vhost)
        )
    }

    fn facts(&self, vhost: &str) -> Value {
        json!({
            "vhost": vhost,
            "source": self.source,
            "destination": self.destination,
            "destination_type": if self.to_exchange { "exchange" } else { "queue" },
            "routing_key": self.key,
        })
    }
}

pub(crate) async fn run(session: &mut Session, args: InVhost<Command>) -> Result<(), Failure> {
    let InVhost { vhost, list, command, .. } = args;
    let (options, path) = match command {
        Some(Command::Declare(what)) => {
            list.none_before("declare")?;
            return declare(session, vhost.name(), what).await;
        }
        Some(Command::Delete(what)) => {
            list.none_before("delete")?;
            return delete(session, vhost.name(), what).await;
        }
        Some(Command::List(ListArgs { listed, queue: Some(queue), .. })) => {
            let path = Path::of(&["queues", vhost.name(), &queue, "bindings"]);
            (listed.options(list)?, path)
        }
        Some(Command::List(ListArgs { listed, exchange: Some(exchange), .. })) => {
            let exchange = in_path(&exchange);
            let path = Path::of(&["exchanges", vhost.name(), exchange, "bindings", "source"]);
            (listed.options(list)?, path)
        }
        Some(Command::List(ListArgs { listed, queue: None, exchange: None })) => {
            (listed.options(list)?, all(vhost.vhost.as_deref()))
        }
        None => (list, all(vhost.vhost.as_deref())),
    };
    list::show(session, &LISTING, path, &options).await
}

fn all(vhost: Option<&str>) -> Path {
    match vhost {
        Some(vhost) => Path::of(&["bindings", vhost]),
        None => Path::of(&["bindings"]),
    }
}

async fn declare(session: &mut Session, vhost: &str, what: Declare) -> Result<(), Failure> {
    let label = what.ends.label(vhost);
    let body = json!({
        "routing_key": what.ends.key,
        "arguments": arguments(&what.arguments)?,
    });
    session.api.done(&Ask::post(what.ends.path(vhost), body, &label)).await?;
    let mut facts = what.ends.facts(vhost);
    facts["kind"] = "binding".into();
    told(session, "declare", "declared", &label, facts)
}

async fn delete(session: &mut Session, vhost: &str, what: Delete) -> Result<(), Failure> {
    let label = what.ends.label(vhost);
    let found = list::fetch(session, &label, &what.ends.path(vhost), FOUND_MAX).await?;
    let wanted = found.iter().filter(|binding| binding["routing_key"] == what.ends.key.as_str());
    let targets: Vec<Target> = wanted
        .map(|binding| {
            let key = binding["properties_key"].as_str().unwrap_or_default();
            let mut facts = what.ends.facts(vhost);
            facts["arguments"] = binding["arguments"].clone();
            let has_arguments = binding["arguments"].as_object().is_some_and(|it| !it.is_empty());
            let loss = match has_arguments {
                true => shown(&binding["arguments"].to_string()),
                false => String::new(),
            };
            let ask = Ask::delete(what.ends.path_of(vhost, &[key]), &label);
            Target { ask, label: label.clone(), loss, facts }
        })
        .collect();
    if targets.is_empty() {
        return Err(Failure::Refused(format!("not found: {label}")));
    }
    let deed = Deed {
        action: "delete",
        words: ("delete", "deleted"),
        kind: ("binding", "bindings"),
        // Several differ by their arguments only.
        is_found: targets.len() > 1,
    };
    deed.run(session, targets, what.care).await
}
