//! One connection: takes requests, and answers each when its time has come. One task, no allocation but what h2
//! needs, so that a benchmark measures its client.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::authentication::{Known, Refusal};
use super::frames::{Inject, Watched, Watching};
use super::{Received, Reply, Shared, judge, lock};

/// Answers that are due within so long go out together.
const GRAIN: Duration = Duration::from_millis(1);

type Http2 = Connection<Watching<TlsStream<TcpStream>>, Bytes>;

/// Accepts connections until it is dropped.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shared: Arc<Shared>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let mut tasks = JoinSet::new();
    let mut id = 0;
    loop {
        let Ok((tcp, _)) = listener.accept().await else { continue };
        while tasks.try_join_next().is_some() {}
        id += 1;
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        tasks.spawn(async move {
            let _ = tcp.set_nodelay(true);
            if let Ok(tls) = acceptor.accept(tcp).await {
                serve(tls, shared, id).await;
            }
        });
    }
}

async fn serve(tls: TlsStream<TcpStream>, shared: Arc<Shared>, id: u64) {
    shared.counts.connections.fetch_add(1, Ordering::Relaxed);
    let is_known = tls.get_ref().1.peer_certificates().is_some();
    let options = shared.options.clone();
    let watched = options.records.then(|| Arc::new(Mutex::new(Watched::new(options.streams_max))));
    let stream = Watching::new(tls, watched.clone());
    let handshake = h2::server::Builder::new()
        .max_concurrent_streams(options.streams_max)
        .initial_connection_window_size(16 << 20)
        .handshake(stream)
        .await;
    let Ok(http2) = handshake else { return };
    let mut serving = Serving {
        id,
        http2: Some(http2),
        due: VecDeque::new(),
        silent: Vec::new(),
        timer: Box::pin(tokio::time::sleep_until(Instant::now())),
        known: Known::default(),
        has_certificate: is_known,
        limit: options.streams_max,
        left_out_from: None,
        watched,
        shared,
    };
    if options.is_slow_start {
        serving.set_limit(1);
    }
    let counted = Arc::clone(&serving.shared);
    poll_fn(|cx| serving.poll(cx)).await;
    counted.counts.connections_closed.fetch_add(1, Ordering::Relaxed);
}

/// A request whose answer is due.
struct Due {
    at: Instant,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    verdict: Result<(), Refusal>,
    reply: Option<Reply>,
    bytes: usize,
    /// Kept for what is written down.
    payload: Vec<u8>,
}

struct Serving {
    id: u64,
    shared: Arc<Shared>,
    http2: Option<Http2>,
    due: VecDeque<Due>,
    /// Kept, or h2 resets their streams.
    silent: Vec<Due>,
    timer: Pin<Box<Sleep>>,
    known: Known,
    has_certificate: bool,
    limit: u32,
    /// Streams from here on are left out: the connection is closing.
    left_out_from: Option<u32>,
    watched: Option<Arc<Mutex<Watched>>>,
}

