//! A channel with confirms, and what is published on it: through an exchange, to a queue by its name, and to nobody.

use std::collections::BTreeMap;

use amqp::{Encoder, Method, Properties, basic, channel, confirm, exchange, queue};
use bytes::BytesMut;
use client::{Content, PublishSeq, Window};

use super::{By, PUBLISH, Stage};
use crate::history::{Stage as Told, What};
use crate::sim::agenda::Micros;
use crate::sim::clients::connection::Connection;
use crate::sim::clients::plans::Plan;
use crate::sim::clients::publisher::body;
use crate::workload::crc32;

/// Unconfirmed messages.
const WINDOW: u32 = 40;
/// Messages sent at once, at most.
const BURST: u64 = 6;
const EXCHANGE: &str = "wire";
/// A key that no queue is bound with.
const NOWHERE: &str = "nowhere";
/// The key that all queues are bound with.
const ALL: &str = "all";

/// One channel after the other.
pub(super) struct Publishing {
    stage: Stage,
    since: Micros,
    /// Counts channels of the connection.
    life: u64,
    window: Window,
    /// Messages without an answer, by their number on the channel.
    sent: BTreeMap<u64, Sent>,
}

struct Sent {
    id: String,
    /// It is to be returned before it is confirmed.
    comes_back: bool,
    was_returned: bool,
}

impl Default for Publishing {
    fn default() -> Self {
        let (window, sent) = (Window::new(WINDOW), BTreeMap::new());
        Self { stage: Stage::Gone, since: 0, life: 0, window, sent }
    }
}

impl Publishing {
    pub(super) fn is_quiet(&self) -> bool {
        self.sent.is_empty()
    }

    pub(super) fn waits_since(&self) -> Option<Micros> {
        match self.stage {
            Stage::Opening | Stage::Asking | Stage::Closing => Some(self.since),
            Stage::Gone | Stage::Ready => None,
        }
    }

    /// As messages are named after it.
    fn name(&self, by: &By<'_, '_>) -> String {
        format!("{}.{}.{}", by.name, by.generation, self.life)
    }

    fn goes_to(&mut self, stage: Stage, by: &By<'_, '_>) {
        (self.stage, self.since) = (stage, by.outside.now);
    }

    pub(super) fn act(&mut self, may_publish: bool, is_steady: bool, by: &mut By<'_, '_>) {
        match self.stage {
            Stage::Gone => {
                by.core.open_channel(PUBLISH);
                self.life += 1;
                self.window = Window::new(WINDOW);
                self.goes_to(Stage::Opening, by);
            }
            Stage::Ready if !is_steady && by.one_of(300) => {
                self.end(by);
                by.core.close_channel(PUBLISH);
                self.goes_to(Stage::Closing, by);
            }
            Stage::Ready if may_publish => {
                for _ in 0..by.outside.chance.within(1, BURST + 1) {
                    self.publish(by);
                }
            }
            Stage::Ready | Stage::Opening | Stage::Asking | Stage::Closing => {}
        }
    }

    pub(super) fn told(&mut self, method: &Method<'_>, by: &mut By<'_, '_>) {
        match (self.stage, method) {
            (Stage::Opening, Method::ChannelOpenOk(channel::OpenOk)) => self.declare(by),
            (
                Stage::Asking,
                Method::ExchangeDeclareOk(_) | Method::QueueDeclareOk(_) | Method::QueueBindOk(_),
            ) => {}
            (Stage::Asking, Method::ConfirmSelectOk(_)) => self.goes_to(Stage::Ready, by),
            (Stage::Closing, Method::ChannelCloseOk(_)) => self.goes_to(Stage::Gone, by),
            (stage, method) => by.complain(&format!("was told {} in {stage:?}", method.name())),
        }
    }

    /// The exchange, the queues, and how they are bound. It was there before, mostly.
    fn declare(&mut self, by: &mut By<'_, '_>) {
        let kind = "direct";
        let exchange = EXCHANGE;
        let declare =
            exchange::Declare { exchange, kind, durable: true, ..exchange::Declare::default() };
        by.send(PUBLISH, &Method::ExchangeDeclare(declare));
        for plan in by.plans.iter().filter(|plan| plan.is_over_amqp) {
            let queue = plan.name;
            let declare = queue::Declare { queue, durable: true, ..queue::Declare::default() };
            by.send(PUBLISH, &Method::QueueDeclare(declare));
            for routing_key in [plan.name, ALL] {
                let bind = queue::Bind { queue, exchange, routing_key, ..queue::Bind::default() };
                by.send(PUBLISH, &Method::QueueBind(bind));
            }
        }
        by.send(PUBLISH, &Method::ConfirmSelect(confirm::Select { no_wait: false }));
        self.goes_to(Stage::Asking, by);
    }

