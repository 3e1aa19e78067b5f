//! The console that a node serves: its files, and the sessions of browsers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Answer, Managed, send};
use crate::node::{Node, free_address, until};

const SESSION: &str = "/millrace/session";

/// What was answered to a request for a file.
struct Page {
    status: u16,
    head: String,
    body: Vec<u8>,
}

fn page(address: &str, method: &str, path: &str, headers: &str) -> Page {
    let mut stream = TcpStream::connect(address).unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    Page { status, head, body: answer[end + 4..].to_vec() }
}

/// A header's value.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (known, value) = line.split_once(": ")?;
        known.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// A browser that is logged in.
struct Browser {
    address: String,
    cookie: String,
    told: Value,
}

fn log_in(address: &str, user: &str, password: &str) -> Answer {
    let body = json!({ "username": user, "password": password }).to_string();
    send(address, "content-type: application/json\r\n", "POST", SESSION, &body)
}

/// The name and value of the cookie that an answer sets.
fn cookie(answer: &Answer) -> String {
    let set = header(&answer.head, "set-cookie").unwrap_or_else(|| panic!("{}", answer.head));
    set.split(';').next().unwrap().to_owned()
}

impl Browser {
    fn open(address: &str, user: &str, password: &str) -> Self {
        let answer = log_in(address, user, password);
        assert_eq!(answer.status, 200, "{}", answer.body);
        Self { address: address.to_owned(), cookie: cookie(&answer), told: answer.body }
    }

    fn csrf(&self) -> &str {
        self.told["csrf"].as_str().unwrap()
    }

    /// Sends a request with the cookie, and with this second secret if there is one.
    fn send(&self, csrf: Option<&str>, method: &str, path: &str, body: &str) -> Answer {
        let mut headers = format!("cookie: theme=dark; {}\r\n", self.cookie);
        if let Some(csrf) = csrf {
            headers += &format!("x-millrace-csrf: {csrf}\r\n");
        }
        send(&self.address, &headers, method, path, body)
    }

    fn get(&self, path: &str) -> Answer {
        self.send(None, "GET", path, "")
    }

    fn change(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.send(Some(self.csrf()), method, path, &body.to_string())
    }
}

/// The page, whatever its path, with its headers; its files, compressed for who takes that; and nothing for tools.
#[test]
fn a_node_serves_the_console() {
    let managed = Managed::start("console-files");
    let at = &managed.address;
    let index = page(at, "GET", "/", "");
    assert_eq!(index.status, 200, "{}", index.head);
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-cache"),
        ("vary", "accept-encoding"),
    ] {
        assert_eq!(header(&index.head, name), Some(value), "{name}: {}", index.head);
    }
    let policy = header(&index.head, "content-security-policy").unwrap();
    for part in
        ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "base-uri 'none'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    for deep in ["/queue?vhost=%2F&name=orders", "/dead-letters", "/no/such/page", "/console-0.js"]
    {
        let found = page(at, "GET", deep, "");
        assert_eq!((found.status, &found.body), (200, &index.body), "{deep}");
        let looked = page(at, "HEAD", deep, "");
        assert_eq!((looked.status, looked.body.len()), (200, 0), "{deep}");
    }
    let tag = header(&index.head, "etag").unwrap();
    let known = page(at, "GET", "/", &format!("if-none-match: {tag}\r\n"));
    assert_eq!((known.status, known.body.len()), (304, 0), "{}", known.head);
    assert_eq!(page(at, "GET", "/", "if-none-match: \"other\"\r\n").status, 200);
    let text = String::from_utf8(index.body).unwrap();
    let script = text.split('"').find(|word| word.ends_with(".js")).unwrap();
    let plain = page(at, "GET", script, "");
    assert_eq!(header(&plain.head, "content-type"), Some("text/javascript; charset=utf-8"));
    assert!(header(&plain.head, "cache-control").unwrap().contains("immutable"));
    assert_eq!(header(&plain.head, "content-encoding"), None);
    let packed = page(at, "GET", script, "accept-encoding: gzip, br\r\n");
    assert_eq!(header(&packed.head, "content-encoding"), Some("gzip"));
    assert!(packed.body.len() * 2 < plain.body.len(), "{} {}", packed.body.len(), plain.body.len());
    assert_eq!(packed.body[..2], [0x1f, 0x8b]);
    for none in ["/api/nothing", "/api", "/metrics", "/health/live", "/cli/rabbitmqadmin"] {
        let found = page(at, "GET", none, "");
        assert_eq!(found.status, 404, "{none}");
        assert_eq!(header(&found.head, "content-type"), Some("application/json"), "{none}");
    }
    assert_eq!(page(at, "POST", "/queues", "content-length: 0\r\n").status, 405);
}

