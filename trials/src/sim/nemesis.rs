//! Harm: what is done to nodes, disks, clocks and the network, and for how long.

use std::collections::{BTreeMap, BTreeSet};

use wal::Disk;
use wal::sim::Fault;

use super::agenda::{Event, Micros};
use super::node::BALLAST_BYTES;
use super::world::{Death, World};
use crate::history::{Nanos, What};

/// Harms that last at the same time, at most.
const WOUNDS_MAX: usize = 3;
/// What is left of a disk that is filled, at most.
const LEFT_MAX: u64 = 128 << 10;
/// Time between two harms, from and to.
const PAUSE: (Micros, Micros) = (100_000, 1_600_000);

/// A node refuses half a second after it has lost the majority. After a second of silence the others elect another.
const CUT_OFF: (Micros, Micros) = (520_000, 1_050_000);

/// How long a link is cut whose ends are to die, and within which time each dies.
const CUT_LINK: (Micros, Micros) = (2_000_000, 4_000_000);
const DIES_WITHIN: Micros = 1_200_000;

/// Harm that is to be undone.
#[derive(Debug, Default)]
struct Wound {
    kind: &'static str,
    node: usize,
    t0: Nanos,
    cut: Vec<(usize, usize)>,
    /// A flapping connection: it is mended and cut this often more.
    flaps: u32,
    is_mended: bool,
    slow: Vec<((usize, usize), Micros)>,
    disk: Option<(Micros, Micros)>,
    processor: bool,
    /// Nodes whose disks are full.
    full: Vec<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Nemesis {
    count: u64,
    wounds: BTreeMap<u64, Wound>,
    /// What was done how often.
    pub(super) done: BTreeMap<&'static str, u64>,
    pub(super) is_over: bool,
    /// Clocks on the wall are set, too. Then the broker's time says nothing about ours, and less can be
    /// judged: half of the seeds go without.
    sets_clocks: bool,
    /// Nodes are slow now and then: much then comes for one turn of a shard. Some seeds have none, and keep
    /// the stories that they once failed with.
    has_slow_nodes: bool,
    /// The files of one node are damaged now and then while it is down: all the others must be whole to make
    /// up for that. As above, in some seeds.
    pub(super) has_damage: bool,
    /// Disks of one node, several or all are full now and then, in some seeds.
    pub(super) fills_disks: bool,
    /// Most harms aim at rare moments. No seed does that by itself.
    pub(super) is_aimed: bool,
    /// Which node is damaged.
    pub(super) damaged: Option<usize>,
    /// Nodes whose disks had failed before the heal, and which may say so after it.
    pub(super) failed: BTreeSet<usize>,
}

impl Nemesis {
    pub(super) fn new(seed: u64) -> Self {
        let (sets_clocks, has_slow_nodes) = (seed.is_multiple_of(2), seed.is_multiple_of(5));
        let has_damage = matches!(seed % 9, 0 | 8);
        let fills_disks = seed % 3 == 2;
        Self { sets_clocks, has_slow_nodes, has_damage, fills_disks, ..Self::default() }
    }
}

impl World {
    /// The next harm, and when the one after it comes.
    pub(super) fn harm(&mut self) {
        if self.nemesis.is_over {
            return;
        }
        let pause = self.chance.within(PAUSE.0, PAUSE.1);
        self.agenda.after(pause, Event::Harm);
        if self.nemesis.wounds.len() >= WOUNDS_MAX {
            return;
        }
        let nodes = self.nodes.len() as u64;
        let node = self.chance.within(0, nodes) as usize;
        if self.nemesis.has_slow_nodes && self.chance.percent(40) {
            self.slow_processor(node);
        }
        if self.nemesis.fills_disks && self.chance.percent(25) {
            self.fill_disks(node);
        }
        if self.nemesis.is_aimed && self.chance.percent(70) {
            return self.aim(node);
        }
        match self.chance.within(0, if nodes > 1 { 100 } else { 40 }) {
            0..8 => self.crash(node, Death::Kill),
            8..18 => self.crash(node, Death::PowerCut),
            18..20 => self.crash_all(),
            20..26 => self.break_disk(node, Fault::PowerOff),
            26..30 => self.break_disk(node, Fault::Broken),
            30..40 if self.nemesis.sets_clocks => self.wrong_clock(node),
            30..40 => self.slow_disk(node),
            40..48 => self.pause(node),
            48..56 => self.break_connection(node),
            56..60 => self.slow_link(node),
            _ => self.partition(node),
        }
    }

