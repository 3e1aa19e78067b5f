//! Who reads standard output: a message is acknowledged when it was taken, not when it lies in a pipe.

use std::io::{self, BufWriter, StdoutLock, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};

/// Standard output, and how much of it was taken.
pub(super) struct Listener {
    out: BufWriter<StdoutLock<'static>>,
    /// Bytes that were given to `out`.
    given: u64,
    is_pipe: bool,
}

impl Listener {
    pub(super) fn new() -> Self {
        let stdout = io::stdout();
        let is_pipe =
            fstat(&stdout).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_fifo());
        Self { out: BufWriter::with_capacity(64 * 1024, stdout.lock()), given: 0, is_pipe }
    }

    /// Bytes that were written so far.
    pub(super) fn given(&self) -> u64 {
        self.given
    }

    /// Bytes that are out of our hands: in a file, or out of the pipe again.
    pub(super) fn taken(&self) -> u64 {
        let unread = match self.is_pipe {
            true => rustix::io::ioctl_fionread(io::stdout()).unwrap_or(0),
            false => 0,
        };
        // Others may write into the same pipe.
        (self.given - self.out.buffer().len() as u64).saturating_sub(unread)
    }

    /// Nobody will ever read what is in the pipe.
    pub(super) fn is_gone(&self) -> bool {
        let stdout = io::stdout();
        let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_asked = self.is_pipe && poll(&mut asked, Some(&at_once)).is_ok();
        is_asked && asked[0].revents().contains(PollFlags::ERR)
    }
}

impl Write for Listener {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.given += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
