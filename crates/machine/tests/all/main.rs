//! The tests of the machine, one program: each that is linked costs every check its time.

mod any_bytes;
mod arguments;
mod catalog;
mod delivered;
mod described;
mod features_random;
mod golden;
mod histories;
mod joins;
mod kinds;
mod limits;
mod model;
mod new_settings;
mod nodes;
mod numbered_batches;
mod paused;
mod peeked;
mod policies;
mod queues;
mod random_catalogs;
mod restrictions;
mod routing;
mod specs;
mod taken;
mod world;
