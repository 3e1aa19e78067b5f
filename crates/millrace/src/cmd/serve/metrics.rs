//! What a node counts, for whoever watches it: the line of SIGUSR1, and what the port of the setting `metrics` answers.
//!
//! `rows` has the numbers that are counters of this process, `seen` what is read besides: what the node leads, and what
//! it has and may use. `own` gives both Millrace's names and `rabbit` RabbitMQ's; `detail` has single queues.
//! `docs/operating/metrics.md` has a row for each name; a test compares.

mod detail;
mod family;
mod own;
mod rabbit;
mod row;
mod rows;
mod seen;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use broker::io::broker::Broker;
use cluster::ClusterHandle;
use management::io::Api;
use serde_json::{Map, Value};
use service::io::http::Watched;

use self::detail::Asked;
use self::family::{Page, Shown};
use self::rabbit::Endpoint;
use self::row::Row;
use self::rows::Counted;
use self::seen::{Gathered, Led, Seen, Wanted};
use super::open_files;

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
    began: Instant,
    /// Queues that an answer shows one by one.
    queues_max: usize,
}

impl Node {
    pub(super) fn new(
        cluster: ClusterHandle,
        broker: Arc<Broker>,
        api: Api,
        began: Instant,
        queues_max: usize,
    ) -> Self {
        let stage = Arc::new(AtomicU8::new(Stage::Starting as u8));
        Self {
            cluster,
            broker,
            stage,
            watchers_turned_away: Arc::default(),
            api,
            began,
            queues_max,
        }
    }

    /// Notes how far the node is.
    pub(super) fn is_at(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// What SIGUSR1 asks for: one line of JSON.
    pub(super) fn line(&self) -> String {
        line(&self.counted().rows(), self.cluster.peer_counters().is_some())
    }

    fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::Relaxed))]
    }

    fn counted(&self) -> Counted<'_> {
        Counted {
            counters: self.cluster.counters(),
            session_count: self.cluster.session_count(),
            alarms: self.cluster.alarms(),
            peers: self.cluster.peer_counters(),
            connection_count: self.broker.connection_count(),
            amqp: self.broker.metrics(),
            dead_letters: self.broker.dead_letters(),
            watchers_turned_away: &self.watchers_turned_away,
            http: self.api.metrics(),
        }
    }

    /// Reads everything, and the queues that are wanted one by one. Blocks while the groups say what they lead.
    fn see(&self, wanted: Wanted) -> (Seen<'_>, Vec<Shown>) {
        // Without a choice of vhosts nobody asks where a queue is, and the catalog stays unlocked.
        let asks_where = wanted.vhosts.is_some();
        let mut gathered = Gathered::new(wanted);
        let tally = self.cluster.tally(|some| {
            let catalog = asks_where.then(|| self.cluster.catalog());
            gathered.add(some, |id| Some(catalog.as_ref()?.queue_by_id(id)?.vhost.as_str()));
        });
        let me = self.cluster.node();
        let ((queues, mut shown), others) = {
            let catalog = self.cluster.catalog();
            let others = catalog.nodes().map(|known| known.node).filter(|node| *node != me);
            (gathered.named(&catalog), others.collect())
        };
        // Not under the lock: there may be 100,000.
        shown.sort_unstable_by(|one, other| {
            (&one.vhost, &one.queue).cmp(&(&other.vhost, &other.queue))
        });
        let led = tally.map(|tally| Led { queues, tally, others });
        // What half of the groups have said is no answer.
        let shown = if led.is_some() { shown } else { Vec::new() };
        let seen = Seen {
            counted: self.counted(),
            node: me,
            cluster: self.cluster.identity().cluster,
            resources: self.cluster.resources(),
            open_files: open_files::open(),
            open_files_max: open_files::max(),
            uptime_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            is_ready: self.stage() == Stage::Serving,
            led,
        };
        (seen, shown)
    }

    fn per_object(&self) -> String {
        let wanted = Wanted { queues_max: self.queues_max, vhosts: None };
        let (seen, queues) = self.see(wanted);
        Page { families: detail::per_object(&seen), queues }.text()
    }

    fn detailed(&self, query: &str) -> Result<String, String> {
        let asked = Asked::of(query)?;
        let queues_max = if asked.wants_queues() { self.queues_max } else { 0 };
        let (seen, queues) = self.see(Wanted { queues_max, vhosts: asked.vhosts.clone() });
        Ok(Page { families: asked.families(&seen), queues }.text())
    }
}

/// What `/metrics` says.
fn together(seen: &Seen<'_>) -> Page {
    let mut families = own::own(seen);
    families.push(rabbit::identity(seen, Endpoint::Aggregated));
    families.extend(rabbit::node_wide(seen));
    families.extend(rabbit::queues_together(seen));
    Page { families, queues: Vec::new() }
}

impl Watched for Node {
    fn turned_away(&self) {
        self.watchers_turned_away.fetch_add(1, Ordering::Relaxed);
    }

    fn metrics(&self) -> String {
        let (seen, _) = self.see(Wanted { queues_max: 0, vhosts: None });
        together(&seen).text()
    }

    fn metrics_page(&self, page: &str, query: &str) -> Option<Result<String, String>> {
        match page {
            "per-object" => Some(Ok(self.per_object())),
            "detailed" => Some(self.detailed(query)),
            _ => None,
        }
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

#[cfg(test)]
mod tests;
