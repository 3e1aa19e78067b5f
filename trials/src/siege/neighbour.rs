//! A well-behaved client: it publishes a message every 10 ms, waits for each confirm, and comes back when it is cut off.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{Address, Connection, Options, QueueSpec};

const EVERY: Duration = Duration::from_millis(10);
const QUEUE: &str = "neighbour";

pub(super) struct Neighbour {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Beside>,
}

/// What it saw.
#[derive(Default)]
pub(super) struct Beside {
    /// Milliseconds from publish to answer, sorted.
    waits_ms: Vec<f64>,
    /// Connections that ended, or did not come about.
    cuts: u32,
}

impl Neighbour {
    pub(super) fn start(url: String) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = is_over.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let mut beside = Beside::default();
            if let Ok(runtime) = runtime {
                runtime.block_on(live(&url, &stop, &mut beside));
            }
            beside.waits_ms.sort_by(f64::total_cmp);
            beside
        });
        Self { is_over, thread }
    }

    pub(super) fn stop(self) -> Beside {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

async fn live(url: &str, is_over: &AtomicBool, beside: &mut Beside) {
    let Ok(url) = url.parse() else { return };
    let options = Options::named("neighbour").without_retry();
    while !is_over.load(Ordering::Relaxed) {
        if work(&url, &options, is_over, beside).await.is_err() {
            beside.cuts += 1;
            tokio::time::sleep(EVERY).await;
        }
    }
}

async fn work(
    url: &client::Url,
    options: &Options,
    is_over: &AtomicBool,
    beside: &mut Beside,
) -> Result<(), client::Error> {
    let mut connection = Connection::open(url, options).await?;
    connection.declare_queue(&QueueSpec::durable(QUEUE)).await?;
    let properties = amqp::Properties { delivery_mode: Some(2), ..Default::default() };
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        connection.publish(Address::queue(QUEUE), &properties, b"alive").await?;
        beside.waits_ms.push(begin.elapsed().as_secs_f64() * 1000.0);
        let taken = connection.get(QUEUE, true).await?;
        drop(taken);
        tokio::time::sleep(EVERY.saturating_sub(begin.elapsed())).await;
    }
    connection.close().await
}

impl fmt::Display for Beside {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |part: f64| {
            let place = (self.waits_ms.len() as f64 * part) as usize;
            self.waits_ms.get(place.min(self.waits_ms.len().saturating_sub(1))).copied()
        };
        match (at(0.5), at(0.99), at(1.0)) {
            (Some(middle), Some(late), Some(last)) => write!(
                out,
                "neighbour: {} confirms, p50 {middle:.1} p99 {late:.1} max {last:.0} ms, cut off {} times;",
                self.waits_ms.len(),
                self.cuts
            ),
            _ => write!(out, "neighbour: no confirm, cut off {} times;", self.cuts),
        }
    }
}
