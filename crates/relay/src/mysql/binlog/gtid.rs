//! MariaDB's global transaction ids: `domain-server-sequence`. A state is the last of each domain.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use crate::lsn::Lsn;

/// Domains that are believed: more than anybody has.
const DOMAINS_MAX: usize = 1000;

/// One transaction's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gtid {
    pub(crate) domain: u32,
    pub(crate) server: u32,
    pub(crate) sequence: u64,
}

impl Gtid {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().splitn(3, '-');
        let (domain, server) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { domain, server, sequence: parts.next()?.parse().ok()? })
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}-{}", self.domain, self.server, self.sequence)
    }
}

/// The state behind the last transaction that is done, and what of it is still to come.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    last: BTreeMap<u32, Gtid>,
    /// Transactions that have arrived: where each ends.
    arrived: VecDeque<(Lsn, Gtid)>,
}

impl State {
    /// Reads `0-1-5,1-2-7`. None: it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut last = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let gtid = Gtid::parse(part)?;
            last.insert(gtid.domain, gtid);
        }
        (last.len() <= DOMAINS_MAX).then_some(Self { last, arrived: VecDeque::new() })
    }

    /// A transaction has arrived; it ends before `end`.
    pub(crate) fn arrived(&mut self, end: Lsn, gtid: Gtid) {
        // Of one domain in a row only the last matters once it is done, but each may be where the relay stops.
        self.arrived.push_back((end, gtid));
    }

    /// Everything before `confirmed` is done.
    pub(crate) fn advance(&mut self, confirmed: Lsn) {
        while let Some((_, gtid)) = self.arrived.pop_front_if(|(end, _)| *end <= confirmed) {
            if self.last.len() < DOMAINS_MAX || self.last.contains_key(&gtid.domain) {
                self.last.insert(gtid.domain, gtid);
            }
        }
    }
}

impl PartialEq for State {
    /// What is done is the same.
    fn eq(&self, other: &Self) -> bool {
        self.last == other.last
    }
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, gtid) in self.last.values().enumerate() {
            write!(out, "{}{gtid}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_holds_the_last_of_each_domain_that_is_done() {
        let mut state = State::parse("7-1-3, 0-1-5").expect("it is one");
        for (end, sequence) in [(10, 6), (20, 7), (30, 8)] {
            state.arrived(Lsn(end), Gtid { domain: 0, server: 2, sequence });
        }
        assert_eq!(state.to_string(), "0-1-5,7-1-3");
        state.advance(Lsn(29));
        assert_eq!(state.to_string(), "0-2-7,7-1-3");
        state.advance(Lsn(30));
        assert_eq!(state.to_string(), "0-2-8,7-1-3");
    }

    #[test]
    fn what_is_no_state_is_refused() {
        assert_eq!(State::parse("").map(|state| state.to_string()).as_deref(), Some(""));
        for text in ["0-1", "0-1-x", "x", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"] {
            assert!(State::parse(text).is_none(), "{text}");
        }
    }
}
