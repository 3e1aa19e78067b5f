//! Queues, as their leaders describe them.

use std::fmt;

use broker::{ConnectionId, rate};
use cluster::{DescribedQueue, NotDescribed};
use machine::{
    Catalog, Counters, Features, Filter, GroupId, HeldBack, HolderDescription, Overflow, QueueId,
    QueuePause, QueueSettings, Retention,
};
use serde::{Deserialize, Serialize};

use super::connections::age_of;
use crate::control::running::Running;
use crate::table::{age, bytes, or_dash, pairs, rows, shown};

/// What `millrace describe queues --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueueList {
    pub(crate) vhost: String,
    /// All queues of the vhost.
    pub(crate) count: usize,
    /// By name.
    pub(crate) queues: Vec<QueueLine>,
    /// What `--after` takes, if more follow.
    pub(crate) next: Option<String>,
}

/// A queue in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueueLine {
    pub(crate) name: String,
    /// `None`: it is in a node's memory.
    group: Option<u32>,
    leader: Option<u64>,
    pub(crate) counts: Option<Counts>,
    /// Whether its consumers are given nothing.
    #[serde(default)]
    pub(crate) paused: bool,
    /// Why its leader does not say more.
    pub(crate) problem: Option<String>,
}

/// What is in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) ready: u64,
    /// Held by consumers.
    pub(crate) unacked: u64,
    /// Not due yet.
    delayed: u64,
    /// Dead, and not yet stored where they are to go.
    dead_letters: u64,
    /// All that the log has not let go of.
    kept: u64,
    /// Of the bodies of what is ready, where a limit needs it.
    ready_bytes: Option<u64>,
    pub(crate) consumers: u32,
    /// What the queue's rates hold back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_back: Option<Held>,
}

/// What a queue's rates hold back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Held {
    /// Ready messages that wait, though a consumer has room.
    pub(crate) messages: u64,
    /// How long the first of them waits still.
    pub(crate) wait_ms: u64,
    /// Published messages that wait to come in.
    pub(crate) publishes: u64,
}

/// What `millrace describe queue --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueueDetail {
    pub(crate) vhost: String,
    pub(crate) name: String,
    id: u64,
    #[serde(rename = "type")]
    queue_type: String,
    durable: bool,
    auto_delete: bool,
    /// The connection that alone may use it.
    exclusive: Option<String>,
    /// `None`: it is in the memory of the node that leads it.
    group: Option<u32>,
    pub(crate) leader: u64,
    term: u64,
    voters: Vec<u64>,
    learners: Vec<u64>,
    /// That its consumers are given nothing.
    #[serde(default)]
    pub(crate) paused: Option<Pause>,
    pub(crate) counts: Counts,
    totals: Totals,
    settings: Settings,
    /// The first consumers and holders, by connection.
    pub(crate) consumers: Vec<Holder>,
    /// All of them.
    pub(crate) holders: u64,
}

/// Who paused a queue, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pause {
    pub(crate) by: String,
    /// Milliseconds since 1970.
    since_ms: u64,
    /// Seconds since then.
    age_s: u64,
}

/// Since the queue was made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Totals {
    published: u64,
    /// With their heads.
    published_bytes: u64,
    acked: u64,
    purged: u64,
    dropped: u64,
    dead_lettered: u64,
    /// Of a subscription with a filter.
    passed_over: u64,
    duplicates: u64,
}

