//! Password hashes: made with argon2id, checked also as RabbitMQ stores them.
//!
//! Pure: the salt is passed in. Both cost milliseconds and memory by design, so they belong to a
//! thread of their own and to a bounded number of them, each with a [`Memory`] that it uses again.

use argon2::password_hash::{PasswordHash, PasswordHasher, SaltString};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machine::limits::PASSWORD_HASH_BYTES_MAX;
use sha2::{Digest, Sha256, Sha512};

use crate::limits::{PASSWORD_BYTES_MAX, PASSWORD_MEMORY_KIB_MAX, PASSWORD_PASSES_MAX};

/// What a new hash costs: 19 MiB, two passes, one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

const SALT_BYTES: usize = 4;

/// Bytes of an argon2id hash at most: what `PasswordHash` can hold.
const OUTPUT_BYTES_MAX: usize = 64;

/// The hash of no password, at the cost of a new one: checked where there is nothing to check, so that both take as long.
pub const DECOY: &str = "$argon2id$v=19$m=19456,t=2,p=1$bWlsbHJhY2UuZGVjb3k$\
                         AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Working memory of checks, 19 MiB for each hash made here. One check after the other uses the same.
#[derive(Default)]
pub struct Memory(Vec<Block>);

impl Memory {
    /// Whether it holds anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Memory({} KiB)", self.0.len())
    }
}

/// An argon2id hash in the usual notation (`$argon2id$v=19$…`). The salt must be chance.
pub fn hash(password: &str, salt: [u8; 16]) -> String {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).expect("the parameters are in range");
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let salt = SaltString::encode_b64(&salt).expect("sixteen bytes are a salt");
    let hash = argon.hash_password(password.as_bytes(), &salt);
    hash.expect("a password of under 4 GiB can be hashed").to_string()
}

/// Whether [`verify`] can find a password right for this hash: it is of a kind that is taken, and not too dear.
pub fn is_taken(stored: &str) -> bool {
    if stored.len() > PASSWORD_HASH_BYTES_MAX {
        return false;
    }
    match stored.strip_prefix('$') {
        Some(_) => PasswordHash::new(stored).is_ok_and(|hash| {
            let is_affordable = Params::try_from(&hash).is_ok_and(|params| {
                params.m_cost() <= PASSWORD_MEMORY_KIB_MAX && params.t_cost() <= PASSWORD_PASSES_MAX
            });
            hash.algorithm == Algorithm::Argon2id.ident() && hash.hash.is_some() && is_affordable
        }),
        None => STANDARD
            .decode(stored)
            .is_ok_and(|bytes| [SALT_BYTES + 32, SALT_BYTES + 64].contains(&bytes.len())),
    }
}

/// Whether the password is the one that was hashed: an argon2id hash, or base64 of a salt of four
/// bytes and SHA-256 or SHA-512 over salt and password. False for anything else, for an empty hash,
/// and for a hash that asks for more work than the limits allow.
pub fn verify(stored: &str, password: &str) -> bool {
    verify_with(&mut Memory::default(), stored, password)
}

/// As [`verify`], in memory that the next check uses again.
pub fn verify_with(memory: &mut Memory, stored: &str, password: &str) -> bool {
    if stored.len() > PASSWORD_HASH_BYTES_MAX || password.len() > PASSWORD_BYTES_MAX {
        return false;
    }
    match stored.strip_prefix('$') {
        Some(_) => verify_argon(memory, stored, password).unwrap_or(false),
        None => verify_salted(stored, password),
    }
}

/// None: the hash is none that is taken.
fn verify_argon(memory: &mut Memory, stored: &str, password: &str) -> Option<bool> {
    let hash = PasswordHash::new(stored).ok()?;
    let params = Params::try_from(&hash).ok()?;
    let is_taken = hash.algorithm == Algorithm::Argon2id.ident()
        && params.m_cost() <= PASSWORD_MEMORY_KIB_MAX
        && params.t_cost() <= PASSWORD_PASSES_MAX;
    let version = hash.version.map_or(Ok(Version::V0x13), Version::try_from).ok()?;
    let expected = hash.hash?;
    let mut salt = [0; 64];
    let salt = hash.salt?.decode_b64(&mut salt).ok()?;
    let mut found = [0; OUTPUT_BYTES_MAX];
    let found = found.get_mut(..expected.len())?;
    if !is_taken {
        return None;
    }
    let blocks = params.block_count();
    if memory.0.len() < blocks {
        memory.0.resize(blocks, Block::default());
    }
    Argon2::new(Algorithm::Argon2id, version, params)
        .hash_password_into_with_memory(password.as_bytes(), salt, found, &mut memory.0)
        .ok()?;
    Some(is_equal(expected.as_bytes(), found))
}

