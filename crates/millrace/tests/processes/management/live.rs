//! Live streams: who is told what, how many there may be, and when they end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Managed, basic};
use crate::node::{TIMEOUT, until};

/// A stream of a user.
struct Live {
    reader: BufReader<TcpStream>,
    status: u16,
}

impl Live {
    fn open(managed: &Managed, user: &str, password: &str) -> Self {
        let mut stream = TcpStream::connect(&managed.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let login = basic(user, password);
        let request = format!(
            "GET /api/millrace/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{login}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        Self { reader, status }
    }

    /// The next event. `None`: the stream has ended.
    fn next(&mut self) -> Option<(String, Value)> {
        let mut name = None;
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // Lines of the head, and lengths of chunks, are neither.
            if let Some(found) = line.strip_prefix("event: ") {
                name = Some(found.trim().to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name.unwrap(), serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// Reads until an event is as it should be. All before it are given, too.
    fn until(&mut self, holds: impl Fn(&str, &Value) -> bool) -> Vec<(String, Value)> {
        let mut seen = Vec::new();
        loop {
            let (name, data) = self.next().expect("the stream goes on");
            let is_it = holds(&name, &data);
            seen.push((name, data));
            if is_it {
                return seen;
            }
        }
    }

    /// Vhosts and names of the queues of a snapshot, up to its end.
    fn snapshot(&mut self) -> Vec<(String, String)> {
        let seen = self.until(|name, _| name == "complete");
        let queues = seen.iter().filter(|(name, _)| name == "queues");
        let new = queues.flat_map(|(_, data)| data["new"].as_array().cloned().unwrap_or_default());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        new.map(|row| (text(&row[1]), text(&row[2]))).collect()
    }
}

fn names(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(vhost, name)| ((*vhost).to_owned(), (*name).to_owned())).collect()
}

/// A stream tells all queues that its user sees, then what changes; it begins again when the user sees others, and ends
/// when its rights go.
#[test]
fn a_stream_tells_what_its_user_sees_and_ends_with_its_rights() {
    let managed = Managed::start("management-live");
    for vhost in ["own", "foreign"] {
        managed.done("PUT", &format!("/vhosts/{vhost}"), &json!({}));
        let path = format!("/permissions/{vhost}/guest");
        let all = json!({ "configure": ".*", "write": ".*", "read": ".*" });
        managed.done("PUT", &path, &all);
        managed.done("PUT", &format!("/queues/{vhost}/jobs"), &json!({ "durable": true }));
    }
    managed.make_user("ann", "management", &["own"]);
    let mut all = Live::open(&managed, "guest", "guest");
    let mut own = Live::open(&managed, "ann", "secret");
    assert_eq!((all.status, own.status), (200, 200));
    let mut found = all.snapshot();
    found.sort();
    assert_eq!(found, names(&[("foreign", "jobs"), ("own", "jobs")]));
    assert_eq!(own.snapshot(), names(&[("own", "jobs")]));

    let publish = json!({
        "routing_key": "jobs", "payload": "x", "payload_encoding": "string", "properties": {}
    });
    for vhost in ["foreign", "own"] {
        let path = format!("/exchanges/{vhost}/amq.default/publish");
        assert_eq!(managed.done("POST", &path, &publish), json!({ "routed": true }));
    }
    let has_message = |name: &str, data: &Value| {
        let rows = data["changed"].as_array().map(Vec::as_slice).unwrap_or_default();
        name == "queues" && rows.iter().any(|row| row[1] == 1)
    };
    let seen = own.until(has_message);
    let (_, changed) = seen.last().unwrap();
    assert_eq!(changed["changed"].as_array().unwrap().len(), 1, "of its vhost alone: {changed}");
    assert!(seen.iter().all(|(name, _)| name != "nodes"), "who monitors nothing sees no nodes");
    let seen = all.until(|name, data| name == "nodes" && data["nodes"][0]["running"] == true);
    assert!(!seen.is_empty());
    managed.done("DELETE", "/queues/own/jobs", &Value::Null);
    own.until(|name, data| name == "queues" && data["gone"].is_array());

    let all_rights = json!({ "configure": ".*", "write": ".*", "read": ".*" });
    managed.done("PUT", "/permissions/foreign/ann", &all_rights);
    own.until(|name, _| name == "begin");
    assert_eq!(own.snapshot(), names(&[("foreign", "jobs")]));
    managed.done("PUT", "/users/ann", &json!({ "password": "other", "tags": "management" }));
    let end = own.until(|name, _| name == "end");
    assert!(end.last().unwrap().1["reason"].as_str().is_some_and(|it| !it.is_empty()));
    assert!(own.next().is_none(), "it has ended");
    managed.done("DELETE", "/queues/foreign/jobs", &Value::Null);
    all.until(|name, data| name == "queues" && data["gone"].is_array());
}

/// So many streams and no more; requests are answered all the same.
#[test]
fn streams_are_bounded_and_who_has_no_room_is_told() {
    let managed = Managed::start("management-live-crowd");
    let crowd: Vec<Live> = (0..64).map(|_| Live::open(&managed, "guest", "guest")).collect();
    assert!(crowd.iter().all(|live| live.status == 200));
    let refused = managed.guest("GET", "/millrace/live", &Value::Null);
    assert_eq!(refused.status, 503);
    let reason = refused.body["reason"].as_str().unwrap();
    assert!(reason.contains("64 live streams are open at this node"), "{reason}");
    assert_eq!(managed.guest("GET", "/whoami", &Value::Null).status, 200);
    drop(crowd);
    until("there is room again", || Live::open(&managed, "guest", "guest").status == 200);
}

/// A stream tells who paused a queue, how long its oldest message waits at least, and what is wrong: as it comes, without
/// being asked for. Lists can be sorted by that age.
#[test]
fn a_stream_tells_of_pauses_of_ages_and_of_problems() {
    let managed = Managed::start("management-live-more");
    let bounded = json!({ "durable": true, "arguments": { "x-max-length-bytes": 10_000_000 } });
    managed.done("PUT", "/queues/%2F/left", &bounded);
    managed.done("PUT", "/queues/%2F/empty", &json!({ "durable": true }));
    let mut live = Live::open(&managed, "guest", "guest");
    let begun = live.until(|name, _| name == "complete");
    let columns = begun.iter().find(|(name, _)| name == "begin").unwrap().1["columns"].clone();
    let place = |column: &str| {
        let mut columns = columns.as_array().unwrap().iter();
        columns.position(|it| it == column).unwrap()
    };
    let (oldest, bytes) = (place("oldest_ready_at"), place("ready_bytes"));
    // What is wrong while a node starts is told, and that it is over.
    let is_well = |name: &str, data: &Value| name == "problems" && data["verdict"] == "ok";
    if !begun.iter().any(|(name, data)| is_well(name, data)) {
        live.until(is_well);
    }
    let row_of = |data: &Value, part: &str, holds: &dyn Fn(&Value) -> bool| {
        let rows = data[part].as_array().cloned().unwrap_or_default();
        rows.into_iter().any(|row| holds(&row))
    };

    let message = json!({ "routing_key": "left", "payload": "12345", "payload_encoding": "string", "properties": {} });
    for _ in 0..1_100 {
        managed.done("POST", "/exchanges/%2F/amq.default/publish", &message);
    }
    live.until(|name, data| {
        let is_told = |row: &Value| row[oldest].is_u64() && row[bytes].as_u64() >= Some(5_500);
        name == "queues" && row_of(data, "changed", &is_told)
    });
    live.until(|name, data| {
        name == "problems" && data["problems"][0]["kind"] == "queue_without_consumers"
    });
    managed.done("PUT", "/millrace/queues/%2F/left/pause", &Value::Null);
    let is_paused = |row: &Value| row[2] == "left" && row[3] == "classic" && row[4] == "guest";
    live.until(|name, data| name == "queues" && row_of(data, "new", &is_paused));
    managed.done("DELETE", "/millrace/queues/%2F/left/pause", &Value::Null);
    let goes_on = |row: &Value| row[2] == "left" && row[4].is_null();
    live.until(|name, data| name == "queues" && row_of(data, "new", &goes_on));

    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let one = managed.done("GET", "/queues/%2F/left", &Value::Null);
    let at = one["oldest_ready_at"].as_u64().unwrap();
    assert!(at <= now.as_millis() as u64 && at + 600_000 > now.as_millis() as u64, "{one}");
    let sorted = "/queues?sort=oldest_ready_at&columns=name,oldest_ready_at,message_bytes_ready";
    for query in [sorted.to_owned(), format!("{sorted}&page=1&page_size=10")] {
        let listed = managed.done("GET", &query, &Value::Null);
        let items = listed.get("items").unwrap_or(&listed).as_array().unwrap();
        assert_eq!(items[0]["oldest_ready_at"], at, "{listed}");
        assert!(items[0]["message_bytes_ready"].as_u64() >= Some(5_500), "{listed}");
        assert_eq!(items[1]["name"], "empty", "who has no age comes last: {listed}");
        assert!(items[1]["oldest_ready_at"].is_null(), "{listed}");
    }
}
