//! Debezium Server on its own outbox table, with its event router and its sink for RabbitMQ.
//!
//! A JVM is slow until it is warm, and a relay runs for months: it has moved a part of the backlog before
//! the clock starts. It stands still (SIGSTOP) while the backlog is written, so that both are not measured at once.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Timeout;
use super::process::forget;
use super::watch::{self, Done};
use crate::chaos::Failure;
use crate::chaos::broker::tail;
use crate::ladder::queue;
use crate::ladder::report::Row;
use crate::ladder::rig::Rig;
use crate::ladder::table::{CONTENT, TYPE};
use crate::ports;

pub(super) const NAME: &str = "Debezium Server";
/// What it says when it follows the log.
const READY: &str = "Starting streaming";
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// A part of the backlog to warm up with.
const WARM: u64 = 5;

/// Drains a fresh backlog.
pub(super) fn measure(rig: &Rig, server: &Path, java: &Path, rows: u64) -> Result<Row, Failure> {
    rig.block_on(async {
        rig.queue().clear().await?;
        forget(rig).await?;
        rig.table()
            .execute(
                "DROP TABLE IF EXISTS outbox; CREATE TABLE outbox (id uuid PRIMARY KEY, \
                 aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, \
                 payload text)",
            )
            .await?;
        let mut debezium = Debezium::start(rig, server, java)?;
        debezium.wait_ready().await?;
        insert(rig, rows / WARM).await?;
        let warm = watch::drain(rig, rows / WARM, Done::Published, || debezium.is_alive()).await;
        warm.map_err(|failure| debezium.complain(&failure))?;
        debezium.signal(Signal::STOP);
        rig.queue().clear().await?;
        insert(rig, rows).await?;
        let meter = rig.meter(debezium.child.id()).await?;
        debezium.signal(Signal::CONT);
        let seen = watch::drain(rig, rows, Done::Published, || debezium.is_alive()).await;
        let seen = seen.map_err(|failure| debezium.complain(&failure))?;
        let spent = meter.stop().await?;
        let mut row = Row::new(rig.kind(), NAME, seen.messages, seen.elapsed);
        row.messages = rows;
        row.spend(&spent);
        drop(debezium);
        let queued = rig.queue().depth().await?;
        if queued != rows {
            row.problems.push(format!("{queued} messages in the queue for {rows} rows"));
        }
        forget_soon(rig).await?;
        Ok(row)
    })
}

async fn insert(rig: &Rig, rows: u64) -> Result<(), Failure> {
    let insert = format!(
        "INSERT INTO outbox SELECT gen_random_uuid(), 'order', n % 10007, {TYPE}, {CONTENT}::text \
         FROM generate_series(k, least(k + 100, {rows}) - 1) n"
    );
    rig.table().in_transactions(rows, &insert).await
}

/// The database notices only after a while that a killed reader is gone.
async fn forget_soon(rig: &Rig) -> Result<(), Failure> {
    let mut timeout = Timeout::new();
    while let Err(failure) = forget(rig).await {
        if !timeout.is_left(0) {
            return Err(failure);
        }
        tokio::time::sleep(PAUSE).await;
    }
    rig.table().execute("DROP TABLE outbox").await
}

/// The process. Dropping it kills.
struct Debezium {
    child: Child,
    log: PathBuf,
}

impl Debezium {
    fn start(rig: &Rig, server: &Path, java: &Path) -> Result<Self, Failure> {
        let folder = server.join("bench");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("application.properties"), settings(rig, &folder)?)?;
        let log = folder.join("output.txt");
        let file = File::create(&log)?;
        let mut command = Command::new(java);
        command.current_dir(server).args(["-Xmx1g", "-cp", &classpath(server)?]);
        command.arg("io.debezium.server.Main");
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Self { child: command.spawn()?, log })
    }

    async fn wait_ready(&mut self) -> Result<(), Failure> {
        let mut timeout = Timeout::new();
        while !std::fs::read_to_string(&self.log)?.contains(READY) {
            if !self.is_alive()? || !timeout.is_left(0) {
                let stuck = Failure::Trial("Debezium Server does not begin to stream".to_owned());
                return Err(self.complain(&stuck));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    fn is_alive(&mut self) -> Result<bool, Failure> {
        Ok(self.child.try_wait()?.is_none())
    }

    fn complain(&self, failure: &Failure) -> Failure {
        Failure::Trial(format!("{failure}; its log ends with:\n{}", tail(&self.log)))
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It may have ended by itself: whoever waits for messages says so.
        let _ = kill_process(pid.expect("a child has a positive id"), signal);
    }
}

impl Drop for Debezium {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The runner's jar first, then our settings, then everything else.
fn classpath(server: &Path) -> Result<String, Failure> {
    let mut names = std::fs::read_dir(server)?.flatten().map(|entry| entry.file_name());
    let runner = names.find_map(|name| {
        let name = name.to_string_lossy().into_owned();
        name.ends_with("-runner.jar").then_some(name)
    });
    let runner = runner.ok_or_else(|| {
        Failure::Skipped(format!("there is no *-runner.jar in {}", server.display()))
    })?;
    Ok(format!("{runner}:bench:lib/*"))
}

fn settings(rig: &Rig, folder: &Path) -> Result<String, Failure> {
    let url = rig.database_url();
    let bad =
        || Failure::Skipped(format!("{url} does not read postgres://USER@HOST:PORT/DATABASE"));
    let rest = url.split_once("://").ok_or_else(bad)?.1;
    let (user, rest) = rest.split_once('@').ok_or_else(bad)?;
    let (place, database) = rest.split_once('/').ok_or_else(bad)?;
    let (host, port) = place.split_once(':').ok_or_else(bad)?;
    let (amqp_port, http_port, name) = (rig.amqp_port(), ports::free()?, queue::NAME);
    Ok(format!(
        "debezium.sink.type=rabbitmq
debezium.sink.rabbitmq.connection.host=127.0.0.1
debezium.sink.rabbitmq.connection.port={amqp_port}
debezium.sink.rabbitmq.connection.username=guest
debezium.sink.rabbitmq.connection.password=guest
debezium.sink.rabbitmq.exchange={name}
debezium.sink.rabbitmq.routingKey={name}
debezium.sink.rabbitmq.ackTimeout=30000
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.offset.storage.file.filename={}
debezium.source.offset.flush.interval.ms=1000
debezium.source.database.hostname={host}
debezium.source.database.port={port}
debezium.source.database.user={user}
debezium.source.database.password=none
debezium.source.database.dbname={database}
debezium.source.topic.prefix=bench
debezium.source.table.include.list=public.outbox
debezium.source.plugin.name=pgoutput
debezium.source.slot.name=debezium
debezium.source.snapshot.mode=no_data
debezium.transforms=outbox
debezium.transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
debezium.format.key=simplestring
debezium.format.value=simplestring
quarkus.http.host=127.0.0.1
quarkus.http.port={http_port}
quarkus.log.console.json=false
",
        folder.join("offsets.dat").display()
    ))
}
