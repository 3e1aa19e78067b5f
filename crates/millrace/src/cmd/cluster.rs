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
Found a cluster of three nodes; every node gets the same list:
  millrace serve --node-id 1 --peers 1=10.0.0.1:7000,2=10.0.0.2:7000,3=10.0.0.3:7000
Nodes on several machines need a shared secret, the same file on each:
  millrace cluster token --new > secret
  millrace serve ... --set cluster_secret_file=secret
Add a fourth node:
  millrace cluster add 4 10.0.0.4:7000
  millrace cluster token > secret
  (on 10.0.0.4, with that file) millrace serve --node-id 4 --peer-listen 10.0.0.4:7000 \\
    --join 10.0.0.1:7000 --set cluster_secret_file=secret
A majority of the nodes is lost for good (read the help of rescue first):
  millrace cluster rescue --help
Replace node 2, which lost its disk, by node 4:
  millrace cluster replace 2 4
  (on its machine, with an empty data directory) millrace serve --node-id 4 ... --join 10.0.0.1:7000

Every command asks a running node on this machine, through the socket in its data directory. Only token and
rescue read the directory itself."
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
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show nodes and groups: which nodes are up, which lead, which are behind
    Status {
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the cluster's secret; a node needs it to join
    Token {
        /// Make a new secret, for a cluster that you are about to found
        #[arg(long)]
        new: bool,
    },
    /// Allow a node to join. It gets its share of the groups after you start it with --join
    Add {
        /// Number of the new node, unused in this cluster
        node: u64,
        /// ADDR:PORT where the other nodes reach its peer port
        address: String,
    },
    /// Remove a node for good, after its groups have moved to other nodes
    Remove {
        /// Number of the node
        node: u64,
    },
    /// Replace a node whose disk is lost; prints how to start the new node
    Replace {
        /// Number of the lost node; it is never used again
        node: u64,
        /// Number of the new node, never used before
        by: u64,
    },
    /// Spread groups and leaders evenly over the nodes that are up
    Rebalance,
    /// Set the number of replicas of queues: 3 (survives the loss of one node) or 5 (of two)
    Replicas {
        /// Number of replicas: 3 or 5
        count: usize,
        /// Give 5 replicas to only so many groups of each node, and 3 to the others. A queue that is declared with
        /// x-quorum-initial-group-size 5 goes into a group that has 5
        #[arg(long, value_name = "COUNT")]
        groups: Option<u32>,
    },
    /// Raise the cluster's version now. The cluster raises it by itself when all nodes are upgraded and up
    Raise {
        /// Raise it even if nodes are unreachable. A node that is too old then stops until you upgrade it
        #[arg(long)]
        force: bool,
    },
    /// Recover from the permanent loss of a majority, from the data of this stopped node
    Rescue(rescue::Args),
    /// Move leaders and replicas away from a node before you stop it for long
    Drain {
        /// Number of the node
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
        Command::Replicas { count, groups } => Request::Replicas { count, groups },
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
        Ok(Answer::Described(described)) => Ok(described.to_string()),
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
