//! The login EXTERNAL: a client's certificate is its login. What may be a user's name is tested with `certificates`.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::net::TcpStream;

use client::{Connection, Error, QueueSpec};
use rcgen::{CertificateParams, DnType, SanType};
use serde_json::{Value, json};

use crate::client_tls::{Authority, Sealed};
use crate::management::{basic, send};
use crate::node::free_address;

/// A node that takes certificates for logins, and its API.
struct Trusting {
    authority: Authority,
    sealed: Sealed,
    api: String,
}

impl Trusting {
    fn start(test: &str, from: &str) -> Self {
        Self::start_with(test, &["--set", &format!("tls_certificate_user={from}")])
    }

    fn start_with(test: &str, more: &[&str]) -> Self {
        let (authority, api) = (Authority::new(test), free_address());
        let believed = authority.file("ca.pem");
        let arguments = [&["--tls-cacertfile", &believed, "--http", &api], more].concat();
        let sealed = Sealed::start(test, &authority, &arguments);
        Self { authority, sealed, api }
    }

    /// A request of the administrator that must succeed.
    fn done(&self, method: &str, path: &str, body: &Value) {
        let login = basic("guest", "guest");
        let answer = send(&self.api, &login, method, path, &body.to_string());
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.body);
    }

    /// Makes a user who has no password, and may do all with `jobs` in `/`.
    fn make_user(&self, name: &str) {
        self.done("PUT", &format!("/users/{name}"), &json!({ "tags": "" }));
        let own = json!({ "configure": "^jobs", "write": "^jobs", "read": "^jobs" });
        self.done("PUT", &format!("/permissions/%2F/{name}"), &own);
    }

    /// Signs a certificate, in files of this name, with this common name.
    fn sign(&self, file: &str, common_name: &str) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        self.authority.sign_as(params, file, &self.authority.folder);
    }

    async fn external(&self, file: &str) -> Result<Connection, Error> {
        self.sealed.connect_by(&self.authority, Some(file), true).await
    }

    async fn refused(&self, file: &str) {
        let refused = self.external(file).await.map(drop).unwrap_err();
        let Error::ConnectionClosed { code: 403, text } = &refused else { panic!("{refused:?}") };
        let words = "Login was refused using authentication mechanism EXTERNAL";
        assert!(text.contains(words), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_logs_in_as_the_user_that_it_names_with_the_rights_of_that_user() {
    let trusting = Trusting::start("external", "cn");
    trusting.make_user("ann");
    for (file, name) in [("ann", "ann"), ("bob", "bob"), ("none", ""), ("odd", "ann\0")] {
        trusting.sign(file, name);
    }
    let mut ann = trusting.external("ann").await.unwrap();
    ann.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let refused = ann.declare_queue(&QueueSpec::durable("other")).await.unwrap_err();
    assert_eq!(refused.code(), Some(403), "{refused:?}");
    for file in ["bob", "none", "odd"] {
        trusting.refused(file).await;
    }
    // With and without a certificate, name and password are a login as before.
    for file in [None, Some("ann")] {
        trusting.sealed.connect_by(&trusting.authority, file, false).await.unwrap();
    }
    trusting.done("DELETE", "/users/ann", &Value::Null);
    let closed = ann.look_up_queue("jobs").await.unwrap_err();
    assert_eq!(closed.code(), Some(320), "{closed:?}");
    trusting.refused("ann").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_names_a_user_without_permissions_and_opens_no_vhost() {
    let trusting = Trusting::start("external-vhost", "common_name");
    trusting.done("PUT", "/users/ann", &json!({ "tags": "" }));
    trusting.sign("ann", "ann");
    let refused = trusting.external("ann").await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Some(530), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alternative_name_or_the_whole_subject_is_the_user_where_the_node_says_so() {
    let trusting = Trusting::start("external-uri", "san-uri");
    trusting.make_user("app%3A%2F%2Fshop%2Fann");
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "guest");
    params.subject_alt_names = vec![SanType::URI("app://shop/ann".try_into().unwrap())];
    trusting.authority.sign_as(params, "ann", &trusting.authority.folder);
    trusting.external("ann").await.unwrap();
    trusting.sign("guest", "guest");
    trusting.refused("guest").await;
    drop(trusting);
    let trusting = Trusting::start("external-dn", "distinguished_name");
    trusting.make_user("CN=ann");
    trusting.sign("ann", "ann");
    trusting.external("ann").await.unwrap();
}

/// What the server offers to a client that says nothing yet.
fn offered(mut stream: impl std::io::Read + std::io::Write) -> String {
    stream.write_all(b"AMQP\0\0\x09\x01").unwrap();
    let mut head = [0; 7];
    stream.read_exact(&mut head).unwrap();
    let bytes = u32::from_be_bytes(head[3..].try_into().unwrap());
    let mut payload = vec![0; bytes as usize];
    stream.read_exact(&mut payload).unwrap();
    let method = amqp::Method::decode(&payload).unwrap();
    let amqp::Method::ConnectionStart(start) = method else { panic!("{method:?}") };
    String::from_utf8(start.mechanisms.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn external_is_offered_with_a_verified_certificate_and_only_where_the_node_wants_it() {
    let trusting = Trusting::start("external-offered", "cn");
    let address = trusting.sealed.node.url.clone();
    let plain = TcpStream::connect((address.host.as_str(), address.port)).unwrap();
    assert_eq!(offered(plain), "PLAIN AMQPLAIN", "without TLS");
    let bare = trusting.sealed.connect_by(&trusting.authority, None, true).await;
    let bare = bare.map(drop).unwrap_err();
    let Error::Invalid { text } = &bare else { panic!("{bare:?}") };
    assert!(text.contains("offers the logins PLAIN AMQPLAIN;"), "without a certificate: {text}");
    let unwilling = Trusting::start_with("external-off", &[]);
    unwilling.sign("guest", "guest");
    let refused = unwilling.external("guest").await.map(drop).unwrap_err();
    let Error::Invalid { text } = &refused else { panic!("{refused:?}") };
    assert!(text.contains("offers the logins PLAIN AMQPLAIN;"), "not wanted: {text}");
}
