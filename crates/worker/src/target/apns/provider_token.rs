//! When a provider token is used, and when a new one is made. Told the time; making one is a pure signature.
//!
//! Apple refuses a token that is older than an hour, and one that replaces a token too soon. So a token is replaced
//! after 50 minutes, and never before 20.

use std::time::Duration;

use http::HeaderValue;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;

/// A token is replaced at this age.
pub const ROTATE_AFTER: Duration = Duration::from_secs(50 * 60);
/// A token is never replaced before this age.
pub const ROTATE_AFTER_LEAST: Duration = Duration::from_secs(20 * 60);
/// A token is good for less than this.
const GOOD_FOR: Duration = Duration::from_secs(58 * 60);

/// Signs provider tokens.
pub struct Signer {
    key: EncodingKey,
    header: Header,
    team_id: String,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Signer({:?}, {})", self.header.kid, self.team_id)
    }
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    iat: u64,
}

impl Signer {
    /// With the text of a `.p8` file.
    ///
    /// # Errors
    /// It holds no such key. The error shows nothing of it.
    pub fn new(key: &str, key_id: &str, team_id: &str) -> Result<Self, String> {
        let wrong =
            "`key` holds no private key for ES256 in PEM: give the .p8 file that Apple made";
        let key = EncodingKey::from_ec_pem(key.as_bytes()).map_err(|_| wrong.to_owned())?;
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(key_id.to_owned());
        let signer = Self { key, header, team_id: team_id.to_owned() };
        // A key of another curve is only found out by signing.
        signer.sign(Duration::ZERO).map(|_| signer).map_err(|_| wrong.to_owned())
    }

    /// A header's value with a token made `now`, a time since 1970.
    fn sign(&self, now: Duration) -> Result<HeaderValue, String> {
        let claims = Claims { iss: &self.team_id, iat: now.as_secs() };
        let token = jsonwebtoken::encode(&self.header, &claims, &self.key)
            .map_err(|error| format!("the provider token cannot be signed: {error}"))?;
        let mut value =
            HeaderValue::from_maybe_shared(bytes::Bytes::from(format!("bearer {token}")))
                .map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Tells one token from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u64);

#[derive(Clone)]
struct Made {
    generation: Generation,
    at: Duration,
    value: HeaderValue,
}

/// What follows a complaint about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Another token is used from now on: the push may be repeated.
    Repeat,
    /// Nothing can be done at once.
    Wait,
    /// APNs calls a young token old: this machine's clock is wrong.
    ClockWrong,
}

/// The provider token of one key. Whoever holds it makes the token: there is never more than one maker.
pub struct ProviderToken {
    signer: Signer,
    current: Option<Made>,
    previous: Option<Made>,
    /// The current one is not replaced before, a time since 1970, unless it is too old to be good.
    keep_until: Duration,
    made: u64,
}

impl ProviderToken {
    pub fn new(signer: Signer) -> Self {
        Self { signer, current: None, previous: None, keep_until: Duration::ZERO, made: 0 }
    }

    /// The token to use `now`, a time since 1970.
    ///
    /// # Errors
    /// It cannot be signed.
    pub fn value(&mut self, now: Duration) -> Result<(HeaderValue, Generation), String> {
        if self.current.as_ref().is_none_or(|current| self.is_due(current, now)) {
            self.renew(now)?;
        }
        let current = self.current.as_ref().expect("it was just made");
        Ok((current.value.clone(), current.generation))
    }

    /// APNs called this one expired. If another is used already, the push is repeated with that.
    ///
    /// # Errors
    /// A new one cannot be signed.
    pub fn expired(&mut self, which: Generation, now: Duration) -> Result<Follows, String> {
        let Some(current) = self.current.as_ref().filter(|current| current.generation == which)
        else {
            return Ok(Follows::Repeat);
        };
        if now.abs_diff(current.at) < ROTATE_AFTER_LEAST {
            return Ok(Follows::ClockWrong);
        }
        self.renew(now)?;
        Ok(Follows::Repeat)
    }

    /// APNs said that tokens are made too often when it saw this one: the one before it is used for as long as it
    /// is good.
    pub fn too_new(&mut self, which: Generation, now: Duration) -> Follows {
        if self.current.as_ref().is_none_or(|current| current.generation != which) {
            return Follows::Repeat;
        }
        self.keep_until = now + ROTATE_AFTER_LEAST;
        let is_good = |made: &Made| now.saturating_sub(made.at) < GOOD_FOR;
        match self.previous.take_if(|previous| is_good(previous)) {
            Some(previous) => {
                self.current = Some(previous);
                Follows::Repeat
            }
            None => Follows::Wait,
        }
    }

