//! Answers of a group's leader on their way to the node of the session that asked.

use machine::{
    AttachError, CloseError, Counters, GroupId, HeldBack, NodeId, QueueDescription, QueueId,
    QueueStatus, Version,
};

use super::Error;
use super::gather::Gather;
use super::locks;
use super::peeks;
use super::reader::Reader;
use super::requests::{put_consumer, take_consumer, take_numbers, take_ticket};
use crate::described::{DescribedQueue, NotDescribed};
use crate::request::{Alarms, Answer, Delivery};
use crate::withheld::{NotWithheld, WithheldCount};

const APPENDED: u8 = 1;
const APPEND_FAILED: u8 = 2;
const ATTACHED: u8 = 4;
const DETACHED: u8 = 5;
const DELIVERED: u8 = 6;
const GOT: u8 = 7;
const PURGED: u8 = 8;
const STATUS: u8 = 9;
const CLOSED: u8 = 10;
const CANCELLED: u8 = 11;
const SESSION_ENDED: u8 = 12;
const ALARMS: u8 = 13;
const STOPPING: u8 = 14;
const ADMITTED: u8 = 15;
/// Since `Version::DESCRIBED`.
const DESCRIBED: u8 = 16;
/// Since `Version::PEEKED`.
const PEEKED: u8 = 17;
/// `ATTACHED` to a stream. Since `Version::STREAMS`.
const ATTACHED_AT: u8 = 18;
/// Since `Version::STREAMS`.
const ELECTED: u8 = 19;
/// Since `Version::LOCKS`.
const LOCKED: u8 = 32;
/// Since `Version::UNDO`.
const WITHHELD: u8 = 24;

/// A node answers changes of the catalog itself, when it has applied them: one here would be a bug
/// of ours.
pub(super) fn encode(out: &mut Gather, answer: &Answer) {
    match answer {
        Answer::Catalog { ticket, .. } => {
            unreachable!("the catalog's answer to {ticket:?} is given where it was asked")
        }
        Answer::Leaving(leaving) => {
            unreachable!("a node's own dead-letter worker takes what leaves {:?}", leaving.queue)
        }
        Answer::Admitted { ticket, refused } => {
            ticketed(out, ADMITTED, ticket.0);
            out.number(refused.len() as u64);
            refused.iter().for_each(|place| out.number(u64::from(*place)));
        }
        Answer::Appended { ticket } => ticketed(out, APPENDED, ticket.0),
        Answer::AppendFailed { ticket } => ticketed(out, APPEND_FAILED, ticket.0),
        Answer::Attached { ticket, result: Ok(()), at: Some(seq) } => {
            ticketed(out, ATTACHED_AT, ticket.0);
            out.number(*seq);
        }
        Answer::Attached { ticket, result, .. } => {
            ticketed(out, ATTACHED, ticket.0);
            out.u8(match result {
                Ok(()) => 0,
                Err(AttachError::NoQueue) => 1,
                Err(AttachError::ExclusiveUse) => 2,
                Err(AttachError::NotLeading) => 3,
            });
        }
        Answer::Detached { ticket } => ticketed(out, DETACHED, ticket.0),
        Answer::Delivered(delivery) => {
            out.u8(DELIVERED);
            encode_delivery(out, delivery);
        }
        Answer::Got { ticket, delivery, ready } => {
            ticketed(out, GOT, ticket.0);
            out.number(*ready);
            out.bool(delivery.is_some());
            if let Some(delivery) = delivery {
                encode_delivery(out, delivery);
            }
        }
        Answer::Purged { ticket, count } => {
            ticketed(out, PURGED, ticket.0);
            out.number(*count);
        }
        Answer::Withheld { ticket, result } => {
            ticketed(out, WITHHELD, ticket.0);
            encode_withheld(out, result);
        }
        Answer::Status { ticket, status } => {
            ticketed(out, STATUS, ticket.0);
            out.bool(status.is_some());
            if let Some(status) = status {
                encode_status(out, status);
            }
        }
        Answer::Described { ticket, result } => {
            ticketed(out, DESCRIBED, ticket.0);
            match result {
                Ok(described) => {
                    out.u8(0);
                    encode_described(out, described);
                }
                Err(NotDescribed::NoQueue) => out.u8(1),
                Err(NotDescribed::NotYet { since }) => {
                    out.u8(2);
                    out.array(&since.0.to_le_bytes());
                }
                // Who asks finds these out itself.
                Err(NotDescribed::NoLeader) => out.u8(3),
                Err(NotDescribed::Late) => out.u8(4),
            }
        }
        Answer::Peeked { ticket, result } => {
            ticketed(out, PEEKED, ticket.0);
            peeks::encode_peeked(out, result);
        }
        Answer::Locked { ticket, result } => {
            ticketed(out, LOCKED, ticket.0);
            locks::encode_result(out, result);
        }
        Answer::Closed { ticket, result } => {
            ticketed(out, CLOSED, ticket.0);
            match result {
                Ok(count) => {
                    out.u8(0);
                    out.number(*count);
                }
                Err(CloseError::NoQueue) => out.u8(1),
                Err(CloseError::InUse) => out.u8(2),
                Err(CloseError::NotEmpty) => out.u8(3),
            }
        }
        Answer::Cancelled { queue, consumer } => {
            out.u8(CANCELLED);
            put_consumer(out, *queue, *consumer);
        }
        Answer::Elected { queue, consumer, generation } => {
            out.u8(ELECTED);
            put_consumer(out, *queue, *consumer);
            out.number(*generation);
        }
        Answer::SessionEnded { ticket } => ticketed(out, SESSION_ENDED, ticket.0),
        Answer::Alarms(Alarms { memory, disk }) => {
            out.u8(ALARMS);
            out.bool(*memory);
            out.bool(*disk);
        }
        Answer::Stopping => out.u8(STOPPING),
    }
}