/// What holds for the queue now; what is not set is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    message_ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_length_bytes: Option<u64>,
    /// Of a stream: what is older goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_age_ms: Option<u64>,
    /// At the limit: `drop-head`, `reject-publish` or `reject-publish-dlx`.
    #[serde(skip_serializing_if = "Option::is_none")]
    overflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    single_active_consumer: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_exchange: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_routing_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer_timeout_ms: Option<u64>,
    /// Wait of a message that comes back, at first and at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_ms: Option<[u64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deduplication_ms: Option<u64>,
    /// Of a subscription: the stream that it reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<String>,
    /// Of a subscription: `hold` or `skip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    when_behind: Option<String>,
    /// Of a subscription: which messages of its stream it gives out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    /// Of a subscription: how often it was set to another place.
    #[serde(skip_serializing_if = "Option::is_none")]
    seeks: Option<u32>,
    /// Of a subscription: how its partitions are shared, if not by whoever has room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    assign: Option<String>,
    /// Where the key is by which its messages keep their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order_by_key: Option<String>,
    /// Messages that go out in a time, such as `500/s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dequeue_rate: Option<String>,
    /// Of these, what may go at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dequeue_burst: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dequeue_bytes_rate: Option<String>,
    /// Messages of each key that go out in a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dequeue_rate_per_key: Option<String>,
    /// Messages that come in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enqueue_rate: Option<String>,
}

/// Somebody who consumes from the queue or holds messages of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) connection: String,
    /// The connection's own number for it, as `millrace describe channel` shows it.
    number: u64,
    pub(crate) held: u64,
    pub(crate) credit: u32,
    no_ack: bool,
    exclusive: bool,
    priority: i32,
    /// False: it gets no more, and holds what it fetched or got before it was cancelled.
    attached: bool,
    /// The one that is served, in a queue with a single active consumer.
    active: bool,
}

/// What the catalog says of a queue.
struct Known {
    id: QueueId,
    group: GroupId,
    is_paused: bool,
}

impl Known {
    fn of(queue: &machine::Queue) -> Self {
        Self { id: queue.id, group: queue.group, is_paused: queue.pause().is_some() }
    }
}

/// Why a queue's leader says nothing.
fn problem(why: NotDescribed) -> String {
    match why {
        NotDescribed::NoQueue => "it is being deleted".to_owned(),
        NotDescribed::NotYet { since } => format!(
            "another node leads it, and this node cannot ask that node until every node of the cluster is upgraded: \
             the cluster must agree on version {since}. Run the command on the node that leads the queue"
        ),
        NotDescribed::NoLeader => "its group has no leader. See millrace cluster status".to_owned(),
        NotDescribed::Late => "its leader did not answer in time. Repeat the command".to_owned(),
    }
}

impl QueueList {
    pub(super) async fn of(
        running: &Running,
        vhost: String,
        after: Option<String>,
        limit: usize,
    ) -> Result<Self, String> {
        let limit = limit.clamp(1, super::LINES_MAX);
        let (count, mut page) = page(&running.cluster.catalog(), &vhost, after, limit)?;
        let has_more = page.len() > limit;
        page.truncate(limit);
        let next = page.last().filter(|_| has_more).map(|(name, _)| name.clone());
        let questions: Vec<_> = page.iter().map(|(_, known)| (known.group, known.id)).collect();
        let told = running.cluster.describe(&questions).await;
        let queues = page.into_iter().zip(told);
        let queues = queues.map(|((name, known), told)| QueueLine::of(name, &known, told));
        Ok(Self { vhost, count, queues: queues.collect(), next })
    }
}

/// The count of a vhost's queues, and those that come next by name: one more than `limit`, if there are.
fn page(
    catalog: &Catalog,
    vhost: &str,
    after: Option<String>,
    limit: usize,
) -> Result<(usize, Vec<(String, Known)>), String> {
    let found = catalog.vhosts().find(|found| found.name() == vhost);
    let found = found.ok_or_else(|| no_vhost(catalog, vhost))?;
    let following =
        found.queues().filter(|queue| after.as_deref().is_none_or(|after| *queue.name > *after));
    let page = following.take(limit + 1).map(|queue| {
        let known = Known::of(queue);
        (queue.name.clone(), known)
    });
    Ok((found.queues().count(), page.collect()))
}

/// Names the vhosts that there are, but not all of many.
fn no_vhost(catalog: &Catalog, vhost: &str) -> String {
    let names: Vec<String> = catalog.vhosts().take(10).map(|found| shown(found.name())).collect();
    let names = names.join(", ");
    format!("There is no vhost {}. The vhosts are: {names}", shown(vhost))
}

