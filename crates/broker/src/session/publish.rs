//! Publishing: frames to a message, a message to its queues' batches. The hot way in: a message that lies whole
//! in the read buffer and goes where the last one went is copied once, into its group's batch.

use amqp::{
    BodyCount, CLASS_BASIC, FieldTable, FieldValue, Frame, Method, Properties, ReplyCode, TableRef,
    ValueRef, basic,
};
use bytes::{Bytes, BytesMut};
use machine::RouteError;

use super::channel::{Channel, Mode};
use super::deliveries::destination_texts;
use super::errors::{Failure, no_exchange};
use super::reply_to::{REPLY_TO, REPLY_TO_PREFIX};
use super::routes::Route;
use super::trunk::{Trunk, Turn};
use super::values::{ObservedHeaders, type_name};
use super::{Reply, ReplyOrder};
use crate::auth::{self, Verb};
use crate::limits;

const MANDATORY: u8 = 1;
const IMMEDIATE: u8 = 2;

/// Properties that need no second look are remembered up to this size.
const PLAIN_PROPERTIES_BYTES_MAX: usize = 128;

/// A message whose frames have not all come.
#[derive(Debug)]
pub(crate) struct Content {
    /// Exchange and routing key as on the wire.
    destination: Vec<u8>,
    bits: u8,
    announced: Option<Announced>,
}

#[derive(Debug)]
struct Announced {
    properties: Vec<u8>,
    count: BodyCount,
    body: Vec<u8>,
}

/// A whole message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    destination: &'a [u8],
    bits: u8,
    properties: &'a [u8],
    body: &'a [u8],
}

