//! The HTTP API of a node: who may ask what, and that what is asked happens.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

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
    head: String,
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
    stream.read_to_string(&mut answer).unwrap();
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
        let secret_parts =
            ["/users", "/permissions", "/topic-permissions", "/user-limits", "/definitions"];
        if secret_parts.iter().any(|part| path.starts_with(part)) {
            for user in ["manager", "watcher"] {
                assert_eq!(status(secret(user), &own), 401, "{what}: {user}");
            }
        }
        if path.starts_with("/policies/{vhost}") {
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
    assert_eq!((wrong.status, &wrong.body["error"]), (401, &json!("not_authorised")));
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
    assert!(found.contains("location: /api/bindings/%2f/e/orders/q/jobs/eu.%2523"), "{found}");
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

/// Policies act on living queues: messages that are too many leave, dead letters go where the policy says, and without
/// it the queue is as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_acts_on_a_living_queue() {
    let managed = Managed::start("management-policies");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    for queue in ["jobs", "dead"] {
        client.declare_queue(&QueueSpec::durable(queue)).await.unwrap();
    }
    let fill = async |client: &mut Connection| {
        for body in ["one", "two", "three"] {
            let to = client::Address::queue("jobs");
            client.publish(to, &amqp::Properties::default(), body.as_bytes()).await.unwrap();
        }
    };
    fill(&mut client).await;
    let policy = |definition: Value| json!({ "pattern": "^jobs$", "definition": definition });
    let dead =
        json!({ "dead-letter-exchange": "", "dead-letter-routing-key": "dead", "max-length": 1 });
    managed.done_at_last("PUT", "/policies/%2F/short", &policy(dead.clone()));
    assert_eq!(managed.guest("PUT", "/policies/%2F/short", &policy(dead)).status, 204);
    let ready = |queue: &str| {
        let shown = managed.done("GET", &format!("/queues/%2F/{queue}"), &Value::Null);
        shown["messages_ready"].as_u64()
    };
    until("the queue is short", || ready("jobs") == Some(1));
    until("what left it is where the policy says", || ready("dead") == Some(2));
    let shown = managed.done("GET", "/queues/%2F/jobs", &Value::Null);
    assert_eq!(shown["policy"], "short");
    assert_eq!(shown["effective_policy_definition"]["max-length"], 1);
    let limit = policy(json!({ "max-length": 2 }));
    managed.done("PUT", "/operator-policies/%2F/limit", &limit);
    managed.done("DELETE", "/policies/%2F/short", &Value::Null);
    fill(&mut client).await;
    until("the operator's limit counts", || ready("jobs") == Some(2));
    managed.done("DELETE", "/operator-policies/%2F/limit", &Value::Null);
    fill(&mut client).await;
    until("there is no limit", || ready("jobs") == Some(5));
    for (wrong, why) in [
        (json!({ "pattern": "(", "definition": { "max-length": 1 } }), "regular expression"),
        (json!({ "pattern": "x", "definition": { "unknown": 1 } }), "not recognised"),
        (json!({ "pattern": "x", "definition": {} }), "no policy"),
        (json!({ "pattern": "x" }), "key_missing"),
        (
            json!({ "pattern": "x", "definition": { "max-length": 1 }, "apply-to": "all of it" }),
            "unrecognised",
        ),
        (
            json!({ "pattern": "x", "definition": { "max-length": 1 }, "priority": "high" }),
            "priority",
        ),
    ] {
        let answer = managed.guest("PUT", "/policies/%2F/wrong", &wrong);
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(answer.body["reason"].as_str().unwrap().contains(why), "{wrong}: {}", answer.body);
    }
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
    let last =
        managed.done("GET", "/queues?sort=name&sort_reverse=true&columns=name", &Value::Null);
    assert_eq!(last[0]["name"], "queue-24");
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

/// Definitions of one broker make another like it: also its users' passwords.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_go_from_one_broker_to_another() {
    let source = Managed::start("management-export");
    source.done("PUT", "/vhosts/shop", &json!({}));
    source.make_user("ann", "management", &["shop"]);
    source.done("PUT", "/users/bare", &json!({ "tags": "" }));
    let arguments = json!({ "x-queue-type": "quorum", "x-delivery-limit": 5 });
    source.done("PUT", "/queues/shop/jobs", &json!({ "durable": true, "arguments": arguments }));
    source.done("PUT", "/exchanges/shop/orders", &json!({ "type": "headers" }));
    let bind = json!({ "routing_key": "", "arguments": { "x-match": "any", "a": 1 } });
    source.done("POST", "/bindings/shop/e/orders/q/jobs", &bind);
    let policy =
        json!({ "pattern": "^jobs", "definition": { "max-length": 9 }, "apply-to": "queues" });
    source.done_at_last("PUT", "/policies/shop/short", &policy);
    source.done("PUT", "/operator-policies/shop/limit", &policy);
    source.done("PUT", "/vhost-limits/shop/max-queues", &json!({ "value": 7 }));
    source.done("PUT", "/user-limits/ann/max-channels", &json!({ "value": 9 }));
    let topic = json!({ "exchange": "amq.topic", "write": "^{username}", "read": "" });
    source.done("PUT", "/topic-permissions/shop/ann", &topic);
    let described = json!({ "description": "the shop", "tags": "live,eu" });
    source.done("PUT", "/vhosts/shop", &described);
    source.done("PUT", "/cluster-name", &json!({ "name": "east" }));
    let mut definitions = source.done("GET", "/definitions", &Value::Null);
    let target = Managed::start("management-import");
    target.done_at_last("POST", "/definitions", &definitions);
    target.done("POST", "/definitions", &definitions);
    assert_eq!(target.done("GET", "/definitions", &Value::Null), definitions);
    target.connect("ann", "secret", "shop").await.unwrap();

    definitions["global_parameters"] = json!([{ "name": "mqtt_port", "value": 1 }]);
    definitions["vhosts"] = json!([{ "name": "other" }]);
    let refused = target.guest("POST", "/definitions", &definitions);
    assert_eq!(refused.status, 400);
    let reason = refused.body["reason"].as_str().unwrap();
    assert!(reason.contains("'mqtt_port' is not supported"), "{reason}");
    assert_eq!(target.guest("GET", "/vhosts/other", &Value::Null).status, 404, "all or nothing");
}

