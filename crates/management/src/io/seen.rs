//! What a node sees of itself: it looks at what it leads every ten seconds, and when somebody wants to know.

use tokio::time::MissedTickBehavior;

use super::api::{Api, now_ms};
use super::{model, sessions};
use crate::limits::{LOOK_EVERY, LOOK_MS_MIN};
use crate::metrics::Metrics;
use crate::problems::Around;

/// Looks again and again, while anybody can ask. Never ends.
pub(super) async fn look_always(api: &Api, has_neighbours: bool) {
    let mut turns = tokio::time::interval(LOOK_EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        if has_neighbours || api.is_served() {
            look(api).await;
        }
        sessions::sweep(api);
    }
}

/// Looks at what this node leads, if it has not done so just now.
pub(super) async fn look(api: &Api) {
    let mut seen = api.0.seen.lock().await;
    if now_ms().abs_diff(seen.at_ms) < LOOK_MS_MIN {
        return;
    }
    let Some((led, tally)) = model::own(api).await else { return };
    let (facts, peers) = (api.facts(), api.0.cluster.peers());
    {
        let catalog = api.0.cluster.catalog();
        let reads = api.0.cluster.speaks();
        let groups = &tally.groups;
        let around = Around { facts: &facts, catalog: &catalog, groups, peers: &peers, reads };
        let now_ms = now_ms();
        let boot = api.0.cluster.boot().unwrap_or(now_ms.saturating_sub(facts.uptime_ms));
        seen.look(now_ms, led, &around, boot);
    }
    let (metrics, history) = (&api.0.metrics, &seen.history);
    Metrics::set(&metrics.history_bytes, history.bytes() as u64);
    Metrics::set(&metrics.history_queues, history.queue_count() as u64);
    Metrics::set(&metrics.history_queues_left_out, history.left_out());
}
