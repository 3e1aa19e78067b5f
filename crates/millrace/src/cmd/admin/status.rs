//! `millrace status`: how the node stands, the verdict first.

use serde_json::{Value, json};

use super::check;
use super::failure::Failure;
use super::login;
use super::path::Path;
use super::problems::{Problem, Severity, problems};
use super::session::{Session, Tone, painted, say, say_json};
use crate::table::{self, age, bytes, shown};

pub(crate) const EXAMPLES: &str = "\
  millrace status
  millrace status --json | jq -r .verdict
The first line is the verdict: ok, warning or critical. What is wrong follows, each with its remedy. Exit code 0: ok or
warning. 1: critical. 3: no answer. 4: login refused. Connections, channels and consumers are those of all nodes that
answer; listeners are those of the node that is asked. `millrace cluster status` shows groups and replicas.";

/// How a node stands.
#[derive(Debug, Default)]
struct Facts {
    overview: Value,
    /// `None`: the user may not see them.
    nodes: Option<Vec<Value>>,
    /// `None`: there are no alarms.
    alarms: Option<Value>,
    /// What the server says is wrong. `None`: it does not say.
    problems: Option<Value>,
}

/// What `millrace status` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) login: login::Options,
}

pub(crate) async fn run(session: &mut Session) -> Result<(), Failure> {
    let facts = look(session).await?;
    let problems = problems(facts.problems.as_ref());
    let verdict = problems.iter().map(|problem| problem.severity).max();
    let word = verdict.map_or("ok", Severity::word);
    if session.is_json {
        let listed = problems.iter().map(Problem::as_json);
        say_json(&as_json(&facts, word, listed.collect()))?;
    } else {
        let tone = match verdict {
            None => Tone::Good,
            Some(Severity::Warning) => Tone::Warning,
            Some(Severity::Critical) => Tone::Bad,
        };
        let mut text =
            format!("{}: {}\n", painted(word, tone), verdict_words(&facts, problems.len()));
        for problem in &problems {
            let label = format!("{:<8}", problem.severity.word());
            text.push_str(&format!(
                "  {label}  {}\n            {}\n",
                problem.what, problem.remedy
            ));
        }
        text.push('\n');
        // Writing to a String cannot fail.
        let _ = describe(&mut text, &facts);
        say(&text)?;
    }
    match verdict {
        Some(Severity::Critical) => Err(Failure::Told),
        Some(Severity::Warning) | None => Ok(()),
    }
}

fn verdict_words(facts: &Facts, problem_count: usize) -> String {
    let node = shown(facts.overview["node"].as_str().unwrap_or("the node"));
    match problem_count {
        0 => format!("{node} serves clients, and nothing needs you"),
        1 => format!("one problem, seen from {node}"),
        count => format!("{count} problems, seen from {node}"),
    }
}

async fn look(session: &mut Session) -> Result<Facts, Failure> {
    let overview = session.api.get(Path::of(&["overview"]), "the overview").await?;
    // Who only manages does not see nodes.
    let nodes = match session.api.get(Path::of(&["nodes"]), "nodes").await {
        Ok(Value::Array(nodes)) => Some(nodes),
        Ok(_) | Err(Failure::Login(_)) => None,
        Err(failure) => return Err(failure),
    };
    let alarms = check::failed(session, &["alarms"]).await?;
    let problems = session.api.find(Path::of(&["millrace", "problems"]), "what is wrong").await?;
    let alarms = alarms.map(|body| body["alarms"].clone());
    Ok(Facts { overview, nodes, alarms, problems })
}

fn totals(facts: &Facts) -> Value {
    let objects = &facts.overview["object_totals"];
    let messages = &facts.overview["queue_totals"];
    json!({
        "queues": objects["queues"],
        "exchanges": objects["exchanges"],
        "connections": objects["connections"],
        "channels": objects["channels"],
        "consumers": objects["consumers"],
        "messages": messages["messages"],
        "messages_ready": messages["messages_ready"],
        "messages_unacknowledged": messages["messages_unacknowledged"],
    })
}

