//! What lies between the nodes: one connection per pair, each way a queue of messages that keeps
//! its order.
//!
//! A message is lost with its connection and in no other way, as with TCP. Where a direction is cut
//! nothing arrives and nobody is told: messages wait, and arrive late if the cut is over before
//! somebody gives up. Each end learns by itself that a connection is over: by the other's goodbye
//! if that comes through, by silence if not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cluster::peer::message::Message;

use super::agenda::{Agenda, Event, Micros};
use crate::workload::Chance;

/// An end that heard nothing for so long closes the connection.
pub(super) const SILENCE: Micros = 1_000_000;
/// Delay of a message, one way, from and to.
const DELAY: (Micros, Micros) = (60, 500);
/// When a message that was held up by a cut comes through at last, from and to.
const RETRANSMIT: (Micros, Micros) = (1_000, 200_000);
/// Pause between two attempts to connect, from and to.
const DIAL: (Micros, Micros) = (20_000, 150_000);

/// A direction between two nodes.
type Way = (usize, usize);

/// What an end of a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) node: usize,
    pub(super) peer: usize,
    pub(super) is_up: bool,
}

#[derive(Debug, Default)]
struct Line {
    /// In order, with the instant from which they may arrive.
    messages: VecDeque<(Micros, Message)>,
    last: Micros,
}

/// One node's end of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// The connection that it believes in.
    generation: Option<u64>,
    heard: Micros,
}

#[derive(Debug, Default)]
pub(super) struct Network {
    generations: u64,
    lines: BTreeMap<Way, Line>,
    ends: BTreeMap<Way, End>,
    /// How many harms cut a direction, and how much later it is: both count, for harms overlap.
    cut: BTreeMap<Way, u32>,
    slow: BTreeMap<Way, Vec<Micros>>,
    /// Nodes that can neither answer nor ask: down or stopped.
    mute: BTreeSet<usize>,
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) breaks: u64,
}

impl Network {
    pub(super) fn new(nodes: usize, chance: &mut Chance, agenda: &mut Agenda) -> Self {
        for one in 0..nodes {
            for other in one + 1..nodes {
                agenda.after(chance.within(0, DIAL.0), Event::Dial { one, other });
            }
        }
        Self::default()
    }

    /// Whether anything from `way.0` reaches `way.1`.
    pub(super) fn is_open(&self, way: Way) -> bool {
        self.cut.get(&way).is_none_or(|cuts| *cuts == 0)
    }

    /// Both ways.
    pub(super) fn is_open_between(&self, one: usize, other: usize) -> bool {
        self.is_open((one, other)) && self.is_open((other, one))
    }

    pub(super) fn cut(&mut self, way: Way) {
        *self.cut.entry(way).or_default() += 1;
    }

    /// The cut is over; what waited comes through, in its order.
    pub(super) fn mend(&mut self, way: Way, chance: &mut Chance, agenda: &mut Agenda) {
        let cuts = self.cut.entry(way).or_default();
        *cuts = cuts.saturating_sub(1);
        if *cuts > 0 {
            return;
        }
        let (from, to) = way;
        let generation = self.ends.get(&way).and_then(|end| end.generation);
        let (Some(line), Some(generation)) = (self.lines.get_mut(&way), generation) else { return };
        let from_then = agenda.now() + chance.within(RETRANSMIT.0, RETRANSMIT.1);
        let mut late = 0;
        for (due, _) in line.messages.iter_mut().filter(|(due, _)| *due <= from_then) {
            late += 1;
            *due = from_then;
        }
        line.last = line.last.max(from_then);
        for _ in 0..late {
            agenda.at(from_then, Event::Arrive { from, to, generation });
        }
    }

    pub(super) fn slow_down(&mut self, way: Way, by: Micros) {
        self.slow.entry(way).or_default().push(by);
    }

