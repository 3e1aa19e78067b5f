//! How far the replicas of each group are, as the groups' leaders say.

use std::collections::BTreeMap;

use cluster::shard::GroupReport;
use machine::{Catalog, GroupId, NodeId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::node::name_of;

/// A group, as its leader has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Led {
    group: u32,
    term: u64,
    committed: u64,
    voters: Vec<u64>,
    learners: Vec<u64>,
    /// The last entry that each replica has on its disk.
    matched: Vec<(u64, u64)>,
}

/// Those of these groups that this node leads.
pub(crate) fn led(reports: &[GroupReport], me: NodeId) -> Vec<Led> {
    let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect();
    let led = reports.iter().filter(|report| report.leader == Some(me));
    led.map(|report| Led {
        group: report.group.0,
        term: report.term,
        committed: report.committed,
        voters: numbers(&report.voters),
        learners: numbers(&report.learners),
        matched: report.matched.iter().map(|(node, matched)| (node.0, *matched)).collect(),
    })
    .collect()
}

/// All groups of the cluster, with what their leaders told.
pub(crate) fn shown(catalog: &Catalog, told: Vec<(NodeId, Vec<Led>)>) -> Vec<Value> {
    let mut known: BTreeMap<u32, (NodeId, Led)> = BTreeMap::new();
    for (node, led) in
        told.into_iter().flat_map(|(node, led)| led.into_iter().map(move |it| (node, it)))
    {
        // Two nodes may both take themselves to lead for a moment: one of them was elected later.
        let newer = known.get(&led.group).is_some_and(|(_, before)| before.term >= led.term);
        if !newer {
            known.insert(led.group, (node, led));
        }
    }
    let groups = 0..=catalog.group_count();
    groups
        .map(|group| match known.get(&group) {
            Some((leader, led)) => led.shown(*leader),
            None => unknown(catalog, GroupId(group)),
        })
        .collect()
}

impl Led {
    fn shown(&self, leader: NodeId) -> Value {
        let last = self.matched.iter().map(|(_, matched)| *matched).max().unwrap_or_default();
        let names =
            |nodes: &[u64]| nodes.iter().map(|node| name_of(NodeId(*node))).collect::<Vec<_>>();
        let all = self.voters.iter().chain(&self.learners);
        let replicas = all.map(|node| {
            let matched =
                self.matched.iter().find(|(of, _)| of == node).map(|(_, matched)| *matched);
            let behind = matched.map(|matched| last - matched);
            json!({ "node": name_of(NodeId(*node)), "matched": matched, "behind": behind })
        });
        json!({
            "group": self.group,
            "leader": name_of(leader),
            "term": self.term,
            "committed": self.committed,
            "voters": names(&self.voters),
            "learners": names(&self.learners),
            "replicas": replicas.collect::<Vec<_>>(),
        })
    }
}

/// A group whose leader has said nothing.
fn unknown(catalog: &Catalog, group: GroupId) -> Value {
    let voters: Vec<String> = catalog.voters(group).iter().copied().map(name_of).collect();
    let replica = |node: &String| json!({ "node": node, "matched": null, "behind": null });
    json!({
        "group": group.0,
        "leader": null,
        "term": null,
        "committed": null,
        "replicas": voters.iter().map(replica).collect::<Vec<_>>(),
        "voters": voters,
        "learners": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problems::tests::group;

    #[test]
    fn each_replica_is_so_far_behind_the_one_that_has_most() {
        let me = NodeId(1);
        let reports = [
            group(1, Some(1), &[(1, 90), (2, 100), (3, 40)]),
            group(2, Some(2), &[]),
            group(3, None, &[]),
        ];
        let told = led(&reports, me);
        assert_eq!(told.len(), 1, "of what another leads it says nothing: {told:?}");
        let shown = told[0].shown(me);
        let replica = |node, matched, behind| json!({ "node": name_of(NodeId(node)), "matched": matched, "behind": behind });
        let found = shown["replicas"].as_array().unwrap();
        for expected in [replica(1, 90, 10), replica(2, 100, 0), replica(3, 40, 60)] {
            assert!(found.contains(&expected), "{shown}");
        }
        assert_eq!((&shown["group"], &shown["leader"]), (&json!(1), &json!("millrace@1")));
    }

    #[test]
    fn of_two_leaders_the_one_of_the_later_term_is_believed_and_one_that_is_silent_is_said() {
        let catalog = Catalog::new(1);
        let mut late = led(&[group(0, Some(1), &[(1, 5)])], NodeId(1));
        let mut early = late.clone();
        (late[0].term, early[0].term) = (7, 6);
        for told in [
            vec![(NodeId(1), late.clone()), (NodeId(2), early.clone())],
            vec![(NodeId(2), early), (NodeId(1), late)],
        ] {
            assert_eq!(shown(&catalog, told)[0]["leader"], "millrace@1");
        }
        let silent = shown(&catalog, Vec::new());
        assert_eq!((&silent[0]["leader"], &silent[0]["committed"]), (&Value::Null, &Value::Null));
    }
}
