//! What holders of locks were told, held against each other.
//!
//! A holder counts its lease from before it asked, by a clock of its own, so its lease is over before the group thinks
//! so. Whoever gets the lock under a greater token heard that after the lease of every smaller token was over, or given
//! up.

use std::collections::BTreeMap;

use super::LockCounts;
use crate::sim::agenda::Micros;

pub(super) struct Ledger {
    names: Vec<Name>,
    violations: Vec<String>,
    pub(super) counts: LockCounts,
}

#[derive(Default)]
struct Name {
    /// By token.
    holders: BTreeMap<u64, Holder>,
    /// Tokens, and when their holders heard of them.
    heard: Vec<(Micros, u64)>,
    /// The newest version of the value that somebody saw.
    version: u64,
    /// Versions that a value was written over.
    overwritten: BTreeMap<u64, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    client: usize,
    /// When it was first told that it has the lock.
    heard: Micros,
    /// Until when its lease runs, as it counts.
    until: Micros,
    /// It has asked to release the lock, so it uses it no more.
    has_given_up: bool,
}

impl Ledger {
    pub(super) fn new(names: usize) -> Self {
        let names = (0..names).map(|_| Name::default()).collect();
        Self { names, violations: Vec::new(), counts: LockCounts::default() }
    }

    /// A client was told that it holds `name` under `token`: it asked at the first of the times, and its lease runs
    /// until the second.
    pub(super) fn holds(
        &mut self,
        name: usize,
        client: usize,
        token: u64,
        (asked, until): (Micros, Micros),
        now: Micros,
    ) {
        let of = &mut self.names[name];
        let known = of.holders.entry(token);
        let new = Holder { client, heard: now, until, has_given_up: false };
        let is_new = matches!(known, std::collections::btree_map::Entry::Vacant(_));
        let holder = known.or_insert(new);
        if holder.client != client {
            let other = holder.client;
            self.violations.push(format!(
                "lockers {other} and {client} both hold lock {name} under token {token}"
            ));
        }
        if !holder.has_given_up {
            holder.until = holder.until.max(until);
        }
        if is_new {
            // What somebody had heard before this one asked is older.
            let before = of.heard.iter().filter(|(at, _)| *at <= asked).map(|(_, it)| *it).max();
            if let Some(greater) = before.filter(|before| *before > token) {
                self.violations.push(format!(
                    "locker {client} got lock {name} under token {token}, and {greater} was there before it asked"
                ));
            }
            of.heard.push((now, token));
        }
        self.compare(name);
    }

    /// Nobody's lease runs when somebody with a greater token has heard of it.
    fn compare(&mut self, name: usize) {
        let holders: Vec<(u64, Holder)> =
            self.names[name].holders.iter().map(|(token, it)| (*token, *it)).collect();
        for pair in holders.windows(2) {
            let [(smaller, one), (greater, other)] = pair else { continue };
            if one.until > other.heard {
                let (first, second) = (one.client, other.client);
                let left_ms = (one.until - other.heard) / 1000;
                self.violations.push(format!(
                    "locker {second} has lock {name} under token {greater}, and the lease of locker {first} under \
                     {smaller} runs for {left_ms} ms more"
                ));
            }
        }
        self.counts.judged += holders.len().saturating_sub(1) as u64;
        // The newest of them are compared with what is still to come.
        let of = &mut self.names[name];
        while of.holders.len() > 8 {
            of.holders.pop_first();
        }
        let keep_from = of.heard.len().saturating_sub(64);
        of.heard.drain(..keep_from);
    }

    /// The holder asks to release the lock.
    pub(super) fn gives_up(&mut self, name: usize, token: u64, now: Micros) {
        if let Some(holder) = self.names[name].holders.get_mut(&token) {
            holder.until = holder.until.min(now);
            holder.has_given_up = true;
        }
    }

    /// A holder was told that it holds the lock no more.
    pub(super) fn is_lost(&mut self, name: usize, token: u64, now: Micros) {
        let Some(holder) = self.names[name].holders.get(&token) else { return };
        if holder.until > now && !holder.has_given_up {
            let Holder { client, until, .. } = holder;
            let left_ms = (until - now) / 1000;
            self.violations.push(format!(
                "locker {client} lost lock {name} under token {token}, and its lease runs for {left_ms} ms more"
            ));
        }
    }

    /// The newest version that somebody saw.
    pub(super) fn version(&self, name: usize) -> u64 {
        self.names[name].version
    }

    pub(super) fn saw(&mut self, name: usize, version: u64) {
        let of = &mut self.names[name];
        of.version = of.version.max(version);
    }

    /// A value was written over the one of version `expected`.
    pub(super) fn wrote(&mut self, name: usize, expected: u64, version: u64) {
        self.counts.written += 1;
        let of = &mut self.names[name];
        if version <= expected {
            self.violations
                .push(format!("version {version} of {name} was written over {expected}"));
        }
        if let Some(other) = of.overwritten.insert(expected, version) {
            self.violations.push(format!(
                "versions {other} and {version} of {name} were both written over {expected}"
            ));
        }
        of.version = of.version.max(version);
    }

    pub(super) fn violated(&mut self, text: String) {
        self.violations.push(text);
    }

    pub(super) fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(holds: &[(usize, u64, Micros, Micros, Micros)]) -> Vec<String> {
        let mut ledger = Ledger::new(1);
        for (client, token, asked, until, heard) in holds {
            ledger.holds(0, *client, *token, (*asked, *until), *heard);
        }
        ledger.take_violations()
    }

    #[test]
    fn what_holders_are_told_is_held_against_each_other() {
        assert!(judged(&[(1, 10, 0, 100, 5), (2, 20, 50, 150, 101)]).is_empty());
        let early = judged(&[(1, 10, 0, 100, 5), (2, 20, 50, 150, 99)]);
        assert!(early[0].contains("runs for"), "{early:?}");
        // It hears of its own later than the other does.
        let late = judged(&[(2, 20, 50, 150, 60), (1, 10, 0, 100, 90)]);
        assert!(late[0].contains("runs for"), "{late:?}");
        let shared = judged(&[(1, 10, 0, 100, 5), (2, 10, 200, 300, 201)]);
        assert!(shared[0].contains("both hold"), "{shared:?}");
        let back = judged(&[(1, 10, 0, 100, 5), (2, 9, 200, 300, 201)]);
        assert!(back.iter().any(|it| it.contains("was there before")), "{back:?}");
    }

    #[test]
    fn who_releases_a_lock_has_no_lease_any_more() {
        let mut ledger = Ledger::new(1);
        ledger.holds(0, 1, 10, (0, 100), 5);
        ledger.gives_up(0, 10, 50);
        ledger.holds(0, 2, 20, (55, 155), 60);
        assert!(ledger.take_violations().is_empty());
    }

    #[test]
    fn a_version_is_written_over_once() {
        let mut ledger = Ledger::new(1);
        ledger.wrote(0, 0, 5);
        ledger.wrote(0, 5, 9);
        assert!(ledger.take_violations().is_empty());
        ledger.wrote(0, 5, 11);
        assert_eq!(ledger.take_violations().len(), 1);
    }
}
