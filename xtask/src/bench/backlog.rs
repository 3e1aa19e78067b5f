//! `bench backlog`: a queue with millions of messages of 1 KB. How fast it fills, what memory it takes,
//! how long a restart takes, how fast it drains.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::generator::millrace;
use super::{Options, folder, port, report};
use crate::Outcome;
use crate::brokers::{Broker, Kind};
use crate::json::number;
use crate::process::{command, output, target};

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
    let fill_words = ["--consumers", "0", "--window", "1000", "--count", &count];
    let fill = rate(millrace(port, broker.pid()).args(fill_words), "confirm_rate")?;
    let (rss_full, disk_full) = (rss_mb(&broker)?, disk_mb(&folder)?);
    broker.stop()?;
    let broker = Broker::start_again(kind, &folder, port)?;
    let (restart_ms, rss_restarted) = (broker.started_in.as_millis(), rss_mb(&broker)?);
    let drain_words = ["--publishers", "0", "--ack-every", "100", "--count", &count];
    let drain = rate(millrace(port, broker.pid()).args(drain_words), "consume_rate")?;
    broker.stop()?;
    Ok(format!(
        "| {} | {fill} msg/s | {rss_empty} MB | {rss_full} MB | {rss_restarted} MB | {restart_ms} ms \
         | {drain} msg/s | {disk_full} MB | {} MB |",
        kind.name(),
        disk_mb(&folder)?
    ))
}

fn rate(bench: &mut Command, name: &str) -> Result<u64, String> {
    let said = output(bench.args(["--size", "1024", "--queue-prefix", QUEUE]))?;
    number(&said, &[name]).map(|rate| rate as u64).ok_or(format!("no {name} in {said}"))
}

fn rss_mb(broker: &Broker) -> Result<u64, String> {
    Ok(super::usage::of(broker.pid())?.rss_bytes >> 20)
}

fn disk_mb(folder: &Path) -> Result<u64, String> {
    let said = output(command("du", &["-sm"]).arg(folder))?;
    Ok(said.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0))
}
