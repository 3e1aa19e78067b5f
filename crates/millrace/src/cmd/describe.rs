//! `millrace describe`: what a running node, its queues and its clients are doing.

use std::path::PathBuf;
use std::process::ExitCode;

use super::terminal;
use crate::control::{self, Answer, Described, Request, What};

/// What `millrace describe` takes.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
A queue grows, and nobody knows why. Who consumes from it, and who holds its messages?
  millrace describe queue orders
Consumer 3 of connection 1-17 holds 200 of them. Who is that, and which channel is it on?
  millrace describe connection 1-17
  millrace describe channel 1-17 1
One consumer of many:
  millrace describe consumer 1-17 1 worker-3
The connections of this node, a hundred at a time:
  millrace describe connections --limit 100
  millrace describe connections --limit 100 --after 1-204
For a program, one line of JSON:
  millrace describe node --json

Every command asks a running node on this machine, through the socket in its data directory. A queue's leader is
asked wherever it is. Connections are those of the node that is asked: 1-17 is the 17th of node 1 since it started."
)]
pub(crate) struct Args {
    /// Data directory of a running node on this machine
    #[arg(
        long,
        value_name = "DIR",
        default_value = "millrace-data",
        env = "MILLRACE_DATA_DIR",
        global = true
    )]
    data_dir: PathBuf,
    /// Print one line of JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

/// Asks, and prints what is answered.
pub(crate) fn run(args: Args) -> ExitCode {
    let Args { data_dir, json, what } = args;
    match described(&data_dir, what)
        .and_then(|it| if json { it.json() } else { Ok(it.to_string()) })
    {
        Ok(text) if terminal::say(&text) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            terminal::remark(&format!("millrace: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn described(data_dir: &std::path::Path, what: What) -> Result<Described, String> {
    match control::ask(data_dir, &Request::Describe { what }, |_| {})? {
        Answer::Described(described) => Ok(described),
        Answer::Refused(why) => Err(why),
        Answer::Status(_) | Answer::Progress(_) | Answer::Done(_) => {
            Err("The node's answer is not a description. Use a `millrace` of the same version as the node".to_owned())
        }
    }
}
