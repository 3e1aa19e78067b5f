//! The tracker's core: told the notes, it says which to acknowledge, which to merge, and which batch is over.
//!
//! It is one at a time: the io holds the exclusive consumer of the notes' queue. What it holds is what the broker
//! would deliver to the next tracker, so it may be lost at any moment.

use std::collections::{BTreeMap, VecDeque};

use crate::limits::{BATCHES_OPEN_MAX, BATCHES_OVER_MAX, NOTES_HELD_MAX};
use crate::settlement::Publish;

use super::{Batch, Body, End, Ended, body, check_names, completion_job, publish};
use crate::chain::derived_id;

/// Notes of one batch are merged once there are so many, or an eighth of the jobs that are over.
const MERGE_AT: usize = 64;
/// Notes are merged, even one, after so long: a broker takes a message back that is held too long (RabbitMQ: 30
/// minutes), and counts that.
const HOLD_MS_MAX: i64 = 10 * 60 * 1000;
/// Notes may have so large a share of what the tracker may hold before all batches merge.
const HELD_HIGH: usize = NOTES_HELD_MAX as usize / 2;

/// Names a delivery until it is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held(pub u64);

/// A note that was read.
#[derive(Clone, Debug)]
pub struct Note {
    batch: Batch,
    ended: Ended,
    since_ms: Option<i64>,
}

impl Note {
    /// Reads a note's body.
    ///
    /// # Errors
    /// It is none: it cannot have come from a worker of this version or an older one.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let body: Body =
            serde_json::from_slice(bytes).map_err(|error| format!("it is no note: {error}"))?;
        check_names(&body.id, body.size)?;
        let mut ended = Ended::default();
        ended.decode(&body.dead, End::Dead)?;
        ended.decode(&body.done, End::Done)?;
        let batch = Batch { id: body.id, size: body.size, completion: body.completion };
        Ok(Self { batch, ended, since_ms: body.since_ms })
    }

    /// Which batch it is about.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// What it says.
    pub fn ended(&self) -> &Ended {
        &self.ended
    }
}

/// What a tracker wants done, in this order: publish and await the confirm, then acknowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The batch is over: its completion, and then all its notes.
    Complete { id: String, done: usize, dead: usize, publish: Publish, acks: Vec<Held> },
    /// The union of these notes, instead of them.
    Merge { publish: Publish, acks: Vec<Held> },
    /// These say nothing new, of a batch that is over.
    Ack(Vec<Held>),
    /// The batch is given up: its jobs did not come for too long.
    Abandon { id: String, size: u32, over: usize, acks: Vec<Held> },
}

#[derive(Debug)]
struct Open {
    batch: Batch,
    ended: Ended,
    /// Each with the time when it came.
    held: VecDeque<(Held, i64)>,
    since_ms: i64,
    /// A union is published and was not delivered yet: no other is.
    is_merging: bool,
}

/// The notes of all batches that are not over.
#[derive(Debug)]
pub struct Tracker {
    open: BTreeMap<String, Open>,
    /// Ids of batches that are over, oldest first.
    over: VecDeque<String>,
    held: usize,
    age_ms_max: i64,
}

impl Tracker {
    /// Batches are given up after `age_ms_max` milliseconds.
    pub fn new(age_ms_max: i64) -> Self {
        Self { open: BTreeMap::new(), over: VecDeque::new(), held: 0, age_ms_max }
    }

