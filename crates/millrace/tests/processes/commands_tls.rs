//! `publish`, `consume` and `bench` under TLS: what they need, and what they say of a server that they do not believe.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::client_tls::{Authority, Sealed};
use crate::node::until;

/// Runs a command to its end: exit code, standard output, standard error.
fn run(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that is refused may end before it has read anything.
    let _ = process.stdin.take().unwrap().write_all(input.as_bytes());
    let ended = process.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

/// What each of the commands says when it is refused.
fn refusals(url: &str) -> Vec<String> {
    let url = url.replace("guest:guest", "guest:hunter2");
    let commands: [&[&str]; 3] = [
        &["publish", "--queue", "q", "--body", "x"],
        &["consume", "--queue", "q", "--count", "1"],
        &["bench", "--count", "1", "--quiet"],
    ];
    let refused = |words: &&[&str]| {
        let (code, _, told) = run(&[*words, &["--url", url.as_str()]].concat(), "");
        assert_eq!(code, Some(1), "{words:?}: {told}");
        assert!(!told.contains("hunter2"), "the password is told: {told}");
        told
    };
    commands.iter().map(refused).collect()
}

fn url(host: &str, port: u16, query: &str) -> String {
    format!("amqps://guest:guest@{host}:{port}/?{query}")
}

#[test]
fn messages_and_measurements_go_over_tls_with_a_private_authority() {
    let authority = Authority::new("commands");
    let sealed = Sealed::start("tls-commands", &authority, &[]);
    let ca = format!("cacertfile={}", authority.file("ca.pem"));
    let url = url("localhost", sealed.port, &ca);
    let long = "x".repeat(300_000);
    let lines: String = (0..2_000).map(|number| format!("{number}\n")).collect();
    let lines = format!("{lines}{long}\n");
    let (code, _, told) = run(&["publish", "--url", &url, "--queue", "q"], &lines);
    assert_eq!(code, Some(0), "{told}");
    let (code, got, told) = run(&["consume", "--url", &url, "--queue", "q", "--count", "2001"], "");
    assert_eq!(code, Some(0), "{told}");
    assert!(got == lines, "as they went, in their order");
    // Small messages in large batches, large ones in many records, and the schedule of an open loop.
    let loads: [&[&str]; 3] = [
        &["--size", "20", "--count", "50000"],
        &["--size", "200000", "--count", "200", "--window", "20"],
        &["--size", "100", "--rate", "2000", "--duration", "500ms", "--warmup", "0s"],
    ];
    for load in loads {
        let words = [&["bench", "--url", &url, "--json", "--quiet", "--delete"][..], load].concat();
        let (code, report, told) = run(&words, "");
        assert_eq!(code, Some(0), "{load:?}: {told}");
        assert!(report.contains("amqps://guest@localhost"), "{report}");
    }
}

#[test]
fn a_server_that_is_not_believed_is_told_in_plain_words() {
    let authority = Authority::new("commands-wrong");
    let sealed = Sealed::start("tls-commands-wrong", &authority, &[]);
    let ca = format!("cacertfile={}", authority.file("ca.pem"));
    let other = Authority::new("commands-other").file("ca.pem");
    let others = Authority::new("commands-others");
    let wrong = format!("cacertfile={}", others.file("ca.pem"));
    for told in refusals(&url("localhost", sealed.port, &wrong)) {
        let wanted = format!("it is not signed by an authority in {}", others.file("ca.pem"));
        assert!(told.contains(&wanted) && told.contains("cacertfile"), "{told}");
    }
    for told in refusals(&url("127.0.0.1", sealed.port, &ca)) {
        assert!(told.contains("it is for localhost, and not for 127.0.0.1"), "{told}");
        assert!(told.contains("server_name_indication"), "{told}");
    }
    let named = format!("{ca}&server_name_indication=localhost");
    let good = url("127.0.0.1", sealed.port, &named);
    let (code, _, told) = run(&["publish", "--url", &good, "--queue", "q", "--body", "x"], "");
    assert_eq!(code, Some(0), "the name is said, and the certificate has it: {told}");
    // This authority is gone with its folder.
    for told in refusals(&url("localhost", sealed.port, &format!("cacertfile={other}"))) {
        assert!(told.contains(&format!("cacertfile {other} cannot be used")), "{told}");
    }
    let plain = sealed.node.url.port;
    for told in refusals(&url("localhost", plain, &ca)) {
        assert!(told.contains("does not answer with TLS"), "{told}");
    }
    authority.sign_until("localhost", &authority.folder, 2001);
    sealed.hang_up();
    let right = url("localhost", sealed.port, &ca);
    let publish = ["publish", "--url", &right, "--queue", "q", "--body", "x"];
    until("the certificate of before is shown no longer", || run(&publish, "").0 != Some(0));
    for told in refusals(&right) {
        assert!(told.contains("its time has passed; it must be renewed there"), "{told}");
    }
}

#[test]
fn a_certificate_that_the_server_asks_for_is_shown_and_one_that_is_missing_is_told() {
    let authority = Authority::new("commands-clients");
    let ca = authority.file("ca.pem");
    let more = ["--tls-cacertfile", &ca, "--set", "tls_client_certificates=required"];
    let sealed = Sealed::start("tls-commands-clients", &authority, &more);
    authority.sign("ann", &authority.folder);
    let (certificate, key) = (authority.file("ann.pem"), authority.file("ann.key"));
    for told in refusals(&url("localhost", sealed.port, &format!("cacertfile={ca}"))) {
        assert!(told.contains("certfile and keyfile"), "{told}");
    }
    let query = format!("cacertfile={ca}&certfile={certificate}&keyfile={key}");
    let url = url("localhost", sealed.port, &query);
    let (code, _, told) = run(&["publish", "--url", &url, "--queue", "q", "--body", "x"], "");
    assert_eq!(code, Some(0), "{told}");
    let (code, got, told) = run(&["consume", "--url", &url, "--queue", "q", "--count", "1"], "");
    assert_eq!((code, got.as_str()), (Some(0), "x\n"), "{told}");
    let words = ["bench", "--url", &url, "--count", "1000", "--json", "--quiet", "--delete"];
    let (code, _, told) = run(&words, "");
    assert_eq!(code, Some(0), "{told}");
}