/// What a second look at the properties found.
#[derive(Debug, Default)]
struct Amendments {
    /// The properties to store instead.
    properties: Option<BytesMut>,
    /// More routing keys: CC and BCC.
    keys: Vec<String>,
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

impl Channel {
    /// `basic.publish`. Takes the content along if all of it is in `rest`; says how much of it.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        decoder: &amqp::Decoder,
        payload: &[u8],
        rest: &[u8],
    ) -> Result<usize, Failure> {
        let version = turn.view.catalog.version();
        let (destination, bits) = match split_publish(payload) {
            Some(found) if trunk.routes.find(version, found.0).is_some() => found,
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
        if let Some((properties, body, used)) = whole_content(decoder, self.at.number, rest)?
            && body.len() as u64 <= trunk.config.message_bytes_max
        {
            self.message(trunk, turn, Message { destination, bits, properties, body })?;
            return Ok(used);
        }
        let destination = destination.to_vec();
        self.content = Some(Box::new(Content { destination, bits, announced: None }));
        Ok(0)
    }

    /// A content header.
    pub(crate) fn content_header(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        class_id: u16,
        body_bytes: u64,
        properties: &[u8],
    ) -> Result<(), Failure> {
        let Some(content) = &mut self.content else { return Err(no_content("header")) };
        if content.announced.is_some() {
            return Err(expected_body());
        }
        if class_id != CLASS_BASIC {
            let text = format!(
                "expected content header for class {CLASS_BASIC}, got one for class {class_id} instead"
            );
            return Err(Failure::connection(ReplyCode::UnexpectedFrame, text));
        }
        judge_size(trunk, body_bytes)?;
        content.announced = Some(Announced {
            properties: properties.to_vec(),
            count: BodyCount::new(body_bytes),
            body: Vec::new(),
        });
        self.content_if_complete(trunk, turn)
    }

    /// A part of a body.
    pub(crate) fn content_body(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let Some(content) = &mut self.content else { return Err(no_content("body")) };
        let Some(announced) = &mut content.announced else { return Err(expected_header()) };
        announced.count.accept(payload.len())?;
        let budget = limits::PARTIAL_BODIES_MESSAGES * trunk.config.message_bytes_max;
        trunk.partial_bytes += payload.len() as u64;
        if trunk.partial_bytes > budget {
            let text = format!("bodies that have begun hold more than {budget} bytes");
            return Err(Failure::connection(ReplyCode::ResourceError, text));
        }
        announced.body.extend_from_slice(payload);
        self.content_if_complete(trunk, turn)
    }

    fn content_if_complete(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
    ) -> Result<(), Failure> {
        let is_complete = |content: &mut Box<Content>| {
            content.announced.as_ref().is_some_and(|announced| announced.count.is_complete())
        };
        let Some(content) = self.content.take_if(is_complete) else { return Ok(()) };
        let Some(announced) = &content.announced else { return Ok(()) };
        trunk.partial_bytes -= announced.body.len() as u64;
        let message = Message {
            destination: &content.destination,
            bits: content.bits,
            properties: &announced.properties,
            body: &announced.body,
        };
        self.message(trunk, turn, message)
    }

    /// The channel is at its end: what had begun will not come.
    pub(crate) fn drop_content(&mut self, trunk: &mut Trunk) {
        if let Some(content) = self.content.take()
            && let Some(announced) = content.announced
        {
            trunk.partial_bytes -= announced.body.len() as u64;
        }
    }

    /// A method where content was due.
    pub(crate) fn content_missing(&self) -> Option<Failure> {
        let content = self.content.as_ref()?;
        Some(if content.announced.is_some() { expected_body() } else { expected_header() })
    }

    /// Stores a message where it is routed, and returns or confirms it.
    fn message(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        message: Message<'_>,
    ) -> Result<(), Failure> {
        trunk.has_published = true;
        trunk.counts.published += 1;
        let is_plain =
            !self.plain_properties.is_empty() && self.plain_properties == message.properties;
        let properties =
            if is_plain { None } else { Some(Properties::decode(message.properties)?) };

        let version = turn.view.catalog.version();
        let known = trunk.routes.find(version, message.destination);
        let mut own_route = None;
        let mut replies_to = None;
        if known.is_none() {
            let properties = match properties {
                Some(properties) => properties,
                None => Properties::decode(message.properties)?,
            };
            let (exchange, key) = destination_texts(message.destination);
            allow_publish(trunk, turn, exchange)?;
            if exchange.is_empty() && key.starts_with(REPLY_TO_PREFIX) {
                replies_to = Some(key);
                own_route = Some(Route::default());
            } else {
                let headers = ObservedHeaders::new(properties.headers);
                let route = resolve(trunk, turn, exchange, key, &headers)?;
                if headers.was_asked() {
                    own_route = Some(route);
                } else {
                    trunk.routes.keep(version, message.destination, route);
                }
            }
        }

        let mut amendments = Amendments::default();
        if let Some(properties) = &properties {
            amendments = self.amend(trunk, properties)?;
            let is_plain = amendments.properties.is_none() && amendments.keys.is_empty();
            self.plain_properties.clear();
            if is_plain && message.properties.len() <= PLAIN_PROPERTIES_BYTES_MAX {
                self.plain_properties.extend_from_slice(message.properties);
            }
        }
        if !amendments.keys.is_empty() {
            let mut all = match own_route.take() {
                Some(route) => route,
                None => known_route(trunk, version, message.destination),
            };
            let (exchange, _) = destination_texts(message.destination);
            let headers = ObservedHeaders::new(properties.and_then(|known| known.headers));
            for key in &amendments.keys {
                let more = resolve(trunk, turn, exchange, key, &headers)?;
                for (group, queues) in more.groups {
                    queues.into_iter().for_each(|queue| all.add(group, queue));
                }
            }
            own_route = Some(all);
        }
        let raw_properties = amendments.properties.as_deref().unwrap_or(message.properties);

        if let Some(name) = replies_to {
            return self.reply(trunk, turn, name, raw_properties, &message);
        }
        let place = match &own_route {
            Some(_) => 0,
            None => {
                let found = trunk.routes.find(version, message.destination);
                found.expect("the route was found or kept just now")
            }
        };
        let route = own_route.as_ref().unwrap_or_else(|| trunk.routes.at(place));
        let head = [message.destination, raw_properties];
        let is_routed = !route.is_empty();
        let slots = match &mut self.mode {
            Mode::Tx(tx) => {
                tx.enqueue(route, &head, message.body)?;
                Some(0)
            }
            Mode::Plain | Mode::Confirm(_) if route.groups.len() > limits::APPEND_SLOTS_MAX => None,
            Mode::Plain | Mode::Confirm(_) => {
                if trunk.appends.is_full(route.groups.len()) {
                    trunk.appends.flush(&mut trunk.tickets, &mut turn.out.requests);
                }
                let mut slots = 0;
                for (group, queues) in &route.groups {
                    slots |= trunk.appends.enqueue(*group, queues, &head, message.body);
                }
                Some(slots)
            }
        };
        match slots {
            Some(slots) => self.conclude(trunk, turn, slots, is_routed, raw_properties, &message),
            None => {
                let route = route.clone();
                self.store_wide(trunk, turn, &route, &head, message.body);
            }
        }
        Ok(())
    }

    /// A message for more groups than are gathered for at once: so many at a time.
    fn store_wide(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        route: &Route,
        head: &[&[u8]],
        body: &[u8],
    ) {
        let groups = u32::try_from(route.groups.len()).expect("there are few groups");
        let run = match &mut self.mode {
            Mode::Confirm(confirms) => Some(confirms.expect_wide(groups)),
            Mode::Plain | Mode::Tx(_) => None,
        };
        for groups in route.groups.chunks(limits::APPEND_SLOTS_MAX) {
            trunk.appends.flush(&mut trunk.tickets, &mut turn.out.requests);
            for (group, queues) in groups {
                let slot = trunk.appends.enqueue(*group, queues, head, body);
                if let Some(run) = run {
                    trunk.appends.remember(slot, self.at, run);
                }
            }
        }
    }

    /// The return, if nobody took it and that was asked for; then the confirm.
    fn conclude(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        slots: u64,
        is_routed: bool,
        raw_properties: &[u8],
        message: &Message<'_>,
    ) {
        if !is_routed {
            trunk.counts.unroutable += 1;
            if message.bits & MANDATORY != 0 {
                self.give_back(trunk, turn, raw_properties, message);
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
    fn give_back(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        raw_properties: &[u8],
        message: &Message<'_>,
    ) {
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
        encoder.header(self.at.number, message.body.len() as u64, raw_properties);
        encoder.body(self.at.number, message.body);
    }

    /// A message for a reply address: it goes to a session of this node and is never stored.
    fn reply(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        name: &str,
        raw_properties: &[u8],
        message: &Message<'_>,
    ) -> Result<(), Failure> {
        let is_routed = turn.view.replies.is_open(name);
        if is_routed {
            turn.out.replies.push(ReplyOrder::Send(Reply {
                address: name.to_owned(),
                properties: Bytes::copy_from_slice(raw_properties),
                body: Bytes::copy_from_slice(message.body),
            }));
        }
        self.conclude(trunk, turn, 0, is_routed, raw_properties, message);
        Ok(())
    }

    /// Checks the properties that mean something to the server, and says what is stored instead.
    fn amend(
        &mut self,
        trunk: &mut Trunk,
        properties: &Properties<'_>,
    ) -> Result<Amendments, Failure> {
        check_user_id(trunk, properties)?;
        check_expiration(properties)?;
        let mut amendments = Amendments::default();
        let mut amended = *properties;
        let mut without_bcc = BytesMut::new();
        if let Some(headers) = properties.headers {
            let mut has_bcc = false;
            for (name, value) in headers.iter() {
                if name == "CC" || name == "BCC" {
                    has_bcc |= name == "BCC";
                    add_keys(name, &value, &mut amendments.keys)?;
                }
            }
            if has_bcc {
                let FieldTable(mut fields) = headers.to_table();
                fields.retain(|(name, _): &(String, FieldValue)| name != "BCC");
                without_bcc = FieldTable(fields).to_bytes();
                amended.headers = Some(TableRef::validate(&without_bcc)?);
            }
        }
        let address;
        if properties.reply_to == Some(REPLY_TO) {
            address = self.reply_address()?.to_owned();
            amended.reply_to = Some(&address);
        }
        if amended != *properties {
            let mut raw = BytesMut::new();
            amended.encode(&mut raw);
            amendments.properties = Some(raw);
        }
        drop(without_bcc);
        Ok(amendments)
    }
}

/// Properties and body right behind a publish, and how many bytes their frames take.
type WholeContent<'a> = (&'a [u8], &'a [u8], usize);

/// The content of a publish, if all of it is in `rest`.
#[inline]
fn whole_content<'a>(
    decoder: &amqp::Decoder,
    channel: u16,
    rest: &'a [u8],
) -> Result<Option<WholeContent<'a>>, Failure> {
    let Some((header, used)) = decoder.decode(rest)? else { return Ok(None) };
    let Frame::Header { channel: of, class_id: CLASS_BASIC, body_bytes, properties } = header
    else {
        return Ok(None);
    };
    if of != channel {
        return Ok(None);
    }
    if body_bytes == 0 {
        return Ok(Some((properties, &[], used)));
    }
    let Some(behind) = rest.get(used..) else { return Ok(None) };
    let Some((Frame::Body { channel: of, payload }, more)) = decoder.decode(behind)? else {
        return Ok(None);
    };
    if of != channel || payload.len() as u64 != body_bytes {
        return Ok(None);
    }
    Ok(Some((properties, payload, used + more)))
}

fn judge_size(trunk: &Trunk, body_bytes: u64) -> Result<(), Failure> {
    let max = trunk.config.message_bytes_max;
    if i64::try_from(body_bytes).is_err() {
        let text = format!("a content header announces {body_bytes} bytes");
        return Err(Failure::connection(ReplyCode::FrameError, text));
    }
    if body_bytes > max {
        let text = format!("message size {body_bytes} is larger than configured max size {max}");
        return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
    }
    Ok(())
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
    key: &str,
    headers: &ObservedHeaders<'_>,
) -> Result<Route, Failure> {
    let mut targets = Vec::new();
    let routed = turn.view.catalog.route(&trunk.vhost, exchange, key, headers, &mut targets);
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
    let mut route = Route::default();
    for target in targets {
        route.add_new(target.group, target.queue);
    }
    Ok(route)
}

fn known_route(trunk: &mut Trunk, version: u64, destination: &[u8]) -> Route {
    let found = trunk.routes.find(version, destination);
    found.map(|place| trunk.routes.at(place).clone()).unwrap_or_default()
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

fn check_expiration(properties: &Properties<'_>) -> Result<(), Failure> {
    let Some(text) = properties.expiration else { return Ok(()) };
    let problem = match text.parse::<i64>() {
        Ok(ms) if ms >= 0 && u32::try_from(ms).is_ok() => return Ok(()),
        Ok(ms) if ms < 0 => format!("{{value_negative,{ms}}}"),
        Ok(ms) => format!("{{value_too_big,{ms}}}"),
        Err(_) if text.starts_with(|first: char| first.is_ascii_digit()) => {
            let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            format!("{{leftover_string,\"{}\"}}", &text[digits..])
        }
        Err(_) => "no_integer".to_owned(),
    };
    let text = format!("invalid expiration '{text}': {problem}");
    Err(Failure::channel(ReplyCode::PreconditionFailed, text))
}

/// The routing keys of a CC or BCC header: an array of long strings.
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
        let ValueRef::LongStr(bytes) = key else { return Err(unacceptable(&key)) };
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= 255);
        keys.push(text.ok_or_else(|| unacceptable(&key))?.to_owned());
    }
    Ok(())
}

fn no_content(kind: &str) -> Failure {
    let text = format!("expected method frame, got content {kind} frame instead");
    Failure::connection(ReplyCode::UnexpectedFrame, text)
}

fn expected_header() -> Failure {
    let text = format!(
        "expected content header for class {CLASS_BASIC}, got non content header frame instead"
    );
    Failure::connection(ReplyCode::UnexpectedFrame, text)
}

fn expected_body() -> Failure {
    Failure::connection(
        ReplyCode::UnexpectedFrame,
        "expected content body, got non content body frame instead",
    )
}
