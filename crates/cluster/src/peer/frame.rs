//! Frames on their way in. The length is judged before anything is waited for, the checksum before
//! anything is read.

use bytes::{Bytes, BytesMut};

use super::Error;

/// Of the layout of frames and of everything in them.
pub const VERSION: u8 = 1;

/// Length, checksum, version, kind.
pub const FRAME_HEAD_BYTES: usize = 10;

/// What a frame holds. Numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Raft,
    Join,
    Requests,
    SessionGone,
    NumberedBatch,
    Answers,
    Committed,
    NotLeader,
    Leads,
    Snapshot,
    SnapshotTaken,
    Reaches,
    Voters,
    Renewed,
    Question,
    Told,
    Digest,
    Borrow,
    Lent,
    /// Nothing: the sender is there.
    Ping,
    Hello,
    Proof,
    /// A sentence for the operator, and the connection's end.
    Refused,
    /// The address of a node that wants to join, and what it needs to begin.
    Enter,
    Entered,
    /// The first frame of both sides: what the other has to prove the secret over.
    Challenge,
    /// A refusal that does not pass: nobody of the cluster talks to that node again.
    Expelled,
}

impl Kind {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Raft => 1,
            Self::Join => 2,
            Self::Requests => 3,
            Self::SessionGone => 4,
            Self::NumberedBatch => 5,
            Self::Answers => 6,
            Self::Committed => 7,
            Self::NotLeader => 8,
            Self::Leads => 9,
            Self::Snapshot => 10,
            Self::SnapshotTaken => 11,
            Self::Reaches => 12,
            Self::Voters => 13,
            Self::Renewed => 14,
            Self::Question => 15,
            Self::Told => 16,
            Self::Digest => 24,
            Self::Borrow => 25,
            Self::Lent => 26,
            Self::Ping => 32,
            Self::Hello => 33,
            Self::Proof => 34,
            Self::Refused => 35,
            Self::Enter => 36,
            Self::Entered => 37,
            Self::Challenge => 38,
            Self::Expelled => 39,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Raft,
            2 => Self::Join,
            3 => Self::Requests,
            4 => Self::SessionGone,
            5 => Self::NumberedBatch,
            6 => Self::Answers,
            7 => Self::Committed,
            8 => Self::NotLeader,
            9 => Self::Leads,
            10 => Self::Snapshot,
            11 => Self::SnapshotTaken,
            12 => Self::Reaches,
            13 => Self::Voters,
            14 => Self::Renewed,
            15 => Self::Question,
            16 => Self::Told,
            24 => Self::Digest,
            25 => Self::Borrow,
            26 => Self::Lent,
            32 => Self::Ping,
            33 => Self::Hello,
            34 => Self::Proof,
            35 => Self::Refused,
            36 => Self::Enter,
            37 => Self::Entered,
            38 => Self::Challenge,
            39 => Self::Expelled,
            _ => return None,
        })
    }
}

/// A frame whose checksum was right.
#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: Kind,
    pub body: Bytes,
}

/// Takes the first whole frame off `input`, without copying it. `None`: there is more to come.
/// Frames longer than `bytes_max` are refused by their first four bytes.
pub fn take(input: &mut BytesMut, bytes_max: usize) -> Result<Option<Frame>, Error> {
    let Some(length) = input.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > bytes_max {
        return Err(Error::TooLarge { bytes: length });
    }
    if length < FRAME_HEAD_BYTES - 4 {
        return Err(Error::Malformed("a frame shorter than its head"));
    }
    if input.len() < 4 + length {
        return Ok(None);
    }
    let frame = input.split_to(4 + length).freeze();
    let checksum: [u8; 4] = frame[4..8].try_into().expect("four bytes are four bytes");
    if crc32c::crc32c(&frame[8..]) != u32::from_le_bytes(checksum) {
        return Err(Error::Checksum);
    }
    if frame[8] != VERSION {
        return Err(Error::Version(frame[8]));
    }
    let kind = Kind::from_number(frame[9]).ok_or(Error::Kind(frame[9]))?;
    Ok(Some(Frame { kind, body: frame.slice(FRAME_HEAD_BYTES..) }))
}