fn verify_salted(stored: &str, password: &str) -> bool {
    let Ok(bytes) = STANDARD.decode(stored) else { return false };
    let Some((salt, hash)) = bytes.split_at_checked(SALT_BYTES) else { return false };
    match hash.len() {
        32 => is_equal(hash, &Sha256::new().chain_update(salt).chain_update(password).finalize()),
        64 => is_equal(hash, &Sha512::new().chain_update(salt).chain_update(password).finalize()),
        _ => false,
    }
}

/// Takes as long whatever differs.
fn is_equal(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && one.iter().zip(two).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_right_password_verifies() {
        let stored = hash("s3cret", *b"0123456789abcdef");
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(verify(&stored, "s3cret"));
        assert!(!verify(&stored, "s3cret "));
        assert!(!verify(&stored, ""));
    }

    #[test]
    fn hashes_as_rabbitmq_stores_them_verify() {
        // From RabbitMQ's documentation: password test12, salt 90 8D C6 0A.
        assert!(verify("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "test12"));
        assert!(!verify("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "test13"));
        let salted = [&[1u8, 2, 3, 4][..], &Sha512::digest(b"\x01\x02\x03\x04pw")].concat();
        assert!(verify(&STANDARD.encode(salted), "pw"));
    }

    #[test]
    fn nothing_verifies_against_an_empty_or_broken_hash() {
        for stored in
            ["", "$", "$argon2id$", "$argon2i$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAA", "AAAA", "%"]
        {
            assert!(!verify(stored, ""), "{stored}");
            assert!(!verify(stored, "guest"), "{stored}");
        }
    }

    #[test]
    fn a_hash_that_asks_for_too_much_memory_or_time_is_not_tried() {
        let stored = hash("x", [7; 16]);
        assert!(!verify(&stored.replace("m=19456", "m=4194304"), "x"));
        assert!(!verify(&stored.replace("t=2", "t=4000000"), "x"));
    }

    #[test]
    fn memory_may_be_used_again_whatever_was_checked_in_it() {
        let stored = hash("s3cret", *b"0123456789abcdef");
        let mut memory = Memory::default();
        assert!(verify_with(&mut memory, &stored, "s3cret"));
        let held = memory.0.len();
        assert!(!verify_with(&mut memory, &stored, "wrong"));
        assert!(verify_with(&mut memory, &stored, "s3cret"));
        assert!(!verify_with(&mut memory, DECOY, "s3cret"));
        assert!(verify_with(&mut memory, &hash("other", [9; 16]), "other"));
        assert_eq!((held, memory.0.len()), (19 * 1024, 19 * 1024));
    }

    #[test]
    fn the_decoy_is_as_dear_as_a_hash_and_nobodys() {
        let hash = PasswordHash::new(DECOY).unwrap();
        let params = Params::try_from(&hash).unwrap();
        assert_eq!(
            (params.m_cost(), params.t_cost(), params.p_cost()),
            (MEMORY_KIB, PASSES, LANES)
        );
        assert!(!verify(DECOY, "") && !verify(DECOY, "nobody"));
    }

    #[test]
    fn guest_of_a_new_catalog_has_the_password_that_everybody_knows() {
        let catalog = machine::Catalog::new(1);
        let guest = catalog.user("guest").expect("a new catalog has one");
        assert!(verify(&guest.password_hash, "guest"));
        assert!(!verify(&guest.password_hash, ""));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_stored_hash_makes_a_check_panic(stored in ".{0,60}", password in ".{0,20}") {
            prop_assert!(!verify(&stored, &password));
        }
    }

    #[test]
    fn a_password_above_the_limit_is_wrong() {
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        assert!(!verify(&hash(&long, [7; 16]), &long));
        assert!(verify(&hash(&long[1..], [7; 16]), &long[1..]));
    }
}
