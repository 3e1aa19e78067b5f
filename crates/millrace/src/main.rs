//! The `millrace` binary.

mod cmd;
mod config;
mod control;

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// What was freed goes back to the system within seconds. The memory alarm looks at what the process
/// holds: with an allocator that keeps what it has had it would never end.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    cmd::run()
}
