//! `millrace relay` is told to rest over HTTP: it leaves the database and the broker alone, and goes on when it is told.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "runs commands, and counts")]

#[path = "support/relay.rs"]
mod support;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use support::{done, stage};
use trials::chaos::broker::Kind;
use trials::relay::run::Asked;
use trials::relay::{Plan, Run, Shape};

const SECRET: &str = "swordfish";

/// An answer, with its head.
fn ask(port: u16, line: &str, secret: &str) -> String {
    let mut text = String::new();
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let login = format!("Authorization: Bearer {secret}\r\n");
    write!(socket, "{line} HTTP/1.0\r\nHost: localhost\r\n{login}\r\n").unwrap();
    socket.read_to_string(&mut text).unwrap();
    text
}

/// What `/status` says of a name.
fn status(port: u16, name: &str) -> serde_json::Value {
    let told = ask(port, "GET /status", "");
    let body = told.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str::<serde_json::Value>(body).unwrap()[name].clone()
}

fn insert(run: &Run<'_>, rows: usize) {
    done(run.sql(&format!(
        "INSERT INTO outbox_messages (id, type, content, occurred_on_utc, aggregate, headers)
         SELECT gen_random_uuid(), 'order.paid', '{{}}', now(), 'a', '{{}}' FROM generate_series(1, {rows})"
    )));
}

/// Sessions that the relay has at the database.
fn sessions(run: &Run<'_>) -> String {
    done(
        run.sql(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'millrace-relay%'",
        ),
    )
}

#[test]
fn a_relay_rests_when_it_is_told_and_publishes_nothing_twice_when_it_goes_on() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    for shape in [Shape::poll(Asked::Key), Shape::wal(Asked::Key)] {
        let port = trials::ports::free().unwrap();
        let file = support::dir().join(format!("orders-{port}"));
        std::fs::write(&file, format!("{SECRET}\n")).unwrap();
        let metrics = format!("127.0.0.1:{port}");
        let file_name = file.to_str().unwrap();
        let shape = shape.with(&["--metrics", &metrics, "--orders-secret-file", file_name]);
        let mut run = done(Run::prepare(&mut stage, shape, Plan::usual(31)));
        run.take();
        done(run.start_relay());
        insert(&run, 50);
        done(run.until("the first rows are confirmed", |_| status(port, "confirmed") == 50));

        assert!(ask(port, "PUT /pause", "guess").starts_with("HTTP/1.0 401"));
        assert_eq!(status(port, "is_paused"), false);
        let paused = ask(port, "PUT /pause", SECRET);
        assert!(paused.starts_with("HTTP/1.0 200"), "{paused}");
        assert_eq!(status(port, "is_paused"), true);
        assert!(ask(port, "GET /ready", "").contains("paused"));
        insert(&run, 50);
        done(run.until("the relay has left the database", |run| sessions(run) == "0"));
        assert_eq!(status(port, "confirmed"), 50, "what came since waits");

        let resumed = ask(port, "DELETE /pause", SECRET);
        assert!(resumed.ends_with("{\"is_paused\":false}"), "{resumed}");
        done(run.until("all rows are confirmed", |_| status(port, "confirmed") == 100));
        let told = ask(port, "PUT /pause", SECRET);
        assert!(told.starts_with("HTTP/1.0 200"), "{told}");
        assert_eq!(status(port, "confirmed"), 100, "nothing was published twice");
        done(run.end_relays());
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn orders_need_a_secret_and_an_address() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let empty = support::dir().join(format!("orders-empty-{}", std::process::id()));
    std::fs::write(&empty, "\n").unwrap();
    let empty_name = empty.to_str().unwrap();
    for (words, why) in [
        (vec!["--orders-secret-file", empty_name], "none is set"),
        (vec!["--orders-secret-file", empty_name, "--metrics", "127.0.0.1:0"], "is empty"),
        (vec!["--orders-secret-file", "/nowhere", "--metrics", "127.0.0.1:0"], "cannot be read"),
    ] {
        let shape = Shape::poll(Asked::None).with(&words);
        let mut run = done(Run::prepare(&mut stage, shape, Plan::usual(32)));
        done(run.launch_relay());
        let mut relay = run.relays.remove(0);
        let ended = done(relay.wait(std::time::Duration::from_secs(60)));
        assert!(!ended.success() && relay.last_words().contains(why), "{}", relay.last_words());
    }
    std::fs::remove_file(&empty).unwrap();
}
