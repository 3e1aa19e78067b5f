//! Clients that acquire, renew and release locks, and write values beside them. What they are told is judged as it comes
//! (`ledger`): a lock has no end that could be looked at.

mod ledger;

use cluster::{Answer, LockQuestion, LockResult, LockSpec, Request, Ticket};
use machine::{LockCommand, LockReply, SessionId, Version};

use super::{Home, Outside};
use crate::history::What;
use crate::sim::agenda::Micros;
use crate::sim::{Diary, VHOST};
use crate::workload::Chance;
use ledger::Ledger;

/// So few that they are fought for.
const NAMES: [&str; 3] = ["job", "report", "migration"];
const CLIENTS: usize = 6;
/// A question that is not answered after so long, besides its wait, is given up with its connection.
const TIMEOUT: Micros = 20_000_000;

/// What was done how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockCounts {
    pub acquired: u64,
    pub renewed: u64,
    pub released: u64,
    /// Times that another had the lock.
    pub held: u64,
    /// Times that a holder was told that it is none.
    pub lost: u64,
    pub written: u64,
    /// Pairs of holders whose leases were compared.
    pub judged: u64,
}

impl std::ops::AddAssign for LockCounts {
    fn add_assign(&mut self, other: Self) {
        self.acquired += other.acquired;
        self.renewed += other.renewed;
        self.released += other.released;
        self.held += other.held;
        self.lost += other.lost;
        self.written += other.written;
        self.judged += other.judged;
    }
}

pub(super) struct Locks {
    chance: Chance,
    clients: Vec<Client>,
    ledger: Ledger,
    /// Numbers of writes.
    writes: u128,
}

/// Somebody who wants locks, one at a time.
struct Client {
    number: usize,
    home: Option<Home>,
    /// Counts its questions: an answer of an older one is for nobody.
    ticket: u64,
    asked: Option<Asked>,
    holds: Option<Holds>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    name: usize,
    what: Asks,
    at: Micros,
    wait_ms: u32,
}

#[derive(Clone, Copy, Debug)]
enum Asks {
    Acquire { lease_ms: u64 },
    Renew { token: u64, lease_ms: u64 },
    Release,
    Read { version: u64 },
    Put { expected: u64 },
}

/// A lock that it has, as it believes.
#[derive(Clone, Copy, Debug)]
struct Holds {
    name: usize,
    token: u64,
}

impl Locks {
    pub(super) fn new(seed: u64) -> Self {
        let client = |number| Client { number, home: None, ticket: 0, asked: None, holds: None };
        Self {
            chance: Chance::named(seed, "locks"),
            clients: (0..CLIENTS).map(client).collect(),
            ledger: Ledger::new(NAMES.len()),
            writes: 0,
        }
    }

    pub(super) fn actors(&self) -> usize {
        self.clients.len()
    }

    /// One of them has its turn. `is_steady`: nobody leaves of his own will.
    pub(super) fn act(
        &mut self,
        number: usize,
        is_steady: bool,
        is_draining: bool,
        outside: &mut Outside<'_>,
    ) {
        let client = &mut self.clients[number];
        let Some(home) = client.home else {
            client.home = outside.connect();
            return;
        };
        if let Some(asked) = client.asked {
            let patience = TIMEOUT + Micros::from(asked.wait_ms) * 1000;
            let leaves = !is_steady && self.chance.within(0, 150) == 0;
            if outside.now - asked.at > patience || leaves {
                // What it asked may be done, and it does not hear of it.
                outside.leave(home);
                client.home = None;
                client.asked = None;
            }
            return;
        }
        let life = outside.nodes[home.node].life.as_ref();
        let Some(catalog) = life.map(|life| &life.catalog) else { return };
        if is_draining || catalog.agreed() < Version::LOCKS || self.chance.percent(30) {
            return;
        }
        let asked = client.next(&mut self.chance, &self.ledger, outside.now);
        let name = NAMES[asked.name].to_owned();
        let group = catalog.lock_group(VHOST, &name);
        if let Asks::Release = asked.what
            && let Some(Holds { token, .. }) = client.holds
        {
            self.ledger.gives_up(asked.name, token, outside.now);
        }
        let what = question(&asked, client, name, &mut self.writes);
        if let Asks::Release = asked.what {
            client.holds = None;
        }
        client.ticket += 1;
        client.asked = Some(asked);
        let ticket = Ticket(client.ticket);
        let spec = Box::new(LockSpec { what, wait_ms: asked.wait_ms, is_again: false });
        outside.ask(home, vec![Request::Lock { ticket, group, spec }]);
    }

    pub(super) fn answered(
        &mut self,
        session: SessionId,
        life: u64,
        answer: Answer,
        outside: &mut Outside<'_>,
    ) {
        let found = self.clients.iter_mut().find(|client| client.is_at(session, life));
        let Some(client) = found else { return };
        match answer {
            Answer::Locked { ticket: Ticket(ticket), result } if ticket == client.ticket => {
                let Some(asked) = client.asked.take() else {
                    let text = format!("locker {} is answered twice", client.number);
                    return outside.diary.saw("locks", What::Protocol { text });
                };
                client.hears(asked, result, &mut self.ledger, outside.now);
            }
            // What was asked may be done, or not.
            Answer::AppendFailed { .. } => client.asked = None,
            Answer::Alarms(_) | Answer::Stopping => {}
            other => {
                let text = format!("locker {} was told {other:?}", client.number);
                outside.diary.saw("locks", What::Protocol { text });
            }
        }
        self.tell(outside.diary);
    }

    pub(super) fn is_session(&self, session: SessionId, life: u64) -> bool {
        self.clients.iter().any(|client| client.is_at(session, life))
    }

