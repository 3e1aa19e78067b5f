//! Operators' commands over HTTP, as processes: what they do at a real node, what they print, and their exit codes.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use amqp::Properties;
use client::{Address, Connection, Consumer, ConsumerOptions, Options, Outcome, QueueSpec, Url};
use serde_json::{Value, json};

use crate::client_tls::Authority;
use crate::node::{Node, free_address, to, until, until_ready};

/// What must never reach a terminal, in a name: it clears the screen, and turns what follows around.
const HOSTILE: &str = "evil\u{1b}[2J\u{9b}31m\u{202e}";

/// A node with the API, plain and under TLS, and a home for its operator.
struct Operated {
    node: Node,
    http: String,
    https: String,
    authority: Authority,
    home: PathBuf,
}

/// What a command said.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let said = Self {
            code: output.status.code().unwrap(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        };
        // Whatever a node says, nothing of it acts on the terminal.
        for shown in [&said.out, &said.err] {
            let is_hostile =
                |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
            assert!(!shown.chars().any(is_hostile), "{shown:?}");
        }
        said
    }
}

impl Operated {
    fn start() -> Self {
        let authority = Authority::new("admin");
        authority.sign("localhost", &authority.folder);
        let (http, https) = (free_address(), free_address());
        let files = [authority.file("localhost.pem"), authority.file("localhost.key")];
        let tls = ["--tls-certfile", &files[0], "--tls-keyfile", &files[1]];
        let node =
            Node::start_with("admin", &[&["--http", &http, "--https", &https][..], &tls].concat());
        let home = std::env::temp_dir().join(format!("millrace-admin-home-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).unwrap();
        Self { node, http, https, authority, home }
    }

    /// A command of an operator at home, who has set nothing.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(words).env("XDG_CONFIG_HOME", &self.home).stdin(Stdio::null());
        for variable in ["MILLRACE_HTTP_URL", "MILLRACE_HTTP_PASSWORD", "MILLRACE_CONTEXT"] {
            command.env_remove(variable);
        }
        command
    }

    /// What a command says that asks this node, as guest.
    fn run(&self, words: &[&str]) -> Said {
        let url = format!("http://{}", self.http);
        Said::of(&self.command(words).env("MILLRACE_HTTP_URL", url).output().unwrap())
    }

    /// The same with something on its standard input.
    fn run_with(&self, words: &[&str], input: &str) -> Said {
        let url = format!("http://{}", self.http);
        let mut command = self.command(words);
        command.env("MILLRACE_HTTP_URL", url).stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Said::of(&child.wait_with_output().unwrap())
    }

    /// What must succeed says this on standard output.
    fn told(&self, words: &[&str]) -> String {
        let said = self.run(words);
        assert_eq!(said.code, 0, "{words:?}: {}{}", said.out, said.err);
        said.out
    }

    /// The same as JSON: one line.
    fn json(&self, words: &[&str]) -> Value {
        let text = self.told(&[words, &["--json"]].concat());
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Why a command fails, with this exit code.
    fn refused(&self, code: i32, words: &[&str]) -> String {
        let said = self.run(words);
        assert_eq!(said.code, code, "{words:?}: {}{}", said.out, said.err);
        said.err
    }

    async fn connect(&self, user: &str, password: &str, vhost: &str) -> Connection {
        let (user, password) = (user.to_owned(), password.to_owned());
        let url = Url { user, password, vhost: vhost.to_owned(), ..self.node.url.clone() };
        Connection::open(&url, &Options::named("worker")).await.unwrap()
    }
}

impl Drop for Operated {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// The fields of the first item of a list.
fn fields(list: &Value, name: &str) -> Vec<String> {
    let first = list[name][0].as_object().unwrap_or_else(|| panic!("{name}: {list}"));
    first.keys().cloned().collect()
}

/// All commands at one node, in the order of an operator's day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_does_everything_from_another_machine() {
    let operated = Operated::start();
    let waited = operated.json(&["wait", "--ready", "--timeout", "60s"]);
    assert_eq!(waited["ready"], true);
    users_and_vhosts(&operated);
    topology(&operated);
    messages(&operated).await;
    pauses(&operated);
    dead_letters(&operated).await;
    clients(&operated).await;
    policies(&operated);
    definitions(&operated);
    status_and_checks(&operated);
    hostile_names(&operated);
    contexts_and_tls(&operated);
    exit_codes(&operated);
    deletions(&operated).await;
}

fn users_and_vhosts(operated: &Operated) {
    assert_eq!(operated.told(&["vhosts", "add", "shop"]), "added vhost shop\n");
    assert_eq!(operated.json(&["vhosts", "add", "shop"])["created"], false);
    // The password comes from standard input, a file, or with a warning from the command line.
    let said =
        operated.run_with(&["users", "add", "ann", "--tags", "management,policymaker"], "secret\n");
    assert_eq!((said.code, &*said.out), (0, "added user ann\n"), "{}", said.err);
    let file = operated.home.join("bob");
    std::fs::write(&file, "hunter2\n").unwrap();
    let file = file.display().to_string();
    operated.told(&["users", "add", "bob", "--new-password-file", &file]);
    let said = operated.run(&["add_user", "eve", "hunter2"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("warning") && !said.err.contains("hunter2"), "{}", said.err);
    let again = operated.refused(1, &["users", "add", "bob", "--new-password-file", &file]);
    assert!(again.contains("there already"), "{again}");
    let tags = operated.json(&["set_user_tags", "bob", "monitoring"]);
    assert_eq!(tags["tags"], json!(["monitoring"]));
    let said = operated.run_with(&["change_password", "bob"], "other");
    assert_eq!(said.code, 0, "{}", said.err);
    let users = operated.json(&["list_users"]);
    assert_eq!(fields(&users, "users"), ["limits", "name", "tags"], "no hash");
    let bob = users["users"].as_array().unwrap().iter().find(|user| user["name"] == "bob");
    assert_eq!(bob.unwrap()["tags"], json!(["monitoring"]), "a new password changes no tags");
    operated.told(&["set_permissions", "-p", "shop", "ann", ".*", ".*", ".*"]);
    let rights = operated.json(&["list_user_permissions", "ann"]);
    assert_eq!(fields(&rights, "permissions"), ["configure", "read", "user", "vhost", "write"]);
    assert_eq!((&rights["count"], &rights["total"]), (&json!(1), &json!(1)));
    let dry = operated.json(&["permissions", "delete", "ann", "-p", "shop", "--dry-run"]);
    assert_eq!((&dry["dry_run"], &dry["items"][0]["write"]), (&json!(true), &json!(".*")));
    let vhosts = operated.json(&["vhosts"]);
    assert_eq!(fields(&vhosts, "vhosts"), ["default_queue_type", "description", "name", "tracing"]);
    let cleared = operated.json(&["users", "clear-password", "eve"]);
    assert_eq!(cleared["action"], "clear-password");
    let gone = operated.json(&["delete_user", "eve"]);
    assert_eq!((&gone["count"], &gone["items"][0]["name"]), (&json!(1), &json!("eve")));
}

fn topology(operated: &Operated) {
    let declare = ["queues", "declare", "orders", "-p", "shop", "--argument", "x-max-length=100"];
    assert_eq!(operated.told(&declare), "declared queue orders of vhost shop\n");
    assert_eq!(operated.json(&declare)["created"], false);
    let other = operated.refused(1, &declare[..5]);
    assert!(other.contains("inequivalent arg 'x-max-length'"), "{other}");
    operated.told(&["queues", "declare", "tmp.1", "-p", "shop", "--auto-delete"]);
    operated.told(&["queues", "declare", "tmp.2", "-p", "shop", "--type", "quorum"]);
    let exchange = ["exchanges", "declare", "in", "-p", "shop", "--type", "topic"];
    assert_eq!(operated.told(&exchange), "declared exchange in of vhost shop\n");
    let exchanges = operated.json(&["list_exchanges", "-p", "shop", "name", "type"]);
    assert_eq!(fields(&exchanges, "exchanges"), ["name", "type"]);
    let all = operated.json(&["exchanges"]);
    let keys =
        ["arguments", "auto_delete", "durable", "internal", "name", "policy", "type", "vhost"];
    assert_eq!(fields(&all, "exchanges"), keys);
    operated.told(&["bindings", "declare", "in", "orders", "--key", "eu.#", "-p", "shop"]);
    let bound = operated.json(&["bindings", "list", "--exchange", "in", "-p", "shop"]);
    assert_eq!(
        (&bound["count"], &bound["bindings"][0]["routing_key"]),
        (&json!(1), &json!("eu.#"))
    );
    assert_eq!(operated.json(&["bindings", "list", "--queue", "orders", "-p", "shop"])["count"], 2);
    let keys = [
        "arguments",
        "destination",
        "destination_type",
        "properties_key",
        "routing_key",
        "source",
        "vhost",
    ];
    assert_eq!(fields(&operated.json(&["list_bindings"]), "bindings"), keys);
    let gone =
        operated.told(&["bindings", "delete", "in", "orders", "--key", "eu.#", "-p", "shop"]);
    assert_eq!(gone, "deleted binding from in to queue orders by key 'eu.#' in vhost shop\n");
    operated.refused(1, &["bindings", "delete", "in", "orders", "--key", "eu.#", "-p", "shop"]);
}

async fn messages(operated: &Operated) {
    let mut connection = operated.connect("ann", "secret", "shop").await;
    for _ in 0..3 {
        let to = Address::queue("orders");
        connection.publish(to, &Properties::default(), b"body").await.unwrap();
    }
    let listed = operated.told(&["queues", "-p", "shop", "--name", "orders"]);
    assert!(listed.starts_with("Vhost  Name    Type     State    Ready"), "{listed}");
    let listed =
        operated.json(&["queues", "--sort", "messages_ready", "--reverse", "--limit", "1"]);
    assert_eq!((&listed["count"], &listed["total"]), (&json!(1), &json!(3)), "{listed}");
    assert_eq!(listed["queues"][0]["messages_ready"], 3, "{listed}");
    let keys = [
        "ack_rate",
        "arguments",
        "auto_delete",
        "consumers",
        "dead_lettered",
        "delayed",
        "durable",
        "enqueue_rate",
        "exclusive",
        "held_back",
        "held_back_ms",
        "held_back_publishes",
        "leader",
        "members",
        "message_bytes_ready",
        "messages",
        "messages_ready",
        "messages_unacknowledged",
        "name",
        "operator_policy",
        "passed_over",
        "paused",
        "paused_at",
        "paused_by",
        "policy",
        "publish_rate",
        "rate",
        "state",
        "type",
        "vhost",
    ];
    assert_eq!(fields(&listed, "queues"), keys);
    let watched = operated.run(&["queues", "--json", "--watch", "100ms", "--looks", "2"]);
    assert_eq!((watched.code, watched.out.lines().count()), (0, 2), "{}", watched.out);
    let books = operated.told(&["reconcile"]);
    let open = "0 done + 0 purged + 0 dropped + 0 dead-lettered + 3 open";
    assert!(books.starts_with("ok: the books of 3 queues are right"), "{books}");
    assert!(books.contains(&format!("\n  orders of vhost shop: 3 came = {open}\n")), "{books}");
    let dry = operated.run(&["purge", "orders", "-p", "shop", "--dry-run"]);
    assert!(dry.out.contains("3 messages that are ready"), "{}", dry.out);
    let told = operated.told(&["purge", "orders", "-p", "shop", "--undo-for", "60"]);
    assert!(told.contains("purged queue orders of vhost shop"), "{told}");
    let back = operated.run(&["unpurge", "orders", "-p", "shop"]);
    assert_eq!((back.code, back.err.contains("3 messages come back")), (0, true), "{}", back.err);
    assert_eq!(back.out, "brought back 3 messages of queue orders of vhost shop\n");
    let why = operated.refused(1, &["unpurge", "orders", "-p", "shop"]);
    assert!(why.contains("nothing was left to bring back"), "{why}");
    let said = operated.run(&["unpurge", "orders", "-p", "shop", "--json"]);
    let told: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &told["items"][0]["brought_back"]), (1, &json!(0)), "{told}");
    let purged = operated.json(&["purge_queue", "-p", "shop", "orders"]);
    assert_eq!(
        (&purged["action"], &purged["dry_run"], &purged["items"][0]["messages_ready"]),
        (&json!("purge"), &json!(false), &json!(3)),
        "the dry run has dropped nothing"
    );
    let empty = operated.json(&["queues", "list", "messages", "-p", "shop", "--name", "orders"]);
    assert_eq!(empty["queues"], json!([{ "messages": 0 }]));
    let books = operated.json(&["reconcile", "-p", "shop"]);
    let orders = books["queues"].as_array().unwrap().iter().find(|it| it["name"] == "orders");
    let orders = orders.unwrap();
    assert_eq!(
        (&orders["came"], &orders["purged"], &orders["open"]),
        (&json!(3), &json!(3), &json!(0))
    );
    assert_eq!((&orders["accounted"], &orders["is_right"]), (&json!(3), &json!(true)));
    assert_eq!(books.get("groups"), None, "who sees one vhost sees no groups");
}

fn pauses(operated: &Operated) {
    let dry = operated.json(&["pause", "orders", "-p", "shop", "--dry-run"]);
    assert_eq!((&dry["dry_run"], &dry["items"][0]["was_paused"]), (&json!(true), &json!(false)));
    assert_eq!(
        operated.told(&["pause", "orders", "-p", "shop"]),
        "paused queue orders of vhost shop\n"
    );
    let listed = operated.json(&["queues", "-p", "shop", "--name", "orders"]);
    let queue = &listed["queues"][0];
    assert_eq!((&queue["paused"], &queue["paused_by"]), (&json!(true), &json!("guest")));
    let describe = ["describe", "--data-dir", operated.node.data_dir().to_str().unwrap()];
    let describe = [&describe[..], &["queue", "orders", "--vhost", "shop"]].concat();
    let said = operated.told(&describe);
    assert!(
        said.contains("by guest, for ") && said.contains("consumers get no messages"),
        "{said}"
    );
    let resumed = operated.json(&["resume", "orders", "-p", "shop"]);
    assert_eq!((&resumed["action"], &resumed["count"]), (&json!("resume"), &json!(1)));
    assert!(!operated.told(&describe).contains("Paused"));
    operated.refused(1, &["pause", "none", "-p", "shop"]);
}

async fn dead_letters(operated: &Operated) {
    assert_eq!(operated.told(&["dead"]), "no dead letters\n");
    let mut worker = operated.connect("ann", "secret", "shop").await;
    worker.declare_queue(&QueueSpec::durable("lost")).await.unwrap();
    worker.declare_queue(&to("found", "lost", &[])).await.unwrap();
    for _ in 0..3 {
        let to = Address::queue("found");
        worker.publish(to, &Properties::default(), b"body").await.unwrap();
        let got = worker.get("found", false).await.unwrap().unwrap();
        worker.settle(got.tag, Outcome::DeadLetter).await.unwrap();
    }
    until_ready(&mut worker, "lost", 3).await;
    let dead = operated.json(&["dead", "-p", "shop"]);
    assert_eq!(dead["dead"][0]["died_in"], "found", "{dead}");
    assert_eq!((&dead["dead"][0]["count"], &dead["whole"]), (&json!(3), &json!(true)), "{dead}");
    let table = operated.told(&["dead", "lost", "-p", "shop"]);
    assert!(table.starts_with("Vhost  Queue  Died in  Reason    Messages"), "{table}");
    let dry = operated.told(&["retry", "lost", "-p", "shop", "--dry-run"]);
    assert!(dry.contains("3 would go") && dry.contains("3 to queue found"), "{dry}");
    let one = operated.json(&["retry", "lost", "-p", "shop", "--at", "2"]);
    assert_eq!(
        (&one["action"], &one["sent"], &one["state"]),
        (&json!("retry"), &json!(1), &json!("done"))
    );
    let rest = operated.told(&["retry", "lost", "-p", "shop", "--rate", "1000"]);
    assert!(rest.contains("2 sent, 0 stay, 0 gone before, of 2 that match"), "{rest}");
    until_ready(&mut worker, "found", 3).await;
    let retries = operated.json(&["retries"]);
    assert_eq!(retries["count"], 3, "{retries}");
    let shown = operated.json(&["retries", "show", "1-2"]);
    assert_eq!(shown["sent"], 1);
    operated.refused(1, &["retries", "stop", "1-99"]);
    for queue in ["lost", "found"] {
        operated.told(&["queues", "delete", queue, "-p", "shop"]);
    }
}

async fn clients(operated: &Operated) {
    let url = Url { vhost: "shop".to_owned(), ..operated.node.url.clone() };
    let mut worker = operated.connect("ann", "secret", "shop").await;
    worker.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let (user, password) = ("ann".to_owned(), "secret".to_owned());
    let url = Url { user, password, ..url };
    let how = ConsumerOptions { prefetch: 3, ..ConsumerOptions::default() };
    let _consumer = Consumer::open(&url, &Options::named("eater"), "jobs", how).await.unwrap();
    let consumers = operated.json(&["consumers", "-p", "shop"]);
    let keys = [
        "ack_required",
        "channel",
        "connection",
        "consumer_tag",
        "credit",
        "held",
        "prefetch_count",
        "queue",
        "user",
        "vhost",
    ];
    assert_eq!(fields(&consumers, "consumers"), keys);
    assert_eq!(
        (&consumers["consumers"][0]["queue"], &consumers["count"]),
        (&json!("jobs"), &json!(1))
    );
    let channels = operated.json(&["list_channels"]);
    let keys = [
        "confirm",
        "connection",
        "consumer_count",
        "messages_unacknowledged",
        "messages_unconfirmed",
        "name",
        "node",
        "number",
        "prefetch_count",
        "state",
        "transactional",
        "user",
        "vhost",
    ];
    assert_eq!(fields(&channels, "channels"), keys);
    let connections = operated.json(&["connections", "--columns", "id,client,user,vhost,state"]);
    let find = |client: &str| {
        let all = connections["connections"].as_array().unwrap();
        let found = all.iter().find(|it| it["client"] == *client);
        found.unwrap()["id"].as_str().unwrap().to_owned()
    };
    let eater = find("eater");
    let closed = operated.json(&["close_connection", &eater, "enough"]);
    assert_eq!((&closed["items"][0]["id"], &closed["count"]), (&json!(eater), &json!(1)));
    until("the connection of the consumer is another", || {
        let now = operated.json(&["connections", "list", "id"]);
        !now["connections"].as_array().unwrap().iter().any(|it| it["id"] == eater)
    });
    operated.refused(1, &["connections", "close", &eater]);
    let dry = operated.json(&["close_all_user_connections", "ann", "enough", "--dry-run"]);
    assert!(dry["count"].as_u64() >= Some(1), "{dry}");
    let closed = operated.json(&["connections", "close-user", "ann", "enough"]);
    assert_eq!(closed["action"], "close");
    let error = worker.look_up_queue("jobs").await.unwrap_err();
    assert_eq!(error.code(), Some(320), "{error:?}");
}

fn policies(operated: &Operated) {
    let limit = "{\"max-length\":9}";
    let set = ["set_policy", "-p", "shop", "--priority", "-1", "--apply-to", "queues", "short"];
    let set = [&set[..], &["^orders$", limit]].concat();
    // A moment after its start, the cluster has agreed on the version that has policies.
    until("policies are taken", || {
        let said = operated.run(&set);
        assert!(said.code == 0 || said.err.contains("version"), "{}", said.err);
        said.code == 0
    });
    operated.told(&["policies", "set", "bound", ".*", limit, "--operator", "-p", "shop"]);
    let listed = operated.json(&["policies", "-p", "shop"]);
    let keys = ["apply-to", "definition", "name", "pattern", "priority", "vhost"];
    assert_eq!(fields(&listed, "policies"), keys);
    assert_eq!((&listed["policies"][0]["priority"], &listed["count"]), (&json!(-1), &json!(1)));
    assert_eq!(operated.json(&["list_operator_policies"])["count"], 1);
    let dry = operated.json(&["policies", "delete", "short", "-p", "shop", "--dry-run"]);
    assert_eq!(dry["items"][0]["queues"], 1, "{dry}");
    operated.told(&["clear_policy", "-p", "shop", "short"]);
    operated.told(&["clear_operator_policy", "-p", "shop", "bound"]);
    assert_eq!(operated.told(&["policies"]), "no policies\n");
    let wrong = operated.refused(2, &["policies", "set", "x", ".*", "max-length=9"]);
    assert!(wrong.contains("no JSON"), "{wrong}");
}

fn definitions(operated: &Operated) {
    let file = operated.home.join("definitions.json");
    let name = file.display().to_string();
    let exported = operated.json(&["definitions", "export", &name]);
    assert!(exported["parts"]["users"].as_u64() >= Some(3), "{exported}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let dry = operated.json(&["definitions", "import", &name, "--dry-run"]);
    assert_eq!((&dry["parts"], &dry["dry_run"]), (&exported["parts"], &json!(true)));
    let text = operated.told(&["export_definitions", "-"]);
    let said = operated.run_with(&["import_definitions", "-"], &text);
    assert_eq!(said.code, 0, "{}", said.err);
    let own: Value =
        serde_json::from_str(&operated.told(&["definitions", "export", "-p", "shop"])).unwrap();
    assert!(own["queues"].as_array().unwrap().len() >= 4 && own.get("users").is_none(), "{own}");
    let said = operated.run_with(&["definitions", "import", "-"], "[]");
    assert_eq!(said.code, 2, "{}", said.err);
}

fn status_and_checks(operated: &Operated) {
    let status = operated.told(&["status"]);
    // rcgen's certificates are good for long.
    assert!(
        status.starts_with("ok: millrace@1 serves clients, and nothing needs you\n"),
        "{status}"
    );
    let status = operated.json(&["status"]);
    let keys: Vec<&String> = status.as_object().unwrap().keys().collect();
    let wanted = [
        "alarms",
        "cluster",
        "listeners",
        "node",
        "nodes",
        "problems",
        "product",
        "totals",
        "verdict",
        "version",
    ];
    assert_eq!(keys, wanted);
    assert_eq!((&status["verdict"], &status["problems"]), (&json!("ok"), &json!([])));
    assert!(status["nodes"][0]["memory_bytes"].as_u64() > Some(1 << 20), "{status}");
    let port = operated.node.url.port.to_string();
    for check in [
        &["check", "ready"][..],
        &["check", "alarms"],
        &["check", "quorum-critical"],
        &["check", "port", &port, "--connect"],
        &["check", "port", "--protocol", "https"],
        &["check", "certificate"],
        &["check", "queue", "orders", "-p", "shop", "--warning", "1"],
        &["check_port_listener", &port],
        &["check_protocol_listener", "amqp"],
        &["check_if_node_is_quorum_critical"],
        &["ping"],
    ] {
        let said = operated.run(check);
        assert_eq!(said.code, 0, "{check:?}: {}{}", said.out, said.err);
        assert!(said.out.starts_with("OK - "), "{check:?}: {}", said.out);
    }
    let found = operated.json(&["check", "alarms"]);
    assert_eq!(found, json!({ "check": "alarms", "status": "ok", "reason": "none" }));
    let bad: [(i32, &str, &[&str]); 5] = [
        (2, "CRITICAL - port: the node does not listen at port 1", &["check", "port", "1"]),
        // A certificate of a test is good for two thousand years.
        (1, "WARNING - certificate: ", &["check", "certificate", "--warning", "999999"]),
        (
            2,
            "CRITICAL - queue: 0 messages",
            &["check", "queue", "orders", "-p", "shop", "--consumers", "1"],
        ),
        (3, "UNKNOWN - queue: not found: queue none", &["check", "queue", "none"]),
        (3, "", &["check", "nothing"]),
    ];
    for (code, words, check) in bad {
        let said = operated.run(check);
        assert_eq!(said.code, code, "{check:?}: {}{}", said.out, said.err);
        assert!(said.out.starts_with(words), "{check:?}: {}", said.out);
    }
}

/// Names of others are shown, and do nothing.
fn hostile_names(operated: &Operated) {
    let said = operated.told(&["queues", "declare", HOSTILE]);
    assert!(said.contains("\\u{1b}[2J\\u{9b}31m\\u{202e}"), "{said}");
    let listed = operated.told(&["queues", "-p", "/"]);
    assert!(listed.contains("evil\\u{1b}[2J\\u{9b}31m"), "{listed}");
    let listed = operated.json(&["queues", "-p", "/"]);
    assert_eq!(listed["queues"][0]["name"], HOSTILE, "programs get the name as it is");
    operated.told(&["bindings", "-p", "/"]);
    operated.told(&["definitions", "export"]);
    operated.refused(1, &["queues", "delete", HOSTILE, "-p", "shop"]);
    operated.told(&["queues", "delete", HOSTILE]);
}

fn contexts_and_tls(operated: &Operated) {
    let port = operated.https.rsplit_once(':').unwrap().1;
    let url = format!("https://bob@localhost:{port}");
    let authority = operated.authority.file("ca.pem");
    let run = |words: &[&str]| Said::of(&operated.command(words).output().unwrap());
    let add = ["context", "add", "prod", "--url", &url, "--cacertfile", &authority];
    let mut command = operated.command(&add);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"other\n").unwrap();
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!((said.code, &*said.out), (0, "added context prod\n"), "{}", said.err);
    let file = operated.home.join("millrace").join("contexts.toml");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // The first one is used without a word, and its user is not guest.
    let said = run(&["connections", "--json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let said = run(&["users"]);
    assert_eq!(said.code, 4, "{}", said.err);
    assert!(said.err.contains("bob may not do this"), "{}", said.err);
    let plain = format!("http://{}", operated.http);
    run(&["context", "add", "own", "--url", &plain, "--password-env", "GUESTS_PASSWORD"]);
    let mut command = operated.command(&["users", "--json"]);
    command.env("MILLRACE_CONTEXT", "own").env("GUESTS_PASSWORD", "guest");
    assert_eq!(Said::of(&command.output().unwrap()).code, 0);
    assert_eq!(run(&["users", "--context", "own"]).code, 2, "its variable is not set");
    assert_eq!(run(&["context", "use", "own"]).code, 0);
    let listed = run(&["context", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(fields(&listed, "contexts"), ["current", "name", "password", "url"]);
    assert_eq!(listed["contexts"][0]["current"], true);
    assert!(!listed.to_string().contains("other"), "no password is shown: {listed}");
    // Nobody but its owner may have read it.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = run(&["queues"]);
    assert!(said.code == 2 && said.err.contains("chmod 600"), "{}", said.err);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    for name in ["own", "prod"] {
        assert_eq!(run(&["context", "remove", name]).code, 0);
    }
    assert_eq!(run(&["queues", "--context", "prod"]).code, 2);
    // Who signed the certificate is not known without the file.
    let said = run(&["queues", "--url", &format!("https://guest@localhost:{port}")]);
    assert!(said.code == 3 && said.err.contains("--cacertfile"), "{}", said.err);
    let said = run(&["queues", "--url", &format!("http://guest@localhost:{port}")]);
    assert!(said.code == 3 && said.err.contains("https://"), "{}", said.err);
    let said = run(&["queues", "--url", &format!("https://guest@{}", operated.http)]);
    assert!(said.code == 3 && said.err.contains("http://"), "{}", said.err);
}

fn exit_codes(operated: &Operated) {
    let nobody = format!("http://{}", free_address());
    let at = |url: &str, words: &[&str]| {
        Said::of(&operated.command(&[words, &["--url", url]].concat()).output().unwrap())
    };
    let said = at(&nobody, &["queues"]);
    assert!(said.code == 3 && said.err.contains("no node answers"), "{}", said.err);
    assert_eq!(at(&nobody, &["check", "ready"]).code, 2, "a node that is away is critical");
    let said = at(&nobody, &["wait", "--ready", "--timeout", "300ms"]);
    assert!(said.code == 3 && said.err.contains("waiting: no node answers"), "{}", said.err);
    let wrong = format!("http://guest:wr0ng@{}", operated.http);
    let said = at(&wrong, &["status"]);
    assert!(said.code == 4 && said.err.contains("refuses the login of guest"), "{}", said.err);
    assert!(said.err.contains("warning") && !said.err.contains("wr0ng"), "{}", said.err);
    assert_eq!(at(&wrong, &["check", "ready"]).code, 3, "nothing is known then");
    let nameless = format!("http://ann@{}", operated.http);
    let said = at(&nameless, &["queues"]);
    assert!(said.code == 2 && said.err.contains("no password for ann"), "{}", said.err);
    assert!(operated.refused(2, &["queues", "--columns", "memory"]).contains("messages_ready"));
    assert!(
        operated
            .refused(2, &["queues", "--limit", "1", "purge", "orders"])
            .contains("before `purge`")
    );
    let typo = operated.refused(2, &["list_queue"]);
    assert!(typo.contains("list_queues"), "{typo}");
    assert!(operated.refused(1, &["vhosts", "delete", "none"]).contains("not found: vhost none"));
    // Something answers that is no API, and something that says too much.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        for body in ["<html>", "{\"error\":\"x\",\"reason\":\"\\u001b[2J\\u009b31m\"}"] {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let length = body.len();
            let answer = format!("HTTP/1.1 400 Bad\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let said = at(&other, &["queues"]);
    assert!(said.code == 3 && said.err.contains("no HTTP API"), "{}", said.err);
    let said = at(&other, &["queues"]);
    assert!(said.code == 1 && said.err.contains("\\u{1b}[2J\\u{9b}31m"), "{}", said.err);
    served.join().unwrap();
    assert!(operated.told(&["completions", "bash"]).contains("millrace"));
    assert!(operated.told(&["man", "queues", "declare"]).contains("queues"));
    operated.refused(2, &["man", "nothing"]);
}

async fn deletions(operated: &Operated) {
    let filter = ["delete", "--matching", "^tmp\\.", "-p", "shop"];
    assert!(operated.refused(2, &filter).contains("--yes"));
    let dry = operated.json(&[&filter[..], &["--dry-run"]].concat());
    assert_eq!(dry["count"], 2, "{dry}");
    let done = operated.json(&[&filter[..], &["--yes"]].concat());
    assert_eq!((&done["count"], &done["dry_run"]), (&json!(2), &json!(false)));
    assert_eq!(operated.json(&[&filter[..], &["--yes"]].concat())["count"], 0);
    let mut connection = operated.connect("ann", "secret", "shop").await;
    let to = Address::queue("orders");
    connection.publish(to, &Properties::default(), b"body").await.unwrap();
    let refused = operated.refused(1, &["queues", "delete", "orders", "-p", "shop", "--if-empty"]);
    assert!(refused.contains("not empty"), "{refused}");
    operated.told(&["delete_queue", "-p", "shop", "orders"]);
    operated.told(&["exchanges", "delete", "in", "-p", "shop", "--if-unused"]);
    operated.told(&["clear_permissions", "-p", "shop", "ann"]);
    let dry = operated.json(&["vhosts", "delete", "shop", "--dry-run"]);
    assert_eq!(dry["items"][0], json!({ "name": "shop", "queues": 1, "messages": 0 }));
    operated.told(&["delete_vhost", "shop"]);
    assert_eq!(operated.json(&["vhosts"])["count"], 1);
}

/// What answers as RabbitMQ does: it takes `undo_ms` for nothing, and knows no `/api/millrace`. Ends once nobody asks any
/// more, with what it was asked.
fn another_broker(listener: &TcpListener, knows_undo: bool) -> Vec<String> {
    let mut asked = Vec::new();
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let count = stream.read(&mut bytes).unwrap_or(0);
        if count == 0 {
            return asked;
        }
        request.extend_from_slice(&bytes[..count]);
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        let line = String::from_utf8_lossy(&std::mem::take(&mut request)).into_owned();
        let line = line.lines().next().unwrap().to_owned();
        let unpurge = json!({ "paths": { "/millrace/queues/{vhost}/{queue}/unpurge": {} } });
        let (status, body) = match line.split_once(' ').unwrap() {
            ("GET", path) if path.contains("openapi.json") && knows_undo => {
                ("200 OK", unpurge.to_string())
            }
            ("GET", path) if path.contains("openapi.json") => {
                ("404 Not Found", "<html>Not found</html>".to_owned())
            }
            ("GET", _) => ("200 OK", json!({ "name": "orders", "messages_ready": 3 }).to_string()),
            _ => ("204 No Content", String::new()),
        };
        asked.push(line);
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).unwrap();
    }
}

#[test]
fn a_broker_that_knows_no_undo_is_not_asked_to_purge_as_if_it_did() {
    for (knows_undo, words, purges) in [
        (false, &["purge", "orders", "--undo-for", "60"][..], 0),
        // Another one answers behind a load balancer.
        (true, &["purge", "orders", "--undo-for", "60"][..], 1),
        (false, &["purge", "orders"][..], 1),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let broker = std::thread::spawn(move || another_broker(&listener, knows_undo));
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(words).env("MILLRACE_HTTP_URL", &url).env("XDG_CONFIG_HOME", "/nowhere");
        let said = Said::of(&command.output().unwrap());
        let asked = broker.join().unwrap();
        let purged = asked.iter().filter(|line| line.starts_with("DELETE")).count();
        assert_eq!(purged, purges, "{words:?}: {asked:?}");
        match words.len() {
            2 => {
                assert_eq!((said.code, said.out.as_str()), (0, "purged queue orders of vhost /\n"))
            }
            _ if knows_undo => {
                assert_eq!(said.code, 1, "{}", said.out);
                assert!(said.err.contains("is purged for good"), "{}", said.err);
            }
            _ => {
                assert_eq!(said.code, 1, "{}", said.out);
                assert!(said.err.contains("nothing was purged"), "{}", said.err);
            }
        }
    }
}