    pub(super) fn speed_up(&mut self, way: Way, by: Micros) {
        if let Some(slow) = self.slow.get_mut(&way)
            && let Some(at) = slow.iter().position(|slow| *slow == by)
        {
            slow.remove(at);
        }
    }

    /// `node` neither hears nor says anything, or does again.
    pub(super) fn set_mute(&mut self, node: usize, is_mute: bool) {
        if is_mute {
            self.mute.insert(node)
        } else {
            self.mute.remove(&node)
        };
    }

    /// What a shard sends. Without a connection it is lost at once.
    pub(super) fn send(
        &mut self,
        way: Way,
        message: Message,
        chance: &mut Chance,
        agenda: &mut Agenda,
    ) {
        self.sent += 1;
        let (from, to) = way;
        let Some(generation) = self.ends.get(&way).and_then(|end| end.generation) else {
            self.lost += 1;
            return;
        };
        let slow: Micros = self.slow.get(&way).map_or(0, |slow| slow.iter().sum());
        let delay = chance.within(DELAY.0, DELAY.1) + slow;
        let line = self.lines.entry(way).or_default();
        line.last = line.last.max(agenda.now() + delay);
        line.messages.push_back((line.last, message));
        agenda.at(line.last, Event::Arrive { from, to, generation });
    }

    /// Messages that have come all the way, in order; none where the way is cut meanwhile.
    pub(super) fn arrive(&mut self, way: Way, generation: u64, now: Micros) -> Vec<Message> {
        let (from, to) = way;
        let is_current = self.ends.get(&(to, from)).and_then(|end| end.generation);
        if is_current != Some(generation) || !self.is_open(way) || self.mute.contains(&to) {
            return Vec::new();
        }
        let Some(line) = self.lines.get_mut(&way) else { return Vec::new() };
        let mut arrived = Vec::new();
        while line.messages.front().is_some_and(|(due, _)| *due <= now) {
            arrived.extend(line.messages.pop_front().map(|(_, message)| message));
        }
        arrived
    }

    /// One of the two tries to connect. A connection replaces the one before it; an end that did not
    /// know of its end may hear of that, or of the new one only.
    pub(super) fn dial(
        &mut self,
        (one, other): Way,
        chance: &mut Chance,
        agenda: &mut Agenda,
    ) -> Vec<Told> {
        agenda.after(chance.within(DIAL.0, DIAL.1), Event::Dial { one, other });
        let generation_of = |way| self.ends.get(&way).and_then(|end: &End| end.generation);
        let (here, there) = (generation_of((one, other)), generation_of((other, one)));
        let is_connected = here.is_some() && here == there;
        let is_mute = self.mute.contains(&one) || self.mute.contains(&other);
        if is_connected || is_mute || !self.is_open_between(one, other) {
            return Vec::new();
        }
        self.generations += 1;
        let mut told = Vec::new();
        for (node, peer, before) in [(one, other, here), (other, one, there)] {
            if before.is_some() && chance.percent(50) {
                told.push(Told { node, peer, is_up: false });
            }
            self.forget((node, peer));
            let end = End { generation: Some(self.generations), heard: agenda.now() };
            self.ends.insert((node, peer), end);
            told.push(Told { node, peer, is_up: true });
        }
        told
    }

    fn forget(&mut self, way: Way) {
        if let Some(line) = self.lines.get_mut(&way) {
            self.lost += line.messages.len() as u64;
            line.messages.clear();
        }
    }

    /// Notes who was heard, and lets go of those who were silent for too long.
    pub(super) fn look(&mut self, chance: &mut Chance, agenda: &mut Agenda) -> Vec<Told> {
        let now = agenda.now();
        let mut silent = Vec::new();
        let ways: Vec<Way> = self.ends.keys().copied().collect();
        for (node, peer) in ways {
            let mine = self.ends[&(node, peer)].generation;
            if mine.is_none() || self.mute.contains(&node) {
                continue;
            }
            let theirs = self.ends.get(&(peer, node)).and_then(|end| end.generation);
            let is_heard =
                mine == theirs && self.is_open((peer, node)) && !self.mute.contains(&peer);
            let Some(end) = self.ends.get_mut(&(node, peer)) else { continue };
            if is_heard {
                end.heard = now;
            } else if now - end.heard > SILENCE {
                silent.push((node, peer));
            }
        }
        silent.into_iter().filter_map(|way| self.give_up(way, chance, agenda)).collect()
    }

