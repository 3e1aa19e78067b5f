//! Which push goes over which connection, and when one is opened, asked whether it is there, or closed. A core: it
//! is told the time, chance and what happens, and says what is to be done.
//!
//! ```text
//!            wanted            opened
//!   Closed ─────────> Opening ────────> Open
//!     ^ ^                │ failed         │ going away, lost, silent, idle
//!     │ └─── Resting <───┘                │
//!     └───────────────────────────────────┘
//! ```
//!
//! After APNs refuses a device token, it takes one push at a time on that connection until one is accepted (it lowers
//! MAX_CONCURRENT_STREAMS to 1). So pushes to suspected tokens have a connection of their own, the quarantine, and
//! while another connection is throttled like this, tokens that are known to be good go first there, because they
//! end the throttling, and unknown ones may use the quarantine.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use super::device_tokens::Trust;

/// Shortest rest after a connection failed, before chance.
const REST_MIN: Duration = Duration::from_millis(250);
/// Longest rest after connections failed.
const REST_MAX: Duration = Duration::from_secs(30);

/// How connections are kept.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Connections beside the quarantine, at least 1.
    pub connections: usize,
    pub ping_after: Duration,
    pub ping_timeout: Duration,
    pub idle_close: Duration,
}

/// One connection: its slot, and which of the slot's connections it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub slot: usize,
    pub epoch: u64,
}

/// A push that waits for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// How a push ended on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Accepted,
    /// APNs refused the device token: this throttles the connection.
    TokenRefused,
    /// Any other answer.
    Answered,
    /// No answer.
    Unanswered,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Open the connection; answered with `opened` or `failed`.
    Open(Place),
    /// The waiting push goes over this connection now.
    Grant { ticket: Ticket, place: Place },
    /// No connection can be had: the waiting push is given up, for at least so long.
    Refuse { ticket: Ticket, after: Duration },
}

/// What a connection is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Nothing before then.
    Sleep { until: Instant },
    /// Send a ping; answered with `pong`.
    Ping { until: Instant },
    /// It has carried nothing for long.
    CloseIdle,
    /// It did not answer a ping: what is on it has an unknown outcome.
    CloseSilent,
    /// Another connection has taken its place: end when what is on it has ended.
    Leave,
}

#[derive(Debug)]
struct Open {
    /// The peer's MAX_CONCURRENT_STREAMS.
    limit: usize,
    /// The highest it has been.
    limit_seen_max: usize,
    in_flight: usize,
    /// A device token was refused, and nothing was accepted since.
    is_soiled: bool,
    heard_at: Instant,
    used_at: Instant,
    pinged_at: Option<Instant>,
}

impl Open {
    fn has_room(&self) -> bool {
        self.in_flight < self.limit
    }

    fn is_throttled(&self) -> bool {
        self.limit <= 1 && (self.limit_seen_max > 1 || self.is_soiled)
    }
}

#[derive(Debug)]
enum State {
    Closed,
    Resting { until: Instant },
    Opening,
    Open(Open),
}

#[derive(Debug)]
struct Slot {
    state: State,
    epoch: u64,
    /// Connections in a row that never carried an answer.
    failures: u32,
}

impl Slot {
    fn open(&self) -> Option<&Open> {
        match &self.state {
            State::Open(open) => Some(open),
            State::Closed | State::Resting { .. } | State::Opening => None,
        }
    }
}

/// All connections of one target.
#[derive(Debug)]
pub struct Connections {
    settings: Settings,
    /// The last one is the quarantine.
    slots: Vec<Slot>,
    /// Waiting pushes, by trust.
    waiting: [VecDeque<Ticket>; 3],
}

impl Connections {
    pub fn new(settings: Settings) -> Self {
        let slot = || Slot { state: State::Closed, epoch: 0, failures: 0 };
        let slots = (0..settings.connections.max(1) + 1).map(|_| slot()).collect();
        Self { settings, slots, waiting: Default::default() }
    }

