//! `millrace dev`: a cluster on this machine, for development.
//!
//! ```text
//!   ports free? ──> directory ──> nodes started ──each says its first line──> ready ──Ctrl-C──> stopping ──> ended
//!                                      └── one ends by itself, and the others are no majority ──^
//! ```
//!
//! Each node is `millrace serve` with options: nothing here is in the way of a message.
#![allow(clippy::disallowed_methods, reason = "a shell: looks at ports, and waits")]

mod directory;
mod node;
mod plan;
mod ports;
mod words;

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::mpsc;

use super::terminal;
use directory::{Directory, Kept};
use node::{Node, Said};
use plan::{NODES_MAX, Plan};
use ports::Ports;
use words::Voice;

/// Where node 1 listens for the others if nobody says otherwise: RabbitMQ's port between nodes.
const PEER_PORT: u16 = 25672;

/// After this time, and again each time, it is told which nodes are not ready.
const LONG: Duration = Duration::from_secs(30);

/// How long nodes may take to stop. A node itself takes five seconds at most.
const STOPPING: Duration = Duration::from_secs(15);

/// Exit codes, beside 0.
const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// What `millrace dev` takes.
#[derive(clap::Args)]
#[command(after_help = "\
A broker to try things with, whose data goes when it ends:
  millrace dev
A cluster of three nodes, whose data stays:
  millrace dev --nodes 3 --directory cluster
For a program, which waits for the event `ready`:
  millrace dev --nodes 3 --json
Node N listens at the Nth port from each --...-port on, on 127.0.0.1 alone. If a node of three or more ends by itself,
the others go on, so that you can try what `kill -9` does. Exit code 0: you have ended it (Ctrl-C). 1: a node ended by
itself or did not start. 2: the command line is wrong, or a port is taken.")]
pub(crate) struct Args {
    /// Number of nodes, 1 to 7 [default: 1, or as many as the directory has]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    nodes: Option<u16>,
    /// Keep data and logs in this directory, and go on with what is there [default: a new one below the system's for
    /// temporary files, deleted at the end]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Port of node 1 for AMQP clients
    #[arg(long, value_name = "PORT", default_value_t = 5672)]
    amqp_port: u16,
    /// Port of node 1 for the HTTP API
    #[arg(long, value_name = "PORT", default_value_t = 15672)]
    http_port: u16,
    /// Port of node 1 for /metrics
    #[arg(long, value_name = "PORT", default_value_t = 15692)]
    metrics_port: u16,
    /// Port of node 1 for the other nodes; stays as it is while the directory is kept [default: 25672]
    #[arg(long, value_name = "PORT")]
    peer_port: Option<u16>,
    /// Set any setting of all nodes (repeatable): see `millrace serve --print-config`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print one JSON object a line for each thing that happens
    #[arg(long)]
    json: bool,
}

/// Why it could not begin, and the exit code.
struct Refusal(u8, String);

/// Runs the nodes until Ctrl-C.
pub(crate) fn run(args: Args) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ran = match runtime {
        // On this thread, which lives as long as the process: see `Node::start`.
        Ok(runtime) => runtime.block_on(dev(args)),
        Err(error) => Err(Refusal(FAILED, format!("cannot start: {error}"))),
    };
    match ran {
        Ok(code) => ExitCode::from(code),
        Err(Refusal(code, why)) => {
            terminal::remark(&format!("millrace: {why}"));
            ExitCode::from(code)
        }
    }
}

async fn dev(args: Args) -> Result<u8, Refusal> {
    let voice = Voice { is_json: args.json };
    // Before the first child, whose end is a signal, too.
    let ears = Ears::open()
        .map_err(|error| Refusal(FAILED, format!("cannot listen for signals: {error}")))?;
    let (directory, plan) = prepare(args)?;
    let is_kept = directory.is_kept;
    voice.starting(&plan, is_kept);
    let ran = Cluster::start(&plan, voice, is_kept, ears);
    let code = match ran {
        Ok(cluster) => Ok(cluster.run().await),
        Err(why) => Err(Refusal(FAILED, why)),
    };
    // No node is left: they end with the value that had them.
    if let Err(why) = directory.end() {
        terminal::remark(&format!("millrace: {why}"));
    }
    let code = code?;
    voice.stopped(&plan, is_kept, code);
    Ok(code)
}

