//! The dead-letter worker against a catalog of its own and a cluster that a test plays.

mod core;
mod letters;
mod properties;
mod world;
