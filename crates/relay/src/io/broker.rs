//! The shell of publishing, for every source: offers of the core become messages, and the broker's answers go to the core.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use client::{
    Address, Backoff, Chance, Error as BrokerError, Options, PublishSeq, Publisher as Connection,
    Run, Url, Verdict,
};

use crate::attempts::{Fault, Reason};
use crate::compose::Composer;
use crate::config::{Config, Source};
use crate::error::Error;
use crate::metrics::{Metrics, Step};
use crate::publisher::{Publisher, RowSeq, Rows};

/// Exchanges that are remembered on a connection, and for how long one that is not there.
const EXCHANGES_MAX: usize = 10_000;
const MISSING_FOR: Duration = Duration::from_secs(2);
/// How long the broker may take to say whether an exchange is there.
const ASKING_MAX: Duration = Duration::from_secs(5);
/// How long the broker may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(5);
/// Publishes whose confirms are timed.
const TIMED_MAX: usize = 1024;
/// Rows that overtook others are told once in so long.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Connects without any retry of the client's own: what was unconfirmed is given back to the database, which knows it
/// best.
pub(crate) async fn open(url: &Url, name: &str, window: u32) -> Result<Connection, Error> {
    let options = Options::named(name).without_retry();
    Connection::open(url, &options, window).await.map_err(|error| Error::Broker {
        doing: format!("connecting to {url}"),
        text: error.to_string(),
    })
}

/// Whether the broker closed because of something it was sent; its code and words.
fn refusal(error: &BrokerError) -> Option<(u16, &str)> {
    match error {
        BrokerError::ChannelClosed { code, text } => Some((*code, text)),
        // Codes of what was sent; others (a permission, a vhost that goes, an operator) are the connection's.
        BrokerError::ConnectionClosed {
            code: code @ (501 | 502 | 503 | 505 | 540 | 541),
            text,
        } => Some((*code, text)),
        BrokerError::Invalid { text } => Some((0, text)),
        BrokerError::Unreachable { .. }
        | BrokerError::Tls { .. }
        | BrokerError::Lost { .. }
        | BrokerError::NoAnswer { .. }
        | BrokerError::ConnectionClosed { .. }
        | BrokerError::ConsumerCancelled { .. }
        | BrokerError::Protocol { .. } => None,
    }
}

/// The connection to the broker, and what belongs to it.
pub(super) struct Broker {
    config: Config,
    metrics: Metrics,
    name: String,
    window: u32,
    composer: Composer,
    connection: Option<Connection>,
    is_blocked: bool,
    backoff: Backoff,
    chance: Chance,
    attempt: u32,
    pub(super) connect_at: Instant,
    exchanges: Exchanges,
    verdicts: Vec<Verdict>,
    /// When some messages were published, for the time of their confirms.
    published: VecDeque<(u64, Instant)>,
    overtaken: Overtaken,
    /// As the log was told.
    is_isolating: bool,
}

