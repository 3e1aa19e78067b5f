//! What was written of a batch, or why nothing was.

use super::failures::Writing;
use crate::error::Error;

/// Why a batch was not written down.
pub(crate) enum Unwritten {
    /// The data of some row is to blame, and it is not known which.
    ByRow(String),
    Failed(Error),
}

/// What was written of a batch.
#[derive(Default)]
pub(crate) struct Written {
    /// Rows that are marked.
    pub(crate) marked: Vec<usize>,
    /// Confirmed rows for which there was no time: they are marked later.
    pub(crate) rest: Vec<usize>,
    /// Failures are among it.
    pub(crate) writing: Option<Writing>,
}
