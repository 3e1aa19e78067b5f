//! `millrace lock run`: a command that runs only while a lock is held.
#![allow(clippy::disallowed_methods, reason = "a lease is time: it waits, and looks at the clock")]

use std::io::IsTerminal as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use http::StatusCode;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep_until, timeout};

use super::held::{Held, Now};
use super::path;
use crate::cmd::admin::api::Ask;
use crate::cmd::admin::deed::in_vhost;
use crate::cmd::admin::failure::{Failure, remark};
use crate::cmd::admin::login;
use crate::cmd::admin::session::{Session, block_on};

/// Another has the lock: `EX_TEMPFAIL`.
const NOT_GOT: u8 = 75;
/// The lock was lost, and the command was ended.
const LOST: u8 = 76;
/// As shells say it.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
const SIGNALLED: u8 = 128;

/// One question waits for the lock so long at most: less than an answer may take.
const WAIT_ONCE: Duration = Duration::from_secs(20);
/// After a node that did not answer.
const AGAIN: Duration = Duration::from_millis(250);

/// What `millrace lock run` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the lock
    name: String,
    /// How long the lock stays with this command if nothing is heard of it any more. It is renewed at a third of it
    #[arg(long, value_name = "TIME", value_parser = service::duration, default_value = "10s")]
    lease: Duration,
    /// Wait so long for the lock, if another has it
    #[arg(long, value_name = "TIME", value_parser = service::duration)]
    wait: Option<Duration>,
    /// Who has the lock, as others see it. No two commands that run may have the same [default: HOST-PID-RANDOM]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// The command, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How it came to an end.
enum End {
    Exited(ExitStatus),
    NotGot(String),
    Lost(String),
    CannotRun(u8, String),
}

pub(super) fn main(options: &login::Options, vhost: &str, args: Args) -> ExitCode {
    let ended = Session::open(options).and_then(|session| block_on(run(session, vhost, args))?);
    let (code, why) = match ended {
        Ok(End::Exited(status)) => return ExitCode::from(code_of(status)),
        Ok(End::NotGot(why)) => (NOT_GOT, why),
        Ok(End::Lost(why)) => (LOST, why),
        Ok(End::CannotRun(code, why)) => (code, why),
        Err(failure) => return failure.end(),
    };
    remark(&format!("millrace: {why}"));
    ExitCode::from(code)
}

fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or(signal.map(|signal| SIGNALLED.saturating_add(signal))).unwrap_or(1)
}

async fn run(session: Session, vhost: &str, args: Args) -> Result<End, Failure> {
    let owner = match args.owner.clone() {
        Some(owner) => owner,
        None => own_name()?,
    };
    let label = in_vhost("lock", &args.name, vhost);
    let mut lock = Lock { session, vhost, args: &args, owner, label };
    let (token, held) = match lock.acquire().await? {
        Ok(got) => got,
        Err(holder) => return Ok(End::NotGot(format!("{}: {holder}", lock.label))),
    };
    let child = match spawn(&args, token) {
        Ok(child) => child,
        Err(end) => {
            lock.release(token).await;
            return Ok(end);
        }
    };
    let ended = lock.keep(child, token, held).await?;
    if let End::Exited(_) = ended {
        lock.release(token).await;
    }
    Ok(ended)
}

fn own_name() -> Result<String, Failure> {
    let mut random = [0; 4];
    let drawn = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    if drawn != Ok(random.len()) {
        return Err(Failure::Usage("the system gives no random numbers: use --owner".to_owned()));
    }
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    Ok(format!("{host}-{}-{:08x}", std::process::id(), u32::from_le_bytes(random)))
}

struct Lock<'a> {
    session: Session,
    vhost: &'a str,
    args: &'a Args,
    owner: String,
    label: String,
}

