//! Contents of one simulated file: what is written, and what of it is on the medium.

use std::collections::BTreeMap;

use crate::sim::Random;

const SECTOR: usize = 512;

/// Whether so many bytes at `offset` touch no other sector.
pub(super) fn lies_in_one_sector(offset: u64, bytes: usize) -> bool {
    let last = offset + (bytes as u64).saturating_sub(1);
    offset / SECTOR as u64 == last / SECTOR as u64
}

#[derive(Default)]
pub(super) struct Inode {
    bytes: Vec<u8>,
    /// What the medium holds of sectors that were written and not synced.
    unsynced: BTreeMap<usize, Medium>,
    /// Length on the medium.
    durable_len: usize,
}

struct Medium {
    old: [u8; SECTOR],
    /// A failed sync forgot the sector: no later sync writes it, unless it is written again.
    is_forgotten: bool,
}

impl Inode {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What it takes of the disk.
    pub(super) fn space(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn grow(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).expect("simulated files fit memory");
        self.bytes.resize(bytes.max(self.bytes.len()), 0);
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let start = usize::try_from(offset).expect("simulated files fit memory");
        let end = start + bytes.len();
        self.grow(end as u64);
        for sector in start / SECTOR..end.div_ceil(SECTOR) {
            let old = self.sector(sector);
            let fresh = || Medium { old, is_forgotten: false };
            self.unsynced.entry(sector).or_insert_with(fresh).is_forgotten = false;
        }
        self.bytes[start..end].copy_from_slice(bytes);
    }

    pub(super) fn sync(&mut self) {
        self.unsynced.retain(|_, medium| medium.is_forgotten);
        self.durable_len = self.bytes.len();
    }

    pub(super) fn fail_sync(&mut self) {
        self.unsynced.values_mut().for_each(|medium| medium.is_forgotten = true);
    }

    /// Any subset of the unsynced sectors reached the medium.
    pub(super) fn power_cut(&mut self, random: &mut Random) {
        let kept_percent = [0, 20, 50, 90, 100][random.below(5) as usize];
        for (sector, medium) in std::mem::take(&mut self.unsynced) {
            if medium.is_forgotten || !random.chance(kept_percent) {
                let start = sector * SECTOR;
                let end = (start + SECTOR).min(self.bytes.len());
                self.bytes[start..end].copy_from_slice(&medium.old[..end - start]);
            }
        }
        let grown = self.bytes.len().saturating_sub(self.durable_len);
        if grown > 0 {
            let kept = match random.below(3) {
                0 => 0,
                1 => grown,
                _ => random.below(grown as u64 + 1) as usize,
            };
            self.bytes.truncate(self.durable_len + kept);
        }
        self.durable_len = self.bytes.len();
    }

    /// Changes the medium itself.
    pub(super) fn damage(&mut self, offset: u64, bytes: &[u8]) {
        let start = usize::try_from(offset).expect("simulated files fit memory");
        self.grow((start + bytes.len()) as u64);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.durable_len = self.durable_len.max(start + bytes.len());
    }

    pub(super) fn truncate(&mut self, bytes: u64) {
        self.bytes.truncate(usize::try_from(bytes).expect("simulated files fit memory"));
        self.durable_len = self.durable_len.min(self.bytes.len());
        self.unsynced.retain(|sector, _| sector * SECTOR < self.bytes.len());
    }

    fn sector(&self, sector: usize) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        let start = (sector * SECTOR).min(self.bytes.len());
        let end = (start + SECTOR).min(self.bytes.len());
        out[..end - start].copy_from_slice(&self.bytes[start..end]);
        out
    }
}