/// What is to be started, and where: judged before anything is made.
fn prepare(args: Args) -> Result<(Directory, Plan), Refusal> {
    let usage = |why| Refusal(USAGE, why);
    let Args { nodes, directory, amqp_port, http_port, metrics_port, peer_port, set, .. } = args;
    let kept = directory.as_deref().map(Directory::look).transpose().map_err(usage)?.flatten();
    let kept = judge(kept, nodes, peer_port).map_err(usage)?;
    let Kept { nodes, peer_port: peers } = kept.wanted;
    let ports = Ports { amqp: amqp_port, http: http_port, metrics: metrics_port, peers };
    ports.check(nodes).map_err(usage)?;
    ports.must_be_free(nodes, !kept.is_known, is_free).map_err(usage)?;
    let failed = |why| Refusal(FAILED, why);
    let directory = Directory::make(directory.as_deref()).map_err(failed)?;
    directory.remember(kept.wanted).map_err(failed)?;
    let plan = Plan { nodes, ports, root: directory.root.clone(), settings: set };
    Ok((directory, plan))
}

/// How many nodes there are to be, and whether there is data of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Judged {
    wanted: Kept,
    is_known: bool,
}

/// What a directory holds goes before what is usual, and not together with something else.
fn judge(kept: Option<Kept>, nodes: Option<u16>, peer_port: Option<u16>) -> Result<Judged, String> {
    let Some(kept) = kept else {
        let wanted = Kept { nodes: nodes.unwrap_or(1), peer_port: peer_port.unwrap_or(PEER_PORT) };
        return Ok(Judged { wanted, is_known: false });
    };
    if nodes.is_some_and(|nodes| nodes != kept.nodes) {
        return Err(format!(
            "the directory holds {} node(s): leave --nodes out, or name another directory",
            kept.nodes
        ));
    }
    if peer_port.is_some_and(|port| port != kept.peer_port) {
        return Err(format!(
            "the nodes of the directory know each other by ports from {} on: leave --peer-port out, or name another \
             directory",
            kept.peer_port
        ));
    }
    Ok(Judged { wanted: kept, is_known: true })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Signals that end the command, and the one that says that a child has ended.
struct Ears {
    interrupt: Signals,
    terminate: Signals,
    hangup: Signals,
    child: Signals,
}

/// What is heard.
enum Heard {
    Stop,
    Child,
}

impl Ears {
    fn open() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            child: signal(SignalKind::child())?,
        })
    }

    async fn next(&mut self) -> Heard {
        tokio::select! {
            _ = self.interrupt.recv() => Heard::Stop,
            _ = self.terminate.recv() => Heard::Stop,
            _ = self.hangup.recv() => Heard::Stop,
            _ = self.child.recv() => Heard::Child,
        }
    }
}

/// The nodes that were started.
struct Cluster<'a> {
    plan: &'a Plan,
    voice: Voice,
    is_kept: bool,
    ears: Ears,
    nodes: Vec<Node>,
    said: mpsc::Receiver<Said>,
    is_ready: bool,
    /// A node has ended by itself.
    has_failed: bool,
}

impl<'a> Cluster<'a> {
    fn start(plan: &'a Plan, voice: Voice, is_kept: bool, ears: Ears) -> Result<Self, String> {
        let (say, said) = mpsc::channel(usize::from(NODES_MAX));
        let nodes: Result<Vec<Node>, String> =
            plan.numbers().map(|number| Node::start(plan, number, say.clone())).collect();
        let nodes = nodes?;
        Ok(Self { plan, voice, is_kept, ears, nodes, said, is_ready: false, has_failed: false })
    }

