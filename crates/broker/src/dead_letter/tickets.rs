//! The dead-letter worker's numbers for its questions.

use cluster::Ticket;

/// Counts up.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    next: u64,
}

impl Tickets {
    pub(super) fn issue(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }
}
