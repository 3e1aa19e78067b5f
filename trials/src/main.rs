//! `trials`: see [`trials::chaos::command`].

use tikv_jemallocator::Jemalloc;

/// The product's: what is simulated runs on it, too.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> std::process::ExitCode {
    trials::chaos::run()
}
