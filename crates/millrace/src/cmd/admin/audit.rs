//! `millrace audit`: who changed what.
#![allow(clippy::disallowed_methods, reason = "a time that is given as an age needs the clock")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::column::{count, since, table, text};
use super::failure::Failure;
use super::list::{self, Listing};
use super::login;
use super::path::Path;
use super::session::Session;

pub(crate) const EXAMPLES: &str = "\
What was changed in the last hour, the newest first:
  millrace audit --since 1h
Who gave ann her permissions:
  millrace audit --event permission --object ann
Everything that bob did, for a program:
  millrace audit --user bob --json";

const LISTING: Listing = Listing {
    name: "records",
    has_names: false,
    columns: &[
        count("number", "Number").seldom(),
        since("time", "Ago"),
        text("user", "User"),
        text("address", "From"),
        text("event", "What"),
        text("vhost", "Vhost"),
        text("object", "Object"),
        table("details", "Details"),
    ],
};

/// Which records.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    list: list::Options,
    /// What this user did
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// What was done in this vhost, and to it
    #[arg(long, short = 'p', value_name = "NAME")]
    vhost: Option<String>,
    /// What was done to the user, queue, policy, ... of this name
    #[arg(long, value_name = "NAME")]
    object: Option<String>,
    /// An event, such as user.created, or its beginning, such as user
    #[arg(long, value_name = "EVENT")]
    event: Option<String>,
    /// What was done in this time: 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = service::duration)]
    since: Option<Duration>,
}

pub(crate) async fn run(session: &mut Session, args: Args) -> Result<(), Failure> {
    let Args { login: _, list, user, vhost, object, event, since } = args;
    let since = since.map(|ago| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(ago).as_millis().to_string()
    });
    let mut path = Path::of(&["millrace", "audit"]);
    for (name, value) in
        [("user", user), ("vhost", vhost), ("object", object), ("event", event), ("since", since)]
    {
        if let Some(value) = value {
            path = path.with(name, &value);
        }
    }
    list::show(session, &LISTING, path, &list).await
}
