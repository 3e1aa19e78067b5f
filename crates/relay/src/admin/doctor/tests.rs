use super::*;
use crate::admin::finding::Grade;
use crate::mapping::{Mapping, Preset};

fn config() -> Config {
    let broker = "amqp://localhost".parse().expect("it is a URL");
    Config::new("postgres://h/d", broker, Mapping::preset(Preset::OutboxMessages))
}

fn grade(check: fn(&Config, &Facts, &mut Vec<Finding>), config: &Config, facts: &Facts) -> Grade {
    let mut findings = Vec::new();
    check(config, facts, &mut findings);
    Report { findings }.grade()
}

#[test]
fn an_old_snapshot_is_told_with_its_holder_and_how_to_end_it() {
    let mut facts = Facts::default();
    facts.server.autovacuum = true;
    assert_eq!(grade(vacuum::horizon, &config(), &facts), Grade::Ok);
    facts.holders.push(Holder {
        kind: "session".into(),
        name: "pid 4711".into(),
        who: "ann".into(),
        application: "psql".into(),
        state: "idle in transaction".into(),
        seconds: Some(59.0),
        transactions: 12_345,
        detail: "SELECT 1".into(),
        is_masked: false,
    });
    assert_eq!(grade(vacuum::horizon, &config(), &facts), Grade::Ok, "a minute is nothing");
    facts.holders[0].seconds = Some(61.0);
    assert_eq!(grade(vacuum::horizon, &config(), &facts), Grade::Warn);
    facts.holders[0].seconds = Some(3700.0);
    let mut findings = Vec::new();
    vacuum::horizon(&config(), &facts, &mut findings);
    assert_eq!(findings[0].grade, Grade::Fail);
    assert!(findings[0].what.contains("pid 4711 of ann as psql, for 62 min, idle in transaction"));
    assert!(
        findings[0].advice.as_ref().is_some_and(|it| it.contains("pg_terminate_backend(4711)"))
    );
    // Text from the database stays text in what a person may paste.
    facts.holders[0].kind = "prepared transaction".into();
    facts.holders[0].name = "x'; DROP TABLE y; --".into();
    findings.clear();
    vacuum::horizon(&config(), &facts, &mut findings);
    let advice = findings[0].advice.as_deref().unwrap_or_default();
    assert!(advice.starts_with("COMMIT PREPARED 'x''; DROP TABLE y; --'"), "{advice}");
}

#[test]
fn a_session_that_may_not_be_looked_at_is_no_proof_that_all_is_well() {
    let mut facts = Facts::default();
    facts.server.role = "drainer".into();
    let name = "pid 4711".into();
    facts.holders.push(Holder {
        kind: "session".into(),
        name,
        is_masked: true,
        ..Holder::default()
    });
    let mut findings = Vec::new();
    vacuum::horizon(&config(), &facts, &mut findings);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].check, findings[0].grade), ("unread", Grade::Warn));
    assert_eq!(findings[0].advice.as_deref(), Some("GRANT pg_monitor TO \"drainer\";"));
}

#[test]
fn only_the_timeout_that_workers_do_not_set_for_themselves_is_in_the_way() {
    let mut facts = Facts::default();
    facts.server.transaction_timeout_ms = 4000;
    assert_eq!(grade(server::timeouts, &config(), &facts), Grade::Fail);
    facts.server.transaction_timeout_ms = 60_000;
    assert_eq!(grade(server::timeouts, &config(), &facts), Grade::Ok);
}

#[test]
fn clocks_may_differ_by_what_the_question_took() {
    let mut facts = Facts { clock: Some((-5.0, 4.0)), ..Facts::default() };
    assert_eq!(grade(server::clock, &config(), &facts), Grade::Ok);
    facts.clock = Some((-5.0, 0.1));
    assert_eq!(grade(server::clock, &config(), &facts), Grade::Warn);
    facts.clock = Some((3600.0, 0.1));
    assert_eq!(grade(server::clock, &config(), &facts), Grade::Fail);
}

#[test]
fn rows_in_the_clear_between_machines_are_a_failure() {
    let mut facts = Facts::default();
    facts.server.is_remote = true;
    assert_eq!(grade(server::tls, &config(), &facts), Grade::Fail);
    facts.server.uses_tls = true;
    assert_eq!(grade(server::tls, &config(), &facts), Grade::Ok);
    let mut remote = config();
    remote.broker = "amqp://broker.example.com".parse().expect("it is a URL");
    assert_eq!(grade(server::tls, &remote, &facts), Grade::Warn);
}

#[test]
fn a_slot_is_worse_the_nearer_it_is_to_being_lost() {
    let mut facts = Facts::default();
    facts.server.slot_wal_keep_bytes = Some(1 << 34);
    let slot = |wal_status: &str, is_active, kept_bytes| Slot {
        name: "s".into(),
        wal_status: wal_status.into(),
        is_active,
        kept_bytes: Some(kept_bytes),
        ..Slot::default()
    };
    for (state, expected) in [
        (slot("reserved", true, 1 << 40), Grade::Ok),
        (slot("reserved", false, 1), Grade::Warn),
        (slot("extended", false, 2 << 30), Grade::Fail),
        (slot("unreserved", true, 1), Grade::Fail),
        (slot("lost", false, 0), Grade::Fail),
    ] {
        facts.slots = vec![state];
        assert_eq!(grade(replication::slots, &config(), &facts), expected, "{:?}", facts.slots);
    }
}

#[test]
fn rows_that_wait_for_their_next_attempt_are_no_forgotten_rows() {
    let mut facts = Facts {
        pending: Some(Pending { rows: 3, oldest_seconds: Some(9000.0) }),
        ..Facts::default()
    };
    assert_eq!(grade(rows::pending, &config(), &facts), Grade::Fail);
    facts.server.relays = 4;
    facts.failures = vec![Failure { count: 3, ..Failure::default() }];
    assert_eq!(grade(rows::pending, &config(), &facts), Grade::Ok);
}

#[test]
fn what_could_not_be_read_is_told() {
    let mut facts = Facts::default();
    facts.unread.push(("statistics".into(), "permission denied".into()));
    let report = judge(&config(), &facts);
    assert!(report.of("unread").any(|finding| finding.what.contains("permission denied")));
}