impl Lock<'_> {
    /// The token, and the lease; or who has the lock.
    async fn acquire(&mut self) -> Result<Result<(u64, Held), String>, Failure> {
        let begun = Instant::now();
        let wait = self.args.wait.unwrap_or_default();
        loop {
            let left = wait.saturating_sub(begun.elapsed());
            let asked = Instant::now();
            let body = json!({
                "owner": self.owner,
                "lease_ms": ms(self.args.lease),
                "wait_ms": ms(left.min(WAIT_ONCE).min(self.session.api.login().request_timeout / 2)),
            });
            let ask = Ask::put(path(self.vhost, &self.args.name), body, &self.label);
            let why = match self.session.api.ask(&ask).await {
                Ok(answer) if answer.status.is_success() => {
                    let token = number(&answer.body, "token")?;
                    match self.begin(token, asked).await? {
                        Some(held) => return Ok(Ok((token, held))),
                        None => "the lease was over before the lock could be used".to_owned(),
                    }
                }
                Ok(answer) if answer.status == StatusCode::CONFLICT => answer.reason(),
                Ok(answer)
                    if answer.status == StatusCode::SERVICE_UNAVAILABLE && !left.is_zero() =>
                {
                    tokio::time::sleep(AGAIN).await;
                    answer.reason()
                }
                Ok(answer) => {
                    return self.session.api.judged(&ask, answer).map(|_| Err(String::new()));
                }
                // It may have the lock and not know it: the same owner asks again.
                Err(Failure::Away(why)) if !left.is_zero() => {
                    tokio::time::sleep(AGAIN).await;
                    why
                }
                Err(failure) => return Err(failure),
            };
            if begun.elapsed() >= wait {
                return Ok(Err(why));
            }
        }
    }

    /// The lease, counted from before a question that was answered at once. Who waited for the lock renews it first.
    async fn begin(&mut self, token: u64, asked: Instant) -> Result<Option<Held>, Failure> {
        let held = Held::new(asked, self.args.lease);
        match held.now(Instant::now()) {
            Now::Rest(_) => Ok(Some(held)),
            Now::Renew | Now::End | Now::Kill => self.renew(token).await,
        }
    }

    /// The new lease; `None`: the lock is lost.
    async fn renew(&mut self, token: u64) -> Result<Option<Held>, Failure> {
        let asked = Instant::now();
        let body = json!({ "token": token, "lease_ms": ms(self.args.lease) });
        let ask = Ask::post(path(self.vhost, &self.args.name), body, &self.label);
        let answer = self.session.api.ask(&ask).await?;
        if answer.status == StatusCode::CONFLICT {
            return Ok(None);
        }
        self.session.api.judged(&ask, answer)?;
        Ok(Some(Held::new(asked, self.args.lease)))
    }

    /// If it does not work, the lock is free when its lease is over.
    async fn release(&mut self, token: u64) {
        let path = path(self.vhost, &self.args.name).with("token", &token.to_string());
        let ask = Ask::delete(path, &self.label);
        if let Ok(Err(failure)) = timeout(self.args.lease, self.session.api.done(&ask)).await {
            remark(&format!("millrace: {} is not released: {failure}", self.label));
        }
    }

    /// Until the command has ended, by itself or because the lock is lost.
    async fn keep(&mut self, mut child: Child, token: u64, mut held: Held) -> Result<End, Failure> {
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let signals = signals.map(signal);
        let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = signals else {
            end(&child, Signal::KILL);
            return Err(Failure::Usage("signals cannot be heard".to_owned()));
        };
        let mut is_ending = false;
        let mut renew_at = Instant::now();
        loop {
            let now = Instant::now();
            let wake_at = match held.now(now) {
                Now::Rest(until) => until,
                Now::Renew => renew_at.min(held.killed_at()),
                Now::End => {
                    if !is_ending {
                        remark(&format!("millrace: {} could not be renewed in time", self.label));
                        end(&child, Signal::TERM);
                        is_ending = true;
                    }
                    renew_at.min(held.killed_at())
                }
                Now::Kill => return Ok(self.lost(child).await),
            };
            tokio::select! {
                biased;
                status = child.wait() => return Ok(self.ended(status, is_ending)),
                _ = terminate.recv() => end(&child, Signal::TERM),
                // A terminal has told the command itself.
                _ = interrupt.recv() => if !is_terminal() { end(&child, Signal::INT) },
                _ = hangup.recv() => if !is_terminal() { end(&child, Signal::HUP) },
                () = sleep_until(wake_at.into()) => {
                    if let Now::Kill | Now::Rest(_) = held.now(Instant::now()) {
                        continue;
                    }
                    let left = held.killed_at().saturating_duration_since(Instant::now());
                    let renewed = tokio::select! {
                        status = child.wait() => return Ok(self.ended(status, is_ending)),
                        renewed = timeout(left, self.renew(token)) => renewed,
                    };
                    match renewed {
                        Ok(Ok(Some(renewed))) => held = renewed,
                        Ok(Ok(None)) => return Ok(self.lost(child).await),
                        Ok(Err(_)) | Err(_) => renew_at = Instant::now() + held.pause(),
                    }
                }
            }
        }
    }

    fn ended(&self, status: std::io::Result<ExitStatus>, is_ending: bool) -> End {
        match status {
            Ok(_) | Err(_) if is_ending => End::Lost(format!("{} is lost", self.label)),
            Ok(status) => End::Exited(status),
            Err(error) => End::CannotRun(CANNOT_RUN, format!("the command is gone: {error}")),
        }
    }

    async fn lost(&self, mut child: Child) -> End {
        end(&child, Signal::KILL);
        // It cannot refuse.
        let _ = child.wait().await;
        End::Lost(format!("{} is lost: the command was killed", self.label))
    }
}

/// Runs the command: with processes that it starts in a group of its own, so that all of them can be ended. On a terminal
/// it stays in the terminal's group, because otherwise it could not read what is typed.
fn spawn(args: &Args, token: u64) -> Result<Child, End> {
    let (program, arguments) = args.command.split_first().expect("clap asks for a command");
    let mut command = std::process::Command::new(program);
    command.args(arguments);
    command.env("MILLRACE_LOCK", &args.name).env("MILLRACE_FENCING_TOKEN", token.to_string());
    if !is_terminal() {
        command.process_group(0);
    }
    tokio::process::Command::from(command).spawn().map_err(|error| {
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        let code = if is_missing { NOT_FOUND } else { CANNOT_RUN };
        End::CannotRun(code, format!("cannot run {program}: {error}"))
    })
}

fn is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

fn end(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let Some(pid) = pid else { return };
    // One that has ended meanwhile is what is wanted.
    let _ = match is_terminal() {
        true => kill_process(pid, signal),
        false => kill_process_group(pid, signal),
    };
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn number(body: &Value, field: &str) -> Result<u64, Failure> {
    body[field].as_u64().ok_or_else(|| {
        Failure::Away(format!("the answer has no {field}: what answers is no node that has locks"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_a_signal_ended_has_the_code_of_shells() {
        assert_eq!(code_of(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code_of(ExitStatus::from_raw(9)), 137);
        assert_eq!(code_of(ExitStatus::from_raw(0)), 0);
    }
}
