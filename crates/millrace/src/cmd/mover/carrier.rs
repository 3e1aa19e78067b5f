//! Moves one queue: a consumer at the source, a publisher at the target, and the book of what is between them.
//!
//! A message is settled at the source only after the target has confirmed it. Whatever ends a run, what is not settled
//! is at the source: it goes back to its place there when the connection ends.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use client::{
    Connection, Consumer, ConsumerOptions, Delivery, Error, Options, Outcome, Url, Verdict,
};
use tokio::sync::watch;

use super::counts::{Counts, add};
use super::flight::Flight;
use super::looks::Looks;
use super::pace::Pace;
use super::place::Place;
use super::target::{NO_EXCHANGE, News, Target, Way};

/// How long confirms are waited for at the end, and how long the brokers may take to answer a goodbye.
const END_WAIT: Duration = Duration::from_secs(10);
/// How often in a row messages may come back although their queue is there.
const RETURNS_MAX: u32 = 3;
/// How many outcomes the source is told at once, at most.
const ACK_EVERY_MAX: usize = 100;

/// What is to be moved, and how.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) from: Url,
    pub(super) to: Url,
    pub(super) options: Options,
    pub(super) queue: String,
    pub(super) place: Place,
    pub(super) prefetch: u16,
    /// Messages on their way, at most, and their bytes.
    pub(super) window: u16,
    pub(super) bytes_max: usize,
    /// How long a broker may be away, or the target may confirm nothing.
    pub(super) give_up_after: Duration,
    pub(super) ends_when_empty: bool,
    pub(super) pace: Option<Arc<Pace>>,
    pub(super) counts: Arc<Counts>,
    pub(super) stop: watch::Receiver<bool>,
    /// Of jitter.
    pub(super) seed: u64,
}

/// How it ended, where nothing was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The source had nothing ready.
    Empty,
    /// It was asked to stop.
    Stopped,
}

/// What a wait ended with.
enum Happened {
    /// The source sent something, or it is time to publish.
    GoOn,
    /// A permit to publish one message came.
    Permit,
    Target(Result<News, Error>),
    /// The target owed something for too long.
    Silence,
    End(End),
}

struct Carrier {
    job: Job,
    consumer: Consumer,
    target: Target,
    flight: Flight<Delivery>,
    /// The source's connection whose deliveries can be settled.
    life: u32,
    verdicts: Vec<Verdict>,
    has_permit: bool,
    wants_permit: bool,
    /// The target refused something: nothing more is published before all that was sent has its verdict, so that what
    /// is sent again does not come too late by more than it must.
    is_draining: bool,
    /// Refusals and returns since the last confirm.
    refusals: u32,
    returns: u32,
    /// The target's words on what it gave back.
    returned: Option<String>,
    not_before: Option<Instant>,
    /// Since when the target owes something.
    owed_since: Option<Instant>,
    quiet_since: Instant,
}

/// Moves the queue until it is empty or a stop is asked for.
///
/// # Errors
/// In words: why the queue cannot be moved on. All that is not settled is at the source.
pub(super) async fn carry(job: Job) -> Result<End, String> {
    let mut stop = job.stop.clone();
    let opened = tokio::select! {
        opened = Carrier::open(job) => opened,
        () = asked(&mut stop) => return Ok(End::Stopped),
    };
    let mut carrier = opened?;
    let end = carrier.run().await;
    carrier.finish().await;
    end
}

/// When a stop is asked for.
async fn asked(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|is_asked| *is_asked).await.is_err() {
        // Whoever could ask is gone.
        std::future::pending::<()>().await;
    }
}

impl Carrier {
    async fn open(job: Job) -> Result<Self, String> {
        let options = Options { retry_for: job.give_up_after, ..job.options.clone() };
        let window = usize::from(job.window);
        let how = ConsumerOptions {
            prefetch: job.prefetch,
            ack_every: (usize::from(job.prefetch) / 4).clamp(1, ACK_EVERY_MAX),
            ..ConsumerOptions::default()
        };
        let consumer = Consumer::open(&job.from, &options, &job.queue, how).await;
        let way = Way {
            url: job.to.clone(),
            options: job.options.clone().without_retry(),
            window: job.window.into(),
            give_up_after: job.give_up_after,
        };
        Ok(Self {
            consumer: consumer.map_err(|error| at_source(&error))?,
            target: Target::new(way, job.seed),
            flight: Flight::new(window, job.bytes_max),
            life: 0,
            verdicts: Vec::new(),
            has_permit: false,
            wants_permit: false,
            is_draining: false,
            refusals: 0,
            returns: 0,
            returned: None,
            not_before: None,
            owed_since: None,
            quiet_since: Instant::now(),
            job,
        })
    }

