//! What a node says of itself: its past, what is wrong, and which paths it has.

use std::collections::BTreeSet;

use amqp::Properties;
use client::{Address, Options, Publisher, QueueSpec};
use serde_json::{Value, json};

use super::{Managed, send};
use crate::node::{Node, free_address, until};

/// The past of a queue and of the node comes without Prometheus, also as RabbitMQ shows it; a queue that nobody consumes
/// from becomes a problem that says what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_past_is_kept_and_a_queue_without_consumers_is_a_problem() {
    let managed = Managed::start("management-history");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    client.declare_queue(&QueueSpec::durable("left")).await.unwrap();
    let get = |path: &str| managed.done("GET", path, &Value::Null);
    let path = "/millrace/history/queues/%2F/left?seconds=600";
    let ready = || get(path)["series"]["messages_ready"].as_array().cloned().unwrap_or_default();
    // What comes before the first look at a queue is not in its past.
    until("the node has looked at the queue", || ready().iter().any(Value::is_u64));
    let mut publisher =
        Publisher::open(&managed.node.url, &Options::named("test"), 100).await.unwrap();
    let to = Address { exchange: "", routing_key: "left", mandatory: true };
    for _ in 0..1200 {
        publisher.publish(to, &Properties::default(), b"x").await.unwrap();
    }
    assert!(publisher.close().await.unwrap().is_clean());
    let sum = |series: &Value, name: &str| -> u64 {
        series[name].as_array().unwrap().iter().filter_map(Value::as_u64).sum()
    };
    until("the queue has a past", || sum(&get(path)["series"], "publish") == 1200);
    let past = get(path);
    assert_eq!(past["step_ms"], 10_000);
    assert_eq!(past["series"]["messages_ready"].as_array().unwrap().len(), 60);
    let most = past["series"]["messages_ready"].as_array().unwrap().iter();
    assert_eq!(most.filter_map(Value::as_u64).max(), Some(1200));
    assert_eq!(past["silent"], json!([]));
    let node = get("/millrace/history/nodes/millrace@1");
    assert_eq!(sum(&node["series"], "publish"), 1200, "{node}");
    assert_eq!(get("/millrace/history")["series"]["publish"], node["series"]["publish"]);

    let ranges = "lengths_age=600&lengths_incr=10&msg_rates_age=600&msg_rates_incr=60";
    let queue = get(&format!("/queues/%2F/left?{ranges}"));
    let newest = &queue["messages_ready_details"]["samples"][0];
    assert_eq!(newest["sample"], 1200, "{queue}");
    let published = &queue["message_stats"]["publish_details"];
    assert_eq!(published["samples"][0]["sample"], 1200, "{queue}");
    assert!(published["avg_rate"].is_f64() && published["avg"].is_f64(), "{queue}");
    let overview = get(&format!("/overview?{ranges}"));
    assert_eq!(overview["message_stats"]["publish_details"]["samples"][0]["sample"], 1200);
    assert_eq!(overview["queue_totals"]["messages_details"]["samples"][0]["sample"], 1200);
    let shown = get("/nodes/millrace@1?node_stats_age=60&node_stats_incr=10");
    assert!(shown["mem_used_details"]["samples"][0]["sample"].is_u64(), "{shown}");
    let wrong = managed.guest("GET", "/overview?lengths_age=x&lengths_incr=1", &Value::Null);
    assert_eq!(wrong.status, 400, "{}", wrong.body);

    managed.make_user("outsider", "management", &[]);
    until("the queue is a problem", || get("/millrace/problems")["verdict"] == json!("warning"));
    let told = get("/millrace/problems");
    let problem = &told["problems"][0];
    assert_eq!(problem["kind"], "queue_without_consumers", "{told}");
    assert_eq!(problem["object"], json!({ "queue": { "vhost": "/", "name": "left" } }));
    assert!(problem["what"].as_str().unwrap().contains("1200 messages wait"), "{told}");
    assert!(problem["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()));
    assert!(problem["since"].as_u64().is_some_and(|since| since > 1_600_000_000_000));
    let hidden = managed.ask(Some(("outsider", "secret")), "GET", "/millrace/problems", "");
    assert_eq!((hidden.status, &hidden.body["problems"]), (200, &json!([])), "{}", hidden.body);
}

#[test]
fn an_alarm_is_a_problem_and_the_worst_one() {
    let address = free_address();
    let more = ["--http", &address, "--set", "disk_free_limit=1000000GiB"];
    let managed = Managed { node: Node::start_with("management-problems", &more), address };
    let get = || managed.done("GET", "/millrace/problems", &Value::Null);
    // A node that has just started says first that it serves nobody yet.
    until("the alarm is told first", || get()["problems"][0]["kind"] == json!("disk_alarm"));
    let told = get();
    assert_eq!(told["verdict"], "critical", "{told}");
    assert_eq!(told["problems"][0]["object"], json!({ "node": "millrace@1" }));
}

/// What the API says of itself is what it serves.
#[test]
fn openapi_has_each_path_and_no_other() {
    let managed = Managed::start("management-openapi");
    let document = managed.done("GET", "/millrace/openapi.json", &Value::Null);
    let paths = document["paths"].as_object().unwrap().iter();
    let told: BTreeSet<(String, String)> = paths
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(|method| (method.to_ascii_uppercase(), path.clone()))
        })
        .collect();
    let served = management::paths().map(|(method, path)| (method.to_owned(), path.to_owned()));
    // Browsers log in and out at a path that is not in the table, because nobody is known there yet.
    let session = "/millrace/session";
    let sessions = ["POST", "GET", "DELETE"].map(|method| (method.to_owned(), session.to_owned()));
    let at_server = ["POST", "GET"].map(|method| (method.to_owned(), format!("{session}/oauth")));
    // One path stands for all others.
    let at =
        ["GET", "PUT", "POST", "DELETE"].map(|method| (method.to_owned(), "/millrace/at".into()));
    assert_eq!(told, served.chain(sessions).chain(at_server).chain(at).collect());
    let login = &document["paths"][session]["post"];
    let statuses: Vec<&String> = login["responses"].as_object().unwrap().keys().collect();
    let answers = [
        (r#"{"username":"guest","password":"guest"}"#, 200),
        ("[]", 400),
        (r#"{"username":"guest","password":"wrong"}"#, 401),
    ];
    for (body, status) in answers {
        let json = "content-type: application/json\r\n";
        let answer = send(&managed.address, json, "POST", session, body);
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert!(statuses.contains(&&status.to_string()), "{statuses:?}");
        let told = &login["responses"]["200"]["content"]["application/json"]["schema"];
        let told: Vec<&String> = told["properties"].as_object().unwrap().keys().collect();
        let fields = answer.body.as_object().unwrap().keys().collect::<Vec<_>>();
        assert!(status != 200 || fields == told, "{fields:?} {told:?}");
    }
    let queue = &document["paths"]["/queues/{vhost}/{queue}"]["get"];
    assert!(queue["description"].as_str().unwrap().contains("permissions in the vhost"), "{queue}");
    assert!(queue["responses"]["401"].is_object(), "{queue}");
}
