//! `millrace relay`: what drains an outbox, and what looks after it.

mod inbox;
mod options;
mod run;
mod screen;

use std::process::ExitCode;

use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  millrace relay run --database postgres://app@localhost/shop --url amqp://guest:guest@localhost
      drains the table outbox_messages(id, type, content, occurred_on_utc, processed_on_utc, error)
      into queues named by `type`
  millrace relay run --config relay.toml --exchange events --routing-key '{type}' --order key --key-column tenant
  millrace relay run --preset debezium --source wal";

/// Drain a PostgreSQL outbox table into a broker, and look after it
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Drain the outbox: every committed row is published and confirmed, at least once
    Run(Box<run::Args>),
    /// Move a queue's messages into a table: each message-id once, acknowledged after the commit
    Inbox(Box<inbox::Args>),
}

/// Runs what the command line names.
pub(crate) fn run(args: Args) -> ExitCode {
    match args.command {
        Command::Run(args) => run::run(*args),
        Command::Inbox(args) => inbox::run(*args),
    }
}
