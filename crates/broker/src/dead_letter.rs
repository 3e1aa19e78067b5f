//! Carries dead messages from their queues to where they go.
//!
//! ```text
//!   leader ──Leaving──> worker ──Append──> groups of the targets ──Appended──> worker ──Settle──> leader
//! ```
//!
//! Every node has a dead-letter worker: a session that nobody is connected to. A leader gives the worker of its own
//! node what is dead in its queues. The worker makes dead letters of it (`rewrite`), finds where they go (`route`) and
//! appends them there (`outgoing`). Only when all of them are logged does it tell the source (`runs`): a crash in
//! between repeats some, and loses none. It is a core: its shell is `io::dead_letter`; the simulator runs it, too.

mod death;
pub mod limits;
mod metrics;
mod notices;
mod outgoing;
mod questions;
pub mod retry;
mod rewrite;
mod route;
mod runs;
mod story;
#[cfg(test)]
mod tests;
mod tickets;
mod x_death;

use std::collections::VecDeque;
use std::time::Duration;

use cluster::{Answer, Leaving, Request, Ticket};
use machine::{Catalog, Messages, NodeId, QueueId, Ranges, SessionId, SessionOwner};

pub use self::metrics::DeadLetterMetrics;
use self::notices::Notices;
pub(crate) use self::notices::{Counts, Notice};
use self::outgoing::{Outgoing, RunNumber};
use self::questions::{Questions, Resolved};
pub(crate) use self::route::{Fate, Forwarded, forward};
use self::route::{NoOrigin, NoSource, Origin, Source};
use self::runs::Runs;
pub use self::story::{Story, ToldDeath};
use self::tickets::Tickets;

/// What happens to a dead-letter worker.
#[derive(Debug)]
pub enum Input<'a> {
    /// What the cluster says. What is taken is drained.
    Answered(&'a mut Vec<Answer>),
    /// The moment that `deadline` named has come.
    DeadlinePassed,
    /// The node stops: nothing new is begun.
    Stop,
}

/// What a dead-letter worker wants done. The shell empties it.
#[derive(Debug, Default)]
pub struct Outputs {
    /// For the cluster, in order.
    pub requests: Vec<Request>,
    /// For the log.
    pub(crate) notices: Vec<Notice>,
}

/// Dead messages that are not through yet.
#[derive(Debug)]
struct Task {
    leaving: Leaving,
    /// Found when they came: their queue may go before they do.
    source: Option<Source>,
    /// Which of them: the dead-letter worker may have had the others already.
    ranges: Ranges,
    /// Tasks that came later have greater numbers.
    arrival: u64,
    /// The first of them that nothing was done about.
    next: u32,
    run: Option<RunNumber>,
}

/// The dead-letter worker of a node.
#[derive(Debug)]
pub struct DeadLetterWorker {
    session: SessionId,
    tickets: Tickets,
    /// Not begun, or in the middle: in order.
    tasks: VecDeque<Task>,
    arrivals: u64,
    questions: Questions<Task>,
    /// Waits for a better moment.
    later: Vec<Task>,
    later_at: Option<Duration>,
    outgoing: Outgoing,
    runs: Runs,
    notices: Notices,
    forwarded: Forwarded,
    levels: Vec<QueueId>,
    chance: u64,
    /// Messages that this step may still send on.
    budget: u32,
    /// There is more to do than one step does.
    goes_on_at: Option<Duration>,
    is_stopping: bool,
}

impl DeadLetterWorker {
    /// `chance` is drawn for exchanges that choose by it; past `append_bytes` the next letter begins another append.
    pub fn new(session: SessionId, node: NodeId, chance: u64, append_bytes: usize) -> Self {
        Self {
            session,
            tickets: Tickets::default(),
            tasks: VecDeque::new(),
            arrivals: 0,
            questions: Questions::new(SessionOwner { node, session }),
            later: Vec::new(),
            later_at: None,
            outgoing: Outgoing::new(append_bytes),
            runs: Runs::default(),
            notices: Notices::default(),
            forwarded: Forwarded::default(),
            levels: Vec::new(),
            chance,
            budget: 0,
            goes_on_at: None,
            is_stopping: false,
        }
    }

