//! Rows that the broker has taken too late for their batch: they need not be published again soon.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::batch::{Batch, OutboxRow};

/// For how long such a confirm is remembered. Not for ever: the row may be replayed.
const LATE_FOR: Duration = Duration::from_secs(60);
/// How many are.
const LATE_MAX: usize = 100_000;

/// What the workers of one relay know of such rows, by place and id.
#[derive(Debug, Default)]
pub(in crate::io) struct Late(Mutex<BTreeMap<(u64, String), Instant>>);

impl Late {
    /// The broker has taken the message of row `id`.
    pub(in crate::io) fn note(&self, place: u64, id: String) {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if late.len() >= LATE_MAX {
            late.retain(|_, at| at.elapsed() < LATE_FOR);
        }
        if late.len() < LATE_MAX {
            late.insert((place, id), Instant::now());
        }
    }

    /// There may be some.
    fn has_some(&self) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The broker has taken these rows of a batch, and they are not marked. `id`: the column of their ids.
    pub(in crate::io) fn note_rows(&self, batch: &Batch, rows: &[usize], id: usize) {
        for &row in rows {
            let OutboxRow { place, fields } = &batch.rows()[row];
            if let Some(id) = fields.text(id) {
                self.note(*place, id.to_owned());
            }
        }
    }

    /// Those of `rows` that the broker has taken a moment ago, too late for their batch; each counts once.
    pub(in crate::io) fn take_rows(&self, rows: &[OutboxRow], id: usize) -> Vec<usize> {
        if !self.has_some() {
            return Vec::new();
        }
        let is_late = |row: &OutboxRow| {
            let id = row.fields.text(id);
            id.is_some_and(|id| self.take(row.place, id))
        };
        (0..rows.len()).filter(|&row| is_late(&rows[row])).collect()
    }

    /// Whether row `id` was confirmed too late a moment ago; counts once.
    fn take(&self, place: u64, id: &str) -> bool {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        late.remove(&(place, id.to_owned())).is_some_and(|at| at.elapsed() < LATE_FOR)
    }
}
