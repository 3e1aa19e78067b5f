//! Moves bytes, requests and answers between a socket, its session and the cluster until one of them ends.
//! Decides nothing: every decision is `Session::step`'s.
//!
//! Only the way in may wait: a request waits while a shard has too much before it, and the socket is not read
//! meanwhile. Answers never wait for anybody: they are bounded by what was asked and the credit given. However
//! this ends, the dropped receiver of answers is what tells the node to take back what the session held.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use cluster::AnswerReceiver;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep_until};

use super::describe::Ear;
use super::listener::Broker;
use super::places::Place;
use super::reply_to::Replies;
use crate::limits;
use crate::metrics::Metrics;
use crate::session::{Input, Outputs, Session, View};

/// How long the rest of what a client sends is read after our last byte, so that it arrives.
const DRAIN: Duration = Duration::from_secs(1);
/// Sent bytes' buffers larger than this are not kept.
const KEPT_OUT_BYTES: usize = 256 * 1024;

/// A connection's socket and everything its session needs from outside.
pub(crate) struct Connection<S> {
    stream: S,
    session: Session,
    answers: AnswerReceiver,
    ear: Ear,
    broker: Arc<Broker>,
    replies: Replies,
    in_flight: InFlight,
    outbound: Outbound,
    out: Outputs,
    read_bytes: usize,
    /// Since when bytes wait that the socket does not take.
    stalled_since: Option<Instant>,
}

/// A connection's part of what the node's publishers have in flight.
struct InFlight {
    broker: Arc<Broker>,
    bytes: u64,
}

impl InFlight {
    /// Counts it; wakes those who wait for room when there is some again.
    fn set(&mut self, bytes: u64) {
        let bytes = bytes - bytes % limits::IN_FLIGHT_STEP;
        let total = &self.broker.metrics.in_flight_bytes;
        if bytes > self.bytes {
            total.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            let fewer = self.bytes - bytes;
            let before = total.fetch_sub(fewer, Ordering::Relaxed);
            let max = self.broker.config.in_flight_bytes_max;
            if before >= max && before - fewer < max {
                self.broker.room.notify_waiters();
            }
        }
        self.bytes = bytes;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A connection's part of what is on its way to clients, and its consumers.
struct Outbound {
    broker: Arc<Broker>,
    bytes: u64,
    consumers: u64,
}

impl Outbound {
    /// Counts bytes in whole steps. Nobody is to be woken: who has too much on its way waits for its own socket.
    fn set(&mut self, bytes: u64, consumers: u64) {
        let metrics = &self.broker.metrics;
        let bytes = bytes - bytes % limits::OUTBOUND_BYTES_FLOOR as u64;
        move_total(&metrics.outbound_bytes, &mut self.bytes, bytes);
        move_total(&metrics.consumers, &mut self.consumers, consumers);
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        self.set(0, 0);
    }
}

/// Makes a part of a total what it is now. The total is touched only if that changes.
fn move_total(total: &AtomicU64, part: &mut u64, now: u64) {
    let before = std::mem::replace(part, now);
    if now > before {
        total.fetch_add(now - before, Ordering::Relaxed);
    } else if now < before {
        total.fetch_sub(before - now, Ordering::Relaxed);
    }
}

/// What the socket did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// So many bytes came; 0 is the end.
    Received(usize),
    /// Everything that waited is sent.
    Written,
}

/// Why a connection is over.
#[derive(Debug)]
enum End {
    Done,
    Lost,
    Stalled,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(
        stream: S,
        session: Session,
        answers: AnswerReceiver,
        ear: Ear,
        broker: Arc<Broker>,
    ) -> Self {
        let replies = Replies::new(Arc::clone(&broker.registry));
        let in_flight = InFlight { broker: Arc::clone(&broker), bytes: 0 };
        let outbound = Outbound { broker: Arc::clone(&broker), bytes: 0, consumers: 0 };
        Self {
            stream,
            session,
            answers,
            ear,
            broker,
            replies,
            in_flight,
            outbound,
            out: Outputs::default(),
            read_bytes: limits::READ_BYTES_BEFORE_AUTH,
            stalled_since: None,
        }
    }