    /// Does what follows from `input`. `now` counts from when the worker was made, as all its times do; `catalog` is
    /// this node's applied copy.
    pub fn step(&mut self, now: Duration, catalog: &Catalog, input: Input<'_>, out: &mut Outputs) {
        match input {
            Input::Answered(answers) => {
                for answer in answers.drain(..) {
                    self.answered(now, catalog, answer);
                }
            }
            Input::DeadlinePassed => {}
            Input::Stop => self.stop(),
        }
        if self.later_at.is_some_and(|at| at <= now) {
            self.later_at = None;
            self.questions.may_ask();
            for task in self.later.drain(..).rev() {
                self.tasks.push_front(task);
            }
        }
        self.notices.counts.retries +=
            self.outgoing.wake(now, &mut self.tickets, &mut out.requests);
        self.budget = limits::STEP_MESSAGES;
        while self.has_room()
            && let Some(task) = self.tasks.pop_front()
        {
            if !self.begin(now, catalog, task, out) {
                break;
            }
        }
        self.goes_on_at = (self.budget == 0 && !self.tasks.is_empty()).then_some(now);
        self.outgoing.flush(&mut self.tickets, &mut out.requests);
        self.runs.flush(self.session, &mut out.requests);
    }

    /// When the dead-letter worker wants `Input::DeadlinePassed` at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        [self.goes_on_at, self.later_at, self.outgoing.deadline()].into_iter().flatten().min()
    }

    /// Whether this step makes more letters.
    fn has_room(&self) -> bool {
        self.budget > 0 && !self.outgoing.is_full()
    }

    /// Whether nothing is to come of what was begun before `Input::Stop`.
    pub(crate) fn is_done(&self) -> bool {
        self.is_stopping && self.outgoing.is_quiet()
    }

    /// What was counted since the last call.
    pub(crate) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.notices.counts)
    }

    fn stop(&mut self) {
        self.is_stopping = true;
        self.goes_on_at = None;
        self.tasks.clear();
        self.later.clear();
        self.questions.forget();
    }

    fn answered(&mut self, now: Duration, catalog: &Catalog, answer: Answer) {
        match answer {
            Answer::Leaving(leaving) => self.take(catalog, leaving),
            Answer::Appended { ticket } => {
                for run in self.outgoing.logged(ticket) {
                    self.runs.pass(run);
                }
            }
            Answer::AppendFailed { ticket } => {
                match self.outgoing.refused(ticket, catalog, now + limits::RETRY) {
                    Some(runs) => runs.into_iter().for_each(|run| self.runs.pass(run)),
                    None => self.resolved(now, catalog, ticket, false),
                }
            }
            Answer::Catalog { ticket, .. } => self.resolved(now, catalog, ticket, true),
            Answer::Stopping => self.stop(),
            // Nothing that a dead-letter worker asks for.
            Answer::Attached { .. }
            | Answer::Detached { .. }
            | Answer::Delivered(_)
            | Answer::Got { .. }
            | Answer::Purged { .. }
            | Answer::Withheld { .. }
            | Answer::Status { .. }
            | Answer::Described { .. }
            | Answer::Peeked { .. }
            | Answer::Locked { .. }
            | Answer::Closed { .. }
            | Answer::Admitted { .. }
            | Answer::Cancelled { .. }
            | Answer::Elected { .. }
            | Answer::SessionEnded { .. }
            | Answer::Alarms(_) => {}
        }
    }

    fn take(&mut self, catalog: &Catalog, leaving: Leaving) {
        if self.is_stopping {
            return;
        }
        let ranges = self.runs.take(&leaving);
        if ranges.is_empty() {
            return;
        }
        self.arrivals += 1;
        let arrival = self.arrivals;
        let source = Source::find(catalog, leaving.queue).ok();
        self.tasks.push_back(Task { leaving, source, ranges, arrival, next: 0, run: None });
    }

    /// The catalog has answered, or could not.
    fn resolved(&mut self, now: Duration, catalog: &Catalog, ticket: Ticket, is_applied: bool) {
        match self.questions.resolve(catalog, ticket, is_applied) {
            Resolved::Nothing => {}
            Resolved::Refused => self.wait_until(now + limits::RETRY),
            Resolved::Declared(tasks) => {
                for task in tasks.into_iter().rev() {
                    self.tasks.push_front(task);
                }
            }
            Resolved::Missing(tasks) => {
                self.later.extend(tasks);
                self.wait_until(now + limits::RETRY);
            }
        }
    }

    /// Takes a task on. False: nothing can be done before something is answered.
    fn begin(
        &mut self,
        now: Duration,
        catalog: &Catalog,
        mut task: Task,
        out: &mut Outputs,
    ) -> bool {
        // What the catalog says now counts, since it may have been changed. A queue that is gone is as it was.
        let found = Source::find(catalog, task.leaving.queue);
        let source = match (found, task.source.take()) {
            (Ok(source), _) | (Err(_), Some(source)) => source,
            (Err(NoSource::Gone), None) => return self.let_go(&mut task),
            (Err(NoSource::Unknown), None) => {
                self.later.push(task);
                self.wait_until(now + limits::LOOK_AGAIN);
                return true;
            }
        };
        match Origin::of(catalog, &source, task.leaving.reason) {
            Ok(origin) => {
                if self.forward(now, catalog, &origin, &mut task, out) {
                    return true;
                }
                task.source = Some(source);
                self.tasks.push_front(task);
                false
            }
            Err(NoOrigin::Gone) => self.let_go(&mut task),
            Err(NoOrigin::NoAside(name)) => {
                let vhost = source.vhost.clone();
                task.source = Some(source);
                let (tickets, requests) = (&mut self.tickets, &mut out.requests);
                self.questions.declare(catalog.agreed(), (vhost, name), task, tickets, requests);
                true
            }
        }
    }

    /// Nothing can become of it.
    fn let_go(&mut self, task: &mut Task) -> bool {
        let run = self.run_of(task);
        self.runs.pass(run);
        true
    }

    fn wait_until(&mut self, at: Duration) {
        self.later_at = self.later_at.or(Some(at));
    }

    fn run_of(&mut self, task: &mut Task) -> RunNumber {
        let Leaving { group, queue, .. } = task.leaving;
        *task.run.get_or_insert_with(|| self.runs.begin(group, queue, task.ranges.clone()))
    }

    /// Sends the messages of a task on. False: it is to be gone on with when there is room, or the catalog
    /// is fresh.
    fn forward(
        &mut self,
        now: Duration,
        catalog: &Catalog,
        origin: &Origin<'_>,
        task: &mut Task,
        out: &mut Outputs,
    ) -> bool {
        let run = self.run_of(task);
        let leaving = &task.leaving;
        let messages = Messages::of(leaving.store, &leaving.bytes).take(leaving.count as usize);
        for (place, (head, body)) in (0..).zip(messages).skip(task.next as usize) {
            if !task.ranges.contains(leaving.first_seq + u64::from(place)) {
                continue;
            }
            if !self.has_room() {
                task.next = place;
                return false;
            }
            self.budget -= 1;
            let chance = self.draw();
            let fate = origin.forward(leaving.time_ms, head, chance, &mut self.forwarded);
            let is_lost = matches!(fate, Fate::Unroutable | Fate::NoExchange);
            if is_lost {
                let (tickets, requests) = (&mut self.tickets, &mut out.requests);
                let (arrival, all) = (task.arrival, self.arrivals);
                if !self.questions.is_fresh(catalog, arrival, all, tickets, requests) {
                    task.next = place;
                    return false;
                }
            }
            self.notices.add(now, leaving.reason, fate, origin, &mut out.notices);
            self.store(run, body);
        }
        self.runs.pass(run);
        true
    }

    /// What `forwarded` has, to its targets.
    fn store(&mut self, run: RunNumber, body: &[u8]) {
        let Forwarded { targets, head, asked, .. } = &mut self.forwarded;
        targets.sort_unstable_by_key(|target| (target.group, target.queue));
        for alike in targets.chunk_by(|one, two| one.group == two.group) {
            let Some(first) = alike.first() else { continue };
            self.levels.clear();
            self.levels.extend(alike.iter().map(|target| asked.level(target)));
            let to = (first.group, &asked.attributes(false), &self.levels[..]);
            let is_new = self.outgoing.add(run, to, head, body);
            if is_new && !planted::is("dead_letter_settled_first") {
                self.runs.wait(run);
            }
        }
    }

    /// The next of a series of numbers (SplitMix64).
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
