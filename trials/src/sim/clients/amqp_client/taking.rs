//! A channel that takes messages from a queue, by a consumer or one at a time, and says what became of them.

use std::collections::BTreeMap;

use amqp::{Method, Properties, basic, channel, queue};
use client::Content;

use super::{By, FETCH, Mood, Stage};
use crate::history::What;
use crate::sim::agenda::Micros;
use crate::workload::crc32;

/// The largest prefetch: a session gives a consumer no more credit before the size of its messages is known.
const PREFETCH: u64 = broker::limits::WINDOW_MESSAGES_START as u64;

/// One channel after the other.
pub(super) struct Taking {
    number: u16,
    /// Of the plans.
    queue: usize,
    stage: Stage,
    since: Micros,
    /// Counts channels of the connection, and consumers of the channel.
    life: u64,
    nth: u64,
    /// The consumer's name, in the history and for the broker; that of all fetches.
    ep: String,
    prefetch: u16,
    consumer: Consumer,
    /// A fetch without an answer.
    is_fetching: bool,
    held: BTreeMap<u64, Held>,
    last_tag: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consumer {
    None,
    Beginning,
    There,
    Cancelling,
}

struct Held {
    message: String,
    ep: String,
}

/// What becomes of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    Back,
    Refused,
}

impl Taking {
    pub(super) fn new(number: u16, queue: usize) -> Self {
        Self {
            number,
            queue,
            stage: Stage::Gone,
            since: 0,
            life: 0,
            nth: 0,
            ep: String::new(),
            prefetch: 0,
            consumer: Consumer::None,
            is_fetching: false,
            held: BTreeMap::new(),
            last_tag: 0,
        }
    }

    fn is_fetcher(&self) -> bool {
        self.number == FETCH
    }

    /// Messages that it holds.
    pub(super) fn held(&self) -> u64 {
        self.held.len() as u64
    }

    /// What its queue may still give its consumer, if that is there.
    pub(super) fn credit(&self) -> Option<u64> {
        let is_there = self.stage == Stage::Ready && self.consumer == Consumer::There;
        is_there.then(|| u64::from(self.prefetch) - self.held_by_consumer())
    }

    fn held_by_consumer(&self) -> u64 {
        self.held.values().filter(|held| held.ep == self.ep).count() as u64
    }

    pub(super) fn waits_since(&self) -> Option<Micros> {
        let is_asking = match self.stage {
            Stage::Opening | Stage::Asking | Stage::Closing => true,
            Stage::Gone | Stage::Ready => false,
        };
        let is_consumer = matches!(self.consumer, Consumer::Beginning | Consumer::Cancelling);
        (is_asking || is_consumer || self.is_fetching).then_some(self.since)
    }

    fn goes_to(&mut self, stage: Stage, by: &By<'_, '_>) {
        (self.stage, self.since) = (stage, by.outside.now);
    }

    pub(super) fn act(&mut self, mood: Mood, by: &mut By<'_, '_>) {
        match self.stage {
            Stage::Gone => {
                by.core.open_channel(self.number);
                self.life += 1;
                (self.nth, self.last_tag) = (0, 0);
                self.goes_to(Stage::Opening, by);
            }
            Stage::Ready if !mood.is_steady && by.one_of(200) => {
                by.core.close_channel(self.number);
                self.held.clear();
                (self.consumer, self.is_fetching) = (Consumer::None, false);
                self.goes_to(Stage::Closing, by);
            }
            Stage::Ready => {
                self.settle(mood, by);
                if self.is_fetcher() {
                    self.fetch(mood, by);
                } else {
                    self.consume(mood, by);
                }
            }
            Stage::Opening | Stage::Asking | Stage::Closing => {}
        }
    }

