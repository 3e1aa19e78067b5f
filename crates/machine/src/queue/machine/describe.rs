//! A queue as its leader describes it to whoever looks after the node: read, bounded, and nothing is changed by it. The
//! node that asked gets it as bytes.

use std::ops::Bound;

use super::QueueMachine;
use crate::encoding::{Corrupt, Reader, put_bool, put_u32, put_u64};
use crate::ids::{ConsumerId, QueueId, SessionId};
use crate::limits::DESCRIBED_HOLDERS_MAX;
use crate::queue::{Balance, ConsumerSpec, Counters, HeldBack, QueueStatus, StreamOffset, Weight};
use crate::settings::QueueSettings;

/// The first form of the bytes, which nodes older than streams read.
const FORM: u8 = 1;
/// Each holder also says where in its stream it began, and its weight. Written if one of them has either.
const FORM_STARTS: u8 = 2;
/// At the end it is said what rates hold back. Written if the queue has rates.
const FORM_RATES: u8 = 3;
/// Both.
const FORM_STARTS_RATES: u8 = 4;
/// So much more than one of these: at the end it is also said what is withheld. Written if something is.
const FORMS: u8 = 4;

/// A queue, and who has to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDescription {
    pub status: QueueStatus,
    /// Messages that its log has not let go of: those that are ready, held, delayed or dead, and those whose settles are
    /// on their way to the log.
    pub kept: u64,
    /// Bytes of the bodies of what is ready, in a queue with a limit for them: others do not count them. Of a stream:
    /// bytes of all that it keeps, or a little more.
    pub ready_bytes: Option<u64>,
    /// As they hold now.
    pub settings: QueueSettings,
    /// The first of those who consume or hold messages, by their ids.
    pub holders: Vec<HolderDescription>,
    /// All of those: more than the attached consumers if somebody holds what it fetched.
    pub holder_count: u64,
    /// Of a partition that serves one consumer at a time: since when it serves the one that is active, ms since 1970.
    pub active_since_ms: Option<u64>,
    /// How many messages were purged and can be brought back, and until when, ms since 1970.
    pub withheld: Option<(u64, u64)>,
}

/// Somebody who consumes from a queue, or holds messages of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderDescription {
    pub consumer: ConsumerId,
    /// As it was attached.
    pub spec: ConsumerSpec,
    /// Messages that it may be given now.
    pub credit: u32,
    /// Messages that it was given and has not settled.
    pub held: u64,
    /// False: it takes no more and only holds what it fetched, or got before it was detached.
    pub is_attached: bool,
    /// The one that a queue with a single active consumer serves.
    pub is_active: bool,
}

/// The front of a queue: from two of them and the time between, it is known how long its oldest ready message has waited
/// at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Front {
    /// The number of the first ready message. `None`: none is ready, or the queue has no one order (several priorities are
    /// in use), or it is a stream, which keeps what was read.
    pub first_ready: Option<u64>,
    /// The number that the next message gets: all below it have come.
    pub next: u64,
    /// As [`QueueDescription::ready_bytes`].
    pub ready_bytes: Option<u64>,
}

impl QueueStatus {
    /// Takes in how another partition of the same queue stands. Who consumes from one of them consumes from all.
    pub fn add_partition(&mut self, other: &Self) {
        let Self { ready, unsettled, consumers, delayed, leaving, counters, held_back } = self;
        *ready += other.ready;
        *unsettled += other.unsettled;
        *consumers = (*consumers).max(other.consumers);
        *delayed += other.delayed;
        *leaving += other.leaving;
        let Counters {
            enqueued,
            enqueued_bytes,
            settled,
            purged,
            dropped,
            dead_lettered,
            duplicates,
            passed_over,
            checksum,
        } = counters;
        *enqueued += other.counters.enqueued;
        *enqueued_bytes += other.counters.enqueued_bytes;
        *settled += other.counters.settled;
        *purged += other.counters.purged;
        *dropped += other.counters.dropped;
        *dead_lettered += other.counters.dead_lettered;
        *duplicates += other.counters.duplicates;
        *passed_over += other.counters.passed_over;
        *checksum ^= other.counters.checksum;
        held_back.messages += other.held_back.messages;
        held_back.wait_ms = held_back.wait_ms.max(other.held_back.wait_ms);
        held_back.publishes += other.held_back.publishes;
    }
}

