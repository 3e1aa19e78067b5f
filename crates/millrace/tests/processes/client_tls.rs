//! TLS with clients: AMQP and the HTTP API, certificates of clients, and certificates that are renewed while the node
//! runs.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use amqp::Properties;
use client::{Address, Connection, Error, Options, QueueSpec, Tls, Url};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::node::{Node, free_address, until};

/// An authority, and the files of those it has signed.
pub(crate) struct Authority {
    pub(crate) folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("millrace-tls-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        std::fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    /// Writes certificate and key of `name` into `folder`.
    pub(crate) fn sign(&self, name: &str, folder: &Path) {
        self.sign_until(name, folder, 4000);
    }

    /// The same, good until a year begins.
    pub(crate) fn sign_until(&self, name: &str, folder: &Path, year: i32) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        self.sign_as(params, name, folder);
    }

    /// The same of a certificate that says this.
    pub(crate) fn sign_as(&self, params: CertificateParams, name: &str, folder: &Path) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A node that serves AMQP under TLS, too.
pub(crate) struct Sealed {
    pub(crate) node: Node,
    pub(crate) port: u16,
}

impl Sealed {
    pub(crate) fn start(test: &str, authority: &Authority, more: &[&str]) -> Self {
        authority.sign("localhost", &authority.folder);
        let address = free_address();
        let files = [authority.file("localhost.pem"), authority.file("localhost.key")];
        let mut arguments =
            vec!["--amqps", &address, "--tls-certfile", &files[0], "--tls-keyfile", &files[1]];
        arguments.extend(more);
        let node = Node::start_with(test, &arguments);
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        Self { node, port }
    }

    /// Connects as who believes `authority` and shows `certificate`.
    async fn connect(
        &self,
        authority: &Authority,
        certificate: Option<&str>,
    ) -> Result<Connection, Error> {
        self.connect_by(authority, certificate, false).await
    }

    /// The same as who logs in with the certificate, if `is_login`, and else with name and password.
    pub(crate) async fn connect_by(
        &self,
        authority: &Authority,
        certificate: Option<&str>,
        is_login: bool,
    ) -> Result<Connection, Error> {
        let file = |name: &str| authority.folder.join(name);
        let tls = Tls {
            authority: Some(file("ca.pem")),
            certificate: certificate.map(|name| file(&format!("{name}.pem"))),
            key: certificate.map(|name| file(&format!("{name}.key"))),
            is_login,
            ..Tls::default()
        };
        let host = "localhost".to_owned();
        let url = Url { host, port: self.port, tls: Some(tls), ..self.node.url.clone() };
        Connection::open(&url, &Options::named("tls")).await
    }

    pub(crate) fn hang_up(&self) {
        let sent = Command::new("kill").args(["-HUP", &self.node.pid().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

async fn send_and_take(client: &mut Connection, body: &[u8]) {
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    client.publish(Address::queue("jobs"), &Properties::default(), body).await.unwrap();
    let taken = client.get("jobs", true).await.unwrap().unwrap();
    assert!(taken.body == body, "as it went");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_under_tls_is_served_as_one_without() {
    let authority = Authority::new("serve");
    let api = free_address();
    let sealed = Sealed::start("tls-serve", &authority, &["--http", &api]);
    let mut client = sealed.connect(&authority, None).await.unwrap();
    for bytes in [0, 1, 100_000, 8_000_000] {
        send_and_take(&mut client, &vec![7; bytes]).await;
    }
    let other = Authority::new("serve-other");
    assert!(sealed.connect(&other, None).await.is_err(), "signed by nobody whom it believes");
    let mut plain = TcpStream::connect(("127.0.0.1", sealed.port)).unwrap();
    plain.write_all(b"AMQP\0\0\x09\x01").unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!said.starts_with(b"AMQP") && !said.starts_with(&[1]), "nothing without TLS: {said:?}");
    let mut stream = TcpStream::connect(&api).unwrap();
    let request = "GET /api/connections HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Basic \
                   Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"ssl\":true"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_the_certificate_that_it_must_show_is_refused() {
    let authority = Authority::new("clients");
    let believed = authority.file("ca.pem");
    let more = ["--tls-cacertfile", &believed, "--set", "tls_client_certificates=required"];
    let sealed = Sealed::start("tls-clients", &authority, &more);
    authority.sign("ann", &authority.folder);
    assert!(sealed.connect(&authority, None).await.is_err(), "it shows none");
    let mut ann = sealed.connect(&authority, Some("ann")).await.unwrap();
    send_and_take(&mut ann, b"hello").await;
    let other = Authority::new("clients-other");
    other.sign("eve", &authority.folder);
    assert!(sealed.connect(&authority, Some("eve")).await.is_err(), "signed by another");
}

/// Certificates are read again hundreds of times while a client works: it notices nothing. New connections get what is
/// there now; a file that cannot be used changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_certificates_count_for_new_connections_and_lose_no_old_one() {
    let (old, new) = (Authority::new("reload-old"), Authority::new("reload-new"));
    let sealed = Sealed::start("tls-reload", &old, &[]);
    let mut client = sealed.connect(&old, None).await.unwrap();
    for count in 0..300 {
        sealed.hang_up();
        send_and_take(&mut client, format!("message {count}").as_bytes()).await;
    }
    new.sign("localhost", &old.folder);
    sealed.hang_up();
    let mut tries = 0;
    let renewed = loop {
        match sealed.connect(&new, None).await {
            Ok(renewed) => break renewed,
            Err(error) if tries > 200 => panic!("{error}"),
            Err(_) => tries += 1,
        }
    };
    drop(renewed);
    assert!(sealed.connect(&old, None).await.is_err(), "the one before is shown no longer");
    send_and_take(&mut client, b"the open connection goes on").await;
    std::fs::write(old.folder.join("localhost.key"), "no key").unwrap();
    sealed.hang_up();
    send_and_take(&mut client, b"and on").await;
    sealed.connect(&new, None).await.unwrap();
    until("the node is alive", || sealed.node.status().is_some());
}
