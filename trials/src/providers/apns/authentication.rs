//! Checks provider tokens: the signature, who made it with which key, and when.

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use rcgen::KeyPair;
use serde::Deserialize;

use super::{Shared, lock};

/// The key's id that is right here.
pub const KEY_ID: &str = "KEY1234567";
/// The team's id that is right here.
pub const ISSUER: &str = "TEAM123456";
/// Oldest provider token, in seconds.
const AGE_MAX: u64 = 3600;
/// Shortest time between two provider tokens, in seconds.
const UPDATE_MIN: u64 = 20 * 60;

/// The key pair of a team.
pub struct Keys {
    /// The `.p8` file.
    pub private: String,
    public: DecodingKey,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    iat: u64,
}

/// Why a push is refused.
pub(super) type Refusal = (u16, &'static str);

impl Keys {
    pub(super) fn new() -> Self {
        let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("keys can be made");
        let public = DecodingKey::from_ec_pem(pair.public_key_pem().as_bytes());
        Self { private: pair.serialize_pem(), public: public.expect("it was just made") }
    }

    /// When a provider token was made.
    fn made_at(&self, token: &str) -> Result<u64, Refusal> {
        let wrong = (403, "InvalidProviderToken");
        let mut validation = Validation::new(Algorithm::ES256);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        let decoded = jsonwebtoken::decode::<Claims>(token, &self.public, &validation);
        let decoded = decoded.map_err(|_| wrong)?;
        let is_ours = decoded.header.kid.as_deref() == Some(KEY_ID) && decoded.claims.iss == ISSUER;
        if is_ours { Ok(decoded.claims.iat) } else { Err(wrong) }
    }
}

/// A connection remembers the last token that was good, and until when.
#[derive(Default)]
pub(super) struct Known {
    value: Option<http::HeaderValue>,
    until: u64,
}

impl Known {
    /// Whether a push may come with this header.
    pub(super) fn check(
        &mut self,
        shared: &Shared,
        value: Option<&http::HeaderValue>,
    ) -> Result<(), Refusal> {
        let Some(value) = value else { return Err((403, "MissingProviderToken")) };
        let now = shared.now();
        if self.value.as_ref() == Some(value) && now <= self.until {
            return Ok(());
        }
        let text = value.to_str().ok().and_then(|text| text.strip_prefix("bearer "));
        let token = text.ok_or((403, "InvalidProviderToken"))?;
        let made_at = shared.keys.made_at(token)?;
        if now.saturating_sub(made_at) > AGE_MAX || made_at > now + AGE_MAX {
            return Err((403, "ExpiredProviderToken"));
        }
        update(shared, made_at, token)?;
        self.value = Some(value.clone());
        self.until = made_at + AGE_MAX;
        Ok(())
    }
}

/// Notes a provider token that replaces another.
fn update(shared: &Shared, made_at: u64, token: &str) -> Result<(), Refusal> {
    let mut last = lock(&shared.provider_token);
    if let Some((last_made_at, last_token)) = &*last {
        let is_other = last_token != token;
        let is_soon = made_at > *last_made_at && made_at - last_made_at < UPDATE_MIN;
        if is_other && is_soon && shared.options.counts_updates {
            return Err((429, "TooManyProviderTokenUpdates"));
        }
        if made_at < *last_made_at {
            return Ok(());
        }
    }
    *last = Some((made_at, token.to_owned()));
    Ok(())
}
