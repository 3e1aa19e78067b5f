//! What followers ask of a log: conflicts, snapshots that are ahead, groups that were quarantined.
#![allow(clippy::unwrap_used, reason = "this is test code")]

use bytes::Bytes;
use wal::segments::SegmentMeta;
use wal::sim::{Fault, SimDisk};
use wal::{
    Checkpoint, CommitBatch, Config, Error, Identity, Item, Keeper, LostState, Recovered,
    RecoveredGroup, Wal,
};

const IDENTITY: Identity = Identity { cluster: 0xabcd, node: 3, incarnation: 1 };
const GROUP: u32 = 1;
const OTHER: u32 = 2;

fn config() -> Config {
    Config { file_bytes: 8 << 10, ballast_bytes: 0, ..Config::new(IDENTITY) }
}

fn open(disk: &SimDisk) -> (Wal<SimDisk>, Recovered) {
    Wal::open(disk.clone(), config()).unwrap()
}

fn data(index: u64, term: u64) -> Bytes {
    Bytes::from(format!("{index}@{term}-{}", "x".repeat(300)))
}

fn append(
    wal: &mut Wal<SimDisk>,
    term: u64,
    indexes: std::ops::RangeInclusive<u64>,
) -> Result<(), Error> {
    for index in indexes {
        let mut batch = CommitBatch::new();
        batch.add(GROUP, Item::Entry { index, term, data: data(index, term) });
        wal.commit(vec![batch])?;
    }
    Ok(())
}

/// Files are rolled and recycled by the life of another group.
fn live_on(wal: &mut Wal<SimDisk>, keeper: &mut Keeper<SimDisk>) {
    for round in 0..60 {
        let mut batch = CommitBatch::new();
        batch.add(OTHER, Item::HardState(Bytes::from(vec![round; 700])));
        wal.commit(vec![batch]).unwrap();
        while !keeper.preparer().prepare_next(1 << 20).unwrap() {}
        keeper.preparer().remove_spare().unwrap();
    }
}

fn install(keeper: &mut Keeper<SimDisk>, index: u64, term: u64, text: &str) -> Result<(), Error> {
    let segments = vec![segment(keeper, text)?];
    let state = Bytes::copy_from_slice(text.as_bytes());
    keeper.install(Checkpoint { group: GROUP, index, term, state, segments })
}

fn segment(keeper: &mut Keeper<SimDisk>, text: &str) -> Result<SegmentMeta, Error> {
    let mut writer = keeper.segment(GROUP)?;
    writer.add(7, 1, text.as_bytes())?;
    writer.finish()
}

/// Index and term of the checkpoint, and of the entries, whose data is looked at.
fn found(wal: &Wal<SimDisk>, group: &RecoveredGroup) -> ((u64, u64), Vec<(u64, u64)>) {
    let reader = wal.reader();
    for entry in &group.entries {
        assert_eq!(reader.read(entry.place).unwrap(), data(entry.index, entry.term));
    }
    let checkpoint = group.checkpoint.as_ref().map_or((0, 0), |found| (found.index, found.term));
    (checkpoint, group.entries.iter().map(|entry| (entry.index, entry.term)).collect())
}

fn run(indexes: std::ops::RangeInclusive<u64>, term: u64) -> Vec<(u64, u64)> {
    indexes.map(|index| (index, term)).collect()
}

fn joined(parts: &[Vec<(u64, u64)>]) -> Vec<(u64, u64)> {
    parts.concat()
}

/// Cuts the power at every change that `work` makes, and after it; `check` is told whether the work
/// was done, and what is there.
fn at_every_cut(
    prepare: impl Fn(&mut Wal<SimDisk>, &mut Keeper<SimDisk>),
    work: impl Fn(&mut Wal<SimDisk>, &mut Keeper<SimDisk>) -> Result<(), Error>,
    check: impl Fn(bool, &mut Wal<SimDisk>, &Recovered),
) {
    for cut in 1.. {
        let disk = SimDisk::new(cut);
        let (mut wal, _) = open(&disk);
        let mut keeper = wal.keeper();
        prepare(&mut wal, &mut keeper);
        disk.fail_at(cut, Fault::PowerOff);
        let done = work(&mut wal, &mut keeper);
        let was_cut = disk.has_failed();
        assert!(done.is_ok() || was_cut, "{done:?}");
        drop((wal, keeper));
        disk.power_cut(cut * 31);
        let (mut wal, recovered) = open(&disk);
        assert_eq!(recovered.groups.get(&GROUP).and_then(|group| group.damage.clone()), None);
        check(done.is_ok(), &mut wal, &recovered);
        if !was_cut {
            assert!(cut > 3, "the work makes more changes than {cut}");
            return;
        }
    }
}

