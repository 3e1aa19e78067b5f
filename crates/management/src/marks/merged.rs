//! The marks of all nodes as one list, and how it is shown.

use std::collections::{BTreeMap, BTreeSet};

use machine::{Catalog, GroupId, NodeId, Queue, QueueId, Value as Argument};
use serde_json::{Value, json};

use super::{Key, MARKED, Mark, TEXT};
use crate::limits::{MARK_QUEUES_MAX, MARKS_SHOWN_MAX};
use crate::node::name_of;
use crate::work::Past;

/// What happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) at_ms: u64,
    pub(crate) what: Occasion,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    Leader { group: GroupId, term: u64, from: NodeId, to: NodeId },
    Start(NodeId),
    Deployment { text: String, user: String },
}

/// What the nodes have told, one mark for each key.
#[derive(Debug, Default)]
pub(crate) struct Merged(BTreeMap<Key, Mark>);

impl Merged {
    /// Adds what a node has seen. Of what several have seen, the first counts: the others heard of it later.
    pub(crate) fn add(&mut self, told: Vec<Mark>) {
        for mark in told {
            let known = self.0.entry(mark.key).or_insert(mark);
            *known = (*known).min(mark);
        }
    }

    /// What concerns `past`, with the deployments of that time: the oldest first.
    pub(crate) fn about(
        self,
        past: Past,
        catalog: &Catalog,
        from_ms: u64,
        to_ms: u64,
    ) -> Vec<Happened> {
        let place = Place::of(past, catalog);
        let marks = self.0.into_values().map(Happened::of).filter(|it| place.concerns(&it.what));
        let mut all: Vec<Happened> = marks.chain(deployments(catalog, from_ms, to_ms)).collect();
        all.sort_by_key(|it| it.at_ms);
        all
    }
}

impl Happened {
    fn of(Mark { at_ms, key, from, to }: Mark) -> Self {
        let what = match key {
            Key::Leader { group, term } => {
                Occasion::Leader { group: GroupId(group), term, from: NodeId(from), to: NodeId(to) }
            }
            Key::Start { node, boot: _ } => Occasion::Start(NodeId(node)),
        };
        Self { at_ms, what }
    }
}

/// Whose past is asked for, as far as it says which marks belong to it.
enum Place {
    All,
    Node(NodeId),
    /// A queue: the groups of its partitions, and the nodes with their replicas.
    Groups(BTreeSet<GroupId>, BTreeSet<NodeId>),
}

impl Place {
    fn of(past: Past, catalog: &Catalog) -> Self {
        match past {
            Past::All => Self::All,
            Past::Node(node) => Self::Node(node),
            Past::Queue(queue) => {
                let groups: BTreeSet<GroupId> = groups_of(catalog, queue).collect();
                let replicas = groups.iter().flat_map(|group| catalog.voters(*group)).copied();
                // A queue in the memory of a node has no replicas.
                let home = catalog.queue_by_id(queue).and_then(|queue| queue.node);
                let nodes = replicas.chain(home).collect();
                Self::Groups(groups, nodes)
            }
        }
    }

    fn concerns(&self, what: &Occasion) -> bool {
        match (self, what) {
            (Self::All, _) | (_, Occasion::Deployment { .. }) => true,
            (Self::Node(node), Occasion::Leader { from, to, .. }) => [from, to].contains(&node),
            (Self::Node(node), Occasion::Start(started)) => node == started,
            (Self::Groups(groups, _), Occasion::Leader { group, .. }) => groups.contains(group),
            (Self::Groups(_, nodes), Occasion::Start(node)) => nodes.contains(node),
        }
    }
}

fn groups_of(catalog: &Catalog, queue: QueueId) -> impl Iterator<Item = GroupId> {
    let found = catalog.queue_by_id(queue);
    found.into_iter().flat_map(Queue::partitions).map(|partition| partition.group)
}

fn deployments(catalog: &Catalog, from_ms: u64, to_ms: u64) -> impl Iterator<Item = Happened> {
    let is_in = move |at_ms| (from_ms..=to_ms).contains(&at_ms);
    let told = catalog.audit().filter(move |it| it.event.name == MARKED && is_in(it.at_ms));
    told.map(|record| {
        let text = match record.event.details.find(TEXT) {
            Some(Argument::LongStr(text)) => String::from_utf8_lossy(text).into_owned(),
            Some(_) | None => String::new(),
        };
        let what = Occasion::Deployment { text, user: record.by.user.clone() };
        Happened { at_ms: record.at_ms, what }
    })
}

/// Marks as the API shows them, the newest of them, and how many are left out. `past` says which queues the changes of
/// leaders name: that one, or the first of each group.
pub(crate) fn shown(all: &[Happened], past: Past, catalog: &Catalog) -> (Vec<Value>, usize) {
    let left_out = all.len().saturating_sub(MARKS_SHOWN_MAX);
    let marks = &all[left_out..];
    let concerned = concerned(marks, past, catalog);
    (marks.iter().map(|mark| shown_one(mark, &concerned)).collect(), left_out)
}