    fn note(&mut self, kind: &'static str, node: usize) {
        *self.nemesis.done.entry(kind).or_default() += 1;
        self.line(&format!("{kind}, node {}", node + 1));
    }

    fn wound(&mut self, wound: Wound, lasts: (Micros, Micros)) {
        self.note(wound.kind, wound.node);
        self.nemesis.count += 1;
        let number = self.nemesis.count;
        let wound = Wound { t0: self.diary.nanos(), ..wound };
        for way in &wound.cut {
            self.network.cut(*way);
        }
        for (way, by) in &wound.slow {
            self.network.slow_down(*way, *by);
        }
        self.nemesis.wounds.insert(number, wound);
        let lasts = self.chance.within(lasts.0, lasts.1);
        self.agenda.after(lasts, Event::Undo { number });
    }

    /// A harm is over, or a flapping connection changes its mind.
    pub(super) fn undo(&mut self, number: u64) {
        let Some(mut wound) = self.nemesis.wounds.remove(&number) else { return };
        if wound.flaps > 0 && !self.nemesis.is_over {
            wound.flaps -= 1;
            for way in &wound.cut {
                match wound.is_mended {
                    true => self.network.cut(*way),
                    false => self.network.mend(*way, &mut self.chance, &mut self.agenda),
                }
            }
            wound.is_mended = !wound.is_mended;
            self.nemesis.wounds.insert(number, wound);
            let next = self.chance.within(50_000, 1_000_000);
            self.agenda.after(next, Event::Undo { number });
            return;
        }
        if !wound.is_mended {
            for way in &wound.cut {
                self.network.mend(*way, &mut self.chance, &mut self.agenda);
            }
        }
        for (way, by) in &wound.slow {
            self.network.speed_up(*way, *by);
        }
        if let Some(sync) = wound.disk {
            self.nodes[wound.node].sync = sync;
        }
        if wound.processor {
            self.nodes[wound.node].busy = 0;
        }
        for node in &wound.full {
            self.nodes[*node].disk.set_capacity(u64::MAX);
            self.nodes[*node].is_squeezed = false;
        }
        let (kind, node) = (wound.kind.to_owned(), wound.node as u32 + 1);
        let (t0, t1) = (wound.t0, self.diary.nanos());
        self.line(&format!("{kind}, node {node}: over"));
        self.diary.saw("world", What::Fault { kind, node, t0, t1, sectors: 0 });
    }

    /// No more harm, and all that was done is undone.
    pub(super) fn heal(&mut self) {
        self.nemesis.is_over = true;
        self.diary.served.clear();
        let numbers: Vec<u64> = self.nemesis.wounds.keys().copied().collect();
        for number in numbers {
            self.undo(number);
        }
        for (number, node) in self.nodes.iter_mut().enumerate() {
            if node.disk.has_met_fault() {
                self.nemesis.failed.insert(number);
            }
            node.disk.heal();
            node.wall_error_ms = 0;
        }
        // Nobody may have noticed yet: what is written last of all may be a file that is of no use.
        for node in 0..self.nodes.len() {
            if self.nodes[node].life.is_some() && self.nodes[node].disk.is_off() {
                self.crash(node, Death::PowerCut);
            }
        }
        self.line("healed");
        self.diary.saw("world", What::Heal);
    }

    fn crash_all(&mut self) {
        for node in 0..self.nodes.len() {
            let death = if self.chance.percent(50) { Death::PowerCut } else { Death::Kill };
            self.crash(node, death);
        }
    }

