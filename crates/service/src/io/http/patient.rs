//! A connection whose reader must take what it is sent: one that takes nothing, or next to nothing, is cut off. Without
//! that so many of them could hold all connections that there may be.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What a reader must take in a second, on average, to be waited for on and on.
const BYTES_PER_SECOND: u64 = 4096;

/// How long a reader is waited for still: waiting uses it up, and what is taken gives some of it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Patience {
    left: Duration,
    max: Duration,
}

impl Patience {
    fn new(max: Duration) -> Self {
        Self { left: max, max }
    }

    /// The reader took so much after such a time.
    fn took(&mut self, waited: Duration, bytes: usize) {
        let back = Duration::from_millis(bytes as u64 * 1000 / BYTES_PER_SECOND);
        self.left = self.left.saturating_sub(waited).saturating_add(back).min(self.max);
    }
}

/// A connection, and how long its reader is waited for.
#[derive(Debug)]
pub(super) struct Patient<S> {
    stream: S,
    patience: Patience,
    /// Since when the reader takes nothing, and when it has been waited for long enough.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<S: Unpin> Patient<S> {
    pub(super) fn new(stream: S, max: Duration) -> Self {
        Self { stream, patience: Patience::new(max), waiting: None }
    }

    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        tried: Poll<io::Result<T>>,
        bytes: impl Fn(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = &tried {
            if let (Some((since, _)), Ok(done)) = (self.waiting.take(), done) {
                self.patience.took(since.elapsed(), bytes(done));
            }
            return tried;
        }
        let left = self.patience.left;
        let begin = || {
            let now = Instant::now();
            (now, Box::pin(tokio::time::sleep_until(now + left)))
        };
        let (_, end) = self.waiting.get_or_insert_with(begin);
        match end.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, tried, |count| *count)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(context, tried, |count| *count)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tried = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, tried, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tried = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, tried, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_uses_patience_up_and_what_is_taken_gives_some_back() {
        let seconds = Duration::from_secs;
        let mut patience = Patience::new(seconds(30));
        patience.took(seconds(10), 0);
        assert_eq!(patience.left, seconds(20));
        patience.took(seconds(5), 3 * 4096);
        assert_eq!(patience.left, seconds(18));
        patience.took(seconds(0), 1 << 20);
        assert_eq!(patience.left, seconds(30), "no more than at the beginning");
        for _ in 0..40 {
            patience.took(seconds(1), 100);
        }
        // The next second is more than it is waited for.
        assert!(patience.left < seconds(1), "a trickle is not enough: {patience:?}");
    }
}
