//! `millrace relay inbox` between a real broker and a real PostgreSQL: each message-id is in the table once, in
//! the order of publishing per key, whoever is killed.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes, and waits for them"
)]

#[path = "support/rounds.rs"]
mod rounds;
#[path = "support/relay.rs"]
mod support;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use lapin::BasicProperties;
use lapin::options::{BasicPublishOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use rounds::{KEYS, Publisher, TIMEOUT, channel, publish, until};
use support::{done, stage};
use trials::chaos::broker::Kind;
use trials::relay::Stage;
use trials::relay::process::Relay;

/// The inbox of one queue and one database, which have the same name.
struct Inbox {
    name: String,
    words: Vec<String>,
    process: Relay,
}

impl Inbox {
    fn start(stage: &Stage, name: &str, more: &[&str]) -> Self {
        let url = format!("amqp://guest:guest@{}/%2f?heartbeat=5", stage.broker.setup.address());
        let database = stage.postgres.url_of(name);
        let words = ["relay", "inbox", "--url", &url, "--database", &database, "--queue", name];
        let words = words.into_iter().chain(["--consumer", "billing", "--install"]);
        let words: Vec<String> = words.chain(more.iter().copied()).map(str::to_owned).collect();
        let process = Self::launch(stage, name, &words);
        Self { name: name.to_owned(), words, process }
    }

    /// Comes back when it has its table and is with its queue: before, whatever is missing ends it at once, as it
    /// should, and so does a signal.
    fn launch(stage: &Stage, name: &str, words: &[String]) -> Relay {
        let log = stage.dir.join(format!("{name}.txt"));
        let opened =
            || std::fs::read_to_string(&log).unwrap_or_default().matches("is open").count();
        let before = opened();
        let mut process = done(Relay::start(&stage.millrace, words, &log));
        until("the inbox is open", || {
            assert!(done(process.exited()).is_none(), "{}", process.last_words());
            opened() > before
        });
        process
    }

    fn again(&mut self, stage: &Stage) {
        self.process = Self::launch(stage, &self.name, &self.words);
    }

    fn is_running(&mut self) -> bool {
        done(self.process.exited()).is_none()
    }

    /// What it said when it ended.
    fn ended(&mut self, stage: &Stage) -> String {
        self.process.ask_to_end();
        self.last_word(stage)
    }

    /// The same of one that was asked before: who asks twice does not wait for the end.
    fn last_word(&mut self, stage: &Stage) -> String {
        let status = done(self.process.wait(Duration::from_secs(60)));
        assert!(status.success(), "{status}: {}", self.process.last_words());
        let log = std::fs::read_to_string(stage.dir.join(format!("{}.txt", self.name))).unwrap();
        let last = log.lines().rfind(|line| line.contains("ended"));
        last.unwrap_or_else(|| panic!("no last word: {log}")).to_owned()
    }
}

/// Makes the queue and the database.
fn prepare(stage: &Stage, name: &str) {
    done(stage.postgres.psql(&format!("CREATE DATABASE {name}")).map_err(Into::into));
    declare(stage, name);
}

fn declare(stage: &Stage, name: &str) {
    rounds::declare(&stage.runtime, stage.broker.setup.address(), name);
}

fn ask(stage: &Stage, database: &str, sql: &str) -> Option<String> {
    stage.postgres.psql_in(database, sql).ok()
}

fn count(stage: &Stage, database: &str) -> usize {
    let told = ask(stage, database, "SELECT count(*) FROM inbox_messages");
    told.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// How many messages are ready in the queue.
fn ready(stage: &Stage, queue: &str) -> u32 {
    rounds::ready(&stage.runtime, stage.broker.setup.address(), queue)
}

/// Every message once, each key's in the order of its numbers, each with its own body.
fn judge(stage: &Stage, database: &str, rounds: usize) {
    let sql = "SELECT message_id || '|' || convert_from(payload, 'UTF8') || '|' || type \
               FROM inbox_messages WHERE error IS NULL ORDER BY seq";
    let told = ask(stage, database, sql).unwrap();
    rounds::judge(told.lines().map(|line| line.split('|').collect()), rounds);
}

/// What the failure of a trial is judged by: who has what, and what the inbox said last.
fn what_is_missing(stage: &Stage, inbox: &Inbox, total: usize) -> String {
    let rows = count(stage, &inbox.name);
    let ready = ready(stage, &inbox.name);
    let last = ask(
        stage,
        &inbox.name,
        "SELECT string_agg(message_id, ' ') FROM (SELECT message_id FROM inbox_messages ORDER BY seq DESC LIMIT 30) AS last",
    );
    format!(
        "{rows} of {total} are in the table, {ready} ready in the queue; the last rows: {last:?}; the inbox: {}",
        inbox.process.last_words()
    )
}

/// Kills each in turn, so many times, while messages flow.
fn kill_in_turn(stage: &mut Stage, name: &str, kills: usize, more: &[&str]) {
    prepare(stage, name);
    let mut inbox = Inbox::start(stage, name, more);
    let publisher = Publisher::start(&stage.runtime, stage.broker.setup.address(), name);
    for turn in 0..kills {
        let stored = || publisher.note_stored(count(stage, name));
        let enough = stored() + 30 + 7 * turn;
        until("rows come", || stored() >= enough);
        match turn % 3 {
            0 => {
                done(inbox.process.kill9());
                inbox.again(stage);
            }
            1 => {
                stage.postgres.kill9().unwrap();
                std::thread::sleep(Duration::from_millis(100));
                stage.postgres.start_again().unwrap();
            }
            _ => {
                done(stage.broker.kill());
                std::thread::sleep(Duration::from_millis(100));
                done(stage.start_broker());
            }
        }
        assert!(inbox.is_running(), "it outlives the others: {}", inbox.process.last_words());
    }
    let rounds = publisher.ended(&stage.runtime);
    let total = rounds * KEYS;
    println!("{name}: {total} messages, {} of them in the table", count(stage, name));
    let begun = Instant::now();
    until("everything is in the table", || {
        let is_in = count(stage, name) >= total;
        assert!(is_in || begun.elapsed() < TIMEOUT, "{}", what_is_missing(stage, &inbox, total));
        is_in
    });
    // What was published or delivered twice comes after what it repeats.
    until("the queue is empty", || ready(stage, name) == 0);
    let last = inbox.ended(stage);
    assert_eq!(count(stage, name), total, "{last}");
    judge(stage, name, rounds);
    assert_eq!(ready(stage, name), 0, "what is stored is acknowledged: {last}");
}

#[test]
fn each_message_is_stored_once_and_in_order_when_inbox_database_and_broker_are_killed_in_turn() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    kill_in_turn(&mut stage, "killed", 9, &[]);
    // Batches of few rows: most of the time is commits, and so most kills fall into one.
    kill_in_turn(&mut stage, "small", 3, &["--batch", "3"]);
}

#[test]
fn several_workers_store_each_message_once_and_each_key_in_order_whoever_is_killed() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let words = ["--workers", "4", "--key", "header:k", "--batch", "5"];
    kill_in_turn(&mut stage, "several", 6, &words);
}

