//! From the surveys of all nodes that live to what becomes of each group: the same on each of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use machine::{GroupId, NodeId};

use super::{Fate, GroupCopy, Plan, Survey, Voters};

/// How far the term of a rescue is above all that were met: a lost node that led on for a while
/// unheard was in a lower one.
const TERM_LEAP: u64 = 1000;

/// What becomes of each group if the nodes `lost` never come back. `surveys`: of all that live, the first
/// that of this node. `force`: also of groups that could go on without.
///
/// # Errors
/// A sentence that says why nothing is done, and what to do.
pub fn plan(surveys: &[Survey], lost: &BTreeSet<NodeId>, force: bool) -> Result<Plan, String> {
    check(surveys, lost)?;
    let term = surveys.iter().map(|survey| survey.term).max().unwrap_or(0) + TERM_LEAP;
    let newest = by_newest_log(surveys, GroupId::CATALOG);
    let (keeper, _) = newest.first().copied().ok_or_else(|| nothing_of("the catalog"))?;
    let groups = (0..keeper.founders.len() as u32).map(GroupId);
    let mut fates = BTreeMap::new();
    for group in groups {
        fates.insert(group, fate(surveys, lost, group, force)?);
    }
    let first = surveys.iter().map(|survey| survey.node).min().unwrap_or(keeper.node);
    let catalog = fates.get(&GroupId::CATALOG).copied().unwrap_or(Fate::Lives);
    let beginner = match catalog {
        Fate::Rescued { by } | Fate::BegunAnew { by } => by,
        Fate::Lives => first,
    };
    for fate in fates.values_mut() {
        if let Fate::BegunAnew { by } = fate {
            *by = beginner;
        }
    }
    if fates.values().all(|fate| *fate == Fate::Lives) {
        return Err(format!(
            "nothing is to be rescued: every group has a majority without {}. Start the nodes; then take the lost \
             nodes out with `millrace cluster remove` or `replace`",
            list(lost)
        ));
    }
    let retired = lost.intersection(&keeper.nodes).copied().collect::<BTreeSet<_>>();
    if catalog == Fate::Lives && !retired.is_empty() {
        return Err(format!(
            "the catalog has a majority without the lost nodes, so the cluster can remove these nodes itself. It must \
             do so before groups are rescued: a lost node that came back would go on with its old groups. Start the \
             nodes, and run `millrace cluster remove` for {} (the command takes the node out, and then gives up on \
             groups that need a rescue). Then stop the nodes again, and repeat this command",
            list(&retired)
        ));
    }
    Ok(Plan { fates, term, retired })
}

