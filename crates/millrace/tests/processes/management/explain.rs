//! Where a message would go, and which setting of a queue is from where.

use client::QueueSpec;
use serde_json::{Value, json};

use super::Managed;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_explained_binding_by_binding_and_goes_there() {
    let managed = Managed::start("management-explain");
    managed.done("PUT", "/vhosts/shop", &json!({}));
    let alternate = json!({ "alternate-exchange": "spare" });
    let exchanges = [("spare", "fanout", json!({})), ("orders", "topic", alternate)];
    for (name, kind, arguments) in exchanges {
        let body = json!({ "type": kind, "arguments": arguments });
        managed.done("PUT", &format!("/exchanges/shop/{name}"), &body);
    }
    let full = json!({
        "x-max-length": 1, "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "spare", "x-dead-letter-routing-key": "late",
    });
    for (name, arguments) in [("eu", full), ("us", json!({})), ("rest", json!({}))] {
        managed.done("PUT", &format!("/queues/shop/{name}"), &json!({ "arguments": arguments }));
    }
    for (source, queue, key) in
        [("orders", "eu", "eu.#"), ("orders", "us", "us.#"), ("spare", "rest", "")]
    {
        let path = format!("/bindings/shop/e/{source}/q/{queue}");
        managed.done("POST", &path, &json!({ "routing_key": key }));
    }
    let explain = |key: &str| {
        let path = format!("/millrace/explain/shop/orders?routing_key={key}");
        managed.done("GET", &path, &Value::Null)
    };
    let outcome = |shown: &Value| {
        let queue = &shown["queues"][0];
        (queue["name"].clone(), queue["outcome"].clone())
    };
    let shown = explain("eu.fr");
    assert_eq!(outcome(&shown), (json!("eu"), json!("stored")));
    let matching = shown["hops"][0]["bindings"].as_array().unwrap().iter();
    let matching = matching.map(|it| (it["routing_key"].clone(), it["matches"].clone()));
    let expected = [(json!("eu.#"), json!(true)), (json!("us.#"), json!(false))];
    assert_eq!(matching.collect::<Vec<_>>(), expected);
    let publish = json!({
        "properties": {}, "routing_key": "eu.fr", "payload": "x", "payload_encoding": "string",
    });
    managed.done("POST", "/exchanges/shop/orders/publish", &publish);
    let shown = explain("eu.fr");
    assert_eq!(outcome(&shown), (json!("eu"), json!("refused: the queue is full")));
    assert_eq!(shown["queues"][0]["dead_letters"]["queues"], json!(["rest"]));
    let shown = explain("asia");
    assert_eq!(shown["hops"][0]["alternate_exchange"], "spare");
    assert_eq!(outcome(&shown), (json!("rest"), json!("stored")));
    let ask = |path: &str| managed.guest("GET", path, &Value::Null);
    assert_eq!(ask("/millrace/explain/shop/none").status, 404);
    assert_eq!(ask("/millrace/explain/shop/orders?headers=x").status, 400);
    let internal = ask("/millrace/explain/%2F/amq.rabbitmq.trace").body;
    assert!(internal["refused"].as_str().unwrap().contains("internal"), "{internal}");
    let by_name = ask("/millrace/explain/shop/amq.default?routing_key=us").body;
    assert_eq!(outcome(&by_name), (json!("us"), json!("stored")));

    // A look counts as no use, and takes nothing.
    let mut client = managed.connect("guest", "guest", "shop").await.unwrap();
    let eu = client.look_up_queue("eu").await.unwrap();
    assert_eq!(eu.message_count, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_setting_of_a_queue_says_where_it_is_from() {
    let managed = Managed::start("management-explain-queue");
    let policy = |length: u64, priority: i64| {
        let definition = json!({ "max-length": length, "message-ttl": 60_000 });
        json!({ "pattern": "^jobs", "definition": definition, "priority": priority })
    };
    managed.done_at_last("PUT", "/policies/%2F/low", &policy(9, 1));
    managed.done("PUT", "/policies/%2F/high", &policy(5, 2));
    let bound = json!({ "pattern": ".*", "definition": { "max-length": 7 } });
    managed.done("PUT", "/operator-policies/%2F/bound", &bound);
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let shown = managed.done("GET", "/millrace/explain/%2F/queues/jobs", &Value::Null);
    let settings = shown["settings"].as_array().unwrap();
    let find = |name: &str| settings.iter().find(|it| it["setting"] == name).unwrap();
    let length = find("max-length");
    assert_eq!((&length["value"], &length["from"]), (&json!(5), &json!(["policy"])));
    let overruled = json!([{ "from": "operator policy", "value": 7 }]);
    assert_eq!(length["overruled"], overruled);
    assert_eq!(find("message-ttl")["from"], json!(["policy"]));
    let policies = shown["policies"].as_array().unwrap().iter();
    let policies = policies.map(|it| (it["name"].clone(), it["counts"].clone()));
    let expected = [(json!("high"), json!(true)), (json!("low"), json!(false))];
    assert_eq!(policies.collect::<Vec<_>>(), expected);
    assert_eq!((&shown["state"], &shown["messages_ready"]), (&json!("running"), &json!(0)));
}

/// What a policy would change is said before it is put, and is what it changes then. Nothing is changed by asking.
#[test]
fn a_policy_is_foreseen_before_it_is_put() {
    let managed = Managed::start("management-foreseen");
    for name in ["jobs.a", "jobs.high", "other"] {
        managed.done("PUT", &format!("/queues/%2F/{name}"), &json!({ "durable": true }));
    }
    let high = json!({ "pattern": "high$", "priority": 9, "definition": { "max-length": 1 } });
    managed.done_at_last("PUT", "/policies/%2F/high", &high);
    let policy = json!({ "pattern": "^jobs", "definition": { "max-length": 5 } });
    let path = "/millrace/explain/%2F/policies/short";
    let told = managed.done("POST", path, &policy);
    let change = json!({
        "queue": "jobs.a",
        "policy": { "before": null, "after": "short" },
        "definition": { "before": {}, "after": { "max-length": 5 } },
    });
    assert_eq!(told, json!({ "queue_count": 2, "change_count": 1, "changes": [change] }));
    assert_eq!(managed.guest("GET", "/policies/%2F/short", &Value::Null).status, 404);
    let wrong = json!({ "pattern": "(", "definition": { "max-length": 5 } });
    assert_eq!(managed.guest("POST", path, &wrong).status, 400);
    assert_eq!(managed.guest("POST", "/millrace/explain/none/policies/p", &policy).status, 404);
    managed.done("PUT", "/policies/%2F/short", &policy);
    let governed = managed.done("GET", "/queues/%2F/jobs.a", &Value::Null);
    assert_eq!(governed["effective_policy_definition"], json!({ "max-length": 5 }));
    assert_eq!(managed.done("POST", path, &policy)["change_count"], 0);

    // An operators' policy counts beside it: the smaller limit does.
    let bound = json!({ "pattern": "^jobs", "definition": { "max-length": 3 } });
    let path = "/millrace/explain/%2F/operator-policies/bound";
    let told = managed.done("POST", path, &bound);
    assert_eq!(told["change_count"], 2, "{told}");
    let change = json!({
        "queue": "jobs.a",
        "policy": { "before": null, "after": "bound" },
        "definition": { "before": { "max-length": 5 }, "after": { "max-length": 3 } },
    });
    assert_eq!(told["changes"][0], change);
    managed.done("PUT", "/operator-policies/%2F/bound", &bound);
    let governed = managed.done("GET", "/queues/%2F/jobs.a", &Value::Null);
    assert_eq!(governed["effective_policy_definition"], json!({ "max-length": 3 }));
    managed.make_user("pat", "policymaker", &["%2F"]);
    assert_eq!(managed.ask(Some(("pat", "secret")), "POST", path, &bound.to_string()).status, 401);
}
