//! Signs requests as Standard Webhooks says: `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Shortest key, in bytes. Standard Webhooks asks for 24 to 64.
const KEY_BYTES_MIN: usize = 16;

/// Keys that sign every request: receivers try all signatures.
#[derive(Clone)]
pub struct Signer {
    keys: Vec<Hmac<Sha256>>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Signer({} keys)", self.keys.len())
    }
}

impl Signer {
    /// From `whsec_…` texts.
    ///
    /// # Errors
    /// In words, which one is unusable; its text is not in them.
    pub fn new(secrets: &[String]) -> Result<Self, String> {
        let keys = secrets.iter().enumerate().map(|(at, text)| {
            let place = at + 1;
            let encoded = text
                .strip_prefix("whsec_")
                .ok_or_else(|| format!("secret {place} does not begin with whsec_"))?;
            let key = STANDARD
                .decode(encoded)
                .map_err(|_| format!("secret {place} is not base64 after whsec_"))?;
            if key.len() < KEY_BYTES_MIN {
                return Err(format!("secret {place} has {} bytes: 24 to 64 are right", key.len()));
            }
            Hmac::new_from_slice(&key).map_err(|_| format!("secret {place} is unusable"))
        });
        Ok(Self { keys: keys.collect::<Result<_, _>>()? })
    }

    /// The value of `webhook-signature`; none without a key.
    pub fn sign(&self, id: &str, seconds: u64, body: &[u8]) -> Option<String> {
        let signatures: Vec<String> =
            self.keys.iter().map(|key| one(key.clone(), id, seconds, body)).collect();
        (!signatures.is_empty()).then(|| signatures.join(" "))
    }
}

fn one(mut mac: Hmac<Sha256>, id: &str, seconds: u64, body: &[u8]) -> String {
    mac.update(id.as_bytes());
    mac.update(b".");
    mac.update(seconds.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}
