//! Certificates and keys from PEM files, and the authorities that this machine trusts: one loader for everything that
//! connects somewhere.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The authorities to trust: those of `file`, or of this machine.
///
/// # Errors
/// In words: the file cannot be used, or the machine has no authorities.
pub fn authorities(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    if let Some(file) = file {
        for certificate in certificates(file)? {
            store.add(certificate).map_err(|error| unusable(file, &error))?;
        }
        return Ok(store);
    }
    let found = rustls_native_certs::load_native_certs();
    // A system's store may hold one that is odd: it is left out, and the others count.
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let why = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
        return Err(format!(
            "this system has no authorities to believe{why}: install its ca-certificates, or name a PEM file"
        ));
    }
    Ok(store)
}

/// The certificates of a file, at least one.
///
/// # Errors
/// In words: the file cannot be read, or holds none.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(unusable(file, &"no certificate is in it")),
        Ok(found) => Ok(found),
        Err(error) => Err(unusable(file, &error)),
    }
}

/// The private key of a file.
///
/// # Errors
/// In words: the file cannot be read, or holds none.
pub fn key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| unusable(file, &error))
}

/// Says that a file is no use, and what it should be.
pub fn unusable(file: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{} cannot be used: {why}; it must be a PEM file", file.display())
}
