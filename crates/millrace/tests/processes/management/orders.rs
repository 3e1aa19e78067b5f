//! A node of three gives its groups away and gets them back, and is replaced, all over HTTP.

use serde_json::{Value, json};

use super::Managed;
use crate::node::{Node, until};

const DRAIN: &str = "/millrace/nodes/millrace@2/drain";
const REBALANCE: &str = "/millrace/rebalance";
const REPLACE: &str = "/millrace/nodes/millrace@2/replace";

/// The groups that are led by the node.
fn led_by(managed: &Managed, node: &str) -> Vec<Value> {
    let told = managed.done("GET", "/millrace/reconcile", &Value::Null);
    let groups = told["groups"].as_array().unwrap();
    let leads = |replica: &Value| replica["node"] == node && replica["leads"] == true;
    let led = groups.iter().filter(|it| it["replicas"].as_array().unwrap().iter().any(leads));
    led.map(|group| group["group"].clone()).collect()
}

fn moves(managed: &Managed, path: &str) -> Vec<Value> {
    let told = managed.done("POST", path, &json!({ "dry_run": true }));
    told["moves"].as_array().unwrap().clone()
}

#[test]
fn a_node_is_drained_after_it_was_told_what_moves_and_gets_its_groups_back() {
    let nodes = Node::start_three("management-orders").into_iter().map(Managed::of);
    let nodes: Vec<Managed> = nodes.collect();
    nodes[0].done_at_last("PUT", "/vhosts/shop", &json!({}));
    let in_order = |mut groups: Vec<Value>| {
        groups.sort_by_key(Value::as_u64);
        groups
    };
    // With three nodes, what node 2 is to lead is what moves. It leads that a moment after the start.
    let mut foreseen = Vec::new();
    until("node 2 leads what it is to lead", || {
        foreseen = moves(&nodes[0], DRAIN);
        let of_two = foreseen.iter().filter(|it| it["nodes"][0] == "millrace@2");
        let wanted = in_order(of_two.map(|it| it["group"].clone()).collect());
        !wanted.is_empty() && in_order(led_by(&nodes[0], "millrace@2")) == wanted
    });
    let led = in_order(led_by(&nodes[0], "millrace@2"));
    let moving = in_order(foreseen.iter().map(|it| it["group"].clone()).collect());
    // Others may move, too, so that the nodes that are left have as much to lead.
    assert!(led.iter().all(|group| moving.contains(group)), "{led:?} {moving:?}");
    for one in &foreseen {
        let is_led = led.contains(&one["group"]);
        assert_eq!(one["nodes"][0] == "millrace@2", is_led, "{one}");
        assert_ne!(one["nodes_then"][0], "millrace@2", "{one}");
    }
    assert_eq!(led_by(&nodes[0], "millrace@2").len(), led.len(), "nothing has moved");

    // The node itself may be asked.
    let told = nodes[1].done("POST", DRAIN, &json!({}));
    assert!(told["said"].as_str().unwrap().contains("move away from node 2"), "{told}");
    until("node 2 leads nothing", || led_by(&nodes[2], "millrace@2").is_empty());
    assert_eq!(moves(&nodes[2], DRAIN), Vec::<Value>::new());
    nodes[2].done("POST", REBALANCE, &json!({}));
    until("node 2 leads as many groups as before", || {
        led_by(&nodes[0], "millrace@2").len() == led.len()
    });
    let trail = nodes[0].done("GET", "/millrace/audit?event=node", &Value::Null);
    assert_eq!(
        (&trail[0]["event"], &trail[0]["object"]),
        (&json!("node.drained"), &json!("millrace@2")),
        "{trail}"
    );
}

#[test]
fn a_node_is_replaced_and_what_cannot_be_done_is_refused_with_a_reason() {
    let nodes = Node::start_three("management-replace").into_iter().map(Managed::of);
    let mut nodes: Vec<Managed> = nodes.collect();
    nodes[0].done_at_last("PUT", "/vhosts/shop", &json!({}));
    for (body, why) in [
        (json!({}), "key_missing,by"),
        (json!({ "by": 3 }), "take another number"),
        (json!({ "by": 2, "dry_run": true }), "take another number"),
    ] {
        let refused = nodes[0].guest("POST", REPLACE, &body);
        assert_eq!(refused.status, 400, "{body}: {}", refused.body);
        assert!(refused.body.to_string().contains(why), "{body}: {}", refused.body);
    }
    let none = nodes[0].guest("POST", "/millrace/nodes/millrace@9/drain", &json!({}));
    assert_eq!(none.status, 404);
    nodes[0].make_user("ann", "monitoring", &[]);
    let ann = Some(("ann", "secret"));
    assert_eq!(nodes[0].ask(ann, "POST", REBALANCE, "").status, 401);

    nodes[1].node.kill();
    let mut told = Value::Null;
    until("the others agree that node 2 is gone", || {
        let answer = nodes[0].guest("POST", REPLACE, &json!({ "by": 4 }));
        told = answer.body;
        answer.status == 200
    });
    assert!(told["said"].as_str().unwrap().contains("--node-id 4"), "{told}");
    let names = |managed: &Managed| -> Vec<String> {
        let listed = managed.done("GET", "/nodes", &Value::Null);
        let names =
            listed.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned());
        names.collect()
    };
    assert_eq!(names(&nodes[0]), ["millrace@1", "millrace@3", "millrace@4"]);
}

/// Two of three nodes are gone: an order waits in vain for the others to agree, and meanwhile no second one is taken.
#[test]
fn a_node_carries_out_one_order_at_a_time_and_says_when_the_others_do_not_agree() {
    let nodes = Node::start_three("management-one-order").into_iter().map(Managed::of);
    let mut nodes: Vec<Managed> = nodes.collect();
    nodes[0].done_at_last("PUT", "/vhosts/shop", &json!({}));
    until("node 2 is to lead something", || !moves(&nodes[0], DRAIN).is_empty());
    nodes[1].node.kill();
    nodes[2].node.kill();
    let one = &nodes[0];
    // Which of the two comes first is the machine's: the first waits for a majority, the second is refused at once.
    let mut answers = std::thread::scope(|scope| {
        let asked = [(); 2].map(|()| scope.spawn(|| one.guest("POST", DRAIN, &json!({}))));
        asked.map(|asked| asked.join().unwrap())
    });
    answers.sort_by_key(|answer| answer.status);
    let [waited, refused] = answers;
    assert_eq!((waited.status, refused.status), (400, 503), "{} {}", waited.body, refused.body);
    assert!(waited.body.to_string().contains("did not agree in time"), "{}", waited.body);
    assert!(refused.body.to_string().contains("another order"), "{}", refused.body);
}
