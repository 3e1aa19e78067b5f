//! A stream that watches the HTTP/2 frames that pass, and puts frames of its own between them.
//!
//! The h2 crate sends SETTINGS once and GOAWAY in its own way. Here a limit changes while streams run, and a GOAWAY
//! names the stream that a test wants. The answer to a SETTINGS frame that h2 did not send is kept from it.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::lock;

const HEAD_BYTES: usize = 9;
const PREFACE_BYTES: usize = 24;
const HEADERS: u8 = 1;
const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;

/// What was seen, and what is to be sent.
#[derive(Debug)]
pub(super) struct Watched {
    inject: VecDeque<Inject>,
    /// For each SETTINGS frame that was not acknowledged yet: the limit, if it was put in.
    unacknowledged: VecDeque<Option<u32>>,
    limit: u32,
    open: BTreeSet<u32>,
    pub(super) open_max: usize,
    pub(super) over_limit: u64,
}

/// A frame to put in.
#[derive(Debug)]
pub(super) enum Inject {
    Limit(u32),
    GoAway { last_stream: u32, code: u32 },
}

impl Watched {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            inject: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            limit,
            open: BTreeSet::new(),
            open_max: 0,
            over_limit: 0,
        }
    }

    pub(super) fn inject(&mut self, frame: Inject) {
        self.inject.push_back(frame);
    }

    /// A frame that the client sent. False: h2 must not see it.
    fn came(&mut self, kind: u8, flags: u8, stream: u32) -> bool {
        match kind {
            SETTINGS if flags & ACK != 0 => {
                if let Some(Some(limit)) = self.unacknowledged.pop_front() {
                    self.limit = limit;
                    return false;
                }
            }
            HEADERS => {
                self.over_limit += u64::from(self.open.len() >= self.limit as usize);
                self.open.insert(stream);
                self.open_max = self.open_max.max(self.open.len());
            }
            RST_STREAM => {
                self.open.remove(&stream);
            }
            _ => {}
        }
        true
    }

    /// A frame that goes to the client.
    fn goes(&mut self, kind: u8, flags: u8, stream: u32) {
        match kind {
            SETTINGS if flags & ACK == 0 => self.unacknowledged.push_back(None),
            HEADERS | DATA if flags & END_STREAM != 0 => {
                self.open.remove(&stream);
            }
            RST_STREAM => {
                self.open.remove(&stream);
            }
            _ => {}
        }
    }

    /// The frames that wait to be put in.
    fn injected(&mut self, into: &mut BytesMut) {
        while let Some(frame) = self.inject.pop_front() {
            match frame {
                Inject::Limit(limit) => {
                    head(into, 6, SETTINGS);
                    into.extend_from_slice(&MAX_CONCURRENT_STREAMS.to_be_bytes());
                    into.extend_from_slice(&limit.to_be_bytes());
                    self.unacknowledged.push_back(Some(limit));
                }
                Inject::GoAway { last_stream, code } => {
                    head(into, 8, GOAWAY);
                    into.extend_from_slice(&last_stream.to_be_bytes());
                    into.extend_from_slice(&code.to_be_bytes());
                }
            }
        }
    }
}

fn head(into: &mut BytesMut, bytes: u8, kind: u8) {
    into.extend_from_slice(&[0, 0, bytes, kind, 0, 0, 0, 0, 0]);
}

/// Finds the frames in one direction of a byte stream.
struct Frames {
    head: Vec<u8>,
    /// Bytes to pass before the next head.
    left: usize,
}

impl Frames {
    fn is_between(&self) -> bool {
        self.left == 0 && self.head.is_empty()
    }

    /// Takes what belongs to one piece off `bytes`: a part of a payload, or of a head. Says what a whole head names.
    fn next(&mut self, bytes: &mut BytesMut) -> (BytesMut, Option<(u8, u8, u32)>) {
        if self.left > 0 {
            let piece = bytes.split_to(self.left.min(bytes.len()));
            self.left -= piece.len();
            return (piece, None);
        }
        let part = bytes.split_to((HEAD_BYTES - self.head.len()).min(bytes.len()));
        self.head.extend_from_slice(&part);
        if self.head.len() < HEAD_BYTES {
            return (BytesMut::new(), None);
        }
        let head = std::mem::take(&mut self.head);
        self.left = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        (BytesMut::from(&head[..]), Some((head[3], head[4], stream)))
    }
}

/// The stream. Without something to watch for it passes everything on.
pub(super) struct Watching<S> {
    inner: S,
    watched: Option<Arc<Mutex<Watched>>>,
    incoming: Frames,
    outgoing: Frames,
    is_begun: bool,
    /// Read, and free for h2.
    ready: BytesMut,
    /// To be written.
    pending: BytesMut,
}

impl<S> Watching<S> {
    pub(super) fn new(inner: S, watched: Option<Arc<Mutex<Watched>>>) -> Self {
        Self {
            inner,
            watched,
            incoming: Frames { head: Vec::new(), left: PREFACE_BYTES },
            outgoing: Frames { head: Vec::new(), left: 0 },
            is_begun: false,
            ready: BytesMut::new(),
            pending: BytesMut::new(),
        }
    }

    fn inject(&mut self) {
        if let Some(watched) = &self.watched
            && self.is_begun
            && self.outgoing.is_between()
        {
            lock(watched).injected(&mut self.pending);
        }
    }
}

impl<S: AsyncWrite + Unpin> Watching<S> {
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.pending))?;
            self.pending.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watching<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(watched) = &this.watched else {
            return Pin::new(&mut this.inner).poll_read(cx, buf);
        };
        while this.ready.is_empty() {
            let mut space = [0; 16 * 1024];
            let mut read = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            let mut bytes = BytesMut::from(read.filled());
            while !bytes.is_empty() {
                let (piece, frame) = this.incoming.next(&mut bytes);
                let is_passed = frame
                    .is_none_or(|(kind, flags, stream)| lock(watched).came(kind, flags, stream));
                if is_passed {
                    this.ready.extend_from_slice(&piece);
                }
            }
        }
        let part = this.ready.split_to(this.ready.len().min(buf.remaining()));
        buf.put_slice(&part);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watching<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.watched.is_none() {
            return Pin::new(&mut this.inner).poll_write(cx, buf);
        }
        ready!(this.poll_pending(cx))?;
        let mut bytes = BytesMut::from(buf);
        while !bytes.is_empty() {
            this.inject();
            let (piece, frame) = this.outgoing.next(&mut bytes);
            this.pending.extend_from_slice(&piece);
            if let (Some((kind, flags, stream)), Some(watched)) = (frame, &this.watched) {
                this.is_begun = true;
                lock(watched).goes(kind, flags, stream);
            }
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inject();
        ready!(self.poll_pending(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
