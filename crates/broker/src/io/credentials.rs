//! Password checks. Each costs tens of milliseconds and 19 MiB by design, so few run at once and few wait; a
//! password known to be right is recognised by a keyed hash of it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use machine::password;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::limits;
use crate::session::Verify;

type Fingerprint = [u8; 32];

/// Checks passwords for all sessions of a node.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// Chance of this process's own: fingerprints mean nothing outside of it.
    key: [u8; 32],
    /// What was right. The stored hash is part of a fingerprint, so a changed password forgets the old.
    right: Mutex<HashSet<Fingerprint>>,
    running: Semaphore,
    waiting: AtomicUsize,
    /// Checked where there is nothing to check, so that both take as long.
    nobody: Arc<str>,
}

impl Credentials {
    pub(crate) fn new(key: [u8; 32], cpus: usize) -> Self {
        let salt = key.first_chunk::<16>().copied().unwrap_or_default();
        Self {
            key,
            right: Mutex::default(),
            running: Semaphore::new(limits::VERIFIES_PER_CPU * cpus.max(1)),
            waiting: AtomicUsize::new(0),
            nobody: password::hash("nobody", salt).into(),
        }
    }

    /// Whether the password is right. Says no without looking when too many wait already.
    pub(crate) async fn verify(&self, verify: Verify) -> bool {
        let fingerprint = self.fingerprint(&verify);
        if verify.stored.is_some() && self.lock().contains(&fingerprint) {
            return true;
        }
        let waiting = Waiting::enter(&self.waiting);
        if waiting.before >= limits::VERIFIES_WAITING_MAX + self.running.available_permits() {
            tracing::warn!(user = verify.user, "too many logins at once");
            return false;
        }
        let Ok(_permit) = self.running.acquire().await else { return false };
        let is_known = verify.stored.is_some();
        let stored: Arc<str> = match verify.stored {
            Some(stored) => stored.into(),
            None => Arc::clone(&self.nobody),
        };
        let is_right = tokio::task::spawn_blocking(move || {
            // A password that is not text can be nobody's, and takes as long.
            let text = String::from_utf8(verify.password).unwrap_or_default();
            password::verify(&stored, &text)
        });
        let is_right = is_right.await.unwrap_or(false) && is_known;
        drop(waiting);
        if is_right {
            let mut right = self.lock();
            if right.len() >= limits::VERIFIED_CREDENTIALS_MAX {
                right.clear();
            }
            right.insert(fingerprint);
        }
        is_right
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<Fingerprint>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
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

/// One more that waits, until it is dropped.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        Self { count, before: count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(user: &str, password: &str, stored: Option<&str>) -> Verify {
        Verify {
            user: user.to_owned(),
            password: password.as_bytes().to_vec(),
            stored: stored.map(str::to_owned),
        }
    }

    #[tokio::test]
    async fn a_right_password_is_known_until_what_is_stored_changes() {
        let credentials = Credentials::new([7; 32], 1);
        let stored = password::hash("secret", [1; 16]);
        assert!(credentials.verify(verify("ann", "secret", Some(&stored))).await);
        assert_eq!(credentials.lock().len(), 1);
        assert!(credentials.verify(verify("ann", "secret", Some(&stored))).await);
        let changed = password::hash("other", [2; 16]);
        assert!(!credentials.verify(verify("ann", "secret", Some(&changed))).await);
        assert!(!credentials.verify(verify("ann", "Secret", Some(&stored))).await);
        assert!(!credentials.verify(verify("bob", "nobody", None)).await);
        assert_eq!(credentials.lock().len(), 1);
    }

    #[tokio::test]
    async fn when_too_many_wait_the_next_is_refused_without_a_check() {
        let credentials = Credentials::new([7; 32], 1);
        let full = limits::VERIFIES_WAITING_MAX + credentials.running.available_permits();
        credentials.waiting.store(full, Ordering::Relaxed);
        let stored = password::hash("secret", [1; 16]);
        assert!(!credentials.verify(verify("ann", "secret", Some(&stored))).await);
    }
}