    async fn run(&mut self) -> Result<End, String> {
        loop {
            self.take_in();
            self.send()?;
            self.note();
            match self.wait().await? {
                Happened::GoOn => (),
                Happened::Permit => self.has_permit = true,
                Happened::Target(news) => self.hear(news).await?,
                Happened::Silence => return Err(self.silence()),
                Happened::End(end) => return Ok(end),
            }
        }
    }

    /// Takes deliveries, as many as there is room for.
    fn take_in(&mut self) {
        let life = self.consumer.lost_connections();
        if life != self.life {
            tracing::warn!(
                queue = self.job.queue,
                "the source was lost; it delivers again what was not settled"
            );
            add(&self.job.counts.source_losses, u64::from(life - self.life));
            self.life = life;
            self.flight.forget_before(life);
        }
        while !self.flight.is_full() {
            let Some(delivery) = self.consumer.try_next() else { break };
            let bytes = delivery.body.len() + delivery.raw_properties().len();
            let is_repeat = delivery.redelivered;
            self.flight.arrive(delivery, bytes, life, is_repeat);
            self.quiet_since = Instant::now();
        }
        self.consumer.hold_back(self.flight.is_full());
    }

    /// Publishes what waits, as far as the target and the rate allow.
    fn send(&mut self) -> Result<(), String> {
        self.wants_permit = false;
        if self.is_draining || self.not_before.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        self.not_before = None;
        let Self { job, flight, target, .. } = self;
        let Some(publisher) = target.publisher() else { return Ok(()) };
        while publisher.has_room() && flight.has_waiting() {
            if let Some(pace) = &job.pace
                && !std::mem::take(&mut self.has_permit)
                && !pace.try_take()
            {
                self.wants_permit = true;
                return Ok(());
            }
            let Some(entry) = flight.next() else { return Ok(()) };
            match job.place.publish(publisher, &entry) {
                Ok(Some(seq)) => {
                    add(&job.counts.repeats, entry.is_repeat.into());
                    flight.sent(seq, entry);
                }
                Ok(None) => {
                    flight.again(entry, false);
                    return Ok(());
                }
                Err(error) => {
                    flight.again(entry, false);
                    return Err(format!("a message cannot be published: {error}"));
                }
            }
        }
        Ok(())
    }

    /// Notes how it stands, for those who watch, and since when the target owes something.
    fn note(&mut self) {
        self.job.counts.in_flight.store(self.flight.len() as u64, Relaxed);
        let is_owed =
            self.flight.is_owed() || (self.target.is_blocked() && self.flight.has_waiting());
        self.owed_since = is_owed.then(|| self.owed_since.unwrap_or_else(Instant::now));
    }

    /// Waits until something happens.
    async fn wait(&mut self) -> Result<Happened, String> {
        let give_up_at = self.owed_since.map(|since| since + self.job.give_up_after);
        let may_be_empty = self.job.ends_when_empty && self.flight.is_empty();
        let Self { job, consumer, target, verdicts, .. } = self;
        // One wait for all looks: a connection that is being made again is not to begin anew with each.
        let mut source = pin!(consumer.drive());
        let mut news = pin!(target.drive(verdicts));
        let mut stop = job.stop.clone();
        let mut stop = pin!(asked(&mut stop));
        let mut permit = pin!(permit(job.pace.as_deref().filter(|_| self.wants_permit)));
        let mut looks = Looks::new(self.quiet_since, job.give_up_after);
        loop {
            tokio::select! {
                driven = &mut source => {
                    return driven.map(|()| Happened::GoOn).map_err(|error| at_source(&error));
                }
                news = &mut news => return Ok(Happened::Target(news)),
                () = &mut permit => return Ok(Happened::Permit),
                () = &mut stop => return Ok(Happened::End(End::Stopped)),
                () = at(self.not_before) => return Ok(Happened::GoOn),
                () = at(give_up_at) => return Ok(Happened::Silence),
                () = at(Some(looks.due)), if may_be_empty => {
                    if looks.look(&job.from, &job.options, &job.queue).await? {
                        return Ok(Happened::End(End::Empty));
                    }
                }
            }
        }
    }

    fn silence(&self) -> String {
        let seconds = self.job.give_up_after.as_secs_f64();
        let why = match (self.target.is_blocked(), self.refusals) {
            (true, _) => "has blocked publishers (its memory or disk is short) and ",
            (false, 0) => "",
            (false, _) => "refuses messages (basic.nack: is the queue full?) and ",
        };
        format!("the target {why}has confirmed nothing for {seconds} s")
    }

