//! `millrace work` as a process, with a real broker: what it says, what it leaves behind when it is stopped or killed.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "starts processes, and waits for them"
)]

mod support {
    pub(crate) mod millrace;
}

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Address, Connection, Options, Publisher, QueueSpec, Url};
use rustix::process::{Pid, Signal, kill_process};
use support::millrace::broker;
use tokio::runtime::Runtime;
use trials::chaos::broker::{Broker, Kind, Setup};
use trials::ports;

const TIMEOUT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(10);
/// A secret that no output may have.
const CANARY: &str = "whsec_Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5";
const PREFETCH: usize = 64;

/// A broker, an endpoint, and a folder.
struct Stage {
    _broker: Broker,
    url: String,
    endpoint: Endpoint,
    dir: PathBuf,
    metrics: String,
    runtime: Runtime,
}

/// An HTTP server that counts the requests of each job.
struct Endpoint {
    port: u16,
    seen: Arc<Mutex<HashMap<String, u32>>>,
}

impl Endpoint {
    /// Answers each request after this time with this status.
    fn start(delay: Duration, status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<HashMap<String, u32>>> = Arc::default();
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&shared);
                std::thread::spawn(move || answer(stream, delay, status, &seen));
            }
        });
        Self { port, seen }
    }

    fn counts(&self) -> HashMap<String, u32> {
        self.seen.lock().unwrap().clone()
    }
}

fn answer(
    mut stream: TcpStream,
    delay: Duration,
    status: &str,
    seen: &Mutex<HashMap<String, u32>>,
) {
    let mut data = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let Some(head) = data.windows(4).position(|part| part == b"\r\n\r\n") else {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => data.extend_from_slice(&buffer[..count]),
            }
            continue;
        };
        let text = String::from_utf8_lossy(&data[..head]).to_lowercase();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim_start_matches(':').trim().to_owned())
        };
        let body: usize = value("content-length").map_or(0, |text| text.parse().unwrap());
        if data.len() < head + 4 + body {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => data.extend_from_slice(&buffer[..count]),
            }
            continue;
        }
        let id = value("idempotency-key").expect("every job has one");
        data.drain(..head + 4 + body);
        *seen.lock().unwrap().entry(id).or_default() += 1;
        std::thread::sleep(delay);
        let told = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if stream.write_all(told.as_bytes()).is_err() {
            return;
        }
    }
}