    /// A push wants a connection: it has one, or it waits under its ticket.
    pub fn ask(
        &mut self,
        ticket: Ticket,
        trust: Trust,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Option<Place> {
        let is_first = self.waiting[trust as usize].is_empty();
        let place = if is_first { self.choose(trust) } else { None };
        match place {
            Some(slot) => {
                let place = self.take(slot, now);
                self.open_ahead(trust, effects);
                Some(place)
            }
            None => {
                self.waiting[trust as usize].push_back(ticket);
                self.open_wanted(now, effects);
                None
            }
        }
    }

    /// A waiting push has gone. False: it was granted before.
    pub fn withdraw(&mut self, ticket: Ticket) -> bool {
        for queue in &mut self.waiting {
            if let Some(index) = queue.iter().position(|waiting| *waiting == ticket) {
                queue.remove(index);
                return true;
            }
        }
        false
    }

    /// A push has ended on its connection.
    pub fn finished(
        &mut self,
        place: Place,
        ending: Ending,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(slot) = self.slot(place)
            && let State::Open(open) = &mut slot.state
        {
            assert!(open.in_flight > 0, "a push ends once");
            open.in_flight -= 1;
            match ending {
                Ending::Accepted => open.is_soiled = false,
                Ending::TokenRefused => open.is_soiled = true,
                Ending::Answered | Ending::Unanswered => {}
            }
            if ending != Ending::Unanswered {
                open.heard_at = now;
                slot.failures = 0;
            }
        }
        self.serve(now, effects);
    }

    /// A connection is there.
    pub fn opened(&mut self, place: Place, limit: usize, now: Instant, effects: &mut Vec<Effect>) {
        let Some(slot) = self.slot(place) else { return };
        slot.state = State::Open(Open {
            limit,
            limit_seen_max: limit,
            in_flight: 0,
            is_soiled: false,
            heard_at: now,
            used_at: now,
            pinged_at: None,
        });
        self.serve(now, effects);
    }

    /// The peer's MAX_CONCURRENT_STREAMS is another.
    pub fn limited(&mut self, place: Place, limit: usize, now: Instant, effects: &mut Vec<Effect>) {
        if let Some(Slot { state: State::Open(open), .. }) = self.slot(place) {
            open.limit = limit;
            open.limit_seen_max = open.limit_seen_max.max(limit);
            open.heard_at = now;
        }
        self.serve(now, effects);
    }

    /// A connection could not be had. Those that wait for one of its kind, with none other there, are refused.
    /// Returns when [`tick`](Self::tick) is due.
    pub fn failed(
        &mut self,
        place: Place,
        now: Instant,
        chance: u64,
        effects: &mut Vec<Effect>,
    ) -> Option<Instant> {
        let quarantine = self.quarantine();
        let until = self.rest(place, now, chance)?;
        let is_quarantine = place.slot == quarantine;
        let kinds: &[Trust] =
            if is_quarantine { &[Trust::Suspect] } else { &[Trust::Good, Trust::Unknown] };
        let is_any_open = !is_quarantine && self.mains().any(|slot| slot.open().is_some());
        if !is_any_open {
            for kind in kinds {
                let refused = self.waiting[*kind as usize].drain(..);
                effects.extend(refused.map(|ticket| Effect::Refuse { ticket, after: until - now }));
            }
        }
        Some(until)
    }

    /// APNs said that it closes a connection: nothing new goes over it. What is on it may still end.
    pub fn going_away(&mut self, place: Place, now: Instant, effects: &mut Vec<Effect>) {
        self.leave(place);
        self.open_wanted(now, effects);
        self.serve(now, effects);
    }

    /// A connection has ended. Returns when [`tick`](Self::tick) is due, if it is.
    pub fn lost(
        &mut self,
        place: Place,
        now: Instant,
        chance: u64,
        effects: &mut Vec<Effect>,
    ) -> Option<Instant> {
        let slot = self.slot(place)?;
        slot.failures += 1;
        // One that has carried answers is opened again at once.
        if slot.failures > 1 {
            slot.failures -= 1;
            return self.rest(place, now, chance);
        }
        self.leave(place);
        self.open_wanted(now, effects);
        None
    }

    /// A rest is over.
    pub fn tick(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        for slot in &mut self.slots {
            if let State::Resting { until } = slot.state
                && until <= now
            {
                slot.state = State::Closed;
            }
        }
        self.open_wanted(now, effects);
    }

    /// What an open connection is to do now.
    pub fn check(&mut self, place: Place, now: Instant) -> Check {
        let Settings { ping_after, ping_timeout, idle_close, .. } = self.settings;
        let Some(Slot { state: State::Open(open), .. }) = self.slot(place) else {
            return Check::Leave;
        };
        let idle_at = open.used_at + idle_close;
        if let Some(pinged_at) = open.pinged_at {
            let until = pinged_at + ping_timeout;
            if until > now {
                return Check::Sleep { until };
            }
            self.leave(place);
            return Check::CloseSilent;
        }
        if open.in_flight == 0 && idle_at <= now {
            self.leave(place);
            return Check::CloseIdle;
        }
        let ping_at = open.heard_at + ping_after;
        if ping_at <= now {
            open.pinged_at = Some(now);
            return Check::Ping { until: now + ping_timeout };
        }
        let until = if open.in_flight == 0 { ping_at.min(idle_at) } else { ping_at };
        Check::Sleep { until }
    }

    /// A connection answered a ping.
    pub fn pong(&mut self, place: Place, now: Instant) {
        if let Some(Slot { state: State::Open(open), failures, .. }) = self.slot(place) {
            open.pinged_at = None;
            open.heard_at = now;
            *failures = 0;
        }
    }

    fn quarantine(&self) -> usize {
        self.slots.len() - 1
    }

    fn mains(&self) -> impl Iterator<Item = &Slot> {
        self.slots[..self.quarantine()].iter()
    }

    /// The slot, unless its connection is another by now.
    fn slot(&mut self, place: Place) -> Option<&mut Slot> {
        self.slots.get_mut(place.slot).filter(|slot| slot.epoch == place.epoch)
    }

    fn leave(&mut self, place: Place) {
        if let Some(slot) = self.slot(place) {
            slot.state = State::Closed;
            slot.epoch += 1;
        }
    }

    /// After a failure: half of the time that doubles with each, and chance for the other half.
    fn rest(&mut self, place: Place, now: Instant, chance: u64) -> Option<Instant> {
        let slot = self.slot(place)?;
        let longest = REST_MIN.saturating_mul(1 << slot.failures.min(10)).min(REST_MAX);
        slot.failures = slot.failures.saturating_add(1);
        let half = longest / 2;
        let until = now + half + half.mul_f64((chance >> 11) as f64 / (1u64 << 53) as f64);
        slot.state = State::Resting { until };
        slot.epoch += 1;
        Some(until)
    }

    fn take(&mut self, slot: usize, now: Instant) -> Place {
        let epoch = self.slots[slot].epoch;
        let State::Open(open) = &mut self.slots[slot].state else {
            unreachable!("only open connections are chosen");
        };
        assert!(open.has_room(), "no connection is over its limit");
        open.in_flight += 1;
        open.used_at = now;
        Place { slot, epoch }
    }

    /// The connection for a push: the one with the fewest under way, of those that are not throttled.
    fn choose(&self, trust: Trust) -> Option<usize> {
        let quarantine = self.quarantine();
        let has_room = |slot: usize| self.slots[slot].open().is_some_and(Open::has_room);
        match trust {
            Trust::Suspect => has_room(quarantine).then_some(quarantine),
            Trust::Good => self.least_busy(),
            Trust::Unknown => {
                let main = self.least_busy();
                let is_throttled =
                    |slot: usize| self.slots[slot].open().is_some_and(Open::is_throttled);
                if main.is_some_and(|slot| !is_throttled(slot)) {
                    return main;
                }
                // On a throttled connection the good ones go first, and suspects in the quarantine.
                let is_spare = has_room(quarantine)
                    && self.waiting[Trust::Suspect as usize].is_empty()
                    && self.is_any_throttled();
                let main = main.filter(|_| self.waiting[Trust::Good as usize].is_empty());
                if is_spare { Some(quarantine) } else { main }
            }
        }
    }

    fn least_busy(&self) -> Option<usize> {
        let open = self.mains().enumerate().filter_map(|(index, slot)| Some((index, slot.open()?)));
        let with_room = open.filter(|(_, open)| open.has_room());
        let least = with_room.min_by_key(|(_, open)| (open.is_throttled(), open.in_flight));
        least.map(|(index, _)| index)
    }

    fn is_any_throttled(&self) -> bool {
        self.mains().any(|slot| slot.open().is_some_and(Open::is_throttled))
    }

    /// Grants what can be granted.
    fn serve(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        for trust in [Trust::Good, Trust::Unknown, Trust::Suspect] {
            while !self.waiting[trust as usize].is_empty() {
                let Some(slot) = self.choose(trust) else { break };
                let ticket = self.waiting[trust as usize].pop_front().expect("it is not empty");
                let place = self.take(slot, now);
                effects.push(Effect::Grant { ticket, place });
            }
        }
        self.open_wanted(now, effects);
    }

    /// Opens what somebody waits for, one at a time of each kind.
    fn open_wanted(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let waits = |trust: Trust| !self.waiting[trust as usize].is_empty();
        let for_main = waits(Trust::Good) || waits(Trust::Unknown);
        let for_quarantine =
            waits(Trust::Suspect) || (waits(Trust::Unknown) && self.is_any_throttled());
        // A rest that is over and was not told yet.
        for slot in &mut self.slots {
            if matches!(slot.state, State::Resting { until } if until <= now) {
                slot.state = State::Closed;
            }
        }
        if for_main {
            self.open_main(effects);
        }
        let quarantine = self.quarantine();
        if for_quarantine && matches!(self.slots[quarantine].state, State::Closed) {
            self.open(quarantine, effects);
        }
    }

    /// Opens another before all that are open are full.
    fn open_ahead(&mut self, trust: Trust, effects: &mut Vec<Effect>) {
        let is_busy = |slot: &Slot| slot.open().is_none_or(|open| open.in_flight * 2 > open.limit);
        if trust != Trust::Suspect && self.mains().all(is_busy) {
            self.open_main(effects);
        }
    }

    /// Opens one more, unless one is being opened, or rests because it failed.
    fn open_main(&mut self, effects: &mut Vec<Effect>) {
        let is_pending = |slot: &Slot| matches!(slot.state, State::Opening | State::Resting { .. });
        if self.mains().any(is_pending) {
            return;
        }
        let closed = self.mains().position(|slot| matches!(slot.state, State::Closed));
        if let Some(index) = closed {
            self.open(index, effects);
        }
    }

    fn open(&mut self, slot: usize, effects: &mut Vec<Effect>) {
        self.slots[slot].state = State::Opening;
        let epoch = self.slots[slot].epoch;
        effects.push(Effect::Open(Place { slot, epoch }));
    }
}

/// `0:12/1000 1:closed q:resting, waiting 0 good, 3 unknown, 0 suspect`
impl fmt::Display for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, slot) in self.slots.iter().enumerate() {
            if index == self.quarantine() {
                out.write_str("q:")?
            } else {
                write!(out, "{index}:")?
            }
            match &slot.state {
                State::Closed => out.write_str("closed ")?,
                State::Resting { .. } => out.write_str("resting ")?,
                State::Opening => out.write_str("opening ")?,
                State::Open(open) => write!(out, "{}/{} ", open.in_flight, open.limit)?,
            }
        }
        let [good, unknown, suspect] = [0, 1, 2].map(|trust: usize| self.waiting[trust].len());
        write!(out, "waiting {good} good, {unknown} unknown, {suspect} suspect")
    }
}

#[cfg(test)]
mod tests;