    /// `way.0` closes its connection with `way.1`, which hears of it if anything gets through.
    pub(super) fn give_up(
        &mut self,
        way: Way,
        chance: &mut Chance,
        agenda: &mut Agenda,
    ) -> Option<Told> {
        let (node, peer) = way;
        let generation = self.ends.get_mut(&way)?.generation.take()?;
        self.breaks += 1;
        self.say_goodbye(way, generation, chance, agenda);
        Some(Told { node, peer, is_up: false })
    }

    /// The process of `node` is gone. Its kernel closes its connections, unless the power is gone.
    pub(super) fn died(
        &mut self,
        node: usize,
        says_goodbye: bool,
        chance: &mut Chance,
        agenda: &mut Agenda,
    ) {
        self.set_mute(node, true);
        let peers: Vec<usize> =
            self.ends.keys().filter(|(of, _)| *of == node).map(|(_, peer)| *peer).collect();
        for peer in peers {
            let end = self.ends.get_mut(&(node, peer));
            let Some(generation) = end.and_then(|end| end.generation.take()) else { continue };
            self.breaks += 1;
            self.forget((peer, node));
            if says_goodbye {
                self.say_goodbye((node, peer), generation, chance, agenda);
            } else {
                self.forget((node, peer));
            }
        }
    }

    /// What was on its way to the other end arrives before the goodbye, or all of it is lost.
    fn say_goodbye(
        &mut self,
        (node, peer): Way,
        generation: u64,
        chance: &mut Chance,
        agenda: &mut Agenda,
    ) {
        self.forget((peer, node));
        if chance.percent(50) {
            self.forget((node, peer));
        }
        if self.is_open((node, peer)) {
            let last = self.lines.get(&(node, peer)).map_or(0, |line| line.last);
            let at = last.max(agenda.now() + chance.within(DELAY.0, DELAY.1));
            agenda.at(at, Event::Closed { at: peer, peer: node, generation });
        }
    }

    /// The goodbye has come. `None`: it was known, or another connection is up already.
    pub(super) fn closed(&mut self, at: usize, peer: usize, generation: u64) -> Option<Told> {
        let end = self.ends.get_mut(&(at, peer))?;
        if end.generation != Some(generation) || self.mute.contains(&at) {
            return None;
        }
        end.generation = None;
        self.forget((at, peer));
        Some(Told { node: at, peer, is_up: false })
    }

    /// Ends of a stopped process that have to hear, now that it goes on, what came meanwhile.
    pub(super) fn resumed(&mut self, node: usize, chance: &mut Chance, agenda: &mut Agenda) {
        self.set_mute(node, false);
        let ends: Vec<(usize, u64)> = self
            .ends
            .iter()
            .filter(|((of, _), end)| *of == node && end.generation.is_some())
            .filter_map(|((_, peer), end)| Some((*peer, end.generation?)))
            .collect();
        for (peer, generation) in ends {
            if let Some(end) = self.ends.get_mut(&(node, peer)) {
                end.heard = agenda.now();
            }
            let count = self.lines.get(&(peer, node)).map_or(0, |line| line.messages.len());
            for _ in 0..count.min(1) {
                agenda.after(0, Event::Arrive { from: peer, to: node, generation });
            }
            let theirs = self.ends.get(&(peer, node)).and_then(|end| end.generation);
            if theirs != Some(generation) {
                let at = chance.within(0, 2_000);
                agenda.after(at, Event::Closed { at: node, peer, generation });
            }
        }
    }
}
