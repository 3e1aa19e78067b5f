//! What a message may say of itself that its queues act on.

use crate::encoding::{Corrupt, Reader, put_u64};

const TTL: u8 = 1;
const DELAY: u8 = 2;
const KEY: u8 = 4;

/// Optional parts of an enqueue command. Times are relative: they count from the entry's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// How long the message may wait in a queue, ms. A queue's own limit counts too if it is shorter.
    pub ttl_ms: Option<u64>,
    /// How long the message waits before it may be delivered, ms.
    pub delay_ms: Option<u64>,
    /// By which a queue with a window tells a second message from a first, and by which a delayed
    /// message is cancelled. Its publisher hashed it.
    pub key: Option<u128>,
}

impl Attributes {
    /// Without any, a message costs a queue nothing but its place.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.ttl_ms.is_none() && self.delay_ms.is_none() && self.key.is_none()
    }

    fn mask(&self) -> u8 {
        let mut mask = 0;
        for (is_set, bit) in [
            (self.ttl_ms.is_some(), TTL),
            (self.delay_ms.is_some(), DELAY),
            (self.key.is_some(), KEY),
        ] {
            if is_set {
                mask |= bit;
            }
        }
        mask
    }

    pub(super) fn bytes(&self) -> usize {
        let times = usize::from(self.ttl_ms.is_some()) + usize::from(self.delay_ms.is_some());
        1 + 8 * times + if self.key.is_some() { 16 } else { 0 }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.mask());
        [self.ttl_ms, self.delay_ms].into_iter().flatten().for_each(|ms| put_u64(out, ms));
        if let Some(key) = self.key {
            out.extend_from_slice(&key.to_le_bytes());
        }
    }

    /// What the mask, which was read, announces.
    pub(super) fn read(mask: u8, reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        if mask & !(TTL | DELAY | KEY) != 0 {
            return Err(Corrupt::newer("message attributes"));
        }
        let mut time = |bit| if mask & bit != 0 { reader.u64().map(Some) } else { Ok(None) };
        let (ttl_ms, delay_ms) = (time(TTL)?, time(DELAY)?);
        let key = if mask & KEY != 0 { Some(reader.u128()?) } else { None };
        Ok(Self { ttl_ms, delay_ms, key })
    }
}
