//! `millrace connections`, `channels`, `consumers`: clients of all nodes.

use clap::Subcommand;
use serde_json::{Value, json};

use super::api::Ask;
use super::column::{count, count_of, flag, since, size, text, text_of};
use super::deed::{Care, Deed, Target};
use super::failure::Failure;
use super::list::{self, Listed, Listing};
use super::path::Path;
use super::resource::InVhost;
use super::session::Session;
use crate::table::shown;

pub(crate) const CONNECTIONS_EXAMPLES: &str = "\
  millrace connections --sort channels --reverse
Close one, by its name or its id, and tell the client why:
  millrace connections close 1-17 'the batch runs at night only'
Close all of a user:
  millrace connections close-user ann 'the password was changed' --dry-run
Connections, channels and consumers are those of all nodes. A node that does not answer is left out.";

pub(crate) const CHANNELS_EXAMPLES: &str = "\
Who holds messages without acknowledging them:
  millrace channels --sort messages_unacknowledged --reverse --limit 10";

pub(crate) const CONSUMERS_EXAMPLES: &str = "\
  millrace consumers -p shop
  millrace consumers --sort held --reverse --watch";

/// Connections that one command may close.
const FOUND_MAX: usize = 10_000;
/// What a client is told if nobody gives a reason.
const REASON: &str = "closed by an operator";

const CONNECTIONS: Listing = Listing {
    name: "connections",
    has_names: true,
    columns: &[
        text_of("id", "Id", "millrace.id"),
        text("name", "Name"),
        text("user", "User"),
        text("vhost", "Vhost"),
        text("state", "State"),
        count("channels", "Channels"),
        count_of("consumers", "Consumers", "millrace.consumers"),
        flag("ssl", "TLS"),
        since("connected_at", "Since"),
        text_of("client", "Client", "user_provided_name"),
        text("peer_host", "Peer").seldom(),
        count("peer_port", "Peer port").seldom(),
        text("protocol", "Protocol").seldom(),
        size("send_pend", "To send").seldom(),
        text("node", "Node").seldom(),
    ],
};

const CHANNELS: Listing = Listing {
    name: "channels",
    has_names: true,
    columns: &[
        text_of("connection", "Connection", "connection_details.name"),
        count("number", "Channel"),
        text("user", "User"),
        text("vhost", "Vhost"),
        count("consumer_count", "Consumers"),
        count("prefetch_count", "Prefetch"),
        count("messages_unacknowledged", "Unacked"),
        count("messages_unconfirmed", "Unconfirmed"),
        flag("confirm", "Confirms"),
        flag("transactional", "Tx").seldom(),
        text("state", "State").seldom(),
        text("name", "Name").seldom(),
        text("node", "Node").seldom(),
    ],
};

const CONSUMERS: Listing = Listing {
    name: "consumers",
    has_names: false,
    columns: &[
        text_of("vhost", "Vhost", "queue.vhost"),
        text_of("queue", "Queue", "queue.name"),
        text("consumer_tag", "Tag"),
        text_of("connection", "Connection", "channel_details.connection_name"),
        count_of("channel", "Channel", "channel_details.number"),
        text_of("user", "User", "channel_details.user"),
        flag("ack_required", "Acks"),
        count("prefetch_count", "Prefetch"),
        count_of("held", "Held", "millrace.held"),
        count_of("credit", "Credit", "millrace.credit").seldom(),
    ],
};

/// What can be done with connections.
#[derive(Subcommand)]
pub(crate) enum Connections {
    /// List connections; so does `millrace connections` alone
    List(Listed),
    /// Close a connection. Most clients connect again
    Close {
        /// Its name, or its id, such as 1-17
        connection: String,
        /// What the client is told
        #[arg(default_value = REASON)]
        reason: String,
        #[command(flatten)]
        care: Care,
    },
    /// Close all connections of a user
    CloseUser {
        /// The user
        user: String,
        /// What the clients are told
        #[arg(default_value = REASON)]
        reason: String,
        #[command(flatten)]
        care: Care,
    },
}

/// What can be done with channels, and with consumers.
#[derive(Subcommand)]
pub(crate) enum OnlyList {
    /// List them; so does the command alone
    List(Listed),
}

pub(crate) async fn connections(
    session: &mut Session,
    args: InVhost<Connections>,
) -> Result<(), Failure> {
    let InVhost { vhost, list, command, .. } = args;
    let options = match command {
        None => list,
        Some(Connections::List(listed)) => listed.options(list)?,
        Some(Connections::Close { connection, reason, care }) => {
            list.none_before("close")?;
            let is_it =
                |it: &Value| it["name"] == *connection || it["millrace"]["id"] == *connection;
            return close(session, is_it, &reason, care, &connection).await;
        }
        Some(Connections::CloseUser { user, reason, care }) => {
            list.none_before("close-user")?;
            let what = format!("connections of {user}");
            return close(session, |it| it["user"] == *user, &reason, care, &what).await;
        }
    };
    let path = match &vhost.vhost {
        Some(vhost) => Path::of(&["vhosts", vhost, "connections"]),
        None => Path::of(&["connections"]),
    };
    list::show(session, &CONNECTIONS, path, &options).await
}

async fn close(
    session: &mut Session,
    is_meant: impl Fn(&Value) -> bool,
    reason: &str,
    care: Care,
    what: &str,
) -> Result<(), Failure> {
    let found = list::fetch(session, what, &Path::of(&["connections"]), FOUND_MAX).await?;
    let targets: Vec<Target> = found
        .iter()
        .filter(|connection| is_meant(connection))
        .map(|connection| {
            let text = |field: &str| connection[field].as_str().unwrap_or_default();
            let label = format!("connection {} of {}", shown(text("name")), shown(text("user")));
            let path = Path::of(&["connections", text("name")]);
            Target {
                ask: Ask::delete(path, &label).because(reason),
                label,
                loss: format!("{} channels", connection["channels"].as_u64().unwrap_or(0)),
                facts: json!({
                    "name": connection["name"],
                    "id": connection["millrace"]["id"],
                    "user": connection["user"],
                    "vhost": connection["vhost"],
                    "channels": connection["channels"],
                }),
            }
        })
        .collect();
    if targets.is_empty() {
        return Err(Failure::Refused(format!(
            "not found: {what}. No node that answers has such a connection; `millrace connections` lists all of them"
        )));
    }
    let deed = Deed {
        action: "close",
        words: ("close", "closed"),
        kind: ("connection", "connections"),
        is_found: false,
    };
    deed.run(session, targets, care).await
}

pub(crate) async fn channels(
    session: &mut Session,
    args: InVhost<OnlyList>,
) -> Result<(), Failure> {
    let path = match &args.vhost.vhost {
        Some(vhost) => Path::of(&["vhosts", vhost, "channels"]),
        None => Path::of(&["channels"]),
    };
    only_list(session, &CHANNELS, path, args).await
}

pub(crate) async fn consumers(
    session: &mut Session,
    args: InVhost<OnlyList>,
) -> Result<(), Failure> {
    let path = match &args.vhost.vhost {
        Some(vhost) => Path::of(&["consumers", vhost]),
        None => Path::of(&["consumers"]),
    };
    only_list(session, &CONSUMERS, path, args).await
}

async fn only_list(
    session: &mut Session,
    listing: &Listing,
    path: Path,
    args: InVhost<OnlyList>,
) -> Result<(), Failure> {
    let options = match args.command {
        None => args.list,
        Some(OnlyList::List(listed)) => listed.options(args.list)?,
    };
    list::show(session, listing, path, &options).await
}
