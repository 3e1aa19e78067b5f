//! Which setting of a queue is from where: from its declaration, from a policy, from one of operators.
//!
//! What holds is asked of the queue; who has said it is found by comparing. So there is no second copy of the rules by
//! which one counts before another.

use machine::{Overflow, PolicyKind, PolicyRules, Queue, QueueSpec, Rate, Vhost};
use serde_json::{Value, json};

use crate::arguments;

/// One setting as each of those who may say it does. `null`: nothing.
struct Setting {
    name: &'static str,
    of_spec: fn(&QueueSpec) -> Value,
    of_rules: fn(&PolicyRules) -> Value,
}

/// Everything that a policy may say of a queue.
const SETTINGS: &[Setting] = &[
    Setting {
        name: "message-ttl",
        of_spec: |spec| feature(spec, |it| it.message_ttl_ms.into()),
        of_rules: |rules| rules.message_ttl_ms.into(),
    },
    Setting {
        name: "expires",
        of_spec: |spec| feature(spec, |it| it.expires_ms.into()),
        of_rules: |rules| rules.expires_ms.into(),
    },
    Setting {
        name: "max-length",
        of_spec: |spec| feature(spec, |it| it.max_length.into()),
        of_rules: |rules| rules.max_length.into(),
    },
    Setting {
        name: "max-length-bytes",
        of_spec: |spec| feature(spec, |it| it.max_length_bytes.into()),
        of_rules: |rules| rules.max_length_bytes.into(),
    },
    Setting {
        name: "overflow",
        of_spec: |spec| feature(spec, |it| overflow(it.overflow)),
        of_rules: |rules| rules.overflow.map_or(Value::Null, overflow),
    },
    Setting {
        name: "delivery-limit",
        of_spec: |spec| feature(spec, |it| it.delivery_limit.into()),
        of_rules: |rules| rules.delivery_limit.into(),
    },
    Setting {
        name: "dequeue-rate",
        of_spec: |spec| feature(spec, |it| rate(it.rates.dequeue)),
        of_rules: |rules| rate(rules.rates.dequeue),
    },
    Setting {
        name: "dequeue-burst",
        of_spec: |spec| feature(spec, |it| it.rates.dequeue_burst.into()),
        of_rules: |rules| rules.rates.dequeue_burst.into(),
    },
    Setting {
        name: "dequeue-bytes-rate",
        of_spec: |spec| feature(spec, |it| rate(it.rates.dequeue_bytes)),
        of_rules: |rules| rate(rules.rates.dequeue_bytes),
    },
    Setting {
        name: "dequeue-rate-per-key",
        of_spec: |spec| feature(spec, |it| rate(it.rates.dequeue_per_key)),
        of_rules: |rules| rate(rules.rates.dequeue_per_key),
    },
    Setting {
        name: "enqueue-rate",
        of_spec: |spec| feature(spec, |it| rate(it.rates.enqueue)),
        of_rules: |rules| rate(rules.rates.enqueue),
    },
    Setting {
        name: "dead-letter-exchange",
        of_spec: |spec| spec.dead_letter.as_ref().map(|it| it.exchange.clone()).into(),
        of_rules: |rules| rules.dead_letter_exchange.clone().into(),
    },
    Setting {
        name: "dead-letter-routing-key",
        of_spec: |spec| spec.dead_letter.as_ref().and_then(|it| it.key.clone()).into(),
        of_rules: |rules| rules.dead_letter_key.clone().into(),
    },
    Setting {
        name: "consumer-timeout",
        of_spec: |spec| spec.consumer_timeout_ms.into(),
        of_rules: |rules| rules.consumer_timeout_ms.into(),
    },
];

fn feature(spec: &QueueSpec, value: impl Fn(&machine::Features) -> Value) -> Value {
    spec.settings.features.as_deref().map_or(Value::Null, value)
}

/// As it is written.
fn rate(rate: Option<Rate>) -> Value {
    rate.map(broker::rate::shown).into()
}

/// RabbitMQ's word. To drop the head is what a queue does of which nobody says anything.
fn overflow(overflow: Overflow) -> Value {
    match overflow {
        Overflow::DropHead => Value::Null,
        Overflow::RejectPublish => "reject-publish".into(),
        Overflow::RejectPublishDlx => "reject-publish-dlx".into(),
    }
}

/// What there is to say of a queue, but for how it stands.
pub(super) fn shown(vhost: &Vhost, queue: &Queue) -> Value {
    let kinds = [PolicyKind::User, PolicyKind::Operator];
    let [user, operator] = kinds.map(|kind| vhost.policies_about(kind, queue));
    let none = PolicyRules::default();
    let rules = |of: &[&machine::Policy]| of.first().map(|policy| policy.spec.rules.clone());
    let (user_rules, operator_rules) = (rules(&user), rules(&operator));
    let settings = SETTINGS.iter().filter_map(|setting| {
        let said = [
            ("declaration", (setting.of_spec)(queue.declared())),
            ("policy", (setting.of_rules)(user_rules.as_ref().unwrap_or(&none))),
            ("operator policy", (setting.of_rules)(operator_rules.as_ref().unwrap_or(&none))),
        ];
        let holds = (setting.of_spec)(queue.spec());
        one(setting.name, &holds, &said)
    });
    json!({
        "vhost": vhost.name(),
        "name": queue.name,
        "type": queue.queue_type().name(),
        "arguments": arguments::shown(&queue.arguments),
        "settings": settings.collect::<Vec<_>>(),
        "policies": policies(&user),
        "operator_policies": policies(&operator),
    })
}

/// `None`: nobody says anything of it.
fn one(name: &str, holds: &Value, said: &[(&str, Value)]) -> Option<Value> {
    let said = || said.iter().filter(|(_, value)| !value.is_null());
    if holds.is_null() && said().next().is_none() {
        return None;
    }
    let from = said().filter(|(_, value)| value == holds).map(|(who, _)| *who);
    let overruled = said().filter(|(_, value)| value != holds);
    let overruled = overruled.map(|(who, value)| json!({ "from": who, "value": value }));
    Some(json!({
        "setting": name,
        "value": holds,
        "from": from.collect::<Vec<_>>(),
        "overruled": overruled.collect::<Vec<_>>(),
    }))
}

/// Those that match, the one that counts first.
fn policies(about: &[&machine::Policy]) -> Vec<Value> {
    let shown = about.iter().enumerate().map(|(nth, policy)| {
        json!({
            "name": policy.name,
            "pattern": policy.spec.pattern,
            "priority": policy.spec.priority,
            "apply-to": policy.spec.applies_to.name(),
            "definition": arguments::shown(&policy.spec.definition),
            "counts": nth == 0,
        })
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_says_who_has_said_what_holds_and_who_is_overruled() {
        let said = |own: Value, policy: Value, operator: Value| {
            [("declaration", own), ("policy", policy), ("operator policy", operator)]
        };
        let shown = one("max-length", &json!(5), &said(json!(9), json!(5), Value::Null)).unwrap();
        assert_eq!(shown["from"], json!(["policy"]));
        assert_eq!(shown["overruled"], json!([{ "from": "declaration", "value": 9 }]));
        let shown = one("max-length", &json!(5), &said(json!(5), json!(5), Value::Null)).unwrap();
        assert_eq!(
            (&shown["from"], &shown["overruled"]),
            (&json!(["declaration", "policy"]), &json!([]))
        );
        assert_eq!(
            one("max-length", &Value::Null, &said(Value::Null, Value::Null, Value::Null)),
            None
        );
    }
}