    /// Runs until one side ends. Its place is told how the login goes.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>, place: &Place) {
        let end = self.run_to_end(&mut stop, place).await;
        self.ear.close();
        self.broker.metrics.add(&self.session.take_counts());
        match end {
            End::Done => {
                // Our last bytes are lost if the socket is closed while the client's are unread.
                let _ = self.stream.shutdown().await;
                let _ = tokio::time::timeout(DRAIN, self.drain()).await;
            }
            End::Stalled => Metrics::count(&self.broker.metrics.limit_write_stall),
            End::Lost => {}
        }
    }

    async fn run_to_end(&mut self, stop: &mut watch::Receiver<bool>, place: &Place) -> End {
        let mut is_known = false;
        let mut answered = Vec::new();
        let mut replied = Vec::new();
        let broker = Arc::clone(&self.broker);
        let mut lingering = None;
        let mut verifying: Pin<Box<dyn Future<Output = bool> + Send>> =
            Box::pin(std::future::pending());
        let mut room = pin!(broker.room.notified());
        let mut timer = pin!(sleep_until(tokio::time::Instant::now()));
        let mut timer_at = None;
        let mut is_stopping = *stop.borrow_and_update();
        if is_stopping {
            return End::Lost;
        }
        loop {
            self.set_timer(timer.as_mut(), &mut timer_at);
            let waiting_bytes = self.out.bytes.len();
            let may_read = self.session.wants_input(waiting_bytes) && !self.out.close;
            let may_reply = self.session.wants_replies(waiting_bytes);
            let tells_written = self.session.wants_written(waiting_bytes)
                || self.outbound.bytes > 0
                || self.out.close;
            let read_bytes = may_read.then_some(self.read_bytes);
            let is_blocked = self.session.is_blocked();
            let (stream, session, out) = (&mut self.stream, &mut self.session, &mut self.out);
            let input = tokio::select! {
                moved = std::future::poll_fn(|cx| {
                    poll_socket(cx, stream, session.buffer(), read_bytes, &mut out.bytes, tells_written)
                }) => match moved {
                    Ok(Moved::Received(0)) | Err(_) => return End::Lost,
                    Ok(Moved::Received(count)) => {
                        self.received(count);
                        Input::Received
                    }
                    Ok(Moved::Written) if self.out.close => return End::Done,
                    Ok(Moved::Written) => Input::Written,
                },
                is_open = self.answers.recv(&mut answered) => match is_open {
                    true => Input::Answered(&mut answered),
                    false => return End::Lost,
                },
                () = self.replies.recv(&mut replied), if may_reply => Input::Replied(&mut replied),
                is_right = &mut verifying => {
                    verifying = Box::pin(std::future::pending());
                    place.checked(false);
                    Input::Verified(is_right)
                }
                _ = stop.changed(), if !is_stopping => {
                    is_stopping = true;
                    Input::Close("broker forced connection closure with reason 'shutdown'")
                }
                () = room.as_mut(), if is_blocked => Input::DeadlinePassed,
                () = timer.as_mut() => {
                    timer_at = None;
                    Input::DeadlinePassed
                }
                () = self.ear.asked() => {
                    self.watch_writes(Instant::now(), waiting_bytes);
                    self.ear.answer(&self.session, self.out.bytes.len());
                    continue;
                }
            };
            let is_quiet = matches!(input, Input::DeadlinePassed);
            let now = Instant::now();
            self.watch_writes(now, waiting_bytes);
            if self.stalled_since.is_some_and(|since| now >= since + broker.config.write_stall) {
                return End::Stalled;
            }
            // Before the look at what is in flight: room that comes after it wakes.
            room.set(broker.room.notified());
            {
                let catalog = broker.cluster.catalog();
                let view = View {
                    catalog: &catalog,
                    alarms: broker.cluster.alarms(),
                    in_flight_bytes: broker.metrics.in_flight_bytes.load(Ordering::Relaxed),
                    outbound_bytes: broker.metrics.outbound_bytes.load(Ordering::Relaxed),
                    consumers: broker.metrics.consumers.load(Ordering::Relaxed),
                    replies: &*broker.registry,
                };
                self.session.step(now, &view, input, &mut self.out);
            }
            broker.metrics.add(&self.session.take_counts());
            self.in_flight.set(self.session.in_flight_bytes());
            let outbound = self.session.outbound_bytes(self.out.bytes.len());
            self.outbound.set(outbound, self.session.consumer_count());
            if is_quiet && self.session.buffer().is_empty() {
                // What a burst needed is given back when nothing comes.
                *self.session.buffer() = BytesMut::new();
            }
            if let Some(notice) = &self.out.notice {
                broker.places.tell(&self.ear, notice);
                self.out.notice = None;
            }
            if let Some(verify) = self.out.verify.take() {
                place.checked(true);
                let broker = Arc::clone(&broker);
                verifying = Box::pin(async move { broker.credentials.verify(verify).await });
            }
            self.replies.perform(&mut self.out.replies, &broker.metrics);
            if !self.out.requests.is_empty()
                && !broker.cluster.submit(self.ear.session, &mut self.out.requests).await
            {
                return End::Lost;
            }
            if !is_known && self.session.is_known() {
                is_known = true;
                place.known();
            }
            if self.session.is_lingering() && lingering.is_none() {
                match broker.lingering.try_acquire() {
                    Ok(permit) => lingering = Some(permit),
                    Err(_) => return End::Done,
                }
            }
            if self.out.close && self.out.bytes.is_empty() {
                return End::Done;
            }
        }
    }

