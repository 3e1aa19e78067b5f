//! `millrace reconcile`: whether the books of queues are right, and replicas have done the same.

use std::fmt::Write as _;

use serde_json::Value;

use super::failure::Failure;
use super::login;
use super::path::Path;
use super::session::{Session, Tone, painted, say, say_json};
use crate::table::{shown, shown_or_dash};

pub(crate) const EXAMPLES: &str = "\
The books of everything, and the digests of each group's replicas:
  millrace reconcile
The books of one vhost's queues, for a user with permissions there:
  millrace reconcile -p shop
For a program:
  millrace reconcile --json | jq '.queues[] | select(.is_right | not)'
A queue's books are right if what came is what is done, purged, dropped, dead-lettered and open. Messages whose
acknowledgements the log has not heard of yet (5 ms) are open. Of a stream: what came in is what was trimmed and what is
kept. Replicas of a group are alike if their digests at the same log entry are: a digest is a checksum over everything
that the entries did. Leaders and followers compare every two seconds while there is traffic. The user needs the tag
monitoring or administrator.
Exit code 0: all is right. 1: something differs. 3: not all nodes answered. 4: login refused.";

/// What `millrace reconcile` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) login: login::Options,
    /// Show the queues of this vhost alone, and no groups
    #[arg(long, short = 'p', value_name = "NAME")]
    vhost: Option<String>,
}

