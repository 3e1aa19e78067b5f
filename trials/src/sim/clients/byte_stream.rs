//! One direction of a simulated connection: bytes arrive in the order in which they were sent, in pieces, some time later.

use std::collections::VecDeque;

use bytes::BytesMut;

use crate::sim::agenda::Micros;
use crate::workload::Chance;

/// A piece takes from and to so long. Few take longer.
const TAKES: (Micros, Micros) = (20, 1_500);
const SLOW: (Micros, Micros) = (1_500, 40_000);
const SLOW_PERCENT: u64 = 3;
/// What is sent at once comes in so many pieces, at most.
const PIECES: u64 = 4;

#[derive(Debug, Default)]
pub(super) struct ByteStream {
    pieces: VecDeque<Piece>,
    count: usize,
}

#[derive(Debug)]
struct Piece {
    sent: Micros,
    arrives: Micros,
    bytes: BytesMut,
}

impl ByteStream {
    pub(super) fn send(&mut self, mut bytes: BytesMut, now: Micros, chance: &mut Chance) {
        self.count += bytes.len();
        for nth in 1..=PIECES {
            if bytes.is_empty() {
                return;
            }
            let is_whole = nth == PIECES || chance.percent(60);
            let length = match is_whole {
                true => bytes.len(),
                false => chance.within(1, bytes.len() as u64 + 1) as usize,
            };
            let (from, to) = if chance.percent(SLOW_PERCENT) { SLOW } else { TAKES };
            let before = self.pieces.back().map_or(now, |last| last.arrives.max(now));
            let arrives = before + chance.within(from, to);
            self.pieces.push_back(Piece { sent: now, arrives, bytes: bytes.split_to(length) });
        }
    }

    /// When the first piece arrives.
    pub(super) fn due(&self) -> Option<Micros> {
        self.pieces.front().map(|piece| piece.arrives)
    }

    /// When the first piece was sent.
    pub(super) fn oldest(&self) -> Option<Micros> {
        self.pieces.front().map(|piece| piece.sent)
    }

    /// Bytes that were sent and not taken.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// What has arrived by `now`, at most so many bytes. False: nothing has.
    pub(super) fn take(&mut self, now: Micros, max: usize, into: &mut BytesMut) -> bool {
        let mut left = max;
        while left > 0
            && let Some(piece) = self.pieces.front_mut().filter(|piece| piece.arrives <= now)
        {
            let count = piece.bytes.len().min(left);
            into.extend_from_slice(&piece.bytes.split_to(count));
            if piece.bytes.is_empty() {
                self.pieces.pop_front();
            }
            self.count -= count;
            left -= count;
        }
        left < max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_come_in_their_order_and_not_before_their_time() {
        let mut chance = Chance::new(1);
        let mut stream = ByteStream::default();
        let (mut sent, mut come, mut now) = (Vec::new(), BytesMut::new(), 0);
        for nth in 0..100_u8 {
            sent.extend_from_slice(&[nth; 7]);
            stream.send(BytesMut::from(&[nth; 7][..]), now, &mut chance);
            let before = come.len();
            let due = stream.due().expect("it holds what was sent");
            assert!(
                due <= now || !stream.take(due - 1, usize::MAX, &mut come),
                "nothing comes before its time"
            );
            now += 300;
            stream.take(now, 5, &mut come);
            assert!(come.len() <= before + 5, "no more is taken than was asked for");
        }
        assert!(come.len() < sent.len() && stream.count() == sent.len() - come.len());
        stream.take(Micros::MAX, usize::MAX, &mut come);
        assert_eq!((&come[..], stream.count(), stream.oldest()), (&sent[..], 0, None));
    }
}
