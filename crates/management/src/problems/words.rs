//! Problems in sentences: what is wrong, and what to do about it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use machine::{Catalog, GroupId, NodeId, QueueId};
use serde_json::{Value, json};

use super::{DAY_S, Key, OfQueue, Problem, What};
use crate::access::Sight;
use crate::node::name_of;

/// Queues that are named in one sentence.
const NAMES_SHOWN: usize = 5;

/// Days before it expires from which on a certificate is critical.
const CERTIFICATE_DAYS_CRITICAL: i64 = 3;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Warning,
    Critical,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Problems as they are shown.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) verdict: &'static str,
    pub(crate) problems: Vec<Value>,
}

/// What the nodes say, for who sees so much, the worst first. The same problem seen by several nodes is one.
pub(crate) fn listed(
    catalog: &Catalog,
    sight: &Sight,
    now_s: i64,
    told: impl IntoIterator<Item = (NodeId, Problem)>,
) -> Listed {
    let mut all = BTreeMap::<Key, (Problem, Vec<NodeId>)>::new();
    for (by, problem) in told {
        let key = problem.what.key(by);
        let since_s = problem.since_s;
        let (known, seen_by) = all.entry(key).or_insert_with(|| (problem, Vec::new()));
        known.since_s = known.since_s.min(since_s);
        seen_by.push(by);
    }
    let all = of_whole_queues(catalog, all);
    let teller = Teller { catalog, sight, now_s };
    let shown = all.values().filter_map(|(problem, by)| teller.shown(problem, by));
    let mut shown: Vec<(Severity, Value)> = shown.collect();
    shown.sort_by_key(|(severity, _)| std::cmp::Reverse(*severity));
    let worst = shown.first().map(|(severity, _)| *severity);
    Listed {
        verdict: worst.map_or("ok", Severity::word),
        problems: shown.into_iter().map(|(_, value)| value).collect(),
    }
}

/// Problems of the partitions of a queue are one, about all their messages. A stream keeps its messages whether
/// anybody reads it or not: that they wait is no problem.
fn of_whole_queues(
    catalog: &Catalog,
    all: BTreeMap<Key, (Problem, Vec<NodeId>)>,
) -> BTreeMap<Key, (Problem, Vec<NodeId>)> {
    let mut whole = BTreeMap::<Key, (Problem, Vec<NodeId>)>::new();
    for (key, (mut problem, seen_by)) in all {
        let What::Queue { queue, is, count } = &mut problem.what else {
            whole.insert(key, (problem, seen_by));
            continue;
        };
        let (is, more) = (*is, *count);
        let id = catalog.partitions().get(&QueueId(*queue)).copied().unwrap_or(QueueId(*queue));
        let is_stream = catalog.queue_by_id(id).is_some_and(|it| it.settings().is_stream());
        if is_stream && matches!(is, OfQueue::Unconsumed | OfQueue::Growing) {
            continue;
        }
        *queue = id.0;
        let by = seen_by.first().copied().unwrap_or(NodeId(0));
        match whole.entry(problem.what.key(by)) {
            Entry::Vacant(place) => {
                place.insert((problem, seen_by));
            }
            Entry::Occupied(mut known) => {
                let (known, known_by) = known.get_mut();
                if let What::Queue { count, .. } = &mut known.what {
                    *count += more;
                }
                known.since_s = known.since_s.min(problem.since_s);
                known_by.extend(seen_by);
                known_by.sort();
                known_by.dedup();
            }
        }
    }
    whole
}

/// Says it to somebody.
struct Teller<'a> {
    catalog: &'a Catalog,
    sight: &'a Sight,
    now_s: i64,
}

/// A problem in words.
struct Said {
    severity: Severity,
    kind: &'static str,
    object: Value,
    what: String,
    remedy: &'static str,
    /// Who sees no nodes is told, too: health checks tell it.
    is_for_all: bool,
}

