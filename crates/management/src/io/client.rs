//! What a session of the user does inside the node.

use amqp::{Method, TableRef, exchange, queue};
use broker::io::inside::{self, Known};
use client::{Address, Connection, Delivery, Error, Options, Outcome, Tls, Url};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::api::{Api, Caller};
use crate::limits::{CHANGE_WAIT, GET_BYTES_MAX};
use crate::reply::{Problem, Reply};
use crate::routes::{shown_payload, shown_properties};
use crate::work::{Binding, Get, Publish, Step, Then};

/// The queue that a message goes through to see whether the broker is alive.
const ALIVE: &str = "aliveness-test";

/// Opens a session of the caller in `vhost` and does one step.
pub(super) async fn client(
    api: &Api,
    caller: &Caller,
    vhost: String,
    step: Step,
    reply: Reply,
) -> Result<Reply, Problem> {
    let done = timeout(CHANGE_WAIT, in_session(api, caller, vhost, step, reply)).await;
    done.unwrap_or_else(|_| {
        Err(Problem::Unavailable("the cluster did not answer in time".to_owned()))
    })
}

async fn in_session(
    api: &Api,
    caller: &Caller,
    vhost: String,
    step: Step,
    reply: Reply,
) -> Result<Reply, Problem> {
    let unavailable = |error: std::io::Error| Problem::Unavailable(error.to_string());
    let known = Known { user: caller.user.clone(), grant: caller.grant.clone() };
    let socket = inside::connect(&api.0.broker, caller.peer, known).await.map_err(unavailable)?;
    let url = Url {
        host: "inside".to_owned(),
        port: 0,
        user: caller.user.clone(),
        password: String::new(),
        vhost,
        heartbeat: Some(0),
        connection_timeout: None,
        channel_max: None,
        frame_max: None,
        // There is none on the way. The broker knows who comes, and is told no password.
        tls: Some(Tls { is_login: true, ..Tls::default() }),
    };
    let options = Options::named("HTTP API").without_retry();
    let mut session = Connection::over(socket, &url, &options).await.map_err(refused)?;
    let done = run(&mut session, step).await;
    // What was done is done, whether the goodbye is heard or not.
    let _ = session.close().await;
    Ok(done.map_err(refused)?.map_or(reply, Reply::of))
}

/// What the broker says no with, in RabbitMQ's words.
fn refused(error: Error) -> Problem {
    match error {
        Error::ChannelClosed { text, .. } | Error::ConnectionClosed { text, .. } => {
            Problem::Bad(text)
        }
        Error::Invalid { text } => Problem::Bad(text),
        other @ (Error::Unreachable { .. }
        | Error::Tls { .. }
        | Error::Lost { .. }
        | Error::NoAnswer { .. }
        | Error::ConsumerCancelled { .. }
        | Error::Protocol { .. }) => Problem::Unavailable(other.to_string()),
    }
}

async fn run(session: &mut Connection, step: Step) -> Result<Option<Value>, Error> {
    match step {
        Step::DeclareQueue(spec) => session.declare_queue(&spec).await.map(|_| None),
        Step::DeclareExchange(spec) => session.declare_exchange(&spec).await.map(|()| None),
        Step::Bind(binding) => bind(session, &binding, true).await.map(|()| None),
        Step::Unbind(binding) => bind(session, &binding, false).await.map(|()| None),
        Step::DeleteQueue { name, if_empty, if_unused } => {
            let delete = queue::Delete { queue: &name, if_unused, if_empty, no_wait: false };
            session.call(&Method::QueueDelete(delete)).await.map(|_| None)
        }
        Step::DeleteExchange { name, if_unused } => {
            let delete = exchange::Delete { exchange: &name, if_unused, no_wait: false };
            session.call(&Method::ExchangeDelete(delete)).await.map(|_| None)
        }
        Step::Purge { name } => session.purge_queue(&name).await.map(|_| None),
        Step::Get(get) => messages(session, &get).await.map(Some),
        Step::Publish(publish) => {
            let routed = publish_one(session, &publish).await?;
            Ok(Some(json!({ "routed": routed })))
        }
        Step::Alive => alive(session).await.map(|()| None),
    }
}

async fn bind(session: &mut Connection, binding: &Binding, is_made: bool) -> Result<(), Error> {
    let Binding { source, destination, to_exchange, key, arguments, is_there: _ } = binding;
    let raw = arguments.to_bytes();
    let table = TableRef::validate(&raw)?;
    let (routing_key, no_wait) = (key.as_str(), false);
    let method = match (*to_exchange, is_made) {
        (false, true) => {
            return session.bind_queue(destination, source, key, arguments).await;
        }
        (false, false) => {
            return session.unbind_queue(destination, source, key, arguments).await;
        }
        (true, true) => Method::ExchangeBind(exchange::Bind {
            destination,
            source,
            routing_key,
            no_wait,
            arguments: table,
        }),
        (true, false) => Method::ExchangeUnbind(exchange::Unbind {
            destination,
            source,
            routing_key,
            no_wait,
            arguments: table,
        }),
    };
    session.call(&method).await.map(drop)
}

async fn messages(session: &mut Connection, get: &Get) -> Result<Value, Error> {
    let mut shown = Vec::new();
    let mut tags = Vec::new();
    let mut bytes = 0;
    while (shown.len() as u64) < get.count && bytes < GET_BYTES_MAX {
        let Some(delivery) = session.get(&get.queue, false).await? else { break };
        bytes += delivery.body.len();
        tags.push(delivery.tag);
        shown.push(show(&delivery, get)?);
    }
    let outcome = match get.then {
        Then::Ack => Outcome::Done,
        Then::Reject => Outcome::DeadLetter,
        Then::Requeue => Outcome::Requeue,
    };
    for tag in tags {
        session.settle(tag, outcome).await?;
    }
    Ok(shown.into())
}

fn show(delivery: &Delivery, get: &Get) -> Result<Value, Error> {
    let kept = get.truncate.unwrap_or(usize::MAX).min(delivery.body.len());
    let kept = &delivery.body[..kept];
    let (payload, encoding) = shown_payload(kept, get.is_base64);
    Ok(json!({
        "payload_bytes": delivery.body.len(),
        "redelivered": delivery.redelivered,
        "exchange": delivery.exchange(),
        "routing_key": delivery.routing_key(),
        "message_count": delivery.message_count(),
        "properties": shown_properties(&delivery.properties()?),
        "payload": payload,
        "payload_encoding": encoding,
    }))
}

/// Whether some queue took it.
async fn publish_one(session: &mut Connection, publish: &Publish) -> Result<bool, Error> {
    const NO_ROUTE: u16 = 312;
    let to = Address { exchange: &publish.exchange, routing_key: &publish.key, mandatory: true };
    let properties = amqp::Properties::decode(&publish.properties)?;
    match session.publish(to, &properties, &publish.payload).await {
        Ok(()) => Ok(true),
        Err(Error::ChannelClosed { code: NO_ROUTE, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A message goes into a queue, and is taken out of it.
async fn alive(session: &mut Connection) -> Result<(), Error> {
    let spec = client::QueueSpec { name: ALIVE.to_owned(), ..client::QueueSpec::default() };
    session.declare_queue(&spec).await?;
    let properties = amqp::Properties::default();
    session.publish(Address::queue(ALIVE), &properties, b"test_message").await?;
    session.get(ALIVE, true).await.map(drop)
}
