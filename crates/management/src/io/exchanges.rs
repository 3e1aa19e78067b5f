//! What was published to exchanges, at all nodes together.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use broker::ExchangeTotals;
use serde_json::{Map, Value};

use super::api::{Api, now_ms};
use super::asking;
use crate::neighbour::Question;
use crate::page::Shape;
use crate::rates;
use crate::reply::{Problem, Reply};
use crate::work::Work;

/// Vhost, name, messages published, and queues that they were routed to.
type Row = (String, String, u64, u64);

/// Adds what was published since the nodes started, and how fast. A node that does not answer adds nothing.
pub(super) async fn exchanges(
    api: &Api,
    mut items: Vec<Value>,
    shape: &Shape,
    is_one: bool,
) -> Result<Reply, Problem> {
    let others = asking::ask_others::<Vec<Row>>(api, &Question::Exchanges).await;
    let told = others.into_iter().filter_map(|(_, told)| told.ok()).flatten();
    let mut all = BTreeMap::<(String, String), ExchangeTotals>::new();
    for (vhost, name, published, routed) in own(api).into_iter().chain(told) {
        *all.entry((vhost, name)).or_default() += ExchangeTotals { published, routed };
    }
    {
        let now = now_ms();
        let mut known = api.0.client_rates.lock().unwrap_or_else(PoisonError::into_inner);
        for item in &mut items {
            let name = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
            let key = (name("vhost"), name("name"));
            let ExchangeTotals { published, routed } = all.get(&key).copied().unwrap_or_default();
            let [per_second, routed_per_second] = known.exchanges.of(key, now, [published, routed]);
            let mut stats = Map::new();
            rates::shown(&mut stats, "publish_in", published, per_second);
            rates::shown(&mut stats, "publish_out", routed, routed_per_second);
            item["message_stats"] = stats.into();
        }
    }
    if is_one {
        let one = items.pop().ok_or(Problem::NotFound)?;
        return Ok(Reply::of(shape.columns_of(one)));
    }
    match Work::list(shape, items) {
        Work::Answer(reply) => Ok(reply),
        _ => Err(Problem::NotFound),
    }
}

/// What was published to exchanges of this node.
pub(super) fn own(api: &Api) -> Vec<Row> {
    let catalog = api.0.cluster.catalog();
    let is_there = |vhost: &str, name: &str| catalog.exchange(vhost, name).is_some();
    let all = api.0.broker.exchange_totals(is_there).into_iter();
    all.map(|(vhost, name, it)| (vhost.to_string(), name.to_string(), it.published, it.routed))
        .collect()
}
