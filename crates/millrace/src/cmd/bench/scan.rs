//! Walks over received bytes and looks only at what a load generator must see.
//!
//! `amqp::Decoder` makes every frame a value; at hundreds of thousands of messages a second from
//! the two cores that the server needs as well, that is half of the budget. So deliveries and
//! confirms are recognised by their first bytes, counted where they lie, and every other method is
//! handed over whole, for `amqp` to decode. Nothing is taken on trust: sizes and frame ends are
//! checked for each frame.

const HEADER_BYTES: usize = 7;
const FRAME_END: u8 = 0xCE;
const BASIC: u16 = 60;
const DELIVER: u32 = id(BASIC, 60);
const ACK: u32 = id(BASIC, 80);
const NACK: u32 = id(BASIC, 120);

const fn id(class: u16, method: u16) -> u32 {
    ((class as u32) << 16) | method as u32
}

/// What a worker wants to hear. Each call may end the run with a sentence that says why.
pub(super) trait Listener {
    fn delivered(&mut self, _tag: u64, _redelivered: bool) -> Result<(), String> {
        Err("the server delivered a message to a connection that does not consume".into())
    }

    fn confirmed(&mut self, _tag: u64, _multiple: bool, _positive: bool) -> Result<(), String> {
        Err("the server confirmed a message on a channel that is not in confirm mode".into())
    }

    /// A content header: how long the body is.
    fn content(&mut self, body_bytes: u64) -> Result<(), String>;

    /// A part of a body.
    fn body(&mut self, part: &[u8]) -> Result<(), String>;

    /// Any other method; `payload` begins with its class and method ids.
    fn method(&mut self, channel: u16, payload: &[u8]) -> Result<(), String>;
}

/// Tells `listener` about every whole frame in `input`; gives how many bytes they took.
///
/// # Errors
/// The bytes are not AMQP, a frame is larger than `frame_max`, or the listener gave up.
#[inline]
pub(super) fn scan<L: Listener>(
    input: &[u8],
    frame_max: usize,
    listener: &mut L,
) -> Result<usize, String> {
    let mut at = 0;
    while let Some(header) = input.get(at..at + HEADER_BYTES) {
        let size = u32::from_be_bytes([header[3], header[4], header[5], header[6]]) as usize;
        if size + HEADER_BYTES + 1 > frame_max {
            return Err(format!("the server sent a frame of {size} bytes, more than agreed"));
        }
        let end = at + HEADER_BYTES + size;
        let Some(&last) = input.get(end) else { break };
        if last != FRAME_END {
            return Err("a frame from the server does not end with 0xCE".into());
        }
        let payload = &input[at + HEADER_BYTES..end];
        match header[0] {
            1 => method(u16::from_be_bytes([header[1], header[2]]), payload, listener)?,
            2 => listener.content(content_header(payload)?)?,
            3 => listener.body(payload)?,
            8 => (),
            kind => return Err(format!("the server sent a frame of unknown type {kind}")),
        }
        at = end + 1;
    }
    Ok(at)
}

#[inline]
fn method<L: Listener>(channel: u16, payload: &[u8], listener: &mut L) -> Result<(), String> {
    match u32_at(payload, 0)? {
        DELIVER => {
            let after_tag = 5 + usize::from(*payload.get(4).ok_or_else(cut)?);
            let tag = u64_at(payload, after_tag)?;
            listener.delivered(tag, *payload.get(after_tag + 8).ok_or_else(cut)? & 1 == 1)
        }
        id @ (ACK | NACK) => {
            let multiple = *payload.get(12).ok_or_else(cut)? & 1 == 1;
            listener.confirmed(u64_at(payload, 4)?, multiple, id == ACK)
        }
        _ => listener.method(channel, payload),
    }
}

fn content_header(payload: &[u8]) -> Result<u64, String> {
    // Class and weight come before the body's size.
    u64_at(payload, 4)
}

#[inline]
fn u32_at(payload: &[u8], at: usize) -> Result<u32, String> {
    let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_be_bytes).ok_or_else(cut)
}

