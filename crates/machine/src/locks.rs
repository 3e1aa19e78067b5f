//! Locks: who holds which name, until when, and a small value beside it.
//!
//! The state is part of a group's machine ([`crate::QueueMachine`]): it is changed by committed entries alone, and time
//! is the time of the entry. What an expired lease means is decided only when a command is applied: until then a lock
//! whose lease is over looks as if it were held, and nobody can tell the difference.
//!
//! ```text
//!            Acquire                    Renew, or Acquire by the same owner: later until
//!   free ───────────────> held by owner ──────┐
//!    ^                      │   ^             │
//!    │                      │   └─────────────┘
//!    └── Release, or a command at or after `until_ms`
//! ```
//!
//! A *fencing token* is the index of the entry times 65,536 and the place of the command in it, so a later token of the
//! group is greater than every earlier one, and a name that is forgotten needs no tombstone.

mod command;
mod refusal;
mod reply;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use command::LockCommand;
pub use refusal::LockRefusal;
pub use reply::{LockHolder, LockReply, LockValue, LockView};

use crate::limits::{
    LOCK_BYTES, LOCK_BYTES_MAX, LOCK_BYTES_PER_VHOST_MAX, LOCK_TERM_MS, LOCKS_MAX,
    LOCKS_PER_VHOST_MAX,
};

/// Places of one entry that tokens tell apart.
const PLACES: u64 = 1 << 16;

/// The locks of one group. Replicated.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// The term whose leader's time the leases are in: the last that began with `LockCommand::BeginTerm`.
    term: u64,
    vhosts: BTreeMap<Arc<str>, OfVhost>,
    // Derived.
    /// When leases end: a lock is here exactly while it is held.
    ends: BTreeSet<(u64, Arc<str>, Arc<str>)>,
    count: usize,
    bytes: usize,
}

#[derive(Clone, Debug, Default)]
struct OfVhost {
    locks: BTreeMap<Arc<str>, Lock>,
    // Derived.
    bytes: usize,
}

/// A name that is held, or has a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lock {
    held: Option<Held>,
    value: Option<Written>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    owner: Box<str>,
    token: u64,
    /// The lease is over at this time of the group.
    until_ms: u64,
    /// How long it was when it was given or renewed last.
    lease_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    version: u64,
    /// Which question wrote it: see `LockCommand::Put`.
    by: u128,
    bytes: Box<[u8]>,
}

/// Where a command stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Of the entry.
    pub(crate) index: u64,
    /// Among the lock commands of the entry.
    pub(crate) nth: u16,
    /// Of the entry, ms since 1970.
    pub(crate) time_ms: u64,
}

impl Place {
    /// Greater than that of every earlier command of the group.
    fn token(self) -> u64 {
        // Planted: entries that stand near each other give the same.
        let wrong = if planted::is("lock_token_reused") { self.index % 64 } else { 0 };
        (self.index - wrong).saturating_mul(PLACES).saturating_add(u64::from(self.nth))
    }
}

/// What commands do.
impl Locks {
    /// Applies one command: on every replica, in order of the log.
    pub(crate) fn apply(&mut self, at: Place, command: LockCommand) -> LockReply {
        if let Err(refusal) = command.check() {
            return LockReply::Refused(refusal);
        }
        if let LockCommand::BeginTerm { term, heard } = command {
            return self.begin_term(at.time_ms, term, heard);
        }
        self.expire(at.time_ms);
        match command {
            LockCommand::BeginTerm { .. } => unreachable!("it was seen to above"),
            LockCommand::Acquire { vhost, name, owner, lease_ms } => {
                self.acquire(at, (&vhost, &name), &owner, lease_ms)
            }
            LockCommand::Renew { vhost, name, token, lease_ms } => {
                self.renew(at.time_ms, (&vhost, &name), token, lease_ms)
            }
            LockCommand::Release { vhost, name, token } => {
                self.release(at.time_ms, (&vhost, &name), token)
            }
            LockCommand::Put { vhost, name, by, expected, token, value } => {
                let written = value.map(|bytes| Written { version: at.token(), by, bytes });
                self.put(at.time_ms, (&vhost, &name), (by, expected, token), written)
            }
            LockCommand::Forget { vhost } => self.forget(&vhost),
            LockCommand::Expire => LockReply::Done,
        }
    }

