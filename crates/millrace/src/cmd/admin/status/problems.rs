//! What is wrong with a node, and what to do about it: a policy from facts to sentences.

use serde_json::Value;

use crate::table::{bytes, shown};

/// Messages that wait without a consumer from which on that is a problem: queues of dead letters have some for long.
const WAITING_MIN: u64 = 1000;
/// Queues that are named.
const NAMES_SHOWN: usize = 5;

/// How a node stands.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) overview: Value,
    /// `None`: the user may not see them.
    pub(super) nodes: Option<Vec<Value>>,
    pub(super) takes_clients: bool,
    /// `None`: there are no alarms.
    pub(super) alarms: Option<Value>,
    pub(super) is_quorum_critical: bool,
    /// What expires soon.
    pub(super) certificate: Option<String>,
    /// The first queues by state: those that are down come first.
    pub(super) down: Vec<Value>,
    /// Those with the most messages that are ready.
    pub(super) fullest: Vec<Value>,
    pub(super) were_queues_seen: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Warning,
    Critical,
}

impl Severity {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Something that is wrong. Both sentences may go to a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) severity: Severity,
    pub(super) what: String,
    pub(super) remedy: String,
}

/// All that is wrong, the worst first.
pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    let critical = |what: String, remedy: &str| Problem {
        severity: Severity::Critical,
        what,
        remedy: remedy.to_owned(),
    };
    let warning = |what: String, remedy: &str| Problem {
        severity: Severity::Warning,
        what,
        remedy: remedy.to_owned(),
    };
    let mut problems = Vec::new();
    if !facts.takes_clients {
        problems.push(critical(
            "the node takes no AMQP clients".to_owned(),
            "it may still be starting, or wait for a majority of the cluster: see its log and `millrace cluster status`",
        ));
    }
    let alarms = facts.alarms.as_ref().and_then(Value::as_array).map(Vec::as_slice);
    problems.extend(alarms.unwrap_or_default().iter().map(|alarm| alarmed(facts, alarm)));
    // The health checks speak for the node that is asked, the list of nodes for the others.
    let own = facts.overview["node"].as_str();
    for node in facts.nodes.iter().flatten().filter(|node| node["name"].as_str() != own) {
        for (field, resource) in [("mem_alarm", "memory"), ("disk_free_alarm", "disk")] {
            if node[field].as_bool() == Some(true) {
                let alarm = serde_json::json!({ "node": node["name"], "resource": resource });
                problems.push(alarmed(facts, &alarm));
            }
        }
        if node["running"].as_bool() == Some(false) {
            let name = shown(node["name"].as_str().unwrap_or("a node"));
            problems.push(warning(
                format!("{name} cannot be reached from the node that is asked"),
                "start it, or see why the network keeps them apart (`millrace cluster status`)",
            ));
        }
    }
    let down = facts.down.iter().filter(|queue| queue["state"] == "down");
    if let Some(names) = named(down) {
        problems.push(critical(
            format!("the leaders of these queues do not answer: {names}"),
            "bring the nodes back that keep them: `millrace cluster status` shows which are missing",
        ));
    }
    if facts.is_quorum_critical {
        problems.push(warning(
            "without this node some groups of queues would have no majority".to_owned(),
            "do not stop it; bring the other nodes back (`millrace cluster status`)",
        ));
    }
    if let Some(what) = &facts.certificate {
        let remedy = "renew its files, then send the node SIGHUP: it reads them again, and no connection is lost";
        problems.push(warning(what.clone(), remedy));
    }
    let is_left = |queue: &&Value| {
        let waiting = queue["messages_ready"].as_u64().unwrap_or(0);
        queue["consumers"] == 0 && waiting >= WAITING_MIN
    };
    if let Some(names) = named(facts.fullest.iter().filter(is_left)) {
        problems.push(warning(
            format!("nobody consumes from queues in which {WAITING_MIN} messages or more wait: {names}"),
            "start their consumers; or bound them by a policy, or empty them (`millrace purge --dry-run`)",
        ));
    }
    if !facts.were_queues_seen {
        problems.push(warning(
            "there are too many queues to look at each".to_owned(),
            "`millrace queues --sort messages_ready --reverse --limit 20` shows the fullest",
        ));
    }
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
    problems
}