impl QueueLine {
    fn of(name: String, known: &Known, told: Result<Box<DescribedQueue>, NotDescribed>) -> Self {
        let (group, paused) = ((!known.group.is_local()).then_some(known.group.0), known.is_paused);
        match told {
            Ok(described) => Self {
                name,
                group,
                leader: Some(described.leader.0),
                counts: Some(Counts::of(&described)),
                paused,
                problem: None,
            },
            Err(why) => Self {
                name,
                group,
                leader: None,
                counts: None,
                paused,
                problem: Some(problem(why)),
            },
        }
    }
}

impl Counts {
    fn of(described: &DescribedQueue) -> Self {
        let queue = &described.queue;
        Self {
            ready: queue.status.ready,
            unacked: queue.status.unsettled,
            delayed: queue.status.delayed,
            dead_letters: queue.status.leaving,
            kept: queue.kept,
            ready_bytes: queue.ready_bytes,
            consumers: queue.status.consumers,
            held_back: Held::of(queue.status.held_back),
        }
    }
}

impl Held {
    /// `None`: nothing is held back.
    fn of(held_back: HeldBack) -> Option<Self> {
        let HeldBack { messages, wait_ms, publishes } = held_back;
        (held_back != HeldBack::default()).then_some(Self { messages, wait_ms, publishes })
    }
}

impl fmt::Display for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, wait_ms, publishes } = self;
        if *messages > 0 {
            write!(out, "{messages} ready message(s) by the rate, the next for {wait_ms} ms")?;
        }
        if *publishes > 0 {
            let and = if *messages > 0 { "; " } else { "" };
            write!(out, "{and}{publishes} publish(es) wait to come in")?;
        }
        Ok(())
    }
}

impl QueueDetail {
    pub(super) async fn of(running: &Running, vhost: &str, name: &str) -> Result<Self, String> {
        let known = known(&running.cluster.catalog(), vhost, name)?;
        let told = running.cluster.describe(&[(known.group, known.id)]).await.pop();
        let described = told.unwrap_or(Err(NotDescribed::Late)).map_err(|why| {
            format!("Queue {} of vhost {}: {}", shown(name), shown(vhost), problem(why))
        })?;
        let catalog = running.cluster.catalog();
        let queue = catalog.queue(vhost, name).filter(|queue| queue.id == known.id);
        let queue = queue.ok_or_else(|| no_queue(&catalog, vhost, name))?;
        let exclusive = queue.exclusive.and_then(|owner| ConnectionId::of(owner.session));
        let nodes = |nodes: &[machine::NodeId]| nodes.iter().map(|node| node.0).collect();
        Ok(Self {
            vhost: vhost.to_owned(),
            name: name.to_owned(),
            id: known.id.0,
            queue_type: queue.queue_type().name().to_owned(),
            durable: queue.durable,
            auto_delete: queue.auto_delete,
            exclusive: exclusive.map(|id| id.to_string()),
            group: (!known.group.is_local()).then_some(known.group.0),
            leader: described.leader.0,
            term: described.term,
            voters: nodes(&described.voters),
            learners: nodes(&described.learners),
            paused: queue.pause().map(Pause::of),
            counts: Counts::of(&described),
            totals: Totals::of(&described.queue.status.counters),
            settings: Settings::of(queue, &described.queue.settings),
            consumers: described.queue.holders.iter().map(Holder::of).collect(),
            holders: described.queue.holder_count,
        })
    }
}

fn known(catalog: &Catalog, vhost: &str, name: &str) -> Result<Known, String> {
    let queue = catalog.queue(vhost, name).ok_or_else(|| no_queue(catalog, vhost, name))?;
    Ok(Known::of(queue))
}

fn no_queue(catalog: &Catalog, vhost: &str, name: &str) -> String {
    if catalog.vhosts().all(|found| found.name() != vhost) {
        return no_vhost(catalog, vhost);
    }
    let (vhost, name) = (shown(vhost), shown(name));
    format!("Vhost {vhost} has no queue {name}. See millrace describe queues --vhost {vhost}")
}

