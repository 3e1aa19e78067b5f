//! Publishes with confirms on several channels of one connection, for ever.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, PublisherConfirm};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::{Plan, Recorder, Target, link};
use crate::history::{Marks, Stage, What};
use crate::workload::{Chance, ChannelPlan, body, crc32};

/// One connection.
pub(super) struct Publisher {
    pub(super) name: String,
    pub(super) channels: Vec<ChannelPlan>,
    pub(super) plan: Arc<Plan>,
    pub(super) target: Target,
    pub(super) recorder: Recorder,
    pub(super) go_on: watch::Receiver<bool>,
}

/// A message whose outcome nobody knows, to be published again.
#[derive(Clone, Debug)]
struct Again {
    id: String,
    attempt: u32,
}

/// Longest wait for a confirm before it counts as unknown.
const CONFIRM: Duration = Duration::from_secs(30);
/// Publishes sent at one go; what a rate per second is cut into.
const BURST: u64 = 10;
/// Publishes per second to a queue with arguments: there are many of those.
const RATE_SPECIAL: u64 = 100;
/// How many unknown publishes of a lost channel are tried again.
const AGAIN_MAX: usize = 256;

impl Publisher {
    pub(super) async fn run(self) {
        let mut agains = vec![VecDeque::new(); self.channels.len()];
        let mut generation = 0;
        while *self.go_on.borrow() {
            generation += 1;
            agains = self.connection(generation, agains).await;
            tokio::time::sleep(link::RETRY).await;
        }
    }

    /// One connection's life. Gives back what each channel has to publish again.
    async fn connection(
        &self,
        generation: u32,
        agains: Vec<VecDeque<Again>>,
    ) -> Vec<VecDeque<Again>> {
        let connection = match link::connect(&self.target, &self.name).await {
            Ok(connection) => connection,
            Err(error) => {
                link::note_error(&self.recorder, &self.name, &error);
                return agains;
            }
        };
        let mut lanes = JoinSet::new();
        for ((index, plan), again) in self.channels.iter().enumerate().zip(agains) {
            let Ok(channel) = link::answered(connection.create_channel()).await else {
                lanes.spawn(async move { (index, again) });
                continue;
            };
            let lane = Lane {
                name: self.name.clone(),
                prefix: format!("{}.{index}.{generation}", self.name),
                plan: plan.clone(),
                window: Arc::new(Semaphore::new(self.plan.window)),
                rate: if plan.special.is_some() { RATE_SPECIAL } else { self.plan.rate },
                seed: self.plan.seed,
                recorder: self.recorder.clone(),
                go_on: self.go_on.clone(),
            };
            lanes.spawn(async move { (index, lane.run(channel, again).await) });
        }
        let mut next = vec![VecDeque::new(); self.channels.len()];
        let mut is_broken = false;
        while let Some(Ok((index, again))) = lanes.join_next().await {
            next[index] = again;
            if *self.go_on.borrow() && !is_broken {
                is_broken = true;
                self.recorder.saw(&self.name, What::Broke { node: self.target.number() });
            }
            // A node may close one channel alone. Then all of them begin anew.
            if *self.go_on.borrow() {
                link::leave(&connection, "again").await;
            }
        }
        // It may be gone already; either way nothing more is expected of it.
        link::leave(&connection, "done").await;
        next
    }
}

/// One life of one channel.
struct Lane {
    name: String,
    prefix: String,
    plan: ChannelPlan,
    window: Arc<Semaphore>,
    rate: u64,
    seed: u64,
    recorder: Recorder,
    go_on: watch::Receiver<bool>,
}

struct Sent {
    id: String,
    attempt: u32,
    confirm: PublisherConfirm,
    _place: OwnedSemaphorePermit,
}

impl Lane {
    async fn run(self, channel: Channel, mut again: VecDeque<Again>) -> VecDeque<Again> {
        let selected = link::answered(channel.confirm_select(ConfirmSelectOptions::default()));
        if let Err(error) = selected.await {
            link::note_error(&self.recorder, &self.name, &error);
            return again;
        }
        let (sent, waiting) = mpsc::channel(self.window.available_permits());
        let (publish, confirm) =
            (self.publish(&channel, again.clone(), sent), self.settle(waiting));
        let (published, mut unknown) = tokio::join!(publish, confirm);
        again.drain(..published.retried);
        unknown.extend(published.unsent);
        self.recorder.saw(&self.name, What::Closed { ch: self.prefix.clone() });
        if !self.plan.retries {
            return VecDeque::new();
        }
        again.extend(unknown);
        again.truncate(AGAIN_MAX);
        again
    }

