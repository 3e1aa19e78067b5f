//! Cron over a broker: one firing per tick however many workers run, and after restarts.
//!
//! **AMQP.** The queue [`STATE`] holds one message: the last tick of each schedule. Whoever has the lock
//! ([`LOCK`]) publishes a due job, awaits its confirm, and replaces the state: takes the old message, publishes the
//! new one, awaits its confirm, acknowledges the old one. A crash between the confirm of the job and that of the
//! new state is the only thing that repeats a tick, one tick, with the same message-id `cron:NAME:TICK`: a queue
//! that drops repeated message-ids drops it. AMQP's transactions would not help: neither RabbitMQ nor Millrace
//! commits to two queues at once.
//!
//! **Redis.** A script compares the last tick, sets the new one and adds the job: exactly once. Every worker tries.

use std::time::Duration;

use amqp::Properties;
use bytes::Bytes;
use client::{Address, Connection, Outcome, QueueSpec};
use redis::AsyncCommands as _;
use tracing::{error, info, warn};

use super::lock::Lock;
use super::publish::{address, properties, raw_properties, redis_command};
use super::{Broker, Queues, RETRY, Stop, amqp_options, away, now_ms, pause, redis_away};
use crate::cron::{Cron, Due, Notice, State};
use crate::error::Error;

/// The queue with the state (Redis: the hash).
pub const STATE: &str = "millrace.work.cron";
/// The exclusive queue that the one scheduler has.
pub const LOCK: &str = "millrace.work.cron.lock";
/// Looked at the clock at least so often.
const LOOK: Duration = Duration::from_secs(1);
/// State messages that a crash can leave, with much to spare.
const STATES_MAX: usize = 100;

/// `KEYS`: the hash, the queue. `ARGV`: name, the last tick as known, the new one, then the command that adds the
/// job and its arguments after the key. Gives 1 if this one fired it.
const FIRE: &str = include_str!("cron/fire.lua");

/// Fires the schedules until it is told to stop.
///
/// # Errors
/// None that time heals: those are logged and tried again.
pub async fn run(cron: Cron, broker: Broker, mut stop: Stop) -> Result<(), Error> {
    if cron.is_empty() {
        return Ok(());
    }
    loop {
        let mut scheduler = Scheduler { cron: &cron, told: Vec::new() };
        let ended = match &broker {
            Broker::Amqp { url } => scheduler.amqp(url, &mut stop).await,
            Broker::Redis { client, queues } => scheduler.redis(client, *queues, &mut stop).await,
        };
        let Err(error) = ended else { return Ok(()) };
        let retry_ms = RETRY.as_millis();
        warn!(%error, retry_ms, "the scheduler lost its broker; another worker takes over, or this one again");
        if pause(&mut stop, RETRY).await {
            return Ok(());
        }
    }
}

struct Scheduler<'a> {
    cron: &'a Cron,
    /// What was logged at the last look: it is not logged again.
    told: Vec<Notice>,
}