    /// The disk fails before long, in the middle of something.
    fn break_disk(&mut self, node: usize, fault: Fault) {
        let kind = if fault == Fault::Broken { "disk fails" } else { "power off while writing" };
        self.note(kind, node);
        let count = self.chance.within(1, 25);
        self.nodes[node].disk.fail_at(count, fault);
    }

    /// While the node is down a bit flips in one of its files. Not in the newest of the log: of what was written
    /// last nobody can tell whether it ever was.
    pub(super) fn damage(&mut self, node: usize) {
        let Nemesis { has_damage, damaged, is_over, .. } = self.nemesis;
        let is_others = damaged.is_some_and(|other| other != node);
        let are_others_whole = self.members().count() >= 3 && self.are_others_placed(node);
        if !has_damage || is_over || is_others || !are_others_whole || self.chance.percent(40) {
            return;
        }
        let disk = self.nodes[node].disk.clone();
        let mut paths = disk.paths();
        let newest = paths.iter().filter(|path| path.starts_with("wal/")).rev().take(2).cloned();
        let newest: Vec<String> = newest.collect();
        paths.retain(|path| {
            let is_log = path.starts_with("wal/0") && !newest.contains(path);
            is_log || path.starts_with("groups/")
        });
        if paths.is_empty() {
            return;
        }
        let path = &paths[self.chance.within(0, paths.len() as u64) as usize];
        let contents = disk.contents(path).unwrap_or_default();
        let places = contents.len().max(1) as u64;
        // Where something is written.
        let drawn: Vec<u64> = (0..50).map(|_| self.chance.within(0, places)).collect();
        let is_written = |at: &u64| contents.get(*at as usize).is_some_and(|byte| *byte != 0);
        let Some(at) = drawn.into_iter().find(is_written) else { return };
        disk.flip_bit(path, at * 8 + self.chance.within(0, 8));
        self.nemesis.damaged = Some(node);
        self.watch.damaged(node);
        self.note("damage", node);
        self.line(&format!("node {}: byte {at} of {path} is damaged", node + 1));
    }

    /// Whether no group moves: one that gives up a voter and has not got the next can spare none.
    fn are_others_placed(&self, node: usize) -> bool {
        let are_placed = || self.members().all(|it| it == node || self.nodes[it].is_placed());
        self.operator.is_done() && (!self.changes_members || are_placed())
    }

    fn slow_disk(&mut self, node: usize) {
        if self.nemesis.wounds.values().any(|wound| wound.node == node && wound.disk.is_some()) {
            return;
        }
        let disk = Some(self.nodes[node].sync);
        let sync = self.chance.within(20_000, 600_000);
        self.nodes[node].sync = (sync / 2, sync);
        let wound = Wound { kind: "slow disk", node, disk, ..Wound::default() };
        self.wound(wound, (500_000, 5_000_000));
    }

    /// Somebody else fills the disk, but for a little; of some even what the node holds back for that is no
    /// use, for whatever it gives free is gone at once.
    fn fill_disks(&mut self, node: usize) {
        if self.nemesis.wounds.values().any(|wound| !wound.full.is_empty()) {
            return;
        }
        let count = match self.chance.within(0, 10) {
            0..6 => 1,
            6..8 => 2,
            _ => self.nodes.len(),
        };
        let mut full = Vec::new();
        for nth in 0..count.min(self.nodes.len()) {
            let node = (node + nth) % self.nodes.len();
            let disk = &self.nodes[node].disk;
            let Ok(free) = disk.free_bytes() else { continue };
            let taken = if self.chance.percent(40) { BALLAST_BYTES } else { 0 };
            let left = self.chance.within(0, LEFT_MAX);
            disk.set_capacity((u64::MAX - free).saturating_sub(taken).saturating_add(left));
            self.nodes[node].is_squeezed = taken > 0;
            full.push(node);
        }
        let kind = match full.len() {
            0 => return,
            1 => "full disk",
            all if all == self.nodes.len() => "full disks of all",
            _ => "full disks",
        };
        self.wound(Wound { kind, node, full, ..Wound::default() }, (500_000, 7_000_000));
    }

