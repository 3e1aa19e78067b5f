//! The log file that is written: recovery finds it, and the writer goes on with it.

use std::sync::Arc;

use crate::record::{Groups, Position, Seed};

/// The file that is written.
pub(crate) struct Active<F> {
    pub(crate) number: u64,
    pub(crate) file: Arc<F>,
    pub(crate) bytes: u64,
    pub(crate) seed: Seed,
    /// Where the next batch goes.
    pub(crate) offset: u64,
    /// End of the last batch, here or in the file before.
    pub(crate) durable: Position,
    /// Groups of the last batch.
    pub(crate) groups: Groups,
}
