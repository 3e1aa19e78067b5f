//! Consumes with manual acks, for ever; each reconnect is a session of its own.

use std::time::Duration;

use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ErrorKind};
use tokio::sync::watch;
use tokio_stream::StreamExt;

use super::{Recorder, Target, link, now};
use crate::history::{DISCONNECT, What, Why};
use crate::workload::{Chance, Manner, QueuePlan, crc32};

/// One consumer.
pub(super) struct Consumer {
    pub(super) name: String,
    pub(super) queue: QueuePlan,
    pub(super) seed: u64,
    pub(super) target: Target,
    pub(super) recorder: Recorder,
    pub(super) go_on: watch::Receiver<bool>,
}

/// After this long without a delivery, acks that wait for company are sent.
const IDLE: Duration = Duration::from_millis(20);

/// Why a session ended.
enum Ending {
    Asked,
    Lost(lapin::Error),
}

impl Consumer {
    pub(super) async fn run(mut self) {
        let mut chance = Chance::named(self.seed, &self.name);
        while *self.go_on.borrow() {
            let begin = now();
            let Ok(connection) = link::connect(&self.target, &self.name).await else {
                tokio::time::sleep(link::RETRY).await;
                continue;
            };
            let session = format!("{}.{begin}", self.name);
            match self.session(&connection, &session, &mut chance).await {
                Ending::Asked => {
                    let _ = link::answered(connection.close(200, "done".into())).await;
                    return;
                }
                Ending::Lost(error) => self.lost(&error),
            }
        }
    }

    fn lost(&self, error: &lapin::Error) {
        link::note_error(&self.recorder, &self.name, error);
        let t = now();
        let kind = DISCONNECT.to_owned();
        let fault = What::Fault { kind, node: 0, t0: t, t1: t, sectors: 0 };
        self.recorder.saw(&self.name, fault);
        self.recorder.saw(&self.name, What::Broke { node: self.target.number() });
    }

    async fn session(
        &mut self,
        connection: &Connection,
        session: &str,
        chance: &mut Chance,
    ) -> Ending {
        match self.take(connection, session, chance).await {
            Ok(()) => Ending::Asked,
            Err(error) => Ending::Lost(error),
        }
    }

    async fn take(
        &mut self,
        connection: &Connection,
        session: &str,
        chance: &mut Chance,
    ) -> Result<(), lapin::Error> {
        let channel = link::answered(connection.create_channel()).await?;
        let qos = channel.basic_qos(self.queue.prefetch, BasicQosOptions::default());
        link::answered(qos).await?;
        let (q, ep) = (self.queue.name.to_owned(), session.to_owned());
        self.recorder.saw(&self.name, What::Open { q, ep });
        let (queue, tag) = (self.queue.name.into(), session.into());
        let options = BasicConsumeOptions::default();
        let consuming = channel.basic_consume(queue, tag, options, FieldTable::default());
        let mut deliveries = link::answered(consuming).await?;
        let mut held: Vec<(String, Delivery)> = Vec::new();
        let mut go_on = self.go_on.clone();
        loop {
            let next = tokio::select! {
                biased;
                () = told_to_stop(&mut go_on) => {
                    self.ack_held(session, &mut held).await?;
                    return Ok(());
                }
                next = tokio::time::timeout(IDLE, deliveries.next()) => next,
            };
            let delivery = match next {
                Ok(Some(delivery)) => delivery?,
                Ok(None) => {
                    return Err(
                        ErrorKind::InvalidConnectionState(lapin::ConnectionState::Closed).into()
                    );
                }
                Err(_) => {
                    self.ack_held(session, &mut held).await?;
                    continue;
                }
            };
            let id = self.delivered(session, &delivery);
            match self.queue.manner {
                Manner::AckEach => self.settle(Verb::Ack, session, id, delivery).await?,
                Manner::AckMany { count } => {
                    held.push((id, delivery));
                    if held.len() >= count.min(usize::from(self.queue.prefetch)) {
                        self.ack_held(session, &mut held).await?;
                    }
                }
                Manner::Mixed { nack_percent, reject_percent } => {
                    let draw = chance.within(0, 100);
                    let verb = if draw < nack_percent {
                        Verb::Nack
                    } else if draw < nack_percent + reject_percent {
                        Verb::Reject
                    } else {
                        Verb::Ack
                    };
                    self.settle(verb, session, id, delivery).await?;
                }
            }
        }
    }

