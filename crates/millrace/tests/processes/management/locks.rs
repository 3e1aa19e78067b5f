//! Locks over HTTP, and `millrace lock`: one holder at a time, over restarts and whoever asks.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Managed;
use crate::node::until;

const JOB: &str = "/millrace/locks/%2F/job";

fn lease(owner: &str, lease_ms: u64) -> Value {
    json!({ "owner": owner, "lease_ms": lease_ms })
}

/// A node whose cluster knows locks.
fn with_locks(name: &str) -> Managed {
    let managed = Managed::start(name);
    managed.done_at_last("PUT", "/millrace/locks/%2F/first", &lease("nobody", 1_000));
    managed
}

/// `millrace lock …` of guest.
fn command(managed: &Managed, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    let url = format!("http://guest:guest@{}", managed.address);
    command.arg("lock").args(words).env("MILLRACE_HTTP_URL", url).env_remove("MILLRACE_CONTEXT");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn run(managed: &Managed, words: &[&str]) -> (i32, String, String) {
    said(&command(managed, words).output().unwrap())
}

fn spawn(managed: &Managed, words: &[&str]) -> Child {
    command(managed, words).spawn().unwrap()
}

fn until_held(managed: &Managed, is_held: bool) -> Value {
    let mut shown = Value::Null;
    until("the lock is as it should be", || {
        shown = managed.done("GET", JOB, &Value::Null);
        shown["held"] == json!(is_held)
    });
    shown
}

#[test]
fn one_holds_a_lock_until_it_is_released_also_over_a_restart() {
    let mut managed = with_locks("locks-http");
    let ann = managed.guest("PUT", JOB, &lease("ann", 20_000));
    assert_eq!(ann.status, 201, "{}", ann.body);
    let token = ann.body["token"].as_u64().unwrap();
    let again = managed.guest("PUT", JOB, &lease("ann", 20_000));
    assert_eq!((again.status, &again.body["token"]), (200, &json!(token)));
    let bob = managed.guest("PUT", JOB, &lease("bob", 20_000));
    assert_eq!(
        (bob.status, &bob.body["error"], &bob.body["owner"]),
        (409, &json!("held"), &json!("ann"))
    );
    assert!(bob.body["left_ms"].as_u64().unwrap() > 10_000, "{}", bob.body);

    managed.node.crash();
    let mut renewed = None;
    until("the node serves", || {
        let answer = managed.guest("POST", JOB, &json!({ "token": token, "lease_ms": 20_000 }));
        renewed = Some(answer.status);
        answer.status != 503
    });
    assert_eq!(renewed, Some(200));
    let wrong = managed.guest("DELETE", &format!("{JOB}?token={}", token + 1), &Value::Null);
    assert_eq!((wrong.status, &wrong.body["error"]), (409, &json!("not_held")));

    // Who waits gets it when it is released.
    let address = managed.address.clone();
    let waiting = std::thread::spawn(move || {
        let body = json!({ "owner": "bob", "lease_ms": 20_000, "wait_ms": 30_000 }).to_string();
        super::send(&address, &super::basic("guest", "guest"), "PUT", JOB, &body)
    });
    until("it is said who waits", || {
        let shown = managed.done("GET", JOB, &Value::Null);
        let first = &shown["waiting"][0];
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let is_recent = first["since"]
            .as_u64()
            .is_some_and(|since| (now.as_millis() as u64).abs_diff(since) < 30_000);
        is_recent && (&first["owner"], &shown["waiting_count"]) == (&json!("bob"), &json!(1))
    });
    let released = managed.guest("DELETE", &format!("{JOB}?token={token}"), &Value::Null);
    assert_eq!(released.status, 204);
    let bob = waiting.join().unwrap();
    assert_eq!(bob.status, 201, "{}", bob.body);
    assert!(bob.body["token"].as_u64().unwrap() > token);
    assert_eq!(managed.done("GET", JOB, &Value::Null)["waiting"], json!([]));

    let listed = managed.done("GET", "/millrace/locks/%2F?name=jo", &Value::Null);
    assert_eq!((&listed[0]["name"], &listed[0]["owner"]), (&json!("job"), &json!("bob")));
    assert_eq!(managed.guest("GET", "/millrace/locks/none", &Value::Null).status, 404);
    assert_eq!(managed.guest("GET", "/millrace/locks/none/job", &Value::Null).status, 404);
}

#[test]
fn a_wait_that_takes_long_takes_nobodys_turn_and_ends() {
    let managed = with_locks("locks-waits");
    managed.done("PUT", JOB, &lease("ann", 60_000));
    let wait = |owner: String| {
        let address = managed.address.clone();
        std::thread::spawn(move || {
            let body = json!({ "owner": owner, "lease_ms": 1_000, "wait_ms": 3_000 }).to_string();
            super::send(&address, &super::basic("guest", "guest"), "PUT", JOB, &body)
        })
    };
    let waiting: Vec<_> = (0..40).map(|nth| wait(nth.to_string())).collect();
    let begun = Instant::now();
    managed.done("PUT", "/millrace/locks/%2F/other", &lease("ann", 1_000));
    assert!(begun.elapsed() < Duration::from_secs(3), "others are served meanwhile");
    for told in waiting {
        assert_eq!(told.join().unwrap().status, 409);
    }
    let long = json!({ "owner": "x", "lease_ms": 1_000, "wait_ms": 60_001 });
    assert_eq!(managed.guest("PUT", JOB, &long).status, 400);
}

#[test]
fn values_have_versions_and_bounds() {
    let managed = with_locks("locks-values");
    let value = format!("{JOB}/value");
    let first = managed.done("PUT", &value, &json!({ "value": "one", "version": 0 }));
    let conflict = managed.guest("PUT", &value, &json!({ "value": "two", "version": 0 }));
    assert_eq!((conflict.status, &conflict.body["value"]), (409, &json!("one")));
    let body = json!({ "value": "AAE=", "encoding": "base64", "version": first["version"] });
    let second = managed.done("PUT", &value, &body);
    assert!(second["version"].as_u64() > first["version"].as_u64());
    let shown = managed.done("GET", JOB, &Value::Null);
    assert_eq!((&shown["version"], &shown["held"]), (&second["version"], &json!(false)));

    let token = managed.done("PUT", JOB, &lease("ann", 10_000))["token"].as_u64().unwrap();
    let tied = json!({ "value": "three", "token": token + 1 });
    let refused = managed.guest("PUT", &value, &tied);
    assert_eq!((refused.status, &refused.body["error"]), (409, &json!("not_held")));
    managed.done("PUT", &value, &json!({ "value": "three", "token": token }));
    assert_eq!(managed.guest("DELETE", &value, &Value::Null).status, 204);
    assert_eq!(managed.done("GET", JOB, &Value::Null)["version"], json!(0));

    // Each byte takes six in JSON.
    let escaped = json!({ "value": "\u{1}".repeat(4096), "version": 0 });
    managed.done("PUT", &value, &escaped);
    let beyond = managed.guest("PUT", &value, &json!({ "value": "x".repeat(32 << 10) }));
    assert_eq!(beyond.status, 413, "{}", beyond.body);

    let large = json!({ "value": "x".repeat(4097) });
    for (method, path, body) in [
        ("PUT", &*value, &large),
        ("PUT", JOB, &lease("", 10_000)),
        ("PUT", JOB, &lease("ann", 999)),
        ("PUT", JOB, &lease("ann", 86_400_001)),
        ("PUT", JOB, &json!({ "owner": "ann" })),
        ("POST", JOB, &json!({ "lease_ms": 1_000 })),
        ("DELETE", JOB, &Value::Null),
    ] {
        let answer = managed.guest(method, path, body);
        assert_eq!(answer.status, 400, "{method} {path}: {}", answer.body);
    }
}

#[test]
fn a_user_changes_locks_that_it_may_write_to_and_reads_values_that_it_may_read() {
    let managed = with_locks("locks-rights");
    let user = json!({ "password": "secret", "tags": "management" });
    managed.done("PUT", "/users/eve", &user);
    let some = json!({ "configure": "", "write": "^own\\.", "read": "^own\\." });
    managed.done("PUT", "/permissions/%2F/eve", &some);
    let eve = |method: &str, path: &str, body: &Value| {
        managed.ask(Some(("eve", "secret")), method, path, &body.to_string())
    };
    let token = managed.done("PUT", JOB, &lease("ann", 60_000))["token"].as_u64().unwrap();
    managed.done("PUT", &format!("{JOB}/value"), &json!({ "value": "hidden" }));
    let own = "/millrace/locks/%2F/own.job";
    assert_eq!(eve("PUT", own, &lease("eve", 10_000)).status, 201);
    assert_eq!(eve("PUT", &format!("{own}/value"), &json!({ "value": "seen" })).status, 200);
    assert_eq!(eve("GET", own, &Value::Null).body["value"], json!("seen"));
    for (method, path, body) in [
        ("PUT", JOB.to_owned(), lease("eve", 10_000)),
        ("POST", JOB.to_owned(), json!({ "token": token, "lease_ms": 10_000 })),
        ("DELETE", format!("{JOB}?token={token}"), Value::Null),
        ("DELETE", format!("{JOB}?force=true"), Value::Null),
        ("PUT", format!("{JOB}/value"), json!({ "value": "x" })),
        ("DELETE", format!("{JOB}/value"), Value::Null),
    ] {
        let answer = eve(method, &path, &body);
        assert_eq!(answer.status, 401, "{method} {path}: {}", answer.body);
    }
    let shown = eve("GET", JOB, &Value::Null).body;
    assert_eq!((&shown["owner"], &shown["value"]), (&json!("ann"), &Value::Null));

    // Who administrates may, and it is remembered.
    let forced = managed.guest("DELETE", &format!("{JOB}?force=true"), &Value::Null);
    assert_eq!(forced.status, 204, "{}", forced.body);
    until_held(&managed, false);
    let audit = managed.done("GET", "/millrace/audit?event=lock.released", &Value::Null);
    assert!(audit.to_string().contains("\"job\""), "{audit}");
}

#[test]
fn locks_go_with_their_vhost() {
    let managed = with_locks("locks-vhosts");
    managed.done("PUT", "/vhosts/shop", &json!({}));
    managed.done(
        "PUT",
        "/permissions/shop/guest",
        &json!({ "configure": "", "write": ".*", "read": ".*" }),
    );
    managed.done("PUT", "/millrace/locks/shop/job/value", &json!({ "value": "old" }));
    managed.done("DELETE", "/vhosts/shop", &Value::Null);
    managed.done("PUT", "/vhosts/shop", &json!({}));
    let shown = managed.done("GET", "/millrace/locks/shop/job", &Value::Null);
    assert_eq!(shown["version"], json!(0));
}

#[test]
fn a_command_runs_while_its_lock_is_held() {
    let managed = with_locks("locks-run");
    let script = "echo token $MILLRACE_FENCING_TOKEN of $MILLRACE_LOCK; exit 7";
    let (code, out, err) = run(&managed, &["run", "job", "--", "sh", "-c", script]);
    assert_eq!(code, 7, "{err}");
    let token: u64 = out.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(out.ends_with("of job\n"), "{out}");
    until_held(&managed, false);

    // It is held for longer than a lease.
    let mut child =
        spawn(&managed, &["run", "job", "--lease", "1s", "--", "sh", "-c", "sleep 3; exit 3"]);
    let shown = until_held(&managed, true);
    assert!(shown["token"].as_u64().unwrap() > token);
    let (code, _, err) = run(&managed, &["run", "job", "--", "true"]);
    assert_eq!(code, 75, "{err}");
    assert!(err.contains("holds the lock"), "{err}");
    let (code, out, err) = run(&managed, &["run", "job", "--wait", "30s", "--", "echo", "at last"]);
    assert_eq!((code, &*out), (0, "at last\n"), "{err}");
    assert_eq!(child.wait().unwrap().code(), Some(3), "its lease was renewed");

    let (code, ..) = run(&managed, &["run", "job", "--", "/no/such/program"]);
    assert_eq!(code, 127);
    let (code, ..) = run(&managed, &["run", "job", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(code, 137);
    until_held(&managed, false);
}

#[test]
fn a_command_ends_with_all_that_it_started_when_its_lock_is_lost() {
    let managed = with_locks("locks-lost");
    let script = "trap '' TERM; sleep 600 & echo $! $$; wait";
    let child = spawn(&managed, &["run", "job", "--lease", "3s", "--", "sh", "-c", script]);
    until_held(&managed, true);
    let (code, out, err) = run(&managed, &["show", "job"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("held by"), "{out}");
    let (code, _, err) = run(&managed, &["release", "job", "--force"]);
    assert_eq!(code, 0, "{err}");
    let (code, out, err) = said(&child.wait_with_output().unwrap());
    assert_eq!(code, 76, "{err}");
    assert!(err.contains("is lost"), "{err}");
    let pids: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(pids.len(), 2, "{out}");
    // One that has ended and that nobody waits for has no command line.
    let runs =
        |pid: &&str| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|it| !it.is_empty());
    until("nothing of it runs", || !pids.iter().any(runs));
}

#[test]
fn a_command_is_ended_before_its_lease_is_over_when_the_node_is_gone() {
    let mut managed = with_locks("locks-gone");
    let words = ["run", "job", "--lease", "3s", "--request-timeout", "1s", "--", "sleep", "600"];
    let child = spawn(&managed, &words);
    until_held(&managed, true);
    managed.node.kill();
    let (code, _, err) = said(&child.wait_with_output().unwrap());
    assert_eq!(code, 76, "{err}");
    assert!(err.contains("could not be renewed"), "{err}");
}
