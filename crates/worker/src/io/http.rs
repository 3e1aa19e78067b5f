//! The one HTTP client of targets and sources: pooled connections, HTTP/1.1 and HTTP/2, TLS, and the rule which
//! addresses may be connected to.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::Error;

/// Which addresses may be connected to. Judged on the address of each connection, after the name was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Loopback, private, link-local, multicast and other special ranges are refused.
    Public,
    Any,
}

/// How requests are made.
#[derive(Clone, Debug)]
pub struct Options {
    pub addresses: Addresses,
    /// More of an answer's body is not read.
    pub response_bytes_max: usize,
    /// A certificate authority (PEM) instead of the machine's.
    pub ca: Option<PathBuf>,
    pub connect_timeout: Duration,
    /// Connections kept to one address.
    pub connections_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            addresses: Addresses::Any,
            response_bytes_max: 64 * 1024,
            ca: None,
            connect_timeout: Duration::from_secs(5),
            connections_max: 256,
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

/// The client. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Http {
    options: Options,
}

impl Http {
    /// A client.
    ///
    /// # Errors
    /// The certificate file cannot be read.
    pub fn new(options: Options) -> Result<Self, Error> {
        Ok(Self { options })
    }

    /// Sends a request and reads its answer. No redirect is followed.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn send(
        &self,
        _request: http::Request<Bytes>,
        _deadline: Instant,
    ) -> Result<Answer, Failure> {
        Err(Failure::Connect { why: format!("{:?} is not here yet", self.options.addresses) })
    }
}
