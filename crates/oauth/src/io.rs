//! The keys of those who may sign: read from a file or asked of an HTTPS server, and again while the node runs.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the shell: files, sockets, clocks, and a lock around the keys"
)]

mod fetch;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::Uri;
use tokio::sync::Semaphore;

use crate::limits::{KEY_SET_BYTES_MAX, REDEEMED_AT_ONCE_MAX, RELOAD_EVERY, RELOAD_PAUSE};
use crate::{Attempt, CodeLogin, Grant, Keys, Refusal, Rules, judge};

/// Where the keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A set of keys in JSON (JWKS).
    File(PathBuf),
    /// The same from a server, which is believed if this authority has signed its certificate, or one of the machine's.
    Server { url: String, authority: Option<PathBuf> },
}

/// What the operator has set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub source: Source,
    pub rules: Rules,
    /// None: no browser is sent to an identity server.
    pub login: Option<LoginSettings>,
}

/// How browsers log in at an identity server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginSettings {
    pub client_id: String,
    pub authorize_url: String,
    pub token_url: String,
    pub scopes: String,
    /// As for a server of keys.
    pub authority: Option<PathBuf>,
}

/// Judges tokens with the newest keys.
#[derive(Debug)]
pub struct Tokens {
    place: Place,
    rules: Rules,
    login: Option<Login>,
    keys: RwLock<Arc<Held>>,
    /// Who holds it asks for keys. When that was done last.
    asked: tokio::sync::Mutex<Option<Instant>>,
}

/// Where a browser logs in, and where its code is turned into a token.
#[derive(Debug)]
struct Login {
    code: CodeLogin,
    token_url: Uri,
    authority: Option<PathBuf>,
    room: Semaphore,
}

impl Login {
    fn of(settings: LoginSettings) -> Result<Self, String> {
        let LoginSettings { client_id, authorize_url, token_url, scopes, authority } = settings;
        certificates::authorities(authority.as_deref())?;
        let (authorize, token_url) = (fetch::https(&authorize_url)?, fetch::https(&token_url)?);
        let room = Semaphore::new(REDEEMED_AT_ONCE_MAX);
        Ok(Self { code: CodeLogin { client_id, authorize, scopes }, token_url, authority, room })
    }
}

/// Keys, and which reading of them it is.
#[derive(Debug, Default)]
struct Held {
    keys: Keys,
    reading: u64,
}

#[derive(Debug)]
enum Place {
    File(PathBuf),
    Server { url: Uri, authority: Option<PathBuf> },
}

impl Tokens {
    /// Reads the file of keys. A server is asked later: it may be away when the node starts.
    ///
    /// # Errors
    /// In words: the file cannot be used, or the URL is none.
    pub fn load(settings: Settings) -> Result<Self, String> {
        let Settings { source, rules, login } = settings;
        let login = login.map(Login::of).transpose()?;
        let (place, held) = match source {
            Source::File(file) => {
                let keys = read(&file)?;
                (Place::File(file), Held { keys, reading: 1 })
            }
            Source::Server { url, authority } => {
                // It is asked for again with each fetch; here it is only looked at.
                certificates::authorities(authority.as_deref())?;
                let url = fetch::https(&url)?;
                (Place::Server { url, authority }, Held::default())
            }
        };
        let keys = RwLock::new(Arc::new(held));
        Ok(Self { place, rules, login, keys, asked: tokio::sync::Mutex::new(None) })
    }

    /// How a browser logs in at an identity server. None: it does not.
    pub fn login(&self) -> Option<&CodeLogin> {
        self.login.as_ref().map(|login| &login.code)
    }