/// Login, what it answers with, requests with the cookie and with the second secret, logout.
#[test]
fn a_browser_logs_in_works_and_logs_out() {
    let managed = Managed::start("console-session");
    managed.make_user("ann", "management", &["%2F"]);
    let at = &managed.address;
    let nobody = send(at, "", "GET", SESSION, "");
    assert_eq!(nobody.status, 401);
    assert_eq!(header(&nobody.head, "www-authenticate"), None, "the browser would ask by itself");
    for wrong in [log_in(at, "ann", "wrong"), log_in(at, "nobody", "secret"), log_in(at, "ann", "")]
    {
        assert_eq!(wrong.status, 401, "{}", wrong.body);
        assert_eq!(header(&wrong.head, "set-cookie"), None);
        assert_eq!(header(&wrong.head, "www-authenticate"), None);
    }
    let form = json!({ "username": "ann", "password": "secret" }).to_string();
    let form = send(at, "content-type: text/plain\r\n", "POST", SESSION, &form);
    assert_eq!(form.status, 400, "a form of another site can send this");
    let answer = log_in(at, "ann", "secret");
    let set = header(&answer.head, "set-cookie").unwrap();
    assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{set}");
    let port = at.rsplit(':').next().unwrap();
    assert!(set.starts_with(&format!("millrace_session_{port}=")), "{set}");
    assert_eq!(header(&answer.head, "cache-control"), Some("no-store"));
    let secure = send(
        at,
        "content-type: application/json\r\nx-forwarded-proto: https\r\n",
        "POST",
        SESSION,
        &json!({ "username": "ann", "password": "secret" }).to_string(),
    );
    assert!(header(&secure.head, "set-cookie").unwrap().ends_with("; Secure"), "{}", secure.head);

    let ann = Browser::open(at, "ann", "secret");
    assert_eq!((&ann.told["user"], &ann.told["tags"]), (&json!("ann"), &json!(["management"])));
    let all = json!({ "configure": ".*", "write": ".*", "read": ".*" });
    assert_eq!(ann.told["permissions"], json!({ "/": all }));
    assert_eq!(ann.get(SESSION).body, ann.told);
    assert_eq!(ann.get("/whoami").body["name"], "ann");
    let refused = ann.get("/users");
    assert_eq!(refused.status, 401, "roles count as with a password");
    assert_eq!(header(&refused.head, "www-authenticate"), None);

    let spec = "{\"durable\":true}";
    let bob = Browser::open(at, "guest", "guest");
    for wrong in [None, Some(""), Some("x"), Some(bob.csrf())] {
        let refused = ann.send(wrong, "PUT", "/queues/%2F/jobs", spec);
        assert_eq!(refused.status, 403, "{wrong:?}: {}", refused.body);
        assert!(refused.body["reason"].as_str().unwrap().contains("x-millrace-csrf"));
        let purge = ann.send(wrong, "DELETE", "/queues/%2F/jobs/contents", "");
        assert_eq!(purge.status, 403, "{wrong:?}");
    }
    assert_eq!(ann.get("/queues/%2F/jobs").status, 404, "none of them made the queue");
    assert_eq!(ann.change("PUT", "/queues/%2F/jobs", &json!({ "durable": true })).status, 201);
    let publish = json!({
        "routing_key": "jobs", "payload": "x", "payload_encoding": "string", "properties": {},
    });
    let published = ann.change("POST", "/exchanges/%2F/amq.default/publish", &publish);
    assert_eq!(published.body, json!({ "routed": true }), "an AMQP session of the user did it");
    let foreign = managed.done("PUT", "/vhosts/other", &json!({}));
    assert_eq!(foreign, Value::Null);
    let other = ann.change("PUT", "/queues/other/jobs", &json!({}));
    assert_eq!(other.status, 401, "{}", other.body);

    assert_eq!(ann.send(None, "DELETE", SESSION, "").status, 403, "others cannot log it out");
    assert_eq!(ann.get("/whoami").status, 200);
    let out = ann.change("DELETE", SESSION, &Value::Null);
    assert_eq!(out.status, 204);
    assert!(cookie(&out).ends_with('='), "{}", out.head);
    for path in [SESSION, "/whoami"] {
        let over = ann.get(path);
        assert_eq!((over.status, header(&over.head, "www-authenticate")), (401, None), "{path}");
    }
    assert_eq!(ann.change("PUT", "/queues/%2F/more", &json!({})).status, 401);
    assert_eq!(bob.get("/whoami").status, 200, "another session goes on");
    assert_eq!(managed.guest("GET", "/whoami", &Value::Null).status, 200, "as tools do it");
}

