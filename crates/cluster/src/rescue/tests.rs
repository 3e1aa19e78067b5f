//! What a rescue writes, on directories whose logs are made by hand, and what a start makes of it.

use bytes::Bytes;
use machine::{Catalog, NodeInfo};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry,
    EntryType, HardState,
};
use wal::sim::SimDisk;
use wal::{Checkpoint, CommitBatch, Identity, Item, LostState, Wal};

use super::*;
use crate::checkpoint::State;
use crate::raft_log::encode_hard_state;
use crate::recovery::{Genesis, Groups};
use crate::shard::Member;
use crate::{change, entry};

const GROUP: GroupId = GroupId(1);

fn identity(node: u64) -> Identity {
    Identity { cluster: 7, node, incarnation: node }
}

fn genesis(count: u64) -> Genesis {
    let info = |node| NodeInfo {
        node: NodeId(node),
        address: format!("10.0.0.{node}:7000"),
        incarnation: 0,
    };
    Genesis { nodes: (1..=count).map(info).collect(), groups_per_node: 1 }
}

fn nodes(numbers: &[u64]) -> BTreeSet<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

fn blank(index: u64, term: u64) -> Item {
    Item::Entry { index, term, data: Bytes::new() }
}

fn hard_state(term: u64, vote: u64, commit: u64) -> Item {
    let mut state = HardState::default();
    (state.term, state.vote, state.commit) = (term, vote, commit);
    Item::HardState(encode_hard_state(&state))
}

/// The directory of a node with these in its log, and an entry of the catalog's.
fn directory(node: u64, group: GroupId, items: Vec<Item>) -> SimDisk {
    let disk = SimDisk::new(node);
    let (mut wal, _) = Wal::open(disk.clone(), wal::Config::new(identity(node))).unwrap();
    let mut batch = CommitBatch::new();
    batch.add(0, blank(1, 1));
    batch.add(0, hard_state(1, 1, 1));
    items.into_iter().for_each(|item| batch.add(group.0, item));
    wal.commit(vec![batch]).unwrap();
    wal.close().unwrap();
    disk
}

fn look(disk: &SimDisk, node: u64, count: u64) -> Survey {
    let config = wal::Config::new(identity(node));
    let (reader, recovered) = Wal::look(disk.clone(), config).unwrap();
    survey(&identity(node), &genesis(count), &reader, &recovered).unwrap()
}

/// Carries the plan out on one node.
fn rescue(disk: &SimDisk, count: u64, survey_of: &Survey, plan: &Plan) {
    let identity = identity(survey_of.node.0);
    let (mut wal, recovered) = Wal::open(disk.clone(), wal::Config::new(identity)).unwrap();
    let reader = wal.reader();
    assert_eq!(&survey(&identity, &genesis(count), &reader, &recovered).unwrap(), survey_of);
    let batch = write(&identity, (survey_of, plan), &reader, &recovered, 77).unwrap();
    wal.commit(vec![batch]).unwrap();
    wal.close().unwrap();
}

/// Rescues node 1, the last of three, and gives what it has then.
fn rescue_the_last(disk: &SimDisk) -> Survey {
    let before = look(disk, 1, 3);
    let plan = plan(std::slice::from_ref(&before), &nodes(&[2, 3]), false).unwrap();
    rescue(disk, 3, &before, &plan);
    let after = look(disk, 1, 3);
    starts(disk, 1, 3);
    after
}

/// A start takes what is there.
fn starts(disk: &SimDisk, node: u64, count: u64) -> Catalog {
    let (wal, recovered) = Wal::open(disk.clone(), wal::Config::new(identity(node))).unwrap();
    let me = Member { node: NodeId(node), boot: 1, seed: 1, speaks: machine::Version::NEWEST };
    let groups = Groups::recover(me, &genesis(count), &wal.reader(), recovered).unwrap();
    groups.catalog().unwrap()
}

