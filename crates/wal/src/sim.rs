//! A disk in memory that behaves as badly as disks may, and the same way for the same seed.
//!
//! What was written and not synced may be lost when the power goes, in any subset of its sectors;
//! names that were made, changed or removed may be lost until their directory is synced. A failed
//! sync forgets what it should have written, and the next one says that all is well. Bits flip
//! on request. It keeps no time: slowness is counted, not waited for.

mod inode;
mod names;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

use crate::disk::{Access, Disk, DiskFile};
use crate::io::locked::Locked;
use inode::{Inode, lies_in_one_sector};
use names::Names;

/// A seeded generator of chance: splitmix64.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What a call meets instead of success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An input/output error; a write may have been done in part, a sync has lost its pages.
    Broken,
    /// No space is left; nothing was done.
    Full,
    /// The power goes in the middle of the call. Every later call fails until `power_cut`.
    PowerOff,
}

/// What was asked of the disk so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls that change something: what `fail_at` counts.
    pub changes: u64,
    /// Writes to files.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Syncs of files and directories.
    pub syncs: u64,
    /// Reads of files.
    pub reads: u64,
    /// Time that a disk of the given slowness would have taken.
    pub busy_us: u64,
}

/// How slow the disk would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slowness {
    /// Per sync.
    pub sync_us: u64,
    /// Per MiB written.
    pub mebibyte_us: u64,
}

/// The disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Locked<State>>,
}

/// An open file of a [`SimDisk`]; useless after a power cut.
pub struct SimFile {
    state: Arc<Locked<State>>,
    inode: u64,
    life: u64,
}

/// The directory's lock.
pub struct SimLock {
    state: Arc<Locked<State>>,
    life: u64,
}

struct State {
    inodes: BTreeMap<u64, Inode>,
    inode_next: u64,
    names: Names,
    /// Counts power cuts: handles of an earlier life fail.
    life: u64,
    is_off: bool,
    is_locked: bool,
    /// Change number and what it meets; from then on if `true`.
    fault: Option<(u64, Fault, bool)>,
    capacity_bytes: u64,
    calls: Calls,
    slowness: Slowness,
    random: Random,
}

impl SimDisk {
    /// An empty disk. `seed` decides how far calls get that fail.
    pub fn new(seed: u64) -> Self {
        let state = State {
            inodes: BTreeMap::new(),
            inode_next: 1,
            names: Names::default(),
            life: 0,
            is_off: false,
            is_locked: false,
            fault: None,
            capacity_bytes: u64::MAX,
            calls: Calls::default(),
            slowness: Slowness::default(),
            random: Random::new(seed),
        };
        Self { state: Arc::new(Locked::new(state)) }
    }

    /// The `count`-th change from now on (1: the next) meets `fault`; the ones after it do not.
    pub fn fail_at(&self, count: u64, fault: Fault) {
        let mut state = self.state.lock();
        state.fault = Some((state.calls.changes + count, fault, false));
    }

    /// The `count`-th change from now on (1: the next) and all after it meet `fault`.
    pub fn fail_from(&self, count: u64, fault: Fault) {
        let mut state = self.state.lock();
        state.fault = Some((state.calls.changes + count, fault, true));
    }

    /// All is well again (but for what a failed sync forgot).
    pub fn heal(&self) {
        self.state.lock().fault = None;
    }

    /// Whether the power went, and nobody has brought it back.
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// Whether a fault that was asked for has happened.
    pub fn has_failed(&self) -> bool {
        let state = self.state.lock();
        state.fault.is_none_or(|(at, _, _)| state.calls.changes >= at)
    }

    /// Whether a fault was asked for, and a call has met it.
    pub fn has_met_fault(&self) -> bool {
        let state = self.state.lock();
        state.fault.is_some_and(|(at, _, _)| state.calls.changes >= at)
    }

    /// Space for all files together.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// How slow it would be.
    pub fn set_slowness(&self, slowness: Slowness) {
        self.state.lock().slowness = slowness;
    }

    /// What was asked of it so far.
    pub fn calls(&self) -> Calls {
        self.state.lock().calls
    }

    /// The power goes and comes back: `seed` decides which unsynced sectors and names survive.
    /// Open files and the lock are gone.
    pub fn power_cut(&self, seed: u64) {
        let mut random = Random::new(seed);
        let mut state = self.state.lock();
        state.names.power_cut(&mut random);
        state.inodes.values_mut().for_each(|inode| inode.power_cut(&mut random));
        state.restart();
    }

    /// The process dies and nothing else: what was written stays, synced or not.
    pub fn kill(&self) {
        self.state.lock().restart();
    }