impl Teller<'_> {
    /// `None`: it is not for who asks, or about something that is gone.
    fn shown(&self, problem: &Problem, seen_by: &[NodeId]) -> Option<(Severity, Value)> {
        let by = *seen_by.first()?;
        let said = match &problem.what {
            What::Queue { queue, is, count } => {
                self.of_queue(QueueId(*queue), *is, *count, problem.since_s)?
            }
            what => self.of_node(what, by)?,
        };
        let Said { severity, kind, object, what, remedy, is_for_all: _ } = said;
        let seen_by: Vec<String> = seen_by.iter().copied().map(name_of).collect();
        let value = json!({
            "kind": kind,
            "severity": severity.word(),
            "object": object,
            "what": what,
            "remedy": remedy,
            "since": problem.since_s * 1000,
            "seen_by": seen_by,
        });
        Some((severity, value))
    }

    fn of_queue(&self, queue: QueueId, is: OfQueue, count: u64, since_s: u64) -> Option<Said> {
        let queue = self.catalog.queue_by_id(queue).filter(|it| self.sight.has(&it.vhost))?;
        let name = format!("{} of vhost {}", queue.name, queue.vhost);
        let lasts = u64::try_from(self.now_s).unwrap_or_default().saturating_sub(since_s);
        let lasts = span(lasts);
        let waits = matches!(is, OfQueue::Unconsumed | OfQueue::Growing);
        let paused_by = queue.pause().filter(|_| waits).map(|pause| &pause.by);
        let (kind, what, remedy) = match (paused_by, is) {
            (Some(user), _) => (
                "queue_paused",
                format!("{user} has paused {name}: {count} messages wait, for {lasts}"),
                "let the queue go on once its consumers can work again (`millrace resume`)",
            ),
            (None, OfQueue::Unconsumed) => (
                "queue_without_consumers",
                format!("nobody consumes from {name}: {count} messages wait, for {lasts}"),
                "start its consumers; or bound it by a policy, or empty it (`millrace purge --dry-run`)",
            ),
            (None, OfQueue::Growing) => (
                "queue_grows",
                format!(
                    "{name} only grows, for {lasts}: {count} messages wait, though it has consumers"
                ),
                "add consumers or make them faster, raise their prefetch, or bound the queue by a policy",
            ),
            (None, OfQueue::Unacked) => (
                "messages_unacked",
                format!(
                    "{count} messages of {name} are with consumers, and none was acked for {lasts}"
                ),
                "see who holds them (`GET /api/queues/VHOST/QUEUE/messages?state=unacked`); closing that connection \
                 gives them back",
            ),
            (None, OfQueue::DeadLettersStuck) => (
                "dead_letters_stuck",
                format!(
                    "{count} dead letters of {name} cannot be stored where they go, for {lasts}"
                ),
                "see whether the queues behind its dead-letter exchange are full and refuse messages, or have no leader",
            ),
        };
        let object = json!({ "queue": { "vhost": queue.vhost, "name": queue.name } });
        Some(Said { severity: Severity::Warning, kind, object, what, remedy, is_for_all: false })
    }

    fn of_node(&self, what: &What, by: NodeId) -> Option<Said> {
        let said = match what {
            What::NotServing => not_serving(by),
            What::MemoryAlarm { used, limit } => memory_alarm(by, *used, *limit),
            What::DiskAlarm { free, limit } => disk_alarm(by, *free, *limit),
            What::DiskLow { free, limit } => disk_low(by, *free, *limit),
            What::CertificateExpires { at_s } => certificate(by, at_s - self.now_s),
            What::Unreachable { node, trouble } => {
                unreachable_node(by, NodeId(*node), trouble.as_deref())
            }
            What::Behind { node, entries } => behind(by, NodeId(*node), *entries),
            What::NoLeader { group, reached, voters } => {
                self.no_leader(by, GroupId(*group), *reached, *voters)
            }
            What::QuorumCritical { groups } => quorum_critical(by, *groups),
            What::VersionBehind { agreed, reads, held_by } => {
                version_behind(by, *agreed, *reads, held_by)
            }
            What::ReplicasDiffer { group, node, index, ours, theirs } => {
                replicas_differ(by, *group, NodeId(*node), *index, [*ours, *theirs])
            }
            What::ClockApart { node, ahead_ms } => clock_apart(by, NodeId(*node), *ahead_ms),
            What::Queue { .. } => return None,
        };
        let is_shown = said.is_for_all || *self.sight == Sight::All;
        is_shown.then_some(said)
    }

    fn no_leader(&self, by: NodeId, group: GroupId, reached: u64, voters: u64) -> Said {
        let me = name_of(by);
        Said {
            severity: Severity::Critical,
            kind: "group_without_leader",
            object: json!({ "group": group.0 }),
            what: format!(
                "group {} has no leader, as {me} sees it: {reached} of its {voters} voters can be reached{}",
                group.0,
                self.queues_of(group)
            ),
            remedy: "bring the nodes back that keep it: `millrace cluster status` shows which are missing",
            is_for_all: false,
        }
    }

    /// Which queues that is about.
    fn queues_of(&self, group: GroupId) -> String {
        if group == GroupId::CATALOG {
            return "; nothing can be declared or deleted".to_owned();
        }
        let all = self.catalog.queues().filter(|queue| queue.group == group);
        let names: Vec<String> =
            all.map(|queue| format!("{} of vhost {}", queue.name, queue.vhost)).collect();
        let shown = names[..names.len().min(NAMES_SHOWN)].join(", ");
        match (names.len(), names.len().saturating_sub(NAMES_SHOWN)) {
            (0, _) => "; it has no queues".to_owned(),
            (_, 0) => format!("; its queues stand still: {shown}"),
            (_, rest) => format!("; its queues stand still: {shown} and {rest} others"),
        }
    }
}

