//! What a session needs of a database: its log, and a connection that keeps what is written down.

use std::time::Duration;

use crate::error::Error;
use crate::lsn::Lsn;
use crate::progress::Reached;
use crate::stream::{Input, Output};

/// The log, as it arrives.
pub(in crate::io) trait Log: Send {
    /// A place in it, as it is written down.
    type Place: Send + 'static;

    /// What has arrived already; none: nothing more for now.
    fn poll(&mut self) -> Result<Option<Input>, Error>;

    /// The next that arrives. Nothing is lost where nobody waits for the end of this.
    fn next(&mut self) -> impl Future<Output = Result<Input, Error>> + Send;

    /// It has come to its end, whose reason is still to be told.
    fn has_ended(&self) -> bool;

    fn place(&mut self, confirmed: Lsn) -> Self::Place;

    /// Whether a place is to be written down that no row has led to. `overdue`: for so long one could have been.
    fn is_worth_writing(&self, before: Lsn, now: Lsn, overdue: Duration) -> bool;

    /// What was written down last.
    fn recorded(&self, confirmed: Lsn);

    /// Ends it in order.
    fn close(self, recorded: Lsn) -> impl Future<Output = ()> + Send;
}

/// The connection that has the right to the log, and keeps the failures and how far the log is done. It does one thing at
/// a time.
pub(in crate::io) trait Records: Send + Sized + 'static {
    type Log: Log;
    /// A reading of the table.
    type Scan: Send + 'static;

    /// Says whether the connection is gone, also while it works.
    fn watch(&self) -> Box<dyn Fn() -> bool + Send + Sync>;

    /// Does what the core asks for, in order; says what the core has to know.
    fn apply(
        &mut self,
        orders: Vec<Output>,
    ) -> impl Future<Output = Result<Vec<Input>, Error>> + Send;

    /// Writes down how far the log is done.
    fn record(
        &mut self,
        place: PlaceOf<Self>,
        reached: Reached,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Looks at the failures, and at the log from `place` on, if it is read already.
    ///
    /// # Errors
    /// Among others: the log is lost.
    fn look(
        &mut self,
        place: Option<PlaceOf<Self>>,
    ) -> impl Future<Output = Result<Looked, Error>> + Send;

    /// The next rows of the table; none: that was all.
    fn read(
        &mut self,
        scan: Self::Scan,
    ) -> impl Future<Output = Result<(Self::Scan, Vec<Input>), Error>> + Send;
}

pub(in crate::io) type PlaceOf<R> = <<R as Records>::Log as Log>::Place;

/// What a look has found.
#[derive(Clone, Copy, Debug)]
pub(in crate::io) struct Looked {
    /// Bytes of the log that are not done.
    pub(in crate::io) lag: i64,
    pub(in crate::io) failures: Counted,
}

/// Failures, counted.
#[derive(Clone, Copy, Debug)]
pub(in crate::io) struct Counted {
    /// For another attempt.
    pub(in crate::io) waiting: i64,
    pub(in crate::io) dead: i64,
    /// How long the oldest of those that wait has failed.
    pub(in crate::io) oldest: Option<Duration>,
}