    /// All files, by path.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().names.files().map(|(path, _)| path.to_owned()).collect()
    }

    /// Contents of a file as a reader would see them.
    pub fn contents(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let inode = state.names.file(path)?;
        Some(state.inodes[&inode].bytes().to_vec())
    }

    /// Changes bytes behind everybody's back, on the medium itself.
    pub fn damage(&self, path: &str, offset: u64, bytes: &[u8]) {
        let mut state = self.state.lock();
        let inode = state.names.file(path).expect("only what is there can be damaged");
        state.inodes.get_mut(&inode).expect("names lead to files").damage(offset, bytes);
    }

    /// Flips one bit, on the medium itself.
    pub fn flip_bit(&self, path: &str, bit: u64) {
        let byte = self.contents(path).expect("only what is there can be damaged")
            [usize::try_from(bit / 8).expect("files fit memory")];
        self.damage(path, bit / 8, &[byte ^ 1 << (bit % 8)]);
    }

    /// Takes the end of a file away, on the medium itself.
    pub fn truncate(&self, path: &str, bytes: u64) {
        let mut state = self.state.lock();
        let inode = state.names.file(path).expect("only what is there can be damaged");
        state.inodes.get_mut(&inode).expect("names lead to files").truncate(bytes);
    }

    /// Removes a file for good, as a careless hand would.
    pub fn lose_file(&self, path: &str) {
        self.state.lock().names.lose(path);
    }

    /// Makes a file for good, as a careless hand would.
    pub fn plant_file(&self, path: &str, contents: &[u8]) {
        let mut state = self.state.lock();
        let inode = state.new_inode();
        state.inodes.get_mut(&inode).expect("just made").damage(0, contents);
        state.names.plant(path, inode);
    }
}

impl State {
    fn restart(&mut self) {
        self.life += 1;
        self.is_off = false;
        self.is_locked = false;
        self.fault = None;
        let linked = self.names.inodes();
        self.inodes.retain(|inode, _| linked.contains(inode));
    }

    fn new_inode(&mut self) -> u64 {
        let inode = self.inode_next;
        self.inode_next += 1;
        self.inodes.insert(inode, Inode::default());
        inode
    }

    fn is_on(&self) -> io::Result<()> {
        match self.is_off {
            true => Err(io::Error::other("the power is off")),
            false => Ok(()),
        }
    }

    /// Counts a change. `Some`: it meets this fault.
    fn change(&mut self) -> io::Result<Option<Fault>> {
        self.is_on()?;
        self.calls.changes += 1;
        let met = self.fault.filter(|(at, _, stays)| {
            self.calls.changes == *at || (*stays && self.calls.changes > *at)
        });
        let fault = met.map(|(_, fault, _)| fault);
        if fault == Some(Fault::PowerOff) {
            self.is_off = true;
        }
        Ok(fault)
    }

    /// Makes `bytes` more fit, or says that the disk is full.
    fn take_space(&self, bytes: u64) -> io::Result<()> {
        // Most writes go to where room was taken before: nobody has to count for them.
        match bytes == 0 || bytes <= self.free_bytes() {
            true => Ok(()),
            false => Err(ErrorKind::StorageFull.into()),
        }
    }

    fn free_bytes(&self) -> u64 {
        let used = self.names.inodes().iter().map(|inode| self.inodes[inode].space()).sum();
        self.capacity_bytes.saturating_sub(used)
    }
}

/// The error of a call that met a fault after it did, or did not do, its work.
fn outcome(fault: Option<Fault>) -> io::Result<()> {
    match fault {
        None => Ok(()),
        Some(Fault::Broken) => Err(io::Error::other("input/output error")),
        Some(Fault::Full) => Err(ErrorKind::StorageFull.into()),
        Some(Fault::PowerOff) => Err(io::Error::other("the power is off")),
    }
}

/// Whether a call on names takes effect although it fails.
fn takes_effect(fault: Option<Fault>) -> bool {
    matches!(fault, None | Some(Fault::PowerOff))
}

