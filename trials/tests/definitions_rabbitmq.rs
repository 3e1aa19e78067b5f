//! Definitions of a large RabbitMQ, brought into Millrace and back: nothing of them is lost or changed on the way.
//!
//! Without RabbitMQ it says so and does nothing: `cargo xtask setup` installs it.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "starts brokers and commands, waits for them, and shows what they say"
)]

#[path = "support/millrace.rs"]
mod millrace;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use trials::chaos::Failure;
use trials::chaos::broker::{Broker, Kind, START_MAX};

const RABBITMQCTL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";

/// Of queues, policies and users.
const COUNT: usize = 1000;
const VHOSTS: usize = 10;

/// Two brokers in a folder, ended and removed when dropped.
struct Stage {
    rabbitmq: Broker,
    millrace: Broker,
    http: String,
    dir: PathBuf,
}

impl Stage {
    /// None where RabbitMQ is not installed, which is said.
    fn start() -> Option<Self> {
        let name = format!("definitions-{}", std::process::id());
        let trials = Path::new(env!("CARGO_BIN_EXE_trials"));
        let dir = trials.with_file_name("definitions-trials").join(&name);
        let _ = std::fs::remove_dir_all(&dir);
        let http = format!("127.0.0.1:{}", trials::ports::free().unwrap());
        let broker = |kind: Kind, folder: &str, words: &[&str]| {
            let dir = dir.join(folder);
            std::fs::create_dir_all(&dir).unwrap();
            trials::relay::broker_in(kind, millrace::broker(), &dir, &name, words)
        };
        let mut rabbitmq = match broker(Kind::Rabbitmq, "rabbitmq", &[]) {
            Ok(broker) => broker,
            Err(skipped @ Failure::Skipped(_)) => {
                println!("{skipped}");
                return None;
            }
            Err(failure) => panic!("{failure}"),
        };
        let mut millrace = broker(Kind::Millrace, "millrace", &["--http", &http]).unwrap();
        for broker in [&mut rabbitmq, &mut millrace] {
            broker.start().unwrap();
            broker.wait_ready(START_MAX).unwrap();
        }
        Some(Self { rabbitmq, millrace, http, dir })
    }

    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn rabbitmqctl(&self, words: &[&str]) {
        let mut command = Command::new(RABBITMQCTL);
        done(command.envs(self.rabbitmq.setup.rabbitmq()).args(words), words);
    }

