//! Writes a history file from what many tasks see.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::history::{Event, Nanos, Stage, What};

/// Events that may wait for the writer.
const WAITING_MAX: usize = 65_536;

/// `CLOCK_MONOTONIC`, which every process on the machine shares.
pub fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = Nanos::try_from(time.tv_sec).expect("monotonic time is not negative");
    seconds * 1_000_000_000 + Nanos::try_from(time.tv_nsec).expect("nanoseconds are positive")
}

/// A handle for one more witness.
#[derive(Clone, Debug)]
pub struct Recorder {
    events: SyncSender<Event>,
    confirmed: Arc<AtomicU64>,
    delivered: Arc<AtomicU64>,
}

/// Waits for the last event to be written.
#[derive(Debug)]
pub struct Writing(JoinHandle<io::Result<()>>);

impl Recorder {
    /// Starts the file; it ends when every handle is gone and [`Writing::finish`] is called.
    pub fn create(path: &Path) -> io::Result<(Self, Writing)> {
        let file = BufWriter::new(std::fs::File::create(path)?);
        let (events, waiting) = sync_channel(WAITING_MAX);
        let writing = Writing(std::thread::spawn(move || write(file, &waiting)));
        Ok((Self { events, confirmed: Arc::default(), delivered: Arc::default() }, writing))
    }

    /// Writes down what `p` saw just now.
    pub fn saw(&self, p: &str, what: What) {
        match &what {
            What::Pub { k: Stage::Ok, .. } => self.confirmed.fetch_add(1, Ordering::Relaxed),
            What::Dlv { .. } => self.delivered.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        let event = Event { t: now(), p: p.to_owned(), what };
        // The writer only goes when all handles are gone, or with its disk: then finish() says so.
        let _ = self.events.send(event);
    }

    /// Confirms seen until now.
    pub fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Relaxed)
    }

    /// Deliveries seen until now.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }
}

impl Writing {
    /// Every [`Recorder`] must be dropped before.
    pub fn finish(self) -> io::Result<()> {
        self.0.join().map_err(|_| io::Error::other("the history's writer panicked"))?
    }
}

fn write(mut file: BufWriter<std::fs::File>, events: &Receiver<Event>) -> io::Result<()> {
    while let Ok(event) = events.recv() {
        serde_json::to_writer(&mut file, &event)?;
        file.write_all(b"\n")?;
    }
    let end = Event { t: now(), p: "recorder".into(), what: What::End };
    serde_json::to_writer(&mut file, &end)?;
    file.write_all(b"\n")?;
    file.flush()
}
