//! One number that a node counts: its key in the line of SIGUSR1, and its name and meaning for Prometheus.

use std::sync::atomic::{AtomicU64, Ordering};

use super::family::{Family, Kind, Samples};

/// What the names of all of them begin with.
pub(super) const PREFIX: &str = "millrace";

/// One number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// The object of the line that it stands in; empty: the line itself.
    pub(super) part: &'static str,
    /// Its key there.
    pub(super) key: &'static str,
    /// For Prometheus, without what its kind adds. Rows of one name stand together, and differ in their label.
    pub(super) name: &'static str,
    pub(super) label: Option<(&'static str, &'static str)>,
    pub(super) kind: Kind,
    pub(super) meaning: &'static str,
    pub(super) value: u64,
}

/// Rows of one name are one family.
pub(super) fn families(rows: &[Row]) -> impl Iterator<Item = Family> {
    rows.chunk_by(|one, next| one.name == next.name).filter_map(|rows| {
        let Row { name, kind, meaning, .. } = *rows.first()?;
        let label = |row: &Row| row.label.map(|(label, value)| (label, value.to_owned()));
        let samples = rows.iter().map(|row| (label(row).into_iter().collect(), row.value));
        let samples = Samples::Each(samples.collect());
        Some(Family { prefix: PREFIX, name, kind, meaning, samples })
    })
}

pub(super) fn now(
    part: &'static str,
    key: &'static str,
    name: &'static str,
    meaning: &'static str,
    count: usize,
) -> Row {
    let value = u64::try_from(count).unwrap_or(u64::MAX);
    Row { part, key, name, label: None, kind: Kind::Now, meaning, value }
}

/// Makes the rows of one part.
pub(super) struct Part(pub(super) &'static str);

impl Part {
    pub(super) fn of(
        &self,
        kind: Kind,
        key: &'static str,
        name: &'static str,
        meaning: &'static str,
        counter: &AtomicU64,
    ) -> Row {
        let value = counter.load(Ordering::Relaxed);
        Row { part: self.0, key, name, label: None, kind, meaning, value }
    }

    pub(super) fn total(
        &self,
        key: &'static str,
        name: &'static str,
        meaning: &'static str,
        counter: &AtomicU64,
    ) -> Row {
        self.of(Kind::Total, key, name, meaning, counter)
    }

    /// A total of several that differ in why.
    pub(super) fn by_reason(
        &self,
        (key, reason): (&'static str, &'static str),
        name: &'static str,
        meaning: &'static str,
        counter: &AtomicU64,
    ) -> Row {
        Row { label: Some(("reason", reason)), ..self.total(key, name, meaning, counter) }
    }
}
