//! What happened, as marks in the history: other leaders, starts of nodes, deployments.

use client::QueueSpec;
use serde_json::{Value, json};

use super::{Managed, until_connected};
use crate::node::{Node, until};

const ORDERS: &str = "/millrace/history/queues/%2F/orders?seconds=3600";

fn marks(managed: &Managed, path: &str) -> Vec<Value> {
    let Value::Array(marks) = managed.done("GET", path, &Value::Null)["marks"].take() else {
        panic!("{path} has marks")
    };
    marks
}

fn of_kind(managed: &Managed, path: &str, kind: &str) -> Vec<Value> {
    marks(managed, path).into_iter().filter(|mark| mark["kind"] == kind).collect()
}

/// The node that leads a queue is killed: every node tells when the leader changed, from where to where, and of which
/// queue, also the killed one after its restart. Deployments are beside it, and survive the restart of all nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_tells_when_a_leader_changed_and_what_was_deployed() {
    let nodes = Node::start_three("management-marks").into_iter().map(Managed::of);
    let mut nodes: Vec<Managed> = nodes.collect();
    nodes[0].done_at_last("PUT", "/vhosts/shop", &json!({}));
    let mut client = until_connected(&nodes[0], "guest", "guest").await;
    client.declare_queue(&QueueSpec::durable("orders")).await.unwrap();
    drop(client);

    nodes[0].make_user("pipeline", "monitoring", &[]);
    let said = |text: &str| json!({ "text": text }).to_string();
    let pipeline = Some(("pipeline", "secret"));
    until("another node knows the user", || {
        nodes[1].ask(pipeline, "GET", "/whoami", "").status == 200
    });
    let told = nodes[1].ask(pipeline, "POST", "/millrace/marks", &said("orders 1.4.2"));
    assert_eq!(told.status, 201, "{}", told.body);
    for wrong in [said(""), said(&"x".repeat(257)), said("two\nlines"), "{}".to_owned()] {
        let refused = nodes[1].ask(pipeline, "POST", "/millrace/marks", &wrong);
        assert_eq!(refused.status, 400, "{wrong}: {}", refused.body);
    }
    let audited = nodes[2].done("GET", "/millrace/audit?event=mark", &Value::Null);
    assert_eq!(audited[0]["user"], "pipeline", "{audited}");
    assert_eq!(audited[0]["details"], json!({ "text": "orders 1.4.2" }));

    let leader_of = |managed: &Managed| {
        managed.done("GET", "/queues/%2F/orders", &Value::Null)["leader"].clone()
    };
    until("the queue has a leader", || leader_of(&nodes[0]).is_string());
    let led_by = leader_of(&nodes[0]);
    let place = (1..=3).find(|node| led_by == format!("millrace@{node}")).unwrap() - 1;
    nodes[place].node.kill();
    let others: Vec<usize> = (0..3).filter(|other| *other != place).collect();
    let mut change = Value::Null;
    until("another node leads the queue, and its mark says so", || {
        let found = of_kind(&nodes[others[0]], ORDERS, "leader");
        let from = found.into_iter().find(|mark| mark["from"] == led_by);
        change = from.unwrap_or_default();
        !change.is_null()
    });
    assert_ne!(change["to"], led_by, "{change}");
    assert_eq!(change["queues"], json!([{ "vhost": "/", "name": "orders" }]), "{change}");
    assert_eq!(change["queue_count"], 1);
    let same = |mark: &Value| mark["group"] == change["group"] && mark["term"] == change["term"];
    let of_all = of_kind(&nodes[others[1]], "/millrace/history?seconds=3600", "leader");
    let found = of_all.iter().find(|mark| same(mark)).unwrap();
    assert!(found["queues"].as_array().unwrap().contains(&change["queues"][0]), "{found}");
    let path = format!("/millrace/history/nodes/{}?seconds=3600", led_by.as_str().unwrap());
    assert!(of_kind(&nodes[others[1]], &path, "leader").iter().any(same), "of the killed node");

    nodes[place].node.crash();
    let started = |managed: &Managed| -> Vec<Value> {
        let starts = of_kind(managed, &path, "start");
        starts.into_iter().map(|mark| mark["at"].clone()).collect()
    };
    until("the node that is back tells of the time without it", || {
        of_kind(&nodes[place], ORDERS, "leader").iter().any(same)
    });
    until("all nodes have seen its start", || {
        // The one before the kill is known to the others alone.
        started(&nodes[others[0]]).len() >= 2
            && started(&nodes[others[0]]) == started(&nodes[place])
    });
    nodes.iter_mut().for_each(|managed| managed.node.kill());
    let mut all: Vec<&mut Node> = nodes.iter_mut().map(|managed| &mut managed.node).collect();
    Node::start_again(&mut all);
    until("deployments are in the log", || {
        nodes.iter().all(|managed| {
            let found = of_kind(managed, ORDERS, "deployment");
            found.len() == 1 && found[0]["text"] == "orders 1.4.2" && found[0]["user"] == "pipeline"
        })
    });
}

/// Yesterday is asked for as it was, and no further back than two days.
#[test]
fn the_past_before_the_past_can_be_asked_for() {
    let managed = Managed::start("management-yesterday");
    let get =
        |query: &str| managed.guest("GET", &format!("/millrace/history?{query}"), &Value::Null);
    let yesterday = get("seconds=3600&ago=86400").body;
    assert_eq!((&yesterday["step_ms"], &yesterday["marks"]), (&json!(300_000), &json!([])));
    assert_eq!(yesterday["series"]["publish"], json!(vec![Value::Null; 12]));
    let today = get("seconds=3600").body;
    let ms = |series: &Value| series["to"].as_u64().unwrap();
    assert!(ms(&today) - ms(&yesterday) >= 86_400_000, "{yesterday}");
    assert_eq!(get("seconds=172800").body["series"]["publish"].as_array().unwrap().len(), 576);
    for wrong in ["ago=172800", "ago=x", "seconds=0"] {
        assert_eq!(get(wrong).status, 400, "{wrong}");
    }
    until("the node's own start is a mark", || {
        let path = "/millrace/history/nodes/millrace@1";
        marks(&managed, path).len() == 1 && marks(&managed, path)[0]["kind"] == "start"
    });
}