fn alarmed(facts: &Facts, alarm: &Value) -> Problem {
    let name = alarm["node"].as_str().unwrap_or("a node");
    let resource = alarm["resource"].as_str().unwrap_or("unknown");
    let nodes = facts.nodes.as_deref().unwrap_or_default();
    let node = nodes.iter().find(|node| node["name"] == name);
    let size = |field: &str| node.and_then(|node| node[field].as_u64()).map(bytes);
    let (how, remedy) = match resource {
        "memory" => (
            size("mem_used")
                .zip(size("mem_limit"))
                .map(|(used, most)| format!(": {used} of {most}")),
            "let consumers catch up, or raise memory_limit; publishers go on when there is room",
        ),
        "disk" => (
            size("disk_free")
                .zip(size("disk_free_limit"))
                .map(|(free, least)| format!(": {free} free, {least} wanted")),
            "free disk space, or lower disk_free_limit; publishers go on when there is room",
        ),
        _ => (None, "see the log of the node"),
    };
    let (name, resource) = (shown(name), shown(resource));
    Problem {
        severity: Severity::Critical,
        what: format!(
            "{resource} alarm on {name}{}; publishers are held back",
            how.unwrap_or_default()
        ),
        remedy: remedy.to_owned(),
    }
}

/// The names of queues, with what waits in them. `None`: there are none.
fn named<'a>(queues: impl Iterator<Item = &'a Value>) -> Option<String> {
    let mut names: Vec<String> = queues
        .map(|queue| {
            let text = |field: &str| shown(queue[field].as_str().unwrap_or_default());
            let waiting = queue["messages_ready"].as_u64();
            let waiting = waiting.map_or_else(String::new, |count| format!(" ({count})"));
            format!("{} of vhost {}{waiting}", text("name"), text("vhost"))
        })
        .collect();
    let rest = names.len().saturating_sub(NAMES_SHOWN);
    names.truncate(NAMES_SHOWN);
    if rest > 0 {
        names.push(format!("and {rest} or more others"));
    }
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn well() -> Facts {
        Facts { takes_clients: true, were_queues_seen: true, ..Facts::default() }
    }

    #[test]
    fn a_node_that_is_well_has_no_problems() {
        let queues = vec![
            json!({ "name": "dead", "vhost": "/", "messages_ready": 999, "consumers": 0 }),
            json!({ "name": "busy", "vhost": "/", "messages_ready": 5000, "consumers": 1 }),
            json!({ "name": "up", "vhost": "/", "state": "running" }),
        ];
        assert_eq!(problems(&Facts { fullest: queues.clone(), down: queues, ..well() }), []);
    }

    #[test]
    fn each_problem_says_what_and_what_to_do_and_the_worst_comes_first() {
        let node = json!({ "name": "millrace@1", "mem_used": 2_000_000, "mem_limit": 1_000_000 });
        let facts = Facts {
            takes_clients: false,
            nodes: Some(vec![node]),
            alarms: Some(json!([{ "node": "millrace@1", "resource": "memory" }])),
            is_quorum_critical: true,
            certificate: Some("it expires in 3 days".to_owned()),
            down: vec![json!({ "name": "a\u{1b}b", "vhost": "/", "state": "down" })],
            fullest: vec![
                json!({ "name": "left", "vhost": "/", "messages_ready": 1000, "consumers": 0 }),
            ],
            were_queues_seen: false,
            ..well()
        };
        let found = problems(&facts);
        let severities: Vec<Severity> = found.iter().map(|problem| problem.severity).collect();
        let (critical, warning) = (Severity::Critical, Severity::Warning);
        assert_eq!(severities, [critical, critical, critical, warning, warning, warning, warning]);
        assert!(found.iter().all(|problem| !problem.remedy.is_empty()));
        assert_eq!(
            found[1].what,
            "memory alarm on millrace@1: 1953 KiB of 976 KiB; publishers are held back"
        );
        assert!(found[2].what.ends_with("a\\u{1b}b of vhost /"), "{}", found[2].what);
        assert!(found[5].what.ends_with("left of vhost / (1000)"), "{}", found[5].what);
    }
}
