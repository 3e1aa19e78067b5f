//! An operator pauses a consumer of the connection, or lets it go on.
//!
//! What the consumer holds stays with it, and credit is given as ever: its queue keeps that until it goes on. The client
//! is told nothing; AMQP has no word for it. The pause ends with the consumer.

use cluster::Request;
use machine::{ConsumerChange, ConsumerId};

use super::Session;
use super::boundary::PauseOrder;
use crate::connection::step::Step;

impl Session {
    pub(super) fn pause_consumer(&mut self, step: &mut Step<'_>, order: PauseOrder) {
        let PauseOrder { channel, tag, pause } = order;
        let Some(channel) = self.channels.get(&channel) else { return };
        let (_, deliveries) = channel.look_inside();
        let Some(number) = deliveries.consumer(&tag) else { return };
        let consumers = &mut self.connection.consumers;
        if !consumers.is_attached(number) {
            return;
        }
        let is_paused = pause.is_some();
        let session = self.connection.client.session;
        for source in consumers.pause(number, pause) {
            step.out.requests.push(Request::ChangeConsumer {
                group: source.group,
                queue: source.queue,
                consumer: ConsumerId { session, number: source.consumer },
                change: ConsumerChange::Pause(is_paused),
            });
        }
    }
}
