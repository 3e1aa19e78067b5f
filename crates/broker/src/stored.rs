//! The head of a stored message: exchange and routing key as on the wire, then its properties.

use amqp::Properties;
use bytes::{BufMut as _, BytesMut};
use machine::limits::NAME_BYTES_MAX;

const _: () = assert!(NAME_BYTES_MAX <= u8::MAX as usize);

/// Appends a head. Names that are longer than 255 bytes lose their ends.
pub fn write_head(exchange: &str, key: &str, properties: &Properties<'_>, out: &mut BytesMut) {
    put_destination(exchange, key, out);
    properties.encode(out);
}

/// Appends what a head begins with.
pub(crate) fn put_destination(exchange: &str, key: &str, out: &mut BytesMut) {
    for text in [short(exchange), short(key)] {
        out.put_u8(text.len() as u8);
        out.put_slice(text.as_bytes());
    }
}

/// As much of a text as fits where names and keys stand.
pub(crate) fn short(text: &str) -> &str {
    text.get(..text.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or(text)
}

/// Exchange and routing key, and the properties. None: it is no head.
pub fn split_head(head: &[u8]) -> Option<(&[u8], &[u8])> {
    let exchange = 1 + usize::from(*head.first()?);
    let key = 1 + usize::from(*head.get(exchange)?);
    head.split_at_checked(exchange + key)
}

/// Exchange and routing key from their bytes on the wire.
pub fn destination_texts(destination: &[u8]) -> (&str, &str) {
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    let Some((&length, rest)) = destination.split_first() else { return ("", "") };
    let (exchange, rest) = rest.split_at_checked(usize::from(length)).unwrap_or((rest, &[]));
    (text(exchange), text(rest.get(1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_split_behind_the_routing_key() {
        let head = b"\x02ex\x03key\x10\x00\x02";
        let (destination, properties) = split_head(head).unwrap();
        assert_eq!(destination_texts(destination), ("ex", "key"));
        assert_eq!(properties, b"\x10\x00\x02");
        assert!(split_head(b"\x02ex\x09key").is_none());
        assert!(split_head(b"").is_none());
    }

    #[test]
    fn what_is_written_is_found_again() {
        let properties = Properties { message_id: Some("seven"), ..Properties::default() };
        let (mut head, long) = (BytesMut::new(), "é".repeat(200));
        write_head("ex", &long, &properties, &mut head);
        let (destination, raw) = split_head(&head).unwrap();
        assert_eq!(destination_texts(destination), ("ex", &long[..254]));
        assert_eq!(Properties::decode(raw).unwrap().message_id, Some("seven"));
    }
}
