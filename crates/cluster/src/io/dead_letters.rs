//! Holds back the last step of dead letters while a backup is cut.
//!
//! A dead letter is stored in its target, and then let go at its source. A backup cuts one group after the other. If both
//! happened between the cut of the target and the later cut of the source, the letter would be in neither. So while groups
//! are cut, no node lets any letter go.

use std::time::Instant;

use tokio::sync::watch;

/// Until when dead letters are held, and for which backup.
#[derive(Debug)]
pub(crate) struct Hold(pub(super) watch::Sender<Option<(u64, Instant)>>);

impl Default for Hold {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}
