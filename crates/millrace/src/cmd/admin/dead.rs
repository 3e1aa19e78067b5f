//! `millrace dead`: dead letters, by the queue that keeps them, where they died, and why.

use serde_json::{Value, json};

use super::chosen::name_of;
use super::column::{Column, count, since, text};
use super::deed::in_vhost;
use super::failure::{Failure, remark};
use super::list;
use super::login;
use super::path::Path;
use super::resource::Vhost;
use super::session::{Session, say, say_json};
use crate::table;

pub(crate) const EXAMPLES: &str = "\
Which queues keep dead letters, where those died, and why:
  millrace dead
Those of one queue:
  millrace dead orders.dead -p shop
See what they are, without taking them: docs/operating/http-api.md, Look at messages
Send them back to where they died:
  millrace retry orders.dead -p shop --dry-run
  millrace retry orders.dead -p shop";

/// Queues that are looked into.
const QUEUES_MAX: usize = 100;

/// What `millrace dead` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    vhost: Vhost,
    /// A queue with dead letters [default: all queues that dead letters go to]
    #[arg(value_name = "QUEUE")]
    queue: Option<String>,
}

const COLUMNS: [Column; 9] = [
    text("vhost", "Vhost"),
    text("queue", "Queue"),
    text("died_in", "Died in"),
    text("reason", "Reason"),
    count("count", "Messages"),
    since("first_died_at", "First"),
    since("last_died_at", "Last"),
    count("retries_max", "Retries"),
    text("first_position", "First position"),
];

pub(crate) async fn run(session: &mut Session, args: Args) -> Result<(), Failure> {
    let mut found = Vec::new();
    let mut is_whole = true;
    for (vhost, queue) in queues(session, &args).await? {
        let path = Path::of(&["millrace", "queues", &vhost, &queue, "dead-letters"]);
        let label = in_vhost("queue", &queue, &vhost);
        let summary = session.api.get(path, &label).await?;
        is_whole &= summary["whole"] == json!(true) && summary["others"] == json!(0);
        for group in summary["groups"].as_array().into_iter().flatten() {
            let mut group = group.clone();
            group["vhost"] = vhost.as_str().into();
            group["queue"] = queue.as_str().into();
            found.push(group);
        }
    }
    if session.is_json {
        return say_json(&json!({ "count": found.len(), "whole": is_whole, "dead": found }));
    }
    if !is_whole {
        remark("millrace: some queues have more dead letters than are counted at a time");
    }
    say(&shown(&found))
}

fn shown(found: &[Value]) -> String {
    if found.is_empty() {
        return "no dead letters".to_owned();
    }
    let heads: Vec<&str> = COLUMNS.iter().map(|column| column.head).collect();
    let cells = |group: &Value| COLUMNS.iter().map(|it| it.cell(group)).collect::<Vec<_>>();
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = table::grid(&mut text, &heads, &found.iter().map(cells).collect::<Vec<_>>());
    text.trim_end().to_owned()
}

/// The queue that is named, or those that dead letters go to and that have messages.
async fn queues(session: &mut Session, args: &Args) -> Result<Vec<(String, String)>, Failure> {
    if let Some(queue) = &args.queue {
        return Ok(vec![(args.vhost.name().to_owned(), queue.clone())]);
    }
    let path = Path::of(&["millrace", "dead-letter-queues"]);
    let path = path.with("columns", "vhost,name,messages_ready");
    let mut all = list::fetch(session, "queues that dead letters go to", &path, usize::MAX).await?;
    let wanted = args.vhost.vhost.as_deref();
    all.retain(|queue| {
        let is_wanted = wanted.is_none_or(|wanted| queue["vhost"] == wanted);
        is_wanted && queue["messages_ready"] != json!(0)
    });
    if all.len() > QUEUES_MAX {
        let count = all.len();
        remark(&format!(
            "millrace: the first {QUEUES_MAX} of {count} queues; name a vhost or a queue"
        ));
        all.truncate(QUEUES_MAX);
    }
    let named = |queue: &Value| {
        let vhost = queue["vhost"].as_str().unwrap_or_default().to_owned();
        (vhost, name_of(queue).to_owned())
    };
    Ok(all.iter().map(named).collect())
}
