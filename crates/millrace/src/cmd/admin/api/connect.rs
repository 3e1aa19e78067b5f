//! A connection to the API, under TLS if its URL says so.
#![allow(clippy::disallowed_methods, reason = "a client: it opens its connection, and drives it")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::cmd::admin::login::Login;

/// How long it may take until there is a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Connects.
///
/// # Errors
/// In words, with what can be done.
pub(super) async fn connect(login: &Login) -> Result<SendRequest<Full<Bytes>>, String> {
    let place = login.address.place();
    match tokio::time::timeout(CONNECT_WAIT, reach(login, &place)).await {
        Ok(connection) => connection,
        Err(_) => Err(format!("{place} has taken no connection within {CONNECT_WAIT:?}")),
    }
}

async fn reach(login: &Login, place: &str) -> Result<SendRequest<Full<Bytes>>, String> {
    let address = &login.address;
    let tcp = TcpStream::connect((address.host.as_str(), address.port)).await;
    let tcp = tcp.map_err(|error| {
        format!(
            "no node answers at {place}: {error}. Is it running, with `--http ADDR:PORT` (by default nothing listens), \
             and is this its address? See --url and --context"
        )
    })?;
    // Requests are small, and each waits for its answer.
    let _ = tcp.set_nodelay(true);
    if !address.is_tls {
        return begin(tcp, place).await;
    }
    let name = ServerName::try_from(address.host.clone())
        .map_err(|_| format!("`{}` cannot be a name in a certificate", address.host))?;
    let config = Arc::new(config(login)?);
    let sealed = TlsConnector::from(config).connect(name, tcp).await;
    begin(sealed.map_err(|error| words(place, &error))?, place).await
}

async fn begin<S>(stream: S, place: &str) -> Result<SendRequest<Full<Bytes>>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await;
    let (sender, connection) =
        begun.map_err(|error| format!("{place} does not speak HTTP: {error}"))?;
    // It ends with the sender; what goes wrong is told to whoever waits for an answer.
    tokio::spawn(connection);
    Ok(sender)
}

fn config(login: &Login) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = certificates::authorities(login.cacertfile.as_deref());
    let authorities = authorities.map_err(|why| format!("--cacertfile: {why}"))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(authorities);
    let Some((certificate, key)) = &login.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates::chain(certificate).map_err(|why| format!("--certfile: {why}"))?;
    let key = certificates::key(key).map_err(|why| format!("--keyfile: {why}"))?;
    let config = builder.with_client_auth_cert(chain, key);
    config.map_err(|error| format!("--certfile and --keyfile do not go together: {error}"))
}

/// Why a handshake failed, and what can be done.
fn words(place: &str, error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => format!(
            "the certificate of {place} is not signed by an authority that is believed here: name the PEM file of the \
             one that signed it with --cacertfile"
        ),
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!("the certificate of {place} is not accepted: {why}")
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            format!("{place} does not answer with TLS: without it, say http:// instead")
        }
        Some(rustls::Error::AlertReceived(alert)) => format!(
            "{place} refuses the TLS connection ({alert:?}): it may want a certificate, see --certfile and --keyfile"
        ),
        Some(other) => format!("TLS with {place} failed: {other}"),
        None => format!("{place} ended the TLS handshake: {error}"),
    }
}
