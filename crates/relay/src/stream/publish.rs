//! The broker's side: what is offered to it, and what its answers mean.

use std::time::Instant;

use client::{PublishSeq, Run, Verdict};

use super::sent::Sending;
use super::{HEALTHY_FOR, Job, OUTAGE, Output, Stream, UNCONFIRMED_BYTES_MAX, place_of};
use crate::attempts::{Fault, Reason};
use crate::fields::Fields;
use crate::label::label;
use crate::suspects::{Loss, Name};

/// So often everything may be refused before it makes way for other rows.
const REFUSALS_MAX: u32 = 3;
/// So often the broker may answer nothing at all before what it was sent makes way for other rows.
const SILENCES_MAX: u32 = 3;

impl Stream {
    /// Gives the columns of the next row to publish; false: none may be published now. What came of it must be told
    /// ([`Input::Published`](super::Input::Published) or [`Input::Unfit`](super::Input::Unfit)) before anything else.
    pub fn offer(&mut self, now: Instant, fields: &mut Fields, out: &mut Vec<Output>) -> bool {
        assert!(self.offered.is_none(), "what was offered before has an end");
        let window = if self.careful > 0 { 1 } else { self.window };
        if !self.is_broker_ready || self.is_stopping || now < self.pause_until {
            return false;
        }
        while self.sent.count() < window
            && self.sent.bytes() < UNCONFIRMED_BYTES_MAX
            && self.alone.is_none()
        {
            let Some((job, is_suspect)) = self.next_job() else { return false };
            match job {
                Job::Row(seq) => {
                    let row = &self.log[(seq.0 - self.log_first) as usize];
                    if let Some(key) = row.key.clone().filter(|key| self.keys.is_parked(key)) {
                        // It was admitted before one of its key failed: it stays behind that.
                        self.keys.failed(&key);
                        self.store_waiting(seq, out);
                        self.park_waiting(&key, out);
                        continue;
                    }
                    self.rows.read(row.version, &row.data, fields);
                }
                Job::Retry(seq) => {
                    let Some(row) = self.retries.row(seq) else { continue };
                    self.rows.read(super::Version::OWN, row, fields);
                }
            }
            self.offered = Some(job);
            self.alone = is_suspect.then_some(job);
            return true;
        }
        false
    }

    /// What is published next, and whether nothing else may be under way with it. A suspect keeps its place: most of them
    /// are innocent, and the order is that of the commits.
    fn next_job(&mut self) -> Option<(Job, bool)> {
        let job = *self.ready.front()?;
        let is_suspect = !self.suspects.is_empty() && {
            let name = self.name(job);
            self.suspects.is_suspect(&name)
        };
        if is_suspect && self.sent.count() > 0 {
            return None;
        }
        self.ready.pop_front();
        Some((job, is_suspect))
    }

    /// What a row is called, in the log and among the failures.
    fn name(&mut self, job: Job) -> Name {
        let id = match job {
            Job::Row(seq) => {
                let row = &self.log[(seq.0 - self.log_first) as usize];
                self.rows.read(row.version, &row.data, &mut self.scratch);
                let id = self.scratch.get(self.rows.layout().id);
                id.map_or_else(|| place_of(row), |id| label(id).into_owned())
            }
            Job::Retry(seq) => {
                self.retries.get(seq).map_or_else(String::new, |retry| retry.row_id.clone())
            }
        };
        (0, id.into_bytes())
    }

    /// The broker is away for now: what was offered stays where it was.
    pub fn take_back(&mut self) {
        if let Some(job) = self.offered.take() {
            self.alone = None;
            self.ready.push_front(job);
        }
    }

    /// The columns of a row that is published and has no verdict yet; false: there is none of that number.
    pub fn read_sent(&mut self, seq: PublishSeq, fields: &mut Fields) -> bool {
        match self.sent.job(seq) {
            Some(Job::Row(seq)) => {
                let row = &self.log[(seq.0 - self.log_first) as usize];
                self.rows.read(row.version, &row.data, fields);
            }
            Some(Job::Retry(seq)) => {
                let Some(row) = self.retries.row(seq) else { return false };
                self.rows.read(super::Version::OWN, row, fields);
            }
            None => return false,
        }
        true
    }

