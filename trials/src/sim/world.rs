//! The cluster, its clients and the harm done to them, on one thread: one event after the other.

use std::collections::BTreeMap;

use cluster::Answer;
use cluster::exchange::Output;
use cluster::housekeeping::Task;
use cluster::log_writer::Append;
use cluster::peer::message::Message;
use cluster::snapshot;
use machine::{GroupId, NodeId, SessionId, Version};
use wal::sim::{Fault, SimDisk};

use super::agenda::{Agenda, Event, Micros};
use super::clients::{Clients, Outside};
use super::disks::{FLUSH, READ};
use super::nemesis::Nemesis;
use super::network::{By, Network, Told};
use super::node::{Node, Place, home};
use super::operator::Operator;
use super::store::{Flush, Marked, Reading};
use super::watch::{Leader, Watch};
use super::{Diary, Size, Versions, state, states};
use crate::history::What;
use crate::workload::Chance;

/// A shard's thread takes its turn so soon after something came for it, from and to.
const TURN: (Micros, Micros) = (5, 120);
/// A sync of a healthy disk, from and to.
const SYNC: (Micros, Micros) = (150, 2_500);
const LOOK: Micros = 50_000;
/// A node that cannot reach a majority answers its publishers within this time.
const ANSWERS_ALONE: Micros = 2_800_000;
/// Nodes that may join.
const JOINERS: usize = 2;
/// Lines that are kept for the story of a seed that fails.
const LINES_MAX: usize = 400;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    /// What it wrote stays.
    Kill,
    /// Unsynced sectors and names are lost or torn, and nobody hears a goodbye.
    PowerCut,
}

pub(super) struct World {
    pub(super) chance: Chance,
    pub(super) agenda: Agenda,
    pub(super) diary: Diary,
    pub(super) nodes: Vec<Node>,
    pub(super) network: Network,
    pub(super) nemesis: Nemesis,
    pub(super) watch: Watch,
    pub(super) clients: Clients,
    pub(super) operator: Operator,
    /// Nodes join, go and are replaced.
    pub(super) changes_members: bool,
    /// Nodes come back with a newer program, which reads this.
    upgrades_to: Option<Version>,
    /// What the cluster has agreed on, and how often that was news.
    agreed: Version,
    pub(super) raised: u64,
    /// Nodes that stopped because they are too old, and that they may.
    pub(super) outdated: u64,
    is_trial: bool,
    /// Nodes that made the cluster.
    founders: usize,
    /// The groups of which each node cannot reach a majority, since when, and whether that was held against it.
    alone: Vec<BTreeMap<GroupId, (Micros, bool)>>,
    /// Whom each node reaches.
    reached: Vec<Vec<usize>>,
    /// Whom each node hears, also where it is not heard.
    heard: Vec<Vec<usize>>,
    answers: Vec<(usize, SessionId, Answer)>,
    pub(super) lines: Vec<String>,
    pub(super) crashes: u64,
    pub(super) power_cuts: u64,
    /// Of processes that are no more.
    pub(super) checkpoints: u64,
    pub(super) refused: u64,
    pub(super) snapshots: u64,
}

