//! Where the dead letters of a queue go: to its dead-letter exchange, and from there as any message,
//! but for cycles; or aside, if they came back too often and nobody said where they are to go.

use std::cell::OnceCell;

use amqp::{Properties, TableRef};
use bytes::BytesMut;
use machine::limits::NAME_BYTES_MAX;
use machine::{Catalog, HashProperty, Headers, Outcome, Queue, QueueId, Target, ValueView};
use sha2::{Digest as _, Sha256};

use super::letter::{Death, Letter, write_letter};
use crate::session::attributes::Asked;

/// What a queue set aside is called: this behind the name of the queue that its messages are from.
const ASIDE: &str = ".dead";

/// A queue with dead messages, as far as sending them on goes.
#[derive(Clone, Debug)]
pub(crate) struct Origin<'c> {
    catalog: &'c Catalog,
    queue: &'c Queue,
    reason: Outcome,
    exchange: &'c str,
    key: Option<String>,
}

/// Why messages cannot be sent on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoOrigin {
    /// Their queue is gone, and they with it.
    Gone,
    /// Their queue is newer than this node's catalog.
    Unknown,
    /// The queue that keeps them aside is to be declared first: vhost and name.
    NoAside(String, String),
}

/// What came of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has targets.
    Routed,
    /// It has one: the queue that keeps such messages aside.
    Aside,
    /// The exchange leads nowhere.
    Unroutable,
    /// Its queue names no exchange, or one that does not exist.
    NoExchange,
    /// It would go round for ever.
    Cycle,
}

/// A dead letter and where it goes. Kept, so that its buffers are used again.
#[derive(Debug, Default)]
pub(crate) struct Forwarded {
    /// Without duplicates and cycles.
    pub(crate) targets: Vec<Target>,
    /// Exchange and routing key as on the wire, then properties.
    pub(crate) head: BytesMut,
    /// What the message asks of the queues.
    pub(crate) asked: Asked,
}

/// What becomes of a message of `queue` that died at `time_ms`: `head` is what is, or would have been,
/// stored of it. Without targets it is dropped.
pub(crate) fn forward(
    catalog: &Catalog,
    queue: QueueId,
    reason: Outcome,
    time_ms: u64,
    head: &[u8],
    out: &mut Forwarded,
) -> Fate {
    match Origin::find(catalog, queue, reason) {
        Ok(origin) => origin.forward(time_ms, head, 0, out),
        Err(_) => {
            out.targets.clear();
            Fate::NoExchange
        }
    }
}

impl<'c> Origin<'c> {
    pub(crate) fn find(
        catalog: &'c Catalog,
        queue: QueueId,
        reason: Outcome,
    ) -> Result<Self, NoOrigin> {
        let Some(queue) = catalog.queue_by_id(queue.base()) else {
            let is_known = queue.base().0 < catalog.next_queue();
            return Err(if is_known { NoOrigin::Gone } else { NoOrigin::Unknown });
        };
        let origin = |exchange, key| Self { catalog, queue, reason, exchange, key };
        if let Some(exchange) = queue.dead_letter_exchange() {
            return Ok(origin(exchange, queue.dead_letter_key().map(str::to_owned)));
        }
        let aside = aside_of(&queue.name);
        if catalog.queue(&queue.vhost, &aside).is_none() && reason == Outcome::Exhausted {
            return Err(NoOrigin::NoAside(queue.vhost.clone(), aside));
        }
        Ok(origin("", Some(aside)))
    }

    pub(crate) fn vhost(&self) -> &'c str {
        &self.queue.vhost
    }

    pub(crate) fn name(&self) -> &'c str {
        &self.queue.name
    }

    /// `chance` is drawn for the message.
    pub(crate) fn forward(
        &self,
        time_ms: u64,
        head: &[u8],
        chance: u64,
        out: &mut Forwarded,
    ) -> Fate {
        out.targets.clear();
        out.head.clear();
        let is_aside = self.queue.dead_letter_exchange().is_none();
        if is_aside && self.reason != Outcome::Exhausted {
            return Fate::NoExchange;
        }
        let death = Death {
            queue: &self.queue.name,
            reason: self.reason,
            time_s: time_ms / 1000,
            exchange: self.exchange,
            key: self.key.as_deref(),
        };
        let letter = write_letter(head, &death, &mut out.head);
        out.asked = Asked { priority: letter.properties.priority.unwrap_or(0), ..Asked::default() };
        if !self.route(&letter, chance, out) {
            return Fate::NoExchange;
        }
        if out.targets.iter().all(|target| target.is_history) {
            return Fate::Unroutable;
        }
        if is_aside {
            return Fate::Aside;
        }
        self.leave_cycles_out(&letter, &mut out.targets);
        if out.targets.is_empty() {
            return Fate::Cycle;
        }
        if out.targets.iter().any(|target| target.dedups) {
            out.asked.key = crate::session::attributes::key(&letter.properties);
        }
        Fate::Routed
    }

    /// False: there is no such exchange.
    fn route(&self, letter: &Letter<'_>, chance: u64, out: &mut Forwarded) -> bool {
        let Forwarded { targets, head, .. } = out;
        let asked = View { head, letter, headers: OnceCell::new(), chance };
        let (vhost, keys) = (&self.queue.vhost, &letter.keys);
        let routed = self.catalog.route_inside(vhost, self.exchange, keys, &asked, targets);
        routed.is_ok()
    }

    fn leave_cycles_out(&self, letter: &Letter<'_>, targets: &mut Vec<Target>) {
        if self.reason == Outcome::Rejected {
            return;
        }
        targets.retain(|target| match self.catalog.queue_by_id(target.queue) {
            Some(queue) => !letter.trail.is_cycle(&queue.name),
            None => false,
        });
    }
}

/// The name of the queue that keeps the messages of `name` which came back too often. Of a name that
/// leaves no room the end is replaced by a hash of it.
pub(crate) fn aside_of(name: &str) -> String {
    if name.len() + ASIDE.len() <= NAME_BYTES_MAX {
        return format!("{name}{ASIDE}");
    }
    let digest = Sha256::digest(name);
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let end = name.floor_char_boundary(NAME_BYTES_MAX - ASIDE.len() - hash.len() - 1);
    format!("{}-{hash}{ASIDE}", name.get(..end).unwrap_or_default())
}

/// What routing may ask of a letter.
struct View<'l> {
    /// The letter's own: its headers tell of its death.
    head: &'l [u8],
    letter: &'l Letter<'l>,
    headers: OnceCell<Option<TableRef<'l>>>,
    chance: u64,
}

impl Headers for View<'_> {
    fn find(&self, name: &str) -> Option<ValueView<'_>> {
        let headers = self.headers.get_or_init(|| {
            let (_, raw) = crate::session::deliveries::split_head(self.head)?;
            Properties::decode(raw).ok()?.headers
        });
        headers.as_ref()?.find(name).map(crate::session::values::view)
    }

    fn property(&self, property: HashProperty) -> Option<ValueView<'_>> {
        let properties = &self.letter.properties;
        match property {
            HashProperty::MessageId => text(properties.message_id),
            HashProperty::CorrelationId => text(properties.correlation_id),
            HashProperty::Timestamp => properties.timestamp.map(ValueView::Timestamp),
        }
    }

    fn chance(&self) -> u64 {
        self.chance
    }
}

fn text(text: Option<&str>) -> Option<ValueView<'_>> {
    text.map(|text| ValueView::LongStr(text.as_bytes()))
}
