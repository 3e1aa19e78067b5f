//! What a queue's machine has to know about the queue, as its group's log keeps it.

mod change;
mod rates;

pub use rates::{Rate, Rates};

use crate::encoding::{Corrupt, Reader, put_u32, put_u64};
use crate::filter::Filter;
use crate::ids::{GroupId, QueueId};
use crate::message_key::KeySource;
use crate::queue::{Assignment, StreamOffset};
use crate::version::Version;

/// 2 knows features, 3 that a queue is paused.
const VERSION: u8 = 3;
const DURABLE: u8 = 1;
const AUTO_DELETE: u8 = 2;
const FEATURES: u8 = 4;
const PAUSED: u8 = 8;

/// How a queue behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// Whether it outlives its node's process.
    pub is_durable: bool,
    /// Whether it goes when its last consumer does: asks for `Effect::Unused`.
    pub is_auto_delete: bool,
    /// What its arguments ask for; None: a plain queue, which pays nothing for those that are not.
    pub features: Option<Box<Features>>,
    /// Whether nobody is given its messages. They come in, expire, fall due, and leave as dead letters as ever.
    pub is_paused: bool,
}

/// What arguments make of a queue. The default asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// How long a message may wait, from when it was logged; held messages do not expire.
    pub message_ttl_ms: Option<u64>,
    /// How long the queue may be without consumers and unused before it goes: asks for `Effect::Unused`.
    pub expires_ms: Option<u64>,
    /// Ready messages.
    pub max_length: Option<u64>,
    /// Bytes of the bodies of ready messages.
    pub max_length_bytes: Option<u64>,
    pub overflow: Overflow,
    /// Whether what is rejected, expires or overflows is handed to the dead-letter worker; else it is dropped.
    pub dead_letters: bool,
    /// Highest priority: the queue has a level for each from 0 on.
    pub max_priority: u8,
    /// One consumer at a time is served; the next when it is gone.
    pub single_active: bool,
    /// How often a message may come back; the next time it is handed to the dead-letter worker.
    pub delivery_limit: Option<u32>,
    /// Whether it is logged how often a message came back.
    pub counts_returns: bool,
    /// Whether a message that comes back waits, and for how long.
    pub retry: Option<Retry>,
    /// Whether a message whose key came lately is left out.
    pub dedup: Option<Dedup>,
    /// It is a stream, which keeps what it was given. It has no other feature.
    pub stream: Option<Retention>,
    /// How fast its messages may go out and come in.
    pub rates: Rates,
    /// It has no messages of its own: it reads a stream.
    pub subscription: Option<Subscription>,
    /// It is one of several partitions, each of which serves the one consumer that it is assigned to.
    pub assignment: Option<Assignment>,
    /// Its rates count for it and the other partitions together: who has the tokens. None: they are its own.
    pub tokens_of: Option<TokenHome>,
    /// Of a subscription: what it is given of its stream. None: everything.
    pub filter: Option<Box<Filter>>,
    /// Of messages with the same key one is out at a time, in their order: where their key is. It has one level.
    pub order: Option<Box<KeySource>>,
}

/// The partition whose leader counts the tokens of all partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenHome {
    pub group: GroupId,
    pub queue: QueueId,
}

/// A queue that reads a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Which stream, in the same group.
    pub stream: QueueId,
    /// Where it began, or was set to last.
    pub start: StreamOffset,
    /// Retention may remove what it has not settled: it then has a gap. Otherwise the stream keeps that.
    pub skips: bool,
    /// How often it was set to another place.
    pub seeks: u32,
}

/// What of a stream is kept. The default keeps everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// What is older goes.
    pub max_age_ms: Option<u64>,
    /// Bytes of messages, heads included: the oldest beyond them go.
    pub max_bytes: Option<u64>,
}

/// What happens at the limit of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The first messages go.
    #[default]
    DropHead,
    /// New ones are refused before they are logged: see `QueueMachine::admit`.
    RejectPublish,
    /// The same, and who publishes hands them to the dead-letter exchange.
    RejectPublishDlx,
}

/// Which messages wait before they are ready again, as RabbitMQ 4.3 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Those that a client gave back.
    pub failed: bool,
    /// Those whose consumer, channel or connection ended.
    pub returned: bool,
    /// Wait after the first return; after the nth, n times as long.
    pub min_ms: u64,
    /// No longer than this.
    pub max_ms: u64,
}

/// For how long and for how many messages keys are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dedup {
    pub window_ms: u64,
    pub entries_max: u32,
}

impl Features {
    /// Whether there is a limit at which something happens.
    pub fn has_length_limit(&self) -> bool {
        self.max_length.is_some() || self.max_length_bytes.is_some()
    }

