//! The clients: lapin for most, a pika script for one lane. Nothing here judges what they see.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real clients have sockets, clocks and tasks"
)]

mod consumer;
mod drain;
mod link;
pub mod pika;

mod publisher;
mod recorder;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Plan, QueuePlan};
use crate::history::What;
pub use drain::Drained;
pub use recorder::{Recorder, Writing, now};

/// Where the broker listens, or every node of it.
#[derive(Clone, Debug)]
pub struct Target {
    pub addresses: Vec<SocketAddr>,
    pub user: String,
    pub password: String,
    /// Which of the addresses comes next.
    turn: Arc<AtomicUsize>,
}

impl Target {
    /// `guest` on the loopback address.
    pub fn local(port: u16) -> Self {
        Self::nodes(vec![SocketAddr::from(([127, 0, 0, 1], port))])
    }

    /// `guest` on any of these.
    pub fn nodes(addresses: Vec<SocketAddr>) -> Self {
        assert!(!addresses.is_empty(), "there is at least one node");
        Self { addresses, user: "guest".into(), password: "guest".into(), turn: Arc::default() }
    }

    /// The same, for one client: it begins with the address of that number and stays with it while
    /// it answers.
    pub fn beginning_at(&self, number: usize) -> Self {
        Self { turn: Arc::new(AtomicUsize::new(number)), ..self.clone() }
    }

    fn address(&self) -> SocketAddr {
        self.addresses[self.turn.load(Ordering::Relaxed) % self.addresses.len()]
    }

    /// Of the node at the address, counted from 1.
    fn number(&self) -> u32 {
        (self.turn.load(Ordering::Relaxed) % self.addresses.len()) as u32 + 1
    }

    fn next(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    fn uri(&self) -> String {
        let (user, password, address) = (&self.user, &self.password, self.address());
        format!("amqp://{user}:{password}@{address}/%2f?heartbeat=10")
    }
}

/// Publishers and consumers at work. They come back by themselves when the broker does.
pub struct Load {
    plan: Arc<Plan>,
    target: Target,
    recorder: Recorder,
    publishers: JoinSet<()>,
    consumers: JoinSet<()>,
    publish: watch::Sender<bool>,
    consume: watch::Sender<bool>,
    /// Queues without a planned consumer that have one now.
    backlogs: BTreeSet<&'static str>,
}

/// How long publishers may take to hear about what they sent before they rest.
const REST: Duration = Duration::from_secs(40);

impl Load {
    /// Declares what `plan` needs; waits for a broker that answers. [`Load::start`] does it, too. Nodes of a
    /// cluster may route by a new binding a moment later than the one that it was declared at.
    pub async fn declare(plan: &Plan, target: &Target) -> Result<(), String> {
        link::declare(plan, target).await
    }

    /// Declares what the plan needs and starts every client; waits for a broker that answers.
    pub async fn start(plan: Plan, target: Target, recorder: Recorder) -> Result<Self, String> {
        let plan = Arc::new(plan);
        link::declare(&plan, &target).await?;
        for fact in plan.queue_facts() {
            recorder.saw("plan", fact);
        }
        let mut load = Self {
            publishers: JoinSet::new(),
            consumers: JoinSet::new(),
            publish: watch::channel(true).0,
            consume: watch::channel(true).0,
            backlogs: BTreeSet::new(),
            plan,
            target,
            recorder,
        };
        load.recorder.saw("plan", What::Load { on: true });
        for (index, channels) in load.plan.publishers.iter().enumerate() {
            let publisher = publisher::Publisher {
                name: format!("pub-{index}"),
                channels: channels.clone(),
                plan: load.plan.clone(),
                target: load.target.beginning_at(index),
                recorder: load.recorder.clone(),
                go_on: load.publish.subscribe(),
            };
            load.publishers.spawn(publisher.run());
        }
        load.consume();
        Ok(load)
    }

    /// Starts the planned consumers of every queue.
    fn consume(&mut self) {
        for queue in self.plan.queues.clone() {
            self.consume_from(&queue, queue.consumers);
        }
    }

    fn consume_from(&mut self, queue: &QueuePlan, count: usize) {
        for index in 0..count {
            let consumer = consumer::Consumer {
                name: format!("con-{}-{index}", queue.name),
                queue: queue.clone(),
                seed: self.plan.seed,
                target: self.target.beginning_at(self.consumers.len()),
                recorder: self.recorder.clone(),
                go_on: self.consume.subscribe(),
            };
            self.consumers.spawn(consumer.run());
        }
    }

    /// One consumer for every queue that has none, but for the one that somebody else consumes.
    pub fn consume_backlogs(&mut self, but: Option<&str>) {
        for queue in self.plan.queues.clone() {
            let is_free = queue.consumers == 0 && but != Some(queue.name);
            if is_free && self.backlogs.insert(queue.name) {
                self.consume_from(&queue, 1);
            }
        }
    }

    /// Publishers stop, once each of their messages has an outcome or time is up.
    pub async fn rest(&mut self) {
        self.publish.send_replace(false);
        let all = async { while self.publishers.join_next().await.is_some() {} };
        if tokio::time::timeout(REST, all).await.is_err() {
            self.publishers.shutdown().await;
        }
        self.recorder.saw("plan", What::Load { on: false });
    }

    /// Takes everything that is left, then stops the consumers and asks every queue what it holds.
    /// Draining again is fine: a rested load takes whatever is there.
    pub async fn drain(&mut self, within: Duration) -> Drained {
        let deadline = Instant::now() + within;
        loop {
            if self.consumers.is_empty() {
                self.consume = watch::channel(true).0;
                self.consume();
            }
            self.consume_backlogs(None);
            let quiet =
                drain::until_quiet(&self.plan, &self.target, &self.recorder, deadline).await;
            self.stop_consumers().await;
            let drained = drain::counts(&self.plan, &self.target).await;
            // What was out with a consumer when it stopped went back: it is taken once more.
            if drained.is_empty() || !quiet || Instant::now() >= deadline {
                drained.record(&self.recorder);
                return drained;
            }
        }
    }

    /// Stops everything without a drain: what is not settled goes back.
    pub async fn abandon(mut self) {
        self.publish.send_replace(false);
        self.consume.send_replace(false);
        self.publishers.shutdown().await;
        self.stop_consumers().await;
    }

    async fn stop_consumers(&mut self) {
        self.backlogs.clear();
        self.consume.send_replace(false);
        let all = async { while self.consumers.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(20), all).await.is_err() {
            self.consumers.shutdown().await;
        }
    }
}
