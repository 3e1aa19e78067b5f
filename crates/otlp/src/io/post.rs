//! Requests to a collector, over one connection as long as it lasts: bounded in time and bytes. No redirect is followed:
//! the operator names where spans go.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Settings;
use crate::Endpoint;
use crate::delivery::Answer;
use crate::limits::{ANSWER_BYTES_MAX, HEAD_BYTES_MAX, REQUEST_WAIT};
use crate::wire;

/// The way to a collector.
pub(super) struct Link<'s> {
    settings: &'s Settings,
    open: Option<Open>,
}

/// A connection that was opened, and has to be driven while something is asked.
struct Open {
    sender: SendRequest<Full<Bytes>>,
    connection: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
}

impl<'s> Link<'s> {
    pub(super) fn new(settings: &'s Settings) -> Self {
        Self { settings, open: None }
    }

    /// Sends a request with spans.
    pub(super) async fn post(&mut self, body: Bytes) -> Answer {
        match timeout(REQUEST_WAIT, self.exchange(body)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => {
                self.open = None;
                Answer::Nothing(why)
            }
            Err(_) => {
                self.open = None;
                Answer::Nothing(format!("no answer in {REQUEST_WAIT:?}"))
            }
        }
    }

    async fn exchange(&mut self, body: Bytes) -> Result<Answer, String> {
        let endpoint = &self.settings.endpoint;
        if let Some(mut open) = self.open.take()
            // The collector may have closed it meanwhile: then a new one is tried.
            && let Ok(answer) = open.ask(request(endpoint, body.clone())?).await
        {
            self.open = Some(open);
            return Ok(answer);
        }
        let mut open = connect(self.settings).await?;
        let answer = open.ask(request(endpoint, body)?).await?;
        self.open = Some(open);
        Ok(answer)
    }
}

impl Open {
    async fn over<S>(stream: S) -> Result<Self, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(words)?;
        Ok(Self { sender, connection: Box::pin(connection) })
    }

    async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let Self { sender, connection } = self;
        let answered = async {
            sender.ready().await.map_err(words)?;
            answer(sender.send_request(request).await.map_err(words)?).await
        };
        tokio::pin!(answered);
        tokio::select! {
            answer = &mut answered => answer,
            // The connection is over; what it has brought is still there to be taken.
            ended = &mut *connection => match ended {
                Ok(()) => {
                    // Not polled again: it is over.
                    *connection = Box::pin(std::future::pending());
                    answered.await
                }
                Err(error) => Err(words(error)),
            },
        }
    }
}

async fn answer(answer: Response<Incoming>) -> Result<Answer, String> {
    let code = answer.status().as_u16();
    let asked = answer.headers().get(header::RETRY_AFTER);
    let retry_after_s = asked.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| format!("its answer breaks off or is too large: {error}"))?;
    Ok(Answer::Status { code, rejected: wire::rejected(&body.to_bytes()), retry_after_s })
}

async fn connect(settings: &Settings) -> Result<Open, String> {
    let Settings { endpoint, authority } = settings;
    let host = endpoint.host.as_str();
    let stream = TcpStream::connect((host, endpoint.port)).await.map_err(words)?;
    if !endpoint.is_tls {
        return Open::over(stream).await;
    }
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| format!("`{host}` cannot be a name in a certificate"))?;
    let roots = certificates::authorities(authority.as_deref())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(words)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    Open::over(stream.map_err(words)?).await
}

fn request(endpoint: &Endpoint, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
    Request::post(&endpoint.path)
        .header(header::HOST, &endpoint.authority)
        .header(header::CONTENT_TYPE, "application/x-protobuf")
        .header(header::USER_AGENT, "Millrace")
        .body(Full::new(body))
        .map_err(words)
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
