//! `millrace top` as a process: in a pipe, for a program, and on a terminal.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes, and waits"
)]

use std::fs::File;
use std::io::{BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use amqp::Properties;
use client::{Address, Connection, QueueSpec};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

use crate::node::{Node, TIMEOUT, free_address, until, until_ready};

/// A node that operators can ask.
struct Watched {
    _node: Node,
    url: String,
    /// Keeps a client there.
    connection: Connection,
}

impl Watched {
    /// With so many messages in each of these queues.
    async fn start(name: &str, queues: &[(&str, u32)]) -> Self {
        let http = free_address();
        let node = Node::start_with(name, &["--http", &http]);
        let mut connection = node.connect().await;
        for (queue, count) in queues {
            connection.declare_queue(&QueueSpec::durable(*queue)).await.unwrap();
            for _ in 0..*count {
                let to = Address::queue(queue);
                connection.publish(to, &Properties::default(), b"x").await.unwrap();
            }
            until_ready(&mut connection, queue, *count).await;
        }
        Self { _node: node, url: format!("http://guest@{http}"), connection }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.arg("top").args(words).args(["--url", &self.url]);
        command.env_remove("MILLRACE_CONTEXT").stdin(Stdio::null());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.output(&[words, &["--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_pipe_top_prints_one_look_and_ends() {
    let watched = Watched::start("top", &[("mails", 1), ("orders", 3)]).await;
    let output = watched.output(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(!text.contains('\u{1b}'), "nothing for a terminal: {text:?}");
    let line = |begin: &str| {
        let found = text.lines().position(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("no {begin}: {text}"))
    };
    assert!(line("orders") < line("mails"), "the fullest first: {text}");
    assert!(text.contains("4 ready, 0 unacked") && text.contains("1 of 1 up"), "{text}");

    let json = watched.json(&["--limit", "1", "--sort", "name"]);
    assert_eq!(
        (&json["count"], &json["total"], &json["page_count"]),
        (&1.into(), &2.into(), &2.into())
    );
    assert_eq!((&json["queues"][0]["name"], &json["verdict"]), (&"mails".into(), &"ok".into()));
    assert_eq!(json["totals"]["messages_ready"], 4);
    let filtered = watched.json(&["--name", "ORD"]);
    assert_eq!(
        (&filtered["total"], &filtered["queues"][0]["messages_ready"]),
        (&1.into(), &3.into())
    );
    let clients = watched.json(&["connections"]);
    assert_eq!(clients["connections"][0]["user"], "guest", "{clients}");
    assert_eq!(refusals(&watched.url), [2, 3]);
    watched.connection.close().await.unwrap();
}

/// Exit codes of a wrong column, and of a node that is not there.
fn refusals(url: &str) -> [i32; 2] {
    let nobody = format!("http://guest@{}", free_address());
    let lines = [
        ["top", "--url", url, "--sort", "colour"],
        ["top", "--once", "--url", &nobody, "--reverse"],
    ];
    lines.map(|line| {
        let output = Command::new(env!("CARGO_BIN_EXE_millrace")).args(line).output().unwrap();
        output.status.code().unwrap()
    })
}

/// What a terminal shows, as far as `millrace top` writes: letters, places, and the screen's change.
struct Shown {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// A sequence for the terminal that is not at its end.
    sequence: Option<String>,
    /// It shows the screen beside the usual one.
    is_alternate: bool,
}

impl Shown {
    fn new(rows: u16, columns: u16) -> Self {
        let lines = vec![vec![' '; columns.into()]; rows.into()];
        Self { lines, row: 0, column: 0, sequence: None, is_alternate: false }
    }

    fn write(&mut self, letter: char) {
        match &mut self.sequence {
            Some(sequence) => {
                sequence.push(letter);
                if letter.is_ascii_alphabetic() {
                    let whole = std::mem::take(sequence);
                    self.sequence = None;
                    self.obey(&whole);
                }
            }
            None if letter == '\u{1b}' => self.sequence = Some(String::new()),
            None if letter.is_control() => {}
            None => {
                let line = self.lines.get_mut(self.row);
                if let Some(cell) = line.and_then(|line| line.get_mut(self.column)) {
                    *cell = letter;
                }
                self.column += 1;
            }
        }
    }

    fn obey(&mut self, sequence: &str) {
        match sequence {
            "[?1049h" => self.is_alternate = true,
            "[?1049l" => self.is_alternate = false,
            "[2J" => self.lines.iter_mut().for_each(|line| line.fill(' ')),
            _ => {
                let place = sequence.strip_prefix('[').and_then(|it| it.strip_suffix('H'));
                let Some((row, column)) = place.and_then(|place| place.split_once(';')) else {
                    return;
                };
                self.row = row.parse::<usize>().unwrap() - 1;
                self.column = column.parse::<usize>().unwrap() - 1;
            }
        }
    }

    fn text(&self) -> String {
        let line = |line: &Vec<char>| line.iter().collect::<String>().trim_end().to_owned();
        self.lines.iter().map(line).collect::<Vec<String>>().join("\n")
    }
}

/// A process on a terminal of its own.
struct OnTerminal {
    process: Child,
    keyboard: File,
    written: mpsc::Receiver<char>,
    shown: Shown,
}

impl OnTerminal {
    fn start(command: &Command) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal: OwnedFd = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        // In a session of its own: whoever runs the test may have a terminal, too, of another size.
        let process = Command::new("setsid")
            .arg("--ctty")
            .arg(command.get_program())
            .args(command.get_args())
            .env_remove("MILLRACE_CONTEXT")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let keyboard = File::from(keyboard);
        let mut reader = BufReader::new(keyboard.try_clone().unwrap());
        let (tell, written) = mpsc::sync_channel(10_000);
        std::thread::spawn(move || {
            // Letter by letter: one may come in two parts. The end of the last process on the terminal is an error.
            let mut letter = Vec::new();
            let mut byte = [0];
            while reader.read_exact(&mut byte).is_ok() {
                letter.push(byte[0]);
                let Ok(text) = std::str::from_utf8(&letter) else { continue };
                if text.chars().any(|letter| tell.send(letter).is_err()) {
                    return;
                }
                letter.clear();
            }
        });
        Self { process, keyboard, written, shown: Shown::new(size.ws_row, size.ws_col) }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Shown) -> bool) {
        let begun = Instant::now();
        while !holds(&self.shown) {
            assert!(begun.elapsed() < TIMEOUT, "{what} is not seen:\n{}", self.shown.text());
            if let Ok(letter) = self.written.recv_timeout(Duration::from_millis(100)) {
                self.shown.write(letter);
            }
        }
    }

    fn until_seen(&mut self, words: &str) {
        self.until(words, |shown| shown.text().contains(words));
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_terminal_top_is_live_and_gives_the_terminal_back() {
    let mut watched = Watched::start("top-live", &[("orders", 2)]).await;
    let mut top = OnTerminal::start(&watched.command(&["--every", "200ms"]));
    top.until("the other screen", |shown| shown.is_alternate);
    top.until_seen("\norders ");
    // A queue that comes is seen without a key.
    watched.connection.declare_queue(&QueueSpec::durable("payments")).await.unwrap();
    top.until_seen("\npayments ");
    top.until_seen("2 queues, page 1 of 1");
    top.press("\t");
    top.until_seen("\nConnection ");
    top.until_seen("1 connections, page 1 of 1");
    top.press("\t/nobody");
    top.until_seen("no queues with \"nobody\" in their name");
    top.press("\r");
    top.until_seen("filter: nobody   q quit");
    top.press("p");
    top.until_seen("PAUSED");
    top.press("q");
    top.until("the screen from before", |shown| !shown.is_alternate);
    let mut status = None;
    until("top has ended", || {
        status = top.process.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
}
