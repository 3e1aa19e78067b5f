//! Directories of the simulated disk: what is named, and which names are on the medium.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};

use crate::sim::Random;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Directory,
    File(u64),
}

/// A change of one directory that is not synced.
enum Change {
    Made(String, Named),
    Renamed(String, String, Named),
    Removed(String),
}

#[derive(Default)]
pub(super) struct Names {
    now: BTreeMap<String, Named>,
    durable: BTreeMap<String, Named>,
    pending: Vec<Change>,
}

impl Names {
    pub(super) fn file(&self, path: &str) -> Option<u64> {
        match self.now.get(path)? {
            Named::File(inode) => Some(*inode),
            Named::Directory => None,
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.now.iter().filter_map(|(path, named)| match named {
            Named::File(inode) => Some((path.as_str(), *inode)),
            Named::Directory => None,
        })
    }

    /// Files that have a name, or would have one after a power cut.
    pub(super) fn inodes(&self) -> BTreeSet<u64> {
        let unsynced = self.pending.iter().filter_map(|change| match change {
            Change::Made(_, named) | Change::Renamed(_, _, named) => Some(named),
            Change::Removed(_) => None,
        });
        let all = self.now.values().chain(self.durable.values()).chain(unsynced);
        all.filter_map(|named| match named {
            Named::File(inode) => Some(*inode),
            Named::Directory => None,
        })
        .collect()
    }

    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        if !dir.is_empty() && self.now.get(dir) != Some(&Named::Directory) {
            return Err(ErrorKind::NotFound.into());
        }
        let inside = self.now.iter().filter(|(path, _)| parent(path) == dir);
        let name = |(path, named): (&String, &Named)| {
            let name = path.rsplit('/').next().unwrap_or(path);
            let mark = if *named == Named::Directory { "/" } else { "" };
            format!("{name}{mark}")
        };
        Ok(inside.map(name).collect())
    }

    pub(super) fn create_dir(&mut self, path: &str) -> io::Result<()> {
        if self.now.contains_key(path) {
            return Ok(());
        }
        self.make(path, Named::Directory)
    }

    pub(super) fn create(&mut self, path: &str, inode: u64) -> io::Result<()> {
        self.make(path, Named::File(inode))
    }

    fn make(&mut self, path: &str, named: Named) -> io::Result<()> {
        let dir = parent(path);
        if !dir.is_empty() && self.now.get(dir) != Some(&Named::Directory) {
            return Err(ErrorKind::NotFound.into());
        }
        self.change(Change::Made(path.to_owned(), named));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let named = *self.now.get(from).ok_or(ErrorKind::NotFound)?;
        assert!(parent(from) == parent(to), "the log renames inside a directory only");
        self.change(Change::Renamed(from.to_owned(), to.to_owned(), named));
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        self.file(path).ok_or(ErrorKind::NotFound)?;
        self.change(Change::Removed(path.to_owned()));
        Ok(())
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    pub(super) fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        for change in std::mem::take(&mut self.pending) {
            match parent(change.path()) == dir {
                true => change.apply(&mut self.durable),
                false => self.pending.push(change),
            }
        }
        Ok(())
    }

    /// A prefix of the unsynced changes reached the medium, as with a journal; or any subset.
    pub(super) fn power_cut(&mut self, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        let is_journaled = random.chance(50);
        let kept = random.below(pending.len() as u64 + 1) as usize;
        for (number, change) in pending.into_iter().enumerate() {
            if if is_journaled { number < kept } else { random.chance(50) } {
                change.apply(&mut self.durable);
            }
        }
        let durable = self.durable.clone();
        let is_reachable = |path: &String| {
            let dir = parent(path);
            dir.is_empty() || durable.get(dir) == Some(&Named::Directory)
        };
        self.durable.retain(|path, _| is_reachable(path));
        // Once more for directories in directories.
        let durable = self.durable.clone();
        self.durable.retain(|path, _| {
            let dir = parent(path);
            dir.is_empty() || durable.contains_key(dir)
        });
        self.now = self.durable.clone();
    }

    pub(super) fn lose(&mut self, path: &str) {
        self.now.remove(path);
        self.durable.remove(path);
    }

    pub(super) fn plant(&mut self, path: &str, inode: u64) {
        self.now.insert(path.to_owned(), Named::File(inode));
        self.durable.insert(path.to_owned(), Named::File(inode));
    }
}

impl Change {
    fn path(&self) -> &str {
        match self {
            Change::Made(path, _) | Change::Renamed(path, _, _) | Change::Removed(path) => path,
        }
    }

    fn apply(&self, names: &mut BTreeMap<String, Named>) {
        match self {
            Change::Made(path, named) => drop(names.insert(path.clone(), *named)),
            Change::Renamed(from, to, named) => {
                if names.get(from) == Some(named) {
                    names.remove(from);
                }
                names.insert(to.clone(), *named);
            }
            Change::Removed(path) => drop(names.remove(path)),
        }
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}
