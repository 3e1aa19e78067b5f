//! Logins with tokens (OAuth 2): over AMQP and HTTP, with keys from a file and from a server under TLS. What a token may
//! say is tested with `oauth`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

mod browsers;
pub(crate) mod issuer;
mod key_server;
mod wire;

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use amqp::{Method, queue};
use client::{Address, Connection, Error, ExchangeSpec, Options, QueueSpec, Url};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use self::issuer::{Issuer, claims, now_s, unsigned};
use self::key_server::KeyServer;
use self::wire::Wire;
use crate::client_tls::Authority;
use crate::management::{Answer, basic, send};
use crate::node::{free_address, until};

/// What the broker is called in tokens.
const NAME: &str = "rabbitmq";

/// All that may be done with exchanges and queues.
const ALL: &str = "rabbitmq.configure:*/* rabbitmq.write:*/*/* rabbitmq.read:*/*/*";

/// A node that takes tokens, in a folder with its keys and its log.
struct Broker {
    folder: PathBuf,
    process: Child,
    url: Url,
    api: String,
}

impl Broker {
    /// With these settings; `keys` is the file of keys.
    fn start(test: &str, keys: &str, settings: &[&str]) -> Self {
        let folder = Self::folder(test);
        std::fs::write(folder.join("keys.json"), keys).unwrap();
        let file = format!("oauth_jwks_file={}", folder.join("keys.json").display());
        Self::start_in(folder, &[&[file.as_str()], settings].concat())
    }

    fn folder(test: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("millrace-oauth-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn start_in(folder: PathBuf, settings: &[&str]) -> Self {
        let api = free_address();
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(["serve", "--amqp", "127.0.0.1:0", "--http", &api, "--data-dir"]);
        command.arg(folder.join("data"));
        let name = format!("oauth_resource_server_id={NAME}");
        for setting in [&["log=trace", &name], settings].concat() {
            command.args(["--set", setting]);
        }
        let log = File::create(folder.join("log")).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("amqp://"));
        let url = url.unwrap_or_else(|| panic!("the broker says {line:?}")).parse().unwrap();
        Self { folder, process, url, api }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    async fn connect(&self, token: &str, vhost: &str) -> Result<Connection, Error> {
        let (user, password) = (String::new(), token.to_owned());
        let url = Url { user, password, vhost: vhost.to_owned(), ..self.url.clone() };
        Connection::open(&url, &Options::named("oauth")).await
    }

    fn ask(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        let login = format!("authorization: Bearer {token}\r\n");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        send(&self.api, &login, method, path, &body)
    }

    fn status(&self, token: &str, path: &str) -> u16 {
        self.ask(token, "GET", path, &Value::Null).status
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_a_login_with_the_rights_that_stand_in_it() {
    let issuer = Issuer::new("one");
    let broker = Broker::start("rights", &issuer.set(), &[]);
    let boss = issuer.token("boss", &format!("{ALL} rabbitmq.tag:administrator"), 600);
    let mut client = broker.connect(&boss, "/").await.unwrap();
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    client.declare_queue(&QueueSpec::durable("other")).await.unwrap();
    let (name, kind) = ("topic".to_owned(), "topic".to_owned());
    let topic = ExchangeSpec { name, kind, durable: true, ..ExchangeSpec::default() };
    client.declare_exchange(&topic).await.unwrap();

    let scope = "openid rabbitmq.read:%2F/jobs rabbitmq.write:%2F/topic/eu.* other.write:*/*";
    let mut ann = broker.connect(&issuer.token("ann", scope, 600), "/").await.unwrap();
    assert!(ann.get("jobs", true).await.unwrap().is_none());
    let refused = ann.get("other", true).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Some(403), "{refused:?}");
    let refused = ann.declare_queue(&QueueSpec::durable("jobs2")).await.unwrap_err();
    assert_eq!(refused.code(), Some(403), "{refused:?}");
    let properties = amqp::Properties::default();
    let to = |key| Address { exchange: "topic", routing_key: key, mandatory: false };
    ann.publish(to("eu.de"), &properties, b"x").await.unwrap();
    let refused = ann.publish(to("us"), &properties, b"x").await.unwrap_err();
    let Error::ChannelClosed { code: 403, text } = &refused else { panic!("{refused:?}") };
    assert!(text.contains("access to topic 'us' in exchange 'topic'"), "{text}");

    let shop = issuer.token("ann", "rabbitmq.read:shop/*", 600);
    let refused = broker.connect(&shop, "/").await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Some(530), "no right in the vhost: {refused:?}");
    let nothing = issuer.token("ann", "", 600);
    let refused = broker.connect(&nothing, "/").await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Some(530), "no scope, no right: {refused:?}");
    // Users and passwords are as before.
    let guest = Connection::open(&broker.url, &Options::named("guest")).await;
    guest.unwrap().declare_queue(&QueueSpec::durable("guests")).await.unwrap();
}

