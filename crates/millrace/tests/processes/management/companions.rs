//! What runs beside a node: it asks, and says how that stands. A relay needs a database, so a worker is asked here.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::Managed;
use crate::node::{Node, free_address, until};

/// A process that is ended with the test.
struct Beside(Child);

impl Beside {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_worker_is_asked_and_what_does_not_answer_is_said() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let [worker_at, http] = [free_address(), free_address()];
    let url = format!("amqp://me:x@{nobody}");
    let dir = std::env::temp_dir().join(format!("millrace-companions-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("work.toml");
    let config = format!(
        "[worker]\nmetrics = \"{worker_at}\"\n[source.jobs]\nkind = \"amqp\"\nurl = \"{url}\"\nqueue = \"jobs\"\n\
         [target.hook]\nkind = \"webhook\"\nurl = \"https://example.com/jobs\"\n\
         [[pipeline]]\nname = \"mail\"\nsource = \"jobs\"\ntarget = \"hook\"\n"
    );
    std::fs::write(&file, config).unwrap();
    let _worker = Beside::start(&["work", "run", "--config", file.to_str().unwrap()]);

    let all = [&*worker_at, &nobody, &http].join(",");
    let words = ["--http", &http, "--companions", &all];
    let node = Node::start_with("management-companions", &words);
    let managed = Managed { node, address: http.clone() };
    let companions = || managed.done("GET", "/millrace/companions", &Value::Null);
    until("the worker answers", || companions()[0]["kind"] == "worker");
    let told = companions();
    assert_eq!(told.as_array().unwrap().len(), 3, "{told}");
    let worker = &told[0];
    assert_eq!((&worker["address"], &worker["node"]), (&json!(worker_at), &json!("millrace@1")));
    assert_eq!(worker["status"]["pipelines"][0]["name"], "mail", "{told}");
    let silent = told[1]["error"].as_str().unwrap();
    assert!(silent.starts_with(&format!("{nobody} does not answer: ")), "{silent}");
    // What is no relay and no worker: the node's own API.
    let other = told[2]["error"].as_str().unwrap();
    assert!(other.contains("is it the address of the metrics"), "{other}");
    managed.make_user("ann", "management", &["%2F"]);
    let refused = managed.ask(Some(("ann", "secret")), "GET", "/millrace/companions", "");
    assert_eq!(refused.status, 401, "{}", refused.body);
    let _ = std::fs::remove_dir_all(&dir);
}

/// A secret in a file of its own, which the node and the worker are told of.
#[test]
fn one_pipeline_of_a_worker_rests_and_it_is_said_who_wanted_that() {
    let [worker_at, http] = [free_address(), free_address()];
    let dir = std::env::temp_dir().join(format!("millrace-pipelines-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (file, secret) = (dir.join("work.toml"), dir.join("secret"));
    std::fs::write(&secret, "swordfish\n").unwrap();
    let nobody = free_address();
    let source = |name: &str| {
        format!(
            "[source.{name}]\nkind = \"amqp\"\nurl = \"amqp://me:x@{nobody}\"\nqueue = \"{name}\"\n"
        )
    };
    let pipeline = |name: &str, source: &str| {
        format!("[[pipeline]]\nname = \"{name}\"\nsource = \"{source}\"\ntarget = \"hook\"\n")
    };
    let config = [
        format!("[worker]\nmetrics = \"{worker_at}\"\norders_secret_file = {secret:?}\n"),
        source("jobs"),
        source("more"),
        "[target.hook]\nkind = \"webhook\"\nurl = \"https://example.com/jobs\"\n".to_owned(),
        pipeline("mail", "jobs"),
        pipeline("e mail/ä", "more"),
    ];
    std::fs::write(&file, config.concat()).unwrap();
    let _worker = Beside::start(&["work", "run", "--config", file.to_str().unwrap()]);

    let set = format!("companions_secret_file={}", secret.display());
    let words = ["--http", &http, "--companions", &worker_at, "--set", &set, "--zone", "basel"];
    let node = Node::start_with("management-pipelines", &words);
    let managed = Managed { node, address: http.clone() };
    let companions = || managed.done("GET", "/millrace/companions", &Value::Null);
    until("the worker answers", || companions()[0]["kind"] == "worker");
    assert_eq!(managed.done("GET", "/nodes", &Value::Null)[0]["zone"], "basel");
    // The audit trail begins once the cluster has agreed on a version.
    managed.done_at_last("PUT", "/cluster-name", &json!({ "name": "pipelines" }));

    let whole = format!("/millrace/companions/{worker_at}/pause");
    let path = format!("{whole}/e%20mail%2F%C3%A4");
    managed.make_user("boss", "administrator", &[]);
    let boss = |method: &str, path: &str| managed.ask(Some(("boss", "secret")), method, path, "");
    let paused = boss("PUT", &path);
    assert_eq!((paused.status, &paused.body["is_paused"]), (200, &json!(true)), "{}", paused.body);
    let status = companions()[0]["status"].clone();
    let [mail, other] = &status["pipelines"].as_array().unwrap()[..] else { panic!("{status}") };
    assert_eq!((&mail["is_paused"], &mail["paused_by"]), (&json!(false), &Value::Null));
    assert_eq!((&other["is_paused"], &other["paused_by"]), (&json!(true), &json!("boss")));
    assert!(other["paused_at"].as_u64() > Some(1_600_000_000_000), "{status}");
    assert_eq!((&status["is_paused"], &status["paused_by"]), (&json!(false), &Value::Null));

    // The pauses of all of it, and of one pipeline, stand beside each other.
    managed.done("PUT", &whole, &Value::Null);
    let status = companions()[0]["status"].clone();
    assert_eq!((&status["is_paused"], &status["paused_by"]), (&json!(true), &json!("guest")));
    assert_eq!(status["pipelines"][0]["is_paused"], true);
    managed.done("DELETE", &whole, &Value::Null);
    let status = companions()[0]["status"].clone();
    let pauses = status["pipelines"].as_array().unwrap().iter().map(|it| it["is_paused"].clone());
    assert_eq!(pauses.collect::<Vec<_>>(), [json!(false), json!(true)]);
    let resumed = boss("DELETE", &path);
    assert_eq!((resumed.status, &resumed.body["is_paused"]), (200, &json!(false)));

    let unknown = managed.guest("PUT", &format!("{whole}/fax"), &Value::Null);
    assert_eq!(unknown.status, 400, "{}", unknown.body);
    assert!(unknown.body["reason"].as_str().unwrap().contains("no pipeline of this name"));
    managed.make_user("ann", "monitoring", &["%2F"]);
    let refused = managed.ask(Some(("ann", "secret")), "PUT", &path, "");
    assert_eq!(refused.status, 401, "{}", refused.body);
    let is_there = |event: &Value| {
        event["event"] == "companion.paused" && event["details"]["pipeline"] == "e mail/ä"
    };
    until("the audit trail says so", || {
        let told = managed.done("GET", "/millrace/audit", &Value::Null);
        let all = told.as_array().cloned().unwrap_or_default();
        all.iter().chain(told["items"].as_array().into_iter().flatten()).any(is_there)
    });
    let _ = std::fs::remove_dir_all(&dir);
}
