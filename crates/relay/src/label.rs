//! What a row and a key are called among the failures: text that PostgreSQL and its indexes take, and that differs where
//! the names do.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// Bytes of a label. An entry of an index has 2,704 at most, and holds the outbox's name, too.
const BYTES_MAX: usize = 2000;
/// Bytes of a name that can still be read in the label that stands for it.
const SHOWN: usize = 64;
/// Bytes of the hash that follow them.
const HASHED: usize = 16;

/// The name itself, if it can be one; else its beginning and a hash of all of it. A label's label is itself.
pub(crate) fn label(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if name.len() <= BYTES_MAX && !text.contains('\0') => Cow::Borrowed(text),
        Ok(_) | Err(_) => Cow::Owned(made(name)),
    }
}

/// The same of a name that is a part of a row.
pub(crate) fn label_of(name: Bytes) -> Bytes {
    match label(&name) {
        Cow::Borrowed(_) => name,
        Cow::Owned(label) => label.into(),
    }
}

/// For what has no name: the same for the same bytes.
pub(crate) fn hash(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * HASHED);
    for byte in Sha256::digest(bytes).iter().take(HASHED) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn made(name: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&name[..name.len().min(SHOWN)]);
    format!("{}…{}", shown.replace(['\0', char::REPLACEMENT_CHARACTER], ""), hash(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_database_takes_is_its_own_label() {
        for name in ["", "order-7", "ü\u{fffd}", &"k".repeat(BYTES_MAX)] {
            assert_eq!(label(name.as_bytes()), name);
        }
    }

    #[test]
    fn names_that_it_does_not_take_have_labels_that_it_takes_and_that_differ() {
        let long = "k".repeat(BYTES_MAX + 1);
        let longer = format!("{long}k");
        let names = [&b"a\0b"[..], b"a\0c", b"a\xff", b"a\xfe", long.as_bytes(), longer.as_bytes()];
        let labels: std::collections::BTreeSet<String> =
            names.iter().map(|name| label(name).into_owned()).collect();
        assert_eq!(labels.len(), names.len(), "{labels:?}");
        for made in &labels {
            assert!(!made.contains('\0') && made.len() <= BYTES_MAX, "{made}");
            assert_eq!(label(made.as_bytes()), *made, "it is its own label");
        }
        assert!(label(b"a\0b").starts_with("ab…"), "its beginning can be read");
    }
}
