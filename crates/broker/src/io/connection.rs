//! Moves bytes, requests and answers between a socket, its session and the cluster until one of them ends.
//! Decides nothing: every decision is the session's, and its driver's.
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
use machine::{Arguments, Event, SessionId, Value};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep_until};

use super::broker::Broker;
use super::describe::Ear;
use super::exchange_meters::OwnMeters;
use super::place::Place;
use super::reply_to::Replies;
use crate::metrics::Metrics;
use crate::session::driver::{Driver, End, Load, Short, Wants};
use crate::session::{Input, Judge, Judged, Notice, Session, View};

/// How long the rest of what a client sends is read after our last byte, so that it arrives.
const DRAIN: Duration = Duration::from_secs(1);

/// What is told of a login, and of one that was refused.
const LOGIN: &str = "user.authentication.success";
const NO_LOGIN: &str = "user.authentication.failure";

/// A connection's socket and everything its session needs from outside.
pub(crate) struct Connection<S> {
    stream: S,
    driver: Driver,
    answers: AnswerReceiver,
    ear: Ear,
    broker: Arc<Broker>,
    replies: Replies,
    counted: Counted,
    meters: OwnMeters,
    /// Whether its client has logged in.
    is_in: bool,
}

/// A connection's part of the node's totals.
struct Counted {
    broker: Arc<Broker>,
    session: SessionId,
    load: Load,
    blocked: Option<Short>,
}

impl Counted {
    /// Counts what a connection has now; wakes those who wait for room for publishers when there is some again. Who has
    /// too much on its way to its client waits for its own socket.
    fn set(&mut self, now: Load, blocked: Option<Short>) {
        let metrics = &self.broker.metrics;
        let before = std::mem::replace(&mut self.load, now);
        move_total(&metrics.outbound_bytes, before.outbound_bytes, now.outbound_bytes);
        move_total(&metrics.consumers, before.consumers, now.consumers);
        move_total(&metrics.channels, before.channels, now.channels);
        move_total(&metrics.publishers, before.publishers, now.publishers);
        if self.blocked != blocked {
            let was_blocked = std::mem::replace(&mut self.blocked, blocked);
            let total = |short| match short {
                Short::Memory => &metrics.blocked_memory,
                Short::Disk => &metrics.blocked_disk,
                Short::InFlight => &metrics.blocked_in_flight,
            };
            if let Some(short) = blocked {
                total(short).fetch_add(1, Ordering::Relaxed);
            }
            if let Some(short) = was_blocked {
                total(short).fetch_sub(1, Ordering::Relaxed);
            }
        }
        let (had, has) = (before.in_flight_bytes, now.in_flight_bytes);
        let max = self.broker.config.in_flight_bytes_max;
        if let Some(total) = move_total(&metrics.in_flight_bytes, had, has)
            && total >= max
            && total - (had - has) < max
        {
            self.broker.room.notify_waiters();
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Again for one that did not come to its end, because it had to make way: it must not count for ever.
        self.broker.population.lock().leave(self.session);
        self.set(Load::default(), None);
    }
}

/// Changes a total by what a part of it has changed. Gives what the total was before, if it fell.
fn move_total(total: &AtomicU64, before: u64, now: u64) -> Option<u64> {
    if now > before {
        total.fetch_add(now - before, Ordering::Relaxed);
    } else if now < before {
        return Some(total.fetch_sub(before - now, Ordering::Relaxed));
    }
    None
}

fn login_event(name: &str, ear: &Ear, user: &str, details: Arguments) -> Event {
    let details = peer_of(details, ear);
    Event::new(name, "", user).with(details)
}

fn connection_event(name: &str, ear: &Ear, [user, vhost, client]: [&str; 3]) -> Event {
    let details = Arguments::new()
        .with("user", text(user))
        .with("user_provided_name", text(client))
        .with("connection", text(&ear.id.to_string()))
        .with("protocol", text("AMQP 0-9-1"));
    Event::new(name, vhost, &ear.peer.to_string()).with(peer_of(details, ear))
}

fn peer_of(details: Arguments, ear: &Ear) -> Arguments {
    let address = text(&ear.peer.ip().to_string());
    details.with("peer_host", address).with("peer_port", Value::I32(ear.peer.port().into()))
}

fn text(text: &str) -> Value {
    Value::LongStr(text.as_bytes().to_vec())
}

/// What the socket did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// So many bytes came; 0 is the end.
    Received(usize),
    /// Everything that waited is sent.
    Written,
}

/// What was found of a login that is checked.
enum Verdict {
    Password(bool),
    Token(Judged),
}

