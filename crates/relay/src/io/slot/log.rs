//! The replication connection: changes as the core's inputs, and how far it is done as feedback.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pgwire_replication::config::ReplicationConfig;
use pgwire_replication::{PgWireError, ReplicationClient, ReplicationEvent};
use tokio_postgres::config::ChannelBinding;

use super::records::Names;
use super::tunnel::Tunnel;
use crate::config::{Config, Source};
use crate::error::Error;
use crate::io::postgres::{Database, Place};
use crate::io::session;
use crate::lsn::Lsn;
use crate::progress::CommitTime;
use crate::stream::Input;

/// What is read as text must look as it does in every session of the relay.
const OPTIONS: &str = "-c datestyle=ISO -c intervalstyle=iso_8601 -c timezone=UTC -c bytea_output=hex \
    -c extra_float_digits=1";
/// Changes between the connection's task and the core: few, as rows may be large.
const EVENTS: usize = 64;
/// How long a place may wait to be written down that no row has led to.
const RECORD_IDLE: Duration = Duration::from_secs(10);
/// How often the server is told how far the log is done, also while the broker blocks.
const FEEDBACK: Duration = Duration::from_millis(500);
/// How long the last feedback may take.
const LAST_FEEDBACK: Duration = Duration::from_secs(2);

/// The log of one slot.
pub(super) struct Log {
    client: ReplicationClient,
    /// TLS under it, if the database wants that.
    tunnel: Option<Tunnel>,
    /// Messages with it are published; none: rows are.
    prefix: Option<String>,
    /// Where the server's log ended when it spoke last.
    pub(super) wal_end: Lsn,
}

impl Log {
    /// Opens the log at `from`, which is not before the slot's place. From then on nobody else can. `is_first`: it never
    /// was open.
    pub(super) async fn open(
        database: &Database,
        config: &Config,
        names: &Names,
        from: Lsn,
        is_first: bool,
    ) -> Result<Self, Error> {
        let tunnel = match database.tls() {
            Some(files) => Some(Tunnel::open(database, files).await?),
            None => None,
        };
        let mut settings = settings(database, names, tunnel.as_ref())?;
        settings.start_lsn = pgwire_replication::Lsn::from_u64(from.0);
        let failed = |error: PgWireError| lost(&error, tunnel.as_ref(), is_first);
        let mut client = ReplicationClient::connect(settings).await.map_err(failed)?;
        client.wait_started().await.map_err(failed)?;
        let prefix = match &config.source {
            Source::Messages { prefix, .. } => Some(prefix.clone()),
            Source::Poll | Source::Wal { .. } => None,
        };
        Ok(Self { client, tunnel, prefix, wal_end: Lsn(0) })
    }

    fn input(
        &mut self,
        event: Result<Option<ReplicationEvent>, PgWireError>,
    ) -> Result<Option<Input>, Error> {
        let Some(event) = event.map_err(|error| lost(&error, self.tunnel.as_ref(), false))? else {
            return Err(away("the server ended the stream of changes".into()));
        };
        Ok(match event {
            ReplicationEvent::Begin { final_lsn, commit_time_micros, .. } => {
                let at = Some(CommitTime(commit_time_micros));
                Some(Input::Begin { commit: Lsn(final_lsn.as_u64()), at })
            }
            ReplicationEvent::XLogData { wal_start, data, .. } => {
                let change = Input::Change { lsn: Lsn(wal_start.as_u64()), data };
                self.prefix.is_none().then_some(change)
            }
            ReplicationEvent::Message { lsn, prefix, content, .. } => {
                let message = Input::Message { lsn: Lsn(lsn.as_u64()), content };
                (self.prefix.as_deref() == Some(&*prefix)).then_some(message)
            }
            ReplicationEvent::Commit { end_lsn, commit_time_micros, .. } => {
                let end = Lsn(end_lsn.as_u64());
                self.wal_end = self.wal_end.max(end);
                Some(Input::Commit { end, at: Some(CommitTime(commit_time_micros)) })
            }
            ReplicationEvent::KeepAlive { wal_end, .. } => {
                let wal_end = Lsn(wal_end.as_u64());
                self.wal_end = self.wal_end.max(wal_end);
                Some(Input::KeepAlive { wal_end })
            }
            ReplicationEvent::StoppedAt { .. } => None,
        })
    }
}

impl session::Log for Log {
    type Place = Lsn;

    fn has_ended(&self) -> bool {
        !self.client.is_running()
    }