    fn delivered(&self, session: &str, delivery: &Delivery) -> String {
        let id = delivery.properties.message_id().as_ref().map_or("?", |id| id.as_str());
        let what = What::Dlv {
            q: self.queue.name.to_owned(),
            m: id.to_owned(),
            tag: delivery.delivery_tag,
            red: delivery.redelivered,
            h: crc32(&delivery.data),
            ep: session.to_owned(),
        };
        for (q, why) in deaths(delivery) {
            self.recorder.saw(&self.name, What::Died { q, m: id.to_owned(), why });
        }
        self.recorder.saw(&self.name, what);
        id.to_owned()
    }

    async fn settle(
        &self,
        verb: Verb,
        session: &str,
        m: String,
        delivery: Delivery,
    ) -> Result<(), lapin::Error> {
        let (q, ep) = (self.queue.name.to_owned(), session.to_owned());
        let settling = async {
            match verb {
                Verb::Ack => {
                    self.recorder.saw(&self.name, What::Ack { q, m, ep });
                    delivery.ack(BasicAckOptions::default()).await
                }
                Verb::Nack => {
                    self.recorder.saw(&self.name, What::Nack { q, m, ep });
                    delivery.nack(BasicNackOptions { multiple: false, requeue: true }).await
                }
                Verb::Reject => {
                    self.recorder.saw(&self.name, What::Reject { q, m, ep });
                    delivery.reject(BasicRejectOptions { requeue: false }).await
                }
            }
        };
        link::answered(settling).await.map(drop)
    }

    /// One ack for all that wait.
    async fn ack_held(
        &self,
        session: &str,
        held: &mut Vec<(String, Delivery)>,
    ) -> Result<(), lapin::Error> {
        for (id, _) in &*held {
            let (q, ep) = (self.queue.name.to_owned(), session.to_owned());
            self.recorder.saw(&self.name, What::Ack { q, m: id.clone(), ep });
        }
        let Some((_, last)) = held.pop() else { return Ok(()) };
        held.clear();
        link::answered(last.ack(BasicAckOptions { multiple: true })).await.map(drop)
    }
}

/// Where a message died before, and why.
fn deaths(delivery: &Delivery) -> Vec<(String, Why)> {
    let headers = delivery.properties.headers().as_ref();
    let deaths = headers.and_then(|headers| headers.inner().get("x-death"));
    let Some(AMQPValue::FieldArray(deaths)) = deaths else { return Vec::new() };
    let tables = deaths.as_slice().iter().filter_map(|death| match death {
        AMQPValue::FieldTable(table) => Some(table),
        _ => None,
    });
    let death = |table: &FieldTable| {
        let text = |name: &str| match table.inner().get(name) {
            Some(AMQPValue::LongString(text)) => Some(text.to_string()),
            _ => None,
        };
        let why = match text("reason")?.as_str() {
            "expired" => Why::Expired,
            "maxlen" => Why::Overflowed,
            "rejected" => Why::Rejected,
            "delivery_limit" => Why::Exhausted,
            _ => return None,
        };
        Some((text("queue")?, why))
    };
    tables.filter_map(death).collect()
}

async fn told_to_stop(go_on: &mut watch::Receiver<bool>) {
    // An error means that nobody is left to tell: that too is the end.
    let _ = go_on.wait_for(|go_on| !go_on).await;
}

#[derive(Clone, Copy)]
enum Verb {
    Ack,
    Nack,
    Reject,
}
