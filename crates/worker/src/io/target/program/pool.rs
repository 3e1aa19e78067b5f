//! Processes that stay, and speak JSON lines.
//!
//! Each place of the pool is a task that owns a process: it hands it jobs, reads its answers, and starts another one,
//! a little later each time, when it dies or has to be killed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{sleep_until, timeout, timeout_at};

use super::process::{Pipes, Process};
use super::{Shared, busy};
use crate::job::Message;
use crate::outcome::Outcome;
use crate::target::program::{End, last_words, lines};

/// Before a process is started again: doubled each time, until one has answered.
const RESTART_MIN: Duration = Duration::from_millis(100);
const RESTART_MAX: Duration = Duration::from_secs(30);
/// How long a process that has closed a pipe has to end, before it is made to.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Bytes of stderr that are kept for the reason.
const SAID_BYTES: usize = 2048;
/// Bytes of requests that wait in front of a pipe.
const QUEUED_BYTES_MAX: usize = 1 << 20;

/// A job on its way to a process.
struct Work {
    job: Message,
    deadline: Instant,
    reply: oneshot::Sender<Outcome>,
}

/// Processes that stay.
#[derive(Debug)]
pub(super) struct Pool {
    work: mpsc::Sender<Work>,
}

impl Pool {
    pub(super) fn start(shared: &Arc<Shared>) -> Self {
        // A rendezvous, nearly: what waits for a process waits in `run`.
        let (work, asked) = mpsc::channel(1);
        let asked = Arc::new(Mutex::new(asked));
        for _ in 0..shared.settings.processes {
            let place = Place { shared: Arc::clone(shared), asked: Arc::clone(&asked) };
            tokio::spawn(place.serve());
        }
        Self { work }
    }

    pub(super) async fn run(&self, job: Message, deadline: Instant) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let sent = timeout_at(deadline.into(), self.work.send(Work { job, deadline, reply })).await;
        match sent {
            Ok(Ok(())) => answer.await.unwrap_or_else(|_| busy("the pool of programs has ended")),
            Ok(Err(_)) => busy("the pool of programs has ended"),
            Err(_) => busy("no process was free in time"),
        }
    }
}

/// One place of the pool.
struct Place {
    shared: Arc<Shared>,
    asked: Arc<Mutex<mpsc::Receiver<Work>>>,
}

/// Why a process is no longer served.
enum Why {
    /// The target is gone.
    Over,
    /// It has ended by itself.
    Ended,
    /// It has closed a pipe: most often since it is just ending.
    Closed(&'static str),
    /// It is to be killed.
    Bad(String),
}

impl Place {
    async fn serve(self) {
        let mut delay = RESTART_MIN;
        loop {
            let (why, has_answered) = match self.shared.spawn(&[]).await {
                Ok(mut process) => {
                    let mut talk = Talk::new(process.pipes());
                    let why = self.attend(&process, &mut talk).await;
                    self.end(process, talk, why).await
                }
                Err(why) => (Some(format!("the program was not started: {why}")), false),
            };
            let Some(why) = why else { return };
            delay = if has_answered { RESTART_MIN } else { (delay * 2).min(RESTART_MAX) };
            tracing::warn!(program = %self.shared.settings.command[0], %why, ?delay, "a program is started again");
            if self.pause(delay, &why).await.is_none() {
                return;
            }
        }
    }

    /// Waits before the next start. None: the target is gone.
    async fn pause(&self, delay: Duration, why: &str) -> Option<()> {
        let until = tokio::time::Instant::now() + delay;
        loop {
            // Jobs are not kept waiting behind a program that does not start.
            match timeout_at(until, self.take()).await {
                Err(_) => return Some(()),
                Ok(None) => return None,
                Ok(Some(work)) => drop(work.reply.send(busy(why))),
            }
        }
    }

    async fn take(&self) -> Option<Work> {
        self.asked.lock().await.recv().await
    }

