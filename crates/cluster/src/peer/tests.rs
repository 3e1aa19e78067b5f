//! Every message comes back as it was sent; bytes that are anything else are refused.

mod any_bytes;
mod greetings;
pub(crate) mod round_trip;
mod samples;
