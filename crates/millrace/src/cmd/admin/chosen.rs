//! Queues that a command does something to: chosen by name, or by a filter.

use serde_json::{Value, json};

use super::api::Ask;
use super::deed::{Care, Deed, Target, in_vhost};
use super::failure::Failure;
use super::list;
use super::login;
use super::path::Path;
use super::resource::Vhost;
use super::session::Session;

/// Queues that a filter may find.
const FOUND_MAX: usize = 10_000;

/// Queues by name, or by a filter.
#[derive(clap::Args)]
pub(crate) struct Which {
    /// Names of the queues
    #[arg(value_name = "QUEUE", required_unless_present = "matching")]
    names: Vec<String>,
    /// All queues of the vhost whose name matches this regular expression; capitals do not matter. Exclusive queues are
    /// left alone
    #[arg(long, value_name = "REGEX", conflicts_with = "names")]
    pub(crate) matching: Option<String>,
    #[command(flatten)]
    pub(crate) care: Care,
}

/// What commands take that do something to queues.
#[derive(clap::Args)]
pub(crate) struct OfQueues {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    pub(crate) vhost: Vhost,
    #[command(flatten)]
    pub(crate) which: Which,
}

/// What is done to queues.
pub(crate) fn deed(
    action: &'static str,
    words: (&'static str, &'static str),
    which: &Which,
) -> Deed {
    Deed { action, words, kind: ("queue", "queues"), is_found: which.matching.is_some() }
}

/// The queues that are meant, each as a target.
pub(crate) async fn targets(
    session: &mut Session,
    vhost: &str,
    which: &Which,
    target: impl Fn(&Value) -> Target,
) -> Result<Vec<Target>, Failure> {
    Ok(self::which(session, vhost, which).await?.iter().map(target).collect())
}

/// A queue with what is there of it.
pub(crate) fn target(
    vhost: &str,
    queue: &Value,
    loss: String,
    ask: impl FnOnce(&str) -> Ask,
) -> Target {
    let label = in_vhost("queue", name_of(queue), vhost);
    let facts = json!({
        "vhost": vhost,
        "name": name_of(queue),
        "messages": queue["messages"],
        "messages_ready": queue["messages_ready"],
        "messages_unacknowledged": queue["messages_unacknowledged"],
        "consumers": queue["consumers"],
    });
    Target { ask: ask(&label), label, loss, facts }
}

pub(crate) fn name_of(queue: &Value) -> &str {
    queue["name"].as_str().unwrap_or_default()
}

/// A count that a queue's leader may not have said.
pub(crate) fn shown_count(queue: &Value, field: &str) -> String {
    queue[field].as_u64().map_or_else(|| "an unknown number of".to_owned(), |it| it.to_string())
}

/// The queues that are meant, as they stand.
pub(crate) async fn which(
    session: &mut Session,
    vhost: &str,
    which: &Which,
) -> Result<Vec<Value>, Failure> {
    const COLUMNS: &str = "name,messages,messages_ready,messages_unacknowledged,consumers,exclusive,paused,millrace.withheld";
    if let Some(pattern) = &which.matching {
        let path = Path::of(&["queues", vhost]).with("name", pattern).with("use_regex", "true");
        let label = format!("queues of vhost {vhost}");
        let path = path.with("columns", COLUMNS);
        let mut found = list::fetch(session, &label, &path, FOUND_MAX + 1).await?;
        if found.len() > FOUND_MAX {
            return Err(Failure::Usage(format!(
                "the filter finds more than {FOUND_MAX} queues: nothing was done; narrow it"
            )));
        }
        found.retain(|queue| queue["exclusive"] != json!(true));
        return Ok(found);
    }
    let mut found = Vec::with_capacity(which.names.len());
    for name in &which.names {
        let path = Path::of(&["queues", vhost, name]).with("columns", COLUMNS);
        let label = in_vhost("queue", name, vhost);
        found.push(session.api.get(path, &label).await?);
    }
    Ok(found)
}