#[inline]
fn u64_at(payload: &[u8], at: usize) -> Result<u64, String> {
    let bytes = payload.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u64::from_be_bytes).ok_or_else(cut)
}

#[cold]
fn cut() -> String {
    "a frame from the server is too short for what it holds".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Vec<String>);

    impl Listener for Heard {
        fn delivered(&mut self, tag: u64, redelivered: bool) -> Result<(), String> {
            self.0.push(format!("deliver {tag} {redelivered}"));
            Ok(())
        }
        fn confirmed(&mut self, tag: u64, multiple: bool, positive: bool) -> Result<(), String> {
            self.0.push(format!("confirm {tag} {multiple} {positive}"));
            Ok(())
        }
        fn content(&mut self, body_bytes: u64) -> Result<(), String> {
            self.0.push(format!("header {body_bytes}"));
            Ok(())
        }
        fn body(&mut self, part: &[u8]) -> Result<(), String> {
            self.0.push(format!("body {}", part.len()));
            Ok(())
        }
        fn method(&mut self, channel: u16, payload: &[u8]) -> Result<(), String> {
            self.0.push(format!("method {channel} {}", payload.len()));
            Ok(())
        }
    }

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, 0, 1];
        bytes.extend((payload.len() as u32).to_be_bytes());
        bytes.extend(payload);
        bytes.push(FRAME_END);
        bytes
    }

    fn conversation() -> Vec<u8> {
        let mut deliver = vec![0, 60, 0, 60, 3];
        deliver.extend(b"tag");
        deliver.extend(9u64.to_be_bytes());
        deliver.extend([1, 0, 1, b'q']);
        let mut header = vec![0, 60, 0, 0];
        header.extend(5u64.to_be_bytes());
        header.extend([0, 0]);
        let mut ack = vec![0, 60, 0, 80];
        ack.extend(7u64.to_be_bytes());
        ack.push(1);
        let mut nack = vec![0, 60, 0, 120];
        nack.extend(8u64.to_be_bytes());
        nack.push(0);
        let frames = [
            frame(1, &deliver),
            frame(2, &header),
            frame(3, b"hello"),
            frame(8, &[]),
            frame(1, &ack),
            frame(1, &nack),
            frame(1, &[0, 10, 0, 50, 1]),
        ];
        frames.concat()
    }

    #[test]
    fn every_kind_of_frame_is_told_apart() {
        let mut heard = Heard::default();
        let bytes = conversation();
        assert_eq!(scan(&bytes, 4096, &mut heard), Ok(bytes.len()));
        let expected = [
            "deliver 9 true",
            "header 5",
            "body 5",
            "confirm 7 true true",
            "confirm 8 false false",
            "method 1 5",
        ];
        assert_eq!(heard.0, expected);
    }

    #[test]
    fn a_frame_cut_anywhere_waits_for_the_rest() {
        let bytes = conversation();
        let mut whole = Heard::default();
        scan(&bytes, 4096, &mut whole).expect("good bytes");
        for cut in 0..bytes.len() {
            let mut heard = Heard::default();
            let taken = scan(&bytes[..cut], 4096, &mut heard).expect("good bytes");
            assert!(taken <= cut);
            scan(&bytes[taken..], 4096, &mut heard).expect("good bytes");
            assert_eq!(heard.0, whole.0, "cut at {cut}");
        }
    }

    #[test]
    fn bytes_that_are_not_amqp_end_the_run_and_never_panic() {
        let good = conversation();
        for at in 0..good.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] ^= flip;
                let _ = scan(&bytes, 4096, &mut Heard::default());
            }
        }
        assert!(scan(&frame(9, b"x"), 4096, &mut Heard::default()).is_err());
        assert!(scan(&frame(1, &[0, 60]), 4096, &mut Heard::default()).is_err());
        assert!(scan(&frame(3, &[0; 5000]), 4096, &mut Heard::default()).is_err());
    }
}
