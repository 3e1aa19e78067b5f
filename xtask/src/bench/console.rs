//! `bench console`: what a viewer of the console costs the node, with thousands of queues that all change each second.
//!
//! One message a second goes through a fanout exchange into every queue. The node's CPU is measured with nobody who
//! looks and nothing that comes, with what comes alone, and with one viewer beside: a reader of the live stream, which is
//! all that the console asks for while it shows the list of queues. What the viewer costs is the difference.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use super::{MILLRACE_PORT, folder, report, usage};
use crate::Outcome;
use crate::brokers::{Broker, HTTP_ABOVE, Kind};
use crate::process::target;

pub(super) const USAGE: &str = "cargo xtask bench console [--queues N] [--seconds S]";

/// The login of a new node: guest.
const LOGIN: &str = "authorization: Basic Z3Vlc3Q6Z3Vlc3Q=";

const EXCHANGE: &str = "/api/exchanges/%2F/everywhere";

/// How long a node may take to say something.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// After a phase begins, what is new to it settles.
const SETTLE: Duration = Duration::from_secs(5);

pub(super) struct Options {
    queues: u32,
    seconds: u64,
}

pub(super) fn parse(words: &[String]) -> Result<impl FnOnce() -> Outcome + use<>, String> {
    let mut options = Options { queues: 10_000, seconds: 60 };
    for pair in words.chunks(2) {
        let [word, value] = pair else { return Err(format!("usage: {USAGE}")) };
        let bad = |error| format!("{word}: {error}\nusage: {USAGE}");
        match word.as_str() {
            "--queues" => options.queues = value.parse().map_err(bad)?,
            "--seconds" => options.seconds = value.parse().map_err(bad)?,
            _ => return Err(format!("{word}?\nusage: {USAGE}")),
        }
    }
    Ok(move || measure(&options))
}

fn measure(options: &Options) -> Outcome {
    let broker = Broker::start(Kind::Millrace, &folder(Kind::Millrace), MILLRACE_PORT)?;
    define(options.queues)?;
    let mut text = format!(
        "{}; {} queues, each with one message a second; CPU of the node in percent of a core over {} s.\n\n\
         | | CPU | memory |\n| --- | --: | --: |\n",
        report::machine(),
        options.queues,
        options.seconds
    );
    let mut row = |what: &str| -> Result<f64, String> {
        sleep(SETTLE);
        let (begun, before) = (Instant::now(), usage::of(broker.pid())?);
        sleep(Duration::from_secs(options.seconds));
        let after = usage::of(broker.pid())?;
        let percent = (after.cpu_s - before.cpu_s) / begun.elapsed().as_secs_f64() * 100.0;
        let _ = writeln!(text, "| {what} | {percent:.2} % | {} MB |", after.rss_bytes >> 20);
        Ok(percent)
    };
    row("nothing comes, nobody looks")?;
    let publishing = Publishing::start();
    let alone = row("messages come, nobody looks")?;
    let viewer = Viewer::open()?;
    let watched = row("messages come, one viewer")?;
    let bytes = viewer.close();
    let after = row("messages come, the viewer is gone")?;
    publishing.stop()?;
    let seconds = options.seconds + SETTLE.as_secs();
    let _ = writeln!(
        text,
        "\nThe viewer costs {:.2} % of a core (one that is gone: {:.2} %) and was told {} KiB a second.",
        watched - alone,
        after - alone,
        bytes / seconds / 1024
    );
    println!("{text}");
    broker.stop()?;
    let path = target().join("bench-console.md");
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Queues that keep their last message, all bound to one exchange.
fn define(queues: u32) -> Outcome {
    let list = |item: &dyn Fn(u32) -> String| (0..queues).map(item).collect::<Vec<_>>().join(",");
    let queue = |number: u32| {
        format!(
            r#"{{"name":"busy-{number}","vhost":"/","durable":true,"auto_delete":false,"arguments":{{"x-max-length":1}}}}"#
        )
    };
    let binding = |number: u32| {
        format!(
            r#"{{"source":"everywhere","vhost":"/","destination":"busy-{number}","destination_type":"queue","routing_key":"","arguments":{{}}}}"#
        )
    };
    let body = format!(
        r#"{{"exchanges":[{{"name":"everywhere","vhost":"/","type":"fanout","durable":true,"auto_delete":false,"internal":false,"arguments":{{}}}}],"queues":[{}],"bindings":[{}]}}"#,
        list(&queue),
        list(&binding)
    );
    ask("POST", "/api/definitions", &body)
}

/// Sends a request, and waits for an answer that is a yes.
fn ask(method: &str, path: &str, body: &str) -> Outcome {
    let mut stream = send(method, path, body)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|error| format!("{method} {path}: {error}"))?;
    match answer.starts_with("HTTP/1.1 2") {
        true => Ok(()),
        false => Err(format!("{method} {path}: {answer}")),
    }
}

fn send(method: &str, path: &str, body: &str) -> Result<TcpStream, String> {
    let told = |error: std::io::Error| format!("{method} {path}: {error}");
    let mut stream = TcpStream::connect(("127.0.0.1", MILLRACE_PORT + HTTP_ABOVE)).map_err(told)?;
    stream.set_read_timeout(Some(ANSWER_WAIT)).map_err(told)?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n{LOGIN}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body.as_bytes()))
        .map_err(told)?;
    Ok(stream)
}

/// One message a second, to all queues.
struct Publishing {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Outcome>,
}

impl Publishing {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = spawn(move || {
            let mut next = Instant::now();
            while !seen.load(Ordering::Relaxed) {
                let message = r#"{"routing_key":"","payload":"x","payload_encoding":"string","properties":{}}"#;
                ask("POST", &format!("{EXCHANGE}/publish"), message)?;
                next += Duration::from_secs(1);
                sleep(next.saturating_duration_since(Instant::now()));
            }
            Ok(())
        });
        Self { is_over, thread }
    }

    fn stop(self) -> Outcome {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the publisher has panicked".to_owned())?
    }
}

/// Somebody who reads the live stream.
struct Viewer {
    stream: TcpStream,
    bytes: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Viewer {
    fn open() -> Result<Self, String> {
        let stream = send("GET", "/api/millrace/live", "")?;
        let mut reading = stream.try_clone().map_err(|error| error.to_string())?;
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&bytes);
        let thread = spawn(move || {
            let mut buffer = [0; 64 << 10];
            while let Ok(count) = reading.read(&mut buffer)
                && count > 0
            {
                counted.fetch_add(count as u64, Ordering::Relaxed);
            }
        });
        Ok(Self { stream, bytes, thread })
    }

    /// Goes away. What it was told, in bytes.
    fn close(self) -> u64 {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.thread.join();
        self.bytes.load(Ordering::Relaxed)
    }
}
