//! The HTTP API of a node: who may ask what, and that what is asked happens.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

mod at;
mod audit;
mod cluster;
mod companions;
mod console;
mod definitions;
mod events;
mod explain;
mod held;
mod live;
mod locks;
mod marks;
mod orders;
mod pause;
mod pause_consumer;
mod peek;
mod positions;
mod rates;
mod retry;
mod rules;
mod seen;
mod single_active;
mod traces;
mod unpurge;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::{Connection, Error, Options, QueueSpec, Url};
use serde_json::{Value, json};

use crate::node::{Node, free_address, until};

const GUEST: (&str, &str) = ("guest", "guest");

/// A node with the API.
struct Managed {
    node: Node,
    address: String,
}

/// Status, headers and body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// Sends a request to the API, with these lines of headers for its login.
pub(crate) fn send(address: &str, login: &str, method: &str, path: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "{method} /api{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{login}content-length: \
         {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let mut byte = [0];
    while !answer.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(char::from(byte[0]));
    }
    // A live stream has no end.
    if !answer.contains("text/event-stream") {
        stream.read_to_string(&mut answer).unwrap();
    }
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() };
    Answer { status, head: head.to_owned(), body }
}

/// The headers of a user's login.
pub(crate) fn basic(name: &str, password: &str) -> String {
    let login = STANDARD.encode(format!("{name}:{password}"));
    format!("authorization: Basic {login}\r\n")
}

impl Managed {
    fn start(name: &str) -> Self {
        let address = free_address();
        let node = Node::start_with(name, &["--http", &address]);
        Self { node, address }
    }

    /// A node of a cluster, with the API added by a restart.
    fn of(mut node: Node) -> Self {
        let address = free_address();
        node.add_arguments(&["--http", &address]);
        node.crash();
        Self { node, address }
    }

    /// Sends a request, as `user` if there is one.
    fn ask(&self, user: Option<(&str, &str)>, method: &str, path: &str, body: &str) -> Answer {
        let login = user.map_or(String::new(), |(name, password)| basic(name, password));
        send(&self.address, &login, method, path, body)
    }

    fn guest(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask(Some(GUEST), method, path, &body)
    }

    /// Does what must succeed.
    fn done(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.guest(method, path, body);
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.body);
        answer.body
    }

    /// The same as soon as the cluster has agreed on the newest version, a moment after its start.
    fn done_at_last(&self, method: &str, path: &str, body: &Value) {
        until("the newest version is agreed on", || {
            let answer = self.guest(method, path, body);
            let is_early = answer.body["reason"].as_str().is_some_and(|it| it.contains("version"));
            assert!(is_early || answer.status < 300, "{method} {path}: {}", answer.body);
            !is_early
        });
    }

    fn make_user(&self, name: &str, tags: &str, vhosts: &[&str]) {
        self.done("PUT", &format!("/users/{name}"), &json!({ "password": "secret", "tags": tags }));
        let all = json!({ "configure": ".*", "write": ".*", "read": ".*" });
        for vhost in vhosts {
            self.done("PUT", &format!("/permissions/{vhost}/{name}"), &all);
        }
    }

    async fn connect(&self, user: &str, password: &str, vhost: &str) -> Result<Connection, Error> {
        let (user, password) = (user.to_owned(), password.to_owned());
        let url = Url { user, password, vhost: vhost.to_owned(), ..self.node.url.clone() };
        Connection::open(&url, &Options::named("management")).await
    }
}

/// A connection, once there is room for it and its user is known there.
async fn until_connected(managed: &Managed, user: &str, password: &str) -> Connection {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        match managed.connect(user, password, "/").await {
            Ok(connection) => return connection,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
    }
}

/// A path of the table with something for each of its parts.
fn filled(path: &str, vhost: &str) -> String {
    let path = path.replace("{vhost}", vhost);
    let parts = [
        "user",
        "policy",
        "queue",
        "exchange",
        "source",
        "destination",
        "key",
        "connection",
        "channel",
        "node",
        "limit",
        "component",
        "lock",
        "retry",
    ];
    let path =
        parts.iter().fold(path, |path, part| path.replace(&format!("{{{part}}}"), "nothing"));
    path.replace("{port}", "1")
        .replace("{protocol}", "amqp")
        .replace("{count}", "1")
        .replace("{unit}", "days")
}

