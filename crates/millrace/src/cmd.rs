//! The list of commands, and nothing else: each is its own file.

mod admin;
mod bench;
mod cluster;
mod consume;
mod describe;
mod dev;
mod doctor;
mod flags;
pub(crate) mod log;
mod mover;
mod publish;
mod relay;
mod replay;
mod restore;
mod serve;
mod terminal;
mod url;
mod work;

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(test)]
pub(crate) use self::relay::RUN as RELAY_RUN;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// A message broker in one binary: it speaks AMQP 0-9-1, and confirms a message once a majority has fsynced it.
#[derive(Parser)]
#[command(name = "millrace", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the broker: one node, or a member of a cluster. RabbitMQ clients (AMQP 0-9-1) can connect
    Serve(serve::Args),
    /// Run a broker of one or several nodes on this machine, for development
    Dev(dev::Args),
    /// Measure an AMQP 0-9-1 broker: rates, latencies, the server's CPU and memory
    Bench(Box<bench::Args>),
    /// Publish messages: lines of standard input, a file, or --body
    Publish(Box<publish::Args>),
    /// Check a data directory: what it holds, and whether it is damaged
    Doctor(doctor::Args),
    /// Publish the rows of an outbox table (PostgreSQL, MariaDB, MySQL) to a broker; check, repair and clean up the outbox
    Relay(relay::Args),
    /// Execute the jobs of queues: webhooks, programs, phone push; watch the worker, replay dead jobs
    Work(work::Args),
    /// Look into a running node: its queues, connections, channels and consumers, and the node itself
    Describe(describe::Args),
    /// Show and change a cluster: status, add, remove, replace, rebalance, drain, rescue
    Cluster(cluster::Args),
    /// Write the messages of a queue to standard output
    Consume(Box<consume::Args>),
    #[command(flatten)]
    Admin(admin::Command),
    /// Make the data directory of a new cluster from a backup
    Restore(restore::Args),
    /// Move the messages of queues to another broker, while applications go on
    Move(Box<mover::Args>),
}

/// Parses the command line and runs what it names.
pub(crate) fn run() -> ExitCode {
    let line = admin::translated(std::env::args_os());
    let is_check = line.get(1).is_some_and(|word| word == "check");
    match parsed(line) {
        Ok(cli) => start(cli.command),
        Err(error) => {
            // Nobody is left to tell if it cannot be printed.
            let _ = error.print();
            // Whoever watches a node takes a check's 2 for a node in trouble.
            let usage = if is_check { admin::CHECK_USAGE } else { 2 };
            ExitCode::from(if error.use_stderr() { usage } else { 0 })
        }
    }
}

fn parsed(line: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut command = admin::with_verbs(Cli::command());
    let mut matches = command.try_get_matches_from_mut(line)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn start(command: Command) -> ExitCode {
    match command {
        Command::Serve(args) => serve::run(args),
        Command::Dev(args) => dev::run(args),
        Command::Cluster(args) => cluster::run(args),
        Command::Describe(args) => describe::run(args),
        Command::Relay(args) => relay::run(args),
        Command::Work(args) => work::run(args),
        Command::Bench(args) => bench::run(*args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Publish(args) => publish::run(*args),
        Command::Consume(args) => consume::run(*args),
        Command::Admin(command) => admin::run(command, Cli::command),
        Command::Restore(args) => restore::run(&args),
        Command::Move(args) => mover::run(*args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        admin::with_verbs(Cli::command()).debug_assert();
    }
}
