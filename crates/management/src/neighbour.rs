//! What nodes ask each other, so that whichever an operator asks tells of all: as JSON.
//!
//! A node that does not know a question refuses it, and what it has is left out. A field that is added to an answer
//! does no harm to who does not know it; one that changes its meaning makes another question.

use std::collections::{BTreeMap, BTreeSet};

use broker::population::Census;
use cluster::NotTold;
use machine::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::history::Window;
use crate::node::{Totals, name_of};
use crate::places::To;
use crate::reply::Problem;
use crate::work::{Of, Retries};

/// A question to a node about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Connections, or what is in them: answered by [`ToldConnections`]. `user`, `vhost`: of these alone.
    Connections { what: Of, user: Option<String>, vhost: Option<String> },
    /// How the relays and workers stand that its configuration names: answered by a list as the API shows it.
    Companions,
    /// What was published to its exchanges: answered by a list of vhost, name, messages and queues that they were routed
    /// to.
    Exchanges,
    /// Where in these streams, by group and queue, somebody would begin to read: answered by a list of `places::Row`, of
    /// those that it leads.
    Places { of: Vec<(u32, u64)>, to: To },
    /// How it stands: answered by [`NodeStanding`].
    Standing,
    /// Who waits for a lock of this group: answered by a list of [`ToldWaiter`] with how many there are at all, or `null`
    /// if it does not lead the group.
    LockLine { group: u32, vhost: String, name: String },
    /// How the groups stand that it leads: answered by a list of `groups::Led`, or `null` if its shards do not come to it
    /// in time.
    Groups,
    /// What its data directory takes: answered as the API shows it, or why not.
    Disk,
    /// How all queues stand that it leads: answered by a list of `picture::Row`.
    Survey,
    /// The fronts of the queues that it leads, as of its last look: answered by a list of `fronts::Row`.
    Fronts,
    /// Who of its clients holds messages, and since when each of them: answered by a list of [`Holder`], of those that it
    /// knows. Older nodes know nothing of `messages`.
    Holders {
        of: Vec<Holding>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        messages: Vec<HeldMessage>,
    },
    /// Its retries of dead letters in these vhosts, or that one is stopped: answered by a list of those that are meant.
    Retries { what: Retries, vhosts: BTreeSet<String> },
    /// How it, and these queues, stood: answered by `history::Told`.
    History { window: Window, wants_node: bool, queues: Vec<u64> },
    /// What it has seen happen from one time to another: answered by a list of `marks::Mark`.
    Marks { from_ms: u64, until_ms: u64 },
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

/// What a node says of its connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum ToldConnections {
    /// `None`: the one that is meant is not there.
    Found(Option<Vec<Value>>),
    /// The one that is meant is there, and did not do in time what it was asked. Older programs take this for no answer.
    Failed { unavailable: String },
}

impl Of {
    /// What this node and the others have said together. What is changed, or is one thing, may be at a node that has not
    /// answered in time; one that cannot be reached has no clients any more.
    ///
    /// # Errors
    /// It was not found, or not all of it was done, and a node did not answer.
    pub(crate) fn together(
        &self,
        own: Option<Vec<Value>>,
        others: Vec<(NodeId, Result<ToldConnections, NotTold>)>,
    ) -> Result<Option<Vec<Value>>, Problem> {
        let (mut found, mut failed) = (own, None);
        for (node, told) in others {
            match told {
                Ok(ToldConnections::Found(None)) => {}
                Ok(ToldConnections::Found(Some(told))) => {
                    found.get_or_insert_default().extend(told);
                }
                Ok(ToldConnections::Failed { unavailable }) => failed = Some(unavailable),
                Err(NotTold::Unreachable | NotTold::TooOld) => {}
                Err(why @ (NotTold::Refused | NotTold::Late)) => {
                    failed = Some(format!("{}: {why}", name_of(node)));
                }
            }
        }
        let is_needed = match self {
            Self::Connections | Self::Channels(None) | Self::Consumers => false,
            Self::Connection(_) | Self::Channels(Some(_)) | Self::Channel(_) => found.is_none(),
            Self::Close { .. } | Self::Pause { .. } => found.is_none(),
            Self::CloseAll { .. } => true,
        };
        match failed.filter(|_| is_needed) {
            Some(why) => Err(Problem::Unavailable(why)),
            None => Ok(found),
        }
    }
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

/// Somebody who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToldWaiter {
    pub(crate) owner: String,
    pub(crate) waited_ms: u64,
}

/// Somebody who holds messages, as a queue's leader names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Holding {
    /// `1-17`.
    pub(crate) connection: String,
    /// The connection's own number for the consumer, or for what it fetched.
    pub(crate) number: u64,
}

