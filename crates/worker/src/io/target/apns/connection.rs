//! The task of one connection: opens it, drives it, and tells the core what it sees.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep};

use super::connector::Unvectored;
use super::shared::Shared;
use crate::target::apns::connections::{Check, Place};

/// How long a connection that is closing may take to end what is on it.
const LEAVE_MAX: Duration = Duration::from_secs(60);

/// From the first attempt to open it to its end, and over the rest that follows a failure.
pub(super) async fn keep(shared: Arc<Shared>, place: Place) {
    let rest = match shared.connector.connect().await {
        Ok((sender, connection)) => {
            let limit = connection.max_concurrent_send_streams();
            shared.opened(place, limit, sender.clone());
            let driver = Driver::new(&shared, place, sender, connection);
            let why = driver.drive().await;
            shared.lost(place, &why)
        }
        Err(why) => shared.failed(place, why),
    };
    if let Some(until) = rest {
        tokio::time::sleep_until(Instant::from_std(until)).await;
        shared.tick();
    }
}

struct Driver<'a> {
    shared: &'a Arc<Shared>,
    place: Place,
    connection: Connection<Unvectored, Bytes>,
    ping: Option<PingPong>,
    /// Sees that APNs goes away. None: it does, or we do.
    probe: Option<SendRequest<Bytes>>,
    limit: usize,
    timer: Pin<Box<Sleep>>,
}

impl<'a> Driver<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        place: Place,
        probe: SendRequest<Bytes>,
        mut connection: Connection<Unvectored, Bytes>,
    ) -> Self {
        let limit = connection.max_concurrent_send_streams();
        let ping = connection.ping_pong();
        let timer = Box::pin(tokio::time::sleep_until(Instant::now()));
        Self { shared, place, connection, ping, probe: Some(probe), limit, timer }
    }

    /// Until it has ended; says why, in words.
    async fn drive(mut self) -> String {
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(ended) = Pin::new(&mut self.connection).poll(cx) {
                    return Poll::Ready(match ended {
                        Ok(()) => "APNs closed the connection".to_owned(),
                        Err(error) => format!("the connection broke: {error}"),
                    });
                }
                self.look_at_limit();
                self.look_at_goaway(cx);
                if let Some(ping) = &mut self.ping
                    && let Poll::Ready(Ok(_)) = ping.poll_pong(cx)
                {
                    self.shared.pong(self.place);
                }
                if self.timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                // What the check asks for may need the connection to be polled again.
                if let Some(why) = self.check() {
                    return Poll::Ready(why);
                }
            }
        })
        .await
    }

    fn look_at_limit(&mut self) {
        let limit = self.connection.max_concurrent_send_streams();
        if limit != self.limit {
            self.limit = limit;
            self.shared.limited(self.place, limit);
        }
    }

    fn look_at_goaway(&mut self, cx: &mut std::task::Context<'_>) {
        if let Some(probe) = &mut self.probe
            && let Poll::Ready(Err(_)) = probe.poll_ready(cx)
        {
            self.leave();
            self.shared.going_away(self.place);
        }
    }

    fn leave(&mut self) {
        self.probe = None;
        self.timer.as_mut().reset(Instant::now() + LEAVE_MAX);
    }

    /// The timer has gone off. Says why, if the connection is to end at once.
    fn check(&mut self) -> Option<String> {
        if self.probe.is_none() {
            return Some("what was on a closing connection did not end in time".to_owned());
        }
        match self.shared.check(self.place) {
            Check::Sleep { until } => self.timer.as_mut().reset(Instant::from_std(until)),
            Check::Ping { until } => {
                self.timer.as_mut().reset(Instant::from_std(until));
                if let Some(ping) = &mut self.ping {
                    // Refused while one is under way: that one's answer counts.
                    let _ = ping.send_ping(Ping::opaque());
                }
            }
            Check::CloseIdle | Check::Leave => self.leave(),
            Check::CloseSilent => return Some("the connection does not answer".to_owned()),
        }
        None
    }
}
