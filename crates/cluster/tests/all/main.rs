//! The tests of clusters and nodes without threads, one program: each that is linked costs every check its time.
#![allow(clippy::unwrap_used, reason = "this is test code")]

mod changed_queues;
#[path = "../common/cores.rs"]
mod cores;
mod cores_random;
mod cut_link;
mod digests;
mod features;
mod joins;
#[path = "../common/node.rs"]
mod node;
mod random;
mod random_features;
mod versions;
mod wide_groups;