#[test]
fn a_message_that_is_tried_again_holds_up_its_key_and_no_other_worker() {
    const KEYS: usize = 12;
    const NUMBERS: usize = 5;
    let Some(stage) = stage(Kind::Millrace) else { return };
    let name = "retried";
    prepare(&stage, name);
    let words = ["--workers", "4", "--order", "key", "--key", "header:k"];
    let mut inbox = Inbox::start(&stage, name, &words);
    let check = "ALTER TABLE inbox_messages ADD CONSTRAINT refuse CHECK (message_id <> '0-2')";
    ask(&stage, name, check).unwrap();
    let message = |number: usize, key: usize| {
        with_id(&format!("{key}-{number}")).with_headers(rounds::keyed(&key.to_string()))
    };
    let numbers = (0..NUMBERS).flat_map(|number| (0..KEYS).map(move |key| (number, key)));
    let messages: Vec<BasicProperties> =
        numbers.map(|(number, key)| message(number, key)).collect();
    publish_all(&stage, name, &messages);
    let of_key = |key: usize| {
        let order = format!(
            "SELECT coalesce(string_agg(message_id, ',' ORDER BY seq), '') FROM inbox_messages WHERE key = '{key}'"
        );
        ask(&stage, name, &order).unwrap()
    };
    let all_of = |key: usize, count: usize| {
        let ids: Vec<String> = (0..count).map(|number| format!("{key}-{number}")).collect();
        ids.join(",")
    };
    // Those of other workers are all here. With four workers for twelve keys, some are.
    let passed = || (0..KEYS).filter(|key| of_key(*key) == all_of(*key, NUMBERS)).count();
    let log = || std::fs::read_to_string(stage.dir.join(format!("{name}.txt"))).unwrap();
    let tries = || log().lines().filter(|line| line.contains("message_id=\"0-2\"")).count();
    until("others pass while it is tried again", || passed() >= KEYS / 3 && tries() >= 3);
    assert_eq!(of_key(0), all_of(0, 2), "nothing of its key overtakes it");
    ask(&stage, name, "ALTER TABLE inbox_messages DROP CONSTRAINT refuse").unwrap();
    until("all are stored", || count(&stage, name) == messages.len());
    for key in 0..KEYS {
        assert_eq!(of_key(key), all_of(key, NUMBERS));
    }
    inbox.ended(&stage);
    assert_eq!(ready(&stage, name), 0);
}

