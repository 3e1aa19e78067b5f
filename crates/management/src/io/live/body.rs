//! A stream as the body of an answer: its next event is made when the connection can send it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::Frame;

use super::Stream;

type Next = Pin<Box<dyn Future<Output = (Stream, Option<Bytes>)> + Send>>;

/// The events of a stream.
pub(super) struct Events {
    /// `None`: the stream has ended.
    next: Option<Next>,
}

impl Events {
    pub(super) fn new(stream: Stream) -> Self {
        Self { next: Some(next(stream)) }
    }
}

fn next(mut stream: Stream) -> Next {
    Box::pin(async move {
        let event = stream.next().await;
        (stream, event)
    })
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(waited) = &mut self.next else { return Poll::Ready(None) };
        let Poll::Ready((stream, event)) = waited.as_mut().poll(context) else {
            return Poll::Pending;
        };
        self.next = event.is_some().then(|| next(stream));
        Poll::Ready(event.map(|event| Ok(Frame::data(event))))
    }
}
