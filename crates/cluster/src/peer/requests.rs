//! Questions of a session to the leader of a group, and what a leader is told when it is joined.
//!
//! A request names its group in memory; on the wire the message around it does.

use machine::{
    CatalogCommand, ConsumerChange, ConsumerId, ConsumerSpec, GroupId, Outcome, QueueId, Ranges,
    SessionId, StreamOffset, Weight,
};

use super::Error;
use super::gather::Gather;
use super::locks;
use super::message::Attachment;
use super::peeks;
use super::reader::Reader;
use crate::request::{Held, Request, Ticket};
use crate::withheld::WithholdStep;

const CATALOG: u8 = 2;
const ATTACH: u8 = 3;
const DETACH: u8 = 4;
const CREDIT: u8 = 5;
const SETTLE: u8 = 6;
const GET: u8 = 7;
const PURGE: u8 = 8;
const STATUS: u8 = 9;
const CLOSE_QUEUE: u8 = 10;
const END_SESSION: u8 = 11;
const ADMIT: u8 = 12;
/// Since `Version::DESCRIBED`.
const DESCRIBE: u8 = 13;
/// `DETACH` of a consumer that is sent first what it was given. Since `Version::CANCELS`.
const CANCEL: u8 = 14;
/// Since `Version::PEEKED`.
const PEEK: u8 = 15;
/// `GET` of the message at a place. Since `Version::TAKES`.
const TAKE: u8 = 16;
/// Since `Version::LOCKS`.
const LOCK: u8 = 32;
/// A consumer is given nothing, or goes on. Since `Version::CONSUMER_CHANGES`.
const CHANGE_CONSUMER: u8 = 26;
/// A purge that can be undone. Since `Version::UNDO`.
const WITHHOLD: u8 = 24;
/// It is undone. Since `Version::UNDO`.
const BRING_BACK: u8 = 25;

/// Appends travel as numbered batches: one here would be a bug of ours.
pub(super) fn encode(out: &mut Gather, request: &Request) {
    match request {
        Request::Append { group, .. } => {
            unreachable!("appends to group {} travel as numbered batches", group.0)
        }
        Request::Catalog { ticket, command } => {
            out.u8(CATALOG);
            out.number(ticket.0);
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            out.blob(&bytes);
        }
        Request::Attach { ticket, group: _, queue, consumer, spec } => {
            out.u8(ATTACH);
            out.number(ticket.0);
            put_consumer(out, *queue, *consumer);
            put_spec(out, spec);
        }
        Request::Detach { ticket, group: _, queue, consumer, takes_back } => {
            out.u8(if *takes_back { DETACH } else { CANCEL });
            out.number(ticket.0);
            put_consumer(out, *queue, *consumer);
        }
        Request::Credit { group: _, queue, consumer, add } => {
            out.u8(CREDIT);
            put_consumer(out, *queue, *consumer);
            out.number(u64::from(*add));
        }
        Request::ChangeConsumer { group: _, queue, consumer, change } => {
            out.u8(CHANGE_CONSUMER);
            put_consumer(out, *queue, *consumer);
            put_change(out, *change);
        }
        Request::Settle { group: _, queue, consumer, ranges, outcome, credit } => {
            out.u8(SETTLE);
            put_consumer(out, *queue, *consumer);
            put_outcome(out, ranges, *outcome, *credit);
        }
        Request::Get { ticket, group: _, queue, consumer, no_ack, at } => {
            out.u8(if at.is_some() { TAKE } else { GET });
            out.number(ticket.0);
            put_consumer(out, *queue, *consumer);
            out.bool(*no_ack);
            if let Some(at) = at {
                peeks::put_position(out, *at);
            }
        }
        Request::Purge { ticket, group: _, queue } => {
            out.u8(PURGE);
            out.number(ticket.0);
            out.number(queue.0);
        }
        Request::Withhold { ticket, group: _, queue, step } => {
            out.u8(match step {
                WithholdStep::Purge { .. } => WITHHOLD,
                WithholdStep::Undo => BRING_BACK,
            });
            out.number(ticket.0);
            out.number(queue.0);
            if let WithholdStep::Purge { undo_ms } = step {
                out.number(u64::from(*undo_ms));
            }
        }
        Request::Status { ticket, group: _, queue } => {
            out.u8(STATUS);
            out.number(ticket.0);
            out.number(queue.0);
        }
        Request::Describe { ticket, group: _, queue } => {
            out.u8(DESCRIBE);
            out.number(ticket.0);
            out.number(queue.0);
        }
        Request::Peek { ticket, group: _, queue, spec } => {
            out.u8(PEEK);
            out.number(ticket.0);
            out.number(queue.0);
            peeks::encode_spec(out, spec);
        }
        Request::Lock { ticket, group: _, spec } => {
            out.u8(LOCK);
            out.number(ticket.0);
            locks::encode_spec(out, spec);
        }
        Request::CloseQueue { ticket, group: _, queue, if_unused, if_empty } => {
            out.u8(CLOSE_QUEUE);
            out.number(ticket.0);
            out.number(queue.0);
            out.bool(*if_unused);
            out.bool(*if_empty);
        }
        Request::Admit { ticket, group: _, queue, sizes } => {
            out.u8(ADMIT);
            out.number(ticket.0);
            out.number(queue.0);
            out.number(sizes.len() as u64);
            sizes.iter().for_each(|size| out.number(u64::from(*size)));
        }
        Request::EndSession { ticket } => {
            out.u8(END_SESSION);
            out.number(ticket.0);
        }
    }
}