    /// A note came.
    pub fn take(&mut self, held: Held, note: Note, now_ms: i64) -> Vec<Action> {
        let Note { batch, ended, since_ms } = note;
        let id = batch.id.clone();
        if self.over.contains(&id) {
            return vec![Action::Ack(vec![held])];
        }
        let mut actions = Vec::from_iter(self.make_room(&id));
        self.held += 1;
        let is_union = since_ms.is_some();
        let since_ms = since_ms.unwrap_or(now_ms).min(now_ms);
        let open = self.open.entry(id.clone()).or_insert_with(|| Open {
            batch,
            ended: Ended::default(),
            held: VecDeque::new(),
            since_ms,
            is_merging: false,
        });
        open.since_ms = open.since_ms.min(since_ms);
        open.held.push_back((held, now_ms));
        open.is_merging &= !is_union;
        if cfg!(bug_batch_counts_twice) {
            open.ended.merge(&ended.salted(held.0));
        } else {
            open.ended.merge(&ended);
        }
        let count = open.held.len();
        let is_much = count >= MERGE_AT.max(open.ended.len() / 8);
        if open.ended.len() >= open.batch.size as usize {
            actions.extend(self.complete(&id));
        } else if !open.is_merging && (is_much || self.held > HELD_HIGH && count > 1) {
            actions.push(self.merge(&id));
        }
        actions
    }

    /// If there are too many batches, the oldest goes: it is the least likely to be completed.
    fn make_room(&mut self, id: &str) -> Option<Action> {
        if self.open.contains_key(id) || self.open.len() < BATCHES_OPEN_MAX {
            return None;
        }
        let oldest = self.open.iter().min_by_key(|(_, open)| open.since_ms);
        let oldest = oldest.map(|(id, _)| id.clone())?;
        self.abandon(&oldest)
    }

    /// Time has passed: what is held for long is merged, what is too old is given up.
    pub fn tick(&mut self, now_ms: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        for id in self.open.keys().cloned().collect::<Vec<_>>() {
            let open = &self.open[&id];
            if now_ms - open.since_ms > self.age_ms_max {
                actions.extend(self.abandon(&id));
            } else if !open.is_merging
                && open.held.front().is_some_and(|(_, since)| now_ms - since > HOLD_MS_MAX)
            {
                actions.push(self.merge(&id));
            }
        }
        actions
    }

    /// How many batches are open, and how many notes are held for them.
    pub fn counts(&self) -> (usize, usize) {
        (self.open.len(), self.held)
    }

    fn complete(&mut self, id: &str) -> Option<Action> {
        let open = self.remove(id)?;
        let (done, dead) = (open.ended.count(End::Done), open.ended.count(End::Dead));
        assert_eq!(done + dead, open.ended.len(), "a job is done or dead");
        let acks = open.held.iter().map(|(held, _)| *held).collect();
        self.over.push_back(id.to_owned());
        if self.over.len() > BATCHES_OVER_MAX {
            self.over.pop_front();
        }
        match completion_job(&open.batch, done, dead) {
            Ok(publish) => Some(Action::Complete { id: id.to_owned(), done, dead, publish, acks }),
            // It was judged before the jobs ran; a note from elsewhere is let go.
            Err(_) => Some(Action::Ack(acks)),
        }
    }

    fn abandon(&mut self, id: &str) -> Option<Action> {
        let open = self.remove(id)?;
        let acks = open.held.iter().map(|(held, _)| *held).collect();
        let (size, over) = (open.batch.size, open.ended.len());
        Some(Action::Abandon { id: id.to_owned(), size, over, acks })
    }

    fn remove(&mut self, id: &str) -> Option<Open> {
        let open = self.open.remove(id)?;
        self.held -= open.held.len();
        Some(open)
    }

    fn merge(&mut self, id: &str) -> Action {
        let open = self.open.get_mut(id).expect("it is among the open");
        let acks: Vec<Held> = open.held.drain(..).map(|(held, _)| held).collect();
        self.held -= acks.len();
        open.is_merging = true;
        let body = body(&open.batch, &open.ended, Some(open.since_ms));
        // Never the same twice: a queue that drops repeats would lose it.
        let (count, last) = (open.ended.len(), acks.last().map_or(0, |held| held.0));
        let id = derived_id(&format!("union:{id}:{count}:{}:{last}", open.since_ms));
        Action::Merge { publish: publish(id, body), acks }
    }
}
