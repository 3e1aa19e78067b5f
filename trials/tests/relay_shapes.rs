//! `millrace relay` and the tables that people have: marks of their own, columns as headers, objects in the log; and
//! several databases, several relays, on one server.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "runs commands, waits for them, and takes what they publish"
)]

#[path = "support/between.rs"]
mod between;
#[path = "support/outbox.rs"]
mod outbox;
#[path = "support/relay.rs"]
mod support;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Instant;

use outbox::{Message, Outbox, TIMEOUT, until};
use support::{done, stage};
use trials::chaos::broker::Kind;
use trials::relay::process::Relay;

fn get(port: u16, path: &str) -> String {
    let mut text = String::new();
    if let Ok(mut socket) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
        write!(socket, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        socket.read_to_string(&mut text).unwrap();
    }
    text
}

fn gauge(port: u16, name: &str) -> Option<f64> {
    let text = get(port, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

const TABLE: &str = "CREATE TABLE outbox_messages (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), type text NOT NULL,
    content jsonb NOT NULL, occurred_on_utc timestamptz NOT NULL DEFAULT clock_timestamp(),
    processed_on_utc timestamptz, error text, headers jsonb)";

#[test]
fn a_relay_that_waits_for_the_slot_is_ready_and_the_age_is_that_of_the_oldest_row() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let ports = [trials::ports::free().unwrap(), trials::ports::free().unwrap()];
    let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
    let words = |at: usize| ["--source", "wal", "--metrics", addresses[at].as_str()];
    let outbox = Outbox::on(&stage, "ready");
    outbox.sql(TABLE);
    outbox.take("t", 0);
    let mut first = outbox.run("first", &words(0));
    until("the first reads the log", || first.last_words().contains("reading the log"));
    let second = outbox.run("second", &words(1));
    until("the second waits", || second.last_words().contains("waiting to take over"));
    assert!(second.last_words().contains("millrace-relay-slot, pid"), "{}", second.last_words());
    until("it is ready", || get(ports[1], "/ready").contains("200 OK"));
    assert_eq!(gauge(ports[1], "millrace_relay_standby"), Some(1.0));
    done(first.kill9());
    until("the second took over", || second.last_words().contains("reading the log"));
    until("it is at work", || gauge(ports[1], "millrace_relay_standby") == Some(0.0));

    // Nothing was published yet, and nothing can be.
    done(stage.broker.kill());
    let outbox = Outbox { stage: &stage, name: "ready" };
    let begun = Instant::now();
    outbox.sql(
        "INSERT INTO outbox_messages (type, content) SELECT 't', '{}' FROM generate_series(1, 50)",
    );
    let age = || gauge(ports[1], "millrace_relay_oldest_age_seconds").unwrap_or(0.0);
    until("they have waited for a second", || age() >= 1.0);
    assert!(age() <= begun.elapsed().as_secs_f64() + 0.5, "not for longer than they are there");
    done(stage.start_broker());
    until("all are published", || gauge(ports[1], "millrace_relay_confirmed_total") == Some(50.0));
    until("nothing waits", || age() == 0.0);
}

#[test]
fn each_database_of_a_server_has_a_slot_of_its_own_and_one_of_before_goes_on_being_used() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    let [old, new] = ["old_shop", "new_shop"].map(|name| Outbox::on(&stage, name));
    for outbox in [&old, &new] {
        outbox.sql(TABLE);
        outbox.take(outbox.name, 0);
    }
    // As every relay did before names had the database in them.
    let mut before = old.run("before", &["--source", "wal", "--slot", "millrace_relay"]);
    until("it reads the log", || before.last_words().contains("reading the log"));
    let said = new.refused("taken", &["--source", "wal", "--slot", "millrace_relay"]);
    assert!(said.contains("belongs to another database of this server"), "{said}");
    done(before.terminate(TIMEOUT));
    let relays = [&old, &new].map(|outbox| outbox.run("now", &["--source", "wal"]));
    for (outbox, relay) in [&old, &new].into_iter().zip(relays) {
        until("it reads the log", || relay.last_words().contains("reading the log"));
        outbox.sql(&format!(
            "INSERT INTO outbox_messages (type, content) VALUES ('{}', '{{}}')",
            outbox.name
        ));
        assert_eq!(outbox.take(outbox.name, 1)[0].text(), "{}");
        let status = outbox.status(&["--source", "wal"]);
        assert_eq!(status["slots"].as_array().map(Vec::len), Some(1), "{status}");
    }
    let slots = "SELECT string_agg(slot_name || ' of ' || database, ', ' ORDER BY database)
                 FROM pg_replication_slots";
    let slots = old.sql(slots);
    assert_eq!(slots, "millrace_relay_new_shop of new_shop, millrace_relay of old_shop");
}

