//! What a queue is, apart from its name and its place.
//!
//! A declaration of version 8 and later holds it, and a snapshot, too. Before that they held a client's arguments alone:
//! `before8` says what those mean.

use super::home::QueueHome;
use super::kind::QueueType;
use crate::encoding::{Corrupt, Reader, put_text, put_u32, put_u64};
use crate::limits::PARTITIONS_MAX;
use crate::settings::QueueSettings;

/// What a queue is, apart from its name and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    pub queue_type: QueueType,
    /// What the queue's group has to know.
    pub settings: QueueSettings,
    /// None: its dead letters are dropped.
    pub dead_letter: Option<DeadLetter>,
    /// How long a consumer may hold a message, in milliseconds. None: the queue does not say.
    pub consumer_timeout_ms: Option<u64>,
    /// How many voters the queue's group is to have. None: the queue does not say.
    pub members: Option<u8>,
    /// How many partitions it has: of a stream and its subscriptions. 1 for every other queue.
    pub partitions: u16,
}

/// Where the dead letters of a queue go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The empty name is the default exchange.
    pub exchange: String,
    /// None: they keep their keys.
    pub key: Option<String>,
}

// Which optional parts follow: one bit each.
const DEAD_LETTER: u8 = 1;
const DEAD_LETTER_KEY: u8 = 1 << 1;
const CONSUMER_TIMEOUT: u8 = 1 << 2;
const MEMBERS: u8 = 1 << 3;
const PARTITIONS: u8 = 1 << 4;
const BITS: u8 = (1 << 5) - 1;

impl QueueSpec {
    /// What a queue becomes that was like this and is to be as `new` says, as far as that can change: its type and what
    /// it is made of stay, and it stays in its group. Nor does a declaration pause a queue.
    pub(in crate::catalog) fn changed_to(&self, new: Self) -> Self {
        let is_paused = self.settings.is_paused;
        Self {
            queue_type: self.queue_type,
            settings: QueueSettings { is_paused, ..self.settings.changed_to(new.settings) },
            members: self.members,
            partitions: self.partitions,
            ..new
        }
    }

    /// The type's number, the settings, bits, then the parts that the bits announce.
    pub(in crate::catalog) fn encode(&self, out: &mut Vec<u8>) {
        let Self { queue_type, settings, dead_letter, consumer_timeout_ms, members, partitions } =
            self;
        out.push(queue_type.number());
        settings.encode(out);
        let key = dead_letter.as_ref().and_then(|dead_letter| dead_letter.key.as_ref());
        let bits = [
            (dead_letter.is_some(), DEAD_LETTER),
            (key.is_some(), DEAD_LETTER_KEY),
            (consumer_timeout_ms.is_some(), CONSUMER_TIMEOUT),
            (members.is_some(), MEMBERS),
            (*partitions > 1, PARTITIONS),
        ];
        out.push(bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum());
        if let Some(dead_letter) = dead_letter {
            put_text(out, &dead_letter.exchange);
        }
        if let Some(key) = key {
            put_text(out, key);
        }
        if let Some(timeout) = consumer_timeout_ms {
            put_u64(out, *timeout);
        }
        out.extend(*members);
        if *partitions > 1 {
            put_u32(out, u32::from(*partitions));
        }
    }

    /// Of a queue that lives there.
    pub(in crate::catalog) fn read_for(
        home: QueueHome,
        reader: &mut Reader<'_>,
    ) -> Result<Self, Corrupt> {
        let spec = Self::read(reader)?;
        let is_sound = spec.settings.is_durable == home.is_durable();
        if is_sound { Ok(spec) } else { Err(reader.corrupt()) }
    }

    pub(in crate::catalog) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        const OTHER: Corrupt = Corrupt::newer("a queue with a spec of another version");
        let queue_type = QueueType::from_number(reader.u8()?).ok_or(OTHER)?;
        let settings = QueueSettings::read(reader)?;
        let bits = reader.u8()?;
        let has = |bit| bits & bit != 0;
        if bits & !BITS != 0 {
            return Err(OTHER);
        }
        if has(DEAD_LETTER_KEY) && !has(DEAD_LETTER) {
            return Err(reader.corrupt());
        }
        let exchange = if has(DEAD_LETTER) { Some(reader.string()?) } else { None };
        let key = if has(DEAD_LETTER_KEY) { Some(reader.string()?) } else { None };
        let consumer_timeout_ms = if has(CONSUMER_TIMEOUT) { Some(reader.u64()?) } else { None };
        let members = if has(MEMBERS) { Some(reader.u8()?) } else { None };
        let partitions = if has(PARTITIONS) { Some(reader.u32()?) } else { None };
        let partitions = partitions.map(|count| match u16::try_from(count) {
            Ok(count @ 2..=PARTITIONS_MAX) => Ok(count),
            Ok(_) | Err(_) => Err(reader.corrupt()),
        });
        let partitions = partitions.transpose()?.unwrap_or(1);
        let dead_letter = exchange.map(|exchange| DeadLetter { exchange, key });
        Ok(Self { queue_type, settings, dead_letter, consumer_timeout_ms, members, partitions })
    }
}
