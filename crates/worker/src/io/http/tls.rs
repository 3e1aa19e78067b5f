//! TLS to an endpoint: which authorities are believed, and what a refusal is told as. The certificate is always
//! verified, chain and name.

use std::path::Path;
use std::sync::Arc;

use rustls::{CertificateError, ClientConfig, RootCertStore};

use super::Identity;
use crate::error::Error;

/// The configuration of a client that believes `ca`, or the machine's authorities, and shows `identity`.
///
/// # Errors
/// A file cannot be read, or the machine has no authorities.
pub(super) fn config(
    ca: Option<&Path>,
    identity: Option<&Identity>,
    protocols: &[&[u8]],
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::setup(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(authorities(ca)?);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let wrong = |why: String| Error::setup(format!("the client certificate {why}"));
            let chain = certificates::chain(certificate).map_err(wrong)?;
            let secret =
                certificates::key(key).map_err(|why| Error::setup(format!("the key {why}")))?;
            builder
                .with_client_auth_cert(chain, secret)
                .map_err(|error| wrong(certificates::unusable(certificate, &error)))?
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

fn authorities(ca: Option<&Path>) -> Result<RootCertStore, Error> {
    match ca {
        Some(_) => certificates::authorities(ca).map_err(|why| Error::setup(format!("ca {why}"))),
        // A machine without authorities can still make plain requests: a handshake says what is missing.
        None => Ok(certificates::authorities(None).unwrap_or_else(|_| RootCertStore::empty())),
    }
}

/// Why a handshake with `place` failed.
pub(super) fn words(place: &str, error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        None => format!("{place} ended the TLS handshake: {error}"),
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!("the certificate of {place} is not accepted: {}", doubt(why))
        }
        Some(rustls::Error::InvalidMessage(_)) => format!("{place} does not answer with TLS"),
        Some(rustls::Error::AlertReceived(alert)) => {
            format!("{place} refuses the TLS connection ({alert:?})")
        }
        Some(other) => format!("TLS with {place} failed: {other}"),
    }
}

fn doubt(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it is not signed by an authority that is believed here; name its authority's PEM file with `ca`"
                .into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("it is for another name ({why})")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("it has expired ({why})")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("it is not valid yet; is a clock wrong? ({why})")
        }
        other => other.to_string(),
    }
}