fn with_id(id: &str) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into())
}

#[test]
fn rabbitmq_s_messages_are_stored_once_and_in_order_whoever_is_killed() {
    let Some(mut stage) = stage(Kind::Rabbitmq) else { return };
    kill_in_turn(&mut stage, "rabbit", 3, &[]);
}

/// Publishes one message for each of `properties`.
fn publish_all(stage: &Stage, queue: &str, properties: &[BasicProperties]) {
    stage.runtime.block_on(async {
        let (_connection, channel) = channel(stage.broker.setup.address()).await.unwrap();
        for properties in properties {
            publish(&channel, queue, properties.clone(), b"{}").await.unwrap();
        }
    });
}

fn with_header(id: &str, value: &[u8]) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("x".into(), AMQPValue::LongString(value.into()));
    BasicProperties::default().with_message_id(id.into()).with_headers(headers)
}

#[test]
fn a_message_that_does_not_fit_is_kept_with_its_error_and_stops_nobody() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    let name = "poison";
    // This database has no letter for most of what a message may hold.
    let sql = format!(
        "CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    );
    stage.postgres.psql(&sql).unwrap();
    declare(&stage, name);
    let plain = |id: usize| with_header(&id.to_string(), b"plain");
    let mut messages: Vec<BasicProperties> = (0..60).map(plain).collect();
    messages[20] = with_header("20", b"a\0b");
    messages[30] = with_header("30", "a rocket: \u{1f680}".as_bytes());
    messages[40] = with_header("40", &[0xff, 0xfe]);
    messages.push(BasicProperties::default());
    messages.push(BasicProperties::default());
    publish_all(&stage, name, &messages);
    let mut inbox = Inbox::start(&stage, name, &[]);
    until("all are stored", || count(&stage, name) == messages.len());
    let last = inbox.ended(&stage);
    assert!(last.contains("flawed=2") && last.contains("without_id=2"), "{last}");

    let flawed =
        "SELECT message_id, error FROM inbox_messages WHERE error IS NOT NULL ORDER BY seq";
    let flawed = ask(&stage, name, flawed).unwrap();
    let flawed: Vec<&str> = flawed.lines().collect();
    assert!(flawed[0].starts_with("20|") && flawed[0].contains("U+0000"), "{flawed:?}");
    assert!(flawed[1].starts_with("30|") && flawed[1].contains("LATIN1"), "{flawed:?}");
    let order = "SELECT string_agg(message_id, ',' ORDER BY seq) FROM inbox_messages \
                 WHERE message_id NOT LIKE 'no-id:%'";
    let expected: Vec<String> = (0..60).map(|id| id.to_string()).collect();
    assert_eq!(ask(&stage, name, order).unwrap(), expected.join(","));
    let bytes = "SELECT headers->>'x' FROM inbox_messages WHERE message_id = '40'";
    assert_eq!(ask(&stage, name, bytes).unwrap(), "\\xfffe");
    assert_eq!(ready(&stage, name), 0);
}