/// What a node's object is.
fn object(node: NodeId) -> Value {
    json!({ "node": name_of(node) })
}

fn not_serving(by: NodeId) -> Said {
    Said {
        severity: Severity::Critical,
        kind: "node_not_serving",
        object: object(by),
        what: format!("{} takes no AMQP clients", name_of(by)),
        remedy: "it may still be starting, or wait for a majority of the cluster: see its log and \
                 `millrace cluster status`",
        is_for_all: true,
    }
}

fn memory_alarm(by: NodeId, used: Option<u64>, limit: u64) -> Said {
    let how = used.map(|used| format!(": {} of {}", bytes(used), bytes(limit)));
    Said {
        severity: Severity::Critical,
        kind: "memory_alarm",
        object: object(by),
        what: format!(
            "memory alarm on {}{}; publishers are held back",
            name_of(by),
            how.unwrap_or_default()
        ),
        remedy: "let consumers catch up, or raise memory_limit; publishers go on when there is room",
        is_for_all: true,
    }
}

fn disk_alarm(by: NodeId, free: Option<u64>, limit: u64) -> Said {
    let how = free.map(|free| format!(": {} free, {} wanted", bytes(free), bytes(limit)));
    Said {
        severity: Severity::Critical,
        kind: "disk_alarm",
        object: object(by),
        what: format!(
            "disk alarm on {}{}; publishers are held back",
            name_of(by),
            how.unwrap_or_default()
        ),
        remedy: "free disk space, or lower disk_free_limit; publishers go on when there is room",
        is_for_all: true,
    }
}

fn disk_low(by: NodeId, free: u64, limit: u64) -> Said {
    Said {
        severity: Severity::Warning,
        kind: "disk_low",
        object: object(by),
        what: format!(
            "the disk of {} is nearly full: {} free; below {} publishers are held back",
            name_of(by),
            bytes(free),
            bytes(limit)
        ),
        remedy: "free disk space, or let consumers catch up",
        is_for_all: false,
    }
}

