//! What policies say, and what that makes of a queue.
//!
//! RabbitMQ's order: a limit or a rate is the smallest that anybody names. Of the rest the queue's own word counts before that of
//! a policy, and an operator's before that of who administrates the vhost. One difference: a queue that was declared to
//! drop its head counts as one that says nothing of its overflow.

use super::super::queues::kind::QueueType;
use super::super::queues::spec::{DeadLetter, QueueSpec};
use crate::encoding::{Corrupt, Reader, put_text, put_u32, put_u64};
use crate::settings::{Features, Overflow, QueueSettings, Rates, Retention};

/// What a policy says. None: nothing of that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRules {
    pub message_ttl_ms: Option<u64>,
    pub expires_ms: Option<u64>,
    pub max_length: Option<u64>,
    pub max_length_bytes: Option<u64>,
    pub consumer_timeout_ms: Option<u64>,
    /// Of quorum queues.
    pub delivery_limit: Option<u32>,
    pub overflow: Option<Overflow>,
    pub dead_letter_exchange: Option<String>,
    pub dead_letter_key: Option<String>,
    /// Of an exchange: where goes what it has no route for.
    pub alternate: Option<String>,
    /// Of streams.
    pub max_age_ms: Option<u64>,
    /// Of all other queues.
    pub rates: Rates,
}

// Which parts follow: one bit each.
const TTL: u16 = 1;
const EXPIRES: u16 = 1 << 1;
const LENGTH: u16 = 1 << 2;
const LENGTH_BYTES: u16 = 1 << 3;
const CONSUMER_TIMEOUT: u16 = 1 << 4;
const LIMIT: u16 = 1 << 5;
const OVERFLOW: u16 = 1 << 6;
const DEAD_LETTER: u16 = 1 << 7;
const DEAD_LETTER_KEY: u16 = 1 << 8;
const ALTERNATE: u16 = 1 << 9;
/// Since `Version::STREAMS`.
const MAX_AGE: u16 = 1 << 10;
/// Since `Version::RATES`.
const RATES: u16 = 1 << 11;
const BITS: u16 = (1 << 12) - 1;

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn overflow_number(overflow: Overflow) -> u8 {
    match overflow {
        Overflow::DropHead => 0,
        Overflow::RejectPublish => 1,
        Overflow::RejectPublishDlx => 2,
    }
}

impl PolicyRules {
    /// What these and an operator's say together.
    pub(super) fn under(self, operator: Self) -> Self {
        Self {
            message_ttl_ms: least(self.message_ttl_ms, operator.message_ttl_ms),
            expires_ms: least(self.expires_ms, operator.expires_ms),
            max_length: least(self.max_length, operator.max_length),
            max_length_bytes: least(self.max_length_bytes, operator.max_length_bytes),
            consumer_timeout_ms: least(self.consumer_timeout_ms, operator.consumer_timeout_ms),
            delivery_limit: least(self.delivery_limit, operator.delivery_limit),
            overflow: operator.overflow.or(self.overflow),
            dead_letter_exchange: operator.dead_letter_exchange.or(self.dead_letter_exchange),
            dead_letter_key: operator.dead_letter_key.or(self.dead_letter_key),
            alternate: operator.alternate.or(self.alternate),
            max_age_ms: least(self.max_age_ms, operator.max_age_ms),
            rates: self.rates.least(operator.rates),
        }
    }

    /// What a queue is under them.
    pub(super) fn laid_over(&self, spec: &QueueSpec) -> QueueSpec {
        let dead_letter = match (&spec.dead_letter, &self.dead_letter_exchange) {
            (Some(own), _) => Some(DeadLetter {
                exchange: own.exchange.clone(),
                key: own.key.clone().or_else(|| self.dead_letter_key.clone()),
            }),
            (None, Some(exchange)) => {
                Some(DeadLetter { exchange: exchange.clone(), key: self.dead_letter_key.clone() })
            }
            (None, None) => None,
        };
        let own = spec.settings.features.as_deref().cloned().unwrap_or_default();
        if let Some(own) = own.stream {
            return self.laid_over_stream(spec, own);
        }
        let counts = match spec.queue_type {
            QueueType::Quorum | QueueType::Subscription => true,
            QueueType::Classic | QueueType::Stream => false,
        };
        let delivery_limit = self.delivery_limit.filter(|_| counts);
        let own_limits = |own: Features| match own.subscription {
            // What it does not store has no length, and its stream says how long it is kept.
            Some(_) => Features {
                message_ttl_ms: None,
                max_length: None,
                max_length_bytes: None,
                overflow: Overflow::DropHead,
                rates: Rates { dequeue_bytes: None, enqueue: None, ..own.rates },
                ..own
            },
            None => own,
        };
        let features = own_limits(Features {
            message_ttl_ms: least(own.message_ttl_ms, self.message_ttl_ms),
            expires_ms: least(own.expires_ms, self.expires_ms),
            max_length: least(own.max_length, self.max_length),
            max_length_bytes: least(own.max_length_bytes, self.max_length_bytes),
            overflow: match own.overflow {
                Overflow::DropHead => self.overflow.unwrap_or_default(),
                own @ (Overflow::RejectPublish | Overflow::RejectPublishDlx) => own,
            },
            dead_letters: dead_letter.is_some(),
            delivery_limit: least(own.delivery_limit, delivery_limit),
            rates: own.rates.least(self.rates),
            ..own
        });
        let mut settings = spec.settings.clone();
        settings.features = (features != Features::default()).then(|| Box::new(features));
        QueueSpec {
            settings,
            dead_letter,
            consumer_timeout_ms: least(spec.consumer_timeout_ms, self.consumer_timeout_ms),
            ..spec.clone()
        }
    }

