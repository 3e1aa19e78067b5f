//! What a server shows to its clients under TLS, and whom of them it believes: read from files, and read again while
//! the server runs. Connections that are open keep what they were made with.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;

use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{authorities, chain, key};

/// The files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// PEM: the server's certificate first, then those between it and its authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub clients: Clients,
}

/// What is asked of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// No certificate.
    Anybody,
    /// One that an authority of this file has signed. Who shows none is taken all the same, unless `must_show`.
    SignedBy { authority: PathBuf, must_show: bool },
}

/// What a server shows now.
#[derive(Debug)]
pub struct ServerTls {
    files: Files,
    now: RwLock<Now>,
}

/// What the files held when they were read last.
#[derive(Clone, Debug)]
struct Now {
    config: Arc<ServerConfig>,
    expires_s: i64,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// In words: which file cannot be used, or that certificate and key do not go together.
    pub fn load(files: Files) -> Result<Self, String> {
        let now = RwLock::new(read(&files)?);
        Ok(Self { files, now })
    }

    /// Reads the same files again: what they hold now counts from the next connection on.
    ///
    /// # Errors
    /// As [`ServerTls::load`]. Nothing is changed then.
    pub fn reload(&self) -> Result<(), String> {
        let now = read(&self.files)?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(())
    }

    /// For the next connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner).config)
    }

    /// When the server's certificate is good no longer, in seconds since 1970.
    pub fn expires_s(&self) -> i64 {
        self.now.read().unwrap_or_else(PoisonError::into_inner).expires_s
    }
}

fn read(files: &Files) -> Result<Now, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let wrong = |error: rustls::Error| {
        format!(
            "the certificate {} and the key {} do not go together: {error}",
            files.certificate.display(),
            files.key.display()
        )
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(wrong)?;
    let builder = match &files.clients {
        Clients::Anybody => builder.with_no_client_auth(),
        Clients::SignedBy { authority, must_show } => {
            let trusted = Arc::new(authorities(Some(authority))?);
            let verifier = WebPkiClientVerifier::builder_with_provider(trusted, provider);
            let verifier = if *must_show { verifier } else { verifier.allow_unauthenticated() };
            let verifier = verifier.build();
            let unusable = |error| crate::unusable(Path::new(authority), &error);
            builder.with_client_cert_verifier(verifier.map_err(unusable)?)
        }
    };
    let certificates = chain(&files.certificate)?;
    let expires_s = expires_s(&certificates, &files.certificate)?;
    let config = builder.with_single_cert(certificates, key(&files.key)?).map_err(wrong)?;
    Ok(Now { config: Arc::new(config), expires_s })
}

fn expires_s(chain: &[CertificateDer<'_>], file: &Path) -> Result<i64, String> {
    let own = chain.first().ok_or_else(|| crate::unusable(file, &"it holds no certificate"))?;
    let (_, parsed) =
        X509Certificate::from_der(own).map_err(|error| crate::unusable(file, &error))?;
    Ok(parsed.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str) -> Files {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let files = Files {
            certificate: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            clients: Clients::Anybody,
        };
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        files
    }

    #[test]
    fn new_files_count_when_they_are_read_again_and_wrong_ones_change_nothing() {
        let folder = std::env::temp_dir().join(format!("millrace-shown-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let shown = ServerTls::load(write(&folder, "first")).unwrap();
        let first = shown.config();
        write(&folder, "second");
        shown.reload().unwrap();
        let second = shown.config();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::write(folder.join("key.pem"), "no key").unwrap();
        let why = shown.reload().unwrap_err();
        assert!(why.contains("key.pem"), "{why}");
        assert!(Arc::ptr_eq(&second, &shown.config()));
        let other = rcgen::generate_simple_self_signed(vec!["other".to_owned()]).unwrap();
        std::fs::write(folder.join("key.pem"), other.signing_key.serialize_pem()).unwrap();
        let why = shown.reload().unwrap_err();
        assert!(why.contains("do not go together"), "{why}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
