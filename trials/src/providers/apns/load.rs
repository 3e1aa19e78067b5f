//! `trials apns-load`: pushes to a local APNs through the worker's target as fast as they go, without a queue.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use worker::io::target::apns::Apns;
use worker::io::target::{Run, Target};
use worker::target::apns::Settings;
use worker::{Message, Outcome};

/// Device tokens that pushes go to.
const DEVICES: u64 = 100_000;

#[derive(Args, Clone, Debug)]
pub struct LoadOptions {
    /// The settings that `apns-server` wrote
    #[arg(long, default_value = "target/apns/target.toml")]
    target: PathBuf,
    /// Pushes under way at a time
    #[arg(long, default_value_t = 2500)]
    concurrency: u64,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// Pushes, and says how many per second and per CPU second.
///
/// # Errors
/// The settings cannot be used, or a push was not accepted.
pub fn run(options: &LoadOptions) -> Result<bool, String> {
    let text = std::fs::read_to_string(&options.target).map_err(|error| error.to_string())?;
    let settings: Settings = toml::from_str(&text).map_err(|error| error.to_string())?;
    let target = Arc::new(Apns::new(&settings).map_err(|error| error.to_string())?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.threads)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        // Before the measure: connections, and the credentials.
        push_all(&target, options.concurrency, Duration::from_secs(1)).await?;
        let (began, cpu) = (Instant::now(), cpu());
        let seconds = Duration::from_secs(options.seconds);
        let count = push_all(&target, options.concurrency, seconds).await?;
        let (took, used) = (began.elapsed().as_secs_f64(), (self::cpu() - cpu).as_secs_f64());
        println!(
            "{count} pushes in {took:.1} s: {:.0}/s, {:.1} µs of CPU per push, {:.0} per CPU second",
            count as f64 / took,
            used * 1e6 / count as f64,
            count as f64 / used,
        );
        Ok(true)
    })
}

async fn push_all(target: &Arc<Apns>, concurrency: u64, time: Duration) -> Result<u64, String> {
    let until = Instant::now() + time;
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..concurrency {
        let (target, next) = (Arc::clone(target), Arc::clone(&next));
        tasks.spawn(async move {
            let mut count = 0_u64;
            while Instant::now() < until {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let jobs = vec![job(number)];
                let deadline = Instant::now() + Duration::from_secs(30);
                let outcomes = Arc::clone(&target).run(Run { jobs, deadline }).await;
                match &outcomes[..] {
                    [Outcome::Done { .. }] => count += 1,
                    other => return Err(format!("{other:?}")),
                }
            }
            Ok(count)
        });
    }
    let mut all = 0;
    while let Some(count) = tasks.join_next().await {
        all += count.map_err(|error| error.to_string())??;
    }
    Ok(all)
}

fn job(number: u64) -> Message {
    let body = format!(
        r#"{{"token":"{:064x}","priority":10,"payload":{{"aps":{{"alert":{{"title":"Order {number}","body":"Your parcel is on its way and arrives today between two and four."}},"sound":"default","badge":1}},"order":"{number:016}"}}}}"#,
        number % DEVICES,
    );
    Message {
        id: format!("order-{number}"),
        body: Bytes::from(body),
        attempt: 1,
        ..Message::default()
    }
}

/// CPU time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
