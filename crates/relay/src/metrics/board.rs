//! What the sources of one relay say of themselves: each under its name, and all together.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use service::io::http::Watched;
use service::io::pauses::Pauses;
use tokio::sync::watch;

use super::families::Families;
use super::{Metrics, Total, WATCHERS_TURNED_AWAY};

/// The label with a source's name.
const LABEL: &str = "source";
/// Numbers of `/status` that are added up.
const SUMS: [&str; 6] =
    ["confirmed", "confirmed_bytes", "backlog_rows", "parked_rows", "dead_rows", "slot_lag_bytes"];
/// Numbers by reason that are added up.
const SUMS_BY_REASON: [&str; 2] = ["failed", "dead"];

/// The sources there are. Clones are of the same.
#[derive(Clone, Debug, Default)]
pub struct Board {
    sources: Arc<watch::Sender<BTreeMap<String, Metrics>>>,
    pauses: Arc<watch::Sender<BTreeMap<String, Pauses>>>,
    watchers_turned_away: Counter,
}

impl Board {
    /// Has a place for a source. One that had a place before goes on with its counters, and rests if it was told to.
    pub fn add(&self, name: &str) -> (Metrics, Pauses) {
        let (mut metrics, mut pauses) = (Metrics::default(), Pauses::default());
        self.sources.send_modify(|all| {
            metrics = all.entry(name.to_owned()).or_default().clone();
        });
        self.pauses.send_modify(|all| {
            pauses = all.entry(name.to_owned()).or_default().clone();
        });
        (metrics, pauses)
    }

    /// Forgets the sources that are not to be kept.
    pub fn keep(&self, is_kept: impl Fn(&str) -> bool) {
        self.sources.send_modify(|all| all.retain(|name, _| is_kept(name)));
        self.pauses.send_modify(|all| all.retain(|name, _| is_kept(name)));
    }

    /// What can rest by itself, as it changes.
    pub fn pauses(&self) -> watch::Receiver<BTreeMap<String, Pauses>> {
        self.pauses.subscribe()
    }

    /// How all of them stand together.
    pub fn total(&self) -> Total {
        let mut total = Total::default();
        self.sources.borrow().values().for_each(|metrics| total.add(&metrics.total()));
        Total { problem: Watched::problem(self), last_failure: Watched::remark(self), ..total }
    }

    /// What each has to say, behind its name.
    fn words(&self, of: impl Fn(&Metrics) -> Option<String>) -> Option<String> {
        let sources = self.sources.borrow();
        let words = sources.iter().filter_map(|(name, one)| Some(format!("{name}: {}", of(one)?)));
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    fn registry_of_all(&self, count: usize) -> Registry {
        let mut registry = Registry::default();
        let inner = registry.sub_registry_with_prefix("millrace_relay");
        let sources: Gauge = Gauge::default();
        sources.set(i64::try_from(count).unwrap_or(i64::MAX));
        inner.register("sources", "Sources that are to run", sources);
        let (name, help) = WATCHERS_TURNED_AWAY;
        inner.register(name, help, self.watchers_turned_away.clone());
        registry
    }
}

fn registry_of(name: &str, metrics: &Metrics) -> Registry {
    let label = (LABEL.into(), name.to_owned().into());
    let mut registry = Registry::with_labels([label].into_iter());
    metrics.register_counts(&mut registry);
    let failing: Gauge = Gauge::default();
    failing.set(metrics.failing.borrow().is_some().into());
    let inner = registry.sub_registry_with_prefix("millrace_relay");
    inner.register("failing", "Whether it does not work and is tried again", failing);
    registry
}

impl Watched for Board {
    fn turned_away(&self) {
        self.watchers_turned_away.inc();
    }

    fn metrics(&self) -> String {
        let sources = self.sources.borrow().clone();
        let each = sources.iter().map(|(name, metrics)| registry_of(name, metrics));
        let mut families = Families::default();
        for registry in each.chain([self.registry_of_all(sources.len())]) {
            let mut text = String::new();
            // Writing into memory cannot fail.
            let _ = encode(&mut text, &registry);
            families.add(&text);
        }
        families.text()
    }

    fn problem(&self) -> Option<String> {
        self.words(Metrics::problem)
    }

    fn remark(&self) -> Option<String> {
        self.words(Metrics::last_failure)
    }

