//! Hands ready messages to consumers with credit, oldest message first.
//!
//! The highest priority that has a consumer with credit is served. Within it turns go round: single
//! messages while there are few, so that a handful spreads evenly, and small chunks when there is a
//! backlog, so that a delivery costs less. A consumer that is alone gets as long a run as its credit.
//!
//! A queue with rates is dealt by `dispatch_within`. A queue without never comes there, and pays nothing for rates.

use crate::limits::{SINGLE_TURNS_PER_CONSUMER, TURN_MESSAGES_MAX};
use crate::queue::Effect;
use crate::queue::consumers::Consumers;
use crate::queue::reader::{Popped, Reading};
use crate::scheduler::budget::{Budget, Waiting};
use crate::scheduler::times::Times;

/// Delivers until nothing is ready or nobody has credit. What expired before `before_ms` is thrown away
/// as it comes to the front.
pub(crate) fn dispatch(
    mut reading: Reading<'_>,
    consumers: &mut Consumers,
    before_ms: u64,
    effects: &mut Vec<Effect>,
) {
    let fresh = |reading: &mut Reading<'_>, max| reading.pop_fresh(max, before_ms);
    while deal(&mut reading, consumers, fresh, effects).is_some() {}
}

/// The same of messages below `below`: what a filter was asked of.
pub(crate) fn dispatch_below(
    below: u64,
    mut reading: Reading<'_>,
    consumers: &mut Consumers,
    before_ms: u64,
    effects: &mut Vec<Effect>,
) {
    while let Some(room) = room(&reading, below) {
        let fresh =
            |reading: &mut Reading<'_>, max: u64| reading.pop_fresh(max.min(room), before_ms);
        if deal(&mut reading, consumers, fresh, effects).is_none() {
            return;
        }
    }
}

/// How many of the next messages may lie below `below`. None: the first does not.
fn room(reading: &Reading<'_>, below: u64) -> Option<u64> {
    below.checked_sub(reading.waiting().first()?).filter(|room| *room > 0)
}

/// The same as far as the budget goes, for a queue with rates. The budget is told when something waits for it.
pub(crate) fn dispatch_within(
    (budget, below): (&mut Budget, u64),
    mut reading: Reading<'_>,
    consumers: &mut Consumers,
    before_ms: u64,
    effects: &mut Vec<Effect>,
) {
    loop {
        reading.expire(before_ms);
        let Some(room) = room(&reading, below).filter(|_| consumers.next_turn().is_some()) else {
            return;
        };
        let max = reading.affordable(budget).min(room);
        if max == 0 {
            let messages = reading.waiting().len().min(room).min(consumers.free_credit());
            budget.wait(Waiting { bytes: reading.first_bytes(), messages });
            return;
        }
        let fresh =
            |reading: &mut Reading<'_>, fair: u64| reading.pop_fresh(fair.min(max), before_ms);
        let Some(popped) = deal(&mut reading, consumers, fresh, effects) else { return };
        charge(&reading, budget, &popped);
    }
}

fn charge(reading: &Reading<'_>, budget: &mut Budget, popped: &Popped) {
    if !(popped.was_returned && planted::is("requeue_uncharged")) {
        reading.charge(budget, &popped.range);
    }
}

/// The same for a queue with order by key, in turns; and as far as the budget goes, where there is one.
pub(crate) fn dispatch_turns(
    mut budget: Option<&mut Budget>,
    mut reading: Reading<'_>,
    consumers: &mut Consumers,
    times: Times,
    effects: &mut Vec<Effect>,
) {
    while consumers.next_turn().is_some()
        && let Some(run) = reading.next_turn(times)
    {
        let affordable =
            budget.as_ref().map_or(u64::MAX, |it| reading.affordable_of(run.clone(), it));
        if let Some(budget) = budget.as_deref_mut().filter(|_| affordable == 0) {
            // Each key has one message out, and the next turns are not known yet.
            let messages = reading.waiting().len().min(consumers.free_credit());
            let bytes = reading.bytes_of(&(run.start..run.start + 1));
            budget.wait(Waiting { bytes, messages });
            return;
        }
        let turn = |reading: &mut Reading<'_>, fair: u64| {
            Some(reading.pop_turn(run, fair.min(affordable)))
        };
        let Some(popped) = deal(&mut reading, consumers, turn, effects) else { return };
        if let Some(budget) = budget.as_deref_mut() {
            charge(&reading, budget, &popped);
        }
    }
}

/// Gives whoever has its turn what `pop` takes of at most so many messages. `None`: nothing is ready, or nobody has
/// credit.
#[inline]
fn deal(
    reading: &mut Reading<'_>,
    consumers: &mut Consumers,
    pop: impl FnOnce(&mut Reading<'_>, u64) -> Option<Popped>,
    effects: &mut Vec<Effect>,
) -> Option<Popped> {
    if reading.waiting().is_empty() {
        return None;
    }
    let waiting = consumers.waiting();
    let mut turn = consumers.next_turn()?;
    let fair =
        turn_messages(reading.waiting().len(), waiting, turn.is_alone(), turn.holder().credit);
    let popped = pop(reading, u64::from(fair))?;
    let Popped { ref range, was_returned, returns } = popped;
    let count = (range.end - range.start) as u32;
    let holder = turn.holder();
    let no_ack = holder.spec.no_ack;
    assert!(range.end <= reading.end.0, "what goes out has come");
    assert!(count <= holder.credit, "nobody is given more than it has credit for");
    holder.credit -= count;
    if !no_ack {
        holder.held.of(reading.reader.id.priority()).insert(range.clone());
    }
    let waits = reading.reader.give(range, no_ack);
    let consumer = turn.consumer();
    turn.end(if no_ack { 0 } else { u64::from(count) });
    effects.push(Effect::Deliver {
        queue: reading.reader.id,
        consumer,
        first_seq: range.start,
        count,
        redelivered: was_returned,
        no_ack,
        returns,
        waits,
    });
    Some(popped)
}

/// How many messages the next turn is worth: at least 1, at most the credit.
fn turn_messages(ready: u64, waiting: usize, is_alone: bool, credit: u32) -> u32 {
    if is_alone {
        return credit;
    }
    let fair = ready / (SINGLE_TURNS_PER_CONSUMER * waiting.max(1) as u64);
    let fair = u32::try_from(fair).unwrap_or(u32::MAX).clamp(1, TURN_MESSAGES_MAX);
    credit.min(fair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handful_is_dealt_one_by_one_and_a_backlog_in_chunks() {
        assert_eq!(turn_messages(100, 2, false, 50), 1);
        assert_eq!(turn_messages(10_000, 2, false, 50), TURN_MESSAGES_MAX);
        assert_eq!(turn_messages(10_000, 2, false, 3), 3);
    }

    #[test]
    fn a_consumer_that_is_alone_gets_all_its_credit() {
        assert_eq!(turn_messages(5, 1, true, 50), 50);
    }

    #[test]
    fn many_consumers_and_any_backlog_stay_within_the_turn() {
        assert_eq!(turn_messages(u64::MAX, 1, false, u32::MAX), TURN_MESSAGES_MAX);
        assert_eq!(turn_messages(0, usize::MAX >> 8, false, 9), 1);
    }
}
