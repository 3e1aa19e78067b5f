#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

/// A cluster, or none where PostgreSQL is missing, which is said.
fn cluster() -> Option<Postgres> {
    match Postgres::start(&Options::default()) {
        Ok(cluster) => Some(cluster),
        Err(Error::Missing(what)) => {
            println!("skipped: {what}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_was_committed_before_a_kill_is_there_after_it_and_nothing_of_it_still_runs() {
    let Some(mut cluster) = cluster() else { return };
    cluster.psql("CREATE TABLE kept (n int)").unwrap();
    cluster.psql("INSERT INTO kept VALUES (1)").unwrap();
    let backends = processes::children(cluster.pid().unwrap());
    assert!(!backends.is_empty(), "a cluster has processes of its own");
    cluster.kill9().unwrap();
    assert!(!backends.iter().any(processes::Process::is_alive));
    assert!(cluster.psql("SELECT 1").is_err(), "nobody answers");
    cluster.start_again().unwrap();
    assert_eq!(cluster.psql("SELECT n FROM kept").unwrap(), "1");
}

#[test]
fn a_cluster_is_durable_decodes_its_log_and_listens_on_the_loopback_address_alone() {
    let Some(cluster) = cluster() else { return };
    for (name, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("wal_level", "logical"),
        ("listen_addresses", "127.0.0.1"),
    ] {
        assert_eq!(cluster.psql(&format!("SHOW {name}")).unwrap(), value, "{name}");
    }
}

#[test]
fn a_setting_that_is_wrong_is_told_with_the_log() {
    let wrong = Options::default().set("shared_buffers", "as many as you like");
    match Postgres::start(&wrong) {
        Err(Error::Failed(why)) => assert!(why.contains("as many as you like"), "{why}"),
        Err(Error::Missing(what)) => println!("skipped: {what}"),
        Ok(_) => panic!("it started"),
    }
}

#[test]
fn a_stopped_cluster_goes_on_where_it_was_and_a_dropped_one_leaves_nothing() {
    let Some(mut cluster) = cluster() else { return };
    let (dir, pid) = (cluster.dir.clone(), cluster.pid().unwrap());
    cluster.psql("CREATE TABLE kept (n int)").unwrap();
    cluster.stop().unwrap();
    cluster.start_again().unwrap();
    assert_eq!(cluster.psql("SELECT count(*) FROM kept").unwrap(), "0");
    drop(cluster);
    assert!(!dir.exists());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}
