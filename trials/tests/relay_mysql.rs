//! `millrace relay` from a real MariaDB to a real broker: every committed row arrives, none that was rolled back, in the
//! order of its key, whoever is killed; and what an operator does with such an outbox.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes, and waits for them"
)]

#[path = "support/relay.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use lapin::options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::{done, millrace};
use tokio::runtime::Runtime;
use trials::chaos::broker::{Broker, Kind, START_MAX};
use trials::mariadb::MariaDb;
use trials::relay::process::Relay;
use trials::relay::stage::broker_in;

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(120);
const WRITERS: u32 = 4;
const TRANSACTIONS: u32 = 60;
const KEYS: u32 = 5;
const QUEUE: &str = "orders";

/// A database, a broker with a queue, and clients.
struct Stage {
    database: MariaDb,
    broker: Broker,
    runtime: Runtime,
    dir: PathBuf,
}

impl Stage {
    /// None where MariaDB is not installed, which is said.
    fn start(name: &str) -> Option<Self> {
        Self::start_with(name, &[])
    }

    fn start_with(name: &str, options: &[String]) -> Option<Self> {
        let Some(database) = MariaDb::start_with(options).unwrap() else {
            println!("skipped: there is no MariaDB: install it with `cargo xtask setup`");
            return None;
        };
        let dir = support::dir().join(format!("mysql-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mut broker = done(broker_in(Kind::Millrace, millrace(), &dir, name, &[]));
        done(broker.start());
        done(broker.wait_ready(START_MAX));
        let stage = Self { database, broker, runtime: Runtime::new().unwrap(), dir };
        stage.declare(QUEUE);
        Some(stage)
    }

    fn amqp(&self) -> String {
        format!("amqp://guest:guest@{}/%2f?heartbeat=5", self.broker.setup.address())
    }

    fn words(&self, command: &str, more: &[&str]) -> Vec<String> {
        let (database, url) = (self.database.url_of("shop"), self.amqp());
        let words = ["relay", command, "--database", &database, "--url", &url];
        words.into_iter().chain(more.iter().copied()).map(str::to_owned).collect()
    }

    fn relay(&self, more: &[&str]) -> Relay {
        let words = self.words("run", more);
        let mut relay = done(Relay::start(millrace(), &words, &self.dir.join("relay.txt")));
        done(relay.wait_open());
        relay
    }

    /// What a command of the relay says; `code`: how it has to end.
    fn told(&self, command: &str, more: &[&str], code: i32) -> String {
        let output = Command::new(millrace()).args(self.words(command, more)).output().unwrap();
        let told = [&output.stdout[..], &output.stderr[..]].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert_eq!(output.status.code(), Some(code), "{command} {more:?}: {told}");
        told
    }

    fn sql(&self, sql: &str) -> String {
        self.database.sql("shop", sql).unwrap()
    }

    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let log = std::fs::read_to_string(self.dir.join("relay.txt")).unwrap_or_default();
            assert!(begun.elapsed() < TIMEOUT, "{what}: never\n{log}");
            support::pause();
        }
    }

    fn until_sql(&self, sql: &str, wanted: &str) {
        self.until(sql, |stage| stage.sql(sql) == wanted);
    }

    fn declare(&self, queue: &str) {
        self.runtime.block_on(async {
            let connection =
                Connection::connect(&self.amqp(), ConnectionProperties::default()).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(queue.into(), options, FieldTable::default()).await.unwrap();
        });
    }

    /// All that is in the queue, in its order: message-id and body.
    fn take(&self, queue: &str) -> Vec<(String, String)> {
        self.runtime.block_on(async {
            let connection =
                Connection::connect(&self.amqp(), ConnectionProperties::default()).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            let mut taken = Vec::new();
            while let Some(message) =
                channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap()
            {
                let id = message.properties.message_id().as_ref().map(ToString::to_string);
                let body = String::from_utf8_lossy(&message.data).into_owned();
                taken.push((id.unwrap_or_default(), body));
                message.ack(BasicAckOptions::default()).await.unwrap();
            }
            taken
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

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