fn copy(survey: &Survey, group: GroupId) -> &GroupCopy {
    survey.copies.iter().find(|copy| copy.group == group).unwrap()
}

fn only_1() -> Vec<Voters> {
    vec![Voters { voters: nodes(&[1]), outgoing: BTreeSet::new() }]
}

#[test]
fn all_of_the_log_is_committed_and_nobody_else_votes() {
    let disk =
        directory(1, GROUP, vec![blank(1, 1), blank(2, 1), blank(3, 4), hard_state(6, 3, 1)]);
    let before = look(&disk, 1, 3);
    assert_eq!((copy(&before, GROUP).last, copy(&before, GROUP).committed), ((4, 3), 1));
    assert_eq!(before.term, 6, "it has voted in a term of which it has no entry");
    let after = rescue_the_last(&disk);
    let copy = copy(&after, GROUP);
    assert_eq!((copy.last.1, copy.committed, &copy.voters), (5, 5, &only_1()));
    assert!(copy.last.0 > 1000, "no lost node was in this term");
    assert_eq!((after.nodes, after.retired), (nodes(&[1]), nodes(&[2, 3])));
}

#[test]
fn looking_changes_no_byte() {
    let disk = directory(1, GROUP, vec![blank(1, 1)]);
    let all = |disk: &SimDisk| {
        let paths = disk.paths();
        paths.iter().map(|path| (path.clone(), disk.contents(path))).collect::<Vec<_>>()
    };
    let before = all(&disk);
    look(&disk, 1, 3);
    assert_eq!(all(&disk), before);
}

fn changing(
    index: u64,
    changes: &[(ConfChangeType, u64)],
    transition: ConfChangeTransition,
) -> Item {
    let single = |(kind, node): &(ConfChangeType, u64)| {
        let mut single = ConfChangeSingle { node_id: *node, ..ConfChangeSingle::default() };
        single.set_change_type(*kind);
        single
    };
    let mut change = ConfChangeV2::default();
    change.set_changes(changes.iter().map(single).collect::<Vec<_>>().into());
    change.set_transition(transition);
    let mut entry = Entry { data: change::write(&change), ..Entry::default() };
    entry.set_entry_type(EntryType::EntryConfChangeV2);
    Item::Entry { index, term: 1, data: entry::to_disk(&entry) }
}

#[test]
fn a_change_of_members_that_was_under_way_ends_with_it() {
    use ConfChangeTransition::{Auto, Explicit};
    use ConfChangeType::{AddLearnerNode, AddNode, RemoveNode};
    let items = vec![
        blank(1, 1),
        changing(2, &[(AddLearnerNode, 4)], Auto),
        changing(3, &[(AddNode, 4), (RemoveNode, 1)], Explicit),
        hard_state(1, 1, 2),
    ];
    let disk = directory(1, GROUP, items);
    let before = look(&disk, 1, 3);
    let joint = Voters { voters: nodes(&[2, 3, 4]), outgoing: nodes(&[1, 2, 3]) };
    let simple = Voters { voters: nodes(&[1, 2, 3]), outgoing: BTreeSet::new() };
    assert_eq!(copy(&before, GROUP).voters, [simple, joint]);
    assert_eq!(copy(&rescue_the_last(&disk), GROUP).voters, only_1());
}

#[test]
fn what_a_replica_has_forgotten_is_not_waited_for() {
    let lost_state = LostState { log: true, vote: true };
    let disk = directory(1, GROUP, vec![Item::Reset(lost_state), blank(1, 1), hard_state(1, 1, 0)]);
    assert!(copy(&look(&disk, 1, 3), GROUP).is_incomplete);
    assert!(!copy(&rescue_the_last(&disk), GROUP).is_incomplete);
}