    /// Whether the current one is to be replaced. A clock that was set back makes it as old as one set forward.
    fn is_due(&self, current: &Made, now: Duration) -> bool {
        let age = now.abs_diff(current.at);
        if age < ROTATE_AFTER_LEAST {
            return false;
        }
        age >= GOOD_FOR || (age >= ROTATE_AFTER && now >= self.keep_until)
    }

    fn renew(&mut self, now: Duration) -> Result<(), String> {
        let value = self.signer.sign(now)?;
        self.made += 1;
        let made = Made { generation: Generation(self.made), at: now, value };
        self.previous = self.current.replace(made);
        Ok(())
    }
}

impl std::fmt::Debug for ProviderToken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ProviderToken({:?}, {} made)", self.signer, self.made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_700_000_000);
    const MINUTE: Duration = Duration::from_secs(60);

    fn pem() -> String {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256);
        key.expect("a key can be made").serialize_pem()
    }

    fn token() -> ProviderToken {
        ProviderToken::new(Signer::new(&pem(), "KEY", "TEAM").expect("the key is good"))
    }

    fn generation(token: &mut ProviderToken, minutes: u32) -> u64 {
        token.value(START + MINUTE * minutes).expect("it is signed").1.0
    }

    #[test]
    fn a_token_is_kept_for_fifty_minutes() {
        let mut token = token();
        assert_eq!([0, 1, 49].map(|at| generation(&mut token, at)), [1, 1, 1]);
        assert_eq!([50, 51, 99, 100].map(|at| generation(&mut token, at)), [2, 2, 2, 3]);
    }

    #[test]
    fn an_expired_token_is_replaced_once_however_many_pushes_complain() {
        let mut token = token();
        let (_, first) = token.value(START).expect("it is signed");
        let now = START + 30 * MINUTE;
        for _ in 0..10 {
            assert_eq!(token.expired(first, now), Ok(Follows::Repeat));
        }
        assert_eq!(token.made, 2);
    }

    #[test]
    fn no_token_is_replaced_within_twenty_minutes() {
        let mut token = token();
        let (_, first) = token.value(START).expect("it is signed");
        let now = START + 20 * MINUTE - Duration::from_secs(1);
        assert_eq!(token.expired(first, now), Ok(Follows::ClockWrong));
        assert_eq!(token.made, 1);
    }

    #[test]
    fn a_clock_that_is_set_back_by_hours_makes_a_new_token() {
        let mut token = token();
        generation(&mut token, 180);
        assert_eq!(generation(&mut token, 0), 2);
    }

    #[test]
    fn the_old_token_is_kept_where_new_ones_come_too_often() {
        let mut token = token();
        let (old, _) = token.value(START).expect("it is signed");
        let (_, new) = token.value(START + 50 * MINUTE).expect("it is signed");
        assert_eq!(token.too_new(new, START + 50 * MINUTE), Follows::Repeat);
        for minutes in [50, 57] {
            let now = START + minutes * MINUTE;
            assert_eq!(token.value(now).expect("it is signed").0, old);
        }
        assert_eq!(generation(&mut token, 58), 3, "too old to be good");
    }

    #[test]
    fn without_an_old_token_the_new_one_is_waited_for() {
        let mut token = token();
        let (_, first) = token.value(START).expect("it is signed");
        assert_eq!(token.too_new(first, START), Follows::Wait);
        assert_eq!(generation(&mut token, 19), 1);
    }

    #[test]
    fn neither_key_nor_token_is_shown() {
        let pem = pem();
        let secret = pem.lines().nth(1).expect("a line of the key").to_owned();
        let mut token =
            ProviderToken::new(Signer::new(&pem, "KEY", "TEAM").expect("the key is good"));
        let (value, _) = token.value(START).expect("it is signed");
        let shown = format!("{token:?} {value:?}");
        let text = value.to_str().expect("text");
        assert!(!shown.contains(&secret) && !shown.contains(&text[10..]), "{shown}");
        let why = Signer::new(&secret, "KEY", "TEAM").expect_err("it is no PEM");
        assert!(!why.contains(&secret), "{why}");
    }

    #[test]
    fn a_key_of_another_kind_is_refused_at_the_start() {
        let rsa = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
        Signer::new(rsa, "KEY", "TEAM").expect_err("it is no key");
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).expect("a key");
        Signer::new(&key.serialize_pem(), "KEY", "TEAM").expect_err("it is of another curve");
    }
}