/// A session is over when its user is gone, has another password, or other tags.
#[test]
fn a_session_ends_with_what_its_login_was() {
    let managed = Managed::start("console-changes");
    let put = |password: &str, tags: &str| {
        managed.done("PUT", "/users/ann", &json!({ "password": password, "tags": tags }));
    };
    put("secret", "management");
    let change: [(&str, &dyn Fn()); 3] = [
        ("another password", &|| put("other", "management")),
        ("other tags", &|| put("secret", "monitoring")),
        ("no user", &|| drop(managed.done("DELETE", "/users/ann", &Value::Null))),
    ];
    for (what, change) in change {
        put("secret", "management");
        let ann = Browser::open(&managed.address, "ann", "secret");
        assert_eq!(ann.get("/whoami").status, 200, "before: {what}");
        change();
        assert_eq!(ann.get("/whoami").status, 401, "{what}");
        assert_eq!(ann.get(SESSION).status, 401, "{what}");
    }
    put("secret", "");
    assert_eq!(log_in(&managed.address, "ann", "secret").status, 401, "no user of the API");
}

/// Whoever guesses is told to wait, without a look at what it sends.
#[test]
fn wrong_passwords_are_throttled() {
    let managed = Managed::start("console-throttle");
    managed.make_user("ann", "management", &[]);
    let mut count = 0;
    let throttled = loop {
        count += 1;
        assert!(count < 2_000, "nobody was told to wait");
        // Several at a time: each takes tens of milliseconds, and some are forgiven each second.
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let guesses: Vec<_> = (0..16)
                .map(|number| {
                    let guess = format!("guess-{count}-{number}");
                    let address = &managed.address;
                    scope.spawn(move || log_in(address, "ann", &guess))
                })
                .collect();
            guesses.into_iter().map(|guess| guess.join().unwrap()).collect()
        });
        assert!(answers.iter().all(|answer| matches!(answer.status, 401 | 429)));
        if let Some(late) = answers.into_iter().find(|answer| answer.status == 429) {
            break late;
        }
    };
    assert!(header(&throttled.head, "retry-after").unwrap().parse::<u64>().unwrap() > 0);
    assert!(throttled.body["reason"].as_str().unwrap().contains("wrong passwords"));
    until("the right password is taken again", || {
        log_in(&managed.address, "ann", "secret").status == 200
    });
}

/// The stream opens with the cookie, tells which version it is of, and ends with the session.
#[test]
fn the_live_stream_is_told_to_a_session_and_ends_with_it() {
    let managed = Managed::start("console-live");
    let guest = Browser::open(&managed.address, "guest", "guest");
    let mut stream = TcpStream::connect(&managed.address).unwrap();
    let cookie = &guest.cookie;
    let request = format!("GET /api/millrace/live HTTP/1.1\r\nhost: x\r\ncookie: {cookie}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    // It tells something each second: one that goes on is read for ever otherwise.
    let deadline = Instant::now() + Duration::from_secs(20);
    let is_early = move |_: &String| Instant::now() < deadline;
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap).take_while(is_early);
    assert!(lines.next().unwrap().contains("200"));
    assert!(lines.any(|line| line == "event: begin"));
    let begin = lines.next().unwrap();
    let begin: Value = serde_json::from_str(begin.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(begin["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(guest.change("DELETE", SESSION, &Value::Null).status, 204);
    assert!(lines.any(|line| line == "event: end"), "the stream of a session that is over ends");
}

/// A user has so many sessions, and the one unused for longest makes room; the node counts them.
#[test]
fn sessions_are_bounded_and_counted() {
    let (address, metrics) = (free_address(), free_address());
    let node = Node::start_with("console-bounds", &["--http", &address, "--metrics", &metrics]);
    let managed = Managed { node, address };
    let value = |name: &str| {
        let text = page(&metrics, "GET", "/metrics", "").body;
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse::<f64>().unwrap()
    };
    let sessions: Vec<Browser> =
        (0..20).map(|_| Browser::open(&managed.address, "guest", "guest")).collect();
    assert_eq!(sessions[0].get("/whoami").status, 200);
    assert_eq!(value("millrace_console_sessions"), 20.0);
    assert_eq!(value("millrace_console_sessions_crowded_out_total"), 0.0);
    let newest = Browser::open(&managed.address, "guest", "guest");
    assert_eq!(sessions[0].get("/whoami").status, 200, "it was used a moment ago");
    assert_eq!(sessions[1].get("/whoami").status, 401, "it was unused for longest");
    assert_eq!(newest.get("/whoami").status, 200);
    assert_eq!(newest.send(None, "PUT", "/queues/%2F/q", "{}").status, 403);
    assert_eq!(value("millrace_console_sessions"), 20.0);
    assert_eq!(value("millrace_console_sessions_begun_total"), 21.0);
    assert_eq!(value("millrace_console_sessions_crowded_out_total"), 1.0);
    assert_eq!(value("millrace_console_requests_unproven_total"), 1.0);
}
