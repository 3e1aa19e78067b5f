//! A soak of `millrace work`: a broker, a worker and an endpoint as real processes, one of which is harmed every few
//! seconds, while jobs with known ids are published at an even rate. At the end every id must have reached the
//! endpoint, every proof must add up, and the worker's memory must not have grown.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a trial has processes, clocks, files and a terminal"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use client::Chance;
use rustix::process::{Pid, Signal, kill_process};

use crate::chaos::Failure;
use crate::chaos::broker::{Broker, Kind, START_MAX, Setup};
use crate::ports;

/// How long everything may take to come right after the last harm.
const HEALED_MAX: Duration = Duration::from_secs(180);
/// The queue that jobs are published to.
const QUEUE: &str = "soak";

/// How long, how fast, how rough.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Millrace's binary
    #[arg(long, default_value = "target/release/millrace")]
    broker: PathBuf,
    /// How long jobs are published
    #[arg(long, default_value_t = 1800)]
    seconds: u64,
    /// Jobs per second
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// Between two harms, in seconds
    #[arg(long, default_value_t = 15)]
    pause: u64,
    /// Decides what is harmed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where data and logs go; it is emptied first
    #[arg(long, default_value = "target/work-soak")]
    dir: PathBuf,
}

/// Everything that runs.
struct Stage {
    options: Options,
    broker: Broker,
    endpoint: Child,
    worker: Child,
    endpoint_port: u16,
    proofs: u32,
    /// Resident memory of the worker, in kilobytes, just before each harm.
    memory: Vec<u64>,
}