/// The check of a login.
type Verifying = Pin<Box<dyn Future<Output = Verdict> + Send>>;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(
        stream: S,
        session: Session,
        answers: AnswerReceiver,
        ear: Ear,
        broker: Arc<Broker>,
    ) -> Self {
        let replies = Replies::new(Arc::clone(&broker.registry));
        let (of_all, load) = (Arc::clone(&broker), Load::default());
        let counted = Counted { broker: of_all, session: ear.session, load, blocked: None };
        let driver = Driver::new(session, broker.config.write_stall);
        Self {
            stream,
            driver,
            answers,
            ear,
            broker,
            replies,
            counted,
            meters: OwnMeters::default(),
            is_in: false,
        }
    }

    /// Runs until one side ends. Its place is told how the login goes.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>, place: &Place) {
        let end = self.run_to_end(&mut stop, place).await;
        self.broker.population.lock().leave(self.ear.session);
        self.ear.close();
        self.broker.metrics.take(self.driver.last_counts());
        let spans = self.driver.last_spans(Instant::now());
        self.broker.tell_spans(spans);
        if self.is_in {
            let line = self.driver.describe_line();
            let names = [line.user.as_str(), &line.vhost, &line.client];
            let event = || connection_event("connection.closed", &self.ear, names);
            self.broker.tell_event(event);
        }
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

    /// A login is an event, too.
    fn tell_event(&mut self, notice: &Notice) {
        match notice {
            Notice::Connected { user, vhost, client } => {
                self.broker.tell_event(|| login_event(LOGIN, &self.ear, user, Arguments::new()));
                let names = [user.as_str(), vhost, client];
                let event = || connection_event("connection.created", &self.ear, names);
                self.broker.tell_event(event);
                self.is_in = true;
            }
            Notice::Refused { user, why, .. } => {
                let details = Arguments::new().with("error", text(&why.to_string()));
                self.broker.tell_event(|| login_event(NO_LOGIN, &self.ear, user, details));
            }
            Notice::Unjudged { .. } => {}
        }
    }

    async fn run_to_end(&mut self, stop: &mut watch::Receiver<bool>, place: &Place) -> End {
        let mut is_known = false;
        let mut channels = 0;
        let mut answered = Vec::new();
        let mut replied = Vec::new();
        let (mut told, mut pauses);
        let broker = Arc::clone(&self.broker);
        let mut lingering = None;
        let mut verifying: Verifying = Box::pin(std::future::pending());
        let mut room = pin!(broker.room.notified());
        let mut timer = pin!(sleep_until(tokio::time::Instant::now()));
        let mut timer_at = None;
        let mut is_flushed = true;
        let mut is_stopping = *stop.borrow_and_update();
        if is_stopping {
            return End::Lost;
        }
        loop {
            let wants = self.driver.wants();
            set_timer(timer.as_mut(), &mut timer_at, wants.deadline);
            let (stream, (received, sent)) = (&mut self.stream, self.driver.socket());
            let input = tokio::select! {
                moved = std::future::poll_fn(|cx| {
                    poll_socket(cx, stream, received, sent, &mut is_flushed, wants)
                }) => {
                    let input = match moved {
                        Ok(Moved::Received(count)) => self.driver.received(count),
                        Ok(Moved::Written) => self.driver.written(),
                        Err(_) => Err(End::Lost),
                    };
                    match input {
                        Ok(input) => input,
                        Err(end) => return end,
                    }
                }
                is_open = self.answers.recv(&mut answered) => match is_open {
                    true => Input::Answered(&mut answered),
                    false => return End::Lost,
                },
                () = self.replies.recv(&mut replied), if wants.replies => Input::Replied(&mut replied),
                verdict = &mut verifying => {
                    verifying = Box::pin(std::future::pending());
                    place.checked(false);
                    match verdict {
                        Verdict::Password(is_right) => Input::Verified(is_right),
                        Verdict::Token(judged) => Input::Judged(judged),
                    }
                }
                _ = stop.changed(), if !is_stopping => {
                    is_stopping = true;
                    Input::Close("broker forced connection closure with reason 'shutdown'")
                }
                () = room.as_mut(), if wants.room => Input::DeadlinePassed,
                () = timer.as_mut() => {
                    timer_at = None;
                    Input::DeadlinePassed
                }
                () = self.ear.asked() => {
                    self.driver.look_at_writes(Instant::now());
                    let orders = self.ear.answer(&self.driver);
                    pauses = orders.pauses;
                    match orders.close {
                        Some(reason) => {
                            told = reason;
                            Input::Close(&told)
                        }
                        None if pauses.is_empty() => continue,
                        None => Input::Pause(&mut pauses),
                    }
                }
            };
            let now = Instant::now();
            // Before the look at what is in flight: room that comes after it wakes.
            room.set(broker.room.notified());
            let stepped = {
                let catalog = broker.cluster.catalog();
                let view = View {
                    catalog: &catalog,
                    alarms: broker.cluster.alarms(),
                    in_flight_bytes: broker.metrics.in_flight_bytes.load(Ordering::Relaxed),
                    outbound_bytes: broker.metrics.outbound_bytes.load(Ordering::Relaxed),
                    consumers: broker.metrics.consumers.load(Ordering::Relaxed),
                    replies: &*broker.registry,
                    quotas: &broker.population,
                };
                self.driver.step(now, &view, input)
            };
            if let Err(end) = stepped {
                return end;
            }
            self.driver.tell_counts(&broker.metrics);
            let (vhost, published) = self.driver.exchanges();
            self.meters.add(&broker.exchanges, vhost, published);
            if channels != self.driver.session().channel_count() {
                channels = self.driver.session().channel_count();
                broker.population.lock().set_channels(self.ear.session, channels);
            }
            self.counted.set(self.driver.load(), self.driver.blocked());
            let out = self.driver.outputs();
            let (events, notice) = (std::mem::take(&mut out.events), out.notice.take());
            events.into_iter().for_each(|event| broker.tell_event(|| event));
            if !self.driver.outputs().traces.is_empty() {
                broker.tell_traces(self.driver.outputs().traces.drain(..));
            }
            if !self.driver.outputs().spans.is_empty() {
                broker.tell_spans(self.driver.outputs().spans.drain(..));
            }
            if let Some(notice) = notice {
                broker.places.tell(&self.ear, &notice);
                self.tell_event(&notice);
            }
            let out = self.driver.outputs();
            if let Some(verify) = out.verify.take() {
                place.checked(true);
                let broker = Arc::clone(&broker);
                let verified = async move { broker.credentials.verify(verify).await };
                verifying = Box::pin(async move { Verdict::Password(verified.await) });
            }
            if let Some(Judge { token, peer }) = out.token.take() {
                place.checked(true);
                let broker = Arc::clone(&broker);
                verifying =
                    Box::pin(async move { Verdict::Token(broker.judge(&token, peer).await) });
            }
            self.replies.perform(&mut out.replies, &broker.metrics);
            if !out.requests.is_empty()
                && !broker.cluster.submit(self.ear.session, &mut out.requests).await
            {
                return End::Lost;
            }
            if !is_known && self.driver.session().is_known() {
                is_known = true;
                place.known();
            }
            if self.driver.session().is_lingering() && lingering.is_none() {
                match broker.lingering.try_acquire() {
                    Ok(permit) => lingering = Some(permit),
                    Err(_) => return End::Done,
                }
            }
            if let Some(end) = self.driver.end() {
                return end;
            }
        }
    }

    async fn drain(&mut self) {
        let mut rest = [0; 4096];
        while matches!(self.stream.read(&mut rest).await, Ok(count) if count > 0) {}
    }
}