#[test]
fn a_message_of_the_log_without_its_payload_is_set_aside_and_never_an_empty_body() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    let outbox = Outbox::on(&stage, "objects");
    outbox.take("paid", 0);
    let relay = outbox.run("run", &["--source", "messages"]);
    until("it reads the log", || relay.last_words().contains("reading the log"));
    let emit = |object: &str| {
        outbox.sql(&format!("SELECT pg_logical_emit_message(true, 'outbox', '{object}')"));
    };
    emit(r#"{"id": "1", "type": "paid", "payload": {"order": 1}}"#);
    emit(r#"{"id": "2", "type": "paid", "content": null}"#);
    emit(r#"{"id": "3", "type": "paid", "content": {"order": 3}}"#);
    assert_eq!(outbox.take("paid", 1)[0].text(), r#"{"order": 3}"#);
    let failed = "SELECT string_agg(row_id || ' ' || reason || ' ' || (dead_at IS NOT NULL), ', ' ORDER BY row_id)
                  FROM millrace.relay_failures";
    until("both are set aside", || outbox.sql(failed) == "1 broken true, 2 broken true");
    let errors = outbox.sql("SELECT error FROM millrace.relay_failures");
    assert!(errors.contains("has no `content`"), "{errors}");
    outbox.says("replay", &["--source", "messages", "--all-dead", "--yes"]);
    emit(r#"{"id": "4", "type": "paid", "content": "four"}"#);
    assert_eq!(outbox.take("paid", 1)[0].text(), "four");
    until("they are set aside again", || outbox.sql(failed) == "1 broken true, 2 broken true");
    assert_eq!(outbox.sql("SELECT min(attempts) FROM millrace.relay_failures"), "1");
}

#[test]
fn a_table_with_a_boolean_is_polled_and_its_backlog_is_known() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    let outbox = Outbox::on(&stage, "booleans");
    outbox.sql(
        "CREATE TABLE outbox (id bigserial PRIMARY KEY, topic text, body text, sent boolean NOT NULL DEFAULT false);
         INSERT INTO outbox (topic, body) SELECT 'b', n::text FROM generate_series(1, 40) n;
         INSERT INTO outbox (topic, body, sent) SELECT 'b', 'old', true FROM generate_series(1, 5) n",
    );
    outbox.take("b", 0);
    let columns = ["--table", "outbox", "--payload-column", "body", "--type-column", "topic"];
    let more = ["--occurred-column", "none", "--error-column", "none", "--order-by", "id"];
    let marks = ["--processed-column", "sent", "--routing-key", "{topic}", "--processed-value"];
    let all = [&columns[..], &more, &marks, &["true"], &["--pending-where", "NOT sent"]].concat();
    outbox.says("install", &all);
    assert!(outbox.says("install", &all).contains("Nothing was missing"));
    assert_eq!(outbox.status(&all)["backlog"]["rows"], 40);
    let doctor = String::from_utf8(outbox.command("doctor", &all).stdout).unwrap();
    let of_table = ["table", "columns", "index", "privileges", "unread"];
    let fails = |line: &&str| of_table.iter().any(|it| line.starts_with(&format!("FAIL  {it} ")));
    assert_eq!(doctor.lines().find(fails), None, "{doctor}");
    let mut relay = outbox.run("run", &all);
    let mut bodies: Vec<u32> =
        outbox.take("b", 40).iter().map(|message| message.text().parse().unwrap()).collect();
    bodies.sort_unstable();
    assert!(bodies.into_iter().eq(1..=40), "each once, and none that was sent before");
    until("all are marked", || outbox.sql("SELECT count(*) FROM outbox WHERE NOT sent") == "0");
    assert_eq!(outbox.status(&all)["backlog"]["rows"], 0);
    done(relay.terminate(TIMEOUT));
    outbox.says("replay", &[&all[..], &["--processed", "--id", "7", "--yes"]].concat());
    assert_eq!(outbox.sql("SELECT string_agg(id::text, ',') FROM outbox WHERE NOT sent"), "7");
    // A mark that does not fit the condition would publish for ever.
    let wrong =
        [&columns[..], &more, &marks, &["false"], &["--pending-where", "NOT sent"]].concat();
    let said = outbox.refused("wrong", &wrong);
    assert!(said.contains("still fits --pending-where"), "{said}");
}

#[test]
fn a_table_with_a_status_has_its_dead_rows_marked_as_such_and_replay_brings_them_back() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    let outbox = Outbox::on(&stage, "statuses");
    outbox.sql(
        "CREATE TYPE state AS ENUM ('pending', 'sent', 'failed');
         CREATE TABLE outbox_messages (id int PRIMARY KEY, type text, content jsonb, headers jsonb,
           occurred_on_utc timestamptz DEFAULT now(), status state NOT NULL DEFAULT 'pending', error text);
         INSERT INTO outbox_messages (id, type, content, headers) VALUES
           (1, 's', '{}', 'null'), (2, 's', '{}', '[]'), (3, 's', '{}', NULL)",
    );
    outbox.take("s", 0);
    let marks =
        ["--processed-column", "status", "--processed-value", "sent", "--dead-value", "failed"];
    let more = ["--headers-column", "headers", "--pending-where", "status = 'pending'"];
    let all = [&marks[..], &more].concat();
    let states = "SELECT string_agg(id || ' ' || status, ', ' ORDER BY id) FROM outbox_messages";
    let mut relay = outbox.run("run", &all);
    assert_eq!(outbox.take("s", 2).len(), 2);
    until("each has its mark", || outbox.sql(states) == "1 sent, 2 failed, 3 sent");
    let error = outbox.sql("SELECT error FROM outbox_messages WHERE id = 2");
    assert!(error.contains("not a JSON object"), "{error}");
    outbox.sql("UPDATE outbox_messages SET headers = '{}' WHERE id = 2");
    outbox.says("replay", &[&all[..], &["--all-dead", "--yes"]].concat());
    until("it is sent, too", || outbox.sql(states) == "1 sent, 2 sent, 3 sent");
    outbox.take("s", 1);
    done(relay.terminate(TIMEOUT));

    // Without a mark of their own, dead rows stay as they are: they were not sent.
    outbox.sql(
        "INSERT INTO outbox_messages (id, type, content, headers) VALUES (4, 's', '{}', '[]')",
    );
    let without = [&marks[..4], &more].concat();
    let mut relay = outbox.run("without", &without);
    let dead =
        "SELECT count(*) FROM millrace.relay_failures WHERE row_id = '4' AND dead_at IS NOT NULL";
    until("it is dead", || outbox.sql(dead) == "1");
    assert_eq!(outbox.sql("SELECT status FROM outbox_messages WHERE id = 4"), "pending");
    outbox.sql("UPDATE outbox_messages SET headers = NULL WHERE id = 4");
    outbox.says("replay", &[&without[..], &["--all-dead", "--yes"]].concat());
    assert_eq!(outbox.take("s", 1)[0].properties.message_id().as_ref().unwrap().as_str(), "4");
    until("it is sent", || outbox.sql(states).ends_with("4 sent"));
    outbox
        .sql("UPDATE outbox_messages SET occurred_on_utc = now() - interval '8 days' WHERE id < 3");
    let purged = outbox.says("purge", &[&without[..], &["--older-than", "7d"]].concat());
    assert!(purged.contains("2 rows deleted"), "{purged}");
    done(relay.terminate(TIMEOUT));
}

#[test]
fn columns_become_headers_and_properties_from_the_table_and_from_the_log() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    for (name, source) in [("by_poll", "poll"), ("by_log", "wal")] {
        let outbox = Outbox::on(&stage, name);
        outbox.sql(
            "CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text,
               tenant int, trace text, correlation text, media text, urgency int, ttl bigint);
             INSERT INTO outbox VALUES (1, 'order', 'o-7', 'paid', '<x/>', 5, 'ab-1', 'c-1', 'text/xml', 3, 600000),
               (2, 'order', 'o-8', 'paid', '{}', NULL, NULL, NULL, NULL, NULL, NULL),
               (3, 'order', 'o-9', 'paid', '{}', NULL, NULL, NULL, NULL, 300, NULL)",
        );
        let queue = format!("outbox.event.{name}");
        outbox.take(&queue, 0);
        let columns = "aggregateid, tenant, trace = traceparent";
        let words = ["--preset", "debezium", "--source", source, "--header-columns", columns];
        let more = ["--correlation-id-column", "correlation", "--content-type-column", "media"];
        let rest =
            ["--priority-column", "urgency", "--expiration-column", "ttl", "--routing-key", &queue];
        let relay = outbox.run("run", &[&words[..], &more, &rest].concat());
        let mut messages = outbox.take(&queue, 2);
        messages
            .sort_by_key(|message| message.properties.message_id().clone().unwrap().to_string());
        let [first, second] = &messages[..] else { panic!("there are two") };
        let headers =
            |of: &Message| ["aggregateid", "tenant", "traceparent"].map(|it| of.header(it));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(headers(first), [some("o-7"), some("5"), some("ab-1")], "{source}");
        assert_eq!(headers(second), [some("o-8"), None, None], "{source}");
        let properties = |of: &Message| {
            let text = |text: &Option<lapin::types::ShortString>| {
                text.as_ref().map(|text| text.to_string())
            };
            let of = &of.properties;
            (
                text(of.correlation_id()),
                text(of.content_type()),
                *of.priority(),
                text(of.expiration()),
            )
        };
        let wanted = (some("c-1"), some("text/xml"), Some(3), some("600000"));
        assert_eq!(properties(first), wanted, "{source}");
        assert_eq!(properties(second), (None, some("application/json"), None, None), "{source}");
        let dead =
            "SELECT row_id || ' ' || error FROM millrace.relay_failures WHERE dead_at IS NOT NULL";
        until("what is no priority is set aside", || {
            outbox.sql(dead).starts_with("3 the priority is `300`")
        });
        drop(relay);
    }
}

