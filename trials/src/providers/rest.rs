//! What the providers with plain HTTP and JSON have in common: a server on loopback, and answers that are ordered.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Response};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Largest body that is read.
const BODY_BYTES_MAX: usize = 8 << 20;

/// A request, read whole.
#[derive(Debug)]
pub struct Asked {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Asked {
    /// A header as text, empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as JSON, null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The body as a form.
    pub fn form(&self) -> BTreeMap<String, String> {
        form_urlencoded::parse(&self.body).into_owned().collect()
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub body: String,
    pub retry_after: Option<u64>,
}

impl Reply {
    pub fn json(status: u16, body: &Value) -> Self {
        Self { status, body: body.to_string(), retry_after: None }
    }

    pub fn text(status: u16, body: &str) -> Self {
        Self { status, body: body.to_owned(), retry_after: None }
    }
}

/// What a provider does with requests.
pub trait Provider: Send + 'static {
    fn answer(&mut self, asked: &Asked) -> Reply;
}

/// Answers that were ordered for the next requests, instead of the provider's own.
pub type Faults = VecDeque<Reply>;

/// How often each token got a message.
pub type Counts = BTreeMap<String, u64>;

/// A provider on a port of its own. Ends when it is dropped.
#[derive(Debug)]
pub struct Server<P> {
    address: SocketAddr,
    provider: Arc<Mutex<P>>,
    task: JoinHandle<()>,
}

impl<P: Provider> Server<P> {
    /// # Errors
    /// No port is to be had.
    pub async fn start(provider: P) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let provider = Arc::new(Mutex::new(provider));
        let shared = provider.clone();
        let router = Router::new().fallback(move |request: axum::extract::Request| {
            let shared = shared.clone();
            async move { answer(&shared, request).await }
        });
        let task = tokio::spawn(async move {
            // It ends when the task is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, provider, task })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The provider, to look at and to order faults from.
    pub fn provider(&self) -> MutexGuard<'_, P> {
        self.provider.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P> Drop for Server<P> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer<P: Provider>(
    provider: &Mutex<P>,
    request: axum::extract::Request,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_default().to_vec();
    let asked = Asked { path: parts.uri.path().to_owned(), headers: parts.headers, body };
    let reply = provider.lock().unwrap_or_else(PoisonError::into_inner).answer(&asked);
    let mut response = Response::builder().status(reply.status);
    if let Some(seconds) = reply.retry_after {
        response = response.header("retry-after", seconds);
    }
    response.body(Body::from(reply.body)).expect("a status and a text are a response")
}
