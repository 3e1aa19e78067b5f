//! What RabbitMQ leaves open or what cannot be equal, taken out of traces before they are compared.
//! Everything that is not named here is compared to the letter.
//!
//! | what | why |
//! | --- | --- |
//! | the prefix of names | each run has its own, so that programs run beside each other |
//! | order between consumers, channels and queues within one operation | independent processes of RabbitMQ tell of them; each consumer's own order is compared |
//! | delivery tags | they number what arrives on a channel over all of its consumers, in an order that is open |
//! | numbers of confirms | only the set of messages acked or nacked after an operation is promised |
//! | `time` in `x-death` | the wall clock |
//! | order of a message's headers | a table has none: RabbitMQ sorts it when it adds to it, and else does not |
//! | order of what is left in a quorum queue | RabbitMQ orders what came back by the time of its return |
//! | which right is missing | RabbitMQ 3.10 does not say whether configure, write or read was refused; 3.12 does |
//! | consumers of a quorum queue | RabbitMQ 3.10 counts whoever holds a message by `basic.get` as one |

use amqp::FieldValue;

use super::wire::Message;

/// A message without what two runs cannot have in common.
pub(super) fn message(message: &Message) -> Message {
    let mut message = message.clone();
    for (name, value) in &mut message.properties {
        if *name == "headers"
            && let FieldValue::Table(table) = value
        {
            table.0.sort_by(|(one, _), (two, _)| one.cmp(two));
            let deaths = table.0.iter_mut().filter(|(key, _)| key == "x-death");
            for (_, deaths) in deaths {
                without_time(deaths);
            }
        }
    }
    message
}

fn without_time(deaths: &mut FieldValue) {
    let FieldValue::Array(deaths) = deaths else { return };
    for death in deaths {
        let FieldValue::Table(death) = death else { continue };
        for (key, value) in &mut death.0 {
            if key == "time" && matches!(value, FieldValue::Timestamp(_)) {
                *value = FieldValue::Timestamp(0);
            }
        }
    }
}

/// What was left in a quorum queue, in an order that does not depend on what came back when.
pub(super) fn returned(messages: &mut [Message]) {
    messages.sort_by(|one, two| one.body.cmp(&two.body));
}

/// How many messages and consumers a queue has, in the words of a trace.
pub(super) fn counts(is_quorum: bool, ready: u32, consumers: u32) -> String {
    if is_quorum {
        return format!("{ready} ready");
    }
    format!("{ready} ready, {consumers} consumers")
}

/// A line of a trace without numbers that depend on the order of independent things, and without the right that was
/// missing.
pub(super) fn line(line: &str) -> String {
    for right in ["configure", "write", "read"] {
        if let Some((before, after)) = line.split_once(&format!("ACCESS_REFUSED - {right} access"))
        {
            return format!("{before}ACCESS_REFUSED - access{after}");
        }
    }
    match line.split_once("unknown delivery tag ") {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|letter: char| letter.is_ascii_digit());
            format!("{before}unknown delivery tag N{rest}")
        }
        None => line.to_owned(),
    }
}
