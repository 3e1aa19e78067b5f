//! What a stored message tells of its deaths, for whoever looks after dead letters.

use amqp::{Properties, ValueRef};

use super::rewrite::RETRIES;
use super::x_death::LastDeath;
use crate::stored::split_head;

/// Where a message died last, and how often operators have sent it on since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// `None`: it does not say.
    pub death: Option<ToldDeath>,
    pub retries: u32,
}

/// A message's newest death, as `x-death` tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldDeath {
    pub queue: String,
    pub reason: String,
    /// It had come to that queue by this exchange, and by this routing key, the first if it had several.
    pub exchange: String,
    pub key: String,
    /// How often it has died there of this.
    pub count: u64,
    /// Seconds since 1970.
    pub time_s: u64,
}

impl Story {
    /// Of a message with this head that lies in the queue `here`: deaths there are retries from there.
    pub fn of(head: &[u8], here: &str) -> Self {
        let properties = split_head(head).and_then(|(_, raw)| Properties::decode(raw).ok());
        let Some(headers) = properties.and_then(|properties| properties.headers) else {
            return Self::default();
        };
        let retries = headers.find(RETRIES).and_then(ValueRef::integer).unwrap_or(0);
        let death = LastDeath::find(headers, here).map(|death| ToldDeath {
            queue: death.queue.to_owned(),
            reason: death.reason.to_owned(),
            exchange: death.exchange.to_owned(),
            key: death.key.to_owned(),
            count: u64::try_from(death.count).unwrap_or(0),
            time_s: death.time_s,
        });
        Self { death, retries: u32::try_from(retries.max(0)).unwrap_or(u32::MAX) }
    }
}