impl Pause {
    fn of(pause: &QueuePause) -> Self {
        let QueuePause { by, since_ms } = pause;
        Self { by: by.clone(), since_ms: *since_ms, age_s: age_of(*since_ms) }
    }
}

impl Totals {
    fn of(counters: &Counters) -> Self {
        Self {
            published: counters.enqueued,
            published_bytes: counters.enqueued_bytes,
            acked: counters.settled,
            purged: counters.purged,
            dropped: counters.dropped,
            dead_lettered: counters.dead_lettered,
            passed_over: counters.passed_over,
            duplicates: counters.duplicates,
        }
    }
}

/// As it is written in one text.
fn shown_filter(filter: &Filter) -> String {
    match filter {
        Filter::Keys(keys) => keys.join(", "),
        Filter::Header { name, values } => format!("header:{name}={}", values.join("|")),
    }
}

impl Settings {
    fn of(queue: &machine::Queue, settings: &QueueSettings) -> Self {
        let known = Self {
            dead_letter_exchange: queue.dead_letter_exchange().map(str::to_owned),
            dead_letter_routing_key: queue.dead_letter_key().map(str::to_owned),
            consumer_timeout_ms: queue.consumer_timeout_ms(),
            ..Self::default()
        };
        let Some(features) = settings.features.as_deref() else { return known };
        let Features {
            message_ttl_ms,
            expires_ms,
            max_length,
            max_length_bytes,
            overflow,
            dead_letters: _,
            max_priority,
            single_active,
            delivery_limit,
            counts_returns: _,
            retry,
            dedup,
            stream,
            subscription,
            assignment,
            tokens_of: _,
            ref filter,
            rates,
            ref order,
        } = *features;
        if let Some(Retention { max_age_ms, max_bytes }) = stream {
            return Self { max_age_ms, max_length_bytes: max_bytes, ..known };
        }
        let named = || queue.arguments.find("x-stream").and_then(|name| name.text());
        let behind = |skips: bool| if skips { "skip" } else { "hold" };
        let has_limit = max_length.is_some() || max_length_bytes.is_some();
        let overflow = match overflow {
            Overflow::DropHead => "drop-head",
            Overflow::RejectPublish => "reject-publish",
            Overflow::RejectPublishDlx => "reject-publish-dlx",
        };
        Self {
            message_ttl_ms,
            expires_ms,
            max_length,
            max_length_bytes,
            overflow: has_limit.then(|| overflow.to_owned()),
            max_priority: (max_priority > 0).then_some(max_priority),
            single_active_consumer: single_active.then_some(true),
            delivery_limit,
            retry_ms: retry.map(|retry| [retry.min_ms, retry.max_ms]),
            deduplication_ms: dedup.map(|dedup| dedup.window_ms),
            stream: subscription.and_then(|_| named()).map(str::to_owned),
            when_behind: subscription.map(|it| behind(it.skips).to_owned()),
            filter: filter.as_deref().map(shown_filter),
            seeks: subscription.map(|it| it.seeks),
            assign: assignment.filter(|_| !single_active).map(|_| "partition".to_owned()),
            order_by_key: order.as_ref().map(|key| key.to_string()),
            dequeue_rate: rates.dequeue.map(rate::shown),
            dequeue_burst: rates
                .dequeue
                .map(|rate| rates.dequeue_burst.unwrap_or(rate.default_burst())),
            dequeue_bytes_rate: rates.dequeue_bytes.map(rate::shown),
            dequeue_rate_per_key: rates.dequeue_per_key.map(rate::shown),
            enqueue_rate: rates.enqueue.map(rate::shown),
            ..known
        }
    }

