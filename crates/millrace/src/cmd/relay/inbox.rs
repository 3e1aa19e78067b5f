//! `millrace relay inbox`: a queue into a table, once for each message-id.
#![allow(clippy::disallowed_methods, reason = "starts the inbox, and what serves its metrics")]

use std::path::PathBuf;
use std::process::ExitCode;

use client::Url;
use relay::inbox::{Config, Counts, Key, Metrics, OnRefused, install_sql};
use relay::{Order, TableName};

use super::options::secret;
use super::screen;
use crate::cmd::log::Log;
use crate::cmd::terminal;

const EXAMPLES: &str = "\
Examples:
  millrace relay inbox --database postgres://app@localhost/shop --url amqp://guest:guest@localhost \\
      --queue billing --consumer billing --install
      makes the table inbox_messages if it is missing, and moves the queue's messages into it until you stop the command
  millrace relay inbox --database mysql://app:PASSWORD@localhost/shop --url amqp://guest:guest@localhost \\
      --queue billing --consumer billing --install
      does the same for MariaDB and MySQL
  millrace relay inbox --table inbox_messages --print-sql
      shows the table's SQL for your own migrations; with --database mariadb://... or mysql://... theirs

A message is acknowledged after the commit of its row. Messages that are delivered again are recognised by
their message-id and stored once for each --consumer. docs/inbox.md says how to process the rows.";

/// Move a queue's messages into a table: each message-id once, acknowledged after the commit
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database: postgres://user:password@host:5432/name?sslmode=verify-full&sslrootcert=FILE, or mysql://... or
    /// mariadb://...
    #[arg(
        long,
        env = "DATABASE_URL",
        value_name = "URL",
        hide_env_values = true,
        required_unless_present_any = ["print_sql", "database_file"]
    )]
    database: Option<String>,
    /// File that holds the database's URL and nothing else, such as a mounted secret
    #[arg(long, env = "DATABASE_URL_FILE", value_name = "FILE")]
    database_file: Option<PathBuf>,
    /// The broker: amqp://user:password@host:port/vhost, or amqps:// with cacertfile=FILE
    /// [default: amqp://guest:guest@localhost:5672/%2F]
    #[arg(long, env = "AMQP_URL", value_name = "URL", hide_env_values = true)]
    url: Option<String>,
    /// File that holds the broker's URL and nothing else
    #[arg(long, env = "AMQP_URL_FILE", value_name = "FILE")]
    url_file: Option<PathBuf>,
    /// Name of the queue, which must exist
    #[arg(long, short, value_name = "NAME", required_unless_present = "print_sql")]
    queue: Option<String>,
    /// Name of the consumer: each consumer has its own rows in the table
    #[arg(long, value_name = "NAME", required_unless_present = "print_sql")]
    consumer: Option<String>,
    /// The inbox table: TABLE or SCHEMA.TABLE
    #[arg(long, value_name = "TABLE", default_value = "inbox_messages")]
    table: TableName,
    /// Maximum number of rows per transaction, 1 to 10,000
    #[arg(long, value_name = "N", default_value_t = 500)]
    batch: u32,
    /// Number of connections to the database that store at the same time, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: u32,
    /// What must not overtake what where there are several workers
    #[arg(long, value_name = "ORDER", value_enum, default_value = "key")]
    order: Ordered,
    /// What of a message is its key: routing-key, correlation-id or header:NAME. The column `key` has it
    #[arg(long, value_name = "KEY", default_value = "routing-key")]
    key: Key,
    /// Maximum number of messages in memory that are not committed yet [default: 4 batches for each worker]
    #[arg(long, value_name = "N")]
    prefetch: Option<u16>,
    /// Make the table if it is missing
    #[arg(long)]
    install: bool,
    /// Share the queue with other consumers, which loses the order. Without this option a second inbox waits until the
    /// first one ends
    #[arg(long)]
    shared: bool,
    /// What to do with a message that the table refuses (a check, a trigger), even in its simplest form
    #[arg(long, value_name = "WHAT", value_enum, default_value = "wait")]
    on_refused: Refused,
    /// Serve /metrics (Prometheus), /health and /ready on this address: 127.0.0.1:9188
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    /// Print the SQL that --install runs, and exit
    #[arg(long)]
    print_sql: bool,
    #[command(flatten)]
    log: Log,
}

