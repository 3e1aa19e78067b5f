//! What is written is what is read, and in how many bytes.

use bytes::{Bytes, BytesMut};
use machine::{ConsumerId, GroupId, QueueId, SessionId};
use proptest::prelude::*;
use raft::eraftpb::{self, MessageType};
use std::io::IoSlice;

use super::samples;
use crate::peer::Error;
use crate::peer::codec::{decode, encode, encode_ping};
use crate::peer::frame::take;
use crate::peer::gather::Gather;
use crate::peer::limits::{FRAME_BYTES_FILLED, FRAME_BYTES_MAX};
use crate::peer::message::Message;
use crate::request::{Answer, Delivery, Ticket};

/// Everything that a gather would write, `step` bytes at a time.
pub(crate) fn written(gather: &Gather, step: usize) -> BytesMut {
    let mut bytes = BytesMut::new();
    while bytes.len() < gather.bytes() {
        let mut slices = [IoSlice::new(&[]); 3];
        let count = gather.slices(bytes.len(), &mut slices);
        let mut left = step;
        for slice in &slices[..count] {
            let part = &slice[..slice.len().min(left)];
            bytes.extend_from_slice(part);
            left -= part.len();
        }
    }
    bytes
}

pub(super) fn read(bytes: &mut BytesMut) -> Result<Vec<Message>, Error> {
    let mut messages = Vec::new();
    while let Some(frame) = take(bytes, FRAME_BYTES_MAX)? {
        messages.extend(decode(frame)?);
    }
    Ok(messages)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn messages_come_back_as_they_were_sent(
        messages in prop::collection::vec(samples::message(), 1..6),
        step in 1..5000usize,
    ) {
        let mut gather = Gather::default();
        for message in &messages {
            encode(&mut gather, message).unwrap();
            encode_ping(&mut gather);
        }
        let mut bytes = written(&gather, step);
        let back = read(&mut bytes).unwrap();
        prop_assert_eq!(format!("{back:?}"), format!("{messages:?}"));
        prop_assert!(bytes.is_empty());
    }
}

fn numbered(commands: Bytes) -> Message {
    let (group, settles, needs_apply) = (GroupId(1), Vec::new(), false);
    Message::NumberedBatch { group, epoch: 1, boot: 1, seq: 1, commands, settles, needs_apply }
}

fn raft(message: eraftpb::Message) -> Message {
    Message::Raft { group: GroupId(17), message }
}

#[test]
fn a_heartbeat_takes_less_than_thirty_bytes() {
    let heartbeat = eraftpb::Message {
        msg_type: MessageType::MsgHeartbeat,
        to: 2,
        from: 1,
        term: 300,
        commit: 100_000_000,
        ..eraftpb::Message::default()
    };
    let mut gather = Gather::default();
    encode(&mut gather, &raft(heartbeat)).unwrap();
    assert!(gather.bytes() < 30, "{} bytes", gather.bytes());
}

#[test]
fn a_body_is_referenced_on_the_way_out_and_on_the_way_in() {
    let body = Bytes::from(vec![5; 100_000]);
    let mut gather = Gather::default();
    let numbered = numbered(body.clone());
    encode(&mut gather, &numbered).unwrap();
    let mut slices = [IoSlice::new(&[]); 4];
    let count = gather.slices(0, &mut slices);
    assert_eq!(count, 2, "head and body, and nothing behind it");
    assert_eq!(slices[1].as_ptr(), body.as_ptr());

    let mut bytes = written(&gather, usize::MAX);
    let arrived = bytes.as_ptr() as usize..bytes.as_ptr() as usize + bytes.len();
    let messages = read(&mut bytes).unwrap();
    let Some(Message::NumberedBatch { commands, .. }) = messages.first() else {
        panic!("no numbered batch")
    };
    assert_eq!(commands, &body);
    assert!(arrived.contains(&(commands.as_ptr() as usize)));
}

#[test]
fn a_frame_that_is_too_large_is_taken_back_and_the_others_stay() {
    let mut gather = Gather::default();
    encode(&mut gather, &numbered(Bytes::from(vec![0; 5000]))).unwrap();
    let before = gather.bytes();
    let refused = encode(&mut gather, &numbered(Bytes::from(vec![0; FRAME_BYTES_MAX])));
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
    assert_eq!(gather.bytes(), before);
    assert_eq!(read(&mut written(&gather, usize::MAX)).unwrap().len(), 1);
}

#[test]
fn many_answers_are_several_frames_in_order() {
    let answer = |first_seq| {
        let delivery = Delivery {
            group: GroupId(3),
            queue: QueueId(1),
            store: QueueId(1),
            consumer: ConsumerId { session: SessionId(1), number: 1 },
            first_seq,
            count: 1,
            redelivered: false,
            returns: 0,
            bytes: Bytes::from(vec![0; FRAME_BYTES_FILLED / 2]),
        };
        (SessionId(1), Answer::Delivered(delivery))
    };
    let mut answers: Vec<_> = (0..9).map(answer).collect();
    answers.push((SessionId(1), Answer::Detached { ticket: Ticket(1) }));
    let mut gather = Gather::default();
    encode(&mut gather, &Message::Answers { group: GroupId(3), epoch: 4, answers }).unwrap();
    let messages = read(&mut written(&gather, usize::MAX)).unwrap();
    assert_eq!(messages.len(), 5);
    let mut seqs = Vec::new();
    for message in messages {
        let Message::Answers { epoch: 4, answers, .. } = message else { panic!("no answers") };
        for (_, answer) in answers {
            match answer {
                Answer::Delivered(delivery) => seqs.push(delivery.first_seq),
                other => assert!(matches!(other, Answer::Detached { .. })),
            }
        }
    }
    assert_eq!(seqs, (0..9).collect::<Vec<_>>());
}
