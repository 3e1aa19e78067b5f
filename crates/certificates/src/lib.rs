//! Certificates and keys in PEM, and the authorities that this machine trusts: one loader for nodes among themselves,
//! for the client, the relay and the worker.
//!
//! It reads files whenever it is asked, so a renewed certificate counts from the next connection on. Only shells (`io/`)
//! call it, so this crate is all io (I1).

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "all of it is io: files, and a lock around what a server shows"
)]

mod server;
mod user;

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub use server::{Clients, Files, ServerTls};
pub use user::{AlternativeKind, NoUser, USER_BYTES_MAX, UserFrom, user_of};

/// The authorities to trust: those of `file`, or of this machine.
///
/// # Errors
/// In words: the file cannot be used, or the machine has no authorities.
pub fn authorities(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    if let Some(file) = file {
        for certificate in chain(file)? {
            store.add(certificate).map_err(|error| unusable(file, &error))?;
        }
        return Ok(store);
    }
    // A system's store may hold one that is odd: it is left out, and the others count.
    store.add_parsable_certificates(system_authorities()?);
    if store.is_empty() {
        return Err(no_authorities(""));
    }
    Ok(store)
}

/// The authorities that this machine trusts, at least one.
///
/// # Errors
/// In words: it has none.
pub fn system_authorities() -> Result<Vec<CertificateDer<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
        return Err(no_authorities(&why));
    }
    Ok(found.certs)
}

fn no_authorities(why: &str) -> String {
    format!(
        "this system has no certificate authorities that it trusts{why}: install its package ca-certificates, or name a \
         PEM file with authorities"
    )
}

/// The certificates of a file, at least one.
///
/// # Errors
/// In words: the file cannot be read, or holds none.
pub fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(unusable(file, &"it holds no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(unusable(file, &error)),
    }
}

/// The certificates of a text, at least one. None: it is no PEM, or holds none.
pub fn chain_of(text: &str) -> Option<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    found.ok().filter(|found| !found.is_empty())
}

/// The private key of a text. None: it is no PEM, or holds none.
pub fn key_of(text: &str) -> Option<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(text.as_bytes()).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["node-1".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_text_holds_certificates_and_a_key_or_says_that_it_does_not() {
        let (certificate, key) = pair();
        let both = format!("{certificate}{key}{certificate}");
        assert_eq!(chain_of(&both).map(|found| found.len()), Some(2));
        assert!(key_of(&both).is_some());
        assert_eq!(chain_of(&key), None, "a key is no certificate");
        assert!(key_of(&certificate).is_none());
        assert_eq!(chain_of("no PEM at all"), None);
    }

    #[test]
    fn a_file_that_is_no_use_is_named_with_what_it_should_be() {
        let why = chain(Path::new("nowhere/ca.pem")).unwrap_err();
        assert!(why.starts_with("nowhere/ca.pem cannot be used: "), "{why}");
        assert!(why.ends_with("; it must be a PEM file"), "{why}");
        assert!(key(Path::new("nowhere/key.pem")).is_err());
        assert!(authorities(Some(Path::new("nowhere/ca.pem"))).is_err());
    }
}
