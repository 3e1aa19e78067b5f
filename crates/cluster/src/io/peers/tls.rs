//! TLS between nodes: both sides show a certificate of the cluster's own authority, and the dialed
//! one's names the host of its address.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::line::{Broken, Socket};
use crate::membership::TlsFiles;

/// What a node shows, and whom it believes.
#[derive(Clone)]
pub(in crate::io) struct Tls {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Reads the files. A refusal is a sentence that says which one is wrong.
    pub(in crate::io) fn load(files: &TlsFiles) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authority =
            Arc::new(certificates::authorities(Some(&files.authority)).map_err(between)?);
        let wrong = |error: rustls::Error| {
            format!(
                "the certificate {} and the key {} do not go together: {error}",
                files.certificate.display(),
                files.key.display()
            )
        };
        let (chain, key) = pair(files)?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_root_certificates(Arc::clone(&authority))
            .with_client_auth_cert(chain, key)
            .map_err(wrong)?;
        let server = server(&provider, authority, files, &wrong)?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(client)),
            acceptor: TlsAcceptor::from(Arc::new(server)),
        })
    }

    /// Goes on under TLS on a connection that was made to `address`.
    pub(super) async fn connect(
        &self,
        stream: TcpStream,
        address: &str,
    ) -> Result<Box<dyn Socket>, Broken> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|error| Broken::Tls(error.to_string()))?;
        let stream = self.connector.connect(name, stream).await.map_err(broken)?;
        Ok(Box::new(stream))
    }

    /// Goes on under TLS on a connection that was accepted.
    pub(super) async fn accept(&self, stream: TcpStream) -> Result<Box<dyn Socket>, Broken> {
        Ok(Box::new(self.acceptor.accept(stream).await.map_err(broken)?))
    }
}

/// What a node shows.
fn pair(
    files: &TlsFiles,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain = certificates::chain(&files.certificate).map_err(between)?;
    Ok((chain, certificates::key(&files.key).map_err(between)?))
}

fn between(why: String) -> String {
    format!("TLS between nodes: {why}")
}

fn server(
    provider: &Arc<CryptoProvider>,
    authority: Arc<RootCertStore>,
    files: &TlsFiles,
    wrong: &dyn Fn(rustls::Error) -> String,
) -> Result<ServerConfig, String> {
    let verifier = WebPkiClientVerifier::builder_with_provider(authority, Arc::clone(provider))
        .build()
        .map_err(|error| format!("{}: {error}", files.authority.display()))?;
    let (chain, key) = pair(files)?;
    ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(wrong)
}

fn broken(error: std::io::Error) -> Broken {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => Broken::Tls(error.to_string()),
        None => error.into(),
    }
}