/// What becomes of a refused message.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Refused {
    /// Try the message again until the table takes it; later messages wait
    Wait,
    /// Reject the message (basic.reject without requeue): the broker dead-letters it. A queue without a dead-letter
    /// exchange DROPS it
    Reject,
}

/// What must not overtake what.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Ordered {
    /// Messages have no order: whichever worker is free stores the next one
    None,
    /// Messages of one key are stored in their order, by one worker
    Key,
    /// All messages are stored in their order, by one worker
    Strict,
}

/// Runs until a signal, or until it cannot go on.
pub(crate) fn run(args: Args) -> ExitCode {
    if args.print_sql {
        let database = secret(args.database.as_deref(), args.database_file.as_deref());
        return match database {
            Ok(database) => {
                terminal::say(&install_sql(&database.unwrap_or_default(), &args.table));
                ExitCode::SUCCESS
            }
            Err(why) => screen::fail(&why),
        };
    }
    args.log.begin();
    let metrics = args.metrics.clone();
    let config = match config(args) {
        Ok(config) => config,
        Err(why) => return screen::fail(&why),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(take(config, metrics.as_deref())),
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match result {
        Ok(counts) => {
            let Counts { stored, duplicates, without_id, flawed, rejected, batches } = counts;
            tracing::info!(stored, duplicates, without_id, flawed, rejected, batches, "ended");
            ExitCode::SUCCESS
        }
        Err(why) => screen::fail(&why),
    }
}

fn config(args: Args) -> Result<Config, String> {
    // Read here and not by clap, which would repeat the password of a bad one.
    let url = secret(args.url.as_deref(), args.url_file.as_deref())?;
    let url = url.as_deref().unwrap_or("amqp://guest:guest@localhost:5672/%2F");
    let url: Url = url.parse().map_err(|error| format!("--url: {error}"))?;
    let database = secret(args.database.as_deref(), args.database_file.as_deref())?;
    let database = database.unwrap_or_default();
    let queue = args.queue.unwrap_or_default();
    let config = Config::new(&database, url, &queue, &args.consumer.unwrap_or_default());
    let prefetch = args.prefetch.unwrap_or(Config::prefetch_for(args.batch, args.workers));
    let config = Config { table: args.table, batch: args.batch, prefetch, ..config };
    let on_refused = match args.on_refused {
        Refused::Wait => OnRefused::Wait,
        Refused::Reject => OnRefused::Reject,
    };
    let config = Config { install: args.install, shared: args.shared, on_refused, ..config };
    let order = match args.order {
        Ordered::None => Order::None,
        Ordered::Key => Order::Key,
        Ordered::Strict => Order::Strict,
    };
    let config = Config { workers: args.workers, order, key: args.key, ..config };
    match config.problems().as_slice() {
        [] => Ok(config),
        problems => Err(format!("The settings are wrong:\n  {}", problems.join("\n  "))),
    }
}

async fn take(config: Config, address: Option<&str>) -> Result<Counts, String> {
    let metrics = Metrics::default();
    if let Some(address) = address {
        let listener = service::io::http::bind(address).await;
        let listener = listener.map_err(|error| format!("--metrics {address}: {error}"))?;
        tokio::spawn(service::io::http::serve(listener, metrics.clone()));
        tokio::spawn(relay::io::watch_queue(config.clone(), metrics.clone()));
    }
    let stop = service::io::stop::on_signals(
        "the inbox first stores and acknowledges the messages that it holds",
    );
    let ended = relay::io::run_inbox(config, metrics, stop).await;
    ended.map_err(|error| error.to_string())
}