    fn status(&self) -> Option<String> {
        let sources = self.sources.borrow().clone();
        let each: BTreeMap<String, Value> =
            sources.iter().map(|(name, metrics)| (name.clone(), metrics.standing())).collect();
        let all = |key: &str| !each.is_empty() && each.values().all(|one| one[key] == true);
        let problem = Watched::problem(self);
        let mut status = json!({
            "kind": "relay",
            "is_ready": problem.is_none(),
            "problem": problem,
            "is_standby": all("is_standby"),
            "is_paused": all("is_paused"),
            "oldest_age_s": self.total().oldest_age,
            "last_failure": Watched::remark(self),
        });
        for key in SUMS {
            status[key] = sum(each.values().map(|one| &one[key]));
        }
        for key in SUMS_BY_REASON {
            for reason in crate::attempts::Reason::ALL {
                let counts = each.values().map(|one| &one[key][reason.name()]);
                status[key][reason.name()] = sum(counts);
            }
        }
        status["sources"] = json!(each);
        Some(status.to_string())
    }
}

fn sum<'a>(numbers: impl Iterator<Item = &'a Value>) -> Value {
    numbers.filter_map(Value::as_i64).sum::<i64>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempts::Reason;

    #[test]
    fn each_source_has_its_label_and_each_family_is_told_once() {
        let board = Board::default();
        board.add("orders").0.confirmed.inc_by(7);
        let (invoices, _) = board.add("invoices");
        invoices.failed(Reason::Unroutable, true);
        invoices.set_failing(Some("no table".into()));
        board.turned_away();
        let text = Watched::metrics(&board);
        for line in [
            "millrace_relay_confirmed_total{source=\"orders\"} 7",
            "millrace_relay_confirmed_total{source=\"invoices\"} 0",
            "millrace_relay_failing{source=\"orders\"} 0",
            "millrace_relay_failing{source=\"invoices\"} 1",
            "millrace_relay_sources 2",
            "millrace_relay_watchers_turned_away_total 1",
        ] {
            assert!(text.lines().any(|it| it == line), "`{line}` is not in\n{text}");
        }
        let dead = text.lines().find(|line| line.starts_with("millrace_relay_dead_total{"));
        let dead = dead.expect("it is told");
        assert!(dead.contains("source=\"invoices\"") && dead.contains("reason=\"unroutable\""));
        let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let different: std::collections::BTreeSet<&str> = types.iter().copied().collect();
        assert_eq!(types.len(), different.len(), "a family is told twice");
        // All that a relay with one source counts is there, too.
        let single = Metrics::default().text();
        let names = single.lines().filter(|line| line.starts_with("# TYPE "));
        names.for_each(|line| assert!(text.contains(line), "{line}"));
    }

    #[test]
    fn the_status_has_the_sums_and_each_source() {
        let board = Board::default();
        let (orders, invoices) = (board.add("orders").0, board.add("invoices").0);
        orders.confirmed.inc_by(7);
        orders.oldest_age.set(3.0);
        orders.broker_connections.set(1);
        invoices.confirmed.inc_by(5);
        invoices.failed(Reason::Refused, true);
        invoices.set_failing(Some("database: no such role".into()));
        let status = Watched::status(&board).expect("it has one");
        let status: Value = serde_json::from_str(&status).expect("JSON");
        assert_eq!((&status["kind"], &status["is_ready"]), (&"relay".into(), &false.into()));
        assert_eq!(status["problem"], "invoices: database: no such role");
        assert_eq!((&status["confirmed"], &status["oldest_age_s"]), (&12.into(), &3.0.into()));
        assert_eq!(status["dead"]["refused"], 1);
        assert_eq!(status["sources"]["orders"]["confirmed"], 7);
        assert_eq!(status["sources"]["orders"]["is_ready"], true);
        assert_eq!(status["sources"]["invoices"]["problem"], "database: no such role");
        assert_eq!(board.total().confirmed, 12);
    }

    #[test]
    fn a_source_that_comes_back_goes_on_with_its_counters_and_one_that_is_gone_is_forgotten() {
        let board = Board::default();
        board.add("orders").0.confirmed.inc_by(7);
        assert_eq!(board.add("orders").0.confirmed.get(), 7);
        board.add("invoices");
        board.keep(|name| name == "invoices");
        assert!(!board.pauses().borrow().contains_key("orders"));
        assert!(!Watched::metrics(&board).contains("orders"));
        assert_eq!(board.add("orders").0.confirmed.get(), 0);
    }
}
