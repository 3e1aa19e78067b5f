//! The directory of `millrace dev`: data, logs, and what is remembered of it for the next start.
#![allow(clippy::disallowed_methods, reason = "a shell: makes, reads and removes files")]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use crate::table::clean;

/// What is remembered.
const FILE: &str = "dev.json";
/// Directories of processes with the same number that may be left over.
const LEFT_OVER_MAX: u32 = 1000;
/// Bytes and lines of a log's end that are shown.
const TAIL_BYTES: u64 = 16 << 10;
const TAIL_LINES: usize = 15;

/// What cannot change while there is data: the members know each other by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) nodes: u16,
    pub(super) peer_port: u16,
}

/// The directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) root: PathBuf,
    /// Somebody has named it. Otherwise it is deleted at the end.
    pub(super) is_kept: bool,
}

impl Directory {
    /// What a directory that somebody has named is remembered to hold; `None`: nothing yet.
    ///
    /// # Errors
    /// A sentence: it holds something else, or cannot be read.
    pub(super) fn look(root: &Path) -> Result<Option<Kept>, String> {
        let shown = root.display();
        let file = root.join(FILE);
        match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| format!("{}: {error}. Name another directory", file.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => match is_empty(root) {
                Ok(true) => Ok(None),
                Ok(false) => Err(format!(
                    "{shown} holds something else than `millrace dev` makes: name an empty or a new directory"
                )),
                Err(error) => Err(format!("{shown} cannot be read: {error}")),
            },
            Err(error) => Err(format!("{} cannot be read: {error}", file.display())),
        }
    }

    /// Makes the directory, or one below the system's for temporary files.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn make(named: Option<&Path>) -> Result<Self, String> {
        let Some(root) = named else { return Self::temporary() };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(root);
        let root = made.and_then(|()| fs::canonicalize(root));
        let root = root.map_err(|error| cannot_make(named.unwrap_or(Path::new(".")), &error))?;
        Ok(Self { root, is_kept: true })
    }

    fn temporary() -> Result<Self, String> {
        let base = std::env::temp_dir();
        let id = std::process::id();
        for nth in 0..LEFT_OVER_MAX {
            let name = match nth {
                0 => format!("millrace-dev-{id}"),
                nth => format!("millrace-dev-{id}-{nth}"),
            };
            let root = base.join(name);
            // Not one that is there: it may be of another user.
            match DirBuilder::new().mode(0o700).create(&root) {
                Ok(()) => return Ok(Self { root, is_kept: false }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot_make(&root, &error)),
            }
        }
        let why = ErrorKind::AlreadyExists.into();
        Err(cannot_make(&base.join(format!("millrace-dev-{id}")), &why))
    }

    /// Writes down what later starts must go by, and makes the secret of the nodes if there is none.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn remember(&self, kept: Kept) -> Result<(), String> {
        let fail = |error: io::Error| cannot_make(&self.root, &error);
        let secret = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(Plan::secret(&self.root));
        match secret {
            Ok(mut file) => writeln!(file, "{}", cluster::new_secret()).map_err(fail)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(fail(error)),
        }
        let text = serde_json::to_vec(&kept).map_err(|error| error.to_string())?;
        fs::write(self.root.join(FILE), text).map_err(fail)
    }

    /// Deletes a directory that nobody has named.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn end(self) -> Result<(), String> {
        if self.is_kept {
            return Ok(());
        }
        let removed = fs::remove_dir_all(&self.root);
        removed.map_err(|error| format!("{} cannot be deleted: {error}", self.root.display()))
    }
}

/// Whether a directory holds nothing, or is not there.
fn is_empty(root: &Path) -> io::Result<bool> {
    match fs::read_dir(root) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn cannot_make(root: &Path, error: &io::Error) -> String {
    format!(
        "the directory {} cannot be made: {error}. Name another with --directory DIR",
        root.display()
    )
}

/// The log of one node.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Where this run began.
    begin: u64,
}

impl Log {
    /// Opens it to be gone on with.
    pub(super) fn open(path: PathBuf) -> io::Result<(Self, File)> {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let begin = file.metadata()?.len();
        Ok((Self { path, begin }, file))
    }

    /// The last lines of this run, as a terminal may see them.
    pub(super) fn tail(&self) -> Vec<String> {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&self.path)?;
            let end = file.metadata()?.len();
            let from = end.saturating_sub(TAIL_BYTES).max(self.begin);
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let first = lines.len().saturating_sub(TAIL_LINES);
        lines[first..].iter().map(|line| clean(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Kept = Kept { nodes: 3, peer_port: 25672 };

    #[test]
    fn a_named_directory_is_kept_and_remembers_and_no_other_is_taken() {
        let base = std::env::temp_dir().join(format!("millrace-dev-named-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let root = base.join("cluster");
        assert_eq!(Directory::look(&root), Ok(None));
        let directory = Directory::make(Some(&root)).unwrap();
        directory.remember(KEPT).unwrap();
        let secret = fs::read_to_string(Plan::secret(&root)).unwrap();
        directory.remember(KEPT).unwrap();
        assert_eq!(fs::read_to_string(Plan::secret(&root)).unwrap(), secret, "it stays");
        directory.end().unwrap();
        assert_eq!(Directory::look(&root), Ok(Some(KEPT)));
        let told = Directory::look(&base).unwrap_err();
        assert!(told.contains("holds something else"), "{told}");
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_directory_that_nobody_has_named_is_new_and_goes() {
        let (one, other) = (Directory::make(None).unwrap(), Directory::make(None).unwrap());
        assert_ne!(one.root, other.root);
        one.remember(KEPT).unwrap();
        for directory in [one, other] {
            let root = directory.root.clone();
            directory.end().unwrap();
            assert!(!root.exists());
        }
    }

    #[test]
    fn the_end_of_a_log_is_that_of_this_run_and_does_not_act_on_the_terminal() {
        let path = std::env::temp_dir().join(format!("millrace-dev-log-{}", std::process::id()));
        fs::write(&path, "of the run before\n").unwrap();
        let (log, mut file) = Log::open(path.clone()).unwrap();
        assert_eq!(log.tail(), Vec::<String>::new());
        (1..=20).for_each(|line| writeln!(file, "line {line}\u{1b}[2J").unwrap());
        let tail = log.tail();
        assert_eq!(tail.len(), TAIL_LINES);
        assert_eq!(tail.last().map(String::as_str), Some("line 20\\u{1b}[2J"));
        fs::remove_file(path).unwrap();
    }
}