pub(super) fn decode(reader: &mut Reader, group: GroupId) -> Result<Answer, Error> {
    Ok(match reader.u8()? {
        APPENDED => Answer::Appended { ticket: take_ticket(reader)? },
        APPEND_FAILED => Answer::AppendFailed { ticket: take_ticket(reader)? },
        ATTACHED => {
            let ticket = take_ticket(reader)?;
            let result = match reader.u8()? {
                0 => Ok(()),
                1 => Err(AttachError::NoQueue),
                2 => Err(AttachError::ExclusiveUse),
                3 => Err(AttachError::NotLeading),
                _ => return Err(reader.malformed()),
            };
            Answer::Attached { ticket, result, at: None }
        }
        ATTACHED_AT => {
            let ticket = take_ticket(reader)?;
            Answer::Attached { ticket, result: Ok(()), at: Some(reader.number()?) }
        }
        DETACHED => Answer::Detached { ticket: take_ticket(reader)? },
        DELIVERED => Answer::Delivered(decode_delivery(reader, group)?),
        GOT => {
            let ticket = take_ticket(reader)?;
            let ready = reader.number()?;
            let is_some = reader.bool()?;
            let delivery = if is_some { Some(decode_delivery(reader, group)?) } else { None };
            Answer::Got { ticket, delivery, ready }
        }
        PURGED => Answer::Purged { ticket: take_ticket(reader)?, count: reader.number()? },
        WITHHELD => {
            let ticket = take_ticket(reader)?;
            Answer::Withheld { ticket, result: decode_withheld(reader)? }
        }
        STATUS => {
            let ticket = take_ticket(reader)?;
            let status = if reader.bool()? { Some(decode_status(reader)?) } else { None };
            Answer::Status { ticket, status }
        }
        DESCRIBED => {
            let ticket = take_ticket(reader)?;
            let result = match reader.u8()? {
                0 => Ok(Box::new(decode_described(reader)?)),
                1 => Err(NotDescribed::NoQueue),
                2 => {
                    let since = Version(u16::from_le_bytes(reader.array()?));
                    Err(NotDescribed::NotYet { since })
                }
                3 => Err(NotDescribed::NoLeader),
                4 => Err(NotDescribed::Late),
                _ => return Err(reader.malformed()),
            };
            Answer::Described { ticket, result }
        }
        LOCKED => {
            let ticket = take_ticket(reader)?;
            Answer::Locked { ticket, result: locks::decode_result(reader)? }
        }
        PEEKED => {
            let ticket = take_ticket(reader)?;
            Answer::Peeked { ticket, result: peeks::decode_peeked(reader)? }
        }
        CLOSED => {
            let ticket = take_ticket(reader)?;
            let result = match reader.u8()? {
                0 => Ok(reader.number()?),
                1 => Err(CloseError::NoQueue),
                2 => Err(CloseError::InUse),
                3 => Err(CloseError::NotEmpty),
                _ => return Err(reader.malformed()),
            };
            Answer::Closed { ticket, result }
        }
        ADMITTED => {
            Answer::Admitted { ticket: take_ticket(reader)?, refused: take_numbers(reader)? }
        }
        CANCELLED => {
            let (queue, consumer) = take_consumer(reader)?;
            Answer::Cancelled { queue, consumer }
        }
        ELECTED => {
            let (queue, consumer) = take_consumer(reader)?;
            Answer::Elected { queue, consumer, generation: reader.number()? }
        }
        SESSION_ENDED => Answer::SessionEnded { ticket: take_ticket(reader)? },
        ALARMS => Answer::Alarms(Alarms { memory: reader.bool()?, disk: reader.bool()? }),
        STOPPING => Answer::Stopping,
        _ => return Err(reader.malformed()),
    })
}

