//! A server under TLS that shows a set of keys, and counts how often it is asked.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::client_tls::Authority;

pub(super) struct KeyServer {
    pub(super) address: SocketAddr,
    shown: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
    received: Arc<Mutex<String>>,
}

impl KeyServer {
    /// One whose certificate `authority` has signed.
    pub(super) async fn start(authority: &Authority) -> Self {
        authority.sign("localhost", &authority.folder);
        let chain = certificates::chain(&authority.folder.join("localhost.pem")).unwrap();
        let key = certificates::key(&authority.folder.join("localhost.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            shown: Arc::default(),
            asked: Arc::default(),
            received: Arc::default(),
        };
        let received = Arc::clone(&server.received);
        let (shown, asked) = (Arc::clone(&server.shown), Arc::clone(&server.asked));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut request = vec![0; 4096];
                let mut length = 0;
                // A form comes after its head, perhaps in a record of its own.
                while let Ok(read @ 1..) = stream.read(&mut request[length..]).await {
                    length += read;
                    let text = String::from_utf8_lossy(&request[..length]);
                    let is_get = text.starts_with("GET ") && text.ends_with("\r\n\r\n");
                    if is_get || text.contains("code_verifier=") {
                        break;
                    }
                }
                *received.lock().unwrap_or_else(PoisonError::into_inner) =
                    String::from_utf8_lossy(&request[..length]).into_owned();
                asked.fetch_add(1, Ordering::SeqCst);
                let answer = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        server
    }

    /// Shows this set from now on.
    pub(super) fn show(&self, set: &str) {
        self.answer(&format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{set}",
            set.len()
        ));
    }

    /// Answers so from now on.
    pub(super) fn answer(&self, answer: &str) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = answer.to_owned();
    }

    /// The last request.
    pub(super) fn received(&self) -> String {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}
