//! What all live streams share: what they have been told, and the last turns.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use machine::QueueId;
use tokio::sync::{Notify, watch};

use crate::limits::LIVE_TICKS_KEPT;
use crate::live::{Board, VhostEvent};
use crate::problems::Gathered;

/// What all streams share.
#[derive(Debug)]
pub(in super::super) struct Live {
    board: Mutex<Board>,
    pub(super) ticks: watch::Sender<Arc<Ticks>>,
    /// Somebody has begun to listen.
    pub(super) opened: Notify,
}

/// The last turns.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticks {
    newest: u64,
    kept: VecDeque<Arc<Tick>>,
}

/// What has changed in one turn.
#[derive(Debug)]
pub(super) struct Tick {
    pub(super) queues: Vec<VhostEvent>,
    pub(super) overview: Bytes,
    /// For who sees nodes.
    pub(super) nodes: Bytes,
    /// What is wrong: the same until it is looked for again.
    pub(super) problems: Arc<Gathered>,
}

impl Ticks {
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// A turn by its number, if it is kept.
    pub(super) fn find(&self, number: u64) -> Option<Arc<Tick>> {
        let back = self.newest.checked_sub(number)?;
        let place = (self.kept.len() as u64).checked_sub(back + 1)?;
        self.kept.get(place as usize).cloned()
    }

    /// Nobody listens: nothing is kept.
    pub(super) fn forget(&mut self) {
        self.kept.clear();
    }

    pub(super) fn push(&mut self, tick: Tick) {
        self.newest += 1;
        self.kept.push_back(Arc::new(tick));
        if self.kept.len() > LIVE_TICKS_KEPT {
            self.kept.pop_front();
        }
    }
}

impl Default for Live {
    fn default() -> Self {
        Self {
            board: Mutex::default(),
            ticks: watch::Sender::new(Arc::default()),
            opened: Notify::new(),
        }
    }
}

impl Live {
    /// Hears of turns from now on.
    pub(super) fn listen(&self) -> watch::Receiver<Arc<Ticks>> {
        let ticks = self.ticks.subscribe();
        self.opened.notify_one();
        ticks
    }

    pub(super) fn snapshot(
        &self,
        behind: Option<QueueId>,
        sees: impl Fn(&str) -> bool,
    ) -> (Option<Bytes>, Option<QueueId>) {
        self.board().snapshot(behind, sees)
    }

    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(name: &str) -> Tick {
        let event = Bytes::from(name.to_owned());
        let (overview, nodes) = (event.clone(), event);
        Tick { queues: Vec::new(), overview, nodes, problems: Arc::default() }
    }

    #[test]
    fn the_last_turns_are_kept_and_who_is_behind_them_finds_none() {
        let mut ticks = Ticks::default();
        assert!(ticks.find(0).is_none() && ticks.find(1).is_none());
        for number in 1..=9 {
            ticks.push(tick(&number.to_string()));
        }
        assert_eq!(ticks.newest(), 9);
        assert_eq!(ticks.find(9).unwrap().overview, "9");
        assert_eq!(ticks.find(5).unwrap().overview, "5");
        assert!(ticks.find(4).is_none() && ticks.find(10).is_none());
        ticks.forget();
        assert!(ticks.find(9).is_none());
        ticks.push(tick("10"));
        assert_eq!((ticks.newest(), ticks.find(10).is_some()), (10, true));
    }
}
