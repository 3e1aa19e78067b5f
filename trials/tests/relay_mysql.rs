//! `millrace relay` from a real MariaDB to a real broker: every committed row arrives, none that was rolled back, in the
//! order of its key, whoever is killed; and what an operator does with such an outbox.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes, and waits for them"
)]

#[path = "support/mariadb.rs"]
mod stage;
#[path = "support/relay.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use stage::{QUEUE, Stage};
use support::{done, millrace};
use trials::chaos::broker::START_MAX;
use trials::relay::process::Relay;

const WRITERS: u32 = 4;
const TRANSACTIONS: u32 = 60;
const KEYS: u32 = 5;

/// The transactions of one writer: their SQL, and the rows that they commit by key.
fn transactions(writer: u32) -> (Vec<String>, BTreeMap<String, Vec<String>>) {
    let (mut all, mut committed) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    let mut row = 0;
    for number in 0..TRANSACTIONS {
        let is_rolled_back = number % 7 == 3;
        let mut sql = String::from("BEGIN;\n");
        for _ in 0..=(number % 5) {
            let (id, key) = (format!("{writer}-{row}"), format!("k{writer}-{}", row % KEYS));
            sql += &format!(
                "INSERT INTO outbox_messages (id, type, content, tenant) \
                 VALUES ('{id}', '{QUEUE}', '{{\"key\": \"{key}\"}}', '{key}');\n"
            );
            if !is_rolled_back {
                committed.entry(key).or_default().push(id);
            }
            row += 1;
        }
        sql += if is_rolled_back { "ROLLBACK;\n" } else { "COMMIT;\n" };
        all.push(sql);
    }
    (all, committed)
}

#[test]
fn every_committed_row_arrives_in_the_order_of_its_key_whoever_is_killed() {
    for pipeline in ["wait", "repeat"] {
        let Some(mut stage) = Stage::start(pipeline) else { return };
        let order = ["--order", "key", "--key-column", "tenant", "--order-by", "seq"];
        let more = [&order[..], &["--order-pipeline", pipeline, "--workers", "3"]].concat();
        stage.told("install", &order, 0);
        let mut relay = stage.relay(&more);
        let mut committed = BTreeMap::new();
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            let (transactions, rows) = transactions(writer);
            committed.extend(rows);
            let mut client = stage.database.client("shop").spawn().unwrap();
            writers.push(std::thread::spawn(move || {
                let mut input = client.stdin.take().unwrap();
                for transaction in transactions {
                    input.write_all(transaction.as_bytes()).unwrap();
                    input.flush().unwrap();
                    support::pause();
                }
                drop(input);
                assert!(client.wait().unwrap().success());
            }));
        }
        let published = |stage: &Stage| -> usize {
            let sql = "SELECT COUNT(*) FROM outbox_messages WHERE processed_on_utc IS NOT NULL";
            stage.sql(sql).parse().unwrap()
        };
        for rows in [50, 150, 250] {
            stage.until("rows are published", |stage| published(stage) > rows);
            done(relay.kill9());
            relay = stage.relay(&more);
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done(stage.broker.kill());
        done(stage.broker.start());
        done(stage.broker.wait_ready(START_MAX));
        let due: usize = committed.values().map(Vec::len).sum();
        stage.until("all rows are published", |stage| published(stage) == due);
        drop(relay);

        let taken = stage.take(QUEUE);
        println!("{pipeline}: {due} rows, {} messages", taken.len());
        let mut first: BTreeSet<&str> = BTreeSet::new();
        let mut arrived: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (id, body) in taken.iter().filter(|(id, _)| first.insert(id)) {
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            arrived.entry(body["key"].as_str().unwrap().to_owned()).or_default().push(id.clone());
        }
        assert_eq!(arrived, committed);
    }
}

