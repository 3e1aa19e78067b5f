//! What is read of a stored head: the routing key, one header, one of the properties that are short texts.
//!
//! A head is exchange and routing key, each behind a length of one byte, then the properties as they came. Nothing else
//! in this crate looks into heads. Reading is total, and copies nothing.

/// It is no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// A header's value, as far as a filter or a key has a use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    Text(&'a [u8]),
    Integer(i64),
    Bool(bool),
    /// Bytes that are no text.
    Bytes(&'a [u8]),
    /// Seconds since 1970.
    Timestamp(u64),
    /// No text equals it.
    Other,
}

impl Found<'_> {
    /// Whether it is what the text says: a text itself, a number in decimal digits, `true` or `false`.
    pub(crate) fn is(self, text: &str) -> bool {
        match self {
            Self::Text(own) => own == text.as_bytes(),
            Self::Integer(own) => text.parse() == Ok(own),
            Self::Bool(own) => text == if own { "true" } else { "false" },
            Self::Bytes(_) | Self::Timestamp(_) | Self::Other => false,
        }
    }
}

/// The routing key of the publish.
pub(crate) fn routing_key(head: &[u8]) -> Option<&[u8]> {
    let mut left = head;
    short(&mut left).ok()?;
    short(&mut left).ok()
}

/// The properties behind exchange and routing key.
pub(crate) fn properties(head: &[u8]) -> Result<&[u8], Unreadable> {
    let mut left = head;
    short(&mut left)?;
    short(&mut left)?;
    Ok(left)
}

// Bits of the properties, which stand in this order.
const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PRIORITY: u16 = 1 << 11;
const CORRELATION_ID: u16 = 1 << 10;
const REPLY_TO: u16 = 1 << 9;
const EXPIRATION: u16 = 1 << 8;
const MESSAGE_ID: u16 = 1 << 7;
const TIMESTAMP: u16 = 1 << 6;
const KIND: u16 = 1 << 5;
const USER_ID: u16 = 1 << 4;

/// The id of what, of the properties that are short texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Correlation,
    Message,
    User,
}

/// One of the properties.
pub(crate) fn id(properties: &[u8], which: Id) -> Result<Option<&[u8]>, Unreadable> {
    let mut left = properties;
    let flags = u16::from_be_bytes(array(&mut left)?);
    let wanted = match which {
        Id::Correlation => CORRELATION_ID,
        Id::Message => MESSAGE_ID,
        Id::User => USER_ID,
    };
    if flags & wanted == 0 {
        return Ok(None);
    }
    let before = [
        CONTENT_TYPE,
        CONTENT_ENCODING,
        HEADERS,
        DELIVERY_MODE,
        PRIORITY,
        CORRELATION_ID,
        REPLY_TO,
        EXPIRATION,
        MESSAGE_ID,
        TIMESTAMP,
        KIND,
    ];
    for bit in before.into_iter().filter(|bit| *bit > wanted && flags & *bit != 0) {
        match bit {
            HEADERS => long(&mut left).map(|_| ())?,
            DELIVERY_MODE | PRIORITY => take(&mut left, 1).map(|_| ())?,
            TIMESTAMP => take(&mut left, 8).map(|_| ())?,
            _ => short(&mut left).map(|_| ())?,
        }
    }
    short(&mut left).map(Some)
}

/// The first header of this name.
pub(crate) fn header<'a>(
    properties: &'a [u8],
    name: &str,
) -> Result<Option<Found<'a>>, Unreadable> {
    let mut left = properties;
    let flags = u16::from_be_bytes(array(&mut left)?);
    for _ in [CONTENT_TYPE, CONTENT_ENCODING].iter().filter(|bit| flags & **bit != 0) {
        short(&mut left)?;
    }
    if flags & HEADERS == 0 {
        return Ok(None);
    }
    let mut table = long(&mut left)?;
    while !table.is_empty() {
        let key = short(&mut table)?;
        let value = value(&mut table)?;
        if key == name.as_bytes() {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// A value behind the letter of its type, as AMQP 0-9-1 and RabbitMQ write it.
fn value<'a>(left: &mut &'a [u8]) -> Result<Found<'a>, Unreadable> {
    let [kind] = array(left)?;
    Ok(match kind {
        b't' => Found::Bool(array::<1>(left)? != [0]),
        b'b' => Found::Integer(i8::from_be_bytes(array(left)?).into()),
        b'B' => Found::Integer(u8::from_be_bytes(array(left)?).into()),
        b's' => Found::Integer(i16::from_be_bytes(array(left)?).into()),
        b'u' => Found::Integer(u16::from_be_bytes(array(left)?).into()),
        b'I' => Found::Integer(i32::from_be_bytes(array(left)?).into()),
        b'i' => Found::Integer(u32::from_be_bytes(array(left)?).into()),
        b'l' => Found::Integer(i64::from_be_bytes(array(left)?)),
        b'S' => Found::Text(long(left)?),
        b'f' => array::<4>(left).map(|_| Found::Other)?,
        b'T' => Found::Timestamp(u64::from_be_bytes(array(left)?)),
        b'd' => array::<8>(left).map(|_| Found::Other)?,
        b'D' => array::<5>(left).map(|_| Found::Other)?,
        b'V' => Found::Other,
        b'x' => Found::Bytes(long(left)?),
        b'A' | b'F' => long(left).map(|_| Found::Other)?,
        _ => return Err(Unreadable),
    })
}

