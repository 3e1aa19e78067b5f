//! `millrace relay purge`: old rows go, in short transactions; rows that were not published stay.
#![allow(clippy::disallowed_methods, reason = "tells how far it is, once a second")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use relay::Order;
use relay::admin::purge::{Purge, Scope};
use relay::io::admin::Purged;

use super::options::{File, Options};
use super::session::{remark, say, with};

const EXAMPLES: &str = "\
Examples:
  millrace relay purge --older-than 7d                    published rows of the outbox
  millrace relay purge --older-than 7d --max-rate 20000   slower, for a database that has other work
  millrace relay purge --older-than 30d --drop-partitions whole partitions: at once, whatever they hold
  millrace relay purge --archived --older-than 90d        rows of TABLE_archive
  millrace relay purge --dead --older-than 30d            rows that nobody will replay any more

Every transaction deletes at most --rows rows; each names the condition (published, and old) itself, so a row that
is not published cannot go. It may run beside relays and writers, and be stopped at any time.";

/// Delete old published rows, in short transactions; or drop whole partitions
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    file: File,
    /// Published (archived, dead) for longer than this: 90s, 15m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = service::duration)]
    older_than: Duration,
    /// Rows of the archive instead
    #[arg(long)]
    archived: bool,
    /// Dead rows instead, with what is known of their failure: they cannot be replayed any more
    #[arg(long, conflicts_with = "archived")]
    dead: bool,
    /// Drop partitions that end before then and hold nothing else
    #[arg(long, conflicts_with_all = ["archived", "dead"])]
    drop_partitions: bool,
    /// Rows of one transaction, 1 to 100,000
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rows: u32,
    /// Between two transactions
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = service::duration)]
    pause: Duration,
    /// Rows per second at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_rate: Option<u32>,
}

/// Deletes or drops, and tells how far it is.
pub(crate) fn run(args: Args) -> ExitCode {
    let scope = match (args.archived, args.dead) {
        (true, _) => Scope::Archived,
        (false, true) => Scope::Dead,
        (false, false) => Scope::Processed,
    };
    let purge = Purge {
        scope,
        older_than: args.older_than,
        batch: args.rows,
        pause: args.pause,
        rate_max: args.max_rate,
    };
    with(&args.options, &args.file, async |client, config| {
        let begun = Instant::now();
        let mut told = begun;
        let tell = |done: &Purged| {
            if told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                remark(&progress(done, begun.elapsed()));
            }
        };
        let done = match args.drop_partitions {
            true => relay::io::admin::drop_partitions(client, &config, &purge, tell).await,
            false => relay::io::admin::purge(client, &config, &purge, tell).await,
        };
        let done = done.map_err(|error| error.to_string())?;
        if args.drop_partitions {
            done.partitions.iter().for_each(|name| say(&format!("{name} is dropped")));
            done.kept.iter().for_each(|(name, why)| say(&format!("{name} stays: {why}")));
            say(&format!(
                "{} partitions dropped, {} old ones stay",
                done.partitions.len(),
                done.kept.len()
            ));
        } else {
            say(&format!("{} rows deleted in {:.1} s", done.rows, begun.elapsed().as_secs_f64()));
            match (done.keys, config.order) {
                (0, _) => (),
                (_, Order::Strict) => say("what waited behind them goes on"),
                (1, _) => say("1 key that waited for them goes on"),
                (keys, _) => say(&format!("{keys} keys that waited for them go on")),
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn progress(done: &Purged, time: Duration) -> String {
    let rate = done.rows as f64 / time.as_secs_f64().max(0.001);
    let (walked, all) = done.blocks;
    let percent = (walked * 100).checked_div(all);
    let part = percent.map_or(String::new(), |percent| format!(", {percent} % of the table"));
    format!("{} rows deleted, {rate:.0}/s{part}", done.rows)
}