    /// Its threads get little of the processor, but never so little that they would notice. What else comes
    /// over the node they then find in one turn with what its clients have asked.
    fn slow_processor(&mut self, node: usize) {
        if self.nemesis.wounds.values().any(|wound| wound.node == node && wound.processor) {
            return;
        }
        self.nodes[node].busy = self.chance.within(20_000, 600_000);
        let wound = Wound { kind: "slow processor", node, processor: true, ..Wound::default() };
        self.wound(wound, (500_000, 4_000_000));
    }

    fn wrong_clock(&mut self, node: usize) {
        let ms = [-300_000, 300_000, 31_536_000_000, -31_536_000_000, -40, 700];
        let by = ms[self.chance.within(0, ms.len() as u64) as usize];
        self.note("clock jumps", node);
        self.nodes[node].wall_error_ms += by;
        let (node, by_ms) = (node as u32 + 1, by);
        self.diary.saw("world", What::Clock { node, by_ms });
    }

    fn pause(&mut self, node: usize) {
        if self.nodes[node].life.is_none() || self.nodes[node].is_paused {
            return;
        }
        self.note("stopped", node);
        let lasts = match self.chance.percent(30) {
            true => self.chance.within(10_000, 400_000),
            false => self.chance.within(400_000, 5_000_000),
        };
        let node_ = &mut self.nodes[node];
        node_.is_paused = true;
        let life = node_.lives;
        self.network.set_mute(node, true);
        self.agenda.after(lasts, Event::Resume { node, life });
        let (kind, t0) = ("stopped".to_owned(), self.diary.nanos());
        let (node, t1) = (node as u32 + 1, t0 + lasts * 1000);
        self.diary.saw("world", What::Fault { kind, node, t0, t1, sectors: 0 });
    }

    pub(super) fn break_connection(&mut self, node: usize) {
        let peer = self.other(node);
        self.note("connection breaks", node);
        let told = self.network.give_up((node, peer), &mut self.chance, &mut self.agenda);
        let (kind, t0) = ("connection breaks".to_owned(), self.diary.nanos());
        let (number, t1) = (node as u32 + 1, t0 + 1_000_000);
        self.diary.saw("world", What::Fault { kind, node: number, t0, t1, sectors: 0 });
        told.into_iter().for_each(|told| self.tell(told));
    }

    /// What planted bugs need is rare where all harm comes by chance.
    fn aim(&mut self, node: usize) {
        match self.chance.percent(50) {
            true => {
                let changers = self.clients.homes_of_changers();
                let drawn = self.chance.within(0, changers.len().max(1) as u64) as usize;
                self.cut_off(changers.get(drawn).copied().unwrap_or(node));
            }
            false => self.die_behind_a_cut_link(node),
        }
    }

    /// A link is cut. Then one of its ends dies, and where there are five nodes, another one as the first comes back.
    /// What the first has on its way over that link does not arrive, and a leader that is young does not hear of what
    /// sessions at the other end hold.
    fn die_behind_a_cut_link(&mut self, node: usize) {
        let peer = self.other(node);
        let cut = vec![(node, peer), (peer, node)];
        self.wound(Wound { kind: "cut, then killed", node, cut, ..Wound::default() }, CUT_LINK);
        let first = self.chance.within(0, DIES_WITHIN);
        self.agenda.after(first, Event::Die { node });
        if self.nodes.len() >= 5 {
            let after = self.chance.within(0, DIES_WITHIN);
            let third = (0..self.nodes.len()).filter(|it| *it != node && *it != peer);
            let third: Vec<usize> = third.collect();
            let node = third[self.chance.within(0, third.len() as u64) as usize];
            self.agenda.after(first + after, Event::Die { node });
        }
    }

    /// Both ways between two nodes.
    pub(super) fn cut_link(&mut self, one: usize, other: usize) {
        self.line(&format!("the link of nodes {} and {} is cut", one + 1, other + 1));
        [(one, other), (other, one)].into_iter().for_each(|way| self.network.cut(way));
    }

