//! Asks the connections of this node what they do.

use std::sync::{Arc, PoisonError};

use broker::io::describe::ListedConnection;
use broker::limits::LISTED_CONNECTIONS_MAX;
use broker::session::describe::ConnectionState;

use super::api::{Api, now_ms};
use crate::limits::{ASKED_CONNECTIONS_MAX, PICTURE_MS};
use crate::lines::{Known, Lines, totals};

/// All connections of this node that are open, and what they do: where there are many, a second ago at most.
pub(super) async fn latest(api: &Api) -> Arc<Vec<Known>> {
    if api.0.broker.connection_count() <= ASKED_CONNECTIONS_MAX {
        *api.0.lines.lock().await = None;
        return Arc::new(known(api).await);
    }
    // Who asks at the same time waits for the same answers.
    let mut last = api.0.lines.lock().await;
    if let Some(Lines { at_ms, all }) = last.as_ref()
        && now_ms().saturating_sub(*at_ms) < PICTURE_MS
    {
        return Arc::clone(all);
    }
    let all = Arc::new(known(api).await);
    *last = Some(Lines { at_ms: now_ms(), all: Arc::clone(&all) });
    all
}

/// All connections of this node that are open and say what they do.
pub(super) async fn known(api: &Api) -> Vec<Known> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = api.0.broker.connections().list(after, LISTED_CONNECTIONS_MAX).await;
        let now = now_ms();
        {
            let mut rates = api.0.client_rates.lock().unwrap_or_else(PoisonError::into_inner);
            let lines = page.connections.into_iter().filter_map(|listed| {
                let ListedConnection { id, line, is_tls, .. } = listed;
                let line = line.ok().filter(|line| line.state != ConnectionState::Opening)?;
                let rates = rates.connections.of(id, now, totals(&line));
                Some(Known { id, line, is_tls, rates })
            });
            all.extend(lines);
        }
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}
