use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::limits::{REPLICAS, REPLICAS_MAX};

fn place(
    nodes: &BTreeMap<NodeId, NodeStatus>,
    current: Vec<Vec<NodeId>>,
    goal: Goal,
) -> Vec<Vec<NodeId>> {
    let wanted = vec![REPLICAS; current.len()];
    super::place(nodes, current, goal, &wanted)
}

fn nodes(statuses: &[NodeStatus]) -> BTreeMap<NodeId, NodeStatus> {
    (1..).map(NodeId).zip(statuses.iter().copied()).collect()
}

fn groups(voters: &[&[u64]]) -> Vec<Vec<NodeId>> {
    voters.iter().map(|voters| voters.iter().copied().map(NodeId).collect()).collect()
}

fn serving(count: usize) -> BTreeMap<NodeId, NodeStatus> {
    nodes(&vec![NodeStatus::Serving; count])
}

fn replicas(placed: &[Vec<NodeId>], node: NodeId) -> usize {
    placed.iter().filter(|voters| voters.contains(&node)).count()
}

fn leads(placed: &[Vec<NodeId>], node: NodeId) -> usize {
    placed.iter().filter(|voters| voters.first() == Some(&node)).count()
}

fn spread(counts: impl Iterator<Item = usize> + Clone) -> usize {
    counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0)
}

/// Replicas that must be copied.
fn moves(before: &[Vec<NodeId>], after: &[Vec<NodeId>]) -> usize {
    let pairs = before.iter().zip(after);
    pairs.map(|(old, new)| new.iter().filter(|node| !old.contains(node)).count()).sum()
}

#[test]
fn new_groups_are_spread_with_their_leaders() {
    for count in 1..8 {
        let placed = place(&serving(count), vec![vec![]; 8 * count], Goal::Balance);
        let all = || (1..=count as u64).map(NodeId);
        assert_eq!(spread(all().map(|node| replicas(&placed, node))), 0);
        assert_eq!(spread(all().map(|node| leads(&placed, node))), 0, "{placed:?}");
    }
}

#[test]
fn groups_of_one_node_grow_to_three_voters_and_no_more() {
    let mut placed = place(&serving(1), vec![vec![]; 2], Goal::Repair);
    assert_eq!(placed, groups(&[&[1], &[1]]));
    placed = place(&serving(2), placed, Goal::Repair);
    assert_eq!(placed, groups(&[&[1, 2], &[1, 2]]));
    placed = place(&serving(3), placed, Goal::Repair);
    assert_eq!(placed, groups(&[&[1, 2, 3], &[1, 2, 3]]));
    assert_eq!(place(&serving(4), placed.clone(), Goal::Repair), placed);
}

#[test]
fn the_groups_of_a_lost_node_go_to_its_replacement() {
    let mut with = serving(4);
    let before = groups(&[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]]);
    with.remove(&NodeId(2));
    let after = place(&with, before.clone(), Goal::Repair);
    assert_eq!(after, groups(&[&[1, 3, 4], &[4, 3, 1], &[3, 1, 4]]));
    assert_eq!(place(&with, before, Goal::Balance), after);
}

#[test]
fn a_draining_node_leads_nothing_and_stays_where_nobody_can_replace_it() {
    let three = nodes(&[NodeStatus::Draining, NodeStatus::Serving, NodeStatus::Serving]);
    let placed = place(&three, groups(&[&[1, 2, 3], &[2, 3, 1]]), Goal::Repair);
    assert_eq!(placed, groups(&[&[3, 1, 2], &[2, 3, 1]]));
    let mut four = three;
    four.insert(NodeId(4), NodeStatus::Serving);
    let placed = place(&four, placed, Goal::Repair);
    assert_eq!(placed, groups(&[&[3, 2, 4], &[2, 3, 4]]));
}

#[test]
fn a_node_that_is_down_keeps_its_replicas_and_gets_none() {
    let four =
        nodes(&[NodeStatus::Serving, NodeStatus::Serving, NodeStatus::Serving, NodeStatus::Down]);
    let placed = place(&four, groups(&[&[4, 1, 2], &[], &[1, 2]]), Goal::Balance);
    assert_eq!(replicas(&placed, NodeId(4)), 1);
    assert_eq!(leads(&placed, NodeId(4)), 0);
    assert!(placed.iter().all(|voters| voters.len() == 3));
}

#[test]
fn leaders_are_handed_on_through_a_third() {
    // 1 leads three groups, none of which 3 has; 2 can take one of them and give one to 3.
    let five = serving(5);
    let before = groups(&[&[1, 2, 4], &[1, 2, 5], &[1, 2, 4], &[2, 3, 5], &[4, 1, 5], &[5, 1, 4]]);
    let mut plan = Plan::new(&five, before, &[REPLICAS; 6]);
    plan.balance_leaders();
    let counts = (1..=5).map(|node| leads(&plan.groups, NodeId(node)));
    assert!(spread(counts.clone()) <= 1, "{:?}", counts.collect::<Vec<_>>());
}

