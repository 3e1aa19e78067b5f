//! Threads that check passwords. Which is next is decided by `logins`.
//!
//! A check is 19 MiB and tens of milliseconds. The threads are few, and each uses one buffer again and again; it
//! gives it back when there is nothing to check for a while.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;

use crate::limits;
use crate::logins::{Address, Asked, Check, Fingerprint, Line, Logins, Next, Waiter};
use crate::password::{self, DECOY, Memory};
use crate::session::Verify;

/// Checks passwords for all sessions of a node.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// Chance of this process's own: fingerprints mean nothing outside of it.
    key: [u8; 32],
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There is something to check, or the node stops.
    changed: Condvar,
    started: Instant,
}

#[derive(Debug, Default)]
struct State {
    logins: Logins,
    /// Who is told.
    waiting: BTreeMap<Waiter, oneshot::Sender<bool>>,
    is_over: bool,
}

impl Credentials {
    /// Starts the threads. They end when it is dropped.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn new(key: [u8; 32], cpus: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            started: Instant::now(),
        });
        let mut credentials = Self { key, shared, threads: Vec::new() };
        for number in 0..cpus.clamp(1, limits::VERIFIERS_MAX) {
            let shared = Arc::clone(&credentials.shared);
            let builder = std::thread::Builder::new().name(format!("logins-{number}"));
            credentials.threads.push(builder.spawn(move || shared.run())?);
        }
        Ok(credentials)
    }

    /// Whether the password is right. Waits for its turn, however long that takes.
    pub(crate) async fn verify(&self, verify: Verify) -> bool {
        let fingerprint = self.fingerprint(&verify);
        let Verify { user, password, peer, stored } = verify;
        let user = stored.is_some().then_some(user);
        let line = Line { address: Address::of(peer), user };
        let mut turn = {
            let mut state = self.shared.lock();
            let now = self.shared.started.elapsed();
            match state.logins.ask(now, fingerprint, line, Check { password, stored }) {
                Asked::Known(is_right) => return is_right,
                Asked::Wait(waiter) => {
                    let (tell, verdict) = oneshot::channel();
                    state.waiting.insert(waiter, tell);
                    Turn { shared: Arc::clone(&self.shared), fingerprint, waiter, verdict }
                }
            }
        };
        self.shared.changed.notify_one();
        match (&mut turn.verdict).await {
            Ok(is_right) => is_right,
            // The node stops: nobody is told anything.
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether an address has had too many wrong logins lately.
    pub(crate) fn is_slow(&self, address: Address) -> bool {
        self.shared.lock().logins.is_slow(address, self.shared.started.elapsed())
    }

    /// How long a login of an address waits that has had too many wrong ones.
    pub(crate) fn wait(&self, address: Address) -> Duration {
        self.shared.lock().logins.wait(address, self.shared.started.elapsed())
    }

    /// A login of an address was refused that was no password.
    pub(crate) fn count_refused(&self, address: Address) {
        self.shared.lock().logins.count_wrong(self.shared.started.elapsed(), address);
    }

    fn fingerprint(&self, verify: &Verify) -> Fingerprint {
        let stored = verify.stored.as_deref().unwrap_or_default();
        let mut hash = Sha256::new().chain_update(self.key);
        for part in [verify.user.as_bytes(), stored.as_bytes(), &verify.password] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        // Twice, so that nobody can go on where a hash left off.
        Sha256::new().chain_update(self.key).chain_update(hash.finalize()).finalize().into()
    }
}

impl Drop for Credentials {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // It ends after the check that it is at, and cannot panic with anything to lose.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life.
    fn run(&self) {
        let mut memory = Memory::default();
        while let Some((fingerprint, check)) = self.next(&mut memory) {
            let is_right = is_right(&mut memory, check);
            let mut state = self.lock();
            let told = state.logins.checked(self.started.elapsed(), fingerprint, is_right);
            for waiter in told {
                if let Some(tell) = state.waiting.remove(&waiter) {
                    // Whoever has gone need not know.
                    let _ = tell.send(is_right);
                }
            }
        }
    }

    /// Waits for something to check. None: it is over.
    fn next(&self, memory: &mut Memory) -> Option<(Fingerprint, Check)> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            let now = self.started.elapsed();
            let wait = match state.logins.next(now) {
                Next::Check(fingerprint, check) => return Some((fingerprint, check)),
                Next::At(then) => Some(then.saturating_sub(now)),
                Next::Nothing => (!memory.is_empty()).then_some(limits::VERIFIER_MEMORY_KEPT),
            };
            let Some(wait) = wait else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let wait = wait.max(Duration::from_millis(1));
            let waited = self.changed.wait_timeout(state, wait);
            let timeout;
            (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() && wait >= limits::VERIFIER_MEMORY_KEPT {
                *memory = Memory::default();
            }
        }
    }
}