/// One timer for everything. It is moved only when it would ring too late: ringing early is cheap and rare, moving it
/// at every message is neither.
fn set_timer(timer: Pin<&mut Sleep>, timer_at: &mut Option<Instant>, deadline: Option<Instant>) {
    // With nothing to wait for, it rings once an hour.
    let wanted = deadline.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
    if timer_at.is_none_or(|at| wanted < at) {
        *timer_at = Some(wanted);
        timer.reset(wanted.into());
    }
}

/// Sends what waits and, if that is wanted, receives: one system call each, if the socket is ready. Reports bytes
/// received before bytes sent. What is sealed by TLS and not taken by the kernel yet is not flushed, and not sent.
fn poll_socket<S: AsyncRead + AsyncWrite + Unpin>(
    cx: &mut Context<'_>,
    stream: &mut S,
    received: &mut BytesMut,
    out: &mut BytesMut,
    is_flushed: &mut bool,
    wants: Wants,
) -> Poll<std::io::Result<Moved>> {
    let had_bytes = !out.is_empty() || !*is_flushed;
    while !out.is_empty() {
        match Pin::new(&mut *stream).poll_write(cx, out) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(count)) => out.advance(count),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => break,
        }
    }
    if had_bytes {
        *is_flushed = match Pin::new(&mut *stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => false,
        };
    }
    if let Some(read_bytes) = wants.read_bytes {
        received.reserve(read_bytes);
        let read = pin!(stream.read_buf(received));
        if let Poll::Ready(result) = read.poll(cx) {
            return Poll::Ready(result.map(Moved::Received));
        }
    }
    if had_bytes && out.is_empty() && *is_flushed && wants.written {
        return Poll::Ready(Ok(Moved::Written));
    }
    Poll::Pending
}
