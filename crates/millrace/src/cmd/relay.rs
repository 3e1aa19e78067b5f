//! `millrace relay`: what drains an outbox, and what looks after it.

mod doctor;
mod inbox;
mod install;
mod options;
mod purge;
mod replay;
mod resync;
mod run;
mod screen;
mod session;
mod status;

use std::process::ExitCode;

use clap::Subcommand;
#[cfg(test)]
pub(crate) use options::RUN;

const EXAMPLES: &str = "\
Examples:
  millrace relay run --database postgres://app@localhost/shop --url amqp://guest:guest@localhost
      publishes the rows of outbox_messages(id, type, content, occurred_on_utc, processed_on_utc, error)
      to the queues that the column `type` names
  millrace relay run --config relay.toml --exchange events --routing-key '{type}' --order key --key-column tenant
  millrace relay run --preset debezium --source wal";

/// Publish the rows of an outbox table (PostgreSQL, MariaDB, MySQL) to a broker, and maintain the table
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Publish every committed row of the outbox, with confirms: at least once
    Run(Box<run::Args>),
    /// Make the outbox table, its index and the schema millrace, or check them
    Install(Box<install::Args>),
    /// Check the outbox and its database: what is wrong, and what you can do
    Doctor(Box<doctor::Args>),
    /// Show the state of the outbox: backlog, failures, blocked keys, relays, slots
    Status(Box<status::Args>),
    /// Publish rows again: dead ones, waiting ones now, or published ones
    Replay(Box<replay::Args>),
    /// Replace a lost replication slot, and publish the rows of the table again
    Resync(Box<resync::Args>),
    /// Delete old published rows, in short transactions; or drop whole partitions
    Purge(Box<purge::Args>),
    /// Move a queue's messages into a table: each message-id once, acknowledged after the commit
    Inbox(Box<inbox::Args>),
}

/// Runs what the command line names.
pub(crate) fn run(args: Args) -> ExitCode {
    match args.command {
        Command::Run(args) => run::run(*args),
        Command::Install(args) => install::run(*args),
        Command::Doctor(args) => doctor::run(*args),
        Command::Status(args) => status::run(*args),
        Command::Replay(args) => replay::run(*args),
        Command::Resync(args) => resync::run(*args),
        Command::Purge(args) => purge::run(*args),
        Command::Inbox(args) => inbox::run(*args),
    }
}
