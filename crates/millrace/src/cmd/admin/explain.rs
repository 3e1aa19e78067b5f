//! `millrace explain`: where a message would go, and why; which setting of a queue is from where.

use std::fmt::Write as _;

use clap::Subcommand;
use serde_json::Value;

use super::exchanges::in_path;
use super::failure::Failure;
use super::login;
use super::path::Path;
use super::resource::{Vhost, arguments};
use super::session::{Session, say, say_json};
use crate::table::{shown, shown_or_dash};

pub(crate) const EXAMPLES: &str = "\
Where a message with this key would go, binding by binding:
  millrace explain exchange orders --routing-key eu.fr -p shop
The same with headers:
  millrace explain exchange amq.headers --header kind=order -p shop
Which policies a queue has, and which setting is from where:
  millrace explain queue orders -p shop";

/// What is explained.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    vhost: Vhost,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say where a message would go that is published to an exchange; nothing is published
    Exchange {
        /// Name of the exchange; amq.default is the default exchange
        name: String,
        /// Routing key of the message
        #[arg(long, value_name = "KEY", default_value = "")]
        routing_key: String,
        /// A header of the message, KEY=VALUE. A value that is JSON is taken as that
        #[arg(long, value_name = "KEY=VALUE")]
        header: Vec<String>,
    },
    /// Say which setting of a queue is from where, and how the queue stands
    Queue {
        /// Name of the queue
        name: String,
    },
}

pub(crate) async fn run(session: &mut Session, args: Args) -> Result<(), Failure> {
    let Args { login: _, vhost, command } = args;
    let vhost = vhost.name();
    let (path, label) = match &command {
        Command::Exchange { name, routing_key, header } => {
            let path = Path::of(&["millrace", "explain", vhost, in_path(name)]);
            let path = path.with("routing_key", routing_key);
            let headers = arguments(header)?.to_string();
            (path.with("headers", &headers), format!("exchange {name}"))
        }
        Command::Queue { name } => {
            let path = Path::of(&["millrace", "explain", vhost, "queues", name]);
            (path, format!("queue {name}"))
        }
    };
    let answer = session.api.get(path, &label).await?;
    if session.is_json {
        return say_json(&answer);
    }
    say(&match command {
        Command::Exchange { .. } => message(&answer),
        Command::Queue { .. } => queue(&answer),
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => shown_or_dash(text),
        other => shown(&other.to_string()),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Writing to a String cannot fail.
fn message(answer: &Value) -> String {
    let mut out = String::new();
    if let Some(why) = answer["refused"].as_str() {
        let _ = writeln!(out, "refused: {}", shown(why));
    }
    for hop in list(&answer["hops"]) {
        let name = match hop["exchange"].as_str() {
            Some("") => "the default exchange".to_owned(),
            _ => format!("exchange {}", text(&hop["exchange"])),
        };
        let one = if hop["one_of_several"] == true { ", to one of those that match" } else { "" };
        let _ = writeln!(out, "{name} ({}{one})", text(&hop["type"]));
        for binding in list(&hop["bindings"]) {
            let verdict = match (binding["matches"] == true, binding["is_taken"] == true) {
                (true, true) => "matches",
                (true, false) => "matches, and another is taken",
                (false, _) => "does not match",
            };
            let (kind, to) = (text(&binding["destination_type"]), text(&binding["destination"]));
            let key = text(&binding["routing_key"]);
            let _ = writeln!(out, "  binding {key} to {kind} {to}: {verdict}");
        }
        if let Some(more @ 1..) = hop["bindings_left_out"].as_u64() {
            let _ = writeln!(out, "  {more} more bindings are not shown");
        }
        if !hop["alternate_exchange"].is_null() {
            let to = text(&hop["alternate_exchange"]);
            let _ = writeln!(out, "  nothing matches: it goes to the alternate exchange {to}");
        }
    }
    if answer["is_routed"] != true {
        out.push_str(
            "no queue gets it: it is dropped, or returned to a publisher that asks for it",
        );
        return out;
    }
    out.push_str("queues\n");
    for queue in list(&answer["queues"]) {
        let _ =
            writeln!(out, "  {}: {}{}", text(&queue["name"]), text(&queue["outcome"]), dead(queue));
    }
    out.truncate(out.trim_end().len());
    out
}

/// Where dead letters go.
fn dead(of: &Value) -> String {
    let to = &of["dead_letters"];
    if to.is_null() {
        return String::new();
    }
    let missing = if to["is_there"] == true { "" } else { ", which does not exist" };
    format!("; dead letters go to exchange {}{missing}", text(&to["exchange"]))
}

fn queue(answer: &Value) -> String {
    let mut out = format!("queue {} ({})\n", text(&answer["name"]), text(&answer["type"]));
    let counts = ["messages_ready", "messages_unacknowledged", "consumers"];
    let [ready, unacked, consumers] = counts.map(|name| text(&answer[name]));
    let _ = writeln!(out, "  {ready} ready, {unacked} unacknowledged, {consumers} consumers");
    for setting in list(&answer["settings"]) {
        let said = |from: &Value| list(from).iter().map(text).collect::<Vec<_>>().join(", ");
        let from = match list(&setting["from"]) {
            [] => String::new(),
            _ => format!(" (from {})", said(&setting["from"])),
        };
        let _ =
            writeln!(out, "  {} = {}{from}", text(&setting["setting"]), text(&setting["value"]));
        for other in list(&setting["overruled"]) {
            let _ = writeln!(
                out,
                "    not {}, as {} says",
                text(&other["value"]),
                text(&other["from"])
            );
        }
    }
    for (key, kind) in [("policies", "policy"), ("operator_policies", "operator policy")] {
        for policy in list(&answer[key]) {
            let counts =
                if policy["counts"] == true { "counts" } else { "matches, another counts" };
            let (name, priority) = (text(&policy["name"]), text(&policy["priority"]));
            let _ = writeln!(out, "  {kind} {name}, priority {priority}: {counts}");
        }
    }
    let dead = dead(answer);
    if let Some(dead) = dead.strip_prefix("; ") {
        let _ = writeln!(out, "  {dead}");
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_told_hop_by_hop_and_names_of_others_do_nothing_to_the_terminal() {
        let answer = json!({
            "refused": null, "is_routed": true,
            "hops": [{
                "exchange": "x\u{1b}[2J", "type": "topic", "one_of_several": false,
                "bindings": [
                    { "destination": "a", "destination_type": "queue", "routing_key": "eu.#",
                      "matches": true, "is_taken": true },
                    { "destination": "b", "destination_type": "queue", "routing_key": "us.#",
                      "matches": false, "is_taken": false },
                ],
                "bindings_left_out": 2, "alternate_exchange": null,
            }],
            "queues": [{
                "name": "a", "outcome": "refused: the queue is full",
                "dead_letters": { "exchange": "dead", "is_there": false },
            }],
        });
        let expected = "\
exchange x\\u{1b}[2J (topic)
  binding eu.# to queue a: matches
  binding us.# to queue b: does not match
  2 more bindings are not shown
queues
  a: refused: the queue is full; dead letters go to exchange dead, which does not exist";
        assert_eq!(message(&answer), expected);
    }
}
