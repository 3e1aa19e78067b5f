//! A whole message: looked at, routed, returned or confirmed. The hot way in: a message whose properties are
//! those of the last one, and that goes where one went before, is copied once, into its group's batch.

use amqp::{FieldTable, FieldValue, Method, Properties, ReplyCode, TableRef, ValueRef, basic};
use bytes::{Bytes, BytesMut};
use machine::{RouteError, Target};

use crate::attributes::{self, Asked};
use crate::auth::{self, Verb};
use crate::channel::direct_reply_to::{REPLY_TO, REPLY_TO_PREFIX};
use crate::channel::{Channel, Mode};
use crate::connection::{Trunk, Turn};
use crate::errors::{Failure, no_exchange};
use crate::headers::{self, Number};
use crate::route_cache::Route;
use crate::session::{Reply, ReplyOrder};
use crate::stored::destination_texts;
use crate::values::{Observed, type_name};

const MANDATORY: u8 = 1;

/// Properties are remembered up to this size.
const SEEN_BYTES_MAX: usize = 128;

/// A whole message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// Exchange and routing key as on the wire.
    pub(crate) destination: &'a [u8],
    pub(crate) bits: u8,
    pub(crate) properties: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// Properties that are stored as they came, and what they ask for.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    raw: Vec<u8>,
    asked: Asked,
}

/// What a look at the properties found.
#[derive(Debug, Default)]
struct Amendments {
    asked: Asked,
    /// The properties to store instead.
    properties: Option<BytesMut>,
    /// More routing keys: CC and BCC.
    keys: Vec<String>,
}

impl Channel {
    /// Stores a message where it is routed, and returns or confirms it.
    pub(crate) fn message(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        message: Message<'_>,
    ) -> Result<(), Failure> {
        trunk.counts.published += 1;
        let version = turn.view.catalog.version();
        let known = trunk.routes.find(version, message.destination);
        if let Some(place) = known
            && !self.seen.raw.is_empty()
            && self.seen.raw == message.properties
            && !trunk.routes.at(place).dedups
        {
            let asked = self.seen.asked;
            return self.store(trunk, turn, None, place, &asked, message);
        }
        self.look_at(trunk, turn, known, message)
    }

    /// A message that is not like the last one, or goes where none went before.
    fn look_at(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        known: Option<usize>,
        message: Message<'_>,
    ) -> Result<(), Failure> {
        let properties = Properties::decode(message.properties)?;
        let (exchange, key) = destination_texts(message.destination);
        let observed = Observed::new(properties, trunk.chance.draw());
        let mut place = known;
        let mut own_route = None;
        let mut replies_to = None;
        if known.is_none() {
            allow_publish(trunk, turn, exchange)?;
            if exchange.is_empty() && key.starts_with(REPLY_TO_PREFIX) {
                replies_to = Some(key);
                own_route = Some(Route::default());
            } else {
                let route = Route::of(&resolve(trunk, turn, exchange, &[key], &observed)?);
                if observed.was_asked() {
                    own_route = Some(route);
                } else {
                    let version = turn.view.catalog.version();
                    place = Some(trunk.routes.keep(version, message.destination, route));
                }
            }
        }

        let Amendments { mut asked, properties: amended, keys } =
            self.amend(trunk, &properties, message.properties)?;
        let is_one_of_a_kind = asked.cancels.is_some() || asked.delay_ms.is_some();
        let is_as_it_came = amended.is_none() && keys.is_empty() && !is_one_of_a_kind;
        self.seen.raw.clear();
        if is_as_it_came && message.properties.len() <= SEEN_BYTES_MAX {
            self.seen.raw.extend_from_slice(message.properties);
            self.seen.asked = asked;
        }
        if !keys.is_empty() {
            let own_key = replies_to.is_none().then_some(key);
            let keys: Vec<&str> =
                own_key.into_iter().chain(keys.iter().map(String::as_str)).collect();
            own_route = Some(Route::of(&resolve(trunk, turn, exchange, &keys, &observed)?));
        }
        let place = place.unwrap_or_default();
        let route = own_route.as_ref().unwrap_or_else(|| trunk.routes.at(place));
        if route.dedups || asked.delay_ms.is_some() {
            asked.key = attributes::key(&properties);
        }
        let properties = amended.as_deref().unwrap_or(message.properties);
        let message = Message { properties, ..message };
        match replies_to {
            Some(address) => self.reply(trunk, turn, address, &message),
            None => self.store(trunk, turn, own_route.as_ref(), place, &asked, message),
        }
    }

