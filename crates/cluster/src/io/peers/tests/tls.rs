//! Certificates: of the cluster's authority, of another, none, and for another host.

use std::path::PathBuf;

use super::*;
use crate::io::peers::tls::Tls;
use crate::membership::TlsFiles;

/// The test's own: `authority` signed `node` (127.0.0.1) and `elsewhere` (10.0.0.9), another one
/// signed `stranger`. Good for a hundred years.
fn files(authority: &str, name: &str) -> TlsFiles {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/io/peers/tests/certificates");
    TlsFiles {
        authority: dir.join(format!("{authority}.crt")),
        certificate: dir.join(format!("{name}.crt")),
        key: dir.join(format!("{name}.key")),
    }
}

fn with(node: u64, authority: &str, name: &str) -> Start {
    Start { tls: Some(Tls::load(&files(authority, name)).unwrap()), ..Start::node(node) }
}

#[test]
fn nodes_with_certificates_of_their_authority_talk() {
    let (mut one, mut two) = (with(1, "ca", "node").start(), with(2, "ca", "node").start());
    introduce(&[&one, &two]);
    one.expect_up(2);
    two.expect_up(1);
    one.peers.send(NodeId(2), (0..100).map(|seq| numbered(seq, 20_000)).collect());
    let numbers: Vec<u64> = two.messages(1, 100).iter().map(number).collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    one.peers.stop();
    two.expect_down(1);
}

#[test]
fn nodes_of_another_authority_or_without_tls_are_refused() {
    for (mut one, mut two) in [
        (with(1, "ca", "node").start(), with(2, "other", "stranger").start()),
        (with(1, "ca", "node").start(), with(2, "ca", "stranger").start()),
        (with(1, "ca", "node").start(), Start::node(2).start()),
        (Start::node(1).start(), with(2, "ca", "node").start()),
        // Its address is not the one that its certificate names.
        (with(1, "ca", "elsewhere").start(), with(2, "ca", "node").start()),
    ] {
        introduce(&[&one, &two]);
        two.await_trouble(1);
        assert!(one.is_quiet() && two.is_quiet());
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let load = |files: TlsFiles| Tls::load(&files).err().unwrap();
    let missing = load(files("ca", "nobody"));
    assert!(missing.starts_with("TLS between nodes: "), "{missing}");
    assert!(missing.contains("nobody.crt cannot be used"), "{missing}");
    let key = files("ca", "stranger").key;
    let mixed = load(TlsFiles { key, ..files("ca", "node") });
    assert!(mixed.contains("do not go together"), "{mixed}");
    let not_a_key = load(TlsFiles { key: files("ca", "node").certificate, ..files("ca", "node") });
    assert!(not_a_key.contains("node.crt cannot be used"), "{not_a_key}");
}
