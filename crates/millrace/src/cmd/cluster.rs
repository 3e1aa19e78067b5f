//! `millrace cluster`: how the nodes stand, and who is one.

mod rescue;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use crate::control::{self, Answer, Request};

/// What `millrace cluster` takes.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Three nodes from nothing, the same list on each:
  millrace serve --node-id 1 --peers 1=10.0.0.1:7000,2=10.0.0.2:7000,3=10.0.0.3:7000
On several machines they need a secret, the same on each:
  millrace cluster token --new > secret
  millrace serve ... --set cluster_secret_file=secret
A fourth:
  millrace cluster add 4 10.0.0.4:7000
  millrace cluster token > secret
  (on 10.0.0.4, with that file) millrace serve --node-id 4 --peer-listen 10.0.0.4:7000 \\
    --join 10.0.0.1:7000 --set cluster_secret_file=secret
Most of the nodes are gone for good (read its help first):
  millrace cluster rescue --help
A node that lost its disk:
  millrace cluster replace 2 4
  (on its machine, with an empty data directory) millrace serve --node-id 4 ... --join 10.0.0.1:7000

Every command talks to a running node of this machine, through the socket in its data directory;
token and rescue read the directory itself."
)]
pub(crate) struct Args {
    /// The data directory of a running node of this machine
    #[arg(long, value_name = "DIR", default_value = "millrace-data", global = true)]
    data_dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show nodes and groups: who is up, who leads, who is behind
    Status {
        /// One line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the cluster's secret, which a node needs to join
    Token {
        /// A new one, for a cluster that is about to be founded
        #[arg(long)]
        new: bool,
    },
    /// Let a node join; nobody else may. It gets its share of the groups once it is started with --join
    Add {
        /// A number that no node has
        node: u64,
        /// Where the others reach its peer port: ADDR:PORT
        address: String,
    },
    /// Take a node out for good; its groups go to others first
    Remove {
        /// Its number
        node: u64,
    },
    /// Take a node out whose disk is lost, and say how to start the one that takes its place
    Replace {
        /// Its number, which is never given again
        node: u64,
        /// The new node's: one that no node ever had
        by: u64,
    },
    /// Spread groups and leaders evenly over the nodes that are up
    Rebalance,
    /// Set how many nodes keep each queue: 3, or 5, which may lose two of them
    Replicas {
        /// 3 or 5
        count: usize,
    },
    /// Let the cluster write what the newest version brings. It does so by itself once all nodes are upgraded and up
    Raise {
        /// Also while nodes cannot be reached. One that turns out too old stops, until it is upgraded
        #[arg(long)]
        force: bool,
    },
    /// When a majority is gone for good: go on with what this node, which must be stopped, has
    Rescue(rescue::Args),
    /// Move leaders and replicas away from a node, before it is stopped for long
    Drain {
        /// Its number
        node: u64,
    },
}

/// Asks, and prints what is answered.
pub(crate) fn run(args: Args) -> ExitCode {
    let mut is_json = false;
    let Args { data_dir, command } = args;
    let request = match command {
        Command::Token { new: true } => return print(Ok(cluster::new_secret())),
        Command::Token { new: false } => return print(cluster::kept_secret(&data_dir)),
        Command::Status { json } => {
            is_json = json;
            Request::Status
        }
        Command::Rescue(wish) => return rescue::run(&data_dir, &wish),
        Command::Add { node, address } => Request::Add { node, address },
        Command::Remove { node } => Request::Remove { node },
        Command::Replace { node, by } => Request::Replace { node, by },
        Command::Rebalance => Request::Rebalance,
        Command::Replicas { count } => Request::Replicas { count },
        Command::Drain { node } => Request::Drain { node },
        Command::Raise { force } => Request::Raise { force },
    };
    let progress = |words: &str| {
        // Nobody is left to tell if it is gone.
        let _ = writeln!(std::io::stderr(), "{words}");
    };
    let answered = match control::ask(&data_dir, &request, progress) {
        Ok(Answer::Status(status)) if is_json => {
            serde_json::to_string(&status).map_err(|error| error.to_string())
        }
        Ok(Answer::Status(status)) => Ok(status.to_string().trim_end().to_owned()),
        Ok(Answer::Done(said) | Answer::Progress(said)) => Ok(said),
        Ok(Answer::Refused(why)) | Err(why) => Err(why),
    };
    print(answered)
}

fn print(answered: Result<String, String>) -> ExitCode {
    // Nobody is left to tell if these are gone.
    match answered {
        Ok(said) => {
            let _ = writeln!(std::io::stdout(), "{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "millrace: {why}");
            ExitCode::FAILURE
        }
    }
}
