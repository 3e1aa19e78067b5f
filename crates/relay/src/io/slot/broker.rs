//! The broker's side of a session: offers become messages, verdicts go to the core.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use client::{Address, Backoff, Chance, Error as BrokerError, Publisher, Run, Verdict};

use crate::attempts::{Fault, Reason};
use crate::compose::Composer;
use crate::config::{Config, Source};
use crate::fields::Fields;
use crate::io::broker;
use crate::metrics::{Metrics, Step};
use crate::stream::{Input, Output, Stream};

/// Exchanges that are remembered on a connection, and for how long one that is not there.
const EXCHANGES_MAX: usize = 10_000;
const MISSING_FOR: Duration = Duration::from_secs(2);
/// How long a message may be without a verdict; each time in a row that this is all that helps, twice as long.
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_MAX: Duration = Duration::from_secs(240);

/// The connection to the broker, and what belongs to it.
pub(super) struct Broker {
    config: Config,
    metrics: Metrics,
    composer: Composer,
    publisher: Option<Publisher>,
    is_blocked: bool,
    backoff: Backoff,
    chance: Chance,
    attempt: u32,
    pub(super) connect_at: Instant,
    silence: Silence,
    /// Exchanges that were asked for: there, or missing until then.
    exchanges: BTreeMap<String, Option<Instant>>,
    fields: Fields,
    verdicts: Vec<Verdict>,
    /// When some messages were published, for the time of their confirms.
    published: VecDeque<(u64, Instant)>,
}