pub(super) fn decode(reader: &mut Reader, group: GroupId) -> Result<Request, Error> {
    Ok(match reader.u8()? {
        CATALOG => {
            let ticket = take_ticket(reader)?;
            let bytes = reader.payload()?;
            let command = CatalogCommand::decode(&bytes).map_err(|_| reader.malformed())?;
            Request::Catalog { ticket, command }
        }
        ATTACH => {
            let ticket = take_ticket(reader)?;
            let (queue, consumer) = take_consumer(reader)?;
            Request::Attach { ticket, group, queue, consumer, spec: take_spec(reader)? }
        }
        kind @ (DETACH | CANCEL) => {
            let ticket = take_ticket(reader)?;
            let (queue, consumer) = take_consumer(reader)?;
            Request::Detach { ticket, group, queue, consumer, takes_back: kind == DETACH }
        }
        CREDIT => {
            let (queue, consumer) = take_consumer(reader)?;
            Request::Credit { group, queue, consumer, add: reader.u32()? }
        }
        CHANGE_CONSUMER => {
            let (queue, consumer) = take_consumer(reader)?;
            Request::ChangeConsumer { group, queue, consumer, change: take_change(reader)? }
        }
        SETTLE => {
            let Held { queue, consumer, ranges, outcome, credit } = decode_held(reader)?;
            Request::Settle { group, queue, consumer, ranges, outcome, credit }
        }
        GET => {
            let ticket = take_ticket(reader)?;
            let (queue, consumer) = take_consumer(reader)?;
            Request::Get { ticket, group, queue, consumer, no_ack: reader.bool()?, at: None }
        }
        TAKE => {
            let ticket = take_ticket(reader)?;
            let (queue, consumer) = take_consumer(reader)?;
            let no_ack = reader.bool()?;
            let at = Some(peeks::take_position(reader)?);
            Request::Get { ticket, group, queue, consumer, no_ack, at }
        }
        PURGE => {
            let ticket = take_ticket(reader)?;
            Request::Purge { ticket, group, queue: QueueId(reader.number()?) }
        }
        WITHHOLD => {
            let ticket = take_ticket(reader)?;
            let queue = QueueId(reader.number()?);
            let step = WithholdStep::Purge { undo_ms: reader.u32()? };
            Request::Withhold { ticket, group, queue, step }
        }
        BRING_BACK => {
            let ticket = take_ticket(reader)?;
            let (queue, step) = (QueueId(reader.number()?), WithholdStep::Undo);
            Request::Withhold { ticket, group, queue, step }
        }
        STATUS => {
            let ticket = take_ticket(reader)?;
            Request::Status { ticket, group, queue: QueueId(reader.number()?) }
        }
        DESCRIBE => {
            let ticket = take_ticket(reader)?;
            Request::Describe { ticket, group, queue: QueueId(reader.number()?) }
        }
        PEEK => {
            let ticket = take_ticket(reader)?;
            let queue = QueueId(reader.number()?);
            let spec = Box::new(peeks::decode_spec(reader)?);
            Request::Peek { ticket, group, queue, spec }
        }
        LOCK => {
            let ticket = take_ticket(reader)?;
            Request::Lock { ticket, group, spec: Box::new(locks::decode_spec(reader)?) }
        }
        CLOSE_QUEUE => Request::CloseQueue {
            ticket: take_ticket(reader)?,
            group,
            queue: QueueId(reader.number()?),
            if_unused: reader.bool()?,
            if_empty: reader.bool()?,
        },
        ADMIT => {
            let ticket = take_ticket(reader)?;
            let queue = QueueId(reader.number()?);
            Request::Admit { ticket, group, queue, sizes: take_numbers(reader)? }
        }
        END_SESSION => Request::EndSession { ticket: take_ticket(reader)? },
        _ => return Err(reader.malformed()),
    })
}

