//! What commands say to their user. Whoever listened may be gone, or the disk behind the file full: no command,
//! and least of all a node, ends because nobody hears it. So nothing here panics, as `println!` would.

use std::io::{self, Write as _};

/// A line on standard output: the answer. False: it went nowhere.
pub(crate) fn say(text: &str) -> bool {
    let mut out = io::stdout();
    writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()).is_ok()
}

/// A line on standard error: remarks and errors. Nobody is left to tell if that is gone.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Standard error for log lines: what cannot be written is lost, and nobody is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogWriter;

impl io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
