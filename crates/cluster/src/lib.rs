//! One node: many Raft groups, one log under them.
//!
//! A [`shard::Shard`] is a core: it owns replicas, takes requests, sync completions and time, and
//! says what to append, what to fetch and whom to answer. What orders and stores messages is the
//! `raft` crate on the `wal`; what a committed entry does is the `machine`'s business. AMQP is
//! unknown here.

pub mod bodies;
pub mod change;
pub mod checkpoint;
mod commit_delay;
pub mod copying;
mod counted;
mod described;
mod digests;
pub mod entry;
pub mod exchange;
mod fetch;
pub mod group;
mod group_time;
pub mod histogram;
pub mod housekeeping;
pub mod io;

mod inbox;
mod leadership;
pub mod limits;
mod locked;
pub mod log_writer;
pub mod membership;
mod numbered_batches;
pub mod orders;
mod peeked;
mod peeking;
pub mod peer;
mod queues;
mod raft_log;
pub mod reading;
pub mod recovery;
mod rejoining;
mod remote;
mod renewal;
mod replica;
mod request;
pub mod rescue;
mod room;
mod secret;
pub mod shard;
pub mod snapshot;
mod tails;
mod unlogged_settles;
mod waiter;
mod withheld;

pub use counted::{Counted, Voting};
pub use described::{DescribedQueue, NotDescribed, Resources};
pub use digests::{Compared, Comparison};
pub use io::{
    Admission, AnswerReceiver, BackupGroup, BackupPart, BackupSource, Cause, ClusterHandle, Config,
    Counters, CutGroup, Failure, Home, NotChanged, NotTold, PeerCounters, PeerStatus, Question,
    Reply, StartError, Status, Taken, Tally, Totals, Usage, check_backup_group, foresee,
    kept_secret, launch, new_secret, queue_names, rescue_directory, restore_directory, start,
    survey_directory, usage,
};
pub use leadership::LeaderChange;
pub use locked::{LockLine, LockQuestion, LockResult, LockSpec, LockWaiter, NotLocked};
pub use membership::PeerConfig;
pub use peeked::{NotPeeked, PeekSpec, Peeked, PeekedMessage};
pub use request::{Alarms, Answer, Delivery, Held, Leaving, Request, Ticket};
pub use wal::Part;
pub use withheld::{NotWithheld, WithheldCount, WithholdStep};
