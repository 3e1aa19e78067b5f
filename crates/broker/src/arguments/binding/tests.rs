use super::super::samples::{Node, text};
use super::*;

fn exchange(name: &str, kind: ExchangeKind, arguments: Arguments) -> CatalogCommand {
    CatalogCommand::DeclareExchange {
        vhost: "/".to_owned(),
        name: name.to_owned(),
        kind,
        durable: true,
        auto_delete: false,
        internal: false,
        arguments,
        by: Node::owner(1),
    }
}

fn queue(name: &str, exclusive: bool) -> CatalogCommand {
    CatalogCommand::DeclareQueue {
        vhost: "/".to_owned(),
        name: name.to_owned(),
        durable: true,
        auto_delete: false,
        exclusive,
        server_named: false,
        arguments: Arguments::new(),
        by: Node::owner(1),
    }
}

/// Exchange `x`, queue `a` of everybody, and queue `mine` of session 1.
fn node_with(kind: ExchangeKind, arguments: Arguments) -> Node {
    let mut node = Node::new();
    node.apply(exchange("x", kind, arguments));
    node.apply(queue("a", false));
    node.apply(queue("mine", true));
    node
}

fn to_queue(source: &str, queue: &str, key: &str) -> Binding {
    Binding {
        vhost: "/".to_owned(),
        source: source.to_owned(),
        destination: Destination::Queue(queue.to_owned()),
        key: key.to_owned(),
        arguments: Arguments::new(),
        by: Node::owner(1),
    }
}

/// What the client is told.
fn told(node: &Node, binding: &Binding) -> Result<(), DeclareError> {
    binding.judge(&node.catalog)
}

#[test]
fn ends_are_judged_before_the_key_source_first_and_whose_a_queue_is_after_that() {
    let node = node_with(ExchangeKind::ConsistentHash, Arguments::new());
    let is_missing = |refusal: Result<(), DeclareError>, expected: Kind, missing: &str| matches!(refusal, Err(DeclareError::Catalog(Refusal::NotFound { kind, name, .. })) if kind == expected && name == missing);
    assert!(is_missing(told(&node, &to_queue("none", "none", "zzz")), Kind::Exchange, "none"));
    assert!(is_missing(told(&node, &to_queue("x", "none", "zzz")), Kind::Queue, "none"));
    let to_exchange = |name: &str| Binding {
        destination: Destination::Exchange(name.to_owned()),
        ..to_queue("x", "", "zzz")
    };
    assert!(is_missing(told(&node, &to_exchange("none")), Kind::Exchange, "none"));
    assert_eq!(told(&node, &to_exchange("")), Err(Refusal::DefaultExchange.into()));
    assert_eq!(told(&node, &to_queue("", "none", "zzz")), Err(Refusal::DefaultExchange.into()));
    let by_another = Binding { by: Node::owner(2), ..to_queue("x", "mine", "zzz") };
    assert!(matches!(told(&node, &by_another), Err(DeclareError::Catalog(Refusal::Locked { .. }))));
    assert!(matches!(told(&node, &to_exchange("x")), Err(DeclareError::InvalidWeight { .. })));
    let long = "9".repeat(256);
    let refusal = told(&node, &to_queue("x", "mine", &long));
    assert!(matches!(
        refusal,
        Err(DeclareError::Catalog(Refusal::InvalidName { kind: Kind::Binding, .. }))
    ));
}

#[test]
fn a_binding_to_an_exchange_of_local_queues_leads_to_a_queue_and_has_no_key() {
    let mut node = Node::new();
    node.apply(CatalogCommand::RaiseVersion { to: Version::LOCAL_RANDOM });
    node.apply(exchange("x", ExchangeKind::LocalRandom, Arguments::new()));
    node.apply(queue("a", false));
    assert_eq!(told(&node, &to_queue("x", "a", "")), Ok(()));
    let with_key = DeclareError::KeyNotPermitted { key: "k".to_owned() };
    assert_eq!(told(&node, &to_queue("x", "a", "k")), Err(with_key));
    let to_exchange = Binding {
        destination: Destination::Exchange("amq.fanout".to_owned()),
        ..to_queue("x", "", "")
    };
    assert_eq!(told(&node, &to_exchange), Err(DeclareError::NoLocalQueue));
}

#[test]
fn the_key_of_a_binding_to_a_consistent_hash_exchange_is_a_weight() {
    let delayed = Arguments::new().with("x-delayed-type", text("x-consistent-hash"));
    for node in [
        node_with(ExchangeKind::ConsistentHash, Arguments::new()),
        node_with(ExchangeKind::DelayedMessage, delayed),
    ] {
        for key in ["1", "+5", "007", "99", "4294967295", "99999999999999999999"] {
            assert_eq!(told(&node, &to_queue("x", "a", key)), Ok(()));
        }
        for (key, is_number) in [
            ("0", true),
            ("00", true),
            ("-1", true),
            ("", false),
            ("+", false),
            ("1.5", false),
            (" 1", false),
            ("two", false),
        ] {
            let refusal = DeclareError::InvalidWeight { key: key.to_owned(), is_number };
            assert_eq!(told(&node, &to_queue("x", "a", key)), Err(refusal));
        }
    }
}

#[test]
fn only_four_words_say_how_headers_match_and_only_headers_exchanges_look() {
    let with_match = |value: &Value| Binding {
        arguments: Arguments::new().with("x-match", value.clone()),
        ..to_queue("x", "a", "")
    };
    let headers = node_with(ExchangeKind::Headers, Arguments::new());
    for word in ["all", "any", "all-with-x", "any-with-x"] {
        assert_eq!(told(&headers, &with_match(&text(word))), Ok(()));
    }
    let direct = node_with(ExchangeKind::Direct, Arguments::new());
    for value in [text("some"), text(""), Value::Bool(true), Value::Void] {
        let refusal = DeclareError::InvalidMatch { value: value.clone() };
        assert_eq!(told(&headers, &with_match(&value)), Err(refusal));
        assert_eq!(told(&direct, &with_match(&value)), Ok(()));
    }
}