impl World {
    pub(super) fn new(seed: u64, size: Size) -> Self {
        let Size { nodes: founders, changes_members, versions, .. } = size;
        let changes_members = founders >= 3 && changes_members;
        let nodes = if changes_members { founders + JOINERS } else { founders };
        let mut chance = Chance::new(seed);
        let mut agenda = Agenda::default();
        let mut diary = Diary::default();
        let network = Network::new(nodes, &mut chance, &mut agenda);
        let is_trial = versions == Versions::Trial;
        let (begins_with, upgrades_to) = versions.programs();
        let clients = Clients::new(seed, nodes, is_trial, &size, &mut diary);
        let mut all = Vec::new();
        for number in 0..nodes {
            let disk = SimDisk::new(chance.number());
            let shards = chance.within(1, 3) as usize;
            let id = NodeId(number as u64 + 1);
            let mut node = Node::new(id, disk, shards, chance.number(), SYNC);
            if number >= founders {
                node.place = Place::Absent;
                node.speaks = upgrades_to.unwrap_or(Version::NEWEST);
            } else {
                node.speaks = begins_with;
            }
            all.push(node);
            agenda.after(chance.within(0, 200_000), Event::Start { node: number });
        }
        agenda.after(LOOK, Event::Look);
        for number in 0..clients.publishers() {
            agenda.after(chance.within(0, 50_000), Event::Publisher { number });
        }
        for number in 0..clients.consumers() {
            agenda.after(chance.within(0, 50_000), Event::Consumer { number });
        }
        for number in 0..clients.visitors() {
            agenda.after(chance.within(0, 500_000), Event::Visitor { number });
        }
        for number in 0..clients.sweepers() {
            agenda.after(chance.within(0, 50_000), Event::Sweeper { number });
        }
        for number in 0..clients.movers() {
            agenda.after(chance.within(0, 50_000), Event::Mover { number });
        }
        for number in 0..clients.amqp_clients() {
            agenda.after(chance.within(0, 50_000), Event::AmqpClient { number });
        }
        agenda.after(1_000, Event::Control);
        if size.has_policies {
            agenda.after(2_000, Event::Administrator);
        }
        if size.has_operations {
            agenda.after(3_000, Event::Pauser);
            agenda.after(4_000, Event::Retrier);
        }
        if size.has_undo {
            agenda.after(5_000, Event::Waverer);
        }
        for number in 0..clients.stream_actors() {
            agenda.after(chance.within(0, 50_000), Event::Stream { number });
        }
        for number in 0..clients.lock_actors() {
            agenda.after(chance.within(0, 50_000), Event::Lock { number });
        }
        for number in 0..clients.rated_actors() {
            agenda.after(chance.within(0, 50_000), Event::Rated { number });
        }
        (0..nodes).for_each(|node| agenda.after(1_000, Event::DeadLetterWorker { node }));
        let mut network = network;
        (0..nodes).for_each(|node| network.set_mute(node, true));
        Self {
            chance,
            agenda,
            diary,
            network,
            nemesis: Nemesis::new(seed),
            watch: Watch::new(founders),
            clients,
            operator: Operator::default(),
            changes_members,
            upgrades_to,
            agreed: Version::FIRST,
            raised: 0,
            outdated: 0,
            is_trial,
            founders,
            alone: vec![BTreeMap::new(); nodes],
            reached: vec![Vec::new(); nodes],
            heard: vec![Vec::new(); nodes],
            nodes: all,
            answers: Vec::new(),
            lines: Vec::new(),
            crashes: 0,
            power_cuts: 0,
            checkpoints: 0,
            refused: 0,
            snapshots: 0,
        }
    }

    /// A line of the story.
    pub(super) fn line(&mut self, text: &str) {
        if self.lines.len() >= LINES_MAX {
            self.lines.drain(..LINES_MAX / 2);
        }
        self.lines.push(format!("{:>9.3} {text}", self.agenda.now() as f64 / 1e6));
    }

    /// What must not be, seen from outside, and how the nodes stand.
    pub(super) fn complain(&mut self, text: &str) {
        self.protocol(text.to_owned());
        for number in 0..self.nodes.len() {
            let text = format!("node {}:{}", number + 1, self.nodes[number].stands());
            self.line(&text);
        }
    }

    pub(super) fn protocol(&mut self, text: String) {
        self.line(&text);
        self.diary.saw("world", What::Protocol { text });
    }

    /// Goes on until `time`, or until `enough`.
    pub(super) fn run_until(&mut self, time: Micros, enough: impl Fn(&Self) -> bool) -> bool {
        while self.agenda.now() < time {
            if enough(self) {
                return true;
            }
            self.one();
        }
        enough(self)
    }