/// A message that somebody holds: by the level of its queue and its number there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldMessage {
    pub(crate) by: Holding,
    pub(crate) queue: u64,
    pub(crate) seq: u64,
}

/// Who that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) of: Holding,
    pub(crate) shown: Value,
    /// Since when it holds messages: level of a queue, number, and milliseconds since 1970 at least. Of what came since
    /// its connection looked last, it says nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) since: Vec<(u64, u64, u64)>,
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
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nodes_say_of_connections_is_read_as_older_ones_say_it() {
        let read = |text| serde_json::from_str::<ToldConnections>(text).unwrap();
        assert_eq!(read("null"), ToldConnections::Found(None));
        assert_eq!(read("[true]"), ToldConnections::Found(Some(vec![json!(true)])));
        let failed = ToldConnections::Failed { unavailable: "late".to_owned() };
        let text = serde_json::to_string(&failed).unwrap();
        assert_eq!(read(&text), failed);
        assert!(serde_json::from_str::<Option<Vec<Value>>>(&text).is_err(), "no answer to them");
    }

    #[test]
    fn what_a_silent_node_may_have_is_not_said_to_be_nowhere() {
        let pause = Of::Pause { channel: "c (1)".into(), tag: "t".into(), by: None };
        let close = Of::Close { name: "c".into(), reason: String::new() };
        let close_all = Of::CloseAll { user: "ann".into(), reason: String::new() };
        let failed = || Ok(ToldConnections::Failed { unavailable: "late".to_owned() });
        let nothing = || Ok(ToldConnections::Found(None));
        let is_found = |of: &Of, own: Option<Vec<Value>>, others: Vec<_>| {
            let others = others.into_iter().zip(2..).map(|(told, node)| (NodeId(node), told));
            match of.together(own, others.collect()) {
                Ok(found) => Some(found.is_some()),
                Err(Problem::Unavailable(_)) => None,
                Err(other) => panic!("{other:?}"),
            }
        };
        for of in [&pause, &close, &Of::Connection("c".into())] {
            assert_eq!(is_found(of, None, vec![nothing(), nothing()]), Some(false));
            assert_eq!(is_found(of, None, vec![nothing(), failed()]), None);
            assert_eq!(is_found(of, None, vec![Err(NotTold::Late), nothing()]), None);
            assert_eq!(is_found(of, None, vec![Err(NotTold::Unreachable), nothing()]), Some(false));
            let there = Ok(ToldConnections::Found(Some(vec![json!(true)])));
            assert_eq!(is_found(of, None, vec![there, Err(NotTold::Late)]), Some(true));
        }
        assert_eq!(is_found(&close_all, Some(Vec::new()), vec![failed()]), None);
        assert_eq!(is_found(&Of::Consumers, Some(Vec::new()), vec![failed()]), Some(true));
    }

    #[test]
    fn questions_of_this_version_are_read_by_the_next() {
        let name = || "127.0.0.1:1 -> 127.0.0.1:5672".to_owned();
        let holding = || Holding { connection: "1-17".into(), number: 4 };
        for (question, text) in [
            (Question::Standing, r#""Standing""#),
            (Question::Census, r#""Census""#),
            (Question::Exchanges, r#""Exchanges""#),
            (Question::Companions, r#""Companions""#),
            (
                Question::Places { of: vec![(3, 7)], to: To::SinceMs(9) },
                r#"{"Places":{"of":[[3,7]],"to":{"SinceMs":9}}}"#,
            ),
            (
                Question::Holders { of: vec![holding()], messages: Vec::new() },
                r#"{"Holders":{"of":[{"connection":"1-17","number":4}]}}"#,
            ),
            (
                Question::Holders {
                    of: Vec::new(),
                    messages: vec![HeldMessage { by: holding(), queue: 7, seq: 9 }],
                },
                r#"{"Holders":{"of":[],"messages":[{"by":{"connection":"1-17","number":4},"queue":7,"seq":9}]}}"#,
            ),
            (
                Question::Retries {
                    what: Retries::Stop("1-2".into()),
                    vhosts: BTreeSet::from(["v".to_owned()]),
                },
                r#"{"Retries":{"what":{"Stop":"1-2"},"vhosts":["v"]}}"#,
            ),
            (Question::Survey, r#""Survey""#),
            (Question::Fronts, r#""Fronts""#),
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
                Question::Marks { from_ms: 5, until_ms: 9 },
                r#"{"Marks":{"from_ms":5,"until_ms":9}}"#,
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
