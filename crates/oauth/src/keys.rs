//! The public keys of those who may sign tokens: a set of keys in JSON (RFC 7517).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::{Map, Value};

use crate::limits::{KEY_SET_BYTES_MAX, KEYS_MAX, RSA_BITS_MAX, RSA_BITS_MIN};
use crate::rules;

/// A set of public keys.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<Key>);

/// A key, and what it may have signed.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    pub(crate) key: DecodingKey,
}

/// The algorithms of RSA keys.
const OF_RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

impl Keys {
    /// Reads a set. Keys that cannot check the signature of a token are left out: they are for something else.
    ///
    /// # Errors
    /// In words: it is no set, it is too large, or none of its keys is of use.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        if text.len() > KEY_SET_BYTES_MAX {
            return Err(format!("it has more than {KEY_SET_BYTES_MAX} bytes"));
        }
        let set: Value = serde_json::from_slice(text)
            .map_err(|error| format!("it is no set of keys in JSON (JWKS): {error}"))?;
        let Some(Value::Array(all)) = set.get("keys") else {
            return Err("it is no set of keys in JSON (JWKS): it has no list `keys`".to_owned());
        };
        if all.len() > KEYS_MAX {
            return Err(format!("it has {} keys, and at most {KEYS_MAX} are taken", all.len()));
        }
        let mut keys = Vec::new();
        let mut why_not = None;
        for key in all.iter().filter_map(Value::as_object) {
            match Key::read(key) {
                Ok(key) => keys.push(key),
                Err(why) => why_not = Some(why),
            }
        }
        if keys.is_empty() {
            let why = why_not.map_or(String::new(), |why| format!(" ({why})"));
            return Err(format!("it has no key that can check signatures{why}"));
        }
        Ok(Self(keys))
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The key of a token whose header names it so, or names none, and this algorithm.
    pub(crate) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Found<'_> {
        let mut named =
            self.0.iter().filter(|key| id.is_none() || key.id.as_deref() == id).peekable();
        if named.peek().is_none() {
            return Found::Unknown;
        }
        let mut fitting = named.filter(|key| key.algorithms.contains(&algorithm));
        match (fitting.next(), fitting.next()) {
            (None, _) => Found::OtherAlgorithm,
            // Nothing says which of them it is.
            (Some(_), Some(_)) if id.is_none() => Found::Unknown,
            (Some(key), _) => Found::Key(key),
        }
    }
}

/// What is found for a token.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    Key(&'a Key),
    Unknown,
    /// Its key is for other algorithms.
    OtherAlgorithm,
}

impl Key {
    fn read(key: &Map<String, Value>) -> Result<Self, &'static str> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return Err("a key is for encryption");
        }
        let verifies = |operations: &Vec<Value>| operations.iter().any(|it| it == "verify");
        if key
            .get("key_ops")
            .and_then(Value::as_array)
            .is_some_and(|operations| !verifies(operations))
        {
            return Err("a key is not for verifying");
        }
        let number = |name: &str| text(name).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        let (fitting, decoding) = match (text("kty"), text("crv")) {
            (Some("RSA"), _) => {
                let broken = "an RSA key has no n and e in base64";
                let (n, e) = (number("n").ok_or(broken)?, number("e").ok_or(broken)?);
                check_rsa(&n)?;
                (OF_RSA.to_vec(), DecodingKey::from_rsa_raw_components(&n, &e))
            }
            (Some("EC"), Some(curve)) => {
                let (algorithm, bytes) = match curve {
                    "P-256" => (Algorithm::ES256, 32),
                    "P-384" => (Algorithm::ES384, 48),
                    _ => return Err("a key is on a curve other than P-256 and P-384"),
                };
                let broken = "a key on a curve has no x and y of its curve's length in base64";
                let (x, y) = (number("x").ok_or(broken)?, number("y").ok_or(broken)?);
                if x.len() != bytes || y.len() != bytes {
                    return Err(broken);
                }
                let point = [&[4_u8][..], &x, &y].concat();
                (vec![algorithm], DecodingKey::from_ec_der(&point))
            }
            (Some("OKP"), Some("Ed25519")) => {
                let broken = "an Ed25519 key has no x of 32 bytes in base64";
                let x = number("x").filter(|x| x.len() == 32).ok_or(broken)?;
                (vec![Algorithm::EdDSA], DecodingKey::from_ed_der(&x))
            }
            // A shared secret has no place in a set that servers show to everybody.
            (Some("oct"), _) => return Err("a key is a shared secret"),
            (Some(_) | None, _) => return Err("a key is of an unknown type"),
        };
        let algorithms = match text("alg") {
            None => fitting,
            Some(name) => match rules::algorithm(name).filter(|own| fitting.contains(own)) {
                Some(own) => vec![own],
                None => return Err("a key is for an algorithm that is not its type's"),
            },
        };
        Ok(Self { id: text("kid").map(str::to_owned), algorithms, key: decoding })
    }
}