    /// How much is read at once follows what comes.
    fn received(&mut self, count: usize) {
        if !self.session.is_running() {
            return;
        }
        let is_busy = count >= self.read_bytes / 2;
        self.read_bytes = if is_busy { limits::READ_BYTES_BUSY } else { limits::READ_BYTES };
    }

    /// Remembers since when the socket takes nothing.
    fn watch_writes(&mut self, now: Instant, waiting_before: usize) {
        let waiting = self.out.bytes.len();
        if waiting == 0 {
            self.stalled_since = None;
            if self.out.bytes.capacity() > KEPT_OUT_BYTES {
                self.out.bytes = BytesMut::new();
            }
        } else if waiting < waiting_before || self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
    }

    /// One timer for everything. It is moved only when it would ring too late: ringing early is cheap and
    /// rare, moving it at every message is neither.
    fn set_timer(&self, timer: Pin<&mut Sleep>, timer_at: &mut Option<Instant>) {
        let stalled = self.stalled_since.map(|since| since + self.broker.config.write_stall);
        let wanted = [self.session.deadline(), stalled].into_iter().flatten().min();
        // With nothing to wait for, it rings once an hour.
        let wanted = wanted.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        if timer_at.is_none_or(|at| wanted < at) {
            *timer_at = Some(wanted);
            timer.reset(wanted.into());
        }
    }

    async fn drain(&mut self) {
        let mut rest = [0; 4096];
        while matches!(self.stream.read(&mut rest).await, Ok(count) if count > 0) {}
    }
}

/// Sends what waits and, if that is wanted, receives up to `read_bytes`: one system call each, if the socket is
/// ready. Reports bytes received before bytes sent.
fn poll_socket<S: AsyncRead + AsyncWrite + Unpin>(
    cx: &mut Context<'_>,
    stream: &mut S,
    received: &mut BytesMut,
    read_bytes: Option<usize>,
    out: &mut BytesMut,
    tells_written: bool,
) -> Poll<std::io::Result<Moved>> {
    let had_bytes = !out.is_empty();
    while !out.is_empty() {
        match Pin::new(&mut *stream).poll_write(cx, out) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(count)) => out.advance(count),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => break,
        }
    }
    if let Some(read_bytes) = read_bytes {
        received.reserve(read_bytes);
        let read = pin!(stream.read_buf(received));
        if let Poll::Ready(result) = read.poll(cx) {
            return Poll::Ready(result.map(Moved::Received));
        }
    }
    if had_bytes && out.is_empty() && tells_written {
        return Poll::Ready(Ok(Moved::Written));
    }
    Poll::Pending
}
