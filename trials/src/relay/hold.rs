//! Holds the relay at one of its steps, from outside: what it needs for that step is kept from it.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::stage::Stage;
use crate::chaos::Failure;

/// A step of a polling relay, which can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Step {
    /// It asks for rows: somebody else has the table.
    Fetch,
    /// It waits for confirms: the broker stands still.
    Confirm,
    /// It marks rows: a trigger of the trial waits for a lock.
    Mark,
    /// It commits: a trigger that is put off to the commit waits for a lock.
    Commit,
}

impl Step {
    pub const ALL: [Self; 4] = [Self::Fetch, Self::Confirm, Self::Mark, Self::Commit];
}

/// What the relay's changes pass; nobody waits there while nobody holds the locks.
pub(super) const GATES: &str = "
    CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(TG_ARGV[0]::bigint);
        RETURN NULL;
    END $$;
    CREATE TRIGGER gate_of_marks AFTER UPDATE OR DELETE ON outbox_messages
        FOR EACH STATEMENT EXECUTE FUNCTION gate(7001);
    CREATE CONSTRAINT TRIGGER gate_of_commits AFTER UPDATE OR DELETE ON outbox_messages
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gate(7002);
";

/// A relay that stands still at a step until this is let go.
pub struct Held {
    step: Step,
    /// Has the lock while its transaction lasts; gone where PostgreSQL was killed.
    client: Option<Client>,
}

/// How long a relay may take to arrive at the step.
const ARRIVES: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);
/// How long a relay is waited for before the broker goes on for a moment: one that is connecting to it needs
/// its answers before it comes to any step.
const STANDSTILL: Duration = Duration::from_secs(2);
/// That moment.
const MOMENT: Duration = Duration::from_millis(300);

/// Who waits for a lock, beside the trial's own clients.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND application_name <> 'trials' AND wait_event_type = 'Lock' AND wait_event = $1";
/// Who is in a transaction and has done nothing in it lately: it waits for the broker.
const RESTING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND application_name <> 'trials' AND state = 'idle in transaction'
    AND now() - state_change > interval '100 ms'";

impl Held {
    /// Holds every relay of the database at `step`, and waits until one is there.
    ///
    /// # Errors
    /// None arrives.
    pub fn hold(stage: &mut Stage, url: &str, step: Step) -> Result<Self, Failure> {
        let url = format!("{url}?application_name=trials");
        let client = stage.runtime.block_on(crate::postgres::connect(&url))?;
        let (lock, wait_event) = match step {
            Step::Fetch => {
                ("BEGIN; LOCK TABLE outbox_messages IN ACCESS EXCLUSIVE MODE", Some("relation"))
            }
            Step::Mark => ("BEGIN; SELECT pg_advisory_xact_lock(7001)", Some("advisory")),
            Step::Commit => ("BEGIN; SELECT pg_advisory_xact_lock(7002)", Some("advisory")),
            Step::Confirm => {
                stage.broker.stop()?;
                ("", None)
            }
        };
        stage.runtime.block_on(client.batch_execute(lock))?;
        let watch = stage.runtime.block_on(crate::postgres::connect(&url))?;
        let begun = Instant::now();
        let mut stopped = begun;
        loop {
            if step == Step::Confirm && stopped.elapsed() > STANDSTILL {
                stage.broker.go_on()?;
                std::thread::sleep(MOMENT);
                stage.broker.stop()?;
                stopped = Instant::now();
            }
            let asked = async {
                match wait_event {
                    Some(event) => watch.query_one(WAITING, &[&event]).await,
                    None => watch.query_one(RESTING, &[]).await,
                }
            };
            if stage.runtime.block_on(asked)?.get::<_, i64>(0) > 0 {
                return Ok(Self { step, client: Some(client) });
            }
            if begun.elapsed() > ARRIVES {
                let held = Self { step, client: Some(client) };
                held.let_go(stage)?;
                return Err(Failure::Trial(format!("no relay reached the step {step:?}")));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// What was kept from it is there again.
    ///
    /// # Errors
    /// The broker cannot be woken.
    pub fn let_go(mut self, stage: &mut Stage) -> Result<(), Failure> {
        if self.step == Step::Confirm {
            stage.broker.go_on()?;
        }
        // Its transaction ends with it.
        self.client = None;
        Ok(())
    }
}
