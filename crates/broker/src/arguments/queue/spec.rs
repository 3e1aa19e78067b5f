//! What the arguments of a queue mean: the spec that the catalog and the queue's group store.

use machine::limits::{DEDUP_ENTRIES_DEFAULT, DEDUP_ENTRIES_MAX, DEDUP_MS_DEFAULT, TIME_MS_MAX};
use machine::{
    Arguments, Assignment, DeadLetter, Dedup, Features, Filter, KeySource, Overflow, Queue,
    QueueHome, QueueId, QueueSettings, QueueSpec, QueueType, Rates, Retention, Retry, StreamOffset,
    Subscription, Value,
};

use super::checks::{ASSIGN, DEAD_LETTER_EXCHANGE, ORDER, PRIORITY, start_of};
use super::known::{
    BEHIND, BURST, BYTES_RATE, CLUSTER_SIZE, CONSUMER_TIMEOUT, DEAD_LETTER_KEY, DEDUP, DEDUP_SIZE,
    DEDUP_TTL, DELIVERY_LIMIT, ENQUEUE_RATE, EXPIRES, FILTER, GROUP_SIZE, KEY_RATE, LENGTH,
    LENGTH_BYTES, MAX_AGE, OVERFLOW, RATE, RETRY_MAX, RETRY_MIN, RETRY_TYPE, SINGLE_ACTIVE, START,
    TTL, partitions_of, type_of,
};

use crate::arguments::age::age_ms;
use crate::arguments::filter;
use crate::arguments::rate;
use crate::partitions::named_key;

/// Total: what is not valid is as if it were not there.
pub(super) fn of(
    home: QueueHome,
    auto_delete: bool,
    arguments: &Arguments,
    reads: Option<&Queue>,
) -> QueueSpec {
    let asked = Asked { arguments, reads };
    let dead_letter = asked.text(DEAD_LETTER_EXCHANGE).map(|exchange| DeadLetter {
        exchange: exchange.to_owned(),
        key: asked.text(DEAD_LETTER_KEY).map(str::to_owned),
    });
    let features = asked.features(dead_letter.is_some());
    let members = asked.number(GROUP_SIZE).or_else(|| asked.number(CLUSTER_SIZE));
    let queue_type = type_of(arguments);
    QueueSpec {
        queue_type,
        settings: QueueSettings {
            is_durable: home.is_durable(),
            is_auto_delete: auto_delete,
            features: (features != Features::default()).then(|| Box::new(features)),
            is_paused: false,
        },
        dead_letter,
        consumer_timeout_ms: asked.number(CONSUMER_TIMEOUT),
        members: members.map(|count| u8::try_from(count).unwrap_or(u8::MAX)),
        // A subscription gets as many as its stream has.
        partitions: if queue_type == QueueType::Stream { partitions_of(arguments) } else { 1 },
    }
}

/// What a client asked for.
struct Asked<'a> {
    arguments: &'a Arguments,
    /// The stream that it names.
    reads: Option<&'a Queue>,
}

