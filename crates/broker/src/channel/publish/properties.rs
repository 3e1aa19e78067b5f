//! The properties of a message that mean something to the server: checked, and where they are not stored as they came,
//! written anew.

use amqp::{FieldTable, FieldValue, Properties, ReplyCode, TableRef, ValueRef};
use bytes::BytesMut;

use crate::attributes::{self, Asked};
use crate::channel::direct_reply_to::{REPLY_TO, Replies};
use crate::connection::client::Client;
use crate::errors::Failure;
use crate::headers::{self, Number};
use crate::values::type_name;

/// Properties are remembered up to this size.
const SEEN_BYTES_MAX: usize = 128;

/// The last properties that are stored as they came, and what they ask for: others of the same bytes need no second
/// look.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    raw: Vec<u8>,
    pub(super) asked: Asked,
}

impl Seen {
    #[inline]
    pub(super) fn knows(&self, raw: &[u8]) -> bool {
        !self.raw.is_empty() && self.raw == raw
    }

    /// Remembers properties, if nothing but their bytes matters.
    pub(super) fn note(&mut self, raw: &[u8], inspected: &Inspected) {
        self.raw.clear();
        if inspected.is_as_it_came() && raw.len() <= SEEN_BYTES_MAX {
            self.raw.extend_from_slice(raw);
            self.asked = inspected.asked;
        }
    }
}

/// What a look at the properties found.
#[derive(Debug, Default)]
pub(super) struct Inspected {
    pub(super) asked: Asked,
    /// The properties to store instead.
    pub(super) properties: Option<BytesMut>,
    /// More routing keys: CC and BCC.
    pub(super) keys: Vec<String>,
}

impl Inspected {
    fn is_as_it_came(&self) -> bool {
        let is_one_of_a_kind = self.asked.cancels.is_some() || self.asked.delay_ms.is_some();
        self.properties.is_none() && self.keys.is_empty() && !is_one_of_a_kind
    }
}

/// Checks the properties that mean something to the server, and says what is stored instead.
pub(super) fn inspect(
    client: &Client,
    replies: &Replies,
    properties: &Properties<'_>,
    raw: &[u8],
) -> Result<Inspected, Failure> {
    check_user_id(client, properties)?;
    let mut found = Inspected::default();
    found.asked.ttl_ms = attributes::ttl_ms(properties)?;
    found.asked.priority = properties.priority.unwrap_or(0);
    let mut has_bcc = false;
    for (name, value) in properties.headers.unwrap_or_default().iter() {
        match name {
            "CC" | "BCC" => {
                has_bcc |= name == "BCC";
                add_keys(name, &value, &mut found.keys)?;
            }
            attributes::DELAY => found.asked.delay_ms = attributes::delay_ms(&value),
            attributes::CANCEL => found.asked.cancels = attributes::key_of(&value),
            _ => {}
        }
    }
    if has_bcc || properties.reply_to == Some(REPLY_TO) {
        found.properties = Some(rewritten(properties, replies, has_bcc)?);
    }
    if let Some(ms) = found.asked.delay_ms {
        // As RabbitMQ's plugin delivers it: who sees it knows of the delay and does not repeat it.
        let number = match i32::try_from(ms) {
            Ok(ms) => Number::I32(-ms),
            Err(_) => Number::I64(-i64::try_from(ms).unwrap_or(i64::MAX)),
        };
        let raw = found.properties.as_deref().unwrap_or(raw);
        found.properties = headers::with_number(raw, attributes::DELAY, number, false);
    }
    Ok(found)
}

/// The properties without the header BCC, and with the channel's reply address.
fn rewritten(
    properties: &Properties<'_>,
    replies: &Replies,
    has_bcc: bool,
) -> Result<BytesMut, Failure> {
    let mut amended = *properties;
    let without_bcc;
    if let (Some(headers), true) = (properties.headers, has_bcc) {
        let FieldTable(mut fields) = headers.to_table();
        fields.retain(|(name, _): &(String, FieldValue)| name != "BCC");
        without_bcc = FieldTable(fields).to_bytes();
        amended.headers = Some(TableRef::validate(&without_bcc)?);
    }
    if properties.reply_to == Some(REPLY_TO) {
        amended.reply_to = Some(replies.address()?);
    }
    let mut raw = BytesMut::new();
    amended.encode(&mut raw);
    Ok(raw)
}

fn check_user_id(client: &Client, properties: &Properties<'_>) -> Result<(), Failure> {
    match properties.user_id {
        Some(claimed) if claimed != client.user && !client.is_impersonator => {
            let text = format!(
                "user_id property set to '{claimed}' but authenticated user was '{}'",
                client.user
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