    /// Serves a process until it is over with it.
    async fn attend(&self, process: &Process, talk: &mut Talk) -> Why {
        let settings = &self.shared.settings;
        loop {
            let has_room = talk.late.is_empty()
                && talk.pending.len() < settings.in_flight
                && talk.queued.len() < QUEUED_BYTES_MAX;
            let next = talk.deadline(settings.stop_grace.0);
            tokio::select! {
                work = self.take(), if has_room => match work {
                    Some(work) => talk.hand_over(work),
                    None => return Why::Over,
                },
                written = talk.stdin.write_buf(&mut talk.queued), if !talk.queued.is_empty() => {
                    if written.is_err() {
                        // It has closed its stdin: what it still says is not waited for.
                        return Why::Closed("it reads no more jobs");
                    }
                }
                read = talk.stdout.read_buf(&mut talk.heard) => match read {
                    Ok(0) | Err(_) => return Why::Closed("it closed its stdout"),
                    Ok(_) => if let Err(why) = talk.hear(settings.output_bytes_max) {
                        return Why::Bad(why);
                    },
                },
                read = talk.stderr.read(&mut talk.piece), if talk.is_stderr_open => {
                    let bytes = read.unwrap_or(0);
                    talk.is_stderr_open = bytes > 0;
                    talk.note(bytes);
                }
                () = process.ended() => return Why::Ended,
                () = sleep_until(next.unwrap_or_else(Instant::now).into()), if next.is_some() => {
                    if let Err(why) = talk.expire(Instant::now(), settings.stop_grace.0) {
                        return Why::Bad(why);
                    }
                }
            }
        }
    }

    /// Ends the process; gives why, none if the target is gone, and whether it has answered anything.
    async fn end(&self, mut process: Process, mut talk: Talk, why: Why) -> (Option<String>, bool) {
        let grace = self.shared.settings.stop_grace.0;
        let why = match why {
            Why::Over => {
                // The end of its stdin asks it to end; pending jobs have nobody who waits for them.
                drop(talk.stdin);
                let _ = timeout(grace, process.ended()).await;
                process.stop(grace).await;
                return (None, false);
            }
            Why::Ended => self.last(&mut process, &mut talk).await,
            Why::Closed(what) => match timeout(CLOSE_MAX, process.ended()).await {
                Ok(()) => self.last(&mut process, &mut talk).await,
                Err(_) => what.into(),
            },
            Why::Bad(why) => why,
        };
        let said = last_words(&talk.said);
        let why = if said.is_empty() { why } else { format!("{why}: {said}") };
        for work in talk.pending.drain(..) {
            let _ = work.reply.send(Outcome::retry(format!("the program: {why}")));
        }
        // Nothing, once it is reaped.
        process.stop(grace).await;
        (Some(why), talk.has_answered)
    }

    /// What a process that has ended has still answered, and how it ended.
    async fn last(&self, process: &mut Process, talk: &mut Talk) -> String {
        let end = process.kill().await;
        talk.drain(self.shared.settings.output_bytes_max).await;
        match end {
            End::Exit(status) => format!("it ended with exit {status}"),
            End::Signal(signal) => format!("it was ended by signal {signal}"),
            End::Flood | End::Late => "it ended".into(),
        }
    }
}

/// What is said between the worker and one process.
struct Talk {
    stdin: tokio::process::ChildStdin,
    stdout: tokio::process::ChildStdout,
    stderr: tokio::process::ChildStderr,
    is_stderr_open: bool,
    /// Not answered yet, oldest first.
    pending: Vec<Work>,
    /// Jobs whose time is over. While there are any, the process gets no other one.
    late: Vec<(String, Instant)>,
    /// On its way to stdin.
    queued: BytesMut,
    /// From stdout, after the last whole line.
    heard: BytesMut,
    /// Bytes of `heard` in which no end of a line is.
    searched: usize,
    /// The end of what came on stderr.
    said: Vec<u8>,
    piece: Vec<u8>,
    has_answered: bool,
}

impl Talk {
    fn new(pipes: Pipes) -> Self {
        Self {
            stdin: pipes.stdin,
            stdout: pipes.stdout,
            stderr: pipes.stderr,
            is_stderr_open: true,
            pending: Vec::new(),
            late: Vec::new(),
            queued: BytesMut::new(),
            heard: BytesMut::new(),
            searched: 0,
            said: Vec::new(),
            piece: vec![0; 8192],
            has_answered: false,
        }
    }

