//! Messages to frames and back.
//!
//! One message is one frame; requests and answers that are long together are several, in order.

use bytes::Bytes;
use machine::{Ask, GroupId, Loan, NodeId, QueueId, SessionId, Version};
use raft::eraftpb::MessageType;

use super::frame::{Frame, Kind};
use super::gather::Gather;
use super::handshake::PROTOCOLS;
use super::limits::FRAME_BYTES_FILLED;
use super::message::{Message, Part};
use super::reader::Reader;
use super::{Error, answers, raft_message, requests};
use crate::request::Held;

/// What a message weighs besides its payload, in bytes.
const MESSAGE_BYTES: usize = 64;

impl Message {
    /// The group that it is about; the catalog's, if it is about the node.
    pub fn group(&self) -> GroupId {
        match self {
            Self::Raft { group, .. }
            | Self::Join { group, .. }
            | Self::Requests { group, .. }
            | Self::SessionGone { group, .. }
            | Self::NumberedBatch { group, .. }
            | Self::Answers { group, .. }
            | Self::Committed { group, .. }
            | Self::NotLeader { group, .. }
            | Self::Leads { group, .. }
            | Self::Reaches { group, .. }
            | Self::Voters { group, .. }
            | Self::Digest { group, .. }
            | Self::Borrow { group, .. }
            | Self::Lent { group, .. }
            | Self::Snapshot { group, .. }
            | Self::SnapshotTaken { group, .. } => *group,
            Self::Renewed { .. } | Self::Question { .. } | Self::Told { .. } => GroupId::CATALOG,
        }
    }

    /// The version of the protocol with which it came: a connection of an earlier one leaves it out. Requests and
    /// answers are not left out: shards do not send what the other node cannot read (`shard::version`).
    pub fn since(&self) -> u16 {
        match self {
            Self::Reaches { .. } => 4,
            Self::Voters { .. } => Version::VOTERS_SAID.0,
            Self::Renewed { .. } => Version::STAMPS_RENEWED.0,
            Self::Question { .. } | Self::Told { .. } => Version::QUESTIONS.0,
            Self::Digest { .. } => Version::CHAINED.0,
            Self::Borrow { .. } | Self::Lent { .. } => Version::RATES.0,
            Self::Raft { .. }
            | Self::Join { .. }
            | Self::Requests { .. }
            | Self::SessionGone { .. }
            | Self::NumberedBatch { .. }
            | Self::Answers { .. }
            | Self::Committed { .. }
            | Self::NotLeader { .. }
            | Self::Leads { .. }
            | Self::Snapshot { .. }
            | Self::SnapshotTaken { .. } => PROTOCOLS.0,
        }
    }

    /// Whether it may overtake others: what elections hang on must not wait behind bodies, and Raft
    /// does not depend on the order.
    pub fn is_urgent(&self) -> bool {
        match self {
            Self::Raft { message, .. } => match message.msg_type {
                MessageType::MsgHeartbeat
                | MessageType::MsgHeartbeatResponse
                | MessageType::MsgRequestVote
                | MessageType::MsgRequestVoteResponse
                | MessageType::MsgRequestPreVote
                | MessageType::MsgRequestPreVoteResponse => true,
                MessageType::MsgAppend
                | MessageType::MsgAppendResponse
                | MessageType::MsgSnapshot
                | MessageType::MsgTransferLeader
                | MessageType::MsgTimeoutNow
                | MessageType::MsgReadIndex
                | MessageType::MsgReadIndexResp
                | MessageType::MsgHup
                | MessageType::MsgBeat
                | MessageType::MsgPropose
                | MessageType::MsgUnreachable
                | MessageType::MsgSnapStatus
                | MessageType::MsgCheckQuorum => false,
            },
            Self::Join { .. }
            | Self::Requests { .. }
            | Self::SessionGone { .. }
            | Self::NumberedBatch { .. }
            | Self::Answers { .. }
            | Self::Committed { .. }
            | Self::NotLeader { .. }
            | Self::Leads { .. }
            | Self::Reaches { .. }
            | Self::Voters { .. }
            | Self::Digest { .. }
            | Self::Borrow { .. }
            | Self::Lent { .. }
            | Self::Renewed { .. }
            | Self::Question { .. }
            | Self::Told { .. }
            | Self::Snapshot { .. }
            | Self::SnapshotTaken { .. } => false,
        }
    }

