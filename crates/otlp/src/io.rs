//! Spans on their way: a bounded queue between the sessions and the one task that sends what is in it. No session waits:
//! what finds no room is dropped and counted.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the shell: sockets, clocks, chance, and a lock around the queue's end"
)]

mod post;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout_at};

use self::post::Link;
use crate::delivery::{Delivery, Next, Said};
use crate::limits::{
    GATHER, REQUEST_BYTES, REQUEST_SPANS_MAX, SPANS_WAITING_BYTES_MAX, SPANS_WAITING_MAX,
};
use crate::wire::{Clock, Sender, encode};
use crate::{Endpoint, Span};

/// What the operator has set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub endpoint: Endpoint,
    /// PEM file with the authority that has signed the collector's certificate. `None`: the machine's.
    pub authority: Option<PathBuf>,
}

/// Sends the spans of a node to its collector.
#[derive(Debug)]
pub struct Exporter {
    settings: Settings,
    queue: mpsc::Sender<Held>,
    waiting: Mutex<mpsc::Receiver<Held>>,
    room: Arc<Semaphore>,
    sent: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
}

/// A span and the room that it takes.
#[derive(Debug)]
struct Held {
    span: Span,
    weight: usize,
    _room: OwnedSemaphorePermit,
}

impl Exporter {
    /// The collector need not be there yet.
    ///
    /// # Errors
    /// In words: the file with the authority cannot be used.
    pub fn new(settings: Settings) -> Result<Self, String> {
        if settings.endpoint.is_tls {
            // It is read again with each connection; here it is only looked at.
            certificates::authorities(settings.authority.as_deref())?;
        }
        let (queue, waiting) = mpsc::channel(SPANS_WAITING_MAX);
        Ok(Self {
            settings,
            queue,
            waiting: Mutex::new(waiting),
            room: Arc::new(Semaphore::new(SPANS_WAITING_BYTES_MAX)),
            sent: Arc::default(),
            dropped: Arc::default(),
        })
    }

