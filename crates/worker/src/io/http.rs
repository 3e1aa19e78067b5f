//! The one HTTP client of targets and sources: pooled connections, HTTP/1.1 and HTTP/2, TLS, and the rule which
//! addresses may be connected to.
//!
//! A pooled connection is used again without asking the resolver: it leads where it led when it was judged. No
//! redirect is followed: a redirect is an answer like any other.

mod connect;
mod stream;
mod tls;

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout_at;

use crate::error::Error;
use crate::limits::{
    HTTP_HEADER_BYTES_MAX, HTTP_HEADERS_MAX, HTTP_IDLE, HTTP_PING, HTTP_PING_TIMEOUT,
    HTTP2_CONNECTION_WINDOW, HTTP2_CONNECTIONS_MAX, HTTP2_STREAM_WINDOW, HTTP2_STREAMS,
};

pub use connect::{Connector, Refusal, Resolve, SystemResolver};
pub use stream::Stream;

/// Which addresses may be connected to. Judged on the address of each connection, after the name was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Loopback, private, link-local, multicast and other special ranges are refused.
    Public,
    Any,
}

/// Whether HTTP/2 is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Http2 {
    /// Under TLS, where the other side can; HTTP/1.1 otherwise.
    #[default]
    Negotiated,
    /// Always, without TLS too.
    Only,
    Never,
}

impl Http2 {
    /// The names of the protocols that TLS offers.
    fn protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Negotiated => &[b"h2", b"http/1.1"],
            Self::Only => &[b"h2"],
            Self::Never => &[b"http/1.1"],
        }
    }
}

/// A certificate that this client shows, and its key: PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// How requests are made.
#[derive(Clone, Debug)]
pub struct Options {
    pub addresses: Addresses,
    /// More of an answer's body is not read.
    pub response_bytes_max: usize,
    /// A certificate authority (PEM) instead of the machine's.
    pub ca: Option<PathBuf>,
    /// Resolving, connecting and the TLS handshake together.
    pub connect_timeout: Duration,
    /// Idle connections kept to one address.
    pub connections_max: usize,
    pub http2: Http2,
    pub identity: Option<Identity>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            addresses: Addresses::Any,
            response_bytes_max: 64 * 1024,
            ca: None,
            connect_timeout: Duration::from_secs(5),
            connections_max: 256,
            http2: Http2::Negotiated,
            identity: None,
        }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: Bytes,
    /// The body was longer than `response_bytes_max`.
    pub is_cut: bool,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The address is not allowed: no attempt can work.
    Forbidden { address: String },
    /// No connection: nothing was sent.
    Connect { why: String },
    /// No answer in time; the request may have been executed.
    Timeout,
    /// The connection broke; the request may have been executed.
    Broken { why: String },
}

/// Connections. Of HTTP/2, one to each host: so a busy client has several pools.
#[derive(Debug)]
struct Pool {
    client: Client<Connector, Full<Bytes>>,
    /// Requests that are under way.
    in_flight: AtomicUsize,
}

/// Counts a request for as long as it is under way.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The client. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Http {
    pools: Vec<Pool>,
    connector: Connector,
    response_bytes_max: usize,
}

impl Http {
    /// A client.
    ///
    /// # Errors
    /// The certificate file cannot be read.
    pub fn new(options: Options) -> Result<Self, Error> {
        Self::with_resolver(options, Arc::new(SystemResolver))
    }

    /// A client that asks `resolver` for the addresses of names.
    ///
    /// # Errors
    /// The certificate file cannot be read.
    pub fn with_resolver(options: Options, resolver: Arc<dyn Resolve>) -> Result<Self, Error> {
        let connector = Connector::new(&options, resolver)?;
        let pools = if options.http2 == Http2::Never { 1 } else { HTTP2_CONNECTIONS_MAX };
        let pool =
            |_| Pool { client: client(&options, &connector), in_flight: AtomicUsize::new(0) };
        let pools = (0..pools).map(pool).collect();
        Ok(Self { pools, connector, response_bytes_max: options.response_bytes_max })
    }

    /// Opens a connection of its own, under the same rules, for whoever speaks on it by himself.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Sends a request and reads its answer. No redirect is followed.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn send(
        &self,
        request: http::Request<Bytes>,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        timeout_at(deadline.into(), self.exchange(request)).await.unwrap_or(Err(Failure::Timeout))
    }

    /// The first pool with room, so that few requests need few connections; the emptiest if none has.
    fn pool(&self) -> &Pool {
        let busy = |pool: &Pool| pool.in_flight.load(Ordering::Relaxed);
        let free = self.pools.iter().find(|pool| busy(pool) < HTTP2_STREAMS);
        free.or_else(|| self.pools.iter().min_by_key(|pool| busy(pool)))
            .expect("a client has at least one pool")
    }

    async fn exchange(&self, request: http::Request<Bytes>) -> Result<Answer, Failure> {
        // The pool opens no connection for a URL that it does not understand: ask the connector for the words.
        connect::place(request.uri()).map_err(refused)?;
        let pool = self.pool();
        pool.in_flight.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(&pool.in_flight);
        let answer = pool.client.request(request.map(Full::new)).await.map_err(failure)?;
        let (head, body) = answer.into_parts();
        let (body, is_cut) = read(body, self.response_bytes_max).await?;
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, is_cut })
    }
}

fn client(options: &Options, connector: &Connector) -> Client<Connector, Full<Bytes>> {
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(HTTP_IDLE)
        .pool_max_idle_per_host(options.connections_max)
        .http1_max_headers(HTTP_HEADERS_MAX)
        .http1_max_buf_size(HTTP_HEADER_BYTES_MAX)
        .http2_max_header_list_size(HTTP_HEADER_BYTES_MAX as u32)
        .http2_only(options.http2 == Http2::Only)
        .http2_initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .http2_initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
        .http2_keep_alive_interval(HTTP_PING)
        .http2_keep_alive_timeout(HTTP_PING_TIMEOUT)
        .build(connector.clone())
}

/// The body up to `bytes_max`, and whether it goes on. A connection whose answer goes on is given up with it.
async fn read(mut body: Incoming, bytes_max: usize) -> Result<(Bytes, bool), Failure> {
    let mut whole = BytesMut::new();
    let mut only = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::Broken { why: chain(&error) })?;
        let Ok(piece) = frame.into_data() else { continue };
        if whole.len() + only.as_ref().map_or(0, Bytes::len) + piece.len() > bytes_max {
            whole.extend_from_slice(&only.take().unwrap_or_default());
            whole.extend_from_slice(&piece[..bytes_max - whole.len()]);
            return Ok((whole.freeze(), true));
        }
        // Most answers are one piece, which needs no copy.
        if whole.is_empty() && only.is_none() {
            only = Some(piece);
            continue;
        }
        whole.extend_from_slice(&only.take().unwrap_or_default());
        whole.extend_from_slice(&piece);
    }
    Ok((only.unwrap_or_else(|| whole.freeze()), false))
}

fn refused(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Forbidden(address) => Failure::Forbidden { address },
        Refusal::Away(why) => Failure::Connect { why },
    }
}

fn failure(error: legacy::Error) -> Failure {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(refusal) = cause.downcast_ref::<Refusal>() {
            return refused(refusal.clone());
        }
        source = cause.source();
    }
    let why = error.source().map_or_else(|| error.to_string(), chain);
    if error.is_connect() { Failure::Connect { why } } else { Failure::Broken { why } }
}

/// An error with its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