/// Numbers behind their count. None is reserved for before it is there.
pub(super) fn take_numbers(reader: &mut Reader) -> Result<Vec<u32>, Error> {
    let count = reader.u32()?;
    (0..count).map(|_| reader.u32()).collect()
}

pub(super) fn encode_held(out: &mut Gather, held: &Held) {
    let Held { queue, consumer, ranges, outcome, credit } = held;
    put_consumer(out, *queue, *consumer);
    put_outcome(out, ranges, *outcome, *credit);
}

pub(super) fn decode_held(reader: &mut Reader) -> Result<Held, Error> {
    let (queue, consumer) = take_consumer(reader)?;
    let ranges = reader.ranges()?;
    let outcome = Outcome::from_number(reader.u8()?).ok_or(reader.malformed())?;
    Ok(Held { queue, consumer, ranges, outcome, credit: reader.u32()? })
}

fn put_outcome(out: &mut Gather, ranges: &Ranges, outcome: Outcome, credit: u32) {
    out.ranges(ranges);
    out.u8(outcome.number());
    out.number(u64::from(credit));
}

pub(super) fn encode_attachment(out: &mut Gather, attachment: &Attachment) {
    let Attachment { queue, consumer, spec, is_attached, held } = attachment;
    put_consumer(out, *queue, *consumer);
    put_spec(out, spec);
    out.bool(*is_attached);
    out.ranges(held);
}

pub(super) fn decode_attachment(reader: &mut Reader) -> Result<Attachment, Error> {
    let (queue, consumer) = take_consumer(reader)?;
    let spec = take_spec(reader)?;
    let is_attached = reader.bool()?;
    Ok(Attachment { queue, consumer, spec, is_attached, held: reader.ranges()? })
}

pub(super) fn put_consumer(out: &mut Gather, queue: QueueId, consumer: ConsumerId) {
    out.number(queue.0);
    out.number(consumer.session.0);
    out.number(consumer.number);
}

pub(super) fn take_consumer(reader: &mut Reader) -> Result<(QueueId, ConsumerId), Error> {
    let queue = QueueId(reader.number()?);
    let session = SessionId(reader.number()?);
    Ok((queue, ConsumerId { session, number: reader.number()? }))
}