/// Every route: without a login, with a wrong password, of a user without tags, into a vhost of others, and by who
/// may change nothing, it is refused, and nothing of it is done; who administrates is never refused.
#[test]
fn every_route_refuses_whom_it_must() {
    let managed = Managed::start("management-access");
    for vhost in ["own", "foreign"] {
        managed.done("PUT", &format!("/vhosts/{vhost}"), &json!({}));
    }
    managed.make_user("tagless", "", &["own", "foreign"]);
    managed.make_user("manager", "management", &["own"]);
    managed.make_user("watcher", "monitoring", &["own"]);
    managed.make_user("maker", "policymaker", &["own"]);
    managed.make_user("reader", "administrator,read-only", &["own", "foreign"]);
    managed.make_user("peeker", "peek,read-only", &["own"]);
    managed.make_user("boss", "administrator", &[]);
    let secret = |name| Some((name, "secret"));
    let mut count = 0;
    for (method, path) in management::paths() {
        count += 1;
        let own = filled(path, "own");
        let what = format!("{method} {path}");
        let status = |user, path: &str| managed.ask(user, method, path, "{}").status;
        let nobody = managed.ask(None, method, &own, "{}");
        assert_eq!(nobody.status, 401, "{what}: nobody");
        assert!(nobody.head.to_lowercase().contains("www-authenticate: basic"), "{}", nobody.head);
        assert_eq!(status(secret("tagless"), &own), 401, "{what}: without tags");
        if method != "GET" {
            assert_eq!(status(secret("reader"), &own), 401, "{what}: read-only");
        }
        if path.contains("{vhost}") {
            let foreign = filled(path, "foreign");
            assert_eq!(status(secret("manager"), &foreign), 401, "{what}: foreign vhost");
            if method != "GET" {
                assert_eq!(status(secret("watcher"), &foreign), 401, "{what}: who only watches");
            }
        }
        let secret_parts = [
            "/users",
            "/permissions",
            "/topic-permissions",
            "/user-limits",
            "/definitions",
            "/millrace/audit",
        ];
        if secret_parts.iter().any(|part| path.starts_with(part)) {
            for user in ["manager", "watcher"] {
                assert_eq!(status(secret(user), &own), 401, "{what}: {user}");
            }
        }
        let of_nodes = [
            "/millrace/history",
            "/millrace/history/nodes/{node}",
            "/millrace/marks",
            "/millrace/reconcile",
        ];
        if of_nodes.contains(&path) {
            assert_eq!(status(secret("manager"), &own), 401, "{what}: who sees no nodes");
        }
        let is_pause = path.contains("{vhost}") && path.ends_with("/pause");
        if path.starts_with("/policies/{vhost}") || is_pause {
            assert_ne!(status(secret("maker"), &own), 401, "{what}: who makes policies");
            assert_eq!(status(secret("maker"), &filled(path, "foreign")), 401, "{what}: elsewhere");
            assert_eq!(status(secret("manager"), &own), 401, "{what}: who makes none");
        }
        if path.ends_with("/messages") {
            for user in ["manager", "watcher", "maker"] {
                assert_eq!(status(secret(user), &own), 401, "{what}: {user} sees no payloads");
            }
            assert_eq!(status(secret("peeker"), &own), 404, "{what}: who may look, at nothing");
            let foreign = filled(path, "foreign");
            assert_eq!(status(secret("peeker"), &foreign), 401, "{what}: elsewhere");
        }
        if method == "GET" {
            assert_ne!(status(secret("boss"), &own), 401, "{what}: who administrates");
        }
    }
    assert!(count > 60, "the table has {count} routes");
    let wrong = managed.ask(Some(("manager", "wrong")), "GET", "/whoami", "");
    assert_eq!((wrong.status, &wrong.body["error"]), (401, &json!("not_authorized")));
    let hidden = managed.ask(secret("manager"), "GET", "/vhosts", "");
    assert_eq!(hidden.body.as_array().unwrap().len(), 1, "{}", hidden.body);
}

