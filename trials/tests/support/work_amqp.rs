//! A broker, and a hand that plays the worker of an AMQP source.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    dead_code,
    reason = "starts processes and waits for them; no test needs everything"
)]

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use amqp::{FieldTable, Properties};
use client::{Address, Connection, Options, QueueSpec, Url};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use trials::chaos::Failure;
use trials::chaos::broker::{Broker, Kind, START_MAX};
use worker::io::source::amqp::Amqp;
use worker::io::source::{Link, News, Order, Source};
use worker::source::amqp::Settings;
use worker::value::Secret;
use worker::{Error, Job, Receipt, Settled, Settlement};

#[path = "millrace.rs"]
mod millrace;

/// For how long anything is waited for.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A broker, ended and removed when dropped.
pub(crate) struct Stage {
    pub(crate) broker: Broker,
    pub(crate) kind: Kind,
    pub(crate) runtime: Runtime,
    dir: PathBuf,
}

impl Stage {
    /// None where the broker is not installed, which is said.
    pub(crate) fn start(kind: Kind, what: &str) -> Option<Self> {
        let name = format!("work-{what}-{}", std::process::id());
        let dir = Path::new(env!("CARGO_BIN_EXE_trials")).with_file_name("work-trials").join(&name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let made = trials::relay::broker_in(kind, millrace::broker(), &dir, &name, &[]);
        let mut broker = match made {
            Ok(broker) => broker,
            Err(skipped @ Failure::Skipped(_)) => {
                println!("{skipped}");
                return None;
            }
            Err(failure) => panic!("{failure}"),
        };
        broker.start().unwrap();
        broker.wait_ready(START_MAX).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Some(Self { broker, kind, runtime: runtime.unwrap(), dir })
    }

    /// `kill -9` and a new start on what is left.
    pub(crate) fn kill(&mut self) {
        self.broker.kill().unwrap();
    }

    pub(crate) fn revive(&mut self) {
        self.broker.start().unwrap();
        self.broker.wait_ready(START_MAX).unwrap();
    }

    pub(crate) fn url(&self) -> String {
        format!("amqp://guest:guest@{}/%2F", self.broker.setup.address())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
            let _ = std::fs::remove_dir_all(&self.broker.setup.data);
        }
    }
}

/// Asks the broker and publishes.
pub(crate) struct Desk(pub(crate) Connection);

impl Desk {
    pub(crate) async fn open(url: &str) -> Self {
        let url: Url = url.parse().unwrap();
        Self(Connection::open(&url, &Options::named("desk").without_retry()).await.unwrap())
    }

    pub(crate) async fn queue(&mut self, name: &str) {
        self.0.declare_queue(&QueueSpec::durable(name)).await.unwrap();
    }

    pub(crate) async fn count(&mut self, queue: &str) -> u32 {
        self.0.look_up_queue(queue).await.unwrap().message_count
    }

    /// A job with headers of its own.
    pub(crate) async fn publish(&mut self, queue: &str, id: &str, headers: FieldTable) {
        let raw = headers.to_bytes();
        let headers = Some(amqp::TableRef::validate(&raw).unwrap());
        let properties = Properties {
            message_id: Some(id),
            kind: Some("test"),
            delivery_mode: Some(2),
            headers,
            ..Properties::default()
        };
        self.0.publish(Address::queue(queue), &properties, id.as_bytes()).await.unwrap();
    }

    pub(crate) async fn job(&mut self, queue: &str, id: &str) {
        self.publish(queue, id, FieldTable::new()).await;
    }

    /// Waits until a queue has so many messages ready.
    pub(crate) async fn until_count(&mut self, queue: &str, count: u32) {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let found = self.count(queue).await;
            if found == count {
                return;
            }
            assert!(Instant::now() < deadline, "`{queue}` has {found} messages, not {count}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Plays the worker.
pub(crate) struct Hand {
    pub(crate) orders: mpsc::UnboundedSender<Order>,
    news: mpsc::Receiver<News>,
    task: JoinHandle<Result<(), Error>>,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) settled: Vec<Receipt>,
    pub(crate) lost: Vec<Receipt>,
    pub(crate) aways: usize,
    pub(crate) backs: usize,
}

pub(crate) fn settings(url: &str, queue: &str) -> Settings {
    Settings::new(Secret::new(url), queue)
}

impl Hand {
    pub(crate) fn start(settings: Settings, room: usize) -> Self {
        let (orders, orders_out) = mpsc::unbounded_channel();
        let (news_in, news) = mpsc::channel(16);
        let source = Box::new(Amqp::new(settings).unwrap());
        // Before it runs: a source that cannot go on ends at once, and takes no order any more.
        orders.send(Order::Room { jobs: room }).unwrap();
        let task = tokio::spawn(source.run(Link { orders: orders_out, news: news_in }));
        let (jobs, settled, lost) = Default::default();
        Self { orders, news, task, jobs, settled, lost, aways: 0, backs: 0 }
    }

    /// Hears until the condition holds.
    pub(crate) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + WAIT_MAX;
        while !holds(self) {
            let heard = tokio::time::timeout_at(deadline, self.news.recv()).await;
            match heard.unwrap_or_else(|_| panic!("{what}: not in {WAIT_MAX:?}")) {
                Some(news) => self.hear(news),
                None => panic!("{what}: the source has ended: {:?}", (&mut self.task).await),
            }
        }
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Took(jobs) => self.jobs.extend(jobs),
            News::Settled(receipts) => self.settled.extend(receipts),
            News::Lost(receipts) => {
                self.jobs.retain(|job| !receipts.contains(&job.receipt));
                self.lost.extend(receipts);
            }
            News::Renewed(_) => (),
            News::Away { .. } => self.aways += 1,
            News::Back => self.backs += 1,
        }
    }

    /// What has come already.
    pub(crate) fn hear_all(&mut self) {
        while let Ok(news) = self.news.try_recv() {
            self.hear(news);
        }
    }

    /// The next job.
    pub(crate) async fn job(&mut self) -> Job {
        self.until("a job comes", |hand| !hand.jobs.is_empty()).await;
        self.jobs.pop_front().unwrap()
    }

    pub(crate) fn order(&self, job: &Job, settlement: Settlement) {
        self.order_with(job, settlement, Vec::new());
    }

    pub(crate) fn order_with(
        &self,
        job: &Job,
        settlement: Settlement,
        publishes: Vec<worker::Publish>,
    ) {
        let settled = Settled { receipt: job.receipt, settlement, publishes };
        self.orders.send(Order::Settle(vec![settled])).unwrap();
        self.orders.send(Order::Room { jobs: 1 }).unwrap();
    }

    /// Orders it and waits until it is done.
    pub(crate) async fn settle(&mut self, job: &Job, settlement: Settlement) {
        self.order(job, settlement);
        self.until_settled(job.receipt).await;
    }

    pub(crate) async fn until_settled(&mut self, receipt: Receipt) {
        self.until("the job is settled", |hand| hand.settled.contains(&receipt)).await;
    }

    /// Closes it in order.
    pub(crate) async fn close(self) {
        self.orders.send(Order::Close).unwrap();
        self.task.await.unwrap().unwrap();
    }

    /// How it ended by itself.
    pub(crate) async fn ended(self) -> Result<(), Error> {
        tokio::time::timeout(WAIT_MAX, self.task).await.expect("it ends").unwrap()
    }

    /// Its process dies: nothing is closed, nothing flushed.
    pub(crate) async fn die(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

pub(crate) fn later(after: Duration, attempt: u32) -> Settlement {
    Settlement::Later { after, attempt, why: "no answer".into(), rest: None }
}