impl Broker {
    pub(super) fn new(config: &Config, metrics: &Metrics, seed: u64) -> Self {
        Self {
            config: config.clone(),
            metrics: metrics.clone(),
            composer: Composer::new(&config.mapping, config.body_bytes_max)
                .of_messages(matches!(config.source, Source::Messages { .. })),
            publisher: None,
            is_blocked: false,
            backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) },
            chance: Chance::new(seed),
            attempt: 0,
            connect_at: Instant::now(),
            silence: Silence::new(Instant::now()),
            exchanges: BTreeMap::new(),
            fields: Fields::default(),
            verdicts: Vec::new(),
            published: VecDeque::new(),
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.publisher.is_some()
    }

    /// One attempt to connect.
    pub(super) async fn connect(&mut self, stream: &mut Stream, out: &mut Vec<Output>) {
        match broker::open(&self.config.broker, "millrace relay, log", self.config.window).await {
            Ok(publisher) => {
                self.publisher = Some(publisher);
                self.exchanges.clear();
                self.attempt = 0;
                self.metrics.broker_connections.inc();
                stream.step(Instant::now(), Input::BrokerReady, out);
            }
            Err(error) => {
                let delay = self.backoff.delay(self.attempt, self.chance.next_bits());
                self.connect_at = Instant::now() + delay;
                self.attempt = self.attempt.saturating_add(1);
                tracing::warn!(%error, "it is tried again");
            }
        }
    }

    /// Publishes what there is and has room.
    pub(super) async fn publish(&mut self, stream: &mut Stream, out: &mut Vec<Output>) {
        let start = Instant::now();
        let mut last = None;
        while let Some(publisher) = &mut self.publisher {
            if !publisher.has_room() || !stream.offer(start, &mut self.fields, out) {
                break;
            }
            let offer = Offer {
                publisher,
                composer: &mut self.composer,
                exchanges: &mut self.exchanges,
                fields: &self.fields,
            };
            match offer.publish(start).await {
                Ok(Ok(Some(seq))) => {
                    stream.step(start, Input::Published(seq), out);
                    last = Some(seq);
                }
                Ok(Ok(None)) => {
                    stream.take_back();
                    break;
                }
                Ok(Err(fault)) => stream.step(start, Input::Unfit(fault), out),
                Err(error) => self.lost(&error, stream, out),
            }
        }
        let Some(last) = last else { return };
        self.metrics.step(Step::Publish, start.elapsed().as_nanos() as u64);
        if self.published.len() < 1024 {
            self.published.push_back((last.0, start));
        }
        if self.config.no_confirms {
            self.believe(last, stream, out).await;
        }
    }

    /// Without confirms, what is in the socket counts as taken.
    async fn believe(
        &mut self,
        last: client::PublishSeq,
        stream: &mut Stream,
        out: &mut Vec<Output>,
    ) {
        let Some(publisher) = &mut self.publisher else { return };
        match publisher.flush().await {
            Ok(()) => {
                let run = Run { first: client::PublishSeq(1), last };
                stream.step(Instant::now(), Input::Verdict(Verdict::Confirmed(run)), out);
            }
            Err(error) => self.lost(&error, stream, out),
        }
    }

    /// Sends and receives until there are verdicts, or an error. May be given up at any time; for ever without a
    /// connection.
    pub(super) async fn drive(&mut self) -> Result<(), BrokerError> {
        match &mut self.publisher {
            Some(publisher) => publisher.drive(&mut self.verdicts).await,
            None => std::future::pending().await,
        }
    }

    /// Gives the core what [`Broker::drive`] brought.
    pub(super) fn driven(
        &mut self,
        driven: Result<(), BrokerError>,
        stream: &mut Stream,
        out: &mut Vec<Output>,
    ) {
        self.take_verdicts(stream, out);
        if let Err(error) = driven {
            self.lost(&error, stream, out);
        }
    }

    fn take_verdicts(&mut self, stream: &mut Stream, out: &mut Vec<Output>) {
        let now = Instant::now();
        for mut verdict in self.verdicts.drain(..) {
            if let Verdict::Returned { seq, text, .. } = &mut verdict
                && stream.read_sent(*seq, &mut self.fields)
                && let Ok(to) = self.composer.compose(&self.fields)
            {
                *text += &format!(
                    ", for exchange '{}' with routing key '{}'",
                    to.exchange, to.routing_key
                );
            }
            let through = match &verdict {
                Verdict::Confirmed(run) | Verdict::Refused(run) => run.last,
                Verdict::Returned { seq, .. } => *seq,
            };
            while let Some((_, at)) = self.published.pop_front_if(|(seq, _)| *seq <= through.0) {
                self.metrics.step(Step::Confirm, (now - at).as_nanos() as u64);
            }
            if let Verdict::Confirmed(_) = verdict {
                self.silence.end();
            }
            stream.step(now, Input::Verdict(verdict), out);
        }
    }

    /// Looks at what the broker said without a verdict, or should have said.
    pub(super) fn look(&mut self, stream: &mut Stream, out: &mut Vec<Output>) {
        self.look_at_block();
        let now = Instant::now();
        if self.is_blocked {
            self.silence.excuse(now);
        }
        let silent_since = stream.unconfirmed_since().filter(|_| self.publisher.is_some());
        if let Some(timeout) = silent_since.and_then(|at| self.silence.too_long(at, now)) {
            let seconds = timeout.as_secs();
            tracing::warn!(
                seconds,
                "the broker leaves a message without an answer: connecting again"
            );
            self.close();
            stream.step(now, Input::BrokerSilent, out);
        }
    }

    fn look_at_block(&mut self) {
        let is_blocked = self.publisher.as_ref().is_some_and(Publisher::is_blocked);
        if is_blocked != self.is_blocked {
            self.is_blocked = is_blocked;
            self.metrics.blocked.inc_by(if is_blocked { 1 } else { -1 });
        }
    }

    fn lost(&mut self, error: &BrokerError, stream: &mut Stream, out: &mut Vec<Output>) {
        tracing::warn!(%error, "the broker is lost; what is unconfirmed is published again");
        if let Some(publisher) = &mut self.publisher {
            publisher.take_verdicts(&mut self.verdicts);
        }
        stream.take_back();
        self.take_verdicts(stream, out);
        self.close();
        let input = match broker::refusal(error) {
            Some((code, text)) => Input::BrokerRefused { code, text },
            None => Input::BrokerLost,
        };
        stream.step(Instant::now(), input, out);
    }

    /// Drops the connection.
    pub(super) fn close(&mut self) {
        if self.publisher.take().is_some() {
            self.metrics.broker_connections.dec();
        }
        self.published.clear();
        self.look_at_block();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.close();
    }
}