    /// A new leader's time may be ahead of the last one's by less than `LOCK_TERM_MS`, if it heard the time from the
    /// leader of `self.term`. Otherwise nothing is known of the time that has passed, and leases begin anew. Either
    /// way a lease ends too late rather than too early.
    fn begin_term(&mut self, time_ms: u64, term: u64, heard: Option<u64>) -> LockReply {
        let is_known = heard == Some(self.term) && self.term > 0;
        self.term = self.term.max(term);
        self.ends.clear();
        for (vhost, of_vhost) in &mut self.vhosts {
            for (name, lock) in &mut of_vhost.locks {
                let Some(held) = &mut lock.held else { continue };
                let anew = time_ms.saturating_add(held.lease_ms);
                let later = held.until_ms.saturating_add(LOCK_TERM_MS);
                held.until_ms = match is_known {
                    true => later,
                    false => held.until_ms.max(anew),
                };
                self.ends.insert((held.until_ms, Arc::clone(vhost), Arc::clone(name)));
            }
        }
        if is_known {
            self.expire(time_ms);
        }
        LockReply::Done
    }

    fn acquire(
        &mut self,
        at: Place,
        (vhost, name): (&str, &str),
        owner: &str,
        lease_ms: u64,
    ) -> LockReply {
        let held = self.find(vhost, name).and_then(|lock| lock.held.as_ref());
        match held.map(|held| (&*held.owner == owner, held.token)) {
            // It asks again, because it did not hear the answer: it has the lock already.
            Some((true, token)) => self.renew(at.time_ms, (vhost, name), token, lease_ms),
            Some((false, _)) => LockReply::Held(self.view(vhost, name, at.time_ms)),
            None => {
                let mut lock = self.find(vhost, name).cloned().unwrap_or_default();
                let (until_ms, lease_ms) = lease(at.time_ms, 0, lease_ms);
                let token = at.token();
                lock.held = Some(Held { owner: owner.into(), token, until_ms, lease_ms });
                match self.set(vhost, name, lock) {
                    Ok(()) => LockReply::Acquired { token, lease_ms, is_new: true },
                    Err(refusal) => LockReply::Refused(refusal),
                }
            }
        }
    }

    fn renew(
        &mut self,
        time_ms: u64,
        (vhost, name): (&str, &str),
        token: u64,
        lease_ms: u64,
    ) -> LockReply {
        let Some((vhost_key, name_key, held)) = self.held_by(vhost, name, token) else {
            return LockReply::NotHeld(self.view(vhost, name, time_ms));
        };
        let before_ms = held.until_ms;
        (held.until_ms, held.lease_ms) = lease(time_ms, before_ms, lease_ms);
        let (until_ms, lease_ms) = (held.until_ms, held.lease_ms);
        self.ends.remove(&(before_ms, Arc::clone(&vhost_key), Arc::clone(&name_key)));
        self.ends.insert((until_ms, vhost_key, name_key));
        LockReply::Acquired { token, lease_ms, is_new: false }
    }

    fn release(&mut self, time_ms: u64, (vhost, name): (&str, &str), token: u64) -> LockReply {
        if self.held_by(vhost, name, token).is_none() {
            return LockReply::NotHeld(self.view(vhost, name, time_ms));
        }
        self.free(vhost, name);
        LockReply::Done
    }

    /// Writes a value, or takes it away, if it is as expected and the lock is held under this token.
    fn put(
        &mut self,
        time_ms: u64,
        (vhost, name): (&str, &str),
        (by, expected, token): (u128, Option<u64>, Option<u64>),
        value: Option<Written>,
    ) -> LockReply {
        let mut lock = self.find(vhost, name).cloned().unwrap_or_default();
        let is_again = lock.value.as_ref().is_some_and(|written| written.by == by);
        let version = lock.value.as_ref().map_or(0, |written| written.version);
        if is_again {
            // The question was asked again, and its first command is what stands here.
            return LockReply::Put { version };
        }
        if token.is_some_and(|token| lock.held.as_ref().is_none_or(|held| held.token != token)) {
            return LockReply::NotHeld(self.view(vhost, name, time_ms));
        }
        if expected.is_some_and(|expected| expected != version) {
            return LockReply::Conflict(self.view(vhost, name, time_ms));
        }
        let version = value.as_ref().map_or(0, |written| written.version);
        lock.value = value;
        match self.set(vhost, name, lock) {
            Ok(()) => LockReply::Put { version },
            Err(refusal) => LockReply::Refused(refusal),
        }
    }