impl<'a> Asked<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.arguments.find(name)?.text()
    }

    fn number(&self, name: &str) -> Option<u64> {
        u64::try_from(self.arguments.find(name)?.integer()?).ok()
    }

    fn is_true(&self, name: &str) -> bool {
        self.arguments.find(name) == Some(&Value::Bool(true))
    }

    fn features(&self, dead_letters: bool) -> Features {
        let queue_type = type_of(self.arguments);
        if queue_type == QueueType::Stream {
            return Features { stream: Some(self.retention()), ..Features::default() };
        }
        let (max_length, max_length_bytes) = (self.number(LENGTH), self.number(LENGTH_BYTES));
        // None is the default, and one below 0 says so: nothing is dropped that nobody asked to drop.
        let delivery_limit =
            self.number(DELIVERY_LIMIT).map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
        let counts = matches!(queue_type, QueueType::Quorum | QueueType::Subscription);
        let subscription = self.reads.map(|stream| self.subscription(stream.id));
        let retry = self.retry();
        let max_priority = self.number(PRIORITY);
        Features {
            message_ttl_ms: self.number(TTL),
            expires_ms: self.number(EXPIRES),
            max_length,
            max_length_bytes,
            // Also without a limit: a policy may bring one.
            overflow: self.overflow(),
            dead_letters,
            max_priority: max_priority.map_or(0, |max| u8::try_from(max).unwrap_or(u8::MAX)),
            single_active: self.is_true(SINGLE_ACTIVE),
            delivery_limit,
            counts_returns: counts || delivery_limit.is_some() || retry.is_some(),
            retry,
            dedup: (self.is_true(DEDUP) && subscription.is_none()).then(|| self.dedup()),
            stream: None,
            subscription,
            // The catalog says which partition of how many.
            // Also where one consumer is active for all partitions: which of them it is.
            assignment: (subscription.is_some()
                && (self.text(ASSIGN) == Some("partition") || self.is_true(SINGLE_ACTIVE)))
            .then_some(Assignment { index: 0, count: 1 }),
            filter: subscription.and_then(|_| self.filter()),
            rates: self.rates(),
            order: self.order(subscription.is_some()),
            // The catalog says whose, where there are several partitions.
            tokens_of: None,
        }
    }

    fn rates(&self) -> Rates {
        Rates {
            dequeue: self.text(RATE).and_then(rate::messages),
            dequeue_burst: self.number(BURST).filter(|count| rate::is_burst(*count)),
            dequeue_bytes: self.text(BYTES_RATE).and_then(rate::bytes),
            enqueue: self.text(ENQUEUE_RATE).and_then(rate::messages),
            dequeue_per_key: self.text(KEY_RATE).and_then(rate::messages),
        }
    }

    /// Where the key is, if it keeps the order of messages with the same: a subscription has what its stream has, if it
    /// names nothing else.
    fn order(&self, is_subscription: bool) -> Option<Box<KeySource>> {
        let is_assigned = is_subscription && self.text(ASSIGN) == Some("key");
        let has_levels = self.number(PRIORITY).is_some_and(|max| max > 0);
        if !(self.text(ORDER) == Some("key") || is_assigned) || has_levels {
            return None;
        }
        let of_stream = || named_key(&self.reads?.arguments);
        Some(Box::new(named_key(self.arguments).or_else(of_stream).unwrap_or_default()))
    }

    fn subscription(&self, stream: QueueId) -> Subscription {
        let start = self.arguments.find(START).and_then(start_of).unwrap_or(StreamOffset::Next);
        Subscription { stream, start, skips: self.text(BEHIND) == Some("skip"), seeks: 0 }
    }

    fn filter(&self) -> Option<Box<Filter>> {
        filter::of(self.arguments.find(FILTER)?).ok().map(Box::new)
    }

    fn retention(&self) -> Retention {
        Retention {
            max_age_ms: self.text(MAX_AGE).and_then(age_ms),
            max_bytes: self.number(LENGTH_BYTES),
        }
    }

    fn overflow(&self) -> Overflow {
        match self.text(OVERFLOW) {
            Some("reject-publish") => Overflow::RejectPublish,
            Some("reject-publish-dlx") => Overflow::RejectPublishDlx,
            Some(_) | None => Overflow::DropHead,
        }
    }

    /// Without a shortest delay nothing waits; without a longest there is none.
    fn retry(&self) -> Option<Retry> {
        let (failed, returned) = match self.text(RETRY_TYPE)? {
            "failed" => (true, false),
            "returned" => (false, true),
            "all" => (true, true),
            _ => return None,
        };
        let min_ms = self.number(RETRY_MIN).filter(|min| *min > 0)?;
        let max_ms = self.number(RETRY_MAX).unwrap_or(TIME_MS_MAX);
        Some(Retry { failed, returned, min_ms, max_ms })
    }

    fn dedup(&self) -> Dedup {
        let entries = self.number(DEDUP_SIZE).map_or(DEDUP_ENTRIES_DEFAULT, |count| {
            let count = u32::try_from(count).unwrap_or(DEDUP_ENTRIES_MAX);
            count.clamp(1, DEDUP_ENTRIES_MAX)
        });
        let window_ms = self.number(DEDUP_TTL).unwrap_or(DEDUP_MS_DEFAULT);
        Dedup { window_ms, entries_max: entries }
    }
}