#[test]
fn a_conflict_leaves_the_newer_suffix_and_nothing_of_the_older() {
    at_every_cut(
        |wal, _| append(wal, 1, 1..=40).unwrap(),
        |wal, _| append(wal, 2, 25..=30),
        |done, wal, recovered| {
            let (_, entries) = found(wal, &recovered.groups[&GROUP]);
            let overwritten = |last| joined(&[run(1..=24, 1), run(25..=last, 2)]);
            let may_be = [run(1..=40, 1)].into_iter().chain((25..=30).map(overwritten));
            assert!(may_be.clone().any(|possible| possible == entries), "{entries:?}");
            assert!(!done || entries == overwritten(30), "{entries:?}");
        },
    );
}

#[test]
fn files_that_held_only_what_was_overwritten_are_free() {
    let disk = SimDisk::new(1);
    let (mut wal, _) = open(&disk);
    let mut keeper = wal.keeper();
    append(&mut wal, 1, 1..=60).unwrap();
    let last = keeper.files().last().unwrap().number;
    append(&mut wal, 2, 3..=5).unwrap();
    let held = |keeper: &Keeper<SimDisk>| {
        let files = keeper.files();
        files.into_iter().flat_map(|file| file.holds).collect::<Vec<_>>()
    };
    let indexes = |held: Vec<(u32, u64, u64)>| -> Vec<u64> {
        held.into_iter().flat_map(|(_, first, last)| first..=last).collect()
    };
    assert_eq!(indexes(held(&keeper)), [1, 2, 3, 4, 5]);
    install(&mut keeper, 4, 2, "four").unwrap();
    wal.commit(Vec::new()).unwrap();
    live_on(&mut wal, &mut keeper);
    assert!(keeper.oldest_needed() >= last, "only the newest entry needs its file");
    wal.close().unwrap();
    drop(keeper);
    disk.kill();
    let (mut wal, recovered) = open(&disk);
    assert_eq!(found(&wal, &recovered.groups[&GROUP]), ((4, 2), run(5..=5, 2)));
    assert_eq!(indexes(held(&wal.keeper())), [5]);
}

#[test]
fn a_snapshot_ahead_of_the_log_is_there_as_a_whole_or_not_at_all() {
    at_every_cut(
        |wal, _| append(wal, 1, 1..=20).unwrap(),
        |wal, keeper| {
            install(keeper, 100, 4, "snapshot")?;
            append(wal, 4, 101..=103)
        },
        |done, wal, recovered| {
            let found = found(wal, &recovered.groups[&GROUP]);
            let may_be = [
                ((0, 0), run(1..=20, 1)),
                ((100, 4), Vec::new()),
                ((100, 4), run(101..=101, 4)),
                ((100, 4), run(101..=102, 4)),
                ((100, 4), run(101..=103, 4)),
            ];
            assert!(may_be.contains(&found), "{found:?}");
            assert!(!done || found == may_be[4], "{found:?}");
            // It goes on from there.
            let (last, term) = found.1.last().copied().unwrap_or(found.0);
            append(wal, term, last + 1..=last + 1).unwrap();
        },
    );
}

#[test]
fn entries_above_a_snapshot_that_are_not_its_own_do_not_come_back() {
    for is_recycled in [false, true] {
        at_every_cut(
            |wal, keeper| {
                append(wal, 1, 1..=30).unwrap();
                install(keeper, 5, 1, "own").unwrap();
                if is_recycled {
                    live_on(wal, keeper);
                }
            },
            |wal, keeper| {
                install(keeper, 20, 3, "snapshot")?;
                append(wal, 3, 21..=22)
            },
            |done, wal, recovered| {
                let found = found(wal, &recovered.groups[&GROUP]);
                let may_be = [
                    ((5, 1), run(6..=30, 1)),
                    ((20, 3), Vec::new()),
                    ((20, 3), run(21..=21, 3)),
                    ((20, 3), run(21..=22, 3)),
                ];
                assert!(may_be.contains(&found), "{found:?}");
                assert!(!done || found == may_be[3], "{found:?}");
                let mut keeper = wal.keeper();
                live_on(wal, &mut keeper);
                let holds = keeper.files().into_iter().flat_map(|file| file.holds);
                let last = holds.filter(|held| held.0 == GROUP).map(|held| held.2).max();
                assert_eq!(last, found.1.last().map(|entry| entry.0));
            },
        );
    }
}

