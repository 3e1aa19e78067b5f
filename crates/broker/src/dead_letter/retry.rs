//! Sends dead letters on from the queue that keeps them, because an operator wants so: back to where they died, or
//! elsewhere.
//!
//! ```text
//!   looking ──Peek──> leader      found ──Get at its place──> leader ──Got──> judged ──Append──> groups of the targets
//!                                                                               │                      │
//!                               leader <──Settle: undelivered── goes nowhere ───┘      leader <──Settle: done── logged
//! ```
//!
//! A retry holds each message while it carries it, so nobody else gets it. The message is let go of once all its targets
//! have it in their logs, as with the dead-letter worker: a crash in between leaves it in both places, and never in none.
//! What cannot be sent on is given back as if nobody had taken it. One message may be mended on its way (`edit`). How a
//! message is rewritten and routed is the dead-letter worker's (`rewrite`, `route`), and so is the way into logs
//! (`outgoing`). It is a core: its shell is `io::retry`.

mod edit;
mod looking;
mod plan;
mod progress;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cluster::{Alarms, Answer, Delivery, PeekedMessage, Request, Ticket};
use machine::{Catalog, ConsumerId, Messages, Outcome, Position, QueueId, Ranges, SessionId};

pub use self::edit::Edit;
pub use self::plan::{Filter, Plan, To, Which};
pub use self::progress::{Progress, State, Stays};
pub use super::limits::{LETTER_HEADERS_BYTES_MAX, RETRIES_MAX, RETRY_RATE_MAX};

use self::looking::{Found, Looking};
use super::limits::{RETRY, RETRY_BURST, RETRY_BYTES_MAX, RETRY_MESSAGES_MAX};
use super::outgoing::{Outgoing, RunNumber};
use super::route::{Fate, Forwarded, Origin, Source};
use super::story::Story;
use super::tickets::Tickets;
use crate::auth::{self, Verb};
use crate::rights::Rights;

/// What happens to a retry.
#[derive(Debug)]
pub enum Input<'a> {
    /// What the cluster says. What is taken is drained.
    Answered(&'a mut Vec<Answer>),
    /// The moment that `deadline` named has come.
    DeadlinePassed,
    /// It is to end: nothing more is taken.
    Stop,
}

/// A message that is meant, and was not taken yet.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    position: Position,
    bytes: u64,
}

/// A message that is held.
#[derive(Debug)]
struct Taken {
    level: QueueId,
    seq: u64,
    bytes: u64,
    /// Appends that are not logged.
    waits_for: usize,
    /// One of its targets was gone before it had it.
    is_lost: bool,
}

/// One run of a plan.
#[derive(Debug)]
pub struct Retrier {
    plan: Plan,
    rights: Rights,
    /// What makes letters of the queue's messages.
    source: Source,
    consumer: ConsumerId,
    /// Milliseconds since 1970 when it began.
    began_ms: u64,
    tickets: Tickets,
    looking: Looking,
    candidates: VecDeque<Candidate>,
    asked: BTreeMap<Ticket, Candidate>,
    taken: BTreeMap<RunNumber, Taken>,
    last: RunNumber,
    /// Of what is asked for or held.
    bytes: u64,
    /// Messages that were chosen, of `count_max`.
    chosen: u64,
    outgoing: Outgoing,
    settled: BTreeMap<(QueueId, u8), Ranges>,
    next_take_at: Duration,
    alarms: Alarms,
    forwarded: Forwarded,
    levels: Vec<QueueId>,
    is_stopping: bool,
    progress: Progress,
}

impl Retrier {
    /// `began_ms` is the time, milliseconds since 1970.
    pub fn new(
        session: SessionId,
        plan: Plan,
        began_ms: u64,
        alarms: Alarms,
        append_bytes: usize,
    ) -> Self {
        let is_one = matches!(&plan.which, Which::At(places) if places.len() == 1);
        assert!(plan.edit.is_none() || is_one, "several messages would become the same");
        let rights = plan.grant.clone().map_or(Rights::Catalog, Rights::Token);
        Self {
            rights,
            source: Source::of_retry(&plan.vhost, &plan.queue),
            consumer: ConsumerId { session, number: 0 },
            began_ms,
            tickets: Tickets::default(),
            looking: Looking::new(&plan),
            candidates: VecDeque::new(),
            asked: BTreeMap::new(),
            taken: BTreeMap::new(),
            last: 0,
            bytes: 0,
            chosen: 0,
            outgoing: Outgoing::new(append_bytes),
            settled: BTreeMap::new(),
            next_take_at: Duration::ZERO,
            alarms,
            forwarded: Forwarded::default(),
            levels: Vec::new(),
            is_stopping: false,
            progress: Progress::default(),
            plan,
        }
    }