    /// What a stream is under them: as in RabbitMQ they count before what it was declared with, and what else they say
    /// is not for streams.
    fn laid_over_stream(&self, spec: &QueueSpec, own: Retention) -> QueueSpec {
        let stream = Some(Retention {
            max_age_ms: self.max_age_ms.or(own.max_age_ms),
            max_bytes: self.max_length_bytes.or(own.max_bytes),
        });
        let features = Some(Box::new(Features { stream, ..Features::default() }));
        let settings = QueueSettings { features, ..spec.settings.clone() };
        QueueSpec { settings, ..spec.clone() }
    }

    /// Bits, then the parts that the bits announce.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let bits = [
            (self.message_ttl_ms.is_some(), TTL),
            (self.expires_ms.is_some(), EXPIRES),
            (self.max_length.is_some(), LENGTH),
            (self.max_length_bytes.is_some(), LENGTH_BYTES),
            (self.consumer_timeout_ms.is_some(), CONSUMER_TIMEOUT),
            (self.delivery_limit.is_some(), LIMIT),
            (self.overflow.is_some(), OVERFLOW),
            (self.dead_letter_exchange.is_some(), DEAD_LETTER),
            (self.dead_letter_key.is_some(), DEAD_LETTER_KEY),
            (self.alternate.is_some(), ALTERNATE),
            (self.max_age_ms.is_some(), MAX_AGE),
            (!self.rates.is_none(), RATES),
        ];
        let bits: u16 = bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
        put_u32(out, bits.into());
        let numbers = [
            self.message_ttl_ms,
            self.expires_ms,
            self.max_length,
            self.max_length_bytes,
            self.consumer_timeout_ms,
        ];
        numbers.into_iter().flatten().for_each(|number| put_u64(out, number));
        if let Some(limit) = self.delivery_limit {
            put_u32(out, limit);
        }
        out.extend(self.overflow.map(overflow_number));
        let texts = [&self.dead_letter_exchange, &self.dead_letter_key, &self.alternate];
        texts.into_iter().flatten().for_each(|text| put_text(out, text));
        if let Some(max_age_ms) = self.max_age_ms {
            put_u64(out, max_age_ms);
        }
        if !self.rates.is_none() {
            self.rates.encode(out);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        const OTHER: Corrupt = Corrupt::newer("a policy with rules of another version");
        let bits = u16::try_from(reader.u32()?).map_err(|_| OTHER)?;
        if bits & !BITS != 0 {
            return Err(OTHER);
        }
        let has = |bit| bits & bit != 0;
        let number = |reader: &mut Reader<'_>, bit| -> Result<Option<u64>, Corrupt> {
            if has(bit) { reader.u64().map(Some) } else { Ok(None) }
        };
        let message_ttl_ms = number(reader, TTL)?;
        let expires_ms = number(reader, EXPIRES)?;
        let max_length = number(reader, LENGTH)?;
        let max_length_bytes = number(reader, LENGTH_BYTES)?;
        let consumer_timeout_ms = number(reader, CONSUMER_TIMEOUT)?;
        let delivery_limit = if has(LIMIT) { Some(reader.u32()?) } else { None };
        let overflow = match has(OVERFLOW) {
            false => None,
            true => Some(match reader.u8()? {
                0 => Overflow::DropHead,
                1 => Overflow::RejectPublish,
                2 => Overflow::RejectPublishDlx,
                _ => return Err(OTHER),
            }),
        };
        let text = |reader: &mut Reader<'_>, bit| -> Result<Option<String>, Corrupt> {
            if has(bit) { reader.string().map(Some) } else { Ok(None) }
        };
        Ok(Self {
            message_ttl_ms,
            expires_ms,
            max_length,
            max_length_bytes,
            consumer_timeout_ms,
            delivery_limit,
            overflow,
            dead_letter_exchange: text(reader, DEAD_LETTER)?,
            dead_letter_key: text(reader, DEAD_LETTER_KEY)?,
            alternate: text(reader, ALTERNATE)?,
            max_age_ms: number(reader, MAX_AGE)?,
            rates: if has(RATES) { Rates::read(reader)? } else { Rates::default() },
        })
    }
}
