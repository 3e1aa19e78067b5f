//! Secrets go in and never come out: recognisable passwords, tokens and keys are given to a node in every way that there
//! is, and then looked for in its log, in all answers of its API, and in what commands say.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::{Connection, Error, Options, QueueSpec, Tls, Url};
use serde_json::json;

use crate::client_tls::Authority;
use crate::management::basic;
use crate::node::{free_address, until};
use crate::oauth::issuer::Issuer;

/// All that may be done, and seen.
const ALL: &str =
    "rabbitmq.configure:*/* rabbitmq.write:*/*/* rabbitmq.read:*/*/* rabbitmq.tag:administrator";

/// Letters of a secret that are looked for: nobody may see a part of it, either.
const PART: usize = 16;

/// What must be nowhere, and how it is called.
struct Canaries(Vec<(&'static str, String)>);

impl Canaries {
    fn add(&mut self, name: &'static str, secret: impl Into<String>) -> String {
        let secret = secret.into();
        self.0.push((name, secret.clone()));
        secret
    }

    /// Panics if a part of a secret is in `text`, as it is or as a login of HTTP has it.
    fn assert_not_in(&self, place: &str, text: &str) {
        for (name, secret) in &self.0 {
            let encoded = STANDARD.encode(secret);
            for form in [secret, &encoded] {
                let middle = form.len() / 2;
                for part in [&form[..PART], &form[middle - PART / 2..middle + PART / 2]] {
                    // What all tokens begin with is no secret.
                    let is_head = part.starts_with("eyJ") && form.starts_with(part);
                    let found = text.lines().find(|line| !is_head && line.contains(part));
                    assert!(found.is_none(), "{name} is in {place}: {found:?}");
                }
            }
        }
    }
}

/// A node that writes all that it ever writes into a file.
struct Watched {
    folder: PathBuf,
    process: Child,
    url: Url,
    http: String,
    metrics: String,
    amqps: String,
}

impl Watched {
    fn start(canaries: &mut Canaries, issuer: &Issuer, authority: &Authority) -> Self {
        let name = format!("millrace-secrets-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("keys.json"), issuer.set()).unwrap();
        let user = json!({
            "name": "defined", "tags": "administrator",
            "password": canaries.add("the password of definitions", "canary-of-definitions-0123456789"),
        });
        let right = json!({
            "user": "defined", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*",
        });
        let definitions =
            json!({ "users": [user], "vhosts": [{ "name": "/" }], "permissions": [right] });
        std::fs::write(folder.join("definitions.json"), definitions.to_string()).unwrap();
        let (http, metrics, amqps) = (free_address(), free_address(), free_address());
        let log = File::create(folder.join("log")).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--amqp", "127.0.0.1:0", "--http", &http, "--metrics", &metrics])
            .args(["--amqps", &amqps, "--tls-certfile", &authority.file("localhost.pem")])
            .args(["--tls-keyfile", &authority.file("localhost.key"), "--set", "log=trace"])
            .args(["--set", "oauth_resource_server_id=rabbitmq", "--set"])
            .arg(format!("oauth_jwks_file={}", folder.join("keys.json").display()))
            .arg("--definitions")
            .arg(folder.join("definitions.json"))
            .arg("--data-dir")
            .arg(folder.join("data"))
            .env("MILLRACE_DEFAULT_USER", "first")
            .env(
                "MILLRACE_DEFAULT_PASS",
                canaries.add("default_pass", "canary-of-default-pass-0123456789"),
            )
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("amqp://"));
        let url = url.unwrap_or_else(|| panic!("the broker says {line:?}")).parse().unwrap();
        Self { folder, process, url, http, metrics, amqps }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    async fn login(&self, user: &str, password: &str) -> Result<Connection, Error> {
        let (user, password) = (user.to_owned(), password.to_owned());
        let url = Url { user, password, ..self.url.clone() };
        Connection::open(&url, &Options::named("secrets")).await
    }

    /// The whole answer, its head too.
    fn ask(&self, login: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        exchange(&self.http, login, method, &format!("/api{path}"), body)
    }

    /// What a command says on both of its channels. It may fail.
    fn run(&self, words: &[&str], variables: &[(&str, &str)]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(words).envs(variables.iter().copied()).stdin(Stdio::null());
        let output = command.env("MILLRACE_DATA_DIR", self.folder.join("data")).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        text(&output.stdout) + &text(&output.stderr)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn exchange(address: &str, login: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{login}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, answer)
}

/// The secrets of the test. A right one and a wrong one of each kind: what is refused is told in other places.
struct Secrets {
    defined: String,
    chosen: String,
    wrong: String,
    token: String,
    expired: String,
    forged: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_a_log_an_answer_or_an_error() {
    let mut canaries = Canaries(Vec::new());
    let (issuer, other) = (Issuer::new("one"), Issuer::new("one"));
    let authority = Authority::new("secrets");
    authority.sign("localhost", &authority.folder);
    let key = std::fs::read_to_string(authority.file("localhost.key")).unwrap();
    let key: String = key.lines().filter(|line| !line.starts_with('-')).collect();
    canaries.add("the certificate's key", key);
    let node = Watched::start(&mut canaries, &issuer, &authority);
    let secrets = Secrets {
        defined: canaries.0[1].1.clone(),
        chosen: canaries.add("a new user's password", "canary-chosen-by-ann-0123456789"),
        wrong: canaries.add("a wrong password", "canary-mistyped-by-bob-0123456789"),
        token: canaries.add("a token", issuer.token("boss", ALL, 3600)),
        expired: canaries.add("an expired token", issuer.token("late", ALL, 0)),
        forged: canaries.add("a token of another key", other.token("thief", ALL, 3600)),
    };
    let mut answers = users(&node, &secrets);
    over_amqp(&node, &secrets, &authority).await;
    answers.extend(over_http(&node, &secrets));
    let said = commands(&node, &mut canaries, &secrets);
    // The lines about the logins are there: they were looked at, not missed.
    until("refused logins are told", || node.log().matches("login refused").count() >= 4);
    until("and those over HTTP", || node.log().contains("login to the HTTP API refused"));
    assert!(node.log().contains("perhaps a token"), "a token in the place of a name is told of");
    canaries.assert_not_in("the log", &node.log());
    for (place, text) in answers.iter().chain(&said) {
        canaries.assert_not_in(place, text);
    }
}

/// Makes and changes users: every way in which a password goes into the node over HTTP.
fn users(node: &Watched, secrets: &Secrets) -> Vec<(String, String)> {
    let admin = basic("defined", &secrets.defined);
    let put = |path: &str, body: String| {
        let (status, answer) = node.ask(&admin, "PUT", path, &body);
        (status, (format!("PUT {path}"), answer))
    };
    let chosen = &secrets.chosen;
    let user = |more: &str| format!(r#"{{"password":"{chosen}","tags":"administrator"{more}}}"#);
    let (made, first) = put("/users/ann", user(""));
    assert_eq!(made, 201, "{first:?}");
    let (_, again) = put("/users/ann", user(""));
    let rights = r#"{"configure":".*","write":".*","read":".*"}"#;
    assert_eq!(put("/permissions/%2F/ann", rights.to_owned()).0, 201);
    // What is wrong is told without what it was.
    let (status, wrong) = put("/users/eve", format!(r#"{{"password":["{chosen}"],"tags":7}}"#));
    assert_eq!(status, 400);
    let (status, broken) = put("/users/eve", format!(r#"{{"tags":"","password":"{chosen}"#));
    assert_eq!(status, 400);
    let (status, unhashed) =
        put("/users/eve", format!(r#"{{"tags":"","password_hash":"{chosen}!"}}"#));
    assert_eq!(status, 400);
    let import = format!(
        r#"{{"users":[{{"name":"eve","tags":"","password":"{chosen}"}}],"queues":[{{"name":7}}]}}"#
    );
    let (status, answer) = node.ask(&admin, "POST", "/definitions", &import);
    assert_eq!(status, 400, "{answer}");
    vec![first, again, wrong, broken, unhashed, ("POST /definitions".to_owned(), answer)]
}

async fn over_amqp(node: &Watched, secrets: &Secrets, authority: &Authority) {
    let mut client = node.login("ann", &secrets.chosen).await.unwrap();
    client.declare_queue(&QueueSpec::durable("q")).await.unwrap();
    let with_token = node.login("", &secrets.token).await.unwrap();
    let place = node.amqps.replace("127.0.0.1", "localhost");
    let (user, password) = ("ann".to_owned(), secrets.chosen.clone());
    let tls = Tls { authority: Some(authority.folder.join("ca.pem")), ..Tls::default() };
    let url: Url = format!("amqps://{place}").parse().unwrap();
    let url = Url { user, password, tls: Some(tls), ..url };
    let under_tls = Connection::open(&url, &Options::named("secrets")).await.unwrap();
    for (user, password) in [
        ("ann", &secrets.wrong),
        ("nobody", &secrets.wrong),
        ("", &secrets.expired),
        ("", &secrets.forged),
        // Some clients send it where the name belongs.
        (&*secrets.token, &secrets.wrong),
        (&secrets.forged, &secrets.forged),
    ] {
        assert!(node.login(user, password).await.is_err());
    }
    // The password is a good token, whatever the name is.
    drop(node.login(&secrets.token, &secrets.token).await);
    // What is open is described: see `over_http`.
    std::mem::forget((client, with_token, under_tls));
}

/// All that can be asked, by all who may ask, and by those who may not.
fn over_http(node: &Watched, secrets: &Secrets) -> Vec<(String, String)> {
    let token = format!("authorization: Bearer {}\r\n", secrets.token);
    let known = [basic("ann", &secrets.chosen), token];
    let unknown = [
        basic("ann", &secrets.wrong),
        basic(&secrets.token, &secrets.wrong),
        basic("", &secrets.forged),
        format!("authorization: Bearer {}\r\n", secrets.expired),
        format!("authorization: Bearer {}\r\n", secrets.forged),
        format!("authorization: Digest {}\r\n", secrets.wrong),
        format!("authorization: Basic {}\r\n", secrets.wrong),
    ];
    let mut answers = Vec::new();
    for (method, route) in management::paths() {
        // Changes are made above, and a live stream has no end: it tells what lists tell.
        if method != "GET" || route.ends_with("/live") {
            continue;
        }
        let path = ["/{vhost}", "/{user}", "/{queue}", "/{node}"];
        let to = ["/%2F", "/ann", "/q", "/rabbit@node-1"];
        let path =
            path.iter().zip(to).fold(route.to_owned(), |path, (part, to)| path.replace(part, to));
        let path = path.replace(['{', '}'], "");
        for login in &known {
            let (_, answer) = node.ask(login, method, &path, "");
            answers.push((format!("{method} {path}"), answer));
        }
    }
    let is_there = |path: &str, what: &str| {
        answers.iter().any(|(place, answer)| place == path && answer.contains(what))
    };
    assert!(is_there("GET /connections", "127.0.0.1"), "connections were shown");
    assert!(is_there("GET /users", "password_hash"), "and users, with hashes");
    for login in &unknown {
        let (status, answer) = node.ask(login, "GET", "/whoami", "");
        assert_eq!(status, 401, "{answer}");
        answers.push(("a refused login".to_owned(), answer));
    }
    for path in ["/metrics", "/metrics/per-object", "/health/ready"] {
        let (_, answer) = exchange(&node.metrics, "", "GET", path, "");
        answers.push((path.to_owned(), answer));
    }
    answers
}

/// What operators' commands say that were given secrets.
fn commands(node: &Watched, canaries: &mut Canaries, secrets: &Secrets) -> Vec<(String, String)> {
    let api = format!("http://ann@{}", node.http);
    let mut said = Vec::new();
    let mut run = |words: &[&str], variables: &[(&str, &str)]| {
        let text = node.run(words, variables);
        assert!(!text.is_empty(), "{words:?}");
        said.push((format!("millrace {}", words[0]), text));
    };
    for password in [&secrets.chosen, &secrets.wrong] {
        let login = [("MILLRACE_HTTP_URL", api.as_str()), ("MILLRACE_HTTP_PASSWORD", password)];
        run(&["users"], &login);
        run(&["status"], &login);
        run(&["connections"], &login);
    }
    for what in ["node", "connections", "queues"] {
        run(&["describe", what], &[]);
    }
    // Passwords within URLs: right, wrong, of a host that is not there, and in what is no URL.
    let (place, chosen, wrong) = (node.url.to_string(), &secrets.chosen, &secrets.wrong);
    let host = place.rsplit('@').next().unwrap().trim_start_matches("amqp://").to_owned();
    let with = |password: &str| format!("amqp://ann:{password}@{host}");
    for (from, to) in [
        (with(chosen), with(wrong)),
        (with(wrong), with(chosen)),
        (format!("ampq://ann:{chosen}@{host}"), with(chosen)),
        (format!("amqp://ann:{chosen}@:port"), with(chosen)),
    ] {
        run(&["move", "--queue", "none", "--from", &from, "--to", &to], &[]);
    }
    run(&["consume", "--url", &with(wrong), "--queue", "q", "--count", "1"], &[]);
    run(&["publish", "--url", &with(wrong), "--queue", "q", "--body", "x"], &[]);
    run(&["publish", "--url", &format!("amqp://ann:{chosen}@:port"), "--queue", "q"], &[]);
    // What is no key is not shown, whatever it is.
    let secret = canaries.add("what is no key", "canary-instead-of-a-key-0123456789");
    let file = node.folder.join("no.key");
    std::fs::write(
        &file,
        format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n"),
    )
    .unwrap();
    let data = node.folder.join("none").display().to_string();
    let key = file.display().to_string();
    run(
        &[
            "serve",
            "--data-dir",
            &data,
            "--amqps",
            "127.0.0.1:0",
            "--tls-certfile",
            &key,
            "--tls-keyfile",
            &key,
        ],
        &[],
    );
    run(
        &["serve", "--data-dir", &data, "--set", "default_user=ann", "--set", "amqp=x"],
        &[("MILLRACE_DEFAULT_PASS", &secret)],
    );
    said
}
