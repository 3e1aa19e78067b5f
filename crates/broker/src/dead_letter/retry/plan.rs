//! What an operator wants to be sent on from a queue, and where to.

use std::sync::Arc;

use bytes::Bytes;
use machine::{GroupId, Position, QueueId};
use oauth::Grant;

use super::super::story::Story;
use super::edit::Edit;

/// Which messages of a queue go where, and by whose rights.
#[derive(Clone, Debug)]
pub struct Plan {
    pub vhost: String,
    /// The queue that they lie in.
    pub queue: String,
    pub place: (GroupId, QueueId),
    pub to: To,
    pub which: Which,
    /// Messages that are sent on, at most.
    pub count_max: u64,
    /// Messages a second. `None`: as fast as it goes.
    pub rate: Option<u32>,
    /// What has been sent on so often stays.
    pub retries_max: Option<u32>,
    /// What the message is sent on with; only if `which` names one place.
    pub edit: Option<Edit>,
    /// Nothing is sent on: it is only said what would be.
    pub is_dry: bool,
    pub user: String,
    /// What the token gives that the user has shown.
    pub grant: Option<Arc<Grant>>,
}

/// Where messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// Each to the queue that it died in last.
    Queue,
    /// Each to the exchange by which it had come to that queue, with the key by which it had come.
    Exchange,
    /// All to this exchange with this key; the empty name is the default exchange.
    Named { exchange: String, key: String },
}

/// Which messages of the queue are meant: of those that are ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those at these places.
    At(Vec<Position>),
    /// All that had come when the retry began, and match.
    All(Filter),
}

/// Which messages match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// These bytes are in their head, or in the body as far as that is searched. Empty: in all.
    pub contains: Bytes,
    /// They died last of this.
    pub reason: Option<String>,
    /// They died last in this queue.
    pub died_in: Option<String>,
}

impl Filter {
    /// Whether a message that tells this matches, apart from what it contains.
    pub(super) fn takes(&self, story: &Story) -> bool {
        let death = story.death.as_ref();
        let is = |wanted: &Option<String>, told: Option<&String>| {
            wanted.is_none() || wanted.as_ref() == told
        };
        is(&self.reason, death.map(|death| &death.reason))
            && is(&self.died_in, death.map(|death| &death.queue))
    }
}
