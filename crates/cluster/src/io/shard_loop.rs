//! The thread that drives one shard. Decides nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use machine::{NodeId, SessionId};

use super::failure::Failure;
use super::handle::Node;
use super::mailbox::AnswerBox;
use super::neighbours;
use super::store::{Flush, Read, Store};
use crate::exchange::{Cut, Now, Output};
use crate::group::catalog::{Applications, apply_and_tell};
use crate::housekeeping::Task;
use crate::limits::UNSYNCED_BYTES;
use crate::log_writer::Append;
use crate::peer::message::Message;
use crate::request::Answer;
use crate::shard::Shard;
use crate::snapshot::divert;

/// How often a shard that waits for its last syncs looks.
const CLOSING: Duration = Duration::from_millis(5);

/// Runs `shard` until its mailbox is closed and everything taken from it is synced and answered.
pub(crate) fn run(
    number: usize,
    mut shard: Shard,
    node: Arc<Node>,
    store: Arc<Store>,
    failure: &Failure,
) {
    let mailbox = Arc::clone(&node.shards[number]);
    let clock = Clock::start();
    let mut answers = Answers::default();
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    let (mut reported, mut tallied) = (0, 0);
    shard.start(clock.now(), &mut outputs);
    perform(number, &mut outputs, &node, &store, failure, &mut answers);
    loop {
        let is_closed = mailbox.is_closed();
        if is_closed {
            shard.close(clock.now());
        }
        let time = clock.now();
        let until_due = Duration::from_millis(shard.deadline_ms().saturating_sub(time.mono_ms));
        let timeout = if is_closed { until_due.min(CLOSING) } else { until_due };
        let release = shard.unsynced_bytes() < UNSYNCED_BYTES;
        mailbox.take(&mut inputs, Some(timeout), release);
        let is_last = is_closed && inputs.is_empty();
        for (from, message) in divert(&mut inputs) {
            store.snapshot(from, message);
        }
        shard.step(clock.now(), &mut inputs, &mut outputs);
        perform(number, &mut outputs, &node, &store, failure, &mut answers);
        node.reports.answer(number, &mut reported, &shard);
        node.tallies.answer(number, &mut tallied, &shard);
        if is_last && shard.is_idle(clock.now()) {
            return;
        }
    }
}

/// The time: the wall clock is looked at once, so that setting it does nothing to what waits.
struct Clock {
    started: Instant,
    wall_ms: u64,
}

impl Clock {
    fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), wall_ms: wall.as_millis() as u64 }
    }

    fn now(&self) -> Now {
        let mono_ms = self.started.elapsed().as_millis() as u64;
        Now { mono_ms, wall_ms: self.wall_ms + mono_ms }
    }
}

fn perform(
    number: usize,
    outputs: &mut Vec<Output>,
    node: &Node,
    store: &Store,
    failure: &Failure,
    answers: &mut Answers,
) {
    // One push per node, whatever there is.
    let mut letters: BTreeMap<NodeId, Vec<Message>> = BTreeMap::new();
    for output in outputs.drain(..) {
        match output {
            Output::Append { number: append, batch, entries } => {
                store.append(Append { shard: number, number: append, batch, entries });
            }
            Output::Answer { session, answer } => answers.add(session, answer, node),
            Output::Fetch(fetch) => store.read(Read::Fetch(fetch)),
            Output::Peek(peek) => store.read(Read::Peek(peek)),
            Output::Forward { shard, input } => node.shards[shard].push(input),
            Output::CatalogApplied { at, entry, forwards, leads } => {
                // Until all of it is done, no session looks.
                let mut catalog = node.catalog.write().unwrap_or_else(PoisonError::into_inner);
                for (shard, input) in forwards {
                    node.shards[shard].push(input);
                }
                let before = catalog.membership_version();
                let mut told = Vec::new();
                let applied =
                    apply_and_tell(&mut catalog, node.speaks, at.index, &entry, &mut told);
                let (_, all) = applied.expect("the shard has just applied it");
                if catalog.membership_version() != before || all.iter().any(Applications::has_start)
                {
                    neighbours::follow(node, &catalog);
                }
                if leads {
                    told.into_iter().for_each(|event| node.tell_event(event));
                }
            }
            Output::CatalogReplaced { catalog } => {
                neighbours::follow(node, &catalog);
                *node.catalog.write().unwrap_or_else(PoisonError::into_inner) = *catalog;
            }
            Output::SendSnapshot { group, to } => store.flush(Flush::SendSnapshot { group, to }),
            Output::InstallSnapshot { group, index, accept } => {
                store.flush(Flush::Task(Task::InstallSnapshot { group, index, accept }));
            }
            Output::Checkpoint(job) => store.flush(Flush::Task(Task::Checkpoint(job))),
            Output::Cut { group, number, cut: Ok(Cut { index, term, job }) } => {
                node.cuts.made(number, Ok((index, term)));
                store.flush(Flush::Cut { group, number, index, job });
            }
            Output::Cut { number, cut: Err(why), .. } => node.cuts.made(number, Err(why)),
            Output::Outdated { why } => failure.report_outdated(&why),
            Output::Reconciled => store.reconciled(),
            Output::CountsOn { voting } => {
                let catalog = node.catalog.read().unwrap_or_else(PoisonError::into_inner);
                node.counted.write().unwrap_or_else(PoisonError::into_inner).set(number, voting);
                if catalog.retired().next().is_some() {
                    neighbours::follow(node, &catalog);
                }
            }
            Output::ReadEntries { group, number, entries } => {
                store.read(Read::Entries { group, number, entries });
            }
            Output::Send { to, message } => letters.entry(to).or_default().push(message),
        }
    }
    if let Some(peers) = &node.peers {
        for (to, messages) in letters {
            peers.send(to, messages);
        }
    }
    answers.send(node);
}

/// Mailboxes of sessions that are gone are looked for when there are this many more than sessions.
const BOXES_SPARE: usize = 64;

/// Answers of one step, gathered per session so that each session is woken once.
#[derive(Default)]
struct Answers {
    boxes: BTreeMap<SessionId, (Arc<AnswerBox<Answer>>, Vec<Answer>)>,
    touched: Vec<SessionId>,
}

impl Answers {
    fn add(&mut self, session: SessionId, answer: Answer, node: &Node) {
        if let Answer::Leaving(_) = answer
            && self.boxes.get(&session).is_some_and(|(known, _)| known.is_closed())
        {
            // Another dead-letter worker goes on under the same number.
            self.boxes.remove(&session);
        }
        if let Some((_, waiting)) = self.boxes.get_mut(&session) {
            if waiting.is_empty() {
                self.touched.push(session);
            }
            waiting.push(answer);
        } else if let Some(found) = node.sessions.find(session) {
            self.touched.push(session);
            self.boxes.insert(session, (found, vec![answer]));
        }
    }

    fn send(&mut self, node: &Node) {
        for session in self.touched.drain(..) {
            let is_open = match self.boxes.get_mut(&session) {
                Some((answers, waiting)) => answers.push(waiting),
                None => true,
            };
            if !is_open {
                self.boxes.remove(&session);
            }
        }
        if self.boxes.len() > 2 * node.sessions.count() + BOXES_SPARE {
            self.boxes.retain(|session, _| node.sessions.find(*session).is_some());
        }
    }
}
