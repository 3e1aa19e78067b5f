//! What an inbox counts, under names of Prometheus' kind.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use service::io::http::Watched;

use super::Counts;
use crate::metrics::{STEP_BOUNDS, WATCHERS_TURNED_AWAY};

/// A step of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Making rows of deliveries.
    Take,
    /// Storing them, with the commit.
    Store,
    /// Acknowledging them.
    Settle,
}

impl Step {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Store => "store",
            Self::Settle => "settle",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabel {
    step: &'static str,
}

/// Counters and gauges. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    stored: Counter,
    duplicates: Counter,
    without_id: Counter,
    flawed: Counter,
    rejected: Counter,
    batches: Counter,
    /// Messages that are here and not acknowledged.
    pub unacked: Gauge,
    /// Messages that are ready in the queue; below 0: not known.
    pub queued: Gauge,
    /// 1: it has the queue.
    pub broker_connections: Gauge,
    /// 1: another inbox has the queue, and this one takes over when it is gone.
    pub standby: Gauge,
    /// 1: the table can be written to.
    pub database_connections: Gauge,
    /// 1: a message is refused, tried again, and what is behind it waits.
    pub stuck: Gauge,
    watchers_turned_away: Counter,
    steps: Family<StepLabel, Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            stored: Counter::default(),
            duplicates: Counter::default(),
            without_id: Counter::default(),
            flawed: Counter::default(),
            rejected: Counter::default(),
            batches: Counter::default(),
            unacked: Gauge::default(),
            queued: Gauge::default(),
            broker_connections: Gauge::default(),
            standby: Gauge::default(),
            database_connections: Gauge::default(),
            stuck: Gauge::default(),
            watchers_turned_away: Counter::default(),
            steps: Family::new_with_constructor(|| Histogram::new(STEP_BOUNDS)),
        }
    }
}

impl Metrics {
    /// A step took `nanos` nanoseconds.
    pub fn step(&self, step: Step, nanos: u64) {
        let label = StepLabel { step: step.name() };
        self.steps.get_or_create(&label).observe(nanos as f64 / 1e9);
    }

    /// What was counted went from `before` to `now`.
    pub fn count(&self, before: Counts, now: Counts) {
        self.stored.inc_by(now.stored - before.stored);
        self.duplicates.inc_by(now.duplicates - before.duplicates);
        self.without_id.inc_by(now.without_id - before.without_id);
        self.flawed.inc_by(now.flawed - before.flawed);
        self.rejected.inc_by(now.rejected - before.rejected);
        self.batches.inc_by(now.batches - before.batches);
    }

    /// What keeps the inbox from storing right now; none: nothing.
    pub fn problem(&self) -> Option<&'static str> {
        // It stays so while the message is tried again, on a connection of its own each time.
        if self.stuck.get() > 0 {
            return Some("the table refuses a message, see the log");
        }
        if self.database_connections.get() == 0 {
            return Some("no connection to the database");
        }
        let is_at_work = self.broker_connections.get() + self.standby.get() > 0;
        (!is_at_work).then_some("no connection to the broker")
    }

    /// All of them as Prometheus reads them.
    pub fn text(&self) -> String {
        let mut registry = Registry::default();
        self.register(registry.sub_registry_with_prefix("millrace_inbox"));
        let mut text = String::new();
        // Writing into memory cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }

    fn register(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("stored", "Messages stored, each message-id once", &self.stored),
            ("duplicates", "Messages that were stored before", &self.duplicates),
            ("without_id", "Messages stored under an id made here", &self.without_id),
            ("flawed", "Messages stored without what did not fit", &self.flawed),
            ("rejected", "Messages the table refused", &self.rejected),
            ("batches", "Transactions committed", &self.batches),
            (WATCHERS_TURNED_AWAY.0, WATCHERS_TURNED_AWAY.1, &self.watchers_turned_away),
        ] {
            registry.register(name, help, counter.clone());
        }
        for (name, help, gauge) in [
            ("unacked_messages", "Messages here and not acknowledged", &self.unacked),
            ("queued_messages", "Messages ready in the queue", &self.queued),
            ("broker_connections", "Whether it has the queue", &self.broker_connections),
            ("standby", "Whether it waits for another inbox to go", &self.standby),
            ("database_connections", "Whether it has the table", &self.database_connections),
            ("stuck", "Whether a refused message holds up all behind it", &self.stuck),
        ] {
            registry.register(name, help, gauge.clone());
        }
        let steps = self.steps.clone();
        registry.register_with_unit("step", "Time of each step of a batch", Unit::Seconds, steps);
    }
}

impl Watched for Metrics {
    fn turned_away(&self) {
        self.watchers_turned_away.inc();
    }

    fn metrics(&self) -> String {
        self.text()
    }

    fn problem(&self) -> Option<String> {
        Self::problem(self).map(str::to_owned)
    }

    fn status(&self) -> Option<String> {
        let problem = Self::problem(self);
        let status = serde_json::json!({
            "kind": "inbox",
            "is_ready": problem.is_none(),
            "problem": problem,
            "is_standby": self.standby.get() > 0,
            "stored": self.stored.get(),
            "duplicates": self.duplicates.get(),
            "rejected": self.rejected.get(),
            "unacked": self.unacked.get(),
            "queued": self.queued.get(),
        });
        Some(status.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_exported_under_its_name() {
        let metrics = Metrics::default();
        let now = Counts { stored: 7, duplicates: 2, rejected: 1, batches: 3, ..Counts::default() };
        metrics.count(Counts::default(), now);
        metrics.count(now, Counts { stored: 9, ..now });
        metrics.unacked.set(5);
        metrics.step(Step::Store, 3_000_000);
        let text = metrics.text();
        for line in [
            "millrace_inbox_stored_total 9",
            "millrace_inbox_duplicates_total 2",
            "millrace_inbox_rejected_total 1",
            "millrace_inbox_unacked_messages 5",
            "millrace_inbox_step_seconds_bucket{le=\"0.005\",step=\"store\"} 1",
        ] {
            assert!(text.contains(line), "`{line}` is not in\n{text}");
        }
        let status: serde_json::Value =
            serde_json::from_str(&Watched::status(&metrics).expect("it has one")).expect("JSON");
        assert_eq!((&status["kind"], &status["stored"]), (&"inbox".into(), &9.into()));
    }

    #[test]
    fn what_is_in_the_way_is_told() {
        let metrics = Metrics::default();
        assert_eq!(metrics.problem(), Some("no connection to the database"));
        metrics.stuck.set(1);
        let is_refused =
            || metrics.problem().is_some_and(|what| what.contains("refuses a message"));
        assert!(is_refused());
        metrics.database_connections.set(1);
        assert!(is_refused(), "while it is tried again");
        metrics.stuck.set(0);
        assert!(metrics.problem().is_some_and(|what| what.contains("broker")));
        metrics.broker_connections.set(1);
        assert_eq!(metrics.problem(), None);
    }
}
