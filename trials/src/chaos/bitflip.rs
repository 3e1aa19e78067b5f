//! F7 on one node: a flipped bit in the middle of the log, with confirmed messages behind it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Failure;
use super::broker::{Broker, tail};
use super::trial::{Harm, Struck};
use crate::workload::Chance;
use crate::workload::io::now;

/// Flips one bit inside a stored message of a stopped broker. Alone, a node has nobody to repair it
/// from: a right broker refuses to start and says where. Then the bit is flipped back, and
/// everything must be there. A broker that starts with the flipped bit keeps it, and the checker
/// will see what it lost.
#[derive(Debug)]
pub struct BitFlip;

/// Begins the ids of messages that nobody consumes before the drain: the backlog's channel.
const BACKLOG: &[u8] = b"pub-1.3.";
/// How long the load may take to come to its backlog.
const BEGINS: Duration = Duration::from_secs(20);
/// How long a broker may look at a damaged log before it refuses.
const REFUSES: Duration = Duration::from_secs(60);

struct Place {
    path: PathBuf,
    offset: u64,
}

impl BitFlip {
    /// The middle one of the backlog's messages in the log file that has most of them.
    fn place(data: &Path) -> Result<Place, Failure> {
        let mut best: Option<(PathBuf, Vec<usize>)> = None;
        for path in files_of(data, |name| name.ends_with(".wal"))? {
            let bytes = std::fs::read(&path)?;
            let found: Vec<usize> = bytes
                .windows(BACKLOG.len())
                .enumerate()
                .filter_map(|(at, window)| (window == BACKLOG).then_some(at))
                .collect();
            if best.as_ref().is_none_or(|(_, most)| most.len() < found.len()) {
                best = Some((path, found));
            }
        }
        let found = best.and_then(|(path, found)| {
            let offset = *found.get(found.len() / 2)? as u64 + 2;
            Some(Place { path, offset })
        });
        found.ok_or(Failure::Trial("no message of the backlog is in the log".to_owned()))
    }
}

impl Place {
    fn flip(&self) -> Result<(), Failure> {
        let file = File::options().read(true).write(true).open(&self.path)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, self.offset)?;
        file.write_all_at(&[byte[0] ^ 0x10], self.offset)?;
        file.sync_all().map_err(Failure::from)
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Files below a directory whose names are such.
pub(super) fn files_of(data: &Path, is_such: fn(&str) -> bool) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    let mut dirs = vec![data.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.file_name().and_then(|name| name.to_str()).is_some_and(is_such) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

impl Harm for BitFlip {
    fn name(&self) -> &'static str {
        "bitflip"
    }

    fn strikes_recovery(&self) -> bool {
        false
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        // One large file, so that the backlog stays in the log.
        vec![("MILLRACE_WAL_FILE_BYTES", "64MiB".to_owned())]
    }

    fn strike(&mut self, broker: &mut Broker, _: &mut Chance) -> Result<Struck, Failure> {
        // The load may only just have begun.
        let begun = Instant::now();
        while Self::place(&broker.setup.data).is_err() && begun.elapsed() < BEGINS {
            std::thread::sleep(Duration::from_millis(100));
        }
        let t0 = now();
        broker.kill()?;
        let place = Self::place(&broker.setup.data)?;
        place.flip()?;
        let written = std::fs::metadata(&broker.setup.log)?.len();
        broker.start()?;
        if broker.wait_ready(REFUSES).is_ok() {
            let note = format!("the broker starts although {} is damaged", place.path.display());
            return Ok(Struck { is_alive: true, note: Some(note), ..Struck::dead(t0) });
        }
        if broker.pid().is_some() {
            return Err(Failure::Broken(
                "the broker neither starts nor refuses a damaged log".to_owned(),
            ));
        }
        let said = std::fs::read(&broker.setup.log)?;
        let said = String::from_utf8_lossy(said.get(written as usize..).unwrap_or_default());
        if !said.contains(&place.name()) {
            let last = tail(&broker.setup.log);
            let name = place.name();
            return Err(Failure::Broken(format!(
                "the broker refuses to start, but does not name {name}:\n{last}"
            )));
        }
        let line = said.lines().find(|line| line.contains(&place.name())).unwrap_or_default();
        let note = format!("the broker refuses to start, as it should: {}", line.trim());
        place.flip()?;
        Ok(Struck { note: Some(note), ..Struck::dead(t0) })
    }
}
