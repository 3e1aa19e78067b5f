//! Threads, files and clocks of a node: what drives the shards.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the shell: the only place with threads, locks between owners, and clocks"
)]

mod alarms;
mod backup;
mod change;
mod config;
mod dead_letters;
mod describe;
mod events;
mod failure;
mod flusher;
pub mod handle;
mod locks;
mod mailbox;
mod neighbours;
pub mod orders;
mod peeks;
pub mod peers;
mod preparing;
mod reading;
mod renewing;
mod reports;
mod rescue;
mod restore;
mod secret;
mod sessions;
mod shard_loop;
mod snapshots;
mod start;
mod store;
mod tallies;
mod threads;
mod usage;
mod withholding;
mod writing;

pub use backup::{BackupPart, BackupSource, CutGroup};
pub use change::NotChanged;
pub use config::Config;
pub use failure::{Cause, Failure, StartError};
pub use handle::{AnswerReceiver, ClusterHandle, Counters, Status};
pub use neighbours::foresee;
pub use peers::{Admission, NotTold, PeerCounters, PeerStatus, Question, Reply};
pub use rescue::{queue_names, rescue_directory, survey_directory};
pub use restore::{BackupGroup, Home, Totals, check_backup_group, restore_directory};
pub use secret::{kept_secret, new_secret};
pub use start::{launch, start};
pub use tallies::Tally;
pub use usage::{Taken, Usage, usage};
