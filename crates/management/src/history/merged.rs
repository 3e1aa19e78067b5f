//! What several nodes have seen, as one.

use std::collections::BTreeMap;

use machine::{NodeId, QueueId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{NODE_NUMBERS, NodePoint, QUEUE_NUMBERS, QueuePoint, QueueSeries, Window};

/// What one node says, in the order of the window's points.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Empty: it was not asked for.
    #[serde(default)]
    pub(crate) node: Vec<Option<Vec<u32>>>,
    /// Of those that were asked for and that it keeps.
    #[serde(default)]
    pub(crate) queues: Vec<(u64, Vec<Option<QueuePoint>>)>,
}

/// What all of them say.
#[derive(Clone, Debug)]
pub(crate) struct Merged {
    pub(crate) window: Window,
    nodes: BTreeMap<NodeId, Vec<Option<NodePoint>>>,
    queues: BTreeMap<QueueId, Vec<Option<QueuePoint>>>,
}

impl Merged {
    pub(crate) fn new(window: Window) -> Self {
        Self { window, nodes: BTreeMap::new(), queues: BTreeMap::new() }
    }

    /// Adds what a node says. What does not fit is left out: the node may be of another version.
    pub(crate) fn add(&mut self, node: NodeId, Told { node: points, queues }: Told) {
        let count = self.window.count;
        if points.len() == count {
            let fits = |point: Vec<u32>| NodePoint::try_from(point).ok();
            self.nodes.insert(node, points.into_iter().map(|it| it.and_then(fits)).collect());
        }
        for (queue, points) in queues.into_iter().filter(|(_, points)| points.len() == count) {
            let known = self.queues.entry(QueueId(queue)).or_insert_with(|| vec![None; count]);
            for (known, point) in known.iter_mut().zip(points) {
                // Two leaders in one point follow each other: each has counted what came in its time.
                *known = match (*known, point) {
                    (Some(one), Some(other)) => Some(QueueSeries::together(one, other)),
                    (one, other) => one.or(other),
                };
            }
        }
    }

    /// One number of a queue, point by point.
    pub(crate) fn of_queue(&self, queue: QueueId, name: &str) -> Vec<Option<u64>> {
        let place = QUEUE_NUMBERS.iter().position(|known| *known == name);
        let of = |point: &Option<QueuePoint>| Some(u64::from((*point)?[place?]));
        match self.queues.get(&queue) {
            Some(points) => points.iter().map(of).collect(),
            None => vec![None; self.window.count],
        }
    }

    /// One number of a node, point by point.
    pub(crate) fn of_node(&self, node: NodeId, name: &str) -> Vec<Option<u64>> {
        let place = NODE_NUMBERS.iter().position(|known| *known == name);
        let of = |point: &Option<NodePoint>| Some(u64::from((*point)?[place?]));
        match self.nodes.get(&node) {
            Some(points) => points.iter().map(of).collect(),
            None => vec![None; self.window.count],
        }
    }

    /// The sum of all nodes. A node that says nothing of a point adds nothing to it.
    pub(crate) fn of_all(&self, name: &str) -> Vec<Option<u64>> {
        let mut sums = vec![None; self.window.count];
        for node in self.nodes.keys() {
            for (sum, number) in sums.iter_mut().zip(self.of_node(*node, name)) {
                *sum = match (*sum, number) {
                    (Some(sum), Some(number)) => Some(sum + number),
                    (one, other) => one.or(other),
                };
            }
        }
        sums
    }

    pub(crate) fn shown_queue(&self, queue: QueueId) -> Value {
        self.shown(&QUEUE_NUMBERS, |name| self.of_queue(queue, name))
    }

    pub(crate) fn shown_node(&self, node: NodeId) -> Value {
        self.shown(&NODE_NUMBERS, |name| self.of_node(node, name))
    }

    pub(crate) fn shown_all(&self) -> Value {
        self.shown(&NODE_NUMBERS, |name| self.of_all(name))
    }

    fn shown(&self, names: &[&str], of: impl Fn(&str) -> Vec<Option<u64>>) -> Value {
        let series: Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), of(name).into())).collect();
        json!({
            "step_ms": self.window.step_s * 1000,
            "from": self.window.starts_ms(),
            "to": self.window.ends_ms(),
            "series": series,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(first: u32, last: u32) -> Option<Vec<u32>> {
        let mut point = vec![0; NODE_NUMBERS.len()];
        point[0] = first;
        point[NODE_NUMBERS.len() - 1] = last;
        Some(point)
    }

    #[test]
    fn nodes_are_added_up_and_leaders_follow_each_other() {
        let mut merged = Merged::new(Window { step_s: 10, first: 1, count: 3 });
        let one = Told {
            node: vec![point(1, 2), point(3, 4), None],
            queues: vec![(9, vec![Some([5, 1, 7, 7]), Some([4, 0, 1, 2]), None])],
        };
        let other = Told {
            node: vec![None, point(10, 20), None],
            queues: vec![(9, vec![None, Some([9, 1, 3, 4]), Some([1, 1, 1, 1])])],
        };
        merged.add(NodeId(1), one);
        merged.add(NodeId(2), other);
        merged.add(NodeId(3), Told { node: vec![point(9, 9)], queues: vec![(9, vec![None])] });
        assert_eq!(merged.of_all("messages_ready"), [Some(1), Some(13), None]);
        assert_eq!(merged.of_all("ack"), [Some(2), Some(24), None]);
        assert_eq!(merged.of_queue(QueueId(9), "publish"), [Some(7), Some(4), Some(1)]);
        assert_eq!(merged.of_queue(QueueId(9), "messages_ready"), [Some(5), Some(9), Some(1)]);
        assert_eq!(merged.of_queue(QueueId(8), "publish"), [None, None, None]);
        let shown = merged.shown_node(NodeId(2));
        assert_eq!((&shown["from"], &shown["to"]), (&json!(10_000), &json!(40_000)));
        assert_eq!(shown["series"]["ack"], json!([null, 20, null]));
    }
}
