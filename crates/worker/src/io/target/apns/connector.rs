//! Opens connections: TCP, TLS with the credentials, HTTP/2.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::Error;
use crate::io::secret;
use crate::target::apns::{Authentication, Settings};

/// Bytes that h2 may hold of one push that cannot be written yet.
const SEND_BUFFER_BYTES: usize = 8 * 1024;

/// An open connection: what sends, and what must be driven.
pub(super) type Opened = (SendRequest<Bytes>, Connection<Unvectored, Bytes>);

pub(super) struct Connector {
    authority: http::uri::Authority,
    tls: TlsConnector,
    timeout: Duration,
}

impl Connector {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        let tls = tls(settings).map_err(Error::setup)?;
        Ok(Self {
            authority: settings.authority().map_err(Error::setup)?,
            tls: TlsConnector::from(Arc::new(tls)),
            timeout: settings.connect_timeout.0,
        })
    }

    pub(super) fn authority(&self) -> &http::uri::Authority {
        &self.authority
    }

    /// Opens a connection, or says why there is none.
    pub(super) async fn connect(&self) -> Result<Opened, String> {
        let connecting = tokio::time::timeout_at(super::deadline(self.timeout), self.open());
        let opened = connecting.await.unwrap_or_else(|_| Err("it takes too long".to_owned()));
        opened.map_err(|why| format!("no connection to {}: {why}", self.authority))
    }

    async fn open(&self) -> Result<Opened, String> {
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = self.authority.port_u16().unwrap_or(443);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host} is no name of a server"))?;
        let tcp = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        let tls = self.tls.connect(name, tcp).await.map_err(|error| format!("TLS: {error}"))?;
        if tls.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err("the server does not speak HTTP/2".to_owned());
        }
        let mut builder = h2::client::Builder::new();
        // One push until the server has told its limit.
        builder
            .initial_max_send_streams(1)
            .enable_push(false)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .handshake(Unvectored(tls))
            .await
            .map_err(|error| format!("HTTP/2: {error}"))
    }
}

fn tls(settings: &Settings) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(certificates::authorities(settings.ca.as_deref())?);
    let mut config = match settings.authentication()? {
        Authentication::Token { .. } => builder.with_no_client_auth(),
        Authentication::Certificate { certificate, key } => {
            let read = |secret| secret::read(secret).map_err(|error| error.to_string());
            let chain = read(certificate)?;
            let key = key.map_or_else(|| Ok(chain.clone()), read)?;
            let chain = certificates::chain_of(&chain)
                .ok_or("`certificate` holds no certificate in PEM")?;
            let key = certificates::key_of(&key)
                .ok_or("`certificate_key` holds no private key in PEM")?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| format!("`certificate` and its key cannot be used: {error}"))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// A TLS stream that takes no vectored writes. So h2 gathers many small frames into one write, one TLS record and
/// one call to the system, instead of writing each payload by itself.
pub(super) struct Unvectored(TlsStream<TcpStream>);

impl AsyncRead for Unvectored {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Unvectored {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
