//! Messages as their queue's leader shows them, and who holds them.

use std::collections::{BTreeMap, BTreeSet};

use broker::ConnectionId;
use machine::{ConsumerId, MessageState, Position, QueueId};
use serde_json::{Value, json};

use super::api::Api;
use super::peek_pages::{Page, page};
use super::{asking, connections};
use crate::limits::HOLDERS_MAX;
use crate::neighbour::{HeldMessage, Holder, Holding, Question};
use crate::node::name_of;
use crate::reply::{Problem, Reply};
use crate::routes::peek::{cursor, shown};
use crate::work::Peek;

pub(super) async fn peek(api: &Api, wanted: Peek) -> Result<Reply, Problem> {
    let Page { messages, next, time_is_exact } = page(api, &wanted).await?;
    let Peek { queue, is_base64, .. } = wanted;
    let level = |at: Position| queue.1.level(at.priority);
    let held = messages.iter().filter_map(|message| match message.is.state {
        MessageState::Held { by } => {
            Some((by, level(message.is.position), message.is.position.seq))
        }
        MessageState::Ready | MessageState::Delayed { .. } | MessageState::Dead { .. } => None,
    });
    let holders = holders(api, held.collect()).await;
    let items = messages.iter().map(|message| {
        let mut item = shown(message, is_base64);
        if let MessageState::Held { by } = message.is.state {
            let at = message.is.position;
            item.insert("holder".to_owned(), holder(by, (level(at), at.seq), &holders));
        }
        Value::Object(item)
    });
    let items: Vec<Value> = items.collect();
    let mut body = json!({ "items": items, "next": next.map(cursor) });
    if let (Some(is_exact), Value::Object(fields)) = (time_is_exact, &mut body) {
        fields.insert("time_is_exact".to_owned(), is_exact.into());
    }
    Ok(Reply::of(body))
}

fn holding(by: ConsumerId) -> Option<Holding> {
    let connection = ConnectionId::of(by.session)?.to_string();
    Some(Holding { connection, number: by.number })
}

/// Who the first of those are that hold messages, as far as their nodes say, and since when they hold these.
async fn holders(api: &Api, held: Vec<(ConsumerId, QueueId, u64)>) -> BTreeMap<Holding, Holder> {
    let all: BTreeSet<ConsumerId> = held.iter().map(|(by, _, _)| *by).collect();
    let of: Vec<Holding> = all.into_iter().filter_map(holding).take(HOLDERS_MAX).collect();
    let messages = held.into_iter().filter_map(|(by, queue, seq)| {
        let by = holding(by).filter(|by| of.contains(by))?;
        Some(HeldMessage { by, queue: queue.0, seq })
    });
    let messages: Vec<HeldMessage> = messages.collect();
    let mut found = connections::holders(api, &api.facts(), &of, &messages).await;
    if found.len() < of.len() {
        let question = Question::Holders { of, messages };
        let others = asking::ask_others::<Vec<Holder>>(api, &question).await;
        found.extend(others.into_iter().filter_map(|(_, told)| told.ok()).flatten());
    }
    found.into_iter().map(|holder| (holder.of.clone(), holder)).collect()
}

/// Who holds a message, and since when.
fn holder(by: ConsumerId, message: (QueueId, u64), known: &BTreeMap<Holding, Holder>) -> Value {
    let Some(holding) = holding(by) else { return Value::Null };
    let node = ConnectionId::of(by.session).map(|it| name_of(it.node));
    let mut shown = json!({ "connection": holding.connection, "node": node });
    let (Some(known), Value::Object(fields)) = (known.get(&holding), &mut shown) else {
        return shown;
    };
    if let Value::Object(more) = &known.shown {
        fields.extend(more.clone());
    }
    let is_it = |(queue, seq, _): &&(u64, u64, u64)| (QueueId(*queue), *seq) == message;
    let since = known.since.iter().find(is_it).map(|(_, _, ms)| *ms);
    fields.insert("held_since".to_owned(), since.into());
    shown
}