impl QueueDescription {
    /// Takes in what is said of another partition of the same queue, as far as it can be summed. The holders stay those
    /// of the first.
    pub fn add_partition(&mut self, other: &Self) {
        self.status.add_partition(&other.status);
        self.kept += other.kept;
        self.ready_bytes = match (self.ready_bytes, other.ready_bytes) {
            (Some(one), Some(more)) => Some(one + more),
            (one, more) => one.or(more),
        };
        self.withheld = match (self.withheld, other.withheld) {
            (Some((one, until_ms)), Some((more, later_ms))) => {
                Some((one + more, until_ms.max(later_ms)))
            }
            (one, more) => one.or(more),
        };
    }
}

impl QueueMachine {
    /// How the queues behind this one stand, their books and their fronts, by id, but for those that are there for their
    /// dead messages alone.
    pub fn statuses(
        &self,
        behind: Option<QueueId>,
    ) -> impl Iterator<Item = (QueueId, QueueStatus, Balance, Front)> + '_ {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        self.places.range((from, Bound::Unbounded)).filter_map(|(id, place)| {
            let queue = self.slots[*place].as_ref().filter(|queue| !queue.is_gone)?;
            Some((*id, queue.status(self.now_ms), queue.balance(), queue.front()))
        })
    }

    /// What the queue's leader knows of it. `None`: there is no such queue.
    pub fn describe(&self, queue: QueueId) -> Option<QueueDescription> {
        let queue = self.queue(queue).filter(|queue| !queue.is_gone)?;
        let consumers = &queue.consumers;
        let described = |(consumer, spec, credit, held)| HolderDescription {
            consumer,
            spec,
            credit,
            held,
            is_attached: consumers.is_attached(consumer),
            is_active: consumers.is_active(consumer),
        };
        let holders = consumers
            .holders()
            .map(|(id, holder, _)| (id, holder.spec, holder.credit, holder.held.len()));
        Some(QueueDescription {
            status: queue.status(self.now_ms),
            kept: queue.kept_len(),
            ready_bytes: queue.counted_bytes(),
            settings: queue.settings.clone(),
            holders: holders.take(DESCRIBED_HOLDERS_MAX).map(described).collect(),
            holder_count: consumers.holder_count() as u64,
            active_since_ms: consumers.active_since_ms(),
            withheld: queue.withheld().map(|(count, _, until_ms)| (count, until_ms)),
        })
    }
}