impl Broker {
    /// Without a connection yet; `name` is what the broker sees, `window` how much may be unconfirmed.
    pub(super) fn new(
        config: &Config,
        metrics: &Metrics,
        name: String,
        window: u32,
        seed: u64,
    ) -> Self {
        Self {
            config: config.clone(),
            metrics: metrics.clone(),
            name,
            window,
            composer: Composer::new(&config.mapping, config.body_bytes_max)
                .of_messages(matches!(config.source, Source::Messages { .. })),
            connection: None,
            is_blocked: false,
            backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) },
            chance: Chance::new(seed),
            attempt: 0,
            connect_at: Instant::now(),
            exchanges: Exchanges::default(),
            verdicts: Vec::new(),
            published: VecDeque::new(),
            overtaken: Overtaken::default(),
            is_isolating: false,
        }
    }

    /// The broker has stored so many rows behind one of their key that it did not take; `key`: of one of them.
    pub(super) fn note_overtaken(&mut self, count: u64, key: Option<String>) {
        self.metrics.overtaken.inc_by(count);
        self.overtaken.note(count, key.unwrap_or_default());
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// The broker blocks publishers.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// One attempt to connect, if its time has come. May be given up at any time.
    pub(super) async fn connect(&mut self, publisher: &mut Publisher) {
        if self.is_connected() || Instant::now() < self.connect_at {
            return;
        }
        match open(&self.config.broker, &self.name, self.window).await {
            Ok(connection) => {
                self.connection = Some(connection);
                self.exchanges.clear();
                self.attempt = 0;
                self.metrics.broker_connections.inc();
                publisher.connected();
            }
            Err(error) => {
                let delay = self.backoff.delay(self.attempt, self.chance.next_bits());
                self.connect_at = Instant::now() + delay;
                self.attempt = self.attempt.saturating_add(1);
                let (connection, ms) = (&self.name, delay.as_millis());
                tracing::warn!(connection, %error, "cannot connect to the broker; retrying in {ms} ms");
            }
        }
    }

    /// Publishes what there is and has room.
    pub(super) async fn publish(&mut self, publisher: &mut Publisher, rows: &mut impl Rows) {
        let start = Instant::now();
        let mut last = None;
        while let Some(connection) = &mut self.connection {
            if !connection.has_room() {
                break;
            }
            // Not the time of the start: this process may have stood still meanwhile.
            let now = Instant::now();
            let Some(row) = publisher.offer(now, rows) else { break };
            let message = rows.read(row).and_then(|fields| self.composer.compose(fields));
            let message = match message {
                Ok(message) => message,
                Err(fault) => {
                    publisher.unfit(fault);
                    continue;
                }
            };
            let exchange = message.exchange;
            match self.exchanges.has(connection, exchange).await {
                Ok(true) => (),
                Ok(false) => {
                    let text = format!("there is no exchange '{exchange}'");
                    publisher.unfit(Fault { reason: Reason::Unroutable, text });
                    continue;
                }
                Err(error) => {
                    self.lost(&error, publisher, rows);
                    break;
                }
            }
            let to = Address { exchange, routing_key: message.routing_key, mandatory: true };
            match connection.try_publish(to, &message.properties, message.body) {
                Ok(Some(seq)) => {
                    publisher.published(now, seq);
                    last = Some(seq);
                }
                Ok(None) => {
                    publisher.take_back();
                    break;
                }
                Err(BrokerError::Invalid { text }) => {
                    publisher.unfit(Fault { reason: Reason::Broken, text });
                }
                Err(error) => self.lost(&error, publisher, rows),
            }
        }
        let Some(last) = last else { return };
        self.metrics.step(Step::Publish, start.elapsed().as_nanos() as u64);
        if self.published.len() < TIMED_MAX {
            self.published.push_back((last.0, start));
        }
        if self.config.no_confirms {
            self.believe(last, publisher, rows).await;
        }
    }

    /// Without confirms, what is in the socket counts as taken.
    async fn believe(&mut self, last: PublishSeq, publisher: &mut Publisher, rows: &mut impl Rows) {
        let Some(connection) = &mut self.connection else { return };
        match connection.flush().await {
            Ok(()) => {
                let run = Run { first: PublishSeq(1), last };
                publisher.verdict(Instant::now(), Verdict::Confirmed(run));
            }
            Err(error) => self.lost(&error, publisher, rows),
        }
    }

    /// Sends and receives until there are verdicts, or an error. May be given up at any time; for ever without a
    /// connection.
    pub(super) async fn drive(&mut self) -> Result<(), BrokerError> {
        match &mut self.connection {
            Some(connection) => connection.drive(&mut self.verdicts).await,
            None => std::future::pending().await,
        }
    }

    /// Gives the core what [`Broker::drive`] brought.
    pub(super) fn driven(
        &mut self,
        driven: Result<(), BrokerError>,
        publisher: &mut Publisher,
        rows: &mut impl Rows,
    ) {
        self.take_verdicts(publisher, rows);
        if let Err(error) = driven {
            self.lost(&error, publisher, rows);
        }
    }

    fn take_verdicts(&mut self, publisher: &mut Publisher, rows: &mut impl Rows) {
        let now = Instant::now();
        for mut verdict in self.verdicts.drain(..) {
            if let Verdict::Returned { seq, text, .. } = &mut verdict
                && let Some(row) = publisher.row_of(*seq)
                && let Ok(fields) = rows.read(row)
                && let Ok(to) = self.composer.compose(fields)
            {
                let (exchange, key) = (to.exchange, to.routing_key);
                *text += &format!(", for exchange '{exchange}' with routing key '{key}'");
            }
            let through = match &verdict {
                Verdict::Confirmed(run) | Verdict::Refused(run) => run.last,
                Verdict::Returned { seq, .. } => *seq,
            };
            while let Some((_, at)) = self.published.pop_front_if(|(seq, _)| *seq <= through.0) {
                self.metrics.step(Step::Confirm, (now - at).as_nanos() as u64);
            }
            publisher.verdict(now, verdict);
        }
    }

    /// Looks at what the broker said without a verdict, or should have said; and tells what is to be told now and then.
    pub(super) fn look(&mut self, publisher: &mut Publisher, rows: &mut impl Rows) {
        self.look_at_block();
        let now = Instant::now();
        if let Some((count, key)) = self.overtaken.due(now) {
            let connection = &self.name;
            tracing::warn!(
                connection,
                count,
                key,
                "the broker stored rows behind one of their key that it did not take (see --order-pipeline)"
            );
        }
        self.tell_isolation(publisher.is_isolating());
        if self.is_blocked {
            publisher.blocked(now);
        }
        if let Some(waited) = publisher.cut(now) {
            let (connection, seconds) = (&self.name, waited.as_secs());
            let oldest = publisher.oldest_row();
            let message = oldest.and_then(|row| label(&mut self.composer, row, rows));
            tracing::warn!(
                connection,
                message,
                "the broker left a message without an answer for {seconds} s; connecting again"
            );
            self.close();
            publisher.silent(now);
        }
    }

    fn look_at_block(&mut self) {
        let is_blocked = self.connection.as_ref().is_some_and(Connection::is_blocked);
        if is_blocked != self.is_blocked {
            self.is_blocked = is_blocked;
            self.metrics.blocked.inc_by(if is_blocked { 1 } else { -1 });
        }
    }

    fn tell_isolation(&mut self, is_isolating: bool) {
        if is_isolating == std::mem::replace(&mut self.is_isolating, is_isolating) {
            return;
        }
        let connection = &self.name;
        match is_isolating {
            true => tracing::warn!(
                connection,
                "the connection was lost at one of several rows; publishing them one by one to find it"
            ),
            false => tracing::info!(
                connection,
                "every row that was in flight has an answer; publishing rows side by side again"
            ),
        }
    }

    fn lost(&mut self, error: &BrokerError, publisher: &mut Publisher, rows: &mut impl Rows) {
        let (connection, count) = (&self.name, publisher.in_flight());
        tracing::warn!(
            connection,
            %error,
            "the connection to the broker is lost; {count} messages without an answer are published again"
        );
        if let Some(connection) = &mut self.connection {
            connection.take_verdicts(&mut self.verdicts);
        }
        publisher.take_back();
        self.take_verdicts(publisher, rows);
        self.close();
        match refusal(error) {
            Some((code, text)) => publisher.closed(Instant::now(), code, text),
            None => publisher.lost(Instant::now(), rows),
        }
    }

    /// Drops the connection.
    fn close(&mut self) {
        if self.connection.take().is_some() {
            self.metrics.broker_connections.dec();
        }
        self.published.clear();
        self.look_at_block();
    }

    /// Says goodbye, so that nothing on the wire is thrown away. The broker may be silent.
    pub(super) async fn leave(mut self) {
        if let Some(connection) = self.connection.take() {
            self.metrics.broker_connections.dec();
            let _ = tokio::time::timeout(GOODBYE, connection.close()).await;
        }
    }
}

