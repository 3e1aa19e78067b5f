//! One run: a database and a queue on a stage, writers, a taker, relays, and in the end a verdict.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::checker::{Report, check};
use super::history::History;
use super::hold;
use super::plan::Plan;
use super::process::Relay;
use super::shape::words_of_planted;
pub use super::shape::{Asked, Mark, Shape};
use super::stage::Stage;
use super::taker::{self, Basket, Place, Taker};
use super::truth::{self, Source};
use super::writers::{Book, Writers};
use crate::chaos::Failure;
use crate::chaos::broker::tail;

/// A run. Its relays end with it; the stage goes on.
pub struct Run<'a> {
    pub stage: &'a mut Stage,
    pub shape: Shape,
    pub plan: Plan,
    pub relays: Vec<Relay>,
    pub place: Place,
    /// Its database.
    pub database: String,
    /// Without any change for this long, it has come to its end.
    pub quiet: Duration,
    slot: String,
    number: u32,
    /// What each of its relays says, in the order of their starts.
    logs: Vec<PathBuf>,
    book: Arc<Book>,
    basket: Arc<Basket>,
    writers: Option<Writers>,
    taker: Option<Taker>,
}

/// Longer than anything takes here, as the twenty seconds after which the database frees what a frozen relay holds; a relay that has rows and does nothing for so long has failed.
const QUIET: Duration = Duration::from_secs(60);
/// How long a relay may take to end when it is asked to.
pub(super) const ENDS: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);
/// The words of so many relays are shown where one has failed.
const LAST: usize = 3;

impl<'a> Run<'a> {
    /// Makes the database, the tables and the queue; nothing runs yet.
    ///
    /// # Errors
    /// The stage does not answer.
    pub fn prepare(stage: &'a mut Stage, shape: Shape, plan: Plan) -> Result<Self, Failure> {
        stage.runs += 1;
        let number = stage.runs;
        let database = format!("trial_{number}");
        let slot = format!("trial_{number}_journal");
        stage.postgres.psql(&format!("CREATE DATABASE {database}"))?;
        let place = Place {
            broker: stage.broker.setup.address(),
            exchange: format!("outbox-{number}"),
            queue: format!("orders-{number}"),
        };
        let url = stage.postgres.url_of(&database);
        stage.runtime.block_on(async {
            let client = crate::postgres::connect(&url).await?;
            truth::prepare(&client, &slot, plan.all_keys()).await?;
            client.batch_execute(hold::GATES).await?;
            Ok::<_, Failure>(taker::declare(&place).await?)
        })?;
        Ok(Self {
            stage,
            shape,
            plan,
            relays: Vec::new(),
            place,
            database,
            quiet: QUIET,
            slot,
            number,
            logs: Vec::new(),
            book: Arc::default(),
            basket: Arc::default(),
            writers: None,
            taker: None,
        })
    }

    /// Everything runs: writers, taker and one relay.
    ///
    /// # Errors
    /// As [`Run::prepare`].
    pub fn start(stage: &'a mut Stage, shape: Shape, plan: Plan) -> Result<Self, Failure> {
        let mut run = Self::prepare(stage, shape, plan)?;
        run.take();
        if run.shape.source == Source::Poll {
            run.write();
            run.start_relay()?;
        } else {
            // What is there before the slot comes in the table's order, not in that of commits.
            run.start_relay()?;
            run.until("it reads the log", |run| run.is_streaming())?;
            run.write();
        }
        Ok(run)
    }

    /// Whether changes are read from the relay's slot: it is in use before that, while it is made.
    pub fn is_streaming(&self) -> bool {
        let ask = "SELECT count(*) FROM pg_stat_replication AS reader
                   JOIN pg_replication_slots AS slot ON slot.active_pid = reader.pid
                   WHERE reader.state IN ('catchup', 'streaming') AND slot.slot_name = '";
        let found = self.sql(&format!("{ask}{}'", self.relay_slot()));
        found.is_ok_and(|count| count == "1")
    }

