use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use broker::dead_letter::DeadLetterMetrics;
use cluster::shard::GroupReport;
use cluster::{Alarms, Compared, Comparison, Counters, PeerCounters, Resources, Tally};
use machine::{GroupId, NodeId, QueueStatus};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::detail::{ABSENT, FAMILIES, Of};
use super::family::{Family, Samples};
use super::seen::Queues;
use super::*;

/// Where the tables of what is served stand.
const PAGE: &str = include_str!("../../../../../../docs/operating/metrics.md");

#[derive(Default)]
struct Totals {
    counters: Counters,
    peers: PeerCounters,
    amqp: broker::Metrics,
    dead_letters: DeadLetterMetrics,
    watchers_turned_away: AtomicU64,
    http: management::Metrics,
}

impl Totals {
    fn counted(&self) -> Counted<'_> {
        Counted {
            counters: &self.counters,
            session_count: 2,
            alarms: Alarms { memory: false, disk: true },
            peers: Some(&self.peers),
            connection_count: 3,
            amqp: &self.amqp,
            dead_letters: &self.dead_letters,
            watchers_turned_away: &self.watchers_turned_away,
            http: &self.http,
        }
    }

    fn seen(&self) -> Seen<'_> {
        let report = GroupReport {
            group: GroupId(4),
            leader: Some(NodeId(1)),
            term: 1,
            committed: 9,
            applied: 9,
            persisted: 9,
            voters: vec![NodeId(1), NodeId(2)],
            counted: None,
            outgoing: Vec::new(),
            learners: Vec::new(),
            matched: vec![(NodeId(2), 7)],
            digest: 0,
            compared: Compared {
                with: vec![Comparison { node: NodeId(2), index: 8, ours: 1, theirs: 2 }],
                count: 4,
                differed: 1,
                ..Compared::default()
            },
            leader_changes: Vec::new(),
        };
        let tally = Tally { groups: vec![report], created: 5, ..Tally::default() };
        let queues = Queues { count: 4, ready: 6, left_out: 1, ..Queues::default() };
        Seen {
            counted: self.counted(),
            node: NodeId(1),
            cluster: 10,
            resources: Resources { memory_bytes: Some(1), ..Resources::default() },
            open_files: Some(8),
            open_files_max: Some(9),
            uptime_ms: 1500,
            is_ready: true,
            led: Some(Led { queues, tally, others: vec![NodeId(2)] }),
        }
    }
}

fn shown() -> Vec<Shown> {
    let counters = machine::Counters::default();
    let held_back = machine::HeldBack { messages: 2, wait_ms: 1_500, publishes: 6 };
    let (ready, unsettled, consumers, delayed, leaving) = (3, 1, 0, 0, 0);
    let status = QueueStatus { ready, unsettled, consumers, delayed, leaving, counters, held_back };
    let (vhost, queue) = ("/".to_owned(), "a \"quoted\" one".to_owned());
    vec![Shown { vhost, queue, queue_type: "rabbit_quorum_queue", status }]
}

fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "`{line}` is not in\n{text}");
    }
}

#[test]
fn names_have_units_and_one_name_has_one_family() {
    let totals = Totals::default();
    totals.counters.sync_micros.store(1_500_000, Ordering::Relaxed);
    totals.counters.log_bytes.store(7, Ordering::Relaxed);
    totals.dead_letters.maxlen.store(4, Ordering::Relaxed);
    let text = together(&totals.seen()).text();
    let lines = [
        "# TYPE millrace_log_sync_seconds counter",
        "millrace_log_sync_seconds_total 1.5",
        "millrace_log_written_bytes_total 7",
        "millrace_dead_letters_total{reason=\"maxlen\"} 4",
        "millrace_alarm{resource=\"disk\"} 1",
        "millrace_sessions 2",
        "millrace_connections 3",
        "millrace_uptime_seconds 1.5",
        "millrace_messages{state=\"ready\"} 6",
        "millrace_group_led{group=\"4\"} 1",
        "millrace_replication_lag_entries{node=\"2\"} 2",
        "millrace_peer_up{node=\"2\"} 0",
        "millrace_queues_created_total 5",
        "millrace_books_messages{part=\"came\"} 0",
        "millrace_digests_compared_total 4",
        "millrace_digests_differing_total 1",
        "millrace_group_differs{group=\"4\"} 1",
        "millrace_commit_seconds_bucket{le=\"+Inf\"} 0",
        "rabbitmq_queues 4",
        "rabbitmq_queue_messages_ready 6",
        "rabbitmq_global_messages_received_total{protocol=\"amqp091\"} 0",
        "rabbitmq_message_size_bytes_bucket{le=\"100.0\",protocol=\"amqp091\"} 0",
    ];
    has(&text, &lines);
    let mut names: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "rows of one name stand together");
}

#[test]
fn groups_that_do_not_answer_leave_no_number_behind() {
    let totals = Totals::default();
    let seen = Seen { led: None, ..totals.seen() };
    let text = together(&seen).text();
    for name in ["rabbitmq_queue", "millrace_queues", "millrace_group", "millrace_messages{"] {
        let queues_declared = |line: &&str| !line.contains("queues_declared");
        let mut lines = text.lines().filter(|line| line.starts_with(name)).filter(queues_declared);
        assert_eq!(lines.next(), None);
    }
}

