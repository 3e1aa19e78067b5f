//! A large answer that takes memory until its reader has taken it: only so many of them are there at a time.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

/// How much is handed to the socket at a time: what is left of an answer whose turn is over.
const PART_BYTES: usize = 64 << 10;

/// An answer, and its turn, which is over when all of it is handed on.
#[derive(Debug)]
pub(super) struct Held {
    text: String,
    sent: usize,
    _turn: OwnedSemaphorePermit,
}

impl Held {
    pub(super) fn new(text: String, turn: OwnedSemaphorePermit) -> Self {
        Self { text, sent: 0, _turn: turn }
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let rest = &self.text.as_bytes()[self.sent..];
        let part = &rest[..rest.len().min(PART_BYTES)];
        if part.is_empty() {
            return Poll::Ready(None);
        }
        let part = Bytes::copy_from_slice(part);
        self.sent += part.len();
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent == self.text.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.text.len() - self.sent) as u64)
    }
}