    /// What it holds it holds all the same.
    pub(super) fn disconnected(&mut self, node: usize) {
        for client in &mut self.clients {
            if client.home.is_some_and(|home| home.node == node) {
                client.home = None;
                client.asked = None;
            }
        }
    }

    /// Whether nobody waits for an answer.
    pub(super) fn is_quiet(&self) -> bool {
        self.clients.iter().all(|client| client.asked.is_none())
    }

    /// At the end: who waits for an answer.
    pub(super) fn complain(&self, diary: &mut Diary) {
        for Client { number, asked, home, .. } in &self.clients {
            if let Some(asked) = asked {
                let text = format!("locker {number} stalls at {home:?}: {asked:?}");
                diary.saw("locks", What::Protocol { text });
            }
        }
    }

    fn tell(&mut self, diary: &mut Diary) {
        for text in self.ledger.take_violations() {
            diary.saw("locks", What::Protocol { text });
        }
    }

    pub(super) fn counts(&self) -> LockCounts {
        self.ledger.counts
    }
}

impl Client {
    fn is_at(&self, session: SessionId, life: u64) -> bool {
        self.home.is_some_and(|home| home.session == session && home.life == life)
    }

    /// What it asks next.
    fn next(&self, chance: &mut Chance, ledger: &Ledger, now: Micros) -> Asked {
        let lease_ms = chance.within(1_000, 4_000);
        let drawn = chance.within(0, NAMES.len() as u64) as usize;
        let mut wait_ms = 0;
        let (name, what) = match (self.holds, chance.within(0, 10)) {
            (Some(Holds { name, token }), 0..5) => (name, Asks::Renew { token, lease_ms }),
            (Some(Holds { name, .. }), 5..8) => (name, Asks::Release),
            // As if it had not heard that it has the lock.
            (Some(Holds { name, .. }), 8) => (name, Asks::Acquire { lease_ms }),
            (None, 0..7) => {
                if chance.percent(60) {
                    wait_ms = chance.within(100, 5_000) as u32;
                }
                (drawn, Asks::Acquire { lease_ms })
            }
            (_, 9) => {
                if chance.percent(50) {
                    wait_ms = chance.within(100, 2_000) as u32;
                }
                (drawn, Asks::Read { version: ledger.version(drawn) })
            }
            (Some(_) | None, _) => (drawn, Asks::Put { expected: ledger.version(drawn) }),
        };
        Asked { name, what, at: now, wait_ms }
    }

    fn hears(&mut self, asked: Asked, result: LockResult, ledger: &mut Ledger, now: Micros) {
        let Asked { name, what, at, .. } = asked;
        let reply = match result {
            Ok(reply) => *reply,
            // It may be done, or not.
            Err(_) => return,
        };
        match (what, reply) {
            (
                Asks::Acquire { lease_ms } | Asks::Renew { lease_ms, .. },
                LockReply::Acquired { token, lease_ms: given_ms, is_new },
            ) => {
                if let Asks::Renew { token: asked, .. } = what
                    && (asked != token || is_new)
                {
                    let number = self.number;
                    ledger.violated(format!("locker {number} renewed {asked}, and got {token}"));
                }
                if given_ms < lease_ms {
                    ledger.violated(format!("a lease of {lease_ms} ms became one of {given_ms}"));
                }
                match what {
                    Asks::Acquire { .. } => ledger.counts.acquired += u64::from(is_new),
                    _ => ledger.counts.renewed += 1,
                }
                // Counted from before it asked, also if it waited: then it may be over already.
                let until = at + lease_ms * 1000;
                ledger.holds(name, self.number, token, (at, until), now);
                self.holds = Some(Holds { name, token });
            }
            (Asks::Acquire { .. }, LockReply::Held(_)) => ledger.counts.held += 1,
            (Asks::Renew { token, .. }, LockReply::NotHeld(view)) => {
                ledger.counts.lost += 1;
                ledger.is_lost(name, token, now);
                self.holds = None;
                if view.holder.is_some_and(|holder| holder.token == token) {
                    ledger.violated(format!("token {token} is said to be held, and not to be"));
                }
            }
            (Asks::Release, LockReply::Done | LockReply::NotHeld(_)) => ledger.counts.released += 1,
            (Asks::Put { expected }, LockReply::Put { version }) => {
                ledger.wrote(name, expected, version);
            }
            (Asks::Put { .. }, LockReply::Conflict(view)) => {
                ledger.saw(name, view.value.map_or(0, |value| value.version));
            }
            (Asks::Read { .. }, LockReply::Is(view)) => {
                ledger.saw(name, view.value.map_or(0, |value| value.version));
            }
            (what, reply) => {
                let number = self.number;
                ledger.violated(format!("locker {number} asked {what:?} and was told {reply:?}"));
            }
        }
    }
}

fn question(asked: &Asked, client: &Client, name: String, writes: &mut u128) -> LockQuestion {
    let vhost = VHOST.to_owned();
    LockQuestion::Do(match asked.what {
        Asks::Acquire { lease_ms } => {
            let owner = format!("locker-{}", client.number);
            LockCommand::Acquire { vhost, name, owner, lease_ms }
        }
        Asks::Renew { token, lease_ms } => LockCommand::Renew { vhost, name, token, lease_ms },
        Asks::Release => {
            let token = client.holds.map_or(0, |holds| holds.token);
            LockCommand::Release { vhost, name, token }
        }
        Asks::Put { expected } => {
            *writes += 1;
            let (by, value) = (*writes, Some(writes.to_le_bytes().into()));
            LockCommand::Put { vhost, name, by, expected: Some(expected), token: None, value }
        }
        Asks::Read { version } => {
            let unlike = Some(version).filter(|_| asked.wait_ms > 0);
            return LockQuestion::Read { vhost, name, unlike };
        }
    })
}
