use std::sync::atomic::{AtomicU64, Ordering};

use broker::dead_letter::DeadLetterMetrics;
use cluster::{Alarms, Counters, PeerCounters};

use super::*;

/// Where the table of what is counted stands.
const PAGE: &str = include_str!("../../../../../../docs/operating/run.md");

#[derive(Default)]
struct Totals {
    counters: Counters,
    peers: PeerCounters,
    amqp: broker::Metrics,
    dead_letters: DeadLetterMetrics,
    watchers_turned_away: AtomicU64,
    http_turned_away: AtomicU64,
}

impl Totals {
    fn rows(&self) -> Vec<Row> {
        let counted = Counted {
            counters: &self.counters,
            session_count: 2,
            alarms: Alarms { memory: false, disk: true },
            peers: Some(&self.peers),
            connection_count: 3,
            amqp: &self.amqp,
            dead_letters: &self.dead_letters,
            watchers_turned_away: &self.watchers_turned_away,
            http_turned_away: &self.http_turned_away,
        };
        counted.rows()
    }
}

#[test]
fn names_have_units_and_one_name_has_one_family() {
    let totals = Totals::default();
    totals.counters.sync_micros.store(1_500_000, Ordering::Relaxed);
    totals.counters.log_bytes.store(7, Ordering::Relaxed);
    totals.dead_letters.maxlen.store(4, Ordering::Relaxed);
    let text = text(totals.rows());
    for line in [
        "# TYPE millrace_log_sync_seconds counter",
        "millrace_log_sync_seconds_total 1.5",
        "millrace_log_written_bytes_total 7",
        "millrace_dead_letters_total{reason=\"maxlen\"} 4",
        "millrace_alarm{resource=\"disk\"} 1",
        "millrace_sessions 2",
        "millrace_connections 3",
    ] {
        assert!(text.lines().any(|found| found == line), "`{line}` is not in\n{text}");
    }
    let mut names: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "rows of one name stand together");
}

#[test]
fn the_line_of_sigusr1_has_every_row_and_no_peers_without_a_cluster() {
    let totals = Totals::default();
    totals.amqp.published.store(9, Ordering::Relaxed);
    let rows = totals.rows();
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
fn the_table_of_the_manual_is_what_is_served() {
    let rows = Totals::default().rows();
    let mut table = String::from("| Metric | Type | Unit | Meaning |\n| --- | --- | --- | --- |\n");
    for family in rows.chunk_by(|one, next| one.name == next.name) {
        table.push_str(&manual_row(family));
    }
    assert!(
        PAGE.contains(&table),
        "docs/operating/run.md has another table of metrics; it is to be\n\n{table}"
    );
}

fn manual_row(family: &[Row]) -> String {
    let [Row { name, kind, meaning, .. }, ..] = family else { return String::new() };
    let unit = kind.unit();
    let suffix = unit.as_ref().map_or(String::new(), |unit| format!("_{}", unit.as_str()));
    let (total, kind) = match kind.metric_type() {
        MetricType::Counter => ("_total", "counter"),
        MetricType::Gauge => ("", "gauge"),
        other => panic!("a row is no {other:?}"),
    };
    let values: Vec<_> =
        family.iter().filter_map(|row| row.label).map(|(_, value)| value).collect();
    let labels = match family[0].label {
        Some((label, _)) => format!("`, by `{label}` ({})", values.join(", ")),
        None => "`".to_owned(),
    };
    let unit = unit.as_ref().map_or("", Unit::as_str);
    format!("| `{PREFIX}_{name}{suffix}{total}{labels} | {kind} | {unit} | {meaning} |\n")
}
