//! `millrace relay run --source wal` from a real MariaDB: every row of the binlog that was committed arrives, none that was
//! undone, in the order of its key, whoever is killed; and what an operator does with such a relay.
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

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use stage::{QUEUE, Stage};
use support::done;
use trials::chaos::broker::START_MAX;
use trials::mariadb::MariaDb;

const WRITERS: u32 = 3;
const TRANSACTIONS: u32 = 60;
const KEYS: u32 = 5;
const LOG: [&str; 2] = ["--source", "wal"];

fn options(server: u32) -> Vec<String> {
    let options = [
        "log-bin=shop-bin",
        "binlog-format=ROW",
        "binlog-row-metadata=FULL",
        "log-slave-updates=ON",
    ];
    let mut options = options.map(|option| format!("--{option}")).to_vec();
    options.push(format!("--server-id={server}"));
    options
}

fn with<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, more].concat()
}

fn insert(id: &str, key: &str, body: &str) -> String {
    format!(
        "INSERT INTO outbox_messages (id, type, content, tenant) VALUES ('{id}', '{QUEUE}', \
         '{{\"key\": \"{key}\", \"body\": \"{body}\"}}', '{key}');\n"
    )
}

/// The transactions of one writer: their SQL, and the rows that they commit by key. The application deletes each row in the
/// transaction that inserts it.
fn transactions(writer: u32) -> (Vec<String>, BTreeMap<String, Vec<String>>) {
    let (mut all, mut committed) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    let mut row = 0;
    for number in 0..TRANSACTIONS {
        let is_rolled_back = number % 7 == 3;
        let mut sql = String::from("BEGIN;\n");
        for _ in 0..=(number % 5) {
            let (id, key) = (format!("{writer}-{row}"), format!("k{writer}-{}", row % KEYS));
            let body = if row == 20 { "large ".repeat(400_000) } else { "small".into() };
            sql += &insert(&id, &key, &body);
            sql += &format!("DELETE FROM outbox_messages WHERE id = '{id}';\n");
            if !is_rolled_back {
                committed.entry(key).or_default().push(id);
            }
            row += 1;
        }
        // Undone within a transaction that is committed.
        sql += "SAVEPOINT s;\nCREATE TEMPORARY TABLE IF NOT EXISTS scratch (n int);\n";
        sql += &insert(&format!("undone-{writer}-{number}"), "nobody", "undone");
        sql += "ROLLBACK TO s;\n";
        sql += if is_rolled_back { "ROLLBACK;\n" } else { "COMMIT;\n" };
        all.push(sql);
    }
    (all, committed)
}

/// What has arrived so far, from look to look.
#[derive(Default)]
struct Arrived(RefCell<Vec<(String, String)>>);

impl Arrived {
    fn has(&self, stage: &Stage, count: usize) -> bool {
        self.0.borrow_mut().extend(stage.take(QUEUE));
        self.ids().len() >= count
    }

    fn ids(&self) -> BTreeSet<String> {
        self.0.borrow().iter().map(|(id, _)| id.clone()).collect()
    }
}