    /// One thing happens.
    fn one(&mut self) {
        let Some(event) = self.agenda.next() else { return };
        self.diary.now = self.agenda.now();
        match event {
            Event::Step { node, shard, life } => self.step(node, shard, life),
            Event::Written { node, life } => self.written(node, life),
            Event::Room { node, life } => self.look_for_room(node, life),
            Event::Read { node, life } => self.read(node, life),
            Event::Flush { node, life } => self.flush(node, life),
            Event::Arrive { from, to, generation } => self.arrive(from, to, generation),
            Event::Dial { one, other } => {
                let told = self.network.dial((one, other), &mut self.chance, &mut self.agenda);
                told.into_iter().for_each(|told| self.tell(told));
                for (by, node) in [(one, other), (other, one)] {
                    if self.network.refuses((by, node)) {
                        self.expel(node);
                    }
                }
            }
            Event::Closed { at, peer, generation } => {
                if let Some(told) = self.network.closed(at, peer, generation) {
                    self.tell(told);
                }
            }
            Event::Look => self.look(),
            Event::Start { node } => self.start(node),
            Event::Resume { node, life } => self.resume(node, life),
            Event::Publisher { number } => {
                let next = self.chance.within(2_000, 90_000);
                self.agenda.after(next, event);
                self.ask_clients(|clients, outside| clients.publisher_acts(number, outside));
            }
            Event::Consumer { number } => {
                let next = self.chance.within(2_000, 60_000);
                self.agenda.after(next, event);
                self.ask_clients(|clients, outside| clients.consumer_acts(number, outside));
            }
            Event::Visitor { number } => {
                let next = self.chance.within(10_000, 150_000);
                self.agenda.after(next, event);
                self.ask_clients(|clients, outside| clients.visitor_acts(number, outside));
            }
            Event::Sweeper { number } => {
                let next = self.chance.within(10_000, 90_000);
                self.agenda.after(next, event);
                self.ask_clients(|clients, outside| clients.sweeper_acts(number, outside));
            }
            Event::Mover { number } => {
                let next = self.chance.within(2_000, 60_000);
                self.agenda.after(next, event);
                self.ask_clients(|clients, outside| clients.mover_acts(number, outside));
            }
            Event::Control => {
                let next = self.chance.within(5_000, 100_000);
                self.agenda.after(next, event);
                self.ask_clients(Clients::control_acts);
            }
            Event::Administrator => {
                let next = self.chance.within(5_000, 80_000);
                self.agenda.after(next, event);
                self.ask_clients(Clients::administrator_acts);
            }
            Event::Examiner => self.ask_clients(Clients::examiner_acts),
            Event::Pauser => {
                let next = self.chance.within(20_000, 200_000);
                self.agenda.after(next, event);
                self.ask_clients(Clients::pauser_acts);
            }
            Event::Waverer => {
                let next = self.chance.within(5_000, 80_000);
                self.agenda.after(next, event);
                self.ask_clients(Clients::waverer_acts);
            }
            Event::Retrier => {
                let next = self.chance.within(2_000, 40_000);
                self.agenda.after(next, event);
                self.ask_clients(Clients::retrier_acts);
            }
            Event::Stream { number } => {
                let next = self.chance.within(2_000, 80_000);
                self.agenda.after(next, event);
                self.ask_clients(|clients, outside| clients.stream_acts(number, outside));
            }
            Event::Lock { number } => {
                let next = self.chance.within(2_000, 120_000);
                self.agenda.after(next, event);
                self.ask_clients(|clients, outside| clients.lock_acts(number, outside));
            }
            Event::Rated { number } => {
                let next = self.chance.within(2_000, 60_000);
                self.agenda.after(next, event);
                self.ask_clients(|clients, outside| clients.rated_acts(number, outside));
            }
            Event::Operator => self.operate(),
            Event::DeadLetterWorker { node } => {
                let next = self.chance.within(20_000, 200_000);
                self.agenda.after(next, event);
                self.ask_clients(|clients, outside| clients.dead_letter_worker_acts(node, outside));
            }
            Event::Harm => self.harm(),
            Event::Undo { number } => self.undo(number),
            Event::Die { node } => self.die(node),
            Event::AmqpClient { number } => {
                self.ask_clients(|clients, outside| clients.amqp_client_acts(number, outside));
            }
        }
        self.deliver_answers();
    }

