//! The picture of all queues: made when somebody wants it and the last is a second old, whoever asks.

use std::sync::Arc;

use cluster::Tally;
use cluster::shard::LedQueue;
use machine::{QueueId, QueueStatus};

use super::api::{Api, now_ms};
use super::asking;
use crate::limits::PICTURE_MS;
use crate::neighbour::Question;
use crate::picture::{Picture, Row};

/// How all queues stand, at most a second ago. Who asks at the same time waits for the same picture.
pub(super) async fn picture(api: &Api) -> Arc<Picture> {
    let mut last = api.0.picture.lock().await;
    let now = now_ms();
    if let Some(last) = &*last
        && now.saturating_sub(last.at_ms) < PICTURE_MS
    {
        return Arc::clone(last);
    }
    let (own, others) =
        tokio::join!(own_rows(api), asking::ask_others::<Vec<Row>>(api, &Question::Survey));
    let me = (api.0.cluster.node(), own);
    let others = others.into_iter().filter_map(|(node, told)| Some((node, told.ok()?)));
    let picture = Picture::new(now_ms(), [me].into_iter().chain(others), last.as_deref());
    let picture = Arc::new(picture);
    *last = Some(Arc::clone(&picture));
    picture
}

/// What this node leads. Nothing, if its shards do not come to it in time.
pub(super) async fn own_rows(api: &Api) -> Vec<Row> {
    let led = own(api).await.map(|(led, _)| led).unwrap_or_default();
    led.iter().map(|(queue, status)| Row::of(*queue, status)).collect()
}

/// The same, and how its groups stand. `None`: its shards do not come to it in time.
pub(super) async fn own(api: &Api) -> Option<(Vec<(QueueId, QueueStatus)>, Tally)> {
    let cluster = api.0.cluster.clone();
    let walked = tokio::task::spawn_blocking(move || {
        let mut led = Vec::new();
        let of = |led: &LedQueue| (led.queue, led.status);
        let tally = cluster.tally(|some| led.extend(some.iter().map(of)))?;
        Some((led, tally))
    });
    walked.await.ok().flatten()
}
