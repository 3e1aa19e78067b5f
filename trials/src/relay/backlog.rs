//! A backlog that was there before the relay: how long it takes, and in how much memory.

use std::fmt;
use std::time::{Duration, Instant};

use super::plan::Plan;
use super::run::{Run, Shape};
use super::stage::Stage;
use super::truth::Source;
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

/// Between two looks at what is left.
const LOOK: Duration = Duration::from_millis(200);

/// Rows in one statement, with bodies as those of a plan: each has its number, to be told by.
const FILL: &str = "
    INSERT INTO outbox_messages (id, type, content, occurred_on_utc, aggregate, headers)
    SELECT gen_random_uuid(), 'order.paid',
           jsonb_build_object('n', n, 'key', n % 1000, 'pad', repeat('x', $bytes)),
           clock_timestamp(), n % 1000, jsonb_build_object('row', n)
    FROM generate_series(0, $rows - 1) AS n";

/// Writes so many rows of so many bytes in one transaction, and lets a relay publish all of them. One that
/// polls finds them in the table when it starts; one that reads the log waits for them there.
///
/// # Errors
/// It stops before the end.
pub fn drain(
    stage: &mut Stage,
    shape: Shape,
    rows: usize,
    bytes: usize,
) -> Result<Drained, Failure> {
    let source = shape.source;
    let mut run = Run::prepare(stage, shape, Plan::usual(0))?;
    let fill = FILL.replace("$rows", &rows.to_string()).replace("$bytes", &bytes.to_string());
    let is_polled = match source {
        Source::Poll => true,
        Source::Wal => false,
        Source::Messages => {
            return Err(Failure::Trial(
                "a backlog needs rows: use --source poll or wal".to_owned(),
            ));
        }
    };
    run.sql("DROP TRIGGER gate_of_commits ON outbox_messages")?;
    if !is_polled {
        run.start_relay()?;
        run.until("it reads the log", |run| run.is_streaming())?;
    }
    run.sql(&fill)?;
    let begun = Instant::now();
    if is_polled {
        run.sql("ANALYZE outbox_messages")?;
        run.start_relay()?;
    }
    // Counted before anybody takes them: the queue is as long as the backlog.
    let mut looked = (Instant::now(), rows);
    loop {
        let left = if is_polled { unmarked(&run)? } else { rows.saturating_sub(run.ready()?) };
        if left == 0 {
            break;
        }
        if left < looked.1 {
            looked = (Instant::now(), left);
        } else if looked.0.elapsed() > run.quiet {
            return Err(Failure::Broken(format!(
                "{left} rows are left, and the relay publishes no more of them"
            )));
        }
        std::thread::sleep(LOOK);
    }
    let took = begun.elapsed();
    let memory_peak = run.relays[0].memory_peak()?;
    run.end_relays()?;
    run.take();
    run.until_delivered(rows)?;
    Ok(Drained { delivered: run.delivered(), took, memory_peak })
}

fn unmarked(run: &Run<'_>) -> Result<usize, Failure> {
    let count = run.sql("SELECT count(*) FROM outbox_messages WHERE processed_on_utc IS NULL")?;
    count
        .parse()
        .map_err(|_| Failure::Trial(format!("the count of unmarked rows is no number: {count:?}")))
}
