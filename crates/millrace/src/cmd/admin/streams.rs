//! `millrace stream`: what is done with streams and their subscriptions.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::api::Ask;
use super::assignment;
use super::chosen::{Which, name_of, shown_count, which};
use super::deed::{Deed, Target, in_vhost};
use super::failure::Failure;
use super::login;
use super::path::Path;
use super::resource::Vhost;
use super::session::{Session, with};
use crate::cmd::replay;

pub(crate) const EXAMPLES: &str = "\
Let a subscription read all of its stream again:
  millrace stream seek billing --to first -p shop
From yesterday on, after a look at what that means:
  millrace stream seek billing --to 1D -p shop --dry-run
From one message on, or past all that there is:
  millrace stream seek billing --to 4711
  millrace stream seek billing --to next
Give a stream and its subscriptions more partitions:
  millrace stream partitions orders --count 8
See which consumer has which partition of a subscription:
  millrace stream assignment billing
Copy a part of a stream into a queue, and what came in the last hour into an exchange:
  millrace stream replay events --from 4711 --to 5000 --into again --rate 500/s
  millrace stream replay events --from 1h --exchange shop --filter 'orders.*.eu'";

/// What `millrace stream` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    pub(crate) vhost: Vhost,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Set subscriptions to another place of their streams, while they run or rest
    Seek(Seek),
    /// Give streams more partitions; what is in them stays where it is, and keys may go to another one from then on
    Partitions(Partitions),
    /// Who is served by which partition of a subscription, since when and why
    Assignment(Assignment),
    /// Copy a part of a stream, in order, into a queue or an exchange
    #[command(after_help = replay::HELP)]
    Replay(Box<replay::Args>),
}

#[derive(clap::Args)]
struct Partitions {
    #[command(flatten)]
    which: Which,
    /// How many there are to be: no fewer than there are
    #[arg(long, value_name = "COUNT")]
    count: u16,
}

#[derive(clap::Args)]
struct Assignment {
    /// The subscription
    queue: String,
}

#[derive(clap::Args)]
struct Seek {
    #[command(flatten)]
    which: Which,
    /// Where to go on: first, last, next, an offset, or an age as 30m, 6h or 7D
    #[arg(long, value_name = "PLACE", required_unless_present = "time", conflicts_with = "time")]
    to: Option<String>,
    /// Go on with what came at this time or later, in seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    time: Option<u64>,
}

const SEEK: Deed = Deed {
    action: "seek",
    words: ("set to another place", "set to another place"),
    kind: ("subscription", "subscriptions"),
    is_found: false,
};

const PARTITION: Deed = Deed {
    action: "partition",
    words: ("given partitions", "given partitions"),
    kind: ("stream", "streams"),
    is_found: false,
};

pub(crate) fn main(args: Args) -> ExitCode {
    let Args { login, vhost, command } = args;
    match command {
        Command::Seek(what) => {
            with(&login, async |session| seek(session, vhost.name(), what).await)
        }
        Command::Partitions(what) => {
            with(&login, async |session| partitions(session, vhost.name(), what).await)
        }
        Command::Assignment(Assignment { queue }) => {
            with(&login, async |session| assignment::run(session, vhost.name(), &queue).await)
        }
        Command::Replay(what) => replay::run(&what, login.json, vhost.vhost.as_deref()),
    }
}

async fn seek(session: &mut Session, vhost: &str, what: Seek) -> Result<(), Failure> {
    let found = which(session, vhost, &what.which).await?;
    let place = match (&what.to, what.time) {
        (Some(to), _) => match to.parse::<i64>() {
            Ok(offset) => json!({ "offset": offset }),
            Err(_) => json!({ "offset": to }),
        },
        (None, time) => json!({ "timestamp": time }),
    };
    let target = |queue: &Value| {
        let name = name_of(queue);
        let label = in_vhost("subscription", name, vhost);
        let path = Path::of(&["millrace", "queues", vhost, name, "position"]);
        let (ready, held) =
            (shown_count(queue, "messages_ready"), shown_count(queue, "messages_unacknowledged"));
        let loss = format!("{ready} messages are ready, {held} are out with consumers");
        let facts = json!({
            "vhost": vhost,
            "name": name,
            "to": place,
            "messages_ready": queue["messages_ready"],
            "messages_unacknowledged": queue["messages_unacknowledged"],
        });
        Target { ask: Ask::put(path, place.clone(), &label), label, loss, facts }
    };
    let targets = found.iter().map(target).collect();
    let deed = Deed { is_found: what.which.matching.is_some(), ..SEEK };
    deed.run(session, targets, what.which.care).await
}

async fn partitions(session: &mut Session, vhost: &str, what: Partitions) -> Result<(), Failure> {
    let found = which(session, vhost, &what.which).await?;
    let target = |queue: &Value| {
        let name = name_of(queue);
        let label = in_vhost("stream", name, vhost);
        let path = Path::of(&["millrace", "queues", vhost, name, "partitions"]);
        let has = queue["partitions"].as_array().map_or(1, Vec::len);
        let loss = format!("it has {has} partitions, and keys may go to another one from then on");
        let facts = json!({ "vhost": vhost, "name": name, "had": has, "partitions": what.count });
        let body = json!({ "partitions": what.count });
        Target { ask: Ask::put(path, body, &label), label, loss, facts }
    };
    let targets = found.iter().map(target).collect();
    let deed = Deed { is_found: what.which.matching.is_some(), ..PARTITION };
    deed.run(session, targets, what.which.care).await
}
