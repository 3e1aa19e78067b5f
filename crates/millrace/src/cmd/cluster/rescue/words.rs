//! What a rescue says to people.

use std::collections::BTreeSet;

use cluster::rescue::{Fate, GroupCopy, Plan, Survey};
use machine::{GroupId, NodeId};

/// Names of queues that are printed; `--json` has all.
const NAMES_SHOWN: usize = 20;

/// What this node has.
pub(super) fn survey(survey: &Survey, lost: &BTreeSet<NodeId>, plan: Option<&Plan>) -> String {
    let mut text = format!(
        "Node {} of cluster {:032x}, members {}; gone for good: {}\n\n",
        survey.node.0,
        survey.cluster,
        list(&survey.nodes),
        list(lost)
    );
    text += &format!(
        "{:<9}{:<14}{:<13}{:<17}{}\n",
        "Group", "Voters", "Log ends at", "Committed to", "Then"
    );
    let groups = (0..survey.founders.len() as u32).map(GroupId);
    for group in groups {
        let copy = survey.copies.iter().find(|copy| copy.group == group);
        let fate = plan.and_then(|plan| plan.fates.get(&group));
        text += &row(survey, group, copy, fate.copied());
    }
    text
}

fn row(survey: &Survey, group: GroupId, copy: Option<&GroupCopy>, fate: Option<Fate>) -> String {
    let name = if group == GroupId::CATALOG { "catalog".to_owned() } else { group.0.to_string() };
    let then = match fate {
        None => "-".to_owned(),
        Some(Fate::Lives) => "a majority survives: the group goes on by itself".to_owned(),
        Some(Fate::Rescued { by }) if by == survey.node => {
            "this node goes on alone with the group".to_owned()
        }
        Some(Fate::Rescued { by }) => {
            format!("node {} goes on with the group: its log is newer", by.0)
        }
        Some(Fate::BegunAnew { by }) => {
            format!("LOST, no surviving node has a copy: node {} begins the group empty", by.0)
        }
    };
    let (voters, last, committed) = match copy {
        None => ("-".to_owned(), "no copy here".to_owned(), "-".to_owned()),
        Some(copy) if copy.is_damaged => ("-".to_owned(), "DAMAGED".to_owned(), "-".to_owned()),
        Some(copy) => {
            let voters = copy.voters.last().map_or(String::new(), |it| list(&it.voters));
            (voters, copy.last.1.to_string(), format!("{} at least", copy.committed))
        }
    };
    format!("{name:<9}{voters:<14}{last:<13}{committed:<17}{then}\n")
}

/// What would be done here, and what may be lost by it.
pub(super) fn plan(survey: &Survey, lost: &BTreeSet<NodeId>, plan: &Plan) -> String {
    let me = survey.node;
    let is_ours = |fate: &Fate| fate.is_by(me);
    let count = plan.fates.values().filter(|fate| is_ours(fate)).count();
    if count == 0 {
        return "Nothing is to be done on this node: other nodes go on with their data, and bring this node up to \
                date when both are started."
            .to_owned();
    }
    let mut text = format!(
        "This node becomes the only voter of {count} group(s). Everything in their logs counts as committed.\n"
    );
    let catalog = plan.fates.get(&GroupId::CATALOG);
    if catalog.is_some_and(is_ours) && !plan.retired.is_empty() {
        text += &format!(
            "The catalog removes node(s) {}: they are refused if they come back, and their numbers are never used \
             again.\n",
            list(&plan.retired)
        );
    }
    text += &format!(
        "\nWhat may be lost:\n  Confirmed messages that only node(s) {} had. A confirm needs a majority, and this node need not \
         have been in it.\n  Nobody can say how many such messages there are. Messages that were acknowledged only there are \
         delivered again.\n",
        list(lost)
    );
    let incomplete: Vec<String> = survey
        .copies
        .iter()
        .filter(|copy| copy.is_incomplete && plan.fates.get(&copy.group).is_some_and(is_ours))
        .map(|copy| copy.group.0.to_string())
        .collect();
    if !incomplete.is_empty() {
        text += &format!(
            "  Group(s) {}: the log on this node was damaged and has not been rebuilt, so more is missing.\n",
            incomplete.join(", ")
        );
    }
    let queues = lost_queues(survey, plan);
    if plan.fates.values().any(|fate| matches!(fate, Fate::BegunAnew { .. })) {
        text += &format!(
            "  ALL messages of {} queue(s), because no surviving node has a copy of their groups. These queues are \
             empty afterwards:\n",
            queues.len()
        );
        queues.iter().take(NAMES_SHOWN).for_each(|name| text += &format!("    {name}\n"));
        if queues.len() > NAMES_SHOWN {
            text += &format!("    and {} more, see --json\n", queues.len() - NAMES_SHOWN);
        }
    }
    text
}

/// Names of the queues whose messages are all lost.
pub(super) fn lost_queues(survey: &Survey, plan: &Plan) -> Vec<String> {
    let is_lost = |group: &GroupId| matches!(plan.fates.get(group), Some(Fate::BegunAnew { .. }));
    let lost = survey.queues.iter().filter(|(group, _)| is_lost(group));
    let mut names: Vec<String> = lost.flat_map(|(_, names)| names.iter().cloned()).collect();
    names.sort();
    names
}

/// What to do now.
pub(super) fn done(survey: &Survey, plan: &Plan) -> String {
    let catalog = plan.fates.get(&GroupId::CATALOG);
    let is_whole = plan.fates.values().all(|fate| *fate == Fate::Lives || fate.is_by(survey.node));
    let mut text = String::from("Done. ");
    if !is_whole {
        text += "Do the same on the other surviving nodes before you start any of them. ";
    }
    text += "Start this node as usual; after a few seconds it leads the groups that it rescued. Delete the directories of the \
             lost nodes. ";
    if catalog.is_some_and(|fate| *fate != Fate::Lives) {
        text += "Add new nodes with numbers that no node ever had: millrace cluster add, serve --join, and millrace \
                 cluster rebalance.";
    }
    text
}

fn list(nodes: &BTreeSet<NodeId>) -> String {
    let numbers: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
    match numbers.is_empty() {
        true => "none".to_owned(),
        false => numbers.join(","),
    }
}
