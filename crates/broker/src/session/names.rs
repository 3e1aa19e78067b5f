//! Names that the server makes up: unguessable, because whoever knows a reply address may write to it.
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
}
