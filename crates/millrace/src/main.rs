//! The `millrace` binary.

mod cmd;
mod config;
mod control;
#[cfg(test)]
mod reference;
mod table;

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// What was freed goes back to the system within seconds. The memory alarm looks at what the process
/// holds: with an allocator that keeps what it has had it would never end.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    #[cfg(planted)]
    choose_bug();
    cmd::run()
}

/// In a program for trials: the bug that they want to find.
#[cfg(planted)]
fn choose_bug() {
    if let Ok(bug) = std::env::var("MILLRACE_PLANTED") {
        assert!(planted::choose(&bug), "nothing has chosen a bug before");
    }
}
