//! `millrace relay` with several sources in one process and one file: databases of different kinds side by side, one that
//! fails beside others that go on, and sources that come and go while it runs.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes, and waits for them"
)]

#[path = "support/relay.rs"]
mod support;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lapin::options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use serde_json::Value;
use support::{done, millrace, stage};
use trials::chaos::broker::Kind;
use trials::mariadb::MariaDb;
use trials::relay::Stage;
use trials::relay::process::Relay;

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(120);
const SECRET: &str = "swordfish";
const DATABASE: &str = "sources";

/// A relay's file, and where it is watched.
struct Setup {
    stage: Stage,
    file: PathBuf,
    port: u16,
    secret: PathBuf,
}

impl Setup {
    fn start() -> Option<Self> {
        let stage = stage(Kind::Millrace)?;
        done(stage.postgres.psql(&format!("CREATE DATABASE {DATABASE}")).map_err(Into::into));
        let (file, secret) = (stage.dir.join("relay.toml"), stage.dir.join("secret"));
        std::fs::write(&secret, SECRET).unwrap();
        Some(Self { file, secret, port: trials::ports::free().unwrap(), stage })
    }

    fn amqp(&self) -> String {
        format!("amqp://guest:guest@{}/%2f?heartbeat=10", self.stage.broker.setup.address())
    }

    /// Writes the file: the top, then these sources.
    fn write(&self, sources: &str) {
        let (url, database) = (self.amqp(), self.stage.postgres.url_of(DATABASE));
        let top = format!("url = \"{url}\"\ndatabase = \"{database}\"\nworkers = 2\n");
        std::fs::write(&self.file, top + &self.watched() + sources).unwrap();
    }

    fn watched(&self) -> String {
        let secret = self.secret.display();
        format!("metrics = \"127.0.0.1:{}\"\norders_secret_file = \"{secret}\"\n", self.port)
    }

    fn run(&self) -> Relay {
        let words = ["relay", "run", "--config", self.file.to_str().unwrap()].map(str::to_owned);
        let mut relay = done(Relay::start(millrace(), &words, &self.stage.dir.join("relay.txt")));
        done(relay.wait_open());
        relay
    }

    /// What a command says, and its exit code.
    fn told(&self, command: &str, more: &[&str]) -> (String, Option<i32>) {
        let words = ["relay", command, "--config", self.file.to_str().unwrap()];
        let output = Command::new(millrace()).args(words).args(more).output().unwrap();
        let told = [&output.stdout[..], &output.stderr[..]].concat();
        (String::from_utf8_lossy(&told).into_owned(), output.status.code())
    }

    fn install(&self, more: &[&str]) -> String {
        let (told, code) = self.told("install", more);
        assert_eq!(code, Some(0), "{told}");
        told
    }

    fn sql(&self, sql: &str) -> String {
        done(self.stage.postgres.psql_in(DATABASE, sql).map_err(Into::into))
    }

    /// Commits so many rows for a queue.
    fn insert(&self, table: &str, queue: &str, rows: u32) {
        self.sql(&format!(
            "INSERT INTO {table} (id, type, content, occurred_on_utc)
             SELECT gen_random_uuid(), '{queue}', '{{}}', now() FROM generate_series(1, {rows})"
        ));
    }

    fn ids(&self, table: &str) -> BTreeSet<String> {
        self.sql(&format!("SELECT id FROM {table}")).lines().map(str::to_owned).collect()
    }

    fn ask(&self, line: &str) -> String {
        let mut text = String::new();
        let Ok(mut socket) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) else {
            return text;
        };
        let login = format!("Authorization: Bearer {SECRET}\r\n");
        write!(socket, "{line} HTTP/1.0\r\nHost: localhost\r\n{login}\r\n").unwrap();
        socket.read_to_string(&mut text).unwrap();
        text
    }

    fn status(&self) -> Value {
        let told = self.ask("GET /status");
        let body = told.split_once("\r\n\r\n").map_or("null", |(_, body)| body);
        serde_json::from_str(body).unwrap()
    }

    fn confirmed(&self, source: &str) -> Value {
        self.status()["sources"][source]["confirmed"].clone()
    }

    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let log = std::fs::read_to_string(self.stage.dir.join("relay.txt")).unwrap_or_default();
            assert!(begun.elapsed() < TIMEOUT, "{what}: never: {}\n{log}", self.status());
            support::pause();
        }
    }

    fn until_confirmed(&self, source: &str, rows: u32) {
        self.until(&format!("{rows} rows of {source}"), |it| it.confirmed(source) == rows);
    }

    fn declare(&self, queues: &[&str]) {
        self.stage.runtime.block_on(async {
            let connection =
                Connection::connect(&self.amqp(), ConnectionProperties::default()).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            for queue in queues {
                let options = QueueDeclareOptions { durable: true, ..Default::default() };
                let queue = (*queue).into();
                channel.queue_declare(queue, options, FieldTable::default()).await.unwrap();
            }
        });
    }

    /// The message-ids of all that is in the queue.
    fn take(&self, queue: &str) -> Vec<String> {
        self.stage.runtime.block_on(async {
            let connection =
                Connection::connect(&self.amqp(), ConnectionProperties::default()).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            let mut taken = Vec::new();
            while let Some(message) =
                channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap()
            {
                let id = message.properties.message_id().as_ref().map(ToString::to_string);
                taken.push(id.unwrap_or_default());
                message.ack(BasicAckOptions::default()).await.unwrap();
            }
            taken
        })
    }
}

