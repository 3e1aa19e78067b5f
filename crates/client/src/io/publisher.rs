//! A publisher: a window of unconfirmed messages over a connection that comes back by itself.
//!
//! The publisher is driven by its caller: frames gather in one buffer, which goes out when it is large
//! enough, when the window is full, and whenever something is awaited here. There is no task, lock or
//! wake-up between `publish` and the socket. So a caller that publishes a few messages and then turns
//! to something else calls [`Publisher::flush`], and one that idles for longer than a heartbeat awaits
//! [`Publisher::drive`] beside whatever else it waits for.

use amqp::{Method, Properties, confirm, exchange};
use bytes::BytesMut;

use super::line::Line;
use super::retry::Retry;
use crate::connection::Event;
use crate::error::Error;
use crate::limits::SEND_BYTES;
use crate::options::Options;
use crate::publisher::{Address, Outstanding, Verdict};
use crate::url::Url;
use crate::window::PublishSeq;

const CHANNEL: u16 = 1;

/// Publishes with confirms.
///
/// With [`Options::without_retry`] nothing happens behind the caller's back: the loss of the connection
/// is the error of the next call that waits, the publisher is over then, and says the same error to
/// every further call. Verdicts that came before are still given by [`Publisher::take_verdicts`].
pub struct Publisher {
    url: Url,
    options: Options,
    /// None while the connection is lost.
    line: Option<Line>,
    /// Where it is asked what is there. Its answer may still be on the way if the asker gave up.
    asking: Option<Asking>,
    /// Why this publisher is over for good.
    over: Option<Error>,
    outstanding: Outstanding,
    retry: Retry,
    raw_properties: BytesMut,
    /// Messages that were sent more than once.
    repeated: u64,
    /// Frame size of the first connection: what is kept was cut for it.
    frame_max: u32,
}

/// A channel for questions.
#[derive(Clone, Copy, Debug)]
struct Asking {
    channel: u16,
    is_answered: bool,
}

/// How messages ended since the last time this was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    pub confirmed: u64,
    /// `basic.nack`: the server could not take them.
    pub refused: u64,
    /// No queue was found for them.
    pub returned: u64,
    /// The server's words on the first that was returned.
    pub reason: Option<String>,
}

impl Settled {
    /// Adds verdicts to the sums.
    pub fn add(&mut self, verdicts: impl IntoIterator<Item = Verdict>) {
        for verdict in verdicts {
            match verdict {
                Verdict::Confirmed(run) => self.confirmed += run.count(),
                Verdict::Refused(run) => self.refused += run.count(),
                Verdict::Returned { code, text, .. } => {
                    self.returned += 1;
                    self.reason.get_or_insert_with(|| format!("{code} {text}"));
                }
            }
        }
    }

    /// Nothing was refused or returned.
    pub fn is_clean(&self) -> bool {
        self.refused == 0 && self.returned == 0
    }
}

impl Publisher {
    /// Connects, and tries again as `options` say. At most `window` messages are unconfirmed at any time.
    ///
    /// # Errors
    /// The server cannot be reached for as long as `options.retry_for`, or refuses.
    pub async fn open(url: &Url, options: &Options, window: u32) -> Result<Self, Error> {
        let mut publisher = Self {
            url: url.clone(),
            options: options.clone(),
            line: None,
            asking: None,
            over: None,
            outstanding: Outstanding::new(window),
            retry: Retry::new(options),
            raw_properties: BytesMut::new(),
            repeated: 0,
            frame_max: 0,
        };
        publisher.connected().await?;
        Ok(publisher)
    }

    /// Publishes a message: numbers it and puts it into the buffer. Waits only while the window is full,
    /// the server blocks publishers, or the connection is away. If the wait is cancelled, nothing was
    /// published.
    ///
    /// # Errors
    /// As [`Publisher::drive`]; names longer than 255 bytes.
    pub async fn publish(
        &mut self,
        to: Address<'_>,
        properties: &Properties<'_>,
        body: &[u8],
    ) -> Result<PublishSeq, Error> {
        while !self.has_room() {
            self.turn().await?;
        }
        self.encode(to, properties, body)
    }