#[test]
fn a_token_is_a_login_to_the_api_too() {
    let issuer = Issuer::new("one");
    let broker = Broker::start("api", &issuer.set(), &[]);
    let boss = issuer.token("boss", &format!("{ALL} rabbitmq.tag:administrator"), 600);
    let whoami = broker.ask(&boss, "GET", "/whoami", &Value::Null).body;
    let expected = json!({ "name": "boss", "tags": ["administrator"], "is_internal_user": false });
    assert_eq!(whoami, expected);
    assert_eq!(broker.ask(&boss, "PUT", "/vhosts/shop", &json!({})).status, 201);
    assert_eq!(
        broker.ask(&boss, "PUT", "/queues/shop/jobs", &json!({ "durable": true })).status,
        201
    );
    assert_eq!(broker.ask(&boss, "PUT", "/users/bob", &json!({ "tags": "" })).status, 201);
    // As RabbitMQ's tools send it, with a name that means nothing.
    let as_password = send(&broker.api, &basic("x", &boss), "GET", "/whoami", "");
    assert_eq!(as_password.body["name"], "boss");

    let scope = "rabbitmq.read:shop/* rabbitmq.tag:management";
    let ann = issuer.token("ann", scope, 600);
    let queues = broker.ask(&ann, "GET", "/queues/shop", &Value::Null);
    assert_eq!((queues.status, &queues.body[0]["name"]), (200, &json!("jobs")));
    let vhosts = broker.ask(&ann, "GET", "/vhosts?columns=name", &Value::Null).body;
    assert_eq!(vhosts, json!([{ "name": "shop" }]), "it sees what it has rights in");
    assert_eq!(broker.status(&ann, "/queues/%2F"), 401);
    assert_eq!(broker.status(&ann, "/users"), 401);
    let refused = broker.ask(&ann, "PUT", "/queues/shop/more", &json!({ "durable": true }));
    assert_eq!(refused.status, 400);
    assert!(
        refused.body["reason"].as_str().unwrap().contains("configure access"),
        "{}",
        refused.body
    );
    let tagless = issuer.token("ann", ALL, 600);
    assert_eq!(broker.status(&tagless, "/whoami"), 401);
}

