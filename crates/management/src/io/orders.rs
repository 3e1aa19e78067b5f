//! Orders of the cluster, as this node carries them out.

use std::sync::Arc;

use cluster::io::orders::{carry_out, foresee};
use machine::Actor;
use serde_json::json;

use super::api::Api;
use super::change::note;
use crate::audit;
use crate::reply::{Problem, Reply};
use crate::routes::orders::shown_moves;
use crate::work::Orders;

pub(super) async fn order(api: &Api, by: &Actor, wanted: Orders) -> Result<Reply, Problem> {
    // What is refused changes nothing, and is not remembered.
    let changes = foresee(&api.0.cluster, wanted.order.clone()).await.map_err(Problem::Bad)?;
    if wanted.is_dry {
        let catalog = api.0.cluster.catalog();
        return Ok(Reply::of(shown_moves(|group| catalog.voters(group).to_vec(), &changes)));
    }
    let turn = Arc::clone(&api.0.ordering).try_acquire_owned();
    let Ok(turn) = turn else {
        let why = "this node is carrying out another order: ask again when that is done";
        return Err(Problem::Unavailable(why.to_owned()));
    };
    let (api, by) = (api.clone(), by.clone());
    // Who asked may go away: what was begun goes on, and is remembered.
    let carried = tokio::spawn(async move {
        let (event, mut steps) = (audit::of_order(&wanted), Vec::new());
        let cluster = &api.0.cluster;
        let done = carry_out(cluster, wanted.order, |step| steps.push(step)).await;
        drop(turn);
        // One that fails may have done a part.
        note(&api, &by, event).await;
        done.map(|said| json!({ "said": said, "steps": steps }))
    });
    let carried = carried.await.map_err(|error| Problem::Unavailable(error.to_string()))?;
    carried.map(Reply::of).map_err(Problem::Bad)
}
