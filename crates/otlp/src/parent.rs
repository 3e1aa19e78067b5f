//! The trace context of a message: W3C Trace Context, version 00, as its headers `traceparent` and `tracestate` have it.
//!
//! ```text
//!   00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//!   version      trace id                 span id        flags
//! ```

use crate::limits::STATE_BYTES_MAX;

/// The trace may be recorded: only then its spans are wanted.
const SAMPLED: u8 = 1;

/// Bytes of a `traceparent`.
const BYTES: usize = 55;

/// The span that spans of a message are children of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub flags: u8,
    /// What tracing systems have noted beside, passed on as it is.
    pub state: String,
}

impl Parent {
    /// What the two headers say. `None`: the trace is not sampled, or `traceparent` is malformed or of another version.
    /// A malformed `tracestate` is left out.
    pub fn read(traceparent: &[u8], tracestate: Option<&[u8]>) -> Option<Self> {
        let text: &[u8; BYTES] = traceparent.try_into().ok()?;
        let is_shaped = text.starts_with(b"00-") && text[35] == b'-' && text[52] == b'-';
        if !is_shaped {
            return None;
        }
        let (trace_id, span_id) = (bytes(&text[3..35])?, bytes(&text[36..52])?);
        let [flags] = bytes(&text[53..])?;
        let is_valid = trace_id != [0; 16] && span_id != [0; 8];
        let state = tracestate.and_then(state).unwrap_or_default();
        (is_valid && flags & SAMPLED != 0).then_some(Self { trace_id, span_id, flags, state })
    }
}

/// Bytes from twice as many hexadecimal digits. Capitals are malformed (W3C Trace Context 3.2.2).
fn bytes<const COUNT: usize>(digits: &[u8]) -> Option<[u8; COUNT]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; COUNT];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn state(bytes: &[u8]) -> Option<String> {
    let is_plain = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
    let text = str::from_utf8(bytes).ok()?;
    (is_plain && bytes.len() <= STATE_BYTES_MAX).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(text: &str) -> Option<Parent> {
        Parent::read(text.as_bytes(), None)
    }

    #[test]
    fn a_sampled_traceparent_is_read() {
        let parent = read(GOOD).unwrap();
        assert_eq!(parent.trace_id[..3], [0x0a, 0xf7, 0x65]);
        assert_eq!(parent.span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        assert_eq!((parent.flags, parent.state.as_str()), (1, ""));
        assert_eq!(read(&GOOD.replace("-01", "-ff")).unwrap().flags, 0xff);
    }

    #[test]
    fn what_is_malformed_or_not_sampled_is_no_parent() {
        let wrong = [
            String::new(),
            GOOD.replace("-01", "-00"),
            GOOD.replace("-01", "-02"),
            GOOD.replace("-01", ""),
            GOOD.replace("-01", "-0g"),
            GOOD.replace("00-", "01-"),
            GOOD.replace("00-", "ff-"),
            GOOD.replace("0af7", "0AF7"),
            GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
            GOOD.replace("-b7ad", "_b7ad"),
            format!("{GOOD}-00"),
            format!(" {GOOD}"),
        ];
        for text in wrong {
            assert_eq!(read(&text), None, "{text:?}");
        }
    }

    #[test]
    fn a_tracestate_is_passed_on_unless_it_is_malformed_or_long() {
        let state = |state: &[u8]| Parent::read(GOOD.as_bytes(), Some(state)).unwrap().state;
        assert_eq!(state(b"vendor=1,other=t61rcWkgMzE"), "vendor=1,other=t61rcWkgMzE");
        assert_eq!(state(b"vendor=\n1"), "");
        assert_eq!(state("vendor=é".as_bytes()), "");
        assert_eq!(state(&[b'a'; STATE_BYTES_MAX]).len(), STATE_BYTES_MAX);
        assert_eq!(state(&[b'a'; STATE_BYTES_MAX + 1]), "");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_not(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Parent::read(&bytes, Some(&bytes));
        }

        #[test]
        fn a_byte_that_is_changed_makes_another_parent_or_none(at in 0..BYTES, byte: u8) {
            let mut bytes = GOOD.as_bytes().to_vec();
            prop_assume!(bytes[at] != byte);
            bytes[at] = byte;
            prop_assert_ne!(Parent::read(&bytes, None), read(GOOD));
        }
    }
}
