//! The `raft` crate's messages, field by field: a mask says which fields are not zero, so that a
//! heartbeat takes about twenty bytes.
//!
//! ```text
//! message   type u8, mask, to, from, then what the mask announces, in the order of its bits
//! entry     type u8 (bits 0-1 the type, 2 sync_log, 3 context), term, index, data, context
//! snapshot  mask u8 (0 metadata, 1 conf state), data, index, term, conf state
//! ```

use bytes::Bytes;
use raft::eraftpb::{
    ConfState, Entry, EntryType, Message, MessageType, Snapshot, SnapshotMetadata,
};

use super::Error;
use super::gather::Gather;
use super::reader::Reader;

const TERM: u64 = 1;
const LOG_TERM: u64 = 1 << 1;
const INDEX: u64 = 1 << 2;
const COMMIT: u64 = 1 << 3;
const COMMIT_TERM: u64 = 1 << 4;
const REQUEST_SNAPSHOT: u64 = 1 << 5;
const REJECT: u64 = 1 << 6;
const REJECT_HINT: u64 = 1 << 7;
const DEPRECATED_PRIORITY: u64 = 1 << 8;
const PRIORITY: u64 = 1 << 9;
const CONTEXT: u64 = 1 << 10;
const ENTRIES: u64 = 1 << 11;
const SNAPSHOT: u64 = 1 << 12;
const ALL: u64 = (1 << 13) - 1;

const ENTRY_TYPE: u8 = 0b11;
const ENTRY_SYNC_LOG: u8 = 1 << 2;
const ENTRY_CONTEXT: u8 = 1 << 3;
/// An entry's head, term, index and length of data.
const ENTRY_BYTES_MIN: usize = 4;

const SNAPSHOT_METADATA: u8 = 1;
const SNAPSHOT_CONF_STATE: u8 = 1 << 1;

pub(super) fn encode(out: &mut Gather, message: &Message) {
    let numbers = numbers(message);
    let mut mask = 0;
    for (bit, value) in numbers {
        mask |= if value == 0 { 0 } else { bit };
    }
    mask |= if message.reject { REJECT } else { 0 };
    mask |= if message.context.is_empty() { 0 } else { CONTEXT };
    mask |= if message.entries.is_empty() { 0 } else { ENTRIES };
    mask |= if message.snapshot.is_none() { 0 } else { SNAPSHOT };
    out.u8(type_number(message.msg_type));
    out.number(mask);
    out.number(message.to);
    out.number(message.from);
    for (_, value) in numbers.into_iter().filter(|(_, value)| *value != 0) {
        out.number(value);
    }
    if mask & CONTEXT != 0 {
        out.payload(&message.context);
    }
    if mask & ENTRIES != 0 {
        out.count(message.entries.len());
        for entry in &message.entries {
            encode_entry(out, entry);
        }
    }
    if let Some(snapshot) = message.snapshot.as_ref() {
        encode_snapshot(out, snapshot);
    }
}

/// The fields that are numbers, in the order in which they are written.
fn numbers(message: &Message) -> [(u64, u64); 9] {
    [
        (TERM, message.term),
        (LOG_TERM, message.log_term),
        (INDEX, message.index),
        (COMMIT, message.commit),
        (COMMIT_TERM, message.commit_term),
        (REQUEST_SNAPSHOT, message.request_snapshot),
        (REJECT_HINT, message.reject_hint),
        (DEPRECATED_PRIORITY, message.deprecated_priority),
        (PRIORITY, message.priority.cast_unsigned()),
    ]
}

pub(super) fn decode(reader: &mut Reader) -> Result<Message, Error> {
    let msg_type = type_of(reader.u8()?).ok_or(reader.malformed())?;
    let mask = reader.number()?;
    if mask & !ALL != 0 {
        return Err(reader.malformed());
    }
    let mut message = Message { msg_type, ..Message::default() };
    message.to = reader.number()?;
    message.from = reader.number()?;
    let mut number = |bit| if mask & bit == 0 { Ok(0) } else { reader.number() };
    message.term = number(TERM)?;
    message.log_term = number(LOG_TERM)?;
    message.index = number(INDEX)?;
    message.commit = number(COMMIT)?;
    message.commit_term = number(COMMIT_TERM)?;
    message.request_snapshot = number(REQUEST_SNAPSHOT)?;
    message.reject_hint = number(REJECT_HINT)?;
    message.deprecated_priority = number(DEPRECATED_PRIORITY)?;
    message.priority = number(PRIORITY)?.cast_signed();
    message.reject = mask & REJECT != 0;
    if mask & CONTEXT != 0 {
        message.context = reader.payload()?;
    }
    if mask & ENTRIES != 0 {
        let count = reader.count(ENTRY_BYTES_MIN)?;
        let entries: Result<Vec<_>, _> = (0..count).map(|_| decode_entry(reader)).collect();
        message.entries = entries?.into();
    }
    if mask & SNAPSHOT != 0 {
        message.snapshot = Some(decode_snapshot(reader)?).into();
    }
    Ok(message)
}

fn encode_entry(out: &mut Gather, entry: &Entry) {
    let mut head = match entry.entry_type {
        EntryType::EntryNormal => 0,
        EntryType::EntryConfChange => 1,
        EntryType::EntryConfChangeV2 => 2,
    };
    head |= if entry.sync_log { ENTRY_SYNC_LOG } else { 0 };
    head |= if entry.context.is_empty() { 0 } else { ENTRY_CONTEXT };
    out.u8(head);
    out.number(entry.term);
    out.number(entry.index);
    out.payload(&entry.data);
    if !entry.context.is_empty() {
        out.payload(&entry.context);
    }
}

