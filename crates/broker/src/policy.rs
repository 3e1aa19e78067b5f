//! What a policy's definition means: RabbitMQ's words, and which values they may have.

use amqp::{FieldTable, FieldValue};
use machine::limits::TIME_MS_MAX;
use machine::{Overflow, PolicyKind, PolicyRules, Rate};

use crate::arguments::age::age_ms;
use crate::arguments::rate;

/// Words that RabbitMQ knows and that mean nothing here: every queue is on the disk, and kept by the nodes that its
/// group has.
const WITHOUT_MEANING: &[&str] = &[
    "ha-mode",
    "ha-params",
    "ha-promote-on-failure",
    "ha-promote-on-shutdown",
    "ha-sync-batch-size",
    "ha-sync-mode",
    "max-in-memory-bytes",
    "max-in-memory-length",
    "queue-leader-locator",
    "queue-master-locator",
    "queue-mode",
    "queue-version",
    "dead-letter-strategy",
    "stream-max-segment-size-bytes",
];

/// What an operator's policy may say: what it may in RabbitMQ, and rates.
const OF_OPERATORS: &[&str] = &[
    "consumer-timeout",
    "delivery-limit",
    "dequeue-burst",
    "dequeue-bytes-rate",
    "dequeue-rate",
    "enqueue-rate",
    "expires",
    "max-in-memory-bytes",
    "max-in-memory-length",
    "max-length",
    "max-length-bytes",
    "message-ttl",
    "ha-mode",
    "ha-params",
];

/// Reads a definition.
///
/// # Errors
/// In RabbitMQ's words: which setting is not known, or has a value that it may not have.
pub fn rules(definition: &FieldTable, kind: PolicyKind) -> Result<PolicyRules, String> {
    if definition.0.is_empty() {
        return Err("no policy provided".to_owned());
    }
    let mut rules = PolicyRules::default();
    for (name, value) in &definition.0 {
        if kind == PolicyKind::Operator && !OF_OPERATORS.contains(&name.as_str()) {
            return Err(unknown(name));
        }
        match name.as_str() {
            "message-ttl" => rules.message_ttl_ms = Some(time(name, value)?),
            "expires" => rules.expires_ms = Some(positive(name, time(name, value)?)?),
            "max-length" => rules.max_length = Some(number(name, value)?),
            "max-length-bytes" => rules.max_length_bytes = Some(number(name, value)?),
            "consumer-timeout" => rules.consumer_timeout_ms = Some(time(name, value)?),
            "delivery-limit" => {
                let limit = number(name, value)?;
                rules.delivery_limit = Some(u32::try_from(limit).unwrap_or(u32::MAX));
            }
            "overflow" => rules.overflow = Some(overflow(name, value)?),
            "dead-letter-exchange" => rules.dead_letter_exchange = Some(text(name, value)?),
            "dead-letter-routing-key" => rules.dead_letter_key = Some(text(name, value)?),
            "max-age" => rules.max_age_ms = Some(age(name, value)?),
            "dequeue-rate" => rules.rates.dequeue = Some(rate_of(name, value, rate::messages)?),
            "dequeue-burst" => rules.rates.dequeue_burst = Some(burst(name, value)?),
            "dequeue-bytes-rate" => {
                rules.rates.dequeue_bytes = Some(rate_of(name, value, rate::bytes)?);
            }
            "dequeue-rate-per-key" => {
                rules.rates.dequeue_per_key = Some(rate_of(name, value, rate::messages)?);
            }
            "enqueue-rate" => rules.rates.enqueue = Some(rate_of(name, value, rate::messages)?),
            "alternate-exchange" => rules.alternate = Some(text(name, value)?),
            name if WITHOUT_MEANING.contains(&name) => {}
            _ => return Err(unknown(name)),
        }
    }
    Ok(rules)
}

fn unknown(name: &str) -> String {
    format!("[<<\"{name}\">>] are not recognised policy settings")
}

fn number(name: &str, value: &FieldValue) -> Result<u64, String> {
    let number = match *value {
        FieldValue::I8(number) => Some(number.into()),
        FieldValue::U8(number) => Some(number.into()),
        FieldValue::I16(number) => Some(number.into()),
        FieldValue::U16(number) => Some(number.into()),
        FieldValue::I32(number) => Some(number.into()),
        FieldValue::U32(number) => Some(number.into()),
        FieldValue::I64(number) => Some(number),
        _ => None,
    };
    let number = number.and_then(|number| u64::try_from(number).ok());
    number
        .ok_or_else(|| format!("{name} is not a valid value: a whole number from 0 on is expected"))
}

fn time(name: &str, value: &FieldValue) -> Result<u64, String> {
    let number = number(name, value)?;
    match number <= TIME_MS_MAX {
        true => Ok(number),
        false => Err(format!("{name} is too large: at most {TIME_MS_MAX} ms are allowed")),
    }
}

