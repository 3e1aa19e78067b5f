//! What the broker's answers mean, and what it means that there is none.

use std::time::{Duration, Instant};

use client::{Run, Verdict};

use super::poison::Loss;
use super::window::Message;
use super::{Answer, Publisher, Row, Rows, Settled};
use crate::attempts::{Fault, Reason};

const NOBODY_ANSWERS: &str = "the broker neither confirmed nor refused it in time";
const LOST_AGAIN: &str =
    "the connection to the broker was lost again and again while it alone was in flight";
const LOST_ALWAYS: &str =
    "the connection to the broker is lost whenever this is published, while others are confirmed";

impl Publisher {
    /// The broker has said what became of some messages.
    pub fn verdict(&mut self, now: Instant, verdict: Verdict) {
        let mut messages = Vec::new();
        // Whatever the answer is: the connection was not lost at it.
        let alone = self.alone.take();
        self.poison.forget(alone);
        match verdict {
            Verdict::Confirmed(run) => {
                self.outage.confirmed(now);
                self.in_flight.take(run, now, &mut messages);
                self.poison.confirmed(messages.len());
                for Message { row, is_released, .. } in messages {
                    match is_released {
                        true => self.settled.push_back(Settled::Late { row: row.seq }),
                        false => self.answer(&row, Answer::Confirmed),
                    }
                }
                // What was refused beside it was not refused by an outage.
                let refused = std::mem::take(&mut self.refused);
                refused.into_iter().for_each(|row| self.refuse(row, true));
            }
            Verdict::Returned { seq, code, text } => {
                self.in_flight.take(Run { first: seq, last: seq }, now, &mut messages);
                for message in messages.into_iter().filter(|it| !it.is_released) {
                    let text = format!("no queue was found for it: {code} {text}");
                    let fault = Fault { reason: Reason::Unroutable, text };
                    self.fail(&message.row, fault, true);
                }
            }
            Verdict::Refused(run) => {
                self.in_flight.take(run, now, &mut messages);
                if self.refused.is_empty() {
                    self.probe_at = now + self.outage.next_probe();
                }
                for message in messages.into_iter().filter(|it| !it.is_released) {
                    // Others were confirmed while it was in flight: the broker takes messages.
                    match self.outage.confirmed_at.is_some_and(|at| at >= message.at) {
                        true => self.refuse(message.row, true),
                        false => self.refused.push(message.row),
                    }
                }
            }
        }
        if !self.refused.is_empty() && self.in_flight.live_count() == 0 {
            self.refused_all(now);
        }
    }

    /// Everything that was in flight is refused: the broker is ill, and no row is to blame.
    fn refused_all(&mut self, now: Instant) {
        let refused = std::mem::take(&mut self.refused);
        self.outage.pause(now);
        match self.outage.refused_all() {
            false => self.again(refused),
            // Or one full queue has all of these: others must pass.
            true => {
                let is_charged = planted::is("relay_outage_charged");
                refused.into_iter().for_each(|row| self.refuse(row, is_charged));
            }
        }
    }

    fn refuse(&mut self, row: Row, is_charged: bool) {
        let text = "the broker refused it (basic.nack)".into();
        self.fail(&row, Fault { reason: Reason::Refused, text }, is_charged);
    }

    /// All that lost its connection.
    fn take_in_flight(&mut self) -> Vec<Message> {
        self.take_back();
        self.is_connected = false;
        self.in_flight.take_all()
    }

    /// To be published again, with what was refused on the same connection.
    fn again_with_refused(&mut self, messages: Vec<Message>) {
        let mut rows = std::mem::take(&mut self.refused);
        rows.extend(messages.into_iter().map(|message| message.row));
        if planted::is("relay_lost_confirmed") {
            rows.into_iter().for_each(|row| self.answer(&row, Answer::Confirmed));
            return;
        }
        if planted::is("relay_lost_forgotten") {
            return;
        }
        self.again(rows);
    }

