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
