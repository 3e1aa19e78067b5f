//! What nodes ask each other, so that whichever an operator asks tells of all: as JSON.
//!
//! A node that does not know a question refuses it, and what it has is left out. A field that is added to an answer
//! does no harm to who does not know it; one that changes its meaning makes another question.

use std::collections::{BTreeMap, BTreeSet};

use broker::population::Census;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::history::Window;
use crate::node::Totals;
use crate::work::{Of, Retries};

/// A question to a node about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Connections, or what is in them: answered by a list. `user`, `vhost`: of these alone.
    Connections { what: Of, user: Option<String>, vhost: Option<String> },
    /// How it stands: answered by [`NodeStanding`].
    Standing,
    /// How all queues stand that it leads: answered by a list of `picture::Row`.
    Survey,
    /// Who of its clients holds messages: answered by a list of [`Holder`], of those that it knows.
    Holders { of: Vec<Holding> },
    /// Its retries of dead letters in these vhosts, or that one is stopped: answered by a list of those that are meant.
    Retries { what: Retries, vhosts: BTreeSet<String> },
    /// How it, and these queues, stood: answered by `history::Told`.
    History { window: Window, wants_node: bool, queues: Vec<u64> },
    /// What is wrong with it: answered by `problems::Told`.
    Problems,
    /// The books of the queues that it leads, and the digests of its replicas: answered by `books::Told`, or `null` if
    /// its shards do not come to it in time.
    Books,
    /// How many connections and channels users and vhosts have there: answered by [`ToldCensus`].
    Census,
    /// Dead letters of the node stay at their sources for so long, while a backup is cut. Answered by whether they do.
    HoldDeadLetters { backup: u64, ms: u64 },
    /// They may go again. Answered by `true`.
    ReleaseDeadLetters { backup: u64 },
    /// A backup wants these groups, which the node leads, as they are: answered by a list of [`ToldCut`], or why not.
    Cut { backup: u64, groups: Vec<u32> },
    /// A part of a group that was cut: answered by a [`ToldPart`], or why there is none.
    BackupPart { backup: u64, group: u32, offset: u64 },
    /// Nobody reads the backup any more. Answered by `true`.
    EndBackup { backup: u64 },
    /// Groups of other nodes are still being read: yours come later. Answered by true.
    KeepBackup { backup: u64 },
}

/// A group that was cut for a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToldCut {
    pub(crate) group: u32,
    /// The last entry that is in it, and that entry's term.
    pub(crate) index: u64,
    pub(crate) term: u64,
}

/// A part of such a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToldPart {
    /// Ask again: the checkpoint is being written.
    Early,
    /// In base64.
    Bytes(String),
    /// There is no more.
    End,
}

/// Somebody who holds messages, as a queue's leader names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Holding {
    /// `1-17`.
    pub(crate) connection: String,
    /// The connection's own number for the consumer, or for what it fetched.
    pub(crate) number: u64,
}

/// Who that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) of: Holding,
    pub(crate) shown: Value,
}

/// How a node stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeStanding {
    /// As `/nodes` shows it.
    pub(crate) shown: Value,
    pub(crate) totals: Totals,
}

/// [`Census`] in JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ToldCensus {
    /// Connections and channels.
    users: BTreeMap<String, (u64, u64)>,
    /// Connections.
    vhosts: BTreeMap<String, u64>,
}

impl From<Census> for ToldCensus {
    fn from(Census { users, vhosts }: Census) -> Self {
        Self { users, vhosts }
    }
}

impl From<ToldCensus> for Census {
    fn from(ToldCensus { users, vhosts }: ToldCensus) -> Self {
        Self { users, vhosts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_this_version_are_read_by_the_next() {
        let name = || "127.0.0.1:1 -> 127.0.0.1:5672".to_owned();
        for (question, text) in [
            (Question::Standing, r#""Standing""#),
            (Question::Census, r#""Census""#),
            (
                Question::Holders { of: vec![Holding { connection: "1-17".into(), number: 4 }] },
                r#"{"Holders":{"of":[{"connection":"1-17","number":4}]}}"#,
            ),
            (
                Question::Retries {
                    what: Retries::Stop("1-2".into()),
                    vhosts: BTreeSet::from(["v".to_owned()]),
                },
                r#"{"Retries":{"what":{"Stop":"1-2"},"vhosts":["v"]}}"#,
            ),
            (Question::Survey, r#""Survey""#),
            (Question::Problems, r#""Problems""#),
            (Question::Books, r#""Books""#),
            (
                Question::History {
                    window: Window { step_s: 10, first: 7, count: 2 },
                    wants_node: true,
                    queues: vec![9],
                },
                r#"{"History":{"window":{"step_s":10,"first":7,"count":2},"wants_node":true,"queues":[9]}}"#,
            ),
            (
                Question::HoldDeadLetters { backup: 7, ms: 30_000 },
                r#"{"HoldDeadLetters":{"backup":7,"ms":30000}}"#,
            ),
            (Question::ReleaseDeadLetters { backup: 7 }, r#"{"ReleaseDeadLetters":{"backup":7}}"#),
            (
                Question::Cut { backup: 7, groups: vec![0, 3] },
                r#"{"Cut":{"backup":7,"groups":[0,3]}}"#,
            ),
            (
                Question::BackupPart { backup: 7, group: 3, offset: 9 },
                r#"{"BackupPart":{"backup":7,"group":3,"offset":9}}"#,
            ),
            (Question::KeepBackup { backup: 7 }, r#"{"KeepBackup":{"backup":7}}"#),
            (Question::EndBackup { backup: 7 }, r#"{"EndBackup":{"backup":7}}"#),
            (
                Question::Connections { what: Of::Consumers, user: None, vhost: Some("v".into()) },
                r#"{"Connections":{"what":"Consumers","user":null,"vhost":"v"}}"#,
            ),
            (
                Question::Connections { what: Of::Connection(name()), user: None, vhost: None },
                r#"{"Connections":{"what":{"Connection":"127.0.0.1:1 -> 127.0.0.1:5672"},"user":null,"vhost":null}}"#,
            ),
            (
                Question::Connections {
                    what: Of::Close { name: name(), reason: "why".into() },
                    user: Some("ann".into()),
                    vhost: None,
                },
                r#"{"Connections":{"what":{"Close":{"name":"127.0.0.1:1 -> 127.0.0.1:5672","reason":"why"}},"user":"ann","vhost":null}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&question).unwrap(), text);
            assert_eq!(serde_json::from_str::<Question>(text).unwrap(), question);
        }
        assert!(serde_json::from_str::<Question>(r#""Unknown""#).is_err());
    }
}