/// A second user, another vhost, another password: with them a client can work, without them it cannot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_is_made_can_connect_and_do_what_it_may() {
    let managed = Managed::start("management-users");
    assert!(managed.connect("ann", "secret", "shop").await.is_err());
    managed.done("PUT", "/vhosts/shop", &json!({}));
    managed.done("PUT", "/users/ann", &json!({ "password": "secret", "tags": [] }));
    assert!(managed.connect("ann", "secret", "shop").await.is_err(), "no permissions yet");
    let own = json!({ "configure": "^ann\\.", "write": "^ann\\.", "read": "^ann\\." });
    managed.done("PUT", "/permissions/shop/ann", &own);
    let mut ann = managed.connect("ann", "secret", "shop").await.unwrap();
    ann.declare_queue(&QueueSpec::durable("ann.jobs")).await.unwrap();
    let refused = ann.declare_queue(&QueueSpec::durable("bob.jobs")).await.unwrap_err();
    assert_eq!(refused.code(), Some(403));
    managed.done("PUT", "/users/ann", &json!({ "password": "other", "tags": [] }));
    assert!(managed.connect("ann", "secret", "shop").await.is_err(), "the password was changed");
    let mut other = managed.connect("ann", "other", "shop").await.unwrap();
    managed.done("DELETE", "/permissions/shop/ann", &Value::Null);
    let refused = other.purge_queue("ann.jobs").await.unwrap_err();
    assert_eq!(refused.code(), Some(403), "a change counts for open connections");
    assert!(managed.connect("ann", "other", "shop").await.is_err(), "no permissions any more");
    managed.done("DELETE", "/users/ann", &Value::Null);
    let closed = other.look_up_queue("ann.jobs").await.unwrap_err();
    assert_eq!(closed.code(), Some(320), "{closed:?}");
    assert_eq!(managed.guest("GET", "/users/ann", &Value::Null).status, 404);
    managed.done("DELETE", "/vhosts/shop", &Value::Null);
    assert_eq!(managed.guest("GET", "/vhosts/shop", &Value::Null).status, 404);
}

/// A queue is made, bound, published to, looked at, emptied and deleted over HTTP, by the rules for clients.
#[test]
fn queues_exchanges_bindings_and_messages() {
    let managed = Managed::start("management-topology");
    let spec = json!({ "durable": true, "arguments": { "x-max-length": 100 } });
    assert_eq!(managed.guest("PUT", "/queues/%2F/jobs", &spec).status, 201);
    assert_eq!(managed.guest("PUT", "/queues/%2F/jobs", &spec).status, 204);
    let other = managed.guest("PUT", "/queues/%2F/jobs", &json!({ "durable": true }));
    assert_eq!(other.status, 400);
    assert!(other.body["reason"].as_str().unwrap().contains("inequivalent arg 'x-max-length'"));
    managed.done("PUT", "/exchanges/%2F/orders", &json!({ "type": "topic" }));
    let bind = json!({ "routing_key": "eu.#", "arguments": {} });
    let bound = managed.guest("POST", "/bindings/%2F/e/orders/q/jobs", &bind);
    assert_eq!(bound.status, 201);
    let found = bound.head.to_lowercase();
    assert!(found.contains("location: jobs/eu.%2523"), "{found}");
    let bindings = managed.done("GET", "/bindings/%2F/e/orders/q/jobs", &Value::Null);
    assert_eq!(bindings[0]["properties_key"], "eu.%23");
    let publish = |key: &str| {
        json!({
            "routing_key": key, "payload": "hello", "payload_encoding": "string",
            "properties": { "delivery_mode": 2, "headers": { "n": 1 }, "message_id": "m" },
        })
    };
    let path = "/exchanges/%2F/orders/publish";
    assert_eq!(managed.done("POST", path, &publish("eu.de")), json!({ "routed": true }));
    assert_eq!(managed.done("POST", path, &publish("us")), json!({ "routed": false }));
    let queue = managed.done("GET", "/queues/%2F/jobs", &Value::Null);
    assert_eq!((&queue["messages"], &queue["messages_ready"]), (&json!(1), &json!(1)), "{queue}");
    assert_eq!((&queue["type"], &queue["state"]), (&json!("classic"), &json!("running")));
    let get = |mode: &str| {
        let body = json!({ "count": 5, "ackmode": mode, "encoding": "auto" });
        managed.done("POST", "/queues/%2F/jobs/get", &body)
    };
    let got = get("ack_requeue_true");
    assert_eq!(got[0]["payload"], "hello");
    assert_eq!(got[0]["properties"]["headers"]["n"], 1);
    assert_eq!((&got[0]["exchange"], &got[0]["routing_key"]), (&json!("orders"), &json!("eu.de")));
    assert_eq!(get("ack_requeue_false")[0]["redelivered"], true);
    assert_eq!(get("ack_requeue_true"), json!([]));
    managed.done("POST", path, &publish("eu.fr"));
    assert_eq!(managed.guest("DELETE", "/queues/%2F/jobs?if-empty=true", &Value::Null).status, 400);
    managed.done("DELETE", "/queues/%2F/jobs/contents", &Value::Null);
    managed.done("DELETE", "/bindings/%2F/e/orders/q/jobs/eu.%2523", &Value::Null);
    assert_eq!(managed.done("GET", "/bindings/%2F/e/orders/q/jobs", &Value::Null), json!([]));
    managed.done("DELETE", "/queues/%2F/jobs?if-empty=true", &Value::Null);
    managed.done("DELETE", "/exchanges/%2F/orders", &Value::Null);
    assert_eq!(managed.guest("GET", "/queues/%2F/jobs", &Value::Null).status, 404);
    assert_eq!(managed.done("GET", "/aliveness-test/%2F", &Value::Null)["status"], "ok");
}