impl Serving {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.poll_requests(cx).is_ready() {
                return Poll::Ready(());
            }
            if let Some(limit) = self.shared.limit() {
                self.set_limit(limit);
            }
            let is_over = self.left_out_from.is_some() && self.due.is_empty();
            if self.http2.is_none() || is_over {
                return Poll::Ready(());
            }
            let Some(first) = self.due.front() else { return Poll::Pending };
            if self.timer.deadline() != first.at {
                self.timer.as_mut().reset(first.at);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.answer_due(cx);
        }
    }

    /// Takes what came, and writes what goes.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(http2) = &mut self.http2 else { return Poll::Ready(()) };
            match http2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.take(request, respond),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn take(&mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let stream = u32::from(respond.stream_id());
        let token = judge::device_token(&request).unwrap_or_default();
        let is_bench = !self.shared.options.records;
        let reply = if is_bench { None } else { self.shared.ordered(token) };
        let mut verdict = judge::head(&self.shared, &mut self.known, &request);
        if self.shared.options.wants_certificate && !self.has_certificate {
            verdict = Err((403, "BadCertificate"));
        }
        match &reply {
            Some(Reply::Break) => {
                self.http2 = None;
                return;
            }
            Some(Reply::GoAwayAfter) => {
                self.inject(Inject::GoAway { last_stream: stream, code: 0 });
                self.left_out_from = Some(0);
            }
            Some(Reply::GoAwayBefore) if self.left_out_from.is_none() => {
                self.inject(Inject::GoAway { last_stream: stream - 2, code: 0 });
                self.left_out_from = Some(stream);
            }
            Some(_) | None => {}
        }
        let at = Instant::now() + self.shared.latency();
        let due = Due { at, request, respond, verdict, reply, bytes: 0, payload: Vec::new() };
        self.due.push_back(due);
    }

    /// Answers what is due, and what will be in a moment.
    fn answer_due(&mut self, cx: &mut Context<'_>) {
        let until = Instant::now() + GRAIN;
        while let Some(mut due) = self.due.pop_front() {
            if due.at > until {
                self.due.push_front(due);
                break;
            }
            let is_left_out =
                self.left_out_from.is_some_and(|from| u32::from(due.respond.stream_id()) >= from);
            if is_left_out {
                self.write_down(&due, "left out".to_owned());
                continue;
            }
            if read(&mut due, self.watched.is_some(), cx).is_pending() {
                due.at = until;
                self.due.push_back(due);
                continue;
            }
            self.answer(due);
        }
    }

    fn answer(&mut self, mut due: Due) {
        match due.reply.take() {
            Some(Reply::Reason { status, reason, timestamp }) => {
                self.refuse(due, status, reason, timestamp);
            }
            Some(Reply::Reset(code)) => {
                due.respond.send_reset(Reason::from(code));
                self.write_down(&due, format!("reset {code}"));
            }
            Some(Reply::Silence) => {
                self.write_down(&due, "silence".to_owned());
                self.silent.push(due);
            }
            Some(Reply::GoAwayBefore | Reply::GoAwayAfter | Reply::Break) | None => {
                let is_voip =
                    due.request.headers().get("apns-push-type").is_some_and(|kind| kind == "voip");
                match due.verdict.and_then(|()| judge::payload(due.bytes, is_voip)) {
                    Ok(()) => self.accept(due),
                    Err((status, reason)) => self.refuse(due, status, reason, None),
                }
            }
        }
    }

    fn accept(&mut self, mut due: Due) {
        let mut response = Response::new(());
        if let Some(id) = due.request.headers().get("apns-id") {
            response.headers_mut().insert("apns-id", unindexed(id.clone()));
        }
        self.shared.counts.accepted.fetch_add(1, Ordering::Relaxed);
        let _ = due.respond.send_response(response, true);
        if self.limit < self.shared.options.streams_max {
            self.set_limit(self.shared.options.streams_max);
        }
        self.write_down(&due, "200".to_owned());
    }

    fn refuse(&mut self, mut due: Due, status: u16, reason: &str, timestamp: Option<u64>) {
        let mut response = Response::new(());
        *response.status_mut() =
            http::StatusCode::from_u16(status).expect("the rules name real ones");
        let body = match timestamp {
            Some(at) => format!("{{\"reason\":\"{reason}\",\"timestamp\":{at}}}"),
            None => format!("{{\"reason\":\"{reason}\"}}"),
        };
        self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut stream) = due.respond.send_response(response, false) {
            let _ = stream.send_data(Bytes::from(body), true);
        }
        let is_about_device =
            matches!(reason, "BadDeviceToken" | "DeviceTokenNotForTopic" | "Unregistered");
        if self.shared.options.throttles && is_about_device {
            self.set_limit(1);
        }
        self.write_down(&due, format!("{status} {reason}"));
    }

    fn set_limit(&mut self, limit: u32) {
        if self.limit != limit {
            self.limit = limit;
            self.inject(Inject::Limit(limit));
        }
    }

    fn inject(&mut self, frame: Inject) {
        if let Some(watched) = &self.watched {
            lock(watched).inject(frame);
        }
    }

    fn write_down(&self, due: &Due, answer: String) {
        if self.watched.is_none() {
            return;
        }
        self.count_frames();
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = due.request.headers().iter();
        self.shared.write_down(Received {
            connection: self.id,
            device_token: judge::device_token(&due.request).unwrap_or_default().to_owned(),
            headers: headers.map(|(name, value)| (name.to_string(), text(value))).collect(),
            payload: String::from_utf8_lossy(&due.payload).into_owned(),
            answer,
        });
    }

    fn count_frames(&self) {
        if let Some(watched) = &self.watched {
            let mut watched = lock(watched);
            let counts = &self.shared.counts;
            let over_limit = std::mem::take(&mut watched.over_limit);
            counts.over_limit.fetch_add(over_limit, Ordering::Relaxed);
            counts.streams_seen_max.fetch_max(watched.open_max as u64, Ordering::Relaxed);
        }
    }
}

/// Reads a request's body to its end.
fn read(due: &mut Due, is_kept: bool, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        match due.request.body_mut().poll_data(cx) {
            Poll::Ready(Some(Ok(part))) => {
                due.bytes += part.len();
                let _ = due.request.body_mut().flow_control().release_capacity(part.len());
                if is_kept {
                    due.payload.extend_from_slice(&part);
                }
            }
            Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    }
}

fn unindexed(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}