    /// Until it is told to stop, or cannot go on: the exit code. No node is left then.
    async fn run(mut self) -> u8 {
        loop {
            tokio::select! {
                // What a node said before it ended is heard first.
                biased;
                Some(said) = self.said.recv() => self.hear(said),
                heard = self.ears.next() => match heard {
                    Heard::Stop => break,
                    Heard::Child => if !self.survives() { break },
                },
                () = tokio::time::sleep(LONG), if !self.is_ready => {
                    self.voice.waiting(self.plan, &self.nodes);
                }
            }
        }
        self.voice.stopping();
        self.stop().await;
        if self.has_failed { FAILED } else { 0 }
    }

    fn hear(&mut self, Said { node: number, line }: Said) {
        let Some(node) = self.nodes.iter_mut().find(|node| node.number == number) else { return };
        let url = line.split_whitespace().find(|word| word.starts_with("amqp://"));
        node.url = url.map(str::to_owned);
        if node.url.is_none() {
            return;
        }
        self.voice.node_ready(number);
        if self.nodes.iter().all(|node| node.url.is_some()) {
            self.is_ready = true;
            self.voice.ready(self.plan, &self.nodes, self.is_kept);
        }
    }

    /// Tells of nodes that have ended. Whether the others can go on: all are ready, and most are there.
    fn survives(&mut self) -> bool {
        let ended: Vec<u16> = self
            .nodes
            .iter_mut()
            .filter_map(|node| node.has_just_ended().then_some(node.number))
            .collect();
        let left = self.nodes.iter().filter(|node| node.ended.is_none()).count();
        let goes_on = self.is_ready && left * 2 > self.nodes.len();
        let told = self.nodes.iter().filter(|node| ended.contains(&node.number));
        for (node, status) in told.filter_map(|node| node.ended.map(|status| (node, status))) {
            self.voice.node_ended(node, status, goes_on);
        }
        self.has_failed |= !ended.is_empty();
        goes_on || ended.is_empty()
    }

    /// Ends all nodes. Whoever does not end in time, or is not to be waited for, is killed.
    async fn stop(&mut self) {
        self.nodes.iter().for_each(|node| node.signal(Signal::TERM));
        let deadline = tokio::time::Instant::now() + STOPPING;
        let mut is_patient = true;
        loop {
            for node in &mut self.nodes {
                if node.has_just_ended() && is_patient && !node.ended.is_some_and(|it| it.success())
                {
                    self.has_failed = true;
                    if let Some(status) = node.ended {
                        self.voice.node_ended(node, status, false);
                    }
                }
            }
            if self.nodes.iter().all(|node| node.ended.is_some()) {
                return;
            }
            let is_over = tokio::select! {
                heard = self.ears.next() => matches!(heard, Heard::Stop),
                () = tokio::time::sleep_until(deadline), if is_patient => {
                    terminal::remark("millrace: the nodes do not stop in time; killing them, which loses nothing");
                    true
                }
            };
            if is_over {
                is_patient = false;
                self.nodes.iter().for_each(|node| node.signal(Signal::KILL));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Kept = Kept { nodes: 3, peer_port: 7001 };

    #[test]
    fn a_new_directory_gets_what_is_said_or_usual() {
        let usual = Judged { wanted: Kept { nodes: 1, peer_port: PEER_PORT }, is_known: false };
        assert_eq!(judge(None, None, None), Ok(usual));
        assert_eq!(judge(None, Some(3), Some(7001)).map(|it| it.wanted), Ok(KEPT));
    }

    #[test]
    fn a_directory_is_gone_on_with_as_it_is() {
        let same = Ok(Judged { wanted: KEPT, is_known: true });
        assert_eq!(judge(Some(KEPT), None, None), same);
        assert_eq!(judge(Some(KEPT), Some(3), Some(7001)), same);
        let told = judge(Some(KEPT), Some(5), None).unwrap_err();
        assert!(told.contains("holds 3 node(s)"), "{told}");
        let told = judge(Some(KEPT), None, Some(7002)).unwrap_err();
        assert!(told.contains("from 7001 on"), "{told}");
    }
}
