//! Subscriptions are set to another place of their streams.

use broker::operator;
use machine::{CatalogCommand, StreamOffset};
use serde_json::Value;

use crate::asked::Asked;
use crate::node::View;
use crate::reply::{Problem, Reply};
use crate::work::Work;

/// `{"offset": "first" | "last" | "next" | 4711 | "6h"}` or `{"timestamp": seconds since 1970}`.
pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (vhost, name) = (asked.vhost().to_owned(), asked.part("queue").to_owned());
    let queue = view.catalog.queue(&vhost, &name).ok_or(Problem::NotFound)?;
    if queue.settings().subscription().is_none() {
        return Err(Problem::bad(format!("queue '{name}' is no subscription")));
    }
    let body = asked.object()?;
    let to = place_of(body.find("offset"), body.find("timestamp")).ok_or_else(|| {
        let wanted = "\"offset\" is first, last, next, a number or an age as 6h, or \"timestamp\" is seconds \
                      since 1970";
        Problem::bad(wanted)
    })?;
    let commands = vec![CatalogCommand::SeekQueue { vhost, name, to }];
    Ok(Work::Change { commands, reply: Reply::put(true) })
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
