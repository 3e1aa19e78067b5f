//! The queue that has the last messages of an exchange of recent history is called after it.

/// With the name of the exchange behind it, the name of its queue.
pub(super) const PREFIX: &str = "amq.recent-history.";

/// The queue that is the history of an exchange.
pub(super) fn history_of(exchange: &str) -> String {
    format!("{PREFIX}{exchange}")
}

/// The exchange that a queue is the history of.
pub(super) fn exchange_of(queue: &str) -> Option<&str> {
    queue.strip_prefix(PREFIX)
}
