//! Questions about locks at the leader of their group: on their way through the log, or waiting for their time.
//!
//! ```text
//!            ask                   into an entry                 the entry is applied
//!  session ──────> gathered ──────────────────────> proposed ──────────────────────────> answered
//!                   ^    ^                              │
//!                   │    └── its lock is free, or its   │ held by another, and the session waits
//!                   │        time is over               v
//!                   └───────────────────────────────  line of its name
//! ```
//!
//! Every answer is as of an entry that a majority has: a leader that was replaced and does not know it answers nothing. A
//! question that only reads puts nothing into the entry, it waits for one.
//!
//! Nothing here is replicated. A leader that loses its term forgets all of it, and the nodes of those who asked ask the
//! next one. So who waits for a name gets it in the order in which the leader of a term heard of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use machine::limits::LOCKS_LISTED_MAX;
use machine::{Batch, GroupId, LockCommand, LockReply, Locks, SessionId};

use crate::limits::{ENTRY_BYTES, LOCK_QUESTIONS_MAX, LOCKS_PER_ENTRY};
use crate::locked::{LockLine, LockQuestion, LockResult, LockSpec, LockWaiter, NotLocked};
use crate::request::{Answer, Request, Ticket};

/// A lease is over for so long before an entry is made for that alone.
const EXPIRE_MS: u64 = 1_000;

/// Vhost and name.
type Name = (String, String);

/// The questions that one leader has.
#[derive(Debug, Default)]
pub(crate) struct LockQuestions {
    /// For the next entry, in their order.
    gathered: VecDeque<Asked>,
    /// In the log, by the index of their entry; not applied yet.
    proposed: VecDeque<Proposed>,
    /// Names that somebody waits for.
    lines: BTreeMap<Name, Line>,
    /// When lines are looked at because time passes, in `Now::mono_ms`.
    timers: BTreeSet<(u64, Name)>,
    /// Lines that are to be looked at now.
    touched: BTreeSet<Name>,
    /// What the next entry has to begin with: the leader has none of its term yet.
    begins: Option<LockCommand>,
    /// An entry is in the log that frees locks whose leases are over.
    is_expiring: bool,
    /// How many there are.
    count: usize,
    now_ms: u64,
    /// The group's time.
    time_ms: u64,
}

/// One question.
#[derive(Debug)]
struct Asked {
    session: SessionId,
    ticket: Ticket,
    spec: LockSpec,
    /// Until when it may wait, in `Now::mono_ms`.
    until_ms: u64,
    /// It only asks who has the lock: its time is over, or others wait for the lock before it.
    only_looks: bool,
    /// It was the first of its line.
    is_first: bool,
    /// Nobody wants the answer any more.
    is_void: bool,
}

#[derive(Debug)]
struct Proposed {
    index: u64,
    /// So many commands before those that were asked for are the leader's own.
    own: usize,
    asked: Vec<Asked>,
}

/// Who waits for a name.
#[derive(Debug, Default)]
struct Line {
    /// For the lock, the first one first. The one before them is on its way through the log if `is_trying`.
    waiting: VecDeque<Asked>,
    /// For another value.
    watching: Vec<Asked>,
    is_trying: bool,
    /// When it is looked at.
    timer: Option<u64>,
}

impl Asked {
    /// An acquire that may still wait.
    fn waits_for_lock(&self, now_ms: u64) -> bool {
        let acquires = matches!(&self.spec.what, LockQuestion::Do(LockCommand::Acquire { .. }));
        acquires && !self.only_looks && self.until_ms > now_ms
    }

    /// Whether it is an acquire for such an owner.
    fn has_owner(&self, is_such: impl Fn(&str) -> bool) -> bool {
        match &self.spec.what {
            LockQuestion::Do(LockCommand::Acquire { owner, .. }) => is_such(owner),
            LockQuestion::Do(_) | LockQuestion::Read { .. } | LockQuestion::List { .. } => false,
        }
    }

    /// A read that may still wait for another value.
    fn watches(&self, now_ms: u64, version: u64) -> bool {
        let LockQuestion::Read { unlike, .. } = &self.spec.what else { return false };
        *unlike == Some(version) && !self.only_looks && self.until_ms > now_ms
    }

