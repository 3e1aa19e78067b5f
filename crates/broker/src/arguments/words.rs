//! What a client is told of a wrong argument, or of one that differs from what is there: RabbitMQ's words.

use amqp::ReplyCode;
use machine::limits::{FILTER_BYTES_MAX, FILTER_WORDS_MAX};
use machine::{Arguments, Kind, QueueType, Value};

use super::error::{
    ArgumentProblem, Compared, DeclareError, Difference, ExchangeProblem, Property,
};
use super::filter::FilterProblem;
use crate::errors::{Failure, kind_name, precondition, reserved};
use crate::refusals;

impl From<DeclareError> for Failure {
    fn from(error: DeclareError) -> Self {
        match error {
            DeclareError::Catalog(refusal) => refusals::failure(&refusal),
            DeclareError::Inequivalent { kind, name, vhost, difference } => {
                inequivalent(kind, &name, &vhost, &difference)
            }
            DeclareError::InvalidArgument { kind, name, vhost, argument, problem } => {
                invalid_argument(kind, &name, &vhost, &argument, &problem)
            }
            DeclareError::Reserved { kind, name } => reserved(kind, &name),
            DeclareError::ServerNamed { queue_type } => server_named(queue_type),
            DeclareError::InvalidProperty { name, vhost, property } => {
                invalid_property(&name, &vhost, property)
            }
            DeclareError::NotImplemented { argument, value } => not_implemented(argument, &value),
            DeclareError::InvalidExchange(problem) => invalid_exchange(&problem),
            DeclareError::InvalidWeight { key, is_number } => invalid_weight(&key, is_number),
            DeclareError::InvalidMatch { value } => invalid_match(&value),
            DeclareError::KeyNotPermitted { key } => {
                precondition(format!("Non empty binding key '{key}' not permitted"))
            }
            DeclareError::NoLocalQueue => precondition("Destination not found"),
        }
    }
}

/// A declaration that is not what is there.
fn inequivalent(kind: Kind, name: &str, vhost: &str, difference: &Difference) -> Failure {
    let Difference { argument, received, current } = difference;
    let mut sides = [compared(received), compared(current)];
    if kind == Kind::Exchange && argument == "type" {
        // RabbitMQ prints the type as an atom, and quotes one that has a hyphen once more.
        for side in sides.iter_mut().filter(|side| side.contains('-')) {
            *side = format!("'{side}'");
        }
    }
    let [received, current] = sides;
    precondition(format!(
        "inequivalent arg '{argument}' for {} '{name}' in vhost '{vhost}': received \
         {received} but current is {current}",
        kind_name(kind),
    ))
}

