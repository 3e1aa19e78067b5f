//! Which password is checked next, and what need not be checked at all.
//!
//! A check costs tens of milliseconds and 19 MiB by design, so few run at once (`io::credentials` runs them).
//! Three things keep a storm of logins from taking the node, or from keeping others out:
//!
//! - What was found right is known until the stored hash changes, what was found wrong for some seconds, and the
//!   same credentials are checked once, however many wait for that.
//! - Whoever waits gets turns by address and user, not by who came first: one address cannot keep others waiting.
//! - An address that has many wrong ones has few checked per second from then on.
//!
//! Nobody is refused because too many wait: who cannot wait is closed without a verdict by the handshake's limit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Bound;
use std::time::Duration;

use crate::limits;
use crate::pace::Pace;

/// A keyed hash of user, password and what is stored for the user.
pub(crate) type Fingerprint = [u8; 32];

/// What counts as one address: an IPv4 address, or the /64 of an IPv6 one, which is what one subscriber gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address(IpAddr);

impl Address {
    pub(crate) fn of(peer: IpAddr) -> Self {
        match peer.to_canonical() {
            IpAddr::V6(peer) => {
                let network = u128::from(peer) >> 64 << 64;
                Self(IpAddr::V6(Ipv6Addr::from(network)))
            }
            peer @ IpAddr::V4(_) => Self(peer),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

/// Who waits for a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Waiter(u64);

/// What turns are given by. Users that do not exist are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    pub(crate) address: Address,
    pub(crate) user: Option<String>,
}

/// One password and what it is held against.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) password: Vec<u8>,
    /// None: nobody can be right, and the check is to take as long all the same.
    pub(crate) stored: Option<String>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Check(<hidden>)")
    }
}

/// The answer to [`Logins::ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Known(bool),
    /// [`Logins::checked`] names it.
    Wait(Waiter),
}

/// The answer to [`Logins::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// To be checked now, and told with [`Logins::checked`].
    Check(Fingerprint, Check),
    /// Nothing before then: all that wait come from addresses with too many wrong ones.
    At(Duration),
    Nothing,
}

/// Credentials whose check is due or runs.
#[derive(Debug)]
struct Pending {
    line: Line,
    /// Taken when it runs.
    check: Option<Check>,
    waiters: Vec<Waiter>,
}

/// The logins of a node whose passwords are being checked.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    right: Right,
    wrong: Wrong,
    pending: BTreeMap<Fingerprint, Pending>,
    /// What is due, by line; no line is empty.
    lines: BTreeMap<Line, VecDeque<Fingerprint>>,
    /// Whose turn was last.
    served: Option<Line>,
    paces: BTreeMap<Address, Pace>,
    waiters: u64,
}

impl Logins {
    pub(crate) fn ask(
        &mut self,
        now: Duration,
        fingerprint: Fingerprint,
        line: Line,
        check: Check,
    ) -> Asked {
        if check.stored.is_some() && self.right.contains(&fingerprint) {
            return Asked::Known(true);
        }
        if self.wrong.contains(now, &fingerprint) {
            return Asked::Known(false);
        }
        self.waiters += 1;
        let waiter = Waiter(self.waiters);
        match self.pending.get_mut(&fingerprint) {
            Some(pending) => pending.waiters.push(waiter),
            None => {
                self.lines.entry(line.clone()).or_default().push_back(fingerprint);
                let pending = Pending { line, check: Some(check), waiters: vec![waiter] };
                self.pending.insert(fingerprint, pending);
            }
        }
        Asked::Wait(waiter)
    }

    /// Whoever waited has gone. What nobody waits for is not checked.
    pub(crate) fn leave(&mut self, fingerprint: &Fingerprint, waiter: Waiter) {
        let Some(pending) = self.pending.get_mut(fingerprint) else { return };
        pending.waiters.retain(|other| *other != waiter);
        if !pending.waiters.is_empty() || pending.check.is_none() {
            return;
        }
        let line = pending.line.clone();
        self.pending.remove(fingerprint);
        if let Some(due) = self.lines.get_mut(&line) {
            due.retain(|other| other != fingerprint);
            if due.is_empty() {
                self.lines.remove(&line);
            }
        }
    }

