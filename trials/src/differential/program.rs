//! A program: operations that clients do one after the other, and the script that a person reads.
//!
//! One line is one operation: a verb, the channel it is done on, its words, and options, of which
//! those that AMQP has no field for are arguments. Names `q1`, `e1` are the program's own: the runner
//! puts a prefix before them, so that many programs can run on one broker.
//!
//! ```text
//! queue @1 q1 durable x-message-ttl=40 x-dead-letter-exchange=e1
//! publish @1 '' q1 n=3 expiration=0 h.kind=order
//! consume @2 c1 q1 no-ack
//! ```

use std::fmt;
use std::time::Duration;

use amqp::FieldValue;

use super::value;

/// Operations in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program(pub(super) Vec<Operation>);

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Operation {
    pub(super) verb: Verb,
    pub(super) channel: u16,
    pub(super) words: Vec<String>,
    /// A flag has no value.
    pub(super) options: Vec<(String, Option<FieldValue>)>,
}

/// What is done, and how many words belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// `exchange NAME TYPE`
    Exchange,
    /// `delete-exchange NAME`
    DeleteExchange,
    /// `bind-exchange DESTINATION SOURCE KEY`
    BindExchange,
    /// `unbind-exchange DESTINATION SOURCE KEY`
    UnbindExchange,
    /// `queue NAME`
    Queue,
    /// `delete-queue NAME`
    DeleteQueue,
    /// `purge NAME`
    Purge,
    /// `bind QUEUE EXCHANGE KEY`
    Bind,
    /// `unbind QUEUE EXCHANGE KEY`
    Unbind,
    /// `confirm`
    Confirm,
    /// `qos COUNT`
    Qos,
    /// `publish EXCHANGE KEY`
    Publish,
    /// `consume TAG QUEUE`
    Consume,
    /// `cancel TAG`
    Cancel,
    /// `get QUEUE`
    Get,
    /// `ack WHICH`: `c1.first`, `c1.last`, `got.first`, `all`, `again`, or a number.
    Ack,
    /// `nack WHICH`
    Nack,
    /// `reject WHICH`
    Reject,
    /// `recover`
    Recover,
    /// `tx`
    Tx,
    /// `commit`
    Commit,
    /// `rollback`
    Rollback,
    /// `close`: the channel.
    Close,
    /// `disconnect`: the connection of the channel.
    Disconnect,
    /// `pause MILLISECONDS`
    Pause,
    /// `policy NAME NAMES`: for these names, with its definition as options; `operator` makes it one of operators.
    Policy,
    /// `delete-policy NAME`
    DeletePolicy,
    /// `grant CONFIGURE WRITE READ`: what the second user may do, by names.
    Grant,
    /// `topics EXCHANGE WRITE READ`: the same by routing keys, as regular expressions.
    Topics,
    /// `clear-topics`
    ClearTopics,
}

pub(super) const VERB_COUNT: usize = 30;
const VERBS: [(&str, Verb, usize); VERB_COUNT] = [
    ("exchange", Verb::Exchange, 2),
    ("delete-exchange", Verb::DeleteExchange, 1),
    ("bind-exchange", Verb::BindExchange, 3),
    ("unbind-exchange", Verb::UnbindExchange, 3),
    ("queue", Verb::Queue, 1),
    ("delete-queue", Verb::DeleteQueue, 1),
    ("purge", Verb::Purge, 1),
    ("bind", Verb::Bind, 3),
    ("unbind", Verb::Unbind, 3),
    ("confirm", Verb::Confirm, 0),
    ("qos", Verb::Qos, 1),
    ("publish", Verb::Publish, 2),
    ("consume", Verb::Consume, 2),
    ("cancel", Verb::Cancel, 1),
    ("get", Verb::Get, 1),
    ("ack", Verb::Ack, 1),
    ("nack", Verb::Nack, 1),
    ("reject", Verb::Reject, 1),
    ("recover", Verb::Recover, 0),
    ("tx", Verb::Tx, 0),
    ("commit", Verb::Commit, 0),
    ("rollback", Verb::Rollback, 0),
    ("close", Verb::Close, 0),
    ("disconnect", Verb::Disconnect, 0),
    ("pause", Verb::Pause, 1),
    ("policy", Verb::Policy, 2),
    ("delete-policy", Verb::DeletePolicy, 1),
    ("grant", Verb::Grant, 3),
    ("topics", Verb::Topics, 3),
    ("clear-topics", Verb::ClearTopics, 0),
];