    /// The connection was lost without a word: an outage, or one of the rows in flight.
    pub fn lost(&mut self, now: Instant, rows: &mut impl Rows) {
        let is_alone = self.alone.is_some() || self.poison.is_isolating();
        let sole = self.in_flight.sole().filter(|_| is_alone);
        let mut messages = self.take_in_flight();
        self.alone = None;
        self.outage.pause(now);
        let Some(seq) = sole else {
            self.poison.lost(messages.len());
            return self.again_with_refused(messages);
        };
        let (reason, is_charged, text) = match self.poison.lost_alone(rows.name(seq), now) {
            Loss::Again => return self.again_with_refused(messages),
            Loss::Unknown => (Reason::Unanswered, false, LOST_AGAIN),
            Loss::Own => (Reason::Refused, true, LOST_ALWAYS),
        };
        let message = messages.pop().expect("it was in flight");
        self.again_with_refused(messages);
        self.fail(&message.row, Fault { reason, text: text.into() }, is_charged);
    }

    /// The broker closed because of something that it was sent. With one row at a time it is known which.
    pub fn closed(&mut self, now: Instant, code: u16, text: &str) {
        let is_alone = self.alone.take().is_some() || self.poison.is_isolating();
        let sole = self.in_flight.sole().filter(|_| is_alone);
        let mut messages = self.take_in_flight();
        self.alone = None;
        self.outage.pause(now);
        if sole.is_none() {
            // Once more, one by one: it may have closed for another reason.
            self.poison.closed(messages.len());
            return self.again_with_refused(messages);
        }
        let reason = match code {
            // The exchange is missing, or this user may not publish to it: somebody can mend that.
            403 | 404 => Reason::Unroutable,
            311 => Reason::TooLarge,
            _ if text.contains("larger than") || text.contains("too large") => Reason::TooLarge,
            406 | 501 | 502 | 540 | 0 => Reason::Broken,
            // Whatever else: it may have nothing to do with the row, so it is not dead at once.
            _ => Reason::Refused,
        };
        let message = messages.pop().expect("it was in flight");
        self.again_with_refused(messages);
        self.fail(&message.row, Fault { reason, text: format!("{code} {text}") }, true);
    }

    /// The broker blocks publishers.
    pub fn blocked(&mut self, now: Instant) {
        self.outage.blocked(now);
    }

    /// When the oldest message has waited too long for its answer.
    pub fn silent_at(&self) -> Option<Instant> {
        let since = self.in_flight.oldest_since().filter(|_| self.is_connected)?;
        Some(self.outage.ends_at(since))
    }

    /// Whether the connection is to be cut, because the oldest message has waited for so long.
    pub fn cut(&mut self, now: Instant) -> Option<Duration> {
        self.silent_at().filter(|at| now > *at).map(|_| self.outage.cut())
    }

    /// The connection was cut: the oldest message was without an answer for too long. A broker that answers others
    /// leaves some without an answer, as a queue without a majority does; or it has answered nothing, again and again.
    /// The rows that had their time make way for others.
    pub fn silent(&mut self, now: Instant) {
        let is_late = self.is_late(now);
        // No loss of a connection was seen of what was alone.
        let alone = self.alone.take();
        self.poison.forget(alone);
        let messages = self.take_in_flight();
        self.outage.pause(now);
        let (late, others): (Vec<Message>, Vec<Message>) =
            messages.into_iter().partition(|message| is_late(message.at));
        self.again_with_refused(others);
        self.fail_unanswered(late);
    }

    /// The source's time is over. Of what is in flight, the rows that had their time make way for others.
    pub fn expire(&mut self, now: Instant) {
        self.take_back();
        let is_late = self.is_late(now);
        let mut messages = self.in_flight.release();
        messages.retain(|message| is_late(message.at));
        if messages.is_empty() && self.in_flight.count() > 0 {
            self.outage.pause(now);
        }
        self.fail_unanswered(messages);
    }

    fn fail_unanswered(&mut self, messages: Vec<Message>) {
        for message in messages {
            let fault = Fault { reason: Reason::Unanswered, text: NOBODY_ANSWERS.into() };
            self.fail(&message.row, fault, false);
        }
    }

    /// Which messages had their time, by when they were published.
    fn is_late(&mut self, now: Instant) -> impl Fn(Instant) -> bool + use<> {
        let oldest = self.in_flight.oldest_live();
        let is_deaf = oldest.is_some() && self.outage.silent();
        let was_alone = self.alone.is_some() || self.poison.is_isolating();
        let confirmed_at = self.outage.confirmed_at;
        let since = oldest.unwrap_or(now);
        move |at| {
            // Others were confirmed after it was published, and it waits for about as long as the oldest.
            let others_passed = confirmed_at.is_some_and(|confirmed| confirmed >= at);
            is_deaf || was_alone || others_passed && now - at >= (now - since) / 2
        }
    }
}
