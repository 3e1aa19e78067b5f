//! The fronts of all queues, as their leaders saw them at the last look: asked for in the background, so that no list waits
//! for a node that does not answer.

use std::sync::Arc;

use super::api::{Api, now_ms};
use super::aside::aside;
use super::asking;
use crate::fronts::{Merged, Row, Told};
use crate::limits::FRONTS_WAIT;
use crate::neighbour::Question;

/// How long the oldest ready message of each queue has waited, and what lies there. What is not known soon is left out.
pub(super) async fn fronts(api: &Api) -> Arc<Merged> {
    let shelf = &api.0.fronts;
    let mut told = shelf.told.subscribe();
    let now = now_ms();
    let (is_due, known) = {
        let told = told.borrow_and_update();
        (told.is_due(now), told.known(now))
    };
    if is_due {
        shelf.wanted.notify_one();
    }
    if let Some(known) = known {
        return known;
    }
    // Nobody has asked for a while: those that ask now wait together, and not for long.
    let _ = tokio::time::timeout(FRONTS_WAIT, told.changed()).await;
    let known = told.borrow().known(now_ms());
    known.unwrap_or_default()
}

/// Asks all nodes whenever somebody wants to know and what is known is old. Never ends.
pub(super) async fn ask_always(api: &Api) {
    let shelf = &api.0.fronts;
    loop {
        shelf.wanted.notified().await;
        // Several may have wanted the same.
        if !shelf.told.borrow().is_due(now_ms()) {
            continue;
        }
        let merged = gather(api).await;
        let before = shelf.told.send_replace(Told::at(now_ms(), merged));
        // It may have 100,000 rows, which go one by one; nobody waits for that.
        drop(tokio::task::spawn_blocking(move || drop(before)));
    }
}

async fn gather(api: &Api) -> Arc<Merged> {
    let (own, others) =
        tokio::join!(own(api), asking::ask_others::<Vec<Row>>(api, &Question::Fronts));
    let told = others.into_iter().filter_map(|(_, told)| told.ok()).flatten();
    let rows: Vec<Row> = own.into_iter().chain(told).collect();
    let partitions = api.0.cluster.catalog().partitions().clone();
    let merged = aside(move || Arc::new(Merged::new(rows, &partitions))).await;
    // A node that stops knows none any more.
    merged.unwrap_or_default()
}

/// What this node leads.
pub(super) async fn own(api: &Api) -> Vec<Row> {
    api.0.seen.lock().await.fronts.rows()
}
