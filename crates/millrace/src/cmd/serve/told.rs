//! How a running node is told what to do: by signals.
//!
//! ```text
//!  Starting ──up──> Running ──SIGTERM, SIGINT──> Stopping ──SIGTERM, SIGINT──> the process ends at once
//!     └── SIGTERM, SIGINT: the process ends at once
//! ```
//!
//! To end at once is safe at any time: what is confirmed is on disk. So the second signal does not wait for
//! anything that the first one waits for, and a thread of its own hears it: the runtime may be gone by then.
#![allow(
    clippy::disallowed_methods,
    reason = "a shell: a thread that waits for signals, and its clock"
)]

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// What a node is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// SIGTERM, SIGINT, or its terminal is gone.
    Stop,
    /// SIGHUP.
    Reload,
    /// SIGUSR1.
    Report,
}

/// A signal to the process and to its group comes twice at once.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Signals that wait to be heard.
const WAITING_MAX: usize = 16;

/// Hears signals for a node.
pub(super) struct Ears {
    told: mpsc::Receiver<Told>,
    is_up: Arc<AtomicBool>,
}

impl Ears {
    /// Listens from here on: no signal that is heard here ends the process by itself.
    ///
    /// # Errors
    /// The operating system refuses, in words.
    pub(super) fn open() -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("Cannot listen for signals: {error}");
        let (tell, told) = mpsc::channel(WAITING_MAX);
        let is_up = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(fail)?;
        let signals = runtime.block_on(async { Signals::open() }).map_err(fail)?;
        let state = Arc::clone(&is_up);
        let hear = move || runtime.block_on(signals.hear(&tell, &state));
        std::thread::Builder::new().name("signals".to_owned()).spawn(hear).map_err(fail)?;
        Ok(Self { told, is_up })
    }

    /// The node has something to stop from here on.
    pub(super) fn up(&self) {
        self.is_up.store(true, Ordering::Relaxed);
    }

    /// What the node is told next.
    pub(super) async fn next(&mut self) -> Told {
        // The thread ends with the process only.
        self.told.recv().await.unwrap_or(Told::Stop)
    }
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    report: tokio::signal::unix::Signal,
    /// Standard error was a terminal when this began.
    had_terminal: bool,
}

impl Signals {
    fn open() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            report: signal(SignalKind::user_defined1())?,
            had_terminal: std::io::stderr().is_terminal(),
        })
    }

    async fn hear(mut self, tell: &mpsc::Sender<Told>, is_up: &AtomicBool) {
        let mut stopping: Option<Instant> = None;
        loop {
            let told = self.next().await;
            match (told, stopping) {
                // Nothing is open yet, and reading a log can take long.
                (Told::Stop, None) if !is_up.load(Ordering::Relaxed) => std::process::exit(0),
                (Told::Stop, None) => stopping = Some(Instant::now()),
                (Told::Stop, Some(at)) if at.elapsed() < SAME_SIGNAL => continue,
                // Without a word: standard error may be what the node hangs at.
                (Told::Stop, Some(_)) => std::process::exit(service::io::stop::EXIT_FORCED),
                (Told::Reload | Told::Report, _) => {}
            }
            // Whoever sends more signals than are heard asks for the same.
            let _ = tell.try_send(told);
        }
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.report.recv() => Told::Report,
            // From a terminal that was closed nobody reads or types any more.
            _ = self.hangup.recv() => match self.had_terminal && !std::io::stderr().is_terminal() {
                true => Told::Stop,
                false => Told::Reload,
            },
        }
    }
}