#[test]
fn entries_above_a_snapshot_that_are_its_own_stay() {
    at_every_cut(
        |wal, _| {
            append(wal, 1, 1..=10).unwrap();
            append(wal, 3, 11..=30).unwrap();
        },
        |wal, keeper| {
            install(keeper, 20, 3, "snapshot")?;
            append(wal, 3, 31..=31)
        },
        |done, wal, recovered| {
            let (checkpoint, entries) = found(wal, &recovered.groups[&GROUP]);
            let expected: Vec<_> = match checkpoint {
                (0, 0) => joined(&[run(1..=10, 1), run(11..=30, 3)]),
                _ => run(21..=30, 3),
            };
            assert!(entries.starts_with(&expected), "{checkpoint:?} {entries:?}");
            assert!(!done || (checkpoint, entries) == ((20, 3), run(21..=31, 3)));
        },
    );
}

#[test]
fn what_was_on_its_way_when_a_snapshot_came_changes_nothing() {
    let disk = SimDisk::new(1);
    let (mut wal, _) = open(&disk);
    let mut keeper = wal.keeper();
    append(&mut wal, 1, 1..=20).unwrap();
    install(&mut keeper, 100, 4, "snapshot").unwrap();
    append(&mut wal, 1, 21..=22).unwrap();
    append(&mut wal, 4, 101..=102).unwrap();
    append(&mut wal, 1, 23..=23).unwrap();
    append(&mut wal, 4, 103..=103).unwrap();
    live_on(&mut wal, &mut keeper);
    drop((wal, keeper));
    disk.power_cut(7);
    let (wal, recovered) = open(&disk);
    assert_eq!(found(&wal, &recovered.groups[&GROUP]), ((100, 4), run(101..=103, 4)));
}

#[test]
fn a_hard_state_lasts_although_its_group_has_no_entries() {
    let disk = SimDisk::new(1);
    let (mut wal, _) = open(&disk);
    let mut keeper = wal.keeper();
    let mut batch = CommitBatch::new();
    batch.add(GROUP, Item::HardState(Bytes::from_static(b"voted for 2 in term 9")));
    wal.commit(vec![batch]).unwrap();
    live_on(&mut wal, &mut keeper);
    assert!(keeper.files()[0].number > 2, "the file it was written to is recycled");
    drop((wal, keeper));
    disk.power_cut(3);
    let (_, recovered) = open(&disk);
    let group = &recovered.groups[&GROUP];
    assert_eq!(group.hard_state.as_deref(), Some(&b"voted for 2 in term 9"[..]));
    assert_eq!((group.entries.len(), &group.damage), (0, &None));
}

/// A group whose entry 15 is damaged, beside one that is well.
fn damaged() -> SimDisk {
    let disk = SimDisk::new(1);
    let (mut wal, _) = open(&disk);
    let mut keeper = wal.keeper();
    let mut batch = CommitBatch::new();
    batch.add(GROUP, Item::HardState(Bytes::from_static(b"term 1")));
    batch.add(OTHER, Item::Entry { index: 1, term: 1, data: Bytes::from_static(b"well") });
    wal.commit(vec![batch]).unwrap();
    append(&mut wal, 1, 1..=10).unwrap();
    install(&mut keeper, 8, 1, "own").unwrap();
    append(&mut wal, 1, 11..=20).unwrap();
    wal.close().unwrap();
    drop(keeper);
    disk.kill();
    let text = data(15, 1);
    let log_files = disk.paths().into_iter().filter(|path| path.ends_with(".wal"));
    for path in log_files {
        let bytes = disk.contents(&path).unwrap();
        if let Some(at) = bytes.windows(text.len()).position(|window| window == text) {
            disk.flip_bit(&path, at as u64 * 8);
        }
    }
    disk
}