/// Runs it. True: nothing was lost, every proof adds up, memory is flat.
pub fn run(options: &Options) -> Result<bool, Failure> {
    let _ = std::fs::remove_dir_all(&options.dir);
    std::fs::create_dir_all(options.dir.join("data"))?;
    let options = Options {
        dir: options.dir.canonicalize()?,
        broker: options.broker.canonicalize()?,
        ..options.clone()
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut stage = Stage::start(options.clone())?;
    let url = format!("amqp://guest:guest@127.0.0.1:{}/", stage.broker.setup.port);
    let publishing = runtime.spawn(publish(url.clone(), options.clone()));
    let (begin, mut chance) = (Instant::now(), Chance::new(options.seed));
    while begin.elapsed() < Duration::from_secs(options.seconds) {
        std::thread::sleep(Duration::from_secs(options.pause));
        stage.harm(chance.next_bits())?;
    }
    let published =
        runtime.block_on(publishing).map_err(|error| Failure::Trial(error.to_string()))??;
    let (seen, dead) = runtime.block_on(stage.settle(&url, published))?;
    stage.stop_worker()?;
    let verdict = stage.judge(published, &seen, dead);
    stage.end();
    verdict
}

impl Stage {
    fn start(options: Options) -> Result<Self, Failure> {
        let mut broker = Broker::new(Setup {
            kind: Kind::Millrace,
            path: options.broker.clone(),
            node: None,
            port: ports::free()?,
            data: options.dir.join("data"),
            log: options.dir.join("broker.txt"),
            arguments: Vec::new(),
            environment: Vec::new(),
        });
        broker.start()?;
        broker.wait_ready(START_MAX)?;
        let endpoint_port = ports::free()?;
        std::fs::write(
            options.dir.join("work.toml"),
            format!(
                "[worker]\nmetrics = \"none\"\ngrace = \"10s\"\n\
                 [source.jobs]\nkind = \"amqp\"\nurl = \"amqp://guest:guest@127.0.0.1:{}\"\n\
                 queue = \"{QUEUE}\"\ndeclare = true\n\
                 [target.hook]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{endpoint_port}/\"\n\
                 allow_private = true\ntimeout = \"5s\"\n\
                 [target.hook.limits]\nbreaker = {{ failures = 20, open_for = \"2s\" }}\n\
                 [[pipeline]]\nname = \"soak\"\nsource = \"jobs\"\ntarget = \"hook\"\n\
                 attempts_max = 1000\nbackoff = \"200ms\"\nbackoff_max = \"5s\"\n",
                broker.setup.port
            ),
        )?;
        let endpoint = start_endpoint(&options, endpoint_port)?;
        let worker = start_worker(&options)?;
        Ok(Self { options, broker, endpoint, worker, endpoint_port, proofs: 0, memory: Vec::new() })
    }

    /// One of the processes dies, stands still, or is stopped in order.
    fn harm(&mut self, bits: u64) -> Result<(), Failure> {
        self.memory.extend(resident_kb(self.worker.id()));
        match bits % 5 {
            0 => {
                self.worker.kill()?;
                self.worker.wait()?;
                self.worker = start_worker(&self.options)?;
            }
            1 => {
                self.stop_worker()?;
                self.worker = start_worker(&self.options)?;
            }
            2 => {
                self.broker.kill()?;
                self.broker.start()?;
                self.broker.wait_ready(START_MAX)?;
            }
            3 => {
                self.endpoint.kill()?;
                self.endpoint.wait()?;
                std::thread::sleep(Duration::from_secs(2));
                self.endpoint = start_endpoint(&self.options, self.endpoint_port)?;
            }
            _ => {
                signal(&self.worker, Signal::STOP);
                std::thread::sleep(Duration::from_secs(5));
                signal(&self.worker, Signal::CONT);
            }
        }
        Ok(())
    }

    /// SIGTERM; its proof must add up.
    fn stop_worker(&mut self) -> Result<(), Failure> {
        signal(&self.worker, Signal::TERM);
        let status = self.worker.wait()?;
        let log = std::fs::read_to_string(self.options.dir.join("proofs.txt"))?;
        let proof = log.lines().rfind(|line| line.starts_with("taken "));
        let proof = proof.ok_or_else(|| Failure::Broken(format!("no proof, {status}")))?;
        let numbers: Vec<u64> =
            proof.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        let is_right = numbers.first().copied() == numbers.get(1..).map(|rest| rest.iter().sum());
        if !status.success() || !is_right {
            return Err(Failure::Broken(format!("{status}: {proof}")));
        }
        self.proofs += 1;
        Ok(())
    }

    /// Waits until every id has arrived; gives how often each did, and how many jobs are dead.
    async fn settle(
        &mut self,
        url: &str,
        published: u64,
    ) -> Result<(BTreeMap<u64, u32>, u32), Failure> {
        let begin = Instant::now();
        loop {
            let seen = self.seen()?;
            if seen.len() as u64 == published || begin.elapsed() > HEALED_MAX {
                let failed = |error: client::Error| Failure::Trial(error.to_string());
                let url = url.parse().map_err(|error| Failure::Trial(format!("{error}")))?;
                let how = client::Options::named("soak");
                let mut look = client::Connection::open(&url, &how).await.map_err(failed)?;
                let dead = match look.look_up_queue(&format!("{QUEUE}.dead")).await {
                    Ok(found) => found.message_count,
                    Err(client::Error::ChannelClosed { code: 404, .. }) => 0,
                    Err(error) => return Err(failed(error)),
                };
                return Ok((seen, dead));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn seen(&self) -> Result<BTreeMap<u64, u32>, Failure> {
        let mut seen = BTreeMap::new();
        for line in std::fs::read_to_string(self.options.dir.join("seen.txt"))?.lines() {
            if let Ok(id) = line.parse() {
                *seen.entry(id).or_default() += 1;
            }
        }
        Ok(seen)
    }

    fn judge(&self, published: u64, seen: &BTreeMap<u64, u32>, dead: u32) -> Result<bool, Failure> {
        let lost = published - seen.len() as u64;
        let repeats: u64 = seen.values().map(|count| u64::from(count - 1)).sum();
        let quarter = (self.memory.len() / 4).max(1);
        let mean = |part: &[u64]| part.iter().sum::<u64>() / part.len().max(1) as u64;
        let first = mean(&self.memory[..quarter.min(self.memory.len())]);
        let last = mean(&self.memory[self.memory.len().saturating_sub(quarter)..]);
        println!(
            "{published} jobs, {} harms, {} proofs that add up: {lost} lost, {dead} dead, {repeats} came again; \
             worker's memory {} MB in the first quarter, {} MB in the last",
            self.memory.len(),
            self.proofs,
            first / 1024,
            last / 1024
        );
        Ok(lost == 0 && dead == 0 && last < first * 3 / 2 + 8192)
    }

    fn end(mut self) {
        for child in [&mut self.endpoint, &mut self.worker] {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.broker.terminate(Duration::from_secs(30));
    }
}

async fn publish(url: String, options: Options) -> Result<u64, Failure> {
    let failed = |error: client::Error| Failure::Trial(error.to_string());
    let url = url.parse().map_err(|error| Failure::Trial(format!("{error}")))?;
    let how = client::Options::named("soak");
    let mut connection = client::Connection::open(&url, &how).await.map_err(failed)?;
    connection.declare_queue(&client::QueueSpec::durable(QUEUE)).await.map_err(failed)?;
    connection.close().await.map_err(failed)?;
    let mut publisher = client::Publisher::open(&url, &how, 4096).await.map_err(failed)?;
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / f64::from(options.rate)));
    let (begin, mut verdicts, mut id) = (Instant::now(), Vec::new(), 0u64);
    let mut settled = client::Settled::default();
    while begin.elapsed() < Duration::from_secs(options.seconds) {
        tokio::select! {
            _ = ticks.tick() => {
                let text = id.to_string();
                let properties = amqp::Properties {
                    delivery_mode: Some(2),
                    message_id: Some(&text),
                    ..Default::default()
                };
                let to = client::Address::queue(QUEUE);
                publisher.publish(to, &properties, b"{}").await.map_err(failed)?;
                id += 1;
            }
            driven = publisher.drive(&mut verdicts) => driven.map_err(failed)?,
        }
        settled.add(verdicts.drain(..));
    }
    let rest = publisher.close().await.map_err(failed)?;
    if settled.is_clean() && rest.is_clean() {
        Ok(id)
    } else {
        Err(Failure::Broken(format!("the broker refused jobs: {settled:?} {rest:?}")))
    }
}

fn start_worker(options: &Options) -> Result<Child, Failure> {
    let append =
        |name: &str| File::options().create(true).append(true).open(options.dir.join(name));
    let mut command = Command::new(&options.broker);
    command.args(["work", "run", "--config"]).arg(options.dir.join("work.toml"));
    command.stdout(append("proofs.txt")?).stderr(append("worker.txt")?);
    Ok(command.spawn()?)
}

fn start_endpoint(options: &Options, port: u16) -> Result<Child, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["webhook-server", "--latency-ms", "5", "--port", &port.to_string(), "--record"]);
    command.arg(options.dir.join("seen.txt")).stdout(Stdio::null());
    Ok(command.spawn()?)
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process(pid, signal);
    }
}

fn resident_kb(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
