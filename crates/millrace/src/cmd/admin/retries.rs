//! `millrace retry`, `millrace retries`: dead letters go back to where they died, or elsewhere.
#![allow(
    clippy::disallowed_methods,
    reason = "it waits between two looks at how far a retry has come"
)]

use std::time::Duration;

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::api::Ask;
use super::column::{count, flag, since, text};
use super::deed::in_vhost;
use super::failure::{Failure, remark};
use super::list::{self, Listed, Listing};
use super::login;
use super::path::Path;
use super::resource::{Global, Vhost};
use super::session::{Session, say, say_json};
use crate::table::clean;

pub(crate) const EXAMPLES: &str = "\
See how many would go where, and which cannot:
  millrace retry orders.dead -p shop --dry-run
Send all back to the queues that they died in, 50 a second:
  millrace retry orders.dead -p shop --rate 50
Those that were refused in one queue, ten of them first:
  millrace retry dead --reason rejected --died-in orders --limit 10
Some, by their positions, to another queue:
  millrace retry dead --at 17 --at 18 --queue orders.fixed
To the exchange that each had come by, with its routing key:
  millrace retry dead --to exchange
Begin it and go; look at it later, or stop it:
  millrace retry dead --detach
  millrace retries
  millrace retries stop 1-3";

const LISTING: Listing = Listing {
    name: "retries",
    has_names: false,
    columns: &[
        text("id", "Id"),
        text("vhost", "Vhost"),
        text("queue", "Queue"),
        text("state", "State"),
        flag("dry_run", "Dry run"),
        count("matched", "Matched"),
        count("sent", "Sent"),
        count("stay", "Stay"),
        count("gone", "Gone"),
        since("started_at", "Since"),
        text("user", "User"),
        text("node", "Node").seldom(),
        count("rate", "Rate").seldom(),
        count("seen", "Seen").seldom(),
        text("waits_for", "Waits for").seldom(),
    ],
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// What `millrace retry` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    vhost: Vhost,
    /// The queue with the dead letters
    #[arg(value_name = "QUEUE")]
    from: String,
    /// Where they go: queue (the one that each died in), or exchange (the one that each had come by, with its key)
    #[arg(long, value_name = "WHERE", help_heading = "Where to")]
    to: Option<String>,
    /// All go to this queue
    #[arg(long, value_name = "NAME", conflicts_with = "to", help_heading = "Where to")]
    queue: Option<String>,
    /// All go to this exchange
    #[arg(long, value_name = "NAME", conflicts_with_all = ["to", "queue"], help_heading = "Where to")]
    exchange: Option<String>,
    /// With this routing key
    #[arg(long, value_name = "KEY", requires = "exchange", help_heading = "Where to")]
    key: Option<String>,
    /// The message at this position (repeatable)
    #[arg(long, value_name = "POSITION", help_heading = "Which")]
    at: Vec<String>,
    /// Those with this text in them
    #[arg(long, value_name = "TEXT", conflicts_with = "at", help_heading = "Which")]
    contains: Option<String>,
    /// Those that died of this: rejected, expired, maxlen, delivery_limit
    #[arg(long, value_name = "REASON", conflicts_with = "at", help_heading = "Which")]
    reason: Option<String>,
    /// Those that died in this queue
    #[arg(long, value_name = "NAME", conflicts_with = "at", help_heading = "Which")]
    died_in: Option<String>,
    /// The first so many of these
    #[arg(long, value_name = "COUNT", help_heading = "Which")]
    limit: Option<u64>,
    /// Those that were sent on fewer times than this
    #[arg(long, value_name = "COUNT", help_heading = "Which")]
    max_retries: Option<u64>,
    /// So many messages a second
    #[arg(long, value_name = "COUNT")]
    rate: Option<u64>,
    /// Say how many would go where and which cannot, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not wait for the end
    #[arg(long)]
    detach: bool,
}

/// What can be done with retries.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List retries that run, and the last that did; so does `millrace retries` alone
    List(Listed),
    /// Show one
    Show {
        /// Its id, such as 1-3
        id: String,
    },
    /// Stop one: what was sent on stays there, and the rest where it is
    Stop {
        /// Its id, such as 1-3
        id: String,
    },
}

impl Args {
    fn body(&self) -> Value {
        let positions = (!self.at.is_empty()).then(|| json!(self.at));
        let fields = [
            ("to", self.to.as_deref().map(Value::from)),
            ("queue", self.queue.as_deref().map(Value::from)),
            ("exchange", self.exchange.as_deref().map(Value::from)),
            ("routing_key", self.key.as_deref().map(Value::from)),
            ("positions", positions),
            ("contains", self.contains.as_deref().map(Value::from)),
            ("reason", self.reason.as_deref().map(Value::from)),
            ("died_in", self.died_in.as_deref().map(Value::from)),
            ("limit", self.limit.map(Value::from)),
            ("max_retries", self.max_retries.map(Value::from)),
            ("rate", self.rate.map(Value::from)),
            ("dry_run", self.dry_run.then_some(Value::Bool(true))),
        ];
        let set = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(set.collect::<Map<_, _>>())
    }
}

