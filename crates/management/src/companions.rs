//! Relays, inboxes and workers beside the broker: what their `/status` says, and how it is shown.

use serde_json::{Value, json};

/// An answer in HTTP/1: its code and its body.
fn parts(answer: &[u8]) -> Result<(String, &[u8]), String> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or("answers with something that is no HTTP, or broke off")?;
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let code = line.split(' ').nth(1).filter(|_| line.starts_with("HTTP/1."));
    Ok((code.unwrap_or("?").chars().take(3).collect(), body))
}

/// What an address has answered to `GET /status HTTP/1.0`.
///
/// # Errors
/// It is no status of a relay, an inbox or a worker: what it is.
pub(crate) fn read(answer: &[u8]) -> Result<Value, String> {
    let (code, body) = parts(answer)?;
    if code != "200" {
        return Err(format!(
            "answers /status with HTTP {code}: is it the address of the metrics of a relay or a worker?"
        ));
    }
    let status: Option<Value> = serde_json::from_slice(body).ok();
    let status = status.filter(|status| kind(status).is_some());
    status.ok_or_else(|| "is no relay, inbox or worker of this version".to_owned())
}

/// What an address has answered to `PUT` or `DELETE /pause`: whether it rests.
///
/// # Errors
/// It does not do it: why.
pub(crate) fn ordered(answer: &[u8]) -> Result<bool, String> {
    let (code, body) = parts(answer)?;
    match &*code {
        "200" | "202" => {
            let told: Value = serde_json::from_slice(body).unwrap_or_default();
            told["is_paused"]
                .as_bool()
                .ok_or_else(|| "is no relay or worker of this version".to_owned())
        }
        "401" => Err("has another secret than this node's companions_secret_file".to_owned()),
        "404" => {
            Err("takes no orders: a relay or a worker does, with an orders_secret_file".to_owned())
        }
        code => Err(format!("answers with HTTP {code}")),
    }
}

/// What it is whose status this is. A worker does not name itself.
fn kind(status: &Value) -> Option<&'static str> {
    match status["kind"].as_str() {
        Some("relay") => Some("relay"),
        Some("inbox") => Some("inbox"),
        Some(_) => None,
        None => status["pipelines"].is_array().then_some("worker"),
    }
}

/// One, as a node has asked it at `now_ms`.
pub(crate) fn shown(node: &str, address: &str, now_ms: u64, told: Result<Value, String>) -> Value {
    let (status, error) = match told {
        Ok(status) => (status, None),
        Err(why) => (Value::Null, Some(format!("{address} {why}"))),
    };
    json!({
        "node": node,
        "address": address,
        "at": now_ms,
        "kind": kind(&status),
        "status": status,
        "error": error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(line: &str, body: &str) -> Vec<u8> {
        format!("{line}\r\ncontent-type: application/json\r\n\r\n{body}").into_bytes()
    }

    #[test]
    fn a_status_is_read_and_what_is_none_is_said() {
        let relay = json!({ "kind": "relay", "confirmed": 7 });
        let told = read(&answer("HTTP/1.0 200 OK", &relay.to_string()));
        let one = shown("millrace@1", "10.0.0.7:9187", 5, told);
        assert_eq!(
            (&one["kind"], &one["status"], &one["at"]),
            (&json!("relay"), &relay, &json!(5))
        );
        assert_eq!(one["error"], Value::Null);
        let worker = json!({ "version": "1", "pipelines": [] }).to_string();
        let told = read(&answer("HTTP/1.1 200 OK", &worker));
        assert_eq!(shown("n", "a", 5, told)["kind"], "worker");
        for (wrong, why) in [
            (b"SSH-2.0-x\r\n".to_vec(), "no HTTP"),
            (answer("HTTP/1.1 404 Not Found", ""), "HTTP 404"),
            (answer("SSH-2.0 200 OK", "{}"), "HTTP ?"),
            (answer("HTTP/1.1 200 OK", "<html>"), "is no relay"),
            (answer("HTTP/1.1 200 OK", r#"{"kind":"other"}"#), "is no relay"),
            (answer("HTTP/1.1 200 OK", "[1]"), "is no relay"),
        ] {
            let one = shown("n", "10.0.0.7:1", 5, read(&wrong));
            let error = one["error"].as_str().unwrap();
            assert!(error.starts_with("10.0.0.7:1 ") && error.contains(why), "{error}");
            assert_eq!((&one["kind"], &one["status"]), (&Value::Null, &Value::Null));
        }
    }

    #[test]
    fn an_order_is_done_or_it_is_said_why_not() {
        let rests = answer("HTTP/1.0 200 OK", r#"{"is_paused":true}"#);
        assert_eq!(ordered(&rests), Ok(true));
        let not_yet = answer("HTTP/1.0 202 Accepted", r#"{"is_paused":false}"#);
        assert_eq!(ordered(&not_yet), Ok(false));
        for (wrong, why) in [
            (answer("HTTP/1.0 401 Unauthorized", ""), "another secret"),
            (answer("HTTP/1.0 404 Not Found", ""), "takes no orders"),
            (answer("HTTP/1.0 500 Oh", ""), "HTTP 500"),
            (answer("HTTP/1.0 200 OK", "<html>"), "no relay"),
        ] {
            let told = ordered(&wrong).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
