//! What clients and the nemesis saw, one JSON line each.
//!
//! Every process writes a file of its own. All run on one machine and stamp `CLOCK_MONOTONIC`
//! nanoseconds, so the files merge by time. A request without an answer is `info` (its outcome is
//! unknown), never `fail`: a broker may have done what it could not say.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub type Nanos = u64;

/// The kind of fault that a client notes for its own lost connection.
pub const DISCONNECT: &str = "disconnect";

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When it was seen.
    pub t: Nanos,
    /// The process (publisher, consumer, nemesis) that saw it.
    pub p: String,
    #[serde(flatten)]
    pub what: What,
}

/// How far a publish got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// About to be sent.
    Inv,
    /// Confirmed (`basic.ack`).
    Ok,
    /// Refused (`basic.nack`).
    Fail,
    /// Nobody knows: the connection went or time ran out.
    Info,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "f", rename_all = "lowercase")]
pub enum What {
    /// A publish, at one of its stages.
    Pub {
        k: Stage,
        /// `channel:sequence`, unique over the run; the channel's name changes with every reopening.
        m: String,
        /// Which attempt this is: 0 is the first.
        #[serde(default, skip_serializing_if = "is_zero")]
        n: u32,
        /// The queues it is routed to; said with `inv`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        q: Vec<String>,
        /// Checksum of the body; said with `inv`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        h: Option<u32>,
        /// The broker sent it back as unroutable before it confirmed it.
        #[serde(default, skip_serializing_if = "is_false")]
        returned: bool,
    },
    /// A channel of a publisher is over; no confirm may follow. `m` names start with `ch`.
    Closed { ch: String },
    /// A consumer begins to listen; `ep` is unique over the run.
    Open { q: String, ep: String },
    /// A delivery.
    Dlv {
        q: String,
        m: String,
        /// Delivery tag.
        tag: u64,
        /// Flagged as redelivered.
        red: bool,
        /// Checksum of the body.
        h: u32,
        /// The consumer session it came to.
        ep: String,
    },
    /// A delivery was settled: written down before it is sent.
    Ack { q: String, m: String, ep: String },
    /// Back to the queue.
    Nack { q: String, m: String, ep: String },
    /// Dropped, or dead-lettered where the queue says so.
    Reject { q: String, m: String, ep: String },
    /// Harm was done between `t0` and `t1`; a lost connection is a short one.
    Fault {
        kind: String,
        node: u32,
        t0: Nanos,
        t1: Nanos,
        /// Sectors a power cut threw away.
        #[serde(default, skip_serializing_if = "is_zero_u64")]
        sectors: u64,
    },
    /// A client's connection to this node, or a channel of it, ended though the client did not ask for that.
    Broke { node: u32 },
    /// The broker was known to fail from `t0` and was not started again before `t1`: nothing begun
    /// in between may be confirmed in between.
    Silent { t0: Nanos, t1: Nanos },
    /// A queue that takes part.
    Queue {
        q: String,
        /// It has one consumer at a time, which never puts a message back.
        #[serde(default)]
        single: bool,
        /// What is rejected here goes there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dead: Option<String>,
    },
    /// What the arguments of a queue ask for; said behind its `Queue`. Without it the queue is plain.
    Traits { q: String, traits: Traits },
    /// What the message says of itself that its queues act on; said before its `Pub`.
    Marks { m: String, marks: Marks },
    /// A message is dead, and on its way from `q` to where dead letters go; or it came from there.
    Died { q: String, m: String, why: Why },
    /// A purge, at one of its stages: all ready messages of a queue are thrown away at some moment between the two.
    Purge {
        k: Stage,
        q: String,
        /// How many there were; said with `ok`.
        #[serde(default, skip_serializing_if = "is_zero_u64")]
        n: u64,
    },
    /// A transaction, at one of its stages.
    Tx {
        k: Stage,
        /// Its name, unique over the run.
        x: String,
        /// The consumer session of the messages that it acknowledges, these, and those that it publishes; said with
        /// `inv`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        ep: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        acks: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pubs: Vec<String>,
        /// It lies in one group, and happens whole or not at all; said with `inv`.
        #[serde(default, skip_serializing_if = "is_false")]
        whole: bool,
    },
    /// A policy, which may be in force for these queues from `inv` on. From `ok` on it is in force nowhere: what comes
    /// later comes under the others.
    Policy {
        k: Stage,
        /// Its name, unique over the run.
        x: String,
        /// Said with `inv`, as is what the policy says.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        q: Vec<String>,
        #[serde(default)]
        traits: Traits,
        /// Where dead letters go of a queue that does not say so itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dead: Option<String>,
    },
    /// A queue is paused (`on`), or goes on, at one of the stages. From `ok` on its leader goes by it.
    Pause { k: Stage, q: String, on: bool },
    /// Dead letters are sent on from `q`.
    Retry {
        /// `fail`: the message is taken, and whatever was sent of it before is given up. `inv`: it is sent to these
        /// queues. `ok`: it is let go of where it lay, for they have it.
        k: Stage,
        q: String,
        /// None: any of those in `q`, from `inv` on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        m: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        to: Vec<String>,
    },
    /// What a queue counted by the end.
    Books { q: String, books: Books },
    /// A clock on the wall was set: times of the broker may differ from ours from then on.
    Clock { node: u32, by_ms: i64 },
    /// The time of some queues' group may have leapt: nobody was left to tell its leader what time it was.
    Leap { group: u32 },
    /// A group has another leader, or the same in a later term.
    Leads { group: u32, node: u32 },
    /// The group of these queues got a leader of a later term between `t0` and `t1`: what trials of real processes can
    /// see of it from outside.
    Election { q: Vec<String>, t0: Nanos, t1: Nanos },
    /// Publishers try (`on`) or rest: confirms are missed only while they try.
    Load { on: bool },
    /// A queue's group went on with what one node had on its disk: with all that was confirmed before `since`,
    /// or, where no node that lives had a replica, with nothing. Said when it went on.
    Rescued {
        q: String,
        since: Nanos,
        #[serde(default)]
        empty: bool,
    },
    /// All harm is over.
    Heal,
    /// A queue was consumed until nothing came; `left` is what it still reports.
    Drained { q: String, node: u32, left: u64 },
    /// A client saw what the protocol does not allow.
    Protocol { text: String },
    /// The process wrote down all that it saw.
    End,
}