    /// Lets clients do something, and wakes the nodes that they asked.
    fn ask_clients(&mut self, act: impl FnOnce(&mut Clients, &mut Outside<'_>)) {
        let Self { chance, diary, nodes, watch, clients, agenda, .. } = self;
        let touched = std::collections::BTreeSet::new();
        let mut outside = Outside { nodes, chance, diary, watch, now: agenda.now(), touched };
        act(clients, &mut outside);
        let touched = outside.touched;
        for (number, at) in clients.amqp_client_turns(nodes, agenda.now()) {
            agenda.at(at, Event::AmqpClient { number });
        }
        if let Some(at) = clients.examiner_turn(nodes, agenda.now()) {
            agenda.at(at, Event::Examiner);
        }
        for node in touched {
            self.wake(node);
        }
    }

    fn deliver_answers(&mut self) {
        while !self.answers.is_empty() {
            for (node, session, answer) in std::mem::take(&mut self.answers) {
                // It died in the same moment: nobody hears it.
                let Some(_) = &self.nodes[node].life else { continue };
                let life = self.nodes[node].lives;
                if home(session) != node {
                    let text = format!("node {} answers {session:?}", node + 1);
                    self.protocol(text);
                    continue;
                }
                if self.operator_hears(session, &answer) {
                    continue;
                }
                self.ask_clients(|clients, outside| {
                    clients.answered(session, life, answer, outside);
                });
            }
        }
        for text in self.watch.take_violations() {
            self.protocol(text);
        }
    }

    /// Every shard of `node` that has something to do takes a turn soon.
    pub(super) fn wake(&mut self, node: usize) {
        let soon = self.agenda.now() + self.chance.within(TURN.0, TURN.1);
        let Some(life) = &self.nodes[node].life else { return };
        let waiting: Vec<usize> =
            (0..life.shards.len()).filter(|shard| !life.inboxes[*shard].is_empty()).collect();
        for shard in waiting {
            self.turn(node, shard, soon);
        }
    }

    fn turn(&mut self, node: usize, shard: usize, at: Micros) {
        let number = self.nodes[node].lives;
        let Some(life) = &mut self.nodes[node].life else { return };
        let at = at.max(life.busy_until[shard]);
        if at < life.turns[shard] {
            life.turns[shard] = at;
            self.agenda.at(at, Event::Step { node, shard, life: number });
        }
    }

    /// Whether an event of `life` still means something to `node`.
    pub(super) fn is_live(&self, node: usize, life: u64) -> bool {
        let found = &self.nodes[node];
        found.lives == life && found.life.is_some()
    }

    fn step(&mut self, node: usize, shard: usize, number: u64) {
        if !self.is_live(node, number) || self.nodes[node].is_paused {
            return;
        }
        let time = self.agenda.now();
        let (now, busy) = (self.nodes[node].now(time), self.nodes[node].busy);
        let Some(life) = &mut self.nodes[node].life else { return };
        if life.turns[shard] != time {
            return;
        }
        life.turns[shard] = Micros::MAX;
        if busy > 0 {
            life.busy_until[shard] = time + self.chance.within(0, busy);
        }
        let mut outputs = Vec::new();
        let (mut chunks, mut is_heard) = (Vec::new(), false);
        for (from, message) in snapshot::divert(&mut life.inboxes[shard]) {
            match message {
                Message::Snapshot { chunk, .. } if !snapshot::is_answer(&chunk) => {
                    chunks.push(Flush::Task(Task::Chunk { from, chunk }));
                }
                answer => {
                    life.store.outgoing.hear(from, &answer);
                    is_heard = true;
                }
            }
        }
        life.shards[shard].step(now, &mut life.inboxes[shard], &mut outputs);
        chunks.into_iter().for_each(|chunk| self.flush_soon(node, chunk));
        if is_heard {
            self.agenda.after(READ.0, Event::Flush { node, life: number });
        }
        self.perform(node, shard, outputs);
        self.after_step(node, shard);
    }

    /// Looks at the shard's groups, and plans its next turn.
    fn after_step(&mut self, node: usize, shard: usize) {
        let Some(life) = &self.nodes[node].life else { return };
        let deadline = life.deadline(shard).max(self.agenda.now() + 1_000);
        let me = life.shards[shard].node();
        let reports = life.shards[shard].report_groups(false);
        self.turn(node, shard, deadline);
        for report in reports {
            self.watch.compared(node, report.group, &report.compared);
            let state = state(me, &report, false);
            if self.watch.stands(node, &state) {
                let (group, term) = (state.group.0, state.term);
                self.line(&format!("node {} leads group {group} in term {term}", node + 1));
                self.diary.saw("world", What::Leads { group, node: node as u32 + 1 });
            }
        }
        self.compare_times(node, shard);
    }

    /// What time it is in the groups that a shard leads.
    fn compare_times(&mut self, node: usize, shard: usize) {
        let (now, number) = (self.agenda.now(), self.nodes[node].lives);
        let Some(life) = &self.nodes[node].life else { return };
        for (group, term, time_ms) in life.shards[shard].group_times() {
            let leader = Leader { node, life: number, term };
            if self.watch.times.leads(group.0, leader, now, time_ms) {
                self.diary.saw("world", What::Leap { group: group.0 });
            }
        }
    }

    /// Does what a shard wants.
    fn perform(&mut self, node: usize, shard: usize, outputs: Vec<Output>) {
        let (mut forwarded, mut is_other) = (false, false);
        for output in outputs {
            let Some(life) = &mut self.nodes[node].life else { return };
            match output {
                Output::Append { number, batch, entries } => {
                    let marks = self.watch.appended(node, &batch);
                    let append = Append { shard, number, batch, entries };
                    life.store.appends.push_back(Marked { append, marks });
                }
                Output::Answer { session, answer } => self.answers.push((node, session, answer)),
                Output::Fetch(fetch) => {
                    let reading = Reading::Messages(fetch);
                    life.store.readings.push_back(reading);
                }
                Output::Cut { .. } => unreachable!("nobody here makes a backup"),
                Output::Peek(peek) => life.store.readings.push_back(Reading::Look(peek)),
                Output::ReadEntries { group, number, entries } => {
                    let reading = Reading::Entries { group, number, entries };
                    life.store.readings.push_back(reading);
                }
                Output::Forward { shard, input } => {
                    life.inboxes[shard].push(input);
                    forwarded = true;
                }
                Output::CatalogReplaced { catalog } => {
                    life.catalog = *catalog;
                    is_other = true;
                }
                Output::SendSnapshot { group, to } => {
                    self.flush_soon(node, Flush::SendSnapshot { group, to });
                }
                Output::InstallSnapshot { group, index, accept } => {
                    let task = Task::InstallSnapshot { group, index, accept };
                    self.flush_soon(node, Flush::Task(task));
                }
                Output::CatalogApplied { at, entry, forwards, leads: _ } => {
                    forwarded |= !forwards.is_empty();
                    for (shard, input) in forwards {
                        life.inboxes[shard].push(input);
                    }
                    let before = life.catalog.membership_version();
                    let agreed = life.catalog.agreed();
                    let early = if self.is_trial { life.too_early(&entry) } else { None };
                    life.route_by(at, &entry);
                    if life.catalog.agreed() > self.agreed.max(agreed) {
                        self.agreed = life.catalog.agreed();
                        self.raised += 1;
                    }
                    is_other |= life.catalog.membership_version() != before;
                    if let Some(since) = early {
                        let text =
                            format!("a command of version {since} is in the log at {agreed}");
                        self.protocol(text);
                    }
                }
                Output::Checkpoint(job) => {
                    self.flush_soon(node, Flush::Task(Task::Checkpoint(job)));
                }
                Output::CountsOn { voting } => {
                    life.counted.set(shard, voting);
                    is_other = true;
                }
                Output::Outdated { why } => {
                    self.found_outdated(node, &why);
                    return;
                }
                Output::Reconciled => {
                    life.reconciled += 1;
                    if self.nodes[node].is_serving() {
                        self.line(&format!("node {} serves", node + 1));
                    }
                }
                Output::Send { to, message } => {
                    self.watch.said(node, to.0, &message);
                    self.say(node, to, By::Data, &message);
                }
            }
        }
        if is_other {
            self.follow(node);
            if self.nodes[node].life.is_none() {
                return;
            }
        }
        if forwarded {
            self.wake(node);
        }
        self.start_writing(node);
        self.start_reading(node);
    }

    /// A node does not talk any more to those that its catalog knows to be removed, once no group counts on them.
    fn follow(&mut self, node: usize) {
        for other in 0..self.nodes.len() {
            let Some(life) = &self.nodes[node].life else { return };
            let is_gone = life.counted.is_gone(&life.catalog, self.nodes[other].id);
            if other != node && is_gone && self.network.bar((node, other)) {
                let told = self.network.give_up((node, other), &mut self.chance, &mut self.agenda);
                told.into_iter().for_each(|told| self.tell(told));
            }
        }
        let Some(life) = &self.nodes[node].life else { return };
        if life.counted.is_gone(&life.catalog, self.nodes[node].id) {
            self.expel(node);
        }
    }

    /// A process that finds out, or is told by others, that its node was removed ends by itself, for good. What its
    /// sessions settled since the first of the others did not talk to it any more is lost with it, as in any crash.
    fn expel(&mut self, node: usize) {
        if self.nodes[node].life.is_some() {
            self.line(&format!("node {} is told that it was removed", node + 1));
            self.nodes[node].place = Place::Removed;
            self.crash(node, Death::Kill);
        }
    }

    pub(super) fn say(&mut self, node: usize, to: NodeId, by: By, message: &Message) {
        let to = to.0 as usize - 1;
        self.network.send((node, to), by, message, &mut self.chance, &mut self.agenda);
    }

    fn arrive(&mut self, from: usize, to: usize, generation: u64) {
        let messages = self.network.arrive((from, to), generation, self.agenda.now());
        let peer = self.nodes[from].id;
        let number = self.nodes[to].lives;
        let Some(life) = &mut self.nodes[to].life else { return };
        for message in &messages {
            if let Message::Leads { group, term, .. } = message
                && life.knows_no_later(*group, *term)
            {
                self.watch.times.heard(group.0, to, number, *term);
            }
        }
        if !messages.is_empty() {
            life.hear(peer, messages);
            self.wake(to);
        }
    }

    /// An end of a connection hears that it is up, or down.
    pub(super) fn tell(&mut self, Told { node, peer, is_up }: Told) {
        let (id, speaks) = (self.nodes[peer].id, self.nodes[peer].speaks);
        self.agenda.mix(&(node, peer, is_up));
        if let Some(life) = &mut self.nodes[node].life {
            life.tell(id, is_up, speaks);
            self.wake(node);
        }
    }

    pub(super) fn crash(&mut self, node: usize, death: Death) {
        let Some(life) = self.nodes[node].life.take() else { return };
        self.checkpoints += life.store.checkpoints;
        self.refused += life.store.refused;
        drop(life);
        self.crashes += 1;
        self.nodes[node].is_paused = false;
        self.line(&format!("node {} dies: {death:?}", node + 1));
        let says_goodbye = death == Death::Kill;
        self.network.died(node, says_goodbye, &mut self.chance, &mut self.agenda);
        self.clients.disconnected(node, self.agenda.now(), &mut self.diary);
        self.ask_clients(|clients, outside| clients.amqp_clients_disconnected(node, outside));
        self.watch.holds.gone(node);
        self.fall(node, death);
        self.damage(node);
        let down = match self.chance.percent(60) {
            true => self.chance.within(20_000, 900_000),
            false => self.chance.within(900_000, 5_000_000),
        };
        let down = if self.nemesis.is_over { down.min(300_000) } else { down };
        self.agenda.after(down, Event::Start { node });
        let (kind, t0) = (format!("{death:?}"), self.diary.nanos());
        let (number, t1) = (node as u32 + 1, t0 + down * 1000);
        self.diary.saw("world", What::Fault { kind, node: number, t0, t1, sectors: 0 });
    }

    pub(super) fn fall(&mut self, node: usize, death: Death) {
        match death {
            Death::Kill => self.nodes[node].disk.kill(),
            Death::PowerCut => {
                self.power_cuts += 1;
                self.nodes[node].disk.power_cut(self.chance.number());
            }
        }
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].life.is_some() || self.nodes[node].place != Place::Member {
            return;
        }
        if !self.nemesis.is_over && self.chance.percent(10) {
            let count = self.chance.within(1, 40);
            self.nodes[node].disk.fail_at(count, Fault::PowerOff);
        }
        let is_again = self.nodes[node].lives > 0;
        if let Some(newer) = self.upgrades_to
            && is_again
            && (self.nodes[node].is_outdated || self.nemesis.is_over || self.chance.percent(30))
        {
            self.nodes[node].speaks = newer;
        }
        let founders: Vec<NodeId> =
            self.nodes[..self.founders].iter().map(|node| node.id).collect();
        let now = self.agenda.now();
        let has_ballast = self.nodes[node].has_ballast();
        match self.nodes[node].recover(&founders, now) {
            Ok(found) => {
                self.watch.recovered(node, &found.logs);
                self.nodes[node].life = Some(found.life);
                self.network.set_mute(node, false);
                self.line(&format!("node {} starts", node + 1));
                self.started(node);
            }
            Err(error) if error.is_full() => {
                // It needs what is held back for this. Without that it is started until there is room, and so it is
                // where copies of what is damaged need more.
                if has_ballast && self.nemesis.damaged != Some(node) {
                    let text = format!("node {} does not start on a full disk: {error}", node + 1);
                    self.protocol(text);
                }
                self.line(&format!("node {} finds no room to start: {error}", node + 1));
                self.fall(node, Death::Kill);
                let soon = self.chance.within(100_000, 1_000_000);
                self.agenda.after(soon, Event::Start { node });
            }
            Err(error) if self.may_be_outdated(node, &error.to_string()) => {
                self.outdated += 1;
                self.line(&format!("node {} does not start: {error}", node + 1));
                self.nodes[node].is_outdated = true;
                self.fall(node, Death::Kill);
                self.agenda.after(100_000, Event::Start { node });
            }
            // The power went again, in the middle of the recovery.
            Err(wal::Error::Disk { .. }) => {
                self.fall(node, Death::PowerCut);
                let soon = self.chance.within(20_000, 500_000);
                self.agenda.after(soon, Event::Start { node });
            }
            Err(error) => self.protocol(format!("node {} does not start: {error}", node + 1)),
        }
    }