/// Every token that is no good is refused, over AMQP and HTTP; the log says why, and shows no token, whatever is logged.
#[test]
fn a_token_that_is_no_good_is_refused_and_none_is_ever_logged() {
    let (issuer, stranger) = (Issuer::new("one"), Issuer::new("one"));
    let settings = ["oauth_issuer=test", "oauth_preferred_username_claims=preferred_username"];
    let broker = Broker::start("refused", &issuer.set(), &settings);
    let with = |name: &str, value: Value| {
        let mut claims = claims("ann", &format!("{ALL} rabbitmq.tag:management"), 600);
        claims[name] = value;
        claims
    };
    let good = with("canary", json!("c4n4ry"));
    let mut renewed = Wire::open(&broker.url, &issuer.sign(&good)).unwrap();
    assert_eq!(broker.status(&issuer.sign(&good), "/whoami"), 200);
    renewed.renew(&issuer.sign(&good)).unwrap();
    let signed = issuer.sign(&good);
    let (body, _) = signed.rsplit_once('.').unwrap();
    let long = format!("{body}.{}", "x".repeat(15_000));
    let bad = [
        (issuer.sign(&with("exp", json!(now_s() - 1))), "the token has expired"),
        (issuer.sign(&with("exp", json!(null))), "the token has no expiry"),
        (issuer.sign(&with("nbf", json!(now_s() + 3600))), "the token is not valid yet"),
        (issuer.sign(&with("aud", json!("other"))), "the token's audience"),
        (issuer.sign(&with("iss", json!("other"))), "the token's issuer"),
        (issuer.sign(&with("preferred_username", json!("a\nb"))), "the token's user name"),
        (stranger.sign(&good), "the token's signature is wrong"),
        (Issuer::new("two").sign(&good), "the token's key is not among the keys"),
        (unsigned(&good), "the token is signed with an algorithm that"),
        (
            issuer.sign_with_secret(&good, issuer.public_pem().as_bytes()),
            "the token is signed with an algorithm that",
        ),
        (long, "the token"),
    ];
    let mut said = vec![issuer.sign(&good)];
    for (token, why) in bad {
        let before = broker.log().matches(why).count();
        assert_eq!(Wire::open(&broker.url, &token).map(drop), Err(403), "{why}");
        let answer = broker.ask(&token, "GET", "/whoami", &Value::Null);
        let is_refused = answer.status == 401 || (token.len() > 15_000 && answer.status == 431);
        assert!(is_refused, "{why}: {}", answer.status);
        until("the log says why", || broker.log().matches(why).count() > before);
        said.push(token);
    }
    // Larger than any frame may be before the login.
    let huge = format!("{body}.{}", "x".repeat(60_000));
    let huge = Wire::open(&broker.url, &huge).map(drop).unwrap_err();
    assert_eq!(huge, 501);
    let mut renewed = Wire::open(&broker.url, &issuer.sign(&good)).unwrap();
    assert_eq!(renewed.renew(&stranger.sign(&good)), Err(530));
    until("the log says why", || broker.log().contains("update-secret"));
    let log = broker.log();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "everything is logged");
    for token in said {
        for part in token.split('.').filter(|part| part.len() > 30) {
            assert!(!log.contains(&part[..30]) && !log.contains(&part[part.len() - 30..]));
        }
    }
    assert!(!log.contains("c4n4ry"));
}