    /// The command that it has in its entry.
    fn command(&self) -> Option<&LockCommand> {
        match &self.spec.what {
            LockQuestion::Do(command) if !self.only_looks => Some(command),
            LockQuestion::Do(_) | LockQuestion::Read { .. } | LockQuestion::List { .. } => None,
        }
    }

    fn name(&self) -> Option<Name> {
        self.spec.of().map(|(vhost, name)| (vhost.to_owned(), name.to_owned()))
    }

    fn bytes(&self) -> usize {
        let mut bytes = Vec::new();
        if let Some(command) = self.command() {
            command.encode(&mut bytes);
        }
        bytes.len() + 5
    }

    fn answered(self, result: LockResult, answers: &mut Vec<(SessionId, Answer)>) {
        if !self.is_void {
            answers.push((self.session, Answer::Locked { ticket: self.ticket, result }));
        }
    }
}

impl LockQuestions {
    pub(crate) fn set_now(&mut self, now_ms: u64, time_ms: u64) {
        (self.now_ms, self.time_ms) = (now_ms, time_ms);
    }

    /// The leader's term begins. `heard`: the term of the leader that it has the time from.
    pub(crate) fn lead(&mut self, term: u64, heard: Option<u64>) {
        if !planted::is("lock_term_unnoticed") {
            self.begins = Some(LockCommand::BeginTerm { term, heard });
        }
    }

    /// A session asks.
    pub(crate) fn ask(
        &mut self,
        session: SessionId,
        ticket: Ticket,
        spec: LockSpec,
        locks: &Locks,
        answers: &mut Vec<(SessionId, Answer)>,
    ) {
        let until_ms = self.now_ms.saturating_add(u64::from(spec.wait_ms));
        let (only_looks, is_first, is_void) = (false, false, false);
        let mut asked = Asked { session, ticket, spec, until_ms, only_looks, is_first, is_void };
        let is_ours =
            |what: &LockQuestion| matches!(what, LockQuestion::Do(it) if it.is_of_leader());
        assert!(!is_ours(&asked.spec.what), "a session says what leaders alone say");
        if let LockQuestion::Do(command) = &asked.spec.what
            && let Err(refusal) = command.check()
        {
            return asked.answered(Ok(Box::new(LockReply::Refused(refusal))), answers);
        }
        if self.count >= LOCK_QUESTIONS_MAX {
            return asked.answered(Err(NotLocked::Busy), answers);
        }
        self.count += 1;
        match asked.name() {
            Some(name) if self.has_line_for(&asked, &name, locks) => {
                if asked.waits_for_lock(self.now_ms) {
                    self.touched.insert(name.clone());
                    self.lines.entry(name).or_default().waiting.push_back(asked);
                } else {
                    asked.only_looks = true;
                    self.gathered.push_back(asked);
                }
            }
            Some(_) | None => self.gathered.push_back(asked),
        }
    }

    /// Whether others wait for the lock that this one wants. Its holder asks again without standing in line.
    fn has_line_for(&self, asked: &Asked, name: &Name, locks: &Locks) -> bool {
        let line = self.lines.get(name);
        line.is_some_and(|line| line.is_trying || !line.waiting.is_empty())
            && asked.has_owner(|owner| !locks.is_held_by(&name.0, &name.1, owner))
    }

    /// Looks at lines of which something has changed, or whose time has come.
    pub(crate) fn look(&mut self, locks: &Locks, answers: &mut Vec<(SessionId, Answer)>) {
        while let Some((due_ms, _)) = self.timers.first()
            && *due_ms <= self.now_ms
            && let Some((_, name)) = self.timers.pop_first()
        {
            if let Some(line) = self.lines.get_mut(&name) {
                line.timer = None;
            }
            self.touched.insert(name);
        }
        while let Some(name) = self.touched.pop_first() {
            self.look_at(name, locks, answers);
        }
    }