    /// A node cannot read what is in a log. It comes back with a newer program.
    fn found_outdated(&mut self, node: usize, why: &str) {
        let text = format!("node {} is too old: {why}", node + 1);
        if !self.may_be_outdated(node, why) {
            return self.protocol(text);
        }
        self.outdated += 1;
        self.line(&text);
        self.nodes[node].is_outdated = true;
        self.crash(node, Death::Kill);
    }

    /// Whether somebody has raised the version before this node could read it, and the node says what to do.
    fn may_be_outdated(&self, node: usize, why: &str) -> bool {
        let is_forced = self.is_trial && self.agreed > self.nodes[node].speaks;
        is_forced && why.contains("upgrade this node")
    }

    fn started(&mut self, node: usize) {
        if let Some(life) = &mut self.nodes[node].life {
            life.open_dead_letter_worker();
        }
        let now = self.nodes[node].now(self.agenda.now());
        let number = self.nodes[node].lives;
        for shard in 0..self.nodes[node].shards {
            let Some(life) = &mut self.nodes[node].life else { return };
            let mut outputs = Vec::new();
            life.shards[shard].start(now, &mut outputs);
            self.perform(node, shard, outputs);
            self.after_step(node, shard);
        }
        self.agenda.after(FLUSH.1, Event::Flush { node, life: number });
    }

