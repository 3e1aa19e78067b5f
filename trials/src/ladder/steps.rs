//! The steps by which system 1 grew, each off or on.

/// How many rows a batch has, at every step.
pub const BATCH_ROWS: usize = 1000;

/// The index that finds what is not processed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Index {
    /// Only the primary key: every query reads the whole table and sorts.
    #[default]
    None,
    /// Its own: everything that the query reads is in the index.
    Covering,
    /// What `millrace relay install` recommends.
    Partial,
}

/// Which steps are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    pub index: Index,
    /// All publishes of a batch, then all confirms; else each confirm before the next publish.
    pub publishes_together: bool,
    /// One `UPDATE .. FROM (VALUES ..)` for the batch; else one `UPDATE` for each row.
    pub updates_together: bool,
    /// More than one share the table by `FOR UPDATE SKIP LOCKED`.
    pub workers: usize,
    /// Each worker publishes on a channel of its own and awaits the batch; else all share a channel, and
    /// each message's confirm is awaited.
    pub has_own_channel: bool,
    pub confirms: bool,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            index: Index::None,
            publishes_together: false,
            updates_together: false,
            workers: 1,
            has_own_channel: false,
            confirms: true,
        }
    }
}

impl Steps {
    pub const FINAL: Self = Self {
        index: Index::Covering,
        publishes_together: true,
        updates_together: true,
        workers: 5,
        has_own_channel: true,
        confirms: true,
    };

    /// The query of one batch.
    pub fn select(self) -> String {
        let lock = if self.workers > 1 { " FOR UPDATE SKIP LOCKED" } else { "" };
        format!(
            "SELECT id::text, type, content::text FROM outbox_messages \
             WHERE processed_on_utc IS NULL ORDER BY occurred_on_utc LIMIT {BATCH_ROWS}{lock}"
        )
    }
}

impl Index {
    pub fn create(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Covering => {
                "CREATE INDEX idx_outbox_messages_unprocessed ON outbox_messages \
                 (occurred_on_utc, processed_on_utc) INCLUDE (id, type, content) \
                 WHERE processed_on_utc IS NULL"
            }
            Self::Partial => {
                "CREATE INDEX idx_outbox_messages_unprocessed ON outbox_messages \
                 (occurred_on_utc, id) WHERE processed_on_utc IS NULL"
            }
        }
    }
}

/// One row, as its update by itself marks it.
pub const UPDATE_ONE: &str =
    "UPDATE outbox_messages SET processed_on_utc = $1, error = $2 WHERE id = $3::text::uuid";

/// The update of a whole batch: three parameters for each row, built anew for every batch.
pub fn update_all(rows: usize) -> String {
    use std::fmt::Write;
    let mut values = String::with_capacity(rows * 20);
    for row in 0..rows {
        let comma = if row == 0 { "" } else { "," };
        let first = row * 3 + 1;
        let _ = write!(values, "{comma}(${first},${},${})", first + 1, first + 2);
    }
    format!(
        "UPDATE outbox_messages SET processed_on_utc = v.processed_on_utc, error = v.error \
         FROM (VALUES {values}) AS v(id, processed_on_utc, error) \
         WHERE outbox_messages.id = v.id::uuid"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parallel_workers_skip_what_is_locked() {
        assert!(!Steps::default().select().contains("SKIP LOCKED"));
        assert!(Steps::FINAL.select().ends_with("LIMIT 1000 FOR UPDATE SKIP LOCKED"));
    }

    #[test]
    fn the_update_of_a_batch_numbers_three_parameters_for_each_row() {
        assert!(update_all(2).contains("(VALUES ($1,$2,$3),($4,$5,$6)) AS v"));
    }
}
