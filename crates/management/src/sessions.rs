//! Sessions of browsers that have logged in: a table of this node, in memory.
//!
//! A browser shows a token in a cookie. The table has a hash of the token only, so nobody who reads the node's memory can
//! use what it finds. With each session goes a second secret for requests that change something: a page of another
//! site can make a browser send the cookie, and cannot know this one.
//!
//! ```text
//!   begin ──> open ──unused for an hour, or open for twelve──> over
//!              │ ──logged out, or a newer one needs the room────> over
//!              │ ──its user is gone, has another password or other tags, or its token has expired──> over
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use machine::Catalog;
use oauth::Grant;
use sha2::{Digest as _, Sha256};

use crate::console::hex;
use crate::limits::{SESSION_IDLE, SESSION_LIFE, SESSIONS_MAX, SESSIONS_OF_USER_MAX};

/// Chance that a session needs: half of it for the token, half for the second secret.
pub(crate) type Chance = [u8; 64];

/// What the table knows a session by: the hash of its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id([u8; 32]);

impl Id {
    fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

/// Who has logged in, as it was then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) user: String,
    pub(crate) proof: Proof,
}

/// What the login was proven with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// A password. Another password, or other tags, end the session.
    Password { hash: String, tags: Vec<String> },
    /// A token. Its end is that of the session.
    Token(Arc<Grant>),
}

impl Owner {
    /// A user of the catalog who has shown the password.
    pub(crate) fn of_password(catalog: &Catalog, user: &str) -> Option<Self> {
        let known = catalog.user(user)?;
        let (hash, tags) = (known.password_hash.clone(), known.tags.clone());
        Some(Self { user: user.to_owned(), proof: Proof::Password { hash, tags } })
    }

    pub(crate) fn of_token(grant: Arc<Grant>) -> Self {
        Self { user: grant.user.clone(), proof: Proof::Token(grant) }
    }

    pub(crate) fn grant(&self) -> Option<&Arc<Grant>> {
        match &self.proof {
            Proof::Password { .. } => None,
            Proof::Token(grant) => Some(grant),
        }
    }

    /// Whether the login would still be the same. `now_s`: since 1970.
    pub(crate) fn stands(&self, catalog: &Catalog, now_s: u64) -> bool {
        match &self.proof {
            Proof::Password { hash, tags } => catalog
                .user(&self.user)
                .is_some_and(|user| user.password_hash == *hash && user.tags == *tags),
            Proof::Token(grant) => now_s < grant.expires_s,
        }
    }
}

/// A session that is open.
#[derive(Clone, Debug)]
struct Session {
    owner: Owner,
    /// What requests that change something have to show.
    csrf: String,
    began: Duration,
    used: Duration,
}

impl Session {
    fn is_old(&self, now: Duration) -> bool {
        now >= self.began + SESSION_LIFE || now >= self.used + SESSION_IDLE
    }
}

/// What the browser is told of a new session.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Begun {
    /// For the cookie. It is kept nowhere here.
    pub(crate) token: String,
    pub(crate) csrf: String,
    /// Another session ended for want of room.
    pub(crate) has_crowded_out: bool,
}

/// A session that somebody has shown the token of.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) id: Id,
    pub(crate) owner: Owner,
    pub(crate) csrf: String,
}

impl Found {
    /// Whether this is the session's second secret. Takes as long wherever it differs.
    pub(crate) fn is_csrf(&self, given: &[u8]) -> bool {
        let kept = self.csrf.as_bytes();
        let differs =
            kept.iter().zip(given).fold(0, |differs, (kept, given)| differs | (kept ^ given));
        kept.len() == given.len() && differs == 0
    }
}

/// All sessions of a node. Times are since its start.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: BTreeMap<Id, Session>,
}

impl Sessions {
    /// Begins a session. If there is no room, the one ends that was unused for longest: of the user, who has its share,
    /// or else of all.
    pub(crate) fn begin(&mut self, now: Duration, chance: &Chance, owner: Owner) -> Begun {
        self.open.retain(|_, session| !session.is_old(now));
        let of_user = self.open.values().filter(|it| it.owner.user == owner.user).count();
        let idlest = match (of_user >= SESSIONS_OF_USER_MAX, self.open.len() >= SESSIONS_MAX) {
            (true, _) => self.idlest(|session| session.owner.user == owner.user),
            (false, true) => self.idlest(|_| true),
            (false, false) => None,
        };
        if let Some(idlest) = idlest {
            self.open.remove(&idlest);
        }
        let (token, csrf) = chance.split_at(chance.len() / 2);
        let (token, csrf) = (hex(token), hex(csrf));
        let session = Session { owner, csrf: csrf.clone(), began: now, used: now };
        self.open.insert(Id::of(&token), session);
        assert!(self.open.len() <= SESSIONS_MAX, "the table of sessions has a bound");
        Begun { token, csrf, has_crowded_out: idlest.is_some() }
    }

