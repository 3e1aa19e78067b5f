//! amqp-tools: librabbitmq's command-line programs, each used as an operator would.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use super::suite::{Case, Installer, Judge, Pace, Suite, Target, Verdict, record, whole};
use crate::apt::apt_install;
use crate::process::has;

pub(super) const AMQP_TOOLS: Suite = Suite {
    name: "amqp-tools",
    version: "0.11.0",
    is_installed: || has("amqp-publish"),
    install: |log: &Path| apt_install("amqp-tools", log),
    installer: Installer::Apt,
    run,
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(1),
    wants_port_5672: false,
};

/// The queue that most cases use.
const QUEUE: &str = "amqp-tools";
/// More than one frame of the largest size.
const LARGE_BODY_BYTES: usize = 300_000;

/// What a program said and how it ended.
struct Said {
    code: Option<i32>,
    out: Vec<u8>,
    err: String,
}

struct Cases<'a> {
    target: &'a Target,
    cases: Vec<Case>,
}

impl Cases<'_> {
    /// Runs a program with the broker's address in front of its other words.
    fn run(&self, words: &[&str], input: &[u8]) -> Result<Said, String> {
        self.run_at(&self.target.url(), words, input)
    }

    fn run_at(&self, url: &str, words: &[&str], input: &[u8]) -> Result<Said, String> {
        let mut program = self.target.command(10, words[0]);
        program.args(["-u", url]).args(&words[1..]);
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().map_err(|error| format!("{}: {error}", words[0]))?;
        let mut stdin = child.stdin.take().expect("standard input is piped");
        // A program that does not read its input may be gone before it is written.
        let _ = stdin.write_all(input);
        drop(stdin);
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(Said { code: output.status.code(), out: output.stdout, err })
    }

    fn publish(&self, words: &[&str], input: &[u8]) -> Result<Said, String> {
        self.run(&[&["amqp-publish", "-r", QUEUE], words].concat(), input)
    }

    fn judge(&mut self, name: &str, is_right: bool, said: &Said) {
        let verdict = if is_right { Verdict::Passed } else { Verdict::Failed };
        let out = String::from_utf8_lossy(&said.out[..said.out.len().min(100)]).into_owned();
        let note = format!("code {:?}, said [{out}] [{}]", said.code, said.err.trim());
        record(&mut self.cases, name, verdict, &note);
    }
}

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let mut cases = Cases { target, cases: Vec::new() };
    queue_cases(&mut cases)?;
    consume_cases(&mut cases)?;
    refusal_cases(&mut cases)?;
    Ok(cases.cases)
}

fn queue_cases(cases: &mut Cases<'_>) -> Result<(), String> {
    let said = cases.run(&["amqp-declare-queue", "-q", QUEUE, "-d"], b"")?;
    cases.judge("declare", said.out.trim_ascii() == QUEUE.as_bytes(), &said);
    let said = cases.publish(&["-b", "hello"], b"")?;
    cases.judge("publish", said.code == Some(0), &said);
    let said = cases.run(&["amqp-get", "-q", QUEUE], b"")?;
    cases.judge("get", said.out == b"hello", &said);
    let said = cases.run(&["amqp-get", "-q", QUEUE], b"")?;
    cases.judge("get from an empty queue", said.code == Some(2), &said);
    let body = vec![b'z'; LARGE_BODY_BYTES];
    cases.publish(&[], &body)?;
    let said = cases.run(&["amqp-get", "-q", QUEUE], b"")?;
    cases.judge("a body of several frames", said.out == body, &said);
    Ok(())
}

fn consume_cases(cases: &mut Cases<'_>) -> Result<(), String> {
    for body in ["m1", "m2", "m3"] {
        cases.publish(&["-p", "-C", "text/plain", "-H", "a: b", "-b", body], b"")?;
    }
    let said = cases.run(&["amqp-consume", "-q", QUEUE, "-c", "3", "cat"], b"")?;
    cases.judge("consume", said.out == b"m1m2m3", &said);
    for body in ["n1", "n2", "n3"] {
        cases.publish(&["-b", body], b"")?;
    }
    let words = ["amqp-consume", "-q", QUEUE, "-A", "-p", "1", "-c", "3", "cat"];
    let said = cases.run(&words, b"")?;
    cases.judge("consume without acks", said.out == b"n1n2n3", &said);
    cases.publish(&["-l"], b"a\nb\n")?;
    let said = cases.run(&["amqp-consume", "-q", QUEUE, "-c", "2", "cat"], b"")?;
    let lines: Vec<u8> = said.out.iter().copied().filter(|byte| *byte != b'\n').collect();
    cases.judge("a message per line", lines == b"ab", &said);
    let said = topic_case(cases)?;
    cases.judge("consume from an exchange", said.out == b"by topic", &said);
    Ok(())
}

/// A consumer with a queue of its own, bound to a topic; publishes until it has bound.
fn topic_case(cases: &Cases<'_>) -> Result<Said, String> {
    let url = cases.target.url();
    let mut consumer = cases.target.command(10, "amqp-consume");
    consumer.args(["-u", &url, "-e", "amq.topic", "-r", "at.#", "-c", "1", "cat"]);
    consumer.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = consumer.spawn().map_err(|error| error.to_string())?;
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        cases.run(&["amqp-publish", "-e", "amq.topic", "-r", "at.b.c", "-b", "by topic"], b"")?;
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Said { code: output.status.code(), out: output.stdout, err })
}

fn refusal_cases(cases: &mut Cases<'_>) -> Result<(), String> {
    let said = cases.run(&["amqp-publish", "-e", "no-such-exchange", "-r", "x", "-b", "y"], b"")?;
    cases.judge("publish to a missing exchange ends", said.code.is_some_and(|c| c <= 1), &said);
    let said = cases.run(&["amqp-get", "-q", "no-such-queue"], b"")?;
    cases.judge("get from a missing queue", said.err.contains("NOT_FOUND - no queue"), &said);
    let said = cases.run(&["amqp-delete-queue", "-q", QUEUE], b"")?;
    cases.judge("delete", said.out.trim_ascii() == b"0", &said);
    let url = cases.target.url().replace("guest:guest", "guest:wrong");
    let said = cases.run_at(&url, &["amqp-get", "-q", "x"], b"")?;
    let signs = ["403", "ACCESS_REFUSED", "logging in"];
    let is_refused =
        signs.iter().any(|sign| said.err.to_uppercase().contains(&sign.to_uppercase()));
    cases.judge("a wrong password", is_refused, &said);
    Ok(())
}