#[test]
fn a_damaged_group_is_set_quarantined_and_the_others_are_as_they_were() {
    let disk = damaged();
    let (mut wal, mut recovered) = open(&disk);
    assert!(recovered.groups[&GROUP].damage.is_some());
    assert_eq!(recovered.groups[&OTHER].damage, None);
    let mut keeper = wal.keeper();
    wal.quarantine_damaged(&mut keeper, &mut recovered, 0..=2).unwrap();
    let empty = recovered.groups[&GROUP].clone();
    assert_eq!(empty.lost_state, LostState { log: true, vote: false });
    assert_eq!(empty.hard_state.as_deref(), Some(&b"term 1"[..]));
    assert!(empty.entries.is_empty() && empty.checkpoint.is_none() && empty.damage.is_none());
    let paths = disk.paths();
    for kept in
        ["groups/1/damaged-1-checkpoint", "groups/1/damaged-1-seg-1", "groups/1/damaged-1-why"]
    {
        assert!(paths.iter().any(|path| path == kept), "{paths:?}");
    }
    assert!(paths.iter().any(|path| path.starts_with("wal/damaged-")), "{paths:?}");
    let report = wal::inspect(&disk, true).unwrap();
    let ours = report.groups.iter().find(|group| group.group == GROUP).unwrap();
    assert_eq!((ours.lost_state.log, ours.quarantined, &ours.damage), (true, 3, &None));
    assert!(report.unknown.is_empty(), "{:?}", report.unknown);
    live_on(&mut wal, &mut keeper);
    drop((wal, keeper));
    disk.power_cut(1);
    // The next start finds the same, until it is rebuilt and has rejoined.
    let (mut wal, recovered) = open(&disk);
    assert_eq!(recovered.groups[&GROUP], empty);
    let mut keeper = wal.keeper();
    install(&mut keeper, 12, 2, "snapshot").unwrap();
    append(&mut wal, 2, 13..=14).unwrap();
    drop((wal, keeper));
    disk.power_cut(2);
    let (mut wal, recovered) = open(&disk);
    let group = &recovered.groups[&GROUP];
    assert_eq!(found(&wal, group), ((12, 2), run(13..=14, 2)));
    assert!(group.lost_state.log && group.damage.is_none());
    assert_eq!(group.checkpoint.as_ref().unwrap().segments[0].number, 2, "no number comes twice");
    let mut batch = CommitBatch::new();
    batch.add(GROUP, Item::Rejoined);
    wal.commit(vec![batch]).unwrap();
    drop(wal);
    disk.power_cut(3);
    let (_, recovered) = open(&disk);
    assert_eq!(recovered.groups[&GROUP].lost_state, LostState::default());
    assert!(disk.paths().iter().any(|path| path == "groups/1/damaged-1-checkpoint"));
}

#[test]
fn setting_quarantined_on_a_full_disk_does_not_leave_more_each_time_that_it_is_tried() {
    let disk = damaged();
    let used = |disk: &SimDisk| -> u64 {
        disk.paths().iter().map(|path| disk.contents(path).unwrap().len() as u64).sum()
    };
    let mut refused = 0;
    for room in 0.. {
        // First nothing finds room, then more and more.
        disk.set_capacity(used(&disk) + room * 200);
        let (mut wal, mut recovered) = open(&disk);
        let mut keeper = wal.keeper();
        let done = wal.quarantine_damaged(&mut keeper, &mut recovered, 0..=2);
        let Err(error) = done else { break };
        assert!(error.is_full(), "{error}");
        refused += 1;
    }
    assert!(refused > 5, "it was refused {refused} times");
    let count = disk.paths().iter().filter(|path| path.ends_with("-why")).count();
    assert_eq!(count, 1, "{:?}", disk.paths());
}

#[test]
fn setting_quarantined_may_be_interrupted_anywhere() {
    for cut in 1.. {
        let disk = damaged();
        let (mut wal, mut recovered) = open(&disk);
        let mut keeper = wal.keeper();
        disk.fail_at(cut, Fault::PowerOff);
        let done = wal.quarantine_damaged(&mut keeper, &mut recovered, 0..=2);
        let was_cut = disk.has_failed();
        drop((wal, keeper));
        disk.power_cut(cut * 17);
        let (mut wal, mut recovered) = open(&disk);
        let group = &recovered.groups[&GROUP];
        assert!(group.damage.is_some() || group.entries.is_empty(), "{group:?}");
        assert!(group.damage.is_some() || group.lost_state.log, "{group:?}");
        assert!(done.is_err() || group.damage.is_none(), "{group:?}");
        let mut keeper = wal.keeper();
        wal.quarantine_damaged(&mut keeper, &mut recovered, 0..=2).unwrap();
        install(&mut keeper, 9, 2, "snapshot").unwrap();
        append(&mut wal, 2, 10..=10).unwrap();
        live_on(&mut wal, &mut keeper);
        drop((wal, keeper));
        disk.power_cut(cut);
        let (wal, recovered) = open(&disk);
        assert_eq!(found(&wal, &recovered.groups[&GROUP]), ((9, 2), run(10..=10, 2)));
        assert_eq!(recovered.groups[&OTHER].entries.len(), 1);
        if !was_cut {
            assert!(cut > 10, "it makes more changes than {cut}");
            return;
        }
    }
}