fn check(surveys: &[Survey], lost: &BTreeSet<NodeId>) -> Result<(), String> {
    let Some(ours) = surveys.first() else { return Err(nothing_of("any node")) };
    let members: BTreeSet<NodeId> =
        surveys.iter().flat_map(|survey| &survey.nodes).copied().collect();
    let retired: BTreeSet<NodeId> =
        surveys.iter().flat_map(|survey| &survey.retired).copied().collect();
    if let Some(other) = surveys.iter().find(|survey| survey.cluster != ours.cluster) {
        return Err(format!(
            "the file of node {} is of cluster {:032x}, and this directory is of cluster {:032x}: give files of this \
             cluster's nodes only",
            other.node.0, other.cluster, ours.cluster
        ));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = surveys.iter().find(|survey| !seen.insert(survey.node)) {
        return Err(format!("node {} is given twice: give each node once", twice.node.0));
    }
    if let Some(living) = surveys.iter().find(|survey| lost.contains(&survey.node)) {
        return Err(format!(
            "node {} is not lost, because its data is here: in --lost, name only nodes that are gone for good",
            living.node.0
        ));
    }
    if let Some(gone) = surveys.iter().find(|survey| retired.contains(&survey.node)) {
        return Err(format!(
            "node {} was removed from the cluster, so its data is not needed: leave its file out",
            gone.node.0
        ));
    }
    if lost.is_empty() {
        return Err(format!(
            "--lost names no node: name the nodes that are gone for good; the members are {}",
            list(&members)
        ));
    }
    let known: BTreeSet<NodeId> = members.union(&retired).copied().collect();
    let strangers: BTreeSet<NodeId> = lost.difference(&known).copied().collect();
    if !strangers.is_empty() {
        return Err(format!(
            "{} is not a member: name the nodes that are gone for good; the members are {}",
            list(&strangers),
            list(&members)
        ));
    }
    let living: BTreeSet<NodeId> = members.difference(lost).copied().collect();
    let unheard: BTreeSet<NodeId> =
        living.difference(&retired).copied().filter(|node| !seen.contains(node)).collect();
    if !unheard.is_empty() {
        return Err(format!(
            "the logs of {} are needed, because they may be newer than this node's: stop each node that is missing \
             here, run the same command there with --json, and give its output here with --with FILE. If a node is \
             gone for good too, name it in --lost",
            list(&unheard)
        ));
    }
    Ok(())
}

fn fate(
    surveys: &[Survey],
    lost: &BTreeSet<NodeId>,
    group: GroupId,
    force: bool,
) -> Result<Fate, String> {
    let copies = by_newest_log(surveys, group);
    let Some((newest, copy)) = copies.first() else {
        let is_damaged = all_copies(surveys, group).next().is_some();
        return of_nothing(surveys, lost, group, is_damaged);
    };
    let wins = |who: &Survey, of: &GroupCopy, voters: &Voters, without| {
        wins(surveys, (who, of), voters, without)
    };
    let all_views = || {
        copies.iter().flat_map(|(who, of)| of.voters.iter().map(move |voters| (*who, *of, voters)))
    };
    let somebody_wins = |without| all_views().any(|(who, of, it)| wins(who, of, it, without));
    let rescued = Fate::Rescued { by: newest.node };
    if !somebody_wins(None) {
        return Ok(rescued);
    }
    let misses = copy.voters.iter().any(|voters| lost.iter().any(|node| voters.holds(*node)));
    if force && misses {
        return if somebody_wins(Some(newest.node)) {
            Err(format!(
                "two parts of the cluster could both go on with {}: one without node {}, and that node alone. Start \
                 the nodes, and take the lost nodes out with `millrace cluster remove`",
                name(group),
                newest.node.0
            ))
        } else {
            Ok(rescued)
        };
    }
    // Who has the newest log need not be a voter: then one of the voters wins.
    let is_won = |voters: &Voters| copies.iter().any(|(who, of)| wins(who, of, voters, None));
    let whole = copies.iter().find(|(_, copy)| !copy.is_incomplete);
    if whole.is_some_and(|(_, copy)| copy.voters.iter().all(is_won)) {
        return Ok(Fate::Lives);
    }
    Err(format!(
        "{} was changing its members: it has a majority by one list of members, and none by another. Start the \
         nodes and see whether the group gets a leader. If it gets none, stop the nodes, and repeat this command \
         with --force",
        name(group)
    ))
}

/// Whether the node `who` could be elected with the log `of` while it goes by `voters`: by nodes that live, that
/// have nothing newer, and that may vote. `without`: a node that votes for nobody else any more.
fn wins(
    surveys: &[Survey],
    (who, of): (&Survey, &GroupCopy),
    voters: &Voters,
    without: Option<NodeId>,
) -> bool {
    let votes = |node: NodeId| {
        let Some(survey) = surveys.iter().find(|survey| survey.node == node) else { return false };
        let mut copies = copies_of(survey, of.group);
        // A damaged log is set aside at the next start, and votes again only when a leader has filled it.
        Some(node) != without
            && copies.all(|copy| !copy.is_damaged && !copy.is_incomplete && copy.last <= of.last)
    };
    voters.holds(who.node) && votes(who.node) && voters.live_by(votes)
}

/// Nobody that lives has anything of it.
fn of_nothing(
    surveys: &[Survey],
    lost: &BTreeSet<NodeId>,
    group: GroupId,
    is_damaged: bool,
) -> Result<Fate, String> {
    if is_damaged {
        return Err(format!(
            "all that is left of {} is damaged: restore the data directory of that node from a backup, or name the \
             node in --lost, too",
            name(group)
        ));
    }
    let founders = surveys.iter().find_map(|survey| survey.founders.get(group.0 as usize));
    let voters = founders.into_iter().flatten().copied().collect();
    let founding = Voters { voters, outgoing: BTreeSet::new() };
    // It was never written to, or those that have it are lost.
    let by = surveys.iter().map(|survey| survey.node).min().unwrap_or(NodeId(0));
    Ok(if founding.live_by(|node| !lost.contains(&node)) {
        Fate::Lives
    } else {
        Fate::BegunAnew { by }
    })
}

/// What can be read of a group, the newest log first: of the highest term, and in it the longest.
fn by_newest_log(surveys: &[Survey], group: GroupId) -> Vec<(&Survey, &GroupCopy)> {
    let mut copies: Vec<_> =
        all_copies(surveys, group).filter(|(_, copy)| !copy.is_damaged).collect();
    copies.sort_by_key(|(survey, copy)| (Reverse(copy.last), survey.node));
    copies
}

fn all_copies(surveys: &[Survey], group: GroupId) -> impl Iterator<Item = (&Survey, &GroupCopy)> {
    let of = move |survey| copies_of(survey, group).map(move |copy| (survey, copy));
    surveys.iter().flat_map(of)
}

fn copies_of(survey: &Survey, group: GroupId) -> impl Iterator<Item = &GroupCopy> {
    survey.copies.iter().filter(move |copy| copy.group == group)
}

fn nothing_of(what: &str) -> String {
    format!("nothing is left of {what}: restore the data directory from a backup")
}

fn name(group: GroupId) -> String {
    if group == GroupId::CATALOG { "the catalog".to_owned() } else { format!("group {}", group.0) }
}

fn list(nodes: &BTreeSet<NodeId>) -> String {
    let numbers: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
    let word = if numbers.len() == 1 { "node" } else { "nodes" };
    format!("{word} {}", numbers.join(", "))
}

#[cfg(test)]
mod tests;
