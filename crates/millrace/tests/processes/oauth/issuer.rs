//! Somebody who signs tokens, and tokens that nobody has signed.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::KeyPair;
use serde_json::{Value, json};

/// An identity server's key.
pub(crate) struct Issuer {
    id: &'static str,
    key: KeyPair,
}

impl Issuer {
    pub(crate) fn new(id: &'static str) -> Self {
        Self { id, key: KeyPair::generate().unwrap() }
    }

    /// Its public key, as a set has it.
    pub(crate) fn jwk(&self) -> Value {
        let (x, y) = self.key.public_key_raw()[1..].split_at(32);
        let [x, y] = [x, y].map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
        json!({ "kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id, "x": x, "y": y })
    }

    /// A set of its key alone.
    pub(crate) fn set(&self) -> String {
        json!({ "keys": [self.jwk()] }).to_string()
    }

    pub(crate) fn public_pem(&self) -> String {
        self.key.public_key_pem()
    }

    /// Signs claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let key = EncodingKey::from_ec_der(&self.key.serialize_der());
        jsonwebtoken::encode(&self.header(Algorithm::ES256), claims, &key).unwrap()
    }

    /// Signs with a shared secret, and says that it was this key.
    pub(crate) fn sign_with_secret(&self, claims: &Value, secret: &[u8]) -> String {
        let key = EncodingKey::from_secret(secret);
        jsonwebtoken::encode(&self.header(Algorithm::HS256), claims, &key).unwrap()
    }

    fn header(&self, algorithm: Algorithm) -> Header {
        let mut header = Header::new(algorithm);
        header.kid = Some(self.id.to_owned());
        header
    }

    /// A token of `user` for this broker, that is good for so many seconds.
    pub(crate) fn token(&self, user: &str, scope: &str, seconds: u64) -> String {
        self.sign(&claims(user, scope, seconds))
    }
}

/// Claims that are good for so many seconds.
pub(crate) fn claims(user: &str, scope: &str, seconds: u64) -> Value {
    json!({ "sub": user, "aud": [super::NAME], "iss": "test", "exp": now_s() + seconds, "scope": scope })
}

/// A token without a signature.
pub(crate) fn unsigned(claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.", part(&json!({ "alg": "none" })), part(claims))
}

/// Since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