    fn resume(&mut self, node: usize, life: u64) {
        if !self.is_live(node, life) || !self.nodes[node].is_paused {
            return;
        }
        self.line(&format!("node {} goes on", node + 1));
        self.nodes[node].is_paused = false;
        self.network.resumed(node, &mut self.chance, &mut self.agenda);
        let soon = self.agenda.now() + TURN.1;
        for shard in 0..self.nodes[node].shards {
            if let Some(life) = &mut self.nodes[node].life {
                life.turns[shard] = Micros::MAX;
            }
            self.turn(node, shard, soon);
        }
    }

    /// Silence, housekeeping, and what takes too long.
    fn look(&mut self) {
        self.agenda.after(LOOK, Event::Look);
        let told = self.network.look(&mut self.chance, &mut self.agenda);
        told.into_iter().for_each(|told| self.tell(told));
        let now = self.agenda.now();
        for node in 0..self.nodes.len() {
            let life = self.nodes[node].lives;
            self.nodes[node].check(now / LOOK);
            if self.nodes[node].life.is_some() && self.chance.percent(70) {
                let soon = self.chance.within(0, LOOK);
                self.agenda.after(soon, Event::Flush { node, life });
            }
            self.look_for_waiting(node, now);
        }
    }

    /// Publishers of a node that cannot reach a group's majority are told so before long. A node may find out about each
    /// that goes or comes by silence alone, one after the other: the time begins anew with each. Where nobody hears a
    /// node, others say so if it hears them: once it does not, it is its own silence that has to tell.
    fn look_for_waiting(&mut self, node: usize, now: Micros) {
        let heard = self.heard_by(node);
        let reached: Vec<usize> = heard
            .iter()
            .copied()
            .filter(|other| *other == node || self.network.is_open((node, *other)))
            .collect();
        let is_as_before = self.heard[node] == heard && self.reached[node] == reached;
        (self.heard[node], self.reached[node]) = (heard, reached);
        if !is_as_before {
            self.alone[node].clear();
        }
        let alone = self.alone_in(node);
        self.alone[node].retain(|group, _| alone.contains(group));
        for group in alone {
            let (since, has_complained) = self.alone[node].entry(group).or_insert((now, false));
            let before = now.saturating_sub(ANSWERS_ALONE);
            if *since < before
                && !*has_complained
                && let Some(text) = self.clients.waits_since((node, group), before)
            {
                *has_complained = true;
                self.complain(&format!("node {} has no majority, and {text}", node + 1));
            }
        }
    }