    fn millrace(&self, words: &[&str]) {
        let mut command = Command::new(millrace::broker());
        let url = format!("http://{}", self.http);
        done(command.env("MILLRACE_HTTP_URL", url).args(words), words);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for broker in [&mut self.rabbitmq, &mut self.millrace] {
            let _ = broker.kill();
            if !std::thread::panicking() {
                let _ = std::fs::remove_dir_all(&broker.setup.data);
            }
        }
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

fn done(command: &mut Command, words: &[&str]) {
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{words:?}: {}{told}",
        String::from_utf8_lossy(&output.stdout)
    );
}

fn vhost(number: usize) -> String {
    match number % VHOSTS {
        0 => "/".to_owned(),
        vhost => format!("shop/{vhost} ü"),
    }
}

/// Arguments of queues that both brokers have.
fn arguments(number: usize) -> Value {
    match number % 7 {
        0 => json!({}),
        1 => json!({ "x-queue-type": "quorum", "x-delivery-limit": 5 }),
        2 => json!({ "x-message-ttl": 60_000 + number, "x-expires": 3_600_000 }),
        3 => json!({ "x-max-priority": 10 }),
        4 => json!({ "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "queue-0" }),
        5 => json!({ "x-max-length": number, "x-overflow": "reject-publish" }),
        _ => json!({ "x-queue-mode": "lazy", "x-single-active-consumer": true }),
    }
}

fn policy(number: usize) -> Value {
    let definition = match number % 4 {
        0 => json!({ "max-length": number + 1 }),
        1 => json!({ "message-ttl": 1000 + number, "dead-letter-exchange": "amq.fanout" }),
        2 => json!({ "expires": 3_600_000, "overflow": "drop-head" }),
        _ => json!({ "alternate-exchange": "amq.fanout" }),
    };
    let apply_to = if number % 4 == 3 { "exchanges" } else { "queues" };
    json!({
        "vhost": vhost(number),
        "name": format!("policy {number}"),
        "pattern": format!("^(queue|exchange)-{number}$"),
        "apply-to": apply_to,
        "definition": definition,
        "priority": number % 5,
    })
}

/// A large broker's definitions.
fn definitions() -> Value {
    let all = |make: &dyn Fn(usize) -> Value| (0..COUNT).map(make).collect::<Vec<_>>();
    let tags = ["administrator", "monitoring", "policymaker", "management", ""];
    // Four bytes of salt and a SHA-256, as RabbitMQ has them: of no password.
    let hash = |number: usize| format!("{}AAAAAAAA", format!("{number:04}").repeat(10));
    let user = |number: usize| {
        let own: Vec<&str> =
            tags[number % 5..=number % 5].iter().copied().filter(|tag| !tag.is_empty()).collect();
        json!({
            "name": format!("user {number}"),
            "password_hash": hash(number),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": own,
            "limits": if number.is_multiple_of(9) { json!({ "max-connections": number }) } else { json!({}) },
        })
    };
    let permission = |number: usize| {
        json!({
            "user": format!("user {number}"), "vhost": vhost(number),
            "configure": format!("^u{number}\\."), "write": ".*", "read": "",
        })
    };
    let topic = |number: usize| {
        json!({
            "user": format!("user {number}"), "vhost": vhost(number), "exchange": "amq.topic",
            "write": "^{username}\\.", "read": ".*",
        })
    };
    let queue = |number: usize| {
        json!({
            "name": format!("queue-{number}"), "vhost": vhost(number), "durable": true,
            "auto_delete": false, "arguments": arguments(number),
        })
    };
    let kinds = ["direct", "fanout", "topic", "headers"];
    let exchange = |number: usize| {
        json!({
            "name": format!("exchange-{number}"), "vhost": vhost(number), "type": kinds[number % 4],
            "durable": true, "auto_delete": false, "internal": false, "arguments": {},
        })
    };
    let binding = |number: usize| {
        json!({
            "source": format!("exchange-{number}"), "vhost": vhost(number),
            "destination": format!("queue-{number}"), "destination_type": "queue",
            "routing_key": format!("key.{number}.#"),
            "arguments": if number % 4 == 3 { json!({ "x-match": "any", "n": number }) } else { json!({}) },
        })
    };
    let limits = (0..VHOSTS).map(|number| {
        json!({
            "component": "vhost-limits", "name": "limits", "vhost": vhost(number),
            "value": { "max-connections": 100 + number, "max-queues": 10_000 },
        })
    });
    json!({
        "vhosts": (0..VHOSTS).map(|number| json!({
            "name": vhost(number),
            "metadata": { "description": format!("shop {number}"), "tags": ["eu"] },
        })).collect::<Vec<_>>(),
        "users": all(&user),
        "permissions": all(&permission),
        "topic_permissions": all(&topic),
        "parameters": limits.collect::<Vec<_>>(),
        "policies": all(&policy),
        "queues": all(&queue),
        "exchanges": all(&exchange),
        "bindings": all(&binding),
    })
}

/// What is there whatever the order; the rest is of the broker that wrote it.
fn compared(path: &str) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    let mut all: Value = serde_json::from_str(&text).unwrap();
    let fields = all.as_object_mut().unwrap();
    let of_broker = ["rabbit_version", "rabbitmq_version", "product_name", "product_version"];
    for name in of_broker.into_iter().chain(["original_cluster_name", "global_parameters"]) {
        fields.remove(name);
    }
    for list in fields.values_mut().filter_map(Value::as_array_mut) {
        list.sort_by_key(Value::to_string);
    }
    all
}

fn assert_equal(one: &Value, other: &Value) {
    let (one, other) = (one.as_object().unwrap(), other.as_object().unwrap());
    for (part, list) in one {
        let (list, others) = (list.as_array().unwrap(), other[part].as_array().unwrap());
        let lacks = |these: &[Value], those: &[Value]| {
            these.iter().filter(|it| !those.contains(it)).take(3).cloned().collect::<Vec<_>>()
        };
        let (gone, new) = (lacks(list, others), lacks(others, list));
        assert!(gone.is_empty() && new.is_empty(), "{part}: gone {gone:?}, new {new:?}");
        assert_eq!(list.len(), others.len(), "{part}");
    }
    assert_eq!(one.len(), other.len());
}

#[test]
fn definitions_of_a_large_rabbitmq_come_through_millrace_and_back_as_they_were() {
    let Some(stage) = Stage::start() else { return };
    let (made, first) = (stage.file("made.json"), stage.file("first.json"));
    let (ours, last) = (stage.file("ours.json"), stage.file("last.json"));
    std::fs::write(&made, definitions().to_string()).unwrap();
    stage.rabbitmqctl(&["import_definitions", &made]);
    stage.rabbitmqctl(&["export_definitions", &first]);
    let wanted = compared(&first);
    // The default user and its permissions are there beside them.
    for (part, at_least) in [("queues", COUNT), ("policies", COUNT), ("users", COUNT + 1)] {
        assert_eq!(wanted[part].as_array().unwrap().len(), at_least, "{part}");
    }

    stage.millrace(&["definitions", "import", &first]);
    stage.millrace(&["definitions", "export", &ours]);
    // Again: nothing is there twice, and nothing changes.
    stage.millrace(&["definitions", "import", &first]);
    let again = stage.file("again.json");
    stage.millrace(&["definitions", "export", &again]);
    assert_equal(&compared(&ours), &compared(&again));

    for words in [&["stop_app"], &["reset"], &["start_app"]] {
        stage.rabbitmqctl(words);
    }
    stage.rabbitmqctl(&["import_definitions", &ours]);
    stage.rabbitmqctl(&["export_definitions", &last]);
    assert_equal(&wanted, &compared(&last));
}
