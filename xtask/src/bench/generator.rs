//! Who makes the load: `millrace bench`, and PerfTest as a witness that is not ours.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::load::Load;
use super::usage;
use crate::brokers::Build;
use crate::conformance::perftest;
use crate::json::number;
use crate::process::{command, output, run_logged, target};

/// PerfTest's virtual machine warms up for so long; rates of these seconds are left out.
const WARM_UP_S: f64 = 4.0;
/// An acknowledgement for so many messages, and twice as many held: as PerfTest's users do it.
const ACK_COUNT: &str = "100";
const PREFETCH: &str = "1000";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generator {
    Millrace,
    PerfTest,
}

/// One run. Latencies are from publish to confirm.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) published_per_s: f64,
    pub(super) consumed_per_s: f64,
    pub(super) confirm_p50_ms: f64,
    pub(super) confirm_p99_ms: f64,
    /// CPU time of the broker for each message.
    pub(super) cpu_us: f64,
    pub(super) rss_bytes: u64,
    /// Bytes written to the disk for each message, by everything on the machine.
    pub(super) disk_bytes: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} published/s, {:.0} consumed/s, confirm {:.2} / {:.2} ms, {:.1} us, {} MB",
            self.published_per_s,
            self.consumed_per_s,
            self.confirm_p50_ms,
            self.confirm_p99_ms,
            self.cpu_us,
            self.rss_bytes >> 20
        )
    }
}

impl Generator {
    pub(super) fn name(self) -> &'static str {
        match self {
            Generator::Millrace => "millrace bench",
            Generator::PerfTest => "PerfTest",
        }
    }

    /// As it is called on the command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Generator::Millrace => "millrace",
            Generator::PerfTest => "perftest",
        }
    }

    /// The witness sees the loads that tell most; all of them would take an hour.
    pub(super) fn is_for(self, load: &Load) -> bool {
        match self {
            Generator::Millrace => true,
            Generator::PerfTest => load.window == 1000 && load.has_consumers,
        }
    }

    pub(super) fn run(
        self,
        load: &Load,
        port: u16,
        pid: u32,
        seconds: u32,
    ) -> Result<Figures, String> {
        let before = usage::disk_bytes(&target());
        let (mut figures, messages) = match self {
            Generator::Millrace => run_millrace(load, port, pid, seconds),
            Generator::PerfTest => run_perftest(load, port, pid, seconds + WARM_UP_S as u32),
        }?;
        if let (Some(before), Some(after)) = (before, usage::disk_bytes(&target())) {
            figures.disk_bytes = (after - before) as f64 / messages;
        }
        Ok(figures)
    }
}

/// Brokers have ports of their own, so a port names the broker.
fn log(generator: Generator, load: &Load, port: u16) -> PathBuf {
    let name = format!("{}-{}-{port}.txt", generator.word(), load.name());
    let log = target().join("bench").join(name);
    let _ = std::fs::remove_file(&log);
    log
}

/// The figures but for the disk's, and how many messages there were from start to end.
type Run = Result<(Figures, f64), String>;

fn run_millrace(load: &Load, port: u16, pid: u32, seconds: u32) -> Run {
    let queues = load.queues.to_string();
    let consumers = if load.has_consumers { &queues } else { "0" };
    let mut bench = millrace(port, pid);
    bench.args(["--publishers", &queues, "--consumers", consumers, "--queues", &queues]);
    bench.args(["--size", &load.body_bytes.to_string(), "--window", &load.window.to_string()]);
    bench.args(["--prefetch", PREFETCH, "--ack-every", ACK_COUNT]);
    bench.args(["--duration", &format!("{seconds}s"), "--queue-prefix", &load.name(), "--delete"]);
    let said = output(&mut bench)?;
    let log = log(Generator::Millrace, load, port);
    std::fs::write(&log, &said).map_err(|error| format!("{}: {error}", log.display()))?;
    let figure = |path: &[&str]| number(&said, path).unwrap_or(0.0);
    let messages = figure(&["totals", "confirmed"]);
    let figures = Figures {
        published_per_s: figure(&["confirm_rate"]),
        consumed_per_s: figure(&["consume_rate"]),
        confirm_p50_ms: figure(&["confirm_us", "p50"]) / 1000.0,
        confirm_p99_ms: figure(&["confirm_us", "p99"]) / 1000.0,
        cpu_us: figure(&["server", "cpu_s_per_million"]),
        rss_bytes: figure(&["server", "rss_max"]) as u64,
        disk_bytes: 0.0,
    };
    Ok((figures, messages))
}

