//! What the workers of one relay share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

use super::connection::Database;
use crate::config::Config;
use crate::io::poll::apart::Apart;
use crate::io::poll::failures::Failures;
use crate::io::poll::late::Late;
use crate::mapping::Layout;
use crate::metrics::Metrics;
use crate::mysql::shape::Shape;
use crate::mysql::sql::Statements;

/// What the workers of one relay share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) database: Database,
    pub(super) layout: Layout,
    pub(super) shape: Shape,
    pub(super) statements: Statements,
    pub(super) metrics: Metrics,
    pub(super) failures: Arc<Failures>,
    pub(super) late: Late,
    /// When some row's data last kept a batch from being written down.
    pub(super) apart: Apart,
    /// Some worker has marked a row.
    pub(super) has_marked: AtomicBool,
    pub(super) nudge: Notify,
}
