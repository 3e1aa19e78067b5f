//! System 3's ladder as settings of one program: `millrace work run` takes jobs from a local MNS whose calls take 15
//! ms and posts them to an endpoint that takes 20 ms. It is stopped after some seconds, and its own proof is counted.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Options;
use super::provider::Provider;
use super::race::peak_memory_mb;
use super::report::Row;
use crate::chaos::Failure;
use crate::ladder::usage::cpu_of_tree;

const RUNS_FOR: Duration = Duration::from_secs(7);
/// More than the fastest rung takes.
const JOBS: u64 = 120_000;
const CALL_MS: &str = "15";
const ANSWER_MS: &str = "20";

/// One step of the ladder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rung {
    pub(super) name: &'static str,
    source: &'static str,
    concurrency: u32,
}

pub(super) const RUNGS: [Rung; 3] = [
    Rung {
        name: "MNS: one fetcher, one delete a job, in turn",
        source: "fetchers = 1\nbatch = 1\ndelete_batch = 1\nsynchronous = true\n",
        concurrency: 1,
    },
    Rung {
        name: "MNS: batches of 16, in turn",
        source: "fetchers = 1\nbatch = 16\ndelete_batch = 16\nsynchronous = true\n",
        concurrency: 16,
    },
    Rung {
        name: "MNS: eight fetchers, eight deleters",
        source: "fetchers = 8\ndeleters = 8\n",
        concurrency: 256,
    },
];

/// Climbs one rung.
pub(super) fn run(options: &Options, rung: &Rung) -> Result<Row, Failure> {
    let jobs = JOBS.to_string();
    let mns = Provider::serve(
        "mns-server",
        &[
            "--messages",
            &jobs,
            "--receive-ms",
            CALL_MS,
            "--delete-ms",
            CALL_MS,
            "--other-ms",
            CALL_MS,
        ],
    )?;
    let hook = Provider::serve("webhook-server", &["--latency-ms", ANSWER_MS])?;
    let file = options.dir.join("ladder.toml");
    std::fs::write(&file, configuration(rung, mns.port, hook.port))?;
    let printed = options.dir.join("ladder.txt");
    let mut worker = start(options, &file, &printed)?;
    let begin = Instant::now();
    while begin.elapsed() < RUNS_FOR {
        std::thread::sleep(Duration::from_millis(100));
    }
    let (elapsed_s, worker_cpu_s) = (begin.elapsed().as_secs_f64(), cpu_of_tree(worker.id()));
    let memory_mb = peak_memory_mb(worker.id());
    if let Some(pid) = Pid::from_raw(worker.id() as i32) {
        kill_process(pid, Signal::TERM).map_err(std::io::Error::from)?;
    }
    let status = worker.wait()?;
    let jobs = done(&printed)?.filter(|_| status.success());
    let jobs = jobs.ok_or_else(|| Failure::Broken(format!("{status}: see ladder.txt")))?;
    let name = rung.name.to_owned();
    Ok(Row { name, jobs, elapsed_s, worker_cpu_s, server_cpu_s: cpu_of_tree(mns.pid()), memory_mb })
}

fn configuration(rung: &Rung, mns: u16, hook: u16) -> String {
    format!(
        "[worker]\nmetrics = \"none\"\n\
         [source.jobs]\nkind = \"mns\"\nendpoint = \"http://127.0.0.1:{mns}\"\nqueue = \"jobs\"\n\
         dead_queue = \"dead\"\naccess_key_id = \"id\"\naccess_key_secret = \"secret\"\nbase64 = false\n{}\
         [target.hook]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{hook}/hook\"\nallow_private = true\n\
         [target.hook.limits]\nconcurrency = {}\n\
         [[pipeline]]\nname = \"ladder\"\nsource = \"jobs\"\ntarget = \"hook\"\n",
        rung.source, rung.concurrency
    )
}

fn start(options: &Options, file: &Path, printed: &Path) -> Result<Child, Failure> {
    let mut command = match &options.cpus {
        Some(cpus) => {
            let mut taskset = Command::new("taskset");
            taskset.args(["-c", cpus]).arg(&options.broker);
            taskset
        }
        None => Command::new(&options.broker),
    };
    command.args(["work", "run", "--config"]).arg(file);
    let log = std::fs::File::create(options.dir.join("ladder.log"))?;
    Ok(command.stdout(std::fs::File::create(printed)?).stderr(log).stdin(Stdio::null()).spawn()?)
}

/// Jobs that the worker's proof says are done.
fn done(printed: &Path) -> Result<Option<u64>, Failure> {
    let text = std::fs::read_to_string(printed)?;
    let proof = text.lines().rfind(|line| line.starts_with("taken "));
    let words = proof.map(|line| line.split_ascii_whitespace());
    Ok(words.and_then(|mut words| {
        words.find(|word| *word == "done")?;
        words.next()?.parse().ok()
    }))
}