impl Disk for SimDisk {
    type File = SimFile;
    type Lock = SimLock;

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.change()?;
        if takes_effect(fault) {
            state.names.create_dir(path)?;
        }
        outcome(fault)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        state.is_on()?;
        state.names.list(path)
    }

    fn create(&self, path: &str) -> io::Result<SimFile> {
        let mut state = self.state.lock();
        let fault = state.change()?;
        let life = state.life;
        let inode = state.new_inode();
        if takes_effect(fault) {
            state.names.create(path, inode)?;
        }
        outcome(fault)?;
        Ok(SimFile { state: Arc::clone(&self.state), inode, life })
    }

    fn open(&self, path: &str, _access: Access) -> io::Result<SimFile> {
        let state = self.state.lock();
        state.is_on()?;
        let inode = state.names.file(path).ok_or(ErrorKind::NotFound)?;
        Ok(SimFile { state: Arc::clone(&self.state), inode, life: state.life })
    }

    fn lock(&self) -> io::Result<SimLock> {
        let mut state = self.state.lock();
        state.is_on()?;
        if state.is_locked {
            return Err(ErrorKind::WouldBlock.into());
        }
        state.is_locked = true;
        Ok(SimLock { state: Arc::clone(&self.state), life: state.life })
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.change()?;
        state.calls.syncs += 1;
        state.calls.busy_us += state.slowness.sync_us;
        let is_done =
            fault.is_none() || (fault == Some(Fault::PowerOff) && state.random.chance(50));
        if is_done {
            state.names.sync_dir(path)?;
        }
        outcome(fault)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.change()?;
        if takes_effect(fault) {
            state.names.rename(from, to)?;
        }
        outcome(fault)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.change()?;
        if takes_effect(fault) {
            state.names.remove(path)?;
        }
        outcome(fault)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state.lock();
        state.is_on()?;
        Ok(state.free_bytes())
    }
}

impl SimFile {
    /// Runs `call` on the file, if the power was never cut since it was opened.
    fn with<T>(&self, call: impl FnOnce(&mut State, u64) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        if state.life != self.life {
            return Err(io::Error::other("the file was opened before the last power cut"));
        }
        state.is_on()?;
        call(&mut state, self.inode)
    }
}

impl DiskFile for SimFile {
    fn bytes(&self) -> io::Result<u64> {
        self.with(|state, inode| Ok(state.inodes[&inode].bytes().len() as u64))
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.with(|state, inode| {
            let fault = state.change()?;
            let more = bytes.saturating_sub(state.inodes[&inode].space());
            state.take_space(more)?;
            if takes_effect(fault) {
                state.inodes.get_mut(&inode).expect("open files are there").grow(bytes);
            }
            outcome(fault)
        })
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.with(|state, inode| {
            let fault = state.change()?;
            if takes_effect(fault) {
                state.inodes.get_mut(&inode).expect("open files are there").truncate(bytes);
            }
            outcome(fault)
        })
    }

    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut bytes: Vec<u8> = parts.iter().map(|part| &**part).collect::<Vec<_>>().concat();
        self.with(|state, inode| {
            let fault = state.change()?;
            state.calls.writes += 1;
            state.calls.bytes += bytes.len() as u64;
            state.calls.busy_us += (bytes.len() as u64 * state.slowness.mebibyte_us) >> 20;
            if fault == Some(Fault::Broken) {
                let written = state.random.below(bytes.len() as u64 + 1) as usize;
                bytes.truncate(match lies_in_one_sector(offset, bytes.len()) {
                    // A disk writes a sector, or does not.
                    true if 2 * written < bytes.len() => 0,
                    true => bytes.len(),
                    false => written,
                });
            }
            if fault != Some(Fault::Full) {
                let end = offset + bytes.len() as u64;
                state.take_space(end.saturating_sub(state.inodes[&inode].space()))?;
                state.inodes.get_mut(&inode).expect("open files are there").write(offset, &bytes);
            }
            outcome(fault)
        })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.with(|state, inode| {
            state.calls.reads += 1;
            let bytes = state.inodes[&inode].bytes();
            let start = bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
            let count = into.len().min(bytes.len() - start);
            into[..count].copy_from_slice(&bytes[start..start + count]);
            Ok(count)
        })
    }

    fn sync_data(&self) -> io::Result<u64> {
        self.with(|state, inode| {
            let fault = state.change()?;
            state.calls.syncs += 1;
            state.calls.busy_us += state.slowness.sync_us;
            let is_done =
                fault.is_none() || (fault == Some(Fault::PowerOff) && state.random.chance(30));
            let file = state.inodes.get_mut(&inode).expect("open files are there");
            match fault {
                None | Some(Fault::PowerOff) if is_done => file.sync(),
                Some(Fault::Broken | Fault::Full) => file.fail_sync(),
                None | Some(Fault::PowerOff) => {}
            }
            outcome(fault)?;
            Ok(state.slowness.sync_us)
        })
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if state.life == self.life {
            state.is_locked = false;
        }
    }
}

#[cfg(test)]
mod tests;
