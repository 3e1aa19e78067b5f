//! `trials apns-server`: the server by itself, for benchmarks.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{ISSUER, KEY_ID, Options, Server};

/// A local APNs, until it is killed. Writes `ca.pem`, `key.p8` and `target.toml` for its clients.
#[derive(Args, Clone, Debug)]
pub struct ServerOptions {
    #[arg(long, default_value_t = 2197)]
    port: u16,
    /// How long an answer takes
    #[arg(long, default_value_t = 50)]
    latency_ms: u64,
    /// MAX_CONCURRENT_STREAMS
    #[arg(long, default_value_t = 1000)]
    streams: u32,
    /// Where the files for clients are written
    #[arg(long, default_value = "target/apns")]
    dir: PathBuf,
}

/// Serves on this thread alone.
///
/// # Errors
/// The port is taken, or the files cannot be written.
pub fn run(options: &ServerOptions) -> std::io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::start(Options {
            port: options.port,
            latency: Duration::from_millis(options.latency_ms),
            streams_max: options.streams,
            records: false,
            ..Options::default()
        })
        .await?;
        std::fs::create_dir_all(&options.dir)?;
        let dir = options.dir.canonicalize()?;
        std::fs::write(dir.join("ca.pem"), server.authority.certificate())?;
        std::fs::write(dir.join("key.p8"), &server.keys().private)?;
        let (url, dir) = (server.url(), dir.display().to_string());
        let target = format!(
            "server = \"{url}\"\nca = \"{dir}/ca.pem\"\nkey = \"file:{dir}/key.p8\"\n\
             key_id = \"{KEY_ID}\"\nteam_id = \"{ISSUER}\"\ntopic = \"com.example.app\"\n"
        );
        std::fs::write(options.dir.join("target.toml"), &target)?;
        println!("APNs listens at {url}; a client's settings:\n{target}");
        std::future::pending::<()>().await;
        Ok(true)
    })
}
