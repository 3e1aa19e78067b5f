//! `millrace relay inbox`: a queue into a table, once for each message-id.
#![allow(clippy::disallowed_methods, reason = "starts the inbox and waits for signals")]

use std::io::IsTerminal as _;
use std::process::ExitCode;

use client::Url;
use relay::TableName;
use relay::inbox::{Config, Counts, Statements};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::screen;

const EXAMPLES: &str = "\
Examples:
  millrace relay inbox --database postgres://app@localhost/shop --url amqp://guest:guest@localhost \\
      --queue billing --consumer billing --install
      makes inbox_messages if need be, and moves the queue's messages into it until it is stopped
  millrace relay inbox --table inbox_messages --print-sql
      shows the table's SQL for your own migrations

A message is acknowledged after the commit of its row. Messages that are delivered again are recognised by
their message-id and stored once for each --consumer. docs/inbox.md says how to process the rows.";

/// Move a queue's messages into a table: each message-id once, acknowledged after the commit
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database: postgres://user:password@host:5432/name?sslmode=verify-full&sslrootcert=FILE
    #[arg(
        long,
        env = "DATABASE_URL",
        value_name = "URL",
        hide_env_values = true,
        required_unless_present = "print_sql"
    )]
    database: Option<String>,
    /// The broker: amqp://user:password@host:port/vhost, or amqps:// with cacertfile=FILE
    #[arg(
        long,
        env = "AMQP_URL",
        value_name = "URL",
        hide_env_values = true,
        default_value = "amqp://guest:guest@localhost:5672/%2F"
    )]
    url: String,
    /// The queue, which must be there
    #[arg(long, short, value_name = "NAME", required_unless_present = "print_sql")]
    queue: Option<String>,
    /// Who takes the messages: each consumer has its own rows in the table
    #[arg(long, value_name = "NAME", required_unless_present = "print_sql")]
    consumer: Option<String>,
    /// The inbox table, with its schema if need be
    #[arg(long, value_name = "TABLE", default_value = "inbox_messages")]
    table: TableName,
    /// Rows of one transaction at most, 1 to 10,000
    #[arg(long, value_name = "N", default_value_t = 500)]
    batch: u32,
    /// Messages that may be here and not committed, which bounds the memory [default: 4 batches]
    #[arg(long, value_name = "N")]
    prefetch: Option<u16>,
    /// Make the table if it is not there
    #[arg(long)]
    install: bool,
    /// Share the queue with other consumers, which loses the order; without this a second inbox stands by
    #[arg(long)]
    shared: bool,
    /// Print the SQL that --install runs, and exit
    #[arg(long)]
    print_sql: bool,
    /// What to log, as RUST_LOG has it
    #[arg(long, value_name = "FILTER", env = "MILLRACE_LOG", default_value = "info")]
    log: String,
}

/// Runs until a signal, or until it cannot go on.
#[expect(clippy::print_stdout, reason = "--print-sql is for standard output")]
pub(crate) fn run(args: Args) -> ExitCode {
    if args.print_sql {
        println!("{}", Statements::new(&args.table).install);
        return ExitCode::SUCCESS;
    }
    let filter = tracing_subscriber::EnvFilter::new(&args.log);
    // Colours are for eyes, not for files.
    let has_colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(has_colours);
    log.with_writer(std::io::stderr).init();
    let config = match config(args) {
        Ok(config) => config,
        Err(why) => return screen::fail(&why),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(take(config)),
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match result {
        Ok(counts) => {
            let Counts { stored, duplicates, without_id, flawed, batches } = counts;
            tracing::info!(stored, duplicates, without_id, flawed, batches, "ended");
            ExitCode::SUCCESS
        }
        Err(why) => screen::fail(&why),
    }
}

fn config(args: Args) -> Result<Config, String> {
    // Read here and not by clap, which would repeat the password of a bad one.
    let url: Url = args.url.parse().map_err(|error| format!("--url: {error}"))?;
    let (database, queue) = (args.database.unwrap_or_default(), args.queue.unwrap_or_default());
    let config = Config::new(&database, url, &queue, &args.consumer.unwrap_or_default());
    let prefetch = args.prefetch.unwrap_or(Config::prefetch_for(args.batch));
    let config = Config { table: args.table, batch: args.batch, prefetch, ..config };
    let config = Config { install: args.install, shared: args.shared, ..config };
    match config.problems().as_slice() {
        [] => Ok(config),
        problems => Err(format!("The settings are wrong:\n  {}", problems.join("\n  "))),
    }
}

async fn take(config: Config) -> Result<Counts, String> {
    let (stop, stopped) = watch::channel(false);
    let inbox = relay::io::run_inbox(config, stopped);
    let signals = async {
        let (Ok(mut term), Ok(mut int)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = term.recv() => (),
            _ = int.recv() => (),
        }
        stop.send_replace(true);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = inbox => ended.map_err(|error| error.to_string()),
        () = signals => unreachable!("signals only ask for the end"),
    }
}