impl QueueDescription {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let says_more = |holder: &HolderDescription| {
            holder.spec.start.is_some() || holder.spec.weight != Weight::Unknown
        };
        let starts = self.holders.iter().any(says_more);
        let has_rates = self.settings.has_rates();
        let form = match (starts, has_rates) {
            (false, false) => FORM,
            (true, false) => FORM_STARTS,
            (false, true) => FORM_RATES,
            (true, true) => FORM_STARTS_RATES,
        };
        out.push(if self.withheld.is_some() { form + FORMS } else { form });
        let QueueStatus { ready, unsettled, consumers, delayed, leaving, counters, held_back } =
            self.status;
        for number in [ready, unsettled, delayed, leaving, self.kept, self.holder_count] {
            put_u64(out, number);
        }
        put_u32(out, consumers);
        counters.encode(out);
        put_bool(out, self.ready_bytes.is_some());
        put_u64(out, self.ready_bytes.unwrap_or_default());
        self.settings.encode(out);
        assert!(self.holders.len() <= DESCRIBED_HOLDERS_MAX, "a description is bounded");
        put_u32(out, self.holders.len() as u32);
        self.holders.iter().for_each(|holder| holder.encode(starts, out));
        if has_rates {
            let HeldBack { messages, wait_ms, publishes } = held_back;
            [messages, wait_ms, publishes].into_iter().for_each(|number| put_u64(out, number));
        }
        if self.settings.has_filter() {
            put_u64(out, counters.passed_over);
        }
        if self.settings.has_assignment() {
            put_u64(out, self.active_since_ms.unwrap_or(0));
        }
        if let Some((count, until_ms)) = self.withheld {
            put_u64(out, count);
            put_u64(out, until_ms);
        }
    }

    /// # Errors
    /// The bytes are not what [`Self::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes, "a queue's description");
        let form = reader.u8()?;
        let is_withheld = form > FORMS && form <= 2 * FORMS;
        let (starts, has_rates) = match if is_withheld { form - FORMS } else { form } {
            FORM => (false, false),
            FORM_STARTS => (true, false),
            FORM_RATES => (false, true),
            FORM_STARTS_RATES => (true, true),
            _ => return Err(Corrupt::newer("the form of a queue's description")),
        };
        let (ready, unsettled) = (reader.u64()?, reader.u64()?);
        let (delayed, leaving) = (reader.u64()?, reader.u64()?);
        let (kept, holder_count) = (reader.u64()?, reader.u64()?);
        let consumers = reader.u32()?;
        let mut counters = Counters::read(&mut reader, false)?;
        let (has_bytes, bytes) = (reader.bool()?, reader.u64()?);
        let settings = QueueSettings::read(&mut reader)?;
        let count = reader.u32()? as usize;
        if count > DESCRIBED_HOLDERS_MAX {
            return Err(reader.corrupt());
        }
        let holders: Result<_, _> =
            (0..count).map(|_| HolderDescription::read(&mut reader, starts)).collect();
        let holders = holders?;
        let mut held_back = HeldBack::default();
        if has_rates {
            held_back = HeldBack {
                messages: reader.u64()?,
                wait_ms: reader.u64()?,
                publishes: reader.u64()?,
            };
        }
        if settings.has_filter() {
            // It is counted with what was dropped, too.
            counters.passed_over = reader.u64()?;
            let dropped = counters.dropped.checked_sub(counters.passed_over);
            counters.dropped = dropped.ok_or_else(|| reader.corrupt())?;
        }
        let since_ms = if settings.has_assignment() { reader.u64()? } else { 0 };
        let active_since_ms = Some(since_ms).filter(|since_ms| *since_ms > 0);
        let withheld = if is_withheld { Some((reader.u64()?, reader.u64()?)) } else { None };
        reader.end()?;
        Ok(Self {
            status: QueueStatus {
                ready,
                unsettled,
                consumers,
                delayed,
                leaving,
                counters,
                held_back,
            },
            kept,
            ready_bytes: has_bytes.then_some(bytes),
            settings,
            holders,
            holder_count,
            active_since_ms,
            withheld,
        })
    }
}

impl HolderDescription {
    fn encode(&self, starts: bool, out: &mut Vec<u8>) {
        let Self { consumer, spec, credit, held, is_attached, is_active } = *self;
        put_u64(out, consumer.session.0);
        put_u64(out, consumer.number);
        put_u32(out, spec.credit);
        out.extend_from_slice(&spec.priority.to_le_bytes());
        put_u32(out, credit);
        put_u64(out, held);
        for is_so in [spec.no_ack, spec.exclusive, is_attached, is_active] {
            put_bool(out, is_so);
        }
        if starts {
            put_bool(out, spec.start.is_some());
            let (kind, number) = spec.start.unwrap_or(StreamOffset::First).to_parts();
            out.push(kind);
            put_u64(out, number);
            put_u32(out, spec.weight.to_u16().into());
        }
    }

    fn read(reader: &mut Reader<'_>, starts: bool) -> Result<Self, Corrupt> {
        let session = SessionId(reader.u64()?);
        let consumer = ConsumerId { session, number: reader.u64()? };
        let (first_credit, priority) = (reader.u32()?, reader.u32()?.cast_signed());
        let (credit, held) = (reader.u32()?, reader.u64()?);
        let (no_ack, exclusive) = (reader.bool()?, reader.bool()?);
        let (is_attached, is_active) = (reader.bool()?, reader.bool()?);
        let (mut start, mut weight) = (None, Weight::Unknown);
        if starts {
            start = read_start(reader)?;
            let written = u16::try_from(reader.u32()?).ok().and_then(Weight::from_u16);
            weight = written.ok_or_else(|| reader.corrupt())?;
        }
        // Its session says whether it is.
        let is_paused = false;
        let spec = ConsumerSpec {
            credit: first_credit,
            no_ack,
            exclusive,
            priority,
            start,
            weight,
            generation: 0,
            is_paused,
        };
        Ok(Self { consumer, spec, credit, held, is_attached, is_active })
    }
}

fn read_start(reader: &mut Reader<'_>) -> Result<Option<StreamOffset>, Corrupt> {
    let is_there = reader.bool()?;
    let (kind, number) = (reader.u8()?, reader.u64()?);
    let start = StreamOffset::from_parts(kind, number).ok_or_else(|| reader.corrupt())?;
    Ok(is_there.then_some(start))
}
