//! Whatever is declared: what these rules take, the catalog takes, and it means what it meant before version 8.

use machine::{Arguments, CatalogCommand, Destination, ExchangeKind, Value, Version};
use proptest::prelude::*;

use super::samples::Node;
use super::{binding, exchange, queue};

/// Names that some type of queue knows, that some kind of exchange or binding knows, and that nobody knows.
const NAMES: &[&str] = &[
    "x-queue-type",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-expires",
    "x-message-ttl",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-version",
    "x-single-active-consumer",
    "x-quorum-initial-group-size",
    "x-initial-cluster-size",
    "x-delivery-limit",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-queue-leader-locator",
    "x-queue-master-locator",
    "x-consumer-timeout",
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
    "x-message-deduplication",
    "x-cache-ttl",
    "x-cache-size",
    "alternate-exchange",
    "x-delayed-type",
    "hash-header",
    "hash-property",
    "x-recent-history-length",
    "x-match",
    "colour",
];

const WORDS: &[&str] = &[
    "classic",
    "quorum",
    "stream",
    "drop-head",
    "reject-publish",
    "reject-publish-dlx",
    "lazy",
    "default",
    "balanced",
    "client-local",
    "at-least-once",
    "all",
    "failed",
    "disabled",
    "any-with-x",
    "7D",
    "0D",
    "direct",
    "x-consistent-hash",
    "x-recent-history",
    "x-delayed-message",
    "message_id",
    "",
    "zzz",
];

const NUMBERS: &[i64] = &[-1, 0, 1, 2, 3, 255, 256, 1_000_001, 315_360_000_001];

const KINDS: &[&str] = &[
    "direct",
    "fanout",
    "topic",
    "headers",
    "x-delayed-message",
    "x-consistent-hash",
    "x-random",
    "x-modulus-hash",
    "x-recent-history",
];

const KEYS: &[&str] = &["", "0", "1", "+7", "-2", "a.b", "#"];

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => prop::sample::select(WORDS).prop_map(|word| Value::LongStr(word.into())),
        3 => prop::sample::select(NUMBERS).prop_map(Value::I64),
        1 => prop::sample::select(NUMBERS).prop_map(|number| Value::I32(number as i32)),
        1 => any::<u8>().prop_map(Value::U8),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => Just(Value::Void),
        1 => Just(Value::LongStr(vec![0xff])),
    ]
}

fn arguments() -> impl Strategy<Value = Arguments> {
    let entry = (prop::sample::select(NAMES).prop_map(str::to_owned), value());
    proptest::collection::vec(entry, 0..5).prop_map(Arguments)
}

fn queues() -> impl Strategy<Value = queue::Declaration> {
    let names = prop::sample::select(&["a", "b", "amq.gen-1", ""][..]);
    (names, any::<[bool; 4]>(), arguments(), 1u64..3).prop_map(
        |(name, [durable, auto_delete, exclusive, server_named], arguments, session)| {
            queue::Declaration {
                vhost: "/".to_owned(),
                name: name.to_owned(),
                durable,
                auto_delete,
                exclusive,
                server_named,
                arguments,
                by: Node::owner(session),
            }
        },
    )
}

fn exchanges() -> impl Strategy<Value = exchange::Declaration> {
    let names = prop::sample::select(&["x", "y", "amq.direct", "amq.mine", ""][..]);
    let kinds = prop::sample::select(KINDS);
    (names, kinds, any::<[bool; 3]>(), arguments()).prop_map(
        |(name, kind, [durable, auto_delete, internal], arguments)| exchange::Declaration {
            vhost: "/".to_owned(),
            name: name.to_owned(),
            kind: ExchangeKind::parse(kind).expect("a kind"),
            durable,
            auto_delete,
            internal,
            arguments,
            by: Node::owner(1),
        },
    )
}

fn bindings() -> impl Strategy<Value = binding::Binding> {
    let sources = prop::sample::select(&["x", "y", "amq.headers", "none", ""][..]);
    let ends = prop::sample::select(&["a", "b", "x", "none", ""][..]);
    let keys = prop::sample::select(KEYS);
    (sources, ends, any::<bool>(), keys, arguments(), 1u64..3).prop_map(
        |(source, end, is_queue, key, arguments, session)| binding::Binding {
            vhost: "/".to_owned(),
            source: source.to_owned(),
            destination: match is_queue {
                true => Destination::Queue(end.to_owned()),
                false => Destination::Exchange(end.to_owned()),
            },
            key: key.to_owned(),
            arguments,
            by: Node::owner(session),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_declared_means_in_a_spec_what_its_arguments_meant(
        queues in proptest::collection::vec(queues(), 1..12),
        exchanges in proptest::collection::vec(exchanges(), 1..12),
        bindings in proptest::collection::vec(bindings(), 1..12),
    ) {
        let (mut before, mut now) = (Node::before8(), Node::new());
        for declaration in queues {
            if declaration.judge(&now.catalog).is_ok() && !is_overflow_alone(&declaration) {
                declare(&mut before, &mut now, |agreed| declaration.clone().into_command(agreed));
            }
        }
        for declaration in exchanges {
            if declaration.judge(&now.catalog).is_ok() {
                declare(&mut before, &mut now, |agreed| declaration.clone().into_command(agreed));
            }
        }
        for binding in bindings {
            if binding.judge(&now.catalog).is_ok() {
                declare(&mut before, &mut now, |agreed| binding.clone().into_command(agreed));
            }
        }
        let raise = CatalogCommand::RaiseVersion { to: Version::SPECS };
        prop_assert_ne!(before.catalog.digest(), now.catalog.digest());
        before.apply(raise);
        // The one has counted that it was raised first, and the other last.
        prop_assert_eq!(before.catalog.digest(), now.catalog.digest());
    }
}

/// Whether it has an overflow and no length. That meant nothing before version 8; a spec keeps it, since a policy may
/// bring a length.
fn is_overflow_alone(declaration: &queue::Declaration) -> bool {
    let find = |name| declaration.arguments.find(name);
    let has_length = |name| find(name).and_then(Value::integer).is_some();
    find("x-overflow").is_some() && !has_length("x-max-length") && !has_length("x-max-length-bytes")
}

/// The same in a cluster of before version 8 and in one of today.
fn declare(before: &mut Node, now: &mut Node, command: impl Fn(Version) -> CatalogCommand) {
    before.apply(command(before.agreed()));
    now.apply(command(now.agreed()));
}