/// Takes as long whoever is asked for and whatever is stored, unless the password is right.
fn is_right(memory: &mut Memory, check: Check) -> bool {
    // A password that is not text can be nobody's, and takes as long.
    let text = String::from_utf8(check.password).unwrap_or_default();
    let stored = check.stored.as_deref().unwrap_or(DECOY);
    let is_right = password::verify_with(memory, stored, &text) && check.stored.is_some();
    if !is_right && !stored.starts_with("$argon2id$") {
        password::verify_with(memory, DECOY, &text);
    }
    is_right
}

/// Somebody who waits, until it is dropped.
struct Turn {
    shared: Arc<Shared>,
    fingerprint: Fingerprint,
    waiter: Waiter,
    verdict: oneshot::Receiver<bool>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.waiting.remove(&self.waiter).is_some() {
            state.logins.leave(&self.fingerprint, self.waiter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(user: &str, password: &str, stored: Option<&str>) -> Verify {
        Verify {
            user: user.to_owned(),
            password: password.as_bytes().to_vec(),
            peer: [127, 0, 0, 1].into(),
            stored: stored.map(str::to_owned),
        }
    }

    #[tokio::test]
    async fn a_right_password_is_right_until_what_is_stored_changes() {
        let credentials = Credentials::new([7; 32], 1).unwrap();
        let stored = password::hash("secret", [1; 16]);
        for _ in 0..2 {
            assert!(credentials.verify(verify("ann", "secret", Some(&stored))).await);
            let changed = password::hash("other", [2; 16]);
            assert!(!credentials.verify(verify("ann", "secret", Some(&changed))).await);
            assert!(!credentials.verify(verify("ann", "Secret", Some(&stored))).await);
            assert!(!credentials.verify(verify("bob", "secret", None)).await);
        }
    }

    #[test]
    fn there_are_few_threads_however_many_processors() {
        let credentials = Credentials::new([7; 32], 64).unwrap();
        assert_eq!(credentials.threads.len(), limits::VERIFIERS_MAX);
    }

    #[tokio::test]
    async fn all_who_ask_at_once_are_answered_and_nothing_is_kept_of_those_who_leave() {
        let credentials = Arc::new(Credentials::new([7; 32], 2).unwrap());
        let stored = password::hash("secret", [1; 16]);
        let mut asks = tokio::task::JoinSet::new();
        for number in 0..500 {
            let (credentials, stored) = (Arc::clone(&credentials), stored.clone());
            // Half of them give up after the first look.
            asks.spawn(async move {
                let ask = credentials.verify(verify("ann", "secret", Some(&stored)));
                tokio::select! {
                    biased;
                    is_right = ask => is_right,
                    () = std::future::ready(()), if number % 2 == 0 => true,
                }
            });
        }
        let verdicts = asks.join_all().await;
        assert!(verdicts.iter().all(|is_right| *is_right), "a right password is never wrong");
        assert!(credentials.shared.lock().waiting.is_empty());
    }
}