    async fn hear(&mut self, news: Result<News, Error>) -> Result<(), String> {
        self.judge();
        match news {
            Ok(News::Verdicts | News::Back) => (),
            Ok(News::Lost(error)) => {
                let unknown = self.flight.sent_count();
                tracing::warn!(queue = self.job.queue, %error, unknown, "the target was lost; connecting again");
                add(&self.job.counts.target_losses, 1);
                self.flight.lost();
                if error.code() == Some(NO_EXCHANGE) {
                    return self.look_why(&error.to_string()).await;
                }
            }
            Err(error) => return Err(at_target(&error)),
        }
        if self.is_draining && self.flight.sent_count() == 0 {
            self.is_draining = false;
            let delay = self.job.options.backoff.bound(self.refusals);
            self.refusals = self.refusals.saturating_add(1);
            self.not_before = Some(Instant::now() + delay);
            if let Some(words) = self.returned.take() {
                self.look_why(&words).await?;
            }
        }
        Ok(())
    }

    /// Settles what is confirmed, and puts back what is not.
    fn judge(&mut self) {
        let life = self.consumer.lost_connections();
        for verdict in std::mem::take(&mut self.verdicts) {
            match verdict {
                Verdict::Confirmed(run) => {
                    for entry in self.flight.take(run) {
                        if entry.life != life {
                            continue;
                        }
                        add(&self.job.counts.moved, 1);
                        add(&self.job.counts.bytes, entry.message.body.len() as u64);
                        let settled = self.consumer.settle(entry.message.tag, Outcome::Done);
                        settled.expect("a delivery is taken out of the book once");
                    }
                    (self.refusals, self.returns, self.owed_since) = (0, 0, None);
                }
                Verdict::Refused(run) => {
                    add(&self.job.counts.refused, run.count());
                    for entry in self.flight.take(run) {
                        // A target that was cut off may have stored it all the same.
                        self.flight.again(entry, true);
                    }
                    self.is_draining = true;
                }
                Verdict::Returned { seq, code, text } => {
                    for entry in self.flight.take(client::Run { first: seq, last: seq }) {
                        self.flight.again(entry, false);
                    }
                    self.returned.get_or_insert_with(|| format!("{code} {text}"));
                    self.is_draining = true;
                }
            }
        }
    }

    /// Messages came back, or have nowhere to go: either their queue is gone, or only the way to it, which is made again.
    async fn look_why(&mut self, words: &str) -> Result<(), String> {
        self.returns += 1;
        if self.returns > RETURNS_MAX {
            return Err(format!(
                "the target does not take messages ({words}) although the queue is there; they stay at the source"
            ));
        }
        let options = self.job.options.clone().without_retry();
        let prepared = match Connection::open(&self.job.to, &options).await {
            Ok(mut target) => self.job.place.prepare(&mut target).await,
            Err(error) => Err(error),
        };
        match prepared {
            // Whoever is away now is asked again after the next message that comes back.
            Err(error) if !error.is_temporary() => Err(format!(
                "the target takes no more messages ({words}): its queue is gone ({error}); they stay at the source"
            )),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Lets what was sent be confirmed, tells the source, and closes both connections.
    async fn finish(mut self) {
        self.flight.forget_waiting();
        self.consumer.hold_back(true);
        let end_at = tokio::time::Instant::now() + END_WAIT;
        while self.flight.sent_count() > 0 && self.target.publisher().is_some() {
            let Self { consumer, target, verdicts, .. } = &mut self;
            let driven = tokio::select! {
                news = target.drive(verdicts) => news,
                // Nothing is settled without a source.
                Err(_) = consumer.drive() => break,
                () = tokio::time::sleep_until(end_at) => break,
            };
            self.judge();
            self.flight.forget_waiting();
            match driven {
                Ok(News::Verdicts) => (),
                Ok(News::Lost(_) | News::Back) | Err(_) => break,
            }
        }
        let unknown = self.flight.sent_count();
        if unknown > 0 {
            tracing::warn!(
                queue = self.job.queue,
                unknown,
                "the target has not confirmed all; what is unknown stays at the source and may be there twice"
            );
        }
        self.job.counts.in_flight.store(0, Relaxed);
        self.target.close(END_WAIT).await;
        match tokio::time::timeout(END_WAIT, self.consumer.close()).await {
            Ok(Ok(())) => (),
            Ok(Err(_)) | Err(_) => tracing::warn!(
                queue = self.job.queue,
                "the source did not say goodbye; messages settled last may come again"
            ),
        }
    }
}

/// For ever, without a moment.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

/// For ever, if none is wanted.
async fn permit(pace: Option<&Pace>) {
    match pace {
        Some(pace) => pace.take().await,
        None => std::future::pending().await,
    }
}

fn at_source(error: &Error) -> String {
    format!("at the source: {error}")
}

fn at_target(error: &Error) -> String {
    format!("at the target: {error}")
}