fn invalid_argument(
    kind: Kind,
    name: &str,
    vhost: &str,
    argument: &str,
    problem: &ArgumentProblem,
) -> Failure {
    let problem = match problem {
        ArgumentProblem::ExpectedInteger { got } => {
            format!("\"expected integer, got {}\"", type_name(got))
        }
        ArgumentProblem::UnacceptableType { got } => {
            format!("{{unacceptable_type,{}}}", type_name(got))
        }
        ArgumentProblem::Negative(number) => format!("{{value_negative,{number}}}"),
        ArgumentProblem::Zero => "{value_zero,0}".to_owned(),
        ArgumentProblem::TooLarge(number) => format!("{{value_too_large,{number}}}"),
        ArgumentProblem::MaxExceeded(number) => format!("{{max_value_exceeded,{number}}}"),
        ArgumentProblem::AboveMax => {
            return precondition(format!("Exceeded max value for {argument}"));
        }
        ArgumentProblem::InvalidOverflow => "invalid_overflow".to_owned(),
        ArgumentProblem::UnsupportedQueueMode(mode) => {
            format!("\"unsupported queue mode '{mode}'\"")
        }
        ArgumentProblem::UnsupportedVersion(number) => {
            format!("\"unsupported queue version '{number}'\"")
        }
        ArgumentProblem::UnsupportedQueueType(queue_type) => {
            format!("\"unsupported queue type '{queue_type}'\"")
        }
        ArgumentProblem::InvalidLocator => "invalid_queue_locator_arg".to_owned(),
        ArgumentProblem::InvalidStrategy => "invalid_dlx_strategy".to_owned(),
        ArgumentProblem::RoutingKeyWithoutExchange => "routing_key_but_no_dlx_defined".to_owned(),
        ArgumentProblem::InvalidRate(text) => {
            format!("\"expected a rate such as 500/s, 1000/m or 10/h, got '{text}'\"")
        }
        ArgumentProblem::InvalidBytesRate(text) => {
            format!("\"expected a rate such as 500kB/s or 2MiB/s, got '{text}'\"")
        }
        ArgumentProblem::InvalidMaxAge => "invalid_max_age".to_owned(),
        ArgumentProblem::NoStream => "a subscription needs the name of its stream".to_owned(),
        ArgumentProblem::InvalidStart => "invalid_stream_offset_arg".to_owned(),
        ArgumentProblem::InvalidBehind => "invalid_when_behind".to_owned(),
        ArgumentProblem::InvalidPartitionBy(text) => {
            format!("{{invalid_partition_by,<<\"{text}\">>}}")
        }
        ArgumentProblem::InvalidAssign => "invalid_assign".to_owned(),
        ArgumentProblem::InvalidOrder => "invalid_order".to_owned(),
        ArgumentProblem::KeyRateWithoutOrder => "\"a rate per key needs x-order: key\"".to_owned(),
        ArgumentProblem::OrderWithPriorities => {
            "\"a queue with x-max-priority has no order by key\"".to_owned()
        }
        ArgumentProblem::InvalidFilter(FilterProblem::Form) => {
            "\"expected topic patterns, such as orders.*.eu, or header:NAME=VALUE\"".to_owned()
        }
        ArgumentProblem::InvalidFilter(FilterProblem::TooLarge) => {
            format!("\"more than {FILTER_WORDS_MAX} patterns or {FILTER_BYTES_MAX} bytes\"")
        }
        ArgumentProblem::InvalidRetryType => "invalid_delayed_retry_type".to_owned(),
        ArgumentProblem::InvalidType { got } => {
            return precondition(format!(
                "invalid type '{}' for arg '{argument}' in {} '{name}' in vhost '{vhost}'",
                type_name(got),
                kind_name(kind)
            ));
        }
        ArgumentProblem::NotForType(queue_type) => {
            return precondition(format!(
                "invalid arg '{argument}' for {} '{name}' in vhost '{vhost}' of queue type \
                 rabbit_{}_queue",
                kind_name(kind),
                queue_type.name()
            ));
        }
    };
    precondition(format!(
        "invalid arg '{argument}' for {} '{name}' in vhost '{vhost}': {problem}",
        kind_name(kind)
    ))
}

fn server_named(queue_type: QueueType) -> Failure {
    precondition(format!(
        "Cannot declare a server-named queue for type rabbit_{}_queue",
        queue_type.name()
    ))
}

fn invalid_property(name: &str, vhost: &str, property: Property) -> Failure {
    let property = match property {
        Property::AutoDelete => "auto-delete",
        Property::Exclusive => "exclusive-owner",
        Property::NonDurable => "non-durable",
    };
    precondition(format!("invalid property '{property}' for queue '{name}' in vhost '{vhost}'"))
}

fn not_implemented(argument: &str, value: &str) -> Failure {
    let text = format!("the value '{value}' of argument '{argument}' is not implemented");
    Failure::connection(ReplyCode::NotImplemented, text)
}

fn invalid_exchange(problem: &ExchangeProblem) -> Failure {
    match problem {
        ExchangeProblem::NoDelayedType => {
            precondition("Invalid argument, 'x-delayed-type' must be an existing exchange type")
        }
        ExchangeProblem::DelayedTwice => {
            precondition("Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'")
        }
        ExchangeProblem::UnknownType { name } => Failure::connection(
            ReplyCode::CommandInvalid,
            format!("unknown exchange type '{name}'"),
        ),
        ExchangeProblem::HeaderAndProperty => {
            precondition("hash-header and hash-property are mutually exclusive")
        }
        ExchangeProblem::UnsupportedProperty { property } => {
            precondition(format!("Unsupported property: {property}"))
        }
        ExchangeProblem::InvalidHistoryLength { got } => precondition(format!(
            "Invalid argument {}, 'x-recent-history-length' must be a positive integer",
            term(got)
        )),
    }
}