/// Bytes of the messages that it brings.
pub(super) fn payload(answer: &Answer) -> usize {
    match answer {
        Answer::Delivered(delivery) | Answer::Got { delivery: Some(delivery), .. } => {
            delivery.bytes.len()
        }
        Answer::Leaving(leaving) => leaving.bytes.len(),
        Answer::Peeked { result: Ok(peeked), .. } => peeks::payload(peeked),
        Answer::Peeked { result: Err(_), .. }
        | Answer::Got { delivery: None, .. }
        | Answer::Appended { .. }
        | Answer::AppendFailed { .. }
        | Answer::Catalog { .. }
        | Answer::Attached { .. }
        | Answer::Detached { .. }
        | Answer::Purged { .. }
        | Answer::Withheld { .. }
        | Answer::Status { .. }
        | Answer::Described { .. }
        | Answer::Locked { .. }
        | Answer::Closed { .. }
        | Answer::Admitted { .. }
        | Answer::Cancelled { .. }
        | Answer::Elected { .. }
        | Answer::SessionEnded { .. }
        | Answer::Alarms(_)
        | Answer::Stopping => 0,
    }
}

fn encode_withheld(out: &mut Gather, result: &Result<WithheldCount, NotWithheld>) {
    match result {
        Ok(WithheldCount { count, until_ms }) => {
            out.u8(0);
            out.number(*count);
            out.number(*until_ms);
        }
        Err(NotWithheld::NoQueue) => out.u8(1),
        Err(NotWithheld::NotYet { since }) => {
            out.u8(2);
            out.array(&since.0.to_le_bytes());
        }
        // Who asks finds these out itself.
        Err(NotWithheld::NoLeader) => out.u8(3),
        Err(NotWithheld::Late) => out.u8(4),
    }
}

fn decode_withheld(reader: &mut Reader) -> Result<Result<WithheldCount, NotWithheld>, Error> {
    Ok(match reader.u8()? {
        0 => Ok(WithheldCount { count: reader.number()?, until_ms: reader.number()? }),
        1 => Err(NotWithheld::NoQueue),
        2 => Err(NotWithheld::NotYet { since: Version(u16::from_le_bytes(reader.array()?)) }),
        3 => Err(NotWithheld::NoLeader),
        4 => Err(NotWithheld::Late),
        _ => return Err(reader.malformed()),
    })
}

fn ticketed(out: &mut Gather, kind: u8, ticket: u64) {
    out.u8(kind);
    out.number(ticket);
}

