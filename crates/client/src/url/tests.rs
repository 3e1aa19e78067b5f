//! What a URL says, and what a bad one is told.

use std::path::Path;

use super::*;

fn url(text: &str) -> Url {
    text.parse().unwrap_or_else(|bad| panic!("{text}: {bad}"))
}

#[test]
fn every_part_of_a_full_url_is_read() {
    let url = url("amqp://ann:s%40cret@example.org:5673/my%2Fhost?heartbeat=30&frame_max=8192");
    assert_eq!((url.user.as_str(), url.password.as_str()), ("ann", "s@cret"));
    assert_eq!((url.host.as_str(), url.port), ("example.org", 5673));
    assert_eq!(url.vhost, "my/host");
    assert_eq!((url.heartbeat, url.frame_max), (Some(30), Some(8192)));
}

#[test]
fn what_is_left_out_is_guest_on_the_default_port_and_virtual_host() {
    for text in ["amqp://localhost", "amqp://localhost/", "amqp://", "AMQP://:5672/%2f"] {
        let url = url(text);
        assert_eq!((url.user.as_str(), url.password.as_str()), ("guest", "guest"), "{text}");
        assert_eq!((url.host.as_str(), url.port), ("localhost", 5672), "{text}");
        assert_eq!(url.vhost, "/", "{text}");
    }
}

#[test]
fn an_ipv6_address_stands_in_brackets() {
    assert_eq!((url("amqp://[::1]:5680/x").host, url("amqp://[::1]/x").port), ("::1".into(), 5672));
    assert_eq!(url("amqp://[::1]:5680/x").to_string(), "amqp://guest@[::1]:5680/x");
}

#[test]
fn the_password_is_never_shown() {
    let shown = format!("{0} {0:?}", url("amqp://ann:hunter2@h/%2F"));
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.starts_with("amqp://ann@h:5672/%2F"), "{shown}");
}

#[test]
fn a_bad_url_is_told_without_its_password() {
    let cases = [
        "ann:hunter2@h:5672",
        "amqp://ann:hunter2/x@h/",
        "amqp://ann:hunter2?x@h/",
        "amqp://ann:hunter2@h:0/",
        "amqp://ann:hunter2@h/a/b",
        "amqp://ann:hunter2%zz@h/",
        "http://ann:hunter2@h/",
    ];
    for text in cases {
        let bad = text.parse::<Url>().expect_err(text).to_string();
        assert!(!bad.contains("hunter2"), "{text}: {bad}");
    }
}

#[test]
fn amqps_has_its_own_port_and_rabbitmqs_names_for_what_to_believe() {
    let plain = url("amqps://ann:hunter2@h");
    assert_eq!((plain.port, &plain.tls), (5671, &Some(Tls::default())));
    assert_eq!(plain.to_string(), "amqps://ann@h:5671/%2F");
    let full = url("amqps://h:5680/v?cacertfile=/etc/my%20ca.pem&certfile=c.pem&keyfile=k.pem\
                    &server_name_indication=broker.example&verify=verify_peer&heartbeat=5");
    let tls = full.tls.expect("it is amqps");
    assert_eq!(tls.authority.as_deref(), Some(Path::new("/etc/my ca.pem")));
    assert_eq!(tls.certificate.as_deref(), Some(Path::new("c.pem")));
    assert_eq!(tls.key.as_deref(), Some(Path::new("k.pem")));
    assert_eq!(tls.server_name.as_deref(), Some("broker.example"));
    assert_eq!((full.port, full.heartbeat), (5680, Some(5)));
    assert_eq!(url("amqp://h").tls, None);
}

#[test]
fn a_certificate_is_the_login_where_the_url_says_external() {
    let is_login = |text| url(text).tls.is_some_and(|tls| tls.is_login);
    assert!(is_login("amqps://h/?certfile=c.pem&keyfile=k.pem&auth_mechanism=external"));
    assert!(!is_login("amqps://h/?certfile=c.pem&keyfile=k.pem&auth_mechanism=plain"));
    assert!(!is_login("amqp://h/?auth_mechanism=PLAIN"));
}

#[test]
fn a_bad_url_says_what_is_wrong_with_it() {
    let cases = [
        ("localhost:5672", "does not begin with amqp://"),
        ("amqp://h/?cacertfile=/ca.pem", "say amqps://"),
        ("amqp://h/?auth_mechanism=external", "say amqps://"),
        ("amqps://h/?auth_mechanism=external", "name it with certfile and keyfile"),
        ("amqps://h/?auth_mechanism=amqplain", "there are plain and external"),
        ("amqps://h/?verify=verify_none", "always verified"),
        ("amqps://h/?server_name_indication=disable", "always verified"),
        ("amqps://h/?certfile=/c.pem", "go together"),
        ("amqps://h/?cacertfile=", "is empty"),
        ("http://h", "is not amqp://"),
        ("amqp://h:0", "is not a port"),
        ("amqp://h:70000", "is not a port"),
        ("amqp://h:x/", "is not a port"),
        ("amqp://[::1/", "lacks its `]`"),
        ("amqp://[::1]x/", "follows the address"),
        ("amqp://h/a/b", "bare slash"),
        ("amqp://h/%2", "two hex digits"),
        ("amqp://h/%+1", "two hex digits"),
        ("amqp://h/%FF", "not UTF-8"),
        ("amqp://h/?heartbeat=soon", "seconds"),
        ("amqp://h/?heartbeat=70000", "seconds"),
        ("amqp://h/?frame_max=4095", "at least 4096"),
        ("amqp://h/?channel_max=0", "from 1 to"),
        ("amqp://h/?prefetch=3", "is not an option"),
    ];
    for (text, part) in cases {
        let bad = text.parse::<Url>().expect_err(text).to_string();
        assert!(bad.contains(part), "{text}: {bad}");
    }
}

#[test]
fn a_name_longer_than_amqp_can_carry_is_refused() {
    let long = "v".repeat(256);
    assert!(format!("amqp://h/{long}").parse::<Url>().is_err());
    assert!(format!("amqp://h/{}", "v".repeat(5000)).parse::<Url>().is_err());
}
