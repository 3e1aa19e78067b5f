//! Several inboxes side by side, one for each connection to the database: who stores which row.
//!
//! Under an order per key, one of them has all rows of a key, and so stores them in the order of their delivery. A row
//! that cannot be stored holds up what its worker has, and nobody else's.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{Config, Counts, Inbox, Input, Output, Row};
use crate::config::Order;
use crate::limits::HELD_BYTES_MAX;

/// Which worker an output is for.
pub type Outputs = Vec<(usize, Output)>;

/// Rows on their way from one queue to one table, on several connections.
#[derive(Debug)]
pub struct Workers {
    order: Order,
    inboxes: Vec<Inbox>,
}

impl Workers {
    /// As many as are wanted; each waits for its database.
    pub fn new(config: &Config) -> Self {
        assert!(config.workers > 0, "somebody stores");
        assert!(config.order != Order::Strict || config.workers == 1, "one line has one worker");
        let inbox = || Inbox::new(config.batch as usize, config.on_refused);
        Self { order: config.order, inboxes: (0..config.workers).map(|_| inbox()).collect() }
    }

    /// What all of them have counted.
    pub fn counts(&self) -> Counts {
        self.inboxes.iter().fold(Counts::default(), |sum, inbox| sum.plus(inbox.counts()))
    }

    /// How many rows are here and not stored.
    pub fn held(&self) -> usize {
        self.inboxes.iter().map(Inbox::held).sum()
    }

    /// Takes what came from the broker, in its order, and appends what to do. Which worker has each row.
    pub fn deliver(&mut self, rows: Vec<Row>, out: &mut Outputs) -> Vec<usize> {
        let mut parts: Vec<Vec<Row>> = vec![Vec::new(); self.inboxes.len()];
        let mut owners = Vec::with_capacity(rows.len());
        for row in rows {
            let owner = self.owner(&row, &parts);
            parts[owner].push(row);
            owners.push(owner);
        }
        for (worker, part) in parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            self.step(worker, Input::Delivered(part), out);
        }
        let (rows, bytes) = self
            .inboxes
            .iter()
            .map(Inbox::held_of_connection)
            .fold((0, 0), |(rows, bytes), (more_rows, more_bytes)| {
                (rows + more_rows, bytes + more_bytes)
            });
        // Of what this connection has delivered: to take less of that makes orphans no fewer.
        if bytes > HELD_BYTES_MAX && rows > 1 {
            out.push((0, Output::TakeLess));
        }
        owners
    }

    fn owner(&self, row: &Row, parts: &[Vec<Row>]) -> usize {
        match (self.order, &row.key) {
            (Order::Strict, _) => 0,
            (Order::Key, Some(key)) => {
                let mut hasher = DefaultHasher::new();
                key.hash(&mut hasher);
                (hasher.finish() % self.inboxes.len() as u64) as usize
            }
            // Whoever has least: nobody who is held up.
            (Order::Key | Order::None, _) => {
                let load = |worker: &usize| self.inboxes[*worker].held() + parts[*worker].len();
                (0..self.inboxes.len()).min_by_key(load).expect("somebody stores")
            }
        }
    }

    /// Something happened to one worker.
    pub fn step(&mut self, worker: usize, input: Input, out: &mut Outputs) {
        let mut own = Vec::new();
        self.inboxes[worker].step(input, &mut own);
        let are_done = self.inboxes.iter().all(Inbox::is_done);
        let told = own.into_iter().filter(|output| *output != Output::Stopped || are_done);
        out.extend(told.map(|output| (worker, output)));
    }

    /// Something happened to all of them.
    pub fn step_all(&mut self, input: &Input, out: &mut Outputs) {
        for worker in 0..self.inboxes.len() {
            self.step(worker, input.clone(), out);
        }
    }
}

#[cfg(test)]
mod tests;
