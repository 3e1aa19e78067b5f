//! Tells when a queue gives nothing more, and what it says it still holds.

use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use tokio::time::Instant;

use super::{Plan, Recorder, Target, link};
use crate::history::What;
use crate::workload::special;

/// What the queues report after a drain.
#[derive(Clone, Debug, Default)]
pub struct Drained {
    /// Name and messages left.
    pub left: Vec<(String, u64)>,
    /// Names of queues that are gone, or did not answer, with the reason.
    pub silent: Vec<(String, String)>,
}

impl Drained {
    pub fn is_empty(&self) -> bool {
        self.silent.is_empty() && self.left.iter().all(|(_, left)| *left == 0)
    }

    pub(super) fn record(&self, recorder: &Recorder) {
        for (q, left) in &self.left {
            recorder.saw("drain", What::Drained { q: q.clone(), node: 1, left: *left });
        }
        for (q, why) in &self.silent {
            let text = format!("queue {q} cannot be asked: {why}");
            recorder.saw("drain", What::Protocol { text });
        }
    }
}

/// Pause between two looks at the queues.
const LOOK: Duration = Duration::from_millis(250);
/// Without a delivery for this long, what is left is stuck.
const STUCK: Duration = Duration::from_secs(20);
/// Looks in a row that must find nothing.
const LOOKS: u32 = 4;
/// The same where messages may wait for their time: longer than any of them does.
const LOOKS_DELAYED: u32 = 16;
const _: () = assert!(LOOKS_DELAYED as u64 * 250 > special::WAIT_MS_MAX, "looks at every delay");

/// Waits until every queue reports nothing and nothing is delivered for a while; or until nothing
/// was delivered for so long that more waiting is in vain: false.
pub(super) async fn until_quiet(
    plan: &Plan,
    target: &Target,
    recorder: &Recorder,
    deadline: Instant,
) -> bool {
    let has_delays = plan.queues.iter().any(|queue| queue.special.is_some());
    let looks = if has_delays { LOOKS_DELAYED } else { LOOKS };
    let (mut quiet, mut seen, mut moved) = (0, recorder.delivered(), Instant::now());
    while quiet < looks && Instant::now() < deadline && moved.elapsed() < STUCK {
        tokio::time::sleep(LOOK).await;
        let idle = recorder.delivered() == seen;
        seen = recorder.delivered();
        if !idle {
            moved = Instant::now();
        }
        let is_empty = idle && counts(plan, target).await.is_empty();
        quiet = if is_empty { quiet + 1 } else { 0 };
    }
    quiet == looks
}

/// Asks every queue how many messages it holds.
pub(super) async fn counts(plan: &Plan, target: &Target) -> Drained {
    let names: Vec<&str> = plan.queues.iter().map(|queue| queue.name).collect();
    ask(&names, target).await
}

async fn ask(names: &[&str], target: &Target) -> Drained {
    let mut drained = Drained::default();
    for name in names {
        match ask_one(name, target).await {
            Ok(left) => drained.left.push(((*name).to_owned(), left)),
            Err(error) => drained.silent.push(((*name).to_owned(), error.to_string())),
        }
    }
    drained
}

async fn ask_one(name: &str, target: &Target) -> Result<u64, lapin::Error> {
    let connection = link::connect(target, "drain").await?;
    let channel = link::answered(connection.create_channel()).await?;
    let passive = QueueDeclareOptions { passive: true, durable: true, ..Default::default() };
    let queue = channel.queue_declare(name.into(), passive, FieldTable::default());
    let left = u64::from(link::answered(queue).await?.message_count());
    let _ = link::answered(connection.close(200, "asked".into())).await;
    Ok(left)
}
