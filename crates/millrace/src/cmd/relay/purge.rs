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
  millrace relay purge --older-than 30d --drop-partitions drops whole partitions, which takes no time per row
  millrace relay purge --archived --older-than 90d        rows of TABLE_archive
  millrace relay purge --dead --older-than 30d            rows that nobody will replay any more

A transaction deletes at most --rows rows. Each DELETE checks that the row is published and old, so an unpublished row
is never deleted. You can run the command beside relays and writers, and stop it at any time.";

/// Delete old published rows, in short transactions; or drop whole partitions
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    file: File,
    /// Delete rows that have been published (archived, dead) for longer than this: 90s, 15m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = service::duration)]
    older_than: Duration,
    /// Delete rows of the archive instead
    #[arg(long)]
    archived: bool,
    /// Delete dead rows instead, with their recorded failures: you cannot replay them any more
    #[arg(long, conflicts_with = "archived")]
    dead: bool,
    /// Drop partitions that end before that time and hold only such rows
    #[arg(long, conflicts_with_all = ["archived", "dead"])]
    drop_partitions: bool,
    /// Maximum number of rows per transaction, 1 to 100,000
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rows: u32,
    /// Pause between two transactions
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = service::duration)]
    pause: Duration,
    /// Maximum number of rows per second
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
    with(&args.options, &args.file, async |session, config| {
        let begun = Instant::now();
        let mut told = begun;
        let tell = |done: &Purged| {
            if told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                remark(&progress(done, begun.elapsed()));
            }
        };
        let done = match args.drop_partitions {
            true => session.drop_partitions(&config, &purge, tell).await,
            false => session.purge(&config, &purge, tell).await,
        };
        let done = done.map_err(|error| error.to_string())?;
        if args.drop_partitions {
            done.partitions.iter().for_each(|name| say(&format!("{name} dropped")));
            done.kept.iter().for_each(|(name, why)| say(&format!("{name} kept: {why}")));
            say(&format!(
                "{} partitions dropped, {} old partitions kept",
                done.partitions.len(),
                done.kept.len()
            ));
        } else {
            say(&format!("{} rows deleted in {:.1} s", done.rows, begun.elapsed().as_secs_f64()));
            match (done.keys, config.order) {
                (0, _) => (),
                (_, Order::Strict) => say("rows that waited behind them continue"),
                (1, _) => say("1 key that waited for them continues"),
                (keys, _) => say(&format!("{keys} keys that waited for them continue")),
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
