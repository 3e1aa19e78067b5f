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

/// What is wanted of a relay or a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) address: String,
    /// One pipeline of a worker. `None`: all of it.
    pub(crate) pipeline: Option<String>,
    /// It is to rest, or to go on.
    pub(crate) rest: bool,
}

impl Wish {
    /// How it is asked for by a user: method and path of a request.
    pub(crate) fn line(&self, by: &str) -> String {
        let method = if self.rest { "PUT" } else { "DELETE" };
        let mut path = "/pause".to_owned();
        if let Some(pipeline) = &self.pipeline {
            path.push('/');
            path.push_str(&quoted(pipeline));
        }
        format!("{method} {path}?by={}", quoted(by))
    }
}

/// A part of a path, or of a query.
fn quoted(text: &str) -> String {
    // A space is a plus in a query alone.
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// What an address has answered to `PUT` or `DELETE` of `/pause` or a pipeline's: whether it rests.
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
        // One that knows the order says what is missing.
        "404" if is_refusal(body) => Err("has no pipeline of this name".to_owned()),
        "404" => {
            Err("takes no orders: a relay or a worker does, with an orders_secret_file".to_owned())
        }
        code => Err(format!("answers with HTTP {code}")),
    }
}

fn is_refusal(body: &[u8]) -> bool {
    serde_json::from_slice(body).is_ok_and(|told: Value| told["error"].is_string())
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
    fn an_order_names_the_pipeline_and_who_wants_it_and_breaks_no_line() {
        let wish = |pipeline: Option<&str>, rest| {
            let pipeline = pipeline.map(str::to_owned);
            Wish { address: "10.0.0.7:9190".to_owned(), pipeline, rest }
        };
        assert_eq!(wish(None, true).line("ann"), "PUT /pause?by=ann");
        let line = wish(Some("e mail/+ä\r\n"), false).line("a&b c\r\nx: y");
        assert_eq!(line, "DELETE /pause/e%20mail%2F%2B%C3%A4%0D%0A?by=a%26b%20c%0D%0Ax%3A%20y");
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
            (answer("HTTP/1.0 404 Not Found", r#"{"error":"none"}"#), "has no pipeline"),
            (answer("HTTP/1.0 500 Oh", ""), "HTTP 500"),
            (answer("HTTP/1.0 200 OK", "<html>"), "no relay"),
        ] {
            let told = ordered(&wrong).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
