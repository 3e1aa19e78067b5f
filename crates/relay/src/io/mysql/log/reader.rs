//! The connection that the binlog comes through: events as the core's inputs.

use std::fmt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{BinlogStream, BinlogStreamRequest, Error as MyError};
use tokio_stream::StreamExt as _;

use crate::error::Error;
use crate::io::mysql::connection::{Database, database, is_temporary, words};
use crate::io::session;
use crate::lsn::Lsn;
use crate::mapping::{Layout, TableName};
use crate::mysql::binlog::event;
use crate::mysql::binlog::gtid::State;
use crate::mysql::binlog::place::{Place, offset_of};
use crate::mysql::binlog::{Assembler, start};
use crate::stream::Input;

/// The server speaks at least this often, also where nothing is written.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// After so long without a word it is gone.
const SILENCE: Duration = Duration::from_secs(30);
/// The server waits so long for a relay that does not read on, because its broker takes nothing.
const WRITE_TIMEOUT_S: u32 = 86_400;
/// A place that no row has led to is written down after so many bytes, or in another file.
const RECORD_BYTES: u64 = 1 << 20;
/// Numbers of error that say that the log is not there any more.
const LOG_IS_GONE: [u16; 2] = [1236, 1373];
/// And that this user may not read it.
const DENIED: [u16; 3] = [1044, 1045, 1227];

/// Where the log is read from.
#[derive(Clone, Debug)]
pub(super) enum From {
    Place(Place),
    /// Behind the ids of the state.
    Ids,
}

impl fmt::Display for From {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(place) => out.write_str(&place.words()),
            Self::Ids => out.write_str("the ids of what is done"),
        }
    }
}

/// The log.
pub(super) struct Log {
    stream: BinlogStream,
    events: event::Reader,
    assembler: Assembler,
    slot: String,
    outbox: String,
    /// Since when nothing has come though it was looked for.
    silent_since: Option<Instant>,
    has_ended: bool,
}

impl Log {
    /// Opens the log. A connection that this relay has left behind is ended by the server: it has the same number.
    pub(super) async fn open(
        at: &Database,
        slot: &str,
        table: &TableName,
        layout: Layout,
        from: From,
        state: State,
    ) -> Result<Self, Error> {
        let mut conn = at.for_log().connect().await?;
        let failed = |error: MyError| database("opening the binlog", &error);
        let period = HEARTBEAT.as_nanos();
        let set = format!(
            "SET @mariadb_slave_capability = 4, @master_heartbeat_period = {period}, @slave_gtid_strict_mode = 1, \
             @slave_gtid_ignore_duplicates = 0, net_write_timeout = {WRITE_TIMEOUT_S}"
        );
        conn.query_drop(set).await.map_err(failed)?;
        let checksum = conn.query_first::<String, _>("SELECT @@global.binlog_checksum").await;
        let has_checksums = checksum.map_err(failed)?.is_some_and(|kind| kind != "NONE");
        let outbox = table.to_string();
        let number = number_of(slot, &outbox);
        let (file, offset) = match &from {
            From::Place(place) => (place.file_of(place.at), u64::from(offset_of(place.at))),
            From::Ids => {
                // Digits, dashes and commas alone.
                let set = format!("SET @slave_connect_state = '{state}'");
                conn.query_drop(set).await.map_err(failed)?;
                (String::new(), 4)
            }
        };
        let request =
            BinlogStreamRequest::new(number).with_filename(file.as_bytes()).with_pos(offset);
        let place = match from {
            From::Place(place) => place,
            From::Ids => Place::default(),
        };
        let stream = conn.get_binlog_stream(request).await;
        let stream = stream.map_err(|error| ended(&error, slot, &outbox, &place))?;
        Ok(Self {
            stream,
            events: event::Reader::new(table, layout, has_checksums),
            assembler: Assembler::new(table, place, state),
            slot: slot.to_owned(),
            outbox,
            silent_since: None,
            has_ended: false,
        })
    }

    fn take(
        &mut self,
        event: Option<Result<mysql_async::binlog::events::Event, MyError>>,
    ) -> Result<(), Error> {
        self.silent_since = None;
        match event {
            Some(Ok(event)) => self.assembler.event(self.events.read(&event)?),
            Some(Err(error)) => {
                self.has_ended = true;
                Err(ended(&error, &self.slot, &self.outbox, self.assembler.place()))
            }
            None => {
                self.has_ended = true;
                Err(away("the server ended the stream of changes".into()))
            }
        }
    }
}