    pub(super) fn published(&mut self, now: Instant, seq: PublishSeq) {
        let job = self.offered.take().expect("only what was offered is published");
        let bytes = match job {
            Job::Row(row) => self.row(row).data.len(),
            Job::Retry(retry) => self.retries.row(retry).map_or(0, |row| row.len()),
        };
        self.sent.push(seq, Sending { job, bytes, at: now });
    }

    pub(super) fn unfit(&mut self, fault: Fault, out: &mut Vec<Output>) {
        let job = self.offered.take().expect("only what was offered is unfit");
        self.alone = None;
        self.fail(job, fault, out);
    }

    pub(super) fn verdict(&mut self, now: Instant, verdict: Verdict, out: &mut Vec<Output>) {
        let mut jobs = Vec::new();
        match verdict {
            Verdict::Confirmed(run) => {
                self.healthy_until = Some(now + HEALTHY_FOR);
                self.confirmed_at = Some(now);
                (self.outages, self.refusals, self.silences) = (0, 0, 0);
                self.sent.take(run, &mut jobs);
                self.answered(&jobs, true);
                jobs.into_iter().for_each(|job| self.confirm(job, out));
            }
            Verdict::Returned { seq, code, text } => {
                self.sent.take(Run { first: seq, last: seq }, &mut jobs);
                self.answered(&jobs, false);
                for job in jobs {
                    let text = format!("no queue was found for it: {code} {text}");
                    self.fail(job, Fault { reason: Reason::Unroutable, text }, out);
                }
            }
            Verdict::Refused(run) => {
                self.sent.take(run, &mut jobs);
                self.answered(&jobs, false);
                let is_outage = self.healthy_until.is_none_or(|until| until < now);
                if is_outage {
                    self.outage(now);
                    self.refusals = self.refusals.saturating_add(1);
                    if self.refusals < REFUSALS_MAX {
                        // Nothing is confirmed: the broker is ill, and no row is to blame.
                        return self.again(jobs);
                    }
                    // Or one full queue has all of these: others must pass. Nobody is charged.
                }
                for job in jobs {
                    let text = "the broker refused it (basic.nack)".into();
                    let fault = Fault { reason: Reason::Refused, text };
                    self.fail_charged(job, fault, u32::from(!is_outage), out);
                }
            }
        }
    }

    /// The broker has an answer for them.
    fn answered(&mut self, jobs: &[Job], is_confirmed: bool) {
        if !jobs.is_empty() {
            self.alone = None;
        }
        for job in jobs {
            let name = (!self.suspects.is_empty()).then(|| self.name(*job));
            self.suspects.answered(|| name.unwrap_or_default(), is_confirmed);
        }
    }

    fn confirm(&mut self, job: Job, out: &mut Vec<Output>) {
        self.careful = self.careful.saturating_sub(1);
        self.counts.rows += 1;
        match job {
            Job::Row(seq) => {
                let row = self.row(seq);
                let key = row.key.clone();
                let payload = self.rows.layout().payload;
                self.counts.bytes += self.rows.byte_count(row.version, &row.data, payload) as u64;
                self.settle(seq);
                if let Some(key) = key {
                    let next = self.keys.done(&key);
                    self.ready.extend(next.map(Job::Row));
                    self.park_waiting(&key, out);
                }
            }
            Job::Retry(seq) => {
                let Some((retry, next)) = self.retries.done(seq) else { return };
                let payload = self.rows.layout().payload;
                let bytes = self.rows.byte_count(super::Version::OWN, &retry.row, payload);
                self.counts.bytes += bytes as u64;
                self.ready.extend(next.map(Job::Retry));
                out.push(Output::Absolve { row_id: retry.row_id, key: retry.key });
            }
        }
    }

    fn fail(&mut self, job: Job, fault: Fault, out: &mut Vec<Output>) {
        self.fail_charged(job, fault, 1, out);
    }

    fn fail_charged(&mut self, job: Job, fault: Fault, charge: u32, out: &mut Vec<Output>) {
        self.careful = self.careful.saturating_sub(1);
        match job {
            Job::Row(seq) => self.fail_row(seq, fault, charge, out),
            Job::Retry(seq) => self.fail_retry(seq, fault, charge, out),
        }
    }

