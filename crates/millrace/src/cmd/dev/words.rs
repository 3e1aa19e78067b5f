//! What `millrace dev` says: to people, or one JSON object a line to programs.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde_json::{Value, json};

use super::node::Node;
use super::plan::Plan;
use crate::cmd::terminal;
use crate::table;

/// Who listens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Voice {
    pub(super) is_json: bool,
}

impl Voice {
    fn tell(self, event: Value, words: &str) {
        match self.is_json {
            // Whoever read it may be gone; the nodes go on.
            true => _ = terminal::say(&event.to_string()),
            false => terminal::remark(words),
        }
    }

    pub(super) fn starting(self, plan: &Plan, is_kept: bool) {
        let (nodes, root) = (plan.nodes, plan.root.display().to_string());
        let event =
            json!({ "event": "starting", "nodes": nodes, "directory": root, "kept": is_kept });
        self.tell(event, &format!("starting {} in {root}", counted(nodes)));
    }

    pub(super) fn node_ready(self, node: u16) {
        let event = json!({ "event": "node_ready", "node": node });
        self.tell(event, &format!("node {node} is ready"));
    }

    /// Some of them are not ready after a long time.
    pub(super) fn waiting(self, plan: &Plan, nodes: &[Node]) {
        let late: Vec<u16> =
            nodes.iter().filter(|node| node.url.is_none()).map(|node| node.number).collect();
        let logs: Vec<String> =
            late.iter().map(|node| plan.log(*node).display().to_string()).collect();
        let event = json!({ "event": "waiting", "nodes": late });
        self.tell(event, &format!("still waiting; see {}", logs.join(", ")));
    }

    /// All are ready. The first line is what scripts wait for.
    pub(super) fn ready(self, plan: &Plan, nodes: &[Node], is_kept: bool) {
        let said = match self.is_json {
            true => ready_event(plan, nodes, is_kept).to_string(),
            false => ready_text(plan, &urls(nodes), is_kept, &program()),
        };
        // Whoever read it may be gone; the nodes go on.
        terminal::say(&said);
    }

    /// A node has ended that was not told to. `goes_on`: the others serve without it.
    pub(super) fn node_ended(self, node: &Node, status: ExitStatus, goes_on: bool) {
        let log = node.last_words();
        let event = json!({
            "event": "node_ended",
            "node": node.number,
            "exit_code": status.code(),
            "signal": status.signal(),
            "log": log,
            "goes_on": goes_on,
        });
        self.tell(event, &ended_text(node.number, status, &log, goes_on));
    }

    pub(super) fn stopping(self) {
        let words = "stopping the nodes; Ctrl-C again kills them, which loses nothing";
        self.tell(json!({ "event": "stopping" }), words);
    }

    pub(super) fn stopped(self, plan: &Plan, is_kept: bool, exit_code: u8) {
        let root = plan.root.display();
        let words = match is_kept {
            true => format!("all nodes have ended; data and logs are in {root}"),
            false => format!("all nodes have ended; {root} is deleted"),
        };
        self.tell(json!({ "event": "stopped", "exit_code": exit_code }), &words);
    }
}

fn counted(nodes: u16) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "millrace".to_owned())
}

fn urls(nodes: &[Node]) -> Vec<&str> {
    nodes.iter().map(|node| node.url.as_deref().unwrap_or_default()).collect()
}

/// Whether the node says that `guest` may log in with the password that everybody knows.
fn is_guest(url: &str) -> bool {
    url.starts_with("amqp://guest:guest@")
}

fn ready_event(plan: &Plan, nodes: &[Node], is_kept: bool) -> Value {
    let shown = nodes.iter().map(|node| {
        json!({
            "node": node.number,
            "amqp": node.url,
            "http": plan.http(node.number),
            "metrics": plan.metrics(node.number),
            "data_directory": plan.data_dir(node.number).display().to_string(),
            "log": plan.log(node.number).display().to_string(),
            "pid": node.process_id(),
        })
    });
    let guest = urls(nodes).first().is_some_and(|url| is_guest(url)).then_some("guest");
    json!({
        "event": "ready",
        "version": env!("CARGO_PKG_VERSION"),
        "user": guest,
        "password": guest,
        "directory": plan.root.display().to_string(),
        "kept": is_kept,
        "nodes": shown.collect::<Vec<Value>>(),
    })
}

