//! Reading the log from its oldest batch to its end, without changing anything.
//!
//! A batch that does not check out is either torn (written when the power went, never synced,
//! never reported) or damaged (synced, and bad since). The batches behind it tell: every batch
//! header says up to which position everything had been synced when it was written. If one of
//! them reaches beyond the bad batch, that batch had been durable, and cutting the log there
//! would forget what was promised. Then the batch counts as lost and the log goes on behind it.
//! Otherwise it is the tail, and the log ends there.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::Config;
use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Context, Error};
use crate::limits::{DATA_START, FILE_BYTES_MAX, SCAN_STEP_BYTES, SECTOR_BYTES};
use crate::record::{
    BATCH_HEADER_BYTES, BatchHeader, FileHeader, Groups, Position, RECORD_HEADER_BYTES,
    RecordHeader, Seed, aligned,
};
use crate::replay::Replay;
use crate::shared::{WAL_DIR, wal_path};

/// What the log holds.
pub(crate) struct Scan<F> {
    pub(crate) files: BTreeMap<u64, ScannedFile<F>>,
    pub(crate) replay: Replay,
    /// Position and length of the last whole batch, and its sequence number.
    pub(crate) last: Option<LastBatch>,
    /// Where the next batch goes.
    pub(crate) end: Position,
    /// Whether something that was never synced follows the end and is cut.
    pub(crate) is_torn: bool,
    pub(crate) batches: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastBatch {
    pub(crate) at: Position,
    pub(crate) bytes: u32,
    pub(crate) sequence: u64,
    pub(crate) groups: Groups,
}

pub(crate) struct ScannedFile<F> {
    pub(crate) file: Arc<F>,
    pub(crate) bytes: u64,
    pub(crate) is_header_good: bool,
    /// It is shorter than its header says.
    is_cut_short: bool,
    /// Batches begin and end before this offset.
    pub(crate) used_bytes: u64,
}

/// Numbers of the log files in `wal/`, and the names there that are nobody's.
pub(crate) fn log_files<D: Disk>(disk: &D) -> Result<(Vec<u64>, Vec<String>), Error> {
    let mut numbers = Vec::new();
    let mut others = Vec::new();
    for name in disk.list(WAL_DIR).at("list", WAL_DIR)? {
        let number = name.strip_suffix(".wal").and_then(|digits| digits.parse::<u64>().ok());
        match number {
            Some(number) if wal_path(number) == format!("{WAL_DIR}/{name}") => numbers.push(number),
            Some(_) | None => others.push(name),
        }
    }
    numbers.sort_unstable();
    Ok((numbers, others))
}

/// Reads the log in `wal/`, whose files have these numbers.
pub(crate) fn scan<D: Disk>(
    disk: &D,
    config: &Config,
    access: Access,
    numbers: &[u64],
) -> Result<Scan<D::File>, Error> {
    let mut files = BTreeMap::new();
    for number in numbers {
        files.insert(*number, open_file(disk, config, access, *number)?);
    }
    let first = *numbers.first().expect("the caller found at least one file");
    let mut scanner = Scanner {
        seeds: numbers.iter().map(|n| (*n, Seed::of(&config.identity, *n))).collect(),
        window: Window::default(),
        ahead: Window::default(),
        scan: Scan {
            files,
            replay: Replay::default(),
            last: None,
            end: Position { file: first, offset: DATA_START },
            is_torn: false,
            batches: 0,
        },
    };
    scanner.run()?;
    let end = scanner.scan.end;
    for (expected, (number, file)) in (end.file..).zip(scanner.scan.files.range(end.file..)) {
        // A file had its whole length before it had its name, and names follow each other.
        let (at, what) = match *number == expected {
            true if file.is_cut_short => (file.bytes, "the end of the file is missing"),
            true => continue,
            false => (0, "a file before this one is missing"),
        };
        let at = Position { file: *number, offset: at };
        scanner.scan.replay.lose(at, Groups::ALL, what);
        break;
    }
    scanner.scan.replay.finish();
    Ok(scanner.scan)
}

fn open_file<D: Disk>(
    disk: &D,
    config: &Config,
    access: Access,
    number: u64,
) -> Result<ScannedFile<D::File>, Error> {
    let path = wal_path(number);
    let file = disk.open(&path, access).at("open", &path)?;
    let bytes = file.bytes().at("size", &path)?;
    if bytes > FILE_BYTES_MAX {
        return Err(Error::refused(&path, format!("it has {bytes} bytes, more than a log file")));
    }
    let mut block = [0; SECTOR_BYTES as usize];
    file.read_at(0, &mut block).at("read", &path)?;
    let header = FileHeader::decode(&block);
    if let Some(header) = header {
        header.identity.expect(&config.identity)?;
        if header.number != number {
            let why = format!(
                "its header says that it is file {}, so something has renamed it: give it back its name",
                header.number
            );
            return Err(Error::refused(&path, why));
        }
    }
    // A file that lost its end is read as far as it goes.
    let is_header_good = header.is_some_and(|header| header.bytes == bytes);
    let is_cut_short = match header {
        Some(header) => header.bytes > bytes,
        None => bytes < DATA_START + SECTOR_BYTES,
    };
    let file = Arc::new(file);
    Ok(ScannedFile { file, bytes, is_header_good, is_cut_short, used_bytes: DATA_START })
}

struct Scanner<F> {
    seeds: BTreeMap<u64, Seed>,
    /// Contents of the file that is replayed.
    window: Window,
    /// Contents of a file that is searched for later batches.
    ahead: Window,
    scan: Scan<F>,
}

/// The beginning of one file, as far as it was needed.
#[derive(Default)]
struct Window {
    file: Option<u64>,
    bytes: Vec<u8>,
}

impl Window {
    /// At most `length` bytes of a file at `offset`; fewer only at its end.
    fn at<'a, F: DiskFile>(
        &'a mut self,
        number: u64,
        scanned: &ScannedFile<F>,
        offset: u64,
        length: u64,
    ) -> Result<&'a [u8], Error> {
        if self.file != Some(number) {
            self.file = Some(number);
            self.bytes.clear();
        }
        let end = offset.saturating_add(length).min(scanned.bytes) as usize;
        while self.bytes.len() < end {
            let from = self.bytes.len();
            let to = (from + SCAN_STEP_BYTES).max(end).min(scanned.bytes as usize);
            self.bytes.resize(to, 0);
            let path = wal_path(number);
            let count = scanned.file.read_at(from as u64, &mut self.bytes[from..]);
            let count = count.at("read", &path)?;
            if count < to - from {
                return Err(Error::damaged(&path, from as u64, "the file became shorter"));
            }
        }
        Ok(&self.bytes[end.min(offset as usize)..end])
    }
}

