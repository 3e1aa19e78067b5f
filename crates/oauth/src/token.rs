//! Judges a token: its header, whether one of the keys has signed it, and then its claims.
//!
//! The header is believed in nothing. It only says which of the keys and of the allowed algorithms are tried, and a key
//! is tried with an algorithm of its own type only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Validation;
use jsonwebtoken::errors::ErrorKind;
use serde_json::{Map, Value};

use crate::claims::{self, Claims};
use crate::grant::Grant;
use crate::keys::{Found, Keys};
use crate::limits::TOKEN_BYTES_MAX;
use crate::refusal::Refusal;
use crate::rules::{self, Rules};

/// Judges a token at this time, in seconds since 1970.
///
/// # Errors
/// Why it gives nothing. [`Refusal::UnknownKey`] may be another with newer keys.
pub fn judge(token: &[u8], keys: &Keys, rules: &Rules, now_s: u64) -> Result<Grant, Refusal> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Refusal::TooLong);
    }
    let header = header(token).ok_or(Refusal::Unreadable)?;
    if header.contains_key("crit") {
        return Err(Refusal::Critical);
    }
    let name = header.get("alg").and_then(Value::as_str).ok_or(Refusal::Unreadable)?;
    let allowed = rules::algorithm(name).filter(|known| rules.algorithms.contains(known));
    let algorithm = allowed.ok_or(Refusal::Algorithm)?;
    let id = match header.get("kid") {
        None => None,
        Some(id) => Some(id.as_str().ok_or(Refusal::Unreadable)?),
    };
    let key = match keys.find(id, algorithm) {
        Found::Key(key) => key,
        Found::Unknown => return Err(Refusal::UnknownKey),
        Found::OtherAlgorithm => return Err(Refusal::Algorithm),
    };
    // Claims are judged by ourselves, at the time that we are told.
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims = Default::default();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let decoded = jsonwebtoken::decode::<Claims>(token, &key.key, &validation);
    let decoded = decoded.map_err(|error| match error.kind() {
        ErrorKind::InvalidSignature => Refusal::Signature,
        ErrorKind::InvalidAlgorithm => Refusal::Algorithm,
        _ => Refusal::Unreadable,
    })?;
    claims::grant(&decoded.claims, rules, now_s)
}

/// Whether a password is meant as a token: three parts with dots between, of which the first is a header. Nobody's
/// password looks so by chance.
pub fn looks_like_token(password: &[u8]) -> bool {
    header(password).is_some_and(|header| header.contains_key("alg"))
}