#[test]
fn rows_without_an_order_are_shared_by_workers_and_survive_a_killed_database() {
    let Some(mut stage) = Stage::start("none") else { return };
    stage.told("install", &["--preset", "debezium"], 0);
    stage.declare("outbox.event.order");
    let many: String = (0..500)
        .map(|row| format!("('{row}', 'order', 'a', 'paid', '{{\"n\": {row}}}')"))
        .collect::<Vec<_>>()
        .join(", ");
    let insert =
        format!("INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES {many}");
    stage.sql(&insert);
    let relay = stage.relay(&["--preset", "debezium", "--batch", "40"]);
    stage.until_sql("SELECT COUNT(*) FROM outbox", "0");
    stage.database.kill9().unwrap();
    stage.database.start_again().unwrap();
    stage.sql(&insert.replace("('", "('again-"));
    stage.until_sql("SELECT COUNT(*) FROM outbox", "0");
    drop(relay);
    let ids: BTreeSet<String> =
        stage.take("outbox.event.order").into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), 1000);
}

#[test]
fn an_operator_installs_examines_replays_and_purges() {
    let Some(stage) = Stage::start("admin") else { return };
    let told = stage.told("doctor", &[], 1);
    assert!(told.contains("there is no table outbox_messages"), "{told}");
    let printed = stage.told("install", &["--print"], 0);
    assert!(printed.contains("CREATE TABLE `outbox_messages`"), "{printed}");
    stage.told("install", &[], 0);
    assert!(stage.told("install", &[], 0).contains("Nothing was missing."));
    let told = stage.told("doctor", &[], 0);
    assert!(told.contains("an index finds rows that wait"), "{told}");

    // A queue that nobody has declared, and a row of which no message can be made.
    let (dead, fine) = ("x".repeat(300), QUEUE);
    stage.sql("ALTER TABLE outbox_messages MODIFY type varchar(400)");
    stage.sql(&format!(
        "INSERT INTO outbox_messages (id, type, content) VALUES ('1', '{fine}', '1'), ('2', 'missing', '2'), \
         ('3', '{dead}', '3')"
    ));
    let more = ["--max-attempts", "2", "--retry-min", "100ms", "--retry-max", "200ms"];
    let relay = stage.relay(&more);
    stage.until_sql(
        "SELECT GROUP_CONCAT(CAST(row_id AS CHAR) ORDER BY row_id) FROM millrace_relay_failures \
                     WHERE dead_at IS NOT NULL",
        "2,3",
    );
    let status = stage.told("status", &[], 0);
    assert!(status.contains("1 dead (unroutable, after 2 attempts)"), "{status}");
    assert!(status.contains("1 dead (broken"), "{status}");
    assert!(status.contains("worker in seat"), "{status}");
    let reason = stage.sql("SELECT error FROM outbox_messages WHERE id = '2'");
    assert!(reason.contains("NO_ROUTE"), "{reason}");
    let told = stage.told("doctor", &[], 1);
    assert!(told.contains("1 rows are dead (unroutable)"), "{told}");

    // Somebody declares the queue.
    stage.declare("missing");
    let told = stage.told("replay", &["--reason", "unroutable", "--yes"], 0);
    assert!(told.contains("1 rows replayed"), "{told}");
    stage.until("the dead row arrives", |stage| {
        stage.take("missing").iter().any(|(id, _)| id == "2")
    });
    stage.until_sql("SELECT COUNT(*) FROM outbox_messages WHERE processed_on_utc IS NULL", "0");
    let told = stage.told("replay", &["--processed", "--id", "1", "--yes"], 0);
    assert!(told.contains("1 rows replayed"), "{told}");
    stage.until("it comes again", |stage| {
        stage.take(QUEUE).iter().filter(|(id, _)| id == "1").count() > 0
    });
    stage.until_sql("SELECT COUNT(*) FROM outbox_messages WHERE processed_on_utc IS NULL", "0");
    drop(relay);

    // The dead row is marked, and is no published one.
    assert!(stage.told("purge", &["--older-than", "0s"], 0).contains("2 rows deleted"));
    assert!(stage.told("purge", &["--dead", "--older-than", "0s"], 0).contains("1 rows deleted"));
    assert_eq!(stage.sql("SELECT COUNT(*) FROM outbox_messages"), "0");
    assert_eq!(stage.sql("SELECT COUNT(*) FROM millrace_relay_failures"), "0");
}