impl session::Log for Log {
    /// With the ids of what is done there.
    type Place = (Place, String);

    fn poll(&mut self) -> Result<Option<Input>, Error> {
        // The waker of a task that sleeps is set by `next`, which is polled before it does.
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Some(input) = self.assembler.take() {
                return Ok(Some(input));
            }
            if self.has_ended {
                // Its last words are told once, to whoever waits for them.
                return Ok(None);
            }
            // The caller takes only so many at once: no need for the runtime's own count.
            let next = pin!(tokio::task::unconstrained(self.stream.next())).poll(&mut context);
            match next {
                Poll::Ready(event) => self.take(event)?,
                Poll::Pending => {
                    let since = self.silent_since.get_or_insert_with(Instant::now);
                    return match since.elapsed() > SILENCE {
                        true => Err(away(format!("no word in {} s", SILENCE.as_secs()))),
                        false => Ok(None),
                    };
                }
            }
        }
    }

    async fn next(&mut self) -> Result<Input, Error> {
        loop {
            if let Some(input) = self.assembler.take() {
                return Ok(input);
            }
            let event = self.stream.next().await;
            self.take(event)?;
        }
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn place(&mut self, confirmed: Lsn) -> (Place, String) {
        (self.assembler.place().with(confirmed), self.assembler.state(confirmed))
    }

    /// The writing itself is in the log, so an idle relay must not write for what it wrote.
    fn is_worth_writing(&self, before: Lsn, now: Lsn, _: Duration) -> bool {
        now.0.saturating_sub(before.0) >= RECORD_BYTES
    }

    /// The server keeps its log whatever a reader has done.
    fn recorded(&self, _: Lsn) {}

    async fn close(self, _: Lsn) {}
}

/// What the relay is among the server's replicas: each has a number. This one is above what people choose.
fn number_of(slot: &str, outbox: &str) -> u32 {
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(format!("{slot}\0{outbox}"));
    0x4d00_0000 | u32::from(hash[0]) << 16 | u32::from(hash[1]) << 8 | u32::from(hash[2])
}

fn away(text: String) -> Error {
    Error::Database { doing: "reading the binlog".into(), text, is_temporary: true }
}

/// What ended the connection: most can be waited out.
fn ended(error: &MyError, slot: &str, outbox: &str, place: &Place) -> Error {
    let MyError::Server(server) = error else { return away(words(error)) };
    let text = words(error);
    // Whoever has the same number takes the log over.
    let is_replaced = text.contains("same server_uuid/server_id");
    if LOG_IS_GONE.contains(&server.code) && !is_replaced {
        return start::lost(slot, outbox, place, &text);
    }
    if DENIED.contains(&server.code) {
        return Error::setup(format!(
            "the binlog cannot be read: {text}. GRANT REPLICATION SLAVE ON *.* TO the relay's user"
        ));
    }
    Error::Database {
        doing: "reading the binlog".into(),
        text,
        is_temporary: is_temporary(error) || is_replaced,
    }
}

#[cfg(test)]
mod tests {
    use mysql_async::ServerError;

    use super::*;

    fn told(code: u16, message: &str) -> Error {
        let error =
            MyError::Server(ServerError { code, message: message.into(), state: "HY000".into() });
        ended(&error, "s", "shop.outbox", &Place::of("bin.000001", 4).expect("it is a place"))
    }

    #[test]
    fn a_log_that_is_gone_is_lost_and_one_that_is_refused_is_a_setting() {
        let lost = told(1236, "Could not find first log file name in binary log index file");
        assert!(
            matches!(&lost, Error::SlotLost { text } if text.contains("bin.000001:4")),
            "{lost}"
        );
        assert!(
            told(1236, "A slave with the same server_uuid/server_id as this slave").is_temporary()
        );
        assert!(told(1227, "Access denied").to_string().contains("REPLICATION SLAVE"));
        assert!(told(1053, "Server shutdown in progress").is_temporary());
    }

    #[test]
    fn a_relay_has_a_number_of_its_own_among_replicas() {
        assert_eq!(number_of("a", "shop.outbox"), number_of("a", "shop.outbox"));
        assert_ne!(number_of("a", "shop.outbox"), number_of("b", "shop.outbox"));
    }
}