fn take<'a>(left: &mut &'a [u8], count: usize) -> Result<&'a [u8], Unreadable> {
    let (taken, rest) = left.split_at_checked(count).ok_or(Unreadable)?;
    *left = rest;
    Ok(taken)
}

fn array<const N: usize>(left: &mut &[u8]) -> Result<[u8; N], Unreadable> {
    take(left, N)?.try_into().map_err(|_| Unreadable)
}

/// Bytes behind a length of one byte.
fn short<'a>(left: &mut &'a [u8]) -> Result<&'a [u8], Unreadable> {
    let [count] = array(left)?;
    take(left, count.into())
}

/// Bytes behind a length of four bytes.
fn long<'a>(left: &mut &'a [u8]) -> Result<&'a [u8], Unreadable> {
    let count = u32::from_be_bytes(array(left)?);
    take(left, count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exchange `ex`, key `key`, a content type, and headers of several types.
    const HEAD: &[u8] = b"\x02ex\x03key\xa0\x00\x04text\x00\x00\x00\x2d\
        \x01aS\x00\x00\x00\x02eu\x01bI\xff\xff\xff\xff\x01ct\x01\x01ff\x00\x00\x00\x00\
        \x01xF\x00\x00\x00\x04\x01zb\x07\x01al\x00\x00\x00\x00\x00\x00\x00\x09";

    #[test]
    fn the_first_header_of_a_name_is_found_among_any_others() {
        let head = HEAD;
        assert_eq!(routing_key(head), Some(&b"key"[..]));
        // The table ends where its length says.
        let header = |name| header(properties(head).unwrap(), name);
        assert_eq!(header("a"), Ok(Some(Found::Text(b"eu"))));
        assert_eq!(header("b"), Ok(Some(Found::Integer(-1))));
        assert_eq!(header("c"), Ok(Some(Found::Bool(true))));
        assert_eq!(header("f"), Ok(Some(Found::Other)));
        assert_eq!(super::header(b"\x00\x00", "a"), Ok(None));
    }

    #[test]
    fn any_cut_of_a_head_is_read_without_panic() {
        for end in 0..HEAD.len() {
            let Ok(properties) = properties(&HEAD[..end]) else { continue };
            let _ = header(properties, "none");
            let _ = id(properties, Id::User);
            let _ = routing_key(&HEAD[..end]);
        }
    }

    #[test]
    fn an_id_is_found_behind_all_that_stand_before_it() {
        // All properties that stand before the user's id, and it.
        let all = b"\xff\xf0\x01a\x01b\x00\x00\x00\x00\x02\x07\x01c\x01d\x01e\x01f\
            \x00\x00\x00\x00\x00\x00\x00\x09\x01g\x01h";
        let found = |which| id(all, which);
        assert_eq!(found(Id::Correlation), Ok(Some(&b"c"[..])));
        assert_eq!(found(Id::Message), Ok(Some(&b"f"[..])));
        assert_eq!(found(Id::User), Ok(Some(&b"h"[..])));
        assert_eq!(id(b"\x00\x10\x01u", Id::User), Ok(Some(&b"u"[..])));
        assert_eq!(id(b"\x00\x00", Id::Message), Ok(None));
        assert_eq!(id(b"\x00\x80", Id::Message), Err(Unreadable));
    }

    #[test]
    fn numbers_and_truth_are_compared_as_they_are_written() {
        assert!(Found::Integer(-1).is("-1") && !Found::Integer(1).is("one"));
        assert!(Found::Bool(true).is("true") && !Found::Bool(false).is("true"));
        assert!(Found::Text(b"eu").is("eu") && !Found::Text(b"eu").is("e"));
        assert!(!Found::Other.is(""));
    }
}
