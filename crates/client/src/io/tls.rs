//! TLS to a server: which files are read, what is believed, and what a refusal is told as.
//!
//! The server's certificate is always verified, chain and name; there is no way around it. Files are read
//! at every connect, so a renewed certificate counts from the next one on.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::socket::Socket;
use crate::error::Error;
use crate::url::{Tls, Url};

/// Goes on under TLS on `tcp`, which was just connected to `url`.
pub(super) async fn connect(url: &Url, tls: &Tls, tcp: TcpStream) -> Result<Socket, Error> {
    let (config, name) = wanted(url, tls)?;
    match TlsConnector::from(config).connect(name, tcp).await {
        Ok(stream) => {
            let (tcp, session) = stream.into_inner();
            Ok(Socket::sealed(tcp, session))
        }
        Err(error) => Err(failed(url, tls, &error)),
    }
}

/// The client's side of a session with `url`, before its handshake.
pub(super) fn session(url: &Url, tls: &Tls) -> Result<ClientConnection, Error> {
    let (config, name) = wanted(url, tls)?;
    ClientConnection::new(config, name).map_err(|error| refused(url, tls, &error))
}

/// What a handshake that failed with `error` is told as.
pub(super) fn failed(url: &Url, tls: &Tls, error: &std::io::Error) -> Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(inner) => refused(url, tls, inner),
        None => Error::Lost { why: format!("{error} (during the TLS handshake)") },
    }
}

/// What is told of an `error` between the TLS handshake and the end of AMQP's: under TLS 1.3 a server looks at the
/// client's certificate when the client thinks that all is agreed. `failure` is what TLS ended with, if it did.
pub(super) fn before_opening(url: &Url, failure: Option<&rustls::Error>, error: Error) -> Error {
    let Some(tls) = &url.tls else { return error };
    match (failure, error) {
        (Some(failure), _) => refused(url, tls, failure),
        (None, Error::Lost { why }) if tls.certificate.is_none() => {
            let hint = "if it wants a certificate from its clients: certfile and keyfile";
            Error::Lost { why: format!("{why} ({hint})") }
        }
        (None, error) => error,
    }
}

/// Whom to believe and what to show, and the name that the server's certificate must have.
fn wanted(url: &Url, tls: &Tls) -> Result<(Arc<ClientConfig>, ServerName<'static>), Error> {
    let host = tls.server_name.as_ref().unwrap_or(&url.host);
    let name = ServerName::try_from(host.clone()).map_err(|_| {
        let why = format!("`{host}` cannot be a name in a certificate; see server_name_indication");
        Error::Tls { why }
    })?;
    Ok((Arc::new(config(tls).map_err(|why| Error::Tls { why })?), name))
}

/// What TLS ended with, in words.
fn refused(url: &Url, tls: &Tls, error: &rustls::Error) -> Error {
    Error::Tls { why: words(url, tls, error) }
}

fn config(tls: &Tls) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(authorities(tls.authority.as_deref())?);
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates::chain(certificate).map_err(|why| format!("certfile {why}"))?;
    let secret = certificates::key(key).map_err(|why| format!("keyfile {why}"))?;
    builder.with_client_auth_cert(chain, secret).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let (certificate, key) = (certificate.display(), key.display());
            format!("certfile {certificate} and keyfile {key} are not of one pair")
        }
        other => format!("certfile {}", certificates::unusable(certificate, &other)),
    })
}

fn authorities(file: Option<&Path>) -> Result<RootCertStore, String> {
    certificates::authorities(file).map_err(|why| match file {
        Some(_) => format!("cacertfile {why}"),
        None => format!("{why} with cacertfile"),
    })
}

fn words(url: &Url, tls: &Tls, error: &rustls::Error) -> String {
    let place = format!("{}:{}", url.host, url.port);
    match error {
        rustls::Error::InvalidCertificate(why) => {
            format!("the certificate of {place} is not believed: {}", doubt(url, tls, why))
        }
        rustls::Error::InvalidMessage(_) => format!(
            "{place} does not answer with TLS: amqps:// is most often on port 5671, and what is on \
             5672 wants amqp://"
        ),
        rustls::Error::AlertReceived(alert) => {
            format!("{place} refuses the TLS connection ({alert:?}){}", advice(tls, *alert))
        }
        other => format!("TLS with {place} failed: {other}"),
    }
}

fn doubt(url: &Url, tls: &Tls, why: &CertificateError) -> String {
    let name = tls.server_name.as_ref().unwrap_or(&url.host);
    let believed = match &tls.authority {
        Some(file) => format!("an authority in {}", file.display()),
        None => "an authority that this system believes".into(),
    };
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "it is not signed by {believed}; give the PEM file of the one that signed it as cacertfile"
        ),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let presented = named(presented);
            format!(
                "it is for {presented}, and not for {name}; connect to a name that it is for, or say \
                 which one to expect with server_name_indication"
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("its time has passed; it must be renewed there ({why})")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("its time has not come; is a clock wrong? ({why})")
        }
        other => format!("{other}"),
    }
}

/// The names of a certificate, which come as `DnsName("a.example")`.
fn named(presented: &[String]) -> String {
    let bare = |name: &String| name.split('"').nth(1).unwrap_or(name).to_owned();
    let names: Vec<String> = presented.iter().map(bare).collect();
    if names.is_empty() { "no name".into() } else { names.join(", ") }
}

fn advice(tls: &Tls, alert: AlertDescription) -> &'static str {
    match (alert, &tls.certificate) {
        (AlertDescription::ProtocolVersion, _) => ": it is too old for TLS 1.2",
        (AlertDescription::UnrecognisedName, _) => {
            ": it does not go by that name; see server_name_indication"
        }
        (_, None) => ": it may want a certificate from its clients; see certfile and keyfile",
        (_, Some(_)) => ": it may not believe the certificate in certfile",
    }
}
