//! Where work is done that may take milliseconds: not on the threads that run sessions, or a publisher would wait for it.

use crate::reply::Problem;

/// Does it on a thread of its own.
///
/// # Errors
/// The node is stopping.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Problem::Unavailable("the node is stopping".to_owned()))
}