    fn idlest(&self, of: impl Fn(&Session) -> bool) -> Option<Id> {
        let some = self.open.iter().filter(|(_, session)| of(session));
        some.min_by_key(|(_, session)| session.used).map(|(id, _)| *id)
    }

    /// The session of a token, which counts as used now. One that is over is forgotten.
    pub(crate) fn find(
        &mut self,
        now: Duration,
        token: &str,
        stands: impl FnOnce(&Owner) -> bool,
    ) -> Option<Found> {
        let id = Id::of(token);
        let session = self.use_now(now, id, stands)?;
        Some(Found { id, owner: session.owner.clone(), csrf: session.csrf.clone() })
    }

    /// Whether a session is still open. It counts as used now: somebody is being told what happens.
    pub(crate) fn is_open(
        &mut self,
        now: Duration,
        id: Id,
        stands: impl FnOnce(&Owner) -> bool,
    ) -> bool {
        self.use_now(now, id, stands).is_some()
    }

    fn use_now(
        &mut self,
        now: Duration,
        id: Id,
        stands: impl FnOnce(&Owner) -> bool,
    ) -> Option<&Session> {
        let session = self.open.get(&id)?;
        if session.is_old(now) || !stands(&session.owner) {
            self.open.remove(&id);
            return None;
        }
        let session = self.open.get_mut(&id)?;
        session.used = now;
        Some(session)
    }

    /// Somebody logs out, or in again.
    pub(crate) fn end(&mut self, token: &str) -> Option<String> {
        self.open.remove(&Id::of(token)).map(|session| session.owner.user)
    }

    /// Forgets all that are over.
    pub(crate) fn sweep(&mut self, now: Duration, stands: impl Fn(&Owner) -> bool) {
        self.open.retain(|_, session| !session.is_old(now) && stands(&session.owner));
    }

    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn owner(user: &str) -> Owner {
        let proof =
            Proof::Password { hash: "hash".to_owned(), tags: vec!["management".to_owned()] };
        Owner { user: user.to_owned(), proof }
    }

    fn chance(number: usize) -> Chance {
        let mut chance = [0xa7; 64];
        chance[..8].copy_from_slice(&(number as u64).to_le_bytes());
        chance
    }

    fn begin(sessions: &mut Sessions, at: Duration, number: usize, user: &str) -> Begun {
        sessions.begin(at, &chance(number), owner(user))
    }

    fn is_found(sessions: &mut Sessions, at: Duration, begun: &Begun) -> bool {
        sessions.find(at, &begun.token, |_| true).is_some()
    }

    #[test]
    fn a_session_is_found_by_its_token_alone_which_is_not_kept() {
        let mut sessions = Sessions::default();
        let begun = begin(&mut sessions, SECOND, 1, "ann");
        assert_eq!((begun.token.len(), begun.csrf.len()), (64, 64));
        let found = sessions.find(SECOND, &begun.token, |_| true).unwrap();
        assert_eq!((found.owner, &found.csrf), (owner("ann"), &begun.csrf));
        assert_ne!(begun.token, begun.csrf);
        for wrong in ["", "0", &begun.csrf, &begun.token.to_uppercase()] {
            assert!(sessions.find(SECOND, wrong, |_| true).is_none(), "{wrong}");
        }
        assert!(!format!("{sessions:?}").contains(&begun.token));
    }

    #[test]
    fn the_second_secret_must_be_the_whole_one() {
        let mut sessions = Sessions::default();
        let begun = begin(&mut sessions, SECOND, 1, "ann");
        let found = sessions.find(SECOND, &begun.token, |_| true).unwrap();
        assert!(found.is_csrf(begun.csrf.as_bytes()));
        let mut other = begun.csrf.clone().into_bytes();
        other[63] ^= 1;
        assert!(!found.is_csrf(&other));
        assert!(!found.is_csrf(b"") && !found.is_csrf(&begun.csrf.as_bytes()[..63]));
        assert!(!found.is_csrf(format!("{}0", begun.csrf).as_bytes()));
    }

