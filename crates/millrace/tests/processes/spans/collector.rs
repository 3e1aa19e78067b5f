//! A collector: a server that takes OTLP over HTTP, plain or under TLS, and keeps what it was sent.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use prost::Message as _;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::client_tls::Authority;

#[derive(Clone)]
pub(super) struct Collector {
    pub(super) address: SocketAddr,
    taken: Arc<Mutex<Vec<ResourceSpans>>>,
    /// The status that it answers with.
    status: Arc<AtomicU16>,
}

impl Collector {
    pub(super) async fn start(address: &str) -> Self {
        Self::start_with(address, None).await
    }

    /// One whose certificate for `localhost` this authority has signed.
    pub(super) async fn start_sealed(authority: &Authority) -> Self {
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
        Self::start_with("127.0.0.1:0", Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start_with(address: &str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector =
            Self { address, taken: Arc::default(), status: Arc::new(AtomicU16::new(200)) };
        let serving = collector.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, tls) = (serving.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serving.serve(stream).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serving.serve(stream).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        collector
    }

    /// Answers with this status from now on.
    pub(super) fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// What it has been sent with success, request by request.
    pub(super) fn taken(&self) -> Vec<ResourceSpans> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves a connection until it ends, as often as something is asked.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) -> Option<()> {
        let mut received = Vec::new();
        loop {
            let head = loop {
                match received.windows(4).position(|end| end == b"\r\n\r\n") {
                    Some(end) => break received.drain(..end + 4).collect::<Vec<u8>>(),
                    None => more(&mut stream, &mut received).await?,
                }
            };
            let head = String::from_utf8(head).unwrap().to_lowercase();
            assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
            assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.unwrap().parse().unwrap();
            while received.len() < length {
                more(&mut stream, &mut received).await?;
            }
            let body: Vec<u8> = received.drain(..length).collect();
            let request = ExportTraceServiceRequest::decode(&body[..]).unwrap();
            let status = self.status.load(Ordering::SeqCst);
            if status == 200 {
                let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
                taken.extend(request.resource_spans);
            }
            let answer = format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.ok()?;
        }
    }
}

async fn more<S: AsyncRead + Unpin>(stream: &mut S, received: &mut Vec<u8>) -> Option<()> {
    let count = stream.read_buf(received).await.ok()?;
    (count > 0).then_some(())
}