/// `urls`: where clients connect, node by node.
fn ready_text(plan: &Plan, urls: &[&str], is_kept: bool, program: &str) -> String {
    let (first, last) =
        (urls.first().copied().unwrap_or_default(), urls.last().copied().unwrap_or_default());
    let version = env!("CARGO_PKG_VERSION");
    let are = if plan.nodes == 1 { "is" } else { "are" };
    let mut text = format!(
        "Millrace {version}: {} {are} ready: AMQP 0-9-1 on {first}\n\n",
        counted(plan.nodes)
    );
    let rows: Vec<[String; 5]> = plan
        .numbers()
        .zip(urls)
        .map(|(node, url)| {
            let log = plan.log(node).display().to_string();
            [node.to_string(), (*url).to_owned(), plan.http(node), plan.metrics(node), log]
        })
        .collect();
    // Writing to a String cannot fail.
    let _ = table::grid(&mut text, &["Node", "AMQP", "HTTP API", "Metrics", "Log"], &rows);
    let root = plan.root.display();
    let fate = match is_kept {
        true => "kept, for the next start with it",
        false => "deleted at the end; --directory DIR keeps it",
    };
    text.push_str(&format!("\nDirectory:          {root} ({fate})\n"));
    let http = plan.http(1).replacen("http://", "http://guest@", 1);
    match is_guest(first) {
        true => text.push_str(&format!(
            "User:               guest, password guest, from this machine\n\
             Publish a message:  echo hello | {program} publish --url {first} --queue hello\n\
             Consume it:         {program} consume --url {last} --queue hello --count 1\n\
             Watch:              {program} top --url {http}\n"
        )),
        false => {
            text.push_str("User:               the one that was chosen; guest cannot log in\n")
        }
    }
    text.push_str("Stop:               Ctrl-C\n");
    text
}

fn ended_text(node: u16, status: ExitStatus, log: &[String], goes_on: bool) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    };
    let mut text = format!("millrace: node {node} {how}");
    match log.is_empty() {
        true => text.push_str("; it has logged nothing\n"),
        false => {
            text.push_str("; the last lines of its log:\n");
            log.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
    }
    text.push_str(match goes_on {
        true => "the other nodes go on, because they are most of them",
        false => "ending the other nodes",
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::dev::ports::Ports;

    fn plan(nodes: u16) -> Plan {
        let ports = Ports { amqp: 5672, http: 15672, metrics: 15692, peers: 25672 };
        Plan { nodes, ports, root: "/dev-dir".into(), settings: Vec::new() }
    }

    #[test]
    fn people_get_addresses_and_lines_to_paste() {
        let urls = ["amqp://guest:guest@127.0.0.1:5672", "amqp://guest:guest@127.0.0.1:5673"];
        let text = ready_text(&plan(2), &urls, false, "bin/millrace");
        let first = text.lines().next().unwrap();
        assert!(
            first.ends_with("2 nodes are ready: AMQP 0-9-1 on amqp://guest:guest@127.0.0.1:5672")
        );
        for words in [
            "2     amqp://guest:guest@127.0.0.1:5673  http://127.0.0.1:15673  http://127.0.0.1:15693/metrics  \
             /dev-dir/node-2.log",
            "echo hello | bin/millrace publish --url amqp://guest:guest@127.0.0.1:5672 --queue hello",
            "bin/millrace consume --url amqp://guest:guest@127.0.0.1:5673 --queue hello --count 1",
            "top --url http://guest@127.0.0.1:15672",
            "/dev-dir (deleted at the end",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn guest_is_not_named_where_guest_cannot_come() {
        let text = ready_text(&plan(1), &["amqp://127.0.0.1:5672"], true, "millrace");
        assert!(!text.contains("publish") && text.contains("guest cannot log in"), "{text}");
        assert!(text.contains("1 node is ready") && text.contains("(kept"), "{text}");
    }

    #[test]
    fn a_node_that_ended_is_told_with_its_last_lines() {
        let log = ["one".to_owned(), "two".to_owned()];
        let text = ended_text(2, ExitStatus::from_raw(74 << 8), &log, false);
        assert_eq!(
            text,
            "millrace: node 2 ended with exit code 74; the last lines of its log:\n  one\n  two\nending the other nodes"
        );
        let text = ended_text(3, ExitStatus::from_raw(9), &[], true);
        assert!(text.contains("killed by signal 9; it has logged nothing"), "{text}");
        assert!(text.ends_with("the other nodes go on, because they are most of them"), "{text}");
    }
}
