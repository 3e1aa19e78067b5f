//! What may start as far as its key is concerned: in the order of coming, and together with its group.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::held::HeldId;

/// A thing that waits for a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A job without a key, or whose key limits nothing.
    Job(HeldId),
    /// The first job of a key.
    Key(u64),
}

/// Which to start next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Unit(Unit),
    /// The head of a group's lane.
    Group(u64),
}

/// The waiting units of one pipeline. Every group is either in `next` once, or has a time in `lingering`, or is empty
/// and forgotten.
#[derive(Debug)]
pub(super) struct Ready {
    /// How many go together; 1: groups mean nothing.
    run_jobs_max: usize,
    linger: Duration,
    next: VecDeque<Next>,
    groups: BTreeMap<u64, Group>,
    /// Groups that wait for more jobs, and until when.
    lingering: BTreeSet<(Instant, u64)>,
}

#[derive(Debug)]
struct Group {
    units: VecDeque<Unit>,
    /// Its place in `lingering`; none: it is in `next`.
    lingers_until: Option<Instant>,
}

impl Ready {
    pub(super) fn new(run_jobs_max: usize, linger: Duration) -> Self {
        Self {
            run_jobs_max,
            linger,
            next: VecDeque::new(),
            groups: BTreeMap::new(),
            lingering: BTreeSet::new(),
        }
    }

    /// Other settings, for what comes from now on.
    pub(super) fn change(&mut self, run_jobs_max: usize, linger: Duration) {
        (self.run_jobs_max, self.linger) = (run_jobs_max, linger);
    }

    /// True if nothing can be popped.
    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    /// When the first group has waited long enough for others.
    pub(super) fn lingers_until(&self) -> Option<Instant> {
        self.lingering.first().map(|(until, _)| *until)
    }

    /// Adds a unit behind the others.
    pub(super) fn push(&mut self, unit: Unit, group: Option<u64>, now: Instant) {
        match group.filter(|_| self.run_jobs_max > 1) {
            None => self.next.push_back(Next::Unit(unit)),
            Some(name) => self.push_to(name, unit, now),
        }
    }

    /// Adds a unit before all others: it was started before.
    pub(super) fn push_first(&mut self, unit: Unit) {
        self.next.push_front(Next::Unit(unit));
    }

    fn push_to(&mut self, name: u64, unit: Unit, now: Instant) {
        let until = now + self.linger;
        let is_new = !self.groups.contains_key(&name);
        let group = self
            .groups
            .entry(name)
            .or_insert_with(|| Group { units: VecDeque::new(), lingers_until: Some(until) });
        group.units.push_back(unit);
        let is_full = group.units.len() >= self.run_jobs_max || self.linger.is_zero();
        if is_new && !is_full {
            self.lingering.insert((until, name));
        } else if is_full && let Some(until) = group.lingers_until.take() {
            self.lingering.remove(&(until, name));
            self.next.push_back(Next::Group(name));
        }
    }

    /// Lets go of the groups that have waited long enough.
    pub(super) fn pass_time(&mut self, now: Instant) {
        while let Some(&(until, name)) = self.lingering.first().filter(|(until, _)| *until <= now) {
            self.lingering.remove(&(until, name));
            let group = self.groups.get_mut(&name).expect("what lingers is a group");
            group.lingers_until = None;
            self.next.push_back(Next::Group(name));
        }
    }

    /// The next unit, and the group that goes with it. The group is given back with [`Ready::close`].
    pub(super) fn pop(&mut self) -> Option<(Unit, Option<u64>)> {
        match self.next.pop_front()? {
            Next::Unit(unit) => Some((unit, None)),
            Next::Group(name) => {
                let unit = self.pop_same(name).expect("a group that is next has a unit");
                Some((unit, Some(name)))
            }
        }
    }

    /// Another unit of a group.
    pub(super) fn pop_same(&mut self, name: u64) -> Option<Unit> {
        self.groups.get_mut(&name)?.units.pop_front()
    }

    /// The group has given what its run takes: it goes behind the others, or is forgotten.
    pub(super) fn close(&mut self, name: u64, now: Instant) {
        let Some(group) = self.groups.get_mut(&name) else { return };
        if group.units.is_empty() {
            self.groups.remove(&name);
        } else if group.units.len() >= self.run_jobs_max || self.linger.is_zero() {
            self.next.push_back(Next::Group(name));
        } else {
            let until = now + self.linger;
            group.lingers_until = Some(until);
            self.lingering.insert((until, name));
        }
    }

    /// Forgets the units that `keep` does not want.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(Unit) -> bool) {
        self.groups.values_mut().for_each(|group| group.units.retain(|unit| keep(*unit)));
        let empty: Vec<u64> = self
            .groups
            .iter()
            .filter(|(_, group)| group.units.is_empty())
            .map(|(name, _)| *name)
            .collect();
        for name in empty {
            let group = self.groups.remove(&name).expect("it was just seen");
            if let Some(until) = group.lingers_until {
                self.lingering.remove(&(until, name));
            }
        }
        let groups = &self.groups;
        self.next.retain(|next| match next {
            Next::Unit(unit) => keep(*unit),
            Next::Group(name) => groups.contains_key(name),
        });
    }
}