// What a delivery is: one bit each.
const REDELIVERED: u8 = 1;
/// It goes to a subscription, whose stream follows. Since `Version::STREAMS`.
const HAS_STORE: u8 = 1 << 1;

fn encode_delivery(out: &mut Gather, delivery: &Delivery) {
    let Delivery {
        group: _,
        queue,
        store,
        consumer,
        first_seq,
        count,
        redelivered,
        returns,
        bytes,
    } = delivery;
    put_consumer(out, *queue, *consumer);
    out.number(*first_seq);
    out.number(u64::from(*count));
    let has_store = store != queue;
    out.u8(u8::from(*redelivered) | if has_store { HAS_STORE } else { 0 });
    if has_store {
        out.number(store.0);
    }
    out.number(u64::from(*returns));
    out.payload(bytes);
}

fn decode_delivery(reader: &mut Reader, group: GroupId) -> Result<Delivery, Error> {
    let (queue, consumer) = take_consumer(reader)?;
    let (first_seq, count, flags) = (reader.number()?, reader.u32()?, reader.u8()?);
    if flags & !(REDELIVERED | HAS_STORE) != 0 {
        return Err(reader.malformed());
    }
    let store = if flags & HAS_STORE != 0 { QueueId(reader.number()?) } else { queue };
    Ok(Delivery {
        group,
        queue,
        store,
        consumer,
        first_seq,
        count,
        redelivered: flags & REDELIVERED != 0,
        returns: reader.u32()?,
        bytes: reader.payload()?,
    })
}

fn encode_status(out: &mut Gather, status: &QueueStatus) {
    // What rates hold back is in descriptions, and who declares a queue is not told.
    let QueueStatus { ready, unsettled, consumers, delayed, leaving, counters, held_back: _ } =
        *status;
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
    let consumers = u64::from(consumers);
    for value in [ready, unsettled, consumers, delayed, leaving] {
        out.number(value);
    }
    // Whoever declares a queue is not told how much of the dropped its filter did not match.
    let dropped = dropped.saturating_add(passed_over);
    for value in [enqueued, enqueued_bytes, settled, purged, dropped, dead_lettered, duplicates] {
        out.number(value);
    }
    out.array(&checksum.to_le_bytes());
}

fn decode_status(reader: &mut Reader) -> Result<QueueStatus, Error> {
    Ok(QueueStatus {
        ready: reader.number()?,
        unsettled: reader.number()?,
        consumers: reader.u32()?,
        delayed: reader.number()?,
        leaving: reader.number()?,
        counters: Counters {
            enqueued: reader.number()?,
            enqueued_bytes: reader.number()?,
            settled: reader.number()?,
            purged: reader.number()?,
            dropped: reader.number()?,
            dead_lettered: reader.number()?,
            duplicates: reader.number()?,
            passed_over: 0,
            checksum: u64::from_le_bytes(reader.array()?),
        },
        held_back: HeldBack::default(),
    })
}

fn encode_described(out: &mut Gather, described: &DescribedQueue) {
    let DescribedQueue { queue, leader, term, voters, learners } = described;
    let mut bytes = Vec::new();
    queue.encode(&mut bytes);
    out.blob(&bytes);
    out.number(leader.0);
    out.number(*term);
    for nodes in [voters, learners] {
        out.number(nodes.len() as u64);
        nodes.iter().for_each(|node| out.number(node.0));
    }
}

fn decode_described(reader: &mut Reader) -> Result<DescribedQueue, Error> {
    let bytes = reader.payload()?;
    Ok(DescribedQueue {
        queue: QueueDescription::decode(&bytes).map_err(|_| reader.malformed())?,
        leader: NodeId(reader.number()?),
        term: reader.number()?,
        voters: take_nodes(reader)?,
        learners: take_nodes(reader)?,
    })
}

/// Nodes behind their count. None is reserved for before it is there.
fn take_nodes(reader: &mut Reader) -> Result<Vec<NodeId>, Error> {
    let count = reader.u32()?;
    (0..count).map(|_| reader.number().map(NodeId)).collect()
}
