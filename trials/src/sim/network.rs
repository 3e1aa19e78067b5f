//! What lies between the nodes: one connection per pair, each way a queue of messages that keeps
//! its order.
//!
//! Messages are carried as the bytes that nodes write on sockets, so what arrives is what the codec
//! makes of them. What elections hang on may overtake the rest, as it does in the peers' queues.
//! A message is lost with its connection and in no other way, as with TCP. Where a direction is cut
//! nothing arrives and nobody is told: messages wait, and arrive late if the cut is over before
//! somebody gives up. Each end learns by itself that a connection is over: by the other's goodbye
//! if that comes through, by silence if not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;

use bytes::{Bytes, BytesMut};
use cluster::peer::message::Message;
use cluster::peer::{codec, frame, gather::Gather, limits::FRAME_BYTES_MAX};

use super::agenda::{Agenda, Event, Micros};
use crate::workload::Chance;

/// An end that heard nothing for so long closes the connection.
pub(super) const SILENCE: Micros = 1_000_000;
/// Delay of a message, one way, from and to.
const DELAY: (Micros, Micros) = (60, 500);
/// Delay of a part of a snapshot, from and to.
const BULK: (Micros, Micros) = (500, 20_000);
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

/// One direction of a connection.
#[derive(Debug, Default)]
struct Line {
    urgent: Lane,
    plain: Lane,
    /// A connection of its own, which breaks with the other.
    bulk: Lane,
}

/// How a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Data,
    Bulk,
}

/// Messages in order, with the instant from which they may arrive.
#[derive(Debug, Default)]
struct Lane {
    messages: VecDeque<(Micros, Bytes)>,
    last: Micros,
}

impl Lane {
    /// Says when it arrives.
    fn push(&mut self, due: Micros, message: Bytes) -> Micros {
        self.last = self.last.max(due);
        self.messages.push_back((self.last, message));
        self.last
    }

    /// Nothing arrives before `time`. Says whether anything waits.
    fn hold(&mut self, time: Micros) -> bool {
        self.messages.iter_mut().for_each(|(due, _)| *due = (*due).max(time));
        self.last = self.last.max(time);
        !self.messages.is_empty()
    }

    fn take(&mut self, now: Micros, arrived: &mut Vec<Bytes>) {
        while self.messages.front().is_some_and(|(due, _)| *due <= now) {
            arrived.extend(self.messages.pop_front().map(|(_, message)| message));
        }
    }
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
    /// Who does not talk any more to whom: a member to one that it knows to be removed.
    barred: BTreeSet<Way>,
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

