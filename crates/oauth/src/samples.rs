//! Keys, tokens and rules for tests.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SigningKey as _};
use rsa::pkcs1::EncodeRsaPrivateKey as _;
use rsa::pkcs8::EncodePublicKey as _;
use rsa::traits::PublicKeyParts as _;
use rsa::{RsaPrivateKey, rand_core::OsRng};
use serde_json::{Value, json};

use crate::keys::Keys;
use crate::rules::{Rules, algorithms};

pub(crate) const NOW_S: u64 = 1_800_000_000;

/// Rules of a node called `rabbitmq`.
pub(crate) fn rules() -> Rules {
    Rules {
        resource_server_id: "rabbitmq".to_owned(),
        scope_prefix: "rabbitmq.".to_owned(),
        issuer: None,
        checks_audience: true,
        scope_claims: Vec::new(),
        username_claims: Vec::new(),
        algorithms: algorithms("RS256,PS256,ES256,EdDSA").unwrap(),
    }
}

/// Claims of a token that is good for a minute.
pub(crate) fn good() -> Value {
    json!({ "sub": "ann", "aud": "rabbitmq", "exp": NOW_S + 60, "scope": "rabbitmq.read:*/*" })
}

pub(crate) fn set_of(keys: &[Value]) -> Keys {
    Keys::read(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

/// Somebody who signs tokens.
pub(crate) enum Signer {
    Rsa(&'static RsaPrivateKey),
    Ec(&'static KeyPair),
    Ed(&'static KeyPair),
}

/// Made once: the search for primes takes seconds.
fn rsa_key(place: &'static OnceLock<RsaPrivateKey>) -> Signer {
    Signer::Rsa(place.get_or_init(|| RsaPrivateKey::new(&mut OsRng, 2048).unwrap()))
}

impl Signer {
    pub(crate) fn rsa() -> Self {
        static KEY: OnceLock<RsaPrivateKey> = OnceLock::new();
        rsa_key(&KEY)
    }

    /// Another one.
    pub(crate) fn rsa_other() -> Self {
        static KEY: OnceLock<RsaPrivateKey> = OnceLock::new();
        rsa_key(&KEY)
    }

    pub(crate) fn ec() -> Self {
        static KEY: OnceLock<KeyPair> = OnceLock::new();
        let made = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        Self::Ec(KEY.get_or_init(made))
    }

    pub(crate) fn ed() -> Self {
        static KEY: OnceLock<KeyPair> = OnceLock::new();
        Self::Ed(KEY.get_or_init(|| KeyPair::generate_for(&PKCS_ED25519).unwrap()))
    }

    /// Its public key, in a set of keys.
    pub(crate) fn jwk(&self, id: &str) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Rsa(key) => {
                let (n, e) = (key.n().to_bytes_be(), key.e().to_bytes_be());
                json!({ "kty": "RSA", "use": "sig", "kid": id, "n": text(&n), "e": text(&e) })
            }
            Self::Ec(key) => {
                let (x, y) = key.public_key_raw()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": text(x), "y": text(y) })
            }
            Self::Ed(key) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": text(key.public_key_raw()) })
            }
        }
    }

    /// Signs claims, and names the key so in the header.
    pub(crate) fn sign(&self, id: Option<&str>, claims: &Value) -> String {
        let algorithm = match self {
            Self::Rsa(_) => Algorithm::RS256,
            Self::Ec(_) => Algorithm::ES256,
            Self::Ed(_) => Algorithm::EdDSA,
        };
        let mut header = Header::new(algorithm);
        header.kid = id.map(str::to_owned);
        match self {
            Self::Rsa(key) => {
                let der = key.to_pkcs1_der().unwrap();
                let key = EncodingKey::from_rsa_der(der.as_bytes());
                jsonwebtoken::encode(&header, claims, &key).unwrap()
            }
            Self::Ec(key) => {
                let key = EncodingKey::from_ec_der(&key.serialize_der());
                jsonwebtoken::encode(&header, claims, &key).unwrap()
            }
            Self::Ed(key) => {
                let header = json!({ "alg": "EdDSA", "kid": id.unwrap_or_default() });
                let header = if id.is_some() { header } else { json!({ "alg": "EdDSA" }) };
                let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
                let signed = format!("{}.{}", part(&header), part(claims));
                let signature = key.sign(signed.as_bytes()).unwrap();
                format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
            }
        }
    }

    /// The public key of an RSA signer.
    pub(crate) fn public_der(&self) -> Vec<u8> {
        let Self::Rsa(key) = self else { panic!("it has no RSA key") };
        key.to_public_key().to_public_key_der().unwrap().as_bytes().to_vec()
    }

    /// The same as it stands in files.
    pub(crate) fn public_pem(&self) -> String {
        let text = STANDARD.encode(self.public_der());
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
    }
}
