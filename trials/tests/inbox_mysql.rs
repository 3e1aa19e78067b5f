//! `millrace relay inbox` between a real broker and a real MariaDB: the promises of the inbox, whoever is killed.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes, and waits for them"
)]

#[path = "support/rounds.rs"]
mod rounds;
#[path = "support/relay.rs"]
mod support;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use rounds::{KEYS, Publisher, TIMEOUT, channel, publish, until};
use support::{done, millrace};
use tokio::runtime::Runtime;
use trials::chaos::broker::{Broker, Kind, START_MAX};
use trials::mariadb::MariaDb;
use trials::relay::process::Relay;
use trials::relay::stage::broker_in;

/// A database, a broker, and the queue of the same name as the test.
struct Stage {
    name: &'static str,
    database: MariaDb,
    broker: Broker,
    runtime: Runtime,
    dir: PathBuf,
}

impl Stage {
    /// None where MariaDB is not installed, which is said.
    fn start(name: &'static str, options: &[&str]) -> Option<Self> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let Some(database) = MariaDb::start_with(&options).unwrap() else {
            println!("skipped: there is no MariaDB: install it with `cargo xtask setup`");
            return None;
        };
        let dir = support::dir().join(format!("inbox-mysql-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mut broker = done(broker_in(Kind::Millrace, millrace(), &dir, name, &[]));
        done(broker.start());
        done(broker.wait_ready(START_MAX));
        let stage = Self { name, database, broker, runtime: Runtime::new().unwrap(), dir };
        rounds::declare(&stage.runtime, stage.broker.setup.address(), name);
        Some(stage)
    }

    fn words(&self, more: &[&str]) -> Vec<String> {
        let url = format!("amqp://guest:guest@{}/%2f?heartbeat=5", self.broker.setup.address());
        let database = self.database.url_of("shop");
        let words = ["relay", "inbox", "--url", &url, "--database", &database];
        let words = words.into_iter().chain(["--queue", self.name, "--consumer", "billing"]);
        words.chain(more.iter().copied()).map(str::to_owned).collect()
    }

    /// An inbox that has its table and its queue.
    fn inbox(&self, more: &[&str]) -> Relay {
        let before = self.log().matches("is open").count();
        let words = self.words(&[&["--install"], more].concat());
        let mut inbox = done(Relay::start(millrace(), &words, &self.dir.join("inbox.txt")));
        until("the inbox is open", || {
            assert!(done(inbox.exited()).is_none(), "{}", inbox.last_words());
            self.log().matches("is open").count() > before
        });
        inbox
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("inbox.txt")).unwrap_or_default()
    }

    /// Ends the inbox; what it said last.
    fn ended(&self, mut inbox: Relay) -> String {
        inbox.ask_to_end();
        let status = done(inbox.wait(Duration::from_secs(60)));
        assert!(status.success(), "{status}: {}", inbox.last_words());
        let log = self.log();
        let last = log.lines().rfind(|line| line.contains("ended"));
        last.unwrap_or_else(|| panic!("no last word: {log}")).to_owned()
    }

    /// What an inbox says that cannot start.
    fn refused(&self, more: &[&str]) -> String {
        let output = Command::new(millrace()).args(self.words(more)).output().unwrap();
        let told = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat())
            .into_owned();
        assert!(!output.status.success(), "{told}");
        told
    }

    fn sql(&self, sql: &str) -> String {
        self.database.sql("shop", sql).unwrap()
    }

    fn count(&self) -> usize {
        let told = self.database.sql("shop", "SELECT count(*) FROM inbox_messages");
        told.ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn ready(&self) -> u32 {
        rounds::ready(&self.runtime, self.broker.setup.address(), self.name)
    }

    fn publish(&self, messages: &[BasicProperties], body: &[u8]) {
        self.runtime.block_on(async {
            let (_connection, channel) = channel(self.broker.setup.address()).await.unwrap();
            for properties in messages {
                publish(&channel, self.name, properties.clone(), body).await.unwrap();
            }
        });
    }

    /// Message-ids in the order of `seq`.
    fn ids(&self) -> String {
        self.sql("SELECT group_concat(message_id ORDER BY seq) FROM inbox_messages")
    }
}

