//! The task of an AMQP source: moves jobs, settlements and copies between the broker and the worker.

mod opening;
mod settling;

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use amqp::Properties;
use client::{Consumer, Delivery, DeliveryTag, Outcome, Publisher, Url, Verdict};
use tokio::sync::mpsc::error::TrySendError;

use self::opening::{Opening, wanted};
use super::{connect, errand};
use crate::error::Error;
use crate::io::source::{BoxFuture, Link, News, Order};
use crate::job::{Job, Receipt};
use crate::settlement::Cause;
use crate::source::amqp::envelope::{self, Came, Change, Taken, name};
use crate::source::amqp::letters::Letters;
use crate::source::amqp::plan::{self, End, Original, Places};
use crate::source::amqp::{Broker, Settings};

/// Jobs of one piece of news at most.
const TOOK_MAX: usize = 256;
/// Orders that are looked at before anything else happens.
const ORDERS_MAX: usize = 1024;
/// News that wait for the worker before no more jobs are taken.
const NEWS_MAX: usize = 64;
/// How long a close waits for copies that are on their way.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Copies are not sent while so many bytes of them are on their way.
const UNCONFIRMED_BYTES_MAX: usize = 32 << 20;

/// Runs until it is closed.
pub(super) async fn run(settings: Settings, url: Url, link: Link) -> Result<(), Error> {
    Task::new(settings, url, link).run().await
}

/// A job that was taken and is not settled.
struct Held {
    tag: DeliveryTag,
    original: Original,
    /// The worker knows it.
    is_given: bool,
}

struct Task {
    settings: Settings,
    url: Url,
    link: Link,
    places: Places,
    /// How many jobs the worker still takes.
    room: usize,
    last: u64,
    held: BTreeMap<Receipt, Held>,
    /// How jobs are let go that still have letters.
    ends: BTreeMap<Receipt, End>,
    letters: Letters,
    news: VecDeque<News>,
    consumer: Option<Consumer>,
    publisher: Option<Publisher>,
    consuming: Opening<(Broker, Consumer)>,
    publishing: Opening<Publisher>,
    errand: Option<BoxFuture<errand::Found>>,
    /// When letters were last looked for.
    looked_at: Instant,
    /// To be closed: at once when nothing is on its way, and at this time at the latest.
    close_by: Option<Instant>,
    is_away: bool,
    is_draining: bool,
}

/// What woke the task.
enum Woken {
    Order(Option<Order>),
    Consumer(Result<(), client::Error>),
    Publisher(Result<Vec<Verdict>, client::Error>),
    Consuming(Result<(Broker, Consumer), Error>),
    Publishing(Result<Publisher, Error>),
    Errand(errand::Found),
    /// The worker takes news again, or time has passed.
    Other,
}

impl Task {
    fn new(settings: Settings, url: Url, link: Link) -> Self {
        let (queue, dead_queue) = (settings.queue.clone(), settings.dead_queue());
        Self {
            settings,
            url,
            link,
            places: Places { broker: Broker::Other, queue, dead_queue },
            room: 0,
            last: 0,
            held: BTreeMap::new(),
            ends: BTreeMap::new(),
            letters: Letters::default(),
            news: VecDeque::new(),
            consumer: None,
            publisher: None,
            consuming: Opening::new(),
            publishing: Opening::new(),
            errand: None,
            looked_at: Instant::now(),
            close_by: None,
            is_away: false,
            is_draining: false,
        }
    }

    async fn run(mut self) -> Result<(), Error> {
        loop {
            self.take();
            self.publish();
            self.open();
            self.tell();
            if self.is_over() {
                return self.end().await;
            }
            match self.woken().await {
                Woken::Order(order) => self.orders(order).await,
                Woken::Consumer(Ok(())) | Woken::Other => (),
                Woken::Consumer(Err(error)) => self.consumer_lost(&error),
                Woken::Publisher(Ok(verdicts)) => self.verdicts(verdicts),
                Woken::Publisher(Err(error)) => self.publisher_lost(&error),
                Woken::Consuming(opened) => self.consuming(opened)?,
                Woken::Publishing(opened) => self.publishing(opened),
                Woken::Errand(found) => self.found(found),
            }
        }
    }

    async fn woken(&mut self) -> Woken {
        let (deadline, is_closing) = (self.deadline(), self.close_by.is_some());
        let Self { link, consumer, publisher, consuming, publishing, errand, news, .. } = self;
        tokio::select! {
            order = link.orders.recv(), if !is_closing => Woken::Order(order),
            result = drive_consumer(consumer) => Woken::Consumer(result),
            result = drive_publisher(publisher) => Woken::Publisher(result),
            opened = consuming.opened() => Woken::Consuming(opened),
            opened = publishing.opened() => Woken::Publishing(opened),
            found = wanted(errand) => {
                *errand = None;
                Woken::Errand(found)
            }
            _ = link.news.reserve(), if !news.is_empty() => Woken::Other,
            () = until(deadline) => Woken::Other,
        }
    }

