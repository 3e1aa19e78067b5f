//! Serves the flaky disk as two files, until it is unmounted.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::sectors::{Piece, SECTOR_BYTES, Sectors};
use crate::workload::Chance;

const DISK: INodeNo = INodeNo(2);
const CONTROL: INodeNo = INodeNo(3);
/// The kernel may keep what it asked about the two files: only the disk's bytes change.
const KEEP: Duration = Duration::from_secs(60);

/// One for the disk's writes, one for its flush, one for the control file, one to spare.
const THREADS: usize = 4;

struct State {
    image: File,
    bytes: u64,
    held: Sectors,
    /// Handles below this number belong to a disk that was cut off.
    first_alive: u64,
    next_handle: u64,
    fails_flush: bool,
    flush_delay: Duration,
    flushes: u64,
    /// Sectors thrown away since the start: by cuts, and by failed flushes.
    lost: u64,
    /// Sectors that the kernel still wanted to write to a disk that was cut off.
    refused: u64,
}

impl State {
    fn attributes(&self, file: INodeNo) -> FileAttr {
        let kind = if file == INodeNo::ROOT { FileType::Directory } else { FileType::RegularFile };
        let size = if file == DISK { self.bytes } else { 0 };
        FileAttr {
            ino: file,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn is_dead(&self, handle: FileHandle) -> bool {
        u64::from(handle) < self.first_alive
    }

    fn put(&self, pieces: Vec<Piece>) -> io::Result<()> {
        pieces.into_iter().try_for_each(|(at, bytes)| self.image.write_all_at(&bytes, at))
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.fails_flush {
            // As after a failed flush of a real disk, nobody has these sectors any more.
            self.lost += self.held.count();
            self.held = Sectors::default();
            return Err(io::Error::other("told to fail"));
        }
        self.flushes += 1;
        let pieces = self.held.flush();
        self.put(pieces)
    }

    fn cut(&mut self, keep: Vec<Piece>, held: u64) -> io::Result<()> {
        let kept: usize = keep.iter().map(|(_, bytes)| bytes.len() / SECTOR_BYTES).sum();
        self.lost += held - kept as u64;
        self.held = Sectors::default();
        self.first_alive = self.next_handle;
        self.put(keep)
    }

    fn obey(&mut self, command: &str) -> Result<(), Errno> {
        let mut words = command.split_whitespace();
        let (verb, argument) = (words.next().unwrap_or_default(), words.next());
        let number = || argument.and_then(|text| text.parse::<u64>().ok()).ok_or(Errno::EINVAL);
        let held = self.held.count();
        match (verb, argument) {
            ("drop", None) => self.cut(Vec::new(), held).map_err(|_| Errno::EIO),
            ("tear", Some(_)) => {
                let kept = self.held.tear(&mut Chance::new(number()?));
                self.cut(kept, held).map_err(|_| Errno::EIO)
            }
            ("eio", Some("on")) => {
                self.fails_flush = true;
                Ok(())
            }
            ("eio", Some("off")) => {
                self.fails_flush = false;
                Ok(())
            }
            ("delay", Some(_)) => {
                self.flush_delay = Duration::from_millis(number()?);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn status(&self) -> String {
        let Self { lost, refused, flushes, .. } = self;
        format!("lost {lost}\nrefused {refused}\nheld {}\nflushes {flushes}\n", self.held.count())
    }
}

struct FlakyDisk(Mutex<State>);

impl FlakyDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock means that the process is ending.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filesystem for FlakyDisk {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let file = match name.to_str() {
            Some("disk") => DISK,
            Some("ctl") => CONTROL,
            _ => return reply.error(Errno::ENOENT),
        };
        reply.entry(&KEEP, &self.state().attributes(file), Generation(0));
    }

    fn getattr(&self, _: &Request, file: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEEP, &self.state().attributes(file));
    }

    fn setattr(
        &self,
        _: &Request,
        file: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&KEEP, &self.state().attributes(file));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut state = self.state();
        state.next_handle += 1;
        reply.opened(FileHandle(state.next_handle - 1), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        file: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.state();
        if file == CONTROL {
            let status = state.status();
            let from = (offset as usize).min(status.len());
            let to = status.len().min(from + size as usize);
            return reply.data(&status.as_bytes()[from..to]);
        }
        if state.is_dead(handle) {
            return reply.error(Errno::EIO);
        }
        let count = u64::from(size).min(state.bytes.saturating_sub(offset));
        let mut bytes = vec![0; count as usize];
        if state.image.read_exact_at(&mut bytes, offset).is_err() {
            return reply.error(Errno::EIO);
        }
        state.held.overlay(offset, &mut bytes);
        reply.data(&bytes);
    }

    fn write(
        &self,
        _: &Request,
        file: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        let taken = if file == CONTROL {
            state.obey(&String::from_utf8_lossy(data))
        } else if state.is_dead(handle) {
            state.refused += (data.len() / SECTOR_BYTES) as u64;
            Err(Errno::EIO)
        } else if !state.held.write(offset, data) {
            Err(Errno::EIO)
        } else {
            Ok(())
        };
        match taken {
            Ok(()) => reply.written(u32::try_from(data.len()).expect("a request is bounded")),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Request, file: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        if file != DISK {
            return reply.ok();
        }
        // Nobody waits for this flush but its caller: a cut may come in the middle of it.
        let delay = self.state().flush_delay;
        std::thread::sleep(delay);
        let mut state = self.state();
        if state.is_dead(handle) || state.flush().is_err() {
            return reply.error(Errno::EIO);
        }
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Called at every close; it has nothing to do with a disk's flush.
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            let _ = reply.add(DISK, 1, FileType::RegularFile, "disk");
            let _ = reply.add(CONTROL, 2, FileType::RegularFile, "ctl");
        }
        reply.ok();
    }
}

/// Serves `image` at `mount` until it is unmounted.
pub(in crate::chaos) fn serve(image: &Path, mount: &Path) -> io::Result<()> {
    let image = File::options().read(true).write(true).open(image)?;
    let bytes = image.metadata()?.len();
    let state = State {
        image,
        bytes,
        held: Sectors::default(),
        first_alive: 0,
        next_handle: 0,
        fails_flush: false,
        flush_delay: Duration::ZERO,
        flushes: 0,
        lost: 0,
        refused: 0,
    };
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    config.mount_options = vec![MountOption::RW, MountOption::FSName("flakydisk".into())];
    fuser::mount(FlakyDisk(Mutex::new(state)), mount, &config)
}
