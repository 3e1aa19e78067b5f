//! What the log should hold after a random workload, kept beside it for comparison.
//!
//! Shared by the crash tests. `World` is the promise in the plainest form: per group the hard
//! state, the entries above the checkpoint, and the checkpoint with all messages of its segments.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of it")]
#![allow(clippy::unwrap_used, reason = "this is test code")]

use std::collections::BTreeMap;

use bytes::Bytes;
use wal::segments::{SegmentMeta, Sharing};
use wal::sim::{Random, SimDisk};
use wal::{
    Checkpoint, CommitBatch, Config, Damage, Error, Identity, Item, Keeper, Live, Place, Reader,
    Recovered, RecoveredGroup, Wal,
};

pub const IDENTITY: Identity = Identity { cluster: 0xabcd, node: 3, incarnation: 1 };
/// What is said of a group that recovery does not know and that may be lost.
pub const UNKNOWN: &str = "unknown group";
const GROUPS: u64 = 3;
const QUEUES: u64 = 3;

/// Queue, sequence number, contents.
pub type Message = (u64, u64, Bytes);

/// What was read back, what was called damaged, and the keeper.
pub type ReadBack = (World, BTreeMap<u32, Damage>, Keeper<SimDisk>);

/// All groups; those without anything are left out.
pub type World = BTreeMap<u32, Group>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub hard_state: Option<Bytes>,
    pub entries: Vec<(u64, u64, Bytes)>,
    pub checkpoint: Option<(u64, u64, Bytes)>,
    /// Sorted.
    pub messages: Vec<Message>,
}

impl Group {
    /// This group's log with a checkpoint of another moment.
    pub fn with_checkpoint_of(&self, other: &Group) -> Group {
        let mut mixed = other.clone();
        mixed.hard_state = self.hard_state.clone();
        mixed.entries = self.entries.clone();
        if let Some((index, term, _)) = &other.checkpoint
            && mixed.entries.iter().any(|entry| entry.0 == *index && entry.1 != *term)
        {
            // A snapshot made them void.
            mixed.entries.clear();
        }
        mixed.entries.retain(|entry| entry.0 > other.truncated());
        mixed
    }

    fn truncated(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.0)
    }

    fn last(&self) -> u64 {
        self.entries.last().map_or(self.truncated(), |entry| entry.0)
    }

    fn apply(&mut self, item: &Item) {
        match item {
            Item::Entry { index, term, data } => {
                self.entries.retain(|entry| entry.0 < *index);
                self.entries.push((*index, *term, data.clone()));
            }
            Item::HardState(state) => self.hard_state = Some(state.clone()),
            Item::TruncateFrom(index) => self.entries.retain(|entry| entry.0 < *index),
            Item::Reset(_) | Item::Rejoined => {}
        }
    }
}

/// A log, its keeper, and what they should hold.
pub struct Life {
    pub wal: Wal<SimDisk>,
    pub keeper: Keeper<SimDisk>,
    pub world: World,
    /// Also possible, when the last step failed: it may have been done, in part or whole.
    pub maybe: Vec<World>,
    pub was_torn: bool,
    places: Vec<(Place, Bytes)>,
    metas: BTreeMap<u32, Vec<SegmentMeta>>,
    term: u64,
}

pub fn config(random: &mut Random) -> Config {
    let file_bytes = [8 << 10, 16 << 10, 32 << 10][random.below(3) as usize];
    Config { file_bytes, ballast_bytes: 0, ..Config::new(IDENTITY) }
}