#[test]
fn a_column_that_is_renamed_for_a_while_does_not_stop_a_relay_that_reads_the_log() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    let outbox = Outbox::on(&stage, "renamed");
    outbox.sql(TABLE);
    outbox.take("t", 0);
    let mut relay = outbox.run("run", &["--source", "wal"]);
    until("it reads the log", || relay.last_words().contains("reading the log"));
    let insert = |column: &str, body: u32| {
        outbox.sql(&format!("INSERT INTO outbox_messages (type, {column}) VALUES ('t', '{body}')"));
    };
    insert("content", 1);
    assert_eq!(outbox.take("t", 1)[0].text(), "1");
    outbox.sql("ALTER TABLE outbox_messages RENAME content TO body");
    insert("body", 2);
    outbox.sql("ALTER TABLE outbox_messages RENAME body TO content");
    insert("content", 3);
    let bodies: Vec<String> =
        outbox.take("t", 2).into_iter().map(|message| message.text().to_owned()).collect();
    assert_eq!(bodies, ["2", "3"]);
    done(relay.terminate(TIMEOUT));
    // One that was away meanwhile reads the same.
    outbox.sql("ALTER TABLE outbox_messages RENAME content TO body");
    insert("body", 4);
    outbox.sql("ALTER TABLE outbox_messages RENAME body TO content");
    let mut relay = outbox.run("again", &["--source", "wal"]);
    assert_eq!(outbox.take("t", 1)[0].text(), "4");
    done(relay.terminate(TIMEOUT));
}