#[test]
fn lists_have_pages_names_an_order_and_columns() {
    let managed = Managed::start("management-lists");
    for number in 0..25 {
        let path = format!("/queues/%2F/queue-{number:02}");
        managed.done("PUT", &path, &json!({ "durable": true }));
    }
    let page =
        managed.done("GET", "/queues?page=2&page_size=10&name=queue-&columns=name", &Value::Null);
    assert_eq!(page["items"][0], json!({ "name": "queue-10" }));
    assert_eq!((&page["filtered_count"], &page["page_count"]), (&json!(25), &json!(3)));
    let named =
        managed.done("GET", "/queues/%2F?page=1&name=%5Equeue-0&use_regex=true", &Value::Null);
    assert_eq!(named["filtered_count"], 10);
    let none = managed.done("GET", "/queues/%2F?page=1&name=nothing", &Value::Null);
    assert_eq!((&none["items"], &none["page_count"]), (&json!([]), &json!(0)));
    let wrong = managed.guest("GET", "/queues/%2F?page=1&page_size=501", &Value::Null);
    assert_eq!(wrong.body["error"], "invalid_pagination_parameters", "{}", wrong.body);
    let last =
        managed.done("GET", "/queues?sort=name&sort_reverse=true&columns=name", &Value::Null);
    assert_eq!(last[0]["name"], "queue-24");
    let page = "/queues?page=1&page_size=2&sort_reverse=true";
    let last = managed.done("GET", &format!("{page}&sort=name"), &Value::Null);
    assert_eq!((&last["items"][0]["name"], &last["page_count"]), (&json!("queue-24"), &json!(13)));
    let publish = json!({
        "routing_key": "queue-07", "payload": "x", "payload_encoding": "string", "properties": {}
    });
    managed.done("POST", "/exchanges/%2F/amq.default/publish", &publish);
    // The order by a count is that of a picture, which may be a second old.
    until("the queue with a message is the first of those with the most", || {
        let most = managed.done("GET", &format!("{page}&sort=messages"), &Value::Null);
        let first = &most["items"][0];
        (&first["name"], &first["messages_ready"]) == (&json!("queue-07"), &json!(1))
    });
    for wrong in ["page=0", "page=1&page_size=501", "page=9&page_size=10", "name=(&use_regex=true"]
    {
        assert_eq!(
            managed.guest("GET", &format!("/queues?page=1&{wrong}"), &Value::Null).status,
            400
        );
    }
}

/// An operator closes a connection, which is told why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_seen_and_closed() {
    let managed = Managed::start("management-connections");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    let listed = managed.done("GET", "/connections/", &Value::Null);
    let ours =
        listed.as_array().unwrap().iter().find(|it| it["user_provided_name"] == "management");
    let name = ours.unwrap()["name"].as_str().unwrap().to_owned();
    let path = format!("/connections/{}", name.replace(' ', "%20").replace('>', "%3E"));
    assert_eq!(managed.done("GET", &path, &Value::Null)["user"], "guest");
    managed.done("DELETE", &path, &Value::Null);
    let closed = client.look_up_queue("nothing").await.unwrap_err();
    assert_eq!(closed.code(), Some(320), "{closed:?}");
    until("the connection is in no list", || {
        managed.guest("GET", &path, &Value::Null).status == 404
    });
}

/// So many connections and no more; who has one is served all the same.
#[test]
fn connections_of_the_api_are_bounded_and_those_without_room_are_counted() {
    let (address, metrics) = (free_address(), free_address());
    let node = Node::start_with("management-crowd", &["--http", &address, "--metrics", &metrics]);
    let managed = Managed { node, address };
    let crowd: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(&managed.address).unwrap()).collect();
    let turned_away = || {
        let mut stream = TcpStream::connect(&metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let name = "millrace_http_turned_away_total ";
        let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        value.parse::<f64>().unwrap()
    };
    until("those without room are turned away", || turned_away() == 44.0);
    drop(crowd);
    until("there is room again", || {
        TcpStream::connect(&managed.address).is_ok_and(|mut stream| {
            stream.write_all(b"GET /api/whoami HTTP/1.1\r\nhost: x\r\n\r\n").is_ok()
                && stream.read(&mut [0; 1]).is_ok_and(|count| count > 0)
        })
    });
    assert_eq!(managed.guest("GET", "/whoami", &Value::Null).status, 200);
}

