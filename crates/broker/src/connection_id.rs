//! The name of a connection: which node serves it, and the how many-th of that node's present start it is.

use std::fmt;
use std::str::FromStr;

use cluster::shard::Shard;
use machine::{NodeId, SessionId};

/// A connection, as log lines and operators name it: `2-17` is the 17th of node 2. A node counts anew at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    pub node: NodeId,
    pub number: u64,
}

impl ConnectionId {
    /// Of the session that serves it. `None`: no node has such a session.
    pub fn of(session: SessionId) -> Option<Self> {
        let node = Shard::node_of(session)?;
        let number = session.0 - Shard::first_session(node).0.saturating_sub(1);
        Some(Self { node, number })
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.node.0, self.number)
    }
}

impl FromStr for ConnectionId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-');
        let number = |part: &str| part.parse::<u64>().ok();
        parts
            .and_then(|(node, count)| {
                Some(Self { node: NodeId(number(node)?), number: number(count)? })
            })
            .ok_or_else(|| {
                format!("'{text}' is no connection: name it as NODE-NUMBER, for example 1-17")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_named_by_its_node_and_the_count_of_its_sessions() {
        let first = Shard::first_session(NodeId(3));
        let id = ConnectionId::of(SessionId(first.0 + 16)).unwrap();
        assert_eq!(id.to_string(), "3-17");
        assert_eq!("3-17".parse(), Ok(id));
        assert_eq!(ConnectionId::of(SessionId(7)), None, "nodes count from 1");
    }

    #[test]
    fn other_words_name_no_connection() {
        for text in ["", "17", "-", "1-", "-1", "1-x", "1-2-3", "1-99999999999999999999"] {
            let refused = text.parse::<ConnectionId>();
            assert!(refused.unwrap_err().contains("NODE-NUMBER"), "{text}");
        }
    }
}