    /// When something is to be done though nothing happens.
    fn deadline(&self) -> Option<Instant> {
        // What was due when the letters were last looked at waits for something else than time.
        let letters = self.letters.deadline().filter(|at| *at > self.looked_at);
        let letters = letters.filter(|_| self.publisher.is_some());
        let is_consumer_wanted = self.consumer.is_none() && !self.is_draining;
        let consuming = self.consuming.deadline().filter(|_| is_consumer_wanted);
        let is_publisher_wanted = self.publisher.is_none() && !self.letters.is_empty();
        let publishing = self.publishing.deadline().filter(|_| is_publisher_wanted);
        letters.into_iter().chain(consuming).chain(publishing).chain(self.close_by).min()
    }

    // What comes.

    /// Gives the worker what has come, as far as it has room.
    fn take(&mut self) {
        let now_ms = now_ms();
        while self.room > 0 && self.news.len() < NEWS_MAX && !self.is_draining {
            let mut jobs = Vec::new();
            let most = self.room.min(TOOK_MAX);
            while jobs.len() < most {
                let Some(delivery) = self.consumer.as_mut().and_then(Consumer::try_next) else {
                    break;
                };
                if jobs.is_empty() {
                    jobs.reserve(most.min(64));
                }
                jobs.extend(self.delivery(&delivery, now_ms));
            }
            if jobs.is_empty() {
                return;
            }
            self.room -= jobs.len();
            self.news.push_back(News::Took(jobs));
        }
    }

    /// A job for the worker, or what becomes of the message instead.
    fn delivery(&mut self, delivery: &Delivery, now_ms: u64) -> Option<Job> {
        self.last += 1;
        let receipt = Receipt(self.last);
        let came = Came { receipt, redelivered: delivery.redelivered, now_ms };
        let body = delivery.body.clone();
        let raw = delivery.raw_properties();
        let decoded = Properties::decode(raw);
        let taken = match &decoded {
            Ok(properties) => envelope::read(came, properties, body.clone()),
            Err(error) => Taken::Dead {
                cause: Cause::Malformed,
                why: format!("its properties cannot be read: {error}"),
            },
        };
        let (id, attempt) = match &taken {
            Taken::Job(job) | Taken::Early { job, .. } | Taken::Uncounted { job, .. } => {
                (job.message.id.clone(), job.message.attempt)
            }
            Taken::Dead { .. } => {
                let properties = decoded.unwrap_or_default();
                (envelope::id(&properties, &body), envelope::attempt(&properties))
            }
        };
        let original = Original { receipt, id, attempt, properties: raw.clone(), body };
        let (letter, job) = match taken {
            Taken::Job(job) => (None, Some(job)),
            Taken::Uncounted { job, .. } if !self.settings.count_deliveries => (None, Some(job)),
            Taken::Uncounted { deliveries, .. } => {
                let count = [Change::Number(name::DELIVERIES, i64::from(deliveries))];
                let body = original.body.clone();
                let letter =
                    plan::later(&self.places, &original, Duration::ZERO, &count, body, now_ms);
                (Some(letter), None)
            }
            Taken::Early { wait, .. } => {
                let body = original.body.clone();
                (Some(plan::later(&self.places, &original, wait, &[], body, now_ms)), None)
            }
            Taken::Dead { cause, why } => {
                tracing::warn!(
                    queue = self.places.queue,
                    id = original.id,
                    why,
                    "a message is dead: it cannot be a job"
                );
                (Some(plan::dead(&self.places, &original, cause, &why, now_ms)), None)
            }
        };
        if let Some(letter) = letter {
            self.ends.insert(receipt, End::Ack);
            self.letters.add(Instant::now(), vec![letter]);
        }
        self.held.insert(receipt, Held { tag: delivery.tag, original, is_given: job.is_some() });
        job
    }

    // What the worker wants.

    /// An order, and what has come behind it. None: the worker is gone.
    async fn orders(&mut self, first: Option<Order>) {
        self.order(first.unwrap_or(Order::Close)).await;
        for _ in 0..ORDERS_MAX {
            match self.link.orders.try_recv() {
                Ok(order) if self.close_by.is_none() => self.order(order).await,
                Ok(_) | Err(_) => return,
            }
        }
    }

    async fn order(&mut self, order: Order) {
        match order {
            Order::Room { jobs } => self.room = self.room.saturating_add(jobs),
            Order::Settle(settled) => self.settle(settled),
            // A job is held for as long as its connection lives.
            Order::Renew(_) => (),
            Order::Drain => self.drain().await,
            Order::Close => {
                self.drain().await;
                self.close_by = Some(Instant::now() + CLOSE_MAX);
            }
        }
    }

