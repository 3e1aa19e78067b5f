//! How fast a process drains, judged by the broker and the database.

use std::time::{Duration, Instant};

use super::Timeout;
use crate::chaos::Failure;
use crate::ladder::rig::Rig;

/// Between two looks at the queue.
const PAUSE: Duration = Duration::from_millis(5);

/// When somebody is done, besides having filled the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// No row of the table waits to be processed.
    Marked,
    /// The queue says it all.
    Published,
}

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// How many messages came after the first look that found some, and how long they took with their marks.
    pub(super) messages: u64,
    pub(super) elapsed: Duration,
}

/// Looks until `rows` messages are in the queue and their rows are marked, or nothing goes on, or the
/// process is gone.
pub(super) async fn drain(
    rig: &Rig,
    rows: u64,
    done: Done,
    mut is_alive: impl FnMut() -> Result<bool, Failure>,
) -> Result<Seen, Failure> {
    let mut timeout = Timeout::new();
    let mut first = None;
    loop {
        let depth = rig.queue().depth().await?;
        if depth > 0 && first.is_none() {
            first = Some((Instant::now(), depth));
        }
        if depth >= rows {
            break;
        }
        if !is_alive()? {
            return Err(Failure::Broken(format!(
                "the program ended with {depth} of {rows} messages sent"
            )));
        }
        if !timeout.is_left(depth) {
            return Err(Failure::Broken(format!(
                "the program sends no more at {depth} of {rows} messages"
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
    if done == Done::Marked {
        wait_marked(rig).await?;
    }
    let (begin, before) = first.unwrap_or((Instant::now(), 0));
    Ok(Seen { messages: rows.saturating_sub(before), elapsed: begin.elapsed() })
}

async fn wait_marked(rig: &Rig) -> Result<(), Failure> {
    let mut timeout = Timeout::new();
    loop {
        let left = rig.table().unprocessed().await?;
        if left == 0 {
            return Ok(());
        }
        if !timeout.is_left(left) {
            return Err(Failure::Broken(format!("{left} rows are published but not marked")));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