    /// Takes the next one, a line after the other.
    pub(crate) fn next(&mut self, now: Duration) -> Next {
        let Some(line) = self.next_line(now) else {
            let waits = self.lines.keys().map(|line| line.address);
            let waits = waits.filter_map(|at| Some(self.paces.get(&at)?.clone().wait(now)));
            return waits.min().map_or(Next::Nothing, |wait| Next::At(now + wait));
        };
        let due = self.lines.get_mut(&line).expect("the line was just found");
        let fingerprint = due.pop_front().expect("no line is empty");
        if due.is_empty() {
            self.lines.remove(&line);
        }
        self.served = Some(line);
        let pending = self.pending.get_mut(&fingerprint).expect("what is due is pending");
        let check = pending.check.take().expect("what is due does not run");
        Next::Check(fingerprint, check)
    }

    fn next_line(&mut self, now: Duration) -> Option<Line> {
        let after = self.served.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.lines.range((after, Bound::Unbounded)).map(|(line, _)| line);
        let mut lines = behind.chain(self.lines.keys());
        lines.find(|line| !is_slow(&self.paces, line.address, now)).cloned()
    }

    /// The verdict on what [`Logins::next`] gave out, and who waits for it.
    pub(crate) fn checked(
        &mut self,
        now: Duration,
        fingerprint: Fingerprint,
        is_right: bool,
    ) -> Vec<Waiter> {
        let Some(pending) = self.pending.remove(&fingerprint) else { return Vec::new() };
        if is_right {
            self.right.insert(fingerprint);
        } else {
            self.wrong.insert(now, fingerprint);
            self.count_wrong(now, pending.line.address);
        }
        pending.waiters
    }

    /// A login of an address was refused.
    pub(crate) fn count_wrong(&mut self, now: Duration, address: Address) {
        if self.paces.len() >= limits::LOGIN_ADDRESSES_MAX && !self.paces.contains_key(&address) {
            self.paces.retain(|_, pace| !pace.is_rested(now));
            if self.paces.len() >= limits::LOGIN_ADDRESSES_MAX {
                // So many attack at once that no address stands out.
                self.paces.clear();
            }
        }
        let (rate, burst) = (limits::WRONG_LOGINS_PER_SECOND, limits::WRONG_LOGINS_AT_ONCE);
        let pace = self.paces.entry(address).or_insert_with(|| Pace::new(rate, burst, now));
        pace.take(now);
    }

    /// How long the next login of an address waits.
    pub(crate) fn wait(&self, address: Address, now: Duration) -> Duration {
        self.paces.get(&address).map_or(Duration::ZERO, |pace| pace.clone().wait(now))
    }

    /// Whether an address has had too many wrong ones lately.
    pub(crate) fn is_slow(&self, address: Address, now: Duration) -> bool {
        is_slow(&self.paces, address, now)
    }
}

fn is_slow(paces: &BTreeMap<Address, Pace>, address: Address, now: Duration) -> bool {
    paces.get(&address).is_some_and(|pace| pace.clone().wait(now) > Duration::ZERO)
}

/// Credentials known to be right. When half the room is filled, what nobody has used since the last time goes.
#[derive(Debug, Default)]
struct Right {
    fresh: BTreeSet<Fingerprint>,
    old: BTreeSet<Fingerprint>,
}

impl Right {
    fn contains(&mut self, fingerprint: &Fingerprint) -> bool {
        if self.fresh.contains(fingerprint) {
            return true;
        }
        let is_old = self.old.remove(fingerprint);
        if is_old {
            self.insert(*fingerprint);
        }
        is_old
    }

    fn insert(&mut self, fingerprint: Fingerprint) {
        if self.fresh.len() >= limits::VERIFIED_CREDENTIALS_MAX / 2 {
            self.old = std::mem::take(&mut self.fresh);
        }
        self.fresh.insert(fingerprint);
    }
}

/// Credentials found wrong a moment ago, until when.
#[derive(Debug, Default)]
struct Wrong {
    until: VecDeque<(Duration, Fingerprint)>,
    known: BTreeSet<Fingerprint>,
}

impl Wrong {
    fn contains(&mut self, now: Duration, fingerprint: &Fingerprint) -> bool {
        while self.until.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_oldest();
        }
        self.known.contains(fingerprint)
    }

    fn insert(&mut self, now: Duration, fingerprint: Fingerprint) {
        if !self.known.insert(fingerprint) {
            return;
        }
        self.until.push_back((now + limits::WRONG_LOGIN_KNOWN, fingerprint));
        if self.until.len() > limits::WRONG_CREDENTIALS_MAX {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, oldest)) = self.until.pop_front() {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