pub(crate) async fn retry(session: &mut Session, args: Args) -> Result<(), Failure> {
    let vhost = args.vhost.name();
    let label = in_vhost("queue", &args.from, vhost);
    let path = Path::of(&["millrace", "queues", vhost, &args.from, "retry"]);
    let ask = Ask::post(path, args.body(), format!("retry of {label}"));
    let mut retry = session.api.done(&ask).await?.body;
    let id = retry["id"].as_str().unwrap_or_default().to_owned();
    if !args.detach {
        let mut told = 0;
        while retry["state"] == "running" {
            let sent = retry["sent"].as_u64().unwrap_or(0);
            if sent > told && !session.is_json {
                remark(&format!("retry {}: {sent} sent", clean(&id)));
                told = sent;
            }
            tokio::time::sleep(LOOK).await;
            let path = Path::of(&["millrace", "retries", &id]);
            retry = session.api.get(path, &format!("retry {id}")).await?;
        }
    }
    say_retry(session, &retry)
}

pub(crate) async fn run(session: &mut Session, args: Global<Command>) -> Result<(), Failure> {
    let Global { list, command, .. } = args;
    let options = match command {
        None => list,
        Some(Command::List(listed)) => listed.options(list)?,
        Some(Command::Show { id }) => {
            list.none_before("show")?;
            let path = Path::of(&["millrace", "retries", &id]);
            let retry = session.api.get(path, &format!("retry {id}")).await?;
            return say_retry(session, &retry);
        }
        Some(Command::Stop { id }) => {
            list.none_before("stop")?;
            let path = Path::of(&["millrace", "retries", &id]);
            session.api.done(&Ask::delete(path, format!("retry {id}"))).await?;
            return match session.is_json {
                true => say_json(&json!({ "action": "stop", "kind": "retry", "id": id })),
                false => say(&format!("stopped retry {}", clean(&id))),
            };
        }
    };
    list::show(session, &LISTING, Path::of(&["millrace", "retries"]), &options).await
}

fn say_retry(session: &Session, retry: &Value) -> Result<(), Failure> {
    if !session.is_json {
        return say(&shown(retry));
    }
    let mut told = json!({ "action": "retry" });
    if let (Value::Object(told), Value::Object(fields)) = (&mut told, retry) {
        told.extend(fields.clone());
    }
    say_json(&told)
}

/// For people.
fn shown(retry: &Value) -> String {
    let number = |field: &str| retry[field].as_u64().unwrap_or(0);
    let word = |value: &Value| clean(value.as_str().unwrap_or("-"));
    let is_dry = retry["dry_run"] == json!(true);
    let verb = if is_dry { "would go" } else { "sent" };
    let mut text = format!(
        "retry {} of queue {} of vhost {}: {}\n{} {verb}, {} stay, {} gone before, of {} that match",
        word(&retry["id"]),
        word(&retry["queue"]),
        word(&retry["vhost"]),
        word(&retry["state"]),
        number("sent"),
        number("stay"),
        number("gone"),
        number("matched"),
    );
    for target in retry["targets"].as_array().into_iter().flatten() {
        let (exchange, key) = (word(&target["exchange"]), word(&target["routing_key"]));
        let place = match exchange.is_empty() {
            true => format!("queue {key}"),
            false => format!("exchange {exchange} with key '{key}'"),
        };
        text.push_str(&format!("\n  {} to {place}", target["count"]));
    }
    if number("other_targets") > 0 {
        text.push_str(&format!("\n  {} to others", number("other_targets")));
    }
    for reason in retry["stay_reasons"].as_array().into_iter().flatten() {
        text.push_str(&format!("\n  {} stay: {}", reason["count"], word(&reason["explanation"])));
    }
    if let Some(why) = retry["waits_for"].as_str() {
        text.push_str(&format!("\nit waits: {}", clean(why)));
    }
    if is_dry {
        text.push_str("\nnothing was done (--dry-run)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_is_told_in_lines() {
        let retry = json!({
            "id": "1-3", "queue": "dead\u{1b}", "vhost": "/", "state": "done", "dry_run": true,
            "sent": 2, "stay": 1, "gone": 0, "matched": 3, "other_targets": 0, "waits_for": null,
            "targets": [
                { "exchange": "", "routing_key": "jobs", "count": 1 },
                { "exchange": "in", "routing_key": "eu", "count": 1 },
            ],
            "stay_reasons": [{ "reason": "no_death", "count": 1, "explanation": "why" }],
        });
        assert_eq!(
            shown(&retry),
            "retry 1-3 of queue dead\\u{1b} of vhost /: done\n2 would go, 1 stay, 0 gone before, of 3 that match\n  \
             1 to queue jobs\n  1 to exchange in with key 'eu'\n  1 stay: why\nnothing was done (--dry-run)"
        );
    }
}
