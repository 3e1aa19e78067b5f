//! `millrace work`: executes the jobs of queues, and looks after them.

mod doctor;
mod jobs;
mod run;
mod status;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use super::terminal;

const EXAMPLES: &str = "\
Examples:
  millrace work run --config work.toml
  millrace work send --url amqp://guest:guest@localhost --queue jobs --type welcome --body '{\"id\":1}'
  millrace work status
  millrace work replay --url amqp://guest:guest@localhost --queue jobs

A configuration for one queue whose jobs are posted to one endpoint:
  [source.jobs]
  kind = \"amqp\"
  url = \"amqp://guest:guest@localhost\"
  queue = \"jobs\"
  declare = true

  [target.hook]
  kind = \"webhook\"
  url = \"https://example.com/jobs\"

  [[pipeline]]
  name = \"mail\"
  source = \"jobs\"
  target = \"hook\"

docs/work.md lists every setting.";

/// The settings are wrong, or what was asked for cannot be looked at.
const EXIT_UNABLE: u8 = 2;

/// Execute the jobs of queues against webhooks, programs and phone push providers
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Execute jobs until you stop it; after that no job is left in memory
    Run(run::Args),
    /// Show the state of a running worker
    Status(status::Args),
    /// Watch a running worker: rates, jobs in flight, errors
    Top(status::TopArgs),
    /// Put dead jobs back into their queue
    Replay(jobs::ReplayArgs),
    /// Publish one job
    Send(Box<jobs::SendArgs>),
    /// Check a configuration, its brokers and its targets: what is wrong, and what you can do
    Doctor(doctor::Args),
}

/// The configuration file.
#[derive(clap::Args)]
struct File {
    /// The configuration file
    #[arg(
        long,
        short,
        value_name = "FILE",
        env = "MILLRACE_WORK_CONFIG",
        default_value = "work.toml"
    )]
    config: PathBuf,
}

/// Runs what the command line names.
pub(crate) fn run(args: Args) -> ExitCode {
    match args.command {
        Command::Run(args) => run::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => status::top(&args),
        Command::Replay(args) => jobs::replay(args),
        Command::Send(args) => jobs::send(*args),
        Command::Doctor(args) => doctor::run(&args),
    }
}

/// An error, as every command says it.
fn fail(why: &str) -> ExitCode {
    terminal::remark(&format!("millrace work: {why}"));
    ExitCode::FAILURE
}

/// An error before anything was done.
fn unable(why: &str) -> ExitCode {
    fail(why);
    ExitCode::from(EXIT_UNABLE)
}

/// Standard output; a reader that is gone ends the command without a word.
fn say(text: &str) {
    terminal::say(text);
}

/// Does it on a small runtime.
fn wait<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot start: {error}"))?.block_on(work)
}