/// A node as the API shows it: one that has not answered has only its name.
fn node(shown: &Value) -> Value {
    json!({
        "name": shown["name"],
        "running": shown["running"],
        "uptime_ms": shown["uptime"],
        "memory_bytes": shown["mem_used"],
        "memory_limit_bytes": shown["mem_limit"],
        "disk_free_bytes": shown["disk_free"],
        "disk_free_limit_bytes": shown["disk_free_limit"],
    })
}

fn as_json(facts: &Facts, verdict: &str, problems: Vec<Value>) -> Value {
    let nodes = facts.nodes.as_ref().map(|nodes| nodes.iter().map(node).collect::<Vec<Value>>());
    json!({
        "verdict": verdict,
        "problems": problems,
        "node": facts.overview["node"],
        "cluster": facts.overview["cluster_name"],
        "product": facts.overview["product_name"],
        "version": facts.overview["product_version"],
        "alarms": facts.alarms.clone().unwrap_or_else(|| json!([])),
        "nodes": nodes,
        "listeners": facts.overview["listeners"],
        "totals": totals(facts),
    })
}

/// What is so, whether it is well or not.
fn describe(out: &mut String, facts: &Facts) -> std::fmt::Result {
    let text = |field: &str| shown(facts.overview[field].as_str().unwrap_or("-"));
    let listeners = facts.overview["listeners"].as_array().map(Vec::as_slice).unwrap_or_default();
    let listens: Vec<String> = listeners
        .iter()
        .map(|it| format!("{} at {}", shown(it["protocol"].as_str().unwrap_or("-")), it["port"]))
        .collect();
    table::pairs(
        out,
        &[
            ("Node", text("node")),
            ("Cluster", text("cluster_name")),
            ("Version", format!("{} {}", text("product_name"), text("product_version"))),
            ("Listens", if listens.is_empty() { "-".to_owned() } else { listens.join(", ") }),
            ("Alarms", alarms(facts)),
        ],
    )?;
    out.push('\n');
    match &facts.nodes {
        None => {
            out.push_str("Nodes: only users with the tag monitoring or administrator see them\n")
        }
        Some(nodes) => {
            let heads = ["Node", "Up for", "Memory", "of at most", "Disk free", "of at least"];
            let rows: Vec<Vec<String>> = nodes.iter().map(node_row).collect();
            table::grid(out, &heads, &rows)?;
        }
    }
    out.push('\n');
    let totals = totals(facts);
    let count = |field: &str| {
        totals[field].as_u64().map_or_else(|| "-".to_owned(), |count| count.to_string())
    };
    let messages = format!(
        "{} ({} ready, {} unacknowledged)",
        count("messages"),
        count("messages_ready"),
        count("messages_unacknowledged")
    );
    table::pairs(
        out,
        &[
            ("Queues", count("queues")),
            ("Messages", messages),
            ("Exchanges", count("exchanges")),
            ("Connections", count("connections")),
            ("Channels", count("channels")),
            ("Consumers", count("consumers")),
        ],
    )
}

fn alarms(facts: &Facts) -> String {
    match &facts.alarms {
        None => "none".to_owned(),
        Some(alarms) => check::alarm_words(&json!({ "alarms": alarms })),
    }
}

fn node_row(node: &Value) -> Vec<String> {
    let size = |field: &str| node[field].as_u64().map_or_else(|| "-".to_owned(), bytes);
    let uptime = node["uptime"].as_u64().map_or_else(|| "-".to_owned(), |ms| age(ms / 1000));
    vec![
        shown(node["name"].as_str().unwrap_or("-")),
        uptime,
        size("mem_used"),
        size("mem_limit"),
        size("disk_free"),
        size("disk_free_limit"),
    ]
}