#[test]
fn damage_that_is_found_in_use_is_found_again_at_the_next_start() {
    for is_harmed in [true, false] {
        let disk = SimDisk::new(1);
        let (mut wal, _) = open(&disk);
        let mut keeper = wal.keeper();
        append(&mut wal, 1, 1..=3).unwrap();
        install(&mut keeper, 3, 1, "a message in a segment").unwrap();
        wal.commit(Vec::new()).unwrap();
        let (path, reader) = ("groups/1/seg-1", wal.reader());
        let meta = keeper.checkpoint(GROUP).unwrap().segments[0].clone();
        if is_harmed {
            let bytes = disk.contents(path).unwrap();
            let at = bytes.windows(7).position(|window| window == b"message").unwrap();
            disk.flip_bit(path, at as u64 * 8);
            let read = keeper.open_segment(GROUP, &meta).unwrap().read(7, 0, 100);
            reader.suspect(&read.unwrap_err()).unwrap();
        } else {
            let (path, what) = (path.to_owned(), "the disk was mistaken".to_owned());
            reader.suspect(&Error::Damaged { path, offset: 0, what }).unwrap();
        }
        drop((wal, keeper, reader));
        disk.power_cut(1);
        let (mut wal, mut recovered) = open(&disk);
        assert_eq!(recovered.groups[&GROUP].damage.is_some(), is_harmed);
        let is_suspect = |disk: &SimDisk| disk.paths().contains(&"groups/1/suspect".to_owned());
        assert_eq!(is_suspect(&disk), is_harmed);
        if is_harmed {
            let mut keeper = wal.keeper();
            wal.quarantine_damaged(&mut keeper, &mut recovered, 0..=2).unwrap();
            assert!(!is_suspect(&disk));
            drop((wal, keeper));
            disk.power_cut(2);
            assert_eq!(open(&disk).1.groups[&GROUP].damage, None);
        }
    }
}

#[test]
fn a_lost_hard_state_is_told_apart_from_a_lost_entry() {
    let disk = SimDisk::new(1);
    let (mut wal, _) = open(&disk);
    let mut batch = CommitBatch::new();
    batch.add(GROUP, Item::HardState(Bytes::from_static(b"a very particular vote")));
    wal.commit(vec![batch]).unwrap();
    wal.close().unwrap();
    disk.kill();
    let path = "wal/00000001.wal";
    let bytes = disk.contents(path).unwrap();
    let at = bytes.windows(10).position(|window| window == b"particular").unwrap();
    disk.flip_bit(path, at as u64 * 8);
    let (mut wal, mut recovered) = open(&disk);
    assert_eq!(recovered.groups[&GROUP].lost_state, LostState { log: true, vote: true });
    let mut keeper = wal.keeper();
    wal.quarantine_damaged(&mut keeper, &mut recovered, 0..=2).unwrap();
    live_on(&mut wal, &mut keeper);
    drop((wal, keeper));
    disk.power_cut(1);
    let (_, recovered) = open(&disk);
    let group = &recovered.groups[&GROUP];
    assert_eq!((group.lost_state, &group.damage), (LostState { log: true, vote: true }, &None));
}

#[test]
fn groups_of_which_nothing_is_left_are_set_quarantined_too() {
    let disk = SimDisk::new(1);
    let (mut wal, _) = open(&disk);
    append(&mut wal, 1, 1..=3).unwrap();
    wal.close().unwrap();
    disk.kill();
    disk.damage("wal/00000001.wal", 4096, &[0; 1024]);
    let (mut wal, mut recovered) = open(&disk);
    assert!(!recovered.losses.is_empty());
    let mut keeper = wal.keeper();
    wal.quarantine_damaged(&mut keeper, &mut recovered, 0..=5).unwrap();
    drop((wal, keeper));
    disk.power_cut(1);
    let (_, recovered) = open(&disk);
    for group in 0..=5 {
        let found = &recovered.groups[&group];
        assert_eq!((found.lost_state, &found.damage), (LostState { log: true, vote: true }, &None));
    }
}