    /// Does what follows from `input`. `now` counts from when the retry began; `catalog` is this node's applied copy.
    pub fn step(
        &mut self,
        now: Duration,
        catalog: &Catalog,
        input: Input<'_>,
        requests: &mut Vec<Request>,
    ) {
        match input {
            Input::Answered(answers) => {
                for answer in answers.drain(..) {
                    self.answered(now, catalog, answer);
                }
            }
            Input::DeadlinePassed => {}
            Input::Stop => self.stop(State::Stopped),
        }
        self.outgoing.wake(now, &mut self.tickets, requests);
        if self.candidates.is_empty() && self.progress.state == State::Running {
            let ticket = self.tickets.issue();
            requests.extend(self.looking.ask(now, &self.plan, ticket));
        }
        self.take(now, requests);
        self.outgoing.flush(&mut self.tickets, requests);
        self.flush(requests);
        let is_through = self.looking.is_over() && self.candidates.is_empty();
        if is_through && self.is_quiet() && self.progress.state == State::Running {
            self.progress.state = State::Done;
        }
    }

    /// When the retry wants `Input::DeadlinePassed` at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        let take_at = (!self.candidates.is_empty() && self.has_room()).then_some(self.next_take_at);
        [take_at, self.looking.deadline(), self.outgoing.deadline()].into_iter().flatten().min()
    }

    /// Whether it is over, and nothing is on its way.
    pub fn is_over(&self) -> bool {
        self.progress.state != State::Running && self.is_quiet()
    }

    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    fn is_quiet(&self) -> bool {
        self.asked.is_empty() && self.taken.is_empty()
    }

    /// Whether another message may be taken.
    fn has_room(&self) -> bool {
        let count = self.asked.len() + self.taken.len();
        let is_bytes_full = count > 0 && self.bytes >= RETRY_BYTES_MAX;
        count < RETRY_MESSAGES_MAX
            && !is_bytes_full
            && !self.outgoing.is_full()
            && !self.alarms.any()
    }

    fn stop(&mut self, state: State) {
        self.is_stopping = true;
        self.candidates.clear();
        self.looking.end();
        if self.progress.state == State::Running {
            self.progress.state = state;
        }
        self.progress.waits_for = None;
    }

    fn answered(&mut self, now: Duration, catalog: &Catalog, answer: Answer) {
        match answer {
            Answer::Peeked { ticket, result } if self.looking.is_asked(ticket) => {
                match self.looking.answered(now, result.map(|peeked| *peeked)) {
                    Found::Messages(messages) => self.found(now, catalog, &messages),
                    Found::Nothing => self.progress.gone += 1,
                    Found::Later(why) => self.progress.waits_for = Some(why),
                    Found::NoQueue => self.stop(State::NoQueue),
                }
            }
            Answer::Got { ticket, delivery, .. } => self.got(now, catalog, ticket, delivery),
            Answer::Appended { ticket } => {
                for run in self.outgoing.logged(ticket) {
                    self.pass(run, false);
                }
            }
            Answer::AppendFailed { ticket } => self.failed(now, catalog, ticket),
            Answer::Alarms(alarms) => self.alarms = alarms,
            Answer::Stopping => self.stop(State::Stopped),
            // Nothing that a retry asks for.
            Answer::Peeked { .. }
            | Answer::Locked { .. }
            | Answer::Catalog { .. }
            | Answer::Attached { .. }
            | Answer::Detached { .. }
            | Answer::Delivered(_)
            | Answer::Leaving(_)
            | Answer::Purged { .. }
            | Answer::Withheld { .. }
            | Answer::Status { .. }
            | Answer::Described { .. }
            | Answer::Closed { .. }
            | Answer::Admitted { .. }
            | Answer::Cancelled { .. }
            | Answer::Elected { .. }
            | Answer::SessionEnded { .. } => {}
        }
    }

    /// A group could not be asked, or did not take something.
    fn failed(&mut self, now: Duration, catalog: &Catalog, ticket: Ticket) {
        if self.looking.is_asked(ticket) {
            let found = self.looking.answered(now, Err(cluster::NotPeeked::NoLeader));
            if let Found::Later(why) = found {
                self.progress.waits_for = Some(why);
            }
        } else if let Some(candidate) = self.asked.remove(&ticket) {
            self.bytes -= candidate.bytes;
            if !self.is_stopping {
                self.candidates.push_front(candidate);
                self.next_take_at = self.next_take_at.max(now + RETRY);
            }
        } else {
            // Those whose queues are gone are not sent again: their messages stay.
            let lost = self.outgoing.refused(ticket, catalog, now + RETRY);
            lost.into_iter().flatten().for_each(|run| self.pass(run, true));
        }
    }

    /// Messages that lie in the queue.
    fn found(&mut self, now: Duration, catalog: &Catalog, messages: &[PeekedMessage]) {
        self.progress.waits_for = None;
        for message in messages {
            if self.chosen >= self.plan.count_max {
                return self.looking.end();
            }
            self.progress.seen += 1;
            let story = Story::of(&message.head, &self.plan.queue);
            let is_meant = match &self.plan.which {
                Which::At(_) => true,
                Which::All(filter) => filter.takes(&story),
            };
            if !is_meant {
                continue;
            }
            self.progress.matched += 1;
            self.chosen += 1;
            if !self.plan.is_dry {
                let bytes = message.head.len() as u64 + message.body_bytes;
                self.candidates.push_back(Candidate { position: message.is.position, bytes });
                continue;
            }
            match self.judge(now, catalog, &message.head) {
                Ok((exchange, key)) => {
                    self.progress.sent += 1;
                    self.progress.goes(&exchange, &key);
                }
                Err(why) => self.progress.stays(why),
            }
        }
    }

    /// Asks for as many messages as there is room for, at the pace that is wanted.
    fn take(&mut self, now: Duration, requests: &mut Vec<Request>) {
        while self.next_take_at <= now
            && self.has_room()
            && let Some(candidate) = self.candidates.pop_front()
        {
            if let Some(rate) = self.plan.rate {
                let since = self.next_take_at.max(now.saturating_sub(RETRY_BURST));
                self.next_take_at = since + Duration::from_secs(1) / rate.max(1);
            }
            let ticket = self.tickets.issue();
            let (group, queue) = self.plan.place;
            let (consumer, at) = (self.consumer, Some(candidate.position));
            self.bytes += candidate.bytes;
            self.asked.insert(ticket, candidate);
            requests.push(Request::Get { ticket, group, queue, consumer, no_ack: false, at });
        }
    }

    /// A message that was asked for, unless somebody else has it.
    fn got(
        &mut self,
        now: Duration,
        catalog: &Catalog,
        ticket: Ticket,
        delivery: Option<Delivery>,
    ) {
        let Some(Candidate { bytes, .. }) = self.asked.remove(&ticket) else { return };
        let Some(Delivery { queue: level, store, first_seq: seq, bytes: run, .. }) = delivery
        else {
            self.bytes -= bytes;
            self.progress.gone += 1;
            return;
        };
        let mut taken = Taken { level, seq, bytes, waits_for: 0, is_lost: false };
        let message = Messages::of(store, &run).next();
        let (Some((head, body)), false) = (message, self.is_stopping) else {
            return self.let_go(&taken, Outcome::Undelivered);
        };
        match self.judge(now, catalog, head) {
            Err(why) => {
                self.progress.stays(why);
                self.let_go(&taken, Outcome::Undelivered);
            }
            Ok((exchange, key)) => {
                self.last += 1;
                let payload = self.plan.edit.as_ref().and_then(|edit| edit.payload.clone());
                taken.waits_for = self.store(self.last, payload.as_deref().unwrap_or(body));
                if planted::is("retry_settled_first") {
                    self.let_go(&taken, Outcome::Done);
                }
                self.progress.goes(&exchange, &key);
                self.taken.insert(self.last, taken);
            }
        }
    }

    /// Where a message goes: `forwarded` has it as it is stored there.
    fn judge(
        &mut self,
        now: Duration,
        catalog: &Catalog,
        head: &[u8],
    ) -> Result<(String, String), Stays> {
        let Plan { vhost, queue, to, retries_max, user, edit, .. } = &self.plan;
        let Story { death, retries } = Story::of(head, queue);
        if retries_max.is_some_and(|max| retries >= max) {
            return Err(Stays::TooOften);
        }
        let (exchange, key) = match to {
            To::Named { exchange, key } => (exchange.clone(), key.clone()),
            To::Queue => (String::new(), death.ok_or(Stays::NoDeath)?.queue),
            To::Exchange => {
                let death = death.ok_or(Stays::NoDeath)?;
                (death.exchange, death.key)
            }
        };
        let verb = Verb::Publish { exchange: &exchange, key: &key };
        auth::allow(catalog, &self.rights, user, vhost, verb).map_err(|_| Stays::NotAllowed)?;
        let retries = i64::from(retries.saturating_add(1));
        let time_ms = self.began_ms + u64::try_from(now.as_millis()).unwrap_or(0);
        let chance = self.last.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let edited = edit.as_ref().map(|edit| edit.head(head, user));
        let head = edited.as_deref().unwrap_or(head);
        let fate = {
            let place = (exchange.as_str(), key.as_str());
            let origin = Origin::of_retry(catalog, &self.source, place, retries);
            origin.forward(time_ms, head, chance, &mut self.forwarded)
        };
        match fate {
            Fate::Routed => {}
            Fate::NoExchange => return Err(Stays::NoExchange),
            Fate::Unroutable | Fate::Aside | Fate::Cycle => return Err(Stays::Unroutable),
        }
        let (_, here) = self.plan.place;
        self.forwarded.targets.retain(|target| target.queue.base() != here.base());
        if self.forwarded.targets.iter().all(|target| target.is_history) {
            return Err(Stays::SameQueue);
        }
        Ok((exchange, key))
    }

    /// What `forwarded` has, to its targets: into so many appends.
    fn store(&mut self, run: RunNumber, body: &[u8]) -> usize {
        let Forwarded { targets, head, asked, .. } = &mut self.forwarded;
        targets.sort_unstable_by_key(|target| (target.group, target.queue));
        let mut appends = 0;
        for alike in targets.chunk_by(|one, two| one.group == two.group) {
            let Some(first) = alike.first() else { continue };
            self.levels.clear();
            self.levels.extend(alike.iter().map(|target| asked.level(target)));
            let to = (first.group, &asked.attributes(false), &self.levels[..]);
            appends += usize::from(self.outgoing.add(run, to, head, body));
        }
        appends
    }

    /// One append less that a message waits for.
    fn pass(&mut self, run: RunNumber, is_lost: bool) {
        let Some(taken) = self.taken.get_mut(&run) else { return };
        taken.waits_for -= 1;
        taken.is_lost |= is_lost;
        if taken.waits_for > 0 {
            return;
        }
        let Some(taken) = self.taken.remove(&run) else { return };
        if taken.is_lost {
            self.progress.stays(Stays::Unroutable);
            self.let_go(&taken, Outcome::Undelivered);
        } else {
            self.progress.sent += 1;
            if !planted::is("retry_settled_first") {
                self.let_go(&taken, Outcome::Done);
            }
        }
    }

    /// The queue may forget a message, or has it back.
    fn let_go(&mut self, taken: &Taken, outcome: Outcome) {
        self.bytes -= taken.bytes;
        let settled = self.settled.entry((taken.level, outcome.number())).or_default();
        settled.insert(taken.seq..taken.seq + 1);
    }

    fn flush(&mut self, requests: &mut Vec<Request>) {
        let (group, _) = self.plan.place;
        for ((queue, number), ranges) in std::mem::take(&mut self.settled) {
            let outcome = Outcome::from_number(number).expect("the number of an outcome");
            let consumer = self.consumer;
            requests.push(Request::Settle { group, queue, consumer, ranges, outcome, credit: 0 });
        }
    }
}
