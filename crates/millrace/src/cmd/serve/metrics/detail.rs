//! `/metrics/per-object` and `/metrics/detailed`: numbers of single queues.
//!
//! Answers are bounded: so many queues are shown, those with the most messages, and how many are left out is told.

use std::collections::BTreeSet;

use super::family::{Family, Kind, Samples};
use super::rabbit::{self, Endpoint};
use super::row::PREFIX;
use super::seen::Seen;

/// What the names of `/metrics/detailed` begin with.
pub(super) const DETAILED: &str = "rabbitmq_detailed";

/// What may be asked for as `family=`, and whether it is of queues.
pub(super) const FAMILIES: [(&str, Of); 7] = [
    ("queue_coarse_metrics", Of::Queues(rabbit::queue_messages)),
    ("queue_consumer_count", Of::Queues(rabbit::queue_consumers)),
    ("queue_metrics", Of::Queues(rabbit::queue_consumers)),
    ("millrace_queue_metrics", Of::Queues(queue_counts)),
    ("connection_churn_metrics", Of::Node(rabbit::churn)),
    ("node_coarse_metrics", Of::Node(rabbit::coarse)),
    ("node_metrics", Of::Node(rabbit::limits)),
];

/// Families that RabbitMQ has and that have no number here. Who asks for one of them among others gets the others.
pub(super) const ABSENT: [&str; 17] = [
    "auth_attempt_detailed_metrics",
    "auth_attempt_metrics",
    "channel_exchange_metrics",
    "channel_metrics",
    "channel_process_metrics",
    "channel_queue_exchange_metrics",
    "channel_queue_metrics",
    "connection_coarse_metrics",
    "connection_metrics",
    "exchange_bindings",
    "exchange_metrics",
    "exchange_names",
    "node_persister_metrics",
    "queue_delivery_metrics",
    "queue_exchange_metrics",
    "ra_metrics",
    "vhost_status",
];

type Made = fn(&'static str, &Seen<'_>) -> Vec<Family>;

/// What a family is of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    Node(Made),
    Queues(Made),
}

/// What a request for `/metrics/detailed` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// By their places in `FAMILIES`.
    families: BTreeSet<usize>,
    /// None: those of all vhosts.
    pub(super) vhosts: Option<BTreeSet<String>>,
}

impl Asked {
    /// `family=queue_coarse_metrics&family=...&vhost=...`
    ///
    /// # Errors
    /// There is no such family, here or in RabbitMQ.
    pub(super) fn of(query: &str) -> Result<Self, String> {
        let mut asked = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "family" => match FAMILIES.iter().position(|(name, _)| *name == value) {
                    Some(place) => _ = asked.families.insert(place),
                    None if ABSENT.contains(&&*value) => {}
                    None => return Err(no_family(&value)),
                },
                "vhost" => {
                    _ = asked.vhosts.get_or_insert_default().insert(value.into_owned());
                }
                _ => {}
            }
        }
        Ok(asked)
    }

    /// Whether queues are to be shown one by one.
    pub(super) fn wants_queues(&self) -> bool {
        self.families.iter().any(|place| matches!(FAMILIES[*place].1, Of::Queues(_)))
    }

    /// What it asks for.
    pub(super) fn families(&self, seen: &Seen<'_>) -> Vec<Family> {
        let mut all = vec![rabbit::identity(seen, Endpoint::Detailed)];
        for place in &self.families {
            let (Of::Node(made) | Of::Queues(made)) = FAMILIES[*place].1;
            for family in made(DETAILED, seen) {
                // `queue_metrics` has what `queue_consumer_count` has.
                if !all.iter().any(|it| (it.prefix, it.name) == (family.prefix, family.name)) {
                    all.push(family);
                }
            }
        }
        if self.wants_queues() {
            all.push(rabbit::queue_info(DETAILED));
            all.extend(left_out(seen));
        }
        all
    }
}

fn no_family(name: &str) -> String {
    let known: Vec<_> = FAMILIES.iter().map(|(name, _)| *name).collect();
    // What a stranger sent comes back no longer than a name is.
    let name: String = name.chars().take(64).collect();
    format!("there is no family `{name}`; family= takes {}", known.join(", "))
}