impl Scheduler<'_> {
    async fn amqp(&mut self, url: &client::Url, stop: &mut Stop) -> Result<(), Error> {
        let connection = Connection::open(url, &amqp_options("cron")).await;
        let mut connection = connection.map_err(away("the scheduler's connection"))?;
        let mut lock = loop {
            let taken = Lock::take(connection, LOCK).await;
            match taken.map_err(away("to become the scheduler"))? {
                Ok(lock) => break lock,
                Err(back) => connection = back,
            }
            if pause(stop, RETRY).await {
                return Ok(());
            }
        };
        let mut state = self.load(&mut lock.connection).await?;
        info!(schedules = state.last.len(), "this worker fires the schedules now");
        loop {
            lock.check().await.map_err(away("the scheduler's lock"))?;
            self.fire(&mut lock.connection, &mut state).await?;
            if pause(stop, self.until_next()).await {
                break;
            }
        }
        // Closed in order, so that the next one can begin at once.
        let _ = lock.connection.close().await;
        Ok(())
    }

    fn until_next(&self) -> Duration {
        let now = now_ms();
        let next = self.cron.next(now).map_or(i64::MAX, |next| next - now);
        LOOK.min(Duration::from_millis(u64::try_from(next).unwrap_or(0).max(1)))
    }

    /// The state, with a beginning for new schedules.
    async fn load(&mut self, connection: &mut Connection) -> Result<State, Error> {
        let away = || away("the scheduler's state");
        connection.declare_queue(&QueueSpec::durable(STATE)).await.map_err(away())?;
        let mut state = State::default();
        let mut olds = Vec::new();
        while olds.len() < STATES_MAX
            && let Some(old) = connection.get(STATE, false).await.map_err(away())?
        {
            match serde_json::from_slice(&old.body) {
                Ok(found) => state.merge(found),
                Err(problem) => warn!(%problem, "a message in {STATE} is no state; it is dropped"),
            }
            olds.push(old.tag);
        }
        let now = now_ms();
        for name in self.cron.unknown(&state).map(str::to_owned).collect::<Vec<_>>() {
            info!(schedule = name, "a new schedule begins");
            state.last.insert(name, now);
        }
        state.revision += 1;
        publish_state(connection, &state).await.map_err(away())?;
        for old in olds {
            connection.settle(old, Outcome::Done).await.map_err(away())?;
        }
        Ok(state)
    }

    async fn fire(&mut self, connection: &mut Connection, state: &mut State) -> Result<(), Error> {
        let away = || away("to fire a schedule");
        let due = self.cron.due(state, now_ms());
        self.tell(&due);
        let mut stuck: Vec<&str> = Vec::new();
        for fire in &due.fires {
            if stuck.contains(&fire.name.as_str()) {
                continue;
            }
            let raw = raw_properties(&fire.publish)?;
            let body = &fire.publish.message.body;
            match connection.publish(address(&fire.publish), &properties(&raw), body).await {
                Ok(()) => (),
                Err(client::Error::ChannelClosed { code, text }) => {
                    let (schedule, tick_ms) = (&fire.name, fire.tick_ms);
                    error!(
                        schedule,
                        tick_ms,
                        code,
                        text,
                        "the job of a schedule is refused; it is tried again each second until it is late, then its `missed` decides"
                    );
                    stuck.push(&fire.name);
                    continue;
                }
                Err(error) => return Err(away()(error)),
            }
            state.last.insert(fire.name.clone(), fire.tick_ms);
            replace_state(connection, state).await.map_err(away())?;
        }
        let mut is_changed = false;
        for (name, tick) in &due.skipped {
            let last = state.last.entry(name.clone()).or_insert(*tick);
            if *last < *tick && !stuck.contains(&name.as_str()) {
                (*last, is_changed) = (*tick, true);
            }
        }
        if is_changed {
            replace_state(connection, state).await.map_err(away())?;
        }
        Ok(())
    }

    async fn redis(
        &mut self,
        client: &redis::Client,
        queues: Queues,
        stop: &mut Stop,
    ) -> Result<(), Error> {
        let doing = "to fire a schedule";
        let mut connection = super::redis_connection(client).await?;
        let script = redis::Script::new(FIRE);
        loop {
            let last = connection.hgetall(STATE).await.map_err(redis_away(doing))?;
            let mut state = State { revision: 0, last };
            let now = now_ms();
            for name in self.cron.unknown(&state).map(str::to_owned).collect::<Vec<_>>() {
                let _: bool =
                    connection.hset_nx(STATE, &name, now).await.map_err(redis_away(doing))?;
                state.last.insert(name, now);
            }
            let due = self.cron.due(&state, now);
            self.tell(&due);
            let mut steps: Vec<(&str, i64, &str, Vec<Bytes>)> = Vec::new();
            for (name, tick) in &due.skipped {
                steps.push((name, *tick, STATE, Vec::new()));
            }
            for fire in &due.fires {
                let command = redis_command(&fire.publish, queues, now);
                steps.push((&fire.name, fire.tick_ms, &fire.publish.routing_key, command));
            }
            let mut stale: Vec<&str> = Vec::new();
            for (name, tick, queue, command) in steps {
                if stale.contains(&name) {
                    continue;
                }
                let mut call = script.prepare_invoke();
                call.key(STATE).key(queue).arg(name).arg(state.last[name]).arg(tick);
                for word in &command {
                    call.arg(&word[..]);
                }
                let fired: i64 =
                    call.invoke_async(&mut connection).await.map_err(redis_away(doing))?;
                if fired == 0 {
                    // Another worker was faster: what it has done is read at the next look.
                    stale.push(name);
                    continue;
                }
                state.last.insert(name.to_owned(), tick);
            }
            if pause(stop, self.until_next()).await {
                return Ok(());
            }
        }
    }

    /// Logs what was not logged at the last look.
    fn tell(&mut self, due: &Due) {
        for notice in due.notices.iter().filter(|notice| !self.told.contains(notice)) {
            match notice {
                Notice::Missed { name, is_left_out, late } => {
                    warn!(
                        schedule = name,
                        late,
                        is_left_out,
                        "ticks passed while no worker was there; `missed` decides which fire now"
                    );
                }
                Notice::ClockChanged { name, zone, words, seconds } => {
                    info!(schedule = name, zone, seconds, "the clock of the zone changed: {words}");
                }
                Notice::ClockBehind { name, by_ms } => {
                    // Other clocks may be a little ahead.
                    if *by_ms > 60_000 {
                        warn!(
                            schedule = name,
                            "the last tick lies ahead of this clock; nothing fires until the clock has passed it: look at the clocks of the workers"
                        );
                    }
                }
            }
        }
        self.told.clone_from(&due.notices);
    }
}

/// Instead of all that are there.
async fn replace_state(
    connection: &mut Connection,
    state: &mut State,
) -> Result<(), client::Error> {
    state.revision += 1;
    let mut olds = Vec::new();
    while olds.len() < STATES_MAX
        && let Some(old) = connection.get(STATE, false).await?
    {
        olds.push(old.tag);
    }
    publish_state(connection, state).await?;
    for old in olds {
        connection.settle(old, Outcome::Done).await?;
    }
    Ok(())
}

async fn publish_state(connection: &mut Connection, state: &State) -> Result<(), client::Error> {
    let body = serde_json::to_vec(state).expect("names and numbers are JSON");
    let properties = Properties {
        content_type: Some("application/json"),
        delivery_mode: Some(2),
        ..Properties::default()
    };
    connection.publish(Address::queue(STATE), &properties, &body).await
}