impl Stage {
    fn start(name: &str, endpoint: Endpoint) -> Self {
        let dir = Path::new(env!("CARGO_BIN_EXE_trials"))
            .with_file_name(format!("work-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let port = ports::free().unwrap();
        let mut process = Broker::new(Setup {
            kind: Kind::Millrace,
            path: broker().to_owned(),
            node: None,
            port,
            data: dir.join("data"),
            log: dir.join("broker.txt"),
            arguments: Vec::new(),
            environment: Vec::new(),
        });
        std::fs::create_dir_all(dir.join("data")).unwrap();
        process.start().unwrap();
        process.wait_ready(TIMEOUT).unwrap();
        let url = format!("amqp://guest:guest@127.0.0.1:{port}/%2F");
        let metrics = format!("127.0.0.1:{}", ports::free().unwrap());
        let runtime = Runtime::new().unwrap();
        let stage = Self { _broker: process, url, endpoint, dir, metrics, runtime };
        stage.configure("");
        let url: Url = stage.url.parse().unwrap();
        stage.runtime.block_on(async {
            let mut connection = Connection::open(&url, &Options::named("trial")).await.unwrap();
            connection.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
            connection.close().await.unwrap();
        });
        stage
    }

    fn file(&self) -> PathBuf {
        self.dir.join("work.toml")
    }

    /// Writes the file, with these lines more in the target's table.
    fn configure(&self, lines: &str) {
        let Self { url, endpoint, metrics, .. } = self;
        let port = endpoint.port;
        let text = format!(
            "[worker]\ngrace = \"2s\"\nmetrics = \"{metrics}\"\n\
             [source.jobs]\nkind = \"amqp\"\nurl = \"{url}\"\nqueue = \"jobs\"\ndeclare = true\nprefetch = {PREFETCH}\n\
             [target.hook]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{port}/\"\nallow_private = true\n\
             secrets = [\"{CANARY}\"]\n{lines}\n\
             [[pipeline]]\nname = \"mail\"\nsource = \"jobs\"\ntarget = \"hook\"\nconcurrency = 16\nbuffer = {PREFETCH}\n\
             attempts_max = 2\nbackoff = \"1ms\"\nbackoff_max = \"1ms\"\n"
        );
        std::fs::write(self.file(), text).unwrap();
    }

    /// Publishes jobs with the ids FROM to TO, and waits for their confirms.
    fn publish(&self, ids: std::ops::Range<u32>) {
        let url: Url = self.url.parse().unwrap();
        self.runtime.block_on(async {
            let options = Options::named("trial");
            let mut publisher = Publisher::open(&url, &options, 1000).await.unwrap();
            for id in ids {
                let id = format!("job-{id}");
                let properties = amqp::Properties {
                    message_id: Some(&id),
                    kind: Some("mail"),
                    delivery_mode: Some(2),
                    ..amqp::Properties::default()
                };
                publisher.publish(Address::queue("jobs"), &properties, b"{}").await.unwrap();
            }
            assert!(publisher.close().await.unwrap().is_clean());
        });
    }

    /// Messages that are ready in a queue; none: there is no such queue.
    fn waiting(&self, queue: &str) -> Option<u32> {
        let url: Url = self.url.parse().unwrap();
        self.runtime.block_on(async {
            let mut connection = Connection::open(&url, &Options::named("trial")).await.unwrap();
            let found = connection.look_up_queue(queue).await.ok();
            found.map(|found| found.message_count)
        })
    }

    fn millrace(&self, words: &[&str]) -> Output {
        let mut command = Command::new(broker());
        command.arg("work").args(words).env("MILLRACE_WORK_CONFIG", self.file());
        command.env("AMQP_URL", &self.url).output().unwrap()
    }

    fn run(&self) -> Worker {
        let log = self.dir.join("worker.txt");
        let file = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new(broker());
        command.args(["work", "run", "--config"]).arg(self.file());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        Worker { child: command.spawn().unwrap(), log }
    }

    fn get(&self, path: &str) -> Option<String> {
        self.ask(&format!("GET {path}"), "")
    }

    /// The answer to a request with these lines of headers.
    fn ask(&self, line: &str, headers: &str) -> Option<String> {
        let mut stream = TcpStream::connect(&self.metrics).ok()?;
        let host = &self.metrics;
        let ask = format!("{line} HTTP/1.1\r\nhost: {host}\r\n{headers}connection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// `millrace work run`.
struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// SIGTERM; gives what it printed.
    fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let mut printed = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.said());
        printed
    }

    fn kill9(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill9();
    }
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "it never came: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// The numbers of a proof, in its words.
fn proof(printed: &str) -> HashMap<String, u64> {
    let line = printed.lines().find(|line| line.starts_with("taken ")).expect(printed);
    let words: Vec<&str> =
        line.split_whitespace().filter(|word| !["=", "+"].contains(word)).collect();
    words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap())).collect()
}

#[test]
fn a_drain_under_full_load_leaves_nothing_in_memory_and_proves_it() {
    let stage = Stage::start("drain", Endpoint::start(Duration::from_millis(2), "200 OK"));
    const JOBS: u32 = 20_000;
    stage.publish(0..JOBS);
    let mut executed = 0;
    for _ in 0..20 {
        let worker = stage.run();
        wait_until("jobs are executed", || stage.endpoint.counts().len() as u64 > executed + 200);
        let proof = proof(&worker.stop());
        let ends: u64 =
            ["done", "returned", "retried", "dead", "lost"].iter().map(|it| proof[*it]).sum();
        assert_eq!(proof["taken"], ends, "{proof:?}");
        assert_eq!(proof["lost"], 0, "{proof:?}");
        executed += proof["done"];
        let done = stage.endpoint.counts().len() as u32;
        assert_eq!(u64::from(done), executed, "what the endpoint answered is done: {proof:?}");
        wait_until("what is not done waits", || stage.waiting("jobs") == Some(JOBS - done));
    }
    let repeats = stage.endpoint.counts().into_values().filter(|count| *count > 1).count();
    assert_eq!(repeats, 0, "a drain repeats no job");
}

#[test]
fn a_worker_that_is_killed_loses_nothing_and_repeats_at_most_what_it_held() {
    let stage = Stage::start("kill", Endpoint::start(Duration::from_millis(1), "200 OK"));
    const JOBS: u32 = 3000;
    stage.publish(0..JOBS);
    const KILLS: usize = 5;
    for round in 1..=KILLS {
        let mut worker = stage.run();
        wait_until("jobs are executed", || stage.endpoint.counts().len() > 150 * round);
        worker.kill9();
    }
    let worker = stage.run();
    wait_until("all jobs are executed", || stage.endpoint.counts().len() == JOBS as usize);
    worker.stop();
    assert_eq!(stage.waiting("jobs"), Some(0));
    let requests: u32 = stage.endpoint.counts().into_values().sum();
    let repeats = (requests - JOBS) as usize;
    assert!(repeats <= KILLS * PREFETCH, "{repeats} repeats of {KILLS} kills");
}

#[test]
fn a_job_that_always_fails_is_dead_with_its_reason_and_can_be_replayed() {
    let stage = Stage::start("dead", Endpoint::start(Duration::ZERO, "503 Away"));
    let worker = stage.run();
    stage.publish(0..1);
    wait_until("the job is dead", || stage.waiting("jobs.dead") == Some(1));
    let told = stage.millrace(&["replay", "--queue", "jobs", "--dry-run"]);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.contains("job-0 mail attempt 2 exhausted: "), "{text}");
    let told = stage.millrace(&["replay", "--queue", "jobs"]);
    assert!(told.status.success(), "{told:?}");
    wait_until("it was tried again", || stage.endpoint.counts()["job-0"] == 4);
    worker.stop();
}