fn certificate(by: NodeId, left_s: i64) -> Said {
    let is_close = left_s <= CERTIFICATE_DAYS_CRITICAL * DAY_S;
    let when = match u64::try_from(left_s) {
        Ok(left) => format!("expires in {}", span(left)),
        Err(_) => "has expired".to_owned(),
    };
    Said {
        severity: if is_close { Severity::Critical } else { Severity::Warning },
        kind: "certificate_expires",
        object: object(by),
        what: format!("the certificate that {} shows clients {when}", name_of(by)),
        remedy: "renew its files, then send the node SIGHUP: it reads them again, and no connection is lost",
        is_for_all: true,
    }
}

fn unreachable_node(by: NodeId, node: NodeId, trouble: Option<&str>) -> Said {
    let why = trouble.map(|why| format!(" ({why})")).unwrap_or_default();
    Said {
        severity: Severity::Warning,
        kind: "node_unreachable",
        object: object(node),
        what: format!("{} cannot be reached from {}{why}", name_of(node), name_of(by)),
        remedy: "start it, or see why the network keeps them apart (`millrace cluster status`)",
        is_for_all: false,
    }
}

fn behind(by: NodeId, node: NodeId, entries: u64) -> Said {
    Said {
        severity: Severity::Warning,
        kind: "node_behind",
        object: object(node),
        what: format!("{} is {entries} log entries behind {}", name_of(node), name_of(by)),
        remedy: "see whether its disk or network is slow; it catches up by itself if it can",
        is_for_all: false,
    }
}

fn quorum_critical(by: NodeId, groups: u64) -> Said {
    Said {
        severity: Severity::Warning,
        kind: "quorum_critical",
        object: object(by),
        what: format!("without {} {groups} groups would have no majority", name_of(by)),
        remedy: "do not stop it; bring the other nodes back (`millrace cluster status`)",
        is_for_all: true,
    }
}

fn version_behind(by: NodeId, agreed: u16, reads: u16, held_by: &[u64]) -> Said {
    let names: Vec<String> = held_by.iter().map(|node| name_of(NodeId(*node))).collect();
    let held = match names.is_empty() {
        true => String::new(),
        false => format!("; held back by {}", names.join(", ")),
    };
    Said {
        severity: Severity::Warning,
        kind: "version_not_raised",
        object: json!({ "version": agreed }),
        what: format!(
            "the cluster writes version {agreed}, though {} reads {reads}{held}",
            name_of(by)
        ),
        remedy: "upgrade or start the nodes that hold it back; or take cluster_version_max away, if it is set",
        is_for_all: false,
    }
}

fn replicas_differ(by: NodeId, group: u32, node: NodeId, index: u64, digests: [u64; 2]) -> Said {
    let [ours, theirs] = digests;
    Said {
        severity: Severity::Critical,
        kind: "replicas_differ",
        object: json!({ "group": group }),
        what: format!(
            "replicas of group {group} differ: at entry {index} the digest of {} is {ours:016x}, and that of {} is \
             {theirs:016x}",
            name_of(by),
            name_of(node)
        ),
        remedy: "see which replica is alone with its digest (`millrace reconcile`), and replace that node \
                 (docs/operating/reconcile.md)",
        is_for_all: false,
    }
}

fn clock_apart(by: NodeId, node: NodeId, ahead_ms: i64) -> Said {
    let how_far = span(ahead_ms.unsigned_abs() / 1000);
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    Said {
        severity: Severity::Warning,
        kind: "clocks_apart",
        object: object(node),
        what: format!("the clock of {} is {how_far} {side} that of {}", name_of(node), name_of(by)),
        remedy: "synchronise the clocks (NTP): times to live, delays and history go by them",
        is_for_all: false,
    }
}

/// `40 s`, `12 min`, `5 h`, `3 days`.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        172_800.. => format!("{} days", seconds / 86_400),
    }
}

/// `976 KiB`, `12 GiB`.
fn bytes(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 10 * 1024 && unit + 1 < units.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_are_short() {
        assert_eq!(
            [span(5), span(150), span(7300), span(900_000)],
            ["5 s", "2 min", "2 h", "10 days"]
        );
        assert_eq!(
            [bytes(10), bytes(2_000_000), bytes(50 << 30)],
            ["10 bytes", "1953 KiB", "50 GiB"]
        );
    }
}
