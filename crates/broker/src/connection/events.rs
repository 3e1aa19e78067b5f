//! What a client's connection tells of itself at the exchange of events: nothing is put together unless somebody listens.

use machine::{Arguments, Event, Value};

use super::client::Client;
use super::consumers::Consumer;
use super::step::Step;

/// A channel was opened or closed.
pub(crate) fn tell_channel(step: &mut Step<'_>, client: &Client, name: &str, number: u16) {
    if !step.catalog().has_listeners() {
        return;
    }
    let details = of_client(client).with("number", Value::I32(number.into()));
    let event = Event::new(name, &client.vhost, &channel_name(client, number)).with(details);
    step.out.events.push(event);
}

/// A consumer came or went.
pub(crate) fn tell_consumer(step: &mut Step<'_>, client: &Client, name: &str, consumer: &Consumer) {
    let catalog = step.catalog();
    if !catalog.has_listeners() {
        return;
    }
    let queue = catalog.queue_by_id(consumer.source.queue).map_or("", |queue| &queue.name);
    let channel = channel_name(client, consumer.channel.number);
    let details = of_client(client)
        .with("consumer_tag", text(consumer.tag()))
        .with("queue", text(queue))
        .with("channel", text(&channel))
        .with("ack_required", Value::Bool(!consumer.no_ack))
        .with("prefetch_count", Value::I64(consumer.limit().into()));
    step.out.events.push(Event::new(name, &client.vhost, "").with(details));
}

fn of_client(client: &Client) -> Arguments {
    Arguments::new()
        .with("user", text(&client.user))
        .with("connection", text(&client.peer.to_string()))
}

/// As the connection's name, which is its client's address, with the channel's number.
fn channel_name(client: &Client, number: u16) -> String {
    format!("{} ({number})", client.peer)
}

fn text(text: &str) -> Value {
    Value::LongStr(text.as_bytes().to_vec())
}
