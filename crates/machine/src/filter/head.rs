//! What a filter reads of a stored head: the routing key, and one header.
//!
//! A head is exchange and routing key, each behind a length of one byte, then the properties as they came. Nothing else
//! in this crate looks into heads. Reading is total, and copies nothing.

/// It is no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// A header's value, as far as a filter compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Text(&'a [u8]),
    Integer(i64),
    Bool(bool),
    /// No text equals it.
    Other,
}

impl Found<'_> {
    /// Whether it is what the text says: a text itself, a number in decimal digits, `true` or `false`.
    pub(super) fn is(self, text: &str) -> bool {
        match self {
            Self::Text(own) => own == text.as_bytes(),
            Self::Integer(own) => text.parse() == Ok(own),
            Self::Bool(own) => text == if own { "true" } else { "false" },
            Self::Other => false,
        }
    }
}

/// The routing key of the publish.
pub(super) fn routing_key(head: &[u8]) -> Option<&[u8]> {
    let mut left = head;
    short(&mut left).ok()?;
    short(&mut left).ok()
}

// Bits of the properties that come first.
const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;

/// The first header of this name.
pub(super) fn header<'a>(head: &'a [u8], name: &str) -> Result<Option<Found<'a>>, Unreadable> {
    let mut left = head;
    short(&mut left)?;
    short(&mut left)?;
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
        b'd' | b'T' => array::<8>(left).map(|_| Found::Other)?,
        b'D' => array::<5>(left).map(|_| Found::Other)?,
        b'V' => Found::Other,
        b'x' | b'A' | b'F' => long(left).map(|_| Found::Other)?,
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
        assert_eq!(header(head, "a"), Ok(Some(Found::Text(b"eu"))));
        assert_eq!(header(head, "b"), Ok(Some(Found::Integer(-1))));
        assert_eq!(header(head, "c"), Ok(Some(Found::Bool(true))));
        assert_eq!(header(head, "f"), Ok(Some(Found::Other)));
        assert_eq!(header(b"\x00\x00\x00\x00", "a"), Ok(None));
    }

    #[test]
    fn any_cut_of_a_head_is_read_without_panic() {
        for end in 0..HEAD.len() {
            let _ = header(&HEAD[..end], "none");
            let _ = routing_key(&HEAD[..end]);
        }
    }

    #[test]
    fn numbers_and_truth_are_compared_as_they_are_written() {
        assert!(Found::Integer(-1).is("-1") && !Found::Integer(1).is("one"));
        assert!(Found::Bool(true).is("true") && !Found::Bool(false).is("true"));
        assert!(Found::Text(b"eu").is("eu") && !Found::Text(b"eu").is("e"));
        assert!(!Found::Other.is(""));
    }
}