/// A file of definitions is brought in before clients are served, again at each start; with its users `guest` is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_are_brought_in_at_the_start() {
    let address = free_address();
    let file = |dir: &std::path::Path| dir.with_extension("json");
    let mut definitions = json!({
        "users": [{ "name": "ann", "password": "secret", "tags": "administrator" }],
        "vhosts": [{ "name": "shop", "limits": [] }],
        "permissions": [
            { "user": "ann", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*" }
        ],
        "policies": [{
            "vhost": "shop", "name": "short", "pattern": "^jobs", "apply-to": "queues",
            "definition": { "max-length": 5 }, "priority": 0
        }],
        "queues": [{ "vhost": "shop", "name": "jobs", "durable": true, "arguments": {} }],
    });
    let path = file(&std::env::temp_dir().join(format!("millrace-boot-{}", std::process::id())));
    std::fs::write(&path, definitions.to_string()).unwrap();
    let given = path.to_str().unwrap();
    let arguments = ["--http", &address, "--definitions", given];
    let node = Node::start_with("management-boot", &arguments);
    let mut managed = Managed { node, address };
    let ann = Some(("ann", "secret"));
    let mut client = managed.connect("ann", "secret", "shop").await.unwrap();
    client.look_up_queue("jobs").await.unwrap();
    let shown = managed.ask(ann, "GET", "/queues/shop/jobs", "").body;
    assert_eq!(shown["policy"], "short");
    assert_eq!(managed.guest("GET", "/whoami", &Value::Null).status, 401, "guest is gone");

    // What clients have made since stays; what the file has more comes.
    definitions["queues"][0]["arguments"] = json!({ "x-max-length": 7 });
    definitions["vhosts"] = json!([{ "name": "shop" }, { "name": "other" }]);
    std::fs::write(&path, definitions.to_string()).unwrap();
    managed.node.crash();
    let shown = managed.ask(ann, "GET", "/queues/shop/jobs", "").body;
    assert_eq!(shown["arguments"], json!({}));
    assert_eq!(managed.ask(ann, "GET", "/vhosts/other", "").status, 200);

    definitions["users"] = json!([{ "name": "ann", "tags": 7 }]);
    std::fs::write(&path, definitions.to_string()).unwrap();
    managed.node.kill();
    let (code, said) = managed.node.run_to_its_end();
    assert_ne!(code, Some(0));
    assert!(said.contains("tags should be a string"), "{said}");
    std::fs::remove_file(&path).unwrap();
}