    /// As [`Publisher::publish`], but never waits: none if it would have to.
    ///
    /// # Errors
    /// Names longer than 255 bytes; a socket that failed.
    pub fn try_publish(
        &mut self,
        to: Address<'_>,
        properties: &Properties<'_>,
        body: &[u8],
    ) -> Result<Option<PublishSeq>, Error> {
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        if !self.has_room() {
            return Ok(None);
        }
        self.encode(to, properties, body).map(Some)
    }

    /// Whether a message can be published without waiting.
    pub fn has_room(&self) -> bool {
        let is_open = self.line.as_ref().is_some_and(|line| !line.is_blocked);
        is_open && !self.outstanding.window().is_full()
    }

    /// The server has stopped publishers (`connection.blocked`): memory or disk is short there.
    pub fn is_blocked(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.is_blocked)
    }

    /// How many messages are without a verdict.
    pub fn unconfirmed(&self) -> u64 {
        self.outstanding.window().unsettled()
    }

    /// How many messages were sent again because their connection was lost before their verdict came. Each may be
    /// stored twice.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// How many bytes the messages take that are kept until they have a verdict: those from the oldest
    /// unconfirmed one on, with their frames.
    pub fn unconfirmed_bytes(&self) -> usize {
        self.outstanding.kept_bytes()
    }

    /// Whether the server has an exchange of that name. Asked on a channel of its own: what is published
    /// meanwhile goes on, and a no does no harm. The default exchange is always there.
    ///
    /// # Errors
    /// The server refuses to say ([`Error::ChannelClosed`]: the publisher goes on); and as
    /// [`Publisher::drive`].
    pub async fn has_exchange(&mut self, name: &str) -> Result<bool, Error> {
        if name.is_empty() {
            return Ok(true);
        }
        loop {
            self.connected().await?;
            if let Err(error) = self.take_events() {
                self.lost(error)?;
                continue;
            }
            match self.ask(name).await {
                Ok(()) => return Ok(true),
                Err(Error::ChannelClosed { code: 404, .. }) => return Ok(false),
                Err(refused @ Error::ChannelClosed { .. }) => return Err(refused),
                Err(error) => self.lost(error)?,
            }
        }
    }

    async fn ask(&mut self, exchange: &str) -> Result<(), Error> {
        let line = self.line.as_mut().expect("the caller has connected");
        let channel = match self.asking {
            Some(Asking { channel, is_answered: true }) => channel,
            before => {
                if let Some(Asking { channel, .. }) = before {
                    line.core.close_channel(channel);
                }
                let channel = line.core.free_channel();
                self.asking = channel.map(|channel| Asking { channel, is_answered: false });
                line.open_channel().await?
            }
        };
        self.asking = Some(Asking { channel, is_answered: false });
        let passive = exchange::Declare { exchange, passive: true, ..exchange::Declare::default() };
        let answer = line.call(channel, &Method::ExchangeDeclare(passive)).await;
        // A refusal took the channel with it.
        self.asking = answer.is_ok().then_some(Asking { channel, is_answered: true });
        answer.map(drop)
    }

    fn encode(
        &mut self,
        to: Address<'_>,
        properties: &Properties<'_>,
        body: &[u8],
    ) -> Result<PublishSeq, Error> {
        let Self { line: Some(line), outstanding, raw_properties, frame_max, .. } = self else {
            return Err(Error::Lost { why: "the connection is away".into() });
        };
        raw_properties.clear();
        properties.encode(raw_properties);
        let output = line.core.output();
        let seq = outstanding.publish(*frame_max, CHANNEL, to, raw_properties, body, output)?;
        if output.len() >= SEND_BYTES {
            // A failure shows again, and is mended, at the next wait.
            let _ = line.write_ahead();
        }
        Ok(seq)
    }

    /// Sends what waits in the buffer.
    ///
    /// # Errors
    /// As [`Publisher::drive`].
    pub async fn flush(&mut self) -> Result<(), Error> {
        while self.line.as_ref().is_none_or(Line::has_output) {
            self.turn().await?;
        }
        Ok(())
    }

    /// Sends what waits, keeps the connection alive, and returns once there are verdicts, which it adds to
    /// `verdicts`. With nothing unconfirmed it waits for ever: made to be one arm of a `select!`.
    ///
    /// # Errors
    /// The server closed the channel or refuses to be connected to, or `options.retry_for` has passed.
    /// What is unconfirmed then is unknown: it may have arrived.
    pub async fn drive(&mut self, verdicts: &mut Vec<Verdict>) -> Result<(), Error> {
        while self.outstanding.verdicts().is_empty() {
            self.turn().await?;
        }
        verdicts.append(self.outstanding.verdicts());
        Ok(())
    }

    /// Verdicts that are here already.
    pub fn take_verdicts(&mut self, verdicts: &mut Vec<Verdict>) {
        verdicts.append(self.outstanding.verdicts());
    }

    /// Sends what waits and returns once everything published has a verdict.
    ///
    /// # Errors
    /// As [`Publisher::drive`].
    pub async fn settle_all(&mut self) -> Result<Settled, Error> {
        while self.line.is_none() || !self.outstanding.window().is_empty() {
            self.turn().await?;
        }
        let mut settled = Settled::default();
        settled.add(self.outstanding.verdicts().drain(..));
        Ok(settled)
    }

    /// Settles everything and closes the connection.
    ///
    /// # Errors
    /// As [`Publisher::drive`].
    pub async fn close(mut self) -> Result<Settled, Error> {
        let settled = self.settle_all().await?;
        if let Some(line) = self.line.take() {
            line.close().await?;
        }
        Ok(settled)
    }

    async fn turn(&mut self) -> Result<(), Error> {
        let line = self.connected().await?;
        let turned = if line.events.is_empty() { line.turn().await } else { Ok(()) };
        // What the server said before the end of the connection counts as well.
        match self.take_events().and(turned) {
            Ok(()) => {
                self.retry.succeeded();
                Ok(())
            }
            Err(error) => self.lost(error),
        }
    }

    fn take_events(&mut self) -> Result<(), Error> {
        let Some(line) = self.line.as_mut() else { return Ok(()) };
        take_verdict_events(line, CHANNEL, &mut self.outstanding).map(drop)
    }

    /// The connection ended with `error`: Ok if it is worth another.
    fn lost(&mut self, error: Error) -> Result<(), Error> {
        (self.line, self.asking) = (None, None);
        if self.options.retry_for.is_zero() {
            self.over = Some(error.clone());
            return Err(error);
        }
        self.retry.lost(error)
    }

    /// The open connection; connects first if there is none.
    async fn connected(&mut self) -> Result<&mut Line, Error> {
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        while self.line.is_none() {
            self.retry.wait().await;
            match self.connect().await {
                Ok(line) => self.line = Some(line),
                Err(error) => self.retry.failed(error)?,
            }
        }
        Ok(self.line.as_mut().expect("it was just opened"))
    }

    async fn connect(&mut self) -> Result<Line, Error> {
        let mut line = Line::open(&self.url, &self.options).await?;
        let channel = line.open_channel().await?;
        assert_eq!(channel, CHANNEL, "the first channel of a connection is 1");
        let select = Method::ConfirmSelect(confirm::Select { no_wait: false });
        line.call(channel, &select).await?;
        let frame_max = line.core.agreed().frame_max;
        if self.frame_max == 0 {
            self.frame_max = frame_max;
        } else if frame_max < self.frame_max {
            let text = "the server takes smaller frames than before the connection was lost";
            return Err(Error::invalid(text));
        }
        self.repeated += self.outstanding.resend(line.core.output());
        Ok(line)
    }
}

/// Turns the line's events into verdicts; says whether there are any.
pub(super) fn take_verdict_events(
    line: &mut Line,
    channel: u16,
    outstanding: &mut Outstanding,
) -> Result<bool, Error> {
    for event in line.events.drain(..) {
        match event {
            Event::Confirmed { channel: of, tag, multiple, positive } if of == channel => {
                outstanding.confirmed(tag, multiple, positive)?;
            }
            Event::Content { channel: of, content } if of == channel => {
                if !outstanding.returned(&content)? {
                    tracing::warn!("a message was returned that is not among the unconfirmed");
                }
            }
            Event::ChannelClosed { channel: of, code, text } if of == channel => {
                return Err(Error::ChannelClosed { code, text });
            }
            Event::Blocked { reason } => tracing::warn!(reason, "the server blocks publishers"),
            Event::Unblocked => tracing::info!("the server unblocks publishers"),
            Event::Opened
            | Event::Closed
            | Event::Method { .. }
            | Event::Confirmed { .. }
            | Event::Content { .. }
            | Event::ChannelClosed { .. } => (),
        }
    }
    Ok(!outstanding.verdicts().is_empty())
}