    pub(super) fn mend_link(&mut self, one: usize, other: usize) {
        for way in [(one, other), (other, one)] {
            self.network.mend(way, &mut self.chance, &mut self.agenda);
        }
    }

    /// A death that was planned, unless all harm is over.
    pub(super) fn die(&mut self, node: usize) {
        if !self.nemesis.is_over {
            self.crash(node, Death::Kill);
        }
    }

    /// The connections of a node break, and the network heals about when the node begins to refuse what it is asked.
    /// If it led, it mostly leads again.
    fn cut_off(&mut self, node: usize) {
        let peers: Vec<usize> = (0..self.nodes.len()).filter(|peer| *peer != node).collect();
        let cut = peers.iter().flat_map(|peer| [(node, *peer), (*peer, node)]).collect();
        self.wound(Wound { kind: "cut off", node, cut, ..Wound::default() }, CUT_OFF);
        for peer in peers {
            let told = self.network.give_up((node, peer), &mut self.chance, &mut self.agenda);
            told.into_iter().for_each(|told| self.tell(told));
        }
    }

    fn slow_link(&mut self, node: usize) {
        let peer = self.other(node);
        let by = self.chance.within(5_000, 250_000);
        let mut slow = vec![((node, peer), by)];
        if self.chance.percent(70) {
            slow.push(((peer, node), by));
        }
        let wound = Wound { kind: "slow link", node, slow, ..Wound::default() };
        self.wound(wound, (500_000, 4_000_000));
    }

    fn other(&mut self, node: usize) -> usize {
        let nodes = self.nodes.len();
        (node + 1 + self.chance.within(0, nodes as u64 - 1) as usize) % nodes
    }

    fn partition(&mut self, node: usize) {
        let nodes = self.nodes.len();
        let all = || (0..nodes).flat_map(move |a| (0..nodes).map(move |b| (a, b)));
        let all = || all().filter(|(a, b)| a != b);
        let peer = self.other(node);
        let (kind, flaps, cut): (_, _, Vec<(usize, usize)>) = match self.chance.within(0, 8) {
            0 | 1 => ("isolated", 0, all().filter(|(a, b)| *a == node || *b == node).collect()),
            2 => {
                let side = self.chance.within(1, 1 << nodes);
                let differ = |(a, b): &(usize, usize)| (side >> a & 1) != (side >> b & 1);
                ("halves", 0, all().filter(differ).collect())
            }
            // The others see the node between them, and not each other.
            3 => ("bridge", 0, all().filter(|(a, b)| *a != node && *b != node).collect()),
            4 => {
                // Each sees its neighbours in a ring: majorities, and all of them different.
                let far = |(a, b): &(usize, usize)| {
                    let apart = (a + nodes - b) % nodes;
                    nodes > 3 && apart > 1 && apart < nodes - 1
                };
                let mut cut: Vec<_> = all().filter(far).collect();
                if cut.is_empty() {
                    cut = vec![(node, peer), (peer, node)];
                }
                ("ring", 0, cut)
            }
            5 => ("one way", 0, vec![(node, peer)]),
            6 => {
                let is_deaf = self.chance.percent(50);
                let concerns =
                    |(a, b): &(usize, usize)| if is_deaf { *b == node } else { *a == node };
                (if is_deaf { "deaf" } else { "dumb" }, 0, all().filter(concerns).collect())
            }
            _ => {
                let cut = match self.chance.percent(50) {
                    true => vec![(node, peer), (peer, node)],
                    false => all().filter(|(a, b)| *a == node || *b == node).collect(),
                };
                ("flapping", self.chance.within(2, 9) as u32, cut)
            }
        };
        let lasts = match self.chance.percent(30) {
            true => (20_000, 900_000),
            false => (900_000, 6_000_000),
        };
        self.wound(Wound { kind, node, cut, flaps, ..Wound::default() }, lasts);
    }
}