    #[test]
    fn a_session_ends_unused_or_at_its_age() {
        let mut sessions = Sessions::default();
        let unused = begin(&mut sessions, Duration::ZERO, 1, "ann");
        assert!(is_found(&mut sessions, SESSION_IDLE - SECOND, &unused));
        assert!(!is_found(&mut sessions, SESSION_IDLE * 2, &unused), "an hour after its last use");
        let used = begin(&mut sessions, Duration::ZERO, 2, "ann");
        let mut at = Duration::ZERO;
        while at + SESSION_IDLE / 2 < SESSION_LIFE {
            at += SESSION_IDLE / 2;
            assert!(is_found(&mut sessions, at, &used), "{at:?}");
        }
        assert!(!is_found(&mut sessions, SESSION_LIFE, &used), "however much it is used");
        assert_eq!(sessions.count(), 0);
    }

    #[test]
    fn a_stream_keeps_its_session_in_use_until_that_ends() {
        let mut sessions = Sessions::default();
        let begun = begin(&mut sessions, Duration::ZERO, 1, "ann");
        let id = sessions.find(Duration::ZERO, &begun.token, |_| true).unwrap().id;
        assert!(sessions.is_open(SESSION_IDLE - SECOND, id, |_| true));
        assert!(is_found(&mut sessions, SESSION_IDLE + SECOND, &begun));
        assert_eq!(sessions.end(&begun.token), Some("ann".to_owned()));
        assert!(!sessions.is_open(SESSION_IDLE + SECOND, id, |_| true));
        assert_eq!(sessions.end(&begun.token), None);
    }

    #[test]
    fn a_session_whose_login_no_longer_stands_is_forgotten_for_good() {
        let mut sessions = Sessions::default();
        let begun = begin(&mut sessions, SECOND, 1, "ann");
        assert!(sessions.find(SECOND, &begun.token, |owner| owner.user != "ann").is_none());
        assert!(!is_found(&mut sessions, SECOND, &begun), "what was before does not come back");
        begin(&mut sessions, SECOND, 2, "ann");
        let bob = begin(&mut sessions, SECOND, 3, "bob");
        sessions.sweep(SECOND, |owner| owner.user == "bob");
        assert_eq!(sessions.count(), 1);
        assert!(is_found(&mut sessions, SECOND, &bob));
    }

    #[test]
    fn a_user_has_so_many_and_the_one_that_was_unused_for_longest_makes_room() {
        let mut sessions = Sessions::default();
        let begin_at = |sessions: &mut Sessions, number: usize| {
            begin(sessions, SECOND * number as u32, number, "ann")
        };
        let first = begin_at(&mut sessions, 1);
        let second = begin_at(&mut sessions, 2);
        let bob = begin(&mut sessions, Duration::ZERO, 0, "bob");
        for number in 3..=SESSIONS_OF_USER_MAX {
            assert!(!begin_at(&mut sessions, number).has_crowded_out);
        }
        let late = SECOND * 1000;
        assert!(is_found(&mut sessions, late, &first));
        assert!(begin(&mut sessions, late, 99, "ann").has_crowded_out);
        assert!(!is_found(&mut sessions, late, &second));
        assert!(is_found(&mut sessions, late, &first) && is_found(&mut sessions, late, &bob));
    }

    #[test]
    fn a_node_has_so_many_and_what_is_over_takes_no_room() {
        let mut sessions = Sessions::default();
        let begun: Vec<Begun> = (0..SESSIONS_MAX)
            .map(|number| {
                begin(
                    &mut sessions,
                    SECOND,
                    number,
                    &format!("user-{}", number / SESSIONS_OF_USER_MAX),
                )
            })
            .collect();
        assert_eq!(sessions.count(), SESSIONS_MAX);
        let mut at = SECOND;
        for one in begun.iter().skip(1) {
            at += Duration::from_millis(1);
            assert!(is_found(&mut sessions, at, one));
        }
        assert!(begin(&mut sessions, at, SESSIONS_MAX, "late").has_crowded_out);
        assert!(!is_found(&mut sessions, at, &begun[0]));
        assert_eq!(sessions.count(), SESSIONS_MAX);
        let later = at + SESSION_IDLE;
        assert!(!begin(&mut sessions, later, SESSIONS_MAX + 1, "later").has_crowded_out);
        assert_eq!(sessions.count(), 1);
    }

    #[test]
    fn a_login_stands_while_the_token_does() {
        let grant = Arc::new(Grant::of_scopes("ann", 100, &["tag:management"]));
        let owner = Owner::of_token(grant);
        let catalog = Catalog::new(1);
        assert!(owner.stands(&catalog, 99) && !owner.stands(&catalog, 100));
        assert!(owner.grant().is_some());
    }
}
