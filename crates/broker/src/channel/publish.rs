//! The hot way in: `basic.publish`, from its frames to the batch of its group, its return and its confirm.
//!
//! A message whose properties are those of the last one, and that goes where one went before, is copied once, into its
//! group's batch. In the order in which a publish passes them: `content` gathers its frames, `properties` looks at
//! what it asks for, `route` says to which queues it goes, and here it is stored, returned and confirmed.

pub(crate) mod properties;
mod route;

use std::borrow::Cow;

use amqp::{Decoder, Method, Properties, ReplyCode, basic, confirm, tx as wire};
use bytes::Bytes;

use self::properties::{Inspected, Seen, inspect};
use self::route::Found;
use super::caller::Caller;
use super::confirms::{Confirms, Verdict};
use super::content::{Content, Message, whole_content};
use super::direct_reply_to::Replies;
use super::tx::Tx;
use crate::attributes::{self, Asked};
use crate::connection::Publishers;
use crate::connection::requests::Requests;
use crate::connection::unfinished::Unfinished;
use crate::errors::Failure;
use crate::limits;
use crate::route_cache::Route;
use crate::session::boundary::{Reply, ReplyOrder};
use crate::stored::destination_texts;
use crate::tap;

const MANDATORY: u8 = 1;
const IMMEDIATE: u8 = 2;

/// How publishes of a channel are answered.
#[derive(Debug)]
pub(crate) enum Mode {
    Plain,
    Confirm(Confirms),
    Tx(Box<Tx>),
}

/// A channel as a publisher.
#[derive(Debug)]
pub(crate) struct Publishing {
    content: Content,
    seen: Seen,
    pub(crate) mode: Mode,
    /// Confirms have moved since the client was told last.
    is_touched: bool,
    /// It has published, and is one of the connection's publishers.
    is_counted: bool,
}

impl Default for Publishing {
    fn default() -> Self {
        Self {
            content: Content::default(),
            seen: Seen::default(),
            mode: Mode::Plain,
            is_touched: false,
            is_counted: false,
        }
    }
}

/// Exchange and routing key as they stand in a `basic.publish`, and its bits. None: malformed.
fn split_publish(payload: &[u8]) -> Option<(&[u8], u8)> {
    const BEFORE: usize = 6; // Class (2), method (2), reserved (2).
    let exchange = 1 + usize::from(*payload.get(BEFORE)?);
    let key = 1 + usize::from(*payload.get(BEFORE + exchange)?);
    let end = BEFORE + exchange + key;
    match payload.get(end..)? {
        [bits] => Some((payload.get(BEFORE..end)?, *bits)),
        _ => None,
    }
}

impl Publishing {
    /// What the rights of the login before allowed is looked at again.
    pub(crate) fn forget_seen(&mut self) {
        self.seen = Seen::default();
    }

    /// A method where content was due.
    #[inline]
    pub(crate) fn content_missing(&self) -> Option<Failure> {
        self.content.missing()
    }

