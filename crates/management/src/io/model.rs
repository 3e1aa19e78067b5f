//! The picture of all queues: made when somebody wants it and the last is a second old, whoever asks.

use std::sync::Arc;

use cluster::Tally;
use cluster::shard::LedQueue;
use machine::{Balance, Front, QueueId, QueueStatus};

use super::api::{Api, now_ms};
use super::aside::aside;
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
    let rows: Vec<_> = [me].into_iter().chain(others).collect();
    let (before, now) = (last.clone(), now_ms());
    let partitions = api.0.cluster.catalog().partitions().clone();
    let made = aside(move || Arc::new(Picture::new(now, rows, &partitions, before.as_deref())));
    let made = made.await;
    // A node that stops has none any more.
    let picture = made.unwrap_or_default();
    let old = last.replace(Arc::clone(&picture));
    // It may have 100,000 rows, which go one by one; nobody waits for that.
    drop(tokio::task::spawn_blocking(move || drop(old)));
    picture
}

/// What this node leads. Nothing, if its shards do not come to it in time.
pub(super) async fn own_rows(api: &Api) -> Vec<Row> {
    let own = own_as(api, |led| Row::of(led.queue, &led.status)).await;
    own.map(|(rows, _)| rows).unwrap_or_default()
}

/// The same as its shards say it, with the fronts of the queues, and how its groups stand. `None`: its shards do not come
/// to it in time.
pub(super) async fn own(api: &Api) -> Option<(Vec<(QueueId, QueueStatus, Front)>, Tally)> {
    own_as(api, |led| (led.queue, led.status, led.front)).await
}

/// The books of what this node leads, and how its groups stand. `None`: its shards do not come to it in time.
pub(super) async fn own_books(api: &Api) -> Option<(Vec<(QueueId, Balance)>, Tally)> {
    own_as(api, |led| (led.queue, led.balance)).await
}

/// How the groups of this node stand. `None`: its shards do not come to it in time.
pub(super) async fn own_groups(api: &Api) -> Option<Tally> {
    own_as(api, |_| ()).await.map(|(_, tally)| tally)
}

async fn own_as<T: Send + 'static>(api: &Api, of: fn(&LedQueue) -> T) -> Option<(Vec<T>, Tally)> {
    let cluster = api.0.cluster.clone();
    let walked = aside(move || {
        let mut led = Vec::new();
        let tally = cluster.tally(|some| led.extend(some.iter().map(of)))?;
        Some((led, tally))
    });
    walked.await.ok().flatten()
}