fn decode_entry(reader: &mut Reader) -> Result<Entry, Error> {
    let head = reader.u8()?;
    let entry_type = match head & ENTRY_TYPE {
        0 => EntryType::EntryNormal,
        1 => EntryType::EntryConfChange,
        2 => EntryType::EntryConfChangeV2,
        _ => return Err(reader.malformed()),
    };
    if head & !(ENTRY_TYPE | ENTRY_SYNC_LOG | ENTRY_CONTEXT) != 0 {
        return Err(reader.malformed());
    }
    let sync_log = head & ENTRY_SYNC_LOG != 0;
    let (term, index, data) = (reader.number()?, reader.number()?, reader.payload()?);
    let context = if head & ENTRY_CONTEXT == 0 { Bytes::new() } else { reader.payload()? };
    Ok(Entry { entry_type, term, index, data, context, sync_log, ..Entry::default() })
}

fn encode_snapshot(out: &mut Gather, snapshot: &Snapshot) {
    let metadata = snapshot.metadata.as_ref();
    let conf_state = metadata.and_then(|metadata| metadata.conf_state.as_ref());
    let has_metadata = if metadata.is_some() { SNAPSHOT_METADATA } else { 0 };
    out.u8(has_metadata | if conf_state.is_some() { SNAPSHOT_CONF_STATE } else { 0 });
    out.payload(&snapshot.data);
    if let Some(metadata) = metadata {
        out.number(metadata.index);
        out.number(metadata.term);
    }
    if let Some(conf_state) = conf_state {
        let ConfState { voters, learners, voters_outgoing, learners_next, auto_leave, .. } =
            conf_state;
        for nodes in [voters, learners, voters_outgoing, learners_next] {
            out.count(nodes.len());
            nodes.iter().for_each(|node| out.number(*node));
        }
        out.bool(*auto_leave);
    }
}

fn decode_snapshot(reader: &mut Reader) -> Result<Snapshot, Error> {
    let mask = reader.u8()?;
    let is_known = matches!(mask, 0 | 1 | 3);
    if !is_known {
        return Err(reader.malformed());
    }
    let mut snapshot = Snapshot { data: reader.payload()?, ..Snapshot::default() };
    if mask & SNAPSHOT_METADATA != 0 {
        let (index, term) = (reader.number()?, reader.number()?);
        let mut metadata = SnapshotMetadata { index, term, ..SnapshotMetadata::default() };
        if mask & SNAPSHOT_CONF_STATE != 0 {
            metadata.conf_state = Some(decode_conf_state(reader)?).into();
        }
        snapshot.metadata = Some(metadata).into();
    }
    Ok(snapshot)
}

fn decode_conf_state(reader: &mut Reader) -> Result<ConfState, Error> {
    Ok(ConfState {
        voters: reader.numbers()?,
        learners: reader.numbers()?,
        voters_outgoing: reader.numbers()?,
        learners_next: reader.numbers()?,
        auto_leave: reader.bool()?,
        ..ConfState::default()
    })
}

/// As in the `raft` crate's protocol. A node's messages to itself are written like the others, but
/// are not taken from a peer.
fn type_number(kind: MessageType) -> u8 {
    match kind {
        MessageType::MsgHup => 0,
        MessageType::MsgBeat => 1,
        MessageType::MsgPropose => 2,
        MessageType::MsgAppend => 3,
        MessageType::MsgAppendResponse => 4,
        MessageType::MsgRequestVote => 5,
        MessageType::MsgRequestVoteResponse => 6,
        MessageType::MsgSnapshot => 7,
        MessageType::MsgHeartbeat => 8,
        MessageType::MsgHeartbeatResponse => 9,
        MessageType::MsgUnreachable => 10,
        MessageType::MsgSnapStatus => 11,
        MessageType::MsgCheckQuorum => 12,
        MessageType::MsgTransferLeader => 13,
        MessageType::MsgTimeoutNow => 14,
        MessageType::MsgReadIndex => 15,
        MessageType::MsgReadIndexResp => 16,
        MessageType::MsgRequestPreVote => 17,
        MessageType::MsgRequestPreVoteResponse => 18,
    }
}

fn type_of(number: u8) -> Option<MessageType> {
    Some(match number {
        // 0, 1, 10, 11 and 12 are what a node tells itself, and 2 is not asked of others: commands
        // travel as numbered batches.
        3 => MessageType::MsgAppend,
        4 => MessageType::MsgAppendResponse,
        5 => MessageType::MsgRequestVote,
        6 => MessageType::MsgRequestVoteResponse,
        7 => MessageType::MsgSnapshot,
        8 => MessageType::MsgHeartbeat,
        9 => MessageType::MsgHeartbeatResponse,
        13 => MessageType::MsgTransferLeader,
        14 => MessageType::MsgTimeoutNow,
        15 => MessageType::MsgReadIndex,
        16 => MessageType::MsgReadIndexResp,
        17 => MessageType::MsgRequestPreVote,
        18 => MessageType::MsgRequestPreVoteResponse,
        _ => return None,
    })
}