    /// What it takes in memory and on the wire, roughly, in bytes.
    pub fn weight(&self) -> usize {
        let payload = match self {
            Self::Raft { message, .. } => {
                let entries = message.entries.iter();
                entries.map(|entry| entry.data.len() + MESSAGE_BYTES).sum()
            }
            Self::Join { attachments, .. } => {
                let held = attachments.iter();
                held.map(|attachment| MESSAGE_BYTES + 8 * attachment.held.range_count()).sum()
            }
            Self::Requests { requests, .. } => MESSAGE_BYTES * requests.len(),
            Self::NumberedBatch { commands, settles, .. } => {
                commands.len() + settles.iter().map(held_bytes).sum::<usize>()
            }
            Self::Answers { answers, .. } => {
                answers.iter().map(|(_, answer)| MESSAGE_BYTES + answers::payload(answer)).sum()
            }
            Self::Snapshot { chunk: bytes, .. }
            | Self::Question { body: bytes, .. }
            | Self::Told { part: Part::More(bytes) | Part::Last(bytes), .. } => bytes.len(),
            Self::Reaches { nodes, .. } | Self::Voters { voters: nodes, .. } => 8 * nodes.len(),
            Self::SessionGone { .. }
            | Self::Committed { .. }
            | Self::NotLeader { .. }
            | Self::Leads { .. }
            | Self::Digest { .. }
            | Self::Borrow { .. }
            | Self::Lent { .. }
            | Self::Renewed { .. }
            | Self::Told { part: Part::Refused, .. }
            | Self::SnapshotTaken { .. } => 0,
        };
        MESSAGE_BYTES + payload
    }
}

fn held_bytes(held: &Held) -> usize {
    MESSAGE_BYTES + 8 * held.ranges.range_count()
}

/// Appends the frames of `message`. An error says that it does not fit a frame.
pub fn encode(out: &mut Gather, message: &Message) -> Result<(), Error> {
    match message {
        Message::Raft { group, message } => {
            start(out, Kind::Raft, *group);
            raft_message::encode(out, message);
        }
        Message::Join { group, epoch, attachments } => {
            start_epoch(out, Kind::Join, *group, *epoch);
            out.count(attachments.len());
            for attachment in attachments {
                requests::encode_attachment(out, attachment);
            }
        }
        Message::Requests { group, epoch, session, requests } => {
            let begin = |out: &mut Gather| {
                start_epoch(out, Kind::Requests, *group, *epoch);
                out.number(session.0);
            };
            begin(out);
            for request in requests {
                if out.open_bytes() > FRAME_BYTES_FILLED {
                    out.end()?;
                    begin(out);
                }
                requests::encode(out, request);
            }
        }
        Message::SessionGone { group, epoch, session } => {
            start_epoch(out, Kind::SessionGone, *group, *epoch);
            out.number(session.0);
        }
        Message::NumberedBatch { group, epoch, boot, seq, commands, settles, needs_apply } => {
            start_epoch(out, Kind::NumberedBatch, *group, *epoch);
            out.number(*boot);
            out.number(*seq);
            out.bool(*needs_apply);
            out.count(settles.len());
            for held in settles {
                requests::encode_held(out, held);
            }
            out.payload(commands);
        }
        Message::Answers { group, epoch, answers } => {
            start_epoch(out, Kind::Answers, *group, *epoch);
            for (session, answer) in answers {
                if out.open_bytes() > FRAME_BYTES_FILLED {
                    out.end()?;
                    start_epoch(out, Kind::Answers, *group, *epoch);
                }
                out.number(session.0);
                answers::encode(out, answer);
            }
        }
        Message::Committed { group, epoch, boot, seq } => {
            start_epoch(out, Kind::Committed, *group, *epoch);
            out.number(*boot);
            out.number(*seq);
        }
        Message::NotLeader { group, epoch } => start_epoch(out, Kind::NotLeader, *group, *epoch),
        Message::Leads { group, term, time_ms } => {
            start(out, Kind::Leads, *group);
            out.number(*term);
            out.number(*time_ms);
        }
        Message::Reaches { group, nodes } => {
            start(out, Kind::Reaches, *group);
            out.count(nodes.len());
            nodes.iter().for_each(|node| out.number(node.0));
        }
        Message::Voters { group, term, voters } => {
            start(out, Kind::Voters, *group);
            out.number(*term);
            out.count(voters.len());
            voters.iter().for_each(|node| out.number(node.0));
        }
        Message::Renewed { boot, stamp } => {
            out.begin(Kind::Renewed);
            out.number(*boot);
            out.number(*stamp);
        }
        Message::Question { number, body } => {
            out.begin(Kind::Question);
            out.number(*number);
            out.payload(body);
        }
        Message::Told { number, part } => {
            out.begin(Kind::Told);
            out.number(*number);
            match part {
                Part::More(bytes) => {
                    out.u8(0);
                    out.payload(bytes);
                }
                Part::Last(bytes) => {
                    out.u8(1);
                    out.payload(bytes);
                }
                Part::Refused => out.u8(2),
            }
        }
        Message::Digest { group, index, chain, is_answer } => {
            start(out, Kind::Digest, *group);
            out.number(*index);
            out.number(*chain);
            out.bool(*is_answer);
        }
        Message::Borrow { group, queue, by, ask } => {
            let Ask { number, messages, bytes, may_wait } = *ask;
            start(out, Kind::Borrow, *group);
            out.number(queue.0);
            out.number(u64::from(by.0.0));
            [by.1.0, number, messages, bytes].into_iter().for_each(|it| out.number(it));
            out.bool(may_wait);
        }
        Message::Lent { group, queue, number, loan } => {
            let Loan { messages, bytes, wait_ms } = *loan;
            start(out, Kind::Lent, *group);
            [queue.0, *number, messages, bytes, wait_ms].into_iter().for_each(|it| out.number(it));
        }
        Message::Snapshot { group, chunk } => {
            start(out, Kind::Snapshot, *group);
            out.payload(chunk);
        }
        Message::SnapshotTaken { group, index, bytes } => {
            start(out, Kind::SnapshotTaken, *group);
            out.number(*index);
            out.number(*bytes);
        }
    }
    out.end()
}