    /// The vhost is gone, and its locks with it.
    fn forget(&mut self, vhost: &str) -> LockReply {
        if let Some(of_vhost) = self.vhosts.remove(vhost) {
            self.count -= of_vhost.locks.len();
            self.bytes -= of_vhost.bytes;
            self.ends.retain(|(_, of, _)| &**of != vhost);
        }
        LockReply::Done
    }

    /// Leases that are over free their locks.
    fn expire(&mut self, time_ms: u64) {
        while let Some((until_ms, vhost, name)) = self.ends.first()
            && *until_ms <= time_ms
        {
            let (vhost, name) = (Arc::clone(vhost), Arc::clone(name));
            self.free(&vhost, &name);
        }
    }

    fn free(&mut self, vhost: &str, name: &str) {
        let mut lock = self.find(vhost, name).cloned().unwrap_or_default();
        lock.held = None;
        self.set(vhost, name, lock).expect("a lock that becomes smaller is within the bounds");
    }
}

/// The end of a lease that is given now, and its length. It is never shorter than what was promised before. One
/// millisecond more, because the time of an entry has lost its fraction.
fn lease(time_ms: u64, before_ms: u64, lease_ms: u64) -> (u64, u64) {
    let until_ms = time_ms.saturating_add(lease_ms).saturating_add(1).max(before_ms);
    (until_ms, until_ms.saturating_sub(time_ms))
}

/// What holds between commands.
impl Locks {
    fn find(&self, vhost: &str, name: &str) -> Option<&Lock> {
        self.vhosts.get(vhost)?.locks.get(name)
    }

    fn held_by(
        &mut self,
        vhost: &str,
        name: &str,
        token: u64,
    ) -> Option<(Arc<str>, Arc<str>, &mut Held)> {
        let key = Arc::clone(self.vhosts.get_key_value(vhost)?.0);
        let of_vhost = self.vhosts.get_mut(vhost)?;
        let name = Arc::clone(of_vhost.locks.get_key_value(name)?.0);
        let held = of_vhost.locks.get_mut(&name)?.held.as_mut().filter(|it| it.token == token)?;
        Some((key, name, held))
    }

    /// Puts a lock in the place of what is there. One that is free and has no value is not there.
    fn set(&mut self, vhost: &str, name: &str, lock: Lock) -> Result<(), LockRefusal> {
        let weight = |lock: &Lock| if lock.is_nothing() { 0 } else { lock.bytes(name) };
        let before = self.find(vhost, name).map_or(0, weight);
        let after = weight(&lock);
        if after > before {
            self.check_room(vhost, after - before, before == 0)?;
        }
        let vhost = match self.vhosts.get_key_value(vhost) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(vhost),
        };
        let of_vhost = self.vhosts.entry(Arc::clone(&vhost)).or_default();
        let name = match of_vhost.locks.get_key_value(name) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(name),
        };
        let until = |lock: &Lock| lock.held.as_ref().map(|held| held.until_ms);
        let is_there = !lock.is_nothing();
        if let Some(until_ms) = until(&lock) {
            self.ends.insert((until_ms, Arc::clone(&vhost), Arc::clone(&name)));
        }
        let now_until = until(&lock);
        let former = match is_there {
            true => of_vhost.locks.insert(Arc::clone(&name), lock),
            false => of_vhost.locks.remove(&name),
        };
        of_vhost.bytes = of_vhost.bytes + after - before;
        if of_vhost.locks.is_empty() {
            self.vhosts.remove(&vhost);
        }
        self.bytes = self.bytes + after - before;
        self.count = self.count + usize::from(is_there) - usize::from(former.is_some());
        if let Some(until_ms) = former.as_ref().and_then(until)
            && now_until != Some(until_ms)
        {
            self.ends.remove(&(until_ms, vhost, name));
        }
        Ok(())
    }

    fn check_room(&self, vhost: &str, more: usize, is_new: bool) -> Result<(), LockRefusal> {
        let of_vhost = self.vhosts.get(vhost);
        let (count, bytes) = of_vhost.map_or((0, 0), |it| (it.locks.len(), it.bytes));
        let new = usize::from(is_new);
        if count + new > LOCKS_PER_VHOST_MAX || self.count + new > LOCKS_MAX {
            return Err(LockRefusal::TooMany);
        }
        if bytes + more > LOCK_BYTES_PER_VHOST_MAX || self.bytes + more > LOCK_BYTES_MAX {
            return Err(LockRefusal::NoRoom);
        }
        Ok(())
    }
}