pub(super) fn take_ticket(reader: &mut Reader) -> Result<Ticket, Error> {
    reader.number().map(Ticket)
}

fn put_spec(out: &mut Gather, spec: &ConsumerSpec) {
    let ConsumerSpec { credit, no_ack, exclusive, priority, start, weight, generation, is_paused } =
        *spec;
    out.number(u64::from(credit));
    out.bool(no_ack);
    let bits = [
        (exclusive, EXCLUSIVE),
        (start.is_some(), STARTS),
        (weight != Weight::Unknown, WEIGHT),
        (generation > 0, GENERATION),
        (is_paused, PAUSED),
    ];
    out.u8(bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum());
    out.array(&priority.to_le_bytes());
    if let Some(start) = start {
        let (kind, number) = start.to_parts();
        out.u8(kind);
        out.number(number);
    }
    if weight != Weight::Unknown {
        out.array(&weight.to_u16().to_le_bytes());
    }
    if generation > 0 {
        out.number(generation);
    }
}

fn take_spec(reader: &mut Reader) -> Result<ConsumerSpec, Error> {
    let (credit, no_ack, flags) = (reader.u32()?, reader.bool()?, reader.u8()?);
    if flags & !(EXCLUSIVE | STARTS | WEIGHT | GENERATION | PAUSED) != 0 {
        return Err(reader.malformed());
    }
    let priority = i32::from_le_bytes(reader.array()?);
    let start = if flags & STARTS != 0 { Some(take_offset(reader)?) } else { None };
    let weight = if flags & WEIGHT != 0 { take_weight(reader)? } else { Weight::Unknown };
    let generation = if flags & GENERATION != 0 { reader.number()? } else { 0 };
    let (exclusive, is_paused) = (flags & EXCLUSIVE != 0, flags & PAUSED != 0);
    Ok(ConsumerSpec { credit, no_ack, exclusive, priority, start, weight, generation, is_paused })
}

fn take_weight(reader: &mut Reader) -> Result<Weight, Error> {
    let written = u16::from_le_bytes(reader.array()?);
    Weight::from_u16(written).ok_or_else(|| reader.malformed())
}

fn put_change(out: &mut Gather, change: ConsumerChange) {
    match change {
        ConsumerChange::Pause(is_paused) => out.u8(if is_paused { PAUSES } else { GOES_ON }),
        ConsumerChange::Weigh(weight) => {
            out.u8(WEIGHS);
            out.array(&weight.to_u16().to_le_bytes());
        }
    }
}

fn take_change(reader: &mut Reader) -> Result<ConsumerChange, Error> {
    Ok(match reader.u8()? {
        GOES_ON => ConsumerChange::Pause(false),
        PAUSES => ConsumerChange::Pause(true),
        WEIGHS => ConsumerChange::Weigh(take_weight(reader)?),
        _ => return Err(reader.malformed()),
    })
}

fn take_offset(reader: &mut Reader) -> Result<StreamOffset, Error> {
    let (kind, number) = (reader.u8()?, reader.number()?);
    StreamOffset::from_parts(kind, number).ok_or_else(|| reader.malformed())
}

// How a consumer changes.
const GOES_ON: u8 = 0;
const PAUSES: u8 = 1;
/// Its weight follows.
const WEIGHS: u8 = 2;

// What a consumer is, beside its numbers: one bit each.
const EXCLUSIVE: u8 = 1;
/// Where in a stream it begins follows. Since `Version::STREAMS`.
const STARTS: u8 = 1 << 1;
/// Its weight among the consumers of partitions that are assigned follows. Since `Version::STREAMS`.
const WEIGHT: u8 = 1 << 2;
/// The generation with which it was elected follows. Since `Version::STREAMS`.
const GENERATION: u8 = 1 << 3;
/// It is paused. Since `Version::CONSUMER_CHANGES`.
const PAUSED: u8 = 1 << 4;