/// The header of a token. None: it is none.
fn header(token: &[u8]) -> Option<Map<String, Value>> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let mut parts = token.split(|byte| *byte == b'.');
    let (first, _, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(first).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::{NOW_S, Signer, good, rules, set_of};

    fn judged(token: &str, keys: &Keys) -> Result<Grant, Refusal> {
        judge(token.as_bytes(), keys, &rules(), NOW_S)
    }

    /// A token of these parts, with a signature as it comes.
    fn made(header: &Value, claims: &Value, signature: &[u8]) -> String {
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (header, claims) = (header.to_string(), claims.to_string());
        format!("{}.{}.{}", part(header.as_bytes()), part(claims.as_bytes()), part(signature))
    }

    #[test]
    fn a_token_that_a_key_has_signed_gives_what_its_scopes_say() {
        for signer in [Signer::rsa(), Signer::ec(), Signer::ed()] {
            let keys = set_of(&[signer.jwk("one")]);
            let grant = judged(&signer.sign(Some("one"), &good()), &keys).unwrap();
            assert_eq!(grant.user, "ann");
            assert!(grant.enters("/"));
            judged(&signer.sign(None, &good()), &keys).unwrap();
        }
    }

    #[test]
    fn what_another_key_has_signed_or_somebody_has_changed_is_refused() {
        let (own, other) = (Signer::rsa(), Signer::rsa_other());
        let keys = set_of(&[own.jwk("one")]);
        assert_eq!(judged(&other.sign(Some("one"), &good()), &keys), Err(Refusal::Signature));
        assert_eq!(judged(&own.sign(Some("two"), &good()), &keys), Err(Refusal::UnknownKey));
        let token = own.sign(Some("one"), &good());
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (head, _) = signed.split_once('.').unwrap();
        let mut more = good();
        more["scope"] = json!("rabbitmq.tag:administrator");
        let more = URL_SAFE_NO_PAD.encode(more.to_string());
        assert_eq!(judged(&format!("{head}.{more}.{signature}"), &keys), Err(Refusal::Signature));
        assert_eq!(judged(&format!("{signed}."), &keys), Err(Refusal::Signature));
        // A whole number of bytes, whatever the last ones are.
        let cut = &signature[..340];
        assert_eq!(judged(&format!("{signed}.{cut}"), &keys), Err(Refusal::Signature));
    }

    #[test]
    fn a_token_without_a_signature_is_refused_however_it_is_called() {
        let keys = set_of(&[Signer::rsa().jwk("one")]);
        for name in ["none", "None", "NONE", "", "RS1", "ES256K"] {
            let token = made(&json!({ "alg": name, "kid": "one" }), &good(), b"");
            assert_eq!(judged(&token, &keys), Err(Refusal::Algorithm), "{name}");
        }
        let token = made(&json!({ "alg": "RS256", "kid": "one" }), &good(), b"");
        assert_eq!(judged(&token, &keys), Err(Refusal::Signature));
    }

    /// The public key is known to everybody: as a shared secret it would sign for everybody.
    #[test]
    fn a_public_key_is_never_a_shared_secret() {
        let signer = Signer::rsa();
        let jwk = signer.jwk("one");
        let keys = set_of(std::slice::from_ref(&jwk));
        let modulus = URL_SAFE_NO_PAD.decode(jwk["n"].as_str().unwrap()).unwrap();
        let secrets = [
            signer.public_pem().into_bytes(),
            signer.public_der(),
            modulus,
            jwk.to_string().into_bytes(),
        ];
        for secret in secrets {
            for algorithm in [
                jsonwebtoken::Algorithm::HS256,
                jsonwebtoken::Algorithm::HS384,
                jsonwebtoken::Algorithm::HS512,
            ] {
                let mut header = jsonwebtoken::Header::new(algorithm);
                header.kid = Some("one".to_owned());
                let key = jsonwebtoken::EncodingKey::from_secret(&secret);
                let token = jsonwebtoken::encode(&header, &good(), &key).unwrap();
                assert_eq!(judged(&token, &keys), Err(Refusal::Algorithm));
                // Also where an operator could have allowed it, which settings refuse.
                let careless = Rules { algorithms: vec![algorithm], ..rules() };
                let found = judge(token.as_bytes(), &keys, &careless, NOW_S);
                assert_eq!(found, Err(Refusal::Algorithm));
            }
        }
    }

    #[test]
    fn an_algorithm_must_be_allowed_and_fit_the_key() {
        let signer = Signer::ec();
        let keys = set_of(&[signer.jwk("one")]);
        let token = signer.sign(Some("one"), &good());
        let rsa_only = Rules { algorithms: rules::algorithms("RS256").unwrap(), ..rules() };
        let found = judge(token.as_bytes(), &keys, &rsa_only, NOW_S);
        assert_eq!(found, Err(Refusal::Algorithm));
        let token = made(&json!({ "alg": "RS256", "kid": "one" }), &good(), &[1; 64]);
        assert_eq!(judged(&token, &keys), Err(Refusal::Algorithm));
    }

    #[test]
    fn the_claims_of_a_token_are_judged_at_the_time_that_is_told() {
        let signer = Signer::ec();
        let keys = set_of(&[signer.jwk("one")]);
        let token = signer.sign(Some("one"), &good());
        let at = |now_s| judge(token.as_bytes(), &keys, &rules(), now_s).map(drop);
        assert_eq!((at(NOW_S), at(NOW_S + 59)), (Ok(()), Ok(())));
        assert_eq!((at(NOW_S + 60), at(u64::MAX)), (Err(Refusal::Expired), Err(Refusal::Expired)));
    }

    #[test]
    fn what_is_no_token_is_refused_and_what_looks_like_none_is_a_password() {
        let keys = set_of(&[Signer::ec().jwk("one")]);
        for text in ["", ".", "..", "a.b.c", "secret", "e30.e30", "e30.e30.e30.e30", "bnVsbA.e30.x"]
        {
            assert_eq!(judged(text, &keys), Err(Refusal::Unreadable), "{text}");
            assert!(!looks_like_token(text.as_bytes()), "{text}");
        }
        let claims = |header: Value| made(&header, &json!("no object"), b"x");
        assert_eq!(judged(&claims(json!({})), &keys), Err(Refusal::Unreadable));
        let odd = json!({ "alg": "ES256", "kid": 7 });
        assert_eq!(judged(&claims(odd), &keys), Err(Refusal::Unreadable));
        let critical = json!({ "alg": "ES256", "kid": "one", "crit": ["b64"], "b64": false });
        assert_eq!(judged(&claims(critical), &keys), Err(Refusal::Critical));
        let token = Signer::ec().sign(Some("one"), &good());
        assert!(looks_like_token(token.as_bytes()));
        assert!(looks_like_token(claims(json!({ "alg": "none" })).as_bytes()));
        let long = format!("{token}{}", "x".repeat(TOKEN_BYTES_MAX));
        assert_eq!(judged(&long, &keys), Err(Refusal::TooLong));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_judge_panic(bytes in proptest::collection::vec(0_u8.., 0..300)) {
            let keys = set_of(&[Signer::ec().jwk("one")]);
            proptest::prop_assert!(judge(&bytes, &keys, &rules(), NOW_S).is_err());
        }

        #[test]
        fn no_header_and_claims_make_the_judge_panic(header in ".{0,60}", claims in ".{0,60}") {
            let keys = set_of(&[Signer::ec().jwk("one")]);
            let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
            let token = format!("{}.{}.AAAA", part(&header), part(&claims));
            proptest::prop_assert!(judge(token.as_bytes(), &keys, &rules(), NOW_S).is_err());
        }
    }
}
