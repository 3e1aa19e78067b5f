//! Looks at messages of a queue that another node leads, and what it shows. Since `Version::PEEKED`.

use machine::{
    ConsumerId, MessageDescription, MessageState, Outcome, PeekFilter, Position, SessionId, Version,
};

use super::Error;
use super::gather::Gather;
use super::reader::Reader;
use crate::peeked::{NotPeeked, PeekSpec, Peeked, PeekedMessage};

/// A message takes at least so many bytes: position, state, what is not known of it, head, body.
const MESSAGE_BYTES_MIN: usize = 2 + 1 + 3 + 3;
/// A queue has a level for each priority.
const LEVELS_MAX: usize = 1 + u8::MAX as usize;

pub(super) fn encode_spec(out: &mut Gather, spec: &PeekSpec) {
    let PeekSpec { from, filter, count, body_bytes_max, contains } = spec;
    put_position(out, *from);
    out.u8(match filter {
        PeekFilter::All => 0,
        PeekFilter::Ready => 1,
        PeekFilter::Held => 2,
        PeekFilter::Delayed => 3,
        PeekFilter::Dead => 4,
    });
    out.number(u64::from(*count));
    out.number(u64::from(*body_bytes_max));
    out.payload(contains);
}

pub(super) fn decode_spec(reader: &mut Reader) -> Result<PeekSpec, Error> {
    let from = take_position(reader)?;
    let filter = match reader.u8()? {
        0 => PeekFilter::All,
        1 => PeekFilter::Ready,
        2 => PeekFilter::Held,
        3 => PeekFilter::Delayed,
        4 => PeekFilter::Dead,
        _ => return Err(reader.malformed()),
    };
    let (count, body_bytes_max) = (reader.u32()?, reader.u32()?);
    Ok(PeekSpec { from, filter, count, body_bytes_max, contains: reader.payload()? })
}

pub(super) fn encode_peeked(out: &mut Gather, result: &Result<Box<Peeked>, NotPeeked>) {
    match result {
        Ok(peeked) => {
            out.u8(0);
            out.bool(peeked.next.is_some());
            if let Some(next) = peeked.next {
                put_position(out, next);
            }
            out.count(peeked.ends.len());
            peeked.ends.iter().for_each(|end| out.number(*end));
            out.count(peeked.messages.len());
            peeked.messages.iter().for_each(|message| encode_message(out, message));
        }
        Err(NotPeeked::NoQueue) => out.u8(1),
        Err(NotPeeked::NotYet { since }) => {
            out.u8(2);
            out.array(&since.0.to_le_bytes());
        }
        // Who asks finds these out itself.
        Err(NotPeeked::NoLeader) => out.u8(3),
        Err(NotPeeked::Late) => out.u8(4),
        Err(NotPeeked::Busy) => out.u8(5),
        Err(NotPeeked::Unreadable) => out.u8(6),
    }
}

pub(super) fn decode_peeked(reader: &mut Reader) -> Result<Result<Box<Peeked>, NotPeeked>, Error> {
    Ok(match reader.u8()? {
        0 => {
            let next = if reader.bool()? { Some(take_position(reader)?) } else { None };
            let ends = reader.count(1)?;
            if ends > LEVELS_MAX {
                return Err(reader.malformed());
            }
            let ends: Result<_, _> = (0..ends).map(|_| reader.number()).collect();
            let ends = ends?;
            let count = reader.count(MESSAGE_BYTES_MIN)?;
            let messages: Result<_, _> = (0..count).map(|_| decode_message(reader)).collect();
            Ok(Box::new(Peeked { messages: messages?, next, ends }))
        }
        1 => Err(NotPeeked::NoQueue),
        2 => Err(NotPeeked::NotYet { since: Version(u16::from_le_bytes(reader.array()?)) }),
        3 => Err(NotPeeked::NoLeader),
        4 => Err(NotPeeked::Late),
        5 => Err(NotPeeked::Busy),
        6 => Err(NotPeeked::Unreadable),
        _ => return Err(reader.malformed()),
    })
}

/// Bytes of the messages that it brings.
pub(super) fn payload(peeked: &Peeked) -> usize {
    peeked.messages.iter().map(|message| message.head.len() + message.body.len()).sum()
}

fn encode_message(out: &mut Gather, message: &PeekedMessage) {
    let PeekedMessage { is, enqueued_ms, head, body, body_bytes } = message;
    let MessageDescription { position, state, expires_ms, returns } = *is;
    put_position(out, position);
    match state {
        MessageState::Ready => out.u8(0),
        MessageState::Held { by } => {
            out.u8(1);
            out.number(by.session.0);
            out.number(by.number);
        }
        MessageState::Delayed { due_ms } => {
            out.u8(2);
            out.number(due_ms);
        }
        MessageState::Dead { reason } => {
            out.u8(3);
            out.u8(reason.number());
        }
    }
    put_time(out, expires_ms);
    out.number(returns);
    put_time(out, *enqueued_ms);
    out.payload(head);
    out.payload(body);
    out.number(*body_bytes);
}

fn decode_message(reader: &mut Reader) -> Result<PeekedMessage, Error> {
    let position = take_position(reader)?;
    let state = match reader.u8()? {
        0 => MessageState::Ready,
        1 => {
            let session = SessionId(reader.number()?);
            MessageState::Held { by: ConsumerId { session, number: reader.number()? } }
        }
        2 => MessageState::Delayed { due_ms: reader.number()? },
        3 => {
            let reason = Outcome::from_number(reader.u8()?).ok_or(reader.malformed())?;
            MessageState::Dead { reason }
        }
        _ => return Err(reader.malformed()),
    };
    let (expires_ms, returns) = (take_time(reader)?, reader.number()?);
    let is = MessageDescription { position, state, expires_ms, returns };
    let enqueued_ms = take_time(reader)?;
    let (head, body) = (reader.payload()?, reader.payload()?);
    Ok(PeekedMessage { is, enqueued_ms, head, body, body_bytes: reader.number()? })
}

pub(super) fn put_position(out: &mut Gather, position: Position) {
    out.u8(position.priority);
    out.number(position.seq);
}

pub(super) fn take_position(reader: &mut Reader) -> Result<Position, Error> {
    Ok(Position { priority: reader.u8()?, seq: reader.number()? })
}

fn put_time(out: &mut Gather, time_ms: Option<u64>) {
    out.bool(time_ms.is_some());
    if let Some(time_ms) = time_ms {
        out.number(time_ms);
    }
}

fn take_time(reader: &mut Reader) -> Result<Option<u64>, Error> {
    Ok(if reader.bool()? { Some(reader.number()?) } else { None })
}