    /// The connection that `way.0` believes to have with `way.1`.
    pub(super) fn connection(&self, way: Way) -> Option<u64> {
        self.ends.get(&way)?.generation
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
        let time = agenda.now() + chance.within(RETRANSMIT.0, RETRANSMIT.1);
        // Those that were to arrive later still have their own events.
        if line.urgent.hold(time) | line.plain.hold(time) | line.bulk.hold(time) {
            agenda.at(time, Event::Arrive { from, to, generation });
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

    /// `way.0` does not talk to `way.1` any more. Says whether that is new.
    pub(super) fn bar(&mut self, way: Way) -> bool {
        self.barred.insert(way)
    }

    /// Whether `way.1` dials `way.0` and is told that it was removed.
    pub(super) fn refuses(&self, way: Way) -> bool {
        let is_mute = self.mute.contains(&way.0) || self.mute.contains(&way.1);
        self.barred.contains(&way) && !is_mute && self.is_open_between(way.0, way.1)
    }

    /// What a shard sends. Without a connection it is lost at once.
    pub(super) fn send(
        &mut self,
        way: Way,
        by: By,
        message: &Message,
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
        let delay = if by == By::Bulk { BULK } else { DELAY };
        let due = agenda.now() + chance.within(delay.0, delay.1) + slow;
        let line = self.lines.entry(way).or_default();
        let lane = match by {
            By::Bulk => &mut line.bulk,
            By::Data if message.is_urgent() => &mut line.urgent,
            By::Data => &mut line.plain,
        };
        let bytes = encoded(message);
        agenda.mix(&bytes[..]);
        agenda.at(lane.push(due, bytes), Event::Arrive { from, to, generation });
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
        line.urgent.take(now, &mut arrived);
        line.plain.take(now, &mut arrived);
        line.bulk.take(now, &mut arrived);
        decoded(&arrived)
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
        let is_barred = self.barred.contains(&(one, other)) || self.barred.contains(&(other, one));
        if is_connected || is_mute || is_barred || !self.is_open_between(one, other) {
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
            for lane in [&mut line.urgent, &mut line.plain, &mut line.bulk] {
                self.lost += lane.messages.len() as u64;
                lane.messages.clear();
            }
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
            let line = self.lines.get(&(node, peer));
            let last = line.map_or(0, |line| line.urgent.last.max(line.plain.last));
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
            agenda.after(0, Event::Arrive { from: peer, to: node, generation });
            let theirs = self.ends.get(&(peer, node)).and_then(|end| end.generation);
            if theirs != Some(generation) {
                let at = chance.within(0, 2_000);
                agenda.after(at, Event::Closed { at: node, peer, generation });
            }
        }
    }
}

/// As it is written on a socket.
fn encoded(message: &Message) -> Bytes {
    let mut gather = Gather::default();
    codec::encode(&mut gather, message).expect("what a shard says fits a frame");
    let mut bytes = BytesMut::with_capacity(gather.bytes());
    let mut slices = [IoSlice::new(&[]); 16];
    while bytes.len() < gather.bytes() {
        let count = gather.slices(bytes.len(), &mut slices);
        slices[..count].iter().for_each(|slice| bytes.extend_from_slice(slice));
    }
    bytes.freeze()
}

/// As it is read from a socket.
fn decoded(arrived: &[Bytes]) -> Vec<Message> {
    let mut input: BytesMut = arrived.iter().flat_map(|bytes| bytes.iter().copied()).collect();
    let mut messages = Vec::new();
    while let Some(frame) = frame::take(&mut input, FRAME_BYTES_MAX).expect("frames of our own") {
        messages.extend(codec::decode(frame).expect("a frame of our own can be read"));
    }
    assert!(input.is_empty(), "a frame was cut short");
    messages
}

#[cfg(test)]
mod tests {
    use machine::GroupId;

    use super::*;

    fn word(term: u64) -> Message {
        Message::Leads { group: GroupId(1), term, time_ms: 0 }
    }

    struct Bench {
        network: Network,
        chance: Chance,
        agenda: Agenda,
        heard: Vec<u64>,
        told: Vec<Told>,
    }

    impl Bench {
        /// Two nodes, connected.
        fn new(seed: u64) -> Self {
            let (mut chance, mut agenda) = (Chance::new(seed), Agenda::default());
            let network = Network::new(2, &mut chance, &mut agenda);
            let mut bench = Self { network, chance, agenda, heard: Vec::new(), told: Vec::new() };
            agenda_looks(&mut bench.agenda);
            bench.run(DIAL.1);
            assert_eq!(bench.told.iter().filter(|told| told.is_up).count(), 2);
            bench.told.clear();
            bench
        }

        fn say(&mut self, term: u64) {
            self.network.send((0, 1), By::Data, &word(term), &mut self.chance, &mut self.agenda);
        }

        fn run(&mut self, time: Micros) {
            let end = self.agenda.now() + time;
            while self.agenda.now() < end {
                let (network, chance, agenda) =
                    (&mut self.network, &mut self.chance, &mut self.agenda);
                match agenda.next() {
                    Some(Event::Arrive { from, to, generation }) => {
                        let now = agenda.now();
                        for message in network.arrive((from, to), generation, now) {
                            let Message::Leads { term, .. } = message else { panic!() };
                            self.heard.push(term);
                        }
                    }
                    Some(Event::Dial { one, other }) => {
                        self.told.extend(network.dial((one, other), chance, agenda));
                    }
                    Some(Event::Closed { at, peer, generation }) => {
                        self.told.extend(network.closed(at, peer, generation));
                    }
                    Some(Event::Look) => {
                        agenda_looks(agenda);
                        self.told.extend(network.look(chance, agenda));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn agenda_looks(agenda: &mut Agenda) {
        agenda.after(50_000, Event::Look);
    }

    #[test]
    fn messages_arrive_in_their_order() {
        let mut bench = Bench::new(1);
        (0..50).for_each(|term| bench.say(term));
        bench.run(100_000);
        assert_eq!(bench.heard, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn what_a_short_cut_held_up_comes_late_and_in_order() {
        for seed in 1..20 {
            let mut bench = Bench::new(seed);
            bench.say(1);
            bench.network.cut((0, 1));
            (2..9).for_each(|term| bench.say(term));
            bench.run(500_000);
            assert_eq!(bench.heard, [0; 0]);
            bench.network.mend((0, 1), &mut bench.chance, &mut bench.agenda);
            bench.say(9);
            bench.run(RETRANSMIT.1 + DELAY.1);
            assert_eq!(bench.heard, (1..10).collect::<Vec<_>>());
            assert_eq!(bench.told, [], "nobody noticed");
        }
    }

    #[test]
    fn a_long_cut_of_one_way_breaks_the_connection_and_loses_what_waited() {
        let mut bench = Bench::new(3);
        bench.network.cut((0, 1));
        (1..9).for_each(|term| bench.say(term));
        bench.run(SILENCE + 200_000);
        let down: Vec<_> = bench.told.iter().filter(|told| !told.is_up).collect();
        assert_eq!(down.len(), 2, "the other way still carries the goodbye: {:?}", bench.told);
        bench.network.mend((0, 1), &mut bench.chance, &mut bench.agenda);
        bench.run(1_000_000);
        assert_eq!(bench.heard, [0; 0]);
        bench.say(9);
        bench.run(100_000);
        assert_eq!(bench.heard, [9], "they are connected again");
    }

    #[test]
    fn a_node_without_power_says_no_goodbye() {
        let mut bench = Bench::new(4);
        bench.network.died(0, false, &mut bench.chance, &mut bench.agenda);
        bench.run(SILENCE / 2);
        assert_eq!(bench.told, []);
        bench.run(SILENCE);
        assert_eq!(bench.told, [Told { node: 1, peer: 0, is_up: false }]);
    }

    #[test]
    fn a_process_that_dies_is_missed_at_once() {
        let mut bench = Bench::new(5);
        bench.network.died(0, true, &mut bench.chance, &mut bench.agenda);
        bench.run(10_000);
        assert_eq!(bench.told, [Told { node: 1, peer: 0, is_up: false }]);
    }

    #[test]
    fn a_stopped_node_hears_everything_at_once_when_it_goes_on() {
        let mut bench = Bench::new(6);
        bench.network.set_mute(1, true);
        (1..9).for_each(|term| bench.say(term));
        bench.run(700_000);
        assert_eq!(bench.heard, [0; 0]);
        bench.network.resumed(1, &mut bench.chance, &mut bench.agenda);
        bench.run(1_000);
        assert_eq!(bench.heard, (1..9).collect::<Vec<_>>());
    }
}
