//! Orders of the cluster, as this node carries them out.

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
    let event = audit::of_order(&wanted);
    let cluster = api.0.cluster.clone();
    // Who asked may go away: what was begun goes on.
    let carried = tokio::spawn(async move {
        let mut steps = Vec::new();
        let done = carry_out(&cluster, wanted.order, |step| steps.push(step)).await;
        (done, steps)
    });
    let (done, steps) = carried.await.map_err(|error| Problem::Unavailable(error.to_string()))?;
    // One that fails may have done a part.
    note(api, by, event).await;
    let said = done.map_err(Problem::Bad)?;
    Ok(Reply::of(json!({ "said": said, "steps": steps })))
}