/// Queues of groups: how many, and the first of them.
type Concerned = BTreeMap<GroupId, (usize, Vec<Value>)>;

fn concerned(marks: &[Happened], past: Past, catalog: &Catalog) -> Concerned {
    let group_of = |mark: &Happened| match mark.what {
        Occasion::Leader { group, .. } => Some(group),
        Occasion::Start(_) | Occasion::Deployment { .. } => None,
    };
    let mut concerned: Concerned =
        marks.iter().filter_map(group_of).map(|group| (group, Default::default())).collect();
    if concerned.is_empty() {
        return concerned;
    }
    let one = match past {
        Past::Queue(queue) => catalog.queue_by_id(queue),
        Past::All | Past::Node(_) => None,
    };
    let mut add = |queue: &Queue| {
        if !queue.partitions().any(|it| concerned.contains_key(&it.group)) {
            return;
        }
        let groups: BTreeSet<GroupId> = queue.partitions().map(|it| it.group).collect();
        for group in groups {
            let Some((count, names)) = concerned.get_mut(&group) else { continue };
            *count += 1;
            if names.len() < MARK_QUEUES_MAX {
                names.push(json!({ "vhost": queue.vhost, "name": queue.name }));
            }
        }
    };
    match (past, one) {
        (Past::Queue(_), one) => one.into_iter().for_each(&mut add),
        // By vhost: looking up each by its number takes ten times as long, and the catalog is held meanwhile.
        (Past::All | Past::Node(_), _) => {
            catalog.vhosts().flat_map(machine::Vhost::queues).for_each(&mut add);
        }
    }
    concerned
}

fn shown_one(Happened { at_ms, what }: &Happened, concerned: &Concerned) -> Value {
    match what {
        Occasion::Leader { group, term, from, to } => {
            let (count, queues) = concerned.get(group).cloned().unwrap_or_default();
            json!({
                "at": at_ms,
                "kind": "leader",
                "group": group.0,
                "term": term,
                "from": name_of(*from),
                "to": name_of(*to),
                "queues": queues,
                "queue_count": count,
            })
        }
        Occasion::Start(node) => json!({ "at": at_ms, "kind": "start", "node": name_of(*node) }),
        Occasion::Deployment { text, user } => {
            json!({ "at": at_ms, "kind": "deployment", "text": text, "user": user })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader(group: u32, term: u64, at_ms: u64) -> Mark {
        Mark { at_ms, key: Key::Leader { group, term }, from: 1, to: 2 }
    }

    #[test]
    fn what_several_nodes_have_seen_is_one_mark_at_its_first_time() {
        let mut merged = Merged::default();
        merged.add(vec![leader(3, 7, 1_020), Mark::start(NodeId(2), 900)]);
        merged.add(vec![leader(3, 7, 1_000), leader(4, 7, 1_010), Mark::start(NodeId(2), 900)]);
        let catalog = Catalog::new(1);
        let all = merged.about(Past::All, &catalog, 0, 2_000);
        assert_eq!(all.iter().map(|it| it.at_ms).collect::<Vec<_>>(), [900, 1_000, 1_010]);
        let (shown, left_out) = shown(&all, Past::All, &catalog);
        assert_eq!(left_out, 0);
        assert_eq!(shown[0], json!({ "at": 900, "kind": "start", "node": "millrace@2" }));
        let change = json!({
            "at": 1_000, "kind": "leader", "group": 3, "term": 7, "from": "millrace@1",
            "to": "millrace@2", "queues": [], "queue_count": 0,
        });
        assert_eq!(shown[1], change);
    }

    #[test]
    fn a_node_has_the_marks_that_concern_it() {
        let told =
            || vec![leader(3, 7, 10), Mark::start(NodeId(2), 20), Mark::start(NodeId(3), 30)];
        let of = |node| {
            let mut merged = Merged::default();
            merged.add(told());
            let all = merged.about(Past::Node(NodeId(node)), &Catalog::new(1), 0, 99);
            all.iter().map(|it| it.at_ms).collect::<Vec<_>>()
        };
        assert_eq!((of(1), of(2), of(3)), (vec![10], vec![10, 20], vec![30]));
    }

    #[test]
    fn the_newest_marks_are_shown_and_the_others_counted() {
        let mut merged = Merged::default();
        merged.add((0..MARKS_SHOWN_MAX as u64 + 5).map(|at| leader(1, at, at)).collect());
        let catalog = Catalog::new(1);
        let all = merged.about(Past::All, &catalog, 0, u64::MAX);
        let (shown, left_out) = shown(&all, Past::All, &catalog);
        assert_eq!((shown.len(), left_out, &shown[0]["at"]), (MARKS_SHOWN_MAX, 5, &json!(5)));
    }
}
