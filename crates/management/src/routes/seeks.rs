//! Subscriptions are set to another place of their streams.

use broker::operator;
use machine::{CatalogCommand, StreamOffset};
use serde_json::Value;

use crate::asked::Asked;
use crate::node::View;
use crate::reply::{Problem, Reply};
use crate::work::Work;

const WANTED: &str = "\"offset\" is first, last, next, a number or an age as 6h, or \"timestamp\" is seconds since 1970";

/// `{"offset": "first" | "last" | "next" | 4711 | "6h"}` or `{"timestamp": seconds since 1970}`.
pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (vhost, name) = (asked.vhost().to_owned(), asked.part("queue").to_owned());
    let queue = view.catalog.queue(&vhost, &name).ok_or(Problem::NotFound)?;
    if queue.settings().subscription().is_none() {
        return Err(Problem::bad(format!("queue '{name}' is no subscription")));
    }
    let body = asked.object()?;
    let to = place_of(body.find("offset"), body.find("timestamp"));
    let to = to.ok_or_else(|| Problem::bad(WANTED))?;
    let commands = vec![CatalogCommand::SeekQueue { vhost, name, to }];
    Ok(Work::Change { commands, reply: Reply::put(true) })
}

/// Where such a place is now: `offset` or `timestamp` in the query, of a stream or of the one that a subscription reads.
pub(super) fn get(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let queue = view.catalog.queue(asked.vhost(), asked.part("queue")).ok_or(Problem::NotFound)?;
    let stream = match queue.settings().subscription() {
        Some(subscription) => view.catalog.queue_by_id(subscription.stream),
        None => Some(queue).filter(|queue| queue.settings().is_stream()),
    };
    let stream = stream.ok_or_else(|| {
        Problem::bad(format!("queue '{}' is no stream and no subscription of one", queue.name))
    })?;
    let value = |name: &str| {
        let text = asked.word(name)?;
        let number = text.parse::<u64>().ok();
        Some(number.map_or_else(|| Value::String(text.to_owned()), Value::from))
    };
    let to = place_of(value("offset").as_ref(), value("timestamp").as_ref());
    let to = to.ok_or_else(|| Problem::bad(WANTED))?;
    let partitions = stream.partitions().map(|it| (it.group, it.queue)).collect();
    Ok(Work::Places { partitions, to })
}

fn place_of(offset: Option<&Value>, timestamp: Option<&Value>) -> Option<StreamOffset> {
    match (offset, timestamp) {
        (Some(Value::Number(number)), None) => Some(operator::stream_offset(number.as_i64()?)),
        (Some(Value::String(word)), None) => operator::stream_place(word),
        (None, Some(Value::Number(seconds))) => {
            Some(StreamOffset::Since(seconds.as_u64()?.saturating_mul(1000)))
        }
        (Some(_) | None, Some(_) | None) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_place_is_a_word_a_number_an_age_or_a_time() {
        for (offset, place) in [
            (json!("first"), StreamOffset::First),
            (json!("next"), StreamOffset::Next),
            (json!(0), StreamOffset::At(1)),
            (json!("6h"), StreamOffset::Ago(6 * 3_600_000)),
        ] {
            assert_eq!(place_of(Some(&offset), None), Some(place), "{offset}");
        }
        let time = json!(1_600_000_000);
        assert_eq!(place_of(None, Some(&time)), Some(StreamOffset::Since(1_600_000_000_000)));
        for wrong in [json!("yesterday"), json!(true), json!(1.5)] {
            assert_eq!(place_of(Some(&wrong), None), None, "{wrong}");
        }
        assert_eq!(place_of(None, None), None);
    }
}
