use super::*;

fn written(disk: &SimDisk, path: &str, bytes: &[u8]) -> SimFile {
    let file = disk.create(path).unwrap();
    file.write_at(0, &[IoSlice::new(bytes)]).unwrap();
    file
}

#[test]
fn what_was_synced_survives_every_power_cut() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        written(&disk, "a", &[7; 3000]).sync_data().unwrap();
        disk.sync_dir("").unwrap();
        disk.power_cut(seed);
        assert_eq!(disk.contents("a").unwrap(), [7; 3000]);
    }
}

#[test]
fn unsynced_sectors_survive_in_any_subset() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        let file = written(&disk, "a", &[0; 1024]);
        file.sync_data().unwrap();
        disk.sync_dir("").unwrap();
        file.write_at(0, &[IoSlice::new(&[1; 1024])]).unwrap();
        disk.power_cut(seed);
        let contents = disk.contents("a").unwrap();
        outcomes.insert((contents[0], contents[511], contents[512], contents[1023]));
    }
    let whole = [(0, 0, 0, 0), (0, 0, 1, 1), (1, 1, 0, 0), (1, 1, 1, 1)];
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), whole);
}

#[test]
fn a_name_whose_directory_was_not_synced_may_be_lost() {
    let survivors = (0..100).filter(|seed| {
        let disk = SimDisk::new(*seed);
        written(&disk, "a", b"data").sync_data().unwrap();
        disk.power_cut(*seed);
        disk.contents("a").is_some()
    });
    assert!((20..80).contains(&survivors.count()));
}

#[test]
fn a_sync_after_a_failed_sync_says_all_is_well_and_the_data_is_lost() {
    let disk = SimDisk::new(1);
    let file = written(&disk, "a", &[0; 512]);
    file.sync_data().unwrap();
    disk.sync_dir("").unwrap();
    file.write_at(0, &[IoSlice::new(&[1; 512])]).unwrap();
    disk.fail_at(1, Fault::Broken);
    file.sync_data().unwrap_err();
    file.sync_data().unwrap();
    assert_eq!(disk.contents("a").unwrap(), [1; 512]);
    disk.power_cut(1);
    assert_eq!(disk.contents("a").unwrap(), [0; 512]);
}

#[test]
fn a_full_disk_says_so_and_takes_what_fits() {
    let disk = SimDisk::new(1);
    disk.set_capacity(1000);
    let file = written(&disk, "a", &[0; 600]);
    let error = file.write_at(600, &[IoSlice::new(&[0; 600])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(disk.free_bytes().unwrap(), 400);
}

#[test]
fn handles_of_an_earlier_life_fail() {
    let disk = SimDisk::new(1);
    let file = written(&disk, "a", b"x");
    disk.kill();
    assert!(file.sync_data().is_err());
    assert_eq!(disk.contents("a").unwrap(), b"x");
}
