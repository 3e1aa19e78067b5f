//! One run of `millrace relay run`: started on a backlog, watched, asked for its times, ended, judged.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::mode::{KEY, Mode, PREFIX, Source};
use super::watch::{self, Done};
use super::{Options, Timeout};
use crate::chaos::Failure;
use crate::chaos::broker::tail;
use crate::ladder::report::{Row, Steps};
use crate::ladder::rig::Rig;
use crate::ladder::steps::Index;
use crate::ladder::table::{CONTENT, TYPE};
use crate::ports;

/// How long the process may take to end once it is asked to.
const STOP_MAX: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Drains a fresh backlog in one mode.
pub(super) fn measure(rig: &Rig, mode: &Mode, options: &Options) -> Result<Row, Failure> {
    let rows = mode.rows(options.rows);
    rig.block_on(async {
        rig.queue().clear().await?;
        prepare(rig, mode, options).await?;
        let mut relay = Relay::start(rig, mode, options)?;
        let meter = rig.meter(relay.pid()).await?;
        let done = if mode.source == Source::Poll { Done::Marked } else { Done::Published };
        let seen = watch::drain(rig, rows, done, || relay.is_alive()).await;
        let seen = seen.map_err(|failure| relay.complain(&failure))?;
        let spent = meter.stop().await?;
        let mut row = Row::new(rig.kind(), &mode.name, seen.messages, seen.elapsed);
        // The processes worked for all of the messages, not only those that the clock saw.
        row.messages = rows;
        row.spend(&spent);
        row.times = relay.times(rows);
        if mode.source != Source::Poll {
            row.problems.extend(wait_confirmed(rig).await?);
        }
        row.problems.extend(relay.stop()?);
        row.problems.extend(judge(rig, mode, rows).await?);
        Ok(row)
    })
}

/// A backlog that nobody has touched, and nothing else of the runs before.
pub(super) async fn prepare(rig: &Rig, mode: &Mode, options: &Options) -> Result<(), Failure> {
    let table = rig.table();
    forget(rig).await?;
    table.execute("DROP TABLE IF EXISTS outbox_messages_archive").await?;
    table.make(if mode.source == Source::Poll { Index::Partial } else { Index::None }).await?;
    // What `millrace relay install` makes.
    table.execute("CREATE TABLE outbox_messages_archive (LIKE outbox_messages)").await?;
    if let Some(key) = mode.key {
        table.execute(&format!("ALTER TABLE outbox_messages ADD COLUMN {KEY} {key}")).await?;
    }
    if mode.source != Source::Poll {
        // The slot is older than what it has to give: the first start makes it.
        let mut relay = Relay::start(rig, mode, options)?;
        let found = wait_slot(rig, &mut relay).await;
        found.map_err(|failure| relay.complain(&failure))?;
        relay.stop()?;
    }
    if mode.source == Source::Messages {
        return emit(rig, mode.rows(options.rows)).await;
    }
    table.fill(mode.rows(options.rows)).await?;
    table.settle().await
}

/// Slots and what the relay remembers of them.
pub(super) async fn forget(rig: &Rig) -> Result<(), Failure> {
    let table = rig.table();
    table.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots").await?;
    table
        .execute(
            "DO $$ DECLARE p text; BEGIN FOR p IN SELECT pubname FROM pg_publication LOOP \
             EXECUTE format('DROP PUBLICATION %I', p); END LOOP; END $$",
        )
        .await?;
    table.execute("DROP SCHEMA IF EXISTS millrace CASCADE").await
}

/// What `fill` writes, as messages of the log.
async fn emit(rig: &Rig, rows: u64) -> Result<(), Failure> {
    let emit = format!(
        "PERFORM pg_logical_emit_message(true, '{PREFIX}', jsonb_build_object( \
         'id', gen_random_uuid(), 'type', {TYPE}, 'content', {CONTENT}, \
         'occurred_on_utc', clock_timestamp())::text) \
         FROM generate_series(k, least(k + 100, {rows}) - 1) n"
    );
    rig.table().in_transactions(rows, &emit).await
}

