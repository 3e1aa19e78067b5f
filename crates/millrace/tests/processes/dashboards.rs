//! Dashboards and alerts read names that a node serves, and Prometheus understands both.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, waits, and says what is skipped"
)]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::metrics::{body, client};
use crate::node::{Node, free_address};

const DASHBOARD: &str = include_str!("../../../../docs/operating/grafana/millrace.json");
const RULES: &str = include_str!("../../../../docs/operating/alerts/millrace.rules.yml");
const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/alerts");

/// What RabbitMQ's Overview dashboard (Grafana 10991) reads.
const OVERVIEW: &[&str] = &[
    "rabbitmq_build_info",
    "rabbitmq_channels",
    "rabbitmq_channels_closed_total",
    "rabbitmq_channels_opened_total",
    "rabbitmq_connections",
    "rabbitmq_connections_closed_total",
    "rabbitmq_connections_opened_total",
    "rabbitmq_consumers",
    "rabbitmq_disk_space_available_bytes",
    "rabbitmq_disk_space_available_limit_bytes",
    "rabbitmq_erlang_uptime_seconds",
    "rabbitmq_global_consumers",
    "rabbitmq_global_messages_acknowledged_total",
    "rabbitmq_global_messages_confirmed_total",
    "rabbitmq_global_messages_delivered_consume_auto_ack_total",
    "rabbitmq_global_messages_delivered_consume_manual_ack_total",
    "rabbitmq_global_messages_delivered_get_auto_ack_total",
    "rabbitmq_global_messages_delivered_get_manual_ack_total",
    "rabbitmq_global_messages_delivered_total",
    "rabbitmq_global_messages_get_empty_total",
    "rabbitmq_global_messages_received_confirm_total",
    "rabbitmq_global_messages_received_total",
    "rabbitmq_global_messages_redelivered_total",
    "rabbitmq_global_messages_routed_total",
    "rabbitmq_global_messages_unroutable_dropped_total",
    "rabbitmq_global_messages_unroutable_returned_total",
    "rabbitmq_global_publishers",
    "rabbitmq_identity_info",
    "rabbitmq_message_size_bytes_bucket",
    "rabbitmq_message_size_bytes_count",
    "rabbitmq_message_size_bytes_sum",
    "rabbitmq_process_max_fds",
    "rabbitmq_process_open_fds",
    "rabbitmq_process_resident_memory_bytes",
    "rabbitmq_queue_messages_ready",
    "rabbitmq_queue_messages_unacked",
    "rabbitmq_queues",
    "rabbitmq_queues_created_total",
    "rabbitmq_queues_declared_total",
    "rabbitmq_queues_deleted_total",
    "rabbitmq_resident_memory_limit_bytes",
];

/// Names of metrics in an expression.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    words.filter(|word| word.starts_with("millrace_") || word.starts_with("rabbitmq_"))
}

/// Every string of a JSON value under one of these keys.
fn strings<'v>(value: &'v Value, keys: &[&str], found: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if keys.contains(&key.as_str()) => found.push(text),
                    other => strings(other, keys, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| strings(item, keys, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What a scrape has under which names, also those without a number at the moment.
fn served(text: &str) -> BTreeSet<String> {
    let mut served = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        match kind {
            "histogram" => {
                served.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}")))
            }
            _ => _ = served.insert(name.to_owned()),
        }
    }
    served
}

#[test]
fn dashboards_and_alerts_read_what_a_node_serves() {
    let address = free_address();
    let peers = format!("1={}", free_address());
    let more = ["--metrics", &address, "--node-id", "1", "--peers", &peers];
    let _node = Node::start_with("metrics-names", &more);
    let mut all = served(&body(&address, "/metrics"));
    for name in OVERVIEW {
        assert!(all.contains(*name), "RabbitMQ's Overview dashboard reads {name}");
    }
    all.extend(served(&body(&address, "/metrics/per-object")));

    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut expressions = Vec::new();
    strings(&dashboard, &["expr", "query", "definition"], &mut expressions);
    let read: BTreeSet<_> = expressions.iter().flat_map(|text| names(text)).collect();
    assert!(read.len() > 20, "{read:?}");
    for name in &read {
        assert!(all.contains(*name), "the dashboard reads {name}, which no node serves");
    }
    let alerted: BTreeSet<_> = names(RULES).collect();
    assert!(alerted.len() > 15, "{alerted:?}");
    for name in &alerted {
        assert!(all.contains(*name), "an alert reads {name}, which no node serves");
    }
}

/// What Grafana 10 needs of a dashboard to draw it.
#[test]
fn the_dashboard_is_one_that_grafana_draws() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 38);
    assert!(dashboard["id"].is_null(), "an imported dashboard gets its number from Grafana");
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let place = &panel["gridPos"];
        let of = |key: &str| place[key].as_u64().unwrap();
        assert!(of("x") + of("w") <= 24, "{place}");
        for cell in of("x")..of("x") + of("w") {
            for line in of("y")..of("y") + of("h") {
                assert!(taken.insert((cell, line)), "{} lies on another", panel["title"]);
            }
        }
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')));
        assert_eq!(panel["datasource"]["uid"], "${datasource}");
        assert!(!panel["targets"].as_array().unwrap().is_empty());
    }
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has a number of its own");
}

/// Prometheus' own tool, if `cargo xtask setup` has got it.
fn promtool() -> Option<Command> {
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/promtool");
    if std::path::Path::new(tools).exists() {
        return Some(Command::new(tools));
    }
    println!("skipped: no promtool here: install it with `cargo xtask setup`");
    None
}

fn succeeds(command: &mut Command, input: &str) {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let said = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(status.success(), "{}", said.concat());
}

#[test]
fn prometheus_finds_nothing_wrong_with_alerts() {
    let Some(mut promtool) = promtool() else { return };
    succeeds(promtool.current_dir(ALERTS).args(["check", "rules", "millrace.rules.yml"]), "");
    let mut promtool = Command::new(promtool.get_program());
    succeeds(promtool.current_dir(ALERTS).args(["test", "rules", "millrace.test.yml"]), "");
}

#[test]
fn prometheus_finds_nothing_wrong_with_metrics() {
    let Some(promtool) = promtool() else { return };
    let address = free_address();
    let peers = format!("1={}", free_address());
    let more = ["--metrics", &address, "--node-id", "1", "--peers", &peers];
    let node = Node::start_with("metrics-promtool", &more);
    let url = format!("amqp://guest:guest@127.0.0.1:{}", node.url.port);
    client(&["publish", "--url", &url, "--queue", "jobs"], "one\n");
    for path in ["/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_metrics"] {
        let mut promtool = Command::new(promtool.get_program());
        succeeds(promtool.args(["check", "metrics"]), &body(&address, path));
    }
}