/// A time to live between these makes a message expire while the program waits for it.
const SHORT_MS: std::ops::RangeInclusive<i64> = 1..=1000;
/// A queue that may be unused for longer does not go while a program runs.
const UNUSED_MS_MAX: u64 = 10_000;

impl Program {
    /// Reads a script. Lines that are empty or begin with `#` say nothing.
    pub fn parse(text: &str) -> Result<Program, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(Operation::parse).collect::<Result<_, _>>().map(Program)
    }

    /// Whether messages expire while it runs.
    pub(super) fn is_timed(&self) -> bool {
        self.0.iter().any(|operation| {
            let ttl = operation.number("x-message-ttl").or(operation.number("expiration"));
            let ttl = ttl.or(operation.number("message-ttl"));
            ttl.is_some_and(|ttl| SHORT_MS.contains(&ttl))
        })
    }

    /// The shortest time that a queue of it lives unused, where the program waits for that.
    pub(super) fn unused(&self) -> Option<Duration> {
        let times = self.0.iter().filter_map(|operation| operation.number("x-expires"));
        let times = times.filter_map(|ms| u64::try_from(ms).ok()).filter(|ms| *ms <= UNUSED_MS_MAX);
        times.min().map(Duration::from_millis)
    }

    /// Whether messages move while no client does anything: dead letters, and what a replicated queue
    /// does once its log is written.
    pub(super) fn is_slow(&self) -> bool {
        let sends = |operation: &Operation| {
            operation.option("x-dead-letter-exchange").is_some()
                || operation.option("dead-letter-exchange").is_some()
        };
        self.0.iter().any(sends) || self.quorum().next().is_some()
    }

    /// Whether some of it is done by a second user.
    pub(super) fn has_user(&self) -> bool {
        self.0.iter().any(|operation| operation.verb == Verb::Grant)
    }

    /// Names of the queues that are replicated where queues have types.
    pub(super) fn quorum(&self) -> impl Iterator<Item = &str> {
        let is_quorum =
            |operation: &&Operation| operation.text("x-queue-type").as_deref() == Some("quorum");
        self.0.iter().filter(is_quorum).map(|operation| operation.word(0))
    }

    /// Whether a queue of it may have one active consumer of several.
    pub(super) fn has_single_active(&self) -> bool {
        self.0.iter().any(|operation| operation.option("x-single-active-consumer").is_some())
    }

    /// The program without one operation.
    pub(super) fn without(&self, index: usize) -> Program {
        let mut shorter = self.clone();
        shorter.0.remove(index);
        shorter
    }
}

impl Operation {
    pub(super) fn new(verb: Verb, channel: u16, words: &[&str]) -> Operation {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Operation { verb, channel, words, options: Vec::new() }
    }

    /// The same with a flag.
    pub(super) fn flag(mut self, name: &str) -> Operation {
        self.options.push((name.to_owned(), None));
        self
    }

    /// The same with an option.
    pub(super) fn with(mut self, name: &str, value: impl Into<FieldValue>) -> Operation {
        self.options.push((name.to_owned(), Some(value.into())));
        self
    }

