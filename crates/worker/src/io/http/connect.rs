//! Opens connections: resolves the name once, drops the addresses that are not allowed, connects to exactly one
//! that is, looks again where the connection has led, and starts TLS.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::{Addresses, stream::Stream, tls};
use crate::address::{self, Host};
use crate::io::source::BoxFuture;
use crate::limits::HTTP_ADDRESSES_MAX;

/// Who knows the addresses of a name.
pub trait Resolve: Send + Sync + fmt::Debug + 'static {
    /// All addresses of `name`, in the order in which they are to be tried.
    fn resolve(&self, name: String) -> BoxFuture<io::Result<Vec<IpAddr>>>;
}

/// The machine's resolver.
#[derive(Debug)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: String) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The place is not allowed.
    Forbidden(String),
    /// Nobody is there, or not as whom it should be.
    Away(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(text) | Self::Away(text) => out.write_str(text),
        }
    }
}

impl std::error::Error for Refusal {}

/// Opens connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connector {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    addresses: Addresses,
    resolver: Arc<dyn Resolve>,
    tls: Arc<ClientConfig>,
    connect_timeout: Duration,
    /// The other side must speak HTTP/2.
    is_http2_only: bool,
}

/// Where a URL leads to.
pub(super) struct Place {
    host: Host,
    port: u16,
    is_tls: bool,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) => SocketAddr::new(*address, self.port).fmt(out),
            Host::Name(name) => write!(out, "{name}:{}", self.port),
        }
    }
}

impl Connector {
    pub(super) fn new(
        options: &super::Options,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, crate::Error> {
        let protocols = options.http2.protocols();
        let tls = tls::config(options.ca.as_deref(), options.identity.as_ref(), protocols)?;
        let shared = Shared {
            addresses: options.addresses,
            resolver,
            tls: Arc::new(tls),
            connect_timeout: options.connect_timeout,
            is_http2_only: options.http2 == super::Http2::Only,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A connection to where `url` leads, with TLS for `https`.
    ///
    /// # Errors
    /// The place is not allowed, or cannot be reached in time.
    pub async fn open(&self, url: &Uri) -> Result<Stream, Refusal> {
        let place = place(url)?;
        let time = self.shared.connect_timeout;
        let deadline = Instant::now() + time;
        match timeout_at(deadline, self.reach(&place, deadline)).await {
            Ok(stream) => stream,
            Err(_) => Err(Refusal::Away(format!("{place} did not take a connection in {time:?}"))),
        }
    }

    async fn reach(&self, place: &Place, deadline: Instant) -> Result<Stream, Refusal> {
        let addresses = self.allowed(place).await?;
        let tcp = self.dial(place, &addresses, deadline).await?;
        if !place.is_tls {
            return Ok(Stream::Plain(tcp));
        }
        let name = match &place.host {
            Host::Address(address) => ServerName::IpAddress((*address).into()),
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| {
                Refusal::Forbidden(format!("`{name}` cannot be a name in a certificate"))
            })?,
        };
        let stream = TlsConnector::from(Arc::clone(&self.shared.tls))
            .connect(name, tcp)
            .await
            .map_err(|error| Refusal::Away(tls::words(&place.to_string(), &error)))?;
        let stream = Stream::Tls(Box::new(stream));
        if self.shared.is_http2_only && !stream.is_http2() {
            return Err(Refusal::Away(format!("{place} does not speak HTTP/2")));
        }
        Ok(stream)
    }

    /// The addresses of `place` that may be connected to: at least one.
    async fn allowed(&self, place: &Place) -> Result<Vec<SocketAddr>, Refusal> {
        let found = match &place.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self
                .shared
                .resolver
                .resolve(name.clone())
                .await
                .map_err(|error| Refusal::Away(format!("{name} was not resolved: {error}")))?,
        };
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in found {
            match self.judge(address) {
                Ok(()) => allowed.push(SocketAddr::new(address, place.port)),
                Err(why) => refused = Some((address, why)),
            }
        }
        allowed.truncate(HTTP_ADDRESSES_MAX);
        match (allowed.is_empty(), refused) {
            (false, _) => Ok(allowed),
            (true, None) => Err(Refusal::Away(format!("{place} has no address"))),
            (true, Some((address, why))) => Err(Refusal::Forbidden(format!(
                "{place} leads to {address}, which is not allowed: it is {why}"
            ))),
        }
    }

    fn judge(&self, address: IpAddr) -> Result<(), &'static str> {
        match self.shared.addresses {
            Addresses::Any => Ok(()),
            Addresses::Public => address::refusal(address).map_or(Ok(()), Err),
        }
    }

    /// A connection to the first address that takes one. Each has its part of the time.
    async fn dial(
        &self,
        place: &Place,
        addresses: &[SocketAddr],
        deadline: Instant,
    ) -> Result<TcpStream, Refusal> {
        let mut last = format!("{place} has no address");
        for (at, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let part = left / u32::try_from(addresses.len() - at).unwrap_or(1);
            match timeout(part, TcpStream::connect(*address)).await {
                Ok(Ok(tcp)) => return self.look_again(tcp, *address),
                Ok(Err(error)) => last = format!("{address} of {place}: {error}"),
                Err(_) => last = format!("{address} of {place}: no connection in {part:?}"),
            }
        }
        Err(Refusal::Away(last))
    }

    /// The connection leads where it should.
    fn look_again(&self, tcp: TcpStream, wanted: SocketAddr) -> Result<TcpStream, Refusal> {
        let away = |error: io::Error| Refusal::Away(format!("{wanted}: {error}"));
        let peer = tcp.peer_addr().map_err(away)?;
        if peer.ip() != wanted.ip() {
            return Err(Refusal::Forbidden(format!("a connection to {wanted} has led to {peer}")));
        }
        if let Err(why) = self.judge(peer.ip()) {
            return Err(Refusal::Forbidden(format!("{peer} is not allowed: it is {why}")));
        }
        tcp.set_nodelay(true).map_err(away)?;
        Ok(tcp)
    }
}

pub(super) fn place(url: &Uri) -> Result<Place, Refusal> {
    let is_tls = match url.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        Some(other) => {
            return Err(Refusal::Forbidden(format!("{other}: is neither http nor https")));
        }
        None => return Err(Refusal::Forbidden("a URL must begin with http:// or https://".into())),
    };
    let host = address::host(url.host().unwrap_or("")).map_err(Refusal::Forbidden)?;
    Ok(Place { host, port: url.port_u16().unwrap_or(if is_tls { 443 } else { 80 }), is_tls })
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = Refusal;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Refusal>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.open(&url).await.map(TokioIo::new) })
    }
}
