//! A queue that is bound to an exchange of recent history gets the history, before the client is told of the
//! binding.
//!
//! The exchange keeps its history in a queue of its own (`machine::Exchange::history`). Its messages are
//! fetched one after the other, copied, and given back unseen. Who binds while another does so may find
//! less of it.

use amqp::{Method, Properties};
use cluster::{Answer, Delivery, Request};
use machine::{CatalogCommand, Destination, Messages, QueueId, Target};

use crate::attributes::{self, Asked};
use crate::channel::unacked::Source;
use crate::channel::{Channel, Doing};
use crate::connection::tickets::{Groups, Waiting};
use crate::connection::{Trunk, Turn};
use crate::errors::{Failure, not_done};
use crate::limits;
use crate::route_cache::Route;
use crate::stored::{destination_texts, split_head};
use crate::values::Observed;

/// A history on its way into what was bound.
#[derive(Debug)]
pub(crate) struct Replay {
    history: Target,
    destination: Destination,
    /// In whose name its messages are fetched.
    fetch: u64,
    fetched: Vec<Delivery>,
    bytes: usize,
}

impl Replay {
    /// What a binding, which is not there yet, brings with it.
    pub(crate) fn of(
        trunk: &mut Trunk,
        turn: &Turn<'_>,
        command: &CatalogCommand,
    ) -> Option<Box<Self>> {
        let CatalogCommand::Bind { source, destination, key, arguments, .. } = command else {
            return None;
        };
        let vhost = turn.view.catalog.vhost(&trunk.vhost)?;
        let history = turn.view.catalog.exchange(&trunk.vhost, source)?.history()?;
        let mut others = vhost.bindings_of_source(source);
        let is_there = others.any(|other| {
            (&other.destination, &other.key, &other.arguments) == (destination, key, arguments)
        });
        let fetch = trunk.consumers.draw();
        let destination = destination.clone();
        let replay = Self { history, destination, fetch, fetched: Vec::new(), bytes: 0 };
        (!is_there).then(|| Box::new(replay))
    }
}

impl Channel {
    /// Asks for the next message of the history.
    pub(crate) fn fetch_history(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        replay: Box<Replay>,
        reply: Option<Method<'static>>,
    ) {
        let Target { group, queue, .. } = replay.history;
        let consumer = trunk.consumer_id(replay.fetch);
        trunk.ask(turn, self.at, |ticket| Request::Get {
            ticket,
            group,
            queue,
            consumer,
            no_ack: false,
        });
        self.doing = Some(Doing::Replay { replay, reply });
    }

    /// A message of the history has come, or there is no more.
    pub(crate) fn history_fetched(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        mut replay: Box<Replay>,
        reply: Option<Method<'static>>,
        answer: Answer,
    ) -> Result<(), Failure> {
        let Answer::Got { delivery, ready, .. } = answer else {
            return Err(not_done("the copy of the history"));
        };
        if let Some(delivery) = delivery {
            replay.bytes += delivery.bytes.len();
            replay.fetched.push(delivery);
            if ready > 0 && replay.bytes < limits::HISTORY_BYTES_MAX {
                self.fetch_history(trunk, turn, replay, reply);
                return Ok(());
            }
        }
        for delivery in &replay.fetched {
            let Delivery { group, queue, first_seq, count, .. } = *delivery;
            trunk.hand_back(Source { group, queue, consumer: replay.fetch }, first_seq, count);
            copy(trunk, turn, &replay.destination, delivery);
        }
        // Any question will do: it is asked once the copies are logged.
        let group = machine::GroupId::local(trunk.node);
        trunk.ask_after(turn, Waiting::Channel(self.at), Groups::All, |ticket| Request::Status {
            ticket,
            group,
            queue: QueueId(0),
        });
        self.doing = Some(Doing::Change { reply });
        Ok(())
    }
}

/// Stores a message of the history where the destination of the binding has it.
fn copy(trunk: &mut Trunk, turn: &mut Turn<'_>, destination: &Destination, delivery: &Delivery) {
    let catalog = turn.view.catalog;
    for (head, body) in Messages::of(delivery.queue, &delivery.bytes) {
        let Some((address, raw)) = split_head(head) else { continue };
        let properties = Properties::decode(raw).unwrap_or_default();
        let mut targets = Vec::new();
        match destination {
            Destination::Queue(name) => {
                targets.extend(catalog.queue(&trunk.vhost, name).map(machine::Queue::target));
            }
            Destination::Exchange(name) => {
                let (_, key) = destination_texts(address);
                let observed = Observed::new(properties, trunk.chance.draw());
                let vhost = &trunk.vhost;
                // An exchange that is gone again takes nothing.
                _ = catalog.route_inside(vhost, name, &[key], &observed, &mut targets);
            }
        }
        let asked = Asked {
            ttl_ms: attributes::ttl_ms(&properties).unwrap_or_default(),
            priority: properties.priority.unwrap_or(0),
            key: attributes::key(&properties),
            ..Asked::default()
        };
        trunk.put(turn, &Route::of(&targets), &asked, &[head], body, None);
    }
}