    fn look_at(&mut self, name: Name, locks: &Locks, answers: &mut Vec<(SessionId, Answer)>) {
        let (now_ms, time_ms) = (self.now_ms, self.time_ms);
        let Some(line) = self.lines.get_mut(&name) else { return };
        let version = locks.version(&name.0, &name.1);
        let is_other = |asked: &mut Asked| match &asked.spec.what {
            LockQuestion::Read { unlike, .. } => *unlike != Some(version),
            LockQuestion::Do(_) | LockQuestion::List { .. } => true,
        };
        for asked in line.watching.extract_if(.., is_other) {
            self.count -= 1;
            let view = locks.view(&name.0, &name.1, time_ms);
            asked.answered(Ok(Box::new(LockReply::Is(view))), answers);
        }
        // Whose time is over hears how the name stands then, which takes an entry.
        let is_over = |asked: &Asked| asked.until_ms <= now_ms;
        let over = line.watching.extract_if(.., |asked| is_over(asked));
        self.gathered.extend(over.map(|asked| Asked { only_looks: true, ..asked }));
        for asked in std::mem::take(&mut line.waiting) {
            if is_over(&asked) {
                self.gathered.push_back(Asked { only_looks: true, ..asked });
            } else if asked.has_owner(|owner| locks.is_held_by(&name.0, &name.1, owner)) {
                // It asked before over a connection that is gone, and got the lock by that.
                self.gathered.push_back(asked);
            } else {
                line.waiting.push_back(asked);
            }
        }
        let held_until = locks.held_until(&name.0, &name.1);
        let is_free = held_until.is_none_or(|until_ms| until_ms <= time_ms);
        if is_free
            && !line.is_trying
            && let Some(first) = line.waiting.pop_front()
        {
            line.is_trying = true;
            self.gathered.push_back(Asked { is_first: true, ..first });
        }
        let free_in_ms = held_until.map_or(0, |until_ms| until_ms.saturating_sub(time_ms));
        let free_at = (!line.is_trying && !line.waiting.is_empty())
            .then(|| now_ms.saturating_add(free_in_ms.max(1)));
        let all = line.waiting.iter().chain(&line.watching);
        let due = all.map(|asked| asked.until_ms).chain(free_at).min();
        if let Some(before) = std::mem::replace(&mut line.timer, due) {
            self.timers.remove(&(before, name.clone()));
        }
        if line.waiting.is_empty() && line.watching.is_empty() && !line.is_trying {
            self.lines.remove(&name);
        } else if let Some(due_ms) = due {
            self.timers.insert((due_ms, name));
        }
    }

    /// Who waits for a lock, the first one first, `most` of them at most; and how many wait.
    pub(crate) fn waiting(&self, vhost: &str, name: &str, most: usize) -> LockLine {
        let line = self.lines.get(&(vhost.to_owned(), name.to_owned()));
        let Some(line) = line else { return LockLine::default() };
        let waiter = |asked: &Asked| {
            let LockQuestion::Do(LockCommand::Acquire { owner, .. }) = &asked.spec.what else {
                return None;
            };
            let came_ms = asked.until_ms.saturating_sub(u64::from(asked.spec.wait_ms));
            let waited_ms = self.now_ms.saturating_sub(came_ms);
            Some(LockWaiter { owner: owner.clone(), waited_ms })
        };
        let first = line.waiting.iter().filter_map(waiter).take(most).collect();
        LockLine { first, count: line.waiting.len() }
    }

    /// When `look` or `flush` has something to do, in `Now::mono_ms`.
    pub(crate) fn deadline_ms(&self, locks: &Locks) -> Option<u64> {
        if !self.touched.is_empty() || !self.gathered.is_empty() {
            return Some(self.now_ms);
        }
        let first_end = locks.first_end().filter(|_| !self.is_expiring);
        let expires_at = first_end.map(|end_ms| {
            let in_ms = end_ms.saturating_add(EXPIRE_MS).saturating_sub(self.time_ms);
            self.now_ms.saturating_add(in_ms)
        });
        self.timers.first().map(|(due_ms, _)| *due_ms).into_iter().chain(expires_at).min()
    }

