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

/// A channel remembers at most so many different properties: a power of two.
const SEEN_MAX: usize = 16;

/// Properties that a publisher used lately, and what they ask for. Equal bytes ask for the same, so they are not decoded
/// again. Only properties that are stored as they came are here.
///
/// The last byte chooses the place, and the newest properties of a place stay. A priority is the last byte, unless a
/// later field follows it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Empty until the first are remembered, then `SEEN_MAX` places.
    places: Vec<Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    raw: Vec<u8>,
    asked: Asked,
}

impl Seen {
    /// What these properties ask for, if they are known.
    #[inline]
    pub(super) fn find(&self, raw: &[u8]) -> Option<Asked> {
        let known = self.places.get(Self::place(raw))?;
        (!known.raw.is_empty() && known.raw == raw).then_some(known.asked)
    }

    /// Remembers properties, if nothing but their bytes matters.
    pub(super) fn note(&mut self, raw: &[u8], inspected: &Inspected) {
        if !inspected.is_as_it_came() || raw.len() > SEEN_BYTES_MAX {
            return;
        }
        if self.places.is_empty() {
            self.places = vec![Known::default(); SEEN_MAX];
        }
        let known = &mut self.places[Self::place(raw)];
        known.raw.clear();
        known.raw.extend_from_slice(raw);
        known.asked = inspected.asked;
    }

    fn place(raw: &[u8]) -> usize {
        usize::from(raw.last().copied().unwrap_or(0)) % SEEN_MAX
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
            attributes::DELAY => found.asked.delay_ms = attributes::delay_ms(value),
            attributes::CANCEL => found.asked.cancels = attributes::key_of(value),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(seen: &mut Seen, raw: &[u8], priority: u8) {
        let asked = Asked { priority, ..Asked::default() };
        seen.note(raw, &Inspected { asked, ..Inspected::default() });
    }

    fn found(seen: &Seen, raw: &[u8]) -> Option<u8> {
        seen.find(raw).map(|asked| asked.priority)
    }

    #[test]
    fn properties_that_differ_in_their_priority_are_all_remembered() {
        let mut seen = Seen::default();
        (0..10).for_each(|priority| noted(&mut seen, &[0x18, 0, 2, priority], priority));
        for priority in 0..10 {
            assert_eq!(found(&seen, &[0x18, 0, 2, priority]), Some(priority));
        }
        assert_eq!(found(&seen, &[0x18, 0, 1, 3]), None, "other bytes are no hit");
        assert_eq!(found(&seen, &[]), None);
    }

    #[test]
    fn the_newest_stay_where_places_are_shared_and_no_more_are_kept_than_there_are_places() {
        let mut seen = Seen::default();
        for first in 0..=255 {
            noted(&mut seen, &[first, 7], 1);
        }
        assert_eq!((found(&seen, &[255, 7]), found(&seen, &[254, 7])), (Some(1), None));
        assert_eq!(seen.places.len(), SEEN_MAX);
    }

    #[test]
    fn large_properties_and_those_that_are_not_stored_as_they_came_are_not_remembered() {
        let mut seen = Seen::default();
        let large = [1; SEEN_BYTES_MAX + 1];
        noted(&mut seen, &large, 1);
        let cancels = Asked { cancels: Some(1), ..Asked::default() };
        seen.note(&[3], &Inspected { asked: cancels, ..Inspected::default() });
        assert_eq!((found(&seen, &large), found(&seen, &[3])), (None, None));
    }
}
