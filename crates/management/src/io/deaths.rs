//! Dead letters of a queue, or of all, counted by where they died and why.

use std::collections::VecDeque;

use broker::dead_letter::Story;
use bytes::Bytes;
use cluster::{NotPeeked, PeekSpec, Peeked};
use machine::{PeekFilter, Position};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::api::Api;
use super::peek_pages::problem;
use crate::limits::{
    DEATHS_AT_ONCE, DEATHS_EVERYWHERE_SEEN_MAX, DEATHS_SEEN_MAX, DEATHS_WAIT, PEEKED_MESSAGES_MAX,
};
use crate::reply::{Problem, Reply};
use crate::routes::dead_letters::{Everywhere, Summary};
use crate::routes::peek::cursor;
use crate::work::Deaths;

pub(super) async fn deaths(api: &Api, wanted: Deaths) -> Result<Reply, Problem> {
    let Deaths { place, name, vhost: _ } = wanted;
    let until = Instant::now() + DEATHS_WAIT;
    let mut summary = Summary::default();
    let mut next = Some(Position::FIRST);
    while let Some(from) = next
        && summary.seen() < DEATHS_SEEN_MAX
        && Instant::now() < until
    {
        let count = (DEATHS_SEEN_MAX - summary.seen()).min(PEEKED_MESSAGES_MAX) as u32;
        let looked = api.0.cluster.peek(place, heads(from, count)).await;
        let Peeked { messages, next: behind, .. } = match looked {
            Ok(peeked) => peeked,
            // What was counted before is told.
            Err(_) if summary.seen() > 0 => break,
            Err(why) => return Err(problem(why)),
        };
        for message in &messages {
            summary.add(&Story::of(&message.head, &name), cursor(message.is.position));
        }
        next = behind;
    }
    Ok(Reply::of(summary.shown(next.is_none())))
}

/// Looks at a page of each queue, then at the next page of those that have one, so that a full queue hides no other.
pub(super) async fn everywhere(api: &Api, queues: Vec<Deaths>, is_cut: bool) -> Reply {
    let until = Instant::now() + DEATHS_WAIT;
    let mut groups = Everywhere::default();
    let mut is_whole = !is_cut;
    let mut waiting: VecDeque<(usize, Position)> =
        (0..queues.len()).map(|index| (index, Position::FIRST)).collect();
    let mut looking = JoinSet::new();
    loop {
        while looking.len() < DEATHS_AT_ONCE
            && groups.seen() < DEATHS_EVERYWHERE_SEEN_MAX
            && Instant::now() < until
            && let Some((index, from)) = waiting.pop_front()
            && let Some(Deaths { place, .. }) = queues.get(index)
        {
            let (api, place) = (api.clone(), *place);
            let spec = heads(from, PEEKED_MESSAGES_MAX as u32);
            looking.spawn(async move { (index, api.0.cluster.peek(place, spec).await) });
        }
        let Some(looked) = looking.join_next().await else { break };
        match looked {
            Ok((index, Ok(Peeked { messages, next, .. }))) => {
                if let Some(of) = queues.get(index) {
                    for message in &messages {
                        groups.add(of, &Story::of(&message.head, &of.name), message.enqueued_ms);
                    }
                }
                waiting.extend(next.map(|next| (index, next)));
            }
            // It was deleted meanwhile.
            Ok((_, Err(NotPeeked::NoQueue))) => {}
            Ok((_, Err(_))) | Err(_) => is_whole = false,
        }
    }
    Reply::of(groups.shown(is_whole && waiting.is_empty()))
}

/// A look at so many messages without their bodies.
fn heads(from: Position, count: u32) -> PeekSpec {
    let (filter, contains) = (PeekFilter::Ready, Bytes::new());
    PeekSpec { from, filter, count, body_bytes_max: 0, contains }
}