    /// Makes entries of what is gathered. A leader begins its term at once if some lock is held, otherwise with the first
    /// question. Leases that are over for a while, and that no command has ended, are ended by an entry of their own:
    /// otherwise the next leader might take them for running. `propose` gives the index of an entry, or `None` if there
    /// can be none now.
    pub(crate) fn flush(&mut self, locks: &Locks, mut propose: impl FnMut(Batch) -> Option<u64>) {
        let first_end = locks.first_end();
        let is_over = |end_ms: u64| end_ms.saturating_add(EXPIRE_MS) <= self.time_ms;
        let mut expires = first_end.is_some_and(is_over) && !self.is_expiring;
        let begins = first_end.is_some() && self.begins.is_some();
        if self.gathered.is_empty() && !begins && !expires {
            return;
        }
        loop {
            let mut batch = Batch::new();
            self.begins.iter().for_each(|command| batch.lock(command));
            if expires {
                batch.lock(&LockCommand::Expire);
            }
            let own = batch.commands();
            let count = self.fill(&mut batch);
            let Some(index) = propose(batch) else { return };
            self.is_expiring |= std::mem::take(&mut expires);
            self.begins = None;
            let asked = self.gathered.drain(..count).collect();
            self.proposed.push_back(Proposed { index, own, asked });
            if self.gathered.is_empty() {
                return;
            }
        }
    }

    /// How many of the questions fit; their commands are put into the entry.
    fn fill(&self, batch: &mut Batch) -> usize {
        let mut count = 0;
        for asked in self.gathered.iter().take(LOCKS_PER_ENTRY) {
            if count > 0 && batch.bytes() + asked.bytes() > ENTRY_BYTES {
                break;
            }
            if let Some(command) = asked.command() {
                batch.lock(command);
            }
            count += 1;
        }
        count
    }

    /// The entry at `index` is applied, and its commands came to this.
    pub(crate) fn applied(
        &mut self,
        index: u64,
        replies: &mut Vec<LockReply>,
        locks: &Locks,
        answers: &mut Vec<(SessionId, Answer)>,
    ) {
        let mut replies = replies.drain(..);
        if self.proposed.front().is_none_or(|proposed| proposed.index != index) {
            return;
        }
        let Some(Proposed { own, asked, .. }) = self.proposed.pop_front() else { return };
        replies.by_ref().take(own).for_each(drop);
        self.is_expiring &= !self.proposed.is_empty();
        // One after the other: a command that waits is in its line before the next is looked at.
        for asked in asked {
            let reply = match asked.command() {
                Some(_) => replies.next().expect("each command of an entry has a reply"),
                None => self.seen(&asked.spec, locks),
            };
            self.replied(asked, reply, locks, answers);
        }
        assert!(
            replies.next().is_none(),
            "an entry about locks has a command that nobody asked for"
        );
    }

    /// What somebody sees who only looks.
    fn seen(&self, spec: &LockSpec, locks: &Locks) -> LockReply {
        let time_ms = self.time_ms;
        match &spec.what {
            LockQuestion::Read { vhost, name, .. } => {
                LockReply::Is(locks.view(vhost, name, time_ms))
            }
            LockQuestion::Do(command) => {
                let (vhost, name) = command.of().unwrap_or_default();
                LockReply::Held(locks.view(vhost, name, time_ms))
            }
            LockQuestion::List { vhost, behind, count } => {
                let count = (*count as usize).min(LOCKS_LISTED_MAX);
                let mut all = locks.list(vhost, behind, time_ms);
                let locks = all.by_ref().take(count).collect();
                LockReply::List { locks, has_more: all.next().is_some() }
            }
        }
    }

