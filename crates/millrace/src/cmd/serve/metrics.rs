//! What a node counts, for whoever watches it: the line of SIGUSR1, and `/metrics`, `/health` and `/ready` of the
//! setting `metrics`. What is counted, and its names, is `rows`.

mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use broker::io::broker::Broker;
use cluster::ClusterHandle;
use management::io::Api;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use serde_json::{Map, Value};
use service::io::http::Watched;

use self::rows::{Counted, Kind, Row};

/// What every name begins with.
const PREFIX: &str = "millrace";

/// How far a node is with its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// Its groups cannot serve yet.
    Starting,
    /// Clients may come.
    Serving,
    /// They are told to go.
    Stopping,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Starting, Self::Serving, Self::Stopping];

    /// What keeps the node from serving, if anything.
    fn problem(self) -> Option<&'static str> {
        match self {
            Self::Starting => Some(
                "starting: the node waits until its groups can serve, which in a cluster takes a majority of \
                     the nodes",
            ),
            Self::Serving => None,
            Self::Stopping => Some("the node is stopping"),
        }
    }
}

/// A node that is watched. Cheap to clone: all clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Node {
    cluster: ClusterHandle,
    broker: Arc<Broker>,
    stage: Arc<AtomicU8>,
    watchers_turned_away: Arc<AtomicU64>,
    api: Api,
}

impl Node {
    pub(super) fn new(cluster: ClusterHandle, broker: Arc<Broker>, api: Api) -> Self {
        let stage = Arc::new(AtomicU8::new(Stage::Starting as u8));
        Self { cluster, broker, stage, watchers_turned_away: Arc::default(), api }
    }

    /// Notes how far the node is.
    pub(super) fn is_at(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// What SIGUSR1 asks for: one line of JSON.
    pub(super) fn line(&self) -> String {
        line(&self.rows(), self.cluster.peer_counters().is_some())
    }

    fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::Relaxed))]
    }

    fn rows(&self) -> Vec<Row> {
        let counted = Counted {
            counters: self.cluster.counters(),
            session_count: self.cluster.session_count(),
            alarms: self.cluster.alarms(),
            peers: self.cluster.peer_counters(),
            connection_count: self.broker.connection_count(),
            amqp: self.broker.metrics(),
            dead_letters: self.broker.dead_letters(),
            watchers_turned_away: &self.watchers_turned_away,
            http_turned_away: self.api.turned_away(),
        };
        counted.rows()
    }
}

impl Watched for Node {
    fn turned_away(&self) {
        self.watchers_turned_away.fetch_add(1, Ordering::Relaxed);
    }

    fn metrics(&self) -> String {
        text(self.rows())
    }

    fn problem(&self) -> Option<String> {
        self.stage().problem().map(str::to_owned)
    }
}

/// Rows as one line of JSON. A node without a cluster says `"peers":null`.
fn line(rows: &[Row], has_peers: bool) -> String {
    let mut line = Map::new();
    if !has_peers {
        line.insert("peers".to_owned(), Value::Null);
    }
    for row in rows {
        let object = match row.part {
            "" => &mut line,
            part => {
                let part = line.entry(part).or_insert_with(|| Value::Object(Map::new()));
                part.as_object_mut().expect("a part is an object: it was just made")
            }
        };
        object.insert(row.key.to_owned(), row.value.into());
    }
    Value::Object(line).to_string()
}

/// Rows as Prometheus reads them.
fn text(rows: Vec<Row>) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Exported(rows)));
    let mut text = String::new();
    // Writing into memory cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Exported(Vec<Row>);

impl Collector for Exported {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for family in self.0.chunk_by(|one, next| one.name == next.name) {
            let [Row { name, kind, meaning, .. }, ..] = family else { continue };
            let unit = kind.unit();
            let mut metric =
                encoder.encode_descriptor(name, meaning, unit.as_ref(), kind.metric_type())?;
            if let [row @ Row { label: None, .. }] = family {
                encode_value(row, metric)?;
                continue;
            }
            for row in family {
                encode_value(row, metric.encode_family(&[row.label.unwrap_or_default()])?)?;
            }
        }
        Ok(())
    }
}

fn encode_value(row: &Row, encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
    match row.kind {
        Kind::Total | Kind::TotalBytes => ConstCounter::new(row.value).encode(encoder),
        Kind::TotalMicros => ConstCounter::new(row.value as f64 / 1e6).encode(encoder),
        Kind::Now | Kind::NowBytes => {
            let value = i64::try_from(row.value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(encoder)
        }
    }
}

impl Kind {
    fn metric_type(self) -> MetricType {
        match self {
            Self::Total | Self::TotalMicros | Self::TotalBytes => MetricType::Counter,
            Self::Now | Self::NowBytes => MetricType::Gauge,
        }
    }

    fn unit(self) -> Option<Unit> {
        match self {
            Self::Total | Self::Now => None,
            Self::TotalMicros => Some(Unit::Seconds),
            Self::TotalBytes | Self::NowBytes => Some(Unit::Bytes),
        }
    }
}

#[cfg(test)]
mod tests;