#[test]
fn a_login_is_renewed_by_its_user_and_ends_with_its_token() {
    let issuer = Issuer::new("one");
    let broker = Broker::start("renew", &issuer.set(), &[]);
    let begun = Instant::now();
    let mut short = Wire::open(&broker.url, &issuer.token("ann", ALL, 8)).unwrap();
    let mut long = Wire::open(&broker.url, &issuer.token("ann", ALL, 8)).unwrap();
    long.renew(&issuer.token("ann", "rabbitmq.configure:*/jobs", 600)).unwrap();
    assert_eq!(short.hears("nothing"), Err(320), "its token has expired");
    let passed = begun.elapsed();
    assert!(passed > Duration::from_secs(2) && passed < Duration::from_secs(30), "{passed:?}");
    assert!(broker.log().contains("the token of user 'ann' has expired"));

    let declare = |queue| {
        Method::QueueDeclare(queue::Declare { queue, durable: true, ..queue::Declare::default() })
    };
    long.say(1, &declare("jobs"));
    long.hears("queue.declare-ok").unwrap();
    long.say(1, &declare("other"));
    assert_eq!(long.hears("queue.declare-ok"), Err(403), "the new token gives less");
    for (token, why) in [
        (issuer.token("bob", ALL, 600), "the new token is another user's"),
        (
            issuer.token("ann", "rabbitmq.read:shop/*", 600),
            "the new token gives nothing in the vhost",
        ),
        ("no token".to_owned(), "the token is no JWT"),
    ] {
        let mut client = Wire::open(&broker.url, &issuer.token("ann", ALL, 600)).unwrap();
        assert_eq!(client.renew(&token), Err(530), "{why}");
        until("the log says why", || broker.log().contains(why));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_keys_count_when_the_file_is_read_again() {
    let (old, new) = (Issuer::new("one"), Issuer::new("two"));
    let broker = Broker::start("file", &old.set(), &[]);
    broker.connect(&old.token("ann", ALL, 600), "/").await.unwrap();
    std::fs::write(broker.folder.join("keys.json"), new.set()).unwrap();
    let sighup = || {
        let pid = Pid::from_child(&broker.process);
        kill_process(pid, Signal::HUP).unwrap();
    };
    sighup();
    until("the new key is known", || {
        broker.status(&new.token("ann", "rabbitmq.tag:management", 600), "/whoami") == 200
    });
    let refused = broker.connect(&old.token("ann", ALL, 600), "/").await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Some(403), "the old key is there no longer: {refused:?}");
    std::fs::write(broker.folder.join("keys.json"), "no keys").unwrap();
    sighup();
    until("the mistake is told", || broker.log().contains("cannot read the keys"));
    broker.connect(&new.token("ann", ALL, 600), "/").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_come_from_a_server_that_the_authority_vouches_for_and_new_ones_when_a_token_needs_them()
 {
    let authority = Authority::new("oauth-server");
    let server = KeyServer::start(&authority).await;
    let (old, new) = (Issuer::new("one"), Issuer::new("two"));
    server.show(&old.set());
    let url = format!("oauth_jwks_url=https://localhost:{}/keys", server.address.port());
    let believed = format!("oauth_jwks_cacertfile={}", authority.file("ca.pem"));
    let broker = Broker::start_in(Broker::folder("server"), &[&url, &believed]);
    // At its start the node asks by itself, and so does a token that comes before the answer.
    broker.connect(&old.token("ann", ALL, 600), "/").await.unwrap();
    let asked = server.asked();
    assert_eq!(asked, 1);
    server.show(&json!({ "keys": [old.jwk(), new.jwk()] }).to_string());
    // Tokens with unknown keys make the node ask once in ten seconds, however many come.
    let mut tries = 0;
    let begun = Instant::now();
    while broker.connect(&new.token("ann", ALL, 600), "/").await.is_err() {
        tries += 1;
        assert!(begun.elapsed() < Duration::from_secs(60), "the new key is never known");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(
        tries > 0 && server.asked() == asked + 1,
        "{tries} tries, asked {} times",
        server.asked()
    );
    broker.connect(&old.token("ann", ALL, 600), "/").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_nobody_vouches_for_or_that_answers_nonsense_gives_no_keys() {
    let authority = Authority::new("oauth-nonsense");
    let stranger = Authority::new("oauth-stranger");
    let server = KeyServer::start(&authority).await;
    let issuer = Issuer::new("one");
    let url = format!("oauth_jwks_url=https://localhost:{}/keys", server.address.port());
    let start = |test: &str, authority: &Authority| {
        let believed = format!("oauth_jwks_cacertfile={}", authority.file("ca.pem"));
        Broker::start_in(Broker::folder(test), &[&url, &believed])
    };
    server.show(&issuer.set());
    let broker = start("stranger", &stranger);
    until("the certificate is not believed", || broker.log().contains("cannot read the keys"));
    let refused = broker.connect(&issuer.token("ann", ALL, 600), "/").await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Some(403), "{refused:?}");
    assert_eq!(server.asked(), 0);
    let huge =
        format!("HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n{}", "x".repeat(9_000_000));
    for (at, answer) in [
        huge.as_str(),
        "HTTP/1.1 302 Found\r\nlocation: https://localhost/elsewhere\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull",
        "nonsense",
        "",
    ]
    .into_iter()
    .enumerate()
    {
        server.answer(answer);
        let name = format!("nonsense-{at}");
        let broker = start(&name, &authority);
        until("the node says what is wrong", || broker.log().contains("cannot read the keys"));
        assert_eq!(Wire::open(&broker.url, &issuer.token("ann", ALL, 600)).map(drop), Err(403));
    }
}
