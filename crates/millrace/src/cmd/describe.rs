//! `millrace describe`: what a running node, its queues and its clients are doing.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use super::terminal;
use crate::control::{self, Answer, Described, LINES, Request, What};

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
    #[arg(long, value_name = "DIR", default_value = "millrace-data", global = true)]
    data_dir: PathBuf,
    /// Print one line of JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Describe the node: version, addresses, connections, memory, disk, alarms, the groups it leads
    Node,
    /// List the queues of a vhost by name: messages, consumers, leader
    Queues {
        /// The vhost
        #[arg(long, value_name = "VHOST", default_value = "/")]
        vhost: String,
        /// List the queues whose names come after this one
        #[arg(long, value_name = "NAME")]
        after: Option<String>,
        /// Lines at most: 1 to 100
        #[arg(long, value_name = "COUNT", default_value_t = LINES, value_parser = lines)]
        limit: usize,
    },
    /// Describe a queue: messages, settings, where it is kept, who consumes from it
    Queue {
        /// The vhost
        #[arg(long, value_name = "VHOST", default_value = "/")]
        vhost: String,
        /// Name of the queue
        name: String,
    },
    /// List the node's AMQP connections, the oldest first
    Connections {
        /// List the connections that came after this one, for example 1-17
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// Lines at most: 1 to 100
        #[arg(long, value_name = "COUNT", default_value_t = LINES, value_parser = lines)]
        limit: usize,
    },
    /// Describe a connection and its channels
    Connection {
        /// The connection, for example 1-17
        id: String,
    },
    /// Describe a channel and its consumers
    Channel {
        /// The connection, for example 1-17
        id: String,
        /// Number of the channel
        number: u16,
    },
    /// Describe a consumer
    Consumer {
        /// The connection, for example 1-17
        id: String,
        /// Number of the channel
        channel: u16,
        /// The consumer tag
        tag: String,
    },
}

fn lines(text: &str) -> Result<usize, String> {
    let max = control::LINES_MAX;
    let count = text.parse().ok().filter(|count| (1..=max).contains(count));
    count.ok_or_else(|| format!("give a number from 1 to {max}"))
}

/// Asks, and prints what is answered.
pub(crate) fn run(args: Args) -> ExitCode {
    let Args { data_dir, json, command } = args;
    let what = match command {
        Command::Node => What::Node,
        Command::Queues { vhost, after, limit } => What::Queues { vhost, after, limit },
        Command::Queue { vhost, name } => What::Queue { vhost, name },
        Command::Connections { after, limit } => What::Connections { after, limit },
        Command::Connection { id } => What::Connection { id },
        Command::Channel { id, number } => What::Channel { id, number },
        Command::Consumer { id, channel, tag } => What::Consumer { id, channel, tag },
    };
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
            Err("The node's answer is not read: it describes nothing".to_owned())
        }
    }
}