    /// `basic.publish`. Takes the content along if all of it is in `rest`; says how much of it.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        caller: &mut Caller<'_, '_>,
        publishers: &mut Publishers,
        replies: &Replies,
        decoder: &Decoder,
        payload: &[u8],
        rest: &[u8],
    ) -> Result<usize, Failure> {
        let version = caller.catalog().version();
        let (destination, bits) = match split_publish(payload) {
            Some(found) if publishers.routes.find(version, found.0).is_some() => found,
            // Not known to be valid text: the codec looks at all of it.
            found => {
                Method::decode(payload)?;
                let malformed = || amqp::Error::new(ReplyCode::SyntaxError, "basic.publish");
                found.ok_or_else(malformed)?
            }
        };
        if bits & IMMEDIATE != 0 {
            return Err(Failure::connection(ReplyCode::NotImplemented, "immediate=true"));
        }
        if let Some((properties, body, used)) = whole_content(decoder, caller.at.number, rest)?
            && body.len() as u64 <= caller.client.config.message_bytes_max
        {
            let message = Message { destination, bits, properties, body };
            self.message(caller, publishers, replies, message)?;
            return Ok(used);
        }
        self.content.begin(destination, bits);
        Ok(0)
    }

    /// A content header.
    pub(crate) fn header(
        &mut self,
        caller: &mut Caller<'_, '_>,
        publishers: &mut Publishers,
        replies: &Replies,
        (class_id, body_bytes): (u16, u64),
        properties: &[u8],
    ) -> Result<(), Failure> {
        let (unfinished, max) =
            (&mut publishers.unfinished, caller.client.config.message_bytes_max);
        match self.content.header(unfinished, max, class_id, body_bytes, properties)? {
            Some(whole) => self.message(caller, publishers, replies, whole.message()),
            None => Ok(()),
        }
    }

    /// A part of a body.
    pub(crate) fn body(
        &mut self,
        caller: &mut Caller<'_, '_>,
        publishers: &mut Publishers,
        replies: &Replies,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let (unfinished, max) =
            (&mut publishers.unfinished, caller.client.config.message_bytes_max);
        match self.content.body(unfinished, max, payload)? {
            Some(whole) => self.message(caller, publishers, replies, whole.message()),
            None => Ok(()),
        }
    }

    /// Stores a message where it is routed, and returns or confirms it.
    fn message(
        &mut self,
        caller: &mut Caller<'_, '_>,
        publishers: &mut Publishers,
        replies: &Replies,
        message: Message<'_>,
    ) -> Result<(), Failure> {
        let is_confirmed = matches!(self.mode, Mode::Confirm(_));
        caller.counts.published(message.body.len(), is_confirmed);
        let version = caller.catalog().version();
        let known = publishers.routes.find(version, message.destination);
        if let Some(place) = known
            && let Some(asked) = self.seen.find(message.properties)
            && !publishers.routes.at(place).dedups
        {
            let Publishers { routes, exchanges, unfinished, touched, .. } = publishers;
            let route = placed(routes.at(place), caller.requests, &message);
            let exchange = || destination_texts(message.destination).0;
            exchanges.count(routes.exchange(place), exchange, route.queue_count);
            return self.store(caller, unfinished, touched, &route, &asked, message);
        }
        self.look_at(caller, publishers, replies, known, message)
    }

    /// The slow path: the properties are not known, or the route is not cached.
    fn look_at(
        &mut self,
        caller: &mut Caller<'_, '_>,
        publishers: &mut Publishers,
        replies: &Replies,
        known: Option<usize>,
        message: Message<'_>,
    ) -> Result<(), Failure> {
        // The first message of a channel comes here.
        if !std::mem::replace(&mut self.is_counted, true) {
            publishers.count += 1;
        }
        let Publishers { routes, exchanges, chance, unfinished, touched, count: _ } = publishers;
        let properties = Properties::decode(message.properties)?;
        let chance = chance.draw();
        let caches = (&mut *routes, &mut *exchanges);
        let found = route::find(caller, caches, known, message.destination, &properties, chance)?;
        let inspected = inspect(caller.client, replies, &properties, message.properties)?;
        self.seen.note(message.properties, &inspected);
        let Inspected { mut asked, properties: amended, keys } = inspected;
        let found = found.with_keys(caller, message.destination, &keys, &properties, chance)?;
        let raw = amended.as_deref().unwrap_or(message.properties);
        let message = Message { properties: raw, ..message };
        let name = destination_texts(message.destination).0;
        let (route, exchange) = match &found {
            Found::Cached(place) => (routes.at(*place), routes.exchange(*place)),
            Found::Own(route) => (route, exchanges.place(name)),
            Found::ReplyAddress => {
                self.reply(caller, touched, &message);
                return Ok(());
            }
        };
        let route = placed(route, caller.requests, &message);
        exchanges.count(exchange, || name, route.queue_count);
        if route.dedups || asked.delay_ms.is_some() {
            asked.key = attributes::key(&properties);
        }
        self.store(caller, unfinished, touched, &route, &asked, message)
    }

    /// Puts a message into the batches of its groups, into the transaction, or behind the question whether its queues
    /// have room.
    #[inline]
    fn store(
        &mut self,
        caller: &mut Caller<'_, '_>,
        unfinished: &mut Unfinished,
        touched: &mut Vec<u16>,
        route: &Route,
        asked: &Asked,
        message: Message<'_>,
    ) -> Result<(), Failure> {
        let behind = caller.requests.capacity.behind(route);
        let route = behind.as_ref().unwrap_or(route);
        let head = [message.destination, message.properties];
        let is_counted = route.is_guarded
            || asked.cancels.is_some()
            || route.parts_max() > limits::APPEND_SLOTS_MAX;
        if asked.cancels.is_none() {
            caller.counts.routed += route.queue_count;
        }
        let (mut slots, mut is_concluded) = (0, false);
        if let Mode::Tx(tx) = &mut self.mode {
            caller.counts.cancels += u64::from(asked.cancels.is_some());
            let levels = &mut caller.requests.levels;
            tx.store(unfinished, route, asked, &head, message.body, levels)?;
        } else if is_counted && !route.is_empty() {
            self.store_counted(caller, route, asked, message);
            is_concluded = true;
        } else {
            let out = &mut caller.step.out.requests;
            slots = caller.requests.append(out, route, asked, &head, message.body);
        }
        if !is_concluded {
            self.conclude(caller, touched, slots, route.is_routed, &message);
        }
        if caller.step.is_tapped {
            tap::published(caller, route, self.last_open_run(), message.passing());
        }
        Ok(())
    }

    /// The run of confirms that the last publish waits for, if it waits.
    fn last_open_run(&self) -> Option<u64> {
        match &self.mode {
            Mode::Confirm(confirms) => confirms.last_open(),
            Mode::Plain | Mode::Tx(_) => None,
        }
    }

    /// What goes into more batches than are gathered for at once, has to be asked for, or cancels: its
    /// confirm counts its parts.
    fn store_counted(
        &mut self,
        caller: &mut Caller<'_, '_>,
        route: &Route,
        asked: &Asked,
        message: Message<'_>,
    ) {
        let head = [message.destination, message.properties];
        let cancelled = asked.cancels.map(|key| (key, route.queues()));
        let parts = match &cancelled {
            Some((_, groups)) => groups.len(),
            None => {
                let mut parts = route.guarded().count();
                route.parts(asked, &mut caller.requests.levels, |_, _, _| parts += 1);
                parts
            }
        };
        let run = match &mut self.mode {
            Mode::Confirm(confirms) => {
                let parts = u32::try_from(parts).expect("routing bounds the queues of a message");
                Some((caller.at, confirms.expect_wide(parts)))
            }
            Mode::Plain | Mode::Tx(_) => None,
        };
        let (requests, out) = (&mut *caller.requests, &mut caller.step.out.requests);
        let Some((key, groups)) = cancelled else {
            requests.put(out, route, asked, &head, message.body, run);
            return;
        };
        caller.counts.cancels += 1;
        for (group, queues) in groups {
            requests.cancel_delayed(out, group, &queues, key, run);
        }
    }

    /// The return, if nobody took it and that was asked for; then the confirm.
    fn conclude(
        &mut self,
        caller: &mut Caller<'_, '_>,
        touched: &mut Vec<u16>,
        slots: u64,
        is_routed: bool,
        message: &Message<'_>,
    ) {
        if !is_routed {
            caller.counts.unroutable += 1;
            match message.bits & MANDATORY {
                0 => caller.counts.unroutable_dropped += 1,
                _ => self.give_back(caller, message),
            }
        }
        if let Mode::Confirm(confirms) = &mut self.mode {
            let appends = &mut caller.requests.appends;
            if let Some(run) = confirms.expect(slots, appends.round()) {
                appends.remember(slots, caller.at, run);
            }
            if slots == 0 {
                self.touch(caller.at.number, touched);
            }
        }
    }

    /// `basic.return`; in a transaction it waits for the commit.
    fn give_back(&mut self, caller: &mut Caller<'_, '_>, message: &Message<'_>) {
        caller.counts.returned += 1;
        let (exchange, routing_key) = destination_texts(message.destination);
        let method = Method::BasicReturn(basic::Return {
            reply_code: ReplyCode::NoRoute.number(),
            reply_text: ReplyCode::NoRoute.name(),
            exchange,
            routing_key,
        });
        let out = match &mut self.mode {
            Mode::Tx(tx) => &mut tx.returns,
            Mode::Plain | Mode::Confirm(_) => &mut caller.step.out.bytes,
        };
        let number = caller.at.number;
        let mut encoder = amqp::Encoder::new(out, caller.client.frame_bytes_max);
        encoder.method(number, &method);
        encoder.header(number, message.body.len() as u64, message.properties);
        encoder.body(number, message.body);
    }

    /// A message for a reply address: it goes to a session of this node and is never stored.
    fn reply(
        &mut self,
        caller: &mut Caller<'_, '_>,
        touched: &mut Vec<u16>,
        message: &Message<'_>,
    ) {
        let (_, address) = destination_texts(message.destination);
        let is_routed = caller.step.view.replies.is_open(address);
        if is_routed {
            caller.step.out.replies.push(ReplyOrder::Send(Reply {
                address: address.to_owned(),
                properties: Bytes::copy_from_slice(message.properties),
                body: Bytes::copy_from_slice(message.body),
            }));
        }
        self.conclude(caller, touched, 0, is_routed, message);
        if caller.step.is_tapped {
            tap::published(caller, &Route::default(), None, message.passing());
        }
    }

    /// A part of a run of publishes is logged, or will not be.
    pub(crate) fn answered(
        &mut self,
        number: u16,
        touched: &mut Vec<u16>,
        run: u64,
        is_logged: bool,
    ) {
        let Mode::Confirm(confirms) = &mut self.mode else { return };
        confirms.answered(run, is_logged);
        self.touch(number, touched);
    }

    /// Whether all of a run of publishes is logged, if that is known now.
    pub(crate) fn outcome(&self, run: u64) -> Option<bool> {
        match &self.mode {
            Mode::Confirm(confirms) => confirms.outcome(run),
            Mode::Plain | Mode::Tx(_) => None,
        }
    }

    /// The client is to be told of confirms before the step ends.
    fn touch(&mut self, number: u16, touched: &mut Vec<u16>) {
        if !self.is_touched {
            self.is_touched = true;
            touched.push(number);
        }
    }

    /// Tells the client what became of its publishes. Gives whether some still wait behind others.
    pub(crate) fn tell_confirms(
        &mut self,
        caller: &mut Caller<'_, '_>,
        is_open: bool,
        is_late: bool,
    ) -> bool {
        self.is_touched = false;
        let number = caller.at.number;
        let Mode::Confirm(confirms) = &mut self.mode else { return false };
        if !is_open {
            return false;
        }
        let before = confirms.acked();
        let mut encoder = caller.encoder();
        let say = |verdict| match verdict {
            Verdict::Ack { seq, multiple } => {
                let ack = basic::Ack { delivery_tag: seq, multiple };
                encoder.method(number, &Method::BasicAck(ack));
            }
            Verdict::Nack { seq, multiple } => {
                let nack = basic::Nack { delivery_tag: seq, multiple, requeue: false };
                encoder.method(number, &Method::BasicNack(nack));
            }
        };
        match is_late {
            true => confirms.tell_held_up(say),
            false => confirms.tell(say),
        }
        caller.counts.confirmed += confirms.acked() - before;
        confirms.is_held_up()
    }

    pub(crate) fn confirm_select(
        &mut self,
        caller: &mut Caller<'_, '_>,
        select: &confirm::Select,
    ) -> Result<(), Failure> {
        match self.mode {
            Mode::Plain => self.mode = Mode::Confirm(Confirms::default()),
            Mode::Confirm(_) => {}
            Mode::Tx(_) => {
                let text = "cannot switch from tx to confirm mode";
                return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
            }
        }
        caller.answer(select.no_wait, &Method::ConfirmSelectOk(confirm::SelectOk));
        Ok(())
    }

    pub(crate) fn tx_select(&mut self, caller: &mut Caller<'_, '_>) -> Result<(), Failure> {
        match self.mode {
            Mode::Plain => self.mode = Mode::Tx(Box::default()),
            Mode::Tx(_) => {}
            Mode::Confirm(_) => {
                let text = "cannot switch from confirm to tx mode";
                return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
            }
        }
        caller.send(&Method::TxSelectOk(wire::SelectOk));
        Ok(())
    }

    /// What the open transaction has gathered so far; it begins anew.
    pub(crate) fn take_tx(&mut self) -> Result<Tx, Failure> {
        match &mut self.mode {
            Mode::Tx(tx) => Ok(std::mem::take(&mut **tx)),
            Mode::Plain | Mode::Confirm(_) => {
                let text = "channel is not transactional";
                Err(Failure::channel(ReplyCode::PreconditionFailed, text))
            }
        }
    }

    /// The channel is at its end: what had begun will not come.
    pub(crate) fn end(&mut self, publishers: &mut Publishers) {
        self.content.give_up(&mut publishers.unfinished);
        publishers.count -= u64::from(std::mem::take(&mut self.is_counted));
    }
}

/// The route of a message, with the partition into which it goes, where a stream has several.
#[inline]
fn placed<'r>(route: &'r Route, requests: &mut Requests, message: &Message<'_>) -> Cow<'r, Route> {
    if !route.has_partitions() {
        return Cow::Borrowed(route);
    }
    let (_, key) = destination_texts(message.destination);
    requests.turn.is_used = true;
    let turn = &requests.turn;
    route.placed(|stream| stream.choose(key, message.properties, turn.number, &turn.silent))
}