    /// For people: what is set.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let ms = |ms: u64| if ms < 1000 { format!("{ms} ms") } else { age(ms / 1000) };
        let lines = [
            ("Message TTL", self.message_ttl_ms.map(ms)),
            ("Expires", self.expires_ms.map(|unused| format!("after {} unused", ms(unused)))),
            ("Max length", self.max_length.map(|count| count.to_string())),
            ("Max bytes", self.max_length_bytes.map(bytes)),
            ("Filter", self.filter.clone()),
            ("Max age", self.max_age_ms.map(ms)),
            ("Overflow", self.overflow.clone()),
            ("Max priority", self.max_priority.map(|priority| priority.to_string())),
            ("Single active", self.single_active_consumer.map(|_| "yes".to_owned())),
            ("Delivery limit", self.delivery_limit.map(|limit| limit.to_string())),
            ("Dead letters to", self.dead_letter_exchange.as_deref().map(exchange)),
            ("With key", self.dead_letter_routing_key.as_deref().map(shown)),
            ("Consumer timeout", self.consumer_timeout_ms.map(ms)),
            ("Retry", self.retry_ms.map(|[min, max]| format!("{} to {}", ms(min), ms(max)))),
            ("Deduplication", self.deduplication_ms.map(ms)),
            ("Reads stream", self.stream.as_deref().map(shown)),
            ("When behind", self.when_behind.clone()),
            ("Seeks", self.seeks.map(|seeks| seeks.to_string())),
            ("Assign", self.assign.clone()),
            ("Order by key", self.order_by_key.clone()),
            (
                "Deliveries",
                self.dequeue_rate.as_ref().map(|rate| at_most(rate, self.dequeue_burst)),
            ),
            (
                "Deliveries of a key",
                self.dequeue_rate_per_key.as_ref().map(|rate| at_most(rate, None)),
            ),
            ("Delivered bytes", self.dequeue_bytes_rate.as_ref().map(|rate| at_most(rate, None))),
            ("Publishes", self.enqueue_rate.as_ref().map(|rate| at_most(rate, None))),
        ];
        lines.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

fn at_most(rate: &str, burst: Option<u64>) -> String {
    let burst = burst.map(|burst| format!(", {burst} at once")).unwrap_or_default();
    format!("at most {rate}{burst}")
}

fn exchange(name: &str) -> String {
    if name.is_empty() { "the default exchange".to_owned() } else { shown(name) }
}

impl Holder {
    fn of(holder: &HolderDescription) -> Self {
        let HolderDescription { consumer, spec, credit, held, is_attached, is_active } = *holder;
        let connection = ConnectionId::of(consumer.session);
        Self {
            connection: connection.map(|id| id.to_string()).unwrap_or_default(),
            number: consumer.number,
            held,
            credit,
            no_ack: spec.no_ack,
            exclusive: spec.exclusive,
            priority: spec.priority,
            attached: is_attached,
            active: is_active,
        }
    }

