//! Where in the partitions of a stream somebody would begin to read.

use cluster::shard::StreamPlace;
use machine::{GroupId, QueueId, StreamOffset};

use super::api::Api;
use super::aside::aside;
use super::asking;
use crate::neighbour::Question;
use crate::places::{Row, To, shown};
use crate::reply::{Problem, Reply};

/// Asks all nodes, each of which knows the partitions that it leads.
pub(super) async fn places(
    api: &Api,
    partitions: Vec<(GroupId, QueueId)>,
    to: StreamOffset,
) -> Result<Reply, Problem> {
    let of: Vec<(u32, u64)> = partitions.iter().map(|(group, queue)| (group.0, queue.0)).collect();
    let question = Question::Places { of: of.clone(), to: To::of(to) };
    let (own, others) =
        tokio::join!(own(api, of, To::of(to)), asking::ask_others::<Vec<Row>>(api, &question));
    let told = others.into_iter().filter_map(|(_, told)| told.ok()).flatten();
    let rows: Vec<Row> = own.into_iter().chain(told).collect();
    Ok(Reply::of(shown(partitions.iter().map(|(_, queue)| *queue), &rows)))
}

/// The first message of one partition that somebody would read. `None`: its leader does not say it.
pub(super) async fn first(
    api: &Api,
    (group, queue): (GroupId, QueueId),
    to: StreamOffset,
) -> Option<u64> {
    let (of, to) = (vec![(group.0, queue.0)], To::of(to));
    let mut rows = own(api, of.clone(), to).await;
    if rows.is_empty() {
        let told = asking::ask_others::<Vec<Row>>(api, &Question::Places { of, to }).await;
        rows.extend(told.into_iter().filter_map(|(_, told)| told.ok()).flatten());
    }
    let of_it = rows.into_iter().filter(|Row(of, _, _)| *of == queue.0);
    of_it.max_by_key(|Row(_, _, end)| *end).map(|Row(_, seq, _)| seq)
}

/// What this node leads of it.
pub(super) async fn own(api: &Api, of: Vec<(u32, u64)>, to: To) -> Vec<Row> {
    let cluster = api.0.cluster.clone();
    let wanted = of.into_iter().map(|(group, queue)| (GroupId(group), QueueId(queue), to.offset()));
    let wanted = wanted.collect();
    let found = aside(move || cluster.stream_places(wanted)).await;
    let found = found.ok().flatten().unwrap_or_default().into_iter();
    found.map(|StreamPlace { queue, seq, end }| Row(queue.0, seq, end)).collect()
}
