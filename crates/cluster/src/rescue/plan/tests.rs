//! What becomes of groups, from what is left.

use super::*;

fn nodes(numbers: &[u64]) -> BTreeSet<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

fn voters(numbers: &[u64]) -> Voters {
    Voters { voters: nodes(numbers), outgoing: BTreeSet::new() }
}

fn copy(group: u32, last: (u64, u64), of: &[u64]) -> GroupCopy {
    GroupCopy {
        group: GroupId(group),
        last,
        committed: last.1,
        voters: vec![voters(of)],
        is_damaged: false,
        is_incomplete: false,
    }
}

/// A node of a cluster of `members` with the groups that these founded.
fn node(number: u64, members: &[u64], founders: &[&[u64]], copies: Vec<GroupCopy>) -> Survey {
    let founders = founders.iter().map(|group| group.iter().copied().map(NodeId).collect());
    Survey {
        cluster: 7,
        node: NodeId(number),
        nodes: nodes(members),
        retired: BTreeSet::new(),
        term: 5,
        copies,
        founders: founders.collect(),
        queues: BTreeMap::new(),
    }
}

const THREE: &[u64] = &[1, 2, 3];
const FIVE: &[u64] = &[1, 2, 3, 4, 5];

fn alone() -> Survey {
    node(1, THREE, &[THREE, THREE], vec![copy(0, (5, 9), THREE), copy(1, (5, 70), THREE)])
}

fn fates(surveys: &[Survey], lost: &[u64]) -> Vec<Fate> {
    plan(surveys, &nodes(lost), false).unwrap().fates.into_values().collect()
}

fn refusal(surveys: &[Survey], lost: &[u64]) -> String {
    plan(surveys, &nodes(lost), false).unwrap_err()
}

const BY_1: Fate = Fate::Rescued { by: NodeId(1) };
const BY_2: Fate = Fate::Rescued { by: NodeId(2) };

#[test]
fn the_only_node_that_lives_goes_on_with_every_group_in_a_term_above_all() {
    let plan = plan(&[alone()], &nodes(&[2, 3]), false).unwrap();
    assert_eq!(plan.fates.into_values().collect::<Vec<_>>(), [BY_1, BY_1]);
    assert_eq!(plan.retired, nodes(&[2, 3]));
    assert!(plan.term > 5);
}

#[test]
fn nothing_is_done_before_all_that_live_are_heard() {
    let words = refusal(&[alone()], &[2]);
    assert!(words.contains("the logs of node 3 are needed") && words.contains("--with"), "{words}");
}

#[test]
fn nothing_is_done_where_a_majority_lives_unless_it_is_forced() {
    let other = Survey { node: NodeId(3), ..alone() };
    let both = [alone(), other];
    let words = refusal(&both, &[2]);
    assert!(words.contains("nothing is to be rescued"), "{words}");
    let forced = plan(&both, &nodes(&[2]), true).unwrap();
    assert_eq!(forced.fates.into_values().collect::<Vec<_>>(), [BY_1, BY_1]);
}

#[test]
fn the_newest_log_goes_on_whoever_asks() {
    // A later term counts for more than a longer log: what it lacks was not committed.
    let one = node(1, FIVE, &[FIVE, FIVE], vec![copy(0, (5, 9), FIVE), copy(1, (4, 90), FIVE)]);
    let two = node(2, FIVE, &[FIVE, FIVE], vec![copy(0, (5, 8), FIVE), copy(1, (5, 60), FIVE)]);
    let lost = [3, 4, 5];
    assert_eq!(fates(&[one.clone(), two.clone()], &lost), [BY_1, BY_2]);
    assert_eq!(fates(&[two.clone(), one.clone()], &lost), [BY_1, BY_2]);
    // Where both have the same, one of them is chosen.
    let same = Survey { node: NodeId(2), ..one.clone() };
    assert_eq!(fates(&[same, one], &lost), [BY_1, BY_1]);
}

#[test]
fn a_group_of_which_nothing_is_left_is_begun_anew_by_who_has_the_catalog() {
    let founders: &[&[u64]] = &[FIVE, &[3, 4, 5], &[1, 2, 3]];
    let copies = |last| vec![copy(0, last, FIVE), copy(2, (5, 5), &[1, 2, 3])];
    let one = node(1, FIVE, founders, copies((5, 8)));
    let two = node(2, FIVE, founders, copies((5, 9)));
    let anew = Fate::BegunAnew { by: NodeId(2) };
    assert_eq!(fates(&[one, two], &[3, 4, 5]), [BY_2, anew, Fate::Lives]);
}

#[test]
fn a_group_that_nobody_ever_wrote_to_begins_by_itself_if_its_founders_live() {
    let one = node(1, THREE, &[THREE, &[1]], vec![copy(0, (5, 8), THREE)]);
    assert_eq!(fates(&[one], &[2, 3]), [BY_1, Fate::Lives]);
}

