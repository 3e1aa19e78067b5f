//! One measurement: fill the queue, start who works, and look at the clock and at the processors when it says
//! `first` and `done`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::Options;
use super::cases::Case;
use super::provider::Provider;
use super::report::Row;
use super::servers::Servers;
use crate::chaos::Failure;
use crate::ladder::usage::cpu_of_tree;

/// How long nobody may say anything.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks at the memory.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) fn run(options: &Options, servers: &Servers, case: &Case) -> Result<Row, Failure> {
    let provider = case.provider().map(|kind| Provider::start(options, kind)).transpose()?;
    let target = provider.as_ref().map(|(_, target)| target.as_str());
    fill(case.command(options, servers, target, true)?)?;
    let mut work = case.command(options, servers, target, false)?;
    let log = std::fs::File::create(options.dir.join("worker.log"))?;
    let mut child = work.stdout(Stdio::piped()).stderr(log).spawn()?;
    let pid = child.id();
    let stdout = child.stdout.take().expect("it was piped");
    let (said, words) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if said.send(line).is_err() {
                break;
            }
        }
    });
    let server = || servers.pid().map_or(0.0, cpu_of_tree);
    let mut memory_mb = 0.0;
    let row = wait(&words, "first", || ()).and_then(|()| {
        let (begin, worker_s, server_s) = (Instant::now(), cpu_of_tree(pid), server());
        wait(&words, "done", || memory_mb = peak_memory_mb(pid).max(memory_mb))?;
        Ok(Row {
            name: case.name(),
            jobs: case.jobs(options),
            elapsed_s: begin.elapsed().as_secs_f64(),
            worker_cpu_s: cpu_of_tree(pid) - worker_s,
            server_cpu_s: server() - server_s,
            memory_mb,
        })
    });
    if row.is_err() {
        let _ = child.kill();
    }
    child.wait()?;
    row
}

fn fill(mut command: Command) -> Result<(), Failure> {
    let status = command.stdout(Stdio::null()).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::Trial(format!("the queue cannot be filled: {status}")))
    }
}

/// Waits for the word, and looks at the process meanwhile: it may be gone with its last word.
fn wait(words: &mpsc::Receiver<String>, word: &str, mut look: impl FnMut()) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        look();
        match words.recv_timeout(LOOK_EVERY) {
            Ok(line) if line.trim() == word => return Ok(()),
            Ok(_) => (),
            Err(mpsc::RecvTimeoutError::Timeout) if begin.elapsed() < TIMEOUT => (),
            Err(_) => {
                return Err(Failure::Broken(format!(
                    "the worker never said `{word}`: see worker.log"
                )));
            }
        }
    }
}

/// The most memory that the process and its children have held, in megabytes.
pub(super) fn peak_memory_mb(root: u32) -> f64 {
    let children = format!("/proc/{root}/task/{root}/children");
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let below: f64 = children
        .split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .map(peak_memory_mb)
        .sum();
    let status = std::fs::read_to_string(format!("/proc/{root}/status")).unwrap_or_default();
    let own = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let own = own.and_then(|text| text.trim().trim_end_matches(" kB").parse::<f64>().ok());
    below + own.unwrap_or(0.0) / 1024.0
}