/// What is over a limit is refused in RabbitMQ's words, and room comes back; topic permissions say which keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_topic_permissions_are_obeyed() {
    let managed = Managed::start("management-limits");
    managed.done("PUT", "/vhosts/shop", &json!({}));
    managed.make_user("ann", "", &["shop"]);
    let set = |path: &str, value: i64| {
        managed.done_at_last("PUT", path, &json!({ "value": value }));
    };
    let connect = || managed.connect("ann", "secret", "shop");
    let refused = async |why: &str| {
        let error = connect().await.map(drop).unwrap_err();
        assert_eq!(error.code(), Some(530), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    };
    set("/user-limits/ann/max-connections", 2);
    let (one, mut two) = (connect().await.unwrap(), connect().await.unwrap());
    refused("user connection limit (2) is reached").await;
    drop(one);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let three = loop {
        match connect().await {
            Ok(connection) => break connection,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
    };
    set("/user-limits/ann/max-connections", -1);
    set("/vhost-limits/shop/max-connections", 1);
    refused("connection limit (1) is reached").await;
    let listed = managed.done("GET", "/vhost-limits", &Value::Null);
    assert_eq!(listed, json!([{ "vhost": "shop", "value": { "max-connections": 1 } }]));
    assert_eq!(managed.done("GET", "/user-limits", &Value::Null), json!([]));
    managed.done("DELETE", "/vhost-limits/shop/max-connections", &Value::Null);
    drop(three);

    set("/vhost-limits/shop/max-queues", 1);
    two.declare_queue(&QueueSpec::durable("one")).await.unwrap();
    let over = two.declare_queue(&QueueSpec::durable("two")).await.unwrap_err();
    assert_eq!(over.code(), Some(406));
    let over = over.to_string();
    assert!(over.contains("queue limit in vhost 'shop' (1) is reached"), "{over}");

    let topic = json!({ "exchange": "amq.topic", "write": "^{username}\\.", "read": "" });
    managed.done("PUT", "/topic-permissions/shop/ann", &topic);
    let mut ann = connect().await.unwrap();
    let to = |routing_key: &'static str| client::Address {
        exchange: "amq.topic",
        routing_key,
        mandatory: false,
    };
    ann.publish(to("ann.orders"), &amqp::Properties::default(), b"1").await.unwrap();
    let error = ann.publish(to("bob.orders"), &amqp::Properties::default(), b"1").await;
    assert_eq!(error.unwrap_err().code(), Some(403));
    managed.done("DELETE", "/topic-permissions/shop/ann", &Value::Null);
    let mut ann = connect().await.unwrap();
    ann.publish(to("bob.orders"), &amqp::Properties::default(), b"1").await.unwrap();

    for (path, value, why) in [
        ("/user-limits/ann/max-queues", json!(1), "no limit 'max-queues'"),
        ("/vhost-limits/shop/max-channels", json!(1), "no limit 'max-channels'"),
        ("/vhost-limits/shop/max-queues", json!("many"), "whole number"),
        ("/vhost-limits/shop/max-queues", json!(1u64 << 40), "whole number"),
        ("/vhost-limits/shop/max-queues", Value::Null, "missing"),
    ] {
        let answer = managed.guest("PUT", path, &json!({ "value": value }));
        assert_eq!(answer.status, 400, "{path} {value}");
        assert!(answer.body["reason"].as_str().unwrap().contains(why), "{path}: {}", answer.body);
    }
}

