//! What is to happen when, and a hash of all that did.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Microseconds since the simulation began.
pub(super) type Micros = u64;

/// One thing that happens. Nodes are counted from 0; `life` says which start of the node it belongs
/// to: nothing outlives the process it was meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// A shard's thread takes a turn.
    Step {
        node: usize,
        shard: usize,
        life: u64,
    },
    /// The log's writer has written and synced what it took.
    Written {
        node: usize,
        life: u64,
    },
    /// The log's writer looks whether a full disk has room.
    Room {
        node: usize,
        life: u64,
    },
    /// A reader looks at the first fetch, or at entries for a peer, that wait.
    Read {
        node: usize,
        life: u64,
    },
    /// The flusher writes a checkpoint, or keeps house.
    Flush {
        node: usize,
        life: u64,
    },
    /// What is first in line arrives.
    Arrive {
        from: usize,
        to: usize,
        generation: u64,
    },
    /// One of the two tries to connect, if they are not connected.
    Dial {
        one: usize,
        other: usize,
    },
    /// The end `at` of the connection with `peer` learns that it is closed.
    Closed {
        at: usize,
        peer: usize,
        generation: u64,
    },
    /// Everybody looks how long the others have been silent; the watcher looks, too.
    Look,
    /// The power is back, or the supervisor starts the process again.
    Start {
        node: usize,
    },
    /// The process goes on.
    Resume {
        node: usize,
        life: u64,
    },
    Publisher {
        number: usize,
    },
    Consumer {
        number: usize,
    },
    Visitor {
        number: usize,
    },
    Sweeper {
        number: usize,
    },
    Mover {
        number: usize,
    },
    Control,
    /// The operator looks what is to be done next.
    Operator,
    /// The dead-letter worker of a node asks again.
    DeadLetterWorker {
        node: usize,
    },
    /// The next harm.
    Harm,
    /// The harm with this number is over.
    Undo {
        number: u64,
    },
    /// A node dies, as it was planned.
    Die {
        node: usize,
    },
    /// Something is due at one of the two ends of an AMQP client's connection.
    AmqpClient {
        number: usize,
    },
    /// Policies, rights and limits are changed.
    Administrator,
    /// Something is due at the sessions that are tried.
    Examiner,
    /// Queues are paused, and go on.
    Pauser,
    /// Queues are purged, and that is undone.
    Waverer,
    /// Dead letters are sent on.
    Retrier,
    /// Somebody publishes to a stream, reads one, or declares them.
    Stream {
        number: usize,
    },
    /// Somebody wants a lock, or does not want it any more.
    Lock {
        number: usize,
    },
    /// Somebody publishes to a queue with a rate, consumes from one, or declares them.
    Rated {
        number: usize,
    },
}

/// Events in the order of their time; those of one instant in the order in which they were noted.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    now: Micros,
    noted: u64,
    events: BTreeMap<(Micros, u64), Event>,
    count: u64,
    hasher: DefaultHasher,
}

impl Agenda {
    pub(super) fn now(&self) -> Micros {
        self.now
    }

    /// Events that have happened.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn after(&mut self, delay: Micros, event: Event) {
        self.at(self.now + delay, event);
    }

    pub(super) fn at(&mut self, time: Micros, event: Event) {
        self.noted += 1;
        self.events.insert((time.max(self.now), self.noted), event);
    }

    /// The next event; the time is its time from now on.
    pub(super) fn next(&mut self) -> Option<Event> {
        let ((time, _), event) = self.events.pop_first()?;
        self.now = time;
        self.count += 1;
        self.mix(&(time, event));
        Some(event)
    }

    /// What happened besides belongs to the hash, too.
    pub(super) fn mix(&mut self, what: &(impl Hash + ?Sized)) {
        what.hash(&mut self.hasher);
    }

    /// Of everything so far.
    pub(super) fn hash(&self) -> u64 {
        self.hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_noting() {
        let mut agenda = Agenda::default();
        agenda.after(5, Event::Harm);
        agenda.after(2, Event::Look);
        agenda.after(5, Event::Control);
        let order: Vec<_> = std::iter::from_fn(|| Some((agenda.next()?, agenda.now()))).collect();
        assert_eq!(order, [(Event::Look, 2), (Event::Harm, 5), (Event::Control, 5)]);
        assert_eq!(agenda.count(), 3);
    }
}
