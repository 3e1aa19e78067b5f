//! The other way: `millrace relay inbox` takes what a relay has published out of the queue again, into a table.

use std::time::Instant;

use super::process::{self, Relay};
use super::{Options, Timeout, mode, watch};
use crate::chaos::Failure;
use crate::ladder::queue;
use crate::ladder::report::Row;
use crate::ladder::rig::Rig;

pub(super) const NAME: &str = "inbox, one of them on the queue";

const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

/// Fills the queue, and then takes its messages.
pub(super) fn measure(rig: &Rig, options: &Options) -> Result<Row, Failure> {
    rig.block_on(async {
        let rows = options.rows;
        rig.table().execute("DROP TABLE IF EXISTS inbox_messages").await?;
        fill(rig, options).await?;
        let words = ["inbox", "--queue", queue::NAME, "--consumer", "bench", "--install"];
        let words: Vec<String> = words.map(String::from).into();
        let mut inbox = Relay::run(rig, options, &words)?;
        let meter = rig.meter(inbox.pid()).await?;
        let seen = drain(rig, rows, &mut inbox).await;
        let (first, elapsed) = seen.map_err(|failure| inbox.complain(&failure))?;
        let spent = meter.stop().await?;
        let mut row = Row::new(rig.kind(), NAME, rows - first, elapsed);
        row.messages = rows;
        row.spend(&spent);
        row.problems.extend(inbox.stop()?);
        let stored = rig.table().number("SELECT count(*) FROM inbox_messages").await?;
        if stored != rows {
            row.problems.push(format!("{stored} rows in the inbox for {rows} messages"));
        }
        Ok(row)
    })
}

/// With a relay, as it is fast.
async fn fill(rig: &Rig, options: &Options) -> Result<(), Failure> {
    let all = mode::all();
    let mode = all.iter().find(|mode| mode.name.ends_with("poll, delete")).expect("there is one");
    rig.queue().clear().await?;
    process::prepare(rig, mode, options).await?;
    let mut relay = Relay::start(rig, mode, options)?;
    let filled = watch::drain(rig, options.rows, watch::Done::Published, || relay.is_alive()).await;
    filled.map_err(|failure| relay.complain(&failure))?;
    match relay.stop()? {
        None => Ok(()),
        Some(problem) => Err(Failure::Broken(problem)),
    }
}

/// Looks until the queue is empty and all is stored. From the first look that found some taken: how many those
/// were, and how long the others took.
async fn drain(
    rig: &Rig,
    rows: u64,
    inbox: &mut Relay,
) -> Result<(u64, std::time::Duration), Failure> {
    let mut timeout = Timeout::new();
    let mut first = None;
    // Whoever reads the table meanwhile sees what is committed: its last number.
    let stored = "SELECT coalesce(max(seq), 0) FROM inbox_messages \
                  WHERE consumer = 'bench' AND processed_on_utc IS NULL";
    let exists = "SELECT count(*) FROM pg_class WHERE relname = 'inbox_messages'";
    loop {
        let is_there = first.is_some() || rig.table().number(exists).await? > 0;
        let now = if is_there { rig.table().number(stored).await? } else { 0 };
        if now > 0 && first.is_none() {
            first = Some((now, Instant::now()));
        }
        if now >= rows && rig.queue().depth().await? == 0 {
            let (before, begin) = first.unwrap_or((0, Instant::now()));
            return Ok((before, begin.elapsed()));
        }
        if !inbox.is_alive()? || !timeout.is_left(now) {
            return Err(Failure::Broken(format!(
                "the inbox stores no more at {now} of {rows} messages"
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