    fn poll(&mut self) -> Result<Option<Input>, Error> {
        // The waker of a task that sleeps is set by `next`, which is polled before it does.
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if self.has_ended() {
                // Its last words are told once, to whoever waits for them.
                return Ok(None);
            }
            // The caller takes only so many at once: no need for the runtime's own count.
            let event = pin!(tokio::task::unconstrained(self.client.recv())).poll(&mut context);
            let Poll::Ready(event) = event else { return Ok(None) };
            if let Some(input) = self.input(event)? {
                return Ok(Some(input));
            }
        }
    }

    async fn next(&mut self) -> Result<Input, Error> {
        loop {
            let event = self.client.recv().await;
            if let Some(input) = self.input(event)? {
                return Ok(input);
            }
        }
    }

    fn place(&mut self, confirmed: Lsn) -> Lsn {
        confirmed
    }

    /// Nothing but the server's own doings has moved it.
    fn is_worth_writing(&self, _: Lsn, _: Lsn, overdue: Duration) -> bool {
        overdue >= RECORD_IDLE
    }

    fn recorded(&self, confirmed: Lsn) {
        self.client.update_applied_lsn(pgwire_replication::Lsn::from_u64(confirmed.0));
    }

    /// Tells the server how far the log is done, and leaves.
    async fn close(mut self, confirmed: Lsn) {
        self.recorded(confirmed);
        let metrics = self.client.metrics();
        let told = async {
            // There is no event for it; each look also makes room for what still arrives.
            while metrics.last_applied_lsn().as_u64() < confirmed.0 {
                let _ = tokio::time::timeout(FEEDBACK / 10, self.client.recv()).await;
            }
        };
        if tokio::time::timeout(LAST_FEEDBACK, told).await.is_err() {
            tracing::debug!(%confirmed, "the server was not told: it sends some changes again");
        }
        let _ = tokio::time::timeout(LAST_FEEDBACK, self.client.shutdown()).await;
        if let Some(tunnel) = self.tunnel {
            tunnel.close(LAST_FEEDBACK).await;
        }
    }
}

fn settings(
    database: &Database,
    names: &Names,
    tunnel: Option<&Tunnel>,
) -> Result<ReplicationConfig, Error> {
    let config = database.config();
    if config.get_channel_binding() == ChannelBinding::Require {
        return Err(Error::setup(
            "the log is read without channel binding: leave channel_binding=require out of the database URL; \
             sslmode=verify-full verifies the server",
        ));
    }
    let (host, port) = match tunnel {
        Some(tunnel) => tunnel.host(),
        None => {
            let Place { address, port, .. } = database.place();
            (address, port)
        }
    };
    let user = config.get_user().unwrap_or("postgres");
    let password = config.get_password().unwrap_or_default();
    let password = std::str::from_utf8(password)
        .map_err(|_| Error::setup("the password in the database URL is not UTF-8"))?;
    let name = config.get_dbname().unwrap_or(user);
    let publication = names.publication.as_str();
    let mut settings =
        ReplicationConfig::new(host, user, password, name, names.slot.as_str(), publication)
            .with_port(port)
            .with_options(OPTIONS)
            .with_status_interval(FEEDBACK)
            .with_buffer_size(EVENTS);
    settings.application_name = Some("millrace-relay-log".into());
    Ok(settings)
}

fn away(text: String) -> Error {
    Error::Database { doing: "reading the log".into(), text, is_temporary: true }
}

/// What ended the connection. Most can be waited out; what cannot is found at the next start.
fn lost(error: &PgWireError, tunnel: Option<&Tunnel>, is_first: bool) -> Error {
    let mut text = error.to_string();
    if let (PgWireError::Io(_), Some(failure)) = (error, tunnel.and_then(Tunnel::failure)) {
        text = failure.to_owned();
    }
    if text.contains("publication") && text.contains("does not exist") {
        return Error::SlotLost {
            text: format!(
                "the log cannot be read: {text}. The publication is younger than what the slot still holds, or was \
                 made anew: `millrace relay resync` makes a new slot and publishes the rows of the table again"
            ),
        };
    }
    let is_denied = ["42501", "28000", "28P01", "must be superuser", "permission denied"]
        .iter()
        .any(|words| text.contains(words));
    match error {
        PgWireError::Server(_) | PgWireError::Auth(_) | PgWireError::Tls(_)
            // What the server does not say was good before: it goes away, or comes back.
            if is_denied || (is_first && !error.is_server()) =>
        {
            Error::setup(format!(
                "the log of the database cannot be read: {text}. The user needs REPLICATION (ALTER ROLE … \
                 REPLICATION) and pg_hba.conf must let it connect"
            ))
        }
        _ => away(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_does_not_say_ends_a_first_session_only_and_a_denial_ends_any() {
        let is_temporary =
            |error: &PgWireError, is_first| lost(error, None, is_first).is_temporary();
        let odd = PgWireError::Auth("unexpected auth code 7".into());
        assert!(!is_temporary(&odd, true), "it never worked: a setting is wrong");
        assert!(is_temporary(&odd, false), "it worked before: the server restarts");
        let denied = PgWireError::Server("permission denied (SQLSTATE 42501)".into());
        let gone = PgWireError::from(std::io::Error::other("reset"));
        for is_first in [true, false] {
            assert!(!is_temporary(&denied, is_first));
            assert!(is_temporary(&gone, is_first));
        }
    }
}