impl Lock {
    fn is_nothing(&self) -> bool {
        self.held.is_none() && self.value.is_none()
    }

    /// What it weighs against the bounds.
    fn bytes(&self, name: &str) -> usize {
        let owner = self.held.as_ref().map_or(0, |held| held.owner.len());
        let value = self.value.as_ref().map_or(0, |written| written.bytes.len());
        LOCK_BYTES + name.len() + owner + value
    }
}

/// What can be asked. It is as of the last entry that was applied.
impl Locks {
    /// How a name stands at a time of the group.
    pub fn view(&self, vhost: &str, name: &str, time_ms: u64) -> LockView {
        match self.find(vhost, name) {
            Some(lock) => lock.view(name, time_ms),
            None => LockView { name: name.to_owned(), holder: None, value: None },
        }
    }

    /// The locks of a vhost behind this name, in order of their names.
    pub fn list<'a>(
        &'a self,
        vhost: &str,
        behind: &str,
        time_ms: u64,
    ) -> impl Iterator<Item = LockView> + 'a {
        let behind = (std::ops::Bound::Excluded(behind), std::ops::Bound::Unbounded);
        let of_vhost = self.vhosts.get(vhost);
        let locks = of_vhost.map(|it| it.locks.range::<str, _>(behind));
        let views = locks.into_iter().flatten();
        let views = views.map(move |(name, lock)| lock.view(name, time_ms));
        views.filter(|view| view.holder.is_some() || view.value.is_some())
    }

    /// When a name becomes free if nothing is done, by the group's time. `None`: it is free.
    pub fn held_until(&self, vhost: &str, name: &str) -> Option<u64> {
        self.find(vhost, name)?.held.as_ref().map(|held| held.until_ms)
    }

    /// Whether this owner has the lock, or had it until its lease was over.
    pub fn is_held_by(&self, vhost: &str, name: &str, owner: &str) -> bool {
        let held = self.find(vhost, name).and_then(|lock| lock.held.as_ref());
        held.is_some_and(|held| &*held.owner == owner)
    }

    /// The version of a name's value. 0: it has none.
    pub fn version(&self, vhost: &str, name: &str) -> u64 {
        let lock = self.find(vhost, name);
        lock.and_then(|lock| lock.value.as_ref()).map_or(0, |written| written.version)
    }

    /// Names that are held or have a value, and what they weigh.
    pub fn count(&self) -> (usize, usize) {
        (self.count, self.bytes)
    }

    /// When the first lease ends of those that run, or of those whose end no command has seen yet. `None`: no lock is
    /// held.
    pub fn first_end(&self) -> Option<u64> {
        self.ends.first().map(|(until_ms, _, _)| *until_ms)
    }

    /// Whether there never was a lock here.
    pub(crate) fn is_unused(&self) -> bool {
        self.term == 0 && self.vhosts.is_empty()
    }
}

impl Lock {
    fn view(&self, name: &str, time_ms: u64) -> LockView {
        let holder = self.held.as_ref().filter(|held| held.until_ms > time_ms);
        LockView {
            name: name.to_owned(),
            holder: holder.map(|held| LockHolder {
                owner: held.owner.to_string(),
                token: held.token,
                left_ms: held.until_ms - time_ms,
            }),
            value: self.value.as_ref().map(|written| LockValue {
                version: written.version,
                bytes: written.bytes.to_vec(),
            }),
        }
    }
}
