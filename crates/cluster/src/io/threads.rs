//! Threads that a node cannot go on without.

use std::thread;

/// Ends the process if a thread of the node panics: the others would wait for it for ever, and its
/// groups would be led by nobody. The next start recovers from what is on the disk.
struct Alive;

impl Drop for Alive {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

/// Starts a thread, whose panic ends the process.
pub(super) fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    let builder = thread::Builder::new().name(name);
    let run = || {
        let alive = Alive;
        run();
        drop(alive);
    };
    builder.spawn(run).expect("the system can start a handful of threads")
}
