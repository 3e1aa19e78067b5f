//! Queues that are called `.` and `..`: clients take such parts out of a path, so the path is in the query.

use serde_json::{Value, json};

use super::Managed;

/// The path in a query, as a browser's script writes it.
fn at(path: &str) -> String {
    let quoted: String = path.replace('%', "%25").replace('/', "%2F");
    format!("/millrace/at?path={quoted}")
}

/// Each method works there, with a body and the rest of the query, and who may ask is judged by the path that is meant.
#[test]
fn what_is_called_as_no_path_may_be_is_reached_by_a_query() {
    let managed = Managed::start("management-at");
    managed.done("PUT", "/vhosts/shop", &json!({}));
    for name in [".", ".."] {
        let quoted = name.replace('.', "%2E");
        let queue = at(&format!("/queues/%2F/{quoted}"));
        managed.done("PUT", &queue, &json!({ "durable": true, "arguments": {} }));
        assert_eq!(managed.done("GET", &queue, &Value::Null)["name"], name);
        let publish = at("/exchanges/%2F/amq.default/publish");
        let message = json!({
            "routing_key": name, "payload": "hello", "payload_encoding": "string", "properties": {},
        });
        assert_eq!(managed.done("POST", &publish, &message)["routed"], true);
        let messages = at(&format!("/queues/%2F/{quoted}/messages"));
        let seen = managed.done("GET", &format!("{messages}&count=1&truncate=2"), &Value::Null);
        assert_eq!(seen["items"][0]["payload"], "he", "the rest of the query counts");
        managed.make_user(&format!("ann{}", name.len()), "management", &["shop"]);
        let ann = format!("ann{}", name.len());
        for method in ["GET", "DELETE"] {
            let answer = managed.ask(Some((&ann, "secret")), method, &queue, "");
            assert_eq!(answer.status, 401, "{method}");
            assert_eq!(managed.ask(None, method, &queue, "").status, 401, "{method}");
        }
        managed.done("DELETE", &queue, &Value::Null);
        assert_eq!(managed.guest("GET", &queue, &Value::Null).status, 404);
    }
    assert_eq!(managed.guest("GET", "/millrace/at?path=queues", &Value::Null).status, 400);
    assert_eq!(managed.guest("GET", &at("/no/such/path"), &Value::Null).status, 404);
    assert_eq!(managed.guest("PATCH", &at("/queues"), &Value::Null).status, 405);
    let twice = managed.guest("GET", &at("/millrace/at"), &Value::Null);
    assert_eq!(twice.status, 404, "it stands for no path of its own kind");
}