    fn publish(&mut self, by: &mut By<'_, '_>) {
        if self.window.is_full() {
            return;
        }
        let seq = self.window.issue(1);
        let id = format!("{}:{}", self.name(by), seq.0);
        // The first on a channel shows soon whether all queues go on.
        let draw = if seq == PublishSeq(1) { 0 } else { by.outside.chance.within(0, 100) };
        let plans: Vec<&Plan> = by.plans.iter().filter(|plan| plan.is_over_amqp).collect();
        let one = plans[by.outside.chance.within(0, plans.len() as u64) as usize].name;
        let (exchange, routing_key, queues) = match draw {
            0..35 => (EXCHANGE, ALL, plans.iter().map(|plan| plan.name.to_owned()).collect()),
            35..65 => (EXCHANGE, one, vec![one.to_owned()]),
            65..95 => ("", one, vec![one.to_owned()]),
            _ => (EXCHANGE, NOWHERE, Vec::new()),
        };
        let mandatory = by.outside.chance.percent(50);
        let (comes_back, body) = (mandatory && queues.is_empty(), body(&id));
        let (k, h) = (Told::Inv, Some(crc32(&body)));
        by.saw(What::Pub { k, m: id.clone(), n: 0, q: queues, h, returned: false });
        let properties =
            Properties { message_id: Some(&id), delivery_mode: Some(2), ..Properties::default() };
        let mut raw = BytesMut::new();
        properties.encode(&mut raw);
        let publish =
            basic::Publish { exchange, routing_key, mandatory, ..basic::Publish::default() };
        let frame_max = by.core.agreed().frame_max;
        let mut encoder = Encoder::new(by.core.output(), frame_max);
        encoder.method(PUBLISH, &Method::BasicPublish(publish));
        encoder.header(PUBLISH, body.len() as u64, &raw);
        encoder.body(PUBLISH, &body);
        self.sent.insert(seq.0, Sent { id, comes_back, was_returned: false });
    }

    /// `basic.ack` or `basic.nack` of a message, or of all up to it.
    pub(super) fn confirmed(
        &mut self,
        (tag, multiple): (u64, bool),
        positive: bool,
        connection: &Connection,
        by: &mut By<'_, '_>,
    ) {
        let mut seqs = Vec::new();
        let settled =
            self.window.settle(tag, multiple, |run| seqs.extend(run.first.0..=run.last.0));
        if settled.is_err() {
            by.complain(&format!("heard of {tag} of {}, which waits for nothing", self.name(by)));
        }
        for Sent { id, comes_back, was_returned } in
            seqs.into_iter().filter_map(|seq| self.sent.remove(&seq))
        {
            if positive && connection.is_unstored(&id) {
                by.complain(&format!("was told that {id} is safe, and an append has no answer"));
            }
            if positive && comes_back != was_returned {
                let text = format!("was confirmed {id}: returned {was_returned}, not {comes_back}");
                by.complain(&text);
            }
            by.counts.confirmed += u64::from(positive);
            let (k, n, q, h) = (if positive { Told::Ok } else { Told::Fail }, 0, vec![], None);
            by.saw(What::Pub { k, m: id, n, q, h, returned: was_returned });
        }
    }

    /// A message that no queue was found for.
    pub(super) fn returned(&mut self, content: &Content, by: &mut By<'_, '_>) {
        let properties = Properties::decode(&content.properties).unwrap_or_default();
        let id = properties.message_id.unwrap_or_default();
        match self.sent.values_mut().find(|sent| sent.id == id && !sent.was_returned) {
            Some(sent) => {
                sent.was_returned = true;
                by.counts.returned += 1;
            }
            None => by.complain(&format!("was returned {id:?}, which waits for nothing")),
        }
    }

    /// What has no answer by now never gets one.
    pub(super) fn end(&mut self, by: &mut By<'_, '_>) {
        if self.life == 0 || matches!(self.stage, Stage::Gone | Stage::Closing) {
            return;
        }
        for Sent { id, .. } in std::mem::take(&mut self.sent).into_values() {
            let (k, q, h) = (Told::Info, Vec::new(), None);
            by.saw(What::Pub { k, m: id, n: 0, q, h, returned: false });
        }
        let ch = self.name(by);
        by.saw(What::Closed { ch });
        self.stage = Stage::Gone;
    }
}