fn with_id(id: &str) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into())
}

fn with_header(id: &str, value: &[u8]) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("x".into(), AMQPValue::LongString(value.into()));
    with_id(id).with_headers(headers)
}

/// Kills each in turn, so many times, while messages flow.
fn kill_in_turn(stage: &mut Stage, kills: usize, more: &[&str]) {
    let mut inbox = stage.inbox(more);
    let publisher = Publisher::start(&stage.runtime, stage.broker.setup.address(), stage.name);
    for turn in 0..kills {
        let stored = || publisher.note_stored(stage.count());
        let enough = stored() + 30 + 7 * turn;
        until("rows come", || stored() >= enough);
        match turn % 3 {
            0 => {
                done(inbox.kill9());
                inbox = stage.inbox(more);
            }
            1 => {
                stage.database.kill9().unwrap();
                support::pause();
                stage.database.start_again().unwrap();
            }
            _ => {
                done(stage.broker.kill());
                support::pause();
                done(stage.broker.start());
                done(stage.broker.wait_ready(START_MAX));
            }
        }
        assert!(done(inbox.exited()).is_none(), "it outlives the others: {}", inbox.last_words());
    }
    let rounds = publisher.ended(&stage.runtime);
    let total = rounds * KEYS;
    let begun = Instant::now();
    until("everything is in the table", || {
        let count = stage.count();
        assert!(begun.elapsed() < TIMEOUT, "{count} of {total}: {}", stage.log());
        count >= total
    });
    // What was published or delivered twice comes after what it repeats.
    until("the queue is empty", || stage.ready() == 0);
    let last = stage.ended(inbox);
    assert_eq!(stage.count(), total, "{last}");
    let rows = stage.sql(
        "SELECT message_id, CONVERT(payload USING utf8mb4), type FROM inbox_messages \
         WHERE error IS NULL ORDER BY seq",
    );
    rounds::judge(rows.lines().map(|line| line.split('\t').collect()), rounds);
    assert_eq!(stage.ready(), 0, "what is stored is acknowledged: {last}");
    stage.sql("DROP TABLE inbox_messages");
}

#[test]
fn each_message_is_stored_once_and_in_order_when_inbox_database_and_broker_are_killed_in_turn() {
    let Some(mut stage) = Stage::start("killed", &[]) else { return };
    kill_in_turn(&mut stage, 6, &[]);
    // Batches of few rows: most of the time is commits, and so most kills fall into one.
    kill_in_turn(&mut stage, 3, &["--batch", "3"]);
    kill_in_turn(&mut stage, 3, &["--workers", "4", "--key", "header:k", "--batch", "5"]);
}

#[test]
fn what_a_message_holds_is_in_its_row_and_what_does_not_fit_is_told() {
    let Some(stage) = Stage::start("poison", &["--max-allowed-packet=1M"]) else { return };
    let ids = ["1", "a", "A", "a ", "\u{e1}", "\u{1f680}"];
    let mut messages: Vec<BasicProperties> = ids.iter().map(|id| with_id(id)).collect();
    messages.push(with_header("zero", b"a\0b"));
    messages.push(with_header("bytes", &[0xff, 0xfe]));
    messages.push(with_id(&"\0".repeat(200)));
    messages.push(BasicProperties::default());
    stage.publish(&messages, &[0, 0xff, b'\'']);
    // Again: what is there already stays.
    stage.publish(&messages[..6], b"again");
    let inbox = stage.inbox(&["--on-refused", "reject"]);
    until("all are stored", || stage.count() == messages.len());
    until("the queue is empty", || stage.ready() == 0);
    // The server does not take so many bytes at once, and what is behind goes on.
    stage.publish(&[with_id("large")], &vec![b'x'; 2 << 20]);
    stage.publish(&[with_id("behind")], b"{}");
    until("what is behind is stored", || stage.count() == messages.len() + 1);
    let last = stage.ended(inbox);
    for part in ["duplicates=6", "without_id=1", "flawed=2", "rejected=1"] {
        assert!(last.contains(part), "{part}: {last}");
    }
    assert!(stage.log().contains("max_allowed_packet"), "{}", stage.log());
    let differ = "SELECT count(*) FROM inbox_messages WHERE payload = X'00ff27'";
    assert_eq!(stage.sql(differ), "10");
    let bytes = "SELECT JSON_VALUE(headers, '$.x') FROM inbox_messages WHERE message_id = 'bytes'";
    assert_eq!(stage.sql(bytes), "\\\\xfffe");
    let flawed = "SELECT group_concat(error ORDER BY seq) FROM inbox_messages WHERE seq > 6";
    let flawed = stage.sql(flawed);
    assert!(flawed.contains("U+0000") && flawed.contains("512 letters"), "{flawed}");
    assert_eq!(stage.sql("SELECT `key` FROM inbox_messages LIMIT 1"), "poison");
}

