//! `trials mns-server`: the local MNS as a program of its own, for measurements.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;

use super::{Call, MnsServer, Options};

/// How it is started.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// The port on 127.0.0.1
    #[arg(long, default_value_t = 18_080)]
    port: u16,
    /// Queues to make
    #[arg(long, default_value = "jobs,dead", value_delimiter = ',')]
    queues: Vec<String>,
    /// Messages to put into the first queue, each of 100 bytes
    #[arg(long, default_value_t = 0)]
    messages: u64,
    /// Seconds that a received message is invisible
    #[arg(long, default_value_t = 300)]
    visibility: u64,
    /// Milliseconds that a receive call costs
    #[arg(long, default_value_t = 0)]
    receive_ms: u64,
    /// Milliseconds that a delete call costs
    #[arg(long, default_value_t = 0)]
    delete_ms: u64,
    /// Milliseconds that any other call costs
    #[arg(long, default_value_t = 0)]
    other_ms: u64,
    /// Long polls at the same time
    #[arg(long, default_value_t = 64)]
    polls: usize,
    /// Calls per second; none: any number
    #[arg(long)]
    qps: Option<u32>,
}

/// Serves until it is ended.
///
/// # Errors
/// The port is taken.
pub fn run(settings: &Settings) -> std::io::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(serve(settings))
}

async fn serve(settings: &Settings) -> std::io::Result<()> {
    let ms = Duration::from_millis;
    let latency = BTreeMap::from([
        (Call::Receive, ms(settings.receive_ms)),
        (Call::Delete, ms(settings.delete_ms)),
        (Call::Send, ms(settings.other_ms)),
        (Call::Visibility, ms(settings.other_ms)),
    ]);
    let latency = latency.into_iter().filter(|(_, time)| !time.is_zero()).collect();
    let options =
        Options { latency, polls_max: settings.polls, qps_max: settings.qps, ..Options::default() };
    let server = MnsServer::start(options, settings.port).await?;
    for queue in &settings.queues {
        server.create(queue, Duration::from_secs(settings.visibility));
    }
    if let Some(queue) = settings.queues.first() {
        for number in 0..settings.messages {
            server.put(queue, &format!("{number:0>100}"));
        }
    }
    std::future::pending().await
}
