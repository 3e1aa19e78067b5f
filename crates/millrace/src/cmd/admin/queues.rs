//! `millrace queues`, `millrace delete`, and what other commands do to queues.

use clap::Subcommand;
use serde_json::{Value, json};

use super::api::Ask;
use super::chosen::{Which, deed, name_of, shown_count, target, targets};
use super::column::{count, count_of, flag, rate, since, size, table, text, text_of, words};
use super::deed::{in_vhost, told};
use super::failure::Failure;
use super::list::{self, Listed, Listing};
use super::login;
use super::path::Path;
use super::purges;
use super::resource::{InVhost, Vhost, arguments};
use super::session::Session;

pub(crate) const EXAMPLES: &str = "\
Which queues grow, the fullest first, every two seconds:
  millrace queues --sort messages_ready --reverse --limit 20 --watch
Those of one vhost, with columns by RabbitMQ's names:
  millrace queues list -p shop name messages consumers
Declare a queue with a limit; KEY=VALUE takes JSON or text:
  millrace queues declare orders -p shop --argument x-max-length=100000 --argument x-overflow=reject-publish
See what purging would drop, then do it:
  millrace purge orders -p shop --dry-run
  millrace purge orders -p shop
Purge so that it can be undone for a minute, and undo it:
  millrace purge orders -p shop --undo-for 60
  millrace unpurge orders -p shop
Delete all queues whose name begins with tmp.:
  millrace delete --matching '^tmp\\.' --dry-run
  millrace delete --matching '^tmp\\.' --yes
For a program:
  millrace queues --json | jq '.queues[] | select(.consumers == 0)'";

const LISTING: Listing = Listing {
    name: "queues",
    has_names: true,
    columns: &[
        text("vhost", "Vhost"),
        text("name", "Name"),
        text("type", "Type"),
        text("state", "State"),
        count("messages_ready", "Ready"),
        count("messages_unacknowledged", "Unacked"),
        count("messages", "Messages").seldom(),
        count("consumers", "Consumers"),
        rate("publish_rate", "In", "message_stats.publish_details.rate"),
        rate("ack_rate", "Acked", "message_stats.ack_details.rate"),
        flag("paused", "Paused"),
        count_of("held_back", "Held back", "millrace.held_back"),
        count_of("held_back_ms", "Held for ms", "millrace.held_back_ms").seldom(),
        count_of("held_back_publishes", "Publishes held", "millrace.held_back_publishes").seldom(),
        text_of("rate", "Rate", "rates.dequeue").seldom(),
        text_of("enqueue_rate", "Enqueue rate", "rates.enqueue").seldom(),
        text("paused_by", "Paused by").seldom(),
        since("paused_at", "Paused for").seldom(),
        text("policy", "Policy"),
        text("operator_policy", "Operator policy").seldom(),
        text_of("leader", "Leader", "node"),
        words("members", "Members").seldom(),
        flag("durable", "Durable").seldom(),
        flag("auto_delete", "Auto-delete").seldom(),
        flag("exclusive", "Exclusive").seldom(),
        table("arguments", "Arguments").seldom(),
        size("message_bytes_ready", "Ready bytes").seldom(),
        count_of("delayed", "Delayed", "millrace.delayed").seldom(),
        count_of("dead_lettered", "Dead-lettered", "millrace.dead_lettered").seldom(),
        count_of("passed_over", "Passed over", "millrace.passed_over").seldom(),
    ],
};

/// What can be done with queues.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List queues; so does `millrace queues` alone
    List(Listed),
    /// Declare a queue. If it is there with the same properties, nothing changes; with others, it is refused
    Declare(Declare),
    /// Delete queues with their messages
    Delete(Delete),
    /// Drop the messages of queues that no consumer holds
    Purge(purges::Purge),
}

/// A queue that is declared.
#[derive(clap::Args)]
pub(crate) struct Declare {
    /// Name of the queue
    name: String,
    /// Type: classic, quorum or stream. In Millrace all are replicated and synced
    #[arg(long = "type", value_name = "TYPE")]
    queue_type: Option<String>,
    /// Keep the queue in the memory of one node
    #[arg(long)]
    transient: bool,
    /// Delete the queue when its last consumer is gone
    #[arg(long)]
    auto_delete: bool,
    /// An argument of the declaration, such as x-max-length=1000 (repeatable)
    #[arg(long = "argument", value_name = "KEY=VALUE")]
    arguments: Vec<String>,
}

/// Queues that are deleted.
#[derive(clap::Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    which: Which,
    /// Delete a queue only if it has no messages
    #[arg(long)]
    if_empty: bool,
    /// Delete a queue only if it has no consumers
    #[arg(long)]
    if_unused: bool,
}

/// What `millrace delete` takes.
#[derive(clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    pub(crate) vhost: Vhost,
    #[command(flatten)]
    pub(crate) delete: Delete,
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
        Some(Command::Purge(what)) => {
            list.none_before("purge")?;
            return purges::purge(session, vhost.name(), what).await;
        }
    };
    let path = match &vhost.vhost {
        Some(vhost) => Path::of(&["queues", vhost]),
        None => Path::of(&["queues"]),
    };
    list::show(session, &LISTING, path, &options).await
}

async fn declare(session: &mut Session, vhost: &str, what: Declare) -> Result<(), Failure> {
    let mut arguments = arguments(&what.arguments)?;
    if let Some(queue_type) = what.queue_type {
        arguments["x-queue-type"] = queue_type.into();
    }
    let label = in_vhost("queue", &what.name, vhost);
    let body = json!({
        "durable": !what.transient,
        "auto_delete": what.auto_delete,
        "arguments": arguments,
    });
    let path = Path::of(&["queues", vhost, &what.name]);
    let answer = session.api.done(&Ask::put(path, body, &label)).await?;
    let created = answer.status == http::StatusCode::CREATED;
    let past = if created { "declared" } else { "it was there as declared:" };
    let facts = json!({ "kind": "queue", "vhost": vhost, "name": what.name, "created": created });
    told(session, "declare", past, &label, facts)
}

pub(crate) async fn delete(
    session: &mut Session,
    vhost: &str,
    what: Delete,
) -> Result<(), Failure> {
    let target = |queue: &Value| {
        let loss = format!(
            "{} messages, {} consumers",
            shown_count(queue, "messages"),
            shown_count(queue, "consumers")
        );
        let path = Path::of(&["queues", vhost, name_of(queue)]);
        let path = if what.if_empty { path.with("if-empty", "true") } else { path };
        let path = if what.if_unused { path.with("if-unused", "true") } else { path };
        target(vhost, queue, loss, |label| Ask::delete(path, label))
    };
    let deed = deed("delete", ("delete", "deleted"), &what.which);
    let targets = targets(session, vhost, &what.which, target).await?;
    deed.run(session, targets, what.which.care).await
}
