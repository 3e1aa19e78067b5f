//! What is tried as whom, and what is to come of it.

use std::collections::VecDeque;

use amqp::{Encoder, Method, Properties, basic, queue};
use bytes::BytesMut;
use client::Core;

use crate::sim::VHOST;
use crate::sim::clients::administrator::rights::{Rights, SIDES, TOPIC, USERS};

/// Connections that are tried at a time.
const CONNECTIONS: u32 = 3;
/// Channels of one connection.
const CHANNELS: u32 = 3;
const NOT_ALLOWED: u16 = 530;
const ACCESS_REFUSED: u16 = 403;
const PRECONDITION_FAILED: u16 = 406;

/// One user in one vhost, on one node.
#[derive(Clone, Debug)]
pub(in crate::sim::clients) struct Case {
    pub(super) node: usize,
    pub(super) user: &'static str,
    pub(super) vhost: &'static str,
    pub(super) asks: VecDeque<Ask>,
}

/// Something that is asked for.
#[derive(Clone, Debug)]
pub(in crate::sim::clients) struct Ask {
    connection: usize,
    channel: u16,
    what: Wish,
    pub(super) expected: Seen,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wish {
    Connect,
    /// It stays open.
    Channel,
    /// These each on a channel of their own, which is closed again.
    Declare(&'static str),
    Delete(&'static str),
    Bind(&'static str, String),
    Publish(String),
    Get(&'static str),
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim::clients) enum Seen {
    Done,
    Refused(u16),
    /// No answer, or no word at the end.
    Nothing,
}

fn allowed(is_allowed: bool, code: u16) -> Seen {
    if is_allowed { Seen::Done } else { Seen::Refused(code) }
}

/// Everything on one node.
pub(super) fn all(rights: &Rights, node: usize) -> Vec<Case> {
    let users = USERS.into_iter().chain(["nobody"]);
    let vhosts = || [VHOST].into_iter().chain(SIDES).chain(["nowhere"]);
    let of = |user| vhosts().map(move |vhost| (user, vhost));
    let case = |(user, vhost)| Case { node, user, vhost, asks: asks(rights, user, vhost) };
    // Whoever there is not is refused before it says where it wants to go.
    let counts = |(user, vhost): &(&str, &str)| rights.users.contains_key(user) || *vhost == VHOST;
    users.flat_map(of).filter(counts).map(case).collect()
}

fn asks(rights: &Rights, name: &'static str, vhost: &'static str) -> VecDeque<Ask> {
    let connect = |connection: u32, expected| Ask {
        connection: connection as usize,
        channel: 0,
        what: Wish::Connect,
        expected,
    };
    let Some(user) = rights.users.get(name) else {
        return [connect(0, Seen::Refused(ACCESS_REFUSED))].into();
    };
    let side = rights.sides.get(vhost);
    let Some([configure, write, read]) =
        user.grants.get(vhost).filter(|_| vhost == VHOST || side.is_some())
    else {
        return [connect(0, Seen::Refused(NOT_ALLOWED))].into();
    };
    let limits = [user.limits.max_connections, side.and_then(|side| side.limits.max_connections)];
    let room = limits.into_iter().flatten().min().unwrap_or(CONNECTIONS);
    let mut asks: VecDeque<Ask> =
        (0..CONNECTIONS).map(|nth| connect(nth, allowed(nth < room, NOT_ALLOWED))).collect();
    if room == 0 {
        return asks;
    }
    let mut ask = |what, expected| {
        asks.push_back(Ask { connection: 0, channel: 1, what, expected });
    };
    for queue in ["a-1", "b-1"] {
        let is_full = side.is_some_and(|side| {
            side.limits.max_queues.is_some_and(|max| side.queues.len() as u32 >= max)
        });
        let declared = match (configure.allows(queue), is_full) {
            (false, _) => Seen::Refused(ACCESS_REFUSED),
            (true, true) => Seen::Refused(PRECONDITION_FAILED),
            (true, false) => Seen::Done,
        };
        ask(Wish::Declare(queue), declared);
        if declared != Seen::Done {
            continue;
        }
        let topics = user.topics.get(vhost);
        for key in ["a.k".to_owned(), "b.k".to_owned(), format!("{name}.k")] {
            let may_read = topics.is_none_or(|[_, read]| read.allows(&key, name));
            let may_bind = write.allows(queue) && read.allows(TOPIC) && may_read;
            ask(Wish::Bind(queue, key), allowed(may_bind, ACCESS_REFUSED));
        }
        ask(Wish::Get(queue), allowed(read.allows(queue), ACCESS_REFUSED));
        // One at a time: there may be room for no other.
        ask(Wish::Delete(queue), Seen::Done);
    }
    for key in ["a.k".to_owned(), "b.k".to_owned(), format!("{name}.k")] {
        let topics = user.topics.get(vhost);
        let may_write = topics.is_none_or(|[write, _]| write.allows(&key, name));
        let may_publish = write.allows(TOPIC) && may_write;
        ask(Wish::Publish(key), allowed(may_publish, ACCESS_REFUSED));
    }
    // At last, because a channel too many ends the connection.
    let room = user.limits.max_channels.unwrap_or(CHANNELS);
    for nth in 0..CHANNELS.min(room + 1) {
        let expected = allowed(nth < room, NOT_ALLOWED);
        let (connection, channel) = (0, nth as u16 + 2);
        asks.push_back(Ask { connection, channel, what: Wish::Channel, expected });
    }
    asks
}

impl Ask {
    pub(super) fn is_connect(&self) -> bool {
        self.what == Wish::Connect
    }

    pub(super) fn connection(&self) -> usize {
        self.connection
    }

    /// It is asked for, on a channel that is opened for it.
    pub(super) fn begin(&self, core: &mut Core) {
        core.open_channel(self.channel);
    }

    /// The channel heard something. What that comes to, if it is the end.
    pub(super) fn told(&self, method: &Method<'_>, core: &mut Core) -> Option<Seen> {
        match method {
            Method::ChannelOpenOk(_) if self.what == Wish::Channel => return Some(Seen::Done),
            Method::ChannelOpenOk(_) => self.ask(core),
            Method::ChannelCloseOk(_) => return Some(Seen::Done),
            // An answer to what was asked for.
            _ => core.close_channel(self.channel),
        }
        None
    }

    fn ask(&self, core: &mut Core) {
        let channel = self.channel;
        match &self.what {
            Wish::Connect | Wish::Channel => unreachable!("they are done with a channel"),
            Wish::Declare(queue) => {
                let exclusive = true;
                let declare = queue::Declare { queue, exclusive, ..queue::Declare::default() };
                core.send(channel, &Method::QueueDeclare(declare));
            }
            Wish::Delete(queue) => {
                let delete = queue::Delete { queue, ..queue::Delete::default() };
                core.send(channel, &Method::QueueDelete(delete));
            }
            Wish::Bind(queue, key) => {
                let (exchange, routing_key) = (TOPIC, key.as_str());
                let bind = queue::Bind { queue, exchange, routing_key, ..queue::Bind::default() };
                core.send(channel, &Method::QueueBind(bind));
            }
            Wish::Get(queue) => {
                core.send(channel, &Method::BasicGet(basic::Get { queue, no_ack: true }));
            }
            Wish::Publish(key) => {
                let (exchange, routing_key) = (TOPIC, key.as_str());
                let publish = basic::Publish { exchange, routing_key, ..basic::Publish::default() };
                let mut raw = BytesMut::new();
                Properties::default().encode(&mut raw);
                let frame_max = core.agreed().frame_max;
                let mut encoder = Encoder::new(core.output(), frame_max);
                encoder.method(channel, &Method::BasicPublish(publish));
                encoder.header(channel, 1, &raw);
                encoder.body(channel, b"1");
                // It is not answered, but what comes behind it is.
                let qos = basic::Qos { prefetch_size: 0, prefetch_count: 1, global: false };
                core.send(channel, &Method::BasicQos(qos));
            }
        }
    }
}
