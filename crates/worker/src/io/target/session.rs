//! An access token that all runs of a target share: one of them refreshes it, the others wait for that one.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::target::push::Verdict;
use crate::target::session::{Ask, Lease, Session};

/// A session behind a lock that is held over a refresh. A refresh whose run is dropped is begun anew by the next one.
#[derive(Debug, Default)]
pub struct Shared {
    session: Mutex<Session>,
}

impl Shared {
    pub fn new() -> Self {
        Self::default()
    }

    /// The token. `refresh` runs only if a new one is needed, and once for all that wait.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn lease(
        &self,
        refresh: impl Future<Output = Result<(String, Duration), Verdict>>,
    ) -> Result<Lease, Verdict> {
        let mut session = self.session.lock().await;
        let mut ask = session.ask(Instant::now());
        if let Ask::Wait { until } = ask {
            tokio::time::sleep_until(until.into()).await;
            ask = session.ask(Instant::now());
        }
        let ask = match ask {
            Ask::Refresh => match refresh.await {
                Ok((token, life)) => Ask::Use(session.got(Instant::now(), token, life)),
                Err(verdict) => session.failed(Instant::now(), verdict),
            },
            ask @ (Ask::Use(_) | Ask::Wait { .. } | Ask::Refused(_)) => ask,
        };
        match ask {
            Ask::Use(lease) => Ok(lease),
            Ask::Refused(verdict) => Err(verdict),
            Ask::Refresh | Ask::Wait { .. } => Err(Verdict::Retry {
                after: None,
                why: "the access token cannot be refreshed at the moment".to_owned(),
            }),
        }
    }

    /// The provider does not take this token any more.
    pub async fn expired(&self, lease: &Lease) {
        self.session.lock().await.expired(lease.generation);
    }
}