    fn replied(
        &mut self,
        asked: Asked,
        reply: LockReply,
        locks: &Locks,
        answers: &mut Vec<(SessionId, Answer)>,
    ) {
        if let Some(name) = asked.name() {
            if asked.is_first
                && let Some(line) = self.lines.get_mut(&name)
            {
                line.is_trying = false;
            }
            if self.lines.contains_key(&name) {
                self.touched.insert(name.clone());
            }
            let waits = match &reply {
                LockReply::Held(_) => asked.waits_for_lock(self.now_ms),
                LockReply::Is(_) => asked.watches(self.now_ms, locks.version(&name.0, &name.1)),
                _ => false,
            };
            if waits && !asked.is_void {
                self.touched.insert(name.clone());
                let line = self.lines.entry(name).or_default();
                return match (&reply, asked.is_first) {
                    (LockReply::Is(_), _) => line.watching.push(asked),
                    (_, true) => line.waiting.push_front(Asked { is_first: false, ..asked }),
                    (_, false) => line.waiting.push_back(asked),
                };
            }
        } else if let LockQuestion::Do(LockCommand::Forget { .. }) = &asked.spec.what {
            self.touched.extend(self.lines.keys().cloned());
        }
        self.count -= 1;
        let result = match (reply, &asked.spec) {
            // It was done the first time, or the lock was lost before that: either way it is not held any more.
            (
                LockReply::NotHeld(_),
                LockSpec {
                    what: LockQuestion::Do(LockCommand::Release { .. }),
                    is_again: true,
                    ..
                },
            ) => Ok(LockReply::Done),
            (LockReply::Conflict(_), LockSpec { is_again: true, .. }) => Err(NotLocked::Unknown),
            (reply, _) => Ok(reply),
        };
        asked.answered(result.map(Box::new), answers);
    }

    /// These sessions ask no more: they are gone, or ask again.
    pub(crate) fn end_sessions(&mut self, is_over: impl Fn(SessionId) -> bool) {
        self.void(|asked| is_over(asked.session));
    }

    /// A question that was answered.
    pub(crate) fn forget(&mut self, session: SessionId, ticket: Ticket) {
        if self.count > 0 {
            self.void(|asked| (asked.session, asked.ticket) == (session, ticket));
        }
    }

    fn void(&mut self, is_void: impl Fn(&Asked) -> bool) {
        for asked in self.proposed.iter_mut().flat_map(|it| &mut it.asked) {
            asked.is_void |= is_void(asked);
        }
        let gathered = std::mem::take(&mut self.gathered);
        let (over, kept): (VecDeque<_>, VecDeque<_>) =
            gathered.into_iter().partition(|asked| is_void(asked));
        self.gathered = kept;
        let mut gone = over.len();
        for asked in over {
            if let Some(name) = asked.name().filter(|_| asked.is_first)
                && let Some(line) = self.lines.get_mut(&name)
            {
                line.is_trying = false;
                self.touched.insert(name);
            }
        }
        for (name, line) in &mut self.lines {
            let before = line.waiting.len() + line.watching.len();
            line.waiting.retain(|asked| !is_void(asked));
            line.watching.retain(|asked| !is_void(asked));
            let left = line.waiting.len() + line.watching.len();
            if left < before {
                gone += before - left;
                self.touched.insert(name.clone());
            }
        }
        self.count -= gone;
    }

    /// The leader's term is over. What sessions of this node asked is to be asked of the next one.
    pub(crate) fn follow(
        &mut self,
        group: GroupId,
        is_ours: impl Fn(SessionId) -> bool,
    ) -> Vec<(SessionId, Request)> {
        let Self { gathered, proposed, lines, .. } = std::mem::take(self);
        let waiting =
            lines.into_values().flat_map(|line| line.waiting.into_iter().chain(line.watching));
        let in_log = proposed.into_iter().flat_map(|it| it.asked);
        let all = in_log.chain(gathered).chain(waiting);
        let ours = all.filter(|asked| !asked.is_void && is_ours(asked.session));
        ours.map(|Asked { session, ticket, spec, .. }| {
            let spec = Box::new(spec);
            (session, Request::Lock { ticket, group, spec })
        })
        .collect()
    }

    /// What must be true between steps. For tests.
    pub(crate) fn check(&self) {
        let in_lines = self.lines.values().map(|line| line.waiting.len() + line.watching.len());
        let in_log = self.proposed.iter().map(|it| it.asked.len());
        let count = self.gathered.len() + in_lines.sum::<usize>() + in_log.sum::<usize>();
        assert_eq!(count, self.count, "questions about locks are counted");
        for (name, line) in &self.lines {
            let is_known = line.is_trying || self.touched.contains(name) || line.timer.is_some();
            assert!(is_known, "somebody waits for the lock {name:?}, and nobody looks");
        }
    }
}
