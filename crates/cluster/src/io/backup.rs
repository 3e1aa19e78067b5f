//! Groups that a backup reads from this node, from the question to the last byte.
//!
//! ```text
//!   asked ──the shard cuts──> cut ──the flusher has written the checkpoint──> to be read ──read, or left alone──> gone
//!     └── not led here; late      └── no room for the checkpoint: failed
//! ```
//!
//! What is read is the stream of a snapshot (`crate::snapshot`). Its segments stay open, so later checkpoints take
//! nothing from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use machine::GroupId;
use tokio::sync::oneshot;
use wal::FileDisk;

use crate::exchange::NotCut;
use crate::snapshot::{Sender, Source};

/// A question to a majority may be lost. It is asked again after so long.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What nobody reads for so long is given up.
const IDLE_MAX: Duration = Duration::from_secs(120);

/// What a shard says of a cut: index and term.
type Made = Result<(u64, u64), NotCut>;

/// Cuts that shards and the flusher have not finished.
#[derive(Debug, Default)]
pub(crate) struct Cuts(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    asked: BTreeMap<u64, oneshot::Sender<Made>>,
    sources: BTreeMap<u64, BackupSource>,
}

/// A group that is cut.
#[derive(Debug)]
pub struct CutGroup {
    pub group: GroupId,
    /// The last entry that is in it, and that entry's term.
    pub index: u64,
    pub term: u64,
    pub source: BackupSource,
}

/// Where the bytes of a group's cut come from. Clones are the same.
#[derive(Clone)]
pub struct BackupSource(Arc<Mutex<Reading>>);

impl std::fmt::Debug for BackupSource {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("BackupSource")
    }
}

struct Reading {
    stage: Stage,
    /// Where the last part began, and the part: it is asked for again if its answer was lost.
    last: (u64, Bytes),
    used: Instant,
}

enum Stage {
    /// The checkpoint is being written.
    Writing,
    Open(Box<Sender<FileDisk>>),
    Failed(String),
}

/// What a reader is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupPart {
    /// Nothing yet: the checkpoint is being written.
    Early,
    Bytes(Bytes),
    /// There is no more.
    End,
}

impl Default for BackupSource {
    fn default() -> Self {
        let (stage, last, used) = (Stage::Writing, (0, Bytes::new()), Instant::now());
        Self(Arc::new(Mutex::new(Reading { stage, last, used })))
    }
}

impl BackupSource {
    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of the stream at `offset`, of at most so many bytes: the one after the last, or the last again. Reads
    /// the disk.
    ///
    /// # Errors
    /// A sentence that says why there is none.
    pub fn part(&self, offset: u64, bytes_max: usize) -> Result<BackupPart, String> {
        let mut reading = self.lock();
        let Reading { stage, last, used } = &mut *reading;
        *used = Instant::now();
        let sender = match stage {
            Stage::Writing => return Ok(BackupPart::Early),
            Stage::Failed(why) => return Err(why.clone()),
            Stage::Open(sender) => sender,
        };
        if offset == last.0 && !last.1.is_empty() {
            return Ok(BackupPart::Bytes(last.1.clone()));
        }
        if offset != sender.offset() {
            return Err(format!("the next part begins at byte {}, not {offset}", sender.offset()));
        }
        match sender.next_bytes(bytes_max) {
            Ok(Some(bytes)) => {
                *last = (offset, bytes.clone());
                Ok(BackupPart::Bytes(bytes))
            }
            Ok(None) => Ok(BackupPart::End),
            Err(error) => Err(format!("the disk does not give these messages: {error}")),
        }
    }

    /// Somebody reads another group, and this one later.
    pub fn keep(&self) {
        self.lock().used = Instant::now();
    }

    /// For how long nobody has read.
    pub fn is_idle(&self) -> bool {
        self.lock().used.elapsed() > IDLE_MAX
    }
}

impl Cuts {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ask(&self) -> (u64, oneshot::Receiver<Made>, BackupSource) {
        let mut open = self.lock();
        open.next += 1;
        let (number, source, (asked, made)) =
            (open.next, BackupSource::default(), oneshot::channel());
        open.asked.insert(number, asked);
        open.sources.insert(number, source.clone());
        (number, made, source)
    }

    /// Nobody waits for it any more.
    pub(super) fn give_up(&self, number: u64) {
        let mut open = self.lock();
        open.asked.remove(&number);
        open.sources.remove(&number);
    }

    /// What the shard says: the index and its term.
    pub(crate) fn made(&self, number: u64, cut: Made) {
        if let Some(asked) = self.lock().asked.remove(&number) {
            let _ = asked.send(cut);
        }
    }

    /// What the flusher has. `None`: the checkpoint was not written.
    pub(crate) fn written(&self, number: u64, source: Option<Source<FileDisk>>) {
        let Some(waiting) = self.lock().sources.remove(&number) else { return };
        let failed = |why: &str| Stage::Failed(why.to_owned());
        let stage = match source.map(|source| Sender::new(source, number)) {
            Some(Ok(sender)) => Stage::Open(Box::new(sender)),
            Some(Err(refused)) => failed(&refused.to_string()),
            None => failed(
                "the node has no checkpoint of the group for the backup: its disk has too little room. See its log",
            ),
        };
        waiting.lock().stage = stage;
    }

    /// Lets go of what nobody waits for.
    pub(crate) fn forget_idle(&self) {
        let mut open = self.lock();
        open.sources.retain(|_, source| !source.is_idle());
        // A shard does not answer a question whose place a later one has taken.
        open.asked.retain(|_, asked| !asked.is_closed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_without_a_checkpoint_says_so() {
        let cuts = Cuts::default();
        let (number, _made, source) = cuts.ask();
        assert_eq!(source.part(0, 1), Ok(BackupPart::Early));
        cuts.written(number, None);
        assert!(source.part(0, 1).unwrap_err().contains("too little room"));
    }
}