/// The example of docs/relay.md, with the addresses of this trial.
fn example(setup: &Setup, stock: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/relay.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split_once("\n## Several sources\n").expect("the section is there").1;
    let text = section.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let mut text = text.to_owned();
    for (from, to) in [
        ("amqp://guest:guest@localhost", setup.amqp()),
        ("postgres://app@localhost/shop", setup.stage.postgres.url_of(DATABASE)),
        ("mysql://app@localhost/stock", stock.to_owned()),
        ("metrics = \"127.0.0.1:9187\"\n", setup.watched()),
    ] {
        assert!(text.contains(from), "{from} is not in the example");
        text = text.replace(from, &to);
    }
    text
}

#[test]
fn the_example_runs_and_a_source_that_fails_stops_no_other() {
    let Some(setup) = Setup::start() else { return };
    let Some(stock) = MariaDb::start().unwrap() else { return };
    let text = example(&setup, &stock.url_of("shop"));
    std::fs::write(&setup.file, &text).unwrap();
    let told = setup.install(&[]);
    for name in ["orders", "invoices", "stock"] {
        assert!(told.contains(&format!("Source {name}:")), "{told}");
    }
    setup.declare(&["orders", "invoices", "stock", "late"]);
    std::fs::write(&setup.file, text + "[sources.late]\ntable = \"late_outbox\"\n").unwrap();
    let mut relay = setup.run();
    // A new slot has the log from here on.
    setup.until("invoices reads the log", |it| {
        it.sql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == "1"
    });
    setup.insert("orders_outbox", "orders", 20);
    setup.insert("invoices_outbox", "invoices", 20);
    for row in 0..20 {
        let sql = "INSERT INTO outbox_messages (id, type, content) VALUES";
        stock.sql("shop", &format!("{sql} ('s{row}', 'stock', '{{}}')")).unwrap();
    }
    for name in ["orders", "invoices", "stock"] {
        setup.until_confirmed(name, 20);
    }

    setup.until("late says what is wrong", |it| {
        let problem = it.status()["sources"]["late"]["problem"].clone();
        problem.as_str().is_some_and(|problem| problem.contains("late_outbox"))
    });
    assert!(setup.ask("GET /ready").contains("late: "));
    let metrics = setup.ask("GET /metrics");
    for line in [
        "millrace_relay_confirmed_total{source=\"orders\"} 20",
        "millrace_relay_failing{source=\"late\"} 1",
        "millrace_relay_failing{source=\"stock\"} 0",
        "millrace_relay_sources 4",
    ] {
        assert!(metrics.lines().any(|it| it == line), "`{line}` is not in\n{metrics}");
    }
    let words = done(relay.words());
    assert!(words.contains("late") && words.contains("it is tried again in"), "{words}");
    setup.install(&["--only", "late"]);
    setup.insert("late_outbox", "late", 5);
    setup.until_confirmed("late", 5);
    setup.until("all work", |it| it.status()["problem"].is_null());

    let paused = setup.ask("PUT /pause/orders");
    assert!(paused.starts_with("HTTP/1.0 200"), "{paused}");
    let status = setup.status();
    let is_paused = |name: &str| status["sources"][name]["is_paused"].clone();
    assert_eq!((is_paused("orders"), is_paused("invoices")), (true.into(), false.into()));
    setup.insert("orders_outbox", "orders", 20);
    setup.insert("invoices_outbox", "invoices", 20);
    setup.until_confirmed("invoices", 40);
    assert_eq!(setup.confirmed("orders"), 20, "it rests");
    let paused = setup.ask("PUT /pause");
    assert!(paused.starts_with("HTTP/1.0 200"), "{paused}");
    assert_eq!(setup.status()["is_paused"], true);
    setup.ask("DELETE /pause");
    setup.until("invoices goes on", |it| it.status()["sources"]["invoices"]["is_ready"] == true);
    assert_eq!(setup.confirmed("orders"), 20, "it rests until it is told itself");
    setup.ask("DELETE /pause/orders");
    setup.until_confirmed("orders", 40);

    let (told, code) = setup.told("status", &["--json"]);
    assert_eq!(code, Some(0), "{told}");
    let names: Vec<String> = told
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["source_name"].to_string())
        .collect();
    assert_eq!(names, ["\"invoices\"", "\"late\"", "\"orders\"", "\"stock\""]);
    let (told, _) = setup.told("doctor", &[]);
    assert!(told.contains("Source orders:") && told.contains("Source stock:"), "{told}");
    let (told, code) = setup.told("purge", &["--older-than", "0s"]);
    assert!(code == Some(2) && told.contains("--only"), "{told}");
    let (told, code) = setup.told("purge", &["--older-than", "0s", "--only", "orders"]);
    assert!(code == Some(0) && told.contains("40 rows deleted"), "{told}");
    done(relay.terminate(TIMEOUT));
}