    async fn publish(
        &self,
        channel: &Channel,
        mut again: VecDeque<Again>,
        sent: mpsc::Sender<Sent>,
    ) -> Published {
        let mut published = Published::default();
        let mut tick = tokio::time::interval(Duration::from_micros(1_000_000 * BURST / self.rate));
        for seq in 0_u64.. {
            if seq % BURST == 0 {
                tick.tick().await;
            }
            let place = self.window.clone().acquire_owned().await;
            let place = place.expect("the window is never closed");
            if !*self.go_on.borrow() || !channel.status().connected() {
                break;
            }
            let retry = again.pop_front();
            published.retried += usize::from(retry.is_some());
            let Again { id, attempt } =
                retry.unwrap_or_else(|| Again { id: format!("{}:{seq}", self.prefix), attempt: 0 });
            match link::answered(self.publish_one(channel, &id, attempt)).await {
                Ok(confirm) => {
                    let waiting = Sent { id, attempt, confirm, _place: place };
                    if sent.send(waiting).await.is_err() {
                        break;
                    }
                }
                Err(error) => {
                    self.unknown(&id, attempt);
                    link::note_error(&self.recorder, &self.name, &error);
                    published.unsent = Some(Again { id, attempt: attempt + 1 });
                    break;
                }
            }
        }
        published
    }

    async fn publish_one(
        &self,
        channel: &Channel,
        id: &str,
        attempt: u32,
    ) -> Result<PublisherConfirm, lapin::Error> {
        let body = body(id);
        let persistent = BasicProperties::default().with_delivery_mode(2);
        let properties = self.mark(id, persistent.with_message_id(id.into()));
        let inv = What::Pub {
            k: Stage::Inv,
            m: id.to_owned(),
            n: attempt,
            q: self.plan.queues.iter().map(|queue| (*queue).to_owned()).collect(),
            h: Some(crc32(&body)),
            returned: false,
        };
        self.recorder.saw(&self.name, inv);
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        let (exchange, key) = (self.plan.exchange.into(), self.plan.key.into());
        channel.basic_publish(exchange, key, options, &body, properties).await
    }

    /// What a message for a queue with arguments says of itself.
    fn mark(&self, id: &str, properties: BasicProperties) -> BasicProperties {
        let Some(special) = &self.plan.special else { return properties };
        let marks = special.marks(&mut Chance::named(self.seed, id));
        if marks == Marks::default() {
            return properties;
        }
        let mut headers = FieldTable::default();
        if let Some(ms) = marks.delay_ms {
            let ms = i32::try_from(ms).expect("delays are short");
            headers.insert("x-delay".into(), AMQPValue::LongInt(ms));
        }
        if let Some(key) = marks.key {
            let key = AMQPValue::LongString(format!("key-{key}").into());
            headers.insert(special.key_header().into(), key);
        }
        let mut properties = properties.with_headers(headers).with_priority(marks.priority);
        if let Some(ms) = marks.ttl_ms {
            properties = properties.with_expiration(ms.to_string().into());
        }
        self.recorder.saw(&self.name, What::Marks { m: id.to_owned(), marks });
        properties
    }

    /// Waits for the outcome of what was sent, in the order it was sent.
    async fn settle(&self, mut waiting: mpsc::Receiver<Sent>) -> Vec<Again> {
        let mut unknown = Vec::new();
        while let Some(Sent { id, attempt, confirm, _place }) = waiting.recv().await {
            match tokio::time::timeout(CONFIRM, confirm).await {
                Ok(Ok(Confirmation::Ack(returned))) => {
                    self.outcome(Stage::Ok, &id, attempt, returned.is_some());
                }
                Ok(Ok(Confirmation::Nack(returned))) => {
                    self.outcome(Stage::Fail, &id, attempt, returned.is_some());
                }
                Ok(Ok(Confirmation::NotRequested)) => {
                    let text = format!("{}: no confirms after confirm.select-ok", self.name);
                    self.recorder.saw(&self.name, What::Protocol { text });
                }
                Ok(Err(error)) => {
                    link::note_error(&self.recorder, &self.name, &error);
                    self.unknown(&id, attempt);
                    unknown.push(Again { id, attempt: attempt + 1 });
                }
                Err(_) => {
                    self.unknown(&id, attempt);
                    unknown.push(Again { id, attempt: attempt + 1 });
                }
            }
        }
        unknown
    }

    fn unknown(&self, id: &str, attempt: u32) {
        self.outcome(Stage::Info, id, attempt, false);
    }

    fn outcome(&self, k: Stage, id: &str, n: u32, returned: bool) {
        let what = What::Pub { k, m: id.to_owned(), n, q: Vec::new(), h: None, returned };
        self.recorder.saw(&self.name, what);
    }
}

/// What one life of a channel came to.
#[derive(Default)]
struct Published {
    /// How many of the old ones were sent again.
    retried: usize,
    /// The one that could not be handed over.
    unsent: Option<Again>,
}