fn age(name: &str, value: &FieldValue) -> Result<u64, String> {
    let text = text(name, value)?;
    age_ms(&text).ok_or_else(|| format!("<<\"{text}\">> is not a valid max age"))
}

fn rate_of(name: &str, value: &FieldValue, read: fn(&str) -> Option<Rate>) -> Result<Rate, String> {
    let text = text(name, value)?;
    read(&text).ok_or_else(|| {
        format!(
            "{name} is '{text}': a rate is expected, such as 500/s, 1000/m, 10/h or 2MiB/s (bytes)"
        )
    })
}

fn burst(name: &str, value: &FieldValue) -> Result<u64, String> {
    let count = positive(name, number(name, value)?)?;
    if rate::is_burst(count) { Ok(count) } else { Err(format!("{name} is too large")) }
}

fn positive(name: &str, number: u64) -> Result<u64, String> {
    if number > 0 { Ok(number) } else { Err(format!("{name} should be above 0")) }
}

fn text(name: &str, value: &FieldValue) -> Result<String, String> {
    match value {
        FieldValue::LongStr(bytes) => String::from_utf8(bytes.clone())
            .ok()
            .filter(|text| text.len() <= usize::from(u8::MAX))
            .ok_or_else(|| format!("{name} is not a valid name")),
        _ => Err(format!("{name} is not a valid name: a text is expected")),
    }
}

fn overflow(name: &str, value: &FieldValue) -> Result<Overflow, String> {
    match text(name, value)?.as_str() {
        "drop-head" => Ok(Overflow::DropHead),
        "reject-publish" => Ok(Overflow::RejectPublish),
        "reject-publish-dlx" => Ok(Overflow::RejectPublishDlx),
        other => Err(format!(
            "overflow is '{other}': drop-head, reject-publish or reject-publish-dlx is expected"
        )),
    }
}

#[cfg(test)]
mod tests {
    use machine::Rates;

    use super::*;

    fn definition(fields: &[(&str, FieldValue)]) -> FieldTable {
        FieldTable(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
    }

    fn text_value(text: &str) -> FieldValue {
        FieldValue::LongStr(text.as_bytes().to_vec())
    }

    #[test]
    fn a_definition_is_read_with_all_its_words() {
        let definition = definition(&[
            ("message-ttl", FieldValue::I64(1000)),
            ("max-length", FieldValue::I32(5)),
            ("overflow", text_value("reject-publish")),
            ("dead-letter-exchange", text_value("dead")),
            ("ha-mode", text_value("all")),
            ("dequeue-rate", text_value("1000/m")),
            ("dequeue-burst", FieldValue::I64(20)),
            ("dequeue-bytes-rate", text_value("2MiB/s")),
            ("enqueue-rate", text_value("10/h")),
            ("dequeue-rate-per-key", text_value("5/s")),
        ]);
        let rules = rules(&definition, PolicyKind::User).unwrap();
        assert_eq!((rules.message_ttl_ms, rules.max_length), (Some(1000), Some(5)));
        assert_eq!(rules.overflow, Some(Overflow::RejectPublish));
        assert_eq!(rules.dead_letter_exchange.as_deref(), Some("dead"));
        let rates = Rates {
            dequeue: Rate::new(1_000, 60_000),
            dequeue_burst: Some(20),
            dequeue_bytes: Rate::new(2 << 20, 1_000),
            enqueue: Rate::new(10, 3_600_000),
            dequeue_per_key: Rate::new(5, 1_000),
        };
        assert_eq!(rules.rates, rates);
    }

    #[test]
    fn what_is_unknown_or_no_value_is_refused() {
        for (name, value) in [
            ("federation-upstream-set", text_value("all")),
            ("message-ttl", FieldValue::I64(-1)),
            ("message-ttl", text_value("1000")),
            ("message-ttl", FieldValue::I64(i64::MAX)),
            ("expires", FieldValue::I64(0)),
            ("overflow", text_value("perhaps")),
            ("dequeue-rate", text_value("fast")),
            ("dequeue-rate", FieldValue::I64(500)),
            ("dequeue-burst", FieldValue::I64(0)),
            ("enqueue-rate", text_value("0/s")),
            ("dequeue-rate-per-key", text_value("5")),
            ("dead-letter-exchange", FieldValue::I64(1)),
        ] {
            let definition = definition(&[(name, value.clone())]);
            let why = rules(&definition, PolicyKind::User).unwrap_err();
            assert!(why.contains(name), "{name} {value:?}: {why}");
        }
        assert!(rules(&FieldTable::default(), PolicyKind::User).is_err());
        let definition = definition(&[("dead-letter-exchange", text_value("x"))]);
        assert!(rules(&definition, PolicyKind::Operator).is_err(), "not for operators");
    }
}