    /// The nodes from which something comes to `node`, itself included; none where it does not run.
    fn heard_by(&self, node: usize) -> Vec<usize> {
        let runs = |node: usize| self.nodes[node].life.is_some() && !self.nodes[node].is_paused;
        let is_heard =
            |other: &usize| *other == node || runs(*other) && self.network.is_open((*other, node));
        if runs(node) { (0..self.nodes.len()).filter(is_heard).collect() } else { Vec::new() }
    }

    /// The groups of which `node` runs and cannot reach a majority, itself included, both ways: of the replicas if it has
    /// one, of those that its catalog wishes otherwise. A leader that it reaches knows better than the node whether there
    /// is one.
    fn alone_in(&self, node: usize) -> Vec<GroupId> {
        let is_reached = |other: usize| self.reached[node].contains(&other);
        let all: Vec<usize> = self.members().collect();
        if self.reached[node].is_empty() || all.iter().all(|other| is_reached(*other)) {
            return Vec::new();
        }
        let groups = self.nodes[node].life.as_ref().map_or(0, |life| life.catalog.group_count());
        let reached = all.iter().filter(|other| **other != node && is_reached(**other));
        let led: Vec<GroupId> = reached.flat_map(|other| self.nodes[*other].led()).collect();
        let is_alone = |group: &GroupId| {
            if led.contains(group) {
                return false;
            }
            let of = self.nodes[node].replicas_of(*group);
            of.iter().filter(|other| is_reached(**other)).count() * 2 <= of.len()
        };
        (1..=groups).map(GroupId).filter(is_alone).collect()
    }