#[test]
fn a_message_that_the_table_refuses_holds_up_the_rest_or_is_dead_lettered_as_was_asked() {
    let Some(stage) = Stage::start("refused", &[]) else { return };
    let inbox = stage.inbox(&[]);
    // The one by a check, the other by a trigger, the third by an index of the user's own.
    stage.sql(
        "ALTER TABLE inbox_messages ADD CHECK (message_id <> '2'), \
         ADD COLUMN first char(1) AS (LEFT(message_id, 1)) STORED, ADD UNIQUE KEY mine (first)",
    );
    stage.sql(
        "DELIMITER //\nCREATE TRIGGER refuse BEFORE INSERT ON inbox_messages FOR EACH ROW \
         IF NEW.message_id = '4' THEN SIGNAL SQLSTATE '99999' SET MESSAGE_TEXT = 'not this one'; END IF//\n",
    );
    let ids = ["0", "1", "2", "3", "4", "5", "0twice", "6"];
    stage.publish(&ids.map(with_id), b"{}");
    until("it is stuck", || stage.log().lines().any(|line| line.contains("ERROR")));
    let log = stage.log();
    let told = log.lines().rfind(|line| line.contains("ERROR")).unwrap();
    for part in ["message_id=\"2\"", "CONSTRAINT", "--on-refused reject"] {
        assert!(told.contains(part), "`{part}` is not in: {told}");
    }
    assert_eq!(stage.ids(), "0,1", "nothing overtakes it");
    let mut inbox = inbox;
    done(inbox.kill9());

    let inbox = stage.inbox(&["--on-refused", "reject"]);
    until("the others are stored", || stage.count() == 5);
    until("the queue is empty", || stage.ready() == 0);
    let last = stage.ended(inbox);
    assert!(last.contains("rejected=3") && last.contains("flawed=0"), "{last}");
    assert_eq!(stage.ids(), "0,1,3,5,6");
}

#[test]
fn what_is_wrong_at_the_start_is_said_at_once() {
    let Some(stage) = Stage::start("wrong", &[]) else { return };
    let told = stage.refused(&[]);
    assert!(told.contains("--install makes it"), "{told}");
    stage.sql("CREATE TABLE other (id int)");
    let told = stage.refused(&["--table", "other"]);
    assert!(told.contains("no column consumer"), "{told}");
    // What the command prints is what MariaDB takes.
    let mut print = Command::new(millrace());
    let url = stage.database.url_of("shop").replace("mysql://", "mariadb://");
    print.args(["relay", "inbox", "--print-sql", "--table", "printed", "--database", &url]);
    let printed = print.output().unwrap();
    assert!(printed.status.success());
    stage.sql(&String::from_utf8(printed.stdout).unwrap());
    stage.sql(
        "ALTER TABLE printed MODIFY message_id varchar(255) COLLATE utf8mb4_general_ci NOT NULL",
    );
    let told = stage.refused(&["--table", "printed"]);
    assert!(told.contains("utf8mb4_general_ci") && told.contains("nopad_bin"), "{told}");
}