    /// The token that the identity server gives for a code. It is still to be judged.
    ///
    /// # Errors
    /// In words: it gives none.
    pub async fn redeem(
        &self,
        attempt: &Attempt,
        code: &str,
        redirect: &str,
    ) -> Result<String, String> {
        let Some(Login { code: login, token_url, authority, room }) = &self.login else {
            return Err("no identity server is set".to_owned());
        };
        let Ok(_place) = room.try_acquire() else {
            return Err(format!("{REDEEMED_AT_ONCE_MAX} others log in at this moment"));
        };
        let form = login.form(attempt, code, redirect);
        let answer = fetch::post(token_url, authority.as_deref(), form).await?;
        crate::code::token_in(&answer).map_err(|why| format!("{token_url}: {why}"))
    }

    /// Judges a token now. If its key is not known, the keys are asked for again, unless that was done a moment ago.
    ///
    /// # Errors
    /// Why it gives nothing.
    pub async fn judge(&self, token: &[u8]) -> Result<Grant, Refusal> {
        let held = self.held();
        let judged = judge(token, &held.keys, &self.rules, now_s());
        if judged != Err(Refusal::UnknownKey) || !self.has_newer(held.reading).await {
            return judged;
        }
        judge(token, &self.held().keys, &self.rules, now_s())
    }

    /// Whether there are newer keys than of that reading, perhaps because they are asked for now.
    async fn has_newer(&self, reading: u64) -> bool {
        // Whoever waits here for another's answer need not ask again.
        let mut asked = self.asked.lock().await;
        let is_early = asked.is_some_and(|at| at.elapsed() < RELOAD_PAUSE);
        if self.held().reading == reading && !is_early {
            *asked = Some(Instant::now());
            self.renew("a token has an unknown key").await;
        }
        self.held().reading != reading
    }

    /// Reads the keys again. If that fails, the ones before stay.
    pub async fn reload(&self) {
        let mut asked = self.asked.lock().await;
        *asked = Some(Instant::now());
        self.renew("SIGHUP").await;
    }

    /// Asks a server for its keys as long as the node runs: at once, soon again while it has none to give, and now and
    /// then, so that a key that it withdraws counts no more. A file is read again only when somebody says so.
    pub async fn keep(self: Arc<Self>) {
        let Place::Server { .. } = &self.place else { return };
        loop {
            let mut asked = self.asked.lock().await;
            *asked = Some(Instant::now());
            self.renew("it is time").await;
            drop(asked);
            let has_keys = self.held().keys.count() > 0;
            tokio::time::sleep(if has_keys { RELOAD_EVERY } else { RELOAD_PAUSE }).await;
        }
    }

    async fn renew(&self, why: &'static str) {
        let found = match &self.place {
            Place::File(file) => {
                let file = file.clone();
                let read = tokio::task::spawn_blocking(move || read(&file)).await;
                read.unwrap_or_else(|error| Err(error.to_string()))
            }
            Place::Server { url, authority } => {
                let answered = fetch::get(url, authority.as_deref()).await;
                answered.and_then(|text| Keys::read(&text).map_err(|why| format!("{url}: {why}")))
            }
        };
        match found {
            Ok(keys) => {
                let count = keys.count();
                let mut held = self.keys.write().unwrap_or_else(PoisonError::into_inner);
                *held = Arc::new(Held { keys, reading: held.reading + 1 });
                drop(held);
                tracing::debug!(why, count, "OAuth: keys read");
            }
            Err(problem) => tracing::warn!(
                why, %problem, kept = self.held().keys.count(),
                "OAuth: cannot read the keys that sign tokens; the ones before stay, and the node tries again. Tokens of \
                 newer keys are refused until then"
            ),
        }
    }

    fn held(&self) -> Arc<Held> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read(file: &Path) -> Result<Keys, String> {
    use std::io::Read as _;
    let problem = |why: &dyn std::fmt::Display| format!("{} cannot be used: {why}", file.display());
    let mut text = Vec::new();
    let opened = std::fs::File::open(file).map_err(|error| problem(&error))?;
    // One byte more than may be: then it is too large.
    let mut some = opened.take(KEY_SET_BYTES_MAX as u64 + 1);
    some.read_to_end(&mut text).map_err(|error| problem(&error))?;
    Keys::read(&text).map_err(|why| problem(&why))
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    now.as_secs()
}