    /// What is special about it.
    fn remark(&self) -> String {
        let remarks = [
            (self.active, "active"),
            (!self.attached, "gets no more messages"),
            (self.exclusive, "exclusive"),
            (self.no_ack, "automatic acks"),
        ];
        let said = remarks.into_iter().filter_map(|(is_so, remark)| is_so.then_some(remark));
        said.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for QueueList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vhost, count, queues, next } = self;
        writeln!(out, "{} of {count} queue(s) of vhost {}\n", queues.len(), shown(vhost))?;
        let cells = |queue: &QueueLine| {
            let known = |count: fn(&Counts) -> u64| or_dash(queue.counts.as_ref().map(count));
            [
                shown(&queue.name),
                known(|counts| counts.ready),
                known(|counts| counts.unacked),
                known(|counts| counts.delayed),
                known(|counts| counts.dead_letters),
                known(|counts| counts.consumers.into()),
                if queue.paused { "yes".to_owned() } else { "-".to_owned() },
                queue.group.map_or("memory".to_owned(), |group| group.to_string()),
                or_dash(queue.leader),
            ]
        };
        let heads = [
            "Queue",
            "Ready",
            "Unacked",
            "Delayed",
            "Dead",
            "Consumers",
            "Paused",
            "Group",
            "Leader",
        ];
        rows(out, heads, &queues.iter().map(cells).collect::<Vec<_>>())?;
        let silent: Vec<_> = queues.iter().filter(|queue| queue.problem.is_some()).collect();
        if let [QueueLine { name, problem: Some(problem), .. }, rest @ ..] = &silent[..] {
            let others = match rest.len() {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            writeln!(out, "\nNo numbers for {}{others}: {problem}", shown(name))?;
        }
        match next {
            Some(next) => writeln!(out, "\nMore follow: --after '{}'", shown(next)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for QueueDetail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |nodes: &[u64]| {
            let nodes: Vec<String> = nodes.iter().map(u64::to_string).collect();
            nodes.join(", ")
        };
        let place = match self.group {
            Some(group) => {
                let learners = match self.learners.is_empty() {
                    true => String::new(),
                    false => format!(", learners {}", list(&self.learners)),
                };
                let voters = list(&self.voters);
                format!("group {group}, led by node {}, voters {voters}{learners}", self.leader)
            }
            None => format!("in the memory of node {}", self.leader),
        };
        let kinds = [(self.durable, "durable"), (self.auto_delete, "auto-delete")];
        let kinds = kinds.into_iter().filter_map(|(is_so, kind)| is_so.then_some(kind));
        let kinds: Vec<&str> = [&*self.queue_type].into_iter().chain(kinds).collect();
        let mut lines = vec![
            ("Queue", format!("{} of vhost {}", shown(&self.name), shown(&self.vhost))),
            ("Type", kinds.join(", ")),
            ("Kept", place),
        ];
        if let Some(owner) = &self.exclusive {
            lines.push(("Exclusive", format!("to connection {owner}")));
        }
        if let Some(Pause { by, age_s, .. }) = &self.paused {
            let (by, age) = (shown(by), age(*age_s));
            lines.push(("Paused", format!("by {by}, for {age}: consumers get no messages")));
        }
        let Counts {
            ready,
            unacked,
            delayed,
            dead_letters,
            kept,
            ready_bytes,
            consumers,
            held_back,
        } = self.counts;
        let ready_bytes =
            ready_bytes.map_or_else(String::new, |size| format!(" ({})", bytes(size)));
        lines.extend([
            ("Ready", format!("{ready}{ready_bytes}")),
            ("Unacked", unacked.to_string()),
            ("Delayed", delayed.to_string()),
            ("Dead", format!("{dead_letters} dead letter(s) not stored in their target yet")),
            ("In the log", format!("{kept} message(s)")),
            ("Consumers", consumers.to_string()),
        ]);
        lines.extend(held_back.map(|held| ("Held back", held.to_string())));
        let Totals { published, published_bytes, acked, purged, dropped, .. } = self.totals;
        let Totals { dead_lettered, passed_over, duplicates, .. } = self.totals;
        let passed_over = match passed_over {
            0 => String::new(),
            count => format!(", {count} passed over"),
        };
        lines.push((
            "Since it was made",
            format!(
                "{published} published ({}), {acked} acked, {purged} purged, {dropped} dropped, {dead_lettered} \
                 dead-lettered, {duplicates} duplicates dropped{passed_over}",
                bytes(published_bytes)
            ),
        ));
        lines.extend(self.settings.lines());
        pairs(out, &lines)?;
        if self.consumers.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        let cells = |holder: &Holder| {
            [
                holder.connection.clone(),
                holder.number.to_string(),
                holder.held.to_string(),
                holder.credit.to_string(),
                holder.priority.to_string(),
                holder.remark(),
            ]
        };
        let heads = ["Connection", "Consumer", "Held", "Credit", "Priority", "Remark"];
        rows(out, heads, &self.consumers.iter().map(cells).collect::<Vec<_>>())?;
        if self.holders > self.consumers.len() as u64 {
            writeln!(out, "\nThe first {} of {}", self.consumers.len(), self.holders)?;
        }
        Ok(())
    }
}