#[test]
fn a_dead_row_that_left_the_table_comes_back_as_it_was() {
    let Some(stage) = Stage::start("kept") else { return };
    stage.sql(
        "CREATE TABLE box (id binary(16) PRIMARY KEY, topic varchar(100), body longblob, n bigint, at datetime(3))",
    );
    let options = [
        "--table",
        "box",
        "--payload-column",
        "body",
        "--type-column",
        "topic",
        "--routing-key",
        "{topic}",
        "--order-by",
        "none",
        "--processed-column",
        "none",
        "--error-column",
        "none",
        "--occurred-column",
        "at",
        "--max-attempts",
        "1",
        "--content-type",
        "application/octet-stream",
    ];
    stage.told("install", &options, 0);
    stage.sql(
        "INSERT INTO box VALUES (UNHEX('00112233445566778899AABBCCDDEEFF'), 'nowhere', X'00FF27', -5, \
         '2026-01-02 03:04:05.678'), (UNHEX('01112233445566778899AABBCCDDEEFF'), 'orders', X'01', NULL, NULL)",
    );
    let relay = stage.relay(&options);
    stage.until_sql("SELECT COUNT(*) FROM millrace_relay_failures WHERE dead_at IS NOT NULL", "1");
    stage.until_sql("SELECT COUNT(*) FROM box", "0");
    drop(relay);
    let told = stage.told("replay", &[&options[..], &["--all-dead", "--yes"]].concat(), 0);
    assert!(told.contains("1 rows replayed"), "{told}");
    assert_eq!(
        stage.sql("SELECT HEX(id), topic, HEX(body), n, at FROM box"),
        "00112233445566778899AABBCCDDEEFF\tnowhere\t00FF27\t-5\t2026-01-02 03:04:05.678"
    );
    stage.declare("nowhere");
    let relay = stage.relay(&options);
    stage.until_sql("SELECT COUNT(*) FROM box", "0");
    drop(relay);
    let ids: Vec<String> = stage.take("nowhere").into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["00112233445566778899aabbccddeeff"]);
}

#[test]
fn a_server_is_believed_by_its_authority_and_by_no_other() {
    let folder = support::dir().join(format!("mysql-certificates-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let issuer = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (authority, other) = (issuer(), issuer());
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &authority).unwrap();
    let files = [
        ("ca.pem", authority.pem()),
        ("other.pem", other.pem()),
        ("server.crt", certificate.pem()),
        ("server.key", key.serialize_pem()),
    ];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let file = |name: &str| folder.join(name).display().to_string();
    let options = [
        format!("--ssl-cert={}", file("server.crt")),
        format!("--ssl-key={}", file("server.key")),
        format!("--ssl-ca={}", file("ca.pem")),
    ];
    let Some(stage) = Stage::start_with("tls", &options) else { return };
    stage.told("install", &[], 0);
    stage.sql("INSERT INTO outbox_messages (id, type, content) VALUES ('1', 'orders', '1')");
    let url = |host: &str, root: &str| {
        format!("mysql://root@{host}:{}/shop?sslrootcert={}", stage.database.port(), file(root))
    };
    let words = |url: String| {
        let amqp = stage.amqp();
        ["relay", "run", "--database", &url, "--url", &amqp].map(str::to_owned).to_vec()
    };
    for (host, root) in [("localhost", "other.pem"), ("127.0.0.1", "ca.pem")] {
        let output = Command::new(millrace()).args(words(url(host, root))).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{host} {root}: {told}");
        assert!(told.contains("certificate"), "{host} {root}: {told}");
    }
    let log = stage.dir.join("tls.txt");
    let relay = done(Relay::start(millrace(), &words(url("localhost", "ca.pem")), &log));
    stage.until_sql("SELECT COUNT(*) FROM outbox_messages WHERE processed_on_utc IS NOT NULL", "1");
    drop(relay);
    std::fs::remove_dir_all(folder).unwrap();
}