#[test]
fn the_cluster_forgets_the_lost_nodes_itself_where_it_can() {
    let founders: &[&[u64]] = &[FIVE, &[1, 4, 5]];
    let copies = |group: Option<GroupCopy>| {
        let mut copies = vec![copy(0, (5, 9), FIVE)];
        copies.extend(group);
        copies
    };
    let mut surveys = [
        node(1, FIVE, founders, copies(Some(copy(1, (5, 9), &[1, 4, 5])))),
        node(2, FIVE, founders, copies(None)),
        node(3, FIVE, founders, copies(None)),
    ];
    let words = refusal(&surveys, &[4, 5]);
    assert!(words.contains("cluster remove"), "{words}");
    for survey in &mut surveys {
        (survey.nodes, survey.retired) = (nodes(THREE), nodes(&[4, 5]));
        survey.copies[0].voters = vec![voters(THREE)];
    }
    assert_eq!(fates(&surveys, &[4, 5]), [Fate::Lives, BY_1]);
}

#[test]
fn a_group_that_was_changing_its_members_is_left_alone_if_it_may_have_a_majority() {
    let mut surveys = vec![
        node(1, FIVE, &[FIVE, THREE], vec![copy(0, (5, 9), FIVE), copy(1, (5, 9), THREE)]),
        node(2, FIVE, &[FIVE, THREE], vec![copy(0, (5, 9), FIVE), copy(1, (5, 7), THREE)]),
    ];
    let joint = Voters { voters: nodes(&[1, 4, 5]), outgoing: nodes(THREE) };
    surveys[0].copies[1].voters.push(joint);
    let words = refusal(&surveys, &[3, 4, 5]);
    assert!(words.contains("group 1 was changing its members"), "{words}");
    let forced = plan(&surveys, &nodes(&[3, 4, 5]), true).unwrap();
    assert_eq!(forced.fates[&GroupId(1)], BY_1);
}

#[test]
fn a_forced_rescue_is_refused_where_others_could_go_on_beside_it() {
    let of = |number| {
        node(number, FIVE, &[FIVE, FIVE], vec![copy(0, (5, 9), FIVE), copy(1, (5, 9), FIVE)])
    };
    let words = plan(&[of(1), of(2), of(3), of(4)], &nodes(&[5]), true).unwrap_err();
    assert!(words.contains("could both go on with"), "{words}");
}

#[test]
fn who_was_let_go_long_ago_does_not_count_as_a_majority_that_lives() {
    // Group 1 moved from nodes 1 to 3 to nodes 3 to 5. Node 1 has not heard of it and node 2 has a newer log,
    // so that neither elects the other.
    let founders: &[&[u64]] = &[FIVE, THREE];
    let with = |number, last, view: &[u64]| {
        node(number, FIVE, founders, vec![copy(0, (5, 9), FIVE), copy(1, last, view)])
    };
    let surveys =
        [with(1, (5, 6), THREE), with(2, (5, 8), &[3, 4, 5]), with(3, (6, 90), &[3, 4, 5])];
    let mut removed = surveys.to_vec();
    for survey in &mut removed {
        (survey.nodes, survey.retired) = (nodes(THREE), nodes(&[4, 5]));
    }
    assert_eq!(fates(&removed, &[4, 5]), [Fate::Lives, Fate::Rescued { by: NodeId(3) }]);
}

#[test]
fn a_learner_with_the_newest_log_does_not_hide_that_a_majority_lives() {
    let with = |number, last| {
        node(number, THREE, &[THREE, FIVE], vec![copy(0, last, THREE), copy(1, last, &[2, 3, 4])])
    };
    let surveys: Vec<Survey> = [with(1, (5, 9)), with(2, (5, 9)), with(3, (5, 9))]
        .into_iter()
        .map(|survey| Survey { retired: nodes(&[4, 5]), ..survey })
        .collect();
    assert!(refusal(&surveys, &[4, 5]).contains("nothing is to be rescued"));
}

#[test]
fn a_damaged_log_votes_for_nobody() {
    let mut two = Survey { node: NodeId(2), ..alone() };
    two.copies[1].is_damaged = true;
    let surveys: Vec<Survey> = [alone(), two]
        .into_iter()
        .map(|survey| Survey { nodes: nodes(&[1, 2]), retired: nodes(&[3]), ..survey })
        .collect();
    assert_eq!(fates(&surveys, &[3]), [Fate::Lives, BY_1]);
}

#[test]
fn every_other_refusal_says_what_to_do() {
    let damaged = |mut survey: Survey| {
        survey.copies[1].is_damaged = true;
        survey
    };
    let of_another = Survey { cluster: 8, node: NodeId(2), ..alone() };
    let removed = Survey { retired: nodes(&[1]), nodes: nodes(&[2, 3]), ..alone() };
    let table = [
        (refusal(&[damaged(alone())], &[2, 3]), "group 1 is damaged"),
        (refusal(&[alone(), of_another], &[3]), "of this cluster"),
        (refusal(&[alone(), alone()], &[2, 3]), "give each node once"),
        (refusal(&[alone()], &[1, 2]), "node 1 is not lost"),
        (refusal(&[alone()], &[2, 3, 9]), "node 9 is not a member"),
        (refusal(&[alone()], &[]), "--lost names no node"),
        (refusal(&[removed], &[2, 3]), "was removed"),
    ];
    for (text, words) in table {
        assert!(text.contains(words), "{text}");
    }
}
