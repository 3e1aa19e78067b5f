//! Events of this node on their way to the exchange of events: a bounded queue, between whoever sees one and the one
//! task that publishes them. Nobody waits to tell one: what finds no room is dropped and counted.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use machine::Happened;
use tokio::sync::Notify;

use crate::limits::{EVENTS_WAITING_BYTES_MAX, EVENTS_WAITING_MAX};

/// What is taken to be an event's own weight, beside its texts.
const EVENT_BYTES: usize = 256;

/// The events that wait.
#[derive(Debug, Default)]
pub(crate) struct Events {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Happened>,
    bytes: usize,
}

impl Events {
    /// False: there is no room.
    pub(crate) fn push(&self, event: Happened) -> bool {
        let bytes = weight(&event);
        let mut waiting = self.lock();
        let has_room = waiting.events.len() < EVENTS_WAITING_MAX
            && waiting.bytes + bytes <= EVENTS_WAITING_BYTES_MAX;
        if !has_room {
            return false;
        }
        waiting.bytes += bytes;
        waiting.events.push_back(event);
        drop(waiting);
        self.filled.notify_one();
        true
    }

    fn take(&self, most: usize) -> Vec<Happened> {
        let mut waiting = self.lock();
        let count = waiting.events.len().min(most);
        let taken: Vec<Happened> = waiting.events.drain(..count).collect();
        waiting.bytes -= taken.iter().map(weight).sum::<usize>();
        taken
    }

    /// Waits for some, and gives so many at most. For one task alone.
    pub(crate) async fn next(&self, most: usize) -> Vec<Happened> {
        loop {
            let filled = self.filled.notified();
            let events = self.take(most);
            if !events.is_empty() {
                return events;
            }
            filled.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn weight(happened: &Happened) -> usize {
    EVENT_BYTES + happened.event.weight()
}

#[cfg(test)]
mod tests {
    use machine::{Arguments, Event, Value};

    use super::*;

    fn event(details: Arguments) -> Happened {
        let event = Event::new("queue.deleted", "/", "q").with(details);
        Happened { at_ms: 0, by: None, event }
    }

    #[test]
    fn what_finds_no_room_is_dropped() {
        let events = Events::default();
        let push = || events.push(event(Arguments::new()));
        assert!((0..EVENTS_WAITING_MAX).all(|_| push()));
        assert!(!push());
        assert_eq!(events.take(usize::MAX).len(), EVENTS_WAITING_MAX);
        assert!(push());
        assert_eq!(events.take(5).len(), 1, "there is room again");
    }

    #[test]
    fn events_that_say_much_have_less_room() {
        let events = Events::default();
        let details = Arguments::new().with("long", Value::LongStr(vec![b'x'; 4_000]));
        for _ in 0..EVENTS_WAITING_MAX {
            events.push(event(details.clone()));
        }
        let taken = events.take(usize::MAX).len();
        let bytes = taken * 4_000;
        assert!(bytes <= EVENTS_WAITING_BYTES_MAX && bytes > EVENTS_WAITING_BYTES_MAX / 2);
        assert_eq!(events.lock().bytes, 0);
    }
}