    pub(super) fn told(&mut self, method: &Method<'_>, by: &mut By<'_, '_>) {
        match (self.stage, method) {
            (Stage::Opening, Method::ChannelOpenOk(channel::OpenOk)) => {
                let queue = by.plans[self.queue].name;
                let declare = queue::Declare { queue, durable: true, ..queue::Declare::default() };
                by.send(self.number, &Method::QueueDeclare(declare));
                self.goes_to(Stage::Asking, by);
            }
            (Stage::Asking, Method::QueueDeclareOk(_)) => {
                self.goes_to(Stage::Ready, by);
                if self.is_fetcher() {
                    self.begin(by);
                }
            }
            (Stage::Closing, Method::ChannelCloseOk(_)) => self.goes_to(Stage::Gone, by),
            (Stage::Ready, Method::BasicQosOk(_)) if self.consumer == Consumer::Beginning => {}
            (Stage::Ready, Method::BasicConsumeOk(_)) if self.consumer == Consumer::Beginning => {
                self.consumer = Consumer::There;
            }
            (Stage::Ready, Method::BasicCancelOk(_)) if self.consumer == Consumer::Cancelling => {
                self.consumer = Consumer::None;
            }
            (Stage::Ready, Method::BasicGetEmpty(_)) if self.is_fetching => {
                self.is_fetching = false;
            }
            (stage, method) => {
                let (name, consumer) = (method.name(), self.consumer);
                by.complain(&format!("was told {name} in {stage:?}, {consumer:?}"));
            }
        }
    }

    /// From now on messages come under another name.
    fn begin(&mut self, by: &mut By<'_, '_>) {
        self.nth += 1;
        let what = if self.is_fetcher() { "get" } else { "con" };
        self.ep = format!("{}.{}.{what}-{}-{}", by.name, by.generation, self.life, self.nth);
        by.saw(What::Open { q: by.plans[self.queue].name.to_owned(), ep: self.ep.clone() });
    }

    /// Begins to consume, or perhaps ends that.
    fn consume(&mut self, mood: Mood, by: &mut By<'_, '_>) {
        match self.consumer {
            Consumer::None => {
                self.begin(by);
                self.prefetch = by.outside.chance.within(1, PREFETCH + 1) as u16;
                let qos = basic::Qos { prefetch_count: self.prefetch, ..basic::Qos::default() };
                by.send(self.number, &Method::BasicQos(qos));
                let (queue, consumer_tag) = (by.plans[self.queue].name, self.ep.as_str());
                let consume = basic::Consume { queue, consumer_tag, ..basic::Consume::default() };
                by.send(self.number, &Method::BasicConsume(consume));
                (self.consumer, self.since) = (Consumer::Beginning, by.outside.now);
            }
            Consumer::There if !mood.is_steady && by.one_of(150) => {
                let cancel = basic::Cancel { consumer_tag: &self.ep, no_wait: false };
                by.send(self.number, &Method::BasicCancel(cancel));
                (self.consumer, self.since) = (Consumer::Cancelling, by.outside.now);
            }
            Consumer::There | Consumer::Beginning | Consumer::Cancelling => {}
        }
    }

    fn fetch(&mut self, mood: Mood, by: &mut By<'_, '_>) {
        if mood.is_draining || self.is_fetching || !by.one_of(4) {
            return;
        }
        let get = basic::Get { queue: by.plans[self.queue].name, no_ack: false };
        by.send(self.number, &Method::BasicGet(get));
        (self.is_fetching, self.since) = (true, by.outside.now);
    }