#[test]
fn every_committed_row_of_the_binlog_arrives_in_the_order_of_its_key_whoever_is_killed() {
    let Some(mut stage) = Stage::start_with("binlog", &options(1)) else { return };
    let order =
        ["--order", "key", "--key-column", "tenant", "--order-by", "seq", "--source", "wal"];
    stage.told("install", &order, 0);
    let mut relay = stage.relay(&order);
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
    let arrived = Arrived::default();
    for (count, column) in [(50, "a"), (150, "b"), (250, "c")] {
        stage.until("rows arrive", |stage| arrived.has(stage, count));
        done(relay.kill9());
        // Another file, and another shape of the table, while nobody reads.
        stage.sql("FLUSH BINARY LOGS");
        stage.sql(&format!("ALTER TABLE outbox_messages ADD COLUMN {column} int FIRST"));
        relay = stage.relay(&order);
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    done(stage.broker.kill());
    done(stage.broker.start());
    done(stage.broker.wait_ready(START_MAX));
    stage.database.kill9().unwrap();
    stage.database.start_again().unwrap();
    stage.sql(&insert("last", "last", "after the crash"));
    committed.insert("last".into(), vec!["last".into()]);
    let due: usize = committed.values().map(Vec::len).sum();
    stage.until("all rows arrive", |stage| arrived.has(stage, due));
    drop(relay);

    let taken = arrived.0.into_inner();
    println!("{due} rows, {} messages", taken.len());
    let mut first: BTreeSet<&str> = BTreeSet::new();
    let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (id, body) in taken.iter().filter(|(id, _)| first.insert(id)) {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        by_key.entry(body["key"].as_str().unwrap().to_owned()).or_default().push(id.clone());
    }
    assert_eq!(by_key, committed);
}

#[test]
fn a_message_is_the_same_from_the_table_and_from_the_binlog() {
    let Some(stage) = Stage::start_with("binlog-values", &options(1)) else { return };
    stage.sql(
        "CREATE TABLE box (id binary(16) PRIMARY KEY, body longblob, day date, at datetime(3), stamp timestamp(6) NULL, \
           state enum('new', 'paid'), marks set('a', 'b', 'c'), price decimal(12,3), n bigint unsigned, small tinyint, \
           bits bit(12), fixed char(10), raw varbinary(20), y year, note text) CHARACTER SET utf8mb4",
    );
    let columns = "id, day, at, stamp, state, marks, price, n, small, bits, fixed, raw, y, note";
    let columns: Vec<&str> = columns.split(", ").skip(1).collect();
    let headers = columns.join(",");
    let more = [
        "--table",
        "box",
        "--payload-column",
        "body",
        "--type-column",
        "none",
        "--routing-key",
        QUEUE,
        "--order-by",
        "none",
        "--processed-column",
        "none",
        "--error-column",
        "none",
        "--occurred-column",
        "at",
        "--header-columns",
        &headers,
        "--source",
        "wal",
    ];
    let row = |id: &str| {
        format!(
            "INSERT INTO box VALUES (UNHEX('{id}'), X'00FF27', '2026-11-30', '2026-01-02 03:04:05.678', \
             '2038-01-19 03:14:07.000001', 'paid', 'a,c', -1234.500, 18446744073709551615, -5, b'101', \
             'ab', X'0102', 2026, 'grüße'), (UNHEX(CONCAT('{id}', '01')), X'', NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
             NULL, NULL, NULL, NULL, NULL, NULL)"
        )
    };
    stage.told("install", &more, 0);
    stage.sql(&row("00112233445566778899AABBCCDD00"));
    let relay = stage.relay(&more);
    let messages = RefCell::new(Vec::new());
    stage.until("the rows of the table arrive", |stage| {
        messages.borrow_mut().extend(stage.take_whole(QUEUE));
        messages.borrow().len() == 2
    });
    stage.sql(&row("01112233445566778899AABBCCDD00"));
    stage.until("the rows of the log arrive", |stage| {
        messages.borrow_mut().extend(stage.take_whole(QUEUE));
        messages.borrow().len() == 4
    });
    drop(relay);
    let messages = messages.into_inner();
    for (table, log) in messages[..2].iter().zip(&messages[2..]) {
        let id = |message: &str| message.replacen("id: 01", "id: 00", 1);
        assert_eq!(id(table), id(log));
    }
    println!("{}", messages[0]);
}