    /// Takes nothing more; what came and was not given goes back.
    async fn drain(&mut self) {
        if std::mem::replace(&mut self.is_draining, true) {
            return;
        }
        self.consuming.stop();
        let Some(consumer) = &mut self.consumer else { return };
        let drained = async {
            consumer.cancel().await?;
            while let Some(delivery) = consumer.try_next() {
                consumer.settle(delivery.tag, Outcome::Requeue)?;
            }
            consumer.flush().await
        };
        if let Err(error) = drained.await {
            self.consumer_lost(&error);
        }
    }

    /// It is to be closed, and no copy is on its way any more whose original would come again.
    fn is_over(&self) -> bool {
        let Some(by) = self.close_by else { return false };
        self.letters.is_empty() || self.consumer.is_none() || by <= Instant::now()
    }

    /// Acknowledges and ends. What is not settled goes back to the queue.
    async fn end(mut self) -> Result<(), Error> {
        let lost: Vec<Receipt> = self.given().collect();
        if !lost.is_empty() {
            self.news.push_back(News::Lost(lost));
        }
        if let Some(consumer) = self.consumer.take()
            && let Err(error) = consumer.close().await
        {
            tracing::warn!(%error, "the broker did not answer the last acknowledgements; some jobs may be repeated");
        }
        self.tell();
        Ok(())
    }

    // Connections.

    /// Begins to open what is needed.
    fn open(&mut self) {
        let now = Instant::now();
        if self.consumer.is_none() && !self.is_draining && self.consuming.is_due(now) {
            let (settings, url) = (self.settings.clone(), self.url.clone());
            self.consuming.begin(Box::pin(connect::consumer(settings, url)));
        }
        if self.letters.is_empty() {
            return;
        }
        if self.publisher.is_none() && self.publishing.is_due(now) {
            let (settings, url) = (self.settings.clone(), self.url.clone());
            self.publishing.begin(Box::pin(connect::publisher(settings, url)));
        }
        if self.errand.is_none() {
            let needs = self.letters.needs();
            if !needs.is_empty() {
                let queue_type = self.settings.retry_queue_type;
                self.errand = Some(Box::pin(errand::run(self.url.clone(), needs, queue_type)));
            }
        }
    }

    fn consuming(&mut self, opened: Result<(Broker, Consumer), Error>) -> Result<(), Error> {
        match opened {
            Ok((broker, consumer)) => {
                self.consuming.succeeded();
                self.places.broker = broker;
                self.consumer = Some(consumer);
                self.is_away = false;
                tracing::info!(queue = self.places.queue, url = %self.url, ?broker, "consuming");
                self.news.push_back(News::Back);
                Ok(())
            }
            Err(error) if error.is_temporary() => {
                let delay = self.consuming.failed(Instant::now());
                self.away(&error.to_string(), delay);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn publishing(&mut self, opened: Result<Publisher, Error>) {
        match opened {
            Ok(publisher) => {
                self.publishing.succeeded();
                self.publisher = Some(publisher);
            }
            Err(error) => {
                let retry_in_ms = self.publishing.failed(Instant::now()).as_millis() as u64;
                tracing::warn!(%error, retry_in_ms, "no connection for retries and dead jobs; jobs are kept");
            }
        }
    }

    /// The connection is gone, and its jobs with it.
    fn consumer_lost(&mut self, error: &client::Error) {
        self.consumer = None;
        let lost: Vec<Receipt> = self.given().collect();
        self.held.clear();
        self.ends.clear();
        self.letters.forget();
        let delay = self.consuming.failed(Instant::now());
        self.away(&error.to_string(), delay);
        if !lost.is_empty() {
            self.news.push_back(News::Lost(lost));
        }
    }

    fn away(&mut self, why: &str, delay: Duration) {
        if !self.is_away {
            let retry_in_ms = delay.as_millis() as u64;
            tracing::warn!(queue = self.places.queue, url = %self.url, why, retry_in_ms, "broker connection lost; retrying");
            self.is_away = true;
            self.news.push_back(News::Away { why: why.to_owned() });
        }
    }

    /// The jobs that the worker has.
    fn given(&self) -> impl Iterator<Item = Receipt> {
        self.held.iter().filter(|(_, held)| held.is_given).map(|(receipt, _)| *receipt)
    }

    /// Hands over as much news as the worker takes.
    fn tell(&mut self) {
        while let Some(news) = self.news.pop_front() {
            match self.link.news.try_send(news) {
                Ok(()) => (),
                Err(TrySendError::Full(news)) => {
                    self.news.push_front(news);
                    return;
                }
                // The worker is gone: its orders end as well.
                Err(TrySendError::Closed(_)) => return,
            }
        }
    }
}

async fn drive_consumer(consumer: &mut Option<Consumer>) -> Result<(), client::Error> {
    match consumer {
        Some(consumer) => consumer.drive().await,
        None => pending().await,
    }
}

async fn drive_publisher(publisher: &mut Option<Publisher>) -> Result<Vec<Verdict>, client::Error> {
    match publisher {
        Some(publisher) => {
            let mut verdicts = Vec::new();
            publisher.drive(&mut verdicts).await.map(|()| verdicts)
        }
        None => pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => pending().await,
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