#[test]
fn a_log_without_room_waits_and_goes_on() {
    let disk = SimDisk::new(1);
    let (mut wal, _) = open(&disk);
    let used = |disk: &SimDisk| -> u64 {
        disk.paths().iter().map(|path| disk.contents(path).unwrap().len() as u64).sum()
    };
    disk.set_capacity(used(&disk));
    let mut index = 0;
    let full = loop {
        let mut batch = CommitBatch::new();
        batch.add(GROUP, Item::Entry { index: index + 1, term: 1, data: data(index + 1, 1) });
        let batches = vec![batch];
        match wal.make_room(&batches) {
            Ok(_) => drop(wal.commit(batches).unwrap()),
            Err(error) => break (error, batches),
        }
        index += 1;
    };
    assert!(full.0.is_full() && index > 5, "{} after {index}", full.0);
    assert_eq!(wal.failure(), None);
    assert!(wal.make_room(&full.1).is_err_and(|error| error.is_full()));
    disk.set_capacity(u64::MAX);
    wal.make_room(&full.1).unwrap();
    wal.commit(full.1).unwrap();
    drop(wal);
    disk.power_cut(1);
    let (wal, recovered) = open(&disk);
    assert_eq!(found(&wal, &recovered.groups[&GROUP]).1, run(1..=index + 1, 1));
}

#[test]
fn what_waits_for_more_than_one_file_goes_on_file_by_file_on_a_full_disk() {
    let disk = SimDisk::new(1);
    let (mut wal, _) = open(&disk);
    let batch = |index: u64| {
        let mut batch = CommitBatch::new();
        batch.add(GROUP, Item::Entry { index, term: 1, data: data(index, 1) });
        batch
    };
    let mut waiting: Vec<CommitBatch> = (1..=200).map(batch).collect();
    let used = disk.paths().iter().map(|path| disk.contents(path).unwrap().len() as u64).sum();
    disk.set_capacity(used);
    let mut refused = 0;
    while !waiting.is_empty() {
        match wal.make_room(&waiting) {
            Ok(count) => {
                let later = waiting.split_off(count);
                wal.commit(waiting).unwrap();
                waiting = later;
            }
            Err(error) => {
                assert!(error.is_full(), "{error}");
                refused += 1;
                // Room for one file and not for the next.
                let used: u64 =
                    disk.paths().iter().map(|path| disk.contents(path).unwrap().len() as u64).sum();
                disk.set_capacity(used + wal::limits::FILE_BYTES_MIN);
            }
        }
        assert_eq!(wal.failure(), None);
    }
    assert!(refused > 1, "it was refused {refused} times");
    drop(wal);
    disk.power_cut(1);
    let (wal, recovered) = open(&disk);
    assert_eq!(found(&wal, &recovered.groups[&GROUP]).1, run(1..=200, 1));
}

#[test]
fn a_small_file_that_was_made_in_a_hurry_does_not_keep_others_from_being_recycled() {
    const MIB: u64 = 1 << 20;
    let disk = SimDisk::new(1);
    let config = Config { file_bytes: 5 * MIB, ballast_bytes: 0, ..Config::new(IDENTITY) };
    let (mut wal, _) = Wal::open(disk.clone(), config).unwrap();
    let mut keeper = wal.keeper();
    let mut index = 0;
    let mut fill_a_file = |wal: &mut Wal<SimDisk>, bytes: u64| {
        for _ in 0..bytes / MIB {
            index += 1;
            let mut batch = CommitBatch::new();
            let data = Bytes::from(vec![1; MIB as usize - 8192]);
            batch.add(GROUP, Item::Entry { index, term: 1, data });
            wal.commit(vec![batch]).unwrap();
        }
        index
    };
    // Files of 4, 5, 4 and 5 MiB: the first and the third are those that are made in a hurry.
    fill_a_file(&mut wal, 4 * MIB);
    while !keeper.preparer().prepare_next(MIB).unwrap() {}
    fill_a_file(&mut wal, 5 * MIB);
    fill_a_file(&mut wal, 4 * MIB);
    while !keeper.preparer().prepare_next(MIB).unwrap() {}
    let last = fill_a_file(&mut wal, MIB);
    let sizes = |keeper: &Keeper<SimDisk>| {
        keeper.files().iter().map(|file| file.bytes / MIB).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&keeper), [4, 5, 4, 5]);
    install(&mut keeper, last, 1, "all").unwrap();
    // The log says so, too.
    fill_a_file(&mut wal, MIB);
    let steps = std::iter::from_fn(|| Some(keeper.preparer().prepare_next(MIB).unwrap()));
    assert_eq!(steps.take_while(|is_ready| !is_ready).count(), 0, "nothing is filled with zeros");
    assert_eq!(sizes(&keeper), [4, 5], "the second file is the next one now");
}
