//! The volatile cache: written sectors by their place, kept in pages.

use std::collections::BTreeMap;

use crate::workload::Chance;

/// The unit that a disk writes whole or not at all, in bytes.
pub(super) const SECTOR_BYTES: usize = 512;
const PAGE_SECTORS: usize = 8;
const PAGE_BYTES: usize = SECTOR_BYTES * PAGE_SECTORS;

#[derive(Debug)]
struct Page {
    bytes: Box<[u8; PAGE_BYTES]>,
    /// One bit per sector that was written.
    written: u8,
}

/// Sectors that the disk took and has not flushed.
#[derive(Debug, Default)]
pub(super) struct Sectors {
    pages: BTreeMap<u64, Page>,
}

/// Bytes to put to the image, at an offset.
pub(super) type Piece = (u64, Vec<u8>);

impl Sectors {
    /// Takes whole sectors at a multiple of the sector size; false if they are not.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let aligned = offset.is_multiple_of(SECTOR_BYTES as u64);
        if !aligned || !data.len().is_multiple_of(SECTOR_BYTES) {
            return false;
        }
        for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
            let number = offset / SECTOR_BYTES as u64 + index as u64;
            let (page, place) = split(number);
            let page = self
                .pages
                .entry(page)
                .or_insert_with(|| Page { bytes: Box::new([0; PAGE_BYTES]), written: 0 });
            page.bytes[place * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(sector);
            page.written |= 1 << place;
        }
        true
    }

    /// Lays what is held over `bytes`, which the image has at `offset`.
    pub(super) fn overlay(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        let first = offset / PAGE_BYTES as u64;
        for (number, page) in self.pages.range(first..end.div_ceil(PAGE_BYTES as u64)) {
            for place in places(page.written) {
                let start = number * PAGE_BYTES as u64 + (place * SECTOR_BYTES) as u64;
                let (from, to) = (start.max(offset), (start + SECTOR_BYTES as u64).min(end));
                if from < to {
                    let source = &page.bytes[place * SECTOR_BYTES..][..SECTOR_BYTES];
                    let source = &source[(from - start) as usize..(to - start) as usize];
                    bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
                }
            }
        }
    }

    /// How many sectors are held.
    pub(super) fn count(&self) -> u64 {
        self.pages.values().map(|page| u64::from(page.written.count_ones())).sum()
    }

    /// Everything, for the image: a flush.
    pub(super) fn flush(&mut self) -> Vec<Piece> {
        self.take(|| true)
    }

    /// A part that chance picks, sector by sector; the rest is lost.
    pub(super) fn tear(&mut self, chance: &mut Chance) -> Vec<Piece> {
        self.take(|| chance.percent(50))
    }

    fn take(&mut self, mut keep: impl FnMut() -> bool) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (number, page) in std::mem::take(&mut self.pages) {
            for place in places(page.written).filter(|_| keep()) {
                let start = number * PAGE_BYTES as u64 + (place * SECTOR_BYTES) as u64;
                let sector = &page.bytes[place * SECTOR_BYTES..][..SECTOR_BYTES];
                match pieces.last_mut() {
                    Some((at, bytes)) if *at + bytes.len() as u64 == start => {
                        bytes.extend_from_slice(sector);
                    }
                    _ => pieces.push((start, sector.to_vec())),
                }
            }
        }
        pieces
    }
}

fn split(sector: u64) -> (u64, usize) {
    (sector / PAGE_SECTORS as u64, (sector % PAGE_SECTORS as u64) as usize)
}

fn places(written: u8) -> impl Iterator<Item = usize> {
    (0..PAGE_SECTORS).filter(move |place| written & (1 << place) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(fill: u8) -> Vec<u8> {
        vec![fill; SECTOR_BYTES]
    }

    #[test]
    fn what_was_written_is_read_back_over_the_image() {
        let mut sectors = Sectors::default();
        assert!(sectors.write(7 * 512, &[sector(1), sector(2)].concat()));
        let mut bytes = vec![9; 4096];
        sectors.overlay(6 * 512 + 10, &mut bytes);
        assert!(bytes[..502].iter().all(|byte| *byte == 9));
        assert!(bytes[502..1014].iter().all(|byte| *byte == 1));
        assert!(bytes[1014..1526].iter().all(|byte| *byte == 2));
        assert!(bytes[1526..].iter().all(|byte| *byte == 9));
    }

    #[test]
    fn a_flush_hands_over_every_sector_once_in_long_pieces() {
        let mut sectors = Sectors::default();
        sectors.write(0, &sector(1).repeat(20));
        sectors.write(100 * 512, &sector(2));
        assert_eq!(sectors.count(), 21);
        let pieces = sectors.flush();
        let places: Vec<(u64, usize)> = pieces.iter().map(|(at, b)| (*at, b.len())).collect();
        assert_eq!(places, [(0, 20 * 512), (100 * 512, 512)]);
        assert_eq!(sectors.count(), 0);
    }

    #[test]
    fn a_tear_keeps_some_sectors_and_loses_some() {
        let mut sectors = Sectors::default();
        sectors.write(0, &sector(1).repeat(200));
        let kept: usize =
            sectors.tear(&mut Chance::new(3)).iter().map(|(_, b)| b.len() / 512).sum();
        assert!((50..150).contains(&kept), "{kept} of 200 kept");
        assert_eq!(sectors.count(), 0);
    }

    #[test]
    fn half_a_sector_is_refused() {
        assert!(!Sectors::default().write(100, &sector(1)));
        assert!(!Sectors::default().write(512, &[0; 100]));
    }
}
