//! What was synced is still there, whatever the machine did.
//!
//! One log for all groups of a node, with group commit; per group a checkpoint and segments with
//! what is needed of log files that were recycled. It knows groups, indexes and terms, queues as
//! numbers and messages as bytes; it leaves elections, queues and AMQP to others.
//!
//! Four handles: [`Wal`] commits, [`Reader`] reads entries from any thread, [`Keeper`] writes
//! checkpoints and segments, [`Preparer`] prepares and recycles log files. The directory stays
//! locked until the last of them is dropped.
//!
//! ```
//! use wal::{CommitBatch, Config, Identity, Item, Wal, sim::SimDisk};
//!
//! let disk = SimDisk::new(1); // or FileDisk::new("/var/lib/millrace")?
//! let config = Config::new(Identity { cluster: 7, node: 1, incarnation: 1 });
//! let (mut wal, recovered) = Wal::open(disk, config)?;
//! assert!(recovered.groups.is_empty());
//! let mut batch = CommitBatch::new();
//! batch.add(1, Item::Entry { index: 1, term: 1, data: "hello".into() });
//! batch.add(1, Item::HardState("term 1".into()));
//! let synced = wal.commit(vec![batch])?; // One write, one sync; the proof that it is durable.
//! assert_eq!(wal.reader().read(synced.places()[0])?, "hello");
//! # Ok::<(), wal::Error>(())
//! ```

mod active;
mod ballast;
mod batch;
mod checkpoint;
mod compaction;
mod config;
mod disk;
mod error;
mod group_status;
mod groups;
mod identity;
mod inspect;
mod io;
mod keeper;
mod layout;
pub mod limits;
mod notes;
mod place;
mod preparer;
mod quarantine;
mod reader;
mod record;
mod recovery;
mod replay;
mod scan;
pub mod segments;
mod shared;
pub mod sim;
mod stats;
mod terms;
mod wal;

pub use batch::{CommitBatch, Item, Synced};
pub use checkpoint::Checkpoint;
pub use compaction::{Live, Step, live_bytes, plan};
pub use config::Config;
pub use disk::{Access, Disk, DiskFile};
pub use error::Error;
pub use identity::{FORMAT_VERSION, Identity};
pub use inspect::{FileReport, GroupReport, Lost, Report, inspect};
pub use io::files::{FileDisk, OpenFile};
pub use keeper::{FileStatus, Keeper};
pub use layout::Part;
pub use notes::{Boot, Founding, Member};
pub use place::Place;
pub use preparer::Preparer;
pub use reader::Reader;
pub use record::LostState;
pub use recovery::{Recovered, RecoveredGroup};
pub use replay::{Damage, EntryAt};
pub use stats::Stats;
pub use wal::Wal;