    /// Whether it is noted how large the bodies of messages are.
    pub(crate) fn counts_bytes(&self) -> bool {
        self.max_length_bytes.is_some() || self.rates.dequeue_bytes.is_some()
    }
}

impl QueueSettings {
    /// Whether messages of a higher priority go out before those that came earlier.
    pub fn has_priorities(&self) -> bool {
        self.features.as_ref().is_some_and(|features| features.max_priority > 0)
    }

    /// Whether reading takes nothing away.
    pub fn is_stream(&self) -> bool {
        self.features.as_ref().is_some_and(|features| features.stream.is_some())
    }

    /// What it reads, if it is a subscription.
    pub fn subscription(&self) -> Option<Subscription> {
        self.features.as_ref().and_then(|features| features.subscription)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        for (is_set, flag) in [
            (self.is_durable, DURABLE),
            (self.is_auto_delete, AUTO_DELETE),
            (self.features.is_some(), FEATURES),
            (self.is_paused, PAUSED),
        ] {
            if is_set {
                flags |= flag;
            }
        }
        // What an older version can say is written as that version wrote it.
        let version = match (self.is_paused, self.features.is_some()) {
            (true, _) => VERSION,
            (false, true) => 2,
            (false, false) => 1,
        };
        out.extend_from_slice(&[version, flags]);
        if let Some(features) = &self.features {
            features.encode(out);
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let version = reader.u8()?;
        if !(1..=VERSION).contains(&version) {
            return Err(OTHER_VERSION);
        }
        let known = match version {
            1 => DURABLE | AUTO_DELETE,
            2 => DURABLE | AUTO_DELETE | FEATURES,
            _ => KNOWN,
        };
        let flags = reader.u8()?;
        if flags & !known != 0 {
            return Err(OTHER_VERSION);
        }
        let features = match flags & FEATURES {
            0 => None,
            _ => Some(Box::new(Features::read(reader)?)),
        };
        let (is_durable, is_auto_delete) = (flags & DURABLE != 0, flags & AUTO_DELETE != 0);
        Ok(Self { is_durable, is_auto_delete, features, is_paused: flags & PAUSED != 0 })
    }

    /// Whether it is a partition that serves one consumer at a time.
    pub fn has_assignment(&self) -> bool {
        self.features.as_ref().is_some_and(|features| features.assignment.is_some())
    }

    /// Whether it is given only some messages of a stream.
    pub fn has_filter(&self) -> bool {
        self.features.as_ref().is_some_and(|features| features.filter.is_some())
    }

    /// Where the key is by which its messages keep their order.
    pub fn order(&self) -> Option<&KeySource> {
        self.features.as_ref().and_then(|features| features.order.as_deref())
    }

    /// Whether a rate limits what goes out or comes in.
    pub fn has_rates(&self) -> bool {
        self.features.as_ref().is_some_and(|features| !features.rates.is_none())
    }

    /// The version since which these settings can be written.
    pub(crate) fn since(&self) -> Version {
        if self.is_stream() || self.subscription().is_some() {
            return Version::STREAMS;
        }
        if self.has_rates() {
            return Version::RATES;
        }
        if self.order().is_some() {
            return Version::KEY_ORDER;
        }
        if self.is_paused { Version::PAUSES } else { Version::FIRST }
    }
}

const KNOWN: u8 = DURABLE | AUTO_DELETE | FEATURES | PAUSED;
const OTHER_VERSION: Corrupt = Corrupt::newer("queue settings of another version");

// Which optional parts follow, and what is so: one bit each.
const TTL: u32 = 1;
const EXPIRES: u32 = 1 << 1;
const LENGTH: u32 = 1 << 2;
const LENGTH_BYTES: u32 = 1 << 3;
const REJECTS: u32 = 1 << 4;
const REJECTS_DLX: u32 = 1 << 5;
const DEAD_LETTERS: u32 = 1 << 6;
const SINGLE_ACTIVE: u32 = 1 << 7;
const LIMIT: u32 = 1 << 8;
const COUNTS: u32 = 1 << 9;
const RETRY_FAILED: u32 = 1 << 10;
const RETRY_RETURNED: u32 = 1 << 11;
const DEDUP: u32 = 1 << 12;
const STREAM: u32 = 1 << 13;
const MAX_AGE: u32 = 1 << 14;
const MAX_BYTES: u32 = 1 << 15;
const RATES: u32 = 1 << 16;
const TOKENS_OF: u32 = 1 << 26;
const ORDER: u32 = 1 << 27;
const ASSIGNMENT: u32 = 1 << 28;
const FILTER: u32 = 1 << 29;
const SKIPS: u32 = 1 << 30;
const SUBSCRIPTION: u32 = 1 << 31;
const BITS: u32 = ((1 << 17) - 1) | TOKENS_OF | ORDER | ASSIGNMENT | FILTER | SKIPS | SUBSCRIPTION;

impl Features {
    /// Bits, highest priority, then the numbers that the bits announce.
    fn encode(&self, out: &mut Vec<u8>) {
        let Self { retry, dedup, stream, rates, subscription, filter, .. } = self;
        let Retention { max_age_ms, max_bytes } = stream.unwrap_or_default();
        let bits = [
            (self.message_ttl_ms.is_some(), TTL),
            (self.expires_ms.is_some(), EXPIRES),
            (self.max_length.is_some(), LENGTH),
            (self.max_length_bytes.is_some(), LENGTH_BYTES),
            (self.overflow == Overflow::RejectPublish, REJECTS),
            (self.overflow == Overflow::RejectPublishDlx, REJECTS_DLX),
            (self.dead_letters, DEAD_LETTERS),
            (self.single_active, SINGLE_ACTIVE),
            (self.delivery_limit.is_some(), LIMIT),
            (self.counts_returns, COUNTS),
            (retry.is_some_and(|retry| retry.failed), RETRY_FAILED),
            (retry.is_some_and(|retry| retry.returned), RETRY_RETURNED),
            (dedup.is_some(), DEDUP),
            (stream.is_some(), STREAM),
            (max_age_ms.is_some(), MAX_AGE),
            (max_bytes.is_some(), MAX_BYTES),
            (subscription.is_some_and(|subscription| subscription.skips), SKIPS),
            (subscription.is_some(), SUBSCRIPTION),
            (filter.is_some(), FILTER),
            (!rates.is_none(), RATES),
            (self.assignment.is_some(), ASSIGNMENT),
            (self.order.is_some(), ORDER),
            (self.tokens_of.is_some(), TOKENS_OF),
        ];
        put_u32(out, bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum());
        out.push(self.max_priority);
        let limit = self.delivery_limit.map(u64::from);
        let numbers =
            [self.message_ttl_ms, self.expires_ms, self.max_length, self.max_length_bytes, limit];
        numbers.into_iter().flatten().for_each(|number| put_u64(out, number));
        if let Some(retry) = retry.filter(|retry| retry.failed || retry.returned) {
            put_u64(out, retry.min_ms);
            put_u64(out, retry.max_ms);
        }
        if let Some(dedup) = dedup {
            put_u64(out, dedup.window_ms);
            put_u32(out, dedup.entries_max);
        }
        [max_age_ms, max_bytes].into_iter().flatten().for_each(|number| put_u64(out, number));
        if !rates.is_none() {
            rates.encode(out);
        }
        if let Some(Subscription { stream, start, skips: _, seeks }) = *subscription {
            let (kind, number) = start.to_parts();
            put_u64(out, stream.0);
            out.push(kind);
            put_u64(out, number);
            put_u32(out, seeks);
        }
        if let Some(filter) = filter {
            filter.encode(out);
        }
        if let Some(Assignment { index, count }) = self.assignment {
            put_u32(out, u32::from(index) << 16 | u32::from(count));
        }
        if let Some(key) = &self.order {
            key.encode(out);
        }
        if let Some(TokenHome { group, queue }) = self.tokens_of {
            put_u32(out, group.0);
            put_u64(out, queue.0);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let bits = reader.u32()?;
        let has = |bit| bits & bit != 0;
        if bits & !BITS != 0 || (has(REJECTS) && has(REJECTS_DLX)) {
            return Err(OTHER_VERSION);
        }
        let is_odd =
            (has(SKIPS) || has(FILTER)) && !has(SUBSCRIPTION) || has(SUBSCRIPTION) && has(STREAM);
        if is_odd || !has(STREAM) && (has(MAX_AGE) || has(MAX_BYTES)) {
            return Err(reader.corrupt());
        }
        let max_priority = reader.u8()?;
        if has(ORDER) && (has(STREAM) || max_priority > 0) {
            return Err(reader.corrupt());
        }
        let mut number = |bit| if has(bit) { reader.u64().map(Some) } else { Ok(None) };
        let message_ttl_ms = number(TTL)?;
        let expires_ms = number(EXPIRES)?;
        let max_length = number(LENGTH)?;
        let max_length_bytes = number(LENGTH_BYTES)?;
        let delivery_limit = number(LIMIT)?;
        let delivery_limit = delivery_limit
            .map(|limit| u32::try_from(limit).map_err(|_| OTHER_VERSION))
            .transpose()?;
        let (failed, returned) = (has(RETRY_FAILED), has(RETRY_RETURNED));
        let retry = match failed || returned {
            true => Some(Retry { failed, returned, min_ms: reader.u64()?, max_ms: reader.u64()? }),
            false => None,
        };
        let dedup = match has(DEDUP) {
            true => Some(Dedup { window_ms: reader.u64()?, entries_max: reader.u32()? }),
            false => None,
        };
        let max_age_ms = if has(MAX_AGE) { Some(reader.u64()?) } else { None };
        let max_bytes = if has(MAX_BYTES) { Some(reader.u64()?) } else { None };
        let rates = if has(RATES) { Rates::read(reader)? } else { Rates::default() };
        let subscription = match has(SUBSCRIPTION) {
            true => Some(Subscription::read(reader, has(SKIPS))?),
            false => None,
        };
        let filter = if has(FILTER) { Some(Box::new(Filter::read(reader)?)) } else { None };
        let assignment = match has(ASSIGNMENT) {
            true => Some(read_assignment(reader)?),
            false => None,
        };
        let order = if has(ORDER) { Some(Box::new(KeySource::read(reader)?)) } else { None };
        let tokens_of = match has(TOKENS_OF) {
            true => {
                Some(TokenHome { group: GroupId(reader.u32()?), queue: QueueId(reader.u64()?) })
            }
            false => None,
        };
        let overflow = match (has(REJECTS), has(REJECTS_DLX)) {
            (true, _) => Overflow::RejectPublish,
            (_, true) => Overflow::RejectPublishDlx,
            (false, false) => Overflow::DropHead,
        };
        Ok(Self {
            message_ttl_ms,
            expires_ms,
            max_length,
            max_length_bytes,
            overflow,
            dead_letters: has(DEAD_LETTERS),
            max_priority,
            single_active: has(SINGLE_ACTIVE),
            delivery_limit,
            counts_returns: has(COUNTS),
            retry,
            dedup,
            stream: has(STREAM).then_some(Retention { max_age_ms, max_bytes }),
            subscription,
            filter,
            rates,
            assignment,
            order,
            tokens_of,
        })
    }
}

fn read_assignment(reader: &mut Reader<'_>) -> Result<Assignment, Corrupt> {
    let both = reader.u32()?;
    let (index, count) = ((both >> 16) as u16, both as u16);
    if index < count { Ok(Assignment { index, count }) } else { Err(reader.corrupt()) }
}

impl Subscription {
    fn read(reader: &mut Reader<'_>, skips: bool) -> Result<Self, Corrupt> {
        let stream = QueueId(reader.u64()?);
        let (kind, number) = (reader.u8()?, reader.u64()?);
        let start = StreamOffset::from_parts(kind, number).ok_or_else(|| reader.corrupt())?;
        Ok(Self { stream, start, skips, seeks: reader.u32()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a subscription can have at once, and a stream.
    fn rich() -> [Features; 3] {
        let second = Rate::new(5, 1_000);
        let rates = Rates { dequeue: second, dequeue_burst: Some(9), ..Rates::default() };
        let subscription = Features {
            message_ttl_ms: Some(1),
            expires_ms: Some(2),
            max_length: Some(3),
            max_length_bytes: Some(4),
            overflow: Overflow::RejectPublish,
            dead_letters: true,
            max_priority: 0,
            single_active: true,
            delivery_limit: Some(5),
            counts_returns: true,
            retry: Some(Retry { failed: true, returned: false, min_ms: 6, max_ms: 7 }),
            dedup: Some(Dedup { window_ms: 8, entries_max: 9 }),
            stream: None,
            rates,
            subscription: Some(Subscription {
                stream: QueueId(77 << 8),
                start: StreamOffset::Since(10),
                skips: true,
                seeks: 11,
            }),
            assignment: Some(Assignment { index: 1, count: 3 }),
            tokens_of: Some(TokenHome { group: GroupId(7), queue: QueueId(78 << 8) }),
            filter: Some(Box::new(Filter::Keys(vec!["a.#".into()]))),
            order: Some(Box::new(KeySource::Header("customer".into()))),
        };
        let queue = Features { order: Some(Box::new(KeySource::UserId)), ..Features::default() };
        let retention = Retention { max_age_ms: Some(1), max_bytes: Some(2) };
        [subscription, queue, Features { stream: Some(retention), ..Features::default() }]
    }

    #[test]
    fn settings_come_back_from_their_bytes_whatever_is_asked_for_together() {
        for features in rich() {
            let features = Some(Box::new(features));
            let settings = QueueSettings { is_durable: true, features, ..Default::default() };
            let mut bytes = Vec::new();
            settings.encode(&mut bytes);
            let mut reader = Reader::new(&bytes, "settings");
            assert_eq!(QueueSettings::read(&mut reader), Ok(settings));
            assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn order_by_key_is_of_one_level() {
        let [_, queue, _] = rich();
        let mut bytes = Vec::new();
        Features { max_priority: 2, ..queue }.encode(&mut bytes);
        assert!(Features::read(&mut Reader::new(&bytes, "features")).is_err());
    }
}
