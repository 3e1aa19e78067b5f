//! `millrace serve`: the one place where the parts of the broker are wired.

use std::path::PathBuf;
use std::process::ExitCode;

/// What `millrace serve` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where messages are stored; made if it does not exist
    #[arg(long, value_name = "DIR", default_value = "millrace-data")]
    pub(crate) data_dir: PathBuf,
    /// Address and port for AMQP clients
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5672")]
    pub(crate) amqp: String,
}

/// Runs the broker until it is told to stop.
pub(crate) fn run(args: Args) -> ExitCode {
    let _ = (args.data_dir, args.amqp);
    ExitCode::FAILURE
}
