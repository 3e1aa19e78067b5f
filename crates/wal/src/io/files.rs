//! The real disk: `pwritev`, `pread` and `fdatasync` below one directory.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{self, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags};

use crate::disk::{Access, Disk, DiskFile};
use crate::limits::WRITE_PARTS_MAX;

/// How long opening rests when the process or the system has no descriptor left.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(20);

/// The files below one directory.
#[derive(Clone, Debug)]
pub struct FileDisk {
    root: Arc<PathBuf>,
}

/// An open file of a [`FileDisk`].
#[derive(Debug)]
pub struct OpenFile(OwnedFd);

impl FileDisk {
    /// Uses `root`, which is made with its parents if it is not there.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        make_with_parents(&root)?;
        Ok(Self { root: Arc::new(root) })
    }

    /// Uses `root` as it is; fails if it is not there.
    pub fn existing(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        open_directory(&root)?;
        Ok(Self { root: Arc::new(root) })
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// A new directory is certain only when its parent is synced.
fn make_with_parents(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    make_with_parents(parent)?;
    std::fs::create_dir(path)?;
    sync_directory(parent)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = open_directory(path)?;
    Ok(fs::fsync(&directory)?)
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
}

fn open(path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    with_descriptor(|| fs::open(path, flags, mode))
}

/// Opens something. A process without a free descriptor waits for one: its disk has not failed, and clients that go
/// give theirs back.
fn with_descriptor<T>(mut open: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    let mut is_told = false;
    loop {
        match open() {
            Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                if !is_told {
                    tracing::error!(
                        "too many open files: the store waits for a free descriptor, and confirms nothing meanwhile. \
                         Raise the limit of open files (ulimit -n, LimitNOFILE)"
                    );
                }
                is_told = true;
                std::thread::sleep(DESCRIPTOR_PAUSE);
            }
            other => return Ok(other?),
        }
    }
}

impl Disk for FileDisk {
    type File = OpenFile;
    type Lock = OwnedFd;

    fn create_dir(&self, path: &str) -> io::Result<()> {
        match std::fs::create_dir(self.path(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let directory = open_directory(&self.path(path))?;
        let mut names = Vec::new();
        for entry in with_descriptor(|| Dir::read_from(&directory))? {
            let entry = entry?;
            let mut name = entry.file_name().to_string_lossy().into_owned();
            if name == "." || name == ".." {
                continue;
            }
            if entry.file_type() == FileType::Directory {
                name.push('/');
            }
            names.push(name);
        }
        names.sort();
        Ok(names)
    }

    fn create(&self, path: &str) -> io::Result<OpenFile> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        Ok(OpenFile(open(&self.path(path), flags, Mode::from_raw_mode(0o640))?))
    }

    fn open(&self, path: &str, access: Access) -> io::Result<OpenFile> {
        let flags = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
        };
        Ok(OpenFile(open(&self.path(path), flags | OFlags::CLOEXEC, Mode::empty())?))
    }

    fn lock(&self) -> io::Result<OwnedFd> {
        let directory = open_directory(self.root.as_path())?;
        fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
        Ok(directory)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        sync_directory(&self.path(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(fs::rename(self.path(from), self.path(to))?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        Ok(fs::unlink(self.path(path))?)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let space = fs::statvfs(self.root.as_path())?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

impl DiskFile for OpenFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(u64::try_from(fs::fstat(&self.0)?.st_size).unwrap_or(0))
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        Ok(fs::fallocate(&self.0, FallocateFlags::empty(), 0, bytes)?)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        Ok(fs::ftruncate(&self.0, bytes)?)
    }

    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut at = offset;
        for chunk in parts.chunks(WRITE_PARTS_MAX) {
            let total: u64 = chunk.iter().map(|part| part.len() as u64).sum();
            // Nearly always one call takes it all.
            let count = retry(|| rustix::io::pwritev(&self.0, chunk, at))? as u64;
            if count < total {
                self.write_rest(at, chunk, count)?;
            }
            at += total;
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            let at = offset + filled as u64;
            match retry(|| rustix::io::pread(&self.0, &mut into[filled..], at))? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }

    fn sync_data(&self) -> io::Result<u64> {
        let started = Instant::now();
        // Not retried, not even when interrupted: after an error the kernel has forgotten which
        // pages it did not write.
        fs::fdatasync(&self.0)?;
        Ok(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

impl OpenFile {
    /// Writes what follows the first `done` bytes of `parts`.
    fn write_rest(&self, offset: u64, parts: &[IoSlice<'_>], mut done: u64) -> io::Result<()> {
        let mut at = offset;
        for part in parts {
            let length = part.len() as u64;
            let mut skipped = done.min(length);
            done -= skipped;
            while skipped < length {
                let rest = &part[skipped as usize..];
                match retry(|| rustix::io::pwrite(&self.0, rest, at + skipped))? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    count => skipped += count as u64,
                }
            }
            at += length;
        }
        Ok(())
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_process_without_a_free_descriptor_waits_for_one() {
        let mut answers = vec![Ok(7), Err(Errno::NFILE), Err(Errno::MFILE), Err(Errno::MFILE)];
        assert_eq!(with_descriptor(|| answers.pop().unwrap()).unwrap(), 7);
        let gone = with_descriptor(|| Err::<(), _>(Errno::NOENT)).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