/// Appends an empty frame: the sender is there.
pub fn encode_ping(out: &mut Gather) {
    out.begin(Kind::Ping);
    out.end().expect("an empty frame is not too large");
}

fn start(out: &mut Gather, kind: Kind, group: GroupId) {
    out.begin(kind);
    out.number(u64::from(group.0));
}

fn start_epoch(out: &mut Gather, kind: Kind, group: GroupId, epoch: u64) {
    start(out, kind, group);
    out.number(epoch);
}

/// What a frame says; `None` for a ping. Frames of the handshake have no place after it.
pub fn decode(frame: Frame) -> Result<Option<Message>, Error> {
    let Frame { kind, body } = frame;
    let message = match kind {
        Kind::Ping if body.is_empty() => return Ok(None),
        Kind::Ping => return Err(Error::Malformed("a ping")),
        Kind::Challenge
        | Kind::Hello
        | Kind::Proof
        | Kind::Refused
        | Kind::Expelled
        | Kind::Enter
        | Kind::Entered => {
            return Err(Error::Malformed("a handshake that is over"));
        }
        Kind::Raft => decode_raft(body)?,
        Kind::Join => decode_join(body)?,
        Kind::Requests => decode_requests(body)?,
        Kind::SessionGone => {
            let (mut reader, group, epoch) = open_epoch(body, "a session's goodbye")?;
            let session = SessionId(reader.number()?);
            reader.end()?;
            Message::SessionGone { group, epoch, session }
        }
        Kind::NumberedBatch => decode_numbered(body)?,
        Kind::Answers => decode_answers(body)?,
        Kind::Committed => {
            let (mut reader, group, epoch) = open_epoch(body, "a receipt of numbered batches")?;
            let (boot, seq) = (reader.number()?, reader.number()?);
            reader.end()?;
            Message::Committed { group, epoch, boot, seq }
        }
        Kind::NotLeader => {
            let (reader, group, epoch) = open_epoch(body, "a leader's goodbye")?;
            reader.end()?;
            Message::NotLeader { group, epoch }
        }
        Kind::Leads => {
            let (mut reader, group) = open(body, "a leader's word")?;
            let (term, time_ms) = (reader.number()?, reader.number()?);
            reader.end()?;
            Message::Leads { group, term, time_ms }
        }
        Kind::Reaches => {
            let (mut reader, group) = open(body, "a follower's reach")?;
            let count = reader.count(1)?;
            let nodes: Result<Vec<_>, _> =
                (0..count).map(|_| reader.number().map(NodeId)).collect();
            reader.end()?;
            Message::Reaches { group, nodes: nodes? }
        }
        Kind::Voters => {
            let (mut reader, group) = open(body, "a group's voters")?;
            let term = reader.number()?;
            let count = reader.count(1)?;
            let voters: Result<Vec<_>, _> =
                (0..count).map(|_| reader.number().map(NodeId)).collect();
            reader.end()?;
            Message::Voters { group, term, voters: voters? }
        }
        Kind::Renewed => {
            let mut reader = Reader::new(body, "a renewed stamp");
            let (boot, stamp) = (reader.number()?, reader.number()?);
            reader.end()?;
            Message::Renewed { boot, stamp }
        }
        Kind::Question => {
            let mut reader = Reader::new(body, "a question");
            let (number, body) = (reader.number()?, reader.payload()?);
            reader.end()?;
            Message::Question { number, body }
        }
        Kind::Told => {
            let mut reader = Reader::new(body, "an answer to a question");
            let number = reader.number()?;
            let part = match reader.u8()? {
                0 => Part::More(reader.payload()?),
                1 => Part::Last(reader.payload()?),
                2 => Part::Refused,
                _ => return Err(Error::Malformed("a part of an answer")),
            };
            reader.end()?;
            Message::Told { number, part }
        }
        Kind::Digest => {
            let (mut reader, group) = open(body, "a group's digest")?;
            let (index, chain) = (reader.number()?, reader.number()?);
            let is_answer = reader.bool()?;
            reader.end()?;
            Message::Digest { group, index, chain, is_answer }
        }
        Kind::Borrow => {
            let (mut reader, group) = open(body, "a question for tokens")?;
            let queue = QueueId(reader.number()?);
            let by = (GroupId(reader.u32()?), QueueId(reader.number()?));
            let (number, messages) = (reader.number()?, reader.number()?);
            let (bytes, may_wait) = (reader.number()?, reader.bool()?);
            reader.end()?;
            let ask = Ask { number, messages, bytes, may_wait };
            Message::Borrow { group, queue, by, ask }
        }
        Kind::Lent => {
            let (mut reader, group) = open(body, "lent tokens")?;
            let (queue, number) = (QueueId(reader.number()?), reader.number()?);
            let (messages, bytes) = (reader.number()?, reader.number()?);
            let loan = Loan { messages, bytes, wait_ms: reader.number()? };
            reader.end()?;
            Message::Lent { group, queue, number, loan }
        }
        Kind::Snapshot => {
            let (mut reader, group) = open(body, "a chunk of a snapshot")?;
            let chunk = reader.payload()?;
            reader.end()?;
            Message::Snapshot { group, chunk }
        }
        Kind::SnapshotTaken => {
            let (mut reader, group) = open(body, "a receipt of a snapshot")?;
            let (index, bytes) = (reader.number()?, reader.number()?);
            reader.end()?;
            Message::SnapshotTaken { group, index, bytes }
        }
    };
    Ok(Some(message))
}

