//! `x-death`: in which queues a message has died before, and of what, as RabbitMQ 3.10 writes it.
//!
//! One table for each queue and reason, the newest first; a death that repeats counts up and moves to
//! the front. Two habits of RabbitMQ are kept, because clients see them: tables behind the newest are
//! turned around at every death, and the newest has its fields sorted by name, but for a first death.

use amqp::{ElementWriter, FieldWriter, TableRef, ValueRef};

use super::death::{Death, REJECTED};
use super::limits;

pub(super) const X_DEATH: &str = "x-death";
const COUNT: &str = "count";
const QUEUE: &str = "queue";
const REASON: &str = "reason";
const TIME: &str = "time";

/// Deaths of one queue and reason, from before.
#[derive(Clone, Copy, Debug)]
struct Past<'m> {
    table: TableRef<'m>,
    queue: Option<&'m [u8]>,
    reason: Option<&'m [u8]>,
    /// Put in front of its fields, because it has none.
    count: Option<i64>,
}

/// A message's `x-death` with the newest death in it.
#[derive(Debug)]
pub(super) struct Deaths<'m> {
    /// The message says nothing of earlier deaths.
    pub(super) is_first: bool,
    /// The newest death's fields are sorted by name.
    is_sorted: bool,
    /// Earlier deaths of the same queue and reason.
    same: Option<Past<'m>>,
    /// The others, in their order.
    others: Vec<Past<'m>>,
    trail: Trail<'m>,
}

/// By which queues a message came to where it died last, and whether on its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trail<'m> {
    /// Newest first, each with whether nobody refused the message there.
    stations: Vec<(&'m [u8], bool)>,
    /// The next letter will not tell of all of them.
    is_cut: bool,
}

/// Where a message died, and how it had come there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastDeath<'m> {
    pub(super) queue: &'m str,
    pub(super) reason: &'m str,
    pub(super) exchange: &'m str,
    /// The first of its routing keys.
    pub(super) key: &'m str,
    pub(super) count: i64,
    pub(super) time_s: u64,
}

impl<'m> LastDeath<'m> {
    /// The newest that `headers` tell of, but for those in `not_in`: retries from there are told like deaths.
    pub(super) fn find(headers: TableRef<'m>, not_in: &str) -> Option<Self> {
        let Some(ValueRef::Array(array)) = headers.find(X_DEATH) else { return None };
        let tables = array.iter().take(limits::DEATHS_READ_MAX).filter_map(|death| match death {
            ValueRef::Table(table) => Self::read(table),
            _ => None,
        });
        let others = tables.enumerate().filter(|(_, death)| death.queue != not_in);
        // The first is the newest; those behind it stand in an order that turns around with each death.
        let newest = others.min_by_key(|(place, death)| (*place > 0, u64::MAX - death.time_s));
        newest.map(|(_, death)| death)
    }

    fn read(table: TableRef<'m>) -> Option<Self> {
        let text = |key| match table.find(key) {
            Some(ValueRef::LongStr(bytes)) => std::str::from_utf8(bytes).ok(),
            Some(_) | None => None,
        };
        let key = match table.find("routing-keys") {
            Some(ValueRef::Array(keys)) => keys.iter().next(),
            Some(_) | None => None,
        };
        let key = match key {
            Some(ValueRef::LongStr(bytes)) => std::str::from_utf8(bytes).ok(),
            Some(_) | None => None,
        };
        Some(Self {
            queue: text(QUEUE)?,
            reason: text(REASON).unwrap_or_default(),
            exchange: text("exchange").unwrap_or_default(),
            key: key.unwrap_or_default(),
            count: table.find(COUNT).and_then(ValueRef::integer).unwrap_or(1),
            time_s: Past::read(table).time(),
        })
    }
}

impl Trail<'_> {
    /// Whether it may go round and round in a way that nobody will ever see: all that is known happened
    /// on its own, and some of that is forgotten now.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_cut && self.stations.iter().all(|(_, is_automatic)| *is_automatic)
    }

    /// Whether a message that comes to `queue` now would go round and round, with nobody deciding so.
    pub(crate) fn is_cycle(&self, queue: &str) -> bool {
        for (station, is_automatic) in &self.stations {
            if !is_automatic {
                return false;
            }
            if *station == queue.as_bytes() {
                return true;
            }
        }
        false
    }
}

impl<'m> Past<'m> {
    fn read(table: TableRef<'m>) -> Self {
        let text = |key| match table.find(key) {
            Some(ValueRef::LongStr(bytes) | ValueRef::Bytes(bytes)) => Some(bytes),
            Some(_) | None => None,
        };
        Self { table, queue: text(QUEUE), reason: text(REASON), count: None }
    }

    fn is_of(&self, queue: Option<&[u8]>, reason: Option<&[u8]>) -> bool {
        (self.queue, self.reason) == (queue, reason)
    }

    fn time(&self) -> u64 {
        match self.table.find(TIME) {
            Some(ValueRef::Timestamp(seconds)) => seconds,
            Some(_) | None => 0,
        }
    }

    /// As it was, but for a count that was missing.
    fn write(&self, elements: &mut ElementWriter<'_>) {
        elements.table(|fields| {
            if let Some(count) = self.count {
                fields.long(COUNT, count);
            }
            fields.raw(self.table.as_bytes());
        });
    }