    /// To be published again, before everything else and in the same order.
    fn again(&mut self, jobs: Vec<Job>) {
        if self.is_stopping {
            return;
        }
        for job in jobs.into_iter().rev() {
            self.ready.push_front(job);
        }
    }

    fn outage(&mut self, now: Instant) {
        self.pause_until = now + OUTAGE.bound(self.outages);
        self.outages = self.outages.saturating_add(1);
    }

    /// The connection was lost without a word: an outage, or one of the messages that were under way.
    pub(super) fn broker_lost(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.take_back();
        self.is_broker_ready = false;
        let alone = match self.careful {
            0 => self.alone.take().and(self.sent.sole()),
            _ => self.sent.sole(),
        };
        let jobs = self.sent.take_all();
        self.alone = None;
        self.outage(now);
        let Some(job) = alone else {
            for job in &jobs {
                let name = self.name(*job);
                self.suspects.lost(name);
            }
            return self.again(jobs);
        };
        let name = self.name(job);
        let (reason, charge, text) = match self.suspects.lost_alone(name) {
            Loss::Again => return self.again(jobs),
            Loss::Rest => (
                Reason::Unanswered,
                0,
                "the connection to the broker was lost again and again while it alone was under way",
            ),
            Loss::Guilty => (
                Reason::Refused,
                1,
                "the connection to the broker is lost whenever this is published, while others are confirmed",
            ),
        };
        if !self.is_stopping {
            self.fail_charged(job, Fault { reason, text: text.into() }, charge, out);
        }
    }

    /// A broker that answers others leaves some without a verdict, as a queue without a majority does; or it has answered
    /// nobody, again and again. Those that it had time for go among the failures, uncharged, so that others pass.
    pub(super) fn broker_silent(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.take_back();
        self.is_broker_ready = false;
        // Nothing can pass what has to be alone; and it was no loss of which it was suspected.
        let was_alone = self.alone.take().and(self.sent.sole());
        if let Some(job) = was_alone {
            let name = self.name(job);
            self.suspects.answered(|| name, false);
        }
        let Some(since) = self.sent.oldest_at() else { return self.outage(now) };
        self.silences += 1;
        let confirmed_at = self.confirmed_at;
        let is_deaf = self.silences >= SILENCES_MAX;
        let has_had_time = |at: Instant| {
            // Others were confirmed after it was sent, and it waits for about as long as the oldest.
            let others_passed = confirmed_at.is_some_and(|confirmed| confirmed > at);
            is_deaf || was_alone.is_some() || others_passed && now - at >= (now - since) / 2
        };
        let (late, jobs): (Vec<Sending>, Vec<Sending>) =
            self.sent.take_all_sent().into_iter().partition(|sending| has_had_time(sending.at));
        self.outage(now);
        self.again(jobs.into_iter().map(|sending| sending.job).collect());
        if self.is_stopping {
            return;
        }
        for Sending { job, .. } in late {
            let text = "the broker neither confirmed nor refused it in time".into();
            self.fail_charged(job, Fault { reason: Reason::Unanswered, text }, 0, out);
        }
    }

    /// Something that was published made the broker close. With one message at a time it is known which.
    pub(super) fn broker_refused(
        &mut self,
        now: Instant,
        code: u16,
        text: String,
        out: &mut Vec<Output>,
    ) {
        self.take_back();
        self.is_broker_ready = false;
        self.outage(now);
        let was_alone = self.alone.take().is_some();
        if (self.careful > 0 || was_alone)
            && let Some(job) = self.sent.sole()
        {
            self.sent.take_all();
            let reason = match code {
                // The exchange is missing, or this user may not publish to it: somebody can mend that.
                403 | 404 => Reason::Unroutable,
                311 => Reason::TooLarge,
                _ if text.contains("larger than") || text.contains("too large") => Reason::TooLarge,
                406 | 501 | 502 | 540 | 0 => Reason::Broken,
                // Whatever else: it may have nothing to do with the row, so it is not dead at once.
                _ => Reason::Refused,
            };
            return self.fail(job, Fault { reason, text: format!("{code} {text}") }, out);
        }
        let jobs = self.sent.take_all();
        // Once more, one by one: it may have closed for another reason.
        self.careful = jobs.len();
        self.again(jobs);
    }
}
