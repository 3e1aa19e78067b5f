//! A certificate authority of a trial: it makes the certificates of local servers and of their clients.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

/// The authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no name is a good name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("keys can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it can be signed");
        Self { issuer }
    }

    /// The authority's certificate, in PEM.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for a server of these names, or for a client.
    pub fn sign(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("the names are good");
        let key = KeyPair::generate().expect("keys can be made");
        let signed = params.signed_by(&key, &self.issuer).expect("it can be signed");
        Pair { certificate: signed.pem(), key: key.serialize_pem() }
    }

    /// A server of this machine that speaks these protocols; `is_client_asked`: it takes certificates of clients
    /// that this authority made.
    pub fn server(&self, protocols: &[&[u8]], is_client_asked: bool) -> Arc<rustls::ServerConfig> {
        let pair = self.sign(&["localhost", "127.0.0.1"]);
        let chain = vec![der(&pair.certificate)];
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("it was just made");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring knows the usual versions");
        let builder = if is_client_asked {
            let mut roots = RootCertStore::empty();
            roots.add(der(&self.certificate())).expect("it was just made");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .expect("there is one authority");
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder.with_single_cert(chain, key).expect("they are of one pair");
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("it was just made")
}