fn check_rsa(modulus: &[u8]) -> Result<(), &'static str> {
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let bytes = &modulus[zeros..];
    let leading = bytes.first().map_or(0, |first| first.leading_zeros() as usize);
    let bits = bytes.len() * 8 - leading;
    match bits {
        RSA_BITS_MIN..=RSA_BITS_MAX => Ok(()),
        _ => Err("an RSA key has fewer than 2,048 or more than 4,096 bits"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::{Signer, set_of};

    fn refused(set: &Value) -> String {
        Keys::read(set.to_string().as_bytes()).unwrap_err()
    }

    #[test]
    fn keys_of_three_types_are_read_and_others_are_left_out() {
        let [rsa, ec, ed] = [Signer::rsa(), Signer::ec(), Signer::ed()];
        let others = [
            json!({ "kty": "oct", "k": "c2VjcmV0", "kid": "x" }),
            json!({ "kty": "RSA", "use": "enc", "n": rsa.jwk("x")["n"], "e": "AQAB" }),
            json!({ "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" }),
            json!({ "kty": "new" }),
            json!("no key"),
        ];
        let own = [rsa.jwk("one"), ec.jwk("two"), ed.jwk("three")];
        let all = [&own[..], &others[..]].concat();
        let set = json!({ "keys": all });
        let keys = Keys::read(set.to_string().as_bytes()).unwrap();
        assert_eq!(keys.count(), 3);
        let found = |id, algorithm| matches!(keys.find(Some(id), algorithm), Found::Key(_));
        assert!(found("one", Algorithm::RS256) && found("one", Algorithm::PS512));
        assert!(found("two", Algorithm::ES256) && found("three", Algorithm::EdDSA));
        assert!(!found("one", Algorithm::ES256) && !found("two", Algorithm::ES384));
        assert!(!found("one", Algorithm::HS256), "no key is a shared secret");
        assert!(!found("x", Algorithm::HS256) && !found("four", Algorithm::RS256));
    }

    #[test]
    fn a_key_that_names_its_algorithm_is_for_no_other() {
        let mut jwk = Signer::rsa().jwk("one");
        jwk["alg"] = json!("RS512");
        let keys = set_of(&[jwk.clone()]);
        assert!(matches!(keys.find(Some("one"), Algorithm::RS512), Found::Key(_)));
        assert!(matches!(keys.find(Some("one"), Algorithm::RS256), Found::OtherAlgorithm));
        for odd in ["HS256", "none", "ES256", "RSA-OAEP"] {
            jwk["alg"] = json!(odd);
            assert!(refused(&json!({ "keys": [&jwk] })).contains("not its type's"), "{odd}");
        }
    }

    #[test]
    fn a_token_that_names_no_key_is_held_against_the_only_one_that_fits() {
        let [rsa, other, ec] =
            [Signer::rsa().jwk("one"), Signer::rsa().jwk("two"), Signer::ec().jwk("three")];
        let keys = set_of(&[rsa.clone(), ec]);
        assert!(matches!(keys.find(None, Algorithm::RS256), Found::Key(_)));
        assert!(matches!(keys.find(None, Algorithm::ES256), Found::Key(_)));
        assert!(matches!(keys.find(None, Algorithm::EdDSA), Found::OtherAlgorithm));
        let keys = set_of(&[rsa, other]);
        assert!(matches!(keys.find(None, Algorithm::RS256), Found::Unknown));
        assert!(matches!(Keys::default().find(None, Algorithm::RS256), Found::Unknown));
    }

    #[test]
    fn what_is_no_set_is_refused_in_words() {
        assert!(Keys::read(b"<html>").unwrap_err().contains("no set of keys in JSON"));
        assert!(refused(&json!({ "issuer": "x" })).contains("no list `keys`"));
        assert!(refused(&json!({ "keys": [] })).contains("no key that can check"));
        let short = json!({ "kty": "RSA", "n": URL_SAFE_NO_PAD.encode([0xff; 128]), "e": "AQAB" });
        assert!(refused(&json!({ "keys": [short] })).contains("fewer than 2,048"));
        let many = vec![Signer::ec().jwk("one"); KEYS_MAX + 1];
        assert!(refused(&json!({ "keys": many })).contains("at most 64"));
        let large = format!("{{\"x\":\"{}\"}}", "y".repeat(KEY_SET_BYTES_MAX));
        assert!(Keys::read(large.as_bytes()).unwrap_err().contains("bytes"));
        assert!(Keys::read("[".repeat(100_000).as_bytes()).is_err());
    }
}
