//! What a relay, or a source of one, counts. Names follow Prometheus' conventions; the same numbers feed the screen.

mod board;
mod families;
mod total;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use board::Board;
pub use total::Total;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use service::io::http::Watched;
use tokio::sync::watch;

use crate::attempts::Reason;

/// Upper bounds of the steps' histograms, in seconds.
pub(crate) const STEP_BOUNDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Name and meaning of the count of who wanted to read these and found no room.
pub(crate) const WATCHERS_TURNED_AWAY: (&str, &str) =
    ("watchers_turned_away", "Connections to the port of metrics without room");

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    pub reason: &'static str,
}

/// A step of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepLabel {
    pub step: &'static str,
}

/// The steps of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reading rows (or decoding changes).
    Query,
    /// Handing messages to the broker's socket.
    Publish,
    /// From the last of them to the last confirm.
    Confirm,
    /// Marking rows, with the commit.
    Mark,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Query, Self::Publish, Self::Confirm, Self::Mark];

    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Publish => "publish",
            Self::Confirm => "confirm",
            Self::Mark => "mark",
        }
    }
}

/// Counters and gauges, shared by everything that runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Messages the broker confirmed and whose rows are marked.
    pub confirmed: Counter,
    /// Bytes of their bodies.
    pub confirmed_bytes: Counter,
    /// Messages that were not taken, by reason.
    pub failed: Family<ReasonLabel, Counter>,
    /// Messages that are dead now, by reason.
    pub dead: Family<ReasonLabel, Counter>,
    /// Messages that were stored behind one of their key that failed.
    pub overtaken: Counter,
    /// Batches that were given back without charging anybody: the broker or the database was away.
    pub released: Counter,
    /// Batches that were committed.
    pub batches: Counter,
    /// Rows that wait to be published, up to a bound.
    pub backlog: Gauge,
    /// Age of the oldest of them, in seconds.
    pub oldest_age: Gauge<f64, AtomicU64>,
    /// Rows that failed and wait for another attempt.
    pub parked: Gauge,
    /// Rows that are dead and wait for somebody.
    pub dead_now: Gauge,
    /// Bytes of write-ahead log that the slot keeps.
    pub slot_lag: Gauge,
    /// Connections to the broker that are open.
    pub broker_connections: Gauge,
    /// Workers whose broker blocks publishers.
    pub blocked: Gauge,
    /// 1: another relay has the slot, and this one takes over when it is gone.
    pub standby: Gauge,
    /// 1: it was told to rest.
    pub paused: Gauge,
    /// Why this source does not work, and is tried again.
    failing: Arc<watch::Sender<Option<String>>>,
    /// Time of each step of a batch.
    pub steps: Family<StepLabel, Histogram>,
    /// Sum of nanoseconds and count of each step, for the screen.
    pub step_sums: [(Counter, Counter); 4],
    watchers_turned_away: Counter,
    /// The last message that was not taken.
    last_failure: Arc<watch::Sender<Option<Noted>>>,
}

/// A failure in words.
#[derive(Clone, Debug)]
struct Noted {
    text: String,
    /// How many messages were confirmed by then.
    confirmed: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            confirmed: Counter::default(),
            confirmed_bytes: Counter::default(),
            failed: Family::default(),
            dead: Family::default(),
            overtaken: Counter::default(),
            released: Counter::default(),
            batches: Counter::default(),
            backlog: Gauge::default(),
            oldest_age: Gauge::default(),
            parked: Gauge::default(),
            dead_now: Gauge::default(),
            slot_lag: Gauge::default(),
            broker_connections: Gauge::default(),
            blocked: Gauge::default(),
            standby: Gauge::default(),
            paused: Gauge::default(),
            failing: Arc::default(),
            steps: Family::new_with_constructor(|| Histogram::new(STEP_BOUNDS)),
            step_sums: Default::default(),
            watchers_turned_away: Counter::default(),
            last_failure: Arc::new(watch::Sender::new(None)),
        }
    }
}

impl Metrics {
    /// A step took `nanos` nanoseconds.
    pub fn step(&self, step: Step, nanos: u64) {
        let label = StepLabel { step: step.name() };
        self.steps.get_or_create(&label).observe(nanos as f64 / 1e9);
        let (sum, count) = &self.step_sums[step as usize];
        sum.inc_by(nanos);
        count.inc();
    }

