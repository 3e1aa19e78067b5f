//! What the shards lead, for metrics and for operators. Shards look at one number per step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use machine::NodeId;

use super::mailbox::Mailbox;
use crate::exchange::Input;
use crate::limits::TALLIED_QUEUES_MAX;
use crate::locked::LockLine;
use crate::shard::{
    Behind, GroupReport, LedQueue, Piece, Shard, StreamPlace, WantedLine, WantedPlace,
};

/// How long all pieces together may take.
const WAIT: Duration = Duration::from_secs(5);

/// How a node's groups stand.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Of which this node has a replica. Their digests are 0.
    pub groups: Vec<GroupReport>,
    /// Other nodes that can be reached.
    pub up: Vec<NodeId>,
    /// Queues that came to be and went while this node led them, since its start.
    pub created: u64,
    pub deleted: u64,
}

/// What was asked of each shard, and its last answer. One walk at a time.
#[derive(Debug)]
pub(crate) struct Tallies {
    asked: AtomicU64,
    rounds: Mutex<Vec<Round>>,
    changed: Condvar,
    walking: Mutex<()>,
}

/// What a shard is asked.
#[derive(Clone, Debug)]
enum Wanted {
    /// The queues that it leads behind this one.
    Piece(Behind),
    /// Where in streams somebody would begin to read.
    Places(Arc<[WantedPlace]>),
    /// Who waits for a lock.
    Line(Arc<WantedLine>),
}

/// What it answers.
#[derive(Clone, Debug)]
enum Told {
    Piece(Piece),
    Places(Vec<StreamPlace>),
    /// `None`: it does not lead the lock's group.
    Line(Option<LockLine>),
}

/// Of one shard.
#[derive(Clone, Debug, Default)]
struct Round {
    /// Which question it is: an answer to one before it comes too late.
    number: u64,
    /// What is asked. None: nothing more.
    wanted: Option<Wanted>,
    told: Option<Told>,
}

impl Tallies {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            asked: AtomicU64::new(0),
            rounds: Mutex::new(vec![Round::default(); shards]),
            changed: Condvar::new(),
            walking: Mutex::new(()),
        }
    }

    /// Called by a shard's thread after a step: answers if somebody has asked since `last`.
    pub(crate) fn answer(&self, shard: usize, last: &mut u64, state: &Shard) {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked == *last {
            return;
        }
        *last = asked;
        let (number, wanted) = {
            let round = &self.rounds.lock().unwrap_or_else(PoisonError::into_inner)[shard];
            (round.number, round.wanted.clone())
        };
        let told = match wanted {
            None => return,
            Some(Wanted::Piece(behind)) => Told::Piece(state.tally(behind, TALLIED_QUEUES_MAX)),
            Some(Wanted::Places(wanted)) => Told::Places(state.places(&wanted)),
            Some(Wanted::Line(wanted)) => Told::Line(state.lock_line(&wanted)),
        };
        let round = &mut self.rounds.lock().unwrap_or_else(PoisonError::into_inner)[shard];
        if round.number == number {
            *round = Round { number, wanted: None, told: Some(told) };
            self.changed.notify_all();
        }
    }

    /// Asks all shards for piece after piece. `None`: one of them was not through in time. Blocks.
    pub(crate) fn walk(
        &self,
        shards: &[Arc<Mailbox<Input>>],
        mut each: impl FnMut(&[LedQueue]),
    ) -> Option<Tally> {
        let _walk = self.walking.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + WAIT;
        let mut tally = Tally::default();
        let mut wanted: Vec<Option<Wanted>> = vec![Some(Wanted::Piece(None)); shards.len()];
        while wanted.iter().any(Option::is_some) {
            for (place, told) in self.ask(shards, &wanted, deadline)? {
                let Told::Piece(piece) = told else { return None };
                each(&piece.queues);
                let last = piece.queues.last().map(|led| (led.group, led.queue));
                wanted[place] = piece.is_cut.then_some(Wanted::Piece(last));
                tally.groups.extend(piece.groups);
                tally.up.extend(piece.up);
                tally.created += piece.created;
                tally.deleted += piece.deleted;
            }
        }
        tally.groups.sort_by_key(|report| report.group);
        tally.up.sort_unstable();
        tally.up.dedup();
        Some(tally)
    }

    /// Asks all shards where somebody would begin to read. `None`: one of them did not answer in time. Blocks.
    pub(crate) fn places(
        &self,
        shards: &[Arc<Mailbox<Input>>],
        wanted: Arc<[WantedPlace]>,
    ) -> Option<Vec<StreamPlace>> {
        let _walk = self.walking.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + WAIT;
        let wanted = vec![Some(Wanted::Places(wanted)); shards.len()];
        let told = self.ask(shards, &wanted, deadline)?;
        let places = told.into_iter().filter_map(|(_, told)| match told {
            Told::Places(places) => Some(places),
            Told::Piece(_) | Told::Line(_) => None,
        });
        Some(places.flatten().collect())
    }

    /// Asks all shards who waits for a lock. `None`: none of them leads its group, or one did not answer in time. Blocks.
    pub(crate) fn lock_line(
        &self,
        shards: &[Arc<Mailbox<Input>>],
        wanted: WantedLine,
    ) -> Option<LockLine> {
        let _walk = self.walking.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + WAIT;
        let wanted = vec![Some(Wanted::Line(Arc::new(wanted))); shards.len()];
        let told = self.ask(shards, &wanted, deadline)?;
        told.into_iter().find_map(|(_, told)| match told {
            Told::Line(line) => line,
            Told::Piece(_) | Told::Places(_) => None,
        })
    }

    /// What each shard says that is asked something.
    fn ask(
        &self,
        shards: &[Arc<Mailbox<Input>>],
        wanted: &[Option<Wanted>],
        deadline: Instant,
    ) -> Option<Vec<(usize, Told)>> {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        for (round, wanted) in rounds.iter_mut().zip(wanted) {
            *round = Round { number, wanted: wanted.clone(), told: None };
        }
        for (shard, wanted) in shards.iter().zip(wanted) {
            if wanted.is_some() {
                shard.push(Input::TimePassed);
            }
        }
        while rounds.iter().any(|round| round.wanted.is_some()) {
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(rounds, left);
            rounds = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let told = rounds.iter_mut().enumerate();
        Some(told.filter_map(|(place, round)| Some((place, round.told.take()?))).collect())
    }
}