    /// Names those that were not, in the story.
    pub(super) fn tell_unserved(&mut self) {
        for name in self.clients.publisher_names() {
            if !self.diary.served.contains(&name) {
                self.line(&format!("{name} was not answered"));
            }
        }
    }

    /// Whether every publisher was answered since the harm was over.
    pub(super) fn is_served(&self) -> bool {
        self.diary.served.len() >= self.clients.publisher_names().len()
    }

    /// Whether every node runs and serves.
    pub(super) fn is_whole(&self) -> bool {
        self.members().all(|node| self.nodes[node].is_serving() && !self.nodes[node].is_paused)
    }

    /// Whether the operator's orders are carried out, and every group has the voters that it should.
    pub(super) fn is_settled(&self) -> bool {
        self.operator.is_done() && self.members().all(|node| self.nodes[node].is_placed())
    }

    /// Whether all nodes of the cluster have agreed on the newest version that each reads.
    pub(super) fn is_raised(&self) -> bool {
        let speaks = self.members().map(|node| self.nodes[node].speaks).min();
        let mut lives = self.members().filter_map(|node| self.nodes[node].life.as_ref());
        lives.all(|life| Some(life.catalog.agreed()) == speaks) && self.clients.has_used_newer()
    }

    /// The nodes that are in the cluster.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].place == Place::Member)
    }

    pub(super) fn any_member(&mut self) -> usize {
        let members: Vec<usize> = self.members().collect();
        members[self.chance.within(0, members.len() as u64) as usize]
    }

    /// Three different ones, by chance.
    pub(super) fn three_members(&mut self) -> [usize; 3] {
        let mut members: Vec<usize> = self.members().collect();
        [(); 3].map(|()| members.swap_remove(self.chance.within(0, members.len() as u64) as usize))
    }

    /// What is wrong in what the leaders of groups know of consumers.
    pub(super) fn differs(&self) -> Option<String> {
        let lives = self.nodes.iter().filter_map(|node| node.life.as_ref());
        let shards = lives.flat_map(|life| &life.shards);
        let known: Vec<_> = shards.flat_map(cluster::shard::Shard::attachments).collect();
        self.clients.differs(&known, &self.nodes)
    }

    /// A replica whose queue is not as the catalog of its node says.
    pub(super) fn differs_from_catalog(&self) -> Option<String> {
        self.queues_differ(|_| true)
    }

    /// The same, of queues with some names alone.
    pub(super) fn queues_differ(&self, is_meant: impl Fn(&str) -> bool) -> Option<String> {
        for node in self.members() {
            let Some(life) = &self.nodes[node].life else { continue };
            let is_kept = |group| life.catalog.voters(group).contains(&self.nodes[node].id);
            let meant = life.catalog.queues().filter(|queue| is_meant(&queue.name));
            let parts = meant.flat_map(|queue| queue.partitions().map(move |part| (queue, part)));
            for (queue, partition) in parts.filter(|(_, partition)| is_kept(partition.group)) {
                let mut groups = life.shards.iter().flat_map(cluster::shard::Shard::groups);
                let found = groups.find(|(group, _)| *group == partition.group);
                let has = found.and_then(|(_, group)| group.settings(partition.queue));
                if has != Some((&queue.settings_of(partition), queue.revision)) {
                    let (name, node) = (&queue.name, node + 1);
                    return Some(format!("node {node} has {has:?} of {name}, which is {queue:?}"));
                }
            }
        }
        None
    }

    /// Whether all replicas of every group have applied the same; with their digests.
    pub(super) fn agree(&mut self) -> bool {
        let mut applied = std::collections::BTreeMap::new();
        let mut agrees = true;
        for node in self.members().collect::<Vec<_>>() {
            let Some(life) = &self.nodes[node].life else { return false };
            let all: Vec<_> = life.shards.iter().flat_map(|shard| states(shard, true)).collect();
            for state in all {
                // What was let go may stay behind.
                if !life.catalog.voters(state.group).contains(&self.nodes[node].id) {
                    continue;
                }
                agrees &= *applied.entry(state.group).or_insert(state.applied) == state.applied;
                self.watch.stands(node, &state);
            }
        }
        self.deliver_answers();
        agrees
    }
}