    /// The word at a place, empty if there is none.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(option, value)| option == name && value.is_none())
    }

    pub(super) fn option(&self, name: &str) -> Option<&FieldValue> {
        self.options.iter().find(|(option, _)| option == name).and_then(|(_, v)| v.as_ref())
    }

    /// An option that is a number, or a text that says one.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        match self.option(name)? {
            FieldValue::I32(value) => Some(i64::from(*value)),
            FieldValue::I64(value) => Some(*value),
            FieldValue::LongStr(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.option(name)? {
            FieldValue::LongStr(text) => Some(String::from_utf8_lossy(text).into_owned()),
            value => Some(value::show(value)),
        }
    }

    /// Options that go into the field table of a declare, a bind or a consume.
    pub(super) fn arguments(&self) -> impl Iterator<Item = (&str, &FieldValue)> {
        let named = self.options.iter().filter(|(name, _)| {
            name.starts_with("x-") || name.starts_with("h.") || name == "alternate-exchange"
        });
        named.filter_map(|(name, value)| {
            let value = value.as_ref()?;
            Some((name.strip_prefix("h.").unwrap_or(name), value))
        })
    }

    fn parse(line: &str) -> Result<Operation, String> {
        let mut parts = words(line).into_iter();
        let name = parts.next().unwrap_or_default();
        let verb = VERBS.iter().find(|(verb, ..)| *verb == name);
        let (_, verb, count) = verb.ok_or_else(|| format!("no such operation: {line}"))?;
        let channel = parts.next().and_then(|part| part.strip_prefix('@')?.parse().ok());
        let channel = channel.ok_or_else(|| format!("no channel: {line}"))?;
        let mut operation = Operation::new(*verb, channel, &[]);
        for part in parts {
            if operation.words.len() < *count {
                operation.words.push(part.trim_matches('\'').to_owned());
            } else {
                let option = match part.split_once('=') {
                    Some((name, value)) => (name.to_owned(), Some(value::parse(value))),
                    None => (part.to_owned(), None),
                };
                operation.options.push(option);
            }
        }
        if operation.words.len() < *count {
            return Err(format!("{name} has {count} words: {line}"));
        }
        Ok(operation)
    }
}

/// Splits at spaces that are not in quotes.
fn words(line: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let split = line.split(move |letter: char| {
        is_quoted ^= letter == '\'';
        letter == ' ' && !is_quoted
    });
    split.filter(|part| !part.is_empty()).collect()
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for operation in &self.0 {
            writeln!(f, "{operation}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = VERBS.iter().find(|(_, verb, _)| *verb == self.verb);
        let (name, ..) = name.expect("every verb is in the table");
        write!(f, "{name} @{}", self.channel)?;
        for word in &self.words {
            let is_plain = !word.is_empty() && !word.contains(' ');
            if is_plain { write!(f, " {word}")? } else { write!(f, " '{word}'")? }
        }
        for (name, value) in &self.options {
            match value {
                Some(value) => write!(f, " {name}={}", value::show(value))?,
                None => write!(f, " {name}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_as_it_is_written() {
        let script = "exchange @1 e1 topic durable alternate-exchange=e2\n\
                      queue @1 q1 x-message-ttl=40 x-dead-letter-exchange='' x-max-length=3l\n\
                      publish @2 '' q1 n=3 expiration='40' CC=[q2,q3] h.kind=1\n\
                      policy @1 p1 q1 operator max-length=3 priority=1 to=queues\n\
                      grant @4 all '' q1|e1\ntopics @4 e1 ^a ''\n\
                      nack @2 c1.first multiple requeue\npause @1 500\n";
        assert_eq!(Program::parse(script).unwrap().to_string(), script);
    }

    #[test]
    fn a_line_that_says_nothing_known_is_refused() {
        assert!(Program::parse("frobnicate @1 q1").is_err());
        assert!(Program::parse("queue q1").is_err());
        assert!(Program::parse("bind @1 q1 e1").is_err());
    }

    #[test]
    fn a_program_is_timed_if_something_in_it_expires_soon() {
        let is_timed = |script| Program::parse(script).unwrap().is_timed();
        assert!(is_timed("queue @1 q1 x-message-ttl=40"));
        assert!(is_timed("publish @1 '' q1 expiration='40'"));
        assert!(!is_timed("queue @1 q1 x-message-ttl=0"));
        assert!(!is_timed("queue @1 q1 x-message-ttl=600000"));
    }
}