/// Until the slot is there and the table was read: a relay that is stopped before reads the table again when it starts,
/// and the rows that came meanwhile are in the log, too.
async fn wait_slot(rig: &Rig, relay: &mut Relay) -> Result<(), Failure> {
    let mut timeout = Timeout::new();
    // The second is a table that is there before the slot.
    for until in [
        "SELECT count(*) FROM pg_replication_slots WHERE active",
        "SELECT count(*) FROM millrace.relay_slots WHERE confirmed_lsn IS NOT NULL",
    ] {
        while rig.table().number(until).await? == 0 {
            if !relay.is_alive()? || !timeout.is_left(0) {
                return Err(Failure::Broken("the relay makes no replication slot".to_owned()));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// The slot must let go of everything that was published.
async fn wait_confirmed(rig: &Rig) -> Result<Option<String>, Failure> {
    let begin = Instant::now();
    let end = rig.table().wal_position().await?;
    let confirmed = "SELECT (min(confirmed_flush_lsn) - '0/0'::pg_lsn)::bigint \
                     FROM pg_replication_slots";
    loop {
        let at = rig.table().number(confirmed).await?;
        // Beyond the last message there may be the database's own records.
        let behind = end.saturating_sub(at);
        if behind < 64 << 10 {
            return Ok(None);
        }
        if begin.elapsed() > STOP_MAX {
            return Ok(Some(format!("the slot still keeps {behind} bytes of published messages")));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What is wrong with the state that the drain left.
async fn judge(rig: &Rig, mode: &Mode, rows: u64) -> Result<Vec<String>, Failure> {
    let mut problems = Vec::new();
    let queued = rig.queue().depth().await?;
    if queued != rows {
        problems.push(format!("{queued} messages in the queue for {rows} rows"));
    }
    let count = match () {
        () if mode.source != Source::Poll => return Ok(problems),
        () if mode.name.contains("update") => {
            "SELECT count(*) FROM outbox_messages WHERE processed_on_utc IS NOT NULL AND error IS NULL"
        }
        () if mode.name.contains("archive") => "SELECT count(*) FROM outbox_messages_archive",
        () => "SELECT count(*) FROM outbox_messages",
    };
    let expected = if mode.name.contains("delete") { 0 } else { rows };
    let counted = rig.table().number(count).await?;
    if counted != expected {
        problems.push(format!("{counted}, and not {expected}: {count}"));
    }
    Ok(problems)
}

/// The process. Dropping it kills.
pub(super) struct Relay {
    child: Child,
    metrics: u16,
    log: std::path::PathBuf,
}

impl Relay {
    pub(super) fn start(rig: &Rig, mode: &Mode, options: &Options) -> Result<Self, Failure> {
        let mut words = vec!["run".to_owned()];
        words.extend(mode.words());
        words.extend(options.arguments.iter().cloned());
        Self::run(rig, options, &words)
    }

    /// Starts one of the relay's commands.
    pub(super) fn run(rig: &Rig, options: &Options, words: &[String]) -> Result<Self, Failure> {
        let metrics = ports::free()?;
        let log = options.site.dir.join("relay.txt");
        let file = File::create(&log)?;
        let mut command = Command::new(&options.site.broker);
        command.arg("relay").args(words).args(["--database", &rig.database_url()]);
        command.args(["--url", &rig.amqp_url()]);
        if tells_metrics(&options.site.broker) {
            command.args(["--metrics", &format!("127.0.0.1:{metrics}")]);
        }
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn()?;
        Ok(Self { child, metrics, log })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn is_alive(&mut self) -> Result<bool, Failure> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// What went wrong, with the last words of the process.
    pub(super) fn complain(&self, failure: &Failure) -> Failure {
        Failure::Broken(format!("{failure}; its log ends with:\n{}", tail(&self.log)))
    }

    /// Its own times of each step, for a thousand rows; none if it does not tell.
    fn times(&self, rows: u64) -> Option<Steps> {
        let text = scrape(self.metrics).ok()?;
        let thousands = rows as f64 / 1000.0;
        let ms = |step| Some(sum_of(&text, step)? * 1000.0 / thousands);
        Some(Steps {
            query_ms: ms("query")?,
            publish_ms: ms("publish")? + ms("confirm").unwrap_or(0.0),
            mark_ms: ms("mark").unwrap_or(0.0),
        })
    }

    /// Ends it. What is wrong with how it ended.
    pub(super) fn stop(&mut self) -> Result<Option<String>, Failure> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("a child has a positive id");
        // It may have ended by itself: its status tells.
        let _ = kill_process(pid, Signal::TERM);
        let begin = Instant::now();
        while begin.elapsed() < STOP_MAX {
            if let Some(status) = self.child.try_wait()? {
                return Ok((!status.success()).then(|| format!("the relay ended with {status}")));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Some(format!("the relay still ran {} s after SIGTERM", STOP_MAX.as_secs())))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Older relays do not.
fn tells_metrics(binary: &std::path::Path) -> bool {
    let help = Command::new(binary).args(["relay", "run", "--help"]).output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--metrics"))
}

fn scrape(port: u16) -> std::io::Result<String> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(STOP_MAX))?;
    socket.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    Ok(text)
}

/// Seconds that all workers together spent in a step.
fn sum_of(metrics: &str, step: &str) -> Option<f64> {
    let name = format!("millrace_relay_step_seconds_sum{{step=\"{step}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_a_step_is_read_from_the_metrics() {
        let text = "# HELP x\nmillrace_relay_step_seconds_sum{step=\"query\"} 1.5\n\
                    millrace_relay_step_seconds_sum{step=\"mark\"} 0.25\n";
        assert_eq!(sum_of(text, "mark"), Some(0.25));
        assert_eq!(sum_of(text, "confirm"), None);
    }
}
