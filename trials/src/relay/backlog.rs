//! A backlog that was there before the relay: how long it takes, and in how much memory.

use std::fmt;
use std::time::{Duration, Instant};

use super::plan::Plan;
use super::run::{Run, Shape};
use super::stage::Stage;
use crate::chaos::Failure;

/// What became of it.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    /// Different rows that arrived.
    pub delivered: usize,
    pub took: Duration,
    /// The most memory that the relay had, in bytes.
    pub memory_peak: u64,
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.delivered as f64 / self.took.as_secs_f64();
        let megabytes = self.memory_peak >> 20;
        write!(f, "{} rows, {rate:.0} rows/s, at most {megabytes} MB", self.delivered)
    }
}

/// Rows in one statement, with bodies as those of a plan: each has its number, to be told by.
const FILL: &str = "
    INSERT INTO outbox_messages (id, type, content, occurred_on_utc, aggregate, headers)
    SELECT gen_random_uuid(), 'order.paid',
           jsonb_build_object('n', n, 'key', n % 1000, 'pad', repeat('x', $bytes)),
           clock_timestamp(), n % 1000, jsonb_build_object('row', n)
    FROM generate_series(0, $rows - 1) AS n";

/// Writes so many rows of so many bytes, then lets a relay publish all of them.
///
/// # Errors
/// It stops before the end.
pub fn drain(
    stage: &mut Stage,
    shape: Shape,
    rows: usize,
    bytes: usize,
) -> Result<Drained, Failure> {
    let mut run = Run::prepare(stage, shape, Plan::usual(0))?;
    let fill = FILL.replace("$rows", &rows.to_string()).replace("$bytes", &bytes.to_string());
    run.sql(&fill)?;
    run.sql("DROP TRIGGER gate_of_commits ON outbox_messages; ANALYZE outbox_messages")?;
    let begun = Instant::now();
    run.start_relay()?;
    // Counted before anybody takes them: the queue is as long as the backlog.
    let left = "SELECT count(*) FROM (SELECT 1 FROM outbox_messages
                WHERE processed_on_utc IS NULL LIMIT 1) AS one";
    let mut looked = (Instant::now(), String::new());
    let published = "SELECT count(*) FROM outbox_messages WHERE processed_on_utc IS NULL";
    while run.sql(left)? != "0" {
        std::thread::sleep(Duration::from_millis(100));
        if looked.0.elapsed() > run.quiet {
            let now = run.sql(published)?;
            if now == looked.1 {
                return Err(Failure::Broken(format!("{now} rows are left and stay")));
            }
            looked = (Instant::now(), now);
        }
    }
    let took = begun.elapsed();
    let memory_peak = run.relays[0].memory_peak()?;
    run.end_relays()?;
    run.take();
    run.until_delivered(rows)?;
    Ok(Drained { delivered: run.delivered(), took, memory_peak })
}
