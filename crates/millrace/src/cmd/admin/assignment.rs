//! `millrace stream assignment`: who is served by which partition.

use std::fmt::Write as _;

use serde_json::Value;

use super::column::now_ms;
use super::failure::Failure;
use super::path::Path;
use super::session::{Session, say, say_json};
use crate::table::{age, shown};

pub(super) async fn run(session: &mut Session, vhost: &str, name: &str) -> Result<(), Failure> {
    let path = Path::of(&["millrace", "queues", vhost, name, "assignment"]);
    let answer = session.api.get(path, "the assignment").await?;
    match session.is_json {
        true => say_json(&answer),
        false => say(&told(&answer)),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| "-".to_owned(), shown)
}

/// Writing to a String cannot fail.
fn told(answer: &Value) -> String {
    let (name, vhost) = (text(&answer["name"]), text(&answer["vhost"]));
    let how = match answer["assignment"].as_str() {
        Some("partition") => "each partition is one consumer's at a time",
        Some("single-active") => "one consumer has all partitions",
        Some("key") => "of messages with the same key one is out at a time",
        Some(_) | None => "all consumers have all partitions",
    };
    let mut out = format!("{name} in vhost {vhost}: {how}\nconsumers\n");
    if list(&answer["consumers"]).next().is_none() {
        out.push_str("  none\n");
    }
    for consumer in list(&answer["consumers"]) {
        let partitions: Vec<String> = list(&consumer["partitions"]).map(Value::to_string).collect();
        let has = match partitions.len() {
            0 => "no partition".to_owned(),
            1 => format!("partition {}", partitions.concat()),
            _ => format!("partitions {}", partitions.join(", ")),
        };
        let held = &consumer["messages_unacknowledged"];
        let _ = writeln!(
            out,
            "  {}: {has}; {}; holds {held}",
            text(&consumer["connection"]),
            weight(&consumer["weight"])
        );
    }
    out.push_str("partitions\n");
    for partition in list(&answer["partitions"]) {
        let _ = write!(out, "  {}: ", partition["partition"]);
        if partition["leader"].is_null() {
            out.push_str("its leader did not answer\n");
            continue;
        }
        let since = partition["since"].as_u64().map(|since_ms| now_ms().saturating_sub(since_ms));
        let since = age(since.unwrap_or_default() / 1000);
        let _ = match partition["consumer"].as_str() {
            Some(consumer) => write!(out, "{} for {since}", shown(consumer)),
            None if answer["assignment"] == "partition" => write!(out, "nobody is served"),
            None => write!(out, "any consumer"),
        };
        let (ready, held) = (&partition["messages_ready"], &partition["messages_unacknowledged"]);
        let _ = writeln!(
            out,
            "; {ready} ready, {held} unacknowledged; leader {}",
            text(&partition["leader"])
        );
    }
    out.truncate(out.trim_end().len());
    out
}

fn weight(weight: &Value) -> String {
    let value = weight["value"].as_f64().unwrap_or_default();
    match weight["from"].as_str() {
        Some("said") => format!("weight {value}, as it says (x-weight)"),
        Some("measured") if value >= 10.0 => format!("can do {value:.0} messages a second"),
        Some("measured") => format!("can do {value:.2} messages a second"),
        Some(_) | None => "what it can do is not known yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_told_who_has_which_partition_and_why() {
        let consumer = |connection: &str, partitions: &[u32], weight: Value| {
            json!({
                "connection": connection,
                "partitions": partitions,
                "messages_unacknowledged": 4,
                "weight": weight,
            })
        };
        let partition = |partition: u32, leader: Value, consumer: Value| {
            json!({
                "partition": partition,
                "leader": leader,
                "consumer": consumer,
                "since": now_ms() - 61_000,
                "messages_ready": 7,
                "messages_unacknowledged": 2,
            })
        };
        let answer = json!({
            "vhost": "/",
            "name": "billing",
            "assignment": "partition",
            "consumers": [
                consumer("fast", &[0, 1, 3], json!({ "from": "measured", "value": 120.4 })),
                consumer("slow", &[2], json!({ "from": "measured", "value": 0.25 })),
                consumer("new", &[], json!({ "from": "unknown", "value": null })),
            ],
            "partitions": [
                partition(0, json!("n1"), json!("fast")),
                partition(1, json!("n2"), Value::Null),
                partition(2, Value::Null, Value::Null),
            ],
        });
        let expected = "billing in vhost /: each partition is one consumer's at a time\n\
            consumers\n  \
              fast: partitions 0, 1, 3; can do 120 messages a second; holds 4\n  \
              slow: partition 2; can do 0.25 messages a second; holds 4\n  \
              new: no partition; what it can do is not known yet; holds 4\n\
            partitions\n  \
              0: fast for 1 min 1 s; 7 ready, 2 unacknowledged; leader n1\n  \
              1: nobody is served; 7 ready, 2 unacknowledged; leader n2\n  \
              2: its leader did not answer";
        assert_eq!(told(&answer), expected);
    }
}