/// What arguments ask of a queue. Times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traits {
    pub ttl_ms: Option<u64>,
    pub max_length: Option<u64>,
    /// It refuses what it has no room for; else its first messages go.
    pub refuses: bool,
    pub max_priority: u8,
    pub delivery_limit: Option<u32>,
    /// What is given back waits so long, at least.
    pub retry_ms: Option<u64>,
    /// For how long a key is remembered.
    pub dedup_ms: Option<u64>,
    /// Messages of one key come in order, whichever consumer gets them; those without a key in any.
    pub keyed: bool,
    /// One message of a key is out at a time.
    pub in_turn: bool,
    /// Messages that it gives out in a second, at most.
    pub rate: Option<u64>,
}

/// What a message says of itself. Times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Marks {
    pub ttl_ms: Option<u64>,
    pub delay_ms: Option<u64>,
    pub key: Option<u64>,
    pub priority: u8,
}

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    Expired,
    Overflowed,
    Rejected,
    /// It came back too often.
    Exhausted,
}

/// What a queue counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    pub enqueued: u64,
    pub settled: u64,
    pub purged: u64,
    pub dropped: u64,
    pub dead_lettered: u64,
    pub duplicates: u64,
    /// What it still has.
    pub live: u64,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_zero_u64(number: &u64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The histories of all processes of a run, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
    /// Files that do not end with [`What::End`] or hold a line that is none.
    cut_short: Vec<String>,
}

impl History {
    /// A history already in memory; whole, whatever it ends with.
    pub fn of(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.t);
        Self { events, cut_short: Vec::new() }
    }

    /// Adds one process's file. A line that does not parse ends it: the process died writing.
    pub fn add(&mut self, name: &str, lines: impl BufRead) -> io::Result<()> {
        let mut ended = false;
        for line in lines.lines() {
            let Ok(event) = serde_json::from_str::<Event>(&line?) else {
                ended = false;
                break;
            };
            ended = event.what == What::End;
            self.events.push(event);
        }
        if !ended {
            self.cut_short.push(name.to_owned());
        }
        // Stable: what one process wrote at one instant stays in its order.
        self.events.sort_by_key(|event| event.t);
        Ok(())
    }

    pub fn events(&self) -> &[Event] {
        &self.events
    }

    pub fn cut_short(&self) -> &[String] {
        &self.cut_short
    }
}

/// A message id taken apart: the channel that published it and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId {
    /// Index of the channel's name in [`Names`].
    pub channel: u32,
    pub seq: u64,
}

/// Names met in a history, as small numbers.
#[derive(Clone, Debug, Default)]
pub struct Names {
    numbers: BTreeMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).expect("a run has fewer than 2^32 names");
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }

    /// The id in `text`; what is not `channel:sequence` becomes a channel of its own.
    pub fn message(&mut self, text: &str) -> MessageId {
        let parsed = text.rsplit_once(':').and_then(|(ch, seq)| Some((ch, seq.parse().ok()?)));
        let (channel, seq) = parsed.unwrap_or((text, u64::MAX));
        MessageId { channel: self.number(channel), seq }
    }

    pub fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    pub fn text(&self, id: MessageId) -> String {
        format!("{}:{}", self.name(id.channel), id.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_as_the_format_says_and_read_back() {
        let what = What::Pub {
            k: Stage::Inv,
            m: "pub-1.2.1:7".into(),
            n: 0,
            q: vec!["orders".into()],
            h: Some(9),
            returned: false,
        };
        let event = Event { t: 5, p: "pub-1".into(), what };
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(
            line,
            r#"{"t":5,"p":"pub-1","f":"pub","k":"inv","m":"pub-1.2.1:7","q":["orders"],"h":9}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }

    #[test]
    fn a_file_without_its_end_is_known_to_be_cut_short() {
        let mut history = History::default();
        let whole = "{\"t\":1,\"p\":\"a\",\"f\":\"heal\"}\n{\"t\":2,\"p\":\"a\",\"f\":\"end\"}\n";
        history.add("whole", whole.as_bytes()).unwrap();
        assert!(history.cut_short().is_empty());
        let torn = "{\"t\":3,\"p\":\"b\",\"f\":\"end\"}\n{\"t\":4,\"p\":";
        history.add("torn", torn.as_bytes()).unwrap();
        assert_eq!(history.cut_short(), ["torn"]);
        assert_eq!(history.events().len(), 3);
    }
}
