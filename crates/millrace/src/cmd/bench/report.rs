//! What a run says at its end: one line of JSON for programs, a few lines of text for people.

use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::drive::{Cost, Outcome};
use super::plan::{Parameters, Plan};

/// All figures of a run. Field names are the JSON's.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    published: u64,
    confirmed: u64,
    consumed: u64,
    publish_rate: f64,
    confirm_rate: f64,
    consume_rate: f64,
    elapsed_s: f64,
    confirm_us: Option<Percentiles>,
    end_to_end_us: Option<Percentiles>,
    nacked: u64,
    returned: u64,
    redelivered: u64,
    wrong_size: u64,
    /// Delivered before they were due.
    early: u64,
    server: Option<Server>,
    generator: Generator,
    totals: Totals,
    parameters: Parameters,
}

#[derive(Debug, Serialize)]
struct Percentiles {
    count: u64,
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

/// The processes named by `--pid`, while it was measured.
#[derive(Debug, Serialize)]
pub(super) struct Server {
    cpu_s: f64,
    /// The same figure as microseconds per message.
    cpu_s_per_million: f64,
    user_s: f64,
    system_s: f64,
    cores: f64,
    rss_start: u64,
    rss_end: u64,
    rss_max: u64,
    write_syscalls: Option<u64>,
    write_syscalls_per_message: Option<f64>,
    write_bytes: Option<u64>,
    disk_write_bytes: Option<u64>,
    disk_write_bytes_per_message: Option<f64>,
}

/// This process.
#[derive(Debug, Serialize)]
struct Generator {
    cpu_s: f64,
    cpu_us_per_message: f64,
    cores: f64,
}

/// Over the whole run, with what was not measured.
#[derive(Debug, Serialize)]
struct Totals {
    published: u64,
    confirmed: u64,
    consumed: u64,
    /// Published, and neither confirmed nor refused at the end.
    unconfirmed: u64,
    /// In the queues before and after the run.
    waiting_before: u64,
    left_after: u64,
    /// Neither consumed nor in a queue at the end; negative: delivered twice without being flagged. Known
    /// only with confirms and acknowledgements, and not for a stream: it keeps what was read, and RabbitMQ tells
    /// its length late.
    lost: Option<i64>,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            mean: round(histogram.mean(), 1),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        })
    }
}

impl Report {
    pub(super) fn new(plan: &Plan, outcome: &Outcome) -> Self {
        let measured = outcome.measured;
        let parameters = plan.parameters.clone();
        // A message's cost is that of its whole way, whichever end of it was measured.
        let messages = if parameters.publishers == 0 {
            measured.consumed
        } else if parameters.window > 0 {
            measured.confirmed
        } else {
            measured.published
        };
        let is_confirmed = parameters.window > 0;
        Self {
            published: measured.published,
            confirmed: measured.confirmed,
            consumed: measured.consumed,
            publish_rate: round(measured.published as f64 / outcome.publish_s, 1),
            confirm_rate: round(measured.confirmed as f64 / outcome.publish_s, 1),
            consume_rate: round(measured.consumed as f64 / outcome.consume_s, 1),
            elapsed_s: round(outcome.publish_s.max(outcome.consume_s), 3),
            confirm_us: Percentiles::of(&outcome.confirm_us),
            end_to_end_us: Percentiles::of(&outcome.end_to_end_us),
            nacked: outcome.totals.nacked,
            returned: outcome.totals.returned,
            redelivered: outcome.totals.redelivered,
            wrong_size: outcome.totals.wrong_size,
            early: outcome.totals.early,
            server: outcome.server.as_ref().map(|cost| Server::new(cost, outcome.cpu_s, messages)),
            generator: Generator {
                cpu_s: round(outcome.generator_cpu_s, 3),
                cpu_us_per_message: per_message(outcome.generator_cpu_s * 1e6, messages),
                cores: round(outcome.generator_cpu_s / outcome.cpu_s, 3),
            },
            totals: Totals {
                published: outcome.totals.published,
                confirmed: outcome.totals.confirmed,
                consumed: outcome.totals.consumed,
                unconfirmed: if is_confirmed {
                    outcome.totals.published - outcome.totals.confirmed - outcome.totals.nacked
                } else {
                    0
                },
                waiting_before: outcome.waiting,
                left_after: outcome.left,
                lost: (is_confirmed && !parameters.auto_ack && !plan.is_stream())
                    .then(|| lost(plan, outcome)),
            },
            parameters,
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text are always JSON")
    }

    /// What a clean run must not show.
    pub(super) fn complaint(&self) -> Option<String> {
        let counts = [
            (self.nacked, "were refused (basic.nack)"),
            (self.returned, "were returned"),
            (self.wrong_size, "arrived with another size than they were sent with"),
            (self.early, "arrived before they were due"),
            (self.totals.unconfirmed, "were never confirmed"),
            (
                self.totals.lost.unwrap_or(0).unsigned_abs(),
                "were lost, or arrived twice without the redelivered flag",
            ),
        ];
        let complaints: Vec<_> = counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} messages {what}"))
            .collect();
        (!complaints.is_empty()).then(|| complaints.join("; "))
    }
}

