//! Password hashes: made with argon2id, checked also as RabbitMQ stores them.
//!
//! Pure: the salt is passed in. Both cost milliseconds and memory by design, so they belong to a
//! thread of their own and to a bounded number of them.

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256, Sha512};

use crate::limits::{
    PASSWORD_BYTES_MAX, PASSWORD_HASH_BYTES_MAX, PASSWORD_MEMORY_KIB_MAX, PASSWORD_PASSES_MAX,
};

/// What a new hash costs: 19 MiB, two passes, one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

const SALT_BYTES: usize = 4;

/// An argon2id hash in the usual notation (`$argon2id$v=19$…`). The salt must be chance.
pub fn hash(password: &str, salt: [u8; 16]) -> String {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).expect("the parameters are in range");
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let salt = SaltString::encode_b64(&salt).expect("sixteen bytes are a salt");
    let hash = argon.hash_password(password.as_bytes(), &salt);
    hash.expect("a password of under 4 GiB can be hashed").to_string()
}

/// Whether the password is the one that was hashed: an argon2id hash, or base64 of a salt of four
/// bytes and SHA-256 or SHA-512 over salt and password. False for anything else, for an empty hash,
/// and for a hash that asks for more work than the limits allow.
pub fn verify(stored: &str, password: &str) -> bool {
    if stored.len() > PASSWORD_HASH_BYTES_MAX || password.len() > PASSWORD_BYTES_MAX {
        return false;
    }
    match stored.strip_prefix('$') {
        Some(_) => verify_argon(stored, password),
        None => verify_salted(stored, password),
    }
}

fn verify_argon(stored: &str, password: &str) -> bool {
    let Ok(hash) = PasswordHash::new(stored) else { return false };
    let Ok(params) = Params::try_from(&hash) else { return false };
    hash.algorithm == Algorithm::Argon2id.ident()
        && params.m_cost() <= PASSWORD_MEMORY_KIB_MAX
        && params.t_cost() <= PASSWORD_PASSES_MAX
        && Argon2::default().verify_password(password.as_bytes(), &hash).is_ok()
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
    fn a_password_above_the_limit_is_wrong() {
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        assert!(!verify(&hash(&long, [7; 16]), &long));
        assert!(verify(&hash(&long[1..], [7; 16]), &long[1..]));
    }
}