#[test]
fn a_stop_commits_and_acknowledges_what_is_here_and_the_rest_stays_in_the_queue() {
    const COUNT: usize = 1_000;
    let Some(stage) = stage(Kind::Millrace) else { return };
    let name = "stopped";
    prepare(&stage, name);
    let ids = 0..COUNT;
    let properties: Vec<BasicProperties> =
        ids.map(|id| BasicProperties::default().with_message_id(id.to_string().into())).collect();
    let words = ["--batch", "10", "--prefetch", "40"];
    let mut inbox = Inbox::start(&stage, name, &words);
    // Somebody has the table: what the inbox was given is all that it can take.
    let client = stage.runtime.block_on(async {
        let client = trials::postgres::connect(&stage.postgres.url_of(name)).await.unwrap();
        let lock = "BEGIN; LOCK TABLE inbox_messages IN SHARE ROW EXCLUSIVE MODE";
        client.batch_execute(lock).await.unwrap();
        client
    });
    let left_behind = |expected: usize| {
        until("it holds what it may", || ready(&stage, name) as usize == expected);
    };
    publish_all_at_once(&stage, name, &properties);
    left_behind(COUNT - 40);
    inbox.process.ask_to_end();
    let log = || std::fs::read_to_string(stage.dir.join(format!("{name}.txt"))).unwrap();
    until("it knows that it is to stop", || log().contains("no more is taken"));
    stage.runtime.block_on(client.batch_execute("COMMIT")).unwrap();
    let last = inbox.last_word(&stage);
    // On a busy machine the broker has sent more than the inbox had read when it was told to stop.
    let stored = count(&stage, name);
    assert!((1..=40).contains(&stored) && last.contains(&format!("stored={stored} ")), "{last}");
    left_behind(COUNT - stored);
    inbox.again(&stage);
    until("all are stored", || count(&stage, name) == COUNT);
    let last = inbox.ended(&stage);
    assert!(last.contains("duplicates=0"), "{last}");
    assert_eq!(ready(&stage, name), 0);
}

fn publish_all_at_once(stage: &Stage, queue: &str, properties: &[BasicProperties]) {
    stage.runtime.block_on(async {
        let (_connection, channel) = channel(stage.broker.setup.address()).await.unwrap();
        let mut confirms = Vec::new();
        for properties in properties {
            let (options, properties) =
                (BasicPublishOptions::default(), properties.clone().with_delivery_mode(2));
            let sent = channel.basic_publish("".into(), queue.into(), options, b"{}", properties);
            confirms.push(sent.await.unwrap());
        }
        for confirm in confirms {
            assert!(confirm.await.unwrap().is_ack());
        }
    });
}

