use super::super::error::Compared;
use super::super::samples::{Node, text};
use super::*;

const KINDS: [ExchangeKind; 9] = [
    ExchangeKind::Direct,
    ExchangeKind::Fanout,
    ExchangeKind::Topic,
    ExchangeKind::Headers,
    ExchangeKind::DelayedMessage,
    ExchangeKind::ConsistentHash,
    ExchangeKind::Random,
    ExchangeKind::ModulusHash,
    ExchangeKind::RecentHistory,
];

/// A durable exchange `x`.
fn declared(kind: ExchangeKind, arguments: &[(&str, Value)]) -> Declaration {
    let named = |(name, value): &(&str, Value)| ((*name).to_owned(), value.clone());
    Declaration {
        vhost: "/".to_owned(),
        name: "x".to_owned(),
        kind,
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: Arguments(arguments.iter().map(named).collect()),
        by: Node::owner(1),
    }
}

/// What the client is told.
fn told(node: &Node, declaration: &Declaration) -> Result<(), DeclareError> {
    declaration.judge(&node.catalog)
}

fn problem(kind: ExchangeKind, arguments: &[(&str, Value)]) -> ExchangeProblem {
    match told(&Node::new(), &declared(kind, arguments)) {
        Err(DeclareError::InvalidExchange(problem)) => problem,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

fn wrong(kind: ExchangeKind, arguments: &[(&str, Value)]) -> (String, ArgumentProblem) {
    match told(&Node::new(), &declared(kind, arguments)) {
        Err(DeclareError::InvalidArgument { kind: Kind::Exchange, argument, problem, .. }) => {
            (argument, problem)
        }
        other => panic!("{arguments:?}: {other:?}"),
    }
}

#[test]
fn exchanges_of_different_kinds_are_different_and_their_own_arguments_are_not_compared() {
    let property = |name: &str| [("hash-property", text(name))];
    let hash = ExchangeKind::ConsistentHash;
    let mut node = Node::new();
    node.apply(declared(hash, &property("message_id")).into_command(Version::SPECS));
    assert_eq!(told(&node, &declared(hash, &property("timestamp"))), Ok(()));
    assert_eq!(told(&node, &declared(hash, &property("zzz"))), Ok(()));
    for kind in KINDS.into_iter().filter(|kind| *kind != hash) {
        let refusal = told(&node, &declared(kind, &[]));
        let Err(DeclareError::Inequivalent { difference, .. }) = refusal else {
            panic!("{refusal:?}")
        };
        assert_eq!(difference.argument, "type");
    }
}

#[test]
fn an_exchange_is_compared_by_type_flags_and_alternate_in_this_order() {
    let alternate = |name: &str| [("alternate-exchange", text(name))];
    let mut node = Node::new();
    node.apply(declared(ExchangeKind::Direct, &alternate("one")).into_command(Version::SPECS));
    let differs = |declaration: &Declaration| match told(&node, declaration) {
        Err(DeclareError::Inequivalent { difference, .. }) => difference,
        other => panic!("{other:?}"),
    };
    let mut other = declared(ExchangeKind::Fanout, &alternate("two"));
    (other.durable, other.auto_delete, other.internal) = (false, true, true);
    assert_eq!(differs(&other).argument, "type");
    other.kind = ExchangeKind::Direct;
    assert_eq!(differs(&other).argument, "durable");
    other.durable = true;
    assert_eq!(differs(&other).argument, "auto_delete");
    other.auto_delete = false;
    assert_eq!(differs(&other).argument, "internal");
    other.internal = false;
    let difference = differs(&other);
    assert_eq!(difference.argument, "alternate-exchange");
    let expected = (Compared::Plain(text("two")), Compared::Plain(text("one")));
    assert_eq!((difference.received, difference.current), expected);
    other.arguments = Arguments::new();
    assert_eq!(differs(&other).received, Compared::Absent);
    other.arguments = Arguments::new().with("alternate-exchange", text("one"));
    other.arguments.0.push(("odd".to_owned(), Value::Void));
    assert_eq!(told(&node, &other), Ok(()));
}

#[test]
fn a_name_is_judged_before_the_arguments_and_what_exists_before_both() {
    let named = |name: &str| Declaration {
        name: name.to_owned(),
        ..declared(ExchangeKind::Direct, &[("alternate-exchange", Value::I8(1))])
    };
    assert_eq!(told(&Node::new(), &named("")), Err(Refusal::DefaultExchange.into()));
    let reserved = DeclareError::Reserved { kind: Kind::Exchange, name: "amq.mine".to_owned() };
    assert_eq!(told(&Node::new(), &named("amq.mine")), Err(reserved));
    let refusal = told(&Node::new(), &named("a\0b"));
    assert!(matches!(
        refusal,
        Err(DeclareError::Catalog(Refusal::InvalidName { kind: Kind::Exchange, .. }))
    ));
    let refusal = told(&Node::new(), &named("amq.direct"));
    assert!(matches!(refusal, Err(DeclareError::Inequivalent { .. })));
    let (argument, problem) =
        wrong(ExchangeKind::DelayedMessage, &[("alternate-exchange", Value::I8(1))]);
    let expected = ArgumentProblem::InvalidType { got: Value::I8(1) };
    assert_eq!((argument.as_str(), problem), ("alternate-exchange", expected));
}

#[test]
fn a_delayed_exchange_names_the_kind_inside_which_is_asked_about_its_own_arguments() {
    let of = |value| problem(ExchangeKind::DelayedMessage, &[("x-delayed-type", value)]);
    assert_eq!(problem(ExchangeKind::DelayedMessage, &[]), ExchangeProblem::NoDelayedType);
    assert_eq!(of(Value::I8(1)), ExchangeProblem::NoDelayedType);
    assert_eq!(of(text("zzz")), ExchangeProblem::UnknownType { name: "zzz".into() });
    assert_eq!(of(text("x-delayed-message")), ExchangeProblem::DelayedTwice);
    let arguments = [("x-delayed-type", text("x-consistent-hash")), ("hash-property", text("zzz"))];
    let unsupported = ExchangeProblem::UnsupportedProperty { property: "zzz".into() };
    assert_eq!(problem(ExchangeKind::DelayedMessage, &arguments), unsupported);
    let length =
        [("x-delayed-type", text("x-recent-history")), ("x-recent-history-length", Value::I32(0))];
    let invalid = ExchangeProblem::InvalidHistoryLength { got: Value::I32(0) };
    assert_eq!(problem(ExchangeKind::DelayedMessage, &length), invalid);
}

#[test]
fn a_consistent_hash_exchange_hashes_one_thing() {
    let hash = ExchangeKind::ConsistentHash;
    let property = |name| ("hash-property", text(name));
    let header = || ("hash-header", text("h"));
    let both = [header(), property("message_id")];
    assert_eq!(problem(hash, &both), ExchangeProblem::HeaderAndProperty);
    let unsupported = ExchangeProblem::UnsupportedProperty { property: "app_id".into() };
    assert_eq!(problem(hash, &[property("app_id")]), unsupported);
    for name in ["message_id", "correlation_id", "timestamp"] {
        assert_eq!(told(&Node::new(), &declared(hash, &[property(name)])), Ok(()));
    }
    for argument in ["hash-header", "hash-property"] {
        let expected = ArgumentProblem::UnacceptableType { got: Value::I8(1) };
        assert_eq!(wrong(hash, &[(argument, Value::I8(1))]), (argument.to_owned(), expected));
    }
}

#[test]
fn the_length_of_a_recent_history_is_a_signed_number_above_0() {
    let of = |value| [("x-recent-history-length", value)];
    for got in [Value::I32(0), Value::I64(-4), text("abc"), Value::Void, Value::U8(5)] {
        let expected = ExchangeProblem::InvalidHistoryLength { got: got.clone() };
        assert_eq!(problem(ExchangeKind::RecentHistory, &of(got)), expected);
    }
    let three = declared(ExchangeKind::RecentHistory, &of(Value::I16(3)));
    assert_eq!(told(&Node::new(), &three), Ok(()));
    // What another kind would make of it does not matter.
    assert_eq!(told(&Node::new(), &declared(ExchangeKind::Fanout, &of(Value::Void))), Ok(()));
}
