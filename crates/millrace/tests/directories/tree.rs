//! A data directory in little space: files of the log are mostly zeros.
//!
//! A small file is kept as it is. A large one is kept as `NAME.runs`, without its sectors of zeros:
//!
//! ```text
//! file     its length u64, runs
//! run      its place in the file u64, its length u64, its bytes
//! ```

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// A file that is larger is kept as runs.
const SMALL_BYTES: u64 = 64 << 10;
/// Zeros are left out by so many bytes.
const SECTOR_BYTES: usize = 512;
const RUNS: &str = "runs";

/// Keeps a copy of `dir` in `kept`, which is new.
pub(crate) fn pack(dir: &Path, kept: &Path) {
    fs::create_dir_all(kept).unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (kind, path) = (entry.file_type().unwrap(), entry.path());
        let place = kept.join(entry.file_name());
        if kind.is_dir() {
            pack(&path, &place);
        } else if kind.is_file() && entry.metadata().unwrap().len() > SMALL_BYTES {
            let name = format!("{}.{RUNS}", place.display());
            fs::write(name, runs_of(&fs::read(&path).unwrap())).unwrap();
        } else if kind.is_file() {
            fs::copy(&path, &place).unwrap();
        }
        // What is left is the socket of a process that has ended.
    }
}

/// Makes the directory again that is kept in `kept`.
pub(crate) fn unpack(kept: &Path, dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    for entry in fs::read_dir(kept).unwrap() {
        let path = entry.unwrap().path();
        let place = dir.join(path.file_name().unwrap());
        if path.is_dir() {
            unpack(&path, &place);
        } else if path.extension().is_some_and(|extension| extension == RUNS) {
            write_runs(&fs::read(&path).unwrap(), &place.with_extension(""));
        } else {
            fs::copy(&path, &place).unwrap();
        }
    }
}

fn runs_of(bytes: &[u8]) -> Vec<u8> {
    let mut out = (bytes.len() as u64).to_le_bytes().to_vec();
    let mut at = 0;
    let is_zero = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
    let sectors: Vec<_> = bytes.chunks(SECTOR_BYTES).collect();
    for run in sectors.chunk_by(|one, next| is_zero(one) == is_zero(next)) {
        let run = run.concat();
        if !is_zero(&run) {
            out.write_all(&(at as u64).to_le_bytes()).unwrap();
            out.write_all(&(run.len() as u64).to_le_bytes()).unwrap();
            out.write_all(&run).unwrap();
        }
        at += run.len();
    }
    out
}

fn write_runs(mut runs: &[u8], path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(number(&mut runs)).unwrap();
    while !runs.is_empty() {
        let (at, length) = (number(&mut runs), number(&mut runs));
        let run = runs.split_off(..usize::try_from(length).unwrap()).unwrap();
        file.write_all_at(run, at).unwrap();
    }
}

fn number(bytes: &mut &[u8]) -> u64 {
    u64::from_le_bytes(bytes.split_off(..8).unwrap().try_into().unwrap())
}