/// What an inbox answers to a GET on this port.
fn get(port: u16, path: &str) -> String {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    write!(socket, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_message_that_the_table_refuses_holds_up_the_rest_or_is_dead_lettered_as_was_asked() {
    const DEAD: &str = "refused.dead";
    let Some(stage) = stage(Kind::Millrace) else { return };
    let name = "refused";
    stage.postgres.psql(&format!("CREATE DATABASE {name}")).unwrap();
    stage.runtime.block_on(async {
        let (_connection, channel) = channel(stage.broker.setup.address()).await.unwrap();
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
        arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(DEAD.into()));
        channel.queue_declare(name.into(), durable, arguments).await.unwrap();
        channel.queue_declare(DEAD.into(), durable, FieldTable::default()).await.unwrap();
    });
    let port = trials::ports::free().unwrap();
    let metrics = ["--metrics".to_owned(), format!("127.0.0.1:{port}")];
    let metrics: Vec<&str> = metrics.iter().map(String::as_str).collect();
    let mut inbox = Inbox::start(&stage, name, &metrics);
    until("it is ready", || get(port, "/ready").contains("200 OK"));
    // The one by a check, the other by a trigger that has an SQLSTATE of its own.
    let check = "ALTER TABLE inbox_messages ADD CHECK (message_id <> '2');
                 CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '45000'; END $$;
                 CREATE TRIGGER refuse BEFORE INSERT ON inbox_messages FOR EACH ROW
                 WHEN (NEW.message_id = '4') EXECUTE FUNCTION refuse()";
    ask(&stage, name, check).unwrap();
    let message = |id: usize| BasicProperties::default().with_message_id(id.to_string().into());
    publish_all(&stage, name, &(0..6).map(message).collect::<Vec<_>>());
    // It waits, and says for what and how to get out of it.
    until("it is stuck", || get(port, "/metrics").contains("millrace_inbox_stuck 1"));
    let log = std::fs::read_to_string(stage.dir.join(format!("{name}.txt"))).unwrap();
    let told = log.lines().rfind(|line| line.contains("ERROR")).unwrap();
    for part in ["message_id=\"2\"", "check constraint", "--on-refused reject"] {
        assert!(told.contains(part), "`{part}` is not in: {told}");
    }
    let answer = get(port, "/ready");
    assert!(answer.contains("503") && answer.contains("refuses a message"), "{answer}");
    assert_eq!(count(&stage, name), 2, "nothing overtakes it");
    done(inbox.process.kill9());

    let mut inbox =
        Inbox::start(&stage, name, &[&metrics[..], &["--on-refused", "reject"]].concat());
    until("the others are stored", || count(&stage, name) == 4);
    until("they are dead-lettered", || ready(&stage, DEAD) == 2);
    for line in [
        "millrace_inbox_stored_total 2",
        "millrace_inbox_rejected_total 2",
        "millrace_inbox_database_connections 1",
        "millrace_inbox_step_seconds_count{step=\"store\"}",
    ] {
        until(line, || get(port, "/metrics").contains(line));
    }
    let last = inbox.ended(&stage);
    assert!(last.contains("rejected=2") && last.contains("flawed=0"), "{last}");
    let order = "SELECT string_agg(message_id, ',' ORDER BY seq) FROM inbox_messages";
    assert_eq!(ask(&stage, name, order).unwrap(), "0,1,3,5");
    assert_eq!(ready(&stage, name), 0);
}

#[test]
fn a_second_inbox_stands_by_and_takes_over_and_large_messages_do_not_fill_the_memory() {
    const COUNT: usize = 150;
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let name = "standby";
    prepare(&stage, name);
    let mut first = Inbox::start(&stage, name, &[]);
    until("the table is there", || ask(&stage, name, "SELECT FROM inbox_messages").is_some());
    let log = stage.dir.join("second.txt");
    let mut second = done(Relay::start(&stage.millrace, &first.words, &log));
    let stands_by = || std::fs::read_to_string(&log).unwrap().contains("standing by");
    until("the second knows of the first", stands_by);
    // The database is away, so what comes stays in the memory of the first.
    stage.postgres.stop().unwrap();
    let megabyte = vec![b'x'; 1 << 20];
    stage.runtime.block_on(async {
        let (_connection, channel) = channel(stage.broker.setup.address()).await.unwrap();
        for id in 0..COUNT {
            let properties = BasicProperties::default().with_message_id(id.to_string().into());
            publish(&channel, name, properties, &megabyte).await.unwrap();
        }
    });
    let log_of_first = stage.dir.join(format!("{name}.txt"));
    let said = || std::fs::read_to_string(&log_of_first).unwrap();
    until("it takes less", || said().contains("the messages are large"));
    let peak = done(first.process.memory_peak());
    assert!(peak < 200 << 20, "{peak} bytes for messages that cannot be stored");
    done(first.process.kill9());
    stage.postgres.start_again().unwrap();
    until("the second has stored all", || count(&stage, name) == COUNT);
    let order = "SELECT string_agg(message_id, ',' ORDER BY seq) FROM inbox_messages";
    let expected: Vec<String> = (0..COUNT).map(|id| id.to_string()).collect();
    assert_eq!(ask(&stage, name, order).unwrap(), expected.join(","));
    done(second.terminate(Duration::from_secs(60)));
    assert_eq!(ready(&stage, name), 0);
}

#[test]
fn what_is_wrong_at_the_start_is_said_at_once() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    prepare(&stage, "wrong");
    let url = format!("amqp://guest:guest@{}", stage.broker.setup.address());
    let database = stage.postgres.url_of("wrong");
    let cases: [(&str, &str, &[&str], &str); 3] = [
        ("wrong", &url, &[], "--install makes it"),
        ("nowhere", &url, &["--install"], "NOT_FOUND"),
        ("wrong", "amqp://guest:hunter2@127.0.0.1:1/a/b", &[], "bare slash"),
    ];
    for (number, (queue, url, more, part)) in cases.into_iter().enumerate() {
        let words = ["relay", "inbox", "--url", url, "--database", &database, "--queue", queue];
        let words = words.into_iter().chain(["--consumer", "c"]).chain(more.iter().copied());
        let words: Vec<String> = words.map(str::to_owned).collect();
        let log = stage.dir.join(format!("wrong-{number}.txt"));
        let mut process = done(Relay::start(&stage.millrace, &words, &log));
        assert!(!done(process.wait(Duration::from_secs(60))).success());
        let said = std::fs::read_to_string(&log).unwrap();
        assert!(said.contains(part) && !said.contains("hunter2"), "{said}");
    }
}