#[test]
fn a_group_goes_on_behind_its_checkpoint() {
    let entries = (1..=5).map(|index| blank(index, 1));
    let disk = directory(1, GROUP, entries.chain([hard_state(1, 1, 4)]).collect());
    let (mut wal, _) = Wal::open(disk.clone(), wal::Config::new(identity(1))).unwrap();
    let members = ConfState { voters: vec![1, 2, 3], ..ConfState::default() };
    let state = State::encode(&members, &machine::QueueMachine::new().snapshot());
    let (group, segments) = (GROUP.0, Vec::new());
    wal.keeper().install(Checkpoint { group, index: 4, term: 1, state, segments }).unwrap();
    wal.close().unwrap();
    let after = rescue_the_last(&disk);
    assert_eq!((copy(&after, GROUP).last.1, &copy(&after, GROUP).voters), (7, &only_1()));
}

#[test]
fn of_logs_that_part_only_the_newest_goes_on_and_the_other_is_left_as_it_is() {
    // Node 2 led in term 2 and was heard by nobody; what node 1 has of term 3 was confirmed.
    let parted = |node, term, last| {
        let entries = (2..=last).map(|index| blank(index, if index > 3 { term } else { 1 }));
        directory(node, GroupId::CATALOG, entries.chain([hard_state(3, 0, 3)]).collect())
    };
    let disks = [parted(1, 3, 4), parted(2, 2, 9)];
    let [one, two] = [look(&disks[0], 1, 5), look(&disks[1], 2, 5)];
    let lost = nodes(&[3, 4, 5]);
    let ours = plan(&[one.clone(), two.clone()], &lost, false).unwrap();
    let theirs = plan(&[two, one.clone()], &lost, false).unwrap();
    assert_eq!(ours, theirs, "both decide alike");
    assert!(ours.fates[&GroupId::CATALOG].is_by(NodeId(1)) && !theirs.is_for(NodeId(2)));
    rescue(&disks[0], 5, &one, &ours);
    let after = look(&disks[0], 1, 5);
    assert_eq!(copy(&after, GroupId::CATALOG).voters, only_1());
    assert_eq!(after.nodes, nodes(&[1, 2]), "node 2 is a member still");
    starts(&disks[0], 1, 5);
}

#[test]
fn a_group_that_nobody_has_begins_anew_with_one_voter() {
    let disk = directory(1, GroupId(1), vec![blank(1, 1)]);
    let before = look(&disk, 1, 5);
    let lost = nodes(&[2, 3, 4, 5]);
    let plan = plan(std::slice::from_ref(&before), &lost, false).unwrap();
    let group = plan.fates.iter().find(|(_, fate)| matches!(fate, Fate::BegunAnew { .. }));
    let (&group, _) = group.unwrap();
    assert!(!before.founders[group.0 as usize].contains(&NodeId(1)));
    rescue(&disk, 5, &before, &plan);
    let after = look(&disk, 1, 5);
    assert_eq!(copy(&after, group).voters, only_1());
    starts(&disk, 1, 5);
}

#[test]
fn it_happens_as_a_whole_or_not_at_all() {
    for calls in 1..40 {
        let disk = directory(1, GROUP, vec![blank(1, 1), hard_state(1, 1, 1)]);
        let before = look(&disk, 1, 3);
        let plan = plan(std::slice::from_ref(&before), &nodes(&[2, 3]), false).unwrap();
        let (mut wal, recovered) = Wal::open(disk.clone(), wal::Config::new(identity(1))).unwrap();
        let reader = wal.reader();
        let batch = write(&identity(1), (&before, &plan), &reader, &recovered, 77).unwrap();
        disk.fail_at(calls, wal::sim::Fault::PowerOff);
        let is_written = wal.commit(vec![batch]).is_ok();
        drop((wal, reader));
        disk.heal();
        disk.power_cut(calls);
        let after = look(&disk, 1, 3);
        let is_done = after.nodes == nodes(&[1]);
        assert!(is_done || !is_written);
        assert_eq!(is_done, copy(&after, GROUP).voters == only_1());
        if is_written {
            return;
        }
    }
    panic!("it is never written");
}