    /// The return, if nobody took it and that was asked for; then the confirm.
    pub(crate) fn conclude(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        slots: u64,
        is_routed: bool,
        message: &Message<'_>,
    ) {
        if !is_routed {
            trunk.counts.unroutable += 1;
            if message.bits & MANDATORY != 0 {
                self.give_back(trunk, turn, message);
            }
        }
        if let Mode::Confirm(confirms) = &mut self.mode {
            if let Some(run) = confirms.expect(slots, trunk.appends.round()) {
                trunk.appends.remember(slots, self.at, run);
            }
            if slots == 0 && !self.is_touched {
                self.is_touched = true;
                trunk.touched.push(self.at.number);
            }
        }
    }

    /// `basic.return`; in a transaction it waits for the commit.
    fn give_back(&mut self, trunk: &mut Trunk, turn: &mut Turn<'_>, message: &Message<'_>) {
        trunk.counts.returned += 1;
        let (exchange, routing_key) = destination_texts(message.destination);
        let method = Method::BasicReturn(basic::Return {
            reply_code: ReplyCode::NoRoute.number(),
            reply_text: ReplyCode::NoRoute.name(),
            exchange,
            routing_key,
        });
        let out = match &mut self.mode {
            Mode::Tx(tx) => &mut tx.returns,
            Mode::Plain | Mode::Confirm(_) => &mut turn.out.bytes,
        };
        let mut encoder = amqp::Encoder::new(out, trunk.frame_bytes_max);
        encoder.method(self.at.number, &method);
        encoder.header(self.at.number, message.body.len() as u64, message.properties);
        encoder.body(self.at.number, message.body);
    }

    /// A message for a reply address: it goes to a session of this node and is never stored.
    fn reply(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        name: &str,
        message: &Message<'_>,
    ) -> Result<(), Failure> {
        let is_routed = turn.view.replies.is_open(name);
        if is_routed {
            turn.out.replies.push(ReplyOrder::Send(Reply {
                address: name.to_owned(),
                properties: Bytes::copy_from_slice(message.properties),
                body: Bytes::copy_from_slice(message.body),
            }));
        }
        self.conclude(trunk, turn, 0, is_routed, message);
        Ok(())
    }

    /// Checks the properties that mean something to the server, and says what is stored instead.
    fn amend(
        &self,
        trunk: &Trunk,
        properties: &Properties<'_>,
        raw: &[u8],
    ) -> Result<Amendments, Failure> {
        check_user_id(trunk, properties)?;
        let mut amendments = Amendments::default();
        amendments.asked.ttl_ms = attributes::ttl_ms(properties)?;
        amendments.asked.priority = properties.priority.unwrap_or(0);
        let mut has_bcc = false;
        for (name, value) in properties.headers.unwrap_or_default().iter() {
            match name {
                "CC" | "BCC" => {
                    has_bcc |= name == "BCC";
                    add_keys(name, &value, &mut amendments.keys)?;
                }
                attributes::DELAY => amendments.asked.delay_ms = attributes::delay_ms(&value),
                attributes::CANCEL => amendments.asked.cancels = attributes::key_of(&value),
                _ => {}
            }
        }
        if has_bcc || properties.reply_to == Some(REPLY_TO) {
            amendments.properties = Some(self.rewritten(properties, has_bcc)?);
        }
        if let Some(ms) = amendments.asked.delay_ms {
            // As RabbitMQ's plugin delivers it: who sees it knows of the delay and does not repeat it.
            let number = match i32::try_from(ms) {
                Ok(ms) => Number::I32(-ms),
                Err(_) => Number::I64(-i64::try_from(ms).unwrap_or(i64::MAX)),
            };
            let raw = amendments.properties.as_deref().unwrap_or(raw);
            amendments.properties = headers::with_number(raw, attributes::DELAY, number, false);
        }
        Ok(amendments)
    }

