//! What was synced is still there, whatever the machine did.
//!
//! One log for all groups of a node, with group commit; per group a checkpoint and segments with
//! what is needed of log files that were recycled. It knows groups, indexes and terms, queues as
//! numbers and messages as bytes; it leaves elections, queues and AMQP to others.

mod batch;
mod checkpoint;
mod compaction;
mod config;
mod disk;
mod error;
mod groups;
mod identity;
mod inspect;
mod io;
mod keeper;
mod layout;
pub mod limits;
mod place;
mod reader;
mod record;
mod recovery;
mod replay;
mod scan;
pub mod segments;
mod shared;
pub mod sim;
mod stats;
mod wal;

pub use batch::{CommitBatch, Item, Synced};
pub use checkpoint::Checkpoint;
pub use compaction::{Live, Step, live_bytes, plan};
pub use config::Config;
pub use disk::{Access, Disk, DiskFile};
pub use error::Error;
pub use identity::{FORMAT_VERSION, Identity};
pub use inspect::{FileReport, GroupReport, Report, inspect};
pub use io::files::{FileDisk, OpenFile};
pub use keeper::{FileStatus, Keeper};
pub use place::Place;
pub use reader::Reader;
pub use recovery::{Recovered, RecoveredGroup};
pub use replay::{Damage, EntryAt};
pub use stats::Stats;
pub use wal::Wal;