    /// With one death more, its fields sorted by name.
    fn write_again(&self, fields: &mut FieldWriter<'_>) {
        let before = match self.count {
            Some(count) => Some(count),
            None => self.table.find(COUNT).map(|count| count.integer().unwrap_or(0)),
        };
        let count = before.unwrap_or(0).saturating_add(1);
        let mut all: Vec<(&str, Option<&[u8]>)> =
            self.table.raw_fields().map(|(key, field)| (key, Some(field))).collect();
        match all.iter_mut().find(|(key, _)| *key == COUNT) {
            Some((_, field)) => *field = None,
            None => all.insert(0, (COUNT, None)),
        }
        all.sort_by_key(|(key, _)| *key);
        for (_, field) in all {
            match field {
                Some(field) => fields.raw(field),
                None => fields.long(COUNT, count),
            }
        }
    }
}

impl<'m> Deaths<'m> {
    /// What `headers` say, and `death` on top. What is no table in a list of deaths is none of RabbitMQ's
    /// making, and left out.
    pub(super) fn read(headers: TableRef<'m>, death: &Death<'m>) -> Self {
        let found = headers.find(X_DEATH);
        let mut is_foreign = false;
        let mut tables = Vec::new();
        if let Some(ValueRef::Array(array)) = found {
            for element in array.iter() {
                match element {
                    ValueRef::Table(_) if tables.len() >= limits::DEATHS_READ_MAX => {}
                    ValueRef::Table(table) => tables.push(Past::read(table)),
                    _ => is_foreign = true,
                }
            }
        }
        if tables.len() > 1 {
            tables = grouped(&tables);
        }
        let (queue, reason) = (death.queue.as_bytes(), death.reason_name().as_bytes());
        let same = tables.iter().position(|past| past.is_of(Some(queue), Some(reason)));
        let same = same.map(|place| tables.remove(place));
        let trail = match is_foreign {
            true => Trail::default(),
            false => Trail::new(death, &tables),
        };
        let mut deaths = Self {
            is_first: found.is_none(),
            is_sorted: matches!(found, Some(ValueRef::Array(_))),
            same,
            others: tables,
            trail,
        };
        deaths.keep(limits::DEATHS_MAX - 1);
        deaths
    }

    pub(super) fn into_trail(self) -> Trail<'m> {
        self.trail
    }

    /// How many are told besides the newest.
    pub(super) fn others(&self) -> usize {
        self.others.len()
    }

    /// Forgets the oldest, but for so many.
    pub(super) fn keep(&mut self, max: usize) {
        while self.others.len() > max {
            let times = self.others.iter().map(Past::time).enumerate().rev();
            let Some((oldest, _)) = times.min_by_key(|(_, time)| *time) else { return };
            self.others.remove(oldest);
            self.trail.is_cut = true;
        }
    }

    /// There was no room even for the newest.
    pub(super) fn forget(&mut self) {
        self.trail.is_cut = true;
    }

    /// All of them; `keys` are what the message had been routed by.
    pub(super) fn write(
        &self,
        elements: &mut ElementWriter<'_>,
        death: &Death<'_>,
        told: &Told<'_>,
    ) {
        elements.table(|fields| match &self.same {
            Some(same) => same.write_again(fields),
            None if self.is_sorted => {
                fields.long(COUNT, 1);
                fields.text("exchange", told.exchange.as_bytes());
                told.write_expiration(fields);
                fields.text(QUEUE, death.queue.as_bytes());
                fields.text(REASON, death.reason_name().as_bytes());
                told.write_keys(fields);
                fields.timestamp(TIME, death.time_s);
            }
            None => {
                fields.long(COUNT, 1);
                fields.text(REASON, death.reason_name().as_bytes());
                fields.text(QUEUE, death.queue.as_bytes());
                fields.timestamp(TIME, death.time_s);
                fields.text("exchange", told.exchange.as_bytes());
                told.write_keys(fields);
                told.write_expiration(fields);
            }
        });
        self.others.iter().for_each(|past| past.write(elements));
    }
}

/// What is told of a message where it died.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'t> {
    /// It was published to this, or came here by it.
    pub(super) exchange: &'t str,
    pub(super) keys: &'t [&'t str],
    pub(super) expiration: Option<&'t str>,
}

impl Told<'_> {
    fn write_keys(&self, fields: &mut FieldWriter<'_>) {
        fields.array("routing-keys", |elements| {
            self.keys.iter().for_each(|key| elements.text(key.as_bytes()));
        });
    }

    fn write_expiration(&self, fields: &mut FieldWriter<'_>) {
        if let Some(text) = self.expiration {
            fields.text("original-expiration", text.as_bytes());
        }
    }
}

impl<'m> Trail<'m> {
    fn new(death: &Death<'m>, others: &[Past<'m>]) -> Self {
        let now = (death.queue.as_bytes(), death.reason_name() != REJECTED);
        let before = others.iter().map(|past| {
            let queue = match past.table.find(QUEUE) {
                Some(ValueRef::LongStr(queue)) => queue,
                // Of no queue that there can be.
                Some(_) | None => &[],
            };
            let reason = past.table.find(REASON);
            (queue, reason != Some(ValueRef::LongStr(REJECTED.as_bytes())))
        });
        Self { stations: std::iter::once(now).chain(before).collect(), is_cut: false }
    }
}

/// The last first, and of several of one queue and reason only the first, with a count of all of them
/// if it has none.
fn grouped<'m>(tables: &[Past<'m>]) -> Vec<Past<'m>> {
    let mut groups: Vec<Past<'m>> = Vec::with_capacity(tables.len() + 1);
    for past in tables {
        if groups.iter().any(|known| known.is_of(past.queue, past.reason)) {
            continue;
        }
        let alike = tables.iter().filter(|other| other.is_of(past.queue, past.reason)).count();
        let count = past.table.find(COUNT).is_none().then_some(alike as i64);
        groups.push(Past { count, ..*past });
    }
    groups.reverse();
    groups
}