/// The key of a binding to a consistent hash exchange.
fn invalid_weight(key: &str, is_number: bool) -> Failure {
    if is_number {
        return precondition("The binding key must be greater than 0");
    }
    let key = term(&Value::LongStr(key.as_bytes().to_vec()));
    precondition(format!("The binding key must be an integer: {key}"))
}

/// `x-match` of a binding to a headers exchange.
fn invalid_match(value: &Value) -> Failure {
    match value {
        Value::LongStr(_) => precondition(format!(
            "Invalid x-match field value {}; expected all, any, all-with-x, or any-with-x",
            term(value)
        )),
        other => precondition(format!(
            "Invalid x-match field type {} (value {}); expected longstr",
            type_name(other),
            term(other)
        )),
    }
}

/// As Erlang prints it.
fn term(value: &Value) -> String {
    match value {
        Value::LongStr(bytes) | Value::Bytes(bytes) if bytes.is_empty() => "<<>>".to_owned(),
        Value::LongStr(_) | Value::Bytes(_) => format!("<<\"{}\">>", text(value)),
        other => text(other),
    }
}

fn compared(side: &Compared) -> String {
    match side {
        Compared::Absent | Compared::Plain(Value::Void) => "none".to_owned(),
        Compared::Plain(value) => format!("'{}'", text(value)),
        Compared::Typed(value) => {
            format!("the value '{}' of type '{}'", text(value), type_name(value))
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::LongStr(bytes) | Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Bool(value) => value.to_string(),
        Value::F32(bits) => f32::from_bits(*bits).to_string(),
        Value::F64(bits) => f64::from_bits(*bits).to_string(),
        Value::Timestamp(seconds) => seconds.to_string(),
        Value::Decimal { scale, value } => format!("{{{scale},{value}}}"),
        Value::Void => "undefined".to_owned(),
        Value::Array(values) => {
            let typed = |value| format!("{{{},{}}}", type_name(value), term(value));
            format!("[{}]", values.iter().map(typed).collect::<Vec<_>>().join(","))
        }
        Value::Table(Arguments(entries)) => {
            let typed = |(name, value): &(String, Value)| {
                format!("{{<<\"{name}\">>,{},{}}}", type_name(value), term(value))
            };
            format!("[{}]", entries.iter().map(typed).collect::<Vec<_>>().join(","))
        }
        Value::I8(_)
        | Value::U8(_)
        | Value::I16(_)
        | Value::U16(_)
        | Value::I32(_)
        | Value::U32(_)
        | Value::I64(_) => value.integer().unwrap_or_default().to_string(),
    }
}

/// RabbitMQ's names of AMQP's types.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::I8(_) => "byte",
        Value::U8(_) => "unsignedbyte",
        Value::I16(_) => "short",
        Value::U16(_) => "unsignedshort",
        Value::I32(_) => "signedint",
        Value::U32(_) => "unsignedint",
        Value::I64(_) => "long",
        Value::F32(_) => "float",
        Value::F64(_) => "double",
        Value::Decimal { .. } => "decimal",
        Value::LongStr(_) => "longstr",
        Value::Bytes(_) => "binary",
        Value::Timestamp(_) => "timestamp",
        Value::Array(_) => "array",
        Value::Table(_) => "table",
        Value::Void => "void",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_both_values_and_their_types_where_one_is_missing() {
        let difference = Difference {
            argument: "x-message-ttl".into(),
            received: Compared::Typed(Value::I32(1000)),
            current: Compared::Absent,
        };
        assert_eq!(
            inequivalent(Kind::Queue, "q", "/", &difference).error.text,
            "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received the value '1000' \
             of type 'signedint' but current is none"
        );
    }

    #[test]
    fn exchanges_and_bindings_are_refused_in_the_words_of_rabbitmqs_plugins() {
        let exchange = |problem| invalid_exchange(&problem).error.text;
        let got = Value::LongStr(b"abc".to_vec());
        assert_eq!(
            exchange(ExchangeProblem::InvalidHistoryLength { got }),
            "Invalid argument <<\"abc\">>, 'x-recent-history-length' must be a positive integer"
        );
        assert_eq!(
            exchange(ExchangeProblem::InvalidHistoryLength { got: Value::I32(-4) }),
            "Invalid argument -4, 'x-recent-history-length' must be a positive integer"
        );
        assert_eq!(
            exchange(ExchangeProblem::UnsupportedProperty { property: "nope".into() }),
            "Unsupported property: nope"
        );
        let weight = |key: &str, is_number| invalid_weight(key, is_number).error.text;
        assert_eq!(weight("0", true), "The binding key must be greater than 0");
        assert_eq!(weight("abc", false), "The binding key must be an integer: <<\"abc\">>");
        assert_eq!(weight("", false), "The binding key must be an integer: <<>>");
        let array = Value::Array(vec![Value::LongStr(b"a".to_vec()), Value::Bool(true)]);
        assert_eq!(super::text(&array), "[{longstr,<<\"a\">>},{bool,true}]");
        let table = Value::Table(Arguments::new().with("k", Value::I64(1)));
        assert_eq!(super::text(&table), "[{<<\"k\">>,long,1}]");
        let wrong_match = |value| invalid_match(&value).error.text;
        assert_eq!(
            wrong_match(Value::LongStr(b"some".to_vec())),
            "Invalid x-match field value <<\"some\">>; expected all, any, all-with-x, or any-with-x"
        );
        assert_eq!(
            wrong_match(Value::I64(1)),
            "Invalid x-match field type long (value 1); expected longstr"
        );
    }

    #[test]
    fn the_type_of_an_exchange_is_quoted_twice_where_it_has_a_hyphen() {
        let kind = |name: &str| Compared::Plain(Value::LongStr(name.as_bytes().to_vec()));
        let difference = Difference {
            argument: "type".into(),
            received: kind("x-random"),
            current: kind("direct"),
        };
        assert_eq!(
            inequivalent(Kind::Exchange, "x", "/", &difference).error.text,
            "inequivalent arg 'type' for exchange 'x' in vhost '/': received ''x-random'' but \
             current is 'direct'"
        );
    }

    #[test]
    fn a_bad_argument_is_named_with_what_is_bad_about_it() {
        let text = |problem| invalid_argument(Kind::Queue, "q", "/", "x-a", &problem).error.text;
        assert_eq!(
            text(ArgumentProblem::Negative(-1)),
            "invalid arg 'x-a' for queue 'q' in vhost '/': {value_negative,-1}"
        );
        assert_eq!(
            text(ArgumentProblem::ExpectedInteger { got: Value::LongStr(b"x".to_vec()) }),
            "invalid arg 'x-a' for queue 'q' in vhost '/': \"expected integer, got longstr\""
        );
        assert_eq!(
            text(ArgumentProblem::NotForType(QueueType::Quorum)),
            "invalid arg 'x-a' for queue 'q' in vhost '/' of queue type rabbit_quorum_queue"
        );
        assert_eq!(
            text(ArgumentProblem::InvalidType { got: Value::I64(1) }),
            "invalid type 'long' for arg 'x-a' in queue 'q' in vhost '/'"
        );
        assert_eq!(
            text(ArgumentProblem::UnsupportedQueueMode("zzz".into())),
            "invalid arg 'x-a' for queue 'q' in vhost '/': \"unsupported queue mode 'zzz'\""
        );
        assert_eq!(
            text(ArgumentProblem::UnsupportedVersion(3)),
            "invalid arg 'x-a' for queue 'q' in vhost '/': \"unsupported queue version '3'\""
        );
    }
}
