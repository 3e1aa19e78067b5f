//! A source under test, and the end of it that a worker holds.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    dead_code,
    reason = "waits for sources with a deadline; no test needs everything"
)]

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use worker::io::source::{Link, News, Order, Source};
use worker::{Cause, Error, Job, Publish, Receipt, Settled, Settlement};

/// How long anything may take, on a slow machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A source that runs, and what it has told so far.
pub(crate) struct Running {
    orders: mpsc::UnboundedSender<Order>,
    news: mpsc::Receiver<News>,
    task: JoinHandle<Result<(), Error>>,
    jobs: VecDeque<Job>,
    pub(crate) settled: Vec<Receipt>,
    pub(crate) lost: Vec<Receipt>,
    pub(crate) renewed: Vec<Receipt>,
    pub(crate) aways: Vec<String>,
    pub(crate) backs: usize,
}

pub(crate) fn start(source: impl Source) -> Running {
    let (orders, orders_in) = mpsc::unbounded_channel();
    let (news_out, news) = mpsc::channel(64);
    let link = Link { orders: orders_in, news: news_out };
    let task = tokio::spawn(Box::new(source).run(link));
    Running {
        orders,
        news,
        task,
        jobs: VecDeque::new(),
        settled: Vec::new(),
        lost: Vec::new(),
        renewed: Vec::new(),
        aways: Vec::new(),
        backs: 0,
    }
}

impl Running {
    pub(crate) fn order(&self, order: Order) {
        // A source that has ended takes no orders, as at a worker.
        let _ = self.orders.send(order);
    }

    pub(crate) fn room(&self, jobs: usize) {
        self.order(Order::Room { jobs });
    }

    pub(crate) fn settle(&self, job: &Job, settlement: Settlement) {
        self.settle_with(job, settlement, Vec::new());
    }

    pub(crate) fn settle_with(&self, job: &Job, settlement: Settlement, publishes: Vec<Publish>) {
        self.order(Order::Settle(vec![Settled { receipt: job.receipt, settlement, publishes }]));
    }

    fn heard(&mut self, news: News) {
        match news {
            News::Took(jobs) => self.jobs.extend(jobs),
            News::Settled(receipts) => self.settled.extend(receipts),
            News::Renewed(leases) => {
                self.renewed.extend(leases.into_iter().map(|(receipt, _)| receipt));
            }
            News::Lost(receipts) => self.lost.extend(receipts),
            News::Away { why } => self.aways.push(why),
            News::Back => self.backs += 1,
        }
    }

    /// Hears news until they say what is waited for.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !is_so(self) {
            match timeout_at(end, self.news.recv()).await {
                Ok(Some(news)) => self.heard(news),
                Ok(None) => {
                    let result = (&mut self.task).await.unwrap();
                    panic!("the source ended before {what}: {result:?}");
                }
                Err(_) => panic!("no {what} in time: {}", self.summary()),
            }
        }
    }

    /// What was heard so far, for whoever waits in vain.
    fn summary(&self) -> String {
        let Self { jobs, settled, lost, aways, backs, .. } = self;
        let counts = (jobs.len(), settled.len(), lost.len());
        format!("(jobs, settled, lost) {counts:?}, {backs} times back from {aways:?}")
    }

    /// Hears what is told within a short while, for what must not be told.
    pub(crate) async fn listen(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while let Ok(Some(news)) = timeout_at(end, self.news.recv()).await {
            self.heard(news);
        }
    }

    /// The next so many jobs.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Job> {
        self.until(&format!("{count} jobs"), |source| source.jobs.len() >= count).await;
        self.jobs.drain(..count).collect()
    }

    pub(crate) fn has_jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Waits until so many settlements are carried out.
    pub(crate) async fn settled(&mut self, count: usize) {
        self.until(&format!("{count} settlements"), |source| source.settled.len() >= count).await;
    }

    /// Stops it as a worker does.
    pub(crate) async fn close(mut self) -> Self {
        self.order(Order::Drain);
        self.order(Order::Close);
        let end = Instant::now() + TIMEOUT;
        while let Some(news) = timeout_at(end, self.news.recv()).await.expect("it ends in time") {
            self.heard(news);
        }
        (&mut self.task).await.unwrap().unwrap();
        self
    }

    /// Ends it as kill -9 ends a worker: nothing is said or sent any more.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// What it ended with.
    pub(crate) async fn end(mut self) -> Result<(), Error> {
        let end = Instant::now() + TIMEOUT;
        while timeout_at(end, self.news.recv()).await.expect("it ends in time").is_some() {}
        self.task.await.unwrap()
    }
}

/// Another attempt after a delay.
pub(crate) fn later(after_ms: u64, attempt: u32) -> Settlement {
    let after = Duration::from_millis(after_ms);
    Settlement::Later { after, attempt, why: "it failed".into(), rest: None }
}

pub(crate) fn dead() -> Settlement {
    Settlement::Dead { cause: Cause::Rejected, why: "no such mailbox".into() }
}

/// A publish of a job with this body.
pub(crate) fn publish(to: &str, body: &str, delay_ms: u64) -> Publish {
    let message = worker::Message {
        id: format!("of-{body}"),
        kind: "next".into(),
        body: body.to_owned().into(),
        attempt: 1,
        ..worker::Message::default()
    };
    let delay = (delay_ms > 0).then(|| Duration::from_millis(delay_ms));
    Publish { exchange: String::new(), routing_key: to.to_owned(), message, key: None, delay }
}

pub(crate) fn bodies(jobs: &[Job]) -> Vec<String> {
    jobs.iter().map(|job| String::from_utf8(job.message.body.to_vec()).unwrap()).collect()
}