/// What recovery gave, read back in full; and what it called damaged.
pub fn read_world(wal: &mut Wal<SimDisk>, recovered: &Recovered) -> Result<ReadBack, Error> {
    let mut world = World::new();
    let mut damaged = BTreeMap::new();
    let reader = wal.reader();
    let keeper = wal.keeper();
    for (number, found) in &recovered.groups {
        if let Some(damage) = &found.damage {
            damaged.insert(*number, damage.clone());
            continue;
        }
        match read_group(*number, found, &reader, &keeper) {
            Ok(group) if group == Group::default() => {}
            Ok(group) => drop(world.insert(*number, group)),
            Err(Error::Damaged { path, offset, what }) => {
                damaged.insert(*number, Damage { path, offset, index: None, what });
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(loss) = recovered.losses.first() {
        // A group that is not known at all may have been lost altogether.
        for number in 1..=GROUPS as u32 {
            if !recovered.groups.contains_key(&number) {
                damaged.insert(number, Damage { what: UNKNOWN.into(), ..loss.clone() });
            }
        }
    }
    Ok((world, damaged, keeper))
}

fn read_group(
    number: u32,
    found: &RecoveredGroup,
    reader: &Reader<SimDisk>,
    keeper: &Keeper<SimDisk>,
) -> Result<Group, Error> {
    let mut group = Group { hard_state: found.hard_state.clone(), ..Group::default() };
    for entry in &found.entries {
        group.entries.push((entry.index, entry.term, reader.read(entry.place)?));
    }
    let Some(checkpoint) = &found.checkpoint else { return Ok(group) };
    let Checkpoint { index, term, state, segments, .. } = checkpoint;
    group.checkpoint = Some((*index, *term, state.clone()));
    for meta in segments {
        group.messages.extend(read_segment(keeper, number, meta)?);
    }
    group.messages.sort();
    Ok(group)
}

fn read_segment(
    keeper: &Keeper<SimDisk>,
    number: u32,
    meta: &SegmentMeta,
) -> Result<Vec<Message>, Error> {
    let segment = keeper.open_segment(number, meta)?;
    let mut messages = Vec::new();
    for extent in segment.extents() {
        let mut next = extent.first_seq;
        loop {
            let found = segment.read(extent.queue, next, 700)?;
            let Some((last, _)) = found.last() else { break };
            next = last + 1;
            messages.extend(found.into_iter().map(|(seq, m)| (extent.queue, seq, m)));
        }
    }
    Ok(messages)
}

impl Life {
    /// Opens the log and checks it against what it may hold. Panics if it holds anything else.
    pub fn open(disk: &SimDisk, config: Config, maybe: &[World]) -> Result<Self, Error> {
        let (mut wal, recovered) = Wal::open(disk.clone(), config)?;
        let (world, damaged, keeper) = read_world(&mut wal, &recovered)?;
        assert!(damaged.is_empty(), "nothing is damaged by a power cut: {damaged:?}");
        if !maybe.contains(&world) {
            panic!("{}", difference(&world, maybe));
        }
        let metas = recovered.groups.iter().filter_map(|(number, group)| {
            Some((*number, group.checkpoint.as_ref()?.segments.clone()))
        });
        let term = world.values().flat_map(|group| &group.entries).map(|entry| entry.1).max();
        let term = term.unwrap_or(1).max(
            world
                .values()
                .filter_map(|group| group.checkpoint.as_ref())
                .map(|c| c.1)
                .max()
                .unwrap_or(1),
        );
        let metas = metas.collect();
        let places = Vec::new();
        let was_torn = recovered.was_torn;
        Ok(Self { wal, keeper, world, maybe: Vec::new(), was_torn, places, metas, term })
    }

    /// One random step. After an error, `maybe` has what else the log may hold.
    pub fn step(&mut self, random: &mut Random) -> Result<(), Error> {
        self.maybe.clear();
        match random.below(100) {
            0..60 => self.commit(random),
            60..75 => self.keeper.preparer().prepare_next(random.below(12 << 10)).map(|_| ()),
            75..80 => self.keeper.preparer().remove_spare().map(|_| ()),
            80..92 => self.checkpoint(random),
            92..95 => self.snapshot(random),
            _ => self.read_one(random),
        }
    }

    pub fn commit(&mut self, random: &mut Random) -> Result<(), Error> {
        let count = 1 + random.below(3);
        let mut world = self.world.clone();
        let mut worlds = Vec::new();
        let mut data = Vec::new();
        let mut batches = Vec::new();
        for _ in 0..count {
            batches.push(self.batch(random, &mut world, &mut data));
            worlds.push(world.clone());
        }
        self.maybe = worlds;
        let synced = match self.wal.commit(batches) {
            Err(Error::TooLarge { .. }) => {
                self.maybe.clear();
                return Ok(());
            }
            other => other?,
        };
        assert_eq!(synced.places().len(), data.len(), "every entry has a place");
        self.places.extend(synced.places().iter().copied().zip(data));
        self.world = world;
        Ok(())
    }

    fn batch(
        &mut self,
        random: &mut Random,
        world: &mut World,
        data: &mut Vec<Bytes>,
    ) -> CommitBatch {
        let mut batch = CommitBatch::new();
        for _ in 0..1 + random.below(4) {
            let number = 1 + random.below(GROUPS) as u32;
            let group = world.entry(number).or_default();
            let index = match random.chance(10) {
                true => group.truncated() + 1 + random.below(group.last() - group.truncated() + 1),
                false => group.last() + 1,
            };
            if index <= group.last() {
                self.term += 1;
            }
            let item = match random.below(10) {
                0 => Item::TruncateFrom(index),
                1..4 => Item::HardState(payload(random, 60)),
                _ => Item::Entry { index, term: self.term, data: payload(random, 1500) },
            };
            if let Item::Entry { data: bytes, .. } = &item {
                data.push(bytes.clone());
            }
            group.apply(&item);
            batch.add(number, item);
        }
        batch
    }

    pub fn checkpoint(&mut self, random: &mut Random) -> Result<(), Error> {
        let Some((number, before)) = self.some_group(random) else { return Ok(()) };
        let index = match random.chance(70) {
            true => before.last(),
            false => before.truncated() + random.below(before.last() - before.truncated() + 1),
        };
        let term = before.entries.iter().find(|entry| entry.0 == index).map_or(
            before.checkpoint.as_ref().map_or(self.term, |checkpoint| checkpoint.1),
            |entry| entry.1,
        );
        let mut after = before.clone();
        let state = payload(random, 400);
        after.checkpoint = Some((index, term, state.clone()));
        after.entries.retain(|entry| entry.0 > index);
        let mut metas = self.metas.get(&number).cloned().unwrap_or_default();
        if random.chance(30) && !metas.is_empty() {
            let gone = metas.remove(random.below(metas.len() as u64) as usize);
            let is_in = |m: &Message| {
                gone.extent(m.0).is_some_and(|e| (e.first_seq..=e.last_seq).contains(&m.1))
            };
            after.messages.retain(|message| !is_in(message));
        }
        if random.chance(60) {
            let mut segment = self.keeper.segment(number)?;
            let common = payload(random, 300);
            for queue in 1..=QUEUES {
                // Indexes grow, so sequence numbers made of them do too.
                let first =
                    metas.iter().filter_map(|meta| meta.extent(queue)).map(|e| e.last_seq + 1);
                let first = first.max().unwrap_or(0);
                for seq in first..first + random.below(4) {
                    // Of what queues share, the queue's number is its own.
                    let shared = || Bytes::from([&queue.to_le_bytes()[..], &common].concat());
                    let message = if random.chance(40) {
                        let sharing = Sharing { origin: (1, 1), queue_at: 0 };
                        segment.add_shared(queue, seq, sharing, &shared())?;
                        shared()
                    } else {
                        let message = payload(random, 300);
                        segment.add(queue, seq, &message)?;
                        message
                    };
                    after.messages.push((queue, seq, message));
                }
            }
            metas.push(segment.finish()?);
            after.messages.sort();
        }
        if random.chance(40) {
            (metas, after.messages) = self.compact(number, metas, &after.messages, random)?;
        }
        let mut world = self.world.clone();
        world.insert(number, after);
        self.maybe = vec![world.clone()];
        let checkpoint = Checkpoint { group: number, index, term, state, segments: metas.clone() };
        self.keeper.install(checkpoint)?;
        self.world = world;
        self.metas.insert(number, metas);
        Ok(())
    }

    /// A snapshot from a peer: it may lie ahead of the log, and what lies above it is void.
    pub fn snapshot(&mut self, random: &mut Random) -> Result<(), Error> {
        let number = 1 + random.below(GROUPS) as u32;
        let before = self.world.get(&number).cloned().unwrap_or_default();
        let index = before.truncated() + 1 + random.below(before.last() - before.truncated() + 10);
        self.term += 1;
        let (term, state) = (self.term, payload(random, 400));
        let mut after = Group { hard_state: before.hard_state.clone(), ..Group::default() };
        after.checkpoint = Some((index, term, state.clone()));
        let mut metas = Vec::new();
        if random.chance(60) {
            let mut segment = self.keeper.segment(number)?;
            for seq in 0..1 + random.below(5) {
                let message = payload(random, 300);
                segment.add(1, seq, &message)?;
                after.messages.push((1, seq, message));
            }
            metas.push(segment.finish()?);
        }
        let mut world = self.world.clone();
        world.insert(number, after);
        self.maybe = vec![world.clone()];
        let checkpoint = Checkpoint { group: number, index, term, state, segments: metas.clone() };
        self.keeper.install(checkpoint)?;
        self.world = world;
        self.metas.insert(number, metas);
        Ok(())
    }

    /// Some messages die, and segments are rewritten. Those that live must all be there, and
    /// nothing that was not.
    fn compact(
        &mut self,
        number: u32,
        metas: Vec<SegmentMeta>,
        messages: &[Message],
        random: &mut Random,
    ) -> Result<(Vec<SegmentMeta>, Vec<Message>), Error> {
        let dead = random.below(100);
        let mut live = Live::new();
        let alive: Vec<_> = messages.iter().filter(|_| random.below(100) >= dead).collect();
        for (queue, seq, _) in &alive {
            live.entry(*queue).or_default().push(*seq..*seq + 1);
        }
        let metas = self.keeper.compact(number, metas, &live)?;
        let mut left = Vec::new();
        for meta in &metas {
            left.extend(read_segment(&self.keeper, number, meta)?);
        }
        left.sort();
        assert!(alive.iter().all(|message| left.contains(message)), "what lives is kept");
        assert!(left.iter().all(|message| messages.contains(message)), "nothing is invented");
        Ok((metas, left))
    }

    fn some_group(&self, random: &mut Random) -> Option<(u32, Group)> {
        let groups: Vec<u32> = self.world.keys().copied().collect();
        let number = *groups.get(random.below(groups.len().max(1) as u64) as usize)?;
        let group = self.world[&number].clone();
        (group.last() > 0).then_some((number, group))
    }

    fn read_one(&mut self, random: &mut Random) -> Result<(), Error> {
        if self.places.is_empty() {
            return Ok(());
        }
        let (place, data) = &self.places[random.below(self.places.len() as u64) as usize];
        match self.wal.reader().read(*place) {
            Ok(found) => assert_eq!(found, data, "a place leads to what was committed"),
            Err(Error::Gone) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// What may be found after the step that failed, or after a crash between steps.
    pub fn possible(&self) -> Vec<World> {
        let clean = |world: &World| {
            let groups = world.iter().filter(|(_, group)| **group != Group::default());
            groups.map(|(number, group)| (*number, group.clone())).collect::<World>()
        };
        std::iter::once(&self.world).chain(&self.maybe).map(clean).collect()
    }
}

pub fn payload(random: &mut Random, bytes_max: u64) -> Bytes {
    let bytes = match random.below(20) {
        0 => 0,
        1 => bytes_max,
        2 => bytes_max * 3,
        _ => random.below(bytes_max),
    };
    let byte = random.number() as u8;
    (0..bytes).map(|at| byte.wrapping_add((at / 7) as u8)).collect()
}

pub fn difference(world: &World, maybe: &[World]) -> String {
    let short = |world: &World| -> Vec<String> {
        let group = |(number, group): (&u32, &Group)| {
            let hard_state = group.hard_state.as_ref().map(|state| crc(state));
            let entries: Vec<String> = group
                .entries
                .iter()
                .map(|(index, term, data)| format!("{index}@{term}:{:x}", crc(data)))
                .collect();
            let checkpoint = group.checkpoint.as_ref().map(|c| (c.0, c.1, crc(&c.2)));
            let messages: Vec<_> = group.messages.iter().map(|m| (m.0, m.1)).collect();
            format!(
                "{number}: hard {hard_state:?} ckpt {checkpoint:?} entries {entries:?} messages {messages:?}"
            )
        };
        world.iter().map(group).collect()
    };
    let mut text = format!("found\n  {}\n", short(world).join("\n  "));
    for possible in maybe {
        text += &format!("possible\n  {}\n", short(possible).join("\n  "));
    }
    text
}

fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(bytes.len() as u16, |crc, byte| crc.rotate_left(3) ^ u16::from(*byte))
}
