//! What was measured: a table to read, and every figure as JSON to keep.

use std::fmt;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::rig::{Spent, name};
use crate::chaos::Failure;
use crate::chaos::broker::Kind;
use crate::chaos::measure::machine;

/// Time spent in each step, all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    pub messages: u64,
    pub query: Duration,
    pub publish: Duration,
    /// With the commit.
    pub mark: Duration,
}

/// A worker's milliseconds for a thousand messages.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Steps {
    pub query_ms: f64,
    /// With the confirms.
    pub publish_ms: f64,
    /// With the commit.
    pub mark_ms: f64,
}

impl Times {
    pub fn add(&mut self, other: &Times) {
        self.query += other.query;
        self.publish += other.publish;
        self.mark += other.mark;
    }

    pub fn per_thousand(&self) -> Steps {
        let thousands = self.messages.max(1) as f64 / 1000.0;
        let ms = |time: Duration| time.as_secs_f64() * 1000.0 / thousands;
        Steps { query_ms: ms(self.query), publish_ms: ms(self.publish), mark_ms: ms(self.mark) }
    }
}

/// One drain.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub broker: &'static str,
    pub what: String,
    pub messages: u64,
    pub seconds: f64,
    pub per_second: f64,
    /// Where the one who drains tells them.
    pub times: Option<Steps>,
    /// CPU time for one message, in microseconds.
    pub postgres_us: f64,
    pub broker_us: f64,
    pub relay_us: f64,
    /// Bytes for one message in the database's log, the row's own insert not among them.
    pub wal_bytes: f64,
    /// What is wrong with what is in the queue and in the table afterwards.
    pub problems: Vec<String>,
}

impl Row {
    pub fn new(kind: Kind, what: &str, messages: u64, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        Self {
            broker: name(kind),
            what: what.to_owned(),
            messages,
            seconds,
            per_second: if seconds > 0.0 { messages as f64 / seconds } else { 0.0 },
            times: None,
            postgres_us: 0.0,
            broker_us: 0.0,
            relay_us: 0.0,
            wal_bytes: 0.0,
            problems: Vec::new(),
        }
    }

    /// A run of which there are no figures.
    pub fn failed(kind: Kind, what: &str, why: String) -> Self {
        Self { problems: vec![why], ..Self::new(kind, what, 0, Duration::ZERO) }
    }

    /// Spread over the messages.
    pub fn spend(&mut self, spent: &Spent) {
        let messages = self.messages.max(1) as f64;
        self.postgres_us = spent.postgres_s * 1e6 / messages;
        self.broker_us = spent.broker_s * 1e6 / messages;
        self.relay_us = spent.relay_s * 1e6 / messages;
        self.wal_bytes = spent.wal_bytes / messages;
    }

    /// As a row of the table; `start` is the rate of the starting point.
    fn cells(&self, start: Option<f64>) -> String {
        let Self { broker, what, per_second, postgres_us, broker_us, relay_us, wal_bytes, .. } =
            self;
        let ratio = start.map_or("–".to_owned(), |start| format!("{:.1}", per_second / start));
        let times = self.times.map_or("–".to_owned(), |times| times.to_string());
        format!(
            "| {broker} | {what} | {per_second:.0} | {ratio} | {times} \
             | {postgres_us:.1} / {broker_us:.1} / {relay_us:.1} | {wal_bytes:.0} |"
        )
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { query_ms, publish_ms, mark_ms } = self;
        write!(f, "{query_ms:.1} / {publish_ms:.1} / {mark_ms:.1}")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s {}", self.seconds, self.cells(None))?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  WRONG: {problem}"))
    }
}

/// All drains of one run.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: String,
    backlog: u64,
    rows: Vec<Row>,
    /// What was asked for and could not be had.
    skipped: Vec<String>,
}

const HEAD: &str = "\
| broker | what drains | msg/s | times the start | query / publish / mark, ms per 1,000 \
| CPU per message, us: PostgreSQL / broker / relay | WAL per message, B |
| --- | --- | --: | --: | --: | --: | --: |
";

impl Report {
    pub fn new(backlog: u64) -> Self {
        Self { machine: machine(), backlog, rows: Vec::new(), skipped: Vec::new() }
    }

    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub fn skip(&mut self, why: String) {
        self.skipped.push(why);
    }

    pub fn is_right(&self) -> bool {
        self.rows.iter().all(|row| row.problems.is_empty())
    }

    /// As documents have it. Each broker's rows are compared with its own start.
    pub fn markdown(&self) -> String {
        let mut text = format!("{}; a backlog of {} rows.\n\n{HEAD}", self.machine, self.backlog);
        for row in &self.rows {
            let _ = writeln!(text, "{}", row.cells(self.start(row.broker)));
        }
        for row in &self.rows {
            for problem in &row.problems {
                let _ = write!(text, "\nWRONG: {}, {}: {problem}\n", row.broker, row.what);
            }
        }
        for why in &self.skipped {
            let _ = write!(text, "\nSkipped: {why}\n");
        }
        text
    }

    fn start(&self, broker: &str) -> Option<f64> {
        let mut rows = self.rows.iter();
        let start = rows.find(|row| row.broker == broker && row.what.starts_with("start"))?;
        (start.per_second > 0.0).then_some(start.per_second)
    }

    /// Prints the table, and keeps it and every figure where that is asked for.
    pub fn finish(&self, markdown: Option<&Path>, json: Option<&Path>) -> Result<(), Failure> {
        let text = self.markdown();
        println!("\n{text}");
        if let Some(path) = markdown {
            std::fs::write(path, text)?;
        }
        if let Some(path) = json {
            std::fs::write(path, serde_json::to_vec_pretty(self).map_err(std::io::Error::from)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(broker: Kind, what: &str, per_second: f64) -> Row {
        Row::new(broker, what, per_second as u64, Duration::from_secs(1))
    }

    #[test]
    fn each_broker_is_compared_with_its_own_start() {
        let mut report = Report::new(1000);
        report.add(row(Kind::Millrace, "start: one by one", 2000.0));
        report.add(row(Kind::Millrace, "final form", 9000.0));
        report.add(row(Kind::Rabbitmq, "start: one by one", 1000.0));
        report.add(row(Kind::Rabbitmq, "final form", 9000.0));
        let text = report.markdown();
        assert!(text.contains("| Millrace | final form | 9000 | 4.5 |"), "{text}");
        assert!(text.contains("| RabbitMQ | final form | 9000 | 9.0 |"), "{text}");
    }

    #[test]
    fn a_run_with_a_wrong_end_makes_the_report_wrong() {
        let mut report = Report::new(1000);
        report.add(row(Kind::Millrace, "start: one by one", 2000.0));
        assert!(report.is_right());
        report.add(Row::failed(Kind::Millrace, "final form", "3 rows are left".to_owned()));
        assert!(!report.is_right());
        assert!(report.markdown().contains("3 rows are left"));
    }

    #[test]
    fn times_are_told_for_a_thousand_messages() {
        let query = Duration::from_millis(30);
        let times = Times { messages: 3000, query, ..Times::default() }.per_thousand();
        assert!((times.query_ms - 10.0).abs() < 1e-9);
    }
}