/// Whichever node is asked tells of the connections of all, and closes any; limits count over all nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_tells_of_all() {
    let nodes = Node::start_three("management-cluster").into_iter().map(Managed::of);
    let [one, mut two, three] = nodes.collect::<Vec<_>>().try_into().ok().unwrap();
    one.make_user("ann", "", &["%2F"]);
    let mut client = until_connected(&two, "ann", "secret").await;
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let names = |managed: &Managed, path: &str| -> Vec<String> {
        let shown = managed.done("GET", path, &Value::Null);
        let items = shown.as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    until("the connection is in the list of another node", || {
        names(&one, "/connections").len() == 1
    });
    let name = names(&one, "/connections").remove(0);
    let path = format!("/connections/{}", name.replace(' ', "%20").replace('>', "%3E"));
    let shown = one.done("GET", &path, &Value::Null);
    assert_eq!((&shown["node"], &shown["user"]), (&json!("millrace@2"), &json!("ann")));
    assert_eq!(one.done("GET", "/overview", &Value::Null)["object_totals"]["connections"], 1);
    let nodes = one.done("GET", "/nodes", &Value::Null);
    let running = nodes.as_array().unwrap().iter().map(|node| node["running"].clone());
    assert_eq!(running.collect::<Vec<_>>(), [json!(true), json!(true), json!(true)]);

    one.done_at_last("PUT", "/user-limits/ann/max-connections", &json!({ "value": 1 }));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // The others have said within seconds how many there are.
    while let Ok(connection) = three.connect("ann", "secret", "/").await {
        drop(connection);
        assert!(std::time::Instant::now() < deadline, "a second connection at another node");
    }
    one.done("DELETE", &path, &Value::Null);
    let closed = client.look_up_queue("jobs").await.unwrap_err();
    assert_eq!(closed.code(), Some(320), "{closed:?}");
    until("room comes back", || names(&one, "/connections").is_empty());
    let again = until_connected(&three, "ann", "secret").await;
    drop(again);
    two.node.kill();
    until("a node that is gone is not running", || {
        one.done("GET", "/nodes/millrace@2", &Value::Null)["running"] == json!(false)
    });
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

/// Messages are looked at wherever they are, by whoever may; then they come as if nobody had looked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_looked_at_and_nothing_is_taken() {
    let managed = Managed::start("management-peek");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let publish = async |client: &mut Connection, body: &[u8], delay: Option<i64>| {
        let kind = ("kind".to_owned(), amqp::FieldValue::LongStr(b"letter".to_vec()));
        let delay = delay.map(|ms| ("x-delay".to_owned(), amqp::FieldValue::I64(ms)));
        let raw = amqp::FieldTable([kind].into_iter().chain(delay).collect()).to_bytes();
        let headers = Some(amqp::TableRef::validate(&raw).unwrap());
        let properties = amqp::Properties { headers, ..amqp::Properties::default() };
        client.publish(client::Address::queue("jobs"), &properties, body).await.unwrap();
    };
    for body in [&b"one"[..], b"two", b"\xff\xfe", "f\u{fc}nf".as_bytes()] {
        publish(&mut client, body, None).await;
    }
    publish(&mut client, b"later", Some(3_600_000)).await;
    let mut holder = managed.connect("guest", "guest", "/").await.unwrap();
    let held = holder.get("jobs", false).await.unwrap().unwrap();
    assert_eq!(held.body, &b"one"[..]);

    let path = "/queues/%2F/jobs/messages";
    let look = |query: &str| managed.done("GET", &format!("{path}?{query}"), &Value::Null);
    let texts = |shown: &Value, field: &str| -> Vec<String> {
        let items = shown["items"].as_array().unwrap().iter();
        items.map(|item| item[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    let all = look("");
    assert_eq!(texts(&all, "state"), ["unacked", "ready", "ready", "ready", "delayed"]);
    assert_eq!(texts(&all, "payload"), ["one", "two", "//4=", "f\u{fc}nf", "later"]);
    assert_eq!(texts(&all, "position"), ["1", "2", "3", "4", "5"]);
    assert_eq!(all["next"], Value::Null);
    let [one, two, three, ..] = &all["items"].as_array().unwrap()[..] else { panic!("{all}") };
    assert_eq!((&two["exchange"], &two["routing_key"]), (&json!(""), &json!("jobs")));
    assert_eq!(two["properties"]["headers"]["kind"], "letter");
    assert_eq!(
        (&three["payload_encoding"], &three["payload_bytes"]),
        (&json!("base64"), &json!(2))
    );
    let connection = one["holder"]["connection"].as_str().unwrap();
    assert!(connection.starts_with("1-"), "{one}");
    assert_eq!(one["holder"]["user"], "guest");
    let listed = managed.done("GET", "/connections", &Value::Null);
    let listed = listed.as_array().unwrap().iter();
    let named = listed.filter(|it| it["millrace"]["id"] == one["holder"]["connection"]);
    let named: Vec<&Value> = named.map(|it| &it["name"]).collect();
    assert_eq!(named, [&one["holder"]["connection_name"]], "the connection that holds it");
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let came_ms = two["enqueued_at"].as_u64().unwrap();
    assert!(came_ms.abs_diff(now_ms.as_millis() as u64) < 600_000, "{came_ms}");

    assert_eq!(texts(&look("state=ready&count=1"), "payload"), ["two"]);
    assert_eq!(look("state=ready&count=1")["next"], "3");
    assert_eq!(texts(&look("from=3&state=ready"), "payload"), ["//4=", "f\u{fc}nf"]);
    assert_eq!(texts(&look("state=delayed"), "payload"), ["later"]);
    assert_eq!(texts(&look("contains=wo"), "payload"), ["two"]);
    assert_eq!(texts(&look("contains=letter&count=2"), "payload"), ["one", "two"]);
    let cut = look("from=4&count=1&truncate=2");
    assert_eq!(
        (&cut["items"][0]["payload"], &cut["items"][0]["truncated"]),
        (&json!("f"), &json!(true))
    );
    assert_eq!(texts(&look("state=dead"), "payload"), Vec::<String>::new());
    for (query, why) in [
        ("state=lost", "ready, unacked, delayed, dead or all"),
        ("count=0", "from 1 to 1000"),
        ("from=here", "position"),
        ("encoding=hex", "encoding"),
        ("truncate=-1", "whole number"),
    ] {
        let answer = managed.guest("GET", &format!("{path}?{query}"), &Value::Null);
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.body["reason"].as_str().unwrap().contains(why), "{query}: {}", answer.body);
    }

    // The tag alone is not enough, nor is the permission.
    managed.make_user("ann", "peek", &[]);
    managed.make_user("bob", "monitoring", &["%2F"]);
    let status = |user| managed.ask(Some((user, "secret")), "GET", path, "").status;
    assert_eq!((status("ann"), status("bob")), (401, 401));
    let read = |pattern: &str| json!({ "configure": "", "write": "", "read": pattern });
    managed.done("PUT", "/permissions/%2F/ann", &read("^letters$"));
    assert_eq!(status("ann"), 401, "another queue");
    managed.done("PUT", "/permissions/%2F/ann", &read("^jobs$"));
    assert_eq!(status("ann"), 200);

    drop(client);
    let mut consumer = managed.connect("guest", "guest", "/").await.unwrap();
    for body in ["two".as_bytes(), b"\xff\xfe", "f\u{fc}nf".as_bytes()] {
        let got = consumer.get("jobs", true).await.unwrap().unwrap();
        assert_eq!((&got.body[..], got.redelivered), (body, false));
    }
    assert!(consumer.get("jobs", true).await.unwrap().is_none());
    drop(holder);
    until("what was held is back", || texts(&look("state=ready"), "payload") == ["one"]);
    assert!(consumer.get("jobs", true).await.unwrap().unwrap().redelivered, "a client saw it");
}

/// A dead letter is shown with its history; a node that does not lead the queue shows its messages, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_shows_the_messages_of_a_queue() {
    let nodes = Node::start_three("management-peek-cluster").into_iter().map(Managed::of);
    let nodes: Vec<Managed> = nodes.collect();
    let mut client = until_connected(&nodes[0], "guest", "guest").await;
    let to_dead = [("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", "dead")];
    let text = |text: &str| amqp::FieldValue::LongStr(text.as_bytes().to_vec());
    let to_dead = to_dead.map(|(name, value)| (name.to_owned(), text(value)));
    let arguments = amqp::FieldTable(to_dead.to_vec());
    client.declare_queue(&QueueSpec::durable("dead")).await.unwrap();
    let jobs = QueueSpec { arguments, ..QueueSpec::durable("jobs") };
    client.declare_queue(&jobs).await.unwrap();
    for body in [&b"bad"[..], b"fine"] {
        let to = client::Address::queue("jobs");
        client.publish(to, &amqp::Properties::default(), body).await.unwrap();
    }
    let bad = client.get("jobs", false).await.unwrap().unwrap();
    client.settle(bad.tag, client::Outcome::DeadLetter).await.unwrap();
    for node in &nodes {
        let look = |queue: &str| {
            let answer = node.guest("GET", &format!("/queues/%2F/{queue}/messages"), &Value::Null);
            // Until all have agreed on the newest version, and the dead letter is stored.
            answer.body["items"][0].clone()
        };
        until("its messages are shown", || look("jobs")["payload"] == "fine");
        until("its dead letter is shown", || look("dead")["payload"] == "bad");
        let death = look("dead")["dead_letter_history"][0].clone();
        assert_eq!((&death["queue"], &death["reason"]), (&json!("jobs"), &json!("rejected")));
    }
    let got = client.get("jobs", true).await.unwrap().unwrap();
    assert_eq!((&got.body[..], got.redelivered), (&b"fine"[..], false));
}

/// Queues that are declared without a type get that of their vhost, and are found by the same declaration again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vhost_gives_its_queues_a_type() {
    let managed = Managed::start("management-types");
    managed.done_at_last("PUT", "/vhosts/%2F", &json!({ "default_queue_type": "quorum" }));
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    for _ in 0..2 {
        client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    }
    let shown = managed.done("GET", "/queues/%2F/jobs", &Value::Null);
    assert_eq!(
        (&shown["type"], &shown["arguments"]["x-queue-type"]),
        (&json!("quorum"), &json!("quorum"))
    );
    let vhost = managed.done("GET", "/vhosts/%2F", &Value::Null);
    assert_eq!(vhost["default_queue_type"], "quorum");
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
        ("PUT", "/vhosts/traced", r#"{"tracing":true}"#),
        ("PUT", "/vhosts/typed", r#"{"default_queue_type":"stream"}"#),
        ("PUT", "/users/ann", r#"{"password":"x","tags":"","limits":{"max-speed":1}}"#),
        ("POST", "/definitions", r#"{"vhosts":[{"name":"v","limits":[{"name":"max-queues"}]}]}"#),
        (
            "POST",
            "/definitions",
            r#"{"vhosts":[{"name":"v","metadata":{"default_queue_type":"stream"}}]}"#,
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
