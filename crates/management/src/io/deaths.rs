//! Dead letters of a queue, counted by where they died and why.

use broker::dead_letter::Story;
use bytes::Bytes;
use cluster::{PeekSpec, Peeked};
use machine::{PeekFilter, Position};
use tokio::time::Instant;

use super::api::Api;
use super::peek_pages::problem;
use crate::limits::{DEATHS_SEEN_MAX, DEATHS_WAIT, PEEKED_MESSAGES_MAX};
use crate::reply::{Problem, Reply};
use crate::routes::dead_letters::Summary;
use crate::routes::peek::cursor;
use crate::work::Deaths;

pub(super) async fn deaths(api: &Api, wanted: Deaths) -> Result<Reply, Problem> {
    let Deaths { place, name } = wanted;
    let until = Instant::now() + DEATHS_WAIT;
    let mut summary = Summary::default();
    let mut next = Some(Position::FIRST);
    while let Some(from) = next
        && summary.seen() < DEATHS_SEEN_MAX
        && Instant::now() < until
    {
        let count = (DEATHS_SEEN_MAX - summary.seen()).min(PEEKED_MESSAGES_MAX) as u32;
        let (filter, contains) = (PeekFilter::Ready, Bytes::new());
        let spec = PeekSpec { from, filter, count, body_bytes_max: 0, contains };
        let looked = api.0.cluster.peek(place, spec).await;
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
