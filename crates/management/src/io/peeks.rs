//! Messages as their queue's leader shows them, and who holds them.

use std::collections::{BTreeMap, BTreeSet};

use broker::ConnectionId;
use cluster::{NotPeeked, Peeked};
use machine::{ConsumerId, MessageState};
use serde_json::{Value, json};

use super::api::Api;
use super::{asking, connections};
use crate::limits::HOLDERS_MAX;
use crate::neighbour::{Holder, Holding, Question};
use crate::node::name_of;
use crate::reply::{Problem, Reply};
use crate::routes::peek::{cursor, shown};
use crate::work::Peek;

pub(super) async fn peek(api: &Api, wanted: Peek) -> Result<Reply, Problem> {
    let Peek { queue, spec, is_base64 } = wanted;
    let Peeked { messages, next, .. } = api.0.cluster.peek(queue, spec).await.map_err(problem)?;
    let held = messages.iter().filter_map(|message| match message.is.state {
        MessageState::Held { by } => Some(by),
        MessageState::Ready | MessageState::Delayed { .. } | MessageState::Dead { .. } => None,
    });
    let holders = holders(api, held.collect()).await;
    let items = messages.iter().map(|message| {
        let mut item = shown(message, is_base64);
        if let MessageState::Held { by } = message.is.state {
            item.insert("holder".to_owned(), holder(by, &holders));
        }
        Value::Object(item)
    });
    let items: Vec<Value> = items.collect();
    Ok(Reply::of(json!({ "items": items, "next": next.map(cursor) })))
}

pub(super) fn problem(why: NotPeeked) -> Problem {
    let why = match why {
        NotPeeked::NoQueue => return Problem::NotFound,
        NotPeeked::NotYet { since } => format!(
            "another node leads the queue, and can be asked for its messages once all nodes have agreed on version \
             {since} of the cluster. Until then ask the node that leads it"
        ),
        NotPeeked::NoLeader => {
            "the queue's group has no leader: see millrace cluster status".to_owned()
        }
        NotPeeked::Late => "the queue's leader did not answer in time: ask again".to_owned(),
        NotPeeked::Busy => "too many look at messages of the queue's leader: ask again".to_owned(),
        NotPeeked::Unreadable => {
            "the disk of the queue's leader does not give these messages. The leader's log \
                                  names the file and says what to do"
                .to_owned()
        }
    };
    Problem::Unavailable(why)
}

fn holding(by: ConsumerId) -> Option<Holding> {
    let connection = ConnectionId::of(by.session)?.to_string();
    Some(Holding { connection, number: by.number })
}

/// Who the first of those are, as far as their nodes say.
async fn holders(api: &Api, held: BTreeSet<ConsumerId>) -> BTreeMap<Holding, Value> {
    let of: Vec<Holding> = held.into_iter().filter_map(holding).take(HOLDERS_MAX).collect();
    let mut found = connections::holders(api, &api.facts(), &of).await;
    if found.len() < of.len() {
        let question = Question::Holders { of };
        let others = asking::ask_others::<Vec<Holder>>(api, &question).await;
        found.extend(others.into_iter().filter_map(|(_, told)| told.ok()).flatten());
    }
    found.into_iter().map(|Holder { of, shown }| (of, shown)).collect()
}

/// Who holds a message.
fn holder(by: ConsumerId, known: &BTreeMap<Holding, Value>) -> Value {
    let Some(holding) = holding(by) else { return Value::Null };
    let node = ConnectionId::of(by.session).map(|it| name_of(it.node));
    let mut shown = json!({ "connection": holding.connection, "node": node });
    if let (Some(Value::Object(more)), Value::Object(fields)) = (known.get(&holding), &mut shown) {
        fields.extend(more.clone());
    }
    shown
}