/// Messages that are missing; below zero: that came more often than they should.
fn lost(plan: &Plan, outcome: &Outcome) -> i64 {
    let totals = &outcome.totals;
    // A message whose confirm never came may or may not be there: it is told as unconfirmed, not as lost.
    let unknown = (totals.published - totals.confirmed - totals.nacked) * plan.copies();
    let came = totals.confirmed * plan.copies() + outcome.waiting;
    // A flagged delivery may be a repeat, or the first that this consumer sees of a message from
    // before a restart.
    let most = totals.consumed + outcome.left;
    let least = most - totals.redelivered;
    if came > most {
        (came - most) as i64
    } else {
        (came as i64 + unknown as i64 - least as i64).min(0)
    }
}

impl Server {
    pub(super) fn new(cost: &Cost, seconds: f64, messages: u64) -> Self {
        let user_s = cost.after.user_s - cost.before.user_s;
        let system_s = cost.after.system_s - cost.before.system_s;
        let cpu_s = user_s + system_s;
        let io = cost.before.io.zip(cost.after.io);
        let grew = |read: fn(&super::process::Io) -> u64| {
            io.map(|(before, after)| read(&after) - read(&before))
        };
        let (syscalls, disk) = (grew(|io| io.write_syscalls), grew(|io| io.disk_write_bytes));
        Self {
            cpu_s: round(cpu_s, 3),
            cpu_s_per_million: per_message(cpu_s * 1e6, messages),
            user_s: round(user_s, 3),
            system_s: round(system_s, 3),
            cores: round(cpu_s / seconds, 3),
            rss_start: cost.rss_start,
            rss_end: cost.rss_end,
            rss_max: cost.rss_max,
            write_syscalls: syscalls,
            write_syscalls_per_message: syscalls.map(|count| per_message(count as f64, messages)),
            write_bytes: grew(|io| io.write_bytes),
            disk_write_bytes: disk,
            disk_write_bytes_per_message: disk.map(|bytes| per_message(bytes as f64, messages)),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: u64| bytes / (1 << 20);
        write!(
            out,
            "server: {:.2} µs CPU per message, {:.2} cores; memory {} -> {} MiB, at most {}",
            self.cpu_s_per_million,
            self.cores,
            mebibytes(self.rss_start),
            mebibytes(self.rss_end),
            mebibytes(self.rss_max)
        )
    }
}

fn per_message(amount: f64, messages: u64) -> f64 {
    if messages == 0 { 0.0 } else { round(amount / messages as f64, 4) }
}

pub(super) fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parameters { publishers, consumers, queues, size, window, .. } = self.parameters;
        writeln!(
            out,
            "{publishers} publishers, {consumers} consumers, {queues} queues, {size} B, \
             window {window}, {:.1} s measured",
            self.elapsed_s
        )?;
        writeln!(out, "  published {:>12}   {:>10.0} msg/s", self.published, self.publish_rate)?;
        writeln!(out, "  confirmed {:>12}   {:>10.0} msg/s", self.confirmed, self.confirm_rate)?;
        writeln!(out, "  consumed  {:>12}   {:>10.0} msg/s", self.consumed, self.consume_rate)?;
        for (name, latency) in [("confirm", &self.confirm_us), ("end to end", &self.end_to_end_us)]
        {
            if let Some(Percentiles { p50, p90, p99, p999, max, .. }) = latency {
                writeln!(
                    out,
                    "  {name:10} µs   p50 {p50}   p90 {p90}   p99 {p99}   p99.9 {p999}   max {max}"
                )?;
            }
        }
        if let Some(server) = &self.server {
            writeln!(out, "  {server}")?;
            if let Some(syscalls) = server.write_syscalls_per_message {
                let bytes = server.disk_write_bytes_per_message.unwrap_or(0.0);
                writeln!(
                    out,
                    "  server writes per message: {syscalls:.4} calls, {bytes:.0} B to disk"
                )?;
            }
        }
        write!(
            out,
            "  generator: {:.2} µs CPU per message, {:.2} cores",
            self.generator.cpu_us_per_message, self.generator.cores
        )?;
        if self.totals.left_after > 0 {
            write!(out, "\n  {} messages are left in the queues", self.totals.left_after)?;
        }
        Ok(())
    }
}