    /// `basic.deliver` or `basic.get-ok`.
    pub(super) fn given(&mut self, content: &Content, by: &mut By<'_, '_>) {
        let (tag, red, ep) = match Method::decode(&content.method) {
            Ok(Method::BasicDeliver(it)) => (it.delivery_tag, it.redelivered, it.consumer_tag),
            Ok(Method::BasicGetOk(it)) if self.is_fetching => {
                self.is_fetching = false;
                (it.delivery_tag, it.redelivered, self.ep.as_str())
            }
            other => return by.complain(&format!("was given {other:?}")),
        };
        if ep != self.ep || tag != self.last_tag + 1 {
            let text = format!("{}: {tag} for {ep} comes after {}", self.ep, self.last_tag);
            by.complain(&text);
        }
        self.last_tag = tag;
        let properties = Properties::decode(&content.properties).unwrap_or_default();
        let m = properties.message_id.unwrap_or("without an id").to_owned();
        let (q, h, ep) =
            (by.plans[self.queue].name.to_owned(), crc32(&content.body), ep.to_owned());
        by.saw(What::Dlv { q, m: m.clone(), tag, red, h, ep: ep.clone() });
        self.held.insert(tag, Held { message: m, ep });
        let held = self.held_by_consumer();
        if self.is_fetcher() {
            by.counts.fetched += 1;
        } else {
            by.counts.delivered += 1;
            if held > u64::from(self.prefetch) {
                by.complain(&format!(
                    "{} holds {held}, its prefetch is {}",
                    self.ep, self.prefetch
                ));
            }
        }
    }

    /// Perhaps settles some of what it holds: one by one, or all up to one of them.
    fn settle(&mut self, mood: Mood, by: &mut By<'_, '_>) {
        if self.held.is_empty() || (!mood.is_draining && by.outside.chance.percent(30)) {
            return;
        }
        let number = self.number;
        if mood.is_draining || by.outside.chance.percent(50) {
            let nth = match mood.is_draining {
                true => self.held.len() - 1,
                false => by.outside.chance.within(0, self.held.len() as u64) as usize,
            };
            let tag = *self.held.keys().nth(nth).expect("it is one of them");
            let after = self.held.split_off(&(tag + 1));
            let settled = std::mem::replace(&mut self.held, after);
            by.counts.multiples += u64::from(settled.len() > 1);
            let fate = self.draw(mood, by);
            settled.into_values().for_each(|held| self.note(held, fate, by));
            return by.send(number, &tell(tag, true, fate));
        }
        let chosen = self.held.keys().copied().filter(|_| by.outside.chance.percent(40));
        for tag in chosen.collect::<Vec<_>>() {
            let fate = self.draw(mood, by);
            if let Some(held) = self.held.remove(&tag) {
                self.note(held, fate, by);
            }
            // A nack says the same as a reject.
            let is_nack = by.outside.chance.percent(50);
            let method = match (fate, is_nack) {
                (Fate::Done, _) | (_, true) => tell(tag, false, fate),
                (Fate::Back | Fate::Refused, false) => {
                    let requeue = fate == Fate::Back;
                    Method::BasicReject(basic::Reject { delivery_tag: tag, requeue })
                }
            };
            by.send(number, &method);
        }
    }

    fn draw(&self, mood: Mood, by: &mut By<'_, '_>) -> Fate {
        let plan = &by.plans[self.queue];
        let draw = by.outside.chance.within(0, 100);
        if mood.is_draining || draw >= plan.back_percent + plan.reject_percent {
            Fate::Done
        } else if draw < plan.back_percent {
            Fate::Back
        } else {
            Fate::Refused
        }
    }

    fn note(&self, Held { message: m, ep }: Held, fate: Fate, by: &mut By<'_, '_>) {
        let q = by.plans[self.queue].name.to_owned();
        by.saw(match fate {
            Fate::Done => What::Ack { q, m, ep },
            Fate::Back => What::Nack { q, m, ep },
            Fate::Refused => What::Reject { q, m, ep },
        });
    }
}

fn tell(delivery_tag: u64, multiple: bool, fate: Fate) -> Method<'static> {
    let requeue = fate == Fate::Back;
    match fate {
        Fate::Done => Method::BasicAck(basic::Ack { delivery_tag, multiple }),
        Fate::Back | Fate::Refused => {
            Method::BasicNack(basic::Nack { delivery_tag, multiple, requeue })
        }
    }
}
