//! What nodes tell each other, and how it is written on the wire.

pub mod message;
