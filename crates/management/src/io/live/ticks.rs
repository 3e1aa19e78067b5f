//! One rendering each second for all streams, while there are any.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machine::QueueId;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::api::Api;
use super::super::standing::standing;
use super::super::{asking, fronts, model, problems};
use super::shared::Tick;
use crate::limits::{LIVE_EVERY, LIVE_QUEUES_A_SECOND, LOOK_EVERY, SHOWN_QUEUES_AT_ONCE};
use crate::live::{Named, VhostEvent, event};
use crate::neighbour::{NodeStanding, Question};
use crate::picture::Picture;
use crate::problems::Gathered;
use crate::routes::{health, nodes, overview};

/// Renders each second while there are streams. Never ends.
pub(in super::super) async fn tick_always(api: &Api) {
    let live = &api.0.live;
    let mut next_picture = Instant::now();
    let mut problems = Problems::default();
    let mut names = Names::default();
    loop {
        if live.ticks.is_closed() {
            live.board().clear();
            live.ticks.send_modify(|ticks| Arc::make_mut(ticks).forget());
            live.opened.notified().await;
            next_picture = Instant::now();
            problems = Problems::default();
        }
        let began = Instant::now();
        let queues = match began >= next_picture {
            false => Vec::new(),
            true => {
                let picture = model::picture(api).await;
                // Many queues are looked at less often, so that it costs the same.
                let seconds = picture.queues.len() / LIVE_QUEUES_A_SECOND;
                next_picture = began + Duration::from_secs(seconds as u64);
                turn(api, picture, &mut names).await
            }
        };
        let (overview, nodes) = rest(api).await;
        let problems = problems.gather(api, began).await;
        let tick = Tick { queues, overview, nodes, problems };
        live.ticks.send_modify(|ticks| Arc::make_mut(ticks).push(tick));
        tokio::time::sleep_until(began + LIVE_EVERY).await;
    }
}

/// Problems, which are gathered as often as nodes look for them.
#[derive(Default)]
struct Problems(Option<(Instant, Arc<Gathered>)>);

impl Problems {
    async fn gather(&mut self, api: &Api, now: Instant) -> Arc<Gathered> {
        match &self.0 {
            Some((at, last)) if now < *at + LOOK_EVERY => return Arc::clone(last),
            Some(_) | None => {}
        }
        let gathered = Arc::new(problems::gather(api).await);
        self.0 = Some((now, Arc::clone(&gathered)));
        gathered
    }
}

/// Which version of the catalog the names were last looked up in.
#[derive(Default)]
struct Names(Option<u64>);

impl Names {
    /// Queues that have been told of and are of another kind now, or paused by somebody else: a catalog that has not
    /// changed has none.
    async fn changed(&mut self, api: &Api) -> Vec<(QueueId, Named)> {
        let version = api.0.cluster.catalog().version();
        if self.0.replace(version) == Some(version) {
            return Vec::new();
        }
        let known: Vec<(QueueId, Named)> = {
            let board = api.0.live.board();
            board.named().map(|(queue, named)| (queue, named.clone())).collect()
        };
        let mut changed = Vec::new();
        for some in known.chunks(SHOWN_QUEUES_AT_ONCE) {
            {
                let catalog = api.0.cluster.catalog();
                changed.extend(some.iter().filter_map(|(id, named)| {
                    let queue = catalog.queue_by_id(*id)?;
                    (!named.is_of(queue)).then(|| (*id, Named::of(queue)))
                }));
            }
            tokio::task::yield_now().await;
        }
        changed
    }
}

/// What has changed about queues.
async fn turn(api: &Api, picture: Arc<Picture>, names: &mut Names) -> Vec<VhostEvent> {
    let fronts = fronts::fronts(api).await;
    let (unknown, absent) = {
        let board = api.0.live.board();
        (board.unknown(&picture), board.absent(&picture))
    };
    let (mut named, mut gone) = (names.changed(api).await, Vec::new());
    // In pieces: whoever changes the catalog waits for who looks at it.
    for some in unknown.chunks(SHOWN_QUEUES_AT_ONCE) {
        {
            let catalog = api.0.cluster.catalog();
            let known = some.iter().filter_map(|id| Some((*id, catalog.queue_by_id(*id)?)));
            named.extend(known.map(|(id, queue)| (id, Named::of(queue))));
        }
        tokio::task::yield_now().await;
    }
    for some in absent.chunks(SHOWN_QUEUES_AT_ONCE) {
        {
            let catalog = api.0.cluster.catalog();
            gone.extend(some.iter().filter(|id| catalog.queue_by_id(**id).is_none()));
        }
        tokio::task::yield_now().await;
    }
    api.0.live.board().turn((picture, fronts), named, &gone)
}

/// Totals and alarms, and the nodes.
async fn rest(api: &Api) -> (Bytes, Bytes) {
    let own = standing(api);
    let (mut totals, mut shown) = (own.totals, vec![own.shown]);
    let others = asking::ask_others::<NodeStanding>(api, &Question::Standing).await;
    for (node, told) in others {
        match told {
            Ok(told) => {
                totals += told.totals;
                shown.push(told.shown);
            }
            Err(why) => shown.push(nodes::silent(node, why)),
        }
    }
    let mut overview = json!({ "object_totals": {}, "alarms": health::raised(&shown) });
    overview::add_totals(&mut overview, &totals);
    let brief: Vec<Value> = shown.iter().map(nodes::brief).collect();
    (event("overview", &overview), event("nodes", &json!({ "nodes": brief })))
}
