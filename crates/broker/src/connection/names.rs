//! Names that the server makes up, and chance. Names are unguessable, because whoever knows a reply address may write to it.
//!
//! A session gets 32 bytes of chance when it is made and draws from them; it never asks for more.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// Draws names for one session.
#[derive(Debug)]
pub(crate) struct Names {
    seed: [u8; 32],
    drawn: u64,
}

impl Names {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { seed, drawn: 0 }
    }

    /// `prefix` and 22 characters that nobody else has.
    pub(crate) fn draw(&mut self, prefix: &str) -> String {
        self.drawn += 1;
        let digest =
            Sha256::new().chain_update(self.seed).chain_update(self.drawn.to_le_bytes()).finalize();
        let mut name = prefix.to_owned();
        URL_SAFE_NO_PAD.encode_string(&digest[..16], &mut name);
        name
    }
}

/// Numbers for what is left to chance: drawn fast, and of no use for guessing names.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let digest = Sha256::new().chain_update(seed).chain_update(b"chance").finalize();
        let mut half = [0; 8];
        half.copy_from_slice(&digest[..8]);
        Self(u64::from_le_bytes(half))
    }

    /// The next number: SplitMix64.
    #[inline]
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_name_has_22_characters_and_comes_once() {
        let mut names = Names::new([7; 32]);
        let (one, two) = (names.draw("amq.gen-"), names.draw("amq.gen-"));
        assert_eq!(one.len(), "amq.gen-".len() + 22);
        assert_ne!(one, two);
        assert_ne!(one, Names::new([8; 32]).draw("amq.gen-"));
    }

    #[test]
    fn chance_comes_from_the_seed_and_falls_on_all_of_a_few() {
        let draws = |seed| {
            let mut chance = Chance::new([seed; 32]);
            (0..100).map(|_| chance.draw() % 4).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        assert!((0..4).all(|one| draws(7).iter().filter(|draw| **draw == one).count() > 10));
    }
}
