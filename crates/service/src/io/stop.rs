//! How a service is told to stop: the first signal asks, the second one means now.

use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A signal to the process and to its group comes twice at once.
const SAME_SIGNAL: Duration = Duration::from_secs(1);
/// The exit code of a service that was asked twice.
pub const EXIT_FORCED: i32 = 130;

/// Becomes true with SIGTERM or SIGINT; `doing` says what the service does then. The same signal once more ends the
/// process at once, with exit code [`EXIT_FORCED`].
pub fn on_signals(doing: &'static str) -> watch::Receiver<bool> {
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
        let (Ok(mut term), Ok(mut int)) = signals else {
            // The receivers must not take it for the end of the sender.
            return std::future::pending().await;
        };
        let mut asked: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = term.recv() => (),
                _ = int.recv() => (),
            }
            match asked {
                Some(at) if at.elapsed() < SAME_SIGNAL => continue,
                // A broker or a database may hang: whoever asks again means it.
                Some(_) => std::process::exit(EXIT_FORCED),
                None => asked = Some(Instant::now()),
            }
            tracing::info!("stopping: {doing}; a second signal ends the process at once");
            stop.send_replace(true);
        }
    });
    stopped
}
