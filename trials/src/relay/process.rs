//! A relay: a process that is started, watched, stopped and killed.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::chaos::Failure;
use crate::chaos::broker::tail;

/// A relay that runs, or has ended. Dropping it kills.
#[derive(Debug)]
pub struct Relay {
    child: Child,
    log: PathBuf,
}

const PAUSE: Duration = Duration::from_millis(5);
/// How long a start may take.
const OPENS: Duration = Duration::from_secs(60);

impl Relay {
    /// Starts `millrace` with these words.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(millrace: &Path, words: &[String], log: &Path) -> Result<Self, Failure> {
        let file = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(millrace);
        command.args(words).process_group(0).stdin(Stdio::null());
        command.stdout(file.try_clone()?).stderr(file);
        let child = command.spawn()?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Waits until it has found all that it needs, or says what it waits for: before, whatever is missing ends it at
    /// once, as it should, and so does a signal.
    ///
    /// # Errors
    /// It ends, or says nothing.
    pub fn wait_open(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let said = std::fs::read_to_string(&self.log)?;
            if said.contains("reading the ") || said.contains("waiting ") {
                return Ok(());
            }
            if let Some(status) = self.exited()? {
                let last = self.last_words();
                return Err(Failure::Broken(format!("the relay does not start: {status}; {last}")));
            }
            if begun.elapsed() > OPENS {
                let last = self.last_words();
                return Err(Failure::Broken(format!(
                    "the relay is not open after {OPENS:?}; {last}"
                )));
            }
            std::thread::sleep(PAUSE);
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>, Failure> {
        Ok(self.child.try_wait()?)
    }

    /// The end of what it said.
    pub fn last_words(&self) -> String {
        format!("{}:\n{}", self.log.display(), tail(&self.log))
    }

    /// `kill -9`, and waits until it is gone.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn kill9(&mut self) -> Result<(), Failure> {
        self.signal(Signal::KILL);
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and does not wait.
    pub fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGHUP: it reads its file again.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// What it has said so far.
    ///
    /// # Errors
    /// Its log cannot be read.
    pub fn words(&self) -> Result<String, Failure> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    /// SIGSTOP: it keeps its connections and says nothing.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT: it goes on as if no time had passed.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGTERM; it must end with success, and soon.
    ///
    /// # Errors
    /// [`Failure::Broken`] where it does not.
    pub fn terminate(&mut self, within: Duration) -> Result<(), Failure> {
        self.signal(Signal::TERM);
        let status = self.wait(within)?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::Broken(format!("the relay ends with {status}; {}", self.last_words())))
    }

    /// Waits for it to end by itself.
    ///
    /// # Errors
    /// [`Failure::Broken`] where it still runs.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        let begun = Instant::now();
        while begun.elapsed() < within {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
            std::thread::sleep(PAUSE);
        }
        let last = self.last_words();
        Err(Failure::Broken(format!("the relay still runs after {within:?}; {last}")))
    }

    /// The most memory that it has had, in bytes.
    ///
    /// # Errors
    /// It is gone.
    pub fn memory_peak(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = peak.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        let bytes = kilobytes.map(|kilobytes| kilobytes * 1024);
        bytes.ok_or_else(|| Failure::Trial("the relay is gone".into()))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself in between.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // One that was waited for has a number that may be somebody else's by now.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.kill9();
        }
    }
}