/// What `/metrics/per-object` says: all that `/metrics` says under RabbitMQ's names, but queue by queue.
pub(super) fn per_object(seen: &Seen<'_>) -> Vec<Family> {
    let mut all = vec![rabbit::identity(seen, Endpoint::PerObject)];
    all.extend(rabbit::node_wide(seen));
    all.extend(rabbit::queue_messages(rabbit::PREFIX, seen));
    all.extend(rabbit::queue_consumers(rabbit::PREFIX, seen));
    all.push(rabbit::queue_info(rabbit::PREFIX));
    all.extend(queue_counts(PREFIX, seen));
    all.extend(left_out(seen));
    all
}

fn left_out(seen: &Seen<'_>) -> Option<Family> {
    let left_out = seen.led.as_ref()?.queues.left_out;
    let meaning = "Queues that this answer leaves out, because `metrics_queues_max` others have more messages";
    Some(Family::one(PREFIX, "queues_left_out", Kind::Now, meaning, left_out))
}

/// What a queue's own books count: its leader goes on with them where the one before stopped. Their names are our own,
/// whatever is asked for.
fn queue_counts(_: &'static str, _: &Seen<'_>) -> Vec<Family> {
    use Samples::Queues;
    let of = |name, kind, meaning, samples| Family { prefix: PREFIX, name, kind, meaning, samples };
    let total = |name, meaning, samples| of(name, Kind::Total, meaning, samples);
    vec![
        total(
            "queue_messages_published",
            "Messages that came into the queue",
            Queues(|it| it.counters.enqueued),
        ),
        of(
            "queue_published",
            Kind::TotalBytes,
            "Bytes of these messages, with their headers",
            Queues(|it| it.counters.enqueued_bytes),
        ),
        total(
            "queue_messages_acknowledged",
            "Messages that consumers have handled",
            Queues(|it| it.counters.settled),
        ),
        total("queue_messages_purged", "Messages purged", Queues(|it| it.counters.purged)),
        total(
            "queue_messages_dropped",
            "Messages dropped: dead without a dead-letter exchange, or cancelled",
            Queues(|it| it.counters.dropped),
        ),
        total(
            "queue_messages_dead_lettered",
            "Dead messages that are stored where the queue's dead letters go",
            Queues(|it| it.counters.dead_lettered),
        ),
        total(
            "queue_messages_passed_over",
            "Messages that a subscription's filter does not match",
            Queues(|it| it.counters.passed_over),
        ),
        total(
            "queue_messages_duplicate",
            "Messages left out because their key had come lately",
            Queues(|it| it.counters.duplicates),
        ),
        of(
            "queue_messages_delayed",
            Kind::Now,
            "Messages that are not due yet",
            Queues(|it| it.delayed),
        ),
        of(
            "queue_messages_dead",
            Kind::Now,
            "Dead messages on their way to where the queue's dead letters go",
            Queues(|it| it.leaving),
        ),
        of(
            "queue_messages_held_back",
            Kind::Now,
            "Ready messages that the queue's rate holds back, though a consumer has room",
            Queues(|it| it.held_back.messages),
        ),
        of(
            "queue_held_back",
            Kind::NowMillis,
            "How long the next message waits for the queue's rate",
            Queues(|it| it.held_back.wait_ms),
        ),
        of(
            "queue_publishes_held_back",
            Kind::Now,
            "Published messages that wait until the queue's rate lets them come in",
            Queues(|it| it.held_back.publishes),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_families_and_vhosts() {
        let asked = Asked::of("family=queue_coarse_metrics&vhost=%2F&vhost=shop&x=y").unwrap();
        assert!(asked.wants_queues());
        assert_eq!(asked.vhosts, Some(["/", "shop"].map(str::to_owned).into()));
        assert!(!Asked::of("family=node_metrics").unwrap().wants_queues());
        assert_eq!(Asked::of("").unwrap(), Asked::default());
        assert_eq!(Asked::of("family=channel_metrics").unwrap(), Asked::default(), "RabbitMQ's");
        let why = Asked::of("family=queue_coarse_metric").unwrap_err();
        assert!(why.contains("`queue_coarse_metric`") && why.contains("queue_consumer_count"));
    }

    #[test]
    fn no_family_is_both_there_and_absent() {
        for (name, _) in FAMILIES {
            assert!(!ABSENT.contains(&name), "{name}");
        }
    }
}
