//! A program that writes what it says into files, where it can be read while it runs, and that may take so long and no
//! longer. Files, and not pipes: what it started itself may hold a pipe open after it has ended.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::process::target;

/// How often it is looked whether the program has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A program that runs.
pub(crate) struct Logged {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

/// What became of it.
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    /// How it failed, for people; none: it ended well.
    pub(crate) failure: Option<String>,
}

impl Logged {
    /// Starts it. `name` names its files in `target/said/`, which those of an earlier run of that name make way for.
    pub(crate) fn start(name: &str, program: &mut Command) -> io::Result<Self> {
        let folder = target().join("said");
        std::fs::create_dir_all(&folder)?;
        let name = name.replace(['/', ' '], "-");
        let [out, err] = ["out", "err"].map(|stream| folder.join(format!("{name}.{stream}.txt")));
        let child = program
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?)
            .spawn()?;
        Ok(Self { child, out, err })
    }

    /// Waits for its end, and ends it after `max`. What it started itself is not ended.
    pub(crate) fn wait(mut self, max: Duration) -> io::Result<Ran> {
        let ended = self.ended(max)?;
        if ended.is_none() {
            self.child.kill()?;
            self.child.wait()?;
        }
        let failure = match ended {
            Some(status) if status.success() => None,
            Some(status) => Some(status.to_string()),
            None => Some(format!("ended by force: it still ran after {} s", max.as_secs())),
        };
        let said = |path: &PathBuf| {
            std::fs::read(path).map(|said| String::from_utf8_lossy(&said).into_owned())
        };
        Ok(Ran { out: said(&self.out)?, err: said(&self.err)?, failure })
    }

    /// None: it still runs.
    fn ended(&mut self, max: Duration) -> io::Result<Option<ExitStatus>> {
        let begin = Instant::now();
        loop {
            let ended = self.child.try_wait()?;
            if ended.is_some() || begin.elapsed() >= max {
                return Ok(ended);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(name: &str, script: &str, max: Duration) -> Ran {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        Logged::start(name, &mut shell).unwrap().wait(max).unwrap()
    }

    #[test]
    fn what_a_program_says_is_kept_and_its_failure_told() {
        let ran = ran("test of sh", "echo a; echo b >&2; exit 3", Duration::from_secs(60));
        assert_eq!((&*ran.out, &*ran.err), ("a\n", "b\n"));
        assert_eq!(ran.failure.as_deref(), Some("exit status: 3"));
    }

    #[test]
    fn a_program_that_hangs_is_ended_though_what_it_started_goes_on() {
        let ran = ran("test of a hang", "echo begun; sleep 30 & wait", Duration::from_secs(1));
        assert_eq!(ran.out, "begun\n");
        assert_eq!(ran.failure.as_deref(), Some("ended by force: it still ran after 1 s"));
    }
}