    fn hand_over(&mut self, work: Work) {
        let left = work.deadline.saturating_duration_since(Instant::now());
        self.queued.extend_from_slice(&lines::request(&work.job, left));
        self.pending.push(work);
    }

    /// When something is to be done if nothing is heard.
    fn deadline(&self, grace: Duration) -> Option<Instant> {
        let late = self.late.iter().map(|(_, since)| *since + grace);
        self.pending.iter().map(|work| work.deadline).chain(late).min()
    }

    /// Reads the whole lines that were heard.
    fn hear(&mut self, line_bytes_max: usize) -> Result<(), String> {
        while let Some(at) = self.heard[self.searched..].iter().position(|byte| *byte == b'\n') {
            let line = self.heard.split_to(self.searched + at);
            self.heard.advance(1);
            self.searched = 0;
            self.answer(&line)?;
        }
        self.searched = self.heard.len();
        if self.heard.len() > line_bytes_max {
            return Err(format!("it printed a line of more than {line_bytes_max} bytes"));
        }
        Ok(())
    }

    fn answer(&mut self, line: &[u8]) -> Result<(), String> {
        let (id, outcome) = lines::answer(line).map_err(|why| {
            let text = last_words(&line[..line.len().min(100)]);
            format!(
                "its answer `{text}` is no answer ({why}); what is to be logged belongs on stderr"
            )
        })?;
        self.has_answered = true;
        if let Some(at) = self.pending.iter().position(|work| work.job.id == id) {
            let _ = self.pending.remove(at).reply.send(outcome);
            return Ok(());
        }
        let at = self.late.iter().position(|(late, _)| *late == id);
        let at = at.ok_or_else(|| {
            format!("it answered a job that it does not have (`{}`)", last_words(id.as_bytes()))
        })?;
        self.late.remove(at);
        Ok(())
    }

    /// Answers jobs whose time is over. An error: the process is to be killed, since nothing else is in its hands,
    /// or those have waited long enough.
    fn expire(&mut self, now: Instant, grace: Duration) -> Result<(), String> {
        let (over, pending) = self.pending.drain(..).partition(|work| work.deadline <= now);
        self.pending = pending;
        let over: Vec<Work> = over;
        for work in over {
            self.late.push((work.job.id, now));
            let _ = work.reply.send(Outcome::retry("the program did not answer in time"));
        }
        if self.pending.is_empty() || self.late.iter().any(|(_, since)| *since + grace <= now) {
            return Err("it did not answer in time".into());
        }
        Ok(())
    }

    fn note(&mut self, bytes: usize) {
        self.said.extend_from_slice(&self.piece[..bytes]);
        let more = self.said.len().saturating_sub(SAID_BYTES);
        self.said.drain(..more);
    }

    /// What a process that has ended has still said.
    async fn drain(&mut self, bytes_max: usize) {
        let rest = async {
            while let Ok(bytes @ 1..) = self.stdout.read_buf(&mut self.heard).await {
                if bytes > bytes_max || self.hear(bytes_max).is_err() {
                    return;
                }
            }
        };
        let _ = timeout(Duration::from_millis(500), rest).await;
        let rest = async {
            while let Ok(bytes @ 1..) = self.stderr.read(&mut self.piece).await {
                self.said.extend_from_slice(&self.piece[..bytes]);
                if self.said.len() > 16 * SAID_BYTES {
                    return;
                }
            }
        };
        let _ = timeout(Duration::from_millis(500), rest).await;
    }
}
