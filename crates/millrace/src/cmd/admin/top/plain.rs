//! One look at a broker for pipes and programs: `millrace top --once`.

use serde_json::{Map, Value, json};

use super::draw::per_second;
use super::look::Look;
use crate::cmd::admin::column::Column;
use crate::cmd::admin::problems::{Problem, Severity};
use crate::table::{self, or_dash, shown};

/// The look as plain text.
pub(super) fn text(look: &Look) -> String {
    let Look { view, totals, items, .. } = look;
    let name = |name: &Option<String>| shown(name.as_deref().unwrap_or("-"));
    let nodes = totals.nodes.map(|(up, all)| format!("{up} of {all} up"));
    let messages = format!("{} ready, {} unacked", or_dash(totals.ready), or_dash(totals.unacked));
    let rates =
        [("in", totals.publish_rate), ("out", totals.deliver_rate), ("acked", totals.ack_rate)];
    let rates = rates.map(|(word, rate)| format!("{word} {}", per_second(rate)));
    let clients = format!(
        "{} connections, {} channels, {} consumers",
        or_dash(totals.connections),
        or_dash(totals.channels),
        or_dash(totals.consumers)
    );
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = table::pairs(
        &mut out,
        &[
            ("Cluster", name(&totals.cluster)),
            ("Seen from", name(&totals.node)),
            ("Nodes", or_dash(nodes)),
            ("Messages", messages),
            ("Rates", rates.join(", ")),
            ("Queues", or_dash(totals.queues)),
            ("Clients", clients),
            ("Verdict", verdict(&totals.problems)),
        ],
    );
    out.push('\n');
    if items.is_empty() {
        out.push_str(&format!("no {}\n", view.name()));
        return out;
    }
    let columns = view.columns();
    let heads: Vec<&str> = columns.iter().map(|column| column.head).collect();
    let row = |item| columns.iter().map(|column| column.cell(item)).collect::<Vec<String>>();
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    let _ = table::grid(&mut out, &heads, &rows);
    out
}

fn word(problems: &[Problem]) -> &'static str {
    problems.iter().map(|problem| problem.severity).max().map_or("ok", Severity::word)
}

fn verdict(problems: &[Problem]) -> String {
    match problems {
        [] => word(problems).to_owned(),
        [worst] => format!("{}: {}", word(problems), worst.what),
        [worst, rest @ ..] => {
            format!("{}: {} (and {} more)", word(problems), worst.what, rest.len())
        }
    }
}

/// The look as one object. Every item has every column.
pub(super) fn json(look: &Look) -> Value {
    let Look { view, totals, items, matching, page, page_count } = look;
    let fields = |item| {
        let field = |column: &Column| (column.key.to_owned(), column.value(item));
        Value::Object(view.columns().iter().map(field).collect::<Map<String, Value>>())
    };
    let nodes = totals.nodes.map(|(up, all)| json!({ "up": up, "all": all }));
    json!({
        "cluster": totals.cluster,
        "node": totals.node,
        "version": totals.version,
        "nodes": nodes,
        "totals": {
            "messages_ready": totals.ready,
            "messages_unacknowledged": totals.unacked,
            "publish_rate": totals.publish_rate,
            "deliver_rate": totals.deliver_rate,
            "ack_rate": totals.ack_rate,
            "queues": totals.queues,
            "connections": totals.connections,
            "channels": totals.channels,
            "consumers": totals.consumers,
        },
        "verdict": word(&totals.problems),
        "problems": totals.problems.iter().map(Problem::as_json).collect::<Vec<Value>>(),
        "count": items.len(),
        "total": matching,
        "page": page,
        "page_count": page_count,
        view.name(): items.iter().map(fields).collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::look::Totals;
    use super::super::view::View;
    use super::*;
    use crate::cmd::admin::problems::problems;

    fn look() -> Look {
        let told = json!({ "problems": [{ "severity": "warning", "what": "it waits", "remedy": "wait" }] });
        let problems = problems(Some(&told));
        let totals = Totals { ready: Some(3), nodes: Some((1, 1)), problems, ..Totals::default() };
        let items = vec![json!({ "name": "a\u{1b}[2J", "messages_ready": 3 })];
        Look { view: View::Queues, totals, items, matching: 9, page: 1, page_count: 9 }
    }

    #[test]
    fn a_table_for_people_does_not_act_on_the_terminal() {
        let text = text(&look());
        for words in ["1 of 1 up", "3 ready, - unacked", "warning: it waits", "a\\u{1b}[2J"] {
            assert!(text.contains(words), "{text}");
        }
        assert!(self::text(&Look { items: Vec::new(), ..look() }).ends_with("\nno queues\n"));
    }

    #[test]
    fn one_object_for_programs_has_every_column() {
        let json = json(&look());
        assert_eq!((&json["verdict"], &json["total"]), (&json!("warning"), &json!(9)));
        assert_eq!(json["totals"]["publish_rate"], Value::Null);
        let item = json["queues"][0].as_object().unwrap();
        assert_eq!((&item["messages_ready"], &item["leader"]), (&json!(3), &Value::Null));
        assert_eq!(item.len(), View::Queues.columns().len());
    }
}