/// How long the broker may leave a message without a verdict.
#[derive(Debug)]
struct Silence {
    timeout: Duration,
    /// Until then it blocked publishers: what was published before may have waited for that.
    excused_until: Instant,
}

impl Silence {
    fn new(now: Instant) -> Self {
        Self { timeout: TIMEOUT, excused_until: now }
    }

    /// A message was confirmed.
    fn end(&mut self) {
        self.timeout = TIMEOUT;
    }

    /// The broker blocks publishers.
    fn excuse(&mut self, now: Instant) {
        self.excused_until = now;
    }

    /// Whether the oldest message, published at `oldest`, has waited too long, and how long that is.
    fn too_long(&mut self, oldest: Instant, now: Instant) -> Option<Duration> {
        let timeout = self.timeout;
        let is_over = now > oldest.max(self.excused_until) + timeout;
        is_over.then(|| {
            self.timeout = (timeout * 2).min(TIMEOUT_MAX);
            timeout
        })
    }
}

/// One row on its way out.
struct Offer<'a> {
    publisher: &'a mut Publisher,
    composer: &'a mut Composer,
    exchanges: &'a mut BTreeMap<String, Option<Instant>>,
    fields: &'a Fields,
}

impl Offer<'_> {
    /// Its number; none: there is no room. A fault is the row's, an error the connection's.
    async fn publish(
        self,
        now: Instant,
    ) -> Result<Result<Option<client::PublishSeq>, Fault>, BrokerError> {
        let message = match self.composer.compose(self.fields) {
            Ok(message) => message,
            Err(fault) => return Ok(Err(fault)),
        };
        if !message.exchange.is_empty() {
            let known = self.exchanges.get(message.exchange).copied();
            let missing = match known {
                Some(missing) if missing.is_none_or(|until| until > now) => missing,
                _ => {
                    let is_there = match self.publisher.has_exchange(message.exchange).await {
                        Ok(is_there) => is_there,
                        // It may not be asked about: publishing will tell.
                        Err(BrokerError::ChannelClosed { .. }) => true,
                        Err(error) => return Err(error),
                    };
                    let missing = (!is_there).then(|| Instant::now() + MISSING_FOR);
                    if self.exchanges.len() >= EXCHANGES_MAX {
                        self.exchanges.clear();
                    }
                    self.exchanges.insert(message.exchange.to_owned(), missing);
                    missing
                }
            };
            if missing.is_some() {
                let text = format!("there is no exchange '{}'", message.exchange);
                return Ok(Err(Fault { reason: Reason::Unroutable, text }));
            }
        }
        let to = Address {
            exchange: message.exchange,
            routing_key: message.routing_key,
            mandatory: true,
        };
        match self.publisher.try_publish(to, &message.properties, message.body) {
            Ok(seq) => Ok(Ok(seq)),
            Err(BrokerError::Invalid { text }) => Ok(Err(Fault { reason: Reason::Broken, text })),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_broker_that_has_blocked_publishers_has_its_time_from_the_end_of_that() {
        let published = Instant::now();
        let mut silence = Silence::new(published);
        // It blocks for a minute: its verdicts come when it has read what was sent meanwhile.
        silence.excuse(published + 60 * SECOND);
        assert_eq!(silence.too_long(published, published + 61 * SECOND), None);
        assert_eq!(silence.too_long(published, published + 89 * SECOND), None);
        assert_eq!(silence.too_long(published, published + 91 * SECOND), Some(TIMEOUT));
    }

    #[test]
    fn each_silence_in_a_row_may_last_longer() {
        let published = Instant::now();
        let mut silence = Silence::new(published);
        for timeout in [TIMEOUT, 2 * TIMEOUT, 4 * TIMEOUT, TIMEOUT_MAX, TIMEOUT_MAX] {
            assert_eq!(silence.too_long(published, published + timeout), None);
            assert_eq!(silence.too_long(published, published + timeout + SECOND), Some(timeout));
        }
        silence.end();
        assert_eq!(silence.too_long(published, published + 31 * SECOND), Some(TIMEOUT));
    }
}