    /// The properties without the header BCC, and with the channel's reply address.
    fn rewritten(&self, properties: &Properties<'_>, has_bcc: bool) -> Result<BytesMut, Failure> {
        let mut amended = *properties;
        let without_bcc;
        if let (Some(headers), true) = (properties.headers, has_bcc) {
            let FieldTable(mut fields) = headers.to_table();
            fields.retain(|(name, _): &(String, FieldValue)| name != "BCC");
            without_bcc = FieldTable(fields).to_bytes();
            amended.headers = Some(TableRef::validate(&without_bcc)?);
        }
        if properties.reply_to == Some(REPLY_TO) {
            amended.reply_to = Some(self.reply_address()?);
        }
        let mut raw = BytesMut::new();
        amended.encode(&mut raw);
        Ok(raw)
    }
}

fn allow_publish(trunk: &Trunk, turn: &Turn<'_>, exchange: &str) -> Result<(), Failure> {
    let catalog = turn.view.catalog;
    auth::allow(catalog, &trunk.user, &trunk.vhost, Verb::Publish { exchange })
}

/// Where the catalog sends it.
fn resolve(
    trunk: &Trunk,
    turn: &Turn<'_>,
    exchange: &str,
    keys: &[&str],
    observed: &Observed<'_>,
) -> Result<Vec<Target>, Failure> {
    let mut targets = Vec::new();
    let routed = turn.view.catalog.route_keys(&trunk.vhost, exchange, keys, observed, &mut targets);
    match routed {
        Ok(()) => {}
        Err(RouteError::NoVhost | RouteError::NoExchange) => {
            return Err(no_exchange(exchange, &trunk.vhost));
        }
        Err(RouteError::Internal) => {
            let text = format!(
                "cannot publish to internal exchange '{exchange}' in vhost '{}'",
                trunk.vhost
            );
            return Err(Failure::channel(ReplyCode::AccessRefused, text));
        }
        Err(RouteError::TooManySteps) => {
            let text = format!(
                "routing from exchange '{exchange}' in vhost '{}' takes too many steps",
                trunk.vhost
            );
            return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
        }
    }
    Ok(targets)
}

fn check_user_id(trunk: &Trunk, properties: &Properties<'_>) -> Result<(), Failure> {
    match properties.user_id {
        Some(claimed) if claimed != trunk.user && !trunk.is_impersonator => {
            let text = format!(
                "user_id property set to '{claimed}' but authenticated user was '{}'",
                trunk.user
            );
            Err(Failure::channel(ReplyCode::PreconditionFailed, text))
        }
        Some(_) | None => Ok(()),
    }
}

/// The routing keys of a CC or BCC header: an array, in which what is no text is no key.
fn add_keys(name: &str, value: &ValueRef<'_>, keys: &mut Vec<String>) -> Result<(), Failure> {
    let unacceptable = |value: &ValueRef<'_>| {
        let text = format!(
            "invalid message: {{unacceptable_type_in_header,\"{name}\",{}}}",
            type_name(value)
        );
        Failure::channel(ReplyCode::PreconditionFailed, text)
    };
    let ValueRef::Array(array) = value else { return Err(unacceptable(value)) };
    for key in array.iter() {
        let ValueRef::LongStr(bytes) = key else { continue };
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= 255);
        keys.push(text.ok_or_else(|| unacceptable(&key))?.to_owned());
    }
    Ok(())
}