fn open(body: Bytes, what: &'static str) -> Result<(Reader, GroupId), Error> {
    let mut reader = Reader::new(body, what);
    let group = GroupId(reader.u32()?);
    Ok((reader, group))
}

fn open_epoch(body: Bytes, what: &'static str) -> Result<(Reader, GroupId, u64), Error> {
    let (mut reader, group) = open(body, what)?;
    let epoch = reader.number()?;
    Ok((reader, group, epoch))
}

fn decode_raft(body: Bytes) -> Result<Message, Error> {
    let (mut reader, group) = open(body, "a message of Raft")?;
    let message = raft_message::decode(&mut reader)?;
    reader.end()?;
    Ok(Message::Raft { group, message })
}

fn decode_join(body: Bytes) -> Result<Message, Error> {
    /// Queue, consumer, spec, whether attached, ranges.
    const ATTACHMENT_BYTES_MIN: usize = 3 + 7 + 1 + 1;
    let (mut reader, group, epoch) = open_epoch(body, "a join")?;
    let count = reader.count(ATTACHMENT_BYTES_MIN)?;
    let attachments: Result<Vec<_>, _> =
        (0..count).map(|_| requests::decode_attachment(&mut reader)).collect();
    reader.end()?;
    Ok(Message::Join { group, epoch, attachments: attachments? })
}

fn decode_numbered(body: Bytes) -> Result<Message, Error> {
    /// Queue, consumer, ranges, outcome, credit.
    const HELD_BYTES_MIN: usize = 3 + 1 + 1 + 1;
    let (mut reader, group, epoch) = open_epoch(body, "a numbered batch")?;
    let (boot, seq) = (reader.number()?, reader.number()?);
    let needs_apply = reader.bool()?;
    let count = reader.count(HELD_BYTES_MIN)?;
    let settles: Result<Vec<_>, _> =
        (0..count).map(|_| requests::decode_held(&mut reader)).collect();
    let settles = settles?;
    let commands = reader.payload()?;
    reader.end()?;
    Ok(Message::NumberedBatch { group, epoch, boot, seq, commands, settles, needs_apply })
}

fn decode_requests(body: Bytes) -> Result<Message, Error> {
    let (mut reader, group, epoch) = open_epoch(body, "requests")?;
    let session = SessionId(reader.number()?);
    let mut requests = Vec::new();
    while reader.end().is_err() {
        requests.push(requests::decode(&mut reader, group)?);
    }
    Ok(Message::Requests { group, epoch, session, requests })
}

fn decode_answers(body: Bytes) -> Result<Message, Error> {
    let (mut reader, group, epoch) = open_epoch(body, "answers")?;
    let mut answers = Vec::new();
    while reader.end().is_err() {
        let session = SessionId(reader.number()?);
        answers.push((session, answers::decode(&mut reader, group)?));
    }
    Ok(Message::Answers { group, epoch, answers })
}