fn some_status() -> impl Strategy<Value = NodeStatus> {
    prop_oneof![
        4 => Just(NodeStatus::Serving),
        1 => Just(NodeStatus::Down),
        1 => Just(NodeStatus::Draining),
    ]
}

fn some_groups() -> impl Strategy<Value = Vec<Vec<NodeId>>> {
    let voters = proptest::collection::vec((1u64..10).prop_map(NodeId), 0..5);
    proptest::collection::vec(voters, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_was_every_group_has_voters_and_nothing_moves_twice(
        statuses in proptest::collection::vec(some_status(), 1..9),
        before in some_groups(),
        is_balanced in any::<bool>(),
        wide_every in 1usize..5,
    ) {
        let nodes = nodes(&statuses);
        let goal = if is_balanced { Goal::Balance } else { Goal::Repair };
        let wanted: Vec<usize> = (1..=before.len())
            .map(|nth| if nth % wide_every == 0 { REPLICAS_MAX } else { REPLICAS })
            .collect();
        let after = super::place(&nodes, before.clone(), goal, &wanted);
        let again = super::place(&nodes, after.clone(), goal, &wanted);
        prop_assert_eq!(&again, &after, "once is enough");
        let is = |node: &NodeId, status| nodes[node] == status;
        let serving: Vec<NodeId> =
            nodes.keys().copied().filter(|node| is(node, NodeStatus::Serving)).collect();
        prop_assert_eq!(before.len(), after.len());
        for ((old, new), wanted) in before.iter().zip(&after).zip(&wanted) {
            let distinct: BTreeSet<NodeId> = new.iter().copied().collect();
            prop_assert_eq!(distinct.len(), new.len());
            prop_assert!(new.iter().all(|node| nodes.contains_key(node)));
            prop_assert!(new.len() <= *wanted);
            let is_taker_left = serving.iter().any(|node| !new.contains(node));
            prop_assert!(new.len() == nodes.len().min(*wanted) || !is_taker_left);
            let is_drained = !new.iter().any(|node| is(node, NodeStatus::Draining));
            prop_assert!(is_drained || !is_taker_left);
            let can_lead = new.iter().any(|node| is(node, NodeStatus::Serving));
            prop_assert!(!can_lead || is(&new[0], NodeStatus::Serving));
            prop_assert!(!new.is_empty() || serving.is_empty());
            if goal == Goal::Repair {
                let kept: BTreeSet<NodeId> = old.iter().copied().filter(|node| {
                    nodes.get(node).is_some_and(|status| *status != NodeStatus::Draining)
                }).collect();
                let left = kept.iter().filter(|node| new.contains(node)).count();
                prop_assert_eq!(left, kept.len().min(*wanted), "who may stay stays");
                if is_drained && old.first().is_some_and(|first| serving.contains(first))
                    && new.contains(&old[0]) {
                    prop_assert_eq!(old[0], new[0], "who leads goes on");
                }
            }
        }
        if goal == Goal::Balance {
            prop_assert!(spread(serving.iter().map(|node| replicas(&after, *node))) <= 1);
            let leads = |node| leads(&after, node);
            for voters in &after {
                let fit = voters.iter().filter(|node| serving.contains(node));
                let fewest = fit.map(|node| leads(*node)).min().unwrap_or(0);
                let most = voters.first().map_or(0, |first| leads(*first));
                let is_led = voters.first().is_some_and(|first| serving.contains(first));
                prop_assert!(!is_led || most <= fewest + 1);
            }
        }
    }

    #[test]
    fn a_node_more_costs_its_share_and_a_node_less_what_it_had(
        count in 3usize..8,
        per_node in 1usize..9,
        removed in 1u64..4,
    ) {
        let before = place(&serving(count), vec![vec![]; per_node * count], Goal::Balance);
        let mut more = before.clone();
        more.extend(vec![vec![]; per_node]);
        let after = place(&serving(count + 1), more.clone(), Goal::Balance);
        let new = NodeId(count as u64 + 1);
        let placed = place(&serving(count + 1), more, Goal::Repair);
        prop_assert_eq!(moves(&before, &placed), 0, "old groups stay where they are");
        prop_assert_eq!(leads(&placed, new), per_node, "new groups are led by the new node");
        let of_new_groups: usize = after[before.len()..].iter().map(Vec::len).sum();
        let share = REPLICAS * per_node;
        prop_assert!(moves(&before, &after) <= share);
        prop_assert_eq!((replicas(&after, new), of_new_groups), (share, share));
        let mut fewer = serving(count);
        fewer.remove(&NodeId(removed));
        let had = replicas(&before, NodeId(removed));
        let after = place(&fewer, before.clone(), Goal::Repair);
        prop_assert!(moves(&before, &after) <= had);
        prop_assert_eq!(replicas(&after, NodeId(removed)), 0);
    }
}