#[test]
fn an_operator_is_told_what_the_binlog_lacks_and_finds_back_when_it_is_gone() {
    let Some(stage) = Stage::start_with("binlog-admin", &options(1)) else { return };
    stage.told("install", &LOG, 0);
    let told = stage.told("doctor", &LOG, 0);
    assert!(told.contains("rows are written whole"), "{told}");
    stage.sql("SET GLOBAL binlog_row_metadata = MINIMAL; SET GLOBAL binlog_format = MIXED");
    let told = stage.told("doctor", &LOG, 1);
    assert!(
        told.contains("binlog_row_metadata is MINIMAL") && told.contains("binlog_format is MIXED"),
        "{told}"
    );
    let told = stage.told("run", &LOG, 1);
    assert!(told.contains("SET GLOBAL binlog_row_metadata = FULL"), "{told}");
    stage.sql("SET GLOBAL binlog_row_metadata = FULL; SET GLOBAL binlog_format = ROW");

    // What was there before is published first; what fails is kept, and comes back.
    stage.sql("INSERT INTO outbox_messages (id, type, content) VALUES ('old', 'orders', '1')");
    let more = with(&LOG, &["--max-attempts", "2", "--retry-min", "100ms", "--retry-max", "200ms"]);
    let mut relay = stage.relay(&more);
    let arrived = Arrived::default();
    stage.until("the old row arrives", |stage| arrived.has(stage, 1));
    stage.sql("INSERT INTO outbox_messages (id, type, content) VALUES ('new', 'orders', '2'), ('lost', 'missing', '3')");
    stage.until("the new row arrives", |stage| arrived.has(stage, 2));
    stage.until_sql("SELECT COUNT(*) FROM millrace_relay_failures WHERE dead_at IS NOT NULL", "1");
    let status = stage.told("status", &LOG, 0);
    assert!(status.contains("1 dead (unroutable, after 2 attempts)"), "{status}");
    assert!(status.contains("millrace_relay: read, at shop-bin.0000"), "{status}");
    stage.declare("missing");
    let told = stage.told("replay", &with(&LOG, &["--reason", "unroutable", "--yes"]), 0);
    assert!(told.contains("1 rows replayed"), "{told}");
    stage.until("the dead row arrives", |stage| {
        stage.take("missing").iter().any(|(id, _)| id == "lost")
    });
    stage.until_sql("SELECT COUNT(*) FROM millrace_relay_failures", "0");
    assert_eq!(arrived.ids().len(), 2);
    done(relay.terminate(stage::TIMEOUT));
    let told = stage.told("purge", &with(&LOG, &["--older-than", "1h"]), 0);
    assert!(told.contains("0 rows deleted"), "{told}");

    // Nothing is lost or repeated by a restart; a log that is gone is told, and resync finds back.
    stage
        .sql("INSERT INTO outbox_messages (id, type, content) VALUES ('meanwhile', 'orders', '4')");
    relay = stage.relay(&more);
    stage.until("the row of meanwhile arrives", |stage| arrived.has(stage, 3));
    done(relay.terminate(stage::TIMEOUT));
    assert_eq!(arrived.0.borrow().len(), 3, "nothing came twice: {:?}", arrived.0.borrow());
    stage.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS");
    stage.sql("INSERT INTO outbox_messages (id, type, content) VALUES ('unseen', 'orders', '5')");
    stage.sql("FLUSH BINARY LOGS");
    let last = stage.sql("SHOW BINARY LOGS");
    let last = last.lines().last().unwrap().split('\t').next().unwrap().to_owned();
    stage.sql(&format!("PURGE BINARY LOGS TO '{last}'"));
    let told = stage.told("run", &LOG, 3);
    assert!(told.contains("millrace relay resync --source wal"), "{told}");
    stage.told("resync", &with(&LOG, &["--all"]), 0);
    stage.until("the unseen row arrives", |stage| arrived.has(stage, 4));
    relay = stage.relay(&more);
    stage.sql("INSERT INTO outbox_messages (id, type, content) VALUES ('after', 'orders', '6')");
    stage.until("the last row arrives", |stage| arrived.has(stage, 5));
    drop(relay);
}

#[test]
fn a_relay_goes_on_behind_its_ids_at_a_replica_that_was_promoted() {
    let Some(mut stage) = Stage::start_with("binlog-failover", &options(1)) else { return };
    let Some(replica) = MariaDb::start_with(&options(2)).unwrap() else { return };
    // The replica begins with what the primary has, so that its own first steps do not count.
    replica.sql("mysql", "DROP DATABASE shop; RESET MASTER").unwrap();
    stage.sql(
        "CREATE USER 'copy'@'%' IDENTIFIED BY 'copy'; GRANT REPLICATION SLAVE ON *.* TO 'copy'@'%'",
    );
    let change = format!(
        "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {}, master_user = 'copy', master_password = 'copy', \
         master_use_gtid = slave_pos; START SLAVE",
        stage.database.port()
    );
    replica.sql("mysql", &change).unwrap();
    stage.told("install", &LOG, 0);
    // The files of the two have other names and lengths by now.
    replica.sql("mysql", "FLUSH BINARY LOGS").unwrap();
    let mut relay = stage.relay(&LOG);
    let arrived = Arrived::default();
    let rows = |from: u32, to: u32| -> String {
        let row = |n| {
            format!(
                "INSERT INTO outbox_messages (id, type, content) VALUES ('{n}', '{QUEUE}', '{n}');\n"
            )
        };
        (from..to).map(row).collect()
    };
    stage.sql(&rows(0, 50));
    stage.until("the first rows arrive", |stage| arrived.has(stage, 50));
    done(relay.terminate(stage::TIMEOUT));
    // Committed at the old primary while no relay reads.
    stage.sql(&rows(50, 80));
    stage.until("the replica has them", |_| {
        replica.sql("shop", "SELECT COUNT(*) FROM outbox_messages").is_ok_and(|it| it == "80")
    });
    stage.database.kill9().unwrap();
    replica.sql("mysql", "STOP SLAVE; RESET SLAVE ALL").unwrap();
    stage.database = replica;
    stage.sql(&rows(80, 100));
    relay = stage.relay(&LOG);
    stage.until("all rows arrive", |stage| arrived.has(stage, 100));
    drop(relay);
    let order: Vec<u32> =
        arrived.0.into_inner().iter().map(|(id, _)| id.parse().unwrap()).collect();
    assert_eq!(order, (0..100).collect::<Vec<_>>(), "each once, in the order of their commits");
}
