//! Shares over a broker.
//!
//! **AMQP.** Asks go to the queue [`queue`]; its exclusive consumer is the granter, and the others try to become it
//! each second. Asks expire with the lease. Answers go to a queue of each process, which the broker deletes when
//! nobody uses it. Nothing of it is persistent: a lost message costs a second.
//!
//! **Redis.** One script is the granter, by the clock of the server; what it grants lies in the hash [`queue`].

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use amqp::{FieldTable, Properties};
use client::{Address, Connection, Consumer, ConsumerOptions, Delivery, Publisher, QueueSpec};
use serde::Deserialize;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::lock::REFUSED;
use super::{Broker, RETRY, Stop, amqp_options, away, redis_away};
use crate::error::Error;
use crate::shares::{ASK_EVERY, Ask, Grant, Granter, Holder, LEASE, queue};
use crate::value::Time;

/// How often a share is looked at that may have run out. It is taken from the rate so much earlier.
const GUARD: Duration = Duration::from_millis(50);
/// Grants that wait for the broker.
const WINDOW: u32 = 1000;
/// A process's queue of answers goes when nobody has used it for so long.
const ANSWERS_EXPIRE_MS: i64 = 60_000;
const PREFETCH: u16 = 1000;

/// One script that is the granter: see its head for its words.
const GRANT: &str = include_str!("shares/grant.lua");

/// How a target's rate is shared (`share_rate = true`): part of the settings of a target.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The rate of all processes together, in runs per second.
    pub rate: f64,
    /// How long a share is valid that is not renewed: 2s to 1m. The same in all processes.
    #[serde(default = "lease")]
    pub lease: Time,
}

fn lease() -> Time {
    Time(LEASE)
}

impl Settings {
    /// What is wrong with it, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(self.rate > 0.0 && self.rate.is_finite()) {
            problems.push("a shared rate is more than 0".to_owned());
        }
        if !(2..=60).contains(&self.lease.0.as_secs()) {
            problems.push("`lease` is 2s to 1m".to_owned());
        }
        problems
    }
}

/// This process's part in sharing.
struct Part<'a> {
    target: &'a str,
    settings: &'a Settings,
    holder: Mutex<Holder>,
    wish: watch::Receiver<f64>,
    name: String,
}

/// Shares the rate of `target` with every other process that runs this for it, until it is told to stop.
///
/// `wish` is how many runs per second this process could use now; who does not know says the whole rate. `share`
/// is told what it may use: 0 until the first grant and whenever there is none. It is what
/// [`Input::Share`](crate::pool::Input::Share) is to be told.
///
/// # Errors
/// None that time heals: those are logged and tried again.
pub async fn run(
    target: &str,
    settings: &Settings,
    broker: Broker,
    wish: watch::Receiver<f64>,
    share: watch::Sender<f64>,
    mut stop: Stop,
) -> Result<(), Error> {
    let chance = RandomState::new().hash_one(target);
    let name = format!("{}-{chance:016x}", std::process::id());
    let holder = Mutex::new(Holder::new(name.clone(), settings.rate, settings.lease.0));
    let part = Part { target, settings, holder, wish, name };
    let _ = share.send_replace(0.0);
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => (),
        () = part.guard(&share) => (),
        () = part.hold(&broker) => (),
        () = part.grant(&broker) => (),
    }
    let _ = share.send_replace(0.0);
    Ok(())
}

