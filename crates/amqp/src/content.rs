//! Counts a message's body frames against what its header announced. Whether so large a body is wanted at all is
//! judged by the session, at the header.

use crate::error::Error;
use crate::reply_code::ReplyCode;

/// How much of a body is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyCount {
    missing: u64,
}

impl BodyCount {
    /// `body_bytes` is what the content header announced. A body of zero bytes has no frame: it is complete.
    pub fn new(body_bytes: u64) -> Self {
        Self { missing: body_bytes }
    }

    /// Takes one body frame with a payload of so many bytes; true if the body is complete.
    ///
    /// # Errors
    /// 501 if the frames hold more than was announced.
    pub fn accept(&mut self, payload_bytes: usize) -> Result<bool, Error> {
        let bytes = u64::try_from(payload_bytes).unwrap_or(u64::MAX);
        let Some(missing) = self.missing.checked_sub(bytes) else {
            return Err(too_long(bytes, self.missing));
        };
        self.missing = missing;
        Ok(self.is_complete())
    }

    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Bytes still to come.
    pub fn missing(&self) -> u64 {
        self.missing
    }
}

#[cold]
fn too_long(bytes: u64, missing: u64) -> Error {
    let text = format!("a body frame of {bytes} bytes where {missing} were still announced");
    Error::new(ReplyCode::FrameError, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_complete_when_its_announced_bytes_have_come() {
        let mut count = BodyCount::new(5);
        assert_eq!(count.accept(3), Ok(false));
        assert_eq!(count.accept(2), Ok(true));
    }

    #[test]
    fn a_body_longer_than_announced_is_refused_with_501() {
        let mut count = BodyCount::new(5);
        assert_eq!(count.accept(6).unwrap_err().code, ReplyCode::FrameError);
        assert_eq!(count.accept(5), Ok(true), "a refused frame is not counted");
    }
}