#[test]
fn a_running_worker_says_how_it_stands() {
    let stage = Stage::start("status", Endpoint::start(Duration::ZERO, "200 OK"));
    let worker = stage.run();
    wait_until("it is ready", || stage.get("/ready").is_some_and(|text| text.contains("200 OK")));
    let sent = stage.millrace(&["send", "--queue", "jobs", "--type", "mail", "--body", "{}"]);
    let id = String::from_utf8(sent.stdout).unwrap();
    wait_until("the job is executed", || {
        stage.endpoint.counts().contains_key(&id.trim().to_lowercase())
    });
    let done = "millrace_work_settled_total{pipeline=\"mail\",settlement=\"done\"} 1";
    wait_until("it is counted", || stage.get("/metrics").is_some_and(|text| text.contains(done)));
    assert!(stage.get("/health").unwrap().contains("200 OK"));
    assert!(stage.get("/ready").unwrap().contains("200 OK"));
    let told = stage.millrace(&["status", "--json", "--address", &stage.metrics]);
    let status: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(status["pipelines"][0]["settled"]["done"], 1, "{status}");
    let told = stage.millrace(&[
        "top",
        "--json",
        "--count",
        "2",
        "--every",
        "100ms",
        "--address",
        &stage.metrics,
    ]);
    assert_eq!(String::from_utf8(told.stdout).unwrap().lines().count(), 2);
    let told = stage.millrace(&["doctor", "--json"]);
    assert!(told.status.success(), "{told:?}");
    let printed = worker.stop();
    assert_eq!(proof(&printed)["done"], 1);
    let told = stage.millrace(&["status", "--address", &stage.metrics]);
    assert_eq!(told.status.code(), Some(1), "nobody answers");
}