pub(crate) async fn run(session: &mut Session, args: Args) -> Result<(), Failure> {
    let path = match &args.vhost {
        None => Path::of(&["millrace", "reconcile"]),
        Some(vhost) => Path::of(&["millrace", "reconcile", vhost]),
    };
    let answer = session.api.get(path, "the books").await?;
    match session.is_json {
        true => say_json(&answer)?,
        false => say(&told(&answer))?,
    }
    match answer["verdict"].as_str() {
        Some("ok") => Ok(()),
        Some("unknown") => Err(Failure::Away("not everything could be looked at".to_owned())),
        Some(_) | None => Err(Failure::Told),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => shown_or_dash(text),
        other => shown(&other.to_string()),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Writing to a String cannot fail.
fn told(answer: &Value) -> String {
    let (queues, groups) = (list(&answer["queues"]), list(&answer["groups"]));
    let mut out = verdict(answer, queues, groups);
    if !queues.is_empty() {
        out.push_str("queues\n");
    }
    for queue in queues {
        let _ = writeln!(out, "  {}", books(queue));
    }
    if let Some(count @ 1..) = answer["left_out"].as_u64() {
        let _ =
            writeln!(out, "  {count} more queues are not shown; their books are looked at, too");
    }
    if !groups.is_empty() {
        out.push_str("groups\n");
    }
    for group in groups {
        self::group(&mut out, group);
    }
    out.truncate(out.trim_end().len());
    out
}

fn verdict(answer: &Value, queues: &[Value], groups: &[Value]) -> String {
    let count = |name: &str| answer[name].as_u64().unwrap_or_default();
    let (wrong, differing) = (count("wrong_queues"), count("differing_groups"));
    let all = queues.len() as u64 + count("left_out");
    let mut out = match answer["verdict"].as_str() {
        Some("ok") => {
            let word = painted("ok", Tone::Good);
            let mut out = format!("{word}: the books of {} are right", counted(all, "queue"));
            if !groups.is_empty() {
                let is_compared = |group: &&Value| !list(&group["comparisons"]).is_empty();
                let compared = groups.iter().filter(is_compared).count();
                let all = counted(groups.len() as u64, "group");
                let _ = write!(out, ", and no replica differs ({compared} of {all} compared)");
            }
            out
        }
        Some("unknown") => {
            format!("{}: nothing differs that was told", painted("unknown", Tone::Warning))
        }
        Some(_) | None => {
            let word = painted("different", Tone::Bad);
            let wrong = match wrong {
                0 => String::new(),
                _ => format!(" the books of {} are wrong;", counted(wrong, "queue")),
            };
            let differing = match differing {
                0 => String::new(),
                _ => format!(" replicas of {} differ;", counted(differing, "group")),
            };
            format!("{word}:{wrong}{differing} see docs/operating/reconcile.md")
        }
    };
    let silent: Vec<String> = list(&answer["silent"]).iter().map(text).collect();
    if !silent.is_empty() {
        let _ = write!(out, "; {} did not answer", silent.join(", "));
    }
    if let Some(count @ 1..) = answer["missing_queues"].as_u64() {
        let _ = write!(out, "; nobody told of {}", counted(count, "queue"));
    }
    out.push('\n');
    out
}

fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// `orders of vhost /: 10 came = 7 done + 0 purged + ...`.
fn books(queue: &Value) -> String {
    let (parts, came): (&[(&str, &str)], _) = match queue["kind"].as_str() {
        Some("stream") => (&[("trimmed", "trimmed"), ("kept", "kept")], "in"),
        Some(_) | None => (
            &[
                ("done", "done"),
                ("purged", "purged"),
                ("dropped", "dropped"),
                ("dead_lettered", "dead-lettered"),
                ("passed_over", "passed over"),
                ("open", "open"),
            ],
            "came",
        ),
    };
    // Few queues have a filter.
    let is_shown = |name: &str| name != "passed_over" || queue[name].as_u64() > Some(0);
    let parts: Vec<String> = parts
        .iter()
        .filter(|(name, _)| is_shown(name))
        .map(|(name, word)| format!("{} {word}", text(&queue[*name])))
        .collect();
    let is_right = queue["is_right"] == true;
    let sign = if is_right { "=" } else { "is not" };
    let mark = if is_right { String::new() } else { format!("{}: ", painted("WRONG", Tone::Bad)) };
    let (name, vhost) = (text(&queue["name"]), text(&queue["vhost"]));
    let sum = match is_right {
        true => String::new(),
        false => format!(" = {}", text(&queue["accounted"])),
    };
    format!(
        "{mark}{name} of vhost {vhost}: {} {came} {sign} {}{sum}",
        text(&queue["came"]),
        parts.join(" + ")
    )
}

fn group(out: &mut String, group: &Value) {
    let differs = group["differs"] == true;
    let mark =
        if differs { format!("{}: ", painted("DIFFERENT", Tone::Bad)) } else { String::new() };
    let number = text(&group["group"]);
    if list(&group["comparisons"]).is_empty() {
        let why = match (number.as_str(), list(&group["replicas"]).len()) {
            ("0", _) => "the catalog, which keeps no digest",
            (_, 1) => "one replica",
            _ => "nothing compared since the start of its leader",
        };
        let _ = writeln!(out, "  group {number}: {why}");
        return;
    }
    let _ = writeln!(out, "  {mark}group {number}");
    for replica in list(&group["replicas"]) {
        let leads = if replica["leads"] == true { ", leads" } else { "" };
        let (node, digest, index) =
            (text(&replica["node"]), text(&replica["digest"]), text(&replica["index"]));
        let _ = writeln!(out, "    {node}{leads}: digest {digest} at entry {index}");
    }
    for found in list(&group["comparisons"]) {
        let names = format!("{} and {}", text(&found["node"]), text(&found["with"]));
        let (index, digest) = (text(&found["index"]), text(&found["digest"]));
        let _ = match found["differs"] == true {
            false => writeln!(out, "    {names} are alike at entry {index}: {digest}"),
            true => writeln!(
                out,
                "    {names} differ at entry {index}: {digest} and {}",
                text(&found["digest_with"])
            ),
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn replica(node: &str, leads: bool) -> Value {
        json!({ "node": node, "leads": leads, "index": 9, "digest": "00aa" })
    }

    #[test]
    fn books_that_are_right_and_replicas_that_are_alike_are_told_with_both_sides() {
        let answer = json!({
            "verdict": "ok", "wrong_queues": 0, "missing_queues": 0, "left_out": 0, "silent": [],
            "differing_groups": 0,
            "queues": [
                { "vhost": "/", "name": "orders\u{1b}[2J", "kind": "queue", "came": 10, "accounted": 10,
                  "is_right": true, "done": 6, "purged": 1, "dropped": 0, "dead_lettered": 1, "open": 2 },
                { "vhost": "/", "name": "events", "kind": "stream", "came": 10, "accounted": 10, "is_right": true,
                  "trimmed": 4, "kept": 6 },
            ],
            "groups": [
                { "group": 0, "differs": false, "replicas": [replica("millrace@1", true)], "comparisons": [] },
                { "group": 1, "differs": false,
                  "replicas": [replica("millrace@1", true), replica("millrace@2", false)],
                  "comparisons": [{ "node": "millrace@1", "with": "millrace@2", "index": 9, "digest": "00aa",
                                    "digest_with": "00aa", "differs": false }] },
            ],
        });
        let expected = "\
ok: the books of 2 queues are right, and no replica differs (1 of 2 groups compared)
queues
  orders\\u{1b}[2J of vhost /: 10 came = 6 done + 1 purged + 0 dropped + 1 dead-lettered + 2 open
  events of vhost /: 10 in = 4 trimmed + 6 kept
groups
  group 0: the catalog, which keeps no digest
  group 1
    millrace@1, leads: digest 00aa at entry 9
    millrace@2: digest 00aa at entry 9
    millrace@1 and millrace@2 are alike at entry 9: 00aa";
        assert_eq!(told(&answer), expected);
    }

    #[test]
    fn what_differs_is_in_the_first_line_and_marked() {
        let answer = json!({
            "verdict": "different", "wrong_queues": 1, "missing_queues": 0, "left_out": 3,
            "silent": ["millrace@3"], "differing_groups": 1,
            "queues": [{ "vhost": "/", "name": "orders", "kind": "queue", "came": 10, "accounted": 9,
                         "is_right": false, "done": 6, "purged": 0, "dropped": 0, "dead_lettered": 0, "open": 3 }],
            "groups": [{
                "group": 1, "differs": true,
                "replicas": [replica("millrace@1", true), replica("millrace@2", false)],
                "comparisons": [{ "node": "millrace@1", "with": "millrace@2", "index": 9, "digest": "00aa",
                                  "digest_with": "00bb", "differs": true }],
            }],
        });
        let expected = "\
different: the books of 1 queue are wrong; replicas of 1 group differ; see docs/operating/reconcile.md; millrace@3 did \
not answer
queues
  WRONG: orders of vhost /: 10 came is not 6 done + 0 purged + 0 dropped + 0 dead-lettered + 3 open = 9
  3 more queues are not shown; their books are looked at, too
groups
  DIFFERENT: group 1
    millrace@1, leads: digest 00aa at entry 9
    millrace@2: digest 00aa at entry 9
    millrace@1 and millrace@2 differ at entry 9: 00aa and 00bb";
        assert_eq!(told(&answer), expected);
    }
}