#[test]
fn queues_are_shown_with_their_names() {
    let totals = Totals::default();
    let seen = totals.seen();
    let text = Page { families: detail::per_object(&seen), queues: shown() }.text();
    let labels = "vhost=\"/\",queue=\"a \\\"quoted\\\" one\"";
    has(
        &text,
        &[
            &format!("rabbitmq_queue_messages_ready{{{labels}}} 3"),
            &format!("rabbitmq_queue_messages{{{labels}}} 4"),
            &format!("rabbitmq_queue_consumers{{{labels}}} 0"),
            &format!("millrace_queue_messages_published_total{{{labels}}} 0"),
            "millrace_queues_left_out 1",
        ],
    );
    let asked = Asked::of("family=queue_coarse_metrics&family=queue_metrics").unwrap();
    let text = Page { families: asked.families(&seen), queues: shown() }.text();
    has(&text, &[&format!("rabbitmq_detailed_queue_messages_unacked{{{labels}}} 1")]);
    assert!(!text.contains("rabbitmq_queue_messages"), "only what was asked for:\n{text}");
    assert!(text.contains("rabbitmq_endpoint=\"detailed\""));
}

#[test]
fn the_line_of_sigusr1_has_every_row_and_no_peers_without_a_cluster() {
    let totals = Totals::default();
    totals.amqp.published.store(9, Ordering::Relaxed);
    let rows = totals.counted().rows();
    let told: Value = serde_json::from_str(&line(&rows, true)).unwrap();
    assert_eq!(told["amqp"]["published"], 9);
    for row in &rows {
        let object = if row.part.is_empty() { &told } else { &told[row.part] };
        assert_eq!(object[row.key], row.value, "{}.{}", row.part, row.key);
    }
    let alone: Vec<_> = rows.into_iter().filter(|row| row.part != "peers").collect();
    let told: Value = serde_json::from_str(&line(&alone, false)).unwrap();
    assert_eq!(told["peers"], Value::Null);
}

#[test]
fn the_tables_of_the_manual_are_what_is_served() {
    let totals = Totals::default();
    let seen = totals.seen();
    let own = own::own(&seen);
    let mut rabbit = vec![rabbit::identity(&seen, Endpoint::Aggregated)];
    rabbit.extend(rabbit::node_wide(&seen));
    rabbit.extend(rabbit::queues_together(&seen));
    let known: BTreeSet<_> = rabbit.iter().map(|it| (it.prefix, it.name)).collect();
    let mut single = detail::per_object(&seen);
    single.retain(|it| !known.contains(&(it.prefix, it.name)));
    let mut families = String::from("| Family | Has |\n| --- | --- |\n");
    for (name, Of::Node(made) | Of::Queues(made)) in FAMILIES {
        let names = made(detail::DETAILED, &seen);
        let names: Vec<_> = names.iter().map(|it| format!("`{}`", full_name(it))).collect();
        families.push_str(&format!("| `{name}` | {} |\n", names.join(", ")));
    }
    let tables = [table(&own), table(&rabbit), table(&single), families];
    let missing: Vec<_> = tables.into_iter().filter(|table| !PAGE.contains(table)).collect();
    let missing = missing.join("\n\n");
    assert!(
        missing.is_empty(),
        "docs/operating/metrics.md has other tables of metrics; they are to be\n\n{missing}"
    );
    let words = PAGE.split_whitespace().collect::<Vec<_>>().join(" ");
    let absent = ABSENT.map(|name| format!("`{name}`")).join(", ");
    assert!(words.contains(&absent), "docs/operating/metrics.md is to say\n\n{absent}");
}

fn table(families: &[Family]) -> String {
    let mut table = String::from("| Metric | Type | Unit | Meaning |\n| --- | --- | --- | --- |\n");
    for family in families {
        table.push_str(&manual_row(family));
    }
    table
}

/// As a query names it.
fn full_name(Family { prefix, name, kind, .. }: &Family) -> String {
    let unit = kind.unit().map_or(String::new(), |unit| format!("_{}", unit.as_str()));
    let total = match kind.metric_type() {
        MetricType::Counter => "_total",
        _ => "",
    };
    format!("{prefix}_{name}{unit}{total}")
}

fn manual_row(family: &Family) -> String {
    let kind = match family.kind.metric_type() {
        MetricType::Counter => "counter",
        MetricType::Gauge => "gauge",
        MetricType::Histogram => "histogram",
        other => panic!("a row is no {other:?}"),
    };
    let unit = family.kind.unit();
    let unit = unit.as_ref().map_or("", Unit::as_str);
    let (name, meaning) = (full_name(family), family.meaning);
    format!("| `{name}`{} | {kind} | {unit} | {meaning} |\n", labels(&family.samples))
}

/// By what its numbers differ.
fn labels(samples: &Samples) -> String {
    let labels = match samples {
        Samples::Each(samples) => samples.first().map_or(&[][..], |(labels, _)| &labels[..]),
        Samples::Histogram { labels, .. } => &labels[..],
        Samples::Queues(_) | Samples::QueueInfo => return String::new(),
    };
    let names: Vec<_> =
        labels.iter().map(|(name, _)| *name).filter(|it| *it != "protocol").collect();
    match (names[..].is_empty(), samples) {
        (true, _) => String::new(),
        (false, Samples::Each(several)) if several.len() > 1 => {
            let values: Vec<_> = several.iter().map(|(labels, _)| labels[0].1.as_str()).collect();
            format!(", by `{}` ({})", names[0], values.join(", "))
        }
        (false, _) => format!(", by `{}`", names.join("`, `")),
    }
}