/// What names the message of a row in the log; none: no message can be made of it.
fn label(composer: &mut Composer, row: RowSeq, rows: &mut impl Rows) -> Option<String> {
    let message = composer.compose(rows.read(row).ok()?).ok()?;
    let (exchange, key) = (message.exchange, message.routing_key);
    let id = message.properties.message_id.unwrap_or_default();
    Some(format!("message-id {id}, for exchange '{exchange}' with routing key '{key}'"))
}

/// Rows that were stored behind one of their key that failed, and that the log was not told of.
#[derive(Debug, Default)]
struct Overtaken {
    count: u64,
    key: String,
    /// Not told again before.
    tell_at: Option<Instant>,
}

impl Overtaken {
    fn note(&mut self, count: u64, key: String) {
        self.count += count;
        self.key = key;
    }

    /// How many there are, and the key of the last, if it is time to tell.
    fn due(&mut self, now: Instant) -> Option<(u64, String)> {
        if self.count == 0 || self.tell_at.is_some_and(|at| now < at) {
            return None;
        }
        self.tell_at = Some(now + TELL_EVERY);
        Some((std::mem::take(&mut self.count), std::mem::take(&mut self.key)))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.close();
    }
}

/// Exchanges that were asked for on this connection: there, or missing until then.
#[derive(Default)]
struct Exchanges(BTreeMap<String, Option<Instant>>);

impl Exchanges {
    fn clear(&mut self) {
        self.0.clear();
    }

    async fn has(&mut self, connection: &mut Connection, name: &str) -> Result<bool, BrokerError> {
        if name.is_empty() {
            return Ok(true);
        }
        if let Some(missing) = self.0.get(name)
            && missing.is_none_or(|until| until > Instant::now())
        {
            return Ok(missing.is_none());
        }
        let asked = tokio::time::timeout(ASKING_MAX, connection.has_exchange(name)).await;
        let is_there = match asked {
            Ok(Ok(is_there)) => is_there,
            // It may not be asked about: publishing will tell.
            Ok(Err(BrokerError::ChannelClosed { .. })) => true,
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                return Err(BrokerError::NoAnswer { to: "whether an exchange exists".into() });
            }
        };
        let missing = (!is_there).then(|| Instant::now() + MISSING_FOR);
        if self.0.len() >= EXCHANGES_MAX {
            self.0.clear();
        }
        self.0.insert(name.to_owned(), missing);
        Ok(is_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_overtook_others_are_told_at_once_and_then_together_every_ten_seconds() {
        let (mut overtaken, now) = (Overtaken::default(), Instant::now());
        assert_eq!(overtaken.due(now), None);
        overtaken.note(2, "a".into());
        assert_eq!(overtaken.due(now), Some((2, "a".into())));
        overtaken.note(1, "b".into());
        assert_eq!(overtaken.due(now + TELL_EVERY / 2), None);
        overtaken.note(4, "c".into());
        assert_eq!(overtaken.due(now + TELL_EVERY), Some((5, "c".into())));
        assert_eq!(overtaken.due(now + 3 * TELL_EVERY), None);
    }
}