/// What lies at a position.
enum Batch {
    /// A header that fits, whose records may or may not.
    Header(BatchHeader),
    /// No batch, or not a readable header.
    Nothing,
}

impl<F: DiskFile> Scanner<F> {
    fn run(&mut self) -> Result<(), Error> {
        loop {
            let at = self.scan.end;
            match self.batch_at(at)? {
                Batch::Header(header) if self.is_next(&header) => {
                    if !self.take(at, header)? {
                        self.scan.is_torn = true;
                        return Ok(());
                    }
                }
                Batch::Header(_) | Batch::Nothing => {
                    if !self.skip(at)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn is_next(&self, header: &BatchHeader) -> bool {
        self.scan.last.is_none_or(|last| header.sequence == last.sequence + 1)
    }

    /// Replays the batch at `at`. False: it is torn, the log ends before it.
    fn take(&mut self, at: Position, header: BatchHeader) -> Result<bool, Error> {
        if !self.is_whole(at, &header)? && self.later(at)?.is_none() {
            return Ok(false);
        }
        self.replay(at, &header)?;
        self.scan.batches += 1;
        let BatchHeader { bytes, sequence, groups, .. } = header;
        let last = LastBatch { at, bytes, sequence, groups };
        self.scan.last = Some(last);
        self.advance(at.file, at.offset + aligned(u64::from(header.bytes)));
        Ok(true)
    }

    fn advance(&mut self, file: u64, offset: u64) {
        self.scan.end = Position { file, offset };
        let scanned = self.scan.files.get_mut(&file).expect("positions are in known files");
        scanned.used_bytes = scanned.used_bytes.max(offset);
    }

    /// Goes on where the next batch is, if there is one. False: the log ends at `at`.
    fn skip(&mut self, at: Position) -> Result<bool, Error> {
        let next = self.scan.files.range(at.file + 1..).next().map(|(number, _)| *number);
        if let Some(file) = next {
            let start = Position { file, offset: DATA_START };
            if let Batch::Header(header) = self.batch_ahead(start)?
                && self.is_next(&header)
                && (self.scan.last.is_some() || header.durable <= at)
            {
                self.scan.end = start;
                return Ok(true);
            }
        }
        match self.later(at)? {
            Some((found, header)) => {
                let before = self.scan.last.map_or(0, |last| last.sequence);
                let groups = match header.sequence - before {
                    2 => header.previous_groups,
                    _ => Groups::ALL,
                };
                let what = "a batch that had been synced is unreadable";
                self.scan.replay.lose(at, groups, what);
                // The batches in between are lost: the next is expected where it was found.
                let sequence = header.sequence - 1;
                self.scan.last = Some(LastBatch { at, bytes: 0, sequence, groups });
                self.scan.end = found;
                Ok(true)
            }
            None => {
                self.scan.is_torn |= self.has_remains(at)?;
                Ok(false)
            }
        }
    }

    /// Whether something other than zeros lies in the first sector of the place where the next
    /// batch goes; only for the record, as it may as well be of an earlier use of the file.
    fn has_remains(&mut self, at: Position) -> Result<bool, Error> {
        let file = &self.scan.files[&at.file];
        let bytes = self.window.at(at.file, file, at.offset, 4)?;
        Ok(bytes == crate::record::BATCH_MAGIC)
    }

    fn batch_at(&mut self, at: Position) -> Result<Batch, Error> {
        batch_in(&mut self.window, &self.scan.files[&at.file], self.seeds[&at.file], at)
    }

    fn batch_ahead(&mut self, at: Position) -> Result<Batch, Error> {
        batch_in(&mut self.ahead, &self.scan.files[&at.file], self.seeds[&at.file], at)
    }

    /// First batch header behind `at` that proves that what lies at `at` had been synced.
    fn later(&mut self, at: Position) -> Result<Option<(Position, BatchHeader)>, Error> {
        if planted::is("truncate_on_crc") {
            return Ok(None);
        }
        let files: Vec<(u64, u64)> =
            self.scan.files.range(at.file..).map(|(number, file)| (*number, file.bytes)).collect();
        for (number, bytes) in files {
            let mut offset = match number == at.file {
                true => at.offset + SECTOR_BYTES,
                false => DATA_START,
            };
            while offset + BATCH_HEADER_BYTES as u64 <= bytes {
                let found = Position { file: number, offset };
                let batch = match number == at.file {
                    true => self.batch_at(found)?,
                    false => self.batch_ahead(found)?,
                };
                if let Batch::Header(header) = batch
                    && header.durable > at
                    && self.scan.last.is_none_or(|last| header.sequence > last.sequence)
                {
                    return Ok(Some((found, header)));
                }
                offset += SECTOR_BYTES;
            }
        }
        Ok(None)
    }

    /// Whether all checksums of a batch fit.
    fn is_whole(&mut self, at: Position, header: &BatchHeader) -> Result<bool, Error> {
        let seed = self.seeds[&at.file];
        let file = &self.scan.files[&at.file];
        let bytes = self.window.at(at.file, file, at.offset, u64::from(header.bytes))?;
        if bytes.len() < header.bytes as usize {
            return Ok(false);
        }
        let table = &bytes[BATCH_HEADER_BYTES..];
        let table = &table[..header.count as usize * RECORD_HEADER_BYTES];
        if crc32c::crc32c(table) != header.records_checksum {
            return Ok(false);
        }
        Ok((0..header.count as usize).all(|number| {
            record_in(bytes, seed, at, number).is_some_and(|(_, payload)| payload.is_some())
        }))
    }

    fn replay(&mut self, at: Position, header: &BatchHeader) -> Result<(), Error> {
        let seed = self.seeds[&at.file];
        let file = &self.scan.files[&at.file];
        let bytes = self.window.at(at.file, file, at.offset, u64::from(header.bytes))?;
        for number in 0..header.count as usize {
            match record_in(bytes, seed, at, number) {
                Some((record, payload)) => self.scan.replay.record(at, &record, payload),
                None => {
                    let what = "a record that had been synced is unreadable";
                    self.scan.replay.lose(at, header.groups, what);
                }
            }
        }
        Ok(())
    }
}

fn batch_in<F: DiskFile>(
    window: &mut Window,
    file: &ScannedFile<F>,
    seed: Seed,
    at: Position,
) -> Result<Batch, Error> {
    let bytes = window.at(at.file, file, at.offset, BATCH_HEADER_BYTES as u64)?;
    Ok(match BatchHeader::decode(seed, at.offset, bytes) {
        Some(header) => Batch::Header(header),
        None => Batch::Nothing,
    })
}

/// Header and payload of a record of a batch; `None` where the checksum is wrong.
fn record_in(
    batch: &[u8],
    seed: Seed,
    at: Position,
    number: usize,
) -> Option<(RecordHeader, Option<&[u8]>)> {
    let start = BATCH_HEADER_BYTES + number * RECORD_HEADER_BYTES;
    let header = RecordHeader::decode(seed, at.offset + start as u64, batch.get(start..)?)?;
    let payload_start = header.start as usize;
    let payload = batch.get(payload_start..payload_start + header.bytes as usize);
    let payload = payload.filter(|bytes| crc32c::crc32c(bytes) == header.payload_checksum);
    Some((header, payload))
}