impl Part<'_> {
    fn holder(&self) -> std::sync::MutexGuard<'_, Holder> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the share whenever it changes, and that it is nothing before it has run out.
    async fn guard(&self, share: &watch::Sender<f64>) {
        let mut looks = tokio::time::interval(GUARD);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let rate = self.holder().rate(Instant::now() + 2 * GUARD);
            share.send_if_modified(|told| {
                let is_changed = *told != rate;
                *told = rate;
                is_changed
            });
        }
    }

    /// Asks, for ever.
    async fn hold(&self, broker: &Broker) {
        loop {
            let ended = match broker {
                Broker::Amqp { url } => self.hold_amqp(url).await,
                Broker::Redis { client, .. } => self.hold_redis(client).await,
            };
            if let Err(error) = ended {
                let target = self.target;
                warn!(%error, target, "no share of the rate can be asked for; this process starts nothing at the target until it can");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn hold_amqp(&self, url: &client::Url) -> Result<(), Error> {
        let away = || away("the shares' connection");
        let options = amqp_options("shares");
        let asks = queue(self.target);
        let answers = format!("{asks}.{}", self.name);
        declare(url, &asks, &answers).await.map_err(away())?;
        let how = ConsumerOptions { no_ack: true, exclusive: true, ..ConsumerOptions::default() };
        let mut consumer = Consumer::open(url, &options, &answers, how).await.map_err(away())?;
        let mut publisher = Publisher::open(url, &options, WINDOW).await.map_err(away())?;
        let mut times = tokio::time::interval(ASK_EVERY);
        times.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let expiration = self.settings.lease.0.as_millis().to_string();
        let mut verdicts = Vec::new();
        loop {
            tokio::select! {
                answer = consumer.next() => {
                    let answer = answer.map_err(away())?;
                    if let Ok(grant) = serde_json::from_slice::<Grant>(&answer.body) {
                        self.holder().granted(grant, Instant::now());
                    }
                }
                _ = times.tick() => {
                    let wish = *self.wish.borrow();
                    let ask = self.holder().ask(wish, Instant::now());
                    let body = serde_json::to_vec(&ask).expect("a name and numbers are JSON");
                    let properties = Properties {
                        expiration: Some(&expiration),
                        reply_to: Some(&answers),
                        ..Properties::default()
                    };
                    let to = Address { mandatory: false, ..Address::queue(&asks) };
                    // With a full window the ask is left out: the next one is as good.
                    publisher.try_publish(to, &properties, &body).map_err(away())?;
                }
                driven = publisher.drive(&mut verdicts) => {
                    driven.map_err(away())?;
                    verdicts.clear();
                }
            }
        }
    }

    /// Tries to become the granter, for ever.
    async fn grant(&self, broker: &Broker) {
        let Broker::Amqp { url } = broker else { return std::future::pending().await };
        loop {
            match self.grant_amqp(url).await {
                Ok(()) => (),
                Err(client::Error::ChannelClosed { code: REFUSED | 404, .. }) => {
                    debug!(
                        target = self.target,
                        "another process grants shares, or the queue is not there yet"
                    );
                }
                Err(error) => {
                    warn!(%error, target = self.target, "this process grants no shares any more; another takes over, or this one again");
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn grant_amqp(&self, url: &client::Url) -> Result<(), client::Error> {
        let options = amqp_options("rate granter");
        let how = ConsumerOptions {
            no_ack: true,
            exclusive: true,
            prefetch: PREFETCH,
            ..ConsumerOptions::default()
        };
        let mut consumer = Consumer::open(url, &options, &queue(self.target), how).await?;
        // Only now does nobody else get asks any more.
        let Settings { rate, lease } = self.settings;
        let mut granter = Granter::new(*rate, lease.0, Instant::now());
        info!(target = self.target, rate, "this process grants the shares of the rate now");
        let mut publisher = Publisher::open(url, &options, WINDOW).await?;
        let mut verdicts = Vec::new();
        loop {
            tokio::select! {
                delivery = consumer.next() => answer(&mut granter, &mut publisher, &delivery?)?,
                driven = publisher.drive(&mut verdicts) => {
                    driven?;
                    verdicts.clear();
                }
            }
        }
    }

    async fn hold_redis(&self, client: &redis::Client) -> Result<(), Error> {
        let script = redis::Script::new(GRANT);
        let mut connection = super::redis_connection(client).await?;
        let mut times = tokio::time::interval(ASK_EVERY);
        times.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // As the granter counts it: 10 % longer.
        let lease_ms = self.settings.lease.0.as_millis() * 11 / 10;
        loop {
            times.tick().await;
            let wish = (*self.wish.borrow()).clamp(0.0, self.settings.rate);
            let Ask { worker, seq, wish } = self.holder().ask(wish, Instant::now());
            let mut call = script.prepare_invoke();
            call.key(queue(self.target)).arg(worker).arg(wish);
            call.arg(self.settings.rate).arg(u64::try_from(lease_ms).unwrap_or(u64::MAX));
            let granted: f64 = call
                .invoke_async(&mut connection)
                .await
                .map_err(redis_away("to ask for a share"))?;
            self.holder().granted(Grant { seq, rate: granted }, Instant::now());
        }
    }
}

fn answer(
    granter: &mut Granter,
    publisher: &mut Publisher,
    delivery: &Delivery,
) -> Result<(), client::Error> {
    let properties = delivery.properties()?;
    let (Some(to), Ok(ask)) = (properties.reply_to, serde_json::from_slice::<Ask>(&delivery.body))
    else {
        return Ok(());
    };
    let grant = granter.ask(&ask, Instant::now());
    let body = serde_json::to_vec(&grant).expect("numbers are JSON");
    let to = Address { mandatory: false, ..Address::queue(to) };
    // A grant that cannot be sent now is as good as lost: it is asked for again.
    publisher.try_publish(to, &Properties::default(), &body).map(drop)
}

/// The queue of asks, and this process's queue of answers.
async fn declare(url: &client::Url, asks: &str, answers: &str) -> Result<(), client::Error> {
    let mut connection = Connection::open(url, &amqp_options("shares")).await?;
    connection.declare_queue(&QueueSpec::durable(asks)).await?;
    let arguments: FieldTable = [("x-expires", ANSWERS_EXPIRE_MS)].into_iter().collect();
    let spec = QueueSpec { arguments, ..QueueSpec::durable(answers) };
    connection.declare_queue(&spec).await?;
    connection.close().await
}
