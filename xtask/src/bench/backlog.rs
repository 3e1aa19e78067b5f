//! `bench backlog`: a queue with millions of messages of 1 KB. How fast it fills, what memory it takes,
//! how long a restart takes, how fast it drains.

use std::fmt::Write;

use super::{Options, folder, port, report};
use crate::Outcome;
use crate::brokers::{Broker, Kind};
use crate::conformance::perftest;
use crate::process::{command, output, run_logged, target};

const QUEUE: &str = "backlog";

pub(super) fn measure(options: &Options) -> Outcome {
    let mut text = format!(
        "{}; {} messages of 1 KB in one durable queue, confirmed.\n\n\
         | broker | fill | RSS empty | RSS full | RSS restarted | restart | drain | disk full | disk drained |\n\
         | --- | --: | --: | --: | --: | --: | --: | --: | --: |\n",
        report::machine(),
        options.messages
    );
    for kind in &options.kinds {
        let row = measure_one(*kind, options.messages)?;
        println!("{row}");
        let _ = writeln!(text, "{row}");
    }
    println!("\n{text}");
    let path = target().join("bench-backlog.md");
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn measure_one(kind: Kind, messages: u64) -> Result<String, String> {
    let (port, folder) = (port(kind), folder(kind));
    let broker = Broker::start(kind, &folder, port)?;
    let rss_empty = rss_mb(&broker)?;
    let count = messages.to_string();
    let fill = perftest(port, &["-x", "1", "-y", "0", "-c", "1000", "-C", &count], "sending")?;
    let (rss_full, disk_full) = (rss_mb(&broker)?, disk_mb(&folder)?);
    broker.stop()?;
    let broker = Broker::start_again(kind, &folder, port)?;
    let (restart_ms, rss_restarted) = (broker.started_in.as_millis(), rss_mb(&broker)?);
    let words = ["-x", "0", "-y", "1", "-q", "1000", "-A", "100", "-D", &count];
    let drain = perftest(port, &words, "receiving")?;
    broker.stop()?;
    Ok(format!(
        "| {} | {fill} msg/s | {rss_empty} MB | {rss_full} MB | {rss_restarted} MB | {restart_ms} ms \
         | {drain} msg/s | {disk_full} MB | {} MB |",
        kind.name(),
        disk_mb(&folder)?
    ))
}

fn perftest(port: u16, words: &[&str], what: &str) -> Result<u64, String> {
    let log = target().join("bench").join("backlog.txt");
    let _ = std::fs::remove_file(&log);
    let java = perftest::java();
    let mut perftest = command(&java[0], &[]);
    perftest.args(&java[1..]).arg("--uri").arg(format!("amqp://guest:guest@127.0.0.1:{port}"));
    perftest.args(["-f", "persistent", "-ad", "false", "-s", "1024", "-u", QUEUE]).args(words);
    run_logged(&mut perftest, &log)?;
    let said = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
    perftest::rate(&said, &format!("{what} rate avg: ")).ok_or("PerfTest told no rate".into())
}

fn rss_mb(broker: &Broker) -> Result<u64, String> {
    Ok(super::usage::of(broker.pid())?.rss_bytes >> 20)
}

fn disk_mb(folder: &std::path::Path) -> Result<u64, String> {
    let said = output(command("du", &["-sm"]).arg(folder))?;
    Ok(said.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0))
}
