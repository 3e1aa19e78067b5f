//! Purges that can be undone, as the leaders of a queue's partitions do them.

use cluster::{NotWithheld, WithheldCount, WithholdStep};
use machine::Actor;
use serde_json::json;

use super::api::Api;
use super::change::note;
use crate::audit;
use crate::reply::{Problem, Reply};
use crate::work::Withhold;

pub(super) async fn withhold(api: &Api, by: &Actor, wanted: Withhold) -> Result<Reply, Problem> {
    let told = api.0.cluster.withhold(&wanted.partitions, wanted.step).await;
    if let Some(event) = audit::of_withhold(&wanted, &told) {
        note(api, by, event).await;
    }
    let WithheldCount { count, until_ms } = told.map_err(|why| match why {
        NotWithheld::NoQueue => Problem::NotFound,
        NotWithheld::NotYet { .. } | NotWithheld::NoLeader | NotWithheld::Late => {
            Problem::Unavailable(why.to_string())
        }
    })?;
    Ok(Reply::of(match wanted.step {
        WithholdStep::Purge { .. } => json!({ "messages": count, "undo_until": until_ms }),
        WithholdStep::Undo => json!({ "messages": count }),
    }))
}