    /// Spans that the collector has taken since the node started.
    pub fn sent(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.sent)
    }

    /// Spans that it did not get: too many waited, or it refused them.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Has these sent, as far as there is room.
    pub fn push(&self, spans: impl IntoIterator<Item = Span>) {
        let dropped = spans.into_iter().filter_map(|span| (!self.takes(span)).then_some(1)).sum();
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    fn takes(&self, span: Span) -> bool {
        let weight = span.weight();
        let Ok(permits) = u32::try_from(weight) else { return false };
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(permits) else { return false };
        self.queue.try_send(Held { span, weight, _room: room }).is_ok()
    }

    /// Sends what comes until `stop` says true, and then what is still there, once. To be run once, by the node that is
    /// called `instance`, of this version.
    pub async fn run(&self, instance: String, version: &str, mut stop: watch::Receiver<bool>) {
        let mut waiting = self.waiting.lock().await;
        let sender = Sender { instance, version: version.to_owned() };
        let mut way =
            Way { sender, link: Link::new(&self.settings), delivery: Delivery::default() };
        let mut gathered = Gathered::default();
        while !*stop.borrow() {
            tokio::select! {
                () = gathered.fill(&mut waiting) => {}
                // Whoever could tell is gone: that is as good.
                _ = stop.wait_for(|is_stopping| *is_stopping) => break,
            }
            self.deliver(gathered.take(), &mut way, &mut stop).await;
        }
        loop {
            while !gathered.is_full()
                && let Ok(held) = waiting.try_recv()
            {
                gathered.add(held);
            }
            if gathered.spans.is_empty() {
                return;
            }
            self.deliver(gathered.take(), &mut way, &mut stop).await;
        }
    }

    /// Sends these until the collector has them or refuses them; when the node stops, once.
    async fn deliver(
        &self,
        spans: Vec<Span>,
        Way { sender, link, delivery }: &mut Way<'_>,
        stop: &mut watch::Receiver<bool>,
    ) {
        let count = spans.len() as u64;
        let body = encoded(sender, spans);
        loop {
            let (next, said) = delivery.answered(link.post(body.clone()).await);
            if let Some(said) = said {
                self.tell(&said);
            }
            match next {
                Next::Taken { rejected } => {
                    let rejected = rejected.min(count);
                    self.sent.fetch_add(count - rejected, Ordering::Relaxed);
                    self.dropped.fetch_add(rejected, Ordering::Relaxed);
                    return;
                }
                Next::Again(pause) if !*stop.borrow() => tokio::select! {
                    () = sleep(pause) => {}
                    _ = stop.wait_for(|is_stopping| *is_stopping) => {}
                },
                Next::Again(_) | Next::Dropped => {
                    self.dropped.fetch_add(count, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    fn tell(&self, said: &Said) {
        let endpoint = &self.settings.endpoint;
        let dropped = self.dropped.load(Ordering::Relaxed);
        match said {
            Said::Away(why) => tracing::warn!(
                %endpoint, %why,
                "OpenTelemetry: the collector takes no spans. The node keeps {SPANS_WAITING_MAX} of them at most and \
                 tries again, drops and counts what comes beyond (millrace_spans_dropped_total), and serves clients as \
                 before. Start the collector, or correct the setting otlp"
            ),
            Said::Refusing(why) => tracing::warn!(
                %endpoint, %why,
                "OpenTelemetry: the collector refuses spans. The node drops and counts what is refused \
                 (millrace_spans_dropped_total), and serves clients as before. Correct the setting otlp: its path is \
                 usually /v1/traces, and what is there must speak OTLP over HTTP in protobuf"
            ),
            Said::Back => {
                tracing::info!(%endpoint, dropped, "OpenTelemetry: the collector takes spans again");
            }
        }
    }
}

/// How spans get to the collector.
struct Way<'e> {
    sender: Sender,
    link: Link<'e>,
    delivery: Delivery,
}

/// A request with these spans. Their ids are drawn here.
fn encoded(sender: &Sender, spans: Vec<Span>) -> Bytes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let clock = Clock { at: Instant::now(), unix_ns };
    let ids = draw(spans.len());
    encode(sender, clock, spans.into_iter().zip(ids)).into()
}

/// Ids for so many spans.
fn draw(count: usize) -> Vec<[u8; 8]> {
    let mut bytes = vec![0; count * 8];
    let mut drawn = 0;
    while drawn < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[drawn..], flags) {
            Ok(more) => drawn += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the operating system gives random bytes at any time: {error}"),
        }
    }
    bytes.chunks_exact(8).map(|id| id.try_into().expect("chunks are as long as asked")).collect()
}

/// Spans for the next request.
#[derive(Debug, Default)]
struct Gathered {
    spans: Vec<Span>,
    weight: usize,
}

impl Gathered {
    /// Waits for a span, and then for more for a moment. May be dropped at any point: what was gathered stays.
    async fn fill(&mut self, waiting: &mut mpsc::Receiver<Held>) {
        if self.spans.is_empty() {
            // The sender lives as long as the queue: there is always a next one.
            let Some(held) = waiting.recv().await else { return };
            self.add(held);
        }
        let until = tokio::time::Instant::now() + GATHER;
        while !self.is_full()
            && let Ok(Some(held)) = timeout_at(until, waiting.recv()).await
        {
            self.add(held);
        }
    }

    fn add(&mut self, Held { span, weight, _room }: Held) {
        self.spans.push(span);
        self.weight += weight;
    }

    fn is_full(&self) -> bool {
        self.spans.len() >= REQUEST_SPANS_MAX || self.weight >= REQUEST_BYTES
    }

    fn take(&mut self) -> Vec<Span> {
        self.weight = 0;
        std::mem::take(&mut self.spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Parent};

    fn span(bytes: usize) -> Span {
        let now = Instant::now();
        let parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        Span {
            parent: Parent::read(parent, None).unwrap(),
            name: "x".repeat(bytes),
            kind: Kind::Consumer,
            began: now,
            ended: now,
            attributes: Vec::new(),
            error: None,
        }
    }

    fn exporter(url: &str) -> Exporter {
        let settings = Settings { endpoint: Endpoint::read(url).unwrap(), authority: None };
        Exporter::new(settings).unwrap()
    }

    fn counts(exporter: &Exporter) -> (u64, u64) {
        (exporter.sent.load(Ordering::Relaxed), exporter.dropped.load(Ordering::Relaxed))
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_counted() {
        let exporter = exporter("http://127.0.0.1:1");
        exporter.push((0..SPANS_WAITING_MAX).map(|_| span(1)));
        assert_eq!(counts(&exporter), (0, 0));
        exporter.push([span(1), span(1)]);
        assert_eq!(counts(&exporter), (0, 2), "so many wait already");
        let mut waiting = exporter.waiting.try_lock().unwrap();
        while waiting.try_recv().is_ok() {}
        exporter.push([span(SPANS_WAITING_BYTES_MAX)]);
        assert_eq!(counts(&exporter), (0, 3), "it is larger than all the room");
        exporter.push([span(SPANS_WAITING_BYTES_MAX / 2), span(SPANS_WAITING_BYTES_MAX / 2)]);
        assert_eq!(counts(&exporter), (0, 4), "two have no room together");
        waiting.try_recv().unwrap();
        exporter.push([span(SPANS_WAITING_BYTES_MAX / 2)]);
        assert_eq!(counts(&exporter), (0, 4), "what was taken has left its room");
    }

    #[tokio::test]
    async fn a_request_holds_so_many_spans_or_so_many_bytes() {
        let exporter = exporter("http://127.0.0.1:1");
        let mut waiting = exporter.waiting.lock().await;
        let mut gathered = Gathered::default();
        exporter.push((0..REQUEST_SPANS_MAX + 1).map(|_| span(1)));
        gathered.fill(&mut waiting).await;
        assert_eq!(gathered.take().len(), REQUEST_SPANS_MAX);
        while waiting.try_recv().is_ok() {}
        exporter.push((0..3).map(|_| span(REQUEST_BYTES / 2)));
        gathered.fill(&mut waiting).await;
        assert_eq!(gathered.take().len(), 2);
    }

    #[tokio::test]
    async fn an_exporter_that_is_told_to_stop_tries_once_and_ends() {
        let exporter = exporter("http://127.0.0.1:1");
        exporter.push((0..REQUEST_SPANS_MAX + 1).map(|_| span(1)));
        let (_stop, stopped) = watch::channel(true);
        exporter.run("millrace@1".to_owned(), "0.1", stopped).await;
        assert_eq!(counts(&exporter), (0, REQUEST_SPANS_MAX as u64 + 1));
    }
}
