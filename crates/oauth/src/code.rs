//! Login of a browser by a code (RFC 6749 section 4.1, with the proof key of RFC 7636): what is sent, and what comes back.
//!
//! ```text
//!  browser          node                              identity server
//!     │ begin ──────> draws state and verifier
//!     │ <── place ─── keeps neither: they are in a cookie
//!     │ ───────────────────── login ───────────────────────> │
//!     │ <──────────── code, state ────────────────────────── │
//!     │ code, state ─> state is that of the cookie
//!     │                code, verifier ─────────────────────> │
//!     │ <── session ── judges the token <─────── token ───── │
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Random bytes of an attempt: half of them for the state, half for the verifier.
pub type Chance = [u8; 64];

/// What the node has of one login until its code comes: it alone can use the code, and only in the browser that began.
#[derive(Clone, PartialEq, Eq)]
pub struct Attempt {
    state: String,
    verifier: String,
}

impl Attempt {
    /// A new one.
    pub fn of(chance: &Chance) -> Self {
        let (state, verifier) = chance.split_at(chance.len() / 2);
        Self { state: URL_SAFE_NO_PAD.encode(state), verifier: URL_SAFE_NO_PAD.encode(verifier) }
    }

    /// As a cookie has it.
    pub fn text(&self) -> String {
        format!("{}.{}", self.state, self.verifier)
    }

    /// What [`Attempt::text`] wrote. None: it is something else.
    pub fn read(text: &str) -> Option<Self> {
        let (state, verifier) = text.split_once('.')?;
        let is_whole = |part: &str| URL_SAFE_NO_PAD.decode(part).is_ok_and(|it| it.len() == 32);
        let (state, verifier) = (state.to_owned(), verifier.to_owned());
        (is_whole(&state) && is_whole(&verifier)).then_some(Self { state, verifier })
    }

    /// Whether the browser comes back from what it began: both were in its hands, so it may take any time.
    pub fn is_of(&self, state: &str) -> bool {
        self.state == state
    }

    fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

/// The client that the console is at the identity server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLogin {
    pub client_id: String,
    /// Where browsers are sent.
    pub authorize: Uri,
    /// What is asked for, with spaces between.
    pub scopes: String,
}

impl CodeLogin {
    /// The host that browsers are sent to.
    pub fn host(&self) -> &str {
        self.authorize.host().unwrap_or_default()
    }

    /// Where a browser logs in, to come back to `redirect`.
    pub fn place(&self, attempt: &Attempt, redirect: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("redirect_uri", redirect)
            .append_pair("scope", &self.scopes)
            .append_pair("state", &attempt.state)
            .append_pair("code_challenge", &attempt.challenge())
            .append_pair("code_challenge_method", "S256");
        let separator = if self.authorize.query().is_some() { '&' } else { '?' };
        format!("{}{separator}{}", self.authorize, query.finish())
    }

    /// What is sent for the token.
    pub(crate) fn form(&self, attempt: &Attempt, code: &str, redirect: &str) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", redirect)
            .append_pair("client_id", &self.client_id)
            .append_pair("code_verifier", &attempt.verifier);
        form.finish()
    }
}

/// The token in what the identity server answers.
///
/// # Errors
/// In words: there is none.
pub(crate) fn token_in(answer: &[u8]) -> Result<String, String> {
    let answer: Value = serde_json::from_slice(answer).map_err(|_| "its answer is no JSON")?;
    let token = answer.get("access_token").and_then(Value::as_str);
    token.map(str::to_owned).ok_or_else(|| "its answer has no access_token".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(authorize: &'static str) -> CodeLogin {
        let (client_id, scopes) = ("console & co".to_owned(), "openid rabbitmq".to_owned());
        CodeLogin { client_id, authorize: Uri::from_static(authorize), scopes }
    }

    #[test]
    fn an_attempt_is_read_as_it_was_written_and_nothing_else_is_one() {
        let mut chance = [7; 64];
        chance[40] = 1;
        let attempt = Attempt::of(&chance);
        let read = Attempt::read(&attempt.text()).unwrap();
        assert!(read == attempt && read.is_of(&attempt.state) && !read.is_of(&attempt.verifier));
        let half = attempt.text()[..43].to_owned();
        for wrong in ["", ".", &half, &format!("{half}."), &format!("{half}.x"), "a.b"] {
            assert!(Attempt::read(wrong).is_none(), "{wrong}");
        }
    }

    /// RFC 7636, appendix B.
    #[test]
    fn the_challenge_is_that_of_the_standard() {
        let attempt = Attempt {
            state: String::new(),
            verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned(),
        };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn the_place_and_the_form_have_what_the_server_needs_and_the_verifier_is_in_the_form_alone() {
        let mut chance = [9; 64];
        chance[40] = 1;
        let attempt = Attempt::of(&chance);
        let login = login("https://id.example/auth?tenant=shop");
        let place = login.place(&attempt, "http://n:15672/");
        assert!(place.starts_with("https://id.example/auth?tenant=shop&response_type=code&"));
        for part in [
            "client_id=console+%26+co",
            "redirect_uri=http%3A%2F%2Fn%3A15672%2F",
            "scope=openid+rabbitmq",
            &format!("state={}", attempt.state),
            &format!("code_challenge={}", attempt.challenge()),
        ] {
            assert!(place.contains(part), "{part}: {place}");
        }
        assert!(!place.contains(&attempt.verifier), "{place}");
        let form = login.form(&attempt, "c/1", "http://n:15672/");
        assert!(form.contains("code=c%2F1") && form.contains(&attempt.verifier), "{form}");
    }

    #[test]
    fn the_token_is_taken_out_of_the_answer_or_it_is_said_what_is_wrong() {
        assert_eq!(token_in(br#"{"access_token":"t","token_type":"Bearer"}"#), Ok("t".to_owned()));
        assert!(token_in(br#"{"id_token":"t"}"#).unwrap_err().contains("access_token"));
        assert!(token_in(b"<html>").unwrap_err().contains("JSON"));
    }
}
