//! How far the replicas of all groups are.

use super::api::Api;
use super::{asking, model};
use crate::groups::{Led, led, shown};
use crate::neighbour::Question;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

/// Asks all nodes, each of which knows the groups that it leads.
pub(super) async fn groups(api: &Api, shape: &Shape) -> Result<Reply, Problem> {
    let (own, others) =
        tokio::join!(own(api), asking::ask_others::<Option<Vec<Led>>>(api, &Question::Groups));
    let others = others.into_iter().filter_map(|(node, told)| Some((node, told.ok()??)));
    let own = own.map(|told| (api.0.cluster.node(), told));
    let items = shown(&api.0.cluster.catalog(), own.into_iter().chain(others).collect());
    match Work::list(shape, items) {
        Work::Answer(reply) => Ok(reply),
        _ => Err(Problem::NotFound),
    }
}

/// Those that this node leads. `None`: its shards do not come to it in time.
pub(super) async fn own(api: &Api) -> Option<Vec<Led>> {
    let tally = model::own_groups(api).await?;
    Some(led(&tally.groups, api.0.cluster.node()))
}