#[test]
fn sources_come_and_go_with_sighup_and_nothing_is_lost() {
    let Some(setup) = Setup::start() else { return };
    let source = |name: &str| format!("[sources.{name}]\ntable = \"outbox_{name}\"\n");
    setup.write(&(source("a") + &source("b") + &source("c")));
    setup.install(&[]);
    setup.declare(&["a", "b", "c"]);
    setup.write(&(source("a") + &source("b")));
    let mut relay = setup.run();
    for name in ["a", "b", "c"] {
        setup.insert(&format!("outbox_{name}"), name, 300);
    }
    setup.until_confirmed("a", 300);
    setup.until_confirmed("b", 300);
    assert!(setup.status()["sources"]["c"].is_null());

    setup.write(&(source("a") + &source("c")));
    relay.hang_up();
    setup.until_confirmed("c", 300);
    setup.until("b has gone", |it| it.status()["sources"]["b"].is_null());
    assert!(setup.ask("PUT /pause/b").starts_with("HTTP/1.0 404"), "it is no part any more");
    setup.insert("outbox_b", "b", 10);
    setup.insert("outbox_a", "a", 300);
    setup.until_confirmed("a", 600);
    let waiting = "SELECT count(*) FROM outbox_b WHERE processed_on_utc IS NULL";
    assert_eq!(setup.sql(waiting), "10", "nobody publishes them");
    let words = done(relay.words());
    let begun = |words: &str, name: &str| {
        let begins = words.lines().filter(|line| line.contains("the source begins"));
        begins.filter(|line| line.contains(&format!("outbox_{name}"))).count()
    };
    assert_eq!((begun(&words, "a"), begun(&words, "c")), (1, 1), "a goes on undisturbed");
    assert!(words.contains("added: c; removed: b"), "{words}");

    setup.write(&(source("b") + "tabel = \"x\"\n"));
    relay.hang_up();
    setup.until("the file is refused", |_| done(relay.words()).contains("was refused"));
    assert!(done(relay.words()).contains("sources.b: "), "its source is told");
    setup.insert("outbox_a", "a", 10);
    setup.until_confirmed("a", 610);
    assert!(!setup.status()["sources"]["c"].is_null());

    setup.write(&(source("a") + "batch = 7\n" + &source("b") + &source("c")));
    relay.hang_up();
    setup.until_confirmed("b", 10);
    setup.until("a begins again", |_| begun(&done(relay.words()), "a") == 2);
    assert_eq!(begun(&done(relay.words()), "c"), 1, "c goes on undisturbed");
    for name in ["a", "b", "c"] {
        setup.insert(&format!("outbox_{name}"), name, 2000);
    }
    setup.until("some of them are published", |it| it.confirmed("a").as_u64() > Some(700));
    done(relay.kill9());
    drop(relay);
    let mut relay = setup.run();
    setup.until("all are published", |it| {
        ["a", "b", "c"].iter().all(|name| {
            let sql = "WHERE processed_on_utc IS NULL";
            it.sql(&format!("SELECT count(*) FROM outbox_{name} {sql}")) == "0"
        })
    });
    done(relay.terminate(TIMEOUT));
    for name in ["a", "b", "c"] {
        let arrived: BTreeSet<String> = setup.take(name).into_iter().collect();
        assert_eq!(arrived, setup.ids(&format!("outbox_{name}")), "{name}");
    }
}
