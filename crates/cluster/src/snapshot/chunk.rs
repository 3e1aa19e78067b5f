//! The parts in which a snapshot travels, and what its receiver answers.
//!
//! ```text
//! checksum u32 (of the rest) | version u8 | kind u8 | group u32 | transfer, index, term u64 | body
//! ```
//!
//! All numbers are little-endian.

use bytes::{BufMut, Bytes, BytesMut};
use machine::GroupId;

use super::{HAVE_MAX, Refused};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 34;

/// Which snapshot, and which attempt to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub group: GroupId,
    /// The sender's own; differs from attempt to attempt.
    pub number: u64,
    pub index: u64,
    pub term: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// To the receiver: there is this snapshot.
    Offer,
    /// To the sender: queues, and the first sequence number of each that is new.
    Want(Vec<(u64, u64)>),
    /// To the receiver: the stream from `offset` on.
    Data { offset: u64, bytes: Bytes },
    /// To the receiver: that was all. The stream's length and checksum.
    End { offset: u64, checksum: u32 },
    /// To the sender: it is the group's checkpoint now, or never will be.
    Done { installed: bool },
}

impl Chunk {
    pub(crate) fn encode(&self, transfer: &Transfer) -> Bytes {
        let mut out = BytesMut::with_capacity(HEAD_BYTES + 16);
        out.put_u32_le(0);
        out.put_u8(VERSION);
        out.put_u8(match self {
            Self::Offer => 1,
            Self::Want(_) => 2,
            Self::Data { .. } => 3,
            Self::End { .. } => 4,
            Self::Done { .. } => 5,
        });
        out.put_u32_le(transfer.group.0);
        for number in [transfer.number, transfer.index, transfer.term] {
            out.put_u64_le(number);
        }
        match self {
            Self::Offer => {}
            Self::Want(have) => {
                for (queue, seq) in have {
                    out.put_u64_le(*queue);
                    out.put_u64_le(*seq);
                }
            }
            Self::Data { offset, bytes } => {
                out.put_u64_le(*offset);
                out.put_slice(bytes);
            }
            Self::End { offset, checksum } => {
                out.put_u64_le(*offset);
                out.put_u32_le(*checksum);
            }
            Self::Done { installed } => out.put_u8(u8::from(*installed)),
        }
        let checksum = crc32c::crc32c(&out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        out.freeze()
    }

    /// Whether `bytes` are for a sender, if they are a chunk.
    pub(crate) fn is_answer(bytes: &Bytes) -> bool {
        matches!(bytes.get(5), Some(2 | 5))
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<(Transfer, Self), Refused> {
        let head = bytes.get(..HEAD_BYTES).ok_or(Refused("it is too short"))?;
        let (checksum, rest) = (u32_at(bytes, 0), &bytes[4..]);
        if checksum != crc32c::crc32c(rest) {
            return Err(Refused("its checksum is wrong"));
        }
        if head[4] != VERSION {
            return Err(Refused("another version wrote it"));
        }
        let transfer = Transfer {
            group: GroupId(u32_at(head, 6)),
            number: u64_at(head, 10),
            index: u64_at(head, 18),
            term: u64_at(head, 26),
        };
        let body = bytes.slice(HEAD_BYTES..);
        let chunk = match (head[5], body.len()) {
            (1, 0) => Self::Offer,
            (2, length) if length % 16 == 0 && length / 16 <= HAVE_MAX => {
                let (pairs, _) = body.as_chunks::<16>();
                Self::Want(pairs.iter().map(|pair| (u64_at(pair, 0), u64_at(pair, 8))).collect())
            }
            (3, length) if length > 8 => {
                Self::Data { offset: u64_at(&body, 0), bytes: body.slice(8..) }
            }
            (4, 12) => Self::End { offset: u64_at(&body, 0), checksum: u32_at(&body, 8) },
            (5, 1) if body[0] < 2 => Self::Done { installed: body[0] == 1 },
            (_, _) => {
                return Err(Refused(
                    "its fields contradict each other, although its checksum fits",
                ));
            }
        };
        Ok((transfer, chunk))
    }
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}
