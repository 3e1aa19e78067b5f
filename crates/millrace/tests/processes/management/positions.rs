//! Streams and subscriptions: how far each partition is behind, and where a place is before one goes there.

use serde_json::{Value, json};

use super::Managed;
use crate::node::until;

fn publish(managed: &Managed, key: &str) {
    let message = json!({
        "routing_key": "log",
        "payload": "x",
        "payload_encoding": "string",
        "properties": { "headers": { "x-partition-key": key } },
    });
    managed.done("POST", "/exchanges/%2F/amq.default/publish", &message);
}

fn numbers(list: &Value, field: &str) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|it| it[field].as_u64().unwrap()).collect()
}

#[test]
fn a_subscription_says_the_lag_of_each_partition_and_a_place_its_offset() {
    let managed = Managed::start("management-positions");
    let stream = json!({ "arguments": { "x-queue-type": "stream", "x-partitions": 2 } });
    managed.done_at_last("PUT", "/queues/%2F/log", &stream);
    let arguments = json!({
        "x-queue-type": "subscription", "x-stream": "log", "x-stream-offset": "first",
    });
    managed.done("PUT", "/queues/%2F/log.reader", &json!({ "arguments": arguments }));
    for key in 0..20 {
        publish(&managed, &key.to_string());
    }
    let reader =
        || managed.done("GET", "/queues/%2F/log.reader", &Value::Null)["partitions"].clone();
    until("all is ready", || numbers(&reader(), "messages_ready").iter().sum::<u64>() == 20);
    let lags = numbers(&reader(), "messages_ready");
    assert!(lags.iter().all(|lag| *lag > 0), "{lags:?}");
    until("its leader has looked", || reader()[1]["oldest_ready_at"].is_u64());

    let place = |query: &str| {
        let path = format!("/millrace/queues/%2F/log.reader/position?{query}");
        managed.done("GET", &path, &Value::Null)
    };
    let first = place("offset=first");
    assert_eq!(
        (numbers(&first["partitions"], "messages"), &first["messages"]),
        (lags.clone(), &json!(20))
    );
    assert_eq!(numbers(&first["partitions"], "offset"), [0, 0]);
    let next = place("offset=next");
    assert_eq!(
        (numbers(&next["partitions"], "offset"), &next["messages"]),
        (lags.clone(), &json!(0))
    );
    let second = place("offset=1");
    assert_eq!(second["messages"], 18, "{second}");
    assert_eq!(place("timestamp=1000000000"), first, "all came later");
    assert_eq!(place("timestamp=4000000000"), next, "nothing came then yet");
    assert_eq!(place("offset=6h"), first);
    let of_stream =
        managed.done("GET", "/millrace/queues/%2F/log/position?offset=first", &Value::Null);
    assert_eq!(of_stream, first);

    for (path, status) in [
        ("/millrace/queues/%2F/log.reader/position", 400),
        ("/millrace/queues/%2F/log.reader/position?offset=soon", 400),
        ("/millrace/queues/%2F/log.reader/position?offset=1&timestamp=1", 400),
        ("/millrace/queues/%2F/none/position?offset=1", 404),
    ] {
        assert_eq!(managed.guest("GET", path, &Value::Null).status, status, "{path}");
    }
    // What is shown is where a seek goes.
    let to = json!({ "offset": 1 });
    managed.done("PUT", "/millrace/queues/%2F/log.reader/position", &to);
    until("it is there", || numbers(&reader(), "messages_ready").iter().sum::<u64>() == 18);
}