#[test]
fn what_row_level_security_hides_is_told_and_a_pooler_is_refused_before_there_is_a_slot() {
    let Some(stage) = stage(Kind::Millrace) else { return };
    let outbox = Outbox::on(&stage, "guarded");
    outbox.sql(TABLE);
    let address = stage.postgres.url_of(outbox.name);
    let server = format!("127.0.0.1:{}", stage.postgres.port());
    let pooler = between::pooler(server.parse().unwrap());
    let through = address.replace(&server, &pooler.to_string());
    let mut words = outbox.words("run", &["--source", "wal"]);
    words[3] = through;
    let log = stage.dir.join("pooled.txt");
    let mut relay = done(Relay::start(&stage.millrace, &words, &log));
    assert!(!done(relay.wait(TIMEOUT)).success());
    assert!(relay.last_words().contains("connection pooler"), "{}", relay.last_words());
    assert_eq!(outbox.sql("SELECT count(*) FROM pg_replication_slots"), "0");

    outbox.sql(
        "ALTER TABLE outbox_messages ENABLE ROW LEVEL SECURITY; CREATE ROLE seer LOGIN SUPERUSER; CREATE ROLE hidden LOGIN",
    );
    outbox.says("install", &["--grant-to", "hidden"]);
    for (role, is_told) in [("seer", false), ("hidden", true)] {
        let mut words = outbox.words("run", &[]);
        words[3] = address.replace("postgres@", &format!("{role}@"));
        let log = stage.dir.join(format!("{role}.txt"));
        let mut relay = done(Relay::start(&stage.millrace, &words, &log));
        done(relay.wait_open());
        let said = relay.last_words();
        assert_eq!(said.contains("row-level security applies"), is_told, "{said}");
    }
}