    /// A message was not taken.
    pub fn failed(&self, reason: Reason, is_dead: bool) {
        let label = ReasonLabel { reason: reason.name() };
        self.failed.get_or_create(&label).inc();
        if is_dead {
            self.dead.get_or_create(&label).inc();
        }
    }

    /// The last of the messages that were not taken, for the screen: of which row and key, and the reason in words.
    pub fn note_failure(&self, reason: Reason, row_id: &str, key: Option<&str>, text: &str) {
        let key = key.filter(|key| !key.is_empty() && *key != row_id);
        let key = key.map_or_else(String::new, |key| format!(" of key `{key}`"));
        let text = format!("row {row_id}{key}: {text} ({reason}): {}", reason.advice());
        let confirmed = self.confirmed.get();
        self.last_failure.send_replace(Some(Noted { text, confirmed }));
    }

    /// The last failure and what to do about it, while rows fail and nothing has been confirmed since.
    pub fn last_failure(&self) -> Option<String> {
        if self.parked.get() + self.dead_now.get() == 0 {
            return None;
        }
        let noted = self.last_failure.borrow();
        let noted = noted.as_ref().filter(|noted| noted.confirmed == self.confirmed.get())?;
        Some(noted.text.clone())
    }

    /// All of them as Prometheus reads them.
    pub fn text(&self) -> String {
        let mut registry = Registry::default();
        self.register(&mut registry);
        let mut text = String::new();
        // Writing into memory cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }

    /// What keeps the relay from working right now; none: nothing.
    pub fn problem(&self) -> Option<String> {
        // Who waits for another to go has no broker yet, and is all that it should be.
        if self.paused.get() > 0 {
            return Some("paused: nothing is published until it is resumed".to_owned());
        }
        if self.standby.get() > 0 {
            return None;
        }
        if let Some(why) = self.failing.borrow().as_ref() {
            return Some(why.clone());
        }
        if self.broker_connections.get() == 0 {
            return Some("no connection to the broker".into());
        }
        (self.blocked.get() > 0).then(|| "the broker blocks publishers".into())
    }

    /// Why the source does not work; none: it does again.
    pub fn set_failing(&self, why: Option<String>) {
        self.failing.send_replace(why);
    }

    /// It has ended, and nothing of it is open: workers that another one's failure ended did not say so.
    pub fn close(&self) {
        for gauge in [&self.broker_connections, &self.blocked, &self.standby] {
            gauge.set(0);
        }
    }

    /// Whether it has what it needs, or waits for another relay as it should.
    pub fn is_at_work(&self) -> bool {
        self.broker_connections.get() > 0 || self.standby.get() > 0
    }

    /// All of them under their names, for an exporter.
    pub fn register(&self, registry: &mut Registry) {
        self.register_counts(registry);
        let (name, help) = WATCHERS_TURNED_AWAY;
        let registry = registry.sub_registry_with_prefix("millrace_relay");
        registry.register(name, help, self.watchers_turned_away.clone());
    }

    /// Those that a source among several has, too.
    fn register_counts(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("millrace_relay");
        registry.register("confirmed", "Messages confirmed and marked", self.confirmed.clone());
        let bytes = self.confirmed_bytes.clone();
        registry.register_with_unit("confirmed_body", "Bytes of their bodies", Unit::Bytes, bytes);
        registry.register("failed", "Messages not taken, by reason", self.failed.clone());
        registry.register("dead", "Messages that became dead, by reason", self.dead.clone());
        let overtaken = self.overtaken.clone();
        registry.register(
            "overtaken",
            "Messages stored behind a failed one of their key",
            overtaken,
        );
        registry.register(
            "released_batches",
            "Batches given back uncharged",
            self.released.clone(),
        );
        registry.register("batches", "Batches committed", self.batches.clone());
        registry.register("backlog_rows", "Rows that wait, up to a bound", self.backlog.clone());
        let age = self.oldest_age.clone();
        registry.register_with_unit("oldest_age", "Age of the oldest row", Unit::Seconds, age);
        registry.register("parked_rows", "Rows that wait for another attempt", self.parked.clone());
        registry.register("dead_rows", "Dead rows that wait for somebody", self.dead_now.clone());
        let lag = self.slot_lag.clone();
        registry.register_with_unit("slot_lag", "Log that the slot keeps", Unit::Bytes, lag);
        let connections = self.broker_connections.clone();
        registry.register("broker_connections", "Open connections to the broker", connections);
        registry.register("blocked_workers", "Workers the broker blocks", self.blocked.clone());
        let standby = self.standby.clone();
        registry.register("standby", "Whether it waits for another relay to go", standby);
        let paused = self.paused.clone();
        registry.register("paused", "Whether it was told to rest", paused);
        registry.register_with_unit(
            "step",
            "Time of each step of a batch",
            Unit::Seconds,
            self.steps.clone(),
        );
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
        Self::problem(self)
    }

    fn remark(&self) -> Option<String> {
        self.last_failure()
    }

    fn status(&self) -> Option<String> {
        Some(self.standing().to_string())
    }
}

impl Metrics {
    /// How it stands.
    fn standing(&self) -> serde_json::Value {
        let problem = Self::problem(self);
        let counts = |family: &Family<ReasonLabel, Counter>| {
            let count = |reason: &Reason| {
                let label = ReasonLabel { reason: reason.name() };
                (reason.name().to_owned(), family.get(&label).map_or(0, |it| it.get()).into())
            };
            serde_json::Value::Object(Reason::ALL.iter().map(count).collect())
        };
        serde_json::json!({
            "kind": "relay",
            "is_ready": problem.is_none(),
            "problem": problem,
            "is_standby": self.standby.get() > 0,
            "is_paused": self.paused.get() > 0,
            "confirmed": self.confirmed.get(),
            "confirmed_bytes": self.confirmed_bytes.get(),
            "failed": counts(&self.failed),
            "dead": counts(&self.dead),
            "backlog_rows": self.backlog.get(),
            "oldest_age_s": self.oldest_age.get(),
            "parked_rows": self.parked.get(),
            "dead_rows": self.dead_now.get(),
            "slot_lag_bytes": self.slot_lag.get(),
            "last_failure": self.last_failure(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_failure_is_told_until_something_is_confirmed_or_nothing_fails_any_more() {
        let metrics = Metrics::default();
        metrics.parked.set(1);
        assert_eq!(metrics.last_failure(), None);
        metrics.note_failure(Reason::Unroutable, "7", Some("ann"), "no queue for 'paid'");
        let told = metrics.last_failure().expect("it is told");
        for part in ["row 7 of key `ann`", "no queue for 'paid'", "unroutable", "declare the queue"]
        {
            assert!(told.contains(part), "`{part}` is not in: {told}");
        }
        metrics.parked.set(0);
        assert_eq!(metrics.last_failure(), None);
        metrics.dead_now.set(1);
        assert!(metrics.last_failure().is_some());
        metrics.confirmed.inc();
        assert_eq!(metrics.last_failure(), None, "others pass");
    }

    #[test]
    fn the_status_has_what_is_counted() {
        let metrics = Metrics::default();
        metrics.backlog.set(7);
        metrics.failed(Reason::Unroutable, true);
        let status: serde_json::Value =
            serde_json::from_str(&Watched::status(&metrics).expect("it has one")).expect("JSON");
        assert_eq!((&status["kind"], &status["is_ready"]), (&"relay".into(), &false.into()));
        assert_eq!(status["problem"], "no connection to the broker");
        assert_eq!(
            (&status["backlog_rows"], &status["dead"]["unroutable"]),
            (&7.into(), &1.into())
        );
        assert_eq!(
            (&status["failed"]["refused"], &status["last_failure"]),
            (&0.into(), &serde_json::Value::Null)
        );
    }

    #[test]
    fn a_relay_that_waits_for_another_to_go_is_ready_and_one_without_a_broker_is_not() {
        let metrics = Metrics::default();
        assert_eq!(metrics.problem().as_deref(), Some("no connection to the broker"));
        metrics.standby.set(1);
        assert_eq!(metrics.problem(), None);
        metrics.standby.set(0);
        assert!(metrics.problem().is_some(), "it takes over, and has no broker yet");
    }

    #[test]
    fn what_is_counted_is_exported_under_its_name() {
        let metrics = Metrics::default();
        metrics.confirmed.inc_by(7);
        metrics.failed(Reason::Unroutable, true);
        metrics.step(Step::Mark, 3_000_000);
        let text = metrics.text();
        for line in [
            "millrace_relay_confirmed_total 7",
            "millrace_relay_dead_total{reason=\"unroutable\"} 1",
            "millrace_relay_step_seconds_bucket{le=\"0.005\",step=\"mark\"} 1",
        ] {
            assert!(text.contains(line), "`{line}` is not in\n{text}");
        }
    }
}
