//! Where the dead letters of a queue go: to its dead-letter exchange, and from there as any message,
//! but for cycles; or aside, if they came back too often and nobody said where they are to go.

use std::borrow::Cow;
use std::cell::OnceCell;

use amqp::{Properties, TableRef};
use bytes::BytesMut;
use machine::limits::NAME_BYTES_MAX;
use machine::{
    Catalog, HashProperty, Headers, Outcome, Overflow, PublishedBy, Queue, QueueId, Target,
    ValueView,
};
use sha2::{Digest as _, Sha256};

use super::death::Death;
use super::rewrite::{Letter, write_letter};
use crate::attributes::Asked;
use crate::partitions;
use crate::stored::split_head;
use crate::values::view;

/// What a queue set aside is called: this behind the name of the queue that its messages are from.
const ASIDE: &str = ".dead";

/// A queue with dead messages, as far as sending them on goes: what its declaration says, which holds
/// for its messages when it is gone, too.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) vhost: String,
    pub(crate) name: String,
    exchange: Option<String>,
    key: Option<String>,
}

/// Why nothing is known of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSource {
    /// It is gone.
    Gone,
    /// It is newer than this node's catalog.
    Unknown,
}

/// Where messages of a queue that died of one reason go.
#[derive(Clone, Debug)]
pub(crate) struct Origin<'c> {
    catalog: &'c Catalog,
    source: &'c Source,
    reason: Outcome,
    exchange: &'c str,
    key: Option<Cow<'c, str>>,
    /// As `Death` has it.
    retries: Option<i64>,
}

/// Why messages cannot be sent on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoOrigin {
    /// Their vhost is gone, and all that they could go to.
    Gone,
    /// The queue that keeps them aside is to be declared first: this is its name.
    NoAside(String),
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
    /// What the message asks of the queues. Not to be left out where its key came lately: a message that
    /// comes back to its queue by way of another is no duplicate.
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
    out.targets.clear();
    let Ok(source) = Source::find(catalog, queue) else { return Fate::NoExchange };
    let Ok(origin) = Origin::of(catalog, &source, reason) else { return Fate::NoExchange };
    origin.forward(time_ms, head, 0, out)
}

impl Source {
    /// A queue from which an operator sends messages on.
    pub(super) fn of_retry(vhost: &str, name: &str) -> Self {
        let (vhost, name) = (vhost.to_owned(), name.to_owned());
        Self { vhost, name, exchange: None, key: None }
    }

    pub(crate) fn find(catalog: &Catalog, queue: QueueId) -> Result<Self, NoSource> {
        let found = catalog.queue_by_id(queue).or_else(|| catalog.departed(queue));
        let Some(found) = found else {
            let was_there = queue.base().0 < catalog.next_queue();
            return Err(if was_there { NoSource::Gone } else { NoSource::Unknown });
        };
        Ok(Self {
            vhost: found.vhost.clone(),
            name: found.name.clone(),
            exchange: found.dead_letter_exchange().map(str::to_owned),
            key: found.dead_letter_key().map(str::to_owned),
        })
    }
}

impl<'c> Origin<'c> {
    pub(crate) fn of(
        catalog: &'c Catalog,
        source: &'c Source,
        reason: Outcome,
    ) -> Result<Self, NoOrigin> {
        let retries = None;
        let origin = |exchange, key| Self { catalog, source, reason, exchange, key, retries };
        if catalog.vhost(&source.vhost).is_none() {
            return Err(NoOrigin::Gone);
        }
        if let Some(exchange) = &source.exchange {
            return Ok(origin(exchange, source.key.as_deref().map(Cow::Borrowed)));
        }
        let aside = aside_of(&source.name);
        if catalog.queue(&source.vhost, &aside).is_none() && reason == Outcome::Exhausted {
            return Err(NoOrigin::NoAside(aside));
        }
        Ok(origin("", Some(Cow::Owned(aside))))
    }

    /// Messages of `source` that an operator sends on to this exchange with this key: as if a client had refused them
    /// and the queue's dead letters went there. So their `x-death` tells of it, and it ends cycles: somebody decided.
    pub(super) fn of_retry(
        catalog: &'c Catalog,
        source: &'c Source,
        (exchange, key): (&'c str, &'c str),
        retries: i64,
    ) -> Self {
        let (reason, key, retries) = (Outcome::Rejected, Some(Cow::Borrowed(key)), Some(retries));
        Self { catalog, source, reason, exchange, key, retries }
    }

    pub(crate) fn source(&self) -> &'c Source {
        self.source
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
        let is_aside = self.source.exchange.is_none() && self.retries.is_none();
        if is_aside && self.reason != Outcome::Exhausted {
            return Fate::NoExchange;
        }
        let death = Death {
            queue: &self.source.name,
            reason: self.reason,
            time_s: time_ms / 1000,
            exchange: self.exchange,
            key: self.key.as_deref(),
            retries: self.retries,
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
        Fate::Routed
    }

    /// False: there is no such exchange.
    fn route(&self, letter: &Letter<'_>, chance: u64, out: &mut Forwarded) -> bool {
        let Forwarded { targets, head, .. } = out;
        let asked = View { head, letter, headers: OnceCell::new(), chance };
        let (vhost, keys) = (&self.source.vhost, &letter.keys);
        let routed = self.catalog.route_keys(
            PublishedBy::Broker,
            vhost,
            self.exchange,
            keys,
            &asked,
            targets,
        );
        let key = letter.keys.first().copied().unwrap_or_default();
        let raw = split_head(head).map_or(&[][..], |(_, raw)| raw);
        partitions::place(self.catalog, targets, key, raw, chance as usize);
        routed.is_ok()
    }

    fn leave_cycles_out(&self, letter: &Letter<'_>, targets: &mut Vec<Target>) {
        if self.reason == Outcome::Rejected {
            return;
        }
        targets.retain(|target| match self.catalog.queue_by_id(target.queue) {
            Some(queue) => {
                let may_end = !letter.trail.is_lost() || !sends_on_by_itself(queue);
                may_end && !letter.trail.is_cycle(&queue.name)
            }
            None => false,
        });
    }
}

/// Whether messages leave `queue` for another with nobody deciding so: a cycle needs such queues alone.
fn sends_on_by_itself(queue: &Queue) -> bool {
    queue.features().is_some_and(|features| {
        let has_limit = features.max_length.is_some() || features.max_length_bytes.is_some();
        let drops = has_limit && features.overflow == Overflow::DropHead;
        features.dead_letters && (features.message_ttl_ms.is_some() || drops)
    })
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

impl<'l> View<'l> {
    fn headers(&self) -> Option<TableRef<'l>> {
        *self.headers.get_or_init(|| {
            let (_, raw) = split_head(self.head)?;
            Properties::decode(raw).ok()?.headers
        })
    }
}

impl Headers for View<'_> {
    fn find(&self, name: &str) -> Option<ValueView<'_>> {
        self.headers()?.find(name).map(view)
    }

    fn each<'m>(&'m self, show: &mut dyn FnMut(&'m str, ValueView<'m>)) {
        for (name, value) in self.headers().unwrap_or_default() {
            show(name, view(value));
        }
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