#[test]
fn bad_requests_are_answered_in_words_and_no_secret_is_shown() {
    let managed = Managed::start("management-bad");
    for (method, path, body) in [
        ("PUT", "/queues/%2F/jobs", "not json"),
        ("PUT", "/queues/%2F/jobs", r#"{"durable":"perhaps"}"#),
        ("PUT", "/queues/%2F/jobs", r#"{"arguments":{"x-max-length":-1}}"#),
        ("PUT", "/queues/%2F/amq.jobs", "{}"),
        ("PUT", "/exchanges/%2F/x", "{}"),
        ("PUT", "/exchanges/%2F/x", r#"{"type":"unknown"}"#),
        ("PUT", "/users/ann", r#"{"password":"x"}"#),
        ("PUT", "/users/ann", r#"{"password_hash":"no hash","tags":""}"#),
        ("PUT", "/permissions/%2F/guest", r#"{"configure":".*","write":".*"}"#),
        ("PUT", "/permissions/%2F/guest", r#"{"configure":"(","write":"","read":""}"#),
        ("POST", "/exchanges/%2F/amq.direct/publish", "{}"),
        ("POST", "/definitions", r#"{"queues":[{"name":"q"}]}"#),
        ("PUT", "/vhosts/traced", r#"{"tracing":"perhaps"}"#),
        ("PUT", "/vhosts/typed", r#"{"default_queue_type":"mirrored"}"#),
        ("PUT", "/users/ann", r#"{"password":"x","tags":"","limits":{"max-speed":1}}"#),
        ("POST", "/definitions", r#"{"vhosts":[{"name":"v","limits":[{"name":"max-queues"}]}]}"#),
        (
            "POST",
            "/definitions",
            r#"{"vhosts":[{"name":"v","metadata":{"default_queue_type":"mirrored"}}]}"#,
        ),
        (
            "POST",
            "/definitions",
            r#"{"parameters":[{"component":"shovel","vhost":"/","name":"s"}]}"#,
        ),
    ] {
        let answer = managed.ask(Some(GUEST), method, path, body);
        assert_eq!(answer.status, 400, "{method} {path} {body}: {}", answer.body);
        let reason = answer.body["reason"].as_str().unwrap();
        assert!(!reason.is_empty(), "{method} {path} {body}");
    }
    // AMQP cannot carry it: cut, it would name something else.
    let long = "q".repeat(256);
    let key = json!({ "routing_key": long, "payload": "", "payload_encoding": "string" });
    let bind = json!({ "routing_key": long });
    managed.done("PUT", "/queues/%2F/jobs", &json!({}));
    for (method, path, body) in [
        ("PUT", format!("/queues/%2F/{long}"), &json!({})),
        ("PUT", format!("/vhosts/{long}"), &json!({})),
        ("PUT", "/exchanges/%2F/x".to_owned(), &json!({ "type": long })),
        ("POST", "/exchanges/%2F/amq.direct/publish".to_owned(), &key),
        ("POST", "/bindings/%2F/e/amq.direct/q/jobs".to_owned(), &bind),
    ] {
        assert_eq!(managed.guest(method, &path, body).status, 400, "{method} {path}");
    }
    let body = "x".repeat(49 << 20);
    assert_eq!(managed.ask(Some(GUEST), "PUT", "/queues/%2F/jobs", &body).status, 413);
    assert_eq!(managed.guest("GET", "/vhosts/v", &Value::Null).status, 404, "nothing was imported");
    assert_eq!(managed.guest("GET", "/nothing", &Value::Null).status, 404);
    assert_eq!(managed.guest("GET", "/queues/none", &Value::Null).status, 404);
    assert_eq!(managed.guest("PATCH", "/vhosts", &Value::Null).status, 405);
    managed.make_user("ann", "", &[]);
    let canary = "c4n4ry-p4ssw0rd";
    managed.done("PUT", "/users/bob", &json!({ "password": canary, "tags": "administrator" }));
    let shown = managed.ask(Some(("bob", canary)), "GET", "/users", "").body.to_string();
    assert!(!shown.contains(canary), "{shown}");
}