    /// Of the relay's slot: `t` in use, `f` free, nothing if there is none.
    pub fn slot_state(&self) -> String {
        let ask = "SELECT active FROM pg_replication_slots WHERE slot_name = '";
        self.sql(&format!("{ask}{}'", self.relay_slot())).unwrap_or_default()
    }

    /// The slot that the relay is told to use.
    pub fn relay_slot(&self) -> String {
        format!("trial_{}_relay", self.number)
    }

    pub fn url(&self) -> String {
        self.stage.postgres.url_of(&self.database)
    }

    pub fn write(&mut self) {
        let _inside = self.stage.runtime.enter();
        let url = self.stage.postgres.url_of(&self.database);
        self.writers = Some(Writers::start(&self.plan, self.shape.source, &url, &self.book));
    }

    pub fn take(&mut self) {
        let _inside = self.stage.runtime.enter();
        self.taker = Some(Taker::start(&self.place, &self.basket));
    }

    /// Starts one more relay, and waits until it is open.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_relay(&mut self) -> Result<(), Failure> {
        self.launch_relay()?;
        match (&self.shape.planted, self.relays.last_mut()) {
            (None, Some(relay)) => relay.wait_open(),
            // These say nothing.
            _ => Ok(()),
        }
    }

    /// Starts one more relay, whatever becomes of it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn launch_relay(&mut self) -> Result<(), Failure> {
        let log = format!("relay-{}-{}.txt", self.number, self.logs.len() + 1);
        let log = self.stage.dir.join(log);
        self.logs.push(log.clone());
        let relay = match &self.shape.planted {
            None => Relay::start(&self.stage.millrace, &self.words(), &log)?,
            Some((trials, bug)) => {
                Relay::start(trials, &words_of_planted(*bug, &self.url(), &self.place), &log)?
            }
        };
        self.relays.push(relay);
        Ok(())
    }

    /// The command line of a relay that runs.
    pub fn words(&self) -> Vec<String> {
        self.words_of("run")
    }

    /// The command line of any of the relay's commands.
    pub fn words_of(&self, command: &str) -> Vec<String> {
        self.shape.words_of(command, &self.url(), &self.place, &self.relay_slot())
    }

    /// Whether the writers have written all they had.
    pub fn is_written(&mut self) -> bool {
        self.writers.as_mut().is_none_or(Writers::are_done)
    }

    /// The writers end what they have begun, and write no more.
    pub fn stop_writing(&self) {
        if let Some(writers) = &self.writers {
            writers.stop();
        }
    }

    /// How many messages the queue has, while nobody takes them.
    pub(super) fn ready(&self) -> Result<usize, Failure> {
        Ok(self.stage.runtime.block_on(taker::ready(&self.place))? as usize)
    }

    /// Rows of transactions that were seen to commit.
    pub fn committed(&self) -> usize {
        self.book.committed.load(Ordering::Relaxed)
    }

    /// Different rows that were delivered.
    pub fn delivered(&self) -> usize {
        self.basket.rows.load(Ordering::Relaxed)
    }

    /// Deliveries, duplicates included.
    pub fn deliveries(&self) -> usize {
        self.basket.count()
    }

    /// Waits until so many different rows are delivered.
    ///
    /// # Errors
    /// It does not come to that, or a relay ends.
    pub fn until_delivered(&mut self, rows: usize) -> Result<(), Failure> {
        self.until(&format!("{rows} rows are delivered"), |run| run.delivered() >= rows)
    }

    /// Waits until `is_so`, as long as anything changes.
    ///
    /// # Errors
    /// Nothing changes any more, or a relay ends.
    pub fn until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Failure> {
        let mut last = (Instant::now(), (0, 0));
        while !is_so(self) {
            self.relays_run()?;
            let now = (self.committed(), self.deliveries());
            if now != last.1 {
                last = (Instant::now(), now);
            } else if last.0.elapsed() > self.quiet {
                let words = self.last_words();
                return Err(Failure::Broken(format!(
                    "not so after {:?} without any change: {what} ({} committed, {} \
                     delivered); {words}",
                    self.quiet,
                    self.committed(),
                    self.delivered()
                )));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// A relay does not end by itself, whatever happens to the others.
    fn relays_run(&mut self) -> Result<(), Failure> {
        for relay in &mut self.relays {
            if let Some(status) = relay.exited()? {
                let words = relay.last_words();
                return Err(Failure::Broken(format!("a relay has ended: {status}; {words}")));
            }
        }
        Ok(())
    }

    /// Of the relays that were started last.
    fn last_words(&self) -> String {
        let last = self.logs.iter().rev().take(LAST).rev();
        let words = last.map(|log| format!("{}:\n{}", log.display(), tail(log)));
        words.collect::<Vec<String>>().join("\n")
    }

    /// Lets everything come to its end, and judges. The relays are asked to end.
    ///
    /// # Errors
    /// A relay ends by itself, or badly, or not at all.
    pub fn finish(mut self) -> Result<Report, Failure> {
        self.until("the writers are done", Self::is_written)?;
        let mut report = self.settled()?;
        if self.end_relays()? {
            // What they did at their end counts.
            report = self.judge()?;
        }
        if !report.is_valid() {
            report.log = self.last_words();
        }
        Ok(report)
    }

    /// The verdict on what has come when nothing changes any more; the relays are killed.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn verdict(mut self) -> Result<Report, Failure> {
        self.until("the writers are done", Self::is_written)?;
        self.settled()
    }

    /// Asks every relay to end. Whether there was one.
    ///
    /// # Errors
    /// One ends badly, or not at all.
    pub fn end_relays(&mut self) -> Result<bool, Failure> {
        let any = !self.relays.is_empty();
        for mut relay in std::mem::take(&mut self.relays) {
            relay.terminate(ENDS)?;
        }
        Ok(any)
    }

    /// Judges over and over, until all is well or nothing changes any more.
    fn settled(&mut self) -> Result<Report, Failure> {
        let mut last = (Instant::now(), None);
        loop {
            let history = self.history()?;
            let report = check(&history, self.shape.rules());
            let can_heal = |promise: &str| promise == "B1" || promise == "B5";
            let is_over = report.violations.iter().any(|found| !can_heal(found.promise));
            if is_over || (report.is_valid() && self.is_queue_empty()?) {
                return Ok(report);
            }
            self.relays_run()?;
            let now = (history.deliveries.len(), history.failed.len(), history.unmarked.len());
            if last.1 != Some(now) {
                last = (Instant::now(), Some(now));
            } else if last.0.elapsed() > self.quiet {
                return Ok(report);
            }
            std::thread::sleep(20 * PAUSE);
        }
    }

    /// What has happened so far, judged.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn judge(&mut self) -> Result<Report, Failure> {
        Ok(check(&self.history()?, self.shape.rules()))
    }

    /// What has happened so far.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn history(&mut self) -> Result<History, Failure> {
        let url = self.url();
        let slot = self.slot.clone();
        let asked = async {
            let client = crate::postgres::connect(&url).await?;
            let commits = truth::commits(&client, &slot).await?;
            let (failed, unmarked) =
                (truth::failed(&client).await?, truth::unmarked(&client).await?);
            Ok::<_, Failure>((commits, failed, unmarked))
        };
        let (commits, failed, unmarked) = self.stage.runtime.block_on(asked)?;
        let (rows, transactions) = self.book.read();
        let deliveries = self.basket.read();
        Ok(History { rows, transactions, commits, deliveries, failed, unmarked })
    }

    fn is_queue_empty(&self) -> Result<bool, Failure> {
        Ok(self.ready()? == 0)
    }

    /// Runs SQL in the run's database.
    ///
    /// # Errors
    /// What PostgreSQL complains about.
    pub fn sql(&self, sql: &str) -> Result<String, Failure> {
        Ok(self.stage.postgres.psql_in(&self.database, sql)?)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.relays.clear();
        self.taker = None;
        self.writers = None;
    }
}