/// Our own generator, told where the broker is and which process to watch.
pub(super) fn millrace(port: u16, pid: u32) -> Command {
    let url = format!("amqp://guest:guest@127.0.0.1:{port}/%2F");
    let mut bench =
        command(Build::Release.millrace(), &["bench", "--json", "--quiet", "--url", &url]);
    bench.args(["--pid", &pid.to_string()]);
    bench
}

fn run_perftest(load: &Load, port: u16, pid: u32, seconds: u32) -> Run {
    let log = log(Generator::PerfTest, load, port);
    let queue = load.name();
    let java = perftest::java();
    let mut perftest = command(&java[0], &[]);
    perftest.args(&java[1..]).arg("--uri").arg(format!("amqp://guest:guest@127.0.0.1:{port}"));
    let (count, seconds_text) = (load.queues.to_string(), seconds.to_string());
    let consumers = if load.has_consumers { &count } else { "0" };
    perftest.args(["-z", &seconds_text, "-f", "persistent", "-ad", "false"]);
    perftest.args(["-x", &count, "-y", consumers, "-q", PREFETCH, "-A", ACK_COUNT]);
    perftest.args(["-s", &load.body_bytes.to_string(), "-c", &load.window.to_string()]);
    perftest.args(["--queue-pattern", &format!("{queue}-%d")]);
    perftest.args(["--queue-pattern-from", "1", "--queue-pattern-to", &count]);
    let (before, begin) = (usage::of(pid)?, Instant::now());
    run_logged(&mut perftest, &log)?;
    let (after, elapsed_s) = (usage::of(pid)?, begin.elapsed().as_secs_f64());
    for index in 1..=load.queues {
        let url = format!("amqp://guest:guest@127.0.0.1:{port}");
        let name = format!("{queue}-{index}");
        run_logged(&mut command("amqp-delete-queue", &["-u", &url, "-q", &name]), &log)?;
    }
    let said = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
    let steady = steady_rates(&said);
    let average = perftest::rate(&said, "sending rate avg: ").unwrap_or(0);
    let messages = average as f64 * elapsed_s.min(f64::from(seconds));
    let (confirm_p50_ms, confirm_p99_ms) = confirm_latencies(&said);
    let figures = Figures {
        published_per_s: steady.0,
        consumed_per_s: steady.1,
        confirm_p50_ms,
        confirm_p99_ms,
        cpu_us: (after.cpu_s - before.cpu_s) * 1e6 / messages,
        rss_bytes: after.rss_bytes,
        disk_bytes: 0.0,
    };
    Ok((figures, messages))
}

/// Means of the rates after the virtual machine has warmed up:
/// `id: x, time 5.000 s, sent: 1 msg/s, returned: 0 msg/s, confirmed: 1 msg/s, …, received: 1 msg/s, …`.
fn steady_rates(said: &str) -> (f64, f64) {
    let mut sums = (0.0, 0.0);
    let mut count = 0.0;
    for line in said.lines() {
        let figure = |name: &str| -> Option<f64> {
            let (_, after) = line.split_once(name)?;
            after.split(' ').next()?.parse().ok()
        };
        if figure("time ").is_some_and(|time| time > WARM_UP_S + 0.5) {
            sums.0 += figure("sent: ").unwrap_or(0.0);
            sums.1 += figure("received: ").unwrap_or(0.0);
            count += 1.0;
        }
    }
    if count == 0.0 { sums } else { (sums.0 / count, sums.1 / count) }
}

/// Median and 99th percentile in milliseconds, of the whole run:
/// `confirm latency min/median/75th/95th/99th 1/2/3/4/5 µs`.
fn confirm_latencies(said: &str) -> (f64, f64) {
    let (_, after) =
        said.rsplit_once("confirm latency min/median/75th/95th/99th ").unwrap_or(("", ""));
    let figures: Vec<f64> = after
        .split([' ', '\n'])
        .next()
        .unwrap_or("")
        .split('/')
        .filter_map(|figure| figure.parse().ok())
        .collect();
    match figures[..] {
        [_, p50, _, _, p99] => (p50 / 1000.0, p99 / 1000.0),
        _ => (0.0, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_seconds_of_perftest_do_not_count() {
        let said = "id: a, time 1.000 s, sent: 10 msg/s, received: 9 msg/s\n\
                    id: a, time 5.000 s, sent: 30 msg/s, received: 20 msg/s\n\
                    id: a, time 6.000 s, sent: 50 msg/s, received: 40 msg/s\n";
        assert_eq!(steady_rates(said), (40.0, 30.0));
    }

    #[test]
    fn the_last_latency_line_is_the_whole_runs() {
        let said = "confirm latency min/median/75th/95th/99th 1/2/3/4/5 µs\n\
                    id: a, confirm latency min/median/75th/95th/99th 100/2000/3/4/5000 µs\n";
        assert_eq!(confirm_latencies(said), (2.0, 5.0));
    }
}