#[test]
fn a_worker_rests_when_it_is_told_and_goes_on() {
    let stage = Stage::start("pause", Endpoint::start(Duration::ZERO, "200 OK"));
    let secret = stage.dir.join("orders");
    std::fs::write(&secret, "swordfish\n").unwrap();
    let text = std::fs::read_to_string(stage.file()).unwrap();
    let setting = format!("[worker]\norders_secret_file = {:?}\n", secret.display().to_string());
    std::fs::write(stage.file(), text.replacen("[worker]\n", &setting, 1)).unwrap();
    let worker = stage.run();
    wait_until("it works", || stage.get("/ready").is_some_and(|text| text.contains("200 OK")));
    let login = "authorization: Bearer swordfish\r\n";
    assert!(stage.ask("PUT /pause", "authorization: Bearer cod\r\n").unwrap().contains("401"));
    let paused = stage.ask("PUT /pause", login).unwrap();
    assert!(paused.ends_with("{\"is_paused\":true}"), "{paused}");
    assert!(stage.get("/status").unwrap().contains("\"is_paused\":true"));
    let sent = stage.millrace(&["send", "--queue", "jobs", "--type", "mail", "--body", "{}"]);
    let id = String::from_utf8(sent.stdout).unwrap().trim().to_lowercase();
    // Whoever asks for it finds it where it was: nobody takes it.
    let resting = stage.get("/status").unwrap();
    assert!(!stage.endpoint.counts().contains_key(&id), "{resting}");
    let resumed = stage.ask("DELETE /pause", login).unwrap();
    assert!(resumed.ends_with("{\"is_paused\":false}"), "{resumed}");
    wait_until("the job is executed", || stage.endpoint.counts().contains_key(&id));

    // The same of its pipeline alone.
    assert!(stage.ask("PUT /pause/mail", "").unwrap().contains("401"));
    assert!(stage.ask("PUT /pause/fax", login).unwrap().contains("404"));
    let paused = stage.ask("PUT /pause/mail?by=ann", login).unwrap();
    assert!(paused.ends_with("{\"is_paused\":true}"), "{paused}");
    let told = stage.millrace(&["status", "--json", "--address", &stage.metrics]);
    let status: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let pipeline = &status["pipelines"][0];
    assert_eq!((&status["is_paused"], &status["paused_by"]), (&false.into(), &().into()));
    assert_eq!((&pipeline["is_paused"], &pipeline["paused_by"]), (&true.into(), &"ann".into()));
    assert!(pipeline["paused_at"].as_u64() > Some(1_600_000_000_000), "{status}");
    let shown = stage.millrace(&["status", "--address", &stage.metrics]);
    assert!(String::from_utf8(shown.stdout).unwrap().contains("paused by ann"));
    stage.publish(0..1);
    wait_until("the worker has it in hand, or the broker keeps it", || {
        let status = stage.get("/status").unwrap();
        status.contains("\"in_hand\":1") || stage.waiting("jobs") == Some(1)
    });
    assert!(!stage.endpoint.counts().contains_key("job-0"));
    stage.ask("DELETE /pause/mail", login).unwrap();
    wait_until("the job is executed", || stage.endpoint.counts().contains_key("job-0"));
    assert_eq!(proof(&worker.stop())["done"], 2);
}

#[test]
fn a_new_file_holds_all_of_it_or_nothing_and_no_output_has_a_secret() {
    let stage = Stage::start("reload", Endpoint::start(Duration::ZERO, "200 OK"));
    let worker = stage.run();
    wait_until("it works", || stage.get("/ready").is_some_and(|text| text.contains("200 OK")));
    stage.configure("timeout = \"7s\"");
    worker.signal(Signal::HUP);
    wait_until("it is taken", || worker.said().contains("configuration read again"));
    stage.configure("timeot = \"7s\"");
    worker.signal(Signal::HUP);
    wait_until("it is refused", || worker.said().contains("target.hook.timeot"));
    stage.configure("[target.hook.limits]\nrate = 5.0");
    worker.signal(Signal::HUP);
    wait_until("it is taken", || worker.said().matches("configuration read again").count() == 2);
    stage.configure("[target.hook.share]\nrate = 5.0");
    worker.signal(Signal::HUP);
    wait_until("it is refused", || worker.said().contains("its share has changed"));
    stage.publish(0..1);
    wait_until("it works on", || stage.endpoint.counts().len() == 1);
    let said = worker.said();
    let shown = stage.millrace(&["run", "--print-config"]);
    assert!(shown.status.success());
    let shown = String::from_utf8(shown.stdout).unwrap();
    let printed = worker.stop();
    for text in [said, shown, printed] {
        assert!(!text.contains("Y2FuYXJ5"), "{text}");
    }
}

#[test]
fn a_wrong_file_is_refused_at_the_start_with_its_place() {
    let stage = Stage::start("wrong", Endpoint::start(Duration::ZERO, "200 OK"));
    assert!(stage.millrace(&["run", "--check-config"]).status.success());
    stage.configure("timeot = \"7s\"");
    for words in [&["run"][..], &["run", "--check-config"], &["doctor"]] {
        let told = stage.millrace(words);
        let text = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(2), "{text}");
        assert!(text.contains("work.toml:15:1: target.hook.timeot: unknown field"), "{text}");
    }
}
