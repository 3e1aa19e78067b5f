//! The only part of this crate with files, locks and clocks; decides nothing.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "files, clocks and locks live here, behind the Disk trait"
)]

pub(crate) mod files;
pub(crate) mod locked;
